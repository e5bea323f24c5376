"""Chunked attention: the same numbers, no dead chunk visited, memory that grows with the length."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import reference
from test_attention import MASKS, OPTIONS, SHAPES, in_twin, rounded, two_axes
from twins import BACKENDS, assert_near, back, torch

from qkvlib.patterns import Pattern, causal, window

NUMPY, *_ = BACKENDS
needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


def drawn(lead=(2, 3), n_query=4, n_key=5):
    """Sizes all different: batch 2, heads 3, d_k 7, d_v 6."""
    generator = np.random.default_rng(20)
    return [generator.normal(size=(*lead, *s)) for s in ((n_query, 7), (n_key, 7), (n_key, 6))]


# ---- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_any_mask_and_option(twin, mask, options):
    qkv = drawn()
    _, weights, output = reference.attention(*twin.rounded(*qkv), mask, **rounded(twin, options))
    options = in_twin(twin, options) | {"mask": None if mask is None else twin.array(mask)}
    for chunk_size in (1, 2, 3, 9):
        found = twin.lib.chunked_attention(*twin.arrays(*qkv), **options, chunk_size=chunk_size)
        assert_near(found, output, dtype=twin.dtype)
        assert (back(found) == 0)[(weights == 0).all(axis=-1)].all()


PATTERNS = {
    "causal": causal,
    "window": window(3),
    "causal window": causal & window(3),
    "not causal": ~causal,
    "shifted": causal.shifted(-4),
    "even keys": Pattern(lambda i, j: j % 2 == 0),
}


@pytest.mark.parametrize("sizes", [(11, 11), (7, 12), (12, 7), (1, 9)], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_patterns(exact, pattern, sizes):
    query, key, value = qkv = drawn((3,), *sizes)
    _, _, output = reference.attention(query, key, value, pattern.array(*sizes))
    for chunk_size in (1, 3, 4, 512):
        found = exact.lib.chunked_attention(
            *exact.arrays(*qkv), mask=pattern, chunk_size=chunk_size
        )
        assert_near(found, output)


def test_a_pattern_joined_to_an_array(exact):
    qkv = drawn((2, 3), 6, 8)
    padding = np.arange(8) < np.array([8, 5])[:, None, None, None]
    _, _, output = reference.attention(*qkv, padding & causal.array(6, 8))
    mask = causal & exact.array(padding)
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask, chunk_size=3)
    assert_near(found, output)


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_leading_axes_broadcast(exact, generator, shapes, masked):
    qkv = [generator.normal(size=shape) for shape in shapes]
    mask = two_axes()[: shapes[0][-2], : shapes[1][-2]] if masked else None
    _, _, output = reference.attention(*qkv, mask)
    mask = exact.array(mask) if masked else None
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask, chunk_size=2)
    assert_near(found, output)


@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_when_the_highest_score_comes_makes_no_difference(twin, order):
    """Rising scores rescale what was summed with every chunk, falling ones never."""
    key = 4.0 * np.arange(9)[::order, None]
    qkv = np.array([[1.0], [-1.0]]), key, np.random.default_rng(1).normal(size=(9, 3))
    _, _, output = reference.attention(*twin.rounded(*qkv))
    found = twin.lib.chunked_attention(*twin.arrays(*qkv), chunk_size=2)
    assert_near(found, output, dtype=twin.dtype)


def test_the_first_chunks_may_hold_nothing(exact):
    """-inf minus -inf is NaN: a row whose keys come late, and one that has none."""
    qkv = drawn((3,), 4, 8)
    mask = np.ones((4, 8), dtype=bool)
    mask[1, :5] = mask[2] = mask[3, 2:] = False
    _, _, output = reference.attention(*qkv, mask)
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=exact.array(mask), chunk_size=2)
    assert_near(found, output)
    assert (back(found)[..., 2, :] == 0).all()


def test_what_nobody_may_read_may_hold_anything(exact):
    query, key, value = drawn((2, 3), 6, 8)
    mask = np.tri(6, 8, dtype=bool)  # keys 6 and 7 are read by nobody
    _, _, output = reference.attention(query, key, value, mask)
    key[..., 6:, :], value[..., 6:, :] = math.nan, math.inf
    qkv = exact.arrays(query, key, value)
    for options in (
        {"mask": exact.array(mask)},
        {"mask": causal.shifted(-2)},
        {"bias": exact.array(np.where(mask, 0, -math.inf))},
    ):
        assert_near(exact.lib.chunked_attention(*qkv, **options, chunk_size=4), output)


def test_chunk_size_must_be_a_whole_number(backend):
    qkv = backend.arrays(*drawn())
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (None, TypeError)):
        with pytest.raises(error, match="chunk_size must be"):
            backend.lib.chunked_attention(*qkv, chunk_size=wrong)


@pytest.mark.parametrize("n_query", [0, 4])
def test_mask_and_bias_must_fit(backend, n_query):
    """Also where there is no query to ask for."""
    qkv = backend.arrays(*drawn((2, 3), n_query, 5))
    for wrong, error, message in (
        ({"mask": np.ones((n_query, 6), bool)}, ValueError, "mask must broadcast to the scores"),
        ({"mask": np.ones((2, n_query, 5), bool)}, ValueError, "mask must have 2 axes"),
        ({"mask": np.ones((n_query, 5))}, TypeError, "mask must be a Boolean"),
        ({"bias": np.ones((n_query, 6))}, ValueError, "bias must broadcast to the scores"),
        ({"bias": np.ones((n_query, 5), bool)}, TypeError, "bias must be floating"),
    ):
        with pytest.raises(error, match=message):
            backend.lib.chunked_attention(*qkv, **in_twin(backend, wrong))


# ---- dead chunks are not visited -----------------------------------------------------------------


def visited(twin, qkv, **options):
    """How many scores are computed for each item of the leading axes."""
    counted = []
    module = __import__(f"{twin.lib.__name__}.attention", fromlist=["attention_scores"])

    def counting(query, key, **options):
        scores = module.attention_scores.original(query, key, **options)
        counted.append(math.prod(scores.shape))
        return scores

    counting.original = module.attention_scores
    with patch.object(module, "attention_scores", counting):
        twin.lib.chunked_attention(*twin.arrays(*qkv), **options)
    return sum(counted)


VISITS = {
    "all": (None, 12 * 12),
    "causal": (causal, 3 * 3 * (1 + 2 + 3 + 4)),
    "window": (window(2), 3 * (4 + 5 + 5 + 4)),
    "causal window": (causal & window(2), 3 * (3 + 4 + 4 + 4)),
    "nothing": (causal.shifted(-100), 0),
}


@pytest.mark.parametrize(("pattern", "scores"), VISITS.values(), ids=VISITS)
def test_a_pattern_tells_which_keys_to_visit(backend, pattern, scores):
    assert visited(backend, drawn((), 12, 12), mask=pattern, chunk_size=3) == scores


def test_a_pattern_is_not_asked_about_other_keys(backend):
    asked = []

    def rule(i, j):
        asked.append(i.shape[-2] * j.shape[-1])
        return abs(i - j) < 2

    mask = Pattern(rule, lambda first, last, n_key: [(first - 1, last + 2)])
    backend.lib.chunked_attention(*backend.arrays(*drawn((3,), 12, 12)), mask=mask, chunk_size=3)
    assert sum(asked) == VISITS["window"][1]
    assert max(asked) == 9


def test_a_chunk_that_an_array_forbids_is_not_visited(backend):
    mask = np.kron(np.eye(4, dtype=bool), np.ones((3, 3), dtype=bool))
    for forbidding in (
        {"mask": backend.array(mask)},
        {"bias": backend.array(np.where(mask, 0, -math.inf))},
    ):
        found = visited(backend, drawn((), 12, 12), chunk_size=3, **forbidding)
        assert found == 4 * 9


def test_the_chunks_of_padding_are_not_visited_for_one_item_alone():
    padding = np.arange(12) < np.array([12, 3])[:, None, None]
    found = visited(NUMPY, drawn((2,), 12, 12), mask=padding, chunk_size=3)
    assert found == 12 * 12 + 12 * 3


# ---- gradients -----------------------------------------------------------------------------------


def leaves(arrays):
    return [torch.tensor(x, requires_grad=True) for x in arrays]


def gradients(function, inputs, bias, **options):
    """The gradients of some loss with regard to query, key, value and, if there is one, bias."""
    output = function(*inputs, bias=bias, **options)
    of_output = torch.tensor(np.random.default_rng(3).normal(size=output.shape))
    return torch.autograd.grad(output, inputs if bias is None else [*inputs, bias], of_output)


@needs_torch
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mask", [*MASKS.values(), causal], ids=[*MASKS, "causal"])
def test_gradients_are_those_of_the_weights(mask, options):
    lib, twin = BACKENDS[-1].lib, BACKENDS[-1]
    bias = options.get("bias")
    bias = None if bias is None else leaves([bias])[0]
    options = {k: v for k, v in options.items() if k != "bias"}
    options["mask"] = twin.array(mask) if isinstance(mask, np.ndarray) else mask
    inputs = leaves(drawn())
    expected = gradients(
        lambda q, k, v, **options: lib.attention_weights(q, k, **options) @ v,
        inputs,
        bias,
        **options,
    )
    for chunk_size in (2, 3):
        found = gradients(lib.chunked_attention, inputs, bias, **options, chunk_size=chunk_size)
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
