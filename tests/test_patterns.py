"""Patterns: rules on positions, what the operators make of them, and how far they reach."""

import copy
import operator
import pickle
from itertools import pairwise

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


# ---- blocks --------------------------------------------------------------------------------------


@st.composite
def joined_trees(draw, n_query, n_key):
    """Patterns with arrays in them, of every shape that fits."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    pattern, _ = draw(trees(2))
    for _ in range(draw(st.integers(1, 2))):
        lead = draw(st.sampled_from([(), (2,), (3, 1)]))
        shape = (*lead, draw(st.sampled_from([1, n_query])), draw(st.sampled_from([1, n_key])))
        array = generator.random(shape) < 0.5
        pattern = OPERATORS[draw(st.sampled_from("&|"))](pattern, array)
        pattern = draw(st.sampled_from([pattern, ~pattern, pattern.shifted(1)]))
    return pattern


@given(st.data(), st.integers(1, 5), st.integers(1, 6), st.none() | st.integers(-4, 4))
def test_a_block_is_cut_out_of_the_whole(data, n_query, n_key, offset):
    pattern = data.draw(joined_trees(n_query, n_key))
    a, b = sorted(data.draw(st.tuples(*[st.integers(0, n_query)] * 2)))
    c, d = sorted(data.draw(st.tuples(*[st.integers(0, n_key)] * 2)))
    found = pattern.block(range(a, b), range(c, d), (n_query, n_key), offset=offset)
    whole = pattern.array(n_query, n_key, offset=offset)
    np.testing.assert_array_equal(found, whole[..., a:b, c:d], strict=True)


def test_a_block_with_an_offset_for_each_item(generator):
    offsets = np.array([3, 0, -2])
    array = generator.random((4, 5)) < 0.5
    found = (causal & array).block(range(1, 4), range(2, 5), (4, 5), offset=offsets)
    expected = (causal & array).array(4, 5, offset=offsets)[:, 1:4, 2:5]
    np.testing.assert_array_equal(found, expected, strict=True)


def test_a_block_of_a_long_text_asks_for_no_more_than_itself():
    """The whole would have 10^18 pairs."""
    n = 10**9
    asked = []

    def rule(i, j):
        asked.append((i.size, j.size))
        return abs(i - j) < 3

    found = Pattern(rule).block(range(n - 3, n), range(n - 5, n - 1), (n, n))
    assert asked == [(3, 4)]
    assert found.astype(int).tolist() == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]


@pytest.mark.skipif(torch is None, reason="needs torch")
@given(st.data(), st.integers(1, 4), st.integers(1, 5))
def test_blocks_of_either_twins_masks(data, n_query, n_key):
    from qkvlib.numpy import masks
    from qkvlib.torch import masks as torch_masks

    lead = (3, 2)
    shape = (*lead, n_query, n_key)
    a, b = sorted(data.draw(st.tuples(*[st.integers(0, n_query)] * 2)))
    c, d = sorted(data.draw(st.tuples(*[st.integers(0, n_key)] * 2)))
    chosen = range(a, b), range(c, d)
    bits = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) < 0.5
    array = data.draw(st.sampled_from([bits, bits[:, :1], bits[..., :1], bits[0, 0, :1]]))
    query = torch.zeros(n_query, 1)
    tensor = torch.from_numpy(array)
    for ours, its in ((array, tensor), (causal & array, causal & tensor), (window(2), window(2))):
        whole = np.broadcast_to(masks.mask_array(ours, shape), shape)[..., a:b, c:d]
        found = masks.mask_block(ours, shape, *chosen)
        np.testing.assert_array_equal(np.broadcast_to(found, whole.shape), whole)
        found = back(torch_masks.mask_block(its, shape, query, *chosen))
        np.testing.assert_array_equal(np.broadcast_to(found, whole.shape), whole)


# ---- reach ---------------------------------------------------------------------------------------


def keys_within(stretches):
    return {j for start, stop in stretches for j in range(start, stop)}


@given(trees(), st.integers(-9, 12), st.integers(-1, 6), st.integers(1, 9))
def test_no_query_attends_beyond_its_reach(tree, first, more, n_key):
    pattern, rule = tree
    last = first + more
    reach = pattern.reach(first, last, n_key)
    edges = [edge for stretch in reach for edge in stretch]
    assert edges == sorted(set(edges)), "sorted, apart, none empty"
    assert all(0 <= edge <= n_key for edge in edges)
    attended = {j for j in range(n_key) if any(rule(i, j) for i in range(first, last + 1))}
    assert attended <= keys_within(reach)


@given(st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=5), st.data())
def test_stretches_are_joined_as_sets_of_keys(stretches, data):
    n_key = 9
    others = data.draw(st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=5))
    one, other = (
        Pattern(lambda i, j: j < 0, lambda first, last, n_key, found=found: found)
        for found in (stretches, others)
    )
    here, there = (keys_within(found) & set(range(n_key)) for found in (stretches, others))
    for pattern, expected in (
        (one, here),
        (one | other, here | there),
        (one & other, here & there),
    ):
        found = pattern.reach(0, 5, n_key)
        assert keys_within(found) == expected
        assert all(stop < start for (_, stop), (start, _) in pairwise(found))


def test_the_reach_is_as_short_as_can_be():
    assert causal.reach(4, 7, 20) == [(0, 8)]
    assert window(3).reach(4, 7, 20) == [(2, 10)]
    assert (causal & window(3)).reach(4, 7, 20) == [(2, 8)]
    assert (causal & window(3)).shifted(5).reach(4, 7, 20) == [(7, 13)]
    assert causal.reach(0, 30, 20) == [(0, 20)]
    assert causal.reach(-4, -1, 20) == []
    assert causal.reach(3, 2, 20) == []
    assert (window(2) | window(2).shifted(9)).reach(3, 4, 20) == [(2, 6), (11, 15)]
    assert (~causal).reach(4, 7, 20) == [(0, 20)]
    assert (window(2) & np.ones((1, 20), bool)).reach(3, 4, 20) == [(2, 6)]


@pytest.mark.parametrize("kind", ["numpy", "torch", "meta"])
def test_one_offset_for_each_item_reaches_as_far_as_any(kind):
    offsets = np.array([3, 0, 7])[:, None, None]
    if kind != "numpy":
        offsets = pytest.importorskip("torch").tensor(offsets, device=kind.replace("torch", "cpu"))
    shifted = window(2).shifted(offsets)
    assert shifted.reach(1, 2, 20) == ([(0, 20)] if kind == "meta" else [(0, 11)])
    assert window(2).shifted(offsets[:0]).reach(1, 2, 20) == [(0, 20)]


# ---- copies --------------------------------------------------------------------------------------


def test_patterns_may_be_copied_and_stored(generator):
    array = generator.random((4, 5)) < 0.5
    for pattern in (causal, window(2), ~causal & window(3), (causal | array).shifted(-1)):
        for same in (copy.copy(pattern), copy.deepcopy(pattern), stored(pattern)):
            np.testing.assert_array_equal(same.array(4, 5), pattern.array(4, 5))
            assert same.reach(1, 2, 9) == pattern.reach(1, 2, 9)


def stored(pattern):
    return pickle.loads(pickle.dumps(pattern))


def test_a_copy_shares_no_array(generator):
    array = generator.random((4, 5)) < 0.5
    pattern = causal & array
    expected, same = pattern.array(4, 5), copy.deepcopy(pattern)
    array[:] = ~array
    np.testing.assert_array_equal(same.array(4, 5), expected)


def test_a_copy_of_causal_is_causal():
    """The fused kernel of torch knows it by that."""
    assert stored(causal) is copy.deepcopy(causal) is copy.copy(causal) is causal
