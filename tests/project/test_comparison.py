"""The comparison of notebooks with their stored outputs notices what it should.

One notebook is run and stored, a copy of it is damaged cell by cell, and pytest compares both.
"""

import base64
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from PIL import Image, ImageDraw

from tools.refresh import refresh

ROOT = Path(__file__).parents[2]

TEXT = "1 + 1"
FIGURE = """\
import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(3, 2))
axes.text(0.4, 0.4, "0.39")
plt.show()"""
SOURCES = {
    "good-text": TEXT,
    "changed-text": TEXT,
    "good-figure": FIGURE,
    "swapped-figure": FIGURE,
    "changed-digit": FIGURE,
    "other-digit": FIGURE.replace("0.39", "0.38"),
    "few-pixels": FIGURE,
    "lost-figure": FIGURE,
    "extra-figure": FIGURE,
    "smaller-figure": FIGURE,
    "blanked-cell": TEXT,
    "emptied-cell": TEXT,
    "no-reason": "id(object())",
    "with-reason": "id(object())",
    "no-output": "id(object())",
}
UNCOMPARED = ["no-reason", "with-reason", "no-output"]
GOOD = {"good-text", "good-figure", "other-digit", "few-pixels", "with-reason"}


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The cells that fail, per notebook, in one run over the good and the damaged copy."""
    folder = tmp_path_factory.mktemp("notebooks")
    good = folder / "good.ipynb"
    nbformat.write(tiny_notebook(), good)
    refresh(good)
    notebook = nbformat.read(good, as_version=4)
    damage({cell.id: cell for cell in notebook.cells})
    nbformat.write(notebook, folder / "damaged.ipynb")
    set_up_project(folder)

    printed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "--nbval", "--nbval-current-env", "."],
        cwd=folder,
        capture_output=True,
        text=True,
    ).stdout
    found = re.findall(r"^FAILED (\w+)\.ipynb::Cell (\d+)", printed, flags=re.MULTILINE)
    ids = list(SOURCES)
    return {
        name: {ids[int(number)] for notebook, number in found if notebook == name}
        for name in ("good", "damaged")
    }


def tiny_notebook():
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source, id=id) for id, source in SOURCES.items()]
    for cell in notebook.cells:
        if cell.id in UNCOMPARED:
            cell.metadata["tags"] = ["nbval-ignore-output"]
    return notebook


def damage(cells):
    cells["changed-text"].outputs[0].data["text/plain"] = "3"
    figures = {id: cell.outputs[0].data for id, cell in cells.items() if "figure" in id}
    width, height = open_png(figures["good-figure"]["image/png"]).size
    other = Image.new("RGBA", (width, height), "white")
    figures["swapped-figure"]["image/png"] = save_png(other)
    figures["smaller-figure"]["image/png"] = save_png(other.resize((width - 1, height)))
    del figures["lost-figure"]["image/png"]
    cells["extra-figure"].outputs.append(cells["extra-figure"].outputs[0].copy())
    cells["changed-digit"].outputs = cells["other-digit"].outputs
    few = open_png(figures["good-figure"]["image/png"])
    ImageDraw.Draw(few).line([(2, 2), (6, 2)], fill="red")
    cells["few-pixels"].outputs[0].data["image/png"] = save_png(few)
    cells["blanked-cell"].update(outputs=[], execution_count=None)
    cells["emptied-cell"].update(outputs=[], source="")
    cells["no-output"].outputs = []


def open_png(data):
    return Image.open(io.BytesIO(base64.b64decode(data)))


def save_png(picture):
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


def set_up_project(folder):
    """A project of its own around the notebooks: the real conftest.py, and its list of cells."""
    for name in ("conftest.py", "run.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "tests").mkdir()
    listed = {"good": UNCOMPARED, "damaged": ["with-reason", "no-output"]}
    (folder / "tests" / "uncompared_cells.toml").write_text(
        "\n".join(
            f'["{notebook}.ipynb"]\n' + "\n".join(f'{id} = "an address"' for id in ids)
            for notebook, ids in listed.items()
        ),
        encoding="utf-8",
    )


def test_nothing_fails_in_the_notebook_as_it_was_stored(failed):
    assert failed["good"] == set()


@pytest.mark.parametrize("cell", [id for id in SOURCES if id not in GOOD])
def test_a_damaged_cell_fails(failed, cell):
    assert cell in failed["damaged"]


@pytest.mark.parametrize("cell", sorted(GOOD))
def test_what_is_near_a_damaged_cell_does_not_fail(failed, cell):
    assert cell not in failed["damaged"]
