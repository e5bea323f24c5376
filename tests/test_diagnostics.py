"""Diagnostics: readings that are right for both twins, and a doctor who is."""

import math

import numpy as np
import pytest
from twins import TOLERANCE, torch

from qkvlib import diagnostics
from qkvlib.book.patients import draw
from qkvlib.diagnostics import CAUSES, diagnose
from qkvlib.patterns import causal

BACKEND_NAMES = ["numpy"] if torch is None else ["numpy", "torch"]
FEW = 6  # patients with each cause in a test run


# ---- readings ------------------------------------------------------------------------------------

# Two texts, three heads, four queries, five keys; row 1 of the mask is closed.
MASK = np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 1, 0]], bool)


def some(generator, *shape):
    return generator.normal(size=(2, 3, *shape))


def rows_of_weights(generator):
    weights = np.where(MASK, np.exp(some(generator, 4, 5)), 0.0)
    return weights / np.where(MASK.any(-1), weights.sum(-1), 1)[..., None]


def near(twin, got, expected):
    tolerance = TOLERANCE[twin.dtype]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_entropy_by_a_loop(twin, generator):
    weights = rows_of_weights(generator)
    got = diagnostics.entropy(twin.array(weights))
    normalized = diagnostics.normalized_entropy(twin.array(weights), twin.array(MASK))
    assert got.shape == normalized.shape == (2, 3, 4)
    for at in np.ndindex(2, 3, 4):
        h = -sum(p * math.log(p) for p in weights[at] if p > 0)
        choices = MASK[at[-1]].sum()
        near(twin, got[at], h)
        near(twin, normalized[at], h / math.log(choices) if choices > 1 else math.nan)


def test_score_std_counts_allowed_keys(twin, generator):
    scores = some(generator, 4, 5)
    spoilt = np.where(MASK, scores, 99.0)
    got = diagnostics.score_std(twin.array(spoilt), twin.array(MASK))
    for at in np.ndindex(2, 3, 4):
        allowed = scores[at][MASK[at[-1]]]
        near(
            twin,
            got[at],
            math.sqrt(((allowed - allowed.mean()) ** 2).mean()) if len(allowed) else 0,
        )


def test_a_pattern_is_a_mask_too(twin, generator):
    scores = twin.array(some(generator, 5, 5))
    as_array = twin.array(causal.array(5))
    np.testing.assert_array_equal(
        diagnostics.score_std(scores, causal), diagnostics.score_std(scores, as_array)
    )


# ---- the doctor ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("cause", CAUSES)
def test_some_of_each_cause(cause, backend):
    if cause == "tiny_but_learning" and backend == "numpy":
        pytest.skip("gradients are torch's")
    for seed in range(FEW // 2):
        patient = draw(cause, np.random.default_rng([seed, 77]), backend=backend)
        report = diagnose(patient.model, patient.x, mask=patient.mask, loss=patient.loss)
        assert report.cause == cause, report
