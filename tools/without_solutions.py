"""Copy the project to _build/without_solutions, for a book and notebooks to hand to a class.

The pages of exercises lose the solutions there, and nothing else is changed.
"""

import shutil
import subprocess
from pathlib import Path

import nbformat

from tools.exercise_pages import SOLUTION

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "_build" / "without_solutions"


def main():
    shutil.rmtree(COPY, ignore_errors=True)
    for name in known_files(ROOT):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, COPY / name)
    for path in (COPY / "chapters").rglob("*_exercises.ipynb"):
        leave_out_solutions(path)


def known_files(root):
    """What git knows in a folder and is there, as paths from that folder."""
    listed = ["git", "ls-files", "-z"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\0") if name and (root / name).is_file()]


def leave_out_solutions(path):
    """Rewrite one notebook without the cells that show a solution."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if SOLUTION not in cell.metadata.get("tags", ())
    ]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
