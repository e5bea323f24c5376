"""Toys in which one block learns where to read: a sequence backwards, or one token back."""

from typing import NamedTuple

import numpy as np

from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.training import accuracy, train


class Mirror(NamedTuple):
    """before, after (num_heads,): each head's mean weight on the mirror token, without and with
    training. accuracy: the share of right answers on sequences that were not trained on."""

    before: np.ndarray
    after: np.ndarray
    accuracy: float


def mirror(seed=0, *, steps=200, positions="learned", attention="learned"):
    """Train four heads to output a sequence backwards, and see what they read.

    The right place for an answer is the mirror token: token n-1-i for place i.
    seed: a number, or a NumPy Generator
    positions: "learned", or None for a model that is not told where a token stands
    attention: "learned", or "uniform" for heads that must read every token alike
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = models.reader(for_weights, **SIZES, num_heads=4, positions=positions)
    models.rescale(model[0].blocks[0].attention, 0.0 if attention == "uniform" else None)
    test = tasks.reversal(for_batches, TEST)
    before = mirror_weight(model, test[0])
    train(model, (tasks.reversal(for_batches, BATCH) for _ in range(steps)), lr=3e-3)
    return Mirror(before, mirror_weight(model, test[0]), accuracy(model, test))


def mirror_weight(model, tokens):
    """Each head's mean weight on the mirror token, (num_heads,)."""
    weights = models.attention_weights(model, tokens)
    places = np.arange(tasks.LENGTH)
    return weights[..., places, places[::-1]].mean(axis=(0, -1))


class Copying(NamedTuple):
    """accuracy: the share of right answers on sequences that were not trained on.
    weights (n, n): the head's weights, averaged over those sequences."""

    accuracy: float
    weights: np.ndarray


def copy_previous(seed=0, *, tied=None):
    """Train one head, which sees the whole sequence, to output the token before each token.

    seed: a number, or a NumPy Generator
    tied: None; or "query-key" or "key-value" to let those two share one matrix
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = models.reader(for_weights, **SIZES)
    models.tie(model[0].blocks[0].attention, tied)
    test = tasks.previous_token(for_batches, TEST)
    train(model, (tasks.previous_token(for_batches, BATCH) for _ in range(300)), lr=3e-3)
    weights = models.attention_weights(model, test[0])
    return Copying(accuracy(model, test), weights.mean(axis=(0, 1)))


def loss_curve(seed=0, *, d_k=256, scale=None):
    """The losses while one head learns to output a sequence backwards, one for each step.

    seed: a number, or a NumPy Generator
    scale: what the scores are multiplied by, by default 1 / sqrt(d_k); 1.0 is "no scale"
    -> losses (200,) float64; log(12) = 2.48 is what guessing gives
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    model = models.reader(for_weights, **SIZES, d_k=d_k)
    models.rescale(model[0].blocks[0].attention, scale)
    return train(model, (tasks.reversal(for_batches, BATCH) for _ in range(200)), lr=1e-3)


SIZES = dict(vocabulary=tasks.VOCABULARY, length=tasks.LENGTH)
BATCH = 32
TEST = 256
