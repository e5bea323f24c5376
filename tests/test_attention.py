"""Softmax, scores, weights and outputs against plain Python, in every dtype of both twins."""

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from twins import EXACT, assert_near, back, dtype_of

from qkvlib.patterns import documents

LENGTHS = np.arange(5) < np.array([5, 2])[:, None, None, None]
NOTHING_FOR_ONE = np.arange(5) < np.array([0, 3])[:, None, None, None]


def two_axes():
    """Query 1 may attend to nothing, key 2 is read by nobody."""
    mask = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 1, 1]])
    return mask.astype(bool)


def per_head():
    return np.random.default_rng(3).random((1, 3, 4, 5)) < 0.6


def per_item_and_head():
    return np.random.default_rng(4).random((2, 3, 4, 5)) < 0.6


MASKS = {
    "no mask": None,
    "two axes": two_axes(),
    "one row": two_axes()[:1],
    "one column": two_axes()[:, :1],
    "padding": LENGTHS,
    "nothing for one item": NOTHING_FOR_ONE,
    "per head": per_head(),
    "per item and head": per_item_and_head(),
}


def some_bias():
    """-inf in places; query 2 may attend to nothing, key 3 is read by nobody."""
    bias = np.random.default_rng(5).normal(size=(3, 4, 5))
    bias[0, 1] = bias[:, 2] = bias[..., 3] = -math.inf
    return bias


OPTIONS = {
    "plain": {},
    "scale": {"scale": 0.7},
    "negative scale": {"scale": -0.2},
    "no scale": {"scale": 0},
    "softcap": {"softcap": 0.9},
    "bias": {"bias": some_bias()},
    "bias of one axis": {"bias": np.array([0.0, 1, -1, -math.inf, 2])},
    "all": {"bias": some_bias(), "scale": 1.3, "softcap": 1.1},
}


@pytest.fixture
def qkv(generator):
    """Sizes all different: batch 2, heads 3, 4 queries, 5 keys, d_k 7, d_v 6."""
    return [generator.normal(size=(2, 3, *shape)) for shape in ((4, 7), (5, 7), (5, 6))]


def in_twin(twin, options):
    return {k: twin.array(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}


def rounded(twin, options):
    return {
        k: back(v) if not isinstance(v, float | int) else v
        for k, v in in_twin(twin, options).items()
    }


# ---- softmax -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
def test_softmax_of_nothing_is_nothing(twin, shape):
    for softmax in (twin.lib.softmax, twin.lib.log_softmax):
        found = softmax(twin.array(np.zeros(shape)))
        assert tuple(found.shape) == shape
        assert dtype_of(found) == twin.computed


@pytest.mark.parametrize("axis", [-1, 0, 1, -3])
def test_softmax(twin, generator, axis):
    scores = 3 * generator.normal(size=(3, 4, 5))
    scores[0, 1, 2] = -math.inf
    [rounded] = twin.rounded(scores)
    powers = np.exp(rounded)
    expected = powers / powers.sum(axis=axis, keepdims=True)
    scores = twin.array(scores)
    assert_near(twin.lib.softmax(scores, axis), expected, dtype=twin.computed)
    with np.errstate(divide="ignore"):
        logarithm = np.log(expected)
    assert_near(twin.lib.log_softmax(scores, axis), logarithm, dtype=twin.computed)


def test_softmax_is_along_the_last_axis(backend):
    scores = backend.array(np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]]))
    assert_near(backend.lib.softmax(scores).sum(-1), np.ones(2))
    assert_near(backend.lib.log_softmax(scores), np.log(back(backend.lib.softmax(scores, axis=-1))))


@pytest.mark.parametrize("sign", [1, -1])
def test_softmax_of_large_scores(twin, sign):
    scores = sign * np.array([10000.0, 9999.0, 9900.0])
    [rounded] = twin.rounded(scores)
    powers = np.exp(rounded - rounded.max())
    scores = twin.array(scores)
    assert_near(twin.lib.softmax(scores), powers / powers.sum())
    expected = rounded - rounded.max() - math.log(powers.sum())
    assert_near(twin.lib.log_softmax(scores), expected)


def test_softmax_of_the_largest_scores_there_are(twin):
    """Their difference is infinite."""
    largest = {"float16": 6e4}.get(twin.dtype, 1.5e308 if twin.dtype == "float64" else 3e38)
    scores = twin.array(np.array([largest, -largest, largest, -math.inf]))
    assert back(twin.lib.softmax(scores)).tolist() == [0.5, 0, 0.5, 0]
    assert_near(twin.lib.log_softmax(scores)[::2], [-math.log(2)] * 2)


def test_log_softmax_is_exact_where_the_weight_is_zero(twin):
    scores = twin.array(np.array([0.0, 2048.0]))
    assert back(twin.lib.softmax(scores)).tolist() == [0, 1]
    assert back(twin.lib.log_softmax(scores)).tolist() == [-2048, 0]


def test_softmax_of_nothing(twin):
    scores = np.full((2, 3), -math.inf)
    scores[1, 2] = 0.0
    scores = twin.array(scores)
    assert back(twin.lib.softmax(scores)).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert back(twin.lib.log_softmax(scores))[0].tolist() == [-math.inf] * 3
    assert back(twin.lib.softmax(scores, axis=0)).tolist() == [[0, 0, 0], [0, 0, 1]]


finite = st.floats(-1e30, 1e30) | st.sampled_from([0.0, -0.0, 1e-30, -1e-30, 1.0, -math.inf])


@given(hnp.arrays(float, hnp.array_shapes(max_dims=3, max_side=4), elements=finite), st.data())
def test_softmax_of_anything(scores, data):
    axis = data.draw(st.integers(-scores.ndim, scores.ndim - 1))
    top = scores.max(axis=axis, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(axis=axis, keepdims=True)
    for twin in EXACT:
        found = back(twin.lib.softmax(twin.array(scores), axis))
        assert_near(found, powers / np.where(total == 0, 1, total))
        nothing = np.isinf(top)
        assert_near(found.sum(axis=axis, keepdims=True), np.where(nothing, 0.0, 1.0))
        shifted = scores - np.where(nothing, 0, top)
        log_total = np.where(nothing, 0, np.logaddexp.reduce(shifted, axis=axis, keepdims=True))
        assert_near(twin.lib.log_softmax(twin.array(scores), axis), shifted - log_total)


# ---- scores, weights, outputs --------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scores(twin, qkv, options):
    expected, _, _ = reference.attention(*twin.rounded(*qkv), **rounded(twin, options))
    query, key, _ = twin.arrays(*qkv)
    scores = twin.lib.attention_scores(query, key, **in_twin(twin, options))
    assert_near(scores, expected, dtype=twin.computed)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_weights_and_output(twin, qkv, mask, options):
    _, weights, output = reference.attention(*twin.rounded(*qkv), mask, **rounded(twin, options))
    query, key, value = twin.arrays(*qkv)
    options = in_twin(twin, options) | {"mask": None if mask is None else twin.array(mask)}
    found = twin.lib.attention_weights(query, key, **options)
    assert_near(found, weights, dtype=twin.computed)
    assert (back(found) == 0)[weights == 0].all()
    found = twin.lib.scaled_dot_product_attention(query, key, value, **options)
    assert_near(found, output, dtype=twin.dtype)
    assert (back(found) == 0)[(weights == 0).all(axis=-1)].all()


SHAPES = [
    ((4, 7), (5, 7), (5, 6)),
    ((2, 4, 7), (5, 7), (5, 6)),
    ((4, 7), (2, 5, 7), (5, 6)),
    ((4, 7), (5, 7), (2, 3, 5, 6)),
    ((3, 4, 7), (2, 1, 5, 7), (1, 5, 6)),
    ((2, 3, 1, 7), (2, 1, 5, 7), (3, 5, 1)),
    ((2, 1, 3, 4, 7), (1, 2, 3, 5, 7), (3, 5, 6)),
    ((3, 4, 1), (3, 1, 1), (3, 1, 6)),
    ((0, 4, 7), (0, 5, 7), (0, 5, 6)),
    ((3, 0, 7), (3, 5, 7), (3, 5, 6)),
    ((3, 4, 7), (3, 5, 7), (3, 5, 0)),
]


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_leading_axes_broadcast(exact, generator, shapes, masked):
    qkv = [generator.normal(size=shape) for shape in shapes]
    mask = two_axes()[: shapes[0][-2], : shapes[1][-2]] if masked else None
    _, weights, output = reference.attention(*qkv, mask)
    query, key, value = exact.arrays(*qkv)
    mask = exact.array(mask) if masked else None
    found = exact.lib.scaled_dot_product_attention(query, key, value, mask=mask)
    assert_near(found, output)
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    _, weights, _ = reference.attention(*qkv[:2], qkv[1], mask if mask is None else back(mask))
    found = exact.lib.attention_weights(query, key, mask=mask)
    assert tuple(found.shape) == (*lead, shapes[0][-2], shapes[1][-2])
    assert_near(found, weights)


def test_bias_may_have_another_dtype(twin, qkv):
    """It is cast to that of the scores, and not to a shorter one on the way."""
    query, key, _ = twin.arrays(*qkv)
    plain = back(twin.lib.attention_scores(query, key))
    bias = np.array([0.1, 1.25, 1e5, 0.0, -math.inf])
    for dtype in ("float16", "float32", "float64"):
        if (twin.device, dtype) == ("mps", "float64"):
            continue
        cast = twin.array(np.minimum(bias, 6e4) if dtype == "float16" else bias, dtype)
        found = twin.lib.attention_scores(query, key, bias=cast)
        shorter = dtype if twin.computed == "float64" else twin.computed
        expected = plain + back(cast).astype(shorter).astype(float)
        assert_near(found, expected, dtype=twin.computed)
        assert abs(back(found)[0, 0, 0, 0] - expected[0, 0, 0, 0]) < 1e-6


def test_a_bias_that_is_minus_infinity_once_cast_forbids(twin, qkv):
    """finfo.min of float64, a usual stand-in for -inf, does not fit float32."""
    if twin.device == "mps":
        pytest.skip("no float64 there")
    query, key, value = qkv
    key[..., 2, :] = value[..., 2, :] = math.nan
    query, key, value = twin.arrays(query, key, value)
    bias = np.zeros((4, 5))
    bias[:, 2] = np.finfo(float).min
    bias = twin.array(bias, "float64")
    for found in (
        twin.lib.attention_weights(query, key, bias=bias),
        twin.lib.scaled_dot_product_attention(query, key, value, bias=bias),
    ):
        assert np.isfinite(back(found)).all() == (twin.computed == "float32")


@pytest.mark.parametrize("filling", [math.nan, math.inf])
def test_mask_and_bias_together_may_close_a_key(exact, qkv, filling):
    """Some queries may not read it by the mask, the others not by the bias."""
    query, key, value = qkv
    mask, bias = np.ones((4, 5), bool), np.zeros((4, 5))
    mask[:2, 3], bias[2:, 3] = False, -math.inf
    expected = reference.attention(query, key, value, mask & (bias == 0))[2]
    key[..., 3, :] = value[..., 3, :] = filling
    qkv, options = exact.arrays(query, key, value), {"mask": exact.array(mask)}
    options["bias"] = exact.array(bias)
    assert_near(exact.lib.scaled_dot_product_attention(*qkv, **options), expected)
    assert_near(exact.lib.chunked_attention(*qkv, **options, chunk_size=2), expected)


def test_a_pattern_enlarges_no_scores(exact, qkv):
    """One row of texts for each of two items, where there is one item alone."""
    query, key, value = exact.arrays(*(x[0, 0] for x in qkv))
    mask = documents([[0, 0, 1, 1, 1], [2, 2, 2, 2, 3]])
    for call in (
        lambda: exact.lib.attention_weights(query, key, mask=mask),
        lambda: exact.lib.scaled_dot_product_attention(query, key, value, mask=mask),
        lambda: exact.lib.chunked_attention(query, key, value, mask=mask),
    ):
        with pytest.raises(ValueError, match=r"mask must have 2 axes .* got shape \(2, 4, 5\)"):
            call()


def test_scale_comes_before_the_product(twin):
    """Where the scaled score fits the dtype, nothing overflows on the way."""
    size = {"float64": 3e153, "float32": 3e18, "bfloat16": 3e18, "float16": 50.0}[twin.dtype]
    query, key = np.full((1, 64), size), np.full((2, 64), size) * [[1], [-1]]
    rounded = twin.rounded(query, key)
    expected = np.array([[1, -1]]) * 8 * float(rounded[0][0, 0]) * float(rounded[1][0, 0])
    query, key = twin.arrays(query, key)
    np.testing.assert_allclose(back(twin.lib.attention_scores(query, key)), expected, rtol=1e-5)
    assert back(twin.lib.attention_weights(query, key)).tolist() == [[1, 0]]
    found = twin.lib.scaled_dot_product_attention(query, key, twin.array(np.array([[3.0], [5.0]])))
    assert back(found).tolist() == [[3]]


def test_half_precision_is_computed_in_float32(twin):
    """Products of 300 * 300 are no float16, nor is a sum of 4096 weights exact in one."""
    if not twin.is_half:
        pytest.skip("for half types")
    query, key = twin.arrays(np.full((1, 4), 300.0), np.full((2, 4), 300.0))
    [[size]] = back(twin.lib.attention_scores(query[:, :1], key[:1, :1], scale=1))
    assert back(twin.lib.attention_scores(query, key)).tolist() == [[2 * size, 2 * size]]
    ones = twin.array(np.ones((4096, 1)))
    assert back(twin.lib.scaled_dot_product_attention(query[:, :1], 0 * ones, ones)).item() == 1


def test_any_softcap_that_the_dtype_holds(twin):
    query, key = twin.arrays(np.array([[2.0]]), np.array([[1.0], [0.0], [-4.0]]))
    small, large = (3e-308, 1e300) if twin.computed == "float64" else (2e-38, 1e37)
    found = twin.lib.attention_scores(query, key, softcap=large)
    assert_near(found, [[2.0, 0.0, -8.0]])
    found = back(twin.lib.attention_scores(query, key, softcap=small))
    np.testing.assert_allclose(found, [[small, 0.0, -small]], rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{"scale": 1e39}, {"scale": -1e39}, {"softcap": 1e39}, {"softcap": 1e-46}], ids=str
)
def test_a_number_that_the_dtype_of_the_scores_does_not_hold(twin, qkv, options):
    query, key, value = twin.arrays(*qkv)
    calls = (
        lambda: twin.lib.attention_scores(query, key, **options),
        lambda: twin.lib.scaled_dot_product_attention(query, key, value, **options),
    )
    for call in calls:
        if twin.computed == "float64":
            assert np.isfinite(back(call())).all()
        else:
            [name] = options
            with pytest.raises(ValueError, match=rf"{name} must lie between .* float32, got .*; "):
                call()


def test_numbers_of_other_kinds_are_numbers(backend, qkv):
    query, key, _ = backend.arrays(*qkv)
    expected = back(backend.lib.attention_scores(query, key, scale=2.0, softcap=3.0))
    for kind in (int, np.float32, np.int64):
        found = backend.lib.attention_scores(query, key, scale=kind(2), softcap=kind(3))
        assert dtype_of(found) == "float64"
        np.testing.assert_array_equal(back(found), expected)
