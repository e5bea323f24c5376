"""Attention in PyTorch: the twin of `qkvlib.numpy`, with the same names, on any device."""

from qkvlib.torch.attention import (
    attention_scores,
    attention_weights,
    chunked_attention,
    log_softmax,
    scaled_dot_product_attention,
    softmax,
)
from qkvlib.torch.blocks import (
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
from qkvlib.torch.decoding import generate, token_probabilities
from qkvlib.torch.devices import best_device
from qkvlib.torch.initialization import scaled_residual, xavier_normal, xavier_uniform
from qkvlib.torch.masks import causal_mask, padding_mask, window_mask
from qkvlib.torch.models import Decoder, Encoder, Trace
from qkvlib.torch.multihead import (
    KeyValueCache,
    MultiHeadAttention,
    merge_heads,
    project,
    repeat_heads,
    split_heads,
)
from qkvlib.torch.positions import (
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
    "best_device",
    "causal_mask",
    "chunked_attention",
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
    "scaled_residual",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "token_probabilities",
    "window_mask",
    "xavier_normal",
    "xavier_uniform",
]
