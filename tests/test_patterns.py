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

from qkvlib.patterns import (
    Pattern,
    blocks,
    causal,
    dilated,
    documents,
    global_tokens,
    prefix,
    random_blocks,
    strided,
    window,
)

TEXTS = [3, 3, 8, 8, 8, 3, 0, 5, 5, -2]


def same_text(i, j):
    return 0 <= i < 10 and 0 <= j < 10 and TEXTS[i] == TEXTS[j]


CHOSEN = random_blocks(10, 3, 2, np.random.default_rng(0))
CHOSEN_BY_EYE = [[0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 1, 0], [1, 0, 0, 1]]


def in_a_chosen_block(i, j):
    return 0 <= i < 10 and 0 <= j < 10 and CHOSEN_BY_EYE[i // 3][j // 3] == 1


RULES = {
    "causal": (causal, lambda i, j: j <= i),
    "window": (window(2), lambda i, j: abs(i - j) < 2),
    "dilated": (dilated(2, 3), lambda i, j: i - j in (-3, 0, 3)),
    "strided": (strided(3), lambda i, j: i % 3 == j % 3),
    "blocks": (
        blocks(3),
        lambda i, j: any(k in (i, i - 1, i - 2) and k <= j < k + 3 for k in range(-99, 99, 3)),
    ),
    "global": (global_tokens(2), lambda i, j: i < 2 or j < 2),
    "random": (CHOSEN, in_a_chosen_block),
    "prefix": (prefix(2), lambda i, j: j < 2),
    "documents": (documents(TEXTS), same_text),
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


@pytest.mark.parametrize("name", sorted(RULES))
def test_each_pattern_answers_for_every_pair_of_positions(name):
    """Small, at every offset: queries before the first key and after the last."""
    pattern, rule = RULES[name]
    for offset in range(-14, 15):
        found = pattern.array(7, 10, offset=offset)
        expected = [[rule(i + offset, j) for j in range(10)] for i in range(7)]
        assert found.tolist() == expected, offset


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


def test_a_position_without_a_text_or_block_meets_nobody():
    for pattern in (documents(TEXTS), CHOSEN):
        for known in range(10):
            for unknown in (-1, -7, 10, 11):
                assert pattern(known, unknown) is False
                assert pattern(unknown, known) is False


# ---- those that hold an array --------------------------------------------------------------------


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("ids", [TEXTS, np.array(TEXTS, ">i2"), "tensor", "uint8 tensor"], ids=str)
def test_what_a_pattern_holds_follows_the_positions(ids):
    expected = documents(TEXTS).array(10)
    if isinstance(ids, str):
        ids = torch.tensor(TEXTS, dtype=torch.int16 if ids == "tensor" else torch.uint8)
    assert documents(ids)(3, 4) is True
    np.testing.assert_array_equal(documents(ids).array(10), expected)
    i, j = torch.arange(10)[:, None], torch.arange(10)[None]
    np.testing.assert_array_equal(back(documents(ids)(i, j)), expected)
    np.testing.assert_array_equal(back(CHOSEN(i, j)), CHOSEN.array(10))
    for offsets in (np.array([2, 0]), torch.tensor([2, 0])):
        for dtype in ("int64", "uint16", "uint64"):
            offset = (
                offsets.astype(dtype)
                if isinstance(offsets, np.ndarray)
                else offsets.to(getattr(torch, dtype))
            )
            shifted = causal.shifted(offset[:, None, None])
            expected_ = causal.array(10, offset=np.array([2, 0]))
            np.testing.assert_array_equal(shifted.array(10), expected_)
            np.testing.assert_array_equal(back(shifted(i, j)), expected_)


@pytest.mark.parametrize("kind", ["uint8", "uint64", ">i4"])
def test_offsets_of_any_integer_dtype_are_positions(kind):
    offsets = np.array([0, 3])
    found = documents(TEXTS).array(2, 5, offset=offsets.astype(kind))
    np.testing.assert_array_equal(found, documents(TEXTS).array(2, 5, offset=offsets))


def test_every_batch_item_may_have_its_own_texts(backend):
    rows = np.array([[1, 1, 2, 2, 2], [7, 8, 8, 8, 9], [0, 0, 0, 0, 0]])
    expected = np.stack([documents(row).array(3, 5) for row in rows])
    found = documents(backend.array(rows)).array(3, 5)
    np.testing.assert_array_equal(found, expected, strict=True)
    found = documents(backend.array(rows[:, None])).array(3, 5)
    np.testing.assert_array_equal(found, expected[:, None], strict=True)


def test_ids_that_change_later_change_nothing(backend):
    ids = backend.array(np.array([1, 1, 2]))
    pattern = documents(ids)
    before = pattern.array(3).tolist(), pattern.reach(0, 1, 3)
    ids[:] = 2
    for same in (pattern, copy.deepcopy(pattern), stored(pattern)):
        assert (same.array(3).tolist(), same.reach(0, 1, 3)) == before


def test_offsets_that_change_later_change_nothing():
    offsets = np.array([[[1]], [[-1]]])
    pattern = causal.shifted(offsets)
    before = pattern.array(3).tolist(), pattern.reach(0, 1, 3)
    offsets[:] = 2
    for same in (pattern, copy.deepcopy(pattern), stored(pattern)):
        assert (same.array(3).tolist(), same.reach(0, 1, 3)) == before


@given(st.integers(1, 30), st.integers(1, 9), st.data())
def test_each_block_of_queries_draws_as_many_blocks_of_keys(n, size, data):
    number = -(-n // size)
    count = data.draw(st.integers(1, number))
    seed = data.draw(st.integers(0, 99))
    found = random_blocks(n, size, count, np.random.default_rng(seed)).array(n)
    firsts = found[::size, ::size]
    assert (firsts.sum(axis=1) == count).all()
    np.testing.assert_array_equal(found, np.repeat(np.repeat(firsts, size, 0), size, 1)[:n, :n])
    again = random_blocks(n, size, count, np.random.default_rng(seed)).array(n)
    np.testing.assert_array_equal(found, again)


def test_random_blocks_are_drawn_evenly_and_each_time_anew():
    generator = np.random.default_rng(0)
    total = sum(random_blocks(7, 1, 2, generator).array(7).astype(int) for _ in range(2000))
    np.testing.assert_allclose(total, 2000 * 2 / 7, atol=5 * np.sqrt(2000 * 2 / 7 * 5 / 7))


# ---- compiled ------------------------------------------------------------------------------------


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dynamic", [False, True])
def test_patterns_are_traced_without_a_break(generator, dynamic):
    from qkvlib.torch import attention_weights

    pattern = (causal & blocks(3)) | documents(TEXTS) | CHOSEN.shifted(-1) | ~dilated(2, 2)
    pattern = pattern & causal.shifted(np.array([[[1]], [[0]]])) | strided(9)
    query, key = (torch.from_numpy(generator.normal(size=(2, n, 5))) for n in (4, 7))
    compiled = torch.compile(attention_weights, backend="eager", fullgraph=True, dynamic=dynamic)
    expected = attention_weights(query, key, mask=pattern)
    np.testing.assert_allclose(back(compiled(query, key, mask=pattern)), back(expected), rtol=1e-12)
    assert {0 < w < 1 for w in back(expected).ravel()} == {True, False}


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
    """And what is said to be common to some queries, each of them may attend to."""
    pattern, rule = tree
    last = first + more
    for stretches in (pattern.reach(first, last, n_key), pattern.common(first, last, n_key)):
        edges = [edge for stretch in stretches for edge in stretch]
        assert edges == sorted(set(edges)), "sorted, apart, none empty"
        assert all(0 <= edge <= n_key for edge in edges)
    answers = {j: [rule(i, j) for i in range(first, last + 1)] for j in range(n_key)}
    attended = {j for j, answer in answers.items() if any(answer)}
    shared = {j for j, answer in answers.items() if all(answer)}
    assert attended <= keys_within(pattern.reach(first, last, n_key))
    assert shared >= keys_within(pattern.common(first, last, n_key))


@given(st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=5), st.data())
def test_stretches_are_joined_as_sets_of_keys(stretches, data):
    n_key = 9
    others = data.draw(st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=5))
    one, other = (
        Pattern(lambda i, j: j < 0, *2 * [lambda first, last, n_key, found=found: found])
        for found in (stretches, others)
    )
    here, there = (keys_within(found) & set(range(n_key)) for found in (stretches, others))
    for pattern, expected in (
        (one, here),
        (one | other, here | there),
        (one & other, here & there),
    ):
        opposite = set(range(n_key)) - expected
        for found, keys in (
            (pattern.reach(0, 5, n_key), expected),
            (pattern.common(0, 5, n_key), expected),
            ((~pattern).reach(0, 5, n_key), opposite),
            ((~pattern).common(0, 5, n_key), opposite),
        ):
            assert keys_within(found) == keys
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
    assert (~causal).reach(4, 7, 20) == [(5, 20)]
    assert (~window(3)).reach(4, 5, 20) == [(0, 3), (7, 20)]
    assert (~strided(3)).reach(4, 7, 20) == [(0, 20)]
    assert (window(2) & np.ones((1, 20), bool)).reach(3, 4, 20) == [(2, 6)]
    assert dilated(2, 3).reach(4, 7, 20) == [(0, 13)]
    assert dilated(2, 3).reach(9, 9, 20) == [(4, 15)]
    assert strided(3).reach(4, 7, 20) == [(0, 20)]
    assert blocks(4).reach(5, 7, 20) == [(4, 8)]
    assert blocks(4).reach(7, 8, 20) == [(4, 12)]
    assert global_tokens(2).reach(2, 7, 20) == [(0, 2)]
    assert global_tokens(2).reach(1, 7, 20) == [(0, 20)]
    assert (window(2) | global_tokens(2)).reach(9, 9, 20) == [(0, 2), (8, 11)]
    assert prefix(3).reach(9, 9, 20) == [(0, 3)]
    assert CHOSEN.reach(0, 2, 10) == [(3, 9)]
    assert CHOSEN.reach(9, 9, 10) == [(0, 3), (9, 10)]
    assert CHOSEN.reach(10, 99, 10) == CHOSEN.reach(-9, -1, 10) == []
    assert CHOSEN.reach(-9, 0, 10) == [(3, 9)]
    assert documents(TEXTS).reach(2, 3, 10) == [(2, 5)]
    assert documents(TEXTS).reach(4, 6, 10) == [(0, 7)]
    assert documents(TEXTS).reach(6, 7, 10) == [(6, 9)]
    assert documents(TEXTS).reach(6, 7, 8) == [(6, 8)]
    assert documents(TEXTS).reach(-9, -1, 10) == documents(TEXTS).reach(10, 99, 10) == []
    assert documents([[1, 1, 2, 2, 3], [1, 2, 2, 2, 3]]).reach(1, 1, 5) == [(0, 4)]


def test_as_much_is_common_as_can_be():
    assert causal.common(4, 7, 20) == [(0, 5)]
    assert causal.common(-4, 7, 20) == []
    assert causal.common(30, 31, 20) == [(0, 20)]
    assert causal.common(3, 2, 20) == [(0, 20)], "no query is kept from any key"
    assert causal.shifted(5).common(4, 7, 20) == [(0, 10)]
    assert window(3).common(4, 7, 20) == [(5, 7)]
    assert window(3).common(4, 9, 20) == []
    assert (causal & window(3)).common(4, 5, 20) == [(3, 5)]
    assert (causal | prefix(8)).common(4, 5, 20) == [(0, 8)]
    assert (causal & np.ones((1, 20), bool)).common(4, 5, 20) == []
    assert (causal | np.ones((1, 20), bool)).common(4, 5, 20) == [(0, 5)]
    assert blocks(4).common(5, 7, 20) == [(4, 8)]
    assert blocks(4).common(7, 8, 20) == []
    assert global_tokens(2).common(1, 2, 20) == [(0, 2)]
    assert global_tokens(2).common(0, 1, 20) == [(0, 20)]
    assert prefix(3).common(4, 5, 20) == [(0, 3)]
    assert (~causal).common(4, 7, 20) == [(8, 20)]
    assert (~blocks(4)).common(5, 7, 20) == [(0, 4), (8, 20)]
    assert strided(1).common(4, 7, 20) == [], "none is known"


@pytest.mark.parametrize("kind", ["numpy", "torch", "meta"])
def test_one_offset_for_each_item_reaches_as_far_as_any(kind):
    offsets = np.array([3, 0, 7])[:, None, None]
    if kind != "numpy":
        offsets = pytest.importorskip("torch").tensor(offsets, device=kind.replace("torch", "cpu"))
    shifted = window(2).shifted(offsets)
    assert shifted.reach(1, 2, 20) == ([(0, 20)] if kind == "meta" else [(0, 11)])
    assert window(2).shifted(offsets[:0]).reach(1, 2, 20) == [(0, 20)]
    shifted = causal.shifted(offsets)
    assert shifted.common(1, 2, 20) == ([] if kind == "meta" else [(0, 2)])


# ---- copies --------------------------------------------------------------------------------------


def test_patterns_may_be_copied_and_stored(generator):
    array = generator.random((4, 5)) < 0.5
    patterns = [pattern for pattern, _ in RULES.values() if pattern is not RULES["even"][0]]
    patterns += [~causal & window(3), (causal | array).shifted(-1), ~documents(TEXTS)]
    patterns += [
        causal.shifted(-1),
        CHOSEN & prefix(2),
        strided(2).shifted(np.array([[[1]], [[3]]])),
    ]
    for pattern in patterns:
        for same in (copy.copy(pattern), copy.deepcopy(pattern), stored(pattern)):
            np.testing.assert_array_equal(same.array(4, 5), pattern.array(4, 5))
            assert same.reach(1, 2, 9) == pattern.reach(1, 2, 9)


def stored(pattern):
    return pickle.loads(pickle.dumps(pattern))


def test_a_pattern_tells_how_it_was_made(generator):
    array = generator.random((4, 5)) < 0.5
    for pattern, expected in (
        (causal, "causal"),
        (causal & window(3) | ~prefix(2), "((causal & window(3)) | ~prefix(2))"),
        ((array & dilated(2, 3)).shifted(-1), "(dilated(2, 3) & <(4, 5)>).shifted(-1)"),
        (
            strided(3) & blocks(4) | global_tokens(2),
            "((strided(3) & blocks(4)) | global_tokens(2))",
        ),
        (documents(TEXTS), "documents(<(10,)>)"),
        (CHOSEN, "chosen_blocks(<(4, 4)>, 3, 10)"),
    ):
        assert repr(pattern) == expected


def test_what_makes_a_pattern_may_be_said_by_name():
    for named, pattern in (
        (window(w=3), window(3)),
        (dilated(step=3, w=2), dilated(2, 3)),
        (dilated(2, step=3), dilated(2, 3)),
        (strided(s=3), strided(3)),
        (blocks(size=4), blocks(4)),
        (global_tokens(g=2), global_tokens(2)),
        (prefix(p=2), prefix(2)),
        (documents(ids=TEXTS), documents(TEXTS)),
    ):
        assert repr(named) == repr(stored(named)) == repr(pattern)
        np.testing.assert_array_equal(named.array(4, 7), pattern.array(4, 7))
    with pytest.raises(TypeError, match="unexpected keyword argument 'step'"):
        window(3, step=2)


def test_a_copy_shares_no_array(generator):
    array = generator.random((4, 5)) < 0.5
    pattern = causal & array
    expected, same = pattern.array(4, 5), copy.deepcopy(pattern)
    array[:] = ~array
    np.testing.assert_array_equal(same.array(4, 5), expected)


def test_a_copy_of_causal_is_causal():
    """The fused kernel of torch knows it by that."""
    assert stored(causal) is copy.deepcopy(causal) is copy.copy(causal) is causal
