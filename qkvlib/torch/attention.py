"""Attention on torch tensors: the twin of `qkvlib.numpy.attention`, on any device.

Everywhere `...` stands for any leading axes (batch, heads), which broadcast:
query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)`,
scores and weights `(..., n_query, n_key)`, output `(..., n_query, d_v)`.
"""

import math

import torch
import torch.nn.functional as F
from torch.backends import cuda

from qkvlib import _checks, patterns
from qkvlib._chunks import visits
from qkvlib.torch._tensors import (
    check_floating,
    product_dtype,
    shape_of,
    values,
    without_autocast,
    working,
    working_dtype,
)
from qkvlib.torch.masks import (
    allowed_pairs,
    bias_block,
    bias_tensor,
    mask_block,
    without_unreachable,
)


def softmax(scores, axis=-1):
    """Turn scores into weights: positive, and summing to 1 along `axis`.

    scores: floating tensor of any shape. Returns weights of the same shape, dtype and device
    (float32 for half types). A row of -inf, which has nothing to choose from, becomes zeros,
    with gradients of zero.

    Raises `TypeError` for anything but a floating tensor, `ValueError` for an axis that is
    not there.

    Source: Bridle 1990, "Probabilistic interpretation of feedforward classification network
    outputs"; the shift: Goodfellow et al. 2016, "Deep Learning", section 4.1.

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
    lead = _checks.check_value(shape, shape_of(value))
    if bias is None and softcap is None:
        return _fused(query, key, value, mask, scale, shape, lead, dropout)
    allowed = allowed_pairs(mask, bias, shape, query)
    weights = attention_weights(query, key, mask=allowed, bias=bias, scale=scale, softcap=softcap)
    weights = F.dropout(weights, dropout)
    output = weights @ working(without_unreachable(value, allowed))
    return output.to(product_dtype(query))


def _fused(query, key, value, mask, scale, shape, lead, dropout):
    """The same by `F.scaled_dot_product_attention`, which keeps no weights.

    A row of False would be NaN in some kernels: it is opened first and zeroed afterwards.
    On the CPU the kernels round half types on the way: they are given float32.
    """
    if mask is patterns.causal and shape[-2] == shape[-1]:  # what the kernel means by causal
        allowed, is_causal = None, True
    else:
        allowed, is_causal = allowed_pairs(mask, None, shape, query), False
    nothing = None if allowed is None else ~allowed.any(dim=-1, keepdim=True)
    key, value = without_unreachable(key, allowed), without_unreachable(value, allowed)
    limits = torch.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    scaled, scale = _with_positive_scale(query, scale, limits)
    inputs = (scaled, key, value)
    if query.device.type == "cpu":
        inputs = map(working, inputs)
    output = F.scaled_dot_product_attention(
        *(x.expand(*lead, *x.shape[-2:]) for x in inputs),
        attn_mask=None if allowed is None else allowed | nothing,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
    )
    output = output.to(product_dtype(query))
    return output if nothing is None else output.masked_fill(nothing, 0.0)


def _with_positive_scale(query, scale, limits):
    """A query and a scale above 0 that give the same scores.

    Some kernels write -inf where a pair is forbidden and scale afterwards: times 0 that is NaN,
    times a negative number the best score of all.
    """
    if scale >= limits.tiny:
        return query, scale
    return (-query, -scale) if scale <= -limits.tiny else (query * scale, 1.0)


def chunked_attention(
    query, key, value, *, mask=None, bias=None, scale=None, softcap=None, chunk_size=512
):
    """What `scaled_dot_product_attention` computes, without ever holding all the scores.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)` ->
    output `(..., n_query, d_v)` in the query's dtype, on its device (half types are computed
    in float32).
    Each block of queries reads one chunk of keys after the other by the online softmax: when a
    higher score turns up, what was summed so far is rescaled. That is exact, not an estimate,
    and the memory it takes grows with n_query + n_key, not with n_query * n_key. The gradients
    need no more: the scores are computed again, chunk by chunk. Chunks that a block of queries may
    not attend to are not visited; a `qkvlib.patterns.Pattern` knows which ones these are, and is
    asked for one chunk at a time.
    chunk_size: how many keys a chunk has, the last one up to half as many more; a block has half
    as many queries.
    mask, bias, scale, softcap and errors: as in `scaled_dot_product_attention`.

    Without bias, softcap and mask (or with `causal` for as many queries as keys) torch's fused
    kernel does it, where there is one that fits. (Some kernels have no second derivative:
    `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)` keeps them out. The second derivative needs
    the memory of all the scores; forward-mode derivatives there are none.)

    Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3;
    Rabe & Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022,
    "FlashAttention", section 3.1; the gradients: there, appendix B.2.

    >>> query, key = torch.zeros(1, 2), torch.zeros(4, 2)
    >>> chunked_attention(query, key, torch.tensor([[1.0], [3.0], [5.0], [7.0]]), chunk_size=3)
    tensor([[4.]])
    """
    check_floating(query=query, key=key, value=value)
    shape = _checks.check_query_key(shape_of(query), shape_of(key))
    lead = _checks.check_value(shape, shape_of(value))
    chunk_size = _checks.check_count("chunk_size", chunk_size)
    limits = torch.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    softcap = _checks.check_softcap(softcap, limits)
    _chunk(mask, bias, shape, query, range(0), range(0))  # mask and bias must fit
    dtype = product_dtype(query)
    query, key, value = (x.to(dtype).expand(*lead, *x.shape[-2:]) for x in (query, key, value))
    if bias is None and softcap is None:
        flat = 1, math.prod(lead)
        heads = [x.reshape(*flat, *x.shape[-2:]) for x in (query, key, value)]
        if _fused_keeps_no_scores(*heads, mask):
            output = _fused(*heads, mask, scale, (*flat, *shape[-2:]), flat, dropout=0.0)
            return output.reshape(*lead, *output.shape[-2:])
    with without_autocast(query):
        output, *_ = _Chunked.apply(
            query, key, value, bias, mask, shape, scale, softcap, chunk_size
        )
    return output.to(dtype)


def _fused_keeps_no_scores(query, key, value, mask):
    """Whether torch has a fused kernel for these that needs neither the scores nor a mask."""
    is_causal = mask is patterns.causal and query.shape[-2] == key.shape[-2]
    if not (mask is None or is_causal):
        return False
    if query.device.type == "cuda":
        asked = cuda.SDPAParams(query, key, value, None, 0.0, is_causal, False)
        return cuda.can_use_flash_attention(asked) or cuda.can_use_efficient_attention(asked)
    fits = query.shape[-1] == value.shape[-1] and {x.stride(-1) for x in (query, key, value)} == {1}
    return fits and query.device.type == "cpu" and cuda.flash_sdp_enabled()


class _Chunked(torch.autograd.Function):
    """Chunked attention that keeps no scores: the backward pass computes them once more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query, key, value, bias, mask, shape, scale, softcap, chunk_size):
        """The output, and of each query log(sum of exp(score - top)) and its highest score, top."""
        blocks = []
        for rows, chunks in _visited(mask, bias, shape, query, chunk_size):
            read = _read(_rows(query, rows), key, value, chunks, scale, softcap)
            blocks.append(_online_softmax(read, _rows(query, rows), value))
        return tuple(torch.cat(parts, dim=-2) for parts in zip(*blocks))

    @staticmethod
    def setup_context(ctx, inputs, output):
        query, key, value, bias, ctx.mask, *ctx.options = inputs
        ctx.mark_non_differentiable(output[2])  # which shift is taken makes no difference
        ctx.save_for_backward(query, key, value, bias, *output)

    @staticmethod
    def backward(ctx, of_output, of_log_total, _):
        """Through average, softmax and product, as in `attention_weights(...) @ value`."""
        query, key, value, bias, output, log_total, top = ctx.saved_tensors
        shape, scale, softcap, chunk_size = ctx.options
        inputs = query, key, value, bias
        of_query, of_key, of_value, of_bias = (
            _zeros_like(x, [*inputs, of_output]) if needed else None
            for x, needed in zip(inputs, (True, True, True, ctx.needs_input_grad[3]))
        )
        # the gradients of a query's weights, averaged by these weights
        average = (of_output * output).sum(-1, keepdim=True) - of_log_total
        with without_autocast(of_output):
            for rows, chunks in _visited(ctx.mask, bias, shape, query, chunk_size):
                q, g = working(_rows(query, rows)), _rows(of_output, rows)
                for keys, allowed, some_bias in chunks:
                    k, v = (_readable(x, keys, allowed) for x in (key, value))
                    capped = attention_scores(q, k, scale=scale, softcap=softcap)
                    scores = _biased_and_masked(capped, some_bias, allowed)
                    weights = torch.exp(scores - _rows(top, rows) - _rows(log_total, rows))
                    of_scores = weights * (g @ v.mT - _rows(average, rows))
                    if of_bias is not None:
                        _add_to_bias(of_bias, rows, keys, of_scores)
                    if softcap is not None:
                        of_scores = of_scores * (1 - (capped / softcap).square())
                    _rows(of_query, rows).add_(of_scores @ k, alpha=scale)
                    _rows(of_key, keys).add_(of_scores.mT @ q, alpha=scale)
                    _rows(of_value, keys).add_(weights.mT @ g)
        return of_query, of_key, of_value, of_bias, *[None] * 5


def _zeros_like(x, others):
    """Where to add the gradients of `x` up; under vmap batched as soon as one of `others` is."""
    dtype = working_dtype(x)
    zero = sum(other.new_zeros((), dtype=dtype) for other in others if other is not None)
    return torch.zeros_like(x, dtype=dtype) + zero


def _visited(mask, bias, shape, query, chunk_size):
    """Blocks of queries and the chunks of keys that they visit: indices, allowed pairs, bias."""
    for rows, columns in visits(mask, *shape[-2:], chunk_size):
        chunks = (_chunk(some, bias, shape, query, rows, keys) for keys, some in columns)
        yield rows, (chunk for chunk in chunks if not _is_dead(chunk[1]))


def _chunk(mask, bias, shape, query, rows, keys):
    """The indices of a chunk of keys, which pairs of it are allowed (None: all), and its bias."""
    if mask is not None:
        mask = mask_block(mask, shape, query, rows, keys)
    if bias is not None:
        bias = bias_block(bias, shape, query, rows, keys)
    sizes = (x.stop - x.start for x in (rows, keys))  # torch.compile has no len of a range
    return keys, allowed_pairs(mask, bias, (*shape[:-2], *sizes), query), bias


def _is_dead(allowed):
    """Whether no pair is allowed, as far as that can be seen."""
    seen = None if allowed is None else values(allowed)
    return seen is not None and not seen.any()


def _read(query, key, value, chunks, scale, softcap):
    """The scores and values of each of these chunks of keys."""
    query = working(query)
    for keys, allowed, bias in chunks:
        capped = attention_scores(query, working(_rows(key, keys)), scale=scale, softcap=softcap)
        yield _biased_and_masked(capped, bias, allowed), _readable(value, keys, allowed)


def _rows(x, indices):
    return x[..., indices.start : indices.stop, :]


def _readable(x, keys, allowed):
    """Some keys or values in the precision that is computed in, zeros where nobody may read."""
    return working(without_unreachable(_rows(x, keys), allowed))


def _biased_and_masked(scores, bias, allowed):
    if bias is not None:
        scores = scores + bias
    return scores if allowed is None else scores.masked_fill(~allowed, -math.inf)


def _add_to_bias(of_bias, rows, keys, of_scores):
    """Add what the scores of a chunk tell the bias, summed over the axes where it is broadcast."""
    part = patterns.part(of_bias.view((1,) * (2 - of_bias.ndim) + of_bias.shape), rows, keys)
    part += of_scores.sum_to_size(part.shape)


def _online_softmax(chunks, query, value):
    """softmax(scores) @ value, with scores and values coming in chunks `(scores, value)`.

    `total` and `output` are the sums over all keys so far of exp(score - top) and of
    exp(score - top) * value, where `top` is the highest score so far. When a chunk raises it, both
    are multiplied by exp(old top - new top): exp(s - old) * exp(old - new) = exp(s - new).
    Also returns log(total) and the last `top` of each row, which make its weights
    exp(score - top - log(total)); added up first, they would round away the smaller one. For a row
    that read nothing, whose scores are -inf, both are 0.
    """
    query, value = working(query[..., :1]), working(value[..., :1, :])
    top, total = torch.full_like(query, -math.inf), torch.zeros_like(query)
    output = torch.zeros_like(value)
    for scores, value in chunks:
        old, top = top, torch.maximum(top, scores.amax(-1, keepdim=True))
        shift = top.masked_fill(top == -math.inf, 0.0)
        weights, rescale = torch.exp(scores - shift), torch.exp(old - shift)
        total = total * rescale + weights.sum(-1, keepdim=True)
        output = output * rescale + weights @ value
    divisor = total.masked_fill(total == 0, 1.0)
    return output / divisor, divisor.log(), top.masked_fill(top == -math.inf, 0.0)


def _with_empty_rows(scores, axis):
    """`scores` with rows of -inf set to 0, and where those rows are: no gradient becomes NaN."""
    check_floating(scores=scores)
    _checks.check_axis(axis, shape_of(scores))
    scores = working(scores)
    nothing = (scores == -math.inf).all(dim=axis, keepdim=True)
    return scores.masked_fill(nothing, 0.0), nothing
