"""What is computed in which precision: half types, and torch's autocast."""

import numpy as np
import pytest
from twins import ATTENTION, EVERY, TOLERANCE, back, dtype_of, torch, weights

from qkvlib.patterns import causal

HALF = [twin for twin in EVERY if twin.is_half]
needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
AUTOCAST = ("bfloat16", "float16")


def qkv(twin, n_key=5, size=1.0):
    generator = np.random.default_rng(20)
    shapes = ((2, 3, 4, 7), (2, 3, n_key, 7), (2, 3, n_key, 6))
    return twin.arrays(*(generator.normal(size=s) * size for s in shapes))


def some_mask():
    """Query 1 may attend to nothing, key 2 is read by nobody."""
    mask = np.random.default_rng(3).random((4, 5)) < 0.7
    mask[1] = mask[:, 2] = False
    return mask


def options_of(twin):
    bias = np.random.default_rng(4).normal(size=(3, 4, 5))
    return {
        "nothing": {},
        "mask": {"mask": twin.array(some_mask())},
        "bias": {"bias": twin.array(bias)},
        "wide bias": {"bias": twin.array(bias, "float64")},
        "softcap": {"softcap": 2.0},
        "all": {"mask": causal, "bias": twin.array(bias), "softcap": 2.0, "scale": 0.3},
    }


OPTIONS = list(options_of(EVERY[0]))


# ---- half types ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("twin", HALF, ids=str)
def test_scores_and_weights_of_half_types_are_those_of_float32(twin, options):
    """To the last bit: the inputs are widened, and nothing is rounded afterwards."""
    query, key, _ = qkv(twin)
    wide = [twin.array(back(x), "float32") for x in (query, key)]
    options = options_of(twin)[options]
    found = twin.lib.attention_weights(query, key, **options)
    assert dtype_of(found) == "float32"
    np.testing.assert_array_equal(back(found), back(twin.lib.attention_weights(*wide, **options)))
    options = {name: x for name, x in options.items() if name != "mask"}
    found = twin.lib.attention_scores(query, key, **options)
    assert dtype_of(found) == "float32"
    np.testing.assert_array_equal(back(found), back(twin.lib.attention_scores(*wide, **options)))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("twin", [t for t in HALF if t.device in (None, "cpu")], ids=str)
def test_the_output_of_half_types_is_rounded_once(twin, options):
    given = qkv(twin)
    wide = [twin.array(back(x), "float32") for x in given]
    options = options_of(twin)[options]
    found = twin.lib.scaled_dot_product_attention(*given, **options)
    expected = twin.lib.scaled_dot_product_attention(*wide, **options)
    assert dtype_of(found) == twin.dtype
    assert dtype_of(expected) == "float32"
    np.testing.assert_array_equal(back(found), back(twin.array(back(expected))))


@pytest.mark.parametrize("twin", HALF, ids=str)
def test_scores_beyond_a_half_type_are_no_infinity(twin):
    query, key, value = qkv(twin, size=300.0)
    scores = twin.lib.attention_scores(query, key)
    assert np.abs(back(scores)).max() > 65504
    assert np.isfinite(back(scores)).all()
    assert np.isfinite(back(twin.lib.scaled_dot_product_attention(query, key, value))).all()


@pytest.mark.parametrize("twin", HALF, ids=str)
def test_many_small_weights_of_half_types_sum_to_1(twin):
    """4000 weights of about 1/4000: added up in bfloat16 they would stop at 0.004."""
    query, key, value = qkv(twin, n_key=4000, size=0.1)
    weights_ = back(twin.lib.attention_weights(query, key))
    np.testing.assert_allclose(weights_.sum(-1), 1, rtol=1e-5)
    found = twin.lib.scaled_dot_product_attention(query, key, 0 * value + 1)
    np.testing.assert_array_equal(back(found), 1)


# ---- autocast ------------------------------------------------------------------------------------
# Inside, as torch's own functions do: products in autocast's dtype, softmax in float32, outputs
# in autocast's dtype. float64 is left as it is, inside and outside.


@pytest.fixture(params=[t for t in EVERY if t.is_torch and t.dtype == "float32"], ids=str)
def wide(request):
    return request.param


def autocast(twin, dtype, **options):
    return torch.autocast(twin.device, dtype=getattr(torch, dtype), **options)


def assert_close(found, expected, dtype):
    """As near as numbers come that were rounded a few times on the way."""
    bound = 4 * TOLERANCE[dtype]
    np.testing.assert_allclose(back(found), back(expected), rtol=bound, atol=bound)


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16", "mixed"])
@pytest.mark.parametrize("options", OPTIONS)
def test_attention_under_autocast(wide, dtype, given, options):
    inputs, options = qkv(wide), options_of(wide)[options]
    expected = wide.lib.scaled_dot_product_attention(*inputs, **options)
    expected_weights = wide.lib.attention_weights(*inputs[:2], **options)
    kinds = ["float32", "bfloat16", "float16"] if given == "mixed" else [given] * 3
    inputs = [x.to(getattr(torch, kind)) for x, kind in zip(inputs, kinds)]
    with autocast(wide, dtype):
        found = wide.lib.scaled_dot_product_attention(*inputs, **options)
        same = torch.nn.functional.scaled_dot_product_attention(*inputs)
        weights_ = wide.lib.attention_weights(*inputs[:2], **options)
        scores = wide.lib.attention_scores(*inputs[:2], bias=options.get("bias"))
    assert found.dtype == same.dtype == getattr(torch, dtype)
    assert weights_.dtype == scores.dtype == torch.float32
    assert_close(found, expected, "bfloat16")
    assert_close(weights_, expected_weights, "bfloat16")


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
def test_products_are_rounded_and_the_softmax_is_not(wide, dtype):
    query, key, _ = qkv(wide, n_key=4000, size=0.5)
    with autocast(wide, dtype):
        scores = wide.lib.attention_scores(query, key)
        weights_ = wide.lib.attention_weights(query, key)
    half = getattr(torch, dtype)
    assert torch.equal(scores, scores.to(half).float())
    assert not torch.equal(weights_, weights_.to(half).float())
    torch.testing.assert_close(weights_.sum(-1), torch.ones(2, 3, 4, device=wide.device))


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("options", OPTIONS)
def test_float64_is_left_alone_by_autocast(dtype, options):
    exact = next(t for t in EVERY if t.is_torch and t.dtype == "float64")
    inputs, options = qkv(exact), options_of(exact)[options]
    expected = exact.lib.scaled_dot_product_attention(*inputs, **options)
    with autocast(exact, dtype):
        found = exact.lib.scaled_dot_product_attention(*inputs, **options)
        assert torch.equal(found, expected)
        assert exact.lib.attention_weights(*inputs[:2], **options).dtype == torch.float64
        with pytest.raises(TypeError, match=r"one dtype, got query .*float64, key .*float32"):
            exact.lib.attention_weights(inputs[0], inputs[1].float())


def layers(twin, **options):
    """Our layer, and torch's own with the same weights."""
    square = {f"W_{n}": (12, 12) for n in "QKVO"} | {f"b_{n}": (12,) for n in "QKVO"}
    w = twin.named(weights(np.random.default_rng(7), square))
    mha = twin.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    return mha, mha.to_torch()


def tokens(twin, n=5):
    return twin.array(np.random.default_rng(8).normal(size=(2, n, 12)))


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_layer_under_autocast(wide, dtype, training, with_bias):
    mha, module = (layer.train(training) for layer in layers(wide))
    x = tokens(wide)
    bias = wide.array(np.random.default_rng(9).normal(size=(5, 5))) if with_bias else None
    before, weights_ = mha(x, mask=causal, bias=bias), mha.attention_weights(x, mask=causal)
    forbidden = ~torch.ones(5, 5, dtype=torch.bool, device=wide.device).tril()
    with autocast(wide, dtype), torch.set_grad_enabled(training):
        found = mha(x, mask=causal, bias=bias)
        same, _ = module(x, x, x, attn_mask=forbidden)
        read = mha.attention_weights(x, mask=causal)
        shares = mha.head_contributions(x, mask=causal)
        source = mha(x, x.to(getattr(torch, dtype)), mask=causal)
    assert found.dtype == same.dtype == shares.dtype == source.dtype == getattr(torch, dtype)
    assert read.dtype == torch.float32
    assert_close(found, before, dtype)
    assert_close(read, weights_, dtype)
    if not with_bias:
        assert_close(same, found, dtype)
        assert_close(source, found, dtype)
        assert_close(shares.float().sum(-3) + mha.b_O, found, dtype)
    assert torch.equal(mha(x, mask=causal, bias=bias), before)  # nothing is left behind


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_layer_learns_under_autocast(wide, dtype, with_bias):
    """Gradients have the weights' dtype, and are those of float32 as near as half types come."""
    mha, _ = layers(wide)
    x = tokens(wide)
    bias = wide.array(np.random.default_rng(9).normal(size=(5, 5))) if with_bias else None

    def gradients():
        return torch.autograd.grad(
            mha(x, mask=causal, bias=bias).float().sin().sum(), list(mha.parameters())
        )

    expected = gradients()
    with autocast(wide, dtype):
        found = gradients()
    for got, wanted in zip(found, expected):
        assert got.dtype == torch.float32
        size = 1 + wanted.abs().max()
        assert_close(got / size, wanted / size, dtype)


def turned(x, positions):
    """A rotation in float32, as rotations are."""
    return x.float() * (1 + 0.1 * positions[:, None])


@needs_torch
@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("rotate", [None, turned])
def test_cache_and_shared_heads_under_autocast(wide, dtype, rotate):
    shapes = ATTENTION | {"W_K": (12, 5), "W_V": (12, 2), "b_K": (5,), "b_V": (2,)}
    w = wide.named(weights(np.random.default_rng(7), shapes))
    mha = wide.lib.MultiHeadAttention.from_weights(**w, num_heads=3, num_kv_heads=1, rotate=rotate)
    x = tokens(wide, 9)
    expected = mha(x, mask=causal)
    for no_grad in (torch.no_grad, torch.enable_grad):
        with autocast(wide, dtype), no_grad():
            cache = wide.lib.KeyValueCache()
            found = [mha(piece, mask=causal, cache=cache) for piece in x.split(4, dim=1)]
        assert {y.dtype for y in found} == {getattr(torch, dtype)}
        assert_close(torch.cat(found, dim=1), expected, dtype)


@needs_torch
def test_a_block_learns_under_autocast(wide):
    block = wide.lib.TransformerBlock(
        12, 3, generator=torch.Generator().manual_seed(0), device=wide.device
    )
    x = tokens(wide)
    expected = block(x, mask=causal)
    with autocast(wide, "bfloat16"):
        found = block(x, mask=causal)
        found.float().sum().backward()
    assert found.dtype == torch.float32  # x itself is added
    assert_close(found, expected, "bfloat16")
    assert all(
        p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in block.parameters()
    )


@needs_torch
def test_autocast_that_is_switched_off_is_none(wide):
    inputs = qkv(wide)
    with autocast(wide, "bfloat16"), autocast(wide, "bfloat16", enabled=False):
        assert wide.lib.scaled_dot_product_attention(*inputs).dtype == torch.float32
        assert wide.lib.attention_weights(*inputs[:2]).dtype == torch.float32
        with pytest.raises(TypeError, match="all must have one dtype"):
            wide.lib.scaled_dot_product_attention(inputs[0], inputs[1].bfloat16(), inputs[2])
