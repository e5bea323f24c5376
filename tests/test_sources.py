"""What is cited anywhere stands in the data file of sources, once."""

import json
import re
from pathlib import Path

import pytest

from qkvlib.book import configurations, sources
from qkvlib.book.claims import load as claims

ROOT = Path(__file__).parents[1]
CODE = sorted((ROOT / "qkvlib").rglob("*.py"))
NOTEBOOKS = [p for p in sorted((ROOT / "chapters").rglob("*.ipynb")) if ".ipynb_" not in str(p)]


def markdown(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_no_source_stands_there_twice():
    entries = sources._data()["sources"]
    for field in ("key", "title", "link"):
        values = [entry[field] for entry in entries]
        assert sorted(set(values)) == sorted(values)
    assert {entry["topic"] for entry in entries} == set(sources._data()["topics"])


@pytest.mark.parametrize("source", sources.load().values(), ids=lambda source: source.key)
def test_a_source_is_written_like_a_citation_and_has_an_address(source):
    assert sources.CITATION.search(source.key), source.key
    assert re.fullmatch(r"arXiv:\d{4}\.\d{4,5}|https://\S+", source.link)
    assert sources.unknown(source.key) == []


@pytest.mark.parametrize("claim", claims().values(), ids=lambda claim: claim.id)
def test_the_sources_of_a_claim_are_known(claim):
    assert sources.unknown(claim.source) == []


def test_the_sources_of_the_configurations_are_known():
    for configuration in configurations.load():
        assert sources.unknown(configuration.source) == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_sources_of_the_code_are_known(path):
    assert sources.unknown(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "path",
    [*NOTEBOOKS, *sorted((ROOT / "chapters").rglob("*.md"))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_sources_of_a_page_are_known(path):
    assert sources.unknown(markdown(path)) == []


def test_an_unknown_citation_is_noticed():
    assert sources.unknown("as in Nobody et al. 2031, section 3") == ["Nobody et al. 2031"]
    assert sources.cited("Ba et al.\n    2016, section 4") == ["Ba et al. 2016"]


def test_a_source_of_many_claims_counts_them():
    line = next(line for line in sources.render().splitlines() if "Vaswani et al. 2017" in line)
    resting = [claim for claim in claims().values() if "Vaswani et al. 2017" in claim.source]
    assert f"Claims: {len(resting)} of the {len(claims())}" in line
    assert "{ref}" not in line


def test_a_source_of_a_few_claims_links_them():
    lines = sources.render().splitlines()
    line = next(line for line in lines if line.startswith("- **Bahdanau et al. 2015**"))
    assert line.count("{ref}") == sum("Bahdanau" in claim.source for claim in claims().values()) > 0
