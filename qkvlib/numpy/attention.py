"""Attention on NumPy arrays: softmax, scores, weights, output. Written to be read.

Everywhere `...` stands for any leading axes (batch, heads), which broadcast:
query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)`,
scores and weights `(..., n_query, n_key)`, output `(..., n_query, d_v)`.
"""

import numpy as np

from qkvlib import _checks
from qkvlib._chunks import visits
from qkvlib.numpy._arrays import check_floating, working, working_dtype
from qkvlib.numpy._threads import for_each
from qkvlib.numpy.masks import (
    allowed_pairs,
    bias_array,
    bias_block,
    mask_block,
    without_unreachable,
)


def softmax(scores, axis=-1):
    """Turn scores into weights: positive, and summing to 1 along `axis`.

    scores: floating array of any shape. Returns weights of the same shape and dtype
    (float32 for float16). A row of -inf, which has nothing to choose from, becomes zeros.

    Each row's maximum is subtracted first. That changes no weight, since
    exp(s - m) / sum(exp(s - m)) = exp(s) / sum(exp(s)), and keeps exp from overflowing.

    Raises `TypeError` for anything but a floating NumPy array, `ValueError` for an axis
    that is not there.

    Source: Bridle 1990, "Probabilistic interpretation of feedforward classification network
    outputs"; the shift: Goodfellow et al. 2016, "Deep Learning", section 4.1.

    >>> softmax(np.array([1000.0, 1000.0, -np.inf]))
    array([0.5, 0.5, 0. ])
    """
    shifted = _shifted(scores, axis)
    exponentials = np.exp(shifted)
    return exponentials / _or_one(exponentials.sum(axis, keepdims=True))


def log_softmax(scores, axis=-1):
    """The logarithm of `softmax`, exact where the weight itself would round to 0.

    scores: floating array of any shape. Returns the same shape and dtype (float32 for
    float16). A row of -inf stays a row of -inf. Raises what `softmax` raises.

    Source: log-sum-exp, Goodfellow et al. 2016, "Deep Learning", section 4.1.

    >>> log_softmax(np.array([0.0, 1000.0]))
    array([-1000.,     0.])
    """
    shifted = _shifted(scores, axis)
    return shifted - np.log(_or_one(np.exp(shifted).sum(axis, keepdims=True)))


def attention_scores(query, key, *, bias=None, scale=None, softcap=None):
    """How well each query matches each key: `softcap(scale * query key^T) + bias`.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)` -> scores `(..., n_query, n_key)`,
    in the inputs' dtype (float32 for float16).
    bias: floating array that broadcasts to the scores; -inf forbids a pair.
    scale: a number, by default `1 / sqrt(d_k)`. It multiplies the query before the product.
    softcap: a positive number `c` that bounds the scores, `c * tanh(scores / c)`.

    Raises `ValueError` for shapes that do not fit and numbers out of range, `TypeError` for
    anything but floating NumPy arrays of one dtype.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.1;
    softcap: Gemma Team 2024, "Gemma 2", section 2.

    >>> attention_scores(np.array([[2.0, 0.0]]), np.array([[3.0, 1.0], [0.0, 1.0]]), scale=1)
    array([[6., 0.]])
    """
    check_floating(query=query, key=key)
    shape = _checks.check_query_key(query.shape, key.shape)
    limits = np.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    softcap = _checks.check_softcap(softcap, limits)
    scores = _capped(working(query) * scale, working(key), softcap)
    if bias is not None:
        scores = scores + bias_array(bias, shape, query)
    return scores


def attention_weights(query, key, *, mask=None, bias=None, scale=None, softcap=None):
    """How much each query reads of each key: `softmax` of the scores it may use.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)` -> weights `(..., n_query, n_key)`,
    in the inputs' dtype (float32 for float16).
    mask: Boolean array, True means "may attend", with 2 axes or as many as the scores, or a
    `qkvlib.patterns.Pattern`. A query that may attend to nothing gets weights of zero.
    bias, scale, softcap and errors: as in `attention_scores`; `TypeError` for a mask that is
    not Boolean, `ValueError` for one that does not fit the scores.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1; the mask: section 3.2.3.

    >>> query = key = np.array([[1.0], [0.0]])
    >>> attention_weights(query, key, mask=np.array([[True, False], [True, True]]))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    check_floating(query=query, key=key)
    shape = _checks.check_query_key(query.shape, key.shape)
    allowed = allowed_pairs(mask, bias, shape, query)
    scores = attention_scores(
        query, without_unreachable(key, allowed), bias=bias, scale=scale, softcap=softcap
    )
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    return softmax(scores)


def scaled_dot_product_attention(
    query, key, value, *, mask=None, bias=None, scale=None, softcap=None
):
    """For each query the average of the values, weighted by how well their keys match it.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)` ->
    output `(..., n_query, d_v)` in the query's dtype (float16 is computed in float32).
    A query that may attend to nothing gets zeros. What a key or its value holds cannot reach
    a query that may not attend to it, not even NaN if no query may.
    mask, bias, scale, softcap and errors: as in `attention_weights`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.

    >>> query, key = np.zeros((1, 2)), np.zeros((2, 2))
    >>> scaled_dot_product_attention(query, key, np.array([[1.0], [3.0]]))
    array([[2.]])
    """
    check_floating(query=query, key=key, value=value)
    shape = _checks.check_query_key(query.shape, key.shape)
    _checks.check_value(shape, value.shape)
    allowed = allowed_pairs(mask, bias, shape, query)
    weights = attention_weights(query, key, mask=allowed, bias=bias, scale=scale, softcap=softcap)
    output = weights @ working(without_unreachable(value, allowed))
    return output.astype(query.dtype.type, copy=False)


def chunked_attention(
    query, key, value, *, mask=None, bias=None, scale=None, softcap=None, chunk_size=512
):
    """What `scaled_dot_product_attention` computes, without ever holding all the scores.

    query `(..., n_query, d_k)`, key `(..., n_key, d_k)`, value `(..., n_key, d_v)` ->
    output `(..., n_query, d_v)` in the query's dtype (float16 is computed in float32).
    Each block of queries reads one chunk of keys after the other by the online softmax: when a
    higher score turns up, what was summed so far is rescaled. That is exact, not an estimate,
    and the memory it takes grows with n_query + n_key, not with n_query * n_key. Chunks that
    a block of queries may not attend to are not visited; a `qkvlib.patterns.Pattern` knows which
    ones these are, and is asked for one chunk at a time.
    Threads share the blocks, as many as NumPy's OpenBLAS may use (OPENBLAS_NUM_THREADS).
    chunk_size: how many keys a chunk has, the last one up to half as many more; a block has half
    as many queries.
    mask, bias, scale, softcap and errors: as in `scaled_dot_product_attention`.

    Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3;
    Rabe & Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022,
    "FlashAttention", section 3.1.

    >>> query, key = np.zeros((1, 2)), np.zeros((4, 2))
    >>> chunked_attention(query, key, np.array([[1.0], [3.0], [5.0], [7.0]]), chunk_size=3)
    array([[4.]])
    """
    check_floating(query=query, key=key, value=value)
    shape = _checks.check_query_key(query.shape, key.shape)
    lead = _checks.check_value(shape, value.shape)
    chunk_size = _checks.check_count("chunk_size", chunk_size)
    limits = np.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    softcap = _checks.check_softcap(softcap, limits)
    _chunk(mask, bias, shape, query, range(0), range(0))  # mask and bias must fit
    output = np.empty((*lead, shape[-2], value.shape[-1]), query.dtype.type)
    queries, keys, values = (_spread(x, lead) for x in (query, key, value))

    def blocks():
        for rows, columns in visits(mask, *shape[-2:], chunk_size):
            chunks = [_chunk(some, bias, shape, query, rows, keys) for keys, some in columns]
            chunks = [(keys, *(_spread(x, lead) for x in rest)) for keys, *rest in chunks]
            for item in np.ndindex(lead):  # one head of one sequence: two axes are left
                yield item, slice(rows.start, rows.stop), chunks

    def attend(item, rows, chunks):
        own = [(keys, *(x if x is None else x[item] for x in rest)) for keys, *rest in chunks]
        scaled = working(queries[item][rows]) * scale
        output[item][rows] = _online_softmax(_read(scaled, keys[item], values[item], own, softcap))

    for_each(attend, blocks())
    return output


def _spread(x, lead):
    """`x`, which may be None, with these leading axes, to which its own broadcast."""
    return None if x is None else np.broadcast_to(x, (*lead, *x.shape[-2:]))


def _chunk(mask, bias, shape, query, rows, keys):
    """A chunk of keys: its slice, the pairs it forbids, the keys that nobody may read, its bias.

    Each of the last three may be None: nothing forbidden, everything read, no bias.
    """
    if mask is not None:
        mask = mask_block(mask, shape, rows, keys)
    if bias is not None:
        bias = bias_block(bias, shape, query, rows, keys)
    allowed = allowed_pairs(mask, bias, (*shape[:-2], len(rows), len(keys)), query)
    forbidden = unread = None
    if allowed is not None and not allowed.all():
        forbidden = ~allowed
        unread = forbidden.all(axis=-2)[..., None]
    return slice(keys.start, keys.stop), forbidden, unread, bias


def _read(query, key, value, chunks, softcap):
    """The scores and values of each chunk of keys that some of these queries may attend to."""
    for keys, forbidden, unread, bias in chunks:
        k, v = working(key[keys]), working(value[keys])
        if unread is not None and unread.any():  # their weight will be 0, but 0 * NaN is NaN
            if unread.all():
                continue
            k, v = np.where(unread, 0, k), np.where(unread, 0, v)
        scores = _capped(query, k, softcap)
        if bias is not None:
            scores += bias
        if forbidden is not None:
            np.copyto(scores, -np.inf, where=forbidden)
        yield scores, v


def _online_softmax(chunks):
    """softmax(scores) @ value, with scores and values coming in chunks `(scores, value)`.

    `total` and `output` are the sums over all keys so far of exp(score - top) and of
    exp(score - top) * value, where `top` is the highest score so far. When a chunk raises it, both
    are multiplied by exp(old top - new top): exp(s - old) * exp(old - new) = exp(s - new).
    """
    top, total, output = -np.inf, 0.0, 0.0
    for scores, value in chunks:
        old, top = top, np.maximum(top, scores.max(-1, keepdims=True))
        shift = np.where(top == -np.inf, 0, top)  # a row that has nothing to read so far
        with np.errstate(over="ignore"):  # that far below the top a weight is 0
            weights = np.exp(np.subtract(scores, shift, out=scores), out=scores)
            rescale = np.exp(old - shift)
        total = total * rescale + weights.sum(-1, keepdims=True)
        output = output * rescale + weights @ value
    return output / _or_one(total)


def _capped(query, key, softcap):
    """`query key^T`, and, if there is a softcap, how it bounds that."""
    scores = query @ key.swapaxes(-2, -1)
    if softcap is not None:
        with np.errstate(over="ignore"):  # tanh of infinity is 1
            scores = softcap * np.tanh(scores / softcap)
    return scores


def _shifted(scores, axis):
    """`scores` less their maximum along `axis`; a row of -inf stays as it is."""
    check_floating(scores=scores)
    _checks.check_axis(axis, scores.shape)
    scores = working(scores)
    top = scores.max(axis, keepdims=True, initial=-np.inf)  # of an empty row too
    with np.errstate(over="ignore"):  # that far below the maximum a weight is 0
        return scores - np.where(top == -np.inf, 0, top)


def _or_one(total):
    """The divisor of a row: its sum, or 1 where a row of -inf left nothing to sum."""
    return np.where(total == 0, 1, total)
