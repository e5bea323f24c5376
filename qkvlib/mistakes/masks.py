"""Mistakes in masks. True means "may attend"; the last query stands with the last key."""

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, call, obeying
from qkvlib.numpy import causal_mask, padding_mask, window_mask

# ---- the future ----------------------------------------------------------------------------------

CAUSAL_MASK = Subject(
    name="causal mask",
    signature="causal_mask(n_query, n_key)",
    right=causal_mask,
    tiers=((call(3, 3),), (call(2, 5), call(1, 4))),
    laws=obeying(laws.CAUSAL_MASK_LAWS, laws.mask_inputs),
)


@CAUSAL_MASK.mistake(
    "A triangle is a triangle; torch.nn.MultiheadAttention means its masks this way round.",
    law=laws.no_query_reads_the_future,
    variant_of="mask-inverted",
)
def future_open_past_closed(n_query, n_key):
    """True where a query may not attend."""
    return np.arange(n_key) > np.arange(n_query)[:, None] + n_key - n_query


@CAUSAL_MASK.mistake(
    "It is triangular, and the diagonal is there.",
    law=laws.no_query_reads_the_future,
    variant_of="mask-transposed",
)
def upper_triangle(n_query, n_key):
    """np.triu for np.tril: each query reads itself and what comes after it."""
    return np.triu(np.ones((n_query, n_key), bool), n_key - n_query)


@CAUSAL_MASK.mistake(
    "No token should look at the answer, and its own place seems to be one.",
    law=laws.every_query_reads_the_past_and_itself,
)
def strict_mask(n_query, n_key):
    """The diagonal is forbidden too: nobody reads itself, and the first query nothing at all."""
    return np.arange(n_key) < np.arange(n_query)[:, None] + n_key - n_query


@CAUSAL_MASK.mistake(
    "With as many queries as keys it is right, so all of training is.",
    law=laws.a_query_alone_reads_as_the_last_of_many,
    reported="pytorch/pytorch#103082",
)
def aligned_to_the_first_key(n_query, n_key):
    """The first query stands with the first key: one query with a cache reads the oldest alone."""
    return np.tri(n_query, n_key, dtype=bool)


@CAUSAL_MASK.mistake(
    "Zeros and ones draw the same picture.",
    law=laws.masks_are_boolean,
    reported="harvard-edge/cs249r_book#1785",
)
def zeros_and_ones(n_query, n_key):
    """A mask of numbers: somewhere it will be added or multiplied instead of asked."""
    return np.tri(n_query, n_key, n_key - n_query)


@CAUSAL_MASK.mistake(
    "It is what is added to scores before the softmax, and it forbids the right pairs.",
    law=laws.masks_are_boolean,
    variant_of="zeros-and-ones",
)
def zeros_and_minus_infinity(n_query, n_key):
    """0 and -inf to add to scores: asked as a mask, 0 says no, and -inf says yes."""
    return np.where(np.tri(n_query, n_key, n_key - n_query, dtype=bool), 0, -np.inf)


@CAUSAL_MASK.mistake(
    "It is triangular, and every query reads itself and the past.",
    law=laws.no_query_reads_the_future,
)
def one_key_of_the_future(n_query, n_key):
    """The triangle is one place too wide: each query reads the word after its own, the answer."""
    return np.tri(n_query, n_key, n_key - n_query + 1, dtype=bool)


@CAUSAL_MASK.mistake(
    "With as many queries as keys it is right.",
    law=laws.every_query_reads_the_past_and_itself,
    variant_of="aligned-to-the-first-key",
)
def moved_the_other_way(n_query, n_key):
    """The triangle is moved to the left for to the right: the first queries read nothing."""
    return np.tri(n_query, n_key, n_query - n_key, dtype=bool)


# ---- the neighbourhood ---------------------------------------------------------------------------

WINDOW_MASK = Subject(
    name="window mask",
    signature="window_mask(n_query, n_key, *, window)",
    right=window_mask,
    tiers=((call(6, 6, window=2),), (call(3, 7, window=3), call(1, 5, window=1))),
    laws=obeying(laws.WINDOW_MASK_LAWS, laws.mask_inputs),
)


@WINDOW_MASK.mistake(
    "A window of 2 does reach 2 places.",
    law=laws.a_window_of_one_reads_itself,
    reported="huggingface/transformers#39408",
)
def window_one_too_wide(n_query, n_key, *, window):
    """At most `window` places away, where fewer is meant: one key too many on each side."""
    distance = np.arange(n_key) - np.arange(n_query)[:, None] - (n_key - n_query)
    return abs(distance) <= window


@WINDOW_MASK.mistake(
    "The past ends where it should.",
    law=laws.a_window_of_one_reads_itself,
)
def window_without_a_far_side(n_query, n_key, *, window):
    """The distance is not made absolute: all that comes later counts as near."""
    distance = np.arange(n_query)[:, None] + n_key - n_query - np.arange(n_key)
    return distance < window


@WINDOW_MASK.mistake(
    "With as many queries as keys it is right.",
    law=laws.a_window_of_one_reads_itself,
    variant_of="aligned-to-the-first-key",
)
def window_at_the_first_key(n_query, n_key, *, window):
    """The first query stands with the first key, and with a cache looks at the oldest keys."""
    return abs(np.arange(n_query)[:, None] - np.arange(n_key)) < window


# ---- the padding ---------------------------------------------------------------------------------

_LENGTHS = np.array([2, 4, 0])

PADDING_MASK = Subject(
    name="padding mask",
    signature="padding_mask(lengths, n_key)",
    right=padding_mask,
    tiers=((call(_LENGTHS, 4), call(_LENGTHS, 5)),),
    laws=obeying(laws.PADDING_MASK_LAWS, laws.padding_inputs),
)


@PADDING_MASK.mistake(
    "It marks the padding, as its name says.",
    law=laws.padding_is_closed,
    variant_of="mask-inverted",
)
def padding_marked_true(lengths, n_key):
    """True where there is padding."""
    return np.arange(n_key) >= lengths[..., None, None]


@PADDING_MASK.mistake("Every token may be read.", law=laws.padding_is_closed)
def one_key_of_padding_too_many(lengths, n_key):
    """Positions up to the length are open, but they count from 0."""
    return np.arange(n_key) <= lengths[..., None, None]


@PADDING_MASK.mistake(
    "Padding rows are blank in the heatmap.",
    law=laws.padding_is_closed,
    reported="hyunwoongko/transformer#40",
)
def padding_on_the_query_axis(lengths, n_key):
    """What is closed is what padding reads, not who reads padding."""
    return np.arange(n_key)[:, None] < lengths[..., None, None]


@PADDING_MASK.mistake(
    "With as many texts as tokens it fits the scores, without a word.", law=laws.padding_is_closed
)
def no_axis_for_the_queries(lengths, n_key):
    """One row for each text, without an axis for queries: it lines up with queries, not texts."""
    return np.arange(n_key) < lengths[..., None]


# ---- both ----------------------------------------------------------------------------------------


DECODER_MASK = Subject(
    name="causal and padding mask",
    signature="decoder_mask(lengths, n)",
    right=lambda lengths, n: causal_mask(n) & padding_mask(lengths, n),
    tiers=((call(_LENGTHS, 4), call(_LENGTHS, 5)),),
    laws=obeying([laws.both_masks_hold], laws.padding_inputs),
)


@DECODER_MASK.mistake("Both masks are there, and both are used.", law=laws.both_masks_hold)
def or_for_and(lengths, n):
    """A pair that one of the masks allows is open: what the one forbids the other lets pass."""
    return causal_mask(n) | padding_mask(lengths, n)


@DECODER_MASK.mistake(
    "It is triangular, and padding is blank.",
    law=laws.both_masks_hold,
    variant_of="padding-on-the-query-axis",
)
def padded_queries_closed(lengths, n):
    """The rows of the padding are closed, not its columns."""
    return causal_mask(n) & padding_mask(lengths, n).swapaxes(-2, -1)
