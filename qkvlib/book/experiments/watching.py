"""Weights watched during training: does their entropy tell a healthy run from a sick one?"""

import math
from typing import NamedTuple

import numpy as np

from qkvlib._checks import check_count
from qkvlib.book.experiments import clinic, models, tasks
from qkvlib.book.experiments.training import train
from qkvlib.diagnostics import normalized_entropy

D_MODEL = 32
FACTORS = {"healthy": 1.0, "tiny": 1e-2, "N(0, 1)": math.sqrt(D_MODEL), "saddle": 0.0}
"""What W_Q and W_K are multiplied by, for each start; healthy ones have variance 1 / D_MODEL."""


class Watched(NamedTuple):
    """What `watch` saw.

    steps: the training steps before which the model was looked at, the last one after training
    entropy: the entropy of the weights at these steps, a share of the largest, the mean over rows
    accuracy: the share of right answers on sequences that were not trained on.
    """

    steps: np.ndarray
    entropy: np.ndarray
    accuracy: float


def watch(seed=0, *, start="healthy", steps=120, every=10):
    """Train four heads to output a sequence backwards, and look at their weights on the way.

    seed: a whole number
    start: "healthy"; "tiny", "N(0, 1)" or "saddle" for other sizes of W_Q and W_K: a hundredth,
        standard normal numbers, or all 0

    Raises `ValueError` for other words.

    >>> watch(start="saddle", steps=0).entropy.round(6)
    array([1.])
    """
    models.check_choice("start", start, *FACTORS)
    steps = check_count("steps", steps, least=0)
    every = check_count("every", every)
    model = clinic.patient(seed, layers=1, d_model=D_MODEL)
    clinic.multiplied(model, FACTORS[start], "query", "key")
    unseen, _ = tasks.reversal(clinic.generator_of(seed, clinic.UNSEEN), 64)
    entropies = []

    def look():
        entropies.append(normalized_entropy(models.weights_of(model, unseen)).mean())

    def batches():
        generator = clinic.generator_of(seed, clinic.BATCHES)
        for step in range(steps):
            if step % every == 0:
                look()
            yield tasks.reversal(generator, 32)

    train(model, batches(), lr=3e-3)
    look()
    at = np.append(np.arange(0, steps, every), steps)
    return Watched(at, np.array(entropies), clinic.score(model, seed=seed))
