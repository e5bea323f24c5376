"""Mistakes in `softmax(scores, axis=-1)` by itself, and in its backward pass."""

import math

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, afterwards, call, obeying
from qkvlib.mistakes.attention import attention_law_inputs, forbid, read
from qkvlib.numpy import attention_scores, softmax

_SCORES = np.random.default_rng(3).normal(size=(2, 3, 4)) * 2


def _attention_by(softmax):
    """Attention that is right but for its softmax."""

    def attend(query, key, value, *, mask=None):
        return read(softmax(forbid(attention_scores(query, key), mask)), value)

    return attend


def _score_inputs():
    for dtype in (np.float64, np.float32):
        yield (_SCORES[0].astype(dtype),), None


SOFTMAX = Subject(
    name="softmax",
    signature="softmax(scores, axis=-1)",
    right=softmax,
    tiers=(
        (call(_SCORES), call(_SCORES[0, :, 1:]), call(_SCORES[0])),
        (call(_SCORES, 1), call(_SCORES, 0)),
        (call(np.array([[0.5, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf]])),),
        (call(1e4 * _SCORES), call(-1e4 * _SCORES)),
        (call(np.array([[-2000.0, -2001.0], [1000.0, 1000.5]])),),
        (call(_SCORES.astype(np.float32)),),
        (afterwards(_SCORES),),
    ),
    laws=obeying(laws.ATTENTION_LAWS[:-2], attention_law_inputs, of=_attention_by)
    | obeying(laws.ATTENTION_LAWS[-2:], _score_inputs),
)


@SOFTMAX.mistake(
    "Something sums to 1, and on a single row it is right.",
    law=laws.rows_sum_to_one,
    variant_of="softmax-over-queries",
)
def first_axis(scores, axis=0):
    """The axis is the first one unless somebody says so."""
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    total = exponentials.sum(axis=axis, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


@SOFTMAX.mistake("Attention always asks for the last axis.")
def axis_ignored(scores, axis=-1):
    """Whatever axis is asked for, the softmax runs along the last one."""
    return softmax(scores)


@SOFTMAX.mistake(
    "All numbers are positive, and together they sum to 1.",
    law=laws.rows_sum_to_one,
    variant_of="softmax-over-everything",
)
def everything_sums_to_one(scores, axis=-1):
    """One sum for the whole table."""
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


@SOFTMAX.mistake(
    "On a single row it is right, and on a square table nothing raises.",
    law=laws.rows_sum_to_one,
    variant_of="divided-without-keepdims",
)
def sums_without_keepdims(scores, axis=-1):
    """The sums of the rows lie down along the columns."""
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis)


@SOFTMAX.mistake(
    "For scores of usual size it is right.",
    law=laws.large_scores_stay_finite,
    variant_of="no-shift-by-the-maximum",
)
def exponentials_as_they_are(scores, axis=-1):
    """exp is taken without a shift, and overflows."""
    exponentials = np.exp(scores)
    total = exponentials.sum(axis=axis, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


@SOFTMAX.mistake(
    "It is the formula as it stands in books, and for scores of usual size it is right.",
    law=laws.large_scores_stay_finite,
    variant_of="no-shift-by-the-maximum",
)
def powers_over_their_sum(scores, axis=-1):
    """exp is taken without a shift, and overflows; a row of -inf becomes 0 by 0."""
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@SOFTMAX.mistake(
    "Every row that holds a finite score is right.",
    law=laws.empty_rows_are_zero,
    variant_of="empty-rows-are-nan",
)
def rows_of_minus_infinity_are_nan(scores, axis=-1):
    """A row that may choose nothing becomes NaN: 0 by 0, or -inf less -inf."""
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@SOFTMAX.mistake(
    "There is no NaN, and every row sums to 1.",
    law=laws.empty_rows_are_zero,
    variant_of="a-billion-for-infinity",
)
def rows_of_minus_infinity_are_even(scores, axis=-1):
    """-inf becomes a large negative number, and a row that may choose nothing reads all alike."""
    return softmax(np.where(np.isneginf(scores), np.finfo(scores.dtype).min / 4, scores), axis)


@SOFTMAX.mistake(
    "There is a shift, and nothing overflows.",
    law=laws.large_scores_stay_finite,
)
def one_maximum_for_all_rows(scores, axis=-1):
    """The largest number of the whole table is subtracted: in a row far below it all is 0 by 0."""
    exponentials = np.exp(scores - scores[np.isfinite(scores)].max(initial=0))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@SOFTMAX.mistake("Positive, summing to 1, in the right order: it is a softmax, of a warmer kind.")
def powers_of_two(scores, axis=-1):
    """2 to the power of the scores, not e: every weight is nearer to the average."""
    return softmax(scores * math.log(2), axis)


@SOFTMAX.mistake(
    "What comes back is right.",
    law=laws.arguments_stay_as_they_are,
    variant_of="scaled-in-place",
)
def shifted_in_place(scores, axis=-1):
    """The caller's scores are shifted too."""
    scores -= np.maximum(scores.max(axis=axis, keepdims=True), np.finfo(scores.dtype).min)
    exponentials = np.exp(scores)
    total = exponentials.sum(axis=axis, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


# ---- backward ------------------------------------------------------------------------------------


def _softmax_backward(weights, grad_weights):
    """The gradient of the scores, from that of the weights: w (g - sum of w g)."""
    return weights * (grad_weights - (weights * grad_weights).sum(axis=-1, keepdims=True))


_WEIGHTS, _GRAD = softmax(_SCORES), np.random.default_rng(4).normal(size=_SCORES.shape)

SOFTMAX_GRADIENT = Subject(
    name="softmax gradient",
    signature="grad_scores(weights, grad_weights)",
    right=_softmax_backward,
    tiers=((call(_WEIGHTS, _GRAD), call(_WEIGHTS[0], _GRAD[0])),),
    laws=obeying([laws.gradients_of_scores_sum_to_zero], laws.gradient_inputs),
)


@SOFTMAX_GRADIENT.mistake(
    "It is the derivative p (1 - p) that one remembers.", law=laws.gradients_of_scores_sum_to_zero
)
def only_the_diagonal(weights, grad_weights):
    """A weight is taken to depend on its own score alone: its row shares one sum."""
    return weights * (1 - weights) * grad_weights


@SOFTMAX_GRADIENT.mistake(
    "All parts of the formula are there, and nothing raises.",
    law=laws.gradients_of_scores_sum_to_zero,
)
def sum_over_the_queries(weights, grad_weights):
    """The sum runs down the columns."""
    return weights * (grad_weights - (weights * grad_weights).sum(axis=-2, keepdims=True))


@SOFTMAX_GRADIENT.mistake(
    "Something is centred, as it should be.", law=laws.gradients_of_scores_sum_to_zero
)
def not_times_the_weights(weights, grad_weights):
    """The centred gradients are not multiplied by the weights."""
    return grad_weights - (weights * grad_weights).sum(axis=-1, keepdims=True)


@SOFTMAX_GRADIENT.mistake(
    "In a row of equal weights it is right.", law=laws.gradients_of_scores_sum_to_zero
)
def plain_mean_taken_away(weights, grad_weights):
    """The plain mean of the gradients is taken away, not the one weighted by what the row reads."""
    return weights * (grad_weights - grad_weights.mean(axis=-1, keepdims=True))


@SOFTMAX_GRADIENT.mistake("The size of each number is right, and rows sum to 0.")
def gradient_with_the_wrong_sign(weights, grad_weights):
    """A score that helps its own weight must grow with it; here it is pushed down."""
    return weights * ((weights * grad_weights).sum(axis=-1, keepdims=True) - grad_weights)


@SOFTMAX_GRADIENT.mistake("On a single row it is right.", law=laws.gradients_of_scores_sum_to_zero)
def one_sum_for_all_rows(weights, grad_weights):
    """One sum is taken over the whole table; each row has its own."""
    return weights * (grad_weights - (weights * grad_weights).sum())


@SOFTMAX_GRADIENT.mistake(
    "Something is taken away, and all is multiplied by the weights.",
    law=laws.gradients_of_scores_sum_to_zero,
)
def plain_sum_taken_away(weights, grad_weights):
    """The gradients are summed as they are, not weighted by what the row reads."""
    return weights * (grad_weights - grad_weights.sum(axis=-1, keepdims=True))


@SOFTMAX_GRADIENT.mistake(
    "Where a weight is larger, more comes back.", law=laws.gradients_of_scores_sum_to_zero
)
def nothing_taken_away(weights, grad_weights):
    """A weight that rises is taken to cost the others nothing."""
    return weights * grad_weights
