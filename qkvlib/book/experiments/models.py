"""Small models made of the parts of `qkvlib.torch`, with weights drawn by NumPy.

Everything is float64: training repeats the rounding of each step in the next ones, and float64
keeps what another processor rounds differently too small to be seen.
"""

import math
from functools import partial

import torch
from torch import nn

from qkvlib._checks import check_count
from qkvlib.torch import Encoder, FeedForward, LayerNorm, MultiHeadAttention, TransformerBlock
from qkvlib.torch.multihead import linear_from


def reader(generator, attention, **sizes):
    """A model of one block that reads tokens and scores, at each place, every possible token.

    generator: a NumPy Generator; attention: the block's layer, as `heads` makes one
    vocabulary, length: how many tokens there are, and how many a sequence has
    positions: "learned", or None for a model that is not told where a token stands
    -> an `nn.Sequential` of encoder, norm and read-out: tokens (..., n) -> (..., n, vocabulary)

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.1, the encoder with one
    layer; the norms as in Xiong et al. 2020, figure 1 (b).

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> model = reader(generator, heads(generator, d_model=8), vocabulary=5, length=3)
    >>> tuple(model(torch.tensor([[4, 0, 2]])).shape)
    (1, 3, 5)
    """
    return stack(generator, [block(generator, attention)], **sizes)


def stack(generator, blocks, *, vocabulary, length, positions="learned", pattern=None):
    """A model of these blocks, one after the other, each reading what the one before wrote.

    blocks: a list of what `block` makes; pattern: who may attend to whom in every block, None
    for everybody; the rest, and what comes back, as in `reader`
    """
    check_choice("positions", positions, "learned", None)
    d_model = blocks[0].attention.query.in_features
    tokens = normal(generator, vocabulary, d_model)
    places = torch.zeros(length, d_model, dtype=tokens.dtype)
    if positions == "learned":
        places = normal(generator, length, d_model)
    encoder = MaskedEncoder(tokens, places, norm=nn.Identity(), blocks=blocks)
    encoder.pattern = pattern
    encoder.position_table.requires_grad_(positions == "learned")
    answers = normal(generator, vocabulary, d_model) / math.sqrt(d_model)
    return nn.Sequential(encoder, LayerNorm(d_model), linear_from(answers.T)).double()


class MaskedEncoder(Encoder):
    """An `Encoder` that knows by itself who may attend to whom."""

    pattern = None

    def forward(self, ids, *, mask=None):
        return super().forward(ids, mask=self.pattern if mask is None else mask)

    def trace(self, ids, *, mask=None):
        return super().trace(ids, mask=self.pattern if mask is None else mask)


def block(generator, attention, *, norm="pre", skip=True):
    """A `TransformerBlock` around `attention`; without skip nothing is added to what came in."""
    kind = TransformerBlock if skip else WithoutSkip
    d_model = attention.query.in_features
    feed = feed_forward(generator, d_model)
    return kind.from_parts(attention, feed, LayerNorm(d_model), LayerNorm(d_model), norm=norm)


class WithoutSkip(TransformerBlock):
    """A block that hands on only what its parts make: the fault that collapses deep models."""

    def forward(self, x, *, mask=None, bias=None, cache=None):
        parts = (
            (partial(self.attention, mask=mask, bias=bias, cache=cache), self.attention_norm),
            (self.feed_forward, self.feed_forward_norm),
        )
        for part, norm in parts:
            x = part(norm(x)) if self.norm == "pre" else norm(part(x))
        return x


def heads(generator, num_heads=1, *, d_model=64, d_k=None, kind=MultiHeadAttention):
    """A `MultiHeadAttention` without biases, its weights normal with variance 1 / fan_in.

    generator: a NumPy Generator; d_k: by default `d_model // num_heads`, which d_v always is;
    kind: the class of the layer, such as a sick one of `qkvlib.book.patients`.
    """
    d_v = d_model // num_heads
    d_k = d_v if d_k is None else check_count("d_k", d_k)
    return kind.from_weights(
        W_Q=projection(generator, d_model, num_heads * d_k),
        W_K=projection(generator, d_model, num_heads * d_k),
        W_V=projection(generator, d_model, num_heads * d_v),
        W_O=projection(generator, num_heads * d_v, d_model),
        num_heads=num_heads,
    )


def tied(attention, pair):
    """`attention` with one matrix for both of "query-key" or "key-value"; None ties nothing."""
    check_choice("tied", pair, None, "query-key", "key-value")
    if pair == "query-key":
        attention.key = attention.query
    elif pair == "key-value":
        attention.value = attention.key
    return attention


def rescaled(attention, scale):
    """`attention` with its scores multiplied by `scale` instead of 1 / sqrt(d_k).

    scale: a number, or None to change nothing. With 0 every weight is 1 / n.
    """
    if scale is not None:
        factor = scale * math.sqrt(attention.query.out_features // attention.num_heads)
        attention.query.register_forward_hook(lambda linear, inputs, query: factor * query)
    return attention


def weights_of(model, tokens):
    """What the heads of a `reader` read: tokens (size, n) -> (size, h, n, n), both NumPy."""
    with torch.no_grad():
        [weights] = model[0].trace(torch.from_numpy(tokens)).weights
    return weights.numpy()


def feed_forward(generator, d_model):
    """A `FeedForward` of width 4 * d_model, its weights normal with variance 1 / fan_in."""
    d_ff = 4 * d_model
    return FeedForward.from_weights(
        W_1=projection(generator, d_model, d_ff),
        b_1=torch.zeros(d_ff, dtype=torch.float64),
        W_2=projection(generator, d_ff, d_model),
        b_2=torch.zeros(d_model, dtype=torch.float64),
    )


def projection(generator, fan_in, fan_out):
    """A matrix (fan_in, fan_out), normal with variance 1 / fan_in."""
    return normal(generator, fan_in, fan_out) / math.sqrt(fan_in)


def normal(generator, *shape):
    """Standard normal numbers from a NumPy Generator, as a float64 tensor."""
    return torch.from_numpy(generator.standard_normal(shape))


def check_choice(name, value, *choices):
    """`value` must be one of `choices`."""
    if value not in choices:
        listed = " or ".join(map(repr, choices))
        raise ValueError(f"{name} must be {listed}, got {value!r}; check the spelling")
