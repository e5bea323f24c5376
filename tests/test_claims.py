"""The claims: the data file, what `settle` lets through, and the page made from the outputs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qkvlib.book import claims
from qkvlib.book.claims import COMPUTED, KINDS, MIME, Claim, load, recorded, render_page, settle

CHAPTERS = Path(__file__).parents[1] / "chapters"
SETTLED = [c for c in load().values() if c.kind in ("experiment", "derivation")]
RECORDED = [c for c in load().values() if c in SETTLED or c.kind == "unsettled"]


def right_arguments(claim):
    as_said, corrected = COMPUTED[claim.verdict]
    return {"as_said": as_said} | ({} if corrected is None else {"corrected": corrected})


# ---- the data file -----------------------------------------------------------------------------


def test_every_claim_is_there_once_in_the_order_of_the_article():
    letters = {"C1": "abc", "C2.1": "abcde", "C2.2": "abcd", "C2.3": "abcde", "C3.1": "abcd"}
    letters |= {"C3.2": "abcdef", "C4.1": "abc", "C4.2": "abc", "C4.3": "abc", "C5.1": "ab"}
    letters |= {"C5.2": "abcde", "C6.1": "abcde", "C6.2": "abcd"}
    letters |= {f"C6.3-{i}": "abc" for i in "123"} | {f"C7-{i}": "abc" for i in "123"}
    letters |= {"C7-4": "ab", "O": "12345"}
    expected = [
        f"{section}{letter}" if section.count("-") else f"{section}-{letter}"
        for section, those in letters.items()
        for letter in those
    ]
    assert len(expected) == 72 + 5
    assert list(load()) == expected


def test_the_data_file_is_well_formed():
    entries = claims._data()["claims"]
    assert len(entries) == len(load()), "an id is there twice"
    for claim in load().values():
        assert claim.section in claims._data()["sections"], claim
        assert claim.kind in KINDS, claim
        assert claim.verdict in claims.MEANING, claim
        assert (claim.kind == "not testable") == (claim.verdict == "not testable"), claim
        assert claim.said, claim
        assert claim.source, claim
        assert claim.right or claim.verdict == "holds", f"{claim.id}: what is right then?"
        text = claim.said + claim.right + claim.source
        assert text.count("$") % 2 == 0, f"{claim.id}: a dollar is missing"
        assert not re.search("[\u3400-\u9fff]", text), f"{claim.id}: our own words, in English"


# ---- settle ------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", SETTLED, ids=lambda claim: claim.id)
def test_only_the_verdict_of_the_data_file_settles_a_claim(claim):
    right = right_arguments(claim)
    assert settle(claim.id, **right).verdict == claim.verdict
    for name, value in right.items():
        flips = (
            [(False, False), (True, True), (False, True)] if value == (True, False) else [not value]
        )
        for flipped in flips:
            with pytest.raises(AssertionError, match=re.escape(claim.id)):
                settle(claim.id, **{**right, name: flipped})


def test_numpy_bools_are_bools_and_come_out_plain():
    x = np.array([1.0, -1.0])
    result = settle("C2.1-a", as_said=(x[0] > 0, x[1] > 0))
    assert result.as_said == (True, False)
    assert [type(flag) for flag in result.as_said] == [bool, bool]
    assert type(settle("C1-c", as_said=x[1] > 0, corrected=x[0] > 0).corrected) is bool


@pytest.mark.parametrize("flag", [1, 1.0, "yes", np.array([True]), np.array(True), [True]])
def test_anything_but_a_plain_bool_is_refused(flag):
    with pytest.raises(TypeError, match=r"as_said must be a plain bool, got \w+; .* bool\("):
        settle("C2.1-b", as_said=flag)
    with pytest.raises(TypeError, match="as_said must be a plain bool"):
        settle("C2.1-a", as_said=(flag, False))
    with pytest.raises(TypeError, match="corrected must be a plain bool"):
        settle("C1-c", as_said=False, corrected=flag)


@pytest.mark.parametrize(
    ("id", "arguments", "message"),
    [
        ("C1-x", {"as_said": True}, "got 'C1-x'; did you mean C1-"),
        ("C1-a", {"as_said": True}, "C1-a is 'source'"),
        ("C2.1-b", {}, "as_said must be given: C2.1-b is 'holds'"),
        ("C2.1-b", {"as_said": (True, False)}, "as_said must be one bool"),
        ("C2.1-b", {"as_said": True, "corrected": True}, "corrected must be left out"),
        ("C2.1-a", {"as_said": True}, "as_said must be a pair"),
        ("C2.1-a", {"as_said": (True, False, True)}, "as_said must be a pair"),
        ("C2.1-a", {"as_said": (True, None)}, "as_said must be given"),
        ("C1-c", {"as_said": False}, "corrected must be given: C1-c is 'misleading'"),
        ("O-1", {"corrected": True}, "as_said must be given: O-1 is 'omitted'"),
    ],
)
def test_arguments_that_do_not_fit_the_claim_are_refused(id, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settle(id, **arguments)


def test_an_unsettled_claim_takes_figures_and_no_verdict(monkeypatch):
    claim = Claim("C9-a", "9", "09", "said", "unsettled", "misleading", "source", "right")
    monkeypatch.setattr(claims, "load", lambda: {"C9-a": claim})
    result = settle("C9-a", measured={"loss": 0.5})
    assert (result.as_said, result.corrected, result.measured) == (None, None, (("loss", "0.500"),))
    with pytest.raises(ValueError, match="measured must hold the figures of C9-a"):
        settle("C9-a")
    for arguments in ({"as_said": False}, {"corrected": True}):
        with pytest.raises(ValueError, match="must be left out: C9-a is 'unsettled'"):
            settle("C9-a", **arguments, measured={"loss": 0.5})


def test_what_is_measured_is_printed_with_safe_digits():
    result = settle(
        "C2.1-b",
        as_said=True,
        measured={"error": -2e-16, "rows": 5, "weight": np.float32(0.7037), "band": "0.1 to 0.2"},
    )
    assert repr(result) == (
        "C2.1-b: holds\nerror: 0.000 · rows: 5 · weight: 0.704 · band: 0.1 to 0.2"
    )
    assert repr(settle("C2.1-b", as_said=True)) == "C2.1-b: holds"
    with pytest.raises(TypeError, match="must be a number"):
        settle("C2.1-b", as_said=True, measured={"all": np.ones(3)})


def test_the_outputs_of_a_settled_claim():
    result = settle("C1-c", as_said=False, corrected=True, measured={"a < b": 1})
    assert result._repr_html_() == "<p><strong>C1-c: misleading</strong><br>a &lt; b: 1</p>"
    bundle = json.loads(json.dumps(result._repr_mimebundle_()))
    assert bundle == {
        MIME: {
            "id": "C1-c",
            "verdict": "misleading",
            "as_said": False,
            "corrected": True,
            "measured": [["a < b", "1"]],
        }
    }


# ---- the page ----------------------------------------------------------------------------------


@pytest.fixture
def chapters(tmp_path):
    """Notebooks in which every claim is settled in its own chapter, as Jupyter would store them."""
    for name in {claim.chapter for claim in load().values()}:
        here = [claim for claim in RECORDED if claim.chapter == name]
        write_notebook(tmp_path / f"{name}.ipynb", [record(claim) for claim in here])
    return tmp_path


def record(claim):
    judged = right_arguments(claim) if claim in SETTLED else {}
    result = settle(claim.id, **judged, measured={"gap of " + claim.id: 0.25})
    return json.loads(json.dumps(result._repr_mimebundle_()[MIME]))


def write_notebook(path, records):
    outputs = [{"output_type": "stream", "name": "stdout", "text": "told won\n"}]
    outputs += [
        {"output_type": "execute_result", "data": {MIME: r, "text/plain": ""}} for r in records
    ]
    cells = [
        {"cell_type": "markdown", "source": "# A chapter\n\n## What it's for, and why"},
        {"cell_type": "code", "source": "settle(...)", "outputs": outputs},
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")


def test_the_page_shows_every_claim_with_what_was_measured(chapters):
    page = render_page(chapters)
    for claim in load().values():
        entry = page.split(f"### {claim.id}: {claim.verdict}\n")[1].split("\n#")[0]
        assert claim.said in entry
        assert claim.right in entry
        assert claim.source in entry
        assert f"{{doc}}`{claim.chapter}`" in entry
        link = f"[What it's for, and why]({claim.chapter}.ipynb#what-its-for-and-why)"
        assert (link in entry) == (claim in RECORDED)
        assert (f"gap of {claim.id}: 0.250" in entry) == (claim in RECORDED)
    holding = sum(claim.verdict == "holds" for claim in load().values())
    assert f"| holds | {holding} |" in page
    assert page.count("\n(") == page.count("\n### ") == len(load())


def test_rendering_twice_gives_the_same_page(chapters):
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "qkvlib.book.claims", chapters], check=True)
        assert (chapters / "claims.md").read_bytes() == render_page(chapters).encode()


def test_every_claim_that_no_notebook_settled_is_listed(chapters):
    (chapters / "02_qkv.ipynb").unlink()
    with pytest.raises(ValueError, match="disagree") as raised:
        render_page(chapters)
    in_chapter_2 = [claim.id for claim in RECORDED if claim.chapter == "02_qkv"]
    assert re.findall(r"(\S+): not settled in 02_qkv", str(raised.value)) == in_chapter_2
    assert "gap of C2.1-b" not in render_page(chapters, allow_missing=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "wrong"}, "C3.1-a: wrong in extra, now holds"),
        ({"id": "C9-z"}, "C9-z: settled in extra, unknown to claims.toml"),
        ({}, "C3.1-a: settled in extra, expected in 03_computation"),
    ],
)
def test_outputs_that_do_not_fit_the_data_file_are_refused(chapters, monkeypatch, change, message):
    stray = record(load()["C3.1-a"]) | change
    write_notebook(chapters / "extra.ipynb", [stray])
    if "verdict" in change:
        moved = load() | {"C3.1-a": Claim(**{**vars(load()["C3.1-a"]), "chapter": "extra"})}
        monkeypatch.setattr(claims, "load", lambda: moved)
    with pytest.raises(ValueError, match=re.escape(message)):
        render_page(chapters, allow_missing=True)


def test_a_claim_settled_twice_is_refused(chapters):
    twice = [record(load()["C1-b"])] * 2 + [record(load()["C1-c"])]
    write_notebook(chapters / "01_essence.ipynb", twice)
    with pytest.raises(ValueError, match="C1-b: settled 2 times"):
        render_page(chapters)


def test_copies_of_notebooks_are_not_read(chapters):
    before = recorded(chapters)
    for folder in (".ipynb_checkpoints", "_build"):
        write_notebook(chapters / folder / "01_essence.ipynb", [record(load()["C1-b"])])
    assert recorded(chapters) == before


def test_the_page_in_the_book_is_the_one_the_notebooks_give():
    assert (CHAPTERS / "claims.md").read_text(encoding="utf-8") == render_page(CHAPTERS)
