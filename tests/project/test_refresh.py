"""Storing outputs again changes nothing."""

import shutil

import nbformat
import pytest

from qkvlib.book import mistakes_table
from tools.refresh import (
    CHAPTERS,
    PICTURE,
    ROOT,
    all_notebooks,
    clean,
    generated,
    picture,
    refresh,
)

NOTEBOOKS = all_notebooks()


# The two quickest. Of the others `run.py refresh` and `git diff` say the same, in minutes.
@pytest.mark.parametrize("name", ["conventions", "01_essence"])
def test_a_second_refresh_changes_nothing(name, tmp_path):
    copy = tmp_path / f"{name}.ipynb"
    shutil.copy(CHAPTERS / copy.name, copy)
    refresh(copy)
    first = copy.read_bytes()
    refresh(copy)
    assert copy.read_bytes() == first


def test_the_generated_files_are_what_refresh_writes():
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, path


def test_a_new_mistake_comes_to_its_page_at_once(monkeypatch):
    """The stored table, which refresh is about to write, knows nothing of it yet."""
    monkeypatch.setattr(mistakes_table, "load", dict)
    page = CHAPTERS / "misconceptions.md"
    assert generated()[page] == page.read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_the_stored_one():
    assert PICTURE.read_bytes() == picture(NOTEBOOKS)


def test_what_differs_between_machines_is_taken_out():
    failing = nbformat.v4.new_output(
        "error", ename="E", evalue="e", traceback=[f"File {PICTURE}:3"]
    )
    cell = nbformat.v4.new_code_cell("f()", outputs=[failing], id="a")
    cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01T00:00:00Z"}
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["language_info"] = {"name": "python", "version": "3.11.7"}
    clean(notebook)
    assert notebook.metadata["language_info"] == {"name": "python"}
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert cell.metadata == {}
    assert failing.traceback == [f"File {PICTURE.relative_to(ROOT)}:3"]
