"""torch's fused attention: against the weights, forward and backward, and when it is used."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import EVERY, WIDE, assert_near, back, dtype_of

from qkvlib.patterns import Pattern, causal, window

torch = pytest.importorskip("torch")
lib = pytest.importorskip("qkvlib.torch")

TORCH = [twin for twin in WIDE if twin.is_torch]
fused = torch.nn.functional.scaled_dot_product_attention


def qkv(twin, lead=(2, 3), n_query=4, n_key=5):
    generator = np.random.default_rng(20)
    shapes = ((n_query, 7), (n_key, 7), (n_key, 6))
    return [twin.array(generator.normal(size=(*lead, *s))).requires_grad_() for s in shapes]


def some_mask(shape=(4, 5)):
    """Query 1 may attend to nothing, key 2 is read by nobody."""
    mask = np.random.default_rng(3).random(shape) < 0.7
    mask[..., 1, :] = mask[..., 2] = False
    return mask


# ---- torch's own function, called directly -------------------------------------------------------


@pytest.mark.parametrize("twin", TORCH, ids=str)
@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 4, 5), (1, 3, 4, 5)], ids=str)
def test_weights_times_values_is_what_torch_computes(twin, shape):
    """Also a row that may attend to nothing: torch answers 0 there as well."""
    query, key, value = qkv(twin)
    mask = twin.array(some_mask(shape))
    weights = lib.attention_weights(query, key, mask=mask)
    assert_near(weights @ value, back(fused(query, key, value, attn_mask=mask)))
    found = lib.scaled_dot_product_attention(query, key, value, mask=mask)
    assert_near(found, back(fused(query, key, value, attn_mask=mask)))


@pytest.mark.parametrize("twin", TORCH, ids=str)
def test_bias_and_scale_mean_what_torch_means(twin):
    query, key, value = qkv(twin)
    bias = twin.array(np.random.default_rng(1).normal(size=(3, 4, 5)))
    expected = back(fused(query, key, value, attn_mask=bias, scale=0.3))
    options = {"bias": bias, "scale": 0.3}
    assert_near(lib.attention_weights(query, key, **options) @ value, expected)
    assert_near(lib.scaled_dot_product_attention(query, key, value, **options), expected)


@pytest.mark.parametrize("twin", TORCH, ids=str)
def test_causal_is_torchs_causal_for_as_many_queries_as_keys(twin):
    query, key, value = qkv(twin, n_query=5)
    expected = back(fused(query, key, value, is_causal=True))
    assert_near(lib.scaled_dot_product_attention(query, key, value, mask=causal), expected)
    assert_near(lib.attention_weights(query, key, mask=causal) @ value, expected)


# ---- fused and explicit agree --------------------------------------------------------------------

MASKS = {
    "none": None,
    "two axes": some_mask(),
    "one row": some_mask()[:1],
    "one column": some_mask()[:, :1],
    "padding": (np.arange(5) < np.array([0, 3])[:, None, None, None]),
    "all axes": some_mask((2, 3, 4, 5)),
    "nothing": np.zeros((4, 5), dtype=bool),
    "causal": causal,
    "window": window(2),
    "joined": causal & some_mask((2, 1, 4, 5)),
    "keys alone": Pattern(lambda i, j: j % 2 == 0),
}


def in_torch(mask, twin):
    if isinstance(mask, np.ndarray):
        return twin.array(mask)
    return causal & twin.array(some_mask((2, 1, 4, 5))) if mask is MASKS["joined"] else mask


def both(query, key, value, **options):
    """The outputs by one way and the other, and the gradients of one loss."""
    weights = lib.attention_weights(query, key, **options)
    for output in (
        lib.scaled_dot_product_attention(query, key, value, **options),
        weights @ value,
    ):
        loss = (output * torch.arange(output.shape[-1], device=output.device).cos()).sum()
        yield output, torch.autograd.grad(loss, (query, key, value))


@pytest.mark.parametrize("twin", TORCH, ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [None, 0, -0.4, 3])
def test_fused_and_explicit_agree(twin, mask, scale):
    query, key, value = qkv(twin)
    mask = in_torch(mask, twin)
    (output, gradients), (expected, of_expected) = both(query, key, value, mask=mask, scale=scale)
    assert_near(output, back(expected))
    for gradient, wanted in zip(gradients, of_expected):
        assert_near(gradient, back(wanted))


@pytest.mark.parametrize("scale", [None, 0, -0.4, 1e-60, -1e-60], ids=str)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("twin", TORCH, ids=str)
def test_they_agree_on_a_causal_square(twin, lead, scale):
    """Also where the scale is not above 0, by which kernels multiply the -inf of the future."""
    query, key, value = qkv(twin, lead, n_query=5)
    value = (value[..., :1] * torch.arange(1, 8, device=value.device)).detach().requires_grad_()
    assert value.shape == key.shape  # some kernels want it so
    options = {"mask": causal, "scale": scale}
    (output, gradients), (expected, of_expected) = both(query, key, value, **options)
    assert_near(output, back(expected))
    assert_near(lib.chunked_attention(query, key, value, **options), back(expected))
    for gradient, wanted in zip(gradients, of_expected):
        assert_near(gradient, back(wanted))


def test_they_agree_on_long_rows_that_start_with_nothing():
    """Longer than the blocks of the kernel, with whole blocks forbidden."""
    query, key, value = qkv(TORCH[0], lead=(1, 2), n_query=3, n_key=1300)
    mask = torch.ones(3, 1300, dtype=torch.bool)
    mask[0, :1200] = mask[1] = False
    mask[2, 500:] = False
    (output, gradients), (expected, of_expected) = both(query, key, value, mask=mask)
    assert_near(output, back(expected))
    for gradient, wanted in zip(gradients, of_expected):
        assert_near(gradient, back(wanted))


@given(st.data())
def test_they_agree_with_any_mask(data):
    lead = data.draw(st.sampled_from([(), (3,), (2, 3)]))
    n_query, n_key = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    size = math.prod(lead) * n_query * n_key
    bits = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    mask = torch.tensor(bits).reshape(*lead, n_query, n_key)
    query, key, value = qkv(TORCH[0], lead, n_query, n_key)
    (output, gradients), (expected, of_expected) = both(query, key, value, mask=mask)
    assert_near(output, back(expected))
    for gradient, wanted in zip(gradients, of_expected):
        assert_near(gradient, back(wanted))


# ---- which way is taken --------------------------------------------------------------------------


def calls_of_the_kernel(function, *arguments, **options):
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", wraps=fused) as kernel:
        function(*arguments, **options)
    return [call.kwargs for call in kernel.call_args_list]


@pytest.mark.parametrize("twin", TORCH, ids=str)
def test_the_kernel_is_used_when_it_can(twin):
    inputs = qkv(twin)
    [options] = calls_of_the_kernel(lib.scaled_dot_product_attention, *inputs, scale=0.5)
    plain = {"attn_mask": None, "dropout_p": 0.0}
    assert options == plain | {"is_causal": False, "scale": 0.5}
    square = qkv(twin, n_query=5)
    [options] = calls_of_the_kernel(lib.scaled_dot_product_attention, *square, mask=causal)
    assert options == plain | {"is_causal": True, "scale": 1 / math.sqrt(7)}
    [options] = calls_of_the_kernel(lib.scaled_dot_product_attention, *inputs, mask=causal)
    assert not options["is_causal"]
    assert back(options["attn_mask"]).tolist() == causal.array(4, 5).tolist()


def test_the_kernel_is_never_given_a_row_of_false():
    """Some kernels answer NaN, forward or backward: such rows are opened, and zeroed afterwards."""
    mask = torch.from_numpy(some_mask((2, 1, 4, 5)))
    query, key, value = qkv(TORCH[0])
    [options] = calls_of_the_kernel(lib.scaled_dot_product_attention, query, key, value, mask=mask)
    given_ = options["attn_mask"]
    assert given_.any(dim=-1).all()
    reads = mask.any(dim=-1)
    assert torch.equal(given_[reads], mask[reads])


def test_it_is_not_used_when_it_cannot():
    bias = torch.zeros(4, 5, dtype=torch.float64)
    for options in ({"bias": bias}, {"softcap": 2.0}):
        inputs = qkv(TORCH[0])
        assert calls_of_the_kernel(lib.scaled_dot_product_attention, *inputs, **options) == []


@pytest.mark.parametrize("twin", [t for t in EVERY if t.is_half and t.device == "cpu"], ids=str)
def test_half_types_on_the_cpu_are_computed_in_float32(twin):
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", wraps=fused) as kernel:
        found = lib.scaled_dot_product_attention(*qkv(twin))
    [call] = kernel.call_args_list
    assert {x.dtype for x in call.args} == {torch.float32}
    assert dtype_of(found) == twin.dtype
