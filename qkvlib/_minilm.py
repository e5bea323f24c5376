"""How the parts of MiniLM are named in its file, for the encoders of both twins."""

from typing import NamedTuple


class BlockParts(NamedTuple):
    """Keyword arguments for the four parts of a block."""

    attention: dict
    feed_forward: dict
    attention_norm: dict
    feed_forward_norm: dict


class EncoderParts(NamedTuple):
    """Tables, and keyword arguments for the first norm and for each block."""

    token_table: object
    position_table: object
    norm: dict
    blocks: list


def parts(weights, config):
    """Sort the weights of the file into parts; matrices are turned to act on the right.

    Every text is of token type 0 here, so that type's row is added to all positions.
    """
    d_model, d_ff = config["hidden_size"], config["intermediate_size"]

    def weight(name, *shape):
        got = tuple(weights[name].shape) if name in weights else "nothing"
        if got != shape:
            raise ValueError(
                f"weights must hold {name!r} of shape {shape}, as the config says, got {got}; "
                "take weights and config from one call of qkvlib.pretrained.load_minilm()"
            )
        return weights[name]

    def norm(prefix):
        return {
            "weight": weight(f"{prefix}.weight", d_model),
            "bias": weight(f"{prefix}.bias", d_model),
            "eps": config["layer_norm_eps"],
        }

    def matrix(prefix, d_in, d_out):
        return weight(f"{prefix}.weight", d_out, d_in).T, weight(f"{prefix}.bias", d_out)

    def block(prefix):
        names = {"Q": "self.query", "K": "self.key", "V": "self.value", "O": "output.dense"}
        attention = {"num_heads": config["num_attention_heads"]}
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
        return weight(f"embeddings.{name}_embeddings.weight", config[rows], d_model)

    return EncoderParts(
        table("word", "vocab_size"),
        table("position", "max_position_embeddings") + table("token_type", "type_vocab_size")[0],
        norm("embeddings.LayerNorm"),
        [block(f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])],
    )
