"""Run the notebooks again, store their outputs, and write what is made from them.

A second run changes nothing: what is stored holds no time, no version and no path of the machine.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

from qkvlib.book import claims, misconceptions, mistakes_table, sources
from qkvlib.book.exercises import _table, chapters
from run import QUIET
from tools import api_page, exercise_pages

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "chapters"
PICTURE = ROOT / "assets" / "readme.png"
PICTURE_TAG = "readme-picture"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(names):
    notebooks = sorted({*all_notebooks(), *exercises()})
    for path in [Path(name).resolve() for name in names] or notebooks:
        print(path.relative_to(ROOT).as_posix(), flush=True)
        refresh(path)
    for path, text in generated(allow_missing=bool(names)).items():
        path.write_text(text, encoding="utf-8", newline="\n")
    PICTURE.write_bytes(picture(all_notebooks()))


def all_notebooks():
    found = sorted(CHAPTERS.rglob("*.ipynb"))
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def exercises():
    """The page of each chapter's exercises: path to the module that it is made from."""
    return {CHAPTERS / exercise_pages.file_name(module): module for module in chapters().values()}


def refresh(path):
    """Run one notebook, in its own folder and in the kernel that the tests use, and store it.

    A page of exercises is written anew first.
    """
    module = exercises().get(path)
    notebook = exercise_pages.notebook(module) if module else nbformat.read(path, as_version=4)
    kernel = KernelManager(
        kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager()
    )
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=600,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    # Stop the kernel at the end, and drop what it logs about itself.
    client.execute(cleanup_kc=True, env=environment(), stderr=subprocess.DEVNULL)
    clean(notebook)
    nbformat.write(notebook, path)


def environment():
    """That of a kernel: no bars, figures in the notebook wherever it runs, nobody's progress."""
    inline = "module://matplotlib_inline.backend_inline"
    return {**QUIET, **os.environ, "MPLBACKEND": inline, "QKVLIB_PROGRESS": ""}


def clean(notebook):
    """Take out what differs between machines and tells a reader nothing."""
    notebook.metadata["kernelspec"] = KERNEL
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [
                    line.replace(f"{ROOT}{os.sep}", "") for line in output.traceback
                ]


def generated(*, allow_missing=False):
    """The files made from code and stored outputs: path to text.

    allow_missing: accept claims that no notebook has settled yet
    """
    table = mistakes_table.render()
    return {
        CHAPTERS / "claims.md": claims.render_page(CHAPTERS, allow_missing=allow_missing),
        CHAPTERS / "api.md": api_page.render(),
        CHAPTERS / "exercise_table.md": _table.render(),
        CHAPTERS / "further_reading.md": sources.render(),
        CHAPTERS / "misconceptions.md": misconceptions.render(json.loads(table)),
        mistakes_table.FILE: table,
    }


def picture(notebooks):
    """The PNG of the README: what the one cell tagged `readme-picture` has stored."""
    cells = [
        cell
        for path in notebooks
        for cell in nbformat.read(path, as_version=4).cells
        if PICTURE_TAG in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise ValueError(f"one cell must carry the tag {PICTURE_TAG}, {len(cells)} do")
    png = next(
        out.data["image/png"] for out in cells[0].outputs if "image/png" in out.get("data", {})
    )
    return base64.b64decode(png)


if __name__ == "__main__":
    main(sys.argv[1:])
