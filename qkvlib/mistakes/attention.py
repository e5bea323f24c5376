"""Mistakes in attention itself: the scores, the softmax, the mask, the average.

Each is `attend(query, key, value, *, mask=None)`, with shapes and mask as in
`qkvlib.numpy.scaled_dot_product_attention`, and right but for one step. Three words are short for
what is right in all of them: `turned`, `forbid` and `read`.
"""

import math

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, afterwards, call, obeying
from qkvlib.numpy import attention_scores, scaled_dot_product_attention, softmax


def turned(x):
    """The matrix with rows and columns exchanged, whatever axes stand before them."""
    return x.swapaxes(-2, -1)


def forbid(scores, mask):
    """The scores, -inf where the mask says False."""
    return scores if mask is None else np.where(mask, scores, -math.inf)


def read(weights, value):
    """The average of the values; what has no weight in any row is not even looked at."""
    unread = (weights == 0).all(axis=-2)[..., None]
    return (weights @ np.where(unread, 0, value)).astype(value.dtype)


# ---- how attention is asked ----------------------------------------------------------------------


def attention_law_inputs():
    """The inputs of the laws in float64 and in float32."""
    for arrays, mask in laws.attention_inputs():
        yield arrays, mask
    for arrays, mask in laws.attention_inputs():
        yield tuple(x.astype(np.float32) for x in arrays), mask


_generator = np.random.default_rng(5)


def _normal(*shape):
    return _generator.normal(size=shape)


_QUERY, _KEY, _VALUE = _normal(3, 4), _normal(5, 4), _normal(5, 6)
_SQUARE = _normal(4, 4), _normal(4, 4), _normal(4, 4)
_HEADS = _normal(2, 3, 4, 5), _normal(2, 3, 6, 5), _normal(2, 3, 6, 7)
# In every row and in every column something is allowed and something forbidden.
_MASK = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0]], bool)
_SQUARE_MASK = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]], bool)
_EMPTY_ROW = np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0]], bool)
_HEADS_MASK = np.arange(2)[:, None, None, None] + np.arange(4)[:, None] + np.arange(6)
_HEADS_MASK = _HEADS_MASK % 3 > 0
# Products and scores of these are exact, so that only the dtype tells when it was widened.
_FLOAT32 = tuple(np.round(2 * x).astype(np.float32) for x in (_QUERY, _KEY, _VALUE))
# The product of query and key is 65536, too much for float16; divided by sqrt(16) it would fit.
_HALF = np.full((3, 16), 64), np.outer([64, 63, 32, 8, 1], np.ones(16)), _VALUE
_HALF = tuple(x.astype(np.float16) for x in _HALF)
_UNREACHED = np.where(np.arange(5)[:, None] == 4, np.nan, 0)
# The last key scores far more than the others: whoever may not read it must not feel it.
_LOUD = np.where(np.arange(5)[:, None] == 4, 1e4 * _QUERY.sum(axis=0), _KEY)

ATTENTION = Subject(
    name="attention",
    signature="attend(query, key, value, *, mask=None)",
    right=scaled_dot_product_attention,
    tiers=(
        (call(_QUERY, _KEY, _VALUE), call(*_SQUARE)),
        (call(*_HEADS),),
        (
            call(_QUERY, _KEY, _VALUE, mask=_MASK),
            call(*_SQUARE, mask=_SQUARE_MASK),
            call(*_HEADS, mask=_HEADS_MASK),
        ),
        (call(_QUERY, _KEY, _VALUE, mask=_EMPTY_ROW),),
        (call(1e4 * _QUERY, _KEY, _VALUE), call(-1e4 * _QUERY, _KEY, _VALUE)),
        (call(_QUERY, _LOUD, _VALUE, mask=np.tri(3, 5, 1, dtype=bool)),),
        (call(*_FLOAT32, mask=_MASK),),
        (call(*_HALF),),
        (call(_QUERY, _KEY + _UNREACHED, _VALUE + _UNREACHED, mask=np.tri(3, 5, 1, dtype=bool)),),
        (afterwards(_QUERY, _KEY, _VALUE, mask=_MASK),),
    ),
    laws=obeying(laws.ATTENTION_LAWS, attention_law_inputs),
)


# ---- the scale -----------------------------------------------------------------------------------


@ATTENTION.mistake(
    "Every row sums to 1, and the model trains; sharper weights look decided.",
    reported="mlc-ai/mlc-llm#3426",
)
def no_scale(query, key, value, *, mask=None):
    """The scores are not divided by sqrt(d_k)."""
    scores = attention_scores(query, key, scale=1.0)
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake("Every row sums to 1; a map that is nearly grey looks like a cautious head.")
def divided_by_d_k(query, key, value, *, mask=None):
    """The scores are divided by d_k: the root is missing, or query and key are both scaled."""
    scores = attention_scores(query, key, scale=1 / query.shape[-1])
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake("It reads like a root: `scores / d_k ** 1 / 2`, or `scores * d_k ** -1 / 2`.")
def divided_by_twice_d_k(query, key, value, *, mask=None):
    """The scores are divided by 2 d_k: in `d_k ** 1 / 2` the power comes first, then the half."""
    scores = attention_scores(query, key, scale=0.5 / query.shape[-1])
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake(
    "The root is there, the rows sum to 1, and the largest weight is where it was.",
    reported="esceptico/perceiver-io#9",
)
def multiplied_by_sqrt_d_k(query, key, value, *, mask=None):
    """The scores are multiplied by sqrt(d_k), not divided."""
    scores = attention_scores(query, key, scale=math.sqrt(query.shape[-1]))
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake("Values are often as wide as keys; then it is right.")
def scaled_by_the_width_of_the_values(query, key, value, *, mask=None):
    """The scores are divided by sqrt(d_v), not by sqrt(d_k)."""
    scores = attention_scores(query, key, scale=1 / math.sqrt(value.shape[-1]))
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake(
    "Longer rows do get flatter, and with as many keys as columns it is right.",
    variant_of="scaled-by-the-width-of-the-values",
)
def scaled_by_the_number_of_keys(query, key, value, *, mask=None):
    """The scores are divided by sqrt(n_key), not by sqrt(d_k)."""
    scores = attention_scores(query, key, scale=1 / math.sqrt(key.shape[-2]))
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake(
    "All the steps of the formula are there, only in another order.", law=laws.rows_sum_to_one
)
def scaled_after_the_softmax(query, key, value, *, mask=None):
    """The weights are divided by sqrt(d_k), not the scores."""
    scores = attention_scores(query, key, scale=1.0)
    return read(softmax(forbid(scores, mask)) / math.sqrt(query.shape[-1]), value)


# ---- the scores ----------------------------------------------------------------------------------


@ATTENTION.mistake(
    "With as many queries as keys the shapes fit, and every row sums to 1.",
    law=laws.permuting_queries_permutes_outputs,
    reported="brain-research/self-attention-gan#17",
)
def scores_transposed(query, key, value, *, mask=None):
    """K Q^T for Q K^T: each token gets the row in which it is the key."""
    scores = attention_scores(key, query)
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake(
    "Who points the same way still gets the most, and no score is ever too large.",
    law=laws.shifting_scores_changes_nothing,
)
def cosine_for_the_product(query, key, value, *, mask=None):
    """Query and key are brought to length 1: a long key is not heard better than a short one."""
    lengths = (np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6) for x in (query, key))
    query, key = (x / length for x, length in zip((query, key), lengths))
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake(
    "Near is similar: it is a fine kernel, only another one.",
    law=laws.shifting_scores_changes_nothing,
)
def distance_for_the_product(query, key, value, *, mask=None):
    """The score is the squared distance of query and key, negated: long keys are far from all."""
    differences = query[..., :, None, :] - key[..., None, :, :]
    scores = -(differences**2).sum(axis=-1) / math.sqrt(query.shape[-1])
    return read(softmax(forbid(scores, mask)), value)


@ATTENTION.mistake("One example at a time it is right.")
def all_axes_turned(query, key, value, *, mask=None):
    """`key.T` turns all axes of a batch around, not the last two."""
    scores = query @ key.T / math.sqrt(query.shape[-1])
    return read(softmax(forbid(scores, mask)), value)


# ---- the softmax ---------------------------------------------------------------------------------


@ATTENTION.mistake(
    "Something does sum to 1, the columns, and a row or two may by chance.",
    law=laws.rows_sum_to_one,
    reported="labmlai/annotated_deep_learning_paper_implementations#146",
)
def softmax_over_queries(query, key, value, *, mask=None):
    """The softmax runs along the queries: each key shares itself out among them."""
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, mask), axis=-2), value)


@ATTENTION.mistake(
    "All weights are positive, and together they sum to 1.", law=laws.rows_sum_to_one
)
def softmax_over_everything(query, key, value, *, mask=None):
    """One softmax for the whole table of scores, not one for each row."""
    scores = forbid(attention_scores(query, key), mask)
    exponentials = np.exp(scores - scores.max(axis=(-2, -1), keepdims=True))
    return read(exponentials / exponentials.sum(axis=(-2, -1), keepdims=True), value)


@ATTENTION.mistake(
    "With as many queries as keys NumPy lines the sums up with the columns, without a word.",
    law=laws.rows_sum_to_one,
)
def divided_without_keepdims(query, key, value, *, mask=None):
    """The sums of the rows lie down along the keys: column j is divided by the sum of row j."""
    scores = forbid(attention_scores(query, key), mask)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return read(exponentials / exponentials.sum(axis=-1), value)


@ATTENTION.mistake(
    "The rows sum to 1, and all is well while the scores happen to be positive.",
    law=laws.shifting_scores_changes_nothing,
)
def no_exponential(query, key, value, *, mask=None):
    """The scores are divided by their sum as they are: weights may be negative."""
    scores = attention_scores(query, key)
    scores = scores if mask is None else np.where(mask, scores, 0)
    return read(scores / scores.sum(axis=-1, keepdims=True), value)


@ATTENTION.mistake(
    "Each row of the heatmap is the same but for its scale.", law=laws.rows_sum_to_one
)
def not_normalised(query, key, value, *, mask=None):
    """The exponentials are not divided by their sum."""
    scores = forbid(attention_scores(query, key), mask)
    return read(np.exp(scores), value)


@ATTENTION.mistake(
    "Every row sums to 1, and the order of the weights is right.",
    law=laws.forbidden_keys_have_no_influence,
)
def softmax_twice(query, key, value, *, mask=None):
    """Weights go through a second softmax, which sees hardly any difference between them."""
    weights = softmax(forbid(attention_scores(query, key), mask))
    return read(softmax(weights), value)


@ATTENTION.mistake(
    "For scores of usual size it is right.",
    law=laws.large_scores_stay_finite,
)
def no_shift_by_the_maximum(query, key, value, *, mask=None):
    """exp is taken of the scores as they are, and overflows."""
    exponentials = np.exp(forbid(attention_scores(query, key), mask))
    total = exponentials.sum(axis=-1, keepdims=True)
    return read(exponentials / np.where(total == 0, 1, total), value)


@ATTENTION.mistake(
    "Each query reads the key that fits best, as in a dictionary.",
    law=laws.every_value_reaches_every_output,
)
def hard_lookup(query, key, value, *, mask=None):
    """All the weight is on the best key: no other is heard, and nothing can be learned."""
    scores = forbid(attention_scores(query, key), mask)
    best = np.arange(scores.shape[-1]) == scores.argmax(axis=-1)[..., None]
    return read(best * np.isfinite(scores), value)


# ---- the mask ------------------------------------------------------------------------------------


@ATTENTION.mistake(
    "The heatmap is a perfect triangle: no weight above the diagonal.",
    law=laws.rows_sum_to_one,
    reported="huggingface/pytorch-image-models#2236",
)
def mask_after_softmax(query, key, value, *, mask=None):
    """Forbidden weights are set to 0 after the softmax, which has counted them already."""
    weights = softmax(attention_scores(query, key))
    return read(weights if mask is None else np.where(mask, weights, 0), value)


@ATTENTION.mistake(
    "It is the right formula: what the softmax counted too much is divided away again.",
    law=laws.large_scores_stay_finite,
    reported="abisee/pointer-generator#88",
)
def renormalised_after_the_mask(query, key, value, *, mask=None):
    """Masked after the softmax and divided anew: where a forbidden score is large, 0 by 0."""
    weights = softmax(attention_scores(query, key))
    if mask is not None:
        weights = np.where(mask, weights, 0)
        total = weights.sum(axis=-1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return read(weights, value)


@ATTENTION.mistake(
    "Allowed keys are favoured, and it is how a mask of 0 and -inf is used.",
    law=laws.forbidden_keys_have_no_influence,
)
def mask_added_as_0_and_1(query, key, value, *, mask=None):
    """A mask of 0 and 1 is added to the scores: forbidden keys only lose a little."""
    scores = attention_scores(query, key)
    return read(softmax(scores if mask is None else scores + mask), value)


@ATTENTION.mistake(
    "Forbidden scores are 0, and 0 looks like nothing.",
    law=laws.forbidden_keys_have_no_influence,
)
def scores_multiplied_by_the_mask(query, key, value, *, mask=None):
    """Forbidden scores become 0, as by a mask that multiplies them; exp(0) is 1, not 0."""
    scores = attention_scores(query, key)
    return read(softmax(scores if mask is None else scores * mask), value)


@ATTENTION.mistake(
    "A mask is passed and shapes fit; torch.nn.MultiheadAttention does mean it this way round.",
    law=laws.forbidden_keys_have_no_influence,
    reported="rasbt/LLMs-from-scratch#1061",
)
def mask_inverted(query, key, value, *, mask=None):
    """True is taken for "forbidden": each query reads just what it may not."""
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, None if mask is None else ~mask)), value)


@ATTENTION.mistake(
    "With as many queries as keys it fits, and for padding that forbids both ways it is right.",
    law=laws.forbidden_keys_have_no_influence,
)
def mask_transposed(query, key, value, *, mask=None):
    """Rows and columns of the mask are exchanged: the past is hidden, the future open."""
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, None if mask is None else turned(mask))), value)


@ATTENTION.mistake(
    "The argument is there, nothing raises, and the loss is better than ever.",
    law=laws.forbidden_keys_have_no_influence,
)
def mask_forgotten(query, key, value, *, mask=None):
    """The mask is taken and not used."""
    scores = attention_scores(query, key)
    return read(softmax(scores), value)


@ATTENTION.mistake(
    "Every query that may read something is right; a fully padded row comes by late.",
    law=laws.empty_rows_are_zero,
    reported="pytorch/pytorch#41508",
)
def empty_rows_are_nan(query, key, value, *, mask=None):
    """A query that may attend to nothing gets 0 divided by 0."""
    scores = forbid(attention_scores(query, key), mask)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return read(exponentials / exponentials.sum(axis=-1, keepdims=True), value)


@ATTENTION.mistake(
    "exp(-1e9) is 0, and there is no NaN anywhere.",
    law=laws.empty_rows_are_zero,
)
def a_billion_for_infinity(query, key, value, *, mask=None):
    """-1e9 for -inf: a query that may attend to nothing reads the average of what is forbidden."""
    scores = attention_scores(query, key)
    return read(softmax(scores if mask is None else np.where(mask, scores, -1e9)), value)


@ATTENTION.mistake(
    "Next to allowed scores a forbidden one is nothing, and there is no NaN anywhere.",
    law=laws.empty_rows_are_zero,
    variant_of="a-billion-for-infinity",
)
def a_billion_added(query, key, value, *, mask=None):
    """-1e9 is added to forbidden scores: where all are forbidden, they keep their differences."""
    scores = attention_scores(query, key)
    if mask is not None:
        scores = scores + np.where(mask, 0, -1e9).astype(scores.dtype)
    return read(softmax(scores), value)


# ---- the values ----------------------------------------------------------------------------------


@ATTENTION.mistake(
    "The weights are right, and keys as wide as values make the shapes fit.",
    law=laws.rows_sum_to_one,
)
def keys_for_values(query, key, value, *, mask=None):
    """The keys are averaged, not the values."""
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, mask)), key)


@ATTENTION.mistake(
    "In self-attention there are as many queries as values, and often as wide.",
    law=laws.rows_sum_to_one,
    variant_of="keys-for-values",
)
def queries_for_values(query, key, value, *, mask=None):
    """The queries are averaged, not the values."""
    scores = attention_scores(query, key)
    return read(softmax(forbid(scores, mask)), query)


@ATTENTION.mistake(
    "A weight of 0 takes nothing from a value.",
    law=laws.unreachable_keys_may_hold_anything,
)
def zero_times_nan(query, key, value, *, mask=None):
    """Padding that nobody may read is multiplied by 0; where it holds NaN, that is NaN."""
    scores = attention_scores(query, key)
    return (softmax(forbid(scores, mask)) @ value).astype(value.dtype)


# ---- the arrays ----------------------------------------------------------------------------------


@ATTENTION.mistake("The output is right.", law=laws.arguments_stay_as_they_are)
def scaled_in_place(query, key, value, *, mask=None):
    """The caller's query is scaled too, and once more at the next call."""
    query /= math.sqrt(query.shape[-1])
    return read(softmax(forbid(query @ turned(key), mask)), value)


@ATTENTION.mistake(
    "The numbers are right to the last digit, and more.", law=laws.output_keeps_the_dtype
)
def root_of_a_numpy_integer(query, key, value, *, mask=None):
    """float32 becomes float64: it met a NumPy number of 64 bits, as np.sqrt makes of an integer."""
    scores = query / np.sqrt(query.shape[-1]) @ turned(key)
    weights = softmax(forbid(scores, mask))
    return read(weights, value.astype(weights.dtype))


@ATTENTION.mistake("In float32 it is the same.", law=laws.half_scores_that_fit_stay_finite)
def half_product_before_the_scale(query, key, value, *, mask=None):
    """In float16 the product overflows before it is scaled, though its score would fit."""
    scores = query @ turned(key) * query.dtype.type(1 / math.sqrt(query.shape[-1]))
    return read(softmax(forbid(scores, mask)), value)


# ---- with a bias and a cap -----------------------------------------------------------------------

_SCORE_BIAS = 2 * _normal(3, 5)


def _with_a_cap(attend):
    """Attention with a cap, as attention to which the laws apply."""

    def capped(query, key, value, *, mask=None):
        return attend(query, key, value, mask=mask, softcap=2.0)

    return capped


CAPPED_ATTENTION = Subject(
    name="attention with bias and softcap",
    signature="attend(query, key, value, *, mask=None, bias=None, softcap=None)",
    right=scaled_dot_product_attention,
    tiers=(
        (call(_QUERY, _KEY, _VALUE, bias=_SCORE_BIAS), call(_QUERY, _KEY, _VALUE, softcap=0.5)),
        (call(_QUERY, _KEY, _VALUE, bias=_SCORE_BIAS, softcap=0.5),),
        (call(_QUERY, _KEY, _VALUE, mask=_MASK, bias=_SCORE_BIAS, softcap=0.5),),
    ),
    laws=obeying(
        [
            laws.rows_sum_to_one,
            laws.the_only_key_gives_its_value,
            laws.forbidden_keys_have_no_influence,
            laws.permuting_queries_permutes_outputs,
            laws.permuting_keys_with_values_changes_nothing,
            laws.every_value_reaches_every_output,
            laws.large_scores_stay_finite,
        ],
        laws.attention_inputs,
        of=_with_a_cap,
    ),
)


def capped(scores, softcap):
    """The scores between -softcap and softcap, with a soft edge."""
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def added(scores, bias):
    """The scores with the bias, where there is one."""
    return scores if bias is None else scores + bias


@CAPPED_ATTENTION.mistake(
    "Scores are capped, and a mask is there; with a cap of 50 hardly anything leaks.",
    law=laws.forbidden_keys_have_no_influence,
    reported="onnx/onnx#7865",
)
def mask_before_the_cap(query, key, value, *, mask=None, bias=None, softcap=None):
    """The cap makes -inf to -softcap: what is forbidden is read a little."""
    scores = forbid(attention_scores(query, key), mask)
    return read(softmax(added(capped(scores, softcap), bias)), value)


@CAPPED_ATTENTION.mistake(
    "Both are there; a bias that is small next to the cap makes no difference.",
    reported="emmtrix/emx-onnx-cgen#731",
)
def bias_before_the_cap(query, key, value, *, mask=None, bias=None, softcap=None):
    """The bias is capped too."""
    scores = capped(added(attention_scores(query, key), bias), softcap)
    return read(softmax(forbid(scores, mask)), value)


@CAPPED_ATTENTION.mistake(
    "Scale and cap are both there, and no score is beyond the cap.",
    reported="huggingface/trl#5691",
)
def cap_before_the_scale(query, key, value, *, mask=None, bias=None, softcap=None):
    """The raw products, which are large, are capped and then scaled: too much is flattened."""
    scores = capped(query @ turned(key), softcap) / math.sqrt(query.shape[-1])
    return read(softmax(forbid(added(scores, bias), mask)), value)


@CAPPED_ATTENTION.mistake("The bias does what it should, only less of it.")
def bias_scaled_too(query, key, value, *, mask=None, bias=None, softcap=None):
    """The bias is added before the scale, and divided by sqrt(d_k) with the scores."""
    bias = None if bias is None else bias / math.sqrt(query.shape[-1])
    scores = added(capped(attention_scores(query, key), softcap), bias)
    return read(softmax(forbid(scores, mask)), value)


@CAPPED_ATTENTION.mistake("Scores are bounded, and tanh is there.")
def cap_not_multiplied_back(query, key, value, *, mask=None, bias=None, softcap=None):
    """What tanh returns is not multiplied by the cap: scores are bounded by 1."""
    scores = attention_scores(query, key)
    scores = scores if softcap is None else np.tanh(scores / softcap)
    return read(softmax(forbid(added(scores, bias), mask)), value)


@CAPPED_ATTENTION.mistake("No score is beyond the cap.")
def cap_with_a_hard_edge(query, key, value, *, mask=None, bias=None, softcap=None):
    """Scores are cut at the cap, where no gradient comes through any more."""
    scores = attention_scores(query, key)
    scores = scores if softcap is None else np.clip(scores, -softcap, softcap)
    return read(softmax(forbid(added(scores, bias), mask)), value)
