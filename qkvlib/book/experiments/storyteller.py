"""A small world of stories, and a model that learns to tell them letter by letter.

    Then Kate told Otto he snored. Otto blushed.

There are so few stories that all can be listed. So the chance of every letter is known, and with
it the least that a story costs any model.
"""

import math
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

import qkvlib.numpy as qn
import qkvlib.torch as qt
from qkvlib.book.experiments import models
from qkvlib.book.experiments.training import train

HE = ("Paul", "Otto", "Ben", "Max")
SHE = ("Emma", "Anna", "Kate", "Lucy")
EVENTS = {"won": "danced", "lost": "sighed", "snored": "blushed", "cheated": "fled"}
"""What may happen to somebody, and what it makes them do."""

APART = ("Paul", "Emma")
"""Two who never meet in what a model is trained on."""

LENGTH = 48
"""How many letters the model reads at once in training: one story, and a part of the next."""

BATCH, STEPS = 16, 450
"""How many rows a step reads, and how many steps the training takes: about 10 seconds."""


def all_stories(he=HE, she=SHE, events=EVENTS):
    """Every story of the form `[Then] NAME told NAME PRONOUN EVENT. NAME DEED.`, a list of texts.

    The two names are of different kinds, so the pronoun tells who acts at the end.

    >>> stories = all_stories()
    >>> len(stories), stories[0]
    (512, 'Paul told Emma he won. Paul danced.')
    """
    return [
        f"{start}{first} told {second} {pronoun} {event}. {meant} {deed}."
        for his in he
        for her in she
        for first, second in ((his, her), (her, his))
        for pronoun, meant in (("he", his), ("she", her))
        for event, deed in events.items()
        for start in ("", "Then ")
    ]


def meet(story, pair=APART):
    """Whether both of `pair` occur in a story.

    >>> sum(meet(story) for story in all_stories())
    32
    """
    return all(name in story.split() for name in pair)


class Book:
    """Stories, one a line, and their letters as numbers.

    A line ends with a line break, and a text begins with one. Every story is as likely as any
    other.

    stories: a list of different texts; letters: the alphabet, by default what occurs in them

    Raises ValueError for a story twice, or with a letter that the alphabet lacks.

    >>> book = Book(["a cat.", "a dog."])
    >>> book.letters, book.encode("cat").tolist()
    ('\\n .acdgot', [4, 3, 8])
    >>> book.surprise("a dog.").tolist()  # in bits: only the d is new
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, stories, letters=None):
        self.stories = list(stories)
        if len(set(self.stories)) < len(self.stories) or not self.stories:
            raise ValueError("stories must be different texts, at least one; look for a repeat")
        self.letters = letters or "".join(sorted({"\n", *"".join(self.stories)}))
        if missing := sorted(set("".join(self.stories)) - set(self.letters)):
            raise ValueError(f"letters must hold all of the stories, {missing} are missing")

    def encode(self, text):
        """The letters of a text as whole numbers (n,)."""
        return np.array([self.letters.index(letter) for letter in text], dtype=np.int64)

    def decode(self, ids):
        """The text of whole numbers (n,)."""
        return "".join(self.letters[i] for i in ids)

    def batch(self, generator, size, length=LENGTH):
        """Rows of stories, drawn one after the other and cut: letters and the letters that follow.

        generator: a NumPy Generator -> tokens and targets, both (size, length) int64
        """
        rows = np.empty((size, length + 1), dtype=np.int64)
        for row in rows:
            filled = 0
            while filled <= length:
                line = self._lines[generator.integers(len(self.stories))]
                part = line[: length + 1 - filled]
                row[filled : filled + len(part)] = part
                filled += len(part)
        return rows[:, :-1].copy(), rows[:, 1:].copy()

    @cached_property
    def _lines(self):
        return [self.encode("\n" + story) for story in self.stories]

    def table(self):
        """All stories, each once, filled up with line breaks to one length.

        -> tokens, targets (stories, longest + 1), and is_story, True up to the line's own end
        """
        longest = max(map(len, self.stories))
        rows = [self.encode(f"\n{story}".ljust(longest + 2, "\n")) for story in self.stories]
        ends = np.array([len(story) for story in self.stories])
        rows = np.array(rows)
        return rows[:, :-1].copy(), rows[:, 1:].copy(), np.arange(longest + 1) <= ends[:, None]

    def surprise(self, story):
        """What each letter of a story costs whoever knows the book by heart, in bits: (n + 1,).

        The bits are -log2 of the letter's chance after the letters before it; the last one is
        the line break.
        """
        if story not in self.stories:
            raise ValueError(f"story must be one of the book's, got {story!r}")
        line, left, bits = story + "\n", [other + "\n" for other in self.stories], []
        for place, letter in enumerate(line):
            stay = [other for other in left if other[place] == letter]
            bits.append(np.log2(len(left) / len(stay)))
            left = stay
        return np.array(bits)

    def least(self, length=LENGTH):
        """The mean surprise of a letter in the rows of `batch`, in nats: no model's loss is less.

        >>> round(Book(["a cat.", "a dog."]).least(length=7) * 7 / math.log(2), 12)
        1.0
        """
        surprises = [self.surprise(story) for story in self.stories]
        costs = np.zeros(length + 1)  # of so many letters from the beginning of a story
        for n in range(1, length + 1):
            costs[n] = np.mean(
                [bits[:n].sum() + costs[max(n - len(bits), 0)] for bits in surprises]
            )
        return float(costs[length] / length * np.log(2))


def books(apart=APART, **world):
    """What the chapter trains on, and what it keeps for the examination: two `Book`.

    The first has every story but those in which `apart` meet, the second has these alone.

    apart: two names of different kinds; world: as in `all_stories`

    >>> read, unread = books()
    >>> len(read.stories), len(unread.stories)
    (480, 32)
    >>> len(books(he=(*HE, "Tom"))[0].stories)
    608
    """
    stories = all_stories(**world)
    read = Book([story for story in stories if not meet(story, apart)])
    return read, Book([story for story in stories if meet(story, apart)], read.letters)


# ---- the model ---------------------------------------------------------------------------------


BASE = 100.0
"""The base of the rotary angles: the slowest pair turns once in a few hundred letters."""


def turn(x, positions):
    """Queries or keys `(..., n, d_k)`, turned by where they stand; of either twin."""
    lib = qn if isinstance(x, np.ndarray) else qt
    angles = lib.rotary_angles(positions, x.shape[-1], base=BASE)
    return lib.rotate(x, *angles, pairing="half")


def new_model(
    generator,
    vocabulary,
    *,
    layers=2,
    num_heads=4,
    d_model=32,
    rotate=turn,
    kind=qt.MultiHeadAttention,
):
    """A `Decoder` of `qkvlib.torch` with small random weights, float64.

    generator: a NumPy Generator; vocabulary: how many letters there are
    rotate: as in `MultiHeadAttention`, None for a model that is told no positions
    kind: the class of the attention layers
    """
    table = models.normal(generator, vocabulary, d_model) / math.sqrt(d_model)
    blocks = []
    for _ in range(layers):
        attention = models.heads(generator, num_heads, d_model=d_model, kind=kind)
        attention.rotate = rotate
        blocks.append(models.block(generator, attention))
    return qt.Decoder(table, norm=qt.LayerNorm(d_model), blocks=blocks, n_max=256).double()


def numpy_model(weights, num_heads=4):
    """The decoder that `new_model` makes, in `qkvlib.numpy`: it needs no torch.

    weights: arrays by the names that the model's `state_dict()` has for them
    """
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    blocks = [
        qn.TransformerBlock.from_parts(
            qn.MultiHeadAttention.from_weights(
                **{
                    W: weights[f"{block}.attention.{name}.weight"].T
                    for W, name in zip(
                        ("W_Q", "W_K", "W_V", "W_O"), ("query", "key", "value", "output")
                    )
                },
                num_heads=num_heads,
                rotate=turn,
            ),
            qn.FeedForward.from_weights(
                W_1=weights[f"{block}.feed_forward.inner.weight"].T,
                b_1=weights[f"{block}.feed_forward.inner.bias"],
                W_2=weights[f"{block}.feed_forward.outer.weight"].T,
                b_2=weights[f"{block}.feed_forward.outer.bias"],
            ),
            _numpy_norm(weights, f"{block}.attention_norm"),
            _numpy_norm(weights, f"{block}.feed_forward_norm"),
        )
        for block in (f"blocks.{i}" for i in range(layers))
    ]
    norm = _numpy_norm(weights, "norm")
    return qn.Decoder(weights["token_table"], norm=norm, blocks=blocks, n_max=256)


def _numpy_norm(weights, name):
    return qn.LayerNorm.from_weights(weights[f"{name}.weight"], weights[f"{name}.bias"])


# ---- training, and what is asked afterwards ----------------------------------------------------


def learn(model, batches, steps=STEPS, *, lr=0.005):
    """Train for some steps, the last fifth of them at a fifth of the rate; the loss of each.

    batches: an iterable of at least so many batches
    """
    batches = iter(batches)
    slow = steps // 5
    fast = train(model, islice(batches, steps - slow), lr=lr)
    return np.concatenate([fast, train(model, islice(batches, slow), lr=lr / 5)])


def bits(model, book):
    """What a story costs the model, in bits: the mean over the whole book.

    No model can do with less than log2 of the number of stories.
    """
    _, _, is_story = book.table()
    return float((letter_bits(model, book) * is_story).sum(axis=1).mean())


def letter_bits(model, book):
    """What each letter of each story costs the model: `(stories, longest + 1)` bits."""
    tokens, targets, _ = book.table()
    with torch.no_grad():
        surprise = -qt.log_softmax(model(torch.from_numpy(tokens))).numpy() / math.log(2)
    return np.take_along_axis(surprise, targets[..., None], axis=-1)[..., 0]


class Places(NamedTuple):
    """Where things stand in the lines of a book, counted from the line break before a story.

    asks, deed: (stories,): the space after the full stop, where the next letter is the name
    of the one who is meant, and the space before what they do
    meant, other, pronoun: (stories, longest + 1): True at the letters of these words
    """

    asks: np.ndarray
    deed: np.ndarray
    meant: np.ndarray
    other: np.ndarray
    pronoun: np.ndarray


def places(book):
    """The `Places` of a book of stories as `all_stories` writes them."""
    words = {"meant": [], "other": [], "pronoun": []}
    for story in book.stories:
        *_, first, _, second, pronoun, _, meant, _ = story.replace(".", "").split()
        other = second if meant == first else first
        line = f"\n{story}"
        words["meant"].append(line.index(meant) + np.arange(len(meant)))
        words["other"].append(line.index(other) + np.arange(len(other)))
        words["pronoun"].append(line.index(f" {pronoun} ") + 1 + np.arange(len(pronoun)))
    longest = max(map(len, book.stories))
    masks = {name: np.zeros((len(book.stories), longest + 1), dtype=bool) for name in words}
    for name, spans in words.items():
        for row, span in zip(masks[name], spans):
            row[span] = True
    asks = np.array([story.index(". ") + 2 for story in book.stories])
    deed = np.array([story.rindex(" ") + 1 for story in book.stories])
    return Places(asks, deed, **masks)


def right(model, book, where):
    """The share of stories in which the model's likeliest letter after a place is the right one.

    where: (stories,), such as `places(book).asks`
    """
    truth = book.decode(book.table()[1][np.arange(len(where)), where])
    return np.mean([letter == true for letter, true in zip(said(model, book, where), truth)]).item()


def said(model, book, where):
    """The model's likeliest letter after a place of each story, a text of as many letters.

    where: (stories,), such as `places(book).asks`
    """
    tokens, _, _ = book.table()
    with torch.no_grad():
        guesses = model(torch.from_numpy(tokens)).argmax(dim=-1).numpy()
    return book.decode(guesses[np.arange(len(where)), where])


def reading(model, book, where, words):
    """How much each head reads of some letters, from one place of every story: (layers, heads).

    where: (stories,); words: (stories, longest + 1), True at the letters, both from `places`
    """
    rows = np.arange(len(where))
    at_place = [w[rows, :, where] for w in head_weights(model, book)]  # (stories, heads, n)
    return np.array([(w * words[:, None]).sum(axis=-1).mean(axis=0) for w in at_place])


def previous(model, book):
    """How much each head reads of the letter just before, over all letters: (layers, heads)."""
    _, _, is_story = book.table()
    before = [np.diagonal(w, -1, axis1=-2, axis2=-1) for w in head_weights(model, book)]
    inside = is_story[:, 1:]
    return np.array([w.swapaxes(0, 1)[:, inside].mean(axis=-1) for w in before])


def head_weights(model, book):
    """What every head reads in every story: a list of `(stories, heads, n, n)`, one a layer."""
    tokens, _, _ = book.table()
    with torch.no_grad():
        return [weights.numpy() for weights in model.trace(torch.from_numpy(tokens)).weights]


@contextmanager
def muted(model, layer, head):
    """The model with one head's answer replaced by zeros, as long as the block lasts."""
    attention = model.blocks[layer].attention
    columns = attention.output.weight.data.tensor_split(attention.num_heads, dim=1)[head]
    kept = columns.clone()
    columns.zero_()
    try:
        yield model
    finally:
        columns.copy_(kept)


def muting(model, book, of):
    """Shares of right names and right deeds while one head is muted: (layers, heads, 2).

    of: the `Places` of the book
    """
    shares = [
        [(right(m, book, of.asks), right(m, book, of.deed)) for m in _each_muted(model, layer)]
        for layer in range(len(model.blocks))
    ]
    return np.array(shares)


def _each_muted(model, layer):
    for head in range(model.blocks[layer].attention.num_heads):
        with muted(model, layer, head):
            yield model


def write(model, book, generator, size, *, start="\n", longest=60):
    """Stories that the model draws letter by letter: a list of texts without line breaks.

    generator: a NumPy Generator, whose numbers are the same on every machine
    start: what each text begins with; longest: how many letters are drawn at most
    """
    ids = torch.from_numpy(book.encode(start)).repeat(size, 1)
    cache, read = model.new_cache(), ids
    with torch.no_grad():
        for _ in range(longest):
            chances = qt.token_probabilities(model.next_logits(read, cache=cache)).numpy()
            drawn = (generator.random((size, 1)) > chances.cumsum(axis=-1)).sum(axis=-1)
            drawn = drawn.clip(max=len(book.letters) - 1)
            read = torch.from_numpy(drawn)[:, None]
            ids = torch.cat([ids, read], dim=1)
    return [book.decode(line).lstrip("\n").split("\n")[0] for line in ids.tolist()]


class Peeking(qt.MultiHeadAttention):
    """Heads that forget the mask: the mistake on purpose."""

    def forward(self, x, *, mask=None, bias=None, cache=None):
        return super().forward(x, bias=bias, cache=cache)


class Told(NamedTuple):
    """What `tell` made: the model, the book it read, the one kept from it, the losses."""

    model: torch.nn.Module
    read: Book
    unread: Book
    losses: np.ndarray


def tell(seed=0, *, steps=STEPS, lr=0.005, texts=None, **options):
    """Make a storyteller and train it.

    seed: a number; steps, lr: as in `learn`; options: as in `new_model`
    texts: the two that `books` makes, by default those of the chapter

    >>> told = tell(steps=2)
    >>> len(told.losses), bits(told.model, told.read) > 50
    (2, True)
    """
    read, unread = texts or books()
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = new_model(for_weights, len(read.letters), **options)
    batches = (read.batch(for_batches, BATCH) for _ in range(steps))
    losses = learn(model, batches, steps, lr=lr)
    return Told(model, read, unread, losses)
