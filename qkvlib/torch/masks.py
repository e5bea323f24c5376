"""Masks as Boolean torch tensors: True means "may attend"."""

from functools import partial

import numpy as np
import torch

from qkvlib import _checks, patterns
from qkvlib.patterns import Pattern
from qkvlib.torch._tensors import (
    check_devices,
    check_floating,
    check_tensor,
    check_whole,
    shape_of,
    values,
    working_dtype,
)


def causal_mask(n_query, n_key=None, *, offset=None, device=None):
    """No query attends to what comes after it: Boolean `(..., n_query, n_key)`.

    n_query, n_key: whole numbers; `n_key=None` means `n_query`.
    offset: query `i` stands at position `i + offset`, by default `n_key - n_query`, so the
    last query stands with the last key; an integer tensor gives one mask per entry.

    Raises `TypeError` for sizes or offsets that are not whole numbers, `ValueError` for
    negative sizes or no keys.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    >>> causal_mask(2, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return written_out(patterns.causal, n_query, n_key, offset=offset, device=device)


def window_mask(n_query, n_key=None, *, window, offset=None, device=None):
    """Queries attend to what is fewer than `window` places away: Boolean `(..., n_query, n_key)`.

    `window`: a whole number of at least 1; sizes, offset and errors as in `causal_mask`.

    Source: Beltagy et al. 2020, "Longformer", section 3.1; there a window is two-sided too,
    and counts the keys of both sides.

    >>> window_mask(3, window=1).int()
    tensor([[1, 0, 0],
            [0, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    return written_out(patterns.window(window), n_query, n_key, offset=offset, device=device)


def padding_mask(lengths, n_key, *, device=None):
    """Queries attend to the first `lengths` keys, not to the padding: `(*lengths.shape, 1, n_key)`.

    lengths: a whole number per sequence, between 0 and `n_key`, as a tensor or a list.
    The mask lies on `device`, by default that of a tensor of lengths.
    With a head axis write `padding_mask(lengths, n_key)[:, None]`.

    Raises `TypeError` for lengths that are not whole numbers, `ValueError` out of range.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3, where masked
    scores are set to -inf.

    >>> padding_mask([3, 1], 3).int()
    tensor([[[1, 1, 1]],
    <BLANKLINE>
            [[1, 0, 0]]], dtype=torch.int32)
    """
    n_key = _checks.check_count("n_key", n_key)
    if isinstance(lengths, torch.Tensor):
        check_whole("lengths", lengths)
        if (numbers := values(lengths)) is not None:
            _checks.check_lengths(numbers, n_key)
        lengths = lengths.to(lengths.device if device is None else device, torch.int64)
    else:
        lengths = np.asarray(lengths)
        _checks.check_lengths(lengths, n_key)
        lengths = torch.tensor(lengths.astype(np.int64), device=device)
    return torch.arange(n_key, device=lengths.device) < lengths[..., None, None]


def written_out(pattern, n_query, n_key=None, *, offset=None, device=None):
    """A pattern as a Boolean tensor `(..., n_query, n_key)`, computed on `device`."""
    n_query, n_key, offset = _checks.check_range(n_query, n_key, offset, torch.Tensor)
    if isinstance(offset, torch.Tensor):
        device = offset.device if device is None else device
        offset = offset.to(device, torch.int64)
    counts = partial(torch.arange, device=device)
    sizes = n_query, n_key
    return pattern.block(range(n_query), range(n_key), sizes, offset=offset, arange=counts)


def allowed_pairs(mask, bias, shape, query):
    """The pairs that `mask` and `bias` allow, for scores of `shape`; None if they allow all.

    A False in the mask forbids a pair, and so does a -inf in the bias.
    """
    allowed = None if mask is None else mask_tensor(mask, shape, query)
    if bias is None:
        return allowed
    bias = bias_tensor(bias, shape, query)
    finite = bias.reshape((1,) * (len(shape) - bias.ndim) + bias.shape) != -torch.inf
    return finite if allowed is None else allowed & finite


def bias_tensor(bias, shape, query):
    """`bias`, a floating tensor that fits scores of `shape`, in the dtype of the scores."""
    check_bias(bias, shape, query)
    return bias.to(working_dtype(query))


def bias_block(bias, shape, query, queries, keys):
    """`bias_tensor(bias, shape, query)[..., a:b, c:d]` for the ranges queries and keys.

    Axes of size 1 stay as they are.
    """
    check_bias(bias, shape, query)
    bias = bias.reshape((1,) * (2 - bias.ndim) + bias.shape)
    return patterns.part(bias, queries, keys).to(working_dtype(query))


def check_bias(bias, shape, query):
    """`bias` must be a floating tensor that fits scores of `shape`."""
    if getattr(bias, "dtype", None) == torch.bool:
        raise TypeError("bias must be floating, got torch.bool; a Boolean tensor belongs in mask")
    check_floating(bias=bias)
    check_devices(query=query, bias=bias)
    _checks.check_bias_shape(shape_of(bias), shape)


def mask_tensor(mask, shape, query):
    """`mask`, a tensor or a Pattern, as a Boolean tensor that fits scores of `shape`."""
    if isinstance(mask, Pattern):
        return mask_block(mask, shape, query, *map(range, shape[-2:]))
    if hasattr(mask, "dtype"):
        check_tensor("mask", mask)
    if getattr(mask, "dtype", None) != torch.bool:
        raise TypeError(_checks.not_a_mask(mask, "tensor", "torch.tensor(mask)"))
    check_devices(query=query, mask=mask)
    _checks.check_mask_shape(shape_of(mask), shape)
    return mask


def mask_block(mask, shape, query, queries, keys):
    """`mask_tensor(mask, shape, query)[..., a:b, c:d]` for the ranges queries and keys.

    Axes of size 1 stay as they are, and a pattern is asked for these pairs alone.
    """
    if not isinstance(mask, Pattern):
        return patterns.part(mask_tensor(mask, shape, query), queries, keys)
    counts = partial(torch.arange, device=query.device)
    block = mask.block(queries, keys, shape[-2:], arange=counts)
    _checks.check_mask_shape((*block.shape[:-2], *shape[-2:]), shape)
    return block


def without_unreachable(x, allowed):
    """Keys or values `x (..., n_key, d)`, with zeros where no query may attend.

    Their weight is 0 already, but 0 * NaN is NaN: what cannot be reached must not be read.
    """
    if allowed is None:
        return x
    return torch.where(allowed.any(dim=-2)[..., None], x, 0.0)
