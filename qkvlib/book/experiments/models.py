"""Small models made of the parts of `qkvlib.torch`, with weights drawn by NumPy.

Everything is float64: the rounding of another processor then stays invisible after training.
"""

import math

import torch
from torch import nn

from qkvlib.torch import (
    Encoder,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    TransformerBlock,
)


def reader(
    generator, *, vocabulary, length, d_model=64, num_heads=1, d_k=None, positions="learned"
):
    """A model of one block that reads tokens and scores, at each place, every possible answer.

    generator: a NumPy Generator; positions: "learned", or None for a model that is not told
    where a token stands; d_k: by default `d_model // num_heads`.
    -> `nn.Sequential(encoder, norm, linear)`; `model[0].blocks[0].attention` are its heads,
    `attention_weights(model, tokens)` what they read.
    """
    width = dict(generator=generator, d_model=d_model)
    block = TransformerBlock.from_parts(
        attention(**width, num_heads=num_heads, d_k=d_k),
        feed_forward(**width),
        LayerNorm(d_model),
        LayerNorm(d_model),
    )
    tokens = normal(generator, vocabulary, d_model)
    places = normal(generator, length, d_model) if positions else torch.zeros(length, d_model)
    encoder = Encoder(tokens, places, norm=nn.Identity(), blocks=[block])
    encoder.position_table.requires_grad_(positions is not None)
    answer = nn.Linear(d_model, vocabulary, bias=False)
    answer.weight = nn.Parameter(normal(generator, vocabulary, d_model) / math.sqrt(d_model))
    return nn.Sequential(encoder, LayerNorm(d_model), answer).double()


def attention(generator, d_model, num_heads, d_k=None):
    """A `MultiHeadAttention` without biases, its weights normal with variance 1 / fan_in."""
    d_v = d_model // num_heads
    d_k = d_v if d_k is None else d_k
    return MultiHeadAttention.from_weights(
        W_Q=projection(generator, d_model, num_heads * d_k),
        W_K=projection(generator, d_model, num_heads * d_k),
        W_V=projection(generator, d_model, num_heads * d_v),
        W_O=projection(generator, num_heads * d_v, d_model),
        num_heads=num_heads,
    )


def feed_forward(generator, d_model):
    """A `FeedForward` of width 4 * d_model, its weights normal with variance 1 / fan_in."""
    return FeedForward.from_weights(
        W_1=projection(generator, d_model, 4 * d_model),
        b_1=torch.zeros(4 * d_model).double(),
        W_2=projection(generator, 4 * d_model, d_model),
        b_2=torch.zeros(d_model).double(),
    )


def projection(generator, fan_in, fan_out):
    """A matrix (fan_in, fan_out), normal with variance 1 / fan_in."""
    return normal(generator, fan_in, fan_out) / math.sqrt(fan_in)


def normal(generator, *shape):
    """Standard normal numbers from a NumPy Generator, as a float64 tensor."""
    return torch.from_numpy(generator.standard_normal(shape))


def tie(attention, tied):
    """Let two projections of `attention` be one: "query-key", "key-value", or None for neither."""
    match tied:
        case "query-key":
            attention.key = attention.query
        case "key-value":
            attention.value = attention.key
        case None:
            pass
        case _:
            raise ValueError(
                f"tied must be 'query-key', 'key-value' or None, got {tied!r}; check the spelling"
            )


def rescale(attention, scale):
    """Multiply the scores of `attention` by `scale` instead of 1 / sqrt(d_k).

    scale: a number, or None to change nothing. With 0 all scores are 0 and the weights uniform.
    """
    if scale is not None:
        d_k = attention.query.out_features // attention.num_heads
        factor = scale * math.sqrt(d_k)
        attention.query.register_forward_hook(lambda linear, inputs, query: factor * query)


def attention_weights(model, tokens):
    """What the heads of a `reader` read: tokens (batch, n), NumPy -> (batch, h, n, n), NumPy."""
    with torch.no_grad():
        [weights] = model[0].trace(torch.from_numpy(tokens)).weights
    return weights.numpy()
