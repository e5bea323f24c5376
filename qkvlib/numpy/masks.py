"""Masks as Boolean NumPy arrays: True means "may attend"."""

import numpy as np

from qkvlib import _checks, patterns
from qkvlib.numpy._arrays import check_array, check_floating, working_dtype
from qkvlib.patterns import Pattern


def causal_mask(n_query, n_key=None, *, offset=None):
    """No query attends to what comes after it: Boolean `(..., n_query, n_key)`.

    n_query, n_key: whole numbers; `n_key=None` means `n_query`.
    offset: query `i` stands at position `i + offset`, by default `n_key - n_query`, so the
    last query stands with the last key; an integer array gives one mask per entry.

    Raises `TypeError` for sizes or offsets that are not whole numbers, `ValueError` for
    negative sizes or no keys.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    >>> causal_mask(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    return patterns.causal.array(n_query, n_key, offset=offset)


def window_mask(n_query, n_key=None, *, window, offset=None):
    """Queries attend to what is fewer than `window` places away: Boolean `(..., n_query, n_key)`.

    `window`: a whole number of at least 1; sizes, offset and errors as in `causal_mask`.

    Source: Beltagy et al. 2020, "Longformer", section 3.1; there a window is two-sided too,
    and counts the keys of both sides.

    >>> window_mask(3, window=1).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    return patterns.window(window).array(n_query, n_key, offset=offset)


def padding_mask(lengths, n_key):
    """Queries attend to the first `lengths` keys, not to the padding: `(*lengths.shape, 1, n_key)`.

    lengths: a whole number per sequence, between 0 and `n_key`, as an array or a list.
    With a head axis write `padding_mask(lengths, n_key)[:, None]`.

    Raises `TypeError` for lengths that are not whole numbers, `ValueError` out of range.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3, where masked
    scores are set to -inf.

    >>> padding_mask([3, 1], 3).astype(int)
    array([[[1, 1, 1]],
    <BLANKLINE>
           [[1, 0, 0]]])
    """
    n_key = _checks.check_count("n_key", n_key)
    lengths = np.asarray(lengths)
    _checks.check_lengths(lengths, n_key)
    return np.arange(n_key) < lengths[..., None, None]


def allowed_pairs(mask, bias, shape, query):
    """The pairs that `mask` and `bias` allow, for scores of `shape`; None if they allow all.

    A False in the mask forbids a pair, and so does a -inf in the bias.
    """
    allowed = None if mask is None else mask_array(mask, shape)
    if bias is None:
        return allowed
    bias = bias_array(bias, shape, query)
    finite = bias.reshape((1,) * (len(shape) - bias.ndim) + bias.shape) != -np.inf
    if finite.all():
        return allowed
    return finite if allowed is None else allowed & finite


def bias_array(bias, shape, query):
    """`bias`, a floating array that fits scores of `shape`, in the dtype of the scores."""
    check_bias(bias, shape)
    return _as_scores(bias, query)


def bias_block(bias, shape, query, queries, keys):
    """`bias_array(bias, shape, query)[..., a:b, c:d]` for the ranges queries and keys.

    Axes of size 1 stay as they are.
    """
    check_bias(bias, shape)
    bias = bias.reshape((1,) * (2 - bias.ndim) + bias.shape)
    return _as_scores(patterns.part(bias, queries, keys), query)


def check_bias(bias, shape):
    """`bias` must be a floating array that fits scores of `shape`."""
    if getattr(bias, "dtype", None) == np.bool_:
        raise TypeError("bias must be floating, got bool; a Boolean array belongs in mask")
    check_floating(bias=bias)
    _checks.check_bias_shape(bias.shape, shape)


def mask_array(mask, shape):
    """`mask`, an array or a Pattern, as a Boolean array that fits scores of `shape`."""
    if isinstance(mask, Pattern):
        return mask_block(mask, shape, *map(range, shape[-2:]))
    if hasattr(mask, "dtype"):
        check_array("mask", mask)
    if getattr(mask, "dtype", None) != np.bool_:
        raise TypeError(_checks.not_a_mask(mask, "NumPy array", "np.asarray(mask)"))
    _checks.check_mask_shape(mask.shape, shape)
    return mask


def mask_block(mask, shape, queries, keys):
    """`mask_array(mask, shape)[..., a:b, c:d]` for the ranges queries and keys.

    Axes of size 1 stay as they are, and a pattern is asked for these pairs alone.
    """
    if not isinstance(mask, Pattern):
        return patterns.part(mask_array(mask, shape), queries, keys)
    block = mask.block(queries, keys, shape[-2:])
    _checks.check_mask_shape((*block.shape[:-2], *shape[-2:]), shape)
    return block


def without_unreachable(x, allowed):
    """Keys or values `x (..., n_key, d)`, with zeros where no query may attend.

    Their weight is 0 already, but 0 * NaN is NaN: what cannot be reached must not be read.
    """
    if allowed is None:
        return x
    reached = allowed.any(axis=-2)[..., None]
    return x if reached.all() else np.where(reached, x, 0)


def _as_scores(bias, query):
    with np.errstate(over="ignore"):  # beyond the scores' range is infinite
        return bias.astype(working_dtype(query), copy=False)
