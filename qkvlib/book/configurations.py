"""The sizes of published models, with the source of each: the data are in `configurations.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Configuration:
    """One published model: its width, its heads, the width of a head, and who says so.

    d_model: the width of the model; heads: how many heads of queries a layer has
    kv_heads: how many heads of keys and values, by default as many
    d_k: the width of one head's queries and keys; d_v: that of its values, by default the same
    config: the class of `transformers` that has these sizes by default, if there is one
    """

    name: str
    year: int
    d_model: int
    heads: int
    d_k: int
    source: str
    kv_heads: int | None = None
    d_v: int | None = None
    config: str | None = None

    def __post_init__(self):
        for name, default in (("kv_heads", self.heads), ("d_v", self.d_k)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    @property
    def concatenated(self):
        """How wide the heads' outputs are side by side: heads * d_v, which `W_O` takes in."""
        return self.heads * self.d_v


@cache
def load():
    """All configurations, oldest first, as a tuple.

    >>> base = load()[0]
    >>> base.name, base.d_model, base.heads, base.d_k, base.source
    ('Transformer base', 512, 8, 64, 'Vaswani et al. 2017, table 3')
    """
    text = files("qkvlib.book").joinpath("configurations.toml").read_text(encoding="utf-8")
    return tuple(Configuration(**entry) for entry in tomllib.loads(text)["configurations"])


def find(name):
    """The configuration of this name.

    Raises ValueError for a name that is not in the list.

    >>> find("T5 11B").concatenated
    16384
    """
    by_name = {configuration.name: configuration for configuration in load()}
    if name not in by_name:
        raise ValueError(f"name must be one of {', '.join(by_name)}, got {name!r}")
    return by_name[name]
