"""What stands around attention: norms, the feed-forward layer, the block."""

import torch
from torch import nn

from qkvlib import _checks
from qkvlib.torch._tensors import check_floating, shape_of, working
from qkvlib.torch.initialization import check_generator, xavier_uniform
from qkvlib.torch.multihead import MultiHeadAttention, linear_from


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Bring each row to mean 0 and variance 1, then scale and shift its columns.

    x `(..., d_model)`, weight and bias `(d_model,)` or None -> the same shape, dtype and
    device (half types are computed in float32). The variance is the mean square, without
    Bessel's correction; `eps`, under the root, keeps a constant row from dividing by 0.

    Raises `ValueError` for shapes that do not fit or a negative eps, `TypeError` for anything
    but floating tensors of one dtype.

    Source: Ba et al. 2016, "Layer Normalization", equation 4.

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


class LayerNorm(nn.Module):
    """`layer_norm` with its own weight, at first 1, and bias, at first 0: `(d_model,)` each.

    Source: Ba et al. 2016, "Layer Normalization", equation 4.

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
        _checks.check_norm(shape_of(weight), shape_of(weight), shape_of(bias))
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


class FeedForward(nn.Module):
    """Two projections with an activation between them, for each token by itself.

    d_model: width of input and output. d_ff: width between, by default `4 * d_model`.
    `inner` and `outer` are the two `nn.Linear`, Xavier uniform by `generator`, biases zero.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2; with GELU:
    Devlin et al. 2018, "BERT", appendix A.2.

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
        """A block of these parts: `attention(x, mask=, bias=)`, the others functions of x."""
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self._take(attention, feed_forward, attention_norm, feed_forward_norm, norm)
        return self

    def _take(self, attention, feed_forward, attention_norm, feed_forward_norm, norm):
        _checks.check_norm_order(norm)
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.norm = norm

    def forward(self, x, *, mask=None, bias=None):
        """x `(..., n, d_model)` -> the same shape; mask, bias as in `MultiHeadAttention`."""
        if self.norm == "pre":
            x = x + self.attention(self.attention_norm(x), mask=mask, bias=bias)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x, mask=mask, bias=bias))
        return self.feed_forward_norm(x + self.feed_forward(x))

    def attention_weights(self, x, *, mask=None, bias=None):
        """The weights `(..., h, n, n)` with which this block reads `x`."""
        seen = self.attention_norm(x) if self.norm == "pre" else x
        return self.attention.attention_weights(seen, mask=mask, bias=bias)
