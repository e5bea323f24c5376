"""What every test run shares, and the two holes in nbval that this project closes.

nbval runs each notebook again and compares what its cells print with what is stored. It looks at
neither pictures nor cells that were never run; the hook below looks at both.
"""

import base64
import io
import os
import tomllib
from pathlib import Path

import matplotlib
import pytest

from run import QUIET

for name, value in QUIET.items():
    os.environ.setdefault(name, value)
os.environ["QKVLIB_PROGRESS"] = ""  # the exercises done here are nobody's progress
matplotlib.use("agg")  # no windows; the kernels of the notebooks choose for themselves

ROOT = Path(__file__).parent
UNCOMPARED = ROOT / "tests" / "uncompared_cells.toml"

# Two pictures are the same when at most PIXELS of their pixels differ by more than LEVELS of 255 in
# some channel: rounding on another processor moves a few edge pixels, a changed digit moves more.
LEVELS = 16
PIXELS = 10


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    is_cell = hasattr(item, "cell_num")
    if is_cell:
        check_stored(item)
    result = yield
    if is_cell and item.options["check"]:
        check_pictures(item)
    return result


def check_stored(item):
    """Fail a cell that is empty, was never run, or is not compared without a reason."""
    if not item.cell.source.strip():
        item.raise_cell_error("This cell is empty: take it out, or give it its code back")
    if item.cell.execution_count is None:
        item.raise_cell_error("This cell has never been run: python run.py refresh")
    if item.options["skip"] or not item.options["check"]:
        notebook = item.path.relative_to(ROOT).as_posix()
        listed = tomllib.loads(UNCOMPARED.read_text(encoding="utf-8"))
        if not listed.get(notebook, {}).get(item.cell.id):
            item.raise_cell_error(f"Not compared, and {UNCOMPARED.name} does not say why")
        if not item.cell.outputs:
            item.raise_cell_error("Not compared, and without a stored output")


def check_pictures(item):
    """Fail a cell whose pictures are not the stored ones."""
    stored, drawn = pictures(item.cell.outputs), pictures(item.test_outputs)
    if len(stored) != len(drawn):
        item.raise_cell_error(f"{len(stored)} pictures are stored, the cell draws {len(drawn)}")
    for number, (before, now) in enumerate(zip(stored, drawn, strict=True), start=1):
        difference = picture_difference(before, now)
        if difference:
            item.raise_cell_error(f"Picture {number} differs from the stored one: {difference}")


def pictures(outputs):
    return [out["data"]["image/png"] for out in outputs if "image/png" in out.get("data", {})]


def picture_difference(before, now):
    """What tells two base64 PNGs apart, in words; empty when they are the same picture."""
    import numpy as np

    before, now = pixels(before), pixels(now)
    if before.shape != now.shape:
        return f"{before.shape[1]} x {before.shape[0]} pixels, now {now.shape[1]} x {now.shape[0]}"
    differs = (np.abs(before - now) > LEVELS).any(axis=-1)
    count = int(differs.sum())
    if count <= PIXELS:
        return ""
    row, column = np.argwhere(differs)[0]
    return f"{count} of {differs.size} pixels, the first in row {row}, column {column}"


def pixels(png):
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        return np.asarray(picture.convert("RGBA"), dtype=int)
