"""Initialisation: the size of the numbers, and where they come from."""

import math

import numpy as np
import pytest
from twins import back, dtype_of, torch

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


# ---- scaled residual output ----------------------------------------------------------------------

OUTPUTS = ("attention.W_O", "feed_forward.W_2", "feed_forward.W_down")


def new_block(lib, feed_forward, generator):
    made = lib.TransformerBlock(12, 3, generator=generator)
    if feed_forward == "FeedForward":
        return made
    gated = lib.SwiGLU(12, projection_bias=True, generator=generator)
    norms = lib.RMSNorm(12), lib.RMSNorm(12)
    return lib.TransformerBlock.from_parts(made.attention, gated, *norms)


def everything(block):
    """All weights and biases of a block by name."""
    found = {}
    for part in ("attention", "feed_forward", "attention_norm", "feed_forward_norm"):
        for name in dir(getattr(block, part)):
            if name.startswith(("W_", "b_")) or name in ("weight", "bias"):
                x = getattr(getattr(block, part), name)
                found[f"{part}.{name}"] = None if x is None else back(x).copy()
    return found


@pytest.mark.parametrize("feed_forward", ["FeedForward", "SwiGLU"])
def test_only_what_writes_into_the_stream_is_scaled(backend, feed_forward):
    block = new_block(backend.lib, feed_forward, backend.seeded())
    before = everything(block)
    scaled = everything(backend.lib.scaled_residual(block, 18))
    assert scaled.keys() == before.keys()
    for name, x in before.items():
        factor = 1 / 6 if name in OUTPUTS else 1
        np.testing.assert_allclose(scaled[name], x * factor, rtol=1e-6)
    assert sum(name in OUTPUTS for name in scaled) == 2
    for name, x in everything(block).items():  # the block itself stays as it was
        np.testing.assert_array_equal(x, before[name])


def test_scaled_weights_keep_their_dtype(twin, generator):
    block = new_block(twin.lib, "FeedForward", twin.seeded())
    attention, W = block.attention, twin.array(generator.normal(size=(12, 12)))
    block.attention = type(attention).from_weights(W, W, W, W, num_heads=3)
    scaled = twin.lib.scaled_residual(block, 2)
    assert dtype_of(scaled.attention.W_O) == twin.dtype
    np.testing.assert_array_equal(back(scaled.attention.W_O), back(W) / 2)


def test_the_stream_grows_less(backend, generator):
    """Each of 24 parts adds one share of variance: from 1 to about 2 when scaled, else far more."""
    lib, drawn = backend.lib, backend.seeded()
    x = generator.normal(size=(20, 64))
    plain = [lib.TransformerBlock(64, 4, generator=drawn) for _ in range(12)]
    variances = {}
    for name, blocks in (
        ("plain", plain),
        ("scaled", [lib.scaled_residual(block, 12) for block in plain]),
    ):
        stream = backend.array(x, dtype_of(plain[0].attention.W_O))
        for block in blocks:
            stream = block(stream)
        variances[name] = back(stream).var()
    assert 1.1 < variances["scaled"] < 2
    assert variances["plain"] > 5


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_in_torch_scaled_weights_still_learn():
    import qkvlib.torch

    block = qkvlib.torch.TransformerBlock(12, 3, generator=torch.Generator().manual_seed(0))
    scaled = qkvlib.torch.scaled_residual(block, 4)
    assert all(p.requires_grad and p.is_leaf for p in scaled.parameters())
    scaled(torch.randn(4, 12, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    assert scaled.attention.output.weight.grad.abs().max() > 0
    assert block.attention.output.weight.grad is None
