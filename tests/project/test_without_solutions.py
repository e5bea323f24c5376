"""The copy for teachers: what git knows, without the solutions."""

import subprocess

import chapter_9
import nbformat
import pytest

from tools import without_solutions
from tools.exercise_pages import SOLUTION, notebook


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A page of exercises, a chapter, a file that git does not know, and one that is gone."""
    root = tmp_path / "project"
    (root / "chapters").mkdir(parents=True)
    nbformat.write(notebook(chapter_9), root / "chapters" / "09_exercises.ipynb")
    chapter = nbformat.v4.new_notebook(cells=[tagged("1"), nbformat.v4.new_code_cell("2", id="b")])
    nbformat.write(chapter, root / "chapters" / "09_chapter.ipynb")
    (root / "gone.txt").write_text("soon")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    (root / "gone.txt").unlink()
    (root / "own_notes.txt").write_text("mine")
    monkeypatch.setattr(without_solutions, "ROOT", root)
    monkeypatch.setattr(without_solutions, "COPY", root / "_build" / "without_solutions")
    return root


def tagged(source):
    return nbformat.v4.new_code_cell(source, id="a", metadata={"tags": [SOLUTION]})


def test_the_copy_is_what_git_knows_without_solutions(project):
    before = (project / "chapters" / "09_exercises.ipynb").read_bytes()
    without_solutions.main()
    copy = project / "_build" / "without_solutions"
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert files == {"chapters/09_exercises.ipynb", "chapters/09_chapter.ipynb"}
    assert (project / "chapters" / "09_exercises.ipynb").read_bytes() == before

    page = (copy / "chapters" / "09_exercises.ipynb").read_text(encoding="utf-8")
    kept = [cell.id for cell in nbformat.reads(page, as_version=4).cells]
    left_out = {"about-solutions"} | {
        f"e9-{n}-{part}" for n in (1, 2, 3) for part in ("solution", "why")
    }
    assert kept == [cell.id for cell in notebook(chapter_9).cells if cell.id not in left_out]
    assert "_solution" not in page


def test_other_pages_keep_all_their_cells(project):
    without_solutions.main()
    copied = project / "_build" / "without_solutions" / "chapters" / "09_chapter.ipynb"
    assert copied.read_bytes() == (project / "chapters" / "09_chapter.ipynb").read_bytes()


def test_what_an_earlier_copy_held_is_gone(project):
    without_solutions.main()
    (project / "_build" / "without_solutions" / "old.txt").touch()
    without_solutions.main()
    assert not (project / "_build" / "without_solutions" / "old.txt").exists()
