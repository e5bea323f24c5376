"""Gradients of the torch twin: against finite differences, a formula, and each other."""

import math

import numpy as np
import pytest
import reference
from twins import EVERY, WIDE, assert_near, back, dtype_of

from qkvlib.patterns import causal, window

torch = pytest.importorskip("torch")
lib = pytest.importorskip("qkvlib.torch")

TORCH = [twin for twin in WIDE if twin.is_torch]


def drawn(shapes, seed=20):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def qkv(lead=(2, 3), n_query=4, n_key=5):
    return drawn([(*lead, n_query, 7), (*lead, n_key, 7), (*lead, n_key, 6)])


def leaves(twin, *xs):
    return [twin.array(x).requires_grad_() for x in xs]


def some_mask():
    """Query 1 may attend to nothing, key 2 is read by nobody."""
    mask = np.random.default_rng(3).random((4, 5)) < 0.7
    mask[1] = mask[:, 2] = False
    return mask


def padding():
    return np.arange(5) < np.array([0, 3])[:, None, None, None]


def by_weights(query, key, value, **options):
    return lib.attention_weights(query, key, **options) @ value


WAYS = {"fused or not": lib.scaled_dot_product_attention, "by weights": by_weights}
MASKS = {
    "no mask": None,
    "two axes": some_mask(),
    "padding": padding(),
    "causal": causal,
    "window": causal & window(2),
}


def in_torch(mask, twin):
    return twin.array(mask) if isinstance(mask, np.ndarray) else mask


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"scale": -0.3}], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_against_finite_differences(way, options, mask):
    twin = TORCH[0]
    inputs = leaves(twin, *(x[:, 0, ..., :3] for x in qkv()))
    mask = in_torch(
        mask[:, 0] if mask is not None and getattr(mask, "ndim", 0) == 4 else mask, twin
    )
    assert torch.autograd.gradcheck(lambda *x: way(*x, mask=mask, **options), inputs)


def test_of_the_bias_against_finite_differences():
    twin = TORCH[0]
    query, key, value = (twin.array(x[0, 0, :, :3]) for x in qkv())
    [bias] = leaves(twin, *drawn([(4, 5)]))
    mask = twin.array(some_mask())

    def output(bias):
        return lib.scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)

    assert torch.autograd.gradcheck(output, [bias])


@pytest.mark.parametrize("function", [lib.softmax, lib.log_softmax])
@pytest.mark.parametrize("axis", [-1, 0])
def test_of_softmax_against_finite_differences(function, axis):
    scores = leaves(TORCH[0], *drawn([(3, 4)]))
    assert torch.autograd.gradcheck(lambda s: function(s, axis), scores)


@pytest.mark.parametrize("twin", TORCH, ids=str)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "mask", [None, some_mask(), padding()], ids=["none", "two axes", "padding"]
)
def test_against_the_formula(twin, way, mask):
    """Backwards by hand: through the average, the softmax, the product."""
    query, key, value = twin.rounded(*qkv())
    [of_output] = twin.rounded(*drawn([(2, 3, 4, 6)], seed=1))
    scale = 1 / math.sqrt(7)
    _, weights, _ = reference.attention(query, key, value, mask)
    of_value = weights.swapaxes(-2, -1) @ of_output
    of_weights = of_output @ value.swapaxes(-2, -1)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    of_query, of_key = scale * of_scores @ key, scale * of_scores.swapaxes(-2, -1) @ query
    inputs = leaves(twin, query, key, value)
    way(*inputs, mask=None if mask is None else twin.array(mask)).backward(twin.array(of_output))
    for x, expected in zip(inputs, (of_query, of_key, of_value)):
        assert_near(x.grad, expected)


def test_the_second_derivative_against_finite_differences():
    """With four axes torch may choose a kernel that has none, so the docstring names one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    twin = TORCH[0]
    inputs = leaves(twin, *(x[:1, :2, ..., :2] for x in qkv()))
    mask = twin.array(some_mask())
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(
            lambda *x: lib.scaled_dot_product_attention(*x, mask=mask), inputs
        )


# ---- rows that may attend to nothing, keys that nobody may read ----------------------------------


@pytest.mark.parametrize("function", [lib.softmax, lib.log_softmax])
def test_a_row_of_minus_infinity_has_gradient_zero(function):
    scores = torch.tensor([[-math.inf] * 3, [1.0, -math.inf, 2.0]], requires_grad=True)
    y = function(scores)
    y[y.isfinite()].square().sum().backward()
    assert scores.grad[0].tolist() == [0, 0, 0]
    assert scores.grad.isfinite().all()
    assert scores.grad[1, 0] != 0


def forbidding(twin, by):
    """Query 1 may attend to nothing and key 2 is read by nobody, said by a mask or by a bias."""
    mask = some_mask()
    bias = np.where(mask, 0.0, -math.inf)
    both = {"mask": mask | ~mask[:, :1], "bias": np.where(mask | mask[:, :1], 0.0, -math.inf)}
    said = {"mask": {"mask": mask}, "bias": {"bias": bias}, "both": both}[by]
    return {name: twin.array(x) for name, x in said.items()}


@pytest.mark.parametrize("twin", [t for t in EVERY if t.is_torch], ids=str)
@pytest.mark.parametrize("by", ["mask", "bias", "both"])
@pytest.mark.parametrize("filling", [math.nan, math.inf, -math.inf, 1e4])
def test_what_cannot_be_reached_has_gradient_zero(twin, by, filling):
    query, key, value = qkv()
    key[..., 2, :] = value[..., 2, :] = filling
    query, key, value = leaves(twin, query, key, value)
    options = forbidding(twin, by)
    weights = lib.attention_weights(query, key, **options)
    output = lib.scaled_dot_product_attention(query, key, value, **options)
    assert back(weights[..., 1, :]).max() == back(output[..., 1, :]).max() == 0
    (weights.square().sum() + output.square().sum()).backward()
    for x in (query, key, value):
        assert x.grad.isfinite().all()
        assert dtype_of(x.grad) == twin.dtype
    assert (query.grad[..., 1, :] == 0).all()
    assert (key.grad[..., 2, :] == 0).all()
    assert (value.grad[..., 2, :] == 0).all()
    assert (query.grad[..., 0, :] != 0).any()
    assert (value.grad[..., 0, :] != 0).any()


def test_a_bias_of_minus_infinity_has_gradient_zero():
    query, key, value = (TORCH[0].array(x) for x in qkv())
    bias = np.where(some_mask(), 0.5, -math.inf)
    bias = torch.tensor(bias, requires_grad=True)
    lib.scaled_dot_product_attention(query, key, value, bias=bias).square().sum().backward()
    assert bias.grad.isfinite().all()
    assert ((bias.grad == 0) == torch.tensor(~some_mask())).all()
