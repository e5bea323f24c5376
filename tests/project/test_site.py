"""The pages of the book, and that neither they nor their sources load anything from elsewhere."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from tools import check_site
from tools.check_site import IN_CSS, Page, is_elsewhere, load_problems, page_problems, toc_pages

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted((ROOT / "chapters").rglob("*"))
    if path.suffix in (".md", ".ipynb") and ".ipynb_checkpoints" not in path.parts
]
MARKDOWN_IMAGE = re.compile(r"!\[[^\]]*\]\(\s*([^)\s]+)|^\s*:?image:?\s*(\S+)", flags=re.MULTILINE)
NETWORK = {"http", "urllib", "requests", "socket", "ftplib", "httpx", "aiohttp"}

every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


# ---- the sources -------------------------------------------------------------------------------


def test_the_table_of_contents_lists_every_page_once():
    found = [path.relative_to(ROOT).with_suffix("").as_posix() for path in PAGES]
    assert sorted(toc_pages()) == sorted(found)


@every_page
def test_no_page_names_another_host_for_loading(path, tmp_path):
    for text in texts(path):
        page = tmp_path / "page.html"
        page.write_text(text, encoding="utf-8")
        images = ["".join(match) for match in MARKDOWN_IMAGE.findall(text)]
        assert [address for address in [*Page(page).loads, *images] if is_elsewhere(address)] == []


def texts(path):
    """The Markdown of a page, and the HTML that its cells have stored."""
    if path.suffix == ".md":
        yield path.read_text(encoding="utf-8")
        return
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("data", {}).get("text/html", "")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "assets").glob("*.css")), ids=lambda path: path.name
)
def test_no_style_names_another_host(path):
    assert not [
        m for m in IN_CSS.findall(path.read_text(encoding="utf-8")) if is_elsewhere("".join(m))
    ]


def test_no_code_opens_a_connection():
    modules = [path.read_text(encoding="utf-8") for path in (ROOT / "qkvlib").rglob("*.py")]
    cells = [
        cell.source
        for path in PAGES
        if path.suffix == ".ipynb"
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
    ]
    for source in modules + cells:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            else:
                continue
            assert not names & NETWORK, ast.unparse(node)


# ---- what run.py ci looks for in the built book ------------------------------------------------

TEXT = "word " * check_site.WORDS
WELL = f"<article><a href='https://example.org'>link</a> <p>{TEXT}</p></article>"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A built book of one page, which has nothing wrong with it."""
    monkeypatch.setattr(check_site, "toc_pages", lambda: ["page"])
    (tmp_path / "page.html").write_text(WELL, encoding="utf-8")
    (tmp_path / "own.css").write_text("a { background: url(data:image/png;base64,) }")
    return tmp_path


def test_a_good_page_passes(site):
    assert [*page_problems(site), *load_problems(site)] == []


def test_a_missing_page_is_reported(site):
    (site / "page.html").unlink()
    assert "missing" in next(page_problems(site))


def test_an_empty_page_is_reported(site):
    (site / "page.html").write_text(f"<nav>{TEXT}</nav><article><h1>Title</h1></article>")
    assert list(page_problems(site)) == ["page: empty"]


@pytest.mark.parametrize(
    "html",
    [
        "<script src='https://example.org/a.js'></script>",
        "<script src='//example.org/a.js'></script>",
        "<script>load('https://example.org/a.js')</script>",
        "<link rel=stylesheet href='http://example.org/a.css'>",
        "<img src='https://example.org/a.png'>",
        "<img srcset='own.css 1x, https://example.org/a.png 2x'>",
        "<iframe src='https://example.org'></iframe>",
        "<video poster='https://example.org/a.png'></video>",
        "<object data='https://example.org/a.svg'></object>",
        "<svg><image href='https://example.org/a.png'/></svg>",
        "<p style='background: url(https://example.org/a.png)'></p>",
        "<style>@import 'https://example.org/a.css';</style>",
        "<meta http-equiv=refresh content='0; url=https://example.org'>",
    ],
)
def test_a_load_from_another_host_is_reported(site, html):
    (site / "page.html").write_text(WELL + html, encoding="utf-8")
    (problem,) = load_problems(site)
    assert "example.org" in problem


def test_a_style_that_loads_from_another_host_is_reported(site):
    (site / "own.css").write_text("@import url('https://example.org/a.css');", encoding="utf-8")
    assert len(list(load_problems(site))) == 1


def test_a_load_of_a_file_that_is_missing_is_reported(site):
    (site / "page.html").write_text(WELL + "<img src='gone.png'>", encoding="utf-8")
    assert list(load_problems(site)) == ["page.html: loads gone.png, which is missing"]
