"""What can be read off the arrays of an attention layer, of NumPy or of torch alike.

Everything is computed in float64 on the CPU and returned as NumPy numbers or arrays, so that a
reading never overflows, whatever it reads.
"""

import math

import numpy as np

from qkvlib import _checks, patterns

__all__ = [
    "dead_heads",
    "duplicate_heads",
    "entropy",
    "forbidden_weight",
    "head_distance",
    "key_spread",
    "nan_share",
    "normalized_entropy",
    "rms",
    "row_sums",
    "score_range",
    "score_scale",
    "score_std",
    "softmax_slope",
    "token_spread",
]


def entropy(weights):
    """How many keys a query spreads its weight over, as a logarithm: `-sum p ln p` of each row.

    weights `(..., n_query, n_key)` -> `(..., n_query)`: 0 for one key, ln(n) for n keys alike.
    `np.exp` of it is the effective number of keys.

    Source: Shannon 1948, "A Mathematical Theory of Communication", section 6.

    >>> np.exp(entropy(np.array([[1.0, 0.0], [0.5, 0.5]])))
    array([1., 2.])
    """
    p = as_float64("weights", weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * np.log(p), p).sum(axis=-1) + 0.0


def normalized_entropy(weights, mask=None):
    """`entropy` as a share of the largest that the mask allows: 1 for a row that is all the same.

    weights `(..., n_query, n_key)`, mask as in `attention_weights` -> `(..., n_query)`; NaN for
    a query with fewer than two keys, which has no choice.

    Source: Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy
    Collapse", which watches the entropy of the rows; ln(n) is the largest that it can be.

    >>> normalized_entropy(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), np.tri(2, 3) > 0)
    array([nan,  1.])
    """
    choices = allowed_pairs(mask, weights).sum(axis=-1)
    return np.divide(
        entropy(weights),
        np.log(np.maximum(choices, 2)),
        out=np.full(choices.shape, np.nan),
        where=choices > 1,
    )


def row_sums(weights):
    """The sum of each row of weights `(..., n_query, n_key)` -> `(..., n_query)`; it should be 1.

    >>> row_sums(np.array([[0.25, 0.75], [0.5, 0.0]]))
    array([1. , 0.5])
    """
    return as_float64("weights", weights).sum(axis=-1)


def forbidden_weight(weights, mask):
    """The weight of each query on keys that it may not attend to; it should be 0.

    weights `(..., n_query, n_key)`, mask as in `attention_weights` -> `(..., n_query)`

    >>> forbidden_weight(np.array([[0.25, 0.75], [0.5, 0.5]]), np.tri(2) > 0)
    array([0.75, 0.  ])
    """
    allowed = allowed_pairs(mask, weights)
    return as_float64("weights", weights).sum(axis=-1, where=~allowed)


def score_std(scores, mask=None):
    """How far the scores of a row differ: the standard deviation over the keys allowed.

    scores `(..., n_query, n_key)`, mask as in `attention_weights` -> `(..., n_query)`; 0 for a
    query with fewer than two keys. Around 1 before training, when queries, keys and the scale
    are right.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, footnote 4: the
    product of a query and a key has variance d_k, which the scale brings to 1.

    >>> score_std(np.array([[1.0, 3.0], [5.0, 5.0]]))
    array([1., 0.])
    """
    allowed = allowed_pairs(mask, scores)
    some = np.where(allowed.any(axis=-1, keepdims=True), allowed, True)
    with np.errstate(invalid="ignore"):
        spread = as_float64("scores", scores).std(axis=-1, where=some)
    return np.where(allowed.any(axis=-1), spread, 0.0)


def score_range(scores):
    """The largest absolute score as a share of the largest number of its dtype.

    scores: floating array of any shape -> a float; NaN where there is NaN, infinity where the
    dtype was left. -inf, a forbidden pair, is not counted.

    >>> score_range(np.array([6.0, -32752.0], np.float16))
    0.5
    """
    size = np.abs(as_float64("scores", scores))
    size = np.where(as_float64("scores", scores) == -np.inf, 0.0, size)
    return float(size.max(initial=0.0) / largest_number(scores))


def nan_share(x):
    """The share of numbers that are NaN, or +infinity, which softmax turns into NaN.

    x: floating array of any shape -> a float. -inf, a forbidden pair, is not counted.

    >>> nan_share(np.array([1.0, np.nan, np.inf, -np.inf]))
    0.5
    """
    x = as_float64("x", x)
    return float((np.isnan(x) | (x == np.inf)).mean()) if x.size else 0.0


def rms(x):
    """The length of each vector divided by the square root of its width, or root mean square.

    x `(..., n, d)` -> `(..., n)`. Of queries and keys it is about 1 before training.

    >>> rms(np.array([[3.0, 4.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0]]))
    array([2.5, 1. ])
    """
    x = as_float64("x", x)
    _checks.check_axes("x", x.shape, 1, "(..., d)")
    return np.sqrt((x**2).mean(axis=-1))


def key_spread(key, where=None):
    """How different the keys are: their mean distance to the mean key, by their mean length.

    key `(..., n_key, d_k)`, where: Boolean `(..., n_key)`, the keys that count, all for None ->
    `(...)`, one for each head. 0 when all keys are the same (or 0): then all scores of a query
    are the same too. About 1 for keys in random directions.

    >>> key_spread(np.array([[3.0, 4.0], [3.0, -4.0]]))
    0.8
    """
    key = as_float64("key", key)
    _checks.check_axes("key", key.shape, 2, "(..., n_key, d_k)")
    key, centred = _around_mean(key, where)
    return _ratio(np.linalg.norm(centred, axis=-1).sum(-1), np.linalg.norm(key, axis=-1).sum(-1))


def token_spread(x, where=None):
    """How different the tokens are: `||x - mean|| / ||x||` over all tokens of a text.

    x `(..., n, d_model)`, where: Boolean `(..., n)`, the tokens that count, all for None ->
    `(...)`: 0 when all tokens are the same, 1 when their mean is 0.

    Source: Dong et al. 2021, "Attention is Not All You Need: Pure Attention Loses Rank Doubly
    Exponentially with Depth", section 2, the residual that goes to 0; with the Frobenius norm.

    >>> token_spread(np.array([[3.0, 4.0], [3.0, -4.0]]))
    0.8
    """
    x = as_float64("x", x)
    _checks.check_axes("x", x.shape, 2, "(..., n, d_model)")
    x, centred = _around_mean(x, where)
    return _ratio(np.linalg.norm(centred, axis=(-2, -1)), np.linalg.norm(x, axis=(-2, -1)))


def score_scale(query, key, scores):
    """The scale by which scores rise with `query key^T`, whatever the code says, times `sqrt(d_k)`.

    query `(..., h, n, d_k)`, key `(..., h_kv, n, d_k)`, scores `(..., h, n, n)` of the same tokens
    -> a float: 1 for the scale `1 / sqrt(d_k)`, `sqrt(d_k)` without a scale; NaN when nothing
    differs. Seen where a token meets itself: a rotation by position changes nothing there.

    >>> x = np.array([[[2.0, 0.0, 1.0, 1.0], [0.0, 3.0, 0.0, 1.0]]])
    >>> score_scale(x, x, x @ x.swapaxes(-2, -1) / 4)
    0.5
    """
    query, key = as_float64("query", query), as_float64("key", key)
    for name, x in (("query", query), ("key", key)):
        _checks.check_axes(name, x.shape, 3, "(..., h, n, d_k)")
    key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    scores = as_float64("scores", scores).diagonal(axis1=-2, axis2=-1)
    return _slope((query * key).sum(axis=-1), scores) * math.sqrt(query.shape[-1])


def softmax_slope(scores, weights, mask=None):
    """How steeply the logarithms of the weights rise with the scores: 1 after one softmax.

    scores, weights `(..., n_query, n_key)`, mask as in `attention_weights` -> a float: `1 / t` for
    a temperature t, NaN when no scores of a row differ.

    >>> scores = np.array([[0.0, 1.0, 3.0]])
    >>> round(softmax_slope(scores, np.exp(scores / 4) / np.exp(scores / 4).sum()), 9)
    0.25
    """
    scores, weights = as_float64("scores", scores), as_float64("weights", weights)
    seen = allowed_pairs(mask, weights) & (weights > 0)
    return _slope(scores, np.log(np.where(seen, weights, 1.0)), where=seen)


def head_distance(weights):
    """How differently any two heads read: the mean Jensen-Shannon divergence of their rows.

    weights `(..., h, n_query, n_key)` -> `(h, h)`: 0 for heads that read alike, 1 (the
    logarithm is that of 2) for heads that never read the same key. Mean over queries and texts.

    Source: Clark et al. 2019, "What Does BERT Look At? An Analysis of BERT's Attention",
    section 6, where the divergences are summed over the tokens.

    >>> head_distance(np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    weights = as_float64("weights", weights)
    _checks.check_axes("weights", weights.shape, 3, "(..., h, n_query, n_key)")
    own = entropy(weights)
    distance = np.zeros((weights.shape[-3],) * 2)
    for i, j in zip(*np.triu_indices(len(distance), 1)):
        both = entropy((weights[..., i, :, :] + weights[..., j, :, :]) / 2)
        apart = (both - (own[..., i, :] + own[..., j, :]) / 2).mean() / np.log(2)
        distance[i, j] = distance[j, i] = max(apart, 0.0)
    return distance


def duplicate_heads(weights, limit=1e-3):
    """The pairs of heads that read alike: `head_distance` below `limit`.

    weights `(..., h, n_query, n_key)` -> a list of pairs `(i, j)`, i < j

    >>> duplicate_heads(np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    [(0, 2)]
    """
    distance = head_distance(weights)
    alike = zip(*np.nonzero(np.triu(distance < limit, 1)))
    return [(int(i), int(j)) for i, j in alike]


def dead_heads(contributions, limit=1e-3):
    """The heads that add next to nothing to the output.

    contributions `(..., h, n_query, d_out)`, what each head adds, as
    `MultiHeadAttention.head_contributions` returns them -> a list of heads whose root mean
    square is below `limit` times that of the heads together.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 3: a head
    that can be left out. There the loss decides; this looks at the sum that a head enters.

    >>> dead_heads(np.array([[[1.0, 2.0]], [[0.0, 0.0]], [[2.0, 1.0]]]))
    [1]
    """
    contributions = as_float64("contributions", contributions)
    _checks.check_axes("contributions", contributions.shape, 3, "(..., h, n_query, d_out)")
    others = tuple(axis for axis in range(contributions.ndim) if axis != contributions.ndim - 3)
    size = np.sqrt((contributions**2).mean(axis=others))
    return [int(i) for i in np.flatnonzero(size <= limit * np.sqrt((size**2).mean()))]


# ---- what they share -----------------------------------------------------------------------------


def as_float64(name, x):
    """A floating array of NumPy or torch as a NumPy array in float64."""
    if is_torch(x):
        x = x.detach().cpu()
        x = x.double().numpy() if x.is_floating_point() else x.numpy()
    if getattr(getattr(x, "dtype", None), "kind", None) != "f":
        got = getattr(x, "dtype", type(x).__name__)
        raise TypeError(
            f"{name} must be a floating NumPy array or torch tensor, got {got}; "
            f"write np.asarray({name}, float)"
        )
    return np.asarray(x, np.float64)


def is_torch(x):
    return hasattr(x, "detach")


def allowed_pairs(mask, scores):
    """The mask written out for all scores or weights, as a NumPy array; None allows all."""
    shape = tuple(scores.shape)
    _checks.check_axes("scores", shape, 2, "(..., n_query, n_key)")
    if mask is None:
        return np.ones(shape, bool)
    mask = mask_array(mask, *shape[-2:], is_torch(scores))
    _checks.check_mask_shape(mask.shape, shape)
    return np.broadcast_to(mask, shape)


def mask_array(mask, n_query, n_key, of_torch):
    """A mask of either backend, or a Pattern that may hold tensors, as a NumPy array."""
    if isinstance(mask, patterns.Pattern):
        if of_torch:
            from qkvlib.torch.masks import written_out

            mask = written_out(mask, n_query, n_key)
        else:
            mask = mask.array(n_query, n_key)
    if is_torch(mask):
        mask = mask.detach().cpu().numpy()
    if getattr(mask, "dtype", None) != np.bool_:
        raise TypeError(_checks.not_a_mask(mask, "array", "np.asarray(mask)"))
    return mask


def largest_number(x):
    """The largest number that the dtype of an array of either backend holds."""
    if is_torch(x):
        import torch

        return torch.finfo(x.dtype).max
    return float(np.finfo(x.dtype).max)


def rounding(x):
    """The distance of 1 to the next number that the dtype of an array of either backend holds."""
    if is_torch(x):
        import torch

        return torch.finfo(x.dtype).eps
    return float(np.finfo(x.dtype).eps)


def _around_mean(x, where):
    """The rows of `x (..., n, d)` that count, and their differences to their mean; zeros else."""
    where = np.ones(x.shape[:-1], bool) if where is None else np.broadcast_to(where, x.shape[:-1])
    where = where[..., None]
    x = np.where(where, x, 0.0)
    mean = x.sum(axis=-2, keepdims=True) / np.maximum(where.sum(axis=-2, keepdims=True), 1)
    return x, np.where(where, x - mean, 0.0)


def _ratio(above, below):
    """`above / below`, 0 where both are 0."""
    ratio = np.divide(above, below, out=np.zeros_like(above), where=below != 0)
    return ratio if ratio.ndim else float(ratio)


def _slope(x, y, where=True):
    """The slope of y by x within rows, over all rows together; NaN when no x differs."""
    where = np.isfinite(x) & np.isfinite(y) & where
    x, y = np.where(where, x, 0.0), np.where(where, y, 0.0)
    count = np.maximum(where.sum(axis=-1, keepdims=True), 1)
    x = np.where(where, x - x.sum(axis=-1, keepdims=True) / count, 0.0)
    y = np.where(where, y - y.sum(axis=-1, keepdims=True) / count, 0.0)
    return float((x * y).sum() / (x * x).sum()) if x.any() else math.nan
