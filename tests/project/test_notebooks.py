"""What holds for every notebook as it is stored."""

import ast
import json
import re
import sys
import tomllib
from collections import Counter

import nbformat
import pytest

from tools.refresh import ROOT, all_notebooks, clean

NOTEBOOKS = all_notebooks()
TAGGED = {"torch", "model"}
ALLOWED = {"qkvlib", "numpy", "matplotlib", *sys.stdlib_module_names}
UNCOMPARED = tomllib.loads((ROOT / "tests" / "uncompared_cells.toml").read_text(encoding="utf-8"))
LINES = 25
NOT_COMPARING = {"nbval-ignore-output", "nbval-skip"}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    return [(n, c) for n, c in enumerate(notebook.cells) if c.cell_type == "code"]


def tags(cell):
    return set(cell.metadata.get("tags", ()))


def test_there_are_notebooks():
    assert NOTEBOOKS


@every_notebook
def test_every_code_cell_was_run_in_order(path):
    counts = [cell.execution_count for _, cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_it_is_stored_as_refresh_stores_it(path):
    notebook = nbformat.read(path, as_version=4)
    clean(notebook)
    assert nbformat.writes(notebook) + "\n" == path.read_text(encoding="utf-8")


@every_notebook
def test_figures_are_png_with_alt_text(path):
    for number, cell in code_cells(path):
        for output in cell.outputs:
            kinds = {kind for kind in output.get("data", ()) if kind.startswith("image/")}
            assert kinds <= {"image/png"}, f"cell {number}"
            if kinds:
                alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
                assert alt, f"cell {number}: a figure without alt text"


def test_no_two_figures_have_the_same_name():
    cells = [cell for path in NOTEBOOKS for _, cell in code_cells(path)]
    figures = [cell.metadata.get("mystnb", {}).get("figure", {}) for cell in cells]
    names = Counter(figure["name"] for figure in figures if "name" in figure)
    assert {name for name, count in names.items() if count > 1} == set()


@every_notebook
def test_a_cell_with_a_caption_has_stored_its_figure(path):
    for number, cell in code_cells(path):
        if "figure" in cell.metadata.get("mystnb", {}) or "plt.show()" in cell.source:
            assert any("image/png" in out.get("data", ()) for out in cell.outputs), f"cell {number}"


@every_notebook
def test_a_captioned_cell_shows_nothing_beside_its_figure_but_text(path):
    for number, cell in code_cells(path):
        if "figure" in cell.metadata.get("mystnb", {}):
            shown = [output for output in cell.outputs if "data" in output]
            assert len(shown) == 1, f"cell {number}: its name would be given twice"


@every_notebook
def test_no_visible_cell_is_long(path):
    for number, cell in code_cells(path):
        hidden = any(tag.startswith(("hide-", "remove-")) for tag in tags(cell))
        assert hidden or len(cell.source.splitlines()) <= LINES, f"cell {number}"


@every_notebook
def test_outputs_name_no_path_of_a_machine(path):
    for number, cell in code_cells(path):
        found = re.search(r"(?<![\w.])/(home|root|tmp|Users|work)/", json.dumps(cell.outputs))
        assert not found, f"cell {number}"


@every_notebook
def test_untagged_cells_import_only_what_runs_in_the_page(path):
    for number, cell in code_cells(path):
        if tags(cell) & TAGGED:
            continue
        for name in imported(cell.source):
            assert name.split(".")[0] in ALLOWED, f"cell {number} imports {name}: tag it torch?"
            assert not name.startswith(("qkvlib.torch", "qkvlib.book.experiments")), (
                f"cell {number} imports {name} and is not tagged torch"
            )


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_list_of_uncompared_cells_has_no_stale_entry():
    tagged = {
        (path.relative_to(ROOT).as_posix(), cell.id)
        for path in NOTEBOOKS
        for _, cell in code_cells(path)
        if tags(cell) & NOT_COMPARING
    }
    listed = {(notebook, id) for notebook, cells in UNCOMPARED.items() for id in cells}
    assert listed == tagged
