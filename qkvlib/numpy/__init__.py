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
from qkvlib.numpy.decoding import generate, token_probabilities
from qkvlib.numpy.initialization import xavier_normal, xavier_uniform
from qkvlib.numpy.masks import causal_mask, padding_mask, window_mask
from qkvlib.numpy.models import Decoder, Encoder, Trace
from qkvlib.numpy.multihead import (
    KeyValueCache,
    MultiHeadAttention,
    merge_heads,
    project,
    repeat_heads,
    split_heads,
)
from qkvlib.numpy.positions import (
    alibi_bias,
    interleaved_to_half,
    learned_positions,
    relative_buckets,
    relative_distances,
    relative_key_scores,
    rotary_angles,
    rotate,
    sinusoidal_positions,
)

__all__ = [
    "Decoder",
    "Encoder",
    "FeedForward",
    "KeyValueCache",
    "LayerNorm",
    "MultiHeadAttention",
    "RMSNorm",
    "SwiGLU",
    "Trace",
    "TransformerBlock",
    "alibi_bias",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "gelu",
    "gelu_tanh",
    "generate",
    "interleaved_to_half",
    "layer_norm",
    "learned_positions",
    "log_softmax",
    "merge_heads",
    "padding_mask",
    "project",
    "relative_buckets",
    "relative_distances",
    "relative_key_scores",
    "relu",
    "repeat_heads",
    "rms_norm",
    "rotary_angles",
    "rotate",
    "scaled_dot_product_attention",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "token_probabilities",
    "window_mask",
    "xavier_normal",
    "xavier_uniform",
]
