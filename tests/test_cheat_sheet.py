"""The cheat sheet says what the library does: its code runs, its numbers are computed again."""

import math
import re
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch

import qkvlib.numpy as qn
from qkvlib.book.example import HEAD_A, X

PAGE = (Path(__file__).parents[1] / "chapters" / "cheat_sheet.md").read_text(encoding="utf-8")


def table(first_header):
    """The body of the table whose first line starts so: a list of rows of cells."""
    lines = PAGE[PAGE.index(f"\n{first_header}") :].strip().splitlines()
    rows = takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows][2:]


@pytest.fixture
def code():
    [source] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {"np": np, "math": math}
    exec(source, names)
    return names


@pytest.mark.parametrize("masked", [False, True])
def test_the_code_is_multi_head_attention(code, masked):
    generator = np.random.default_rng(3)
    layer = qn.MultiHeadAttention(12, 3, d_v=5, projection_bias=False, generator=generator)
    x = generator.normal(size=(2, 7, 12))
    [causal] = re.findall(r"Causal mask: `(.*)`", PAGE)
    mask = eval(causal, {"np": np, "n_query": 7, "n_key": 7}) if masked else None
    output = code["multi_head"](x, layer.W_Q, layer.W_K, layer.W_V, layer.W_O, 3, mask)
    np.testing.assert_allclose(output, layer(x, mask=mask), atol=1e-12)


def test_the_causal_mask_is_the_librarys():
    [causal] = re.findall(r"Causal mask: `(.*)`", PAGE)
    for n_query, n_key in [(5, 5), (2, 5), (1, 4)]:
        written = eval(causal, {"np": np, "n_query": n_query, "n_key": n_key})
        np.testing.assert_array_equal(written, qn.causal_mask(n_query, n_key))


def test_the_fingerprints():
    Q, K = X @ HEAD_A.W_Q, X @ HEAD_A.W_K
    weights = qn.attention_weights(Q, K)
    right = {
        "right": weights,
        "not scaled": qn.attention_weights(Q, K, scale=1.0),
        "divided by d_k": qn.attention_weights(Q, K, scale=1 / 2),
        "divided by √d_model": qn.attention_weights(Q, K, scale=1 / math.sqrt(6)),
        "softmax over queries": qn.softmax(qn.attention_scores(Q, K), axis=0),
        "softmax twice": qn.softmax(weights),
        "K Q^T for Q K^T": qn.attention_weights(K, Q),
    }
    he, paul = 3, 0
    shown = {name: f"{w[he, paul]:.3f}".lstrip("0") for name, w in right.items()}
    assert dict(table("| Done | Weight |")) == shown


def test_where_numbers_end():
    rows = {name: cells for name, *cells in table("| | float16 | bfloat16")}
    dtypes = [torch.float16, torch.bfloat16, torch.float32]
    for dtype, largest, power, step in zip(dtypes, *rows.values()):
        assert float(largest) == pytest.approx(torch.finfo(dtype).max, rel=0.01)
        assert torch.tensor(float(power)).double().exp().to(dtype).isinf()
        assert torch.tensor(float(power) - 0.1).double().exp().to(dtype).isfinite()
        bits = "".join("0123456789"["⁰¹²³⁴⁵⁶⁷⁸⁹".index(c)] for c in step.removeprefix("2⁻"))
        half_a_step = torch.tensor(2.0 ** -int(bits), dtype=dtype)
        assert 1 + half_a_step == 1 < 1 + 2 * half_a_step


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_weights_of_a_layer_do_not_grow_with_its_heads(heads):
    layer = qn.MultiHeadAttention(
        16, heads, projection_bias=False, generator=np.random.default_rng(0)
    )
    assert "4 d_model², for every h" in PAGE
    assert sum(W.size for W in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)) == 4 * 16**2
