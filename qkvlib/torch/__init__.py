"""Attention in PyTorch: the twin of `qkvlib.numpy`, with the same names, on any device."""

from qkvlib.torch.attention import (
    attention_scores,
    attention_weights,
    log_softmax,
    scaled_dot_product_attention,
    softmax,
)
from qkvlib.torch.blocks import FeedForward, LayerNorm, TransformerBlock, gelu, layer_norm
from qkvlib.torch.devices import best_device
from qkvlib.torch.initialization import xavier_normal, xavier_uniform
from qkvlib.torch.masks import causal_mask, padding_mask, window_mask
from qkvlib.torch.models import Encoder, Trace
from qkvlib.torch.multihead import MultiHeadAttention, merge_heads, project, split_heads
from qkvlib.torch.positions import learned_positions

__all__ = [
    "Encoder",
    "FeedForward",
    "LayerNorm",
    "MultiHeadAttention",
    "Trace",
    "TransformerBlock",
    "attention_scores",
    "attention_weights",
    "best_device",
    "causal_mask",
    "gelu",
    "layer_norm",
    "learned_positions",
    "log_softmax",
    "merge_heads",
    "padding_mask",
    "project",
    "scaled_dot_product_attention",
    "softmax",
    "split_heads",
    "window_mask",
    "xavier_normal",
    "xavier_uniform",
]
