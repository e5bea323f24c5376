"""The running example, pinned: the tables that the chapters compute by hand.

Each table is typed here once, to three decimals, and computed twice from the example's arrays:
by plain loops over Python floats in this file, and by `qkvlib.numpy`.
"""

import math

import numpy as np
import pytest

from qkvlib.book.example import (
    CONTENT,
    COORDINATES,
    HEAD_A,
    HEAD_B,
    SEATS,
    VARIANTS,
    W_O,
    WORDS,
    X,
    embed,
)
from qkvlib.numpy import (
    MultiHeadAttention,
    attention_scores,
    attention_weights,
    causal_mask,
    layer_norm,
    project,
    scaled_dot_product_attention,
    softmax,
)

N, D_K, D_MODEL, D_V = 5, 2, 6, 3

# ---- the loops: nothing of NumPy, nothing of qkvlib --------------------------------------------


def loop_project(x, W):
    return [[sum(a * W[i][j] for i, a in enumerate(row)) for j in range(len(W[0]))] for row in x]


def loop_scores(q, k):
    return [[sum(a * b for a, b in zip(q_i, k_j)) for k_j in k] for q_i in q]


def loop_softmax(row):
    exponentials = [math.exp(s) for s in row]
    return [e / sum(exponentials) for e in exponentials]


def loop_weights(x, head, divisor=D_K**0.5):
    scores = loop_scores(loop_project(x, head.W_Q), loop_project(x, head.W_K))
    return [loop_softmax([s / divisor for s in row]) for row in scores]


def loop_output(x, head):
    weights, v = loop_weights(x, head), loop_project(x, head.W_V)
    return [[sum(w * r[j] for w, r in zip(p, v)) for j in range(D_V)] for p in weights]


def library_weights(x, head):
    return attention_weights(project(x, head.W_Q), project(x, head.W_K))


def assert_prints(actual, expected, decimals=3):
    """The numbers round to the typed ones, each within half of the last printed digit."""
    expected = np.asarray(expected, dtype=float)
    assert np.shape(actual) == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.5 * 10**-decimals)


# ---- the sentence and its coordinates ----------------------------------------------------------

TABLE_X = [  # name he/she refers action seat-x seat-y
    [1, 1, 0, 0, 1, 0],
    [0, 0, 0, 1, 0.7, 0.7],
    [1, -1, 0, 0, 0, 1],
    [0, 1, 1, 0, -0.7, 0.7],
    [0, 0, 0, 1, -1, 0],
]


def test_x_is_the_table():
    assert WORDS == ("Paul", "told", "Emma", "he", "won")
    assert COORDINATES == ("name", "he/she", "refers", "action", "seat-x", "seat-y")
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, TABLE_X)
    np.testing.assert_array_equal(embed(WORDS), TABLE_X)


def test_the_variants_change_one_word():
    assert list(VARIANTS) == ["he", "she", "they", "Paul"]
    assert VARIANTS["he"] == WORDS
    for word, sentence in VARIANTS.items():
        assert sentence == ("Paul", "told", "Emma", word, "won")
        np.testing.assert_array_equal(np.delete(embed(sentence), 3, 0), np.delete(X, 3, 0))
    assert [embed(VARIANTS[w])[3, 1] for w in ("he", "she", "they", "Paul")] == [1, -1, 0, 1]


def test_the_clock_hand_turns_45_degrees_per_seat():
    x = embed(["told"] * 8)
    np.testing.assert_array_equal(
        x[5:, 4:],
        [[-0.7, -0.7], [0, -1], [0.7, -0.7]],
    )
    turned = np.rad2deg(np.unwrap(np.arctan2(x[:, 5], x[:, 4])))
    np.testing.assert_allclose(turned, 45 * np.arange(8), atol=1e-9)


def test_told_and_won_differ_only_by_their_seat():
    np.testing.assert_array_equal(X[1, :4], X[4, :4])
    assert (X[1, 4:] != X[4, 4:]).any()


@pytest.mark.parametrize("words", [(), ["he"] * 9, ["Paul", "tells"], ["paul"]])
def test_embed_refuses(words):
    with pytest.raises(ValueError, match=r"words must be .* got .* (try|check) "):
        embed(words)


def test_embed_refuses_a_string():
    with pytest.raises(TypeError, match=r"words\.split\(\)"):
        embed("Paul told Emma he won")


def test_no_chapter_can_change_the_truth():
    for array in (X, SEATS, W_O, *HEAD_A, *HEAD_B):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7
    for mapping in (CONTENT, VARIANTS):
        with pytest.raises(TypeError):
            mapping["he"] = ()
    embed(WORDS)[:] = 7
    np.testing.assert_array_equal(embed(WORDS), TABLE_X)


# ---- head A ------------------------------------------------------------------------------------

Q_A = [[0, 1], [0, 0], [0, -1], [2, 1], [0, 0]]
K_A = [[1, 2], [0, 0], [1, -2], [0, 2], [0, 0]]
V_A = [[1, 1, 0], [0, 0, 1], [1, -1, 0], [0, 1, 0], [0, 0, 1]]
SCORES_A = [[2, 0, -2, 2, 0], [0] * 5, [-2, 0, 2, -2, 0], [4, 0, 0, 2, 0], [0] * 5]
WEIGHTS_A = [
    [0.393, 0.096, 0.023, 0.393, 0.096],
    [0.200, 0.200, 0.200, 0.200, 0.200],
    [0.037, 0.152, 0.623, 0.037, 0.152],
    [0.704, 0.042, 0.042, 0.171, 0.042],
    [0.200, 0.200, 0.200, 0.200, 0.200],
]
OUTPUT_A = [
    [0.416, 0.763, 0.191],
    [0.400, 0.200, 0.400],
    [0.660, -0.550, 0.303],
    [0.746, 0.834, 0.083],
    [0.400, 0.200, 0.400],
]

# ---- head B ------------------------------------------------------------------------------------

Q_B = [[5, -5], [7, 0], [5, 5], [0, 7], [-5, 5]]
K_B = [[2, 0], [1.4, 1.4], [0, 2], [-1.4, 1.4], [-2, 0]]
V_B = [[1, 1, 0], [0, 0, 0], [1, -1, 0], [0, 1, 1], [0, 0, 0]]
SCORES_B = [
    [10, 0, -10, -14, -10],
    [14, 9.8, 0, -9.8, -14],
    [10, 14, 10, 0, -10],
    [0, 9.8, 14, 9.8, 0],
    [-10, 0, 10, 14, 10],
]
WEIGHTS_B = [
    [0.999, 0.001, 0.000, 0.000, 0.000],
    [0.951, 0.049, 0.000, 0.000, 0.000],
    [0.053, 0.894, 0.053, 0.000, 0.000],
    [0.000, 0.047, 0.907, 0.047, 0.000],
    [0.000, 0.000, 0.053, 0.894, 0.053],
]
OUTPUT_B = [
    [0.999, 0.999, 0.000],
    [0.951, 0.951, 0.000],
    [0.106, 0.000, 0.000],
    [0.907, -0.860, 0.047],
    [0.053, 0.841, 0.894],
]

HEADS = pytest.mark.parametrize(
    ("head", "q", "k", "v", "scores", "weights", "output"),
    [
        pytest.param(HEAD_A, Q_A, K_A, V_A, SCORES_A, WEIGHTS_A, OUTPUT_A, id="A"),
        pytest.param(HEAD_B, Q_B, K_B, V_B, SCORES_B, WEIGHTS_B, OUTPUT_B, id="B"),
    ],
)


@HEADS
def test_head_by_loops(head, q, k, v, scores, weights, output):
    x = X.tolist()
    assert_prints(loop_project(x, head.W_Q), q, 12)
    assert_prints(loop_project(x, head.W_K), k, 12)
    assert_prints(loop_project(x, head.W_V), v, 12)
    assert_prints(loop_scores(q, k), scores, 12)
    assert_prints(loop_weights(x, head), weights)
    assert_prints(loop_output(x, head), output)


@HEADS
def test_head_by_the_library(head, q, k, v, scores, weights, output):
    query, key, value = (project(X, W) for W in head)
    assert_prints(query, q, 12)
    assert_prints(key, k, 12)
    assert_prints(value, v, 12)
    assert_prints(attention_scores(query, key, scale=1.0), scores, 12)
    assert_prints(attention_weights(query, key), weights)
    assert_prints(scaled_dot_product_attention(query, key, value), output)


def test_sizes_are_all_different():
    shapes = {np.shape(W) for W in HEAD_A} | {np.shape(W) for W in HEAD_B}
    assert shapes == {(D_MODEL, D_K), (D_MODEL, D_V)}
    assert len({N, D_K, D_V, D_MODEL}) == 4


def test_the_whole_table_needs_four_exponentials():
    scaled = np.array(SCORES_A) / math.sqrt(2)
    assert_prints(np.unique(scaled), [-1.414, 0, 1.414, 2.828])
    assert_prints(np.unique(np.exp(scaled)), [0.243, 1, 4.113, 16.919])
    assert_prints(np.exp(scaled).sum(-1), [10.470, 5, 6.599, 24.032, 5])


def test_head_a_is_two_rules():
    M = HEAD_A.W_Q @ HEAD_A.W_K.T
    rules = {("refers", "name"): 2.0, ("he/she", "he/she"): 2.0}
    expected = [[rules.get((row, column), 0.0) for column in COORDINATES] for row in COORDINATES]
    np.testing.assert_array_equal(M, expected)
    np.testing.assert_allclose(X @ M @ X.T, SCORES_A, atol=1e-12)


ROW_3 = {
    "he": [0.704, 0.042, 0.042, 0.171, 0.042],
    "she": [0.042, 0.042, 0.704, 0.171, 0.042],
    "they": [0.366, 0.089, 0.366, 0.089, 0.089],
    "Paul": [0.393, 0.096, 0.023, 0.393, 0.096],
}


@pytest.mark.parametrize("weights", [loop_weights, library_weights])
@pytest.mark.parametrize("word", ROW_3)
def test_variants_of_row_3(word, weights):
    assert_prints(weights(embed(VARIANTS[word]), HEAD_A)[3], ROW_3[word])


@pytest.mark.parametrize("weights", [loop_weights, library_weights])
def test_no_fixed_offset_passes_the_four_sentences_but_head_a_does(weights):
    for first, second in (("Paul", "Emma"), ("Emma", "Paul")):
        for pronoun, meant in (("he", "Paul"), ("she", "Emma")):
            sentence = (first, "told", second, pronoun, "won")
            assert sentence[np.argmax(weights(embed(sentence), HEAD_A)[3])] == meant


@pytest.mark.parametrize("weights", [loop_weights, library_weights])
def test_a_clock_with_eight_hours_serves_six_words(weights):
    for n, first, last in ((6, 0.998, 0.001), (7, 0.500, 0.500), (8, 0.053, 0.894)):
        row = weights(embed(["told"] * n), HEAD_B)[0]
        assert_prints([row[0], row[-1]], [first, last])


# ---- masks and padding on the same numbers -----------------------------------------------------


def library_masked(mask, x=X):
    return attention_weights(project(x, HEAD_A.W_Q), project(x, HEAD_A.W_K), mask=mask)


def loop_masked(mask, x=X):
    """Forbidden keys are left out of the row before the softmax, as if they were not there."""
    scores = loop_scores(loop_project(x, HEAD_A.W_Q), loop_project(x, HEAD_A.W_K))
    rows = []
    for row, allowed in zip(scores, mask):
        e = [math.exp(s / math.sqrt(2)) if a else 0.0 for s, a in zip(row, allowed)]
        rows.append([x / sum(e) if sum(e) else 0.0 for x in e])
    return rows


def loop_causal(n):
    return [[j <= i for j in range(n)] for i in range(n)]


BELOW = causal_mask(N)


def test_causal_mask_by_loops_and_by_the_library():
    np.testing.assert_array_equal(BELOW, loop_causal(N))
    for weights in (loop_masked(loop_causal(N)), library_masked(BELOW)):
        assert_prints(weights[3], [0.735, 0.043, 0.043, 0.179, 0])
        np.testing.assert_array_equal(weights[0], [1, 0, 0, 0, 0])


def outputs_when_won_changes(weights):
    """The outputs of the sentence, and the change in rows 0 to 3 when won turns into a name."""
    other = np.array(X)
    other[4, :4] = CONTENT["Paul"]
    before, after = (np.asarray(weights(x)) @ (x @ HEAD_A.W_V) for x in (X, other))
    return before, after, np.abs(before - after)[:4].max()


def scaled_scores(x):
    return np.array(loop_scores(loop_project(x, HEAD_A.W_Q), loop_project(x, HEAD_A.W_K))) / 2**0.5


def test_a_causal_mask_keeps_a_later_word_out():
    for weights in (lambda x: loop_masked(loop_causal(N), x), lambda x: library_masked(BELOW, x)):
        assert outputs_when_won_changes(weights)[2] < 1e-15


def test_a_mask_after_the_softmax_lets_it_in():
    late = library_weights(X, HEAD_A) * BELOW
    assert_prints(late[3, 0], 0.704)
    assert_prints(late.sum(-1), [0.393, 0.400, 0.812, 0.958, 1])
    before, after, change = outputs_when_won_changes(lambda x: library_weights(x, HEAD_A) * BELOW)
    assert_prints(before[3, :2], [0.746, 0.834])
    assert_prints(after[3, :2], [0.449, 0.501])
    assert_prints(change, 0.332)


def test_masks_added_or_multiplied_leak():
    def added(x):
        return np.array([loop_softmax(row) for row in scaled_scores(x) + BELOW])

    def multiplied(x):
        return np.array([loop_softmax(row) for row in scaled_scores(x) * BELOW])

    assert_prints(added(X)[3, [0, 4]], [0.723, 0.016])
    assert_prints(outputs_when_won_changes(added)[2], 0.119)
    assert_prints(multiplied(X)[3], WEIGHTS_A[3])  # invisible in this row
    assert_prints(outputs_when_won_changes(multiplied)[2], 0.200)


def test_masks_turned_around():
    np.testing.assert_array_equal(library_masked(~BELOW)[3], [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(library_masked(BELOW.T)[3, :3], 0)
    strict = library_masked(np.tri(N, k=-1, dtype=bool))
    assert_prints(strict[3, 0], 0.894)
    np.testing.assert_array_equal(strict[0], 0)  # nothing to read: zeros, not NaN


def test_a_large_negative_number_is_not_a_mask():
    row = np.array(SCORES_A[3]) / math.sqrt(2) - 1e9
    assert_prints(softmax(row.astype(np.float32)), [0.2] * 5)
    assert_prints(softmax(row), WEIGHTS_A[3])


@pytest.mark.parametrize(
    ("pads", "he", "told"), [(1, 0.676, 0.167), (3, 0.626, 0.125), (11, 0.483, 0.0625)]
)
def test_padding_rows_take_weight_unless_masked(pads, he, told):
    x = np.concatenate([X, np.zeros((pads, D_MODEL))])
    for weights in (loop_weights(x, HEAD_A), library_weights(x, HEAD_A)):
        assert_prints([weights[3][0], weights[1][0]], [he, told])
    real = np.arange(len(x)) < N
    masked = library_masked(real[None], x)
    assert_prints(masked[:N, :N], WEIGHTS_A)
    np.testing.assert_array_equal(masked[:, N:], 0)


# ---- the number a mistake leaves: row he, key Paul ---------------------------------------------

DIVISORS = {
    "right": (math.sqrt(D_K), 0.704),
    "no scale": (1, 0.840),
    "/ d_k": (D_K, 0.564),
    "/ sqrt(d_model)": (math.sqrt(D_MODEL), 0.493),
    "/ d_model": (D_MODEL, 0.307),
    "* sqrt(d_k)": (1 / math.sqrt(D_K), 0.935),
    "/ sqrt(d_v)": (math.sqrt(D_V), 0.620),
    "/ sqrt(n)": (math.sqrt(N), 0.523),
}


@pytest.mark.parametrize(("divisor", "he_paul"), DIVISORS.values(), ids=DIVISORS)
def test_each_divisor_leaves_its_own_number(divisor, he_paul):
    query, key = project(X, HEAD_A.W_Q), project(X, HEAD_A.W_K)
    by_loops = loop_weights(X, HEAD_A, divisor)
    by_library = attention_weights(query, key, scale=1 / divisor)
    for weights in (by_loops, by_library):
        assert_prints(weights[3][0], he_paul)
        np.testing.assert_allclose(np.sum(weights, axis=-1), 1)


def test_the_eight_divisors_can_be_told_apart():
    numbers = [he_paul for _, he_paul in DIVISORS.values()]
    assert len(set(numbers)) == len(numbers) == 8


def test_the_wrong_axis_leaves_two_rows_that_look_right():
    e = np.exp(np.array(SCORES_A) / math.sqrt(2))
    over_queries = e / e.sum(axis=0)
    assert_prints(over_queries[3, 0], 0.727)
    assert_prints(over_queries.sum(-1), [1.003, 0.674, 0.993, 1.656, 0.674])
    assert_prints((e / e.sum(axis=-1))[3, 0], 1.616)
    assert_prints((e / e.sum())[3, 0], 0.331)


def test_other_mistakes_leave_other_numbers():
    q, k = np.array(Q_A, dtype=float), np.array(K_A, dtype=float)
    assert_prints(attention_weights(k, q)[3], WEIGHTS_A[0])  # K Q^T: he gets Paul's row
    assert_prints(attention_weights(k, k)[3, [0, 3]], [0.471, 0.471])  # W_K used for both
    assert_prints(attention_weights(q, q)[3, [0, 3]], [0.052, 0.884])  # W_Q used for both
    assert_prints(loop_softmax(loop_weights(X, HEAD_A)[3])[0], 0.319)  # softmax twice
    assert_prints(scaled_dot_product_attention(q, k, k)[3], [0.746, 1.667])  # values = keys
    lengths = np.linalg.norm(q[3]) * np.linalg.norm(k, axis=-1)
    cosine = np.divide(k @ q[3], lengths, out=np.zeros(N), where=lengths > 0)
    assert_prints(loop_softmax(cosine)[0], 0.328)  # cosine instead of the dot product
    assert_prints(SCORES_A[3][0] / sum(SCORES_A[3]), 0.667)  # no exponential
    assert sum(SCORES_A[1]) == 0  # and told's row would be 0 / 0


# ---- the output layer ------------------------------------------------------------------------

CONTRIBUTION_A = [
    [0.416, 0.763, 0, 0.191, 0, 0],
    [0.400, 0.200, 0, 0.400, 0, 0],
    [0.660, -0.550, 0, 0.303, 0, 0],
    [0.746, 0.834, 0, 0.083, 0, 0],
    [0.400, 0.200, 0, 0.400, 0, 0],
]
CONTRIBUTION_B = [
    [0.500, 0.500, 0, 0, 0, 0],
    [0.476, 0.476, 0, 0, 0, 0],
    [0.053, 0, 0, 0, 0, 0],
    [0.453, -0.430, 0.023, 0, 0, 0],
    [0.026, 0.421, 0.447, 0, 0, 0],
]
OUTPUT = [
    [0.916, 1.262, 0.000, 0.191, 0, 0],
    [0.876, 0.676, 0.000, 0.400, 0, 0],
    [0.713, -0.550, 0.000, 0.303, 0, 0],
    [1.199, 0.403, 0.023, 0.083, 0, 0],
    [0.426, 0.621, 0.447, 0.400, 0, 0],
]


def loop_contributions(x):
    rows = W_O.tolist()
    return [
        loop_project(loop_output(x, head), W)
        for head, W in [(HEAD_A, rows[:D_V]), (HEAD_B, rows[D_V:])]
    ]


def library_contributions(x):
    projections = (np.hstack(pair) for pair in zip(HEAD_A, HEAD_B))
    layer = MultiHeadAttention.from_weights(*projections, W_O, num_heads=2)
    contributions = layer.head_contributions(x)
    np.testing.assert_allclose(layer(x), contributions.sum(axis=0), atol=1e-12)
    return contributions


CONTRIBUTIONS = pytest.mark.parametrize(
    "contributions", [loop_contributions, library_contributions]
)


@CONTRIBUTIONS
def test_the_output_is_the_sum_of_two_contributions(contributions):
    from_a, from_b = np.asarray(contributions(X))
    assert_prints(from_a, CONTRIBUTION_A)
    assert_prints(from_b, CONTRIBUTION_B)
    assert_prints(from_a + from_b, OUTPUT)


@CONTRIBUTIONS
def test_the_kind_of_the_winner_flips_in_the_twin(contributions):
    for word, kind in (("he", 0.621), ("she", -0.674)):
        assert_prints(np.sum(contributions(embed(VARIANTS[word])), axis=0)[4, 1], kind)


@CONTRIBUTIONS
def test_a_he_like_name_is_noticed_by_one_unit(contributions):
    for word, paul, pronoun in (("he", 2.178, 0.602), ("she", 2.209, 0)):
        x = embed(VARIANTS[word])
        x = x + np.sum(contributions(x), axis=0)
        assert_prints(np.maximum(0, x[:, 0] + x[:, 1] - 2), [paul, 0, 0, pronoun, 0])


def test_he_comes_nearer_to_paul():
    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    after = (X + library_contributions(X).sum(axis=0))[:, :4]
    assert_prints([cosine(X[3, :4], X[0, :4]), cosine(after[3], after[0])], [0.5, 0.875])
    assert_prints([cosine(X[3, :4], X[2, :4]), cosine(after[3], after[2])], [-0.5, -0.019])


def test_the_row_of_he_under_a_wrong_output_layer():
    a, b = (np.array(loop_output(X, head)) for head in (HEAD_A, HEAD_B))
    np.testing.assert_allclose(a[3, 1] + b[3, 1], -0.027, atol=5e-4)  # simply added
    other_order = np.hstack([b, a]) @ W_O
    assert_prints(other_order[3], [1.280, -0.443, 0.042, 0.047, 0, 0])
    transposed = np.hstack([a, b]) @ W_O.T
    assert_prints(transposed[3], [0.746, 0.834, 0.907, 0.373, 0.417, 0.042])


def test_layer_norm_of_what_he_carries():
    after = X + library_contributions(X).sum(axis=0)
    assert_prints(layer_norm(after)[3], [0.802, 1.084, 0.559, -0.738, -1.820, 0.113])
