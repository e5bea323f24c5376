"""Norm, activation, feed-forward layer and block: by formula, and torch's own beside them."""

import math

import numpy as np
import pytest
import reference
from twins import (
    ATTENTION,
    BACKENDS,
    FEED_FORWARD,
    NORM,
    assert_near,
    back,
    dtype_of,
    torch,
    weights,
)

from qkvlib.patterns import causal

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


# ---- layer norm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)], ids=str)
@pytest.mark.parametrize("eps", [1e-5, 0.3, 0])
def test_layer_norm(twin, generator, lead, eps):
    x, weight, bias = (generator.normal(size=s) for s in ((*lead, 5), (5,), (5,)))
    expected = reference.layer_norm(*twin.rounded(x, weight, bias), eps)
    x, weight, bias = twin.arrays(x, weight, bias)
    assert_near(twin.lib.layer_norm(x, weight, bias, eps), expected, dtype=twin.dtype)


def test_layer_norm_with_one_or_no_parameter(backend, generator):
    x, weight, bias = generator.normal(size=(4, 5)), *generator.normal(size=(2, 5))
    given = dict(zip(("x", "weight", "bias"), backend.arrays(x, weight, bias)))
    norm, x_ = backend.lib.layer_norm, given["x"]
    assert_near(norm(x_), reference.layer_norm(x, 1, 0, 1e-5))
    assert_near(norm(x_, given["weight"]), reference.layer_norm(x, weight, 0, 1e-5))
    assert_near(norm(x_, bias=given["bias"]), reference.layer_norm(x, 1, bias, 1e-5))


def test_eps_is_under_the_root(backend):
    """At numbers of 1e-4 the variance is far below eps; outside the root eps would hardly count."""
    x = 1e-4 * np.array([[1.0, -1, 1, -1]])
    found = back(backend.lib.layer_norm(backend.array(x)))
    np.testing.assert_allclose(found, x / math.sqrt(1e-8 + 1e-5), rtol=1e-12)


def test_a_constant_row_becomes_zero(twin):
    assert not back(twin.lib.layer_norm(twin.array(np.full((2, 4), 3.0)))).any()


def test_half_types_are_normalised_in_float32(twin):
    """300 ** 2 is no float16, and 4096 numbers do not sum to anything sensible in one."""
    x = np.where(np.arange(4096) % 2, 300.0, -300.0)
    [rounded] = twin.rounded(x)
    found = twin.lib.layer_norm(twin.array(x))
    assert_near(found, reference.layer_norm(rounded, 1, 0, 1e-5), dtype=twin.dtype)


@needs_torch
def test_against_torchs_own_norm(backend, generator):
    x, w = generator.normal(size=(2, 3, 12)), weights(generator, NORM)
    other = torch.nn.LayerNorm(12, eps=0.1, dtype=torch.float64)
    other.load_state_dict({name: torch.from_numpy(v) for name, v in w.items()})
    norm = backend.lib.LayerNorm.from_weights(**backend.named(w), eps=0.1)
    assert_near(norm(backend.array(x)), back(other(torch.from_numpy(x))))


def test_a_new_norm_changes_no_column(backend):
    norm = backend.lib.LayerNorm(4)
    assert back(norm.weight).tolist() == [1] * 4
    assert back(norm.bias).tolist() == [0] * 4
    x = backend.array(np.array([[1.0, 3, 1, 3]]), dtype=dtype_of(norm.weight))
    np.testing.assert_allclose(back(norm(x)), [[-1, 1, -1, 1]], rtol=1e-5)
    np.testing.assert_allclose(back(backend.lib.LayerNorm(4, eps=3)(x)), [[-0.5, 0.5, -0.5, 0.5]])


# ---- gelu ----------------------------------------------------------------------------------------


def test_gelu(twin):
    x = np.concatenate([np.linspace(-6, 6, 97), [0.0, -0.0, 1e-8, -1e-8, 30, -30]]).reshape(-1, 1)
    [rounded] = twin.rounded(x)
    assert_near(twin.lib.gelu(twin.array(x)), reference.gelu(rounded), dtype=twin.dtype)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4, 5)], ids=str)
def test_gelu_of_any_shape(twin, generator, shape):
    x = np.asarray(generator.normal(size=shape))
    [rounded] = twin.rounded(x)
    assert_near(twin.lib.gelu(twin.array(x)), reference.gelu(rounded), dtype=twin.dtype)


def test_gelu_is_the_exact_one(exact):
    """By the error function; the approximation by tanh is off by 0.0004 here."""
    found = back(exact.lib.gelu(exact.array(np.array([2.0])))).item()
    assert abs(found - 1.9544997361036416) < 1e-15


# ---- feed-forward --------------------------------------------------------------------------------


def by_hand(x, w, activation=reference.gelu):
    return activation(x @ w["W_1"] + w["b_1"]) @ w["W_2"] + w["b_2"]


@pytest.mark.parametrize("lead", [(4,), (2, 3, 4)], ids=str)
def test_feed_forward(twin, generator, lead):
    w, x = weights(generator, FEED_FORWARD), generator.normal(size=(*lead, 12))
    rounded = dict(zip(w, twin.rounded(*w.values())))
    expected = by_hand(*twin.rounded(x), rounded)
    ff = twin.lib.FeedForward.from_weights(**twin.named(w))
    assert_near(ff(twin.array(x)), expected, dtype=twin.dtype)
    for name, value in w.items():
        assert_near(getattr(ff, name), value)


def test_another_activation(backend, generator):
    w, x = weights(generator, FEED_FORWARD), generator.normal(size=(4, 12))
    ff = backend.lib.FeedForward.from_weights(**backend.named(w), activation=lambda x: x * x)
    assert_near(ff(backend.array(x)), by_hand(x, w, activation=np.square))
    new = backend.lib.FeedForward(12, activation=abs, generator=backend.seeded())
    expected = by_hand(x, {name: back(getattr(new, name)) for name in w}, activation=np.abs)
    found = new(backend.array(x, dtype_of(new.W_1)))
    np.testing.assert_allclose(back(found), expected, atol=1e-5)


def test_a_new_feed_forward_layer(backend):
    shapes = {"W_1": (12, 48), "b_1": (48,), "W_2": (48, 12), "b_2": (12,)}
    new, again = (backend.lib.FeedForward(12, generator=backend.seeded()) for _ in range(2))
    for name, shape in shapes.items():
        assert tuple(getattr(new, name).shape) == shape
        np.testing.assert_array_equal(back(getattr(new, name)), back(getattr(again, name)))
    assert not back(new.b_1).any()
    assert not back(new.b_2).any()
    for W in (back(new.W_1), back(new.W_2)):
        assert 0.97 * math.sqrt(6 / 60) < np.abs(W).max() <= math.sqrt(6 / 60)
    assert tuple(backend.lib.FeedForward(12, 7).W_1.shape) == (12, 7)


# ---- the block -----------------------------------------------------------------------------------


def parts(twin, generator):
    """The parts of a block; `from_parts` takes them in this order."""
    attention, feed_forward, *norms = (
        twin.named(weights(generator, shapes)) for shapes in (ATTENTION, FEED_FORWARD, NORM, NORM)
    )
    lib = twin.lib
    return [
        lib.MultiHeadAttention.from_weights(**attention, num_heads=3),
        lib.FeedForward.from_weights(**feed_forward),
        *(lib.LayerNorm.from_weights(**norm, eps=0.1) for norm in norms),
    ]


def test_pre_norm_reads_what_is_normalised(twin, generator):
    attention, feed_forward, first, second = given = parts(twin, generator)
    block = twin.lib.TransformerBlock.from_parts(*given)  # "pre" is what one gets
    x = twin.array(generator.normal(size=(2, 4, 12)))
    y = x + attention(first(x), mask=causal)
    assert_near(block(x, mask=causal), back(y + feed_forward(second(y))), dtype=twin.dtype)
    expected = attention.attention_weights(first(x), mask=causal)
    assert_near(block.attention_weights(x, mask=causal), back(expected), dtype=twin.computed)


def test_post_norm_normalises_what_comes_out(twin, generator):
    attention, feed_forward, first, second = given = parts(twin, generator)
    block = twin.lib.TransformerBlock.from_parts(*given, norm="post")
    x = twin.array(generator.normal(size=(2, 4, 12)))
    y = first(x + attention(x, mask=causal))
    assert_near(block(x, mask=causal), back(second(y + feed_forward(y))), dtype=twin.dtype)
    expected = attention.attention_weights(x, mask=causal)
    assert_near(block.attention_weights(x, mask=causal), back(expected), dtype=twin.computed)


def test_mask_and_bias_reach_the_attention(backend, generator):
    x = backend.array(generator.normal(size=(2, 4, 12)))
    bias = backend.array(generator.normal(size=(3, 4, 4)))
    for norm in ("pre", "post"):
        block = backend.lib.TransformerBlock.from_parts(*parts(backend, generator), norm=norm)
        plain = back(block(x))
        assert not np.allclose(back(block(x, bias=bias)), plain)
        assert not np.allclose(back(block(x, mask=causal)), plain)
        assert not np.allclose(
            back(block.attention_weights(x, bias=bias)), back(block.attention_weights(x))
        )
        assert not back(block.attention_weights(x, mask=causal))[..., 0, 1:].any()


@needs_torch
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_against_torchs_own_block(backend, generator, norm):
    square = {f"W_{n}": (12, 12) for n in "QKVO"} | {f"b_{n}": (12,) for n in "QKVO"}
    attention, feed_forward, first, second = (
        weights(generator, shapes) for shapes in (square, FEED_FORWARD, NORM, NORM)
    )
    other = torch.nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, activation="gelu", layer_norm_eps=0.1, batch_first=True,
        norm_first=norm == "pre", dtype=torch.float64,
    )  # fmt: skip
    state = {
        "self_attn.in_proj_weight": np.concatenate([attention[f"W_{n}"].T for n in "QKV"]),
        "self_attn.in_proj_bias": np.concatenate([attention[f"b_{n}"] for n in "QKV"]),
        "self_attn.out_proj.weight": attention["W_O"].T,
        "self_attn.out_proj.bias": attention["b_O"],
        "linear1.weight": feed_forward["W_1"].T,
        "linear1.bias": feed_forward["b_1"],
        "linear2.weight": feed_forward["W_2"].T,
        "linear2.bias": feed_forward["b_2"],
        **{f"norm1.{name}": x for name, x in first.items()},
        **{f"norm2.{name}": x for name, x in second.items()},
    }
    other.load_state_dict({name: torch.tensor(x) for name, x in state.items()})
    lib = backend.lib
    block = lib.TransformerBlock.from_parts(
        lib.MultiHeadAttention.from_weights(**backend.named(attention), num_heads=3),
        lib.FeedForward.from_weights(**backend.named(feed_forward)),
        *(lib.LayerNorm.from_weights(**backend.named(w), eps=0.1) for w in (first, second)),
        norm=norm,
    )
    x = generator.normal(size=(2, 4, 12))
    expected = other(torch.from_numpy(x), src_mask=torch.from_numpy(~np.tri(4, dtype=bool)))
    assert_near(block(backend.array(x), mask=causal), back(expected))


def test_a_new_block_hands_its_settings_to_its_parts(backend):
    def new(seed=0):
        return backend.lib.TransformerBlock(
            12, 3, d_ff=20, norm="post", activation=abs, eps=0.5, generator=backend.seeded(seed)
        )

    block, again, other = new(), new(), new(1)
    assert block.attention.num_heads == 3
    assert tuple(block.feed_forward.W_1.shape) == (12, 20)
    assert block.feed_forward.activation is abs
    assert block.attention_norm.eps == block.feed_forward_norm.eps == 0.5
    assert block.norm == "post"
    assert backend.lib.TransformerBlock(12, 3).norm == "pre"
    assert tuple(backend.lib.TransformerBlock(12, 3).feed_forward.W_1.shape) == (12, 48)
    x = backend.array(np.arange(48.0).reshape(4, 12), dtype_of(block.attention.W_Q))
    np.testing.assert_array_equal(back(block(x)), back(again(x)))
    assert not np.allclose(back(block(x)), back(other(x)))


@needs_torch
def test_in_torch_every_weight_is_a_parameter_and_learns():
    block = BACKENDS[-1].lib.TransformerBlock(12, 3, generator=torch.Generator().manual_seed(0))
    counts = [p.numel() for p in block.parameters()]
    assert sum(counts) == 4 * (12 * 12 + 12) + (12 * 48 + 48) + (48 * 12 + 12) + 4 * 12
    x = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(0))
    block(x, mask=causal).sin().sum().backward()
    still = [name for name, p in block.named_parameters() if p.grad.abs().max() < 1e-6]
    assert still == ["attention.key.bias"]  # it adds one number to a whole row of scores
