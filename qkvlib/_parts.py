"""What the weights of a file become: the parts of a model, for the models of both twins."""

from typing import NamedTuple


class BlockParts(NamedTuple):
    """Keyword arguments for the four parts of a block."""

    attention: dict
    feed_forward: dict
    attention_norm: dict
    feed_forward_norm: dict


class Reader:
    """Weights taken by name, each of the shape that the config says.

    weights: arrays by name; loader: the function that returns weights and config; convert: what
    makes an array the twin's own.
    """

    def __init__(self, weights, loader, convert):
        self._weights, self._loader, self._convert = weights, loader, convert

    def __call__(self, name, *shape):
        got = tuple(self._weights[name].shape) if name in self._weights else "nothing"
        if got != shape:
            raise ValueError(
                f"weights must hold {name!r} of shape {shape}, as the config says, got {got}; "
                f"take weights and config from one call of qkvlib.pretrained.{self._loader}()"
            )
        return self._convert(self._weights[name])


def settings(config, names, loader):
    """The settings of these names, in this order."""
    missing = [name for name in names if name not in config]
    if missing:
        raise ValueError(
            f"config must hold {', '.join(names)}, got none named {', '.join(missing)}; "
            f"take weights and config from one call of qkvlib.pretrained.{loader}()"
        )
    return [config[name] for name in names]
