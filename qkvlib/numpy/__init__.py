"""Attention in NumPy: the reference, written to be read."""

from qkvlib.numpy.attention import (
    attention_scores,
    attention_weights,
    log_softmax,
    scaled_dot_product_attention,
    softmax,
)
from qkvlib.numpy.blocks import FeedForward, LayerNorm, TransformerBlock, gelu, layer_norm
from qkvlib.numpy.initialization import xavier_normal, xavier_uniform
from qkvlib.numpy.masks import causal_mask, padding_mask, window_mask
from qkvlib.numpy.models import Encoder, Trace
from qkvlib.numpy.multihead import MultiHeadAttention, merge_heads, project, split_heads
from qkvlib.numpy.positions import learned_positions

__all__ = [
    "Encoder",
    "FeedForward",
    "LayerNorm",
    "MultiHeadAttention",
    "Trace",
    "TransformerBlock",
    "attention_scores",
    "attention_weights",
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
