"""Projections, heads, and the layer that puts them together."""

import torch
from torch import nn

from qkvlib import _checks
from qkvlib.torch._tensors import check_floating, check_tensor, shape_of
from qkvlib.torch.attention import attention_weights, scaled_dot_product_attention
from qkvlib.torch.initialization import check_generator, xavier_uniform


def project(x, W, b=None):
    """A linear map of every row: `x @ W + b`.

    x `(..., d_in)`, W `(d_in, d_out)`, b `(d_out,)` or None -> `(..., d_out)`, one dtype and
    device throughout.

    Raises `ValueError` for shapes or devices that do not fit, `TypeError` for anything but
    floating tensors of one dtype.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (`Q W_i^Q`).

    >>> project(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
    tensor([[1., 2., 3.]])
    """
    check_floating(x=x, W=W, **({} if b is None else {"b": b}))
    _checks.check_projection(shape_of(x), shape_of(W), shape_of(b))
    return nn.functional.linear(x, W.T, b)


def split_heads(x, num_heads):
    """Give each head its own columns: `(..., n, h*d)` -> `(..., h, n, d)`.

    Head `i` gets columns `i*d` to `(i+1)*d`. x: tensor of any dtype; the result is a view.
    Raises `ValueError` if the width is not a multiple of `num_heads`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.

    >>> split_heads(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), 2)
    tensor([[[1, 2],
             [5, 6]],
    <BLANKLINE>
            [[3, 4],
             [7, 8]]])
    """
    check_tensor("x", x)
    num_heads = _checks.check_split(shape_of(x), num_heads)
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads)).transpose(-3, -2)


def merge_heads(x):
    """Put the heads' columns side by side again: `(..., h, n, d)` -> `(..., n, h*d)`.

    Undoes `split_heads`. x: tensor of any dtype with at least 3 axes, else `ValueError`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (`Concat`).

    >>> merge_heads(torch.tensor([[[1, 2], [5, 6]], [[3, 4], [7, 8]]]))
    tensor([[1, 2, 3, 4],
            [5, 6, 7, 8]])
    """
    check_tensor("x", x)
    _checks.check_axes("x", shape_of(x), 3, "(..., h, n, d)")
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Several heads that attend side by side, and a matrix that mixes what they found.

    d_model: width of input and, by default, output (`d_out`). d_k, d_v: widths of one head's
    queries and keys, and of its values, by default `d_model // num_heads`, which must divide.
    projection_bias: whether each of the four projections adds a bias, at first zero.
    generator: a `torch.Generator` for the weights, Xavier uniform, in torch's default dtype.

    The projections are four `nn.Linear`, `query`, `key`, `value` and `output`, which keep
    their weights transposed. `W_Q`, `W_K` `(d_model, h*d_k)`, `W_V` `(d_model, h*d_v)`, `W_O`
    `(h*d_v, d_out)` and `b_Q`, `b_K`, `b_V`, `b_O` read them as the NumPy twin has them.

    Raises `ValueError` or `TypeError` for sizes that do not fit, by name.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.

    >>> mha = MultiHeadAttention(8, 2, generator=torch.Generator().manual_seed(0))
    >>> x = torch.ones(3, 8)
    >>> tuple(mha(x).shape), tuple(mha.attention_weights(x).shape)
    ((3, 8), (2, 3, 3))
    """

    def __init__(
        self,
        d_model,
        num_heads,
        *,
        d_k=None,
        d_v=None,
        d_out=None,
        projection_bias=True,
        generator=None,
        device=None,
    ):
        super().__init__()
        d_model = _checks.check_count("d_model", d_model)
        h = self.num_heads = _checks.check_count("num_heads", num_heads)
        d_k = _checks.head_width("d_k", d_k, d_model, h)
        d_v = _checks.head_width("d_v", d_v, d_model, h)
        d_out = d_model if d_out is None else _checks.check_count("d_out", d_out)
        generator = check_generator(generator)

        def linear(fan_in, fan_out):
            W = xavier_uniform(fan_in, fan_out, generator=generator, device=device)
            return linear_from(W, torch.zeros(fan_out, device=device) if projection_bias else None)

        self.query = linear(d_model, h * d_k)
        self.key = linear(d_model, h * d_k)
        self.value = linear(d_model, h * d_v)
        self.output = linear(h * d_v, d_out)

    @classmethod
    def from_weights(cls, W_Q, W_K, W_V, W_O, *, num_heads, b_Q=None, b_K=None, b_V=None, b_O=None):
        """A layer with these weights (shapes as in the class; copied, in their dtype).

        Raises `ValueError` for shapes that do not fit together, `TypeError` for anything but
        floating tensors of one dtype.

        >>> W = torch.eye(4)
        >>> MultiHeadAttention.from_weights(W, W, W, W, num_heads=2)(torch.ones(1, 4)).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
        """
        given = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
        given |= {"b_Q": b_Q, "b_K": b_K, "b_V": b_V, "b_O": b_O}
        check_floating(**{name: w for name, w in given.items() if w is not None or name[0] == "W"})
        _checks.check_head_weights({name: shape_of(w) for name, w in given.items()}, num_heads)
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.num_heads = int(num_heads)
        self.query = linear_from(W_Q, b_Q)
        self.key = linear_from(W_K, b_K)
        self.value = linear_from(W_V, b_V)
        self.output = linear_from(W_O, b_O)
        return self

    def forward(self, x, *, mask=None, bias=None):
        """The output `(..., n, d_out)` of `x (..., n, d_model)`.

        mask, bias: as in `scaled_dot_product_attention`, for scores `(..., h, n, n)`; a
        padding mask needs the head axis, `padding_mask(lengths, n)[:, None]`.
        """
        query, key, value = self.project_heads(x)
        heads = scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)
        return self.output(merge_heads(heads))

    def attention_weights(self, x, *, mask=None, bias=None):
        """The weights of each head, `(..., h, n, n)`; arguments as for the output."""
        query, key, _ = self.project_heads(x)
        return attention_weights(query, key, mask=mask, bias=bias)

    def project_heads(self, x):
        """Query, key and value of each head, `(..., h, n, d)`, from `x (..., n, d_model)`."""
        check_floating(x=x, W_Q=self.W_Q)
        _checks.check_tokens(shape_of(x), self.query.in_features)
        return tuple(
            split_heads(linear(x), self.num_heads) for linear in (self.query, self.key, self.value)
        )

    W_Q = property(lambda self: self.query.weight.T, doc="`(d_model, h*d_k)`")
    W_K = property(lambda self: self.key.weight.T, doc="`(d_model, h*d_k)`")
    W_V = property(lambda self: self.value.weight.T, doc="`(d_model, h*d_v)`")
    W_O = property(lambda self: self.output.weight.T, doc="`(h*d_v, d_out)`")
    b_Q = property(lambda self: self.query.bias, doc="`(h*d_k,)` or None")
    b_K = property(lambda self: self.key.bias, doc="`(h*d_k,)` or None")
    b_V = property(lambda self: self.value.bias, doc="`(h*d_v,)` or None")
    b_O = property(lambda self: self.output.bias, doc="`(d_out,)` or None")


def linear_from(W, b=None):
    """An `nn.Linear` that computes `x @ W + b`: it keeps a copy of `W (d_in, d_out)` transposed."""
    linear = nn.Linear(*W.shape, bias=b is not None, device="meta")
    linear.weight = nn.Parameter(W.detach().T.clone(memory_format=torch.contiguous_format))
    if b is not None:
        linear.bias = nn.Parameter(b.detach().clone())
    return linear
