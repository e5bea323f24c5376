"""Tasks that can be learned in seconds, as NumPy arrays. Nothing here knows of torch.

A task is a function that returns a batch: what the model reads, and last the right answers.
Every random number comes from the `numpy.random.Generator` that is handed in.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from qkvlib.book.example import CONTENT, SEATS

LENGTH = 12
"""How many tokens a sequence has."""

VOCABULARY = 12
"""How many different tokens there are. Chance, without reading anything, is 1 in 12."""


def reversal(generator, size):
    """Sequences, and each of them read backwards.

    generator: a NumPy Generator; size: how many sequences
    -> tokens and targets, both (size, LENGTH) int64 below VOCABULARY

    >>> tokens, targets = reversal(np.random.default_rng(0), size=1)
    >>> tokens[0].tolist()
    [10, 7, 6, 3, 3, 0, 0, 0, 2, 9, 7, 10]
    >>> targets[0].tolist()
    [10, 7, 9, 2, 0, 0, 0, 3, 3, 6, 7, 10]
    """
    tokens = generator.integers(VOCABULARY, size=(size, LENGTH))
    return tokens, tokens[:, ::-1].copy()


def previous_token(generator, size):
    """Sequences, and at each place the token before it; the first, which has none, repeats itself.

    generator: a NumPy Generator; size: how many sequences
    -> tokens and targets, both (size, LENGTH) int64 below VOCABULARY

    >>> tokens, targets = previous_token(np.random.default_rng(0), size=1)
    >>> tokens[0].tolist()
    [10, 7, 6, 3, 3, 0, 0, 0, 2, 9, 7, 10]
    >>> targets[0].tolist()
    [10, 10, 7, 6, 3, 3, 0, 0, 0, 2, 9, 7]
    """
    tokens = generator.integers(VOCABULARY, size=(size, LENGTH))
    return tokens, np.concatenate([tokens[:, :1], tokens[:, :-1]], axis=1)


def next_flip(generator, size):
    """Sequences of independent tokens, and at each place the token that comes next.

    generator: a NumPy Generator; size: how many sequences
    -> tokens and targets, both (size, LENGTH) int64 below VOCABULARY

    >>> tokens, targets = next_flip(np.random.default_rng(0), size=1)
    >>> tokens[0].tolist()
    [10, 7, 6, 3, 3, 0, 0, 0, 2, 9, 7, 10]
    >>> targets[0].tolist()
    [7, 6, 3, 3, 0, 0, 0, 2, 9, 7, 10, 6]
    """
    tokens = generator.integers(VOCABULARY, size=(size, LENGTH + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def same_flip(generator, size):
    """As `next_flip`, but with targets that somebody forgot to shift: the tokens themselves."""
    tokens, _ = next_flip(generator, size)
    return tokens, tokens


NOT_ASKED = -100
"""The target of a place that has no answer; torch's cross-entropy leaves it out."""


def token_before(generator, size, length, *, distance):
    """Sequences, and at each place the token `distance` places before it.

    generator: a NumPy Generator; size, length: how many sequences, and how long they are
    -> tokens and targets, both (size, length) int64 below VOCABULARY; the first `distance`
    targets of each sequence, where nothing stands so far before, are NOT_ASKED

    >>> tokens, targets = token_before(np.random.default_rng(0), size=1, length=5, distance=2)
    >>> tokens[0].tolist(), targets[0].tolist()
    ([10, 7, 6, 3, 3], [-100, -100, 10, 7, 6])
    """
    tokens = generator.integers(VOCABULARY, size=(size, length))
    targets = np.full_like(tokens, NOT_ASKED)
    targets[:, distance:] = tokens[:, :-distance]
    return tokens, targets


def pair_before(generator, size):
    """Sequences, and at each place the token before it and the one before that, in this order.

    Where there is none, the first token stands in.

    generator: a NumPy Generator; size: how many sequences
    -> tokens (size, LENGTH) and targets (size, LENGTH, 2), int64 below VOCABULARY

    >>> tokens, targets = pair_before(np.random.default_rng(0), size=1)
    >>> tokens[0, :5].tolist(), targets[0, :5].tolist()
    ([10, 7, 6, 3, 3], [[10, 10], [10, 10], [7, 10], [6, 7], [3, 6]])
    """
    tokens = generator.integers(VOCABULARY, size=(size, LENGTH))
    return tokens, np.stack([tokens[:, _back(1)], tokens[:, _back(2)]], axis=-1)


def two_patterns(generator, size):
    """Sequences, and the token before at even places, but the first token at odd ones.

    generator: a NumPy Generator; size: how many sequences
    -> tokens (size, LENGTH) and targets (size, LENGTH, 1), int64 below VOCABULARY

    >>> tokens, targets = two_patterns(np.random.default_rng(0), size=1)
    >>> tokens[0, :5].tolist(), targets[0, :5, 0].tolist()
    ([10, 7, 6, 3, 3], [10, 10, 7, 10, 3])
    """
    tokens = generator.integers(VOCABULARY, size=(size, LENGTH))
    where = np.where(np.arange(LENGTH) % 2 == 0, _back(1), 0)
    return tokens, tokens[:, where][..., None]


def _back(steps):
    """For each place the place so many steps before it, or the first."""
    return np.maximum(np.arange(LENGTH) - steps, 0)


REPEATS_LENGTH, REPEATS_VOCABULARY = 24, 16


def repeats(generator, size, *, periods):
    """Sequences that repeat their first tokens, all different, and at each place the next token.

    generator: a NumPy Generator; size: how many sequences
    periods: after how many tokens a sequence may start again; each draws one of them
    -> tokens and targets, both (size, 24) int64; targets are NOT_ASKED before the second round

    >>> tokens, targets = repeats(np.random.default_rng(0), size=1, periods=[4])
    >>> tokens[0, :8].tolist(), targets[0, :8].tolist()
    ([2, 11, 3, 10, 2, 11, 3, 10], [-100, -100, -100, -100, 11, 3, 10, 2])
    """
    period = generator.choice(list(periods), size=(size, 1))
    kinds = np.tile(np.arange(REPEATS_VOCABULARY), (size, 1))
    place = np.arange(REPEATS_LENGTH + 1)
    tokens = np.take_along_axis(generator.permuted(kinds, axis=1), place % period, axis=1)
    targets = np.where(place[1:] > period, tokens[:, 1:], NOT_ASKED)
    return tokens[:, :-1].copy(), targets


FILLER = "then"
"""A word that is no name, no pronoun and no verb: only its seat is known."""


class Pronouns(NamedTuple):
    """Sentences with a pronoun, and the word that each pronoun stands for.

    X (32, 8, 6): the words as in `qkvlib.book.example.embed`, zeros after the last word.
    is_word (32, 8): False where the sentence has ended. pronoun (32,): the pronoun's seat.
    name (32,): the seat of the name it stands for, which is the answer.
    """

    X: np.ndarray
    is_word: np.ndarray
    pronoun: np.ndarray
    name: np.ndarray


def pronoun_sentences():
    """Every sentence of the form `[then] NAME told [told] NAME [then] PRONOUN won`: all 32.

    The words in brackets may be left out, so neither the distance nor the seat gives the answer
    away. The names are Paul and Emma, in either order; the pronoun is he or she.

    >>> sentences = pronoun_sentences()
    >>> sentences.X.shape, sentences.is_word.sum(axis=1).min()
    ((32, 8, 6), np.int64(5))
    """
    sentences = list(_sentences())
    X = np.zeros((len(sentences), len(SEATS), 6))
    is_word = np.zeros(X.shape[:2], dtype=bool)
    for row, words in enumerate(sentences):
        X[row, : len(words), :4] = [CONTENT.get(word, (0, 0, 0, 0)) for word in words]
        X[row, : len(words), 4:] = SEATS[: len(words)]
        is_word[row, : len(words)] = True
    pronoun = [len(words) - 2 for words in sentences]
    name = [words.index("Paul" if "he" in words else "Emma") for words in sentences]
    return Pronouns(X, is_word, np.array(pronoun), np.array(name))


def _sentences():
    names = ("Paul", "Emma"), ("Emma", "Paul")
    for start, verb, end in product([(), (FILLER,)], [(), ("told",)], [(), (FILLER,)]):
        for (first, second), pronoun in product(names, ("he", "she")):
            yield (*start, first, "told", *verb, second, *end, pronoun, "won")
