"""How the weights of MiniLM are named in its file, for the encoders of both twins."""

from typing import NamedTuple

from qkvlib._parts import BlockParts, Reader, settings

_SETTINGS = (
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "layer_norm_eps",
)


class EncoderParts(NamedTuple):
    """Tables, and keyword arguments for the first norm and for each block."""

    token_table: object
    position_table: object
    norm: dict
    blocks: list


def parts(weights, config, convert):
    """Sort the weights of the file into parts; matrices are turned to act on the right.

    Every text is of token type 0 here, so that type's row is added to all positions.
    """
    vocabulary, n_max, types, d_model, d_ff, num_blocks, num_heads, eps = settings(
        config, _SETTINGS, "load_minilm"
    )
    weight = Reader(weights, "load_minilm", convert)

    def norm(prefix):
        return {
            "weight": weight(f"{prefix}.weight", d_model),
            "bias": weight(f"{prefix}.bias", d_model),
            "eps": eps,
        }

    def matrix(prefix, d_in, d_out):
        return weight(f"{prefix}.weight", d_out, d_in).T, weight(f"{prefix}.bias", d_out)

    def block(prefix):
        names = {"Q": "self.query", "K": "self.key", "V": "self.value", "O": "output.dense"}
        attention = {"num_heads": num_heads}
        for letter, name in names.items():
            attention[f"W_{letter}"], attention[f"b_{letter}"] = matrix(
                f"{prefix}.attention.{name}", d_model, d_model
            )
        W_1, b_1 = matrix(f"{prefix}.intermediate.dense", d_model, d_ff)
        W_2, b_2 = matrix(f"{prefix}.output.dense", d_ff, d_model)
        return BlockParts(
            attention,
            {"W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2},
            norm(f"{prefix}.attention.output.LayerNorm"),
            norm(f"{prefix}.output.LayerNorm"),
        )

    def table(name, rows):
        return weight(f"embeddings.{name}_embeddings.weight", rows, d_model)

    return EncoderParts(
        table("word", vocabulary),
        table("position", n_max) + table("token_type", types)[0],
        norm("embeddings.LayerNorm"),
        [block(f"encoder.layer.{i}") for i in range(num_blocks)],
    )
