"""Toys in which one block learns where to read: the mirror token, or the one before."""

from typing import NamedTuple

import numpy as np

from qkvlib._checks import check_count
from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.training import accuracy, train

SIZES = {"vocabulary": tasks.VOCABULARY, "length": tasks.LENGTH}
BATCH, TEST = 32, 256


class Mirror(NamedTuple):
    """What `mirror` found.

    before, after (num_heads,): each head's mean weight on the mirror token, untrained and trained.
    accuracy: the share of right answers on sequences that were not trained on.
    """

    before: np.ndarray
    after: np.ndarray
    accuracy: float


def mirror(seed=0, *, steps=200, positions="learned", attention="learned"):
    """Train four heads to output a sequence backwards, and see what they read.

    The right place to read for the answer at place i is the mirror token, at place n - 1 - i.

    seed: a number, or a NumPy Generator
    positions: "learned", or None for a model that is not told where a token stands
    attention: "learned", or "uniform" for heads that read every token alike, whatever they learn

    Raises `ValueError` for other words.

    >>> mirror(steps=0).before.round(2)
    array([0.08, 0.08, 0.09, 0.08])
    """
    models.check_choice("attention", attention, "learned", "uniform")
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.rescaled(
        models.heads(for_weights, num_heads=4), 0.0 if attention == "uniform" else None
    )
    model = models.reader(for_weights, layer, **SIZES, positions=positions)
    test = tasks.reversal(for_batches, TEST)
    before = mirror_weight(model, test[0])
    train(model, draw(tasks.reversal, for_batches, steps), lr=3e-3)
    return Mirror(before, mirror_weight(model, test[0]), accuracy(model, test))


def mirror_weight(model, tokens):
    """Each head's mean weight on the mirror token, (num_heads,)."""
    place = np.arange(tasks.LENGTH)
    return models.weights_of(model, tokens)[..., place, place[::-1]].mean(axis=(0, -1))


class Copying(NamedTuple):
    """What `copy_previous` found.

    accuracy: the share of right answers on sequences that were not trained on.
    weights (12, 12): the head's weights, averaged over those sequences.
    """

    accuracy: float
    weights: np.ndarray


def copy_previous(seed=0, *, steps=300, tied=None):
    """Train one head, which sees the whole sequence, to output the token before each token.

    seed: a number, or a NumPy Generator
    tied: None, or "query-key" or "key-value" to let these two share one matrix

    Raises `ValueError` for other words.

    >>> copy_previous(steps=0).weights.sum(axis=1).round(6).tolist() == [1.0] * 12
    True
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.tied(models.heads(for_weights), tied)
    model = models.reader(for_weights, layer, **SIZES)
    test = tasks.previous_token(for_batches, TEST)
    train(model, draw(tasks.previous_token, for_batches, steps), lr=3e-3)
    return Copying(accuracy(model, test), models.weights_of(model, test[0]).mean(axis=(0, 1)))


def loss_curve(seed=0, *, steps=100, d_k=256, scale=None):
    """The losses while one head learns to output a sequence backwards.

    seed: a number, or a NumPy Generator
    scale: what the scores are multiplied by, by default 1 / sqrt(d_k); 1.0 is "no scale"
    -> losses (steps,) float64. Guessing gives log(12) = 2.48.

    Without a scale a difference in rounding grows about tenfold every ten steps. It cannot be
    seen in 100 steps, but in 200 another processor may draw another curve.

    >>> loss_curve(steps=2).round(1)
    array([3. , 2.9])
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.rescaled(models.heads(for_weights, d_k=d_k), scale)
    model = models.reader(for_weights, layer, **SIZES)
    return train(model, draw(tasks.reversal, for_batches, steps), lr=1e-3)


def draw(task, generator, steps):
    """One batch of `task` for each step, drawn when it is needed."""
    return (task(generator, BATCH) for _ in range(check_count("steps", steps, least=0)))
