"""Projections, heads, and the layer that puts them together."""

import numpy as np

from qkvlib import _checks
from qkvlib._caches import unchanged_on_error
from qkvlib.numpy._arrays import check_array, check_floating, shape_of, working
from qkvlib.numpy.attention import (
    attention_scores,
    attention_weights,
    scaled_dot_product_attention,
)
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


def repeat_heads(x, repeats):
    """Each head `repeats` times in a row: `(..., h, n, d)` -> `(..., h * repeats, n, d)`.

    So heads of keys and values that several heads of queries share stand beside each of them.
    x: array of any dtype with at least 3 axes, else `ValueError`; repeats: at least 1.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from
    Multi-Head Checkpoints", figure 2.

    >>> repeat_heads(np.array([[[1, 2]], [[3, 4]]]), 2)
    array([[[1, 2]],
    <BLANKLINE>
           [[1, 2]],
    <BLANKLINE>
           [[3, 4]],
    <BLANKLINE>
           [[3, 4]]])
    """
    check_array("x", x)
    _checks.check_axes("x", x.shape, 3, "(..., h, n, d)")
    repeats = _checks.check_count("repeats", repeats)
    return x if repeats == 1 else np.repeat(x, repeats, axis=-3)


class KeyValueCache:
    """The keys and values of all tokens so far, so that a text can be read token by token.

    Pass one to each layer, `mha(x, cache=cache)`, with the tokens that come next: their queries
    meet the keys of all tokens so far. Keys are kept as they are attended to, rotated, and not
    repeated for the heads that share them.

    `len(cache)`: how many tokens it holds. `cache.key (..., h, n, d_k)` and
    `cache.value (..., h, n, d_v)`: what it holds, as views; None in a new cache.

    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need",
    section 2.4, where keys and values of the tokens before are kept too.

    >>> cache = KeyValueCache()
    >>> key, value = cache.append(np.zeros((3, 4, 2)), np.zeros((3, 4, 5)))
    >>> key, value = cache.append(np.ones((3, 1, 2)), np.ones((3, 1, 5)))
    >>> len(cache), key.shape, value.shape
    (5, (3, 5, 2), (3, 5, 5))
    """

    def __init__(self):
        self._length, self._keys, self._values = 0, None, None

    def __len__(self):
        return self._length

    @property
    def key(self):
        """The keys so far, or None."""
        return None if self._keys is None else self._keys[..., : self._length, :]

    @property
    def value(self):
        """The values so far, or None."""
        return None if self._values is None else self._values[..., : self._length, :]

    def append(self, key, value):
        """Take in the next tokens; returns the keys and values of all tokens so far.

        key `(..., n, d_k)`, value `(..., n, d_v)`: copied. The room for them doubles when it is
        full, so that what is held is not moved again for each token.

        Raises `ValueError` for shapes and `TypeError` for dtypes other than those in the cache.
        """
        held = {} if self._keys is None else {"cache.key": self.key, "cache.value": self.value}
        check_floating(key=key, value=value, **held)
        _checks.check_entry(key.shape, value.shape, [x.shape for x in held.values()] or None)
        self._keys = _joined(self._keys, self._length, key)
        self._values = _joined(self._values, self._length, value)
        self._length += key.shape[-2]
        return self.key, self.value

    def copy(self):
        """A cache that holds the same and reads on by itself; what `copy` and `deepcopy` make."""
        other = KeyValueCache()
        if len(self):
            other._length = len(self)
            other._keys, other._values = self.key.copy(), self.value.copy()
        return other

    __copy__ = copy

    def __deepcopy__(self, memo):
        return self.copy()

    def truncate(self, length):
        """Forget all but the first `length` tokens."""
        self._length = _checks.check_length(length, self._length)
        if not length:  # as new: whatever comes next may have another shape
            self._keys = self._values = None


def _joined(rows, filled, new):
    """The first `filled` of `rows`, then the `new` ones, in twice the room where it is full."""
    rows = new[..., :0, :] if rows is None else rows
    stop = filled + new.shape[-2]
    if stop > rows.shape[-2]:
        held = rows[..., :filled, :]
        rows = np.empty((*new.shape[:-2], max(stop, 2 * filled), new.shape[-1]), new.dtype)
        rows[..., :filled, :] = held
    rows[..., filled:stop, :] = new
    return rows


class MultiHeadAttention:
    """Several heads that attend side by side, and a matrix that mixes what they found.

    d_model: width of what queries are made of. d_source: width of what keys and values are made
    of, d_out: width of the output, both by default `d_model`. d_k, d_v: widths of one head's
    queries and keys, and of its values, by default `d_model // num_heads`, which must divide.
    num_kv_heads: heads of keys and values, by default `num_heads`. Fewer are shared, each by as
    many heads of queries in a row: "grouped-query" attention, "multi-query" with one.
    projection_bias: whether each of the four projections adds a bias, at first zero.
    rotate: a function `(x, positions) -> x`, applied to queries and keys `(..., h, n, d_k)` at
    positions `(n,)`, an integer array that counts from 0, or on from what a cache holds.
    generator: a `numpy.random.Generator` for the weights, Xavier uniform, in float64.

    Weights act on the right: `W_Q (d_model, h*d_k)`, `W_K (d_source, h_kv*d_k)`,
    `W_V (d_source, h_kv*d_v)`, `W_O (h*d_v, d_out)`, and `b_Q`, `b_K`, `b_V`, `b_O`, each None
    without bias.

    Raises `ValueError` or `TypeError` for sizes that do not fit, by name.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2; shared keys: Ainslie
    et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", section 2.2; rotate: Su et al. 2021, "RoFormer", section 3.2.

    >>> mha = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
    >>> x, source = np.ones((3, 8)), np.ones((4, 8))
    >>> mha(x).shape, mha(x, source).shape, mha.attention_weights(x, source).shape
    ((3, 8), (3, 8), (2, 3, 4))
    """

    def __init__(
        self,
        d_model,
        num_heads,
        *,
        num_kv_heads=None,
        d_k=None,
        d_v=None,
        d_out=None,
        d_source=None,
        projection_bias=True,
        rotate=None,
        generator=None,
    ):
        d_model = _checks.check_count("d_model", d_model)
        h = self.num_heads = _checks.check_count("num_heads", num_heads)
        h_kv = self.num_kv_heads = _checks.key_heads(num_kv_heads, h)
        d_k = _checks.head_width("d_k", d_k, d_model, h)
        d_v = _checks.head_width("d_v", d_v, d_model, h)
        d_out = d_model if d_out is None else _checks.check_count("d_out", d_out)
        d_source = d_model if d_source is None else _checks.check_count("d_source", d_source)
        _checks.check_flag("projection_bias", projection_bias)
        _checks.check_rotate(rotate)
        self.rotate = rotate
        generator = check_generator(generator)
        self.W_Q = xavier_uniform(d_model, h * d_k, generator=generator)
        self.W_K = xavier_uniform(d_source, h_kv * d_k, generator=generator)
        self.W_V = xavier_uniform(d_source, h_kv * d_v, generator=generator)
        self.W_O = xavier_uniform(h * d_v, d_out, generator=generator)
        widths = (h * d_k, h_kv * d_k, h_kv * d_v, d_out)
        self.b_Q, self.b_K, self.b_V, self.b_O = (
            np.zeros(width) if projection_bias else None for width in widths
        )

    @classmethod
    def from_weights(
        cls,
        W_Q,
        W_K,
        W_V,
        W_O,
        *,
        num_heads,
        num_kv_heads=None,
        b_Q=None,
        b_K=None,
        b_V=None,
        b_O=None,
        rotate=None,
    ):
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
        shapes = {name: shape_of(w) for name, w in given.items()}
        _checks.check_rotate(rotate)
        self = cls.__new__(cls)
        self.num_heads, self.num_kv_heads = _checks.check_head_weights(
            shapes, num_heads, num_kv_heads
        )
        self.rotate = rotate
        for name, w in given.items():
            setattr(self, name, None if w is None else w.copy())
        return self

    def __call__(self, x, source=None, value_source=None, *, mask=None, bias=None, cache=None):
        """The output `(..., n_query, d_out)` for `x (..., n_query, d_model)`.

        source `(..., n_key, d_source)`: what keys and values are made of, by default x itself;
        value_source `(..., n_key, d_source)`: what values are made of, by default what keys are.
        mask, bias: as in `scaled_dot_product_attention`, for scores `(..., h, n_query, n_key)`; a
        padding mask needs the head axis, `padding_mask(lengths, n_key)[:, None]`.
        cache: a `KeyValueCache` of the tokens before x, without a source. The tokens of x are
        added to it, and `n_key` counts all that it then holds. A causal mask is still needed
        where x holds several tokens. A call that raises leaves the cache as it was.
        """
        if cache is not None:
            _checks.check_cache(cache, KeyValueCache, source, value_source)
        with unchanged_on_error(cache):
            query, key, value = self._heads(x, source, value_source, cache)
            heads = scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)
            return project(merge_heads(heads), self.W_O, self.b_O)

    def attention_scores(self, x, source=None, *, bias=None):
        """The scores of each head before any mask, `(..., h, n_query, n_key)`."""
        query, key, _ = self._heads(x, source)
        return attention_scores(query, key, bias=bias)

    def attention_weights(self, x, source=None, *, mask=None, bias=None):
        """The weights of each head, `(..., h, n_query, n_key)`; arguments as for the output."""
        query, key, _ = self._heads(x, source)
        return attention_weights(query, key, mask=mask, bias=bias)

    def head_contributions(self, x, source=None, value_source=None, *, mask=None, bias=None):
        """What each head adds to the output, `(..., h, n_query, d_out)`; arguments as for it.

        Their sum over the heads, plus `b_O`, is the output: head `i` alone meets the rows
        `i*d_v` to `(i+1)*d_v` of `W_O`.

        Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", where
        heads are independent and additive.

        >>> mha = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
        >>> x = np.ones((3, 8))
        >>> np.allclose(mha.head_contributions(x).sum(axis=-3) + mha.b_O, mha(x))
        True
        """
        query, key, value = self._heads(x, source, value_source)
        heads = scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)
        W_O = working(self.W_O).reshape(self.num_heads, -1, self.W_O.shape[1])
        return (working(heads) @ W_O).astype(heads.dtype.type, copy=False)

    def project_heads(self, x, source=None, value_source=None):
        """Query `(..., h, n_query, d_k)`, key and value `(..., h_kv, n_key, d)` of each head.

        x, source, value_source: as for the output. Nothing is rotated or repeated yet.
        """
        given = {"x": x, "source": source, "value_source": value_source}
        check_floating(**{name: a for name, a in given.items() if a is not None or name == "x"})
        _checks.check_sources(*map(shape_of, given.values()), len(self.W_Q), len(self.W_K))
        source = x if source is None else source
        value_source = source if value_source is None else value_source
        return (
            split_heads(project(x, self.W_Q, self.b_Q), self.num_heads),
            split_heads(project(source, self.W_K, self.b_K), self.num_kv_heads),
            split_heads(project(value_source, self.W_V, self.b_V), self.num_kv_heads),
        )

    def _heads(self, x, source=None, value_source=None, cache=None):
        """Query, key and value as they meet: rotated, after those before them, one a head."""
        query, key, value = self.project_heads(x, source, value_source)
        if self.rotate is not None:
            start = 0 if cache is None else len(cache)
            query, key = self._rotated(query, start), self._rotated(key, start)
        if cache is not None:
            key, value = cache.append(key, value)
        repeats = self.num_heads // self.num_kv_heads
        return query, repeat_heads(key, repeats), repeat_heads(value, repeats)

    def _rotated(self, x, start):
        """`x (..., h, n, d_k)` rotated, its first token at position `start`."""
        rotated = self.rotate(x, np.arange(start, start + x.shape[-2]))
        check_floating(**{"x": x, "rotate(x, positions)": rotated})
        _checks.check_rotated(x.shape, rotated.shape)
        return rotated
