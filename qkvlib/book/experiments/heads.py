"""What more heads, and more layers of heads, can do: toys of attention and nothing else."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.reading import draw
from qkvlib.book.experiments.training import train
from qkvlib.torch import LayerNorm, causal_mask

TEST = 256
D_MODEL = 24
"""A width that 1, 2, 3, 4, 6, 8, 12 and 24 heads divide."""


class Lookups(NamedTuple):
    """What `pair_before` and `two_patterns` found.

    accuracy: the share of places where every answer is right, on sequences not trained on. The
    first two places, where both answers are the same token, do not count.
    weights (num_heads, 12, 12): what each head reads, whatever the tokens are.
    distances: for each head, how far before a place it reads most.
    parameters: how many numbers were learned.
    """

    accuracy: float
    weights: np.ndarray
    distances: list
    parameters: int


def pair_before(seed=0, *, num_heads=1, d_k=None, steps=200):
    """Train heads to tell, at each place, the token before it and the one before that.

    seed: a number, or a NumPy Generator; num_heads: a divisor of 24, the width of the layer
    d_k: the width of a key, by default 24 / num_heads, which the width of a value always is

    >>> pair_before(num_heads=2, steps=0).parameters
    3456
    """
    return _trained(tasks.pair_before, seed, num_heads, steps, d_k)


def two_patterns(seed=0, *, steps=200):
    """Train *one* head to read the token before at even places, and the first token at odd ones.

    seed: a number, or a NumPy Generator

    >>> two_patterns(steps=0).weights.shape
    (1, 12, 12)
    """
    return _trained(tasks.two_patterns, seed, 1, steps)


def early_loss(task, seed=0, *, num_heads=1, steps=100):
    """How far training has come after some steps with a small learning rate: the last 10 losses.

    task: "backwards", which takes one lookup, or "pair", which takes two
    -> their mean, a float. Guessing gives log(12) = 2.48.
    """
    models.check_choice("task", task, "backwards", "pair")
    task = {"backwards": _backwards, "pair": tasks.pair_before}[task]
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = PlaceReader(for_weights, num_heads, _answers(task))
    return float(train(model, draw(task, for_batches, steps), lr=3e-3)[-10:].mean())


def _backwards(generator, size):
    tokens, targets = tasks.reversal(generator, size)
    return tokens, targets[..., None]


def _answers(task):
    """How many tokens a task asks for at each place."""
    return task(np.random.default_rng(0), 1)[-1].shape[-1]


def _trained(task, seed, num_heads, steps, d_k=None):
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = PlaceReader(for_weights, num_heads, _answers(task), d_k)
    tokens, targets = task(for_batches, TEST)
    train(model, draw(task, for_batches, steps), lr=5e-3)
    with torch.no_grad():
        given = model(torch.from_numpy(tokens)).argmax(dim=-1).numpy()
        weights = model.attention.attention_weights(model.places).numpy()
    right = (given == targets).all(axis=-1)[:, 2:].mean()
    return Lookups(float(right), weights, distances(weights), _count(model))


def distances(weights):
    """How far before a place each head reads most, (num_heads, n, n) -> a list of num_heads."""
    n = weights.shape[-1]
    read = [[np.diagonal(head, -back).mean() for back in range(n - 1)] for head in weights]
    return np.argmax(read, axis=-1).tolist()


def _count(model):
    return sum(parameter.numel() for parameter in model.parameters())


class PlaceReader(nn.Module):
    """One attention layer that chooses by the place alone, and hands over the token alone.

    Queries and keys are made of places, values of tokens, and the rest is linear: nothing but
    the choice of where to read can solve a task.
    tokens (..., 12) -> scores (..., 12, answers, 12): for each place and answer, of every token.
    """

    def __init__(self, generator, num_heads, answers, d_k=None):
        super().__init__()
        self.tokens = nn.Parameter(models.normal(generator, tasks.VOCABULARY, D_MODEL))
        self.places = nn.Parameter(models.normal(generator, tasks.LENGTH, D_MODEL))
        self.attention = models.heads(generator, num_heads, d_model=D_MODEL, d_k=d_k)
        read_out = models.projection(generator, D_MODEL, answers * tasks.VOCABULARY)
        self.read_out = nn.Parameter(read_out)

    def forward(self, tokens):
        read = self.attention(self.places, self.places, self.tokens[tokens])
        return (read @ self.read_out).unflatten(-1, (-1, tasks.VOCABULARY))


# ---- repeats


class Repeats(NamedTuple):
    """What `repeats` found.

    seen: the share of right next tokens after the first period, for periods trained on (7 to 12,
    or the one that was asked for). unseen: the same for period 5.
    weights (layers, num_heads, 24, 24): what the heads read in one sequence of period 9.
    """

    seen: float
    unseen: float
    weights: np.ndarray


def repeats(seed=0, *, layers, num_heads=1, period=None, steps=300):
    """Train layers of attention to continue a sequence that repeats itself.

    seed: a number, or a NumPy Generator; num_heads: in each layer
    period: None for a new one in each sequence, or one number for all of them

    Each head also learns how much it likes each distance, added to its scores (as in T5).

    >>> repeats(layers=2, steps=0).weights.shape
    (2, 1, 24, 24)
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = RepeatReader(for_weights, layers, num_heads)
    periods = range(7, 13) if period is None else [period]
    seen = tasks.repeats(for_batches, TEST, periods=periods)
    unseen = tasks.repeats(for_batches, TEST, periods=[5])
    [example], _ = tasks.repeats(for_batches, 1, periods=[9])

    def task(generator, size):
        return tasks.repeats(generator, size, periods=periods)

    train(model, draw(task, for_batches, steps), lr=1e-2)
    return Repeats(_continued(model, seen), _continued(model, unseen), model.read(example))


def _continued(model, batch):
    tokens, targets = batch
    with torch.no_grad():
        given = model(torch.from_numpy(tokens)).argmax(dim=-1).numpy()
    return float((given == targets)[targets != tasks.NOT_ASKED].mean())


class RepeatReader(nn.Module):
    """Layers of causal attention, each added to what came in, without anything between them.

    tokens (..., 24) -> scores (..., 24, 16), of every token as the next one.
    """

    def __init__(self, generator, layers, num_heads, d_model=32):
        super().__init__()
        n, self.mask = tasks.REPEATS_LENGTH, causal_mask(tasks.REPEATS_LENGTH)
        place = torch.arange(n)
        self.distance = (place[:, None] - place).clamp(min=0)
        self.tokens = nn.Parameter(models.normal(generator, tasks.REPEATS_VOCABULARY, d_model))
        self.layers = nn.ModuleList(
            models.heads(generator, num_heads, d_model=d_model) for _ in range(layers)
        )
        norms = nn.ModuleList(LayerNorm(d_model) for _ in range(layers + 1))
        self.norms = norms.double()
        self.liked = nn.Parameter(torch.zeros(layers, num_heads, n, dtype=torch.float64))
        read_out = models.projection(generator, d_model, tasks.REPEATS_VOCABULARY)
        self.read_out = nn.Parameter(read_out)

    def forward(self, tokens):
        *_, x = self.states(tokens)
        return self.norms[-1](x) @ self.read_out

    def states(self, tokens):
        """What each layer reads, and then what the last one leaves."""
        x = self.tokens[tokens]
        yield x
        for attention, norm, bias in zip(self.layers, self.norms, self.bias):
            x = x + attention(norm(x), mask=self.mask, bias=bias)
            yield x

    @property
    def bias(self):
        """(layers, num_heads, n, n): how much each head likes the distance of each pair."""
        return self.liked[:, :, self.distance]

    def read(self, tokens):
        """The weights (layers, num_heads, n, n) in one sequence, both NumPy."""
        with torch.no_grad():
            read = [
                attention.attention_weights(norm(x), mask=self.mask, bias=bias)
                for attention, norm, bias, x in zip(
                    self.layers, self.norms, self.bias, self.states(torch.from_numpy(tokens))
                )
            ]
        return torch.stack(read).numpy()
