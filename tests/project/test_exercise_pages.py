"""The pages of exercises say what the files of the chapters say, and work without a script."""

import re
import subprocess
import sys
from types import SimpleNamespace

import chapter_9
import nbformat
import pytest

from qkvlib.book.exercises import _table, chapters
from qkvlib.mistakes import MISTAKES
from tools import refresh
from tools.check_site import toc_pages
from tools.exercise_pages import (
    SOLUTION,
    Surroundings,
    file_name,
    inline_html,
    lettered,
    made_by,
    notebook,
    used_by,
)

PAGE = notebook(chapter_9)
CELLS = {cell.id: cell for cell in PAGE.cells}
SELF_TESTS = [cell for cell in PAGE.cells if re.fullmatch(r"self-test-\d+", cell.id)]


every_chapter = pytest.mark.parametrize("module", chapters().values(), ids=lambda m: m.__name__)


# ---- the pages of the book -----------------------------------------------------------------------


@every_chapter
def test_the_stored_page_is_the_generated_one(module):
    stored = nbformat.read(refresh.CHAPTERS / file_name(module), as_version=4)
    assert [shown(cell) for cell in stored.cells] == [shown(c) for c in notebook(module).cells]


def shown(cell):
    return cell.cell_type, cell.id, cell.source, cell.metadata


@every_chapter
def test_the_page_is_listed(module):
    assert f"chapters/{file_name(module)}".removesuffix(".ipynb") in toc_pages()


def test_a_page_of_exercises_has_its_file():
    stored = {path.name for path in refresh.CHAPTERS.rglob("*_exercises.ipynb")}
    assert stored == {file_name(module) for module in chapters().values()}


# ---- how a page is made, with a made-up chapter --------------------------------------------------


def test_it_is_a_notebook():
    nbformat.validate(PAGE)
    assert file_name(chapter_9) == "09_exercises.ipynb"
    assert CELLS["about"].source.startswith("# Exercises of chapter 9: made up")
    assert "3 exercises, about 19 minutes" in CELLS["about"].source


def test_an_exercise_is_task_stub_check_hints_and_solution_in_this_order():
    ids = [cell.id for cell in PAGE.cells if cell.id.startswith("e9-2")]
    assert ids == [f"e9-2-{part}" for part in ("task", "stub", "check", "hints", "solution", "why")]
    task = CELLS["e9-2-task"].source
    assert task.startswith("## E9.2 A softmax that survives\n\ncore · fill in · about 12")
    assert CELLS["e9-2-stub"].source.endswith('in sum along axis."""\n    ...')
    assert CELLS["e9-2-check"].source == 'check("E9.2", softmax)'


def test_the_names_that_a_stub_assigns_are_handed_over():
    assert CELLS["e9-1-check"].source == 'check("E9.1", row)'
    assert CELLS["e9-3-check"].source == 'check("E9.3", (divisor, weight))'


def test_the_options_of_a_choice_have_letters():
    *_, a, b = CELLS["e9-3-task"].source.splitlines()
    assert a == "- **a** the width of the model, $d_{model}$"
    assert b == "- **b** the square root of the width of a key"


def test_each_part_of_several_answers_has_its_own_letters():
    one, other = chapter_9.E9_3.checker, SimpleNamespace(options=chapter_9.E9_3.checker.options[:1])
    parts = {"first": one, "second": chapter_9.Checker(), "third": other, "fourth": one}
    text = "\n".join(lettered(SimpleNamespace(parts=parts)))
    assert text.count("- **a**") == 2
    assert text.count("- **b**") == 1
    names = re.findall(r"^(\w+(?:, \w+)*):$", text, flags=re.MULTILINE)
    assert names == ["first, fourth", "third"]


def test_options_that_all_parts_share_are_shown_once():
    one = chapter_9.E9_3.checker
    [text] = lettered(SimpleNamespace(parts={"first": one, "second": one}))
    assert text == "\n".join(lettered(one))


def test_a_solution_is_folded_checked_and_can_be_left_out():
    function, value = CELLS["e9-2-solution"], CELLS["e9-1-solution"]
    assert function.source.endswith('check("E9.2", softmax_solution, record=False)')
    assert value.source.endswith('check("E9.1", row_solution(), record=False)')
    for cell in (function, value):
        assert {SOLUTION, "hide-cell"} <= set(cell.metadata.tags)
        assert cell.metadata.jupyter == {"source_hidden": True, "outputs_hidden": True}
    assert CELLS["e9-2-why"].metadata.tags == [SOLUTION]
    others = [cell for cell in PAGE.cells if SOLUTION not in cell.metadata.get("tags", ())]
    assert not any("_solution" in cell.source or "cancels" in cell.source for cell in others)


def test_the_tags_of_an_exercise_are_those_of_its_code():
    cells = [CELLS[f"e9-3-{part}"] for part in ("stub", "check", "solution")]
    assert all("torch" in cell.metadata.tags for cell in cells)


def test_its_code_passes_ruff():
    path = refresh.ROOT / "chapters" / file_name(chapter_9)
    result = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--stdin-filename", path, "-"],
        input=nbformat.writes(PAGE),
        capture_output=True,
        text=True,
        cwd=refresh.ROOT,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("left_out", [set(), {SOLUTION}], ids=["all", "without solutions"])
def test_its_cells_run(left_out):
    handed = {}
    known = {"check": lambda id, answer, record=True: handed.update({id: answer})}
    known["progress"] = lambda chapter: None
    for cell in PAGE.cells:
        if cell.cell_type == "code" and not left_out & set(cell.metadata.get("tags", ())):
            exec(re.sub(r"from qkvlib\.book\.exercises .*", "", cell.source), known)
    assert handed["E9.2"].__name__ == ("softmax" if left_out else "softmax_solution")


# ---- what the code of a page needs ---------------------------------------------------------------


def test_the_page_imports_what_is_used_and_no_more():
    assert CELLS["setup"].source.splitlines() == [
        "import math",
        "",
        "import numpy as np",
        "",
        "import qkvlib.numpy as qn",
        "from qkvlib.book.exercises import check, hint, progress",
    ]


def test_what_the_task_names_is_given_before_the_stub():
    assert CELLS["e9-1-given"].source == "SCORES = np.array([2.0, 1.0, 0.0, 0.0, -1.0])"
    assert "SCORES =" not in CELLS["e9-1-solution"].source


def test_names_are_found_wherever_code_takes_them_from_outside():
    assert used_by("def f(x, y=a):\n    g = lambda: x + b\n    return [c(z) for z in g()]") == {
        *"abc"
    }
    assert used_by("x = 1\ndef f():\n    return x + len('')") == set()
    assert made_by("import a.b\nfrom c import d as e\nf, (g, h) = 1, (2, 3)\nf[i] = 0") == [
        *"aefgh"
    ]


FILE = '''"""Exercises of chapter 8: small."""
import math
from qkvlib.book.exercises._exercise import Exercise
HALF = math.sqrt(0.25)
def helper(x): return x * HALF
def first(): ...
def first_solution(): return helper(1)
'''


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    (tmp_path / "chapter_8.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("chapter_8")
    exercise = SimpleNamespace(stub=module.first, solution=module.first_solution)
    module.EXERCISES = (exercise,)
    yield Surroundings(module)
    del sys.modules["chapter_8"]


def test_a_solution_brings_what_it_needs_itself(surroundings):
    text = surroundings.given_for("E8.1", "helper(2)", folded=True)
    assert text == "HALF = math.sqrt(0.25)\n\ndef helper(x): return x * HALF"
    assert surroundings.given_for("E8.2", "helper(3)", folded=True) == ""
    assert surroundings.given_for("E8.3", "x = HALF") == "HALF = math.sqrt(0.25)"
    assert surroundings.given_for("E8.4", "x + HALF") == ""
    assert surroundings.imports().startswith("import math\n\n")


def test_nobody_can_use_a_solution_that_a_teacher_may_leave_out(surroundings):
    surroundings.given_for("E8.1", "def first_solution(): return 1", folded=True)
    assert surroundings.given_for("E8.2", "first_solution()", folded=True) == ""
    with pytest.raises(ValueError, match=r"E8\.3 uses first_solution"):
        surroundings.given_for("E8.3", "first_solution()")


def test_an_unknown_name_is_an_error(surroundings):
    with pytest.raises(ValueError, match=r"E8\.1 uses nobody"):
        surroundings.given_for("E8.1", "nobody()")


def test_a_page_shows_no_private_module(surroundings):
    surroundings.given_for("E8.1", "Exercise()")
    with pytest.raises(ValueError, match="private"):
        surroundings.imports()


# ---- the self-test -------------------------------------------------------------------------------


def test_every_option_says_at_once_whether_it_is_right():
    assert len(SELF_TESTS) == len(chapter_9.QUIZ)
    for cell, question in zip(SELF_TESTS, chapter_9.QUIZ):
        boxes = re.findall(r"</summary>\n\n(\*\*[\w ]+\.\*\*) (.*)\n\n</details>", cell.source)
        assert [says for _, says in boxes] == [option.says for option in question.options]
        assert [word == "**Right.**" for word, _ in boxes] == [
            option.mistake is None for option in question.options
        ]


def test_the_options_of_one_question_close_each_other():
    for cell in SELF_TESTS:
        names = re.findall(r'<details class="choice" name="([\w-]+)">', cell.source)
        assert set(names) == {cell.id}


def test_an_option_keeps_its_marks():
    assert inline_html("*a* `b < c`\n & **d**") == (
        "<em>a</em> <code>b &lt; c</code> &amp; <strong>d</strong>"
    )
    assert r"\(a &lt; \sqrt{b}\)</span>" in inline_html(r"$a < \sqrt{b}$")
    assert inline_html("\"it\" isn't `'x'`") == "“it” isn’t <code>'x'</code>"


# ---- refresh, and the table ----------------------------------------------------------------------


@pytest.fixture
def only_chapter_9(monkeypatch, tmp_path):
    """A book whose only exercises are the made-up ones, in an empty folder."""
    monkeypatch.setattr(refresh, "chapters", lambda: {9: chapter_9})
    monkeypatch.setattr(refresh, "CHAPTERS", tmp_path)
    monkeypatch.setattr(_table, "chapters", lambda: {9: chapter_9})
    return tmp_path


class Client:
    """Runs nothing."""

    def __init__(self, notebook, **options):
        self.notebook = notebook

    def execute(self, **options):
        pass


def test_refresh_writes_a_page_anew_and_keeps_nothing_of_it(only_chapter_9, monkeypatch):
    monkeypatch.setattr(refresh, "NotebookClient", Client)
    path = only_chapter_9 / "09_exercises.ipynb"
    refresh.refresh(path)
    first = path.read_bytes()
    changed = nbformat.read(path, as_version=4)
    changed.cells[0].source = "# Other"
    changed.cells.append(nbformat.v4.new_code_cell("more", id="more"))
    nbformat.write(changed, path)
    refresh.refresh(path)
    assert path.read_bytes() == first


def test_nobodys_own_progress_is_stored():
    assert refresh.environment()["QKVLIB_PROGRESS"] == ""


def test_the_table_has_every_exercise_and_the_sums(only_chapter_9):
    lines = _table.render().splitlines()
    assert "3 exercises take about 0.3 hours." in lines
    name, objective = "A softmax that survives", chapter_9.E9_2.objective
    assert f"| {{ref}}`E9.2 <e9-2>` {name} | core | fill in | 12 | {objective} |" in lines
    assert "| 9 | 3 | 1 | 1 | 1 | 19 |" in lines
    assert "| all | 3 | 1 | 1 | 1 | 19 |" in lines


def test_the_table_links_a_mistake_to_its_box(only_chapter_9):
    assert "no-scale" in MISTAKES
    names = "{ref}`no-scale <mistake-no-scale>`, a-slip-in-a-number"
    assert f"| {{ref}}`E9.1 <e9-1>` | {names} |" in _table.render().splitlines()
