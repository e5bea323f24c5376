"""Masks: who may attend to whom, by counting; and what a mask does to attention in both twins."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import BACKENDS, assert_near, back, dtype_of, torch

from qkvlib.patterns import Pattern, causal, window

SIZES = [(4, 4), (2, 5), (5, 2), (1, 3), (3, 1), (0, 3)]


def counted(n_query, n_key, rule, offset=None):
    """A mask by asking for each pair of positions."""
    offset = n_key - n_query if offset is None else offset
    pairs = [[rule(i + offset, j) for j in range(n_key)] for i in range(n_query)]
    return np.array(pairs, dtype=bool).reshape(n_query, n_key)


def test_the_first_query_of_four_sees_one_key(backend):
    found = back(backend.lib.causal_mask(4)).astype(int).tolist()
    assert found == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_the_last_query_stands_with_the_last_key(backend):
    assert back(backend.lib.causal_mask(2, 4)).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert back(backend.lib.causal_mask(3, 2)).astype(int).tolist() == [[0, 0], [1, 0], [1, 1]]
    found = back(backend.lib.window_mask(2, 4, window=2)).astype(int).tolist()
    assert found == [[0, 1, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize("offset", [None, 0, 2, -1])
@pytest.mark.parametrize("n", SIZES, ids=str)
def test_causal_mask(backend, n, offset):
    found = backend.lib.causal_mask(*n, offset=offset)
    assert dtype_of(found) == "bool"
    np.testing.assert_array_equal(back(found), counted(*n, lambda i, j: j <= i, offset))


@pytest.mark.parametrize("offset", [None, 0, 2, -1])
@pytest.mark.parametrize("w", [1, 2, 3, 10])
@pytest.mark.parametrize("n", SIZES, ids=str)
def test_window_mask(backend, n, w, offset):
    found = backend.lib.window_mask(*n, window=w, offset=offset)
    assert dtype_of(found) == "bool"
    np.testing.assert_array_equal(back(found), counted(*n, lambda i, j: abs(i - j) < w, offset))


def test_one_offset_for_each_batch_item(backend):
    """Each item's queries stand elsewhere, as when some have read more of their text."""
    offsets = np.array([[3, 0, -1], [1, 2, 4]])
    for dtype in ("int64", "int32", "uint8"):
        if dtype == "uint8":
            offsets = np.abs(offsets)
        given_ = backend.array(offsets.astype(dtype))
        causal_, window_ = (
            back(backend.lib.causal_mask(2, 5, offset=given_)),
            back(backend.lib.window_mask(2, 5, window=2, offset=given_)),
        )
        assert causal_.shape == window_.shape == (2, 3, 2, 5)
        for item in np.ndindex(2, 3):
            expected = counted(2, 5, lambda i, j: j <= i, offsets[item])
            np.testing.assert_array_equal(causal_[item], expected)
            expected = counted(2, 5, lambda i, j: abs(i - j) < 2, offsets[item])
            np.testing.assert_array_equal(window_[item], expected)


def test_an_offset_may_be_any_whole_number(backend):
    expected = back(backend.lib.causal_mask(2, 5, offset=1))
    for offset in (np.int32(1), backend.array(np.array(1))):
        np.testing.assert_array_equal(back(backend.lib.causal_mask(2, 5, offset=offset)), expected)


@pytest.mark.parametrize("kind", ["int8", "uint8", "uint16", "uint64"])
def test_offsets_may_have_any_integer_dtype(backend, kind):
    offsets = np.array([0, 3])
    expected = back(backend.lib.causal_mask(2, 5, offset=backend.array(offsets)))
    found = backend.lib.causal_mask(2, 5, offset=backend.array(offsets.astype(kind)))
    np.testing.assert_array_equal(back(found), expected)


def test_a_mask_may_be_written_to(backend):
    for make in (backend.lib.causal_mask, lambda n: backend.lib.window_mask(n, window=1)):
        mask = make(3)
        mask[0, 2] = True
        assert not back(make(3))[0, 2]
        assert not back(mask)[1, 2]


# ---- padding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [3, [3, 1, 4, 0], [[3, 1], [4, 0], [2, 2]]], ids=str)
@pytest.mark.parametrize("kind", ["list", "int64", "uint8", "uint16", "int8"])
def test_padding_mask(backend, lengths, kind):
    lengths = np.array(lengths)
    given_ = lengths.tolist() if kind == "list" else backend.array(lengths.astype(kind))
    found = backend.lib.padding_mask(given_, 4)
    assert dtype_of(found) == "bool"
    assert tuple(found.shape) == (*lengths.shape, 1, 4)
    for item in np.ndindex(lengths.shape):
        assert back(found)[item].tolist() == [[j < lengths[item] for j in range(4)]]


def test_padding_mask_takes_numpy_lengths_in_any_memory_layout(backend):
    lengths = np.array([1, 0, 3, 0, 2], dtype=">i4")[::-2]
    found = back(backend.lib.padding_mask(lengths, 3))
    assert found.sum(axis=(1, 2)).tolist() == [2, 3, 1]


def test_padding_mask_needs_an_axis_for_heads(backend, generator):
    query, key = backend.arrays(*generator.normal(size=(2, 4, 3, 5, 7)))
    mask = backend.lib.padding_mask([5, 2, 0, 3], 5)[:, None]
    weights = back(backend.lib.attention_weights(query, key, mask=mask))
    assert (weights[1, ..., 2:] == 0).all()
    assert (weights[1, ..., :2] > 0).all()
    assert (weights[2] == 0).all()


# ---- what a mask does ----------------------------------------------------------------------------


def test_true_means_may_attend(backend):
    """The opposite of torch's `nn.MultiheadAttention`."""
    query, key = backend.arrays(np.zeros((1, 2)), np.zeros((2, 2)))
    value = backend.array(np.array([[3.0], [5.0]]))
    mask = backend.array(np.array([[True, False]]))
    assert back(backend.lib.attention_weights(query, key, mask=mask)).tolist() == [[1, 0]]
    found = backend.lib.scaled_dot_product_attention(query, key, value, mask=mask)
    assert back(found).tolist() == [[3]]


@st.composite
def masked_attention(draw):
    """Scores of up to 4 axes, and a mask of one of the shapes that fit them."""
    lead = draw(st.sampled_from([(), (3,), (2, 3)]))
    n_query, n_key = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    shapes = [(n_query, n_key), (1, n_key), (n_query, 1), (1, 1), (*lead, n_query, n_key)]
    shapes += [(*(1 for _ in lead), n_query, n_key), (*lead[:1], *(1 for _ in lead[1:]), 1, n_key)]
    shape = draw(st.sampled_from(shapes))
    size = math.prod(shape)
    bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    generator = np.random.default_rng(draw(st.integers(0, 9)))
    arrays = [generator.normal(size=(*lead, *s)) for s in ((n_query, 7), (n_key, 7), (n_key, 6))]
    return arrays, np.reshape(bits, shape)


@given(masked_attention())
def test_a_mask_removes_scores_before_softmax(case):
    """Each query alone, with only the keys that it may read: no mask is left to get wrong."""
    arrays, mask = case
    for twin in BACKENDS:
        query, key, value = twin.arrays(*arrays)
        output = twin.lib.scaled_dot_product_attention(query, key, value, mask=twin.array(mask))
        scores = np.broadcast_to(mask, (*arrays[0].shape[:-1], arrays[1].shape[-2]))
        expected = np.zeros(output.shape)
        for item in np.ndindex(scores.shape[:-1]):
            if scores[item].any():
                q, k, v = arrays[0][item], arrays[1][item[:-1]], arrays[2][item[:-1]]
                q, k, v = twin.arrays(q[None], k[scores[item]], v[scores[item]])
                expected[item] = back(twin.lib.scaled_dot_product_attention(q, k, v))[0]
        assert_near(output, expected)


@given(masked_attention())
def test_a_bias_of_minus_infinity_is_a_false(case):
    arrays, mask = case
    for twin in BACKENDS:
        query, key, value = twin.arrays(*arrays)
        bias = twin.array(np.where(mask, 0.0, -math.inf))
        mask_ = twin.array(mask)
        for by_bias, by_mask in (
            (
                twin.lib.attention_weights(query, key, bias=bias),
                twin.lib.attention_weights(query, key, mask=mask_),
            ),
            (
                twin.lib.scaled_dot_product_attention(query, key, value, bias=bias),
                twin.lib.scaled_dot_product_attention(query, key, value, mask=mask_),
            ),
        ):
            assert_near(by_bias, back(by_mask))


def test_mask_and_bias_forbid_together(backend, generator):
    query, key, value = backend.arrays(*generator.normal(size=(3, 2, 4, 4)))
    mask = generator.random((4, 4)) < 0.7
    closed = generator.random((2, 4, 4)) < 0.3
    bias = np.where(closed, -math.inf, generator.normal(size=(2, 4, 4)))
    joined = {
        "mask": backend.array(mask & ~closed),
        "bias": backend.array(np.where(closed, 9, bias)),
    }
    apart = {"mask": backend.array(mask), "bias": backend.array(bias)}
    assert_near(
        backend.lib.attention_weights(query, key, **apart),
        back(backend.lib.attention_weights(query, key, **joined)),
    )
    assert_near(
        backend.lib.scaled_dot_product_attention(query, key, value, **apart),
        back(backend.lib.scaled_dot_product_attention(query, key, value, **joined)),
    )


def patterns(backend):
    array = backend.array(np.random.default_rng(3).random((2, 1, 4, 5)) < 0.7)
    yield from [
        causal,
        window(2),
        causal & window(2),
        ~causal,
        causal.shifted(-1),
        causal | window(1),
    ]
    yield from [causal & array, array & causal, window(2) | array, ~(causal & array) & window(3)]
    yield Pattern(lambda i, j: j % 2 == 0)
    yield Pattern(lambda i, j: i > 100)


@pytest.mark.parametrize("number", range(12))
def test_a_pattern_means_its_array(backend, generator, number):
    query, key, value = backend.arrays(
        *(generator.normal(size=(2, 3, *s)) for s in ((4, 7), (5, 7), (5, 6)))
    )
    pattern = list(patterns(backend))[number]
    if backend.is_torch:
        written = pattern(torch.arange(4)[:, None] + 1, torch.arange(5)[None])
        written = written.expand(torch.broadcast_shapes(written.shape, (4, 5)))
    else:
        written = pattern.array(4, 5)
    assert_near(
        backend.lib.attention_weights(query, key, mask=pattern),
        back(backend.lib.attention_weights(query, key, mask=written)),
    )
    assert_near(
        backend.lib.scaled_dot_product_attention(query, key, value, mask=pattern),
        back(backend.lib.scaled_dot_product_attention(query, key, value, mask=written)),
    )
