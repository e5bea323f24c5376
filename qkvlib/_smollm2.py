"""How the weights of SmolLM2 are named in its file, for the decoders of both twins."""

from collections.abc import Iterator
from typing import NamedTuple

from qkvlib._parts import BlockParts, Reader, settings

_SETTINGS = (
    "vocabulary",
    "n_max",
    "d_model",
    "d_k",
    "d_ff",
    "num_blocks",
    "num_heads",
    "num_kv_heads",
    "eps",
    "rotary_base",
)


class DecoderParts(NamedTuple):
    """The table, keyword arguments for the last norm and for each block, the other settings."""

    token_table: object
    norm: dict
    blocks: Iterator
    n_max: int
    rotary_base: float


def parts(weights, config, convert):
    """Sort the weights of the file into parts; matrices are turned to act on the right.

    The blocks come one at a time, so that no more than one of them is in memory twice.
    """
    vocabulary, n_max, d_model, d_k, d_ff, num_blocks, num_heads, num_kv_heads, eps, base = (
        settings(config, _SETTINGS, "load_smollm2")
    )
    weight = Reader(weights, "load_smollm2", convert)

    def norm(name):
        return {"weight": weight(f"{name}.weight", d_model), "eps": eps}

    def matrix(name, d_in, d_out):
        return weight(f"{name}.weight", d_out, d_in).T

    def block(prefix):
        return BlockParts(
            {
                "W_Q": matrix(f"{prefix}.attn_q", d_model, num_heads * d_k),
                "W_K": matrix(f"{prefix}.attn_k", d_model, num_kv_heads * d_k),
                "W_V": matrix(f"{prefix}.attn_v", d_model, num_kv_heads * d_k),
                "W_O": matrix(f"{prefix}.attn_output", num_heads * d_k, d_model),
                "num_heads": num_heads,
                "num_kv_heads": num_kv_heads,
            },
            {
                "W_gate": matrix(f"{prefix}.ffn_gate", d_model, d_ff),
                "W_up": matrix(f"{prefix}.ffn_up", d_model, d_ff),
                "W_down": matrix(f"{prefix}.ffn_down", d_ff, d_model),
            },
            norm(f"{prefix}.attn_norm"),
            norm(f"{prefix}.ffn_norm"),
        )

    return DecoderParts(
        weight("token_embd.weight", vocabulary, d_model),
        norm("output_norm"),
        (block(f"blk.{i}") for i in range(num_blocks)),
        n_max,
        base,
    )
