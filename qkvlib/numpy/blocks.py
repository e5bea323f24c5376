"""What stands around attention: norms, the feed-forward layer, the block."""

import math

import numpy as np

from qkvlib import _checks
from qkvlib._caches import unchanged_on_error
from qkvlib.numpy._arrays import check_floating, shape_of, working
from qkvlib.numpy.initialization import check_generator, xavier_uniform
from qkvlib.numpy.multihead import KeyValueCache, MultiHeadAttention, project

_erf = np.frompyfunc(math.erf, 1, 1)


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Bring each row to mean 0 and variance 1, then scale and shift its columns.

    x `(..., d_model)`, weight and bias `(d_model,)` or None -> the same shape and dtype
    (float16 is computed in float32). The variance is the mean square, without Bessel's
    correction; `eps`, under the root, keeps a constant row from dividing by 0. Squares are
    summed on the way, which overflows from about 1e19 in float32 and 1e154 in float64, with
    NumPy's warning.

    Raises `ValueError` for shapes that do not fit or a negative eps, `TypeError` for anything
    but floating NumPy arrays of one dtype.

    Source: Ba et al. 2016, "Layer Normalization", section 3.

    >>> layer_norm(np.array([[1.0, 3.0], [10.0, 30.0]]), eps=0)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    optional = {name: w for name, w in (("weight", weight), ("bias", bias)) if w is not None}
    check_floating(x=x, **optional)
    _checks.check_norm(x.shape, shape_of(weight), shape_of(bias))
    eps = _checks.check_eps(eps)
    wide = working(x)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + eps)
    if weight is not None:
        y = y * working(weight)
    if bias is not None:
        y = y + working(bias)
    return y.astype(x.dtype.type, copy=False)


def rms_norm(x, weight=None, eps=1e-5):
    """Bring each row to mean square 1, then scale its columns.

    x `(..., d_model)`, weight `(d_model,)` or None -> the same shape and dtype (float16 is
    computed in float32). Unlike `layer_norm` it leaves the mean where it is. `eps`, under the
    root, keeps a row of zeros from dividing by 0. Squares are summed on the way, which
    overflows from about 1e19 in float32 and 1e154 in float64, with NumPy's warning.

    Raises `ValueError` for shapes that do not fit or a negative eps, `TypeError` for anything
    but floating NumPy arrays of one dtype.

    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 4, there
    without eps.

    >>> rms_norm(np.array([[3.0, -3.0], [10.0, 70.0]]), eps=0)
    array([[ 1. , -1. ],
           [ 0.2,  1.4]])
    """
    check_floating(x=x, **({} if weight is None else {"weight": weight}))
    _checks.check_norm(x.shape, shape_of(weight), None)
    eps = _checks.check_eps(eps)
    wide = working(x)
    mean_square = (wide**2).mean(axis=-1, keepdims=True)
    y = wide / np.sqrt(mean_square + eps)
    if weight is not None:
        y = y * working(weight)
    return y.astype(x.dtype.type, copy=False)


def relu(x):
    """`x` where it is positive, else 0.

    x: floating array of any shape -> the same shape and dtype; `TypeError` for anything but a
    floating NumPy array.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2.

    >>> relu(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """
    check_floating(x=x)
    return np.maximum(x, 0).astype(x.dtype.type, copy=False)


def gelu(x):
    """A smooth gate: `x` times the probability that a standard normal number lies below it.

    x: floating array of any shape -> the same shape and dtype. Exact, by the error function;
    `TypeError` for anything but a floating NumPy array.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.

    >>> gelu(np.array([-10.0, 0.0, 10.0])) + 0.0
    array([ 0.,  0., 10.])
    """
    check_floating(x=x)
    wide = working(x)
    below = 0.5 * (1 + np.asarray(_erf(wide * math.sqrt(0.5)), wide.dtype))
    return (wide * below).astype(x.dtype.type, copy=False)


def gelu_tanh(x):
    """`gelu` by a formula with tanh, which differs from it by up to 0.0005.

    A model needs the one of the two that it was trained with. x: floating array of any shape
    -> the same shape and dtype; `TypeError` for anything but a floating NumPy array.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.

    >>> gelu_tanh(np.array([-10.0, 0.0, 10.0])) + 0.0
    array([ 0.,  0., 10.])
    """
    check_floating(x=x)
    wide = working(x)
    with np.errstate(over="ignore"):  # tanh of infinity is 1
        below = 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    return (wide * below).astype(x.dtype.type, copy=False)


def silu(x):
    """A smooth gate: `x` times its logistic function, `x / (1 + exp(-x))`.

    x: floating array of any shape -> the same shape and dtype; `TypeError` for anything but a
    floating NumPy array.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2, which names it.

    >>> silu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    check_floating(x=x)
    wide = working(x)
    with np.errstate(over="ignore"):  # x / infinity is 0
        return (wide / (1 + np.exp(-wide))).astype(x.dtype.type, copy=False)


class LayerNorm:
    """`layer_norm` with its own weight, at first 1, and bias, at first 0: `(d_model,)` each.

    Source: Ba et al. 2016, "Layer Normalization", section 3.

    >>> LayerNorm(2, eps=0)(np.array([[1.0, 3.0]]))
    array([[-1.,  1.]])
    """

    def __init__(self, d_model, *, eps=1e-5):
        d_model = _checks.check_count("d_model", d_model)
        self.weight, self.bias = np.ones(d_model), np.zeros(d_model)
        self.eps = _checks.check_eps(eps)

    @classmethod
    def from_weights(cls, weight, bias, *, eps=1e-5):
        """A norm with this weight and bias, `(d_model,)` each, copied in their dtype."""
        check_floating(weight=weight, bias=bias)
        _checks.check_norm_weights(weight.shape, bias.shape)
        self = cls.__new__(cls)
        self.weight, self.bias = weight.copy(), bias.copy()
        self.eps = _checks.check_eps(eps)
        return self

    def __call__(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x)
        _checks.check_width(x.shape, len(self.weight))
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm:
    """`rms_norm` with its own weight `(d_model,)`, at first 1.

    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 4.

    >>> RMSNorm(2, eps=0)(np.array([[10.0, 70.0]]))
    array([[0.2, 1.4]])
    """

    def __init__(self, d_model, *, eps=1e-5):
        self.weight = np.ones(_checks.check_count("d_model", d_model))
        self.eps = _checks.check_eps(eps)

    @classmethod
    def from_weights(cls, weight, *, eps=1e-5):
        """A norm with this weight, `(d_model,)`, copied in its dtype."""
        check_floating(weight=weight)
        _checks.check_norm_weights(weight.shape, None)
        self = cls.__new__(cls)
        self.weight = weight.copy()
        self.eps = _checks.check_eps(eps)
        return self

    def __call__(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x)
        _checks.check_width(x.shape, len(self.weight))
        return rms_norm(x, self.weight, self.eps)


class FeedForward:
    """Two projections with an activation between them, for each token by itself.

    d_model: width of input and output. d_ff: width between, by default `4 * d_model`.
    Weights `W_1 (d_model, d_ff)`, `W_2 (d_ff, d_model)` Xavier uniform by `generator`, in
    float64; biases `b_1`, `b_2` zero.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2; with GELU:
    Devlin et al. 2019, "BERT", appendix A.2.

    >>> FeedForward(4, generator=np.random.default_rng(0))(np.ones((3, 4))).shape
    (3, 4)
    """

    def __init__(self, d_model, d_ff=None, *, activation=gelu, generator=None):
        d_model = _checks.check_count("d_model", d_model)
        d_ff = 4 * d_model if d_ff is None else _checks.check_count("d_ff", d_ff)
        _checks.check_function("activation", activation)
        generator = check_generator(generator)
        self.W_1 = xavier_uniform(d_model, d_ff, generator=generator)
        self.W_2 = xavier_uniform(d_ff, d_model, generator=generator)
        self.b_1, self.b_2 = np.zeros(d_ff), np.zeros(d_model)
        self.activation = activation

    @classmethod
    def from_weights(cls, W_1, b_1, W_2, b_2, *, activation=gelu):
        """A layer with these weights, copied in their dtype; shapes as in the class."""
        check_floating(W_1=W_1, b_1=b_1, W_2=W_2, b_2=b_2)
        _checks.check_function("activation", activation)
        _checks.check_feed_forward(W_1.shape, b_1.shape, W_2.shape, b_2.shape)
        self = cls.__new__(cls)
        self.W_1, self.b_1, self.W_2, self.b_2 = W_1.copy(), b_1.copy(), W_2.copy(), b_2.copy()
        self.activation = activation
        return self

    def __call__(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x)
        _checks.check_width(x.shape, len(self.W_1))
        return project(self.activation(project(x, self.W_1, self.b_1)), self.W_2, self.b_2)


class SwiGLU:
    """A feed-forward layer whose inner numbers are let through by a gate, itself read from `x`.

    `(silu(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down`. d_model: width of input and
    output. d_ff: width between, by default `8 * d_model // 3`, which makes as many weights as
    `FeedForward` has. projection_bias: whether each projection adds a bias, at first zero.
    Weights `W_gate`, `W_up` `(d_model, d_ff)`, `W_down (d_ff, d_model)` Xavier uniform by
    `generator`, in float64; `b_gate`, `b_up`, `b_down`, each None without bias.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6.

    >>> SwiGLU(4, generator=np.random.default_rng(0))(np.ones((3, 4))).shape
    (3, 4)
    """

    def __init__(self, d_model, d_ff=None, *, projection_bias=False, generator=None):
        d_model = _checks.check_count("d_model", d_model)
        d_ff = 8 * d_model // 3 if d_ff is None else _checks.check_count("d_ff", d_ff)
        _checks.check_flag("projection_bias", projection_bias)
        generator = check_generator(generator)
        self.W_gate = xavier_uniform(d_model, d_ff, generator=generator)
        self.W_up = xavier_uniform(d_model, d_ff, generator=generator)
        self.W_down = xavier_uniform(d_ff, d_model, generator=generator)
        self.b_gate, self.b_up, self.b_down = (
            np.zeros(width) if projection_bias else None for width in (d_ff, d_ff, d_model)
        )

    @classmethod
    def from_weights(cls, W_gate, W_up, W_down, *, b_gate=None, b_up=None, b_down=None):
        """A layer with these weights, copied in their dtype; shapes as in the class."""
        given = {"W_gate": W_gate, "W_up": W_up, "W_down": W_down}
        given |= {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
        check_floating(**{name: w for name, w in given.items() if w is not None or name[0] == "W"})
        _checks.check_gated({name: shape_of(w) for name, w in given.items()})
        self = cls.__new__(cls)
        for name, w in given.items():
            setattr(self, name, None if w is None else w.copy())
        return self

    def __call__(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x)
        _checks.check_width(x.shape, len(self.W_gate))
        gate = silu(project(x, self.W_gate, self.b_gate))
        return project(gate * project(x, self.W_up, self.b_up), self.W_down, self.b_down)


class TransformerBlock:
    """Attention, then feed-forward, each added to what came in.

    norm="pre" normalises what each part reads: `x + part(norm(x))`; norm="post" normalises
    what comes out: `norm(x + part(x))`. d_model, num_heads: as in `MultiHeadAttention`;
    d_ff, activation: as in `FeedForward`; eps: of both norms; generator: for all weights.

    Its parts are `attention`, `feed_forward`, `attention_norm` and `feed_forward_norm`;
    `TransformerBlock.from_parts` builds a block from other parts.

    Source: post: Vaswani et al. 2017, "Attention Is All You Need", section 3.1; pre: Xiong et
    al. 2020, "On Layer Normalization in the Transformer Architecture", figure 1.

    >>> block = TransformerBlock(8, 2, norm="post", generator=np.random.default_rng(0))
    >>> block(np.ones((5, 8))).shape
    (5, 8)
    """

    def __init__(
        self,
        d_model,
        num_heads,
        *,
        d_ff=None,
        norm="pre",
        activation=gelu,
        eps=1e-5,
        generator=None,
    ):
        generator = check_generator(generator)
        self._take(
            MultiHeadAttention(d_model, num_heads, generator=generator),
            FeedForward(d_model, d_ff, activation=activation, generator=generator),
            LayerNorm(d_model, eps=eps),
            LayerNorm(d_model, eps=eps),
            norm,
        )

    @classmethod
    def from_parts(cls, attention, feed_forward, attention_norm, feed_forward_norm, *, norm="pre"):
        """A block of these parts, functions of x; attention takes `mask`, `bias`, `cache` too."""
        self = cls.__new__(cls)
        self._take(attention, feed_forward, attention_norm, feed_forward_norm, norm)
        return self

    def _take(self, attention, feed_forward, attention_norm, feed_forward_norm, norm):
        _checks.check_norm_order(norm)
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.norm = norm

    def __call__(self, x, *, mask=None, bias=None, cache=None):
        """x `(..., n, d_model)` -> the same shape; the rest as in `MultiHeadAttention`."""
        if cache is not None:
            _checks.check_cache(cache, KeyValueCache)
        with unchanged_on_error(cache):
            if self.norm == "pre":
                seen = self.attention_norm(x)
                x = x + self.attention(seen, mask=mask, bias=bias, cache=cache)
                return x + self.feed_forward(self.feed_forward_norm(x))
            x = self.attention_norm(x + self.attention(x, mask=mask, bias=bias, cache=cache))
            return self.feed_forward_norm(x + self.feed_forward(x))

    def attention_scores(self, x, *, bias=None):
        """The scores `(..., h, n, n)` of this block for `x`, before any mask."""
        return self.attention.attention_scores(self._seen(x), bias=bias)

    def attention_weights(self, x, *, mask=None, bias=None):
        """The weights `(..., h, n, n)` with which this block reads `x`."""
        return self.attention.attention_weights(self._seen(x), mask=mask, bias=bias)

    def project_heads(self, x):
        """Query, key and value of each head, as this block makes them of `x`."""
        return self.attention.project_heads(self._seen(x))

    def _seen(self, x):
        """What attention reads of `x`."""
        return self.attention_norm(x) if self.norm == "pre" else x
