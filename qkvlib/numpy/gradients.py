"""Backward passes by hand: what torch's autograd does, written out for NumPy.

A loss L is one number that depends on all that was computed. The gradient of an array says for
each of its entries by how much L grows when that entry grows: `dL/dx_i`, in the shape of x. A
backward pass is given the gradient of what a function returned and finds those of its arguments.
There is one rule, the chain rule, taken one index at a time: x_i acts on L through every y_j that
it changes, so

    dL/dx_i = sum over j of  dL/dy_j * dy_j/dx_i

Each derivation below works out `dy_j/dx_i` and puts it into that sum. `[i = j]` is 1 where i and
j are equal, else 0. Two things follow at once and hold everywhere:

- An entry that is used several times, broadcast or shared, adds up what each use says.
- A weight of 0 hands nothing back. A query that may attend to nothing, and a key that no query
  may attend to, get gradients of zero, whatever that key holds.

`f_backward(grad, ...)` takes the gradient of what `f` returned, then the arguments of `f`, and
returns the gradients of the arrays among them under their names, None for one that was not given.
(The two of softmax are given what it returned instead, and of one array there is one gradient.)
Each has the shape and dtype of its array; half inputs are computed in float32. They raise what
`f` raises, and `ValueError` or `TypeError` for a gradient that has not the shape and dtype of
what `f` returned. torch has autograd, so this file has no twin.
"""

import math
from typing import NamedTuple

import numpy as np

from qkvlib import _checks
from qkvlib.numpy._arrays import check_floating, shape_of, working, working_dtype
from qkvlib.numpy.attention import (
    attention_scores,
    attention_weights,
    scaled_dot_product_attention,
)
from qkvlib.numpy.masks import allowed_pairs, bias_array, without_unreachable
from qkvlib.numpy.multihead import MultiHeadAttention, merge_heads, repeat_heads, split_heads

__all__ = [
    "softmax_backward",
    "log_softmax_backward",
    "ScoresGradients",
    "attention_scores_backward",
    "AttentionGradients",
    "scaled_dot_product_attention_backward",
    "RMSNormGradients",
    "rms_norm_backward",
    "LayerNormGradients",
    "layer_norm_backward",
    "ProjectionGradients",
    "project_backward",
    "repeat_heads_backward",
    "MultiHeadGradients",
    "multi_head_attention_backward",
]


# ---- softmax -------------------------------------------------------------------------------------


def softmax_backward(grad_weights, weights, axis=-1):
    """The gradient of the scores, from that of their softmax.

    weights: what `softmax` returned; the scores themselves are not needed. Both arrays and the
    result have one shape and dtype (float32 for float16).

    With `p_j = exp(s_j) / sum_k exp(s_k)` the quotient rule gives

        dp_j/ds_i = p_j * ([i = j] - p_i)
        dL/ds_i   = sum_j g_j * p_j * ([i = j] - p_i)
                  = p_i * (g_i - sum_j g_j * p_j)

    A score is rewarded as far as its own g_i exceeds the average of all g, and each row of the
    result sums to 0: a constant added to all scores changes no weight.

    Source: Dao et al. 2022, "FlashAttention", appendix B.2 (the Jacobian of softmax).

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    array([ 0.25, -0.25])
    """
    check_floating(grad_weights=grad_weights, weights=weights)
    _checks.check_gradient("grad_weights", grad_weights.shape, weights.shape)
    _checks.check_axis(axis, weights.shape)
    grad, p = working(grad_weights), working(weights)
    return p * (grad - (grad * p).sum(axis, keepdims=True))


def log_softmax_backward(grad_log_weights, log_weights, axis=-1):
    """The gradient of the scores, from that of their log_softmax.

    log_weights: what `log_softmax` returned. Both arrays and the result have one shape and dtype
    (float32 for float16).

    With `l_j = s_j - log(sum_k exp(s_k))` and `p_i = exp(l_i)`

        dl_j/ds_i = [i = j] - p_i
        dL/ds_i   = g_i - p_i * sum_j g_j

    The cross-entropy of a target t is -l_t, so g is -1 at t and 0 elsewhere: what comes back is
    `p_i - [i = t]`, the prediction less the truth.

    Source: Goodfellow et al. 2016, "Deep Learning", section 6.2.2.3.

    >>> log_softmax_backward(np.array([-1.0, 0.0]), np.log([0.25, 0.75]))
    array([-0.75,  0.75])
    """
    check_floating(grad_log_weights=grad_log_weights, log_weights=log_weights)
    _checks.check_gradient("grad_log_weights", grad_log_weights.shape, log_weights.shape)
    _checks.check_axis(axis, log_weights.shape)
    grad, logs = working(grad_log_weights), working(log_weights)
    nothing = (logs == -np.inf).all(axis, keepdims=True)
    return np.where(nothing, 0, grad - np.exp(logs) * grad.sum(axis, keepdims=True))


# ---- attention -----------------------------------------------------------------------------------


class ScoresGradients(NamedTuple):
    """What `attention_scores_backward` returns; `bias` is None without one."""

    query: np.ndarray
    key: np.ndarray
    bias: np.ndarray | None


def attention_scores_backward(grad_scores, query, key, *, bias=None, scale=None, softcap=None):
    """The gradients of query, key and bias, from that of their scores.

    grad_scores `(..., n_query, n_key)`, in the dtype of the scores (float32 for float16);
    the rest as in `attention_scores`. Returns `ScoresGradients`.

    With scale a and softcap c let `z_ij = a * sum_m q_im * k_jm` be the plain score. What is
    returned is `s_ij = c * tanh(z_ij / c) + b_ij`, or without softcap `z_ij + b_ij`. Since
    tanh' = 1 - tanh * tanh,

        ds_ij/db_ij = 1
        ds_ij/dz_ij = 1 - tanh(z_ij / c)**2,   or 1 without softcap
        dz_ij/dq_im = a * k_jm
        dz_ij/dk_jm = a * q_im

    With `h_ij = g_ij * ds_ij/dz_ij` a query adds up over the keys, a key over the queries:

        dL/dq_im = a * sum_j h_ij * k_jm      that is a * h @ key
        dL/dk_jm = a * sum_i h_ij * q_im      that is a * h^T @ query

    Source: Dao et al. 2022, "FlashAttention", appendix B.2.

    >>> query, key = np.array([[2.0, 0.0]]), np.array([[3.0, 1.0], [0.0, 1.0]])
    >>> attention_scores_backward(np.array([[1.0, 0.0]]), query, key, scale=1).query
    array([[3., 1.]])
    """
    check_floating(query=query, key=key)
    shape = _checks.check_query_key(query.shape, key.shape)
    _check_gradient("grad_scores", grad_scores, shape, working_dtype(query))
    limits = np.finfo(working_dtype(query))
    scale = _checks.resolve_scale(scale, query.shape[-1], limits)
    softcap = _checks.check_softcap(softcap, limits)
    grad = working(grad_scores)
    grad_bias = None
    if bias is not None:
        bias_array(bias, shape, query)  # refuses what attention_scores refuses
        grad_bias = _fitted(grad, bias)
    if softcap is not None:
        capped = attention_scores(query, key, scale=scale, softcap=softcap)
        grad = grad * (1 - (capped / softcap) ** 2)
    grad_query = grad @ working(key) * scale
    grad_key = grad.swapaxes(-2, -1) @ (working(query) * scale)
    return ScoresGradients(_fitted(grad_query, query), _fitted(grad_key, key), grad_bias)


class AttentionGradients(NamedTuple):
    """What `scaled_dot_product_attention_backward` returns; `bias` is None without one."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    bias: np.ndarray | None


def scaled_dot_product_attention_backward(
    grad_output, query, key, value, *, mask=None, bias=None, scale=None, softcap=None
):
    """The gradients of query, key, value and bias, from that of the output.

    grad_output `(..., n_query, d_v)` in the query's dtype; the rest as in
    `scaled_dot_product_attention`. Returns `AttentionGradients`.

    The output is `o_im = sum_j p_ij * v_jm`, each query's average of the values, so

        do_im/dv_jm = p_ij       dL/dv_jm = sum_i p_ij * g_im      that is weights^T @ g
        do_im/dp_ij = v_jm       dL/dp_ij = sum_m g_im * v_jm      that is g @ value^T

    From the weights p the way back leads through their softmax, row by row, and from the scores
    on through `attention_scores_backward`. A forbidden pair has p_ij = 0, so its score gets
    `p_ij * (...) = 0`, and neither its query nor its key hears of the other.

    The weights are computed again here. Were they kept instead, long sequences would not fit.

    Source: Dao et al. 2022, "FlashAttention", appendix B.2.

    >>> query, key, value = np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]])
    >>> grads = scaled_dot_product_attention_backward(np.array([[1.0]]), query, key, value)
    >>> grads.value
    array([[0.5],
           [0.5]])
    """
    check_floating(query=query, key=key, value=value)
    shape = _checks.check_query_key(query.shape, key.shape)
    _checks.check_value(shape, value.shape)
    lead = np.broadcast_shapes(shape[:-2], value.shape[:-2])
    output_shape = (*lead, shape[-2], value.shape[-1])
    _check_gradient("grad_output", grad_output, output_shape, query.dtype.type)
    allowed = allowed_pairs(mask, bias, shape, query)
    options = {"bias": bias, "scale": scale, "softcap": softcap}
    weights = attention_weights(query, key, mask=allowed, **options)

    grad = working(grad_output)
    grad_value = weights.swapaxes(-2, -1) @ grad
    grad_weights = grad @ working(without_unreachable(value, allowed)).swapaxes(-2, -1)
    grad_scores = softmax_backward(_summed_to(grad_weights, shape), weights)
    of_query, of_key, of_bias = attention_scores_backward(
        grad_scores, query, without_unreachable(key, allowed), **options
    )
    return AttentionGradients(of_query, _fitted(of_key, key), _fitted(grad_value, value), of_bias)


# ---- norms ---------------------------------------------------------------------------------------


class RMSNormGradients(NamedTuple):
    """What `rms_norm_backward` returns; `weight` is None without one."""

    x: np.ndarray
    weight: np.ndarray | None


def rms_norm_backward(grad_y, x, weight=None, eps=1e-5):
    """The gradients of x and weight, from that of what `rms_norm` returned.

    grad_y, x `(..., d_model)`, weight `(d_model,)` or None. Returns `RMSNormGradients`.

    A row of d numbers becomes `u_j = x_j / r` with `r**2 = (sum_k x_k**2) / d + eps`, then
    `y_j = w_j * u_j`. Differentiating r**2 on both sides, 2 * r * dr/dx_i = 2 * x_i / d:

        dr/dx_i   = x_i / (d * r) = u_i / d
        du_j/dx_i = [i = j] / r - x_j / r**2 * dr/dx_i
                  = ([i = j] - u_j * u_i / d) / r

    With `h_j = dL/du_j = g_j * w_j`, and a mean over the d columns of the row,

        dL/dx_i = (h_i - u_i * mean_j(h_j * u_j)) / r
        dL/dw_j = sum over all rows of  g_j * u_j

    What points along the row itself is taken out (all of it when eps is 0): to make a row longer
    changes nothing.

    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 4.2.

    >>> rms_norm_backward(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]), eps=0).x
    array([[ 0.5, -0.5]])
    """
    given = {} if weight is None else {"weight": weight}
    check_floating(x=x, grad_y=grad_y, **given)
    _checks.check_norm(x.shape, shape_of(weight), None)
    _checks.check_gradient("grad_y", grad_y.shape, x.shape)
    grad, wide = working(grad_y), working(x)
    r = np.sqrt((wide**2).mean(axis=-1, keepdims=True) + _checks.check_eps(eps))
    u = wide / r
    h = grad if weight is None else grad * working(weight)
    grad_x = (h - u * (h * u).mean(axis=-1, keepdims=True)) / r
    return RMSNormGradients(
        _fitted(grad_x, x), None if weight is None else _fitted(grad * u, weight)
    )


class LayerNormGradients(NamedTuple):
    """What `layer_norm_backward` returns; `weight` and `bias` are None where not given."""

    x: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None


def layer_norm_backward(grad_y, x, weight=None, bias=None, eps=1e-5):
    """The gradients of x, weight and bias, from that of what `layer_norm` returned.

    grad_y, x `(..., d_model)`, weight and bias `(d_model,)` or None. Returns
    `LayerNormGradients`.

    LayerNorm is RMSNorm of what is left when the mean is taken away: the variance is the mean
    square of `c_j = x_j - mean_k(x_k)`. So the way back from y to c is that of RMSNorm, and
    with `f_j = dL/dc_j`

        dc_j/dx_i = [i = j] - 1 / d
        dL/dx_i   = sum_j f_j * ([i = j] - 1 / d) = f_i - mean_j(f_j)

    Put together, with u the normalised row and `h_j = g_j * w_j`, that is the formula one finds
    in books (the mean of u is 0):

        dL/dx_i = (h_i - mean_j(h_j) - u_i * mean_j(h_j * u_j)) / r

    The bias is added to every row: `dL/db_j` is the sum of g_j over all rows.

    Source: Xu et al. 2019, "Understanding and Improving Layer Normalization", which takes the
    two means apart as the derivatives of the mean and of the variance.

    Two different numbers always become -1 and 1, so nothing is gained by changing them:

    >>> layer_norm_backward(np.array([[1.0, 0.0]]), np.array([[3.0, 7.0]]), eps=0).x
    array([[0., 0.]])
    """
    given = {name: w for name, w in (("weight", weight), ("bias", bias)) if w is not None}
    check_floating(x=x, grad_y=grad_y, **given)
    _checks.check_norm(x.shape, shape_of(weight), shape_of(bias))
    _checks.check_gradient("grad_y", grad_y.shape, x.shape)
    grad = working(grad_y)
    of_centred = rms_norm_backward(
        grad, _centred(working(x)), None if weight is None else working(weight), eps
    )
    return LayerNormGradients(
        _fitted(_centred(of_centred.x), x),
        None if weight is None else _fitted(of_centred.weight, weight),
        None if bias is None else _fitted(grad, bias),
    )


def _centred(x):
    return x - x.mean(axis=-1, keepdims=True)


# ---- projections and heads -----------------------------------------------------------------------


class ProjectionGradients(NamedTuple):
    """What `project_backward` returns; `b` is None without one."""

    x: np.ndarray
    W: np.ndarray
    b: np.ndarray | None


def project_backward(grad_y, x, W, b=None):
    """The gradients of x, W and b, from that of `project(x, W, b)`.

    grad_y `(..., d_out)`, x `(..., d_in)`, W `(d_in, d_out)`, b `(d_out,)` or None. Returns
    `ProjectionGradients`.

    For row r, `y_rj = sum_i x_ri * W_ij + b_j`, so

        dy_rj/dx_ri = W_ij       dL/dx_ri = sum_j g_rj * W_ij      that is g @ W^T
        dy_rj/dW_ij = x_ri       dL/dW_ij = sum_r x_ri * g_rj      that is x^T @ g
        dy_rj/db_j  = 1          dL/db_j  = sum_r g_rj

    Source: Goodfellow et al. 2016, "Deep Learning", algorithm 6.4.

    >>> project_backward(np.array([[1.0, 10.0]]), np.array([[2.0, 3.0]]), np.eye(2)).W
    array([[ 2., 20.],
           [ 3., 30.]])
    """
    check_floating(x=x, grad_y=grad_y, W=W, **({} if b is None else {"b": b}))
    _checks.check_projection(x.shape, W.shape, shape_of(b))
    _checks.check_gradient("grad_y", grad_y.shape, (*x.shape[:-1], W.shape[1]))
    grad = working(grad_y)
    return ProjectionGradients(
        _fitted(grad @ working(W).T, x),
        _fitted(_rows(working(x)).T @ _rows(grad), W),
        None if b is None else _fitted(grad, b),
    )


def _rows(x):
    """All rows below one another: `(..., d)` -> `(rows, d)`."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def repeat_heads_backward(grad_y, repeats):
    """The gradient of x, from that of `repeat_heads(x, repeats)`.

    grad_y `(..., h * repeats, n, d)` -> `(..., h, n, d)` in its dtype.

    Head k of x is head `k * repeats` of y and the ones that follow it: `y_j = x_k` for each of
    these j. So `dy_j/dx_k` is 1 for them, 0 for all others, and what they say is added up:

        dL/dx_k = sum of g_j over  j = k * repeats, ..., k * repeats + repeats - 1

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from
    Multi-Head Checkpoints", figure 2, read backwards.

    >>> repeat_heads_backward(np.array([[[1.0]], [[2.0]], [[10.0]], [[20.0]]]), 2).ravel()
    array([ 3., 30.])
    """
    check_floating(grad_y=grad_y)
    _checks.check_axes("grad_y", grad_y.shape, 3, "(..., h * repeats, n, d)")
    repeats = _checks.check_count("repeats", repeats)
    *lead, heads, n, d = grad_y.shape
    if heads % repeats:
        raise ValueError(
            f"the heads of grad_y (third axis from the end) must be a multiple of repeats = "
            f"{repeats}, got {heads} from shape {grad_y.shape}"
        )
    shared = working(grad_y).reshape(*lead, heads // repeats, repeats, n, d)
    return shared.sum(axis=-3).astype(grad_y.dtype.type, copy=False)


class MultiHeadGradients(NamedTuple):
    """What `multi_head_attention_backward` returns; None for what was not given or not there."""

    x: np.ndarray
    source: np.ndarray | None
    value_source: np.ndarray | None
    bias: np.ndarray | None
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray
    b_Q: np.ndarray | None
    b_K: np.ndarray | None
    b_V: np.ndarray | None
    b_O: np.ndarray | None


def multi_head_attention_backward(
    grad_output, mha, x, source=None, value_source=None, *, mask=None, bias=None
):
    """The gradients of input, bias, weights and biases of a layer, from that of its output.

    grad_output `(..., n_query, d_out)`; mha: a `MultiHeadAttention` without `rotate`, whose
    derivative is not known here; the rest as in its call. Returns `MultiHeadGradients`.

    The layer is a chain of functions, and the chain is walked backwards, link by link:

        forward                              backward
        1  query, key, value = projections   5  project_backward, three times
        2  a head of its own for each query  4  repeat_heads_backward
        3  heads = attention                 3  scaled_dot_product_attention_backward
        4  merge the heads                   2  split the gradient
        5  output = projection               1  project_backward

    To split and to merge heads only moves numbers, so their gradients move back. In self-attention
    x is used three times, as the source of queries, of keys and of values, and what the three
    uses say is added up:

        dL/dx_ri = dL/dx_ri through the queries + through the keys + through the values

    The gradient of b_K is 0 but for rounding: `query_i * b_K` is one number added to all scores
    of a query, and softmax does not see it.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2, read backwards.

    >>> from qkvlib.numpy import MultiHeadAttention
    >>> mha = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
    >>> grads = multi_head_attention_backward(np.ones((3, 8)), mha, np.eye(3, 8))
    >>> grads.x.shape, grads.W_K.shape, grads.b_O
    ((3, 8), (8, 8), array([3., 3., 3., 3., 3., 3., 3., 3.]))
    """
    if not isinstance(mha, MultiHeadAttention):
        raise TypeError(
            f"mha must be a qkvlib.numpy.MultiHeadAttention, got {type(mha).__name__}; "
            "in torch autograd finds the gradients"
        )
    if mha.rotate is not None:
        raise ValueError(
            f"mha must not rotate, got rotate={mha.rotate}, whose derivative is not known here; "
            "use qkvlib.torch, where autograd finds it"
        )
    query, key, value = mha.project_heads(x, source, value_source)
    repeats = mha.num_heads // mha.num_kv_heads
    per_head = query, repeat_heads(key, repeats), repeat_heads(value, repeats)
    heads = merge_heads(scaled_dot_product_attention(*per_head, mask=mask, bias=bias))
    output_shape = (*heads.shape[:-1], mha.W_O.shape[1])
    _check_gradient("grad_output", grad_output, output_shape, x.dtype.type)

    o = project_backward(grad_output, heads, mha.W_O, mha.b_O)
    attended = scaled_dot_product_attention_backward(
        split_heads(o.x, mha.num_heads), *per_head, mask=mask, bias=bias
    )
    grad_query = merge_heads(attended.query)
    grad_key = merge_heads(repeat_heads_backward(attended.key, repeats))
    grad_value = merge_heads(repeat_heads_backward(attended.value, repeats))
    of_keys = x if source is None else source
    of_values = of_keys if value_source is None else value_source
    q = project_backward(grad_query, x, mha.W_Q, mha.b_Q)
    k = project_backward(grad_key, of_keys, mha.W_K, mha.b_K)
    v = project_backward(grad_value, of_values, mha.W_V, mha.b_V)

    grad_x, grad_source, grad_value_source = q.x, k.x, v.x
    if value_source is None:
        grad_source, grad_value_source = grad_source + grad_value_source, None
    if source is None:
        grad_x, grad_source = grad_x + grad_source, None
    inputs = grad_x, grad_source, grad_value_source, attended.bias
    return MultiHeadGradients(*inputs, q.W, k.W, v.W, o.W, q.b, k.b, v.b, o.b)


# ---- what all of them need -----------------------------------------------------------------------


def _fitted(grad, x):
    """The gradient of `x` from that of its broadcast copies: their sum, in the dtype of `x`."""
    return _summed_to(grad, x.shape).astype(x.dtype.type, copy=False)


def _summed_to(grad, shape):
    """`grad` summed over every axis along which an array of `shape` was repeated."""
    padded = (1,) * (grad.ndim - len(shape)) + shape
    repeated = tuple(axis for axis, size in enumerate(padded) if size == 1)
    return grad.sum(axis=repeated).reshape(shape)


def _check_gradient(name, grad, shape, dtype):
    """`grad` must have the shape and the dtype of what it is the gradient of."""
    check_floating(**{name: grad})
    if grad.dtype.type is not dtype:
        raise TypeError(
            f"{name} must have the dtype of what came out, {dtype.__name__}, got {grad.dtype}; "
            f"write {name}.astype(np.{dtype.__name__})"
        )
    _checks.check_gradient(name, grad.shape, shape)
