"""Attention in NumPy: the reference, written to be read."""

from qkvlib.numpy.attention import (
    attention_scores,
    attention_weights,
    log_softmax,
    scaled_dot_product_attention,
    softmax,
)
from qkvlib.numpy.blocks import (
    FeedForward,
    LayerNorm,
    RMSNorm,
    SwiGLU,
    TransformerBlock,
    gelu,
    gelu_tanh,
    layer_norm,
    relu,
    rms_norm,
    silu,
)
from qkvlib.numpy.initialization import xavier_normal, xavier_uniform
from qkvlib.numpy.masks import causal_mask, padding_mask, window_mask
from qkvlib.numpy.models import Encoder, Trace
from qkvlib.numpy.multihead import (
    KeyValueCache,
    MultiHeadAttention,
    merge_heads,
    project,
    repeat_heads,
    split_heads,
)
from qkvlib.numpy.positions import (
    interleaved_to_half,
    learned_positions,
    rotary_angles,
    rotate,
)

__all__ = [
    "Encoder",
    "FeedForward",
    "KeyValueCache",
    "LayerNorm",
    "MultiHeadAttention",
    "RMSNorm",
    "SwiGLU",
    "Trace",
    "TransformerBlock",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "gelu",
    "gelu_tanh",
    "interleaved_to_half",
    "layer_norm",
    "learned_positions",
    "log_softmax",
    "merge_heads",
    "padding_mask",
    "project",
    "relu",
    "repeat_heads",
    "rms_norm",
    "rotary_angles",
    "rotate",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "split_heads",
    "window_mask",
    "xavier_normal",
    "xavier_uniform",
]
