"""What stands around attention: norms, the feed-forward layer, the block."""

import torch
from torch import nn

from qkvlib import _checks
from qkvlib._caches import unchanged_on_error
from qkvlib.torch._tensors import check_floating, shape_of, working
from qkvlib.torch.initialization import check_generator, xavier_uniform
from qkvlib.torch.multihead import KeyValueCache, MultiHeadAttention, linear_from


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Bring each row to mean 0 and variance 1, then scale and shift its columns.

    x `(..., d_model)`, weight and bias `(d_model,)` or None -> the same shape, dtype and
    device (half types are computed in float32). The variance is the mean square, without
    Bessel's correction; `eps`, under the root, keeps a constant row from dividing by 0. Squares
    are summed on the way, which overflows from about 1e19 in float32 and 1e154 in float64: the
    row becomes zeros or NaN.

    Raises `ValueError` for shapes that do not fit or a negative eps, `TypeError` for anything
    but floating tensors of one dtype.

    Source: Ba et al. 2016, "Layer Normalization", section 3.

    >>> layer_norm(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), eps=0)
    tensor([[-1.,  1.],
            [-1.,  1.]])
    """
    optional = {name: w for name, w in (("weight", weight), ("bias", bias)) if w is not None}
    check_floating(x=x, **optional)
    _checks.check_norm(shape_of(x), shape_of(weight), shape_of(bias))
    eps = _checks.check_eps(eps)
    weight, bias = (None if w is None else working(w) for w in (weight, bias))
    return nn.functional.layer_norm(working(x), x.shape[-1:], weight, bias, eps).to(x.dtype)


def rms_norm(x, weight=None, eps=1e-5):
    """Bring each row to mean square 1, then scale its columns.

    x `(..., d_model)`, weight `(d_model,)` or None -> the same shape, dtype and device (half
    types are computed in float32). Unlike `layer_norm` it leaves the mean where it is. `eps`,
    under the root, keeps a row of zeros from dividing by 0. Squares are summed on the way, which
    overflows from about 1e19 in float32 and 1e154 in float64: the row becomes zeros.

    Raises `ValueError` for shapes that do not fit or a negative eps, `TypeError` for anything
    but floating tensors of one dtype.

    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 4, there
    without eps.

    >>> rms_norm(torch.tensor([[3.0, -3.0], [10.0, 70.0]]), eps=0)
    tensor([[ 1.0000, -1.0000],
            [ 0.2000,  1.4000]])
    """
    check_floating(x=x, **({} if weight is None else {"weight": weight}))
    _checks.check_norm(shape_of(x), shape_of(weight), None)
    eps = _checks.check_eps(eps)
    weight = None if weight is None else working(weight)
    return nn.functional.rms_norm(working(x), x.shape[-1:], weight, eps).to(x.dtype)


def relu(x):
    """`x` where it is positive, else 0.

    x: floating tensor of any shape -> the same shape and dtype; `TypeError` for anything but a
    floating tensor.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2.

    >>> relu(torch.tensor([-2.0, 0.0, 3.0]))
    tensor([0., 0., 3.])
    """
    check_floating(x=x)
    return torch.relu(x)


def gelu(x):
    """A smooth gate: `x` times the probability that a standard normal number lies below it.

    x: floating tensor of any shape -> the same shape and dtype. Exact, by the error function;
    `TypeError` for anything but a floating tensor.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.

    >>> gelu(torch.tensor([-10.0, 0.0, 10.0])) + 0.0
    tensor([ 0.,  0., 10.])
    """
    check_floating(x=x)
    return nn.functional.gelu(working(x)).to(x.dtype)


def gelu_tanh(x):
    """`gelu` by a formula with tanh, which differs from it by up to 0.0005.

    A model needs the one of the two that it was trained with. x: floating tensor of any shape
    -> the same shape and dtype; `TypeError` for anything but a floating tensor.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.

    >>> gelu_tanh(torch.tensor([-10.0, 0.0, 10.0])) + 0.0
    tensor([ 0.,  0., 10.])
    """
    check_floating(x=x)
    return nn.functional.gelu(working(x), approximate="tanh").to(x.dtype)


def silu(x):
    """A smooth gate: `x` times its logistic function, `x / (1 + exp(-x))`.

    x: floating tensor of any shape -> the same shape and dtype; `TypeError` for anything but a
    floating tensor.

    Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2, which names it.

    >>> silu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    check_floating(x=x)
    return nn.functional.silu(working(x)).to(x.dtype)


class LayerNorm(nn.Module):
    """`layer_norm` with its own weight, at first 1, and bias, at first 0: `(d_model,)` each.

    Source: Ba et al. 2016, "Layer Normalization", section 3.

    >>> LayerNorm(2, eps=0)(torch.tensor([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, d_model, *, eps=1e-5, device=None):
        super().__init__()
        d_model = _checks.check_count("d_model", d_model)
        self.weight = nn.Parameter(torch.ones(d_model, device=device))
        self.bias = nn.Parameter(torch.zeros(d_model, device=device))
        self.eps = _checks.check_eps(eps)

    @classmethod
    def from_weights(cls, weight, bias, *, eps=1e-5):
        """A norm with this weight and bias, `(d_model,)` each, copied in their dtype."""
        check_floating(weight=weight, bias=bias)
        _checks.check_norm_weights(shape_of(weight), shape_of(bias))
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())
        self.eps = _checks.check_eps(eps)
        return self

    def forward(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x, weight=self.weight)
        _checks.check_width(shape_of(x), len(self.weight))
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """`rms_norm` with its own weight `(d_model,)`, at first 1.

    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 4.

    >>> RMSNorm(2, eps=0)(torch.tensor([[10.0, 70.0]])).detach()
    tensor([[0.2000, 1.4000]])
    """

    def __init__(self, d_model, *, eps=1e-5, device=None):
        super().__init__()
        d_model = _checks.check_count("d_model", d_model)
        self.weight = nn.Parameter(torch.ones(d_model, device=device))
        self.eps = _checks.check_eps(eps)

    @classmethod
    def from_weights(cls, weight, *, eps=1e-5):
        """A norm with this weight, `(d_model,)`, copied in its dtype."""
        check_floating(weight=weight)
        _checks.check_norm_weights(shape_of(weight), None)
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.weight = nn.Parameter(weight.detach().clone())
        self.eps = _checks.check_eps(eps)
        return self

    def forward(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x, weight=self.weight)
        _checks.check_width(shape_of(x), len(self.weight))
        return rms_norm(x, self.weight, self.eps)


class FeedForward(nn.Module):
    """Two projections with an activation between them, for each token by itself.

    d_model: width of input and output. d_ff: width between, by default `4 * d_model`.
    `inner` and `outer` are the two `nn.Linear`, Xavier uniform by `generator`, biases zero.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2; with GELU:
    Devlin et al. 2019, "BERT", appendix A.2.

    >>> ff = FeedForward(4, generator=torch.Generator().manual_seed(0))
    >>> tuple(ff(torch.ones(3, 4)).shape)
    (3, 4)
    """

    def __init__(self, d_model, d_ff=None, *, activation=gelu, generator=None, device=None):
        super().__init__()
        d_model = _checks.check_count("d_model", d_model)
        d_ff = 4 * d_model if d_ff is None else _checks.check_count("d_ff", d_ff)
        _checks.check_function("activation", activation)
        generator = check_generator(generator)
        W_1 = xavier_uniform(d_model, d_ff, generator=generator, device=device)
        W_2 = xavier_uniform(d_ff, d_model, generator=generator, device=device)
        self.inner = linear_from(W_1, torch.zeros(d_ff, device=device))
        self.outer = linear_from(W_2, torch.zeros(d_model, device=device))
        self.activation = activation

    @classmethod
    def from_weights(cls, W_1, b_1, W_2, b_2, *, activation=gelu):
        """A layer with these weights, copied in their dtype; shapes as in the NumPy twin."""
        check_floating(W_1=W_1, b_1=b_1, W_2=W_2, b_2=b_2)
        _checks.check_function("activation", activation)
        _checks.check_feed_forward(*(shape_of(w) for w in (W_1, b_1, W_2, b_2)))
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.inner, self.outer = linear_from(W_1, b_1), linear_from(W_2, b_2)
        self.activation = activation
        return self

    def forward(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x, W_1=self.W_1)
        _checks.check_width(shape_of(x), self.inner.in_features)
        return self.outer(self.activation(self.inner(x)))

    W_1 = property(lambda self: self.inner.weight.T, doc="`(d_model, d_ff)`")
    b_1 = property(lambda self: self.inner.bias, doc="`(d_ff,)`")
    W_2 = property(lambda self: self.outer.weight.T, doc="`(d_ff, d_model)`")
    b_2 = property(lambda self: self.outer.bias, doc="`(d_model,)`")


class SwiGLU(nn.Module):
    """A feed-forward layer whose inner numbers are let through by a gate, itself read from `x`.

    `(silu(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down`. d_model: width of input and
    output. d_ff: width between, by default `8 * d_model // 3`, which makes as many weights as
    `FeedForward` has. projection_bias: whether each projection adds a bias, at first zero.
    `gate`, `up` and `down` are three `nn.Linear`, Xavier uniform by `generator`; their weights
    are read as the NumPy twin has them.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6.

    >>> swiglu = SwiGLU(4, generator=torch.Generator().manual_seed(0))
    >>> tuple(swiglu(torch.ones(3, 4)).shape)
    (3, 4)
    """

    def __init__(self, d_model, d_ff=None, *, projection_bias=False, generator=None, device=None):
        super().__init__()
        d_model = _checks.check_count("d_model", d_model)
        d_ff = 8 * d_model // 3 if d_ff is None else _checks.check_count("d_ff", d_ff)
        _checks.check_flag("projection_bias", projection_bias)
        generator = check_generator(generator)

        def linear(fan_in, fan_out):
            W = xavier_uniform(fan_in, fan_out, generator=generator, device=device)
            return linear_from(W, torch.zeros(fan_out, device=device) if projection_bias else None)

        self.gate = linear(d_model, d_ff)
        self.up = linear(d_model, d_ff)
        self.down = linear(d_ff, d_model)

    @classmethod
    def from_weights(cls, W_gate, W_up, W_down, *, b_gate=None, b_up=None, b_down=None):
        """A layer with these weights, copied in their dtype; shapes as in the NumPy twin."""
        given = {"W_gate": W_gate, "W_up": W_up, "W_down": W_down}
        given |= {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
        check_floating(**{name: w for name, w in given.items() if w is not None or name[0] == "W"})
        _checks.check_gated({name: shape_of(w) for name, w in given.items()})
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.gate = linear_from(W_gate, b_gate)
        self.up = linear_from(W_up, b_up)
        self.down = linear_from(W_down, b_down)
        return self

    def forward(self, x):
        """x `(..., d_model)` -> the same shape."""
        check_floating(x=x, W_gate=self.W_gate)
        _checks.check_width(shape_of(x), self.gate.in_features)
        return self.down(silu(self.gate(x)) * self.up(x))

    W_gate = property(lambda self: self.gate.weight.T, doc="`(d_model, d_ff)`")
    W_up = property(lambda self: self.up.weight.T, doc="`(d_model, d_ff)`")
    W_down = property(lambda self: self.down.weight.T, doc="`(d_ff, d_model)`")
    b_gate = property(lambda self: self.gate.bias, doc="`(d_ff,)` or None")
    b_up = property(lambda self: self.up.bias, doc="`(d_ff,)` or None")
    b_down = property(lambda self: self.down.bias, doc="`(d_model,)` or None")


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each added to what came in.

    norm="pre" normalises what each part reads: `x + part(norm(x))`; norm="post" normalises
    what comes out: `norm(x + part(x))`. d_model, num_heads: as in `MultiHeadAttention`;
    d_ff, activation: as in `FeedForward`; eps: of both norms; generator: for all weights.

    Its parts are `attention`, `feed_forward`, `attention_norm` and `feed_forward_norm`;
    `TransformerBlock.from_parts` builds a block from other parts.

    Source: post: Vaswani et al. 2017, "Attention Is All You Need", section 3.1; pre: Xiong et
    al. 2020, "On Layer Normalization in the Transformer Architecture", figure 1.

    >>> block = TransformerBlock(8, 2, norm="post", generator=torch.Generator().manual_seed(0))
    >>> tuple(block(torch.ones(5, 8)).shape)
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
        device=None,
    ):
        super().__init__()
        generator = check_generator(generator)
        self._take(
            MultiHeadAttention(d_model, num_heads, generator=generator, device=device),
            FeedForward(d_model, d_ff, activation=activation, generator=generator, device=device),
            LayerNorm(d_model, eps=eps, device=device),
            LayerNorm(d_model, eps=eps, device=device),
            norm,
        )

    @classmethod
    def from_parts(cls, attention, feed_forward, attention_norm, feed_forward_norm, *, norm="pre"):
        """A block of these parts, functions of x; attention takes `mask`, `bias`, `cache` too."""
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self._take(attention, feed_forward, attention_norm, feed_forward_norm, norm)
        return self

    def _take(self, attention, feed_forward, attention_norm, feed_forward_norm, norm):
        _checks.check_norm_order(norm)
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.norm = norm

    def forward(self, x, *, mask=None, bias=None, cache=None):
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
