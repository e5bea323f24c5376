"""What does not fit is refused: which argument, what it should be, what came, what to try."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from twins import ATTENTION, BACKENDS, FEED_FORWARD, GATED, back, torch, weights

from qkvlib.patterns import (
    Pattern,
    blocks,
    causal,
    dilated,
    documents,
    global_tokens,
    prefix,
    random_blocks,
    strided,
    window,
)

CHOSEN = random_blocks(10, 3, 2, np.random.default_rng(0))

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


def zeros(*shape):
    return np.zeros(shape)


def qkv():
    return {"query": zeros(2, 3, 4, 7), "key": zeros(2, 3, 5, 7), "value": zeros(2, 3, 5, 6)}


def attend(**changes):
    """A call of attention with some arguments changed; arrays are handed to the twin as its own."""
    return ("scaled_dot_product_attention", qkv() | changes)


def weigh(**changes):
    return (
        "attention_weights",
        {name: x for name, x in (qkv() | changes).items() if name != "value"},
    )


class AsItIs:
    """An argument that the twin gets as it is."""

    def __init__(self, value):
        self.value = value


def call(twin, what):
    """Call a function by its name, or a method by `Class.method`, with arrays of this twin."""
    name, arguments = what
    function = twin.lib
    for part in name.split("."):
        function = getattr(function, part)
    made = {}
    for key, value in arguments.items():
        if isinstance(value, AsItIs):
            made[key] = value.value
        else:
            made[key] = twin.array(value) if isinstance(value, np.ndarray) else value
    return function(**made)


def mha(**changes):
    return (
        "MultiHeadAttention.from_weights",
        weights(np.random.default_rng(0), ATTENTION) | {"num_heads": 3} | changes,
    )


def feed_forward(**changes):
    return (
        "FeedForward.from_weights",
        weights(np.random.default_rng(0), FEED_FORWARD) | changes,
    )


def swiglu(**changes):
    return ("SwiGLU.from_weights", weights(np.random.default_rng(0), GATED) | changes)


def rotation(**changes):
    given = {"x": zeros(2, 3, 4, 6), "cos": zeros(4, 3), "sin": zeros(4, 3), "pairing": "half"}
    return ("rotate", given | changes)


def angles(**changes):
    return ("rotary_angles", {"positions": np.arange(4), "d_k": 6} | changes)


def distances(**changes):
    return ("relative_key_scores", {"query": zeros(2, 3, 4, 7), "table": zeros(5, 7)} | changes)


def buckets(**changes):
    given = {"distance": np.arange(4), "num_buckets": 12, "max_distance": 30}
    return ("relative_buckets", given | {"bidirectional": True} | changes)


def alibi(**changes):
    return ("alibi_bias", {"num_heads": 6, "n_query": 4} | changes)


def turned_by(*shape):
    return rotation(cos=zeros(*shape), sin=zeros(*shape))


def encoder(**changes):
    tables = {"token_table": zeros(9, 12), "position_table": zeros(6, 12)}
    return ("Encoder", tables | {"norm": lambda x: x, "blocks": []} | changes)


class Attention:
    """What one might take for a block."""

    W_O = np.ones((2, 3))
    feed_forward = "none"

    @property
    def attention(self):
        return self


SCORES = "(2, 3, 4, 5)"
TRUE = np.ones((4, 5), dtype=bool)


def true(*shape):
    return np.ones(shape, dtype=bool)


# what is called, the error, and what its message must say
SHAPES = {
    "query of one axis": (
        attend(query=zeros(7)),
        "query",
        "(..., n_query, d_k)",
        "(7,)",
        "query[None]",
    ),
    "key of one axis": (attend(key=zeros(7)), "key", "(..., n_key, d_k)", "(7,)", "key[None]"),
    "value of one axis": (
        attend(value=zeros(6)),
        "value",
        "(..., n_key, d_v)",
        "(6,)",
        "value[None]",
    ),
    "widths": (
        attend(key=zeros(2, 3, 5, 8)),
        "query and key must have the same width d_k",
        "7 from query (2, 3, 4, 7)",
        "8 from key (2, 3, 5, 8)",
        "project both",
    ),
    "no width": (attend(query=zeros(4, 0), key=zeros(5, 0)), "d_k of at least 1", "query (4, 0)"),
    "no keys": (
        attend(key=zeros(2, 3, 0, 7), value=zeros(2, 3, 0, 6)),
        "key must hold at least one key",
        "(2, 3, 0, 7)",
        "mask of False",
    ),
    "values": (
        attend(value=zeros(2, 3, 4, 6)),
        "value must hold one row for each key, n_key = 5",
        "got 4 rows from shape (2, 3, 4, 6)",
        "same tokens",
    ),
    "leading axes of the key": (
        attend(key=zeros(2, 4, 5, 7)),
        "leading axes (batch, heads) must be equal or 1",
        "query (2, 3)",
        "key (2, 4)",
        "x[:, None]",
    ),
    "leading axes of the value": (
        attend(value=zeros(4, 3, 5, 6)),
        "leading axes",
        "scores (2, 3)",
        "value (4, 3)",
    ),
    "mask": (
        attend(mask=true(4, 6)),
        f"mask must broadcast to the scores {SCORES}",
        "got shape (4, 6)",
        "last two axes are (n_query, n_key) = (4, 5)",
    ),
    "mask that would enlarge the scores": (
        attend(query=zeros(1, 3, 4, 7), key=zeros(1, 3, 5, 7), mask=true(2, 3, 4, 5)),
        "mask must broadcast to the scores (1, 3, 4, 5) without enlarging",
        SCORES,
    ),
    "mask with more queries": (
        attend(query=zeros(2, 3, 1, 7), mask=true(4, 5)),
        "mask must broadcast to the scores (2, 3, 1, 5) without enlarging",
        "(4, 5)",
    ),
    "mask without the head axis": (
        attend(mask=true(2, 1, 5)),
        "mask must have 2 axes (n_query, n_key) = (4, 5) or as many as the scores",
        "(2, 1, 5)",
        "head axis is missing: write mask[:, None]",
    ),
    "mask without the batch axis": (
        attend(mask=true(3, 4, 5)),
        "mask must have 2 axes",
        "(3, 4, 5)",
        "batch axis is missing: write mask[None]",
    ),
    "mask without the head axis, batch as large as heads": (
        weigh(query=zeros(3, 3, 4, 7), key=zeros(3, 3, 5, 7), mask=true(3, 1, 5)),
        "mask",
        "(3, 1, 5)",
        "mask[:, None]",
    ),
    "transposed mask": (
        attend(mask=true(5, 4)),
        "mask",
        "(5, 4)",
        "it looks transposed: rows are queries, columns are keys, try mask.swapaxes(-2, -1)",
    ),
    "transposed mask with all axes": (attend(mask=true(2, 3, 5, 4)), "mask", "transposed"),
    "mask of one axis": (attend(mask=true(5)), "mask", "(5,)", "mask[None, :]"),
    "mask of one number": (attend(mask=np.array(True)), "mask", "()"),
    "mask of batch and keys": (
        attend(mask=true(2, 5)),
        "mask",
        "(2, 5)",
        "for one row of keys per batch item write mask[:, None, None, :]",
    ),
    "mask of five axes": (attend(mask=true(1, 2, 3, 4, 5)), "mask", "(1, 2, 3, 4, 5)"),
    "bias": (
        attend(bias=zeros(4, 6)),
        f"bias must broadcast to the scores {SCORES}",
        "got shape (4, 6)",
        "(n_query, n_key)",
    ),
    "bias that would enlarge the scores": (
        attend(query=zeros(1, 3, 4, 7), key=zeros(1, 3, 5, 7), bias=zeros(2, 1, 4, 5)),
        "bias must broadcast to the scores (1, 3, 4, 5) without enlarging",
        "(2, 1, 4, 5)",
    ),
    "bias of five axes": (weigh(bias=zeros(1, 1, 1, 1, 1)), "bias", "(1, 1, 1, 1, 1)"),
    "axis": (("softmax", {"scores": zeros(3, 4), "axis": 2}), "axis", "2 axes", "(3, 4)", "got 2"),
    "negative axis": (("log_softmax", {"scores": zeros(3, 4), "axis": -3}), "axis", "got -3"),
    "axis of one number": (("softmax", {"scores": np.array(1.0)}), "axis", "0 axes"),
    "projection": (
        ("project", {"x": zeros(4, 5), "W": zeros(6, 7)}),
        "W must have as many rows as x is wide, d_in = 5 from x (4, 5)",
        "got W (6, 7)",
    ),
    "transposed projection": (
        ("project", {"x": zeros(4, 5), "W": zeros(7, 5)}),
        "W",
        "(7, 5)",
        "looks transposed: it acts on the right, x @ W",
    ),
    "W of one axis": (("project", {"x": zeros(4, 5), "W": zeros(5)}), "W", "(d_in, d_out)", "(5,)"),
    "projection bias": (
        ("project", {"x": zeros(4, 5), "W": zeros(5, 7), "b": zeros(5)}),
        "b must have shape (d_out,) = (7,)",
        "got (5,)",
    ),
    "x of no axes": (("project", {"x": np.array(1.0), "W": zeros(5, 7)}), "x", "(..., d_in)", "()"),
    "heads": (
        ("split_heads", {"x": zeros(4, 7), "num_heads": 3}),
        "width of x must be a multiple of num_heads = 3",
        "got 7 from shape (4, 7)",
    ),
    "split of one axis": (("split_heads", {"x": zeros(6), "num_heads": 3}), "x", "(6,)"),
    "repeat of two axes": (
        ("repeat_heads", {"x": zeros(4, 6), "repeats": 2}),
        "x",
        "(..., h, n, d)",
        "(4, 6)",
    ),
    "merge of two axes": (("merge_heads", {"x": zeros(4, 6)}), "x", "(..., h, n, d)", "(4, 6)"),
    "d_model": (
        ("MultiHeadAttention", {"d_model": 10, "num_heads": 3}),
        "d_model must be a multiple of num_heads for d_k=None",
        "d_model = 10",
        "num_heads = 3",
        "or pass d_k",
    ),
    "d_model and d_k": (
        ("MultiHeadAttention", {"d_model": 10, "num_heads": 3, "d_k": 2}),
        "for d_v=None",
        "or pass d_v",
    ),
    "W_Q of one axis": (mha(W_Q=zeros(12)), "W_Q must have 2 axes (d_in, d_out)", "(12,)"),
    "W_K and W_V of two widths": (
        mha(W_K=zeros(11, 15)),
        "W_K and W_V must have the same number of rows, d_source",
        "W_K (11, 15)",
        "W_V (12, 6)",
        "x @ W",
    ),
    "W_K of another width": (
        mha(W_K=zeros(12, 18)),
        "W_K must have num_kv_heads * d_k = 3 * 5 columns",
        "W_Q (12, 15)",
        "got shape (12, 18)",
        "say num_kv_heads",
    ),
    "W_K of fewer heads": (
        mha(W_K=zeros(12, 5), W_V=zeros(12, 2), num_kv_heads=3),
        "width of W_V must be a multiple of num_kv_heads = 3",
        "(12, 2)",
    ),
    "W_Q for other heads": (
        mha(num_heads=4),
        "width of W_Q must be a multiple of num_heads = 4",
        "(12, 15)",
    ),
    "W_V for other heads": (
        mha(W_V=zeros(12, 7), W_O=zeros(7, 12)),
        "width of W_V must be a multiple of num_kv_heads = 3",
        "(12, 7)",
    ),
    "W_O": (
        mha(W_O=zeros(12, 6)),
        "W_O must have num_heads * d_v = 3 * 2 rows",
        "W_V (12, 6)",
        "got shape (12, 6)",
    ),
    "W_O of shared heads": (
        mha(W_K=zeros(12, 5), W_V=zeros(12, 2), W_O=zeros(2, 12), num_kv_heads=1, b_K=None),
        "W_O must have num_heads * d_v = 3 * 2 rows",
        "num_kv_heads = 1",
        "got shape (2, 12)",
    ),
    "b_V": (mha(b_V=zeros(12)), "b_V must have shape (6,) to fit W_V (12, 6)", "got (12,)"),
    "b_O": (mha(b_O=zeros(1, 12)), "b_O must have shape (12,)", "got (1, 12)"),
    "norm weight": (
        ("layer_norm", {"x": zeros(4, 5), "weight": zeros(4)}),
        "weight must have shape (d_model,) = (5,) to fit x (4, 5)",
        "got (4,)",
    ),
    "norm bias": (
        ("layer_norm", {"x": zeros(4, 5), "bias": zeros(1, 5)}),
        "bias must have shape (d_model,) = (5,)",
        "got (1, 5)",
    ),
    "norm of nothing": (("layer_norm", {"x": zeros(4, 0)}), "x must not be empty", "(4, 0)"),
    "norm of one number": (("layer_norm", {"x": np.array(1.0)}), "x", "(..., d_model)", "()"),
    "norm weight of two axes": (
        ("LayerNorm.from_weights", {"weight": zeros(4, 5), "bias": zeros(5)}),
        "weight must have shape (d_model,), a number for each column, got (4, 5); a norm has one",
    ),
    "norm weight without an axis": (
        ("LayerNorm.from_weights", {"weight": np.array(1.0), "bias": np.array(1.0)}),
        "weight must have shape (d_model,)",
        "got ()",
    ),
    "norm weight of nothing": (
        ("LayerNorm.from_weights", {"weight": zeros(0), "bias": zeros(0)}),
        "weight must have shape (d_model,)",
        "got (0,)",
    ),
    "norm weights": (
        ("LayerNorm.from_weights", {"weight": zeros(4), "bias": zeros(5)}),
        "bias must have shape (d_model,) = (4,) to fit weight, got (5,)",
    ),
    "W_2": (
        feed_forward(W_2=zeros(12, 20)),
        "W_1 and W_2 must have shapes (d_model, d_ff) and (d_ff, d_model)",
        "got (12, 20) and (12, 20)",
        "x @ W",
    ),
    "b_1": (feed_forward(b_1=zeros(12)), "b_1 must have shape (20,)", "got (12,)"),
    "b_2": (feed_forward(b_2=zeros(20)), "b_2 must have shape (12,)", "got (20,)"),
    "RMS norm weight": (
        ("rms_norm", {"x": zeros(4, 5), "weight": zeros(4)}),
        "weight must have shape (d_model,) = (5,) to fit x (4, 5)",
        "got (4,)",
    ),
    "RMS norm of nothing": (("rms_norm", {"x": zeros(4, 0)}), "x must not be empty", "(4, 0)"),
    "RMS norm weight of two axes": (
        ("RMSNorm.from_weights", {"weight": zeros(4, 5)}),
        "weight must have shape (d_model,)",
        "got (4, 5)",
    ),
    "W_up": (
        swiglu(W_up=zeros(12, 21)),
        "W_gate and W_up must have shape (d_model, d_ff), W_down (d_ff, d_model)",
        "got (12, 20), (12, 21) and (20, 12)",
        "x @ W",
    ),
    "W_down": (swiglu(W_down=zeros(12, 20)), "W_down", "(12, 20) and (12, 20)"),
    "no columns in a head": (
        mha(W_Q=zeros(12, 0), W_K=zeros(12, 0)),
        "W_Q must have 2 axes (d_in, d_out), none empty, got shape (12, 0)",
    ),
    "nothing to write": (mha(W_O=zeros(18, 0)), "W_O must have 2 axes", "none empty", "(18, 0)"),
    "no inner width": (
        feed_forward(W_1=zeros(12, 0), b_1=zeros(0), W_2=zeros(0, 12)),
        "W_1 and W_2 must have shapes (d_model, d_ff) and (d_ff, d_model), none empty",
        "got (12, 0) and (0, 12)",
    ),
    "no inner width behind a gate": (
        swiglu(W_gate=zeros(12, 0), W_up=zeros(12, 0), W_down=zeros(0, 12)),
        "W_down (d_ff, d_model), none empty",
        "got (12, 0), (12, 0) and (0, 12)",
    ),
    "W_gate of one axis": (swiglu(W_gate=zeros(12), W_up=zeros(12)), "W_gate", "(12,)"),
    "b_gate": (
        swiglu(b_gate=zeros(12)),
        "b_gate must have shape (20,) to fit W_gate (12, 20)",
        "got (12,)",
    ),
    "b_up": (swiglu(b_up=zeros(12)), "b_up must have shape (20,)", "got (12,)"),
    "b_down": (swiglu(b_down=zeros(20)), "b_down must have shape (12,)", "got (20,)"),
    "distances of a single row": (
        distances(query=zeros(7)),
        "query must have at least 2 axes",
        "query[None]",
    ),
    "distances without 0": (
        distances(table=zeros(4, 7)),
        "table must have shape (2 * k + 1, d_k)",
        "d_k = 7 from query (2, 3, 4, 7)",
        "got (4, 7)",
    ),
    "distances of another width": (distances(table=zeros(5, 6)), "d_k = 7", "got (5, 6)"),
    "distances of one axis": (distances(table=zeros(5)), "table must have shape", "got (5,)"),
    "no distances": (distances(table=zeros(0, 7)), "table must have shape", "got (0, 7)"),
    "distances of no width": (
        distances(query=zeros(4, 0), table=zeros(5, 0)),
        "d_k = 0",
        "at least 1",
    ),
    "offsets without the head axis": (
        distances(offset=np.array([0, 1])),
        "leading axes (batch, heads) must be equal or 1",
        "query (2, 3)",
        "offset (2,)",
        "x[:, None]",
    ),
    "rotation of no axes": (rotation(x=np.array(1.0)), "x", "(..., n, d_k)", "()"),
    "cos and sin": (
        rotation(sin=zeros(1, 3)),
        "cos and sin must have the same shape",
        "cos (4, 3) and sin (1, 3)",
    ),
    "angles of another width": (
        turned_by(4, 6),
        "cos and sin must have 2 axes (n, d_k // 2) = (4, 3) or as many as x (2, 3, 4, 6)",
        "got shape (4, 6)",
        "rotary_angles(positions, d_k)",
    ),
    "one angle for all pairs": (turned_by(4, 1), "cos and sin", "(4, 1)"),
    "angles of other positions": (turned_by(5, 3), "as long as in (2, 3, 4, 3) or 1", "(5, 3)"),
    "angles without the head axis": (
        rotation(x=zeros(3, 3, 4, 6), cos=zeros(3, 4, 3), sin=zeros(3, 4, 3)),
        "cos and sin",
        "(3, 4, 3)",
        "where the head axis is missing write cos[:, None] and sin[:, None]",
    ),
    "angles that would enlarge x": (
        rotation(x=zeros(1, 3, 4, 6), cos=zeros(2, 1, 4, 3), sin=zeros(2, 1, 4, 3)),
        "cos and sin",
        "or 1, got shape (2, 1, 4, 3)",
    ),
    "angles with more axes than x": (
        rotation(x=zeros(6), cos=zeros(1, 3), sin=zeros(1, 3)),
        "as many as x (6,)",
        "(1, 3)",
    ),
    "angles of one axis": (turned_by(3), "cos and sin must have 2 axes", "(3,)"),
    "no angles": (turned_by(), "cos and sin must have 2 axes", "()"),
    "tables": (
        encoder(position_table=zeros(6, 1)),
        "token_table and position_table must have the same width d_model",
        "(9, 12) and (6, 1)",
    ),
    "token_table": (
        encoder(token_table=zeros(12)),
        "token_table must have 2 axes (vocabulary, d_model)",
        "(12,)",
    ),
    "position_table": (
        encoder(position_table=zeros(12)),
        "position_table must have 2 axes (n_max, d_model)",
        "(12,)",
    ),
    "table": (
        ("learned_positions", {"positions": np.array([0]), "table": zeros(5)}),
        "table must have 2 axes (n_max, d_model)",
        "(5,)",
    ),
}

VALUES = {
    "scale of NaN": (attend(scale=math.nan), "scale must be a finite number", "nan"),
    "infinite scale": (weigh(scale=-math.inf), "scale must be a finite number", "-inf"),
    "softcap of 0": (attend(softcap=0), "softcap must be greater than 0", "0.0", "None for no cap"),
    "negative softcap": (weigh(softcap=-2.0), "softcap must be greater than 0", "-2.0"),
    "softcap of NaN": (attend(softcap=math.nan), "softcap must be a finite number", "nan"),
    "no heads": (
        ("split_heads", {"x": zeros(4, 6), "num_heads": 0}),
        "num_heads",
        "at least 1",
        "0",
    ),
    "negative heads": (("MultiHeadAttention", {"d_model": 6, "num_heads": -2}), "num_heads", "-2"),
    "d_model of 0": (("MultiHeadAttention", {"d_model": 0, "num_heads": 1}), "d_model", "got 0"),
    "heads of keys that do not divide": (
        ("MultiHeadAttention", {"d_model": 12, "num_heads": 6, "num_kv_heads": 4}),
        "num_kv_heads must divide num_heads = 6",
        "got 4",
    ),
    "more heads of keys": (mha(num_kv_heads=6), "num_kv_heads must divide num_heads = 3", "got 6"),
    "no heads of keys": (mha(num_kv_heads=0), "num_kv_heads must be at least 1", "got 0"),
    "no repeats": (
        ("repeat_heads", {"x": zeros(2, 4, 6), "repeats": 0}),
        "repeats must be at least 1",
        "got 0",
    ),
    "d_source of 0": (
        ("MultiHeadAttention", {"d_model": 6, "num_heads": 2, "d_source": 0}),
        "d_source must be at least 1",
        "got 0",
    ),
    "d_k of 0": (("MultiHeadAttention", {"d_model": 6, "num_heads": 2, "d_k": 0}), "d_k", "got 0"),
    "d_out of 0": (
        ("MultiHeadAttention", {"d_model": 6, "num_heads": 2, "d_out": 0}),
        "d_out",
        "got 0",
    ),
    "d_ff of 0": (("FeedForward", {"d_model": 6, "d_ff": 0}), "d_ff", "at least 1", "got 0"),
    "fan_in of 0": (("xavier_uniform", {"fan_in": 0, "fan_out": 2}), "fan_in", "at least 1", "0"),
    "fan_out of 0": (("xavier_normal", {"fan_in": 2, "fan_out": 0}), "fan_out", "at least 1", "0"),
    "eps": (("layer_norm", {"x": zeros(4, 5), "eps": -1e-5}), "eps must be at least 0", "-1e-05"),
    "eps of a layer": (("LayerNorm", {"d_model": 5, "eps": -1}), "eps must be at least 0", "-1.0"),
    "eps of given weights": (
        ("LayerNorm.from_weights", {"weight": zeros(5), "bias": zeros(5), "eps": math.nan}),
        "eps must be a finite number",
        "nan",
    ),
    "eps of an RMS norm": (("rms_norm", {"x": zeros(4, 5), "eps": -1}), "eps", "-1.0"),
    "eps of an RMS layer": (("RMSNorm", {"d_model": 5, "eps": -1}), "eps must be at least 0"),
    "eps of a given RMS weight": (
        ("RMSNorm.from_weights", {"weight": zeros(5), "eps": -1}),
        "eps must be at least 0",
    ),
    "d_model of an RMS norm": (("RMSNorm", {"d_model": 0}), "d_model must be at least 1", "got 0"),
    "d_model of SwiGLU": (("SwiGLU", {"d_model": 0}), "d_model must be at least 1", "got 0"),
    "d_ff of SwiGLU": (("SwiGLU", {"d_model": 6, "d_ff": 0}), "d_ff", "at least 1", "got 0"),
    "layers of a residual": (
        ("scaled_residual", {"block": None, "num_layers": 0}),
        "num_layers must be at least 1",
        "got 0",
    ),
    "n of positions": (
        ("sinusoidal_positions", {"n": -1, "d_model": 4}),
        "n must be at least 0",
        "got -1",
    ),
    "d_model of positions": (
        ("sinusoidal_positions", {"n": 3, "d_model": 0}),
        "d_model must be at least 1",
        "got 0",
    ),
    "few buckets": (buckets(num_buckets=3), "num_buckets must be at least 4", "got 3"),
    "few buckets of one direction": (
        buckets(num_buckets=1, bidirectional=False),
        "num_buckets must be at least 2",
        "got 1",
    ),
    "max_distance": (
        buckets(max_distance=3),
        "max_distance must be greater than 3, the distances that 12 buckets tell apart",
        "got 3",
    ),
    "max_distance of one direction": (
        buckets(max_distance=6, bidirectional=False),
        "max_distance must be greater than 6",
        "got 6",
    ),
    "heads of slopes": (alibi(num_heads=0), "num_heads must be at least 1", "got 0"),
    "slopes of no keys": (alibi(n_key=0), "n_key must be at least 1", "got 0"),
    "distances to no keys": (
        ("relative_distances", {"n_query": 2, "n_key": 0}),
        "n_key must be at least 1",
    ),
    "scores of no keys": (distances(n_key=0), "n_key must be at least 1", "got 0"),
    "scale of distances": (distances(scale=math.inf), "scale must be a finite number", "inf"),
    "odd d_k": (angles(d_k=5), "d_k must be even", "pairs", "got 5"),
    "d_k of angles": (angles(d_k=0), "d_k must be at least 2", "got 0"),
    "odd rotation": (rotation(x=zeros(4, 5)), "d_k must be even", "got 5"),
    "odd order": (("interleaved_to_half", {"d_k": 3}), "d_k must be even", "got 3"),
    "base": (angles(base=0.5), "base must be at least 1", "got 0.5", "10000"),
    "infinite base": (angles(base=math.inf), "base must be a finite number", "inf"),
    "pairing": (
        rotation(pairing="halves"),
        'pairing must be "interleaved" (features 0 and 1) or "half"',
        "'halves'",
    ),
    "norm": (
        ("TransformerBlock", {"d_model": 6, "num_heads": 2, "norm": "before"}),
        'norm must be "pre" or "post"',
        "'before'",
    ),
    "no queries": (("causal_mask", {"n_query": -1}), "n_query must be at least 0", "got -1"),
    "no keys": (("causal_mask", {"n_query": 2, "n_key": 0}), "n_key must be at least 1", "got 0"),
    "neither": (("window_mask", {"n_query": 0, "window": 1}), "n_key must be at least 1", "got 0"),
    "window": (("window_mask", {"n_query": 2, "window": 0}), "window must be at least 1", "got 0"),
    "long lengths": (
        ("padding_mask", {"lengths": [2, 6], "n_key": 5}),
        "lengths must lie between 0 and n_key = 5",
        "got 2 to 6",
    ),
    "negative lengths": (
        ("padding_mask", {"lengths": np.array([[-1, 2]]), "n_key": 5}),
        "lengths",
        "got -1 to 2",
    ),
    "no n_key": (("padding_mask", {"lengths": [0], "n_key": 0}), "n_key must be at least 1", "0"),
    "position too large": (
        ("learned_positions", {"positions": np.array([0, 4]), "table": zeros(4, 3)}),
        "positions must lie between 0 and 3",
        "table of shape (4, 3)",
        "got 0 to 4",
    ),
    "negative position": (
        ("learned_positions", {"positions": np.array([[-1]]), "table": zeros(4, 3)}),
        "positions must lie between 0 and 3",
        "got -1 to -1",
    ),
}

KINDS = {
    "float mask": (
        attend(mask=zeros(4, 5)),
        "mask must be a Boolean",
        "True: may attend",
        "Pattern",
        "float64",
        "belongs in bias",
    ),
    "integer mask": (
        weigh(mask=np.ones((4, 5), int)),
        "mask must be a Boolean",
        "int64",
        "mask != 0",
        "torch.nn.MultiheadAttention",
        "~mask",
    ),
    "list mask": (attend(mask=[[True] * 5] * 4), "mask must be a Boolean", "list", "(mask)"),
    "mask of True": (attend(mask=True), "mask must be", "bool"),
    "mask that is a number": (attend(mask=0.0), "mask must be", "float"),
    "function for a mask": (
        attend(mask=lambda i, j: j <= i),
        "mask must be a Boolean",
        "or a Pattern, got function",
        "qkvlib.patterns.Pattern(mask) for a rule",
    ),
    "Boolean bias": (attend(bias=TRUE), "bias must be floating", "bool", "belongs in mask"),
    "integer bias": (weigh(bias=np.zeros((4, 5), int)), "bias must be float16", "int64"),
    "list bias": (attend(bias=[[0.0] * 5] * 4), "bias must be a", "list"),
    "pattern bias": (attend(bias=causal), "bias must be a", "Pattern"),
    "number for a bias": (attend(bias=0.5), "bias must be a", "float"),
    "scale of True": (attend(scale=True), "scale must be a number", "bool"),
    "scale of text": (attend(scale="0.5"), "scale must be a number", "str", "float(scale)"),
    "complex scale": (attend(scale=1j), "scale must be a number", "complex"),
    "array for a scale": (attend(scale=zeros(1)), "scale must be a number", "float(scale)"),
    "softcap of True": (attend(softcap=True), "softcap must be a number", "bool"),
    "integer query": (attend(query=np.zeros((2, 3, 4, 7), int)), "query must be float16", "int64"),
    "Boolean key": (attend(key=true(2, 3, 5, 7)), "key must be float16", "bool"),
    "complex value": (
        attend(value=np.zeros((2, 3, 5, 6), complex)),
        "value must be float16",
        "complex128",
    ),
    "list query": (attend(query=[[0.0]]), "query must be a", "list"),
    "number for a key": (attend(key=1.0), "key must be a", "float"),
    "None for a value": (attend(value=None), "value must be a", "NoneType"),
    "integer scores": (
        ("softmax", {"scores": np.array([1, 2])}),
        "scores must be float16",
        "int64",
    ),
    "list of scores": (("log_softmax", {"scores": [1.0]}), "scores must be a", "list"),
    "axis of two": (("softmax", {"scores": zeros(3, 4), "axis": (0, 1)}), "axis", "tuple"),
    "axis of True": (("softmax", {"scores": zeros(3, 4), "axis": True}), "axis", "bool"),
    "integer x": (("project", {"x": np.array([[1]]), "W": zeros(1, 2)}), "x must be float16"),
    "list x": (("split_heads", {"x": [[1.0, 2.0]], "num_heads": 2}), "x must be a", "list"),
    "list of heads": (("merge_heads", {"x": [[[1.0]]]}), "x must be a", "list"),
    "heads of 2.0": (
        ("split_heads", {"x": zeros(4, 6), "num_heads": 2.0}),
        "num_heads must be a whole number",
        "float 2.0",
        "int(num_heads)",
    ),
    "heads of True": (mha(num_heads=True), "num_heads must be a whole number", "bool True"),
    "heads of keys of 1.0": (
        mha(num_kv_heads=1.0),
        "num_kv_heads must be a whole number",
        "float 1.0",
    ),
    "rotate of a number": (mha(rotate=3), "rotate must be a function (x, positions) -> x", "int 3"),
    "rotate of a new layer": (
        ("MultiHeadAttention", {"d_model": 6, "num_heads": 2, "rotate": "half"}),
        "rotate must be a function (x, positions) -> x or None",
        "str 'half'",
    ),
    "repeats of True": (
        ("repeat_heads", {"x": zeros(2, 4, 6), "repeats": True}),
        "repeats must be a whole number",
    ),
    "list of repeated heads": (("repeat_heads", {"x": [[[1.0]]], "repeats": 2}), "x must be a"),
    "d_v of text": (
        ("MultiHeadAttention", {"d_model": 6, "num_heads": 2, "d_v": "3"}),
        "d_v must be a whole number",
        "str '3'",
    ),
    "integer W": (mha(W_V=np.zeros((12, 6), int)), "W_V must be float16", "int64"),
    "integer relu": (("relu", {"x": np.array([1])}), "x must be float16", "int64"),
    "integer gelu_tanh": (("gelu_tanh", {"x": np.array([1])}), "x must be float16", "int64"),
    "integer silu": (("silu", {"x": np.array([1])}), "x must be float16", "int64"),
    "no W_gate": (swiglu(W_gate=None), "W_gate must be a", "NoneType"),
    "generator of SwiGLU": (("SwiGLU", {"d_model": 6, "generator": 1}), "generator must be a"),
    "half a layer": (
        ("scaled_residual", {"block": None, "num_layers": 1.5}),
        "num_layers must be a whole number",
        "1.5",
    ),
    "no block": (
        ("scaled_residual", {"block": None, "num_layers": 2}),
        "block must have attention with an output matrix W_O, W_2 or W_down",
        "got NoneType with NoneType",
    ),
    "a block without a feed-forward layer": (
        ("scaled_residual", {"block": Attention(), "num_layers": 2}),
        "block must have feed_forward",
        "got Attention with str",
    ),
    "n of 2.0": (("sinusoidal_positions", {"n": 2.0, "d_model": 4}), "n must be a whole", "2.0"),
    "d_model of text": (("sinusoidal_positions", {"n": 2, "d_model": "4"}), "d_model", "str '4'"),
    "float distances": (buckets(distance=zeros(4)), "distance must be whole numbers", "float64"),
    "Boolean distances": (buckets(distance=true(4)), "distance must be whole numbers", "bool"),
    "list of distances": (buckets(distance=[0]), "distance must be a", "list"),
    "both directions": (buckets(bidirectional=1), "bidirectional must be True or False", "got 1"),
    "half a bucket": (buckets(num_buckets=12.5), "num_buckets must be a whole number", "12.5"),
    "max_distance of 30.0": (buckets(max_distance=30.0), "max_distance must be a whole", "30.0"),
    "projection_bias of text": (
        ("MultiHeadAttention", {"d_model": 4, "num_heads": 2, "projection_bias": "no"}),
        "projection_bias must be True or False",
        "got 'no'",
    ),
    "a number of biases": (
        ("SwiGLU", {"d_model": 4, "projection_bias": 3}),
        "projection_bias must be True or False",
        "got 3",
    ),
    "half a head": (alibi(num_heads=2.5), "num_heads must be a whole number", "2.5"),
    "half a place": (alibi(offset=0.5), "offset", "whole", "0.5"),
    "half a place of distances": (distances(offset=0.5), "offset", "whole", "0.5"),
    "half a place alone": (("relative_distances", {"n_query": 2, "offset": 0.5}), "offset", "0.5"),
    "base of text": (angles(base="1"), "base must be a number", "str"),
    "float positions to turn by": (
        angles(positions=zeros(4)),
        "positions must be whole numbers",
        "float64",
    ),
    "Boolean positions to turn by": (angles(positions=true(4)), "positions", "whole", "bool"),
    "list of positions to turn by": (angles(positions=[0, 1]), "positions must be a", "list"),
    "d_k of 6.0": (angles(d_k=6.0), "d_k must be a whole number", "float 6.0"),
    "order of 6.0": (("interleaved_to_half", {"d_k": 6.0}), "d_k must be a whole number", "6.0"),
    "integer gelu": (("gelu", {"x": np.array([1])}), "x must be float16", "int64"),
    "eps of text": (("layer_norm", {"x": zeros(4, 5), "eps": "1"}), "eps must be a number", "str"),
    "text for an activation": (
        ("FeedForward", {"d_model": 6, "activation": "gelu"}),
        "activation must be a function",
        "str 'gelu'",
        "pass the function itself, as in activation=gelu",
    ),
    "activation of a block": (
        ("TransformerBlock", {"d_model": 6, "num_heads": 2, "activation": None}),
        "activation must be a function",
        "NoneType",
    ),
    "activation with weights": (feed_forward(activation=3), "activation must be a function", "int"),
    "generator of a number": (
        ("xavier_uniform", {"fan_in": 2, "fan_out": 3, "generator": 0}),
        "generator must be a",
        "Generator, got int",
        "seed)",
    ),
    "generator of a layer": (
        (
            "MultiHeadAttention",
            {"d_model": 6, "num_heads": 2, "generator": np.random.RandomState(0)},
        ),
        "generator must be a",
        "got RandomState",
    ),
    "generator of a block": (
        ("TransformerBlock", {"d_model": 6, "num_heads": 2, "generator": 1}),
        "generator must be a",
    ),
    "fan_in of text": (("xavier_normal", {"fan_in": "2", "fan_out": 3}), "fan_in", "str '2'"),
    "n_query of 2.0": (("causal_mask", {"n_query": 2.0}), "n_query must be a whole number", "2.0"),
    "n_key of True": (
        ("causal_mask", {"n_query": 2, "n_key": True}),
        "n_key must be a whole number",
    ),
    "window of 1.5": (("window_mask", {"n_query": 2, "window": 1.5}), "window", "whole", "1.5"),
    "offset of 0.5": (("causal_mask", {"n_query": 2, "offset": 0.5}), "offset", "whole", "0.5"),
    "offset of True": (("causal_mask", {"n_query": 2, "offset": True}), "offset", "whole", "True"),
    "list of offsets": (("causal_mask", {"n_query": 2, "offset": [0, 1]}), "offset", "list"),
    "float offsets": (("causal_mask", {"n_query": 2, "offset": zeros(2)}), "offset", "float64"),
    "float lengths": (
        ("padding_mask", {"lengths": [1.0], "n_key": 3}),
        "lengths",
        "whole",
        "float64",
    ),
    "float lengths in an array": (
        ("padding_mask", {"lengths": zeros(2), "n_key": 3}),
        "lengths",
        "float64",
    ),
    "Boolean lengths": (("padding_mask", {"lengths": true(2), "n_key": 3}), "lengths", "bool"),
    "lengths of text": (("padding_mask", {"lengths": ["a"], "n_key": 3}), "lengths", "whole"),
    "no lengths": (("padding_mask", {"lengths": None, "n_key": 3}), "lengths", "whole"),
    "n_key of text": (("padding_mask", {"lengths": [1], "n_key": "3"}), "n_key", "str '3'"),
    "float positions": (
        ("learned_positions", {"positions": zeros(2), "table": zeros(4, 3)}),
        "positions must be whole numbers",
        "float64",
    ),
    "Boolean positions": (
        ("learned_positions", {"positions": true(2), "table": zeros(4, 3)}),
        "positions must be whole numbers",
        "bool",
    ),
    "list of positions": (
        ("learned_positions", {"positions": [0], "table": zeros(4, 3)}),
        "positions",
        "list",
    ),
    "no W_V": (mha(W_V=None), "W_V must be a", "NoneType"),
    "integer token_table": (
        encoder(token_table=np.ones((9, 12), int)),
        "token_table must be float16",
        "int64",
    ),
    "list of positions' rows": (
        encoder(position_table=[[0.0] * 12]),
        "position_table must be a",
        "list",
    ),
    "integer table": (
        ("learned_positions", {"positions": np.array([0]), "table": np.zeros((4, 3), int)}),
        "table must be float16",
        "int64",
    ),
    "rule of numbers": (
        attend(mask=Pattern(lambda i, j: i - j)),
        "a rule must answer in Booleans",
        "int64",
        "j <= i",
    ),
    "rule of True": (
        weigh(mask=Pattern(lambda i, j: True)),
        "a rule must answer in Booleans",
        "bool",
    ),
}


def check(twin, what, kind, said):
    with pytest.raises(kind) as caught:
        call(twin, what)
    for words in said:
        assert says(str(caught.value), words)


def says(message, words):
    """Whether these are in the message as whole words."""
    pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(words))
    return re.search(pattern, message) is not None


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_that_does_not_fit(backend, name):
    what, *said = SHAPES[name]
    check(backend, what, ValueError, said)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_does_not_fit(backend, name):
    what, *said = VALUES[name]
    check(backend, what, ValueError, said)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_that_does_not_fit(backend, name):
    what, *said = KINDS[name]
    check(backend, what, TypeError, said)


# ---- whole numbers -------------------------------------------------------------------------------

WHOLE = {
    "xavier_uniform": {"fan_in": 2, "fan_out": 3},
    "xavier_normal": {"fan_in": 2, "fan_out": 3},
    "split_heads": {"x": zeros(3, 4), "num_heads": 2},
    "repeat_heads": {"x": zeros(3, 4, 5), "repeats": 2},
    "MultiHeadAttention": {
        "d_model": 6,
        "num_heads": 2,
        "num_kv_heads": 1,
        "d_k": 2,
        "d_v": 2,
        "d_out": 4,
        "d_source": 4,
    },
    "MultiHeadAttention.from_weights": mha()[1],
    "TransformerBlock": {"d_model": 6, "num_heads": 2, "d_ff": 5},
    "FeedForward": {"d_model": 6, "d_ff": 5},
    "SwiGLU": {"d_model": 6, "d_ff": 5},
    "LayerNorm": {"d_model": 6},
    "RMSNorm": {"d_model": 6},
    "causal_mask": {"n_query": 2, "n_key": 3, "offset": 1},
    "window_mask": {"n_query": 2, "n_key": 3, "window": 1, "offset": 1},
    "padding_mask": {"lengths": [1], "n_key": 3},
    "sinusoidal_positions": {"n": 2, "d_model": 4},
    "alibi_bias": {"num_heads": 2, "n_query": 2, "n_key": 3, "offset": 1},
    "relative_distances": {"n_query": 2, "n_key": 3, "offset": 1},
    "relative_buckets": buckets()[1],
    "relative_key_scores": distances()[1],
    "rotary_angles": angles()[1],
    "interleaved_to_half": {"d_k": 4},
    "chunked_attention": attend(chunk_size=2)[1],
}
EACH_WHOLE = [
    (function, name)
    for function, arguments in WHOLE.items()
    for name, x in arguments.items()
    if isinstance(x, int) and not isinstance(x, bool)
]


@pytest.mark.parametrize(("function", "name"), EACH_WHOLE)
def test_each_whole_number_is_named(backend, function, name):
    for given, kind in (("3", "str"), (2.5, "float")):
        check(backend, (function, WHOLE[function] | {name: given}), TypeError, [name, kind])


# ---- the other twin's arrays, and other kinds of array -------------------------------------------

ARRAYS = {
    "query": attend(),
    "key": attend(),
    "value": attend(),
    "mask": attend(mask=TRUE),
    "bias": attend(bias=zeros(4, 5)),
    "scores": ("softmax", {"scores": zeros(3)}),
    "x": ("layer_norm", {"x": zeros(4, 5)}),
    "weight": ("layer_norm", {"x": zeros(4, 5), "weight": zeros(5)}),
    "W": ("project", {"x": zeros(4, 5), "W": zeros(5, 7)}),
    "b": ("project", {"x": zeros(4, 5), "W": zeros(5, 7), "b": zeros(7)}),
    "W_K": mha(),
    "b_1": feed_forward(),
    "W_up": swiglu(),
    "cos": rotation(),
    "distance": buckets(),
    "sin": rotation(),
    "positions": ("learned_positions", {"positions": np.array([0]), "table": zeros(4, 3)}),
    "table": ("learned_positions", {"positions": np.array([0]), "table": zeros(4, 3)}),
    "token_table": encoder(),
    "position_table": encoder(),
    "offset": ("causal_mask", {"n_query": 2, "offset": np.array([0, 1])}),
}


def with_one_changed(name, change):
    function, arguments = ARRAYS[name]
    return function, arguments | {name: AsItIs(change(arguments[name]))}


FLOATS = {
    "softmax": {"scores": zeros(3)},
    "log_softmax": {"scores": zeros(3)},
    "attention_scores": weigh(bias=zeros(4, 5))[1],
    "attention_weights": weigh(bias=zeros(4, 5))[1],
    "scaled_dot_product_attention": attend(bias=zeros(4, 5))[1],
    "chunked_attention": attend(bias=zeros(4, 5))[1],
    "project": {"x": zeros(4, 5), "W": zeros(5, 7), "b": zeros(7)},
    "layer_norm": {"x": zeros(4, 5), "weight": zeros(5), "bias": zeros(5)},
    "rms_norm": {"x": zeros(4, 5), "weight": zeros(5)},
    "relu": {"x": zeros(4, 5)},
    "gelu": {"x": zeros(4, 5)},
    "gelu_tanh": {"x": zeros(4, 5)},
    "silu": {"x": zeros(4, 5)},
    "rotate": rotation()[1],
    "relative_key_scores": distances()[1],
    "LayerNorm.from_weights": {"weight": zeros(5), "bias": zeros(5)},
    "RMSNorm.from_weights": {"weight": zeros(5)},
    "FeedForward.from_weights": feed_forward()[1],
    "SwiGLU.from_weights": swiglu()[1],
    "MultiHeadAttention.from_weights": mha()[1],
    "learned_positions": {"table": zeros(4, 3), "positions": np.array([0])},
}
EACH_FLOAT = [
    (function, name)
    for function, arguments in FLOATS.items()
    for name, x in arguments.items()
    if isinstance(x, np.ndarray) and x.dtype == float
]


@pytest.mark.parametrize(("function", "name"), EACH_FLOAT)
def test_each_array_must_be_a_floating_one_of_the_same_dtype(backend, function, name):
    arguments = FLOATS[function]
    given = arguments[name]
    check(backend, (function, arguments | {name: given.tolist()}), TypeError, [name, "list"])
    whole = np.zeros(given.shape, int)
    check(backend, (function, arguments | {name: whole}), TypeError, [name, "float16", "int64"])
    shorter = AsItIs(backend.array(given, "float32"))
    others = [x for k, x in arguments.items() if k != name and isinstance(x, np.ndarray)]
    has_its_own_dtype = (
        (name == "table" and function == "learned_positions")
        or (name == "bias" and "attention" in function)
        or (name == "x" and function == "rotate")
    )
    if others and not has_its_own_dtype:
        said = [f"{name} ", "float32", "float64", "all must have one dtype"]
        check(backend, (function, arguments | {name: shorter}), TypeError, said)


@needs_torch
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_the_other_twin(backend, name):
    other = BACKENDS[0] if backend.is_torch else BACKENDS[-1]
    with pytest.raises(TypeError) as caught:
        call(backend, with_one_changed(name, other.array))
    message = str(caught.value)
    assert says(message, name)
    assert any(
        kind in message
        for kind in (["numpy", "ndarray"] if backend.is_torch else ["torch", "Tensor"])
    )
    if name != "offset":
        hint = "torch.from_numpy" if backend.is_torch else ".detach().cpu().numpy()"
        assert f"use qkvlib.{other.lib.__name__[7:]}" in message
        assert hint in message


def test_a_list_is_told_what_it_should_be(backend):
    kind, made = ("tensor", "torch.tensor") if backend.is_torch else ("NumPy array", "np.asarray")
    with pytest.raises(TypeError, match=rf"a Boolean {kind} .* write {made}\(mask\) for a list"):
        call(backend, attend(mask=[[True] * 5] * 4))
    with pytest.raises(TypeError, match=rf" {kind}, got builtins\.list; write {made}\(query\)"):
        call(backend, attend(query=[[0.0] * 7] * 4))


def test_what_came_is_named_by_its_package(backend):
    with pytest.raises(TypeError, match=r"got numpy\.MaskedArray; "):
        call(backend, attend(query=AsItIs(np.ma.zeros((4, 7)))))


def test_a_seed_is_told_what_makes_a_generator(backend):
    made = "torch.Generator().manual_seed" if backend.is_torch else "np.random.default_rng"
    with pytest.raises(TypeError, match=re.escape(f"write {made}(seed)")):
        backend.lib.FeedForward(12, generator=0)


@needs_torch
def test_an_array_of_the_other_twin_joined_to_a_pattern(backend):
    other = BACKENDS[0] if backend.is_torch else BACKENDS[-1]
    mask = causal & other.array(TRUE)
    with pytest.raises(TypeError, match=r"joined to a pattern must belong to the twin .* got a"):
        call(backend, attend(mask=mask))


@pytest.mark.parametrize("name", ["query", "scores", "x", "W_K", "bias"])
@pytest.mark.parametrize("kind", [np.ma.array, np.asmatrix], ids=["masked array", "matrix"])
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arrays_with_a_will_of_their_own_are_refused_in_numpy(name, kind):
    what = with_one_changed(name, lambda x: kind(x[(0,) * (x.ndim - 2)] if x.ndim > 2 else x))
    hint = f"pass {name}.data, and what it hides as a mask" if kind is np.ma.array else "np.asarray"
    with pytest.raises(
        TypeError, match=rf"{name} must be a NumPy array, got numpy\.\w*; "
    ) as caught:
        call(BACKENDS[0], what)
    assert hint in str(caught.value)


@needs_torch
@pytest.mark.parametrize("name", ["query", "scores", "x", "W_K", "bias"])
@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_tensors_that_are_not_dense_are_refused_in_torch(name):
    twin = BACKENDS[-1]
    for make, said in (
        (lambda x: twin.array(x).to_sparse(), rf"got layout torch.sparse_coo; .*{name}\.to_dense"),
        (lambda x: torch.nested.nested_tensor([twin.array(x)]), r"got a nested one; .*to_padded_t"),
    ):
        with pytest.raises(TypeError, match=rf"{name} must be a plain dense tensor, {said}"):
            call(twin, with_one_changed(name, make))


@pytest.mark.parametrize("dtype", [np.longdouble, object, "V8", "S3", "M8[s]"], ids=str)
def test_dtypes_that_are_no_floats_are_refused_in_numpy(dtype):
    with pytest.raises(TypeError, match="query must be float16, float32 or float64, got"):
        call(BACKENDS[0], attend(query=AsItIs(np.empty((4, 7), dtype))))


@pytest.mark.parametrize("other", ["float32", "float16"])
def test_one_dtype_throughout(backend, other):
    for name in ("query", "key", "value"):
        arguments = attend()[1]
        arguments = {
            k: backend.array(x, other if k == name else None) for k, x in arguments.items()
        }
        with pytest.raises(TypeError, match="all must have one dtype") as caught:
            backend.lib.scaled_dot_product_attention(**arguments)
        for part in (f"{name} ", other, "float64", "convert with"):
            assert part in str(caught.value)
    layer = call(backend, mha())
    with pytest.raises(TypeError, match=r"all must have one dtype, got x .*float32"):
        layer(backend.array(zeros(4, 12), "float32"))
    layer = call(backend, feed_forward())
    with pytest.raises(TypeError, match=r"all must have one dtype, got x .*float32"):
        layer(backend.array(zeros(4, 12), "float32"))


@pytest.mark.parametrize(
    "x", [[[0.0] * 12], np.zeros((4, 12), int), None], ids=["list", "int64", "None"]
)
def test_what_a_layer_reads_must_be_a_floating_array(backend, x):
    x = backend.array(x) if isinstance(x, np.ndarray) else x
    block = backend.lib.TransformerBlock(12, 3)
    made = [call(backend, what) for what in (mha(), feed_forward(), swiglu())]
    for layer in (*made, block, block.attention_norm, backend.lib.RMSNorm(12)):
        for read in (layer, getattr(layer, "attention_weights", layer)):
            with pytest.raises(TypeError, match=r"^x must be .*, got .*(list|int64|None)"):
                read(x)


def test_what_a_layer_reads_must_be_as_wide_as_it_expects(backend):
    layer = call(backend, mha())
    for shape in ((4, 11), (2, 4, 15)):
        for read in (layer, layer.attention_weights):
            with pytest.raises(ValueError, match=r"x must be d_model = 12 wide .* got shape"):
                read(backend.array(zeros(*shape)))
    with pytest.raises(ValueError, match=r"x must have at least 2 axes, \(\.\.\., n, d_model\)"):
        layer(backend.array(zeros(12)))
    with pytest.raises(ValueError, match=r"head axis is missing: write mask\[:, None\]"):
        layer(backend.array(zeros(2, 4, 12)), mask=backend.lib.padding_mask([4, 2], 4))
    with pytest.raises(ValueError, match=r"x must hold at least one token, got shape \(2, 0, 12\)"):
        layer(backend.array(zeros(2, 0, 12)))
    norm = ("LayerNorm.from_weights", {"weight": zeros(12), "bias": zeros(12)})
    rms_norm = ("RMSNorm.from_weights", {"weight": zeros(12)})
    for what in (feed_forward(), swiglu(), norm, rms_norm):
        row_by_row = call(backend, what)
        assert tuple(row_by_row(backend.array(zeros(12))).shape) == (12,)
        assert tuple(row_by_row(backend.array(zeros(0, 12))).shape) == (0, 12)
        for shape in ((11,), (4, 1)):
            with pytest.raises(ValueError, match=r"x must be d_model = 12 wide .* got shape"):
                row_by_row(backend.array(zeros(*shape)))
        with pytest.raises(ValueError, match=r"x must have at least 1 axes, \(\.\.\., d_model\)"):
            row_by_row(backend.array(np.array(1.0)))


def test_sources_must_fit(backend):
    wide = {"W_K": zeros(10, 15), "W_V": zeros(10, 6)}
    layer, narrow = call(backend, mha(**wide)), call(backend, mha())
    x, source = backend.arrays(zeros(2, 4, 12), zeros(2, 5, 10))
    for read in (layer, layer.attention_weights, layer.attention_scores, layer.head_contributions):
        with pytest.raises(ValueError, match=r"source must be given.* d_source = 10 .*= 12 wide"):
            read(x)
        with pytest.raises(ValueError, match=r"source must be d_source = 10 wide .*\(2, 4, 12\)"):
            read(x, x)
        with pytest.raises(
            ValueError, match=r"source must hold at least one token, got .*\(0, 10\)"
        ):
            read(x, backend.array(zeros(0, 10)))
        with pytest.raises(ValueError, match=r"source must have at least 2 axes.* n, d_source"):
            read(x, backend.array(zeros(10)))
        with pytest.raises(ValueError, match=r"leading axes .* query \(2, 3\), key \(4, 3\)"):
            read(x, backend.array(zeros(4, 5, 10)))
        with pytest.raises(TypeError, match=r"source must be .*got .*list"):
            read(x, [[0.0] * 10])
        with pytest.raises(TypeError, match=r"all must have one dtype, got .*source .*float32"):
            read(x, backend.array(zeros(5, 10), "float32"))
    for read in (layer, layer.head_contributions):
        with pytest.raises(ValueError, match=r"source must be given.* the keys are made of x too"):
            read(x, None, source)
        with pytest.raises(ValueError, match=r"value_source must be d_source = 10 wide"):
            read(x, source, x)
        with pytest.raises(TypeError, match=r"value_source must be .*got .*list"):
            read(x, source, [[0.0] * 10])
        with pytest.raises(
            ValueError, match=r"value_source must hold one token for each key, .*5,"
        ):
            read(x, source, source[:, :3])
    with pytest.raises(ValueError, match=r"value_source must hold one token for each key, .*= 4,"):
        narrow(x, None, x[:, :3])


def test_what_rotate_returns_must_fit(backend):
    other = "float32"
    for rotate, kind, said in (
        (lambda x, positions: x[..., :2], ValueError, r"rotate must return x in its shape .*, 5\)"),
        (lambda x, positions: backend.array(back(x), other), TypeError, r"got x .*, rotate\(x, p"),
        (lambda x, positions: None, TypeError, r"rotate\(x, positions\) must be a"),
    ):
        layer = call(backend, mha(rotate=rotate))
        with pytest.raises(kind, match=said):
            layer(backend.array(zeros(4, 12)))


# ---- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [None, 3, TRUE], ids=["None", "3", "array"])
def test_a_rule_must_be_a_function(rule):
    with pytest.raises(TypeError, match=r"rule must be a function of two positions, got \w+"):
        Pattern(rule)


@pytest.mark.parametrize("name", ["reach", "common"])
@pytest.mark.parametrize(
    "pattern", [causal, ~causal, causal & window(3), documents([1, 1, 2]), CHOSEN], ids=str
)
@pytest.mark.parametrize(
    ("span", "error", "said"),
    [
        ((0.5, 3, 10), TypeError, "first must be a whole number, got float 0.5; write int(first)"),
        ((True, 3, 10), TypeError, "first must be a whole number, got bool True"),
        ((0, None, 10), TypeError, "last must be a whole number, got NoneType None"),
        ((0, 3, 10.0), TypeError, "n_key must be a whole number, got float 10.0"),
        ((3, 0, 10.0), TypeError, "n_key must be a whole number, got float 10.0"),
        ((0, 3, -1), ValueError, "n_key must be at least 0, got -1"),
    ],
    ids=str,
)
def test_the_reach_of_what_is_no_position(name, pattern, span, error, said):
    with pytest.raises(error, match=re.escape(said)):
        getattr(pattern, name)(*span)


@pytest.mark.parametrize("name", ["reach", "common"])
def test_positions_may_be_numbers_of_numpy(name):
    stretches = getattr(causal, name)(np.int64(2), np.int32(2), np.int64(9))
    assert stretches == [(0, 3)]
    assert all(type(edge) is int for edge in stretches[0])


@pytest.mark.parametrize("name", ["reach", "common"])
@pytest.mark.parametrize("answer", [None, (0, 5), [(0, 1, 2)], [(0.0, 2.5)], [(0, math.nan)], 7])
def test_what_is_no_stretch_is_refused_by_the_name_of_the_function(name, answer):
    pattern = Pattern(lambda i, j: j <= i, **{name: lambda first, last, n_key: answer})
    said = rf"{name} of a Pattern must answer with .*got {re.escape(repr(answer))}; \[\] holds no"
    for made in (pattern, ~~pattern, pattern & causal, pattern.shifted(1)):
        with pytest.raises(TypeError, match=said):
            getattr(made, name)(0, 3, 10)


@pytest.mark.parametrize("kind", [np.array, iter, list])
def test_stretches_may_come_in_any_kind_of_list(kind):
    pattern = Pattern(lambda i, j: j <= i, lambda first, last, n_key: kind([(1, 3)]))
    assert pattern.reach(0, 3, 10) == [(1, 3)]


@pytest.mark.parametrize("name", ["reach", "common"])
def test_reach_must_be_a_function(name):
    with pytest.raises(TypeError, match=rf"{name} must be a function of .*, got list; leave it"):
        Pattern(lambda i, j: j <= i, **{name: [(0, 3)]})


@pytest.mark.parametrize("offset", [1.0, None, "1", True, np.array([1.5]), np.array(1.0)], ids=repr)
def test_a_shift_must_be_whole(backend, offset):
    offset = backend.array(offset) if isinstance(offset, np.ndarray) else offset
    with pytest.raises(TypeError, match=r"offset must (be a|hold) whole number.*, got"):
        causal.shifted(offset)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 1, 4), (1, 3, 1)], ids=str)
def test_shifts_of_batch_items_say_so(backend, shape):
    """Four offsets of four queries would look like one for each of four keys."""
    with pytest.raises(ValueError, match=r"write offset\[\.\.\., None, None\]") as caught:
        causal.shifted(backend.array(np.ones(shape, int)))
    assert f"got shape {shape}" in str(caught.value)


@pytest.mark.parametrize(
    ("queries", "keys", "error", "message"),
    [
        (range(5), range(5), ValueError, r"queries must lie within range\(0, 4\), got"),
        (range(2, 1), range(5), ValueError, r"queries must lie within range\(0, 4\), got"),
        (range(4), range(-1, 5), ValueError, r"keys must lie within range\(0, 5\), got"),
        (range(4), range(0, 5, 2), TypeError, r"keys must be a range of .*, got range\(0, 5, 2"),
        (slice(0, 4), range(5), TypeError, r"queries must be a range of .*, got slice"),
    ],
)
def test_a_block_lies_within_the_whole(queries, keys, error, message):
    with pytest.raises(error, match=message):
        causal.block(queries, keys, (4, 5))


COUNTED = {
    "window": (1, window),
    "w": (1, lambda w: dilated(w, 2)),
    "step": (1, lambda step: dilated(2, step)),
    "s": (1, strided),
    "size": (1, blocks),
    "g": (0, global_tokens),
    "p": (0, prefix),
    "n": (1, lambda n: random_blocks(n, 2, 1, np.random.default_rng(0))),
    "size of blocks": (1, lambda size: random_blocks(7, size, 1, np.random.default_rng(0))),
    "count": (1, lambda count: random_blocks(7, 2, count, np.random.default_rng(0))),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_patterns_count_is_whole_and_large_enough(name):
    least, make = COUNTED[name]
    name = name.split()[0]
    for wrong in (1.0, None, "2", True, np.array([1])):
        with pytest.raises(TypeError, match=f"^{name} must be a whole number, got"):
            make(wrong)
    with pytest.raises(ValueError, match=f"^{name} must be at least {least}, got {least - 1}"):
        make(least - 1)
    assert make(np.int32(least))(0, 5) in (True, False)


def test_random_blocks_are_drawn_from_those_there_are():
    generator = np.random.default_rng(0)
    assert random_blocks(7, 2, 4, generator).array(7).all()
    with pytest.raises(ValueError, match=r"count must be at most the number of blocks, 4, got 5"):
        random_blocks(7, 2, 5, generator)


@pytest.mark.parametrize("wrong", [None, 0, np.random, "torch"], ids=str)
def test_random_blocks_are_drawn_by_numpys_generator(wrong):
    if wrong == "torch":
        wrong = pytest.importorskip("torch").Generator()
    with pytest.raises(TypeError, match=r"must be a numpy.random.Generator, got .*default_rng"):
        random_blocks(7, 2, 1, wrong)


@pytest.mark.parametrize("ids", [[0.0, 1.0], ["a", "b"], [True, False], zeros(3), None], ids=repr)
def test_texts_have_whole_numbers(backend, ids):
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got .*; number the documents"):
        documents(backend.array(ids) if isinstance(ids, np.ndarray) else ids)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3)], ids=str)
def test_texts_are_rows_of_numbers(backend, shape):
    with pytest.raises(ValueError, match=r"ids must have shape \(n,\) or .* got \(.*\)"):
        documents(backend.array(np.ones(shape, int)))


def test_an_empty_list_of_texts_is_called_empty():
    with pytest.raises(ValueError, match=r"ids must have shape .*, none empty, got \(0,\)"):
        documents([])


def test_what_a_pattern_holds_must_cover_every_key(backend):
    few = random_blocks(4, 2, 1, np.random.default_rng(0))
    for name, mask in (("n", few), ("ids", documents([1, 1, 2, 2]) & causal)):
        with pytest.raises(ValueError, match=f"^{name} must cover every key, n_key = 5, got 4 pos"):
            call(backend, attend(mask=mask))
        with pytest.raises(ValueError, match=f"^{name} must cover every key, n_key = 5, got 4 pos"):
            mask.block(range(1), range(2), (1, 5))


def test_texts_and_offsets_of_batch_items_are_not_mixed(backend):
    """Each row of ids would meet each offset."""
    ids, offsets = np.array([[1, 1, 2], [3, 3, 3]]), np.array([0, 1])
    with pytest.raises(ValueError, match=r"either ids or offsets .* got ids \(2, 3\) and pos"):
        documents(backend.array(ids)).array(3, offset=offsets)
    assert documents(backend.array(ids[0])).array(3, offset=offsets).shape == (2, 3, 3)


@pytest.mark.parametrize(
    "other", [True, 1, 0.5, [[True]], None, zeros(4, 5), np.ones((4, 5), int)], ids=repr
)
def test_a_pattern_is_joined_with_patterns_and_boolean_arrays(other):
    for join in (lambda: causal & other, lambda: causal | other, lambda: other & causal):
        with pytest.raises(TypeError, match="Boolean array, got"):
            join()


@pytest.mark.parametrize(
    "joined", [lambda: causal and window(2), lambda: causal or TRUE, lambda: not causal]
)
def test_patterns_are_joined_by_operators_not_by_words(joined):
    """Otherwise `causal and padding` would be the padding alone, and every token see the future."""
    with pytest.raises(TypeError, match=r"join patterns with &, \| and ~, not with and"):
        joined()


def test_a_pattern_with_an_array_has_no_answer_for_single_positions():
    with pytest.raises(ValueError, match=r"pattern\.array\(n_query, n_key\)"):
        (causal & TRUE)(2, 3)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (5, 5), (3, 1), ()], ids=str)
def test_an_array_joined_to_a_pattern_must_fit(backend, shape):
    mask = window(2) | backend.array(true(*shape))
    with pytest.raises(ValueError, match=r"must end in \(n_query, n_key\) = \(4, 5\)") as caught:
        call(backend, attend(mask=mask))
    assert f"got shape {shape}" in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (5, 4)], ids=str)
def test_a_rule_must_answer_for_each_pair(backend, shape):
    rule = Pattern(lambda i, j: backend.array(true(*shape)))
    with pytest.raises(ValueError, match=r"each pair of positions, shape \(4, 5\), got shape"):
        call(backend, attend(mask=rule))


# ---- what is not wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), np.float16(0.5), np.float64(0.1), -1, 0], ids=repr
)
def test_any_real_number_is_a_scale(backend, scale):
    found = back(call(backend, weigh(scale=scale)))
    np.testing.assert_allclose(found, 0.2)
