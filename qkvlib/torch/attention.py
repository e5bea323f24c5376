"""Attention on torch tensors: the twin of `qkvlib.numpy.attention`, on any device.

Everywhere `...` stands for any leading axes (batch, heads), which broadcast:
query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)`,
scores and weights `(..., n_query, n_key)`, output `(..., n_query, d_v)`.
"""

import math

import torch
import torch.nn.functional as F

from qkvlib import _checks, patterns
from qkvlib.torch._tensors import (
    autocasts,
    check_floating,
    product_dtype,
    shape_of,
    working,
    working_dtype,
)
from qkvlib.torch.masks import allowed_pairs, bias_tensor, without_unreachable


def softmax(scores, axis=-1):
    """Turn scores into weights: positive, and summing to 1 along `axis`.

    scores: floating tensor of any shape. Returns weights of the same shape, dtype and device
    (float32 for half types). A row of -inf, which has nothing to choose from, becomes zeros,
    with gradients of zero.

    Raises `TypeError` for anything but a floating tensor, `ValueError` for an axis that is
    not there.

    Source: Bridle 1990, "Probabilistic interpretation of feedforward classification network
    outputs", section 2; the shift: Goodfellow et al. 2016, "Deep Learning", section 4.1.

    >>> softmax(torch.tensor([1000.0, 1000.0, -torch.inf]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    scores, nothing = _with_empty_rows(scores, axis)
    return torch.softmax(scores, axis).masked_fill(nothing, 0.0)


def log_softmax(scores, axis=-1):
    """The logarithm of `softmax`, exact where the weight itself would round to 0.

    scores: floating tensor of any shape. Returns the same shape, dtype and device (float32
    for half types). A row of -inf stays a row of -inf. Raises what `softmax` raises.

    Source: log-sum-exp, Goodfellow et al. 2016, "Deep Learning", section 4.1.

    >>> log_softmax(torch.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    scores, nothing = _with_empty_rows(scores, axis)
    return torch.log_softmax(scores, axis).masked_fill(nothing, -torch.inf)


def attention_scores(query, key, *, bias=None, scale=None, softcap=None):
    """How well each query matches each key: `softcap(scale * query key^T) + bias`.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)` -> scores `(..., n_query, n_key)`,
    in the inputs' dtype (float32 for half types), on their device. Under autocast the product is
    computed in autocast's dtype, and returned in float32.
    bias: floating tensor that broadcasts to the scores; -inf forbids a pair.
    scale: a number, by default `1 / sqrt(d_k)`. It multiplies the query before the product.
    softcap: a positive number `c` that bounds the scores, `c * tanh(scores / c)`.

    Raises `ValueError` for shapes or devices that do not fit and numbers out of range,
    `TypeError` for anything but floating tensors of one dtype.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.1;
    softcap: Gemma Team 2024, "Gemma 2", section 2.

    >>> query, key = torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 1.0], [0.0, 1.0]])
    >>> attention_scores(query, key, scale=1)
    tensor([[6., 0.]])
    """
    check_floating(query=query, key=key)
    shape = _checks.check_query_key(shape_of(query), shape_of(key))
    limits = torch.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    softcap = _checks.check_softcap(softcap, limits)
    scores = working((working(query) * scale) @ working(key).transpose(-2, -1))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias_tensor(bias, shape, query)
    return scores


def attention_weights(query, key, *, mask=None, bias=None, scale=None, softcap=None):
    """How much each query reads of each key: `softmax` of the scores it may use.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)` -> weights `(..., n_query, n_key)`,
    in the inputs' dtype (float32 for half types and under autocast), on their device.
    mask: Boolean tensor, True means "may attend", with 2 axes or as many as the scores, or a
    `qkvlib.patterns.Pattern`. A query that may attend to nothing gets weights of zero.
    bias, scale, softcap and errors: as in `attention_scores`; `TypeError` for a mask that is
    not Boolean, `ValueError` for one that does not fit the scores.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1; the mask: section 3.2.3.

    >>> query = key = torch.tensor([[1.0], [0.0]])
    >>> attention_weights(query, key, mask=torch.tensor([[True, False], [True, True]]))
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    check_floating(query=query, key=key)
    shape = _checks.check_query_key(shape_of(query), shape_of(key))
    allowed = allowed_pairs(mask, bias, shape, query)
    key = without_unreachable(key, allowed)
    scores = attention_scores(query, key, bias=bias, scale=scale, softcap=softcap)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return softmax(scores)


def scaled_dot_product_attention(
    query, key, value, *, mask=None, bias=None, scale=None, softcap=None
):
    """For each query the average of the values, weighted by how well their keys match it.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)` ->
    output `(..., n_query, d_v)` in the query's dtype, on its device (half types are computed
    in float32); under autocast in autocast's dtype, as torch's own. A query that may attend to
    nothing gets zeros, with gradients of zero. What a key or its value holds cannot reach a
    query that may not attend to it, not even NaN if no query may.
    mask, bias, scale, softcap and errors: as in `attention_weights`.

    Without bias and softcap torch's fused kernel computes the same without keeping the weights.
    (There a forbidden pair whose score overflows to infinity leaves NaN. Some kernels have no
    second derivative: `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)` chooses one that has.)

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.

    >>> query, key = torch.zeros(1, 2), torch.zeros(2, 2)
    >>> scaled_dot_product_attention(query, key, torch.tensor([[1.0], [3.0]]))
    tensor([[2.]])
    """
    return attend(query, key, value, mask, bias, scale, softcap)


def attend(query, key, value, mask=None, bias=None, scale=None, softcap=None, dropout=0.0):
    """`scaled_dot_product_attention` that drops this share of the weights."""
    check_floating(query=query, key=key, value=value)
    shape = _checks.check_query_key(shape_of(query), shape_of(key))
    _checks.check_value(shape, shape_of(value))
    if bias is None and softcap is None:
        return _fused(query, key, value, mask, scale, shape, dropout)
    allowed = allowed_pairs(mask, bias, shape, query)
    weights = attention_weights(query, key, mask=allowed, bias=bias, scale=scale, softcap=softcap)
    weights = F.dropout(weights, dropout) if dropout else weights
    output = weights @ working(without_unreachable(value, allowed))
    return output.to(product_dtype(query))


def _fused(query, key, value, mask, scale, shape, dropout):
    """The same by `F.scaled_dot_product_attention`, which keeps no weights.

    A row of False would be NaN in some kernels: it is opened first and zeroed afterwards.
    On the CPU the kernels round half types on the way: they are given float32.
    """
    is_causal = mask is patterns.causal and shape[-2] == shape[-1]
    allowed = None if is_causal else allowed_pairs(mask, None, shape, query)
    nothing = None if allowed is None else ~allowed.any(dim=-1, keepdim=True)
    key, value = without_unreachable(key, allowed), without_unreachable(value, allowed)
    lead = torch.broadcast_shapes(shape[:-2], value.shape[:-2])
    inputs = (query, key, value)
    if query.device.type == "cpu" and not autocasts(query):
        inputs = map(working, inputs)
    output = F.scaled_dot_product_attention(
        *(x.expand(*lead, *x.shape[-2:]) for x in inputs),
        attn_mask=None if allowed is None else allowed | nothing,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=_checks.resolve_scale(scale, query.shape[-1], torch.finfo(working_dtype(query))),
    )
    output = output.to(product_dtype(query))
    return output if nothing is None else output.masked_fill(nothing, 0.0)


def _with_empty_rows(scores, axis):
    """`scores` with rows of -inf set to 0, and where those rows are: no gradient becomes NaN."""
    check_floating(scores=scores)
    _checks.check_axis(axis, shape_of(scores))
    scores = working(scores)
    nothing = (scores == -math.inf).all(dim=axis, keepdim=True)
    return scores.masked_fill(nothing, 0.0), nothing
