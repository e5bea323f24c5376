"""The laws: obeyed by both twins on whatever Hypothesis finds, and each seen red on a mistake."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import (
    ATTENTION,
    EVERY,
    FEED_FORWARD,
    NORM,
    TOLERANCE,
    dtype_of,
    torch,
    weights,
)

import qkvlib.numpy
from qkvlib import laws
from qkvlib.laws import ATTENTION_LAWS, LAYER_LAWS, smallest_counterexample

# ---- both twins obey -----------------------------------------------------------------------------

SMALL_SCORES = {laws.shifting_scores_changes_nothing, laws.every_value_reaches_every_output}
# Tokens are multiplied by powers of two from 2**-n to 2**n: 2**100 is about 1e30.
EXPONENT = {"float64": 100, "float32": 30, "bfloat16": 30, "float16": 3}
SHORTER = st.sampled_from(sorted({twin.dtype for twin in EVERY} - {"float64"}))
# What a law of one dtype is tried in.
HALF = {laws.half_scores_that_fit_stay_finite: st.just("float16")}


@st.composite
def attention_inputs(draw, law, dtypes, heads=1):
    """`dtype, (query, key, value), mask` with ties, zeros of both signs, tokens of all magnitudes.

    The numbers are small integers times a power of two for each token, and the square root of d_k
    is one too: each score is exact in whatever order it is summed, so ties stay ties.
    heads: how many heads' columns stand side by side.
    """
    dtype = draw(dtypes)
    lead = draw(st.sampled_from([(), (3,), (2, 3)]))
    n_query, n_key = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    d_k, d_v = heads * draw(st.sampled_from([1, 16])), heads * draw(st.integers(1, 3))
    ones = (1,) * len(lead)
    masks = [None, (n_query, n_key), (1, n_key), (n_query, 1), (*lead, n_query, n_key)]
    masks += [(*ones, n_query, n_key), (*lead[:1], *ones[1:], 1, n_key)]
    mask = draw(st.sampled_from(masks))
    small = law in SMALL_SCORES
    largest = 4 if not small else 1 if dtype.endswith("16") else 2
    exponent = 0 if small else EXPONENT[dtype]
    take = whole_numbers(
        draw, 4 * math.prod(lead) * (n_query * (d_k + n_key) + n_key * (d_k + d_v))
    )
    arrays = []
    for rows, columns in ((n_query, d_k), (n_key, d_k), (n_key, d_v)):
        sign = 1 - 2 * (take((*lead, rows, 1), 1) < 0)
        factor = sign * 2.0 ** take((*lead, rows, 1), exponent)
        x = take((*lead, rows, columns), largest) * factor  # 0 * -1.0 is -0.0
        arrays.append(x.astype("float32" if dtype == "bfloat16" else dtype))
    return dtype, tuple(arrays), None if mask is None else take(mask, 1) >= 0


def whole_numbers(draw, size):
    """A function that hands out arrays of numbers from -largest to largest; simplest is 0.

    All come from one drawn string of bytes, which is much quicker than many lists.
    """
    digits = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).astype(int)
    used = 0

    def take(shape, largest):
        nonlocal used
        x = digits[used : used + math.prod(shape)].reshape(shape) % (2 * largest + 1)
        used += math.prod(shape)
        return np.where(x > largest, largest - x, x)

    return take


def by_mask(lib, query, key, value, mask):
    return lib.scaled_dot_product_attention(query, key, value, mask=mask)


def by_bias(lib, query, key, value, mask):
    """A bias of -inf where the mask says False: in torch not the fused way."""
    bias = None
    if mask is not None:
        bias = (np if lib is qkvlib.numpy else torch).where(mask, 0.0, -math.inf)
    return lib.scaled_dot_product_attention(query, key, value, bias=bias)


def by_chunks(lib, query, key, value, mask):
    """Two queries and two keys at a time."""
    return lib.chunked_attention(query, key, value, mask=mask, chunk_size=2)


def by_weights(lib, query, key, value, mask):
    """By the weights alone: promises nothing about values that nobody may read."""
    weights = lib.attention_weights(query, key, mask=mask)
    if lib is qkvlib.numpy:
        return (weights @ value.astype(weights.dtype)).astype(query.dtype)
    return (weights @ value.to(weights.dtype)).to(query.dtype)


def by_heads(lib, query, key, value, mask):
    """Three heads, split and merged again; a mask of as many axes gets one more for the heads."""
    if mask is not None and mask.ndim > 2:
        mask = mask[..., None, :, :]
    heads = (lib.split_heads(x, 3) for x in (query, key, value))
    return lib.merge_heads(lib.scaled_dot_product_attention(*heads, mask=mask))


def attend_by(way, twin):
    """`attend(query, key, value, *, mask=None)` on NumPy arrays, by one way of one twin."""

    def there(x):
        if x is None or not twin.is_torch:
            return x
        x = torch.from_numpy(x).to(twin.device)  # on the CPU the same memory: changes would show
        return x.bfloat16() if twin.dtype == "bfloat16" and x.is_floating_point() else x

    def attend(*arrays, mask=None):
        output = way(twin.lib, *map(there, arrays), there(mask))
        if not twin.is_torch:
            return output
        assert dtype_of(output) == twin.dtype
        return (output.float() if twin.dtype == "bfloat16" else output).detach().cpu().numpy()

    return attend


def check(law, ways, dtype, arrays, mask):
    """The law holds for these ways of all twins that have this dtype."""
    tolerance = {"float32": TOLERANCE[dtype]} if dtype == "bfloat16" else {}  # NumPy has none
    for twin in EVERY:
        if twin.dtype == dtype:
            for way in ways:
                with patch.dict(laws._law.TOLERANCE, tolerance):
                    found = law(attend_by(way, twin), *arrays, mask=mask)
                assert found is None, f"{twin} {way.__name__}: {found}"


@pytest.mark.parametrize("dtypes", [st.just("float64"), SHORTER], ids=["float64", "shorter"])
@pytest.mark.parametrize("law", ATTENTION_LAWS, ids=lambda law: law.__name__)
def test_attention_obeys(law, dtypes):
    dtypes = HALF.get(law, dtypes)
    ways = [by_mask, by_bias, by_chunks, by_weights]
    if law is laws.unreachable_keys_may_hold_anything:
        ways.remove(by_weights)

    @given(attention_inputs(law, dtypes))
    def property_(case):
        check(law, ways, *case)

    property_()


@pytest.mark.parametrize("law", ATTENTION_LAWS, ids=lambda law: law.__name__)
def test_split_and_merged_heads_obey(law):
    @given(attention_inputs(law, HALF.get(law, st.just("float64")), heads=3))
    def property_(case):
        check(law, [by_heads], *case)

    property_()


@st.composite
def layer_inputs(draw):
    lead, n = draw(st.sampled_from([(), (2,), (2, 3)])), draw(st.integers(1, 5))
    take = whole_numbers(draw, math.prod(lead) * n * 12 + n * n)
    x = take((*lead, n, 12), 3) * 0.5
    return (x,), take((n, n), 1) >= 0 if draw(st.booleans()) else None


def layers_of(twin):
    """This package's layers by name, in this twin, with one set of weights."""
    generator = np.random.default_rng(7)
    attention, feed_forward = (
        twin.named(weights(generator, shapes)) for shapes in (ATTENTION, FEED_FORWARD)
    )
    mha = twin.lib.MultiHeadAttention.from_weights(**attention, num_heads=3)
    ff = twin.lib.FeedForward.from_weights(**feed_forward)
    norms = [
        twin.lib.LayerNorm.from_weights(**twin.named(weights(generator, NORM))) for _ in range(2)
    ]
    block = twin.lib.TransformerBlock.from_parts
    return {
        "heads": mha,
        "pre block": block(mha, ff, *norms, norm="pre"),
        "post block": block(mha, ff, *norms, norm="post"),
    }


@pytest.mark.parametrize("law", LAYER_LAWS, ids=lambda law: law.__name__)
def test_layers_obey(law, exact):
    layers = layers_of(exact)

    @given(layer_inputs())
    def property_(case):
        (x,), mask = case
        for name, layer in layers.items():
            by_layer = attend_by(lambda _, x, mask, f=layer: f(x, mask=mask), exact)
            found = law(by_layer, x, mask=mask)
            assert found is None, f"{name}: {found}"

    property_()


NORMS = {
    "layer_norm": laws.LAYER_NORM_LAWS,
    "rms_norm": laws.RMS_NORM_LAWS,
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "law"), [(n, law) for n in NORMS for law in NORMS[n]])
def test_norms_obey(name, law, dtype, exact):
    norm = getattr(exact.lib, name)

    def on_arrays(x):
        return norm(torch.from_numpy(x)).numpy() if exact.is_torch else norm(x)

    inputs = (((x.astype(dtype),), None) for (x,), _ in laws.norm_inputs())
    assert smallest_counterexample(law, on_arrays, inputs) is None


# ---- mistakes are caught -------------------------------------------------------------------------

MISTAKES = {}


def mistake(*caught_by):
    """Enter a wrong attention in the table, with laws that catch it.

    It is given the mask written out, 0 for NaN and infinity, float32 for float16: each mistake is
    the only one.
    """

    def enter(wrong):
        def attend(query, key, value, *, mask=None):
            key, value = (np.nan_to_num(x, posinf=0, neginf=0) for x in (key, value))
            if query.dtype == np.float16:
                arrays = (x.astype(np.float32) for x in (query, key, value))
                return attend(*arrays, mask=mask).astype(np.float16)
            mask = np.broadcast_to(True if mask is None else mask, scores(query, key).shape)
            return wrong(query, key, value, mask)

        MISTAKES[wrong.__name__] = attend, set(caught_by)
        return wrong

    return enter


def scores(query, key):
    return query * (1 / math.sqrt(query.shape[-1])) @ key.swapaxes(-2, -1)


def softmax(scores):
    return ratio(powers(scores))


def powers(scores):
    top = scores.max(axis=-1, keepdims=True)
    return np.exp(scores - np.where(top == -math.inf, 0, top))


def ratio(powers):
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def masked(scores, mask):
    return np.where(mask, scores, -math.inf)


@mistake()
def none_at_all(query, key, value, mask):
    return softmax(masked(scores(query, key), mask)) @ value


@mistake()
def no_scale(query, key, value, mask):
    """Only a comparison with a reference sees the scale."""
    return softmax(masked(query @ key.swapaxes(-2, -1), mask)) @ value


@mistake("large_scores_stay_finite")
def renormalised_after_the_mask(query, key, value, mask):
    """Right, until the forbidden keys score so high that all allowed weights round to 0."""
    return ratio(np.where(mask, softmax(scores(query, key)), 0)) @ value


@mistake("large_scores_stay_finite")
def no_shift_by_the_maximum(query, key, value, mask):
    with np.errstate(all="ignore"):
        return ratio(np.exp(masked(scores(query, key), mask))) @ value


@mistake("rows_sum_to_one")
def softmax_over_queries(query, key, value, mask):
    s = masked(scores(query, key), mask)
    return softmax(s.swapaxes(-2, -1)).swapaxes(-2, -1) @ value


@mistake("rows_sum_to_one")
def not_normalised(query, key, value, mask):
    return powers(masked(scores(query, key), mask)) @ value


@mistake("rows_sum_to_one")
def a_billionth_too_much(query, key, value, mask):
    return (1 + 1e-9) * softmax(masked(scores(query, key), mask)) @ value


@mistake("rows_sum_to_one")
def mask_after_softmax(query, key, value, mask):
    return np.where(mask, softmax(scores(query, key)), 0) @ value


@mistake("forbidden_keys_have_no_influence")
def mask_added_as_0_and_1(query, key, value, mask):
    return softmax(scores(query, key) + mask) @ value


@mistake("forbidden_keys_have_no_influence")
def scores_multiplied_by_0_and_1(query, key, value, mask):
    return softmax(scores(query, key) * mask) @ value


@mistake("forbidden_keys_have_no_influence")
def mask_forgotten(query, key, value, mask):
    return softmax(scores(query, key)) @ value


@mistake("forbidden_keys_have_no_influence")
def mask_inverted(query, key, value, mask):
    return softmax(masked(scores(query, key), ~mask if not mask.all() else mask)) @ value


@mistake("forbidden_keys_have_no_influence")
def mask_transposed(query, key, value, mask):
    square = mask.shape[-2] == mask.shape[-1]
    return softmax(masked(scores(query, key), mask.swapaxes(-2, -1) if square else mask)) @ value


@mistake("every_value_reaches_every_output")
def strict_mask(query, key, value, mask):
    """The diagonal is forbidden too."""
    return softmax(masked(scores(query, key), mask & ~np.eye(*mask.shape[-2:], dtype=bool))) @ value


@mistake("empty_rows_are_zero")
def empty_rows_are_nan(query, key, value, mask):
    s = masked(scores(query, key), mask)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ value


@mistake("empty_rows_are_zero")
def minus_a_billion_for_minus_infinity(query, key, value, mask):
    return softmax(np.where(mask, scores(query, key), -1e9)) @ value


@mistake("permuting_queries_permutes_outputs")
def scores_transposed(query, key, value, mask):
    s = scores(query, key)
    return softmax(masked(s.swapaxes(-2, -1) if s.shape[-2] == s.shape[-1] else s, mask)) @ value


@mistake("permuting_keys_with_values_changes_nothing", "the_only_key_gives_its_value")
def values_out_of_step(query, key, value, mask):
    return softmax(masked(scores(query, key), mask)) @ np.roll(value, 1, axis=-2)


@mistake("permuting_keys_with_values_changes_nothing")
def keys_from_the_third_on_score_higher(query, key, value, mask):
    from_the_third_on = np.arange(key.shape[-2]) > 1
    return softmax(masked(scores(query, key) + from_the_third_on, mask)) @ value


@mistake("arguments_stay_as_they_are")
def scaled_in_place(query, key, value, mask):
    query /= math.sqrt(query.shape[-1])
    return softmax(masked(query @ key.swapaxes(-2, -1), mask)) @ value


@mistake("output_keeps_the_dtype")
def divided_by_a_float64(query, key, value, mask):
    s = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
    return softmax(masked(s, mask)) @ value


@mistake("shifting_scores_changes_nothing")
def softmax_of_squares(query, key, value, mask):
    return softmax(masked(scores(query, key) ** 2, mask)) @ value


def reads_what_nobody_may_read(query, key, value, *, mask=None):
    """The weight is 0, but 0 * NaN is NaN."""
    s = scores(query, key)
    return softmax(masked(s, True if mask is None else mask)) @ value


def scales_the_product(query, key, value, *, mask=None):
    """Scores that would fit into float16 are infinite before they are scaled."""
    with np.errstate(all="ignore"):
        s = query @ key.swapaxes(-2, -1) * query.dtype.type(1 / math.sqrt(query.shape[-1]))
        return softmax(masked(s, True if mask is None else mask)) @ value


def right_split(x):
    return qkvlib.numpy.split_heads(x, 3)


def right_merge(x):
    return qkvlib.numpy.merge_heads(x)


def split_without_transpose(x):
    """Head 0 gets the first tokens, not the first columns."""
    *lead, n, width = x.shape
    return x.reshape(*lead, 3, n, width // 3)


def merge_without_transpose(x):
    *lead, h, n, d = x.shape
    return x.reshape(*lead, n, h * d)


def heads_by(split, merge):
    def attend(query, key, value, *, mask=None):
        mask = mask if mask is None or mask.ndim == 2 else mask[..., None, :, :]
        heads = (split(x) for x in (query, key, value))
        return merge(qkvlib.numpy.scaled_dot_product_attention(*heads, mask=mask))

    return attend


HEADS = {
    "right": (right_split, right_merge, set()),
    "wrong split": (split_without_transpose, right_merge, {"every_value_reaches_every_output"}),
    "wrong merge": (right_split, merge_without_transpose, {"permuting_queries_permutes_outputs"}),
    "wrong pair": (
        split_without_transpose,
        merge_without_transpose,
        {"every_value_reaches_every_output"},
    ),
}


def for_three_heads(inputs):
    """The same inputs for three heads, each with its own factor."""
    for arrays, mask in inputs:
        yield tuple(np.concatenate([x, 2 * x, -x], axis=-1) for x in arrays), mask


def in_float32(inputs):
    for arrays, mask in inputs:
        yield tuple(x.astype(np.float32) for x in arrays), mask


def caught(function, laws, *inputs):
    """The names of the laws that this function breaks with some of the inputs."""
    inputs = [pair for some in inputs for pair in some]
    return {law.__name__ for law in laws if smallest_counterexample(law, function, inputs)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(name):
    attend, caught_by = MISTAKES[name]
    inputs = list(laws.attention_inputs())
    found = caught(attend, ATTENTION_LAWS, inputs, in_float32(inputs))
    assert caught_by <= found
    assert bool(found) == bool(caught_by)


def test_a_law_makes_its_own_case_where_there_is_no_mask():
    """An empty row, a key that nobody may read: without waiting for a mask that has one."""
    query, key, value = np.ones((2, 1)), np.ones((3, 1)), np.ones((3, 2))
    attend, _ = MISTAKES["minus_a_billion_for_minus_infinity"]
    assert laws.empty_rows_are_zero(attend, query, key, value)
    law = laws.unreachable_keys_may_hold_anything
    assert law(reads_what_nobody_may_read, query, key, value)


def test_a_mask_that_is_written_to_is_caught():
    def writes(query, key, value, *, mask=None):
        if mask is not None:
            mask |= ~mask.any(axis=-1, keepdims=True)
        return softmax(masked(scores(query, key), True if mask is None else mask)) @ value

    found = smallest_counterexample(
        laws.arguments_stay_as_they_are, writes, laws.attention_inputs()
    )
    assert found.where == "mask"


def test_reading_what_nobody_may_read_is_caught():
    found = caught(reads_what_nobody_may_read, ATTENTION_LAWS, laws.attention_inputs())
    assert found == {"unreachable_keys_may_hold_anything"}


def test_scaling_the_product_in_half_precision_is_caught():
    found = smallest_counterexample(
        laws.half_scores_that_fit_stay_finite, scales_the_product, laws.attention_inputs()
    )
    assert math.isnan(found.got)
    assert {str(x.dtype) for name, x in found.inputs.items() if name != "mask"} == {"float16"}


@pytest.mark.parametrize(("split", "merge", "caught_by"), HEADS.values(), ids=HEADS)
def test_mistakes_with_heads_are_caught(split, merge, caught_by):
    inputs = for_three_heads(laws.attention_inputs())
    found = caught(heads_by(split, merge), ATTENTION_LAWS, inputs)
    assert caught_by <= found
    assert bool(found) == bool(caught_by)


def test_every_law_of_attention_catches_something():
    lists = [caught_by for _, caught_by in MISTAKES.values()]
    elsewhere = {"unreachable_keys_may_hold_anything", "half_scores_that_fit_stay_finite"}
    assert set().union(*lists, elsewhere) == {law.__name__ for law in ATTENTION_LAWS}


def right_layer(x, *, mask=None):
    return qkvlib.numpy.scaled_dot_product_attention(x, x, x, mask=mask)


def norm_over_tokens(x, *, mask=None):
    """The mean of a column is taken over the tokens: the future leaks."""
    y = right_layer(x, mask=mask)
    return y - y.mean(axis=-2, keepdims=True)


def knows_positions(x, *, mask=None):
    return right_layer(x + np.arange(x.shape[-2])[:, None], mask=mask)


def no_attention(x, *, mask=None):
    return np.tanh(x)


def never_the_first(x, *, mask=None):
    """Whoever has a mask may not read the first token."""
    if mask is not None:
        mask = mask & (np.arange(x.shape[-2]) > 0)
    return right_layer(x, mask=mask)


def normalised_in_place(x, *, mask=None):
    x -= x.mean(axis=-1, keepdims=True)
    return right_layer(x, mask=mask)


def always_float64(x, *, mask=None):
    return right_layer(x.astype(float), mask=mask)


WRONG_LAYERS = {
    right_layer: set(),
    norm_over_tokens: {"forbidden_tokens_have_no_influence"},
    knows_positions: {"permuting_tokens_permutes_outputs"},
    no_attention: {"every_token_influences_every_output"},
    never_the_first: {"every_token_influences_every_output"},
    normalised_in_place: {"arguments_stay_as_they_are"},
    always_float64: {"output_keeps_the_dtype"},
}


@pytest.mark.parametrize("layer", WRONG_LAYERS, ids=lambda layer: layer.__name__)
def test_a_mistake_in_a_layer_is_caught(layer):
    inputs = list(laws.layer_inputs(6))
    found = caught(layer, LAYER_LAWS, inputs, in_float32(inputs))
    assert WRONG_LAYERS[layer] <= found
    assert bool(found) == bool(WRONG_LAYERS[layer])


# ---- what a law says -----------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [np.triu, np.tril], ids=["future", "past"])
def test_a_layer_that_opens_the_mask_on_one_side_is_caught(opened):
    def layer(x, *, mask=None):
        if mask is not None:
            mask = mask | opened(np.ones_like(mask))
        return right_layer(x, mask=mask)

    law = laws.forbidden_tokens_have_no_influence
    assert smallest_counterexample(law, layer, laws.layer_inputs(4)).law == law.__name__


@pytest.mark.parametrize("at", [2, 3])
def test_a_window_of_any_width_must_open_to_both_sides(at):
    def mask(n_query, n_key, *, window):
        both = qkvlib.numpy.window_mask(n_query, n_key, window=window)
        return both & qkvlib.numpy.causal_mask(n_query, n_key) if window == at else both

    law = laws.windows_open_to_both_sides
    assert smallest_counterexample(law, mask, laws.mask_inputs()).law == law.__name__


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_weights_a_tenth_too_large_or_too_small_are_caught(factor):
    def draw(fan_in, fan_out, *, generator):
        return factor * qkvlib.numpy.xavier_normal(fan_in, fan_out, generator=generator)

    law = laws.weights_have_their_variance
    assert smallest_counterexample(law, draw, laws.fan_inputs()).law == law.__name__


@pytest.mark.parametrize("how_far", [1, 2, -1])
def test_a_part_that_reads_a_neighbour_is_caught(how_far):
    def part(x):
        return x + np.roll(x, -how_far, axis=-2) if x.shape[-2] > abs(how_far) else x

    inputs = [((x,), None) for (x,), _ in laws.layer_inputs(4)]
    found = smallest_counterexample(laws.tokens_stay_apart, part, inputs)
    assert found.law == "tokens_stay_apart"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda sizes: len(sizes) > 2,
        lambda sizes: len(sizes) == 2 and sizes[0] > 1,
        lambda sizes: len(sizes) == 2 and sizes[1] > 1,
    ],
    ids=["many pieces", "a long one first", "a long one last"],
)
def test_pieces_are_cut_in_every_way(wrong):
    def read(query, key, value, sizes):
        return value + float(wrong(sizes))

    law = laws.pieces_read_as_the_whole
    assert smallest_counterexample(law, read, laws.step_inputs()).law == law.__name__


def test_the_counterexample_is_small_and_readable():
    attend, _ = MISTAKES["mask_after_softmax"]
    found = smallest_counterexample(laws.rows_sum_to_one, attend, laws.attention_inputs())
    assert found.law == "rows_sum_to_one"
    assert found.inputs["query"].shape == (2, 1)
    assert found.expected == 1.0
    assert 0 < found.got < 1
    for part in ("rows_sum_to_one: weights of query (1,), summed, must be 1.0, got 0.", "mask=[["):
        assert part in str(found)


def test_a_wrong_shape_is_a_counterexample():
    def forgot_a_query(query, key, value, *, mask=None):
        return value[..., :1, :] * np.ones_like(query[..., :1, :1])

    found = smallest_counterexample(laws.rows_sum_to_one, forgot_a_query, laws.attention_inputs())
    assert (found.where, found.expected, found.got) == ("the shape", (2, 1), (1, 1))


NO_OUTPUTS = {
    "nothing": lambda x: None,
    "a number": lambda x: 1.0,
    "a list": lambda x: x.tolist(),
    "a pair": lambda x: (x, None),
    "text": str,
    "objects": lambda x: x.astype(object),
    "complex numbers": lambda x: x.astype(complex),
    "no axes": lambda x: x.sum(),
    "a row too few": lambda x: x[..., 1:, :],
    "a column too many": lambda x: np.concatenate([x, x[..., :1]], axis=-1),
    "one axis too few": lambda x: x[..., 0],
    "one axis too many": lambda x: x[None],
    "transposed": lambda x: x.swapaxes(-2, -1),
}


def of_outputs(laws_):
    return {law.__name__ for law in laws_} - {"arguments_stay_as_they_are"}


@pytest.mark.parametrize("spoil", NO_OUTPUTS.values(), ids=NO_OUTPUTS)
def test_what_is_no_output_breaks_every_law_of_attention(spoil):
    """With a counter-example, not with an error of the law itself."""

    def attend(query, key, value, *, mask=None):
        return spoil(none_at_all(query, key, value, np.True_ if mask is None else mask))

    found = caught(attend, ATTENTION_LAWS, laws.attention_inputs())
    assert found == of_outputs(ATTENTION_LAWS)


@pytest.mark.parametrize("name", sorted(set(NO_OUTPUTS) - {"a column too many"}))
def test_what_is_no_output_breaks_every_law_of_layers(name):
    """Tokens may come out wider than they went in."""

    def layer(x, *, mask=None):
        return NO_OUTPUTS[name](right_layer(x, mask=mask))

    found = caught(layer, LAYER_LAWS, laws.layer_inputs(6))
    assert found == of_outputs(LAYER_LAWS)


def test_infinity_is_no_output():
    def infinite(query, key, value, *, mask=None):
        return np.full((*query.shape[:-1], value.shape[-1]), math.inf)

    found = caught(infinite, ATTENTION_LAWS, laws.attention_inputs())
    assert {"rows_sum_to_one", "shifting_scores_changes_nothing"} <= found


@pytest.mark.parametrize("inputs", [laws.attention_inputs, lambda g=None: laws.layer_inputs(6, g)])
def test_inputs_can_be_drawn_anew(inputs):
    def drawn(*generator):
        return [arrays[0].tolist() for arrays, _ in inputs(*generator)]

    assert drawn() == drawn() == drawn(np.random.default_rng(0))
    assert drawn() != drawn(np.random.default_rng(1))


def test_the_counterexample_of_a_layer_names_its_inputs():
    found = smallest_counterexample(
        laws.every_token_influences_every_output, no_attention, laws.layer_inputs(6)
    )
    assert list(found.inputs) == ["x", "mask"]
    assert found.inputs["x"].shape == (2, 6)


def test_large_inputs_are_not_printed():
    found = laws.output_keeps_the_dtype(always_float64, np.zeros((7, 6), np.float32))
    assert "x=an array of shape (7, 6), mask=None" in str(found)
