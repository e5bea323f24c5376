"""Projections, heads, and the layer that puts them together."""

import torch
from torch import nn

from qkvlib import _checks
from qkvlib._caches import unchanged_on_error
from qkvlib.numpy.multihead import MultiHeadAttention as NumpyAttention
from qkvlib.torch._tensors import check_floating, check_tensor, from_array, shape_of, to_array
from qkvlib.torch.attention import attend, attention_scores, attention_weights
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


def repeat_heads(x, repeats):
    """Each head `repeats` times in a row: `(..., h, n, d)` -> `(..., h * repeats, n, d)`.

    So heads of keys and values that several heads of queries share stand beside each of them.
    x: tensor of any dtype with at least 3 axes, else `ValueError`; repeats: at least 1.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from
    Multi-Head Checkpoints", figure 2.

    >>> repeat_heads(torch.tensor([[[1, 2]], [[3, 4]]]), 2)
    tensor([[[1, 2]],
    <BLANKLINE>
            [[1, 2]],
    <BLANKLINE>
            [[3, 4]],
    <BLANKLINE>
            [[3, 4]]])
    """
    check_tensor("x", x)
    _checks.check_axes("x", shape_of(x), 3, "(..., h, n, d)")
    repeats = _checks.check_count("repeats", repeats)
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=-3)


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
    >>> key, value = cache.append(torch.zeros(3, 4, 2), torch.zeros(3, 4, 5))
    >>> key, value = cache.append(torch.ones(3, 1, 2), torch.ones(3, 1, 5))
    >>> len(cache), tuple(key.shape), tuple(value.shape)
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
        full, so that what is held is not moved again for each token; while torch records
        gradients, which flow through a cache too, all are copied each time instead.

        Raises `ValueError` for shapes and `TypeError` for dtypes other than those in the cache.
        """
        held = {} if self._keys is None else {"cache.key": self.key, "cache.value": self.value}
        check_floating(key=key, value=value, **held)
        _checks.check_entry(*map(shape_of, (key, value)), [*map(shape_of, held.values())] or None)
        self._keys = _joined(self._keys, self._length, key)
        self._values = _joined(self._values, self._length, value)
        self._length += key.shape[-2]
        return self.key, self.value

    def copy(self):
        """A cache that holds the same and reads on by itself; what `copy` and `deepcopy` make."""
        other = KeyValueCache()
        if len(self):
            other._length = len(self)
            other._keys, other._values = self.key.clone(), self.value.clone()
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
    if torch.is_grad_enabled():  # what gradients are computed from must not be written to
        return torch.cat([rows[..., :filled, :], new], dim=-2)
    stop = filled + new.shape[-2]
    if stop > rows.shape[-2]:
        held = rows[..., :filled, :]
        rows = new.new_empty(*new.shape[:-2], max(stop, 2 * filled), new.shape[-1])
        rows[..., :filled, :] = held
    rows[..., filled:stop, :] = new
    return rows


WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


class MultiHeadAttention(nn.Module):
    """Several heads that attend side by side, and a matrix that mixes what they found.

    d_model: width of what queries are made of. d_source: width of what keys and values are made
    of, d_out: width of the output, both by default `d_model`. d_k, d_v: widths of one head's
    queries and keys, and of its values, by default `d_model // num_heads`, which must divide.
    num_kv_heads: heads of keys and values, by default `num_heads`. Fewer are shared, each by as
    many heads of queries in a row: "grouped-query" attention, "multi-query" with one.
    projection_bias: whether each of the four projections adds a bias, at first zero.
    rotate: a function `(x, positions) -> x`, applied to queries and keys `(..., h, n, d_k)` at
    positions `(n,)`, an integer tensor that counts from 0, or on from what a cache holds.
    dropout: the share of the weights, in [0, 1), that is dropped in training mode, drawn by
    torch's own generator; those kept grow by `1 / (1 - dropout)`. In evaluation mode, `.eval()`,
    none is. What `attention_weights` and `head_contributions` return is without it.
    generator: a `torch.Generator` for the weights, Xavier uniform, in torch's default dtype.

    The projections are four `nn.Linear`, `query`, `key`, `value` and `output`, which keep
    their weights transposed. `W_Q (d_model, h*d_k)`, `W_K (d_source, h_kv*d_k)`,
    `W_V (d_source, h_kv*d_v)`, `W_O (h*d_v, d_out)` and `b_Q`, `b_K`, `b_V`, `b_O` read them as
    the NumPy twin has them.

    Under `torch.autocast` it follows autocast: products and output in autocast's dtype, weights
    and their softmax in float32.

    Raises `ValueError` or `TypeError` for sizes that do not fit, by name.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2; shared keys: Ainslie
    et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", section 2.2; rotate: Su et al. 2021, "RoFormer", section 3.2.

    >>> mha = MultiHeadAttention(8, 2, generator=torch.Generator().manual_seed(0))
    >>> x, source = torch.ones(3, 8), torch.ones(4, 8)
    >>> tuple(mha(x, source).shape), tuple(mha.attention_weights(x, source).shape)
    ((3, 8), (2, 3, 4))
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
        dropout=0.0,
        generator=None,
        device=None,
    ):
        super().__init__()
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
        self.dropout = _checks.check_dropout(dropout)
        generator = check_generator(generator)

        def linear(fan_in, fan_out):
            W = xavier_uniform(fan_in, fan_out, generator=generator, device=device)
            return linear_from(W, torch.zeros(fan_out, device=device) if projection_bias else None)

        self.query = linear(d_model, h * d_k)
        self.key = linear(d_source, h_kv * d_k)
        self.value = linear(d_source, h_kv * d_v)
        self.output = linear(h * d_v, d_out)

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
        floating tensors of one dtype.

        >>> W = torch.eye(4)
        >>> MultiHeadAttention.from_weights(W, W, W, W, num_heads=2)(torch.ones(1, 4)).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
        """
        given = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
        given |= {"b_Q": b_Q, "b_K": b_K, "b_V": b_V, "b_O": b_O}
        check_floating(**{name: w for name, w in given.items() if w is not None or name[0] == "W"})
        shapes = {name: shape_of(w) for name, w in given.items()}
        _checks.check_rotate(rotate)
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.num_heads, self.num_kv_heads = _checks.check_head_weights(
            shapes, num_heads, num_kv_heads
        )
        self.rotate, self.dropout = rotate, 0.0
        self.query = linear_from(W_Q, b_Q)
        self.key = linear_from(W_K, b_K)
        self.value = linear_from(W_V, b_V)
        self.output = linear_from(W_O, b_O)
        return self

    @classmethod
    def from_numpy(cls, other):
        """The twin of a `qkvlib.numpy.MultiHeadAttention`: its weights copied, in their dtype.

        Raises `ValueError` for a layer with `rotate`, a function of the other twin's arrays.

        >>> from qkvlib import numpy as in_numpy
        >>> MultiHeadAttention.from_numpy(in_numpy.MultiHeadAttention(8, 2)).W_Q.dtype
        torch.float64
        """
        _checks.check_layer("other", other, NumpyAttention)
        _checks.check_no_rotation(other.rotate)
        return cls.from_weights(
            **{name: from_array(getattr(other, name)) for name in WEIGHTS},
            num_heads=other.num_heads,
            num_kv_heads=other.num_kv_heads,
        )

    def to_numpy(self):
        """The twin in NumPy: the weights copied, in their dtype. It knows no dropout.

        Raises `ValueError` for a layer with `rotate`, a function of this twin's tensors, and
        `TypeError` for bfloat16, which NumPy does not have, and for a class derived from this one,
        which may compute something else.

        >>> type(MultiHeadAttention(8, 2).to_numpy())
        <class 'qkvlib.numpy.multihead.MultiHeadAttention'>
        """
        _checks.check_layer("layer", self, MultiHeadAttention)
        _checks.check_no_rotation(self.rotate)
        return NumpyAttention.from_weights(
            **{name: to_array(name, getattr(self, name)) for name in WEIGHTS},
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
        )

    @classmethod
    def from_torch(cls, module):
        """A layer that computes what a `torch.nn.MultiheadAttention` computes of batches first.

        The weights are copied, in their dtype, on their device; dropout and mode come along.
        `batch_first` does not matter to the weights: this layer is batch first always. Masks mean
        the opposite there: True forbids.

        Raises `ValueError` for what this layer does not have: `add_bias_kv`, `add_zero_attn`, and
        a `kdim` or `vdim` other than `embed_dim`.

        >>> module = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.ones(3, 8)
        >>> torch.allclose(MultiHeadAttention.from_torch(module)(x), module(x, x, x)[0], atol=1e-6)
        True
        """
        _checks.check_layer("module", module, nn.MultiheadAttention)
        d_model = module.embed_dim
        _checks.check_foreign(
            add_bias_kv=module.bias_k is not None,
            add_zero_attn=module.add_zero_attn,
            kdim=module.kdim if module.kdim != d_model else None,
            vdim=module.vdim if module.vdim != d_model else None,
        )
        rows = (*module.in_proj_weight.chunk(3), module.out_proj.weight)
        biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
        given = (*(W.T for W in rows), *biases, module.out_proj.bias)
        self = cls.from_weights(**dict(zip(WEIGHTS, given)), num_heads=module.num_heads)
        self.dropout = _checks.check_dropout(module.dropout)
        return self.train(module.training)

    def to_torch(self):
        """A `torch.nn.MultiheadAttention` with `batch_first=True` that computes the same.

        The weights are copied, in their dtype, on their device; dropout and mode come along. Where
        only some projections have a bias, the others get one of zeros.

        Raises `ValueError` for what it does not have: a `d_k` or `d_v` other than `d_model /
        num_heads`, a `d_out` or `d_source` other than `d_model`, shared key heads, `rotate`; and
        `TypeError` for a class derived from this one, which may compute something else.

        >>> MultiHeadAttention(8, 2).to_torch().batch_first
        True
        """
        _checks.check_layer("layer", self, MultiHeadAttention)
        _checks.check_standard(
            {name: shape_of(getattr(self, name)) for name in ("W_Q", "W_K", "W_O")},
            self.num_heads,
            self.num_kv_heads,
            self.rotate,
        )
        linears = (self.query, self.key, self.value, self.output)
        d_model, biased = self.query.in_features, any(n.bias is not None for n in linears)
        module = nn.MultiheadAttention(  # on "meta" it draws no weights of its own
            d_model, self.num_heads, self.dropout, biased, batch_first=True, device="meta"
        )
        *rows, out_rows = (n.weight.detach().clone() for n in linears)
        state = {"in_proj_weight": torch.cat(rows), "out_proj.weight": out_rows}
        if biased:
            none = out_rows.new_zeros(d_model)
            *biases, out_bias = (none if n.bias is None else n.bias.detach() for n in linears)
            state |= {"in_proj_bias": torch.cat(biases), "out_proj.bias": out_bias.clone()}
        module.load_state_dict(state, assign=True)
        return module.train(self.training)

    def forward(self, x, source=None, value_source=None, *, mask=None, bias=None, cache=None):
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
            dropout = self.dropout if self.training else 0.0
            heads = attend(query, key, value, mask, bias, dropout=dropout)
            return self.output(merge_heads(heads))

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

        >>> mha = MultiHeadAttention(8, 2, generator=torch.Generator().manual_seed(0))
        >>> x = torch.ones(3, 8)
        >>> torch.allclose(mha.head_contributions(x).sum(dim=-3) + mha.b_O, mha(x), atol=1e-6)
        True
        """
        query, key, value = self._heads(x, source, value_source)
        heads = attend(query, key, value, mask, bias)
        return heads @ self.W_O.unflatten(0, (self.num_heads, -1))

    def project_heads(self, x, source=None, value_source=None):
        """Query `(..., h, n_query, d_k)`, key and value `(..., h_kv, n_key, d)` of each head.

        x, source, value_source: as for the output. Nothing is rotated or repeated yet.
        """
        given = {"x": x, "source": source, "value_source": value_source}
        given = {name: a for name, a in given.items() if a is not None or name == "x"}
        check_floating(**given, W_Q=self.query.weight)
        _checks.check_sources(
            *map(shape_of, (x, source, value_source)), self.query.in_features, self.key.in_features
        )
        source = x if source is None else source
        value_source = source if value_source is None else value_source
        return (
            split_heads(self.query(x), self.num_heads),
            split_heads(self.key(source), self.num_kv_heads),
            split_heads(self.value(value_source), self.num_kv_heads),
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
        rotated = self.rotate(x, torch.arange(start, start + x.shape[-2], device=x.device))
        check_floating(**{"x": x, "rotate(x, positions)": rotated})
        _checks.check_rotated(shape_of(x), shape_of(rotated))
        return rotated

    W_Q = property(lambda self: self.query.weight.T, doc="`(d_model, h*d_k)`")
    W_K = property(lambda self: self.key.weight.T, doc="`(d_source, h_kv*d_k)`")
    W_V = property(lambda self: self.value.weight.T, doc="`(d_source, h_kv*d_v)`")
    W_O = property(lambda self: self.output.weight.T, doc="`(h*d_v, d_out)`")
    b_Q = property(lambda self: self.query.bias, doc="`(h*d_k,)` or None")
    b_K = property(lambda self: self.key.bias, doc="`(h_kv*d_k,)` or None")
    b_V = property(lambda self: self.value.bias, doc="`(h_kv*d_v,)` or None")
    b_O = property(lambda self: self.output.bias, doc="`(d_out,)` or None")


def linear_from(W, b=None):
    """An `nn.Linear` that computes `x @ W + b`: it keeps a copy of `W (d_in, d_out)` transposed."""
    linear = nn.Linear(*W.shape, bias=b is not None, device="meta")
    linear.weight = nn.Parameter(W.detach().T.clone(memory_format=torch.contiguous_format))
    if b is not None:
        linear.bias = nn.Parameter(b.detach().clone())
    return linear
