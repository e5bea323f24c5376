"""Projections, heads, and the layer that puts them together."""

import numpy as np

from qkvlib import _checks
from qkvlib.numpy._arrays import check_array, check_floating, shape_of, working
from qkvlib.numpy.attention import attention_weights, scaled_dot_product_attention
from qkvlib.numpy.initialization import check_generator, xavier_uniform


def project(x, W, b=None):
    """A linear map of every row: `x @ W + b`.

    x `(..., d_in)`, W `(d_in, d_out)`, b `(d_out,)` or None -> `(..., d_out)`, one dtype
    throughout (float16 is computed in float32 and returned as float16).

    Raises `ValueError` for shapes that do not fit, `TypeError` for anything but floating
    NumPy arrays of one dtype.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (`Q W_i^Q`).

    >>> project(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
    array([[1., 2., 3.]])
    """
    check_floating(x=x, W=W, **({} if b is None else {"b": b}))
    _checks.check_projection(x.shape, W.shape, shape_of(b))
    y = working(x) @ working(W)
    return (y if b is None else y + working(b)).astype(x.dtype.type, copy=False)


def split_heads(x, num_heads):
    """Give each head its own columns: `(..., n, h*d)` -> `(..., h, n, d)`.

    Head `i` gets columns `i*d` to `(i+1)*d`. x: array of any dtype; the result is a view.
    Raises `ValueError` if the width is not a multiple of `num_heads`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.

    >>> split_heads(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), 2)
    array([[[1, 2],
            [5, 6]],
    <BLANKLINE>
           [[3, 4],
            [7, 8]]])
    """
    check_array("x", x)
    num_heads = _checks.check_split(x.shape, num_heads)
    *lead, n, width = x.shape
    return x.reshape(*lead, n, num_heads, width // num_heads).swapaxes(-3, -2)


def merge_heads(x):
    """Put the heads' columns side by side again: `(..., h, n, d)` -> `(..., n, h*d)`.

    Undoes `split_heads`. x: array of any dtype with at least 3 axes, else `ValueError`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (`Concat`).

    >>> merge_heads(np.array([[[1, 2], [5, 6]], [[3, 4], [7, 8]]]))
    array([[1, 2, 3, 4],
           [5, 6, 7, 8]])
    """
    check_array("x", x)
    _checks.check_axes("x", x.shape, 3, "(..., h, n, d)")
    *lead, h, n, d = x.shape
    return x.swapaxes(-3, -2).reshape(*lead, n, h * d)


class MultiHeadAttention:
    """Several heads that attend side by side, and a matrix that mixes what they found.

    d_model: width of input and, by default, output (`d_out`). d_k, d_v: widths of one head's
    queries and keys, and of its values, by default `d_model // num_heads`, which must divide.
    projection_bias: whether each of the four projections adds a bias, at first zero.
    generator: a `numpy.random.Generator` for the weights, Xavier uniform, in float64.

    Weights act on the right: `W_Q`, `W_K` `(d_model, h*d_k)`, `W_V` `(d_model, h*d_v)`,
    `W_O` `(h*d_v, d_out)`, and `b_Q`, `b_K`, `b_V`, `b_O`, each None without bias.

    Raises `ValueError` or `TypeError` for sizes that do not fit, by name.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.

    >>> mha = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
    >>> x = np.ones((3, 8))
    >>> mha(x).shape, mha.attention_weights(x).shape
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
    ):
        d_model = _checks.check_count("d_model", d_model)
        h = self.num_heads = _checks.check_count("num_heads", num_heads)
        d_k = _checks.head_width("d_k", d_k, d_model, h)
        d_v = _checks.head_width("d_v", d_v, d_model, h)
        d_out = d_model if d_out is None else _checks.check_count("d_out", d_out)
        generator = check_generator(generator)
        self.W_Q = xavier_uniform(d_model, h * d_k, generator=generator)
        self.W_K = xavier_uniform(d_model, h * d_k, generator=generator)
        self.W_V = xavier_uniform(d_model, h * d_v, generator=generator)
        self.W_O = xavier_uniform(h * d_v, d_out, generator=generator)
        widths = (h * d_k, h * d_k, h * d_v, d_out)
        self.b_Q, self.b_K, self.b_V, self.b_O = (
            np.zeros(width) if projection_bias else None for width in widths
        )

    @classmethod
    def from_weights(cls, W_Q, W_K, W_V, W_O, *, num_heads, b_Q=None, b_K=None, b_V=None, b_O=None):
        """A layer with these weights (shapes as in the class; copied, in their dtype).

        Raises `ValueError` for shapes that do not fit together, `TypeError` for anything but
        floating NumPy arrays of one dtype.

        >>> W = np.eye(4)
        >>> MultiHeadAttention.from_weights(W, W, W, W, num_heads=2)(np.ones((1, 4)))
        array([[1., 1., 1., 1.]])
        """
        given = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
        given |= {"b_Q": b_Q, "b_K": b_K, "b_V": b_V, "b_O": b_O}
        check_floating(**{name: w for name, w in given.items() if w is not None or name[0] == "W"})
        _checks.check_head_weights({name: shape_of(w) for name, w in given.items()}, num_heads)
        self = cls.__new__(cls)
        self.num_heads = int(num_heads)
        for name, w in given.items():
            setattr(self, name, None if w is None else w.copy())
        return self

    def __call__(self, x, *, mask=None, bias=None):
        """The output `(..., n, d_out)` of `x (..., n, d_model)`.

        mask, bias: as in `scaled_dot_product_attention`, for scores `(..., h, n, n)`; a
        padding mask needs the head axis, `padding_mask(lengths, n)[:, None]`.
        """
        query, key, value = self.project_heads(x)
        heads = scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)
        return project(merge_heads(heads), self.W_O, self.b_O)

    def attention_weights(self, x, *, mask=None, bias=None):
        """The weights of each head, `(..., h, n, n)`; arguments as for the output."""
        query, key, _ = self.project_heads(x)
        return attention_weights(query, key, mask=mask, bias=bias)

    def project_heads(self, x):
        """Query, key and value of each head, `(..., h, n, d)`, from `x (..., n, d_model)`."""
        check_floating(x=x)
        _checks.check_tokens(x.shape, len(self.W_Q))
        projections = ((self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V))
        return tuple(split_heads(project(x, W, b), self.num_heads) for W, b in projections)
