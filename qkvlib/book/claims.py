"""The claims that the book tests, and the page that says how each one came out.

`claims.toml` holds what is said, the verdict and the source. A notebook ends an experiment with
`settle(...)`, which compares what the notebook computed with the verdict of the data file and
leaves the measured figures in the cell's output. `render_page` reads those outputs back.
"""

import html
import json
import re
import sys
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qkvlib.book.show import number

MIME = "application/vnd.qkvlib.claim+json"
"""Under this type a notebook's stored output keeps what was settled."""

COMPUTED = {  # verdict: what (as_said, corrected) must come out as
    "holds": (True, None),
    "conditional": ((True, False), None),
    "misleading": (False, True),
    "wrong": (False, True),
    "omitted": (False, True),
}
MEANING = {
    "holds": "true as it is said",
    "conditional": "true under a condition that is not said",
    "misleading": "a picture that leads to a wrong expectation",
    "wrong": "false",
    "omitted": "missing, and the rest does not work without it",
    "not testable": "no experiment could decide it",
}
SETTLED_BY_A_NOTEBOOK = ("experiment", "derivation", "unsettled")
KINDS = (*SETTLED_BY_A_NOTEBOOK, "source", "not testable")


@dataclass(frozen=True)
class Claim:
    """One entry of `claims.toml`: what is said, and what the book says to it."""

    id: str
    section: str
    chapter: str
    said: str
    kind: str
    verdict: str
    source: str
    right: str = ""


@cache
def _data():
    return tomllib.loads(files("qkvlib.book").joinpath("claims.toml").read_text(encoding="utf-8"))


@cache
def load():
    """The claims of the data file, by id, in the order of the file."""
    claims = [Claim(**entry) for entry in _data()["claims"]]
    return {claim.id: claim for claim in claims}


@dataclass(frozen=True, repr=False)
class Settled:
    """What one experiment recorded about a claim; made by `settle`."""

    id: str
    verdict: str
    as_said: bool | tuple | None
    corrected: bool | None
    measured: tuple  # pairs of label and text: notebooks sort the keys of a dict

    def _figures(self):
        return " · ".join(f"{label}: {text}" for label, text in self.measured)

    def __repr__(self):
        return "\n".join(filter(None, [f"{self.id}: {self.verdict}", self._figures()]))

    def _repr_html_(self):
        figures = f"<br>{html.escape(self._figures())}" if self.measured else ""
        return f"<p><strong>{self.id}: {self.verdict}</strong>{figures}</p>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {MIME: asdict(self)}


def settle(id, *, as_said=None, corrected=None, measured=None):
    """Compare what an experiment found with the verdict of the data file, and record it.

    id: the claim's name, such as "C1-c"
    as_said: whether the claim came out true, a bool (Python's or NumPy's). For a *conditional*
        claim a pair (inside the condition, outside it)
    corrected: whether the right statement came out true; only for *misleading*, *wrong* and
        *omitted* claims
    measured: dict of a short label to a number or a string; floats are shown with 3 decimals
    -> `Settled`, to be the last line of the cell

    A claim whose kind is *unsettled* takes `measured` alone: it is recorded, and nothing checked.

    Raises AssertionError when the computed result contradicts the data file, ValueError for an
    unknown id or arguments that do not fit the claim, TypeError for anything but plain bools.

    >>> settle("C1-c", as_said=False, corrected=True, measured={"smallest weight": 0.25})
    C1-c: misleading
    smallest weight: 0.250
    """
    claim = _find(id)
    expected = (None, None) if claim.kind == "unsettled" else COMPUTED[claim.verdict]
    computed = (
        _checked("as_said", as_said, expected[0], claim),
        _checked("corrected", corrected, expected[1], claim),
    )
    if claim.kind == "unsettled" and not measured:
        raise ValueError(f"measured must hold the figures of {id}, which is unsettled, got none")
    if computed != expected:
        raise AssertionError(
            f"{id} is {claim.verdict!r} in claims.toml, which asks for as_said, corrected = "
            f"{expected}; this experiment computed {computed}. "
            "Look for the mistake in the experiment first, then change the verdict"
        )
    figures = tuple(
        (label, value if isinstance(value, str) else number(value))
        for label, value in (measured or {}).items()
    )
    return Settled(id, claim.verdict, *computed, figures)


def label(id):
    """How pages refer to a claim."""
    return id.lower().replace(".", "-")


def _find(id):
    claims = load()
    if id not in claims:
        near = get_close_matches(str(id), claims, n=3) or list(claims)
        raise ValueError(
            f"id must be a claim of claims.toml, got {id!r}; did you mean {', '.join(near)}?"
        )
    claim = claims[id]
    if claim.kind not in SETTLED_BY_A_NOTEBOOK:
        raise ValueError(f"id must be a claim that can be settled, but {id} is {claim.kind!r}")
    return claim


def _checked(name, given, expected, claim):
    """The argument as plain bools, after checking that it has the form of what is expected."""
    kind = "unsettled" if claim.kind == "unsettled" else claim.verdict
    if expected is None:
        if given is not None:
            raise ValueError(f"{name} must be left out: {claim.id} is {kind!r}, got {given!r}")
        return None
    if isinstance(expected, tuple):
        if not isinstance(given, tuple) or len(given) != len(expected):
            raise ValueError(
                f"{name} must be a pair (inside the condition, outside it): {claim.id} is "
                f"{kind!r}, got {given!r}"
            )
        return tuple(_checked(name, one, True, claim) for one in given)
    if given is None:
        raise ValueError(f"{name} must be given: {claim.id} is {kind!r}")
    if isinstance(given, tuple):
        raise ValueError(f"{name} must be one bool: {claim.id} is {kind!r}, got {given!r}")
    if not isinstance(given, bool | np.bool_):
        raise TypeError(
            f"{name} must be a plain bool, got {type(given).__name__}; "
            "write the comparison that decides it, or bool(...)"
        )
    return bool(given)


# ---- the page ----------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A claim that a notebook settled: its name without suffix, the heading above it, the record.

    heading: the nearest one, without marks; "" where there is none or where it holds mathematics.
    """

    chapter: str
    heading: str
    record: dict


def recorded(chapters):
    """What the notebooks' stored outputs say: a list of `Recorded`.

    chapters: the folder with the notebooks
    """
    chapters = Path(chapters)
    names = sorted(path.relative_to(chapters) for path in chapters.rglob("*.ipynb"))
    return [
        Recorded(name.with_suffix("").as_posix(), heading, output["data"][MIME])
        for name in names
        if not any(part.startswith((".", "_")) for part in name.parts)
        for heading, cell in _under_headings(chapters / name)
        for output in cell.get("outputs", ())
        if MIME in output.get("data", ())
    ]


def _under_headings(path):
    heading = ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for found in re.findall(r"^#+ (.+)$", "".join(cell["source"]), flags=re.MULTILINE):
                heading = "" if "$" in found else found.strip()
        yield heading, cell


def render_page(chapters, *, allow_missing=False):
    """The claims page as Markdown, from the data file and the notebooks' stored outputs.

    chapters: the folder with the executed notebooks; allow_missing: accept claims that no
    notebook has settled yet -> str, the same for the same notebooks

    Raises ValueError that lists every claim which is not settled, settled twice, settled in
    another chapter than the data file says, or recorded with a verdict that has changed since.
    """
    claims, records = load(), recorded(chapters)
    problems = _problems(claims, records, allow_missing)
    if problems:
        raise ValueError(
            "the notebooks' stored outputs and claims.toml disagree:\n  "
            + "\n  ".join(problems)
            + "\nrun the notebooks again"
        )
    found = {each.record["id"]: each for each in records}
    lines = [*HEAD, "", *_summary(claims)]
    for section, title in _data()["sections"].items():
        of_section = [claim for claim in claims.values() if claim.section == section]
        if of_section:
            lines += ["", f"## {title if section == 'O' else f'{section} {title}'}"]
        for claim in of_section:
            lines += ["", *_entry(claim, found.get(claim.id))]
    return "\n".join(lines) + "\n"


HEAD = (
    "% Made by run.py refresh from claims.toml and the notebooks' outputs. Do not edit.",
    "",
    "# Claims",
    "",
    "The book follows an article on attention, section by section, and tests what it says.",
    "Here is every statement of it, in our own words, with what came out.",
    "Five more are not in the article, and had to be.",
)


def _problems(claims, records, allow_missing):
    problems = []
    times = Counter(each.record["id"] for each in records)
    for name, _, record in records:
        claim = claims.get(record["id"])
        if claim is None:
            problems.append(f"{record['id']}: settled in {name}, unknown to claims.toml")
        elif claim.chapter != name:
            problems.append(f"{claim.id}: settled in {name}, expected in {claim.chapter}")
        elif claim.verdict != record["verdict"]:
            problems.append(f"{claim.id}: {record['verdict']} in {name}, now {claim.verdict}")
    problems += [f"{id}: settled {count} times" for id, count in times.items() if count > 1]
    if not allow_missing:
        problems += [
            f"{claim.id}: not settled in {claim.chapter}"
            for claim in claims.values()
            if claim.kind in SETTLED_BY_A_NOTEBOOK and claim.id not in times
        ]
    return problems


def _summary(claims):
    count = Counter(claim.verdict for claim in claims.values())
    return [
        "| Verdict | Claims | It means |",
        "|---|---:|---|",
        *(f"| {v} | {count[v]} | {meaning} |" for v, meaning in MEANING.items() if count[v]),
    ]


def _entry(claim, found):
    chapter = f"{{doc}}`{claim.chapter}`"
    if found is not None and found.heading:
        chapter += f", [{found.heading}]({claim.chapter}.ipynb#{_anchor(found.heading)})"
    measured = found.record["measured"] if found is not None else ()
    rests_on = {
        "experiment": f"an experiment in {chapter}",
        "derivation": f"a derivation in {chapter}",
        "unsettled": f"figures in {chapter} that do not decide it",
        "source": f"the literature alone; see {chapter}",
        "not testable": f"nothing that could be tested; see {chapter}",
    }[claim.kind]
    figures = "; ".join(f"{label}: {text}" for label, text in measured)
    lines = {
        "Not said" if claim.verdict == "omitted" else "Said": claim.said,
        "To add" if claim.verdict in ("holds", "not testable") else "Right is": claim.right,
        "Measured": figures,
        "Rests on": rests_on,
        "Source": claim.source,
    }
    return [
        f"({label(claim.id)})=",
        f"### {claim.id}: {claim.verdict}",
        "",
        *(f"- **{name}:** {text}" for name, text in lines.items() if text),
    ]


def _anchor(heading):
    """What MyST calls a heading in an address."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace(" ", "-"))


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "chapters")
    (folder / "claims.md").write_text(render_page(folder), encoding="utf-8", newline="\n")
