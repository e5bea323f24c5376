"""Mistakes in masks. True means "may attend"; the last query stands with the last key."""

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, call, obeying
from qkvlib.numpy import causal_mask

CAUSAL_MASK = Subject(
    name="causal mask",
    signature="causal_mask(n_query, n_key)",
    right=causal_mask,
    tiers=((call(3, 3), call(2, 5), call(1, 4)),),
    laws=obeying(laws.CAUSAL_MASK_LAWS, laws.mask_inputs),
)


@CAUSAL_MASK.mistake(
    "A triangle of True and False; only that True now means what torch.nn.MultiheadAttention "
    "means by it.",
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


@CAUSAL_MASK.mistake("Zeros and ones draw the same picture.", law=laws.masks_are_boolean)
def zeros_and_ones(n_query, n_key):
    """A mask of numbers: somewhere it will be added or multiplied instead of asked."""
    return np.tri(n_query, n_key, n_key - n_query)
