"""Xavier initialisation: the size of the numbers, and where they come from."""

import math

import numpy as np
import pytest
from twins import back, dtype_of

FANS = [(400, 100), (100, 400), (250, 250)]


def draw(backend, name, fans, seed=0):
    return back(getattr(backend.lib, name)(*fans, generator=backend.seeded(seed)))


@pytest.mark.parametrize("fans", FANS, ids=str)
def test_xavier_uniform(backend, fans):
    W = draw(backend, "xavier_uniform", fans)
    bound = math.sqrt(6 / sum(fans))
    assert W.shape == fans
    assert 0.999 * bound < W.max() <= bound
    assert -bound <= W.min() < -0.999 * bound
    np.testing.assert_allclose(
        np.histogram(W, bins=4, range=(-bound, bound))[0], W.size / 4, rtol=0.03
    )
    np.testing.assert_allclose(W.var(), 2 / sum(fans), rtol=0.03)


@pytest.mark.parametrize("fans", FANS, ids=str)
def test_xavier_normal(backend, fans):
    W = draw(backend, "xavier_normal", fans)
    std = math.sqrt(2 / sum(fans))
    assert W.shape == fans
    np.testing.assert_allclose(W.std(), std, rtol=0.03)
    assert abs(W.mean()) < 0.02 * std
    within = [(np.abs(W) < n * std).mean() for n in (1, 2, 3)]
    np.testing.assert_allclose(within, [0.683, 0.954, 0.997], atol=0.01)


@pytest.mark.parametrize("name", ["xavier_uniform", "xavier_normal"])
def test_the_generator_decides(backend, name):
    np.testing.assert_array_equal(draw(backend, name, (3, 4)), draw(backend, name, (3, 4)))
    assert not np.array_equal(draw(backend, name, (3, 4)), draw(backend, name, (3, 4), seed=1))
    function = getattr(backend.lib, name)
    generator = backend.seeded()
    first, second = (back(function(3, 4, generator=generator)) for _ in range(2))
    assert not np.array_equal(first, second)
    assert not np.array_equal(back(function(3, 4)), back(function(3, 4)))


@pytest.mark.parametrize("name", ["xavier_uniform", "xavier_normal"])
def test_dtype(backend, name):
    W = getattr(backend.lib, name)(np.int64(3), 4)
    assert tuple(W.shape) == (3, 4)
    assert dtype_of(W) == ("float32" if backend.is_torch else "float64")


def test_the_signal_keeps_its_size(backend, generator):
    """Through as many columns as rows the variance stays what it was."""
    x = generator.normal(size=(200, 300))
    for name in ("xavier_uniform", "xavier_normal"):
        np.testing.assert_allclose((x @ draw(backend, name, (300, 300))).var(), 1, rtol=0.05)
