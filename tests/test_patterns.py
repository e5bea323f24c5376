"""Patterns: rules on positions, and what the operators make of them."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import back, torch

from qkvlib.patterns import Pattern, causal, window

RULES = {
    "causal": (causal, lambda i, j: j <= i),
    "window": (window(2), lambda i, j: abs(i - j) < 2),
    "even": (Pattern(lambda i, j: j % 2 == 0), lambda i, j: j % 2 == 0),
    "moved": (causal.shifted(-2), lambda i, j: j <= i - 2),
}
OPERATORS = {"&": operator.and_, "|": operator.or_}


@st.composite
def trees(draw, depth=3):
    """A pattern and, beside it, what it must answer for one pair of numbers."""
    kind = draw(st.sampled_from(["leaf", "~", "&", "|", "shifted"] if depth else ["leaf"]))
    if kind == "leaf":
        return RULES[draw(st.sampled_from(sorted(RULES)))]
    pattern, rule = draw(trees(depth - 1))
    if kind == "~":
        return ~pattern, lambda i, j: not rule(i, j)
    if kind == "shifted":
        offset = draw(st.integers(-3, 3))
        return pattern.shifted(offset), lambda i, j: rule(i + offset, j)
    other, other_rule = draw(trees(depth - 1))
    join = OPERATORS[kind]
    return join(pattern, other), lambda i, j: join(rule(i, j), other_rule(i, j))


@given(trees(), st.integers(0, 5), st.integers(1, 6), st.none() | st.integers(-4, 4))
def test_what_is_composed_answers_as_its_parts(tree, n_query, n_key, offset):
    pattern, rule = tree
    found = pattern.array(n_query, n_key, offset=offset)
    offset = n_key - n_query if offset is None else offset
    expected = [[rule(i + offset, j) for j in range(n_key)] for i in range(n_query)]
    assert found.dtype == bool
    assert found.shape == (n_query, n_key)
    assert found.tolist() == expected
    for i in range(n_query):
        for j in range(n_key):
            answer = pattern(i + offset, j)
            assert isinstance(answer, bool)
            assert answer == expected[i][j]


@given(trees(), st.integers(1, 5), st.integers(1, 6))
def test_the_same_rule_serves_torch(tree, n_query, n_key):
    if torch is None:
        pytest.skip("needs torch")
    pattern, _ = tree
    i, j = np.arange(n_query)[:, None], np.arange(n_key)[None]
    found = pattern(torch.from_numpy(i), torch.from_numpy(j))
    assert found.dtype == torch.bool
    np.testing.assert_array_equal(
        np.broadcast_to(back(found), (n_query, n_key)),
        np.broadcast_to(pattern(i, j), (n_query, n_key)),
    )


def test_an_array_of_offsets_gives_a_mask_for_each():
    offsets = np.array([3, 0, -2])
    for pattern in (causal, window(2) & ~causal, Pattern(lambda i, j: j % 2 == 0)):
        found = pattern.array(2, 4, offset=offsets)
        assert found.shape == (3, 2, 4)
        for mask, offset in zip(found, offsets):
            np.testing.assert_array_equal(mask, pattern.array(2, 4, offset=int(offset)))


def test_a_pattern_may_be_shifted_by_one_offset_for_each_item():
    offsets = np.array([1, -1])
    found = causal.shifted(offsets[:, None, None]).array(3, 4)
    for mask, offset in zip(found, offsets):
        np.testing.assert_array_equal(mask, causal.array(3, 4, offset=1 + offset))


def test_the_number_of_keys_is_that_of_queries():
    np.testing.assert_array_equal(causal.array(3), np.tri(3, dtype=bool))


def test_what_is_written_out_is_a_fresh_array():
    everything = Pattern(lambda i, j: j >= 0)
    mask = everything.array(3, 4)
    mask[0, 0] = False
    assert mask.sum() == 11
    assert everything.array(3, 4).all()


# ---- joined with an array ------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (2, 1, 1, 5), (2, 4, 3, 5)], ids=str)
def test_an_array_belongs_to_queries_by_their_index(generator, name, shape):
    join = OPERATORS[name]
    array = generator.random(shape) < 0.5
    for offset in (None, 0, 2):
        expected = join(causal.array(3, 5, offset=offset), array)
        for pattern in (join(causal, array), join(array, causal)):
            assert isinstance(pattern, Pattern)
            np.testing.assert_array_equal(pattern.array(3, 5, offset=offset), expected)
        found = (~join(causal, array)).array(3, 5, offset=offset)
        np.testing.assert_array_equal(found, ~expected)


def test_shifting_moves_the_rule_and_leaves_the_array(generator):
    array = generator.random((3, 5)) < 0.5
    found = (causal & array).shifted(-1).array(3, 5)
    np.testing.assert_array_equal(found, causal.array(3, 5, offset=1) & array)


def test_one_array_may_be_used_with_many_offsets(generator):
    array = generator.random((3, 5)) < 0.5
    offsets = np.array([0, 2])
    found = (causal & array).array(3, 5, offset=offsets)
    np.testing.assert_array_equal(found, causal.array(3, 5, offset=offsets) & array)


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("name", OPERATORS)
def test_a_tensor_may_be_joined_from_either_side(generator, name):
    join = OPERATORS[name]
    array = generator.random((3, 5)) < 0.5
    tensor = torch.from_numpy(array)
    i, j = torch.arange(3)[:, None] + 2, torch.arange(5)[None]
    for pattern in (join(causal, tensor), join(tensor, causal)):
        assert isinstance(pattern, Pattern)
        found = back(pattern(i, j))
        np.testing.assert_array_equal(found, join(causal.array(3, 5), array))
