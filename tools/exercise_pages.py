"""The pages of exercises, made from the files in `qkvlib/book/exercises`, one notebook a chapter.

A page shows what its chapter's file holds, and nothing is typed twice: stubs and solutions are the
source of the functions there, and the page imports and defines what these use.
"""

import ast
import builtins
import html
import inspect
import re
import symtable
import sys
import textwrap

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SOLUTION = "solution"  # the tag of what a teacher's copy leaves out
LINE = 100
OURS = ast.parse("from qkvlib.book.exercises import check, hint, progress").body[0]

ABOUT = """\
# {title}

{count} exercises, about {minutes} minutes in all.
To work on them, open this page in JupyterLab: `python run.py lab`, then `{file}`.

1. Run the first cell.
2. For each exercise complete its cell, run it, and run the check below.
   The check says what is right, and where something is wrong it names the mistake if it knows it.
3. Hints are folded, the mildest first; `hint("{first}")` shows them one by one.

You may run all cells at any time: what you have not begun is called *not attempted*.
`progress()` lists what you have done.
It is kept in `exercise_progress.json`, beside this notebook; delete that file to begin anew.
Your answers stay in the notebook when you save it; a copy of it works as well."""

SOLVED = """\
The solution of each exercise is folded too, with the reasons why it is right.
Try first: a wrong answer of your own teaches more than a right one of ours."""

SELF_TEST = """\
## Self-test

No code here: open the answer that you think is right.
It says whether it is, and why."""

TASK = """\
## {id} {title}

{grade} · {kind} · about {minutes} minutes · {section}

{task}"""


def notebook(module):
    """The page of one chapter's exercises, not yet run."""
    first, *_ = module.EXERCISES
    about = ABOUT.format(
        title=inspect.getdoc(module).splitlines()[0].rstrip("."),
        count=len(module.EXERCISES),
        minutes=sum(exercise.minutes for exercise in module.EXERCISES),
        file=file_name(module),
        first=first.id,
    )
    surroundings = Surroundings(module)
    exercises = [cell for each in module.EXERCISES for cell in exercise_cells(each, surroundings)]
    cells = [
        new_markdown_cell(about, id="about"),
        new_markdown_cell(SOLVED, id="about-solutions", metadata={"tags": [SOLUTION]}),
        code_cell("setup", surroundings.imports()),
        *self_test_cells(module.QUIZ),
        *exercises,
        code_cell("progress", f"progress({chapter_number(module)})"),
    ]
    return new_notebook(cells=cells)


def file_name(module):
    """The name of a chapter's page, such as 03_exercises.ipynb."""
    return f"{chapter_number(module):02}_exercises.ipynb"


def chapter_number(module):
    return int(module.__name__.rpartition("_")[2])


# ---- an exercise ---------------------------------------------------------------------------------


def exercise_cells(exercise, surroundings):
    """What a reader meets, in order; `surroundings` learns what the cells need and make."""
    anchor = anchor_of(exercise)
    stub = source_of(exercise.stub)
    names = made_by(stub)
    yield new_markdown_cell(task(exercise), id=f"{anchor}-task")
    given = surroundings.given_for(exercise.id, stub, shown=exercise.task)
    if given:
        yield code_cell(f"{anchor}-given", given)
    yield code_cell(f"{anchor}-stub", stub, exercise.tags)
    answer = names[0] if len(names) == 1 else f"({', '.join(names)})"
    yield code_cell(f"{anchor}-check", f'check("{exercise.id}", {answer})', exercise.tags)
    hints = (folded(f"Hint {n}", hint, "hint") for n, hint in enumerate(exercise.hints, start=1))
    yield new_markdown_cell("\n\n".join(hints), id=f"{anchor}-hints")
    yield solution_cell(exercise, surroundings)
    why = folded("Why it is right", exercise.explanation, "why")
    yield new_markdown_cell(why, id=f"{anchor}-why", metadata={"tags": [SOLUTION]})


def solution_cell(exercise, surroundings):
    """The solution and its check, folded in the book and in JupyterLab."""
    name, is_value = exercise.solution.__name__, isinstance(exercise.stub, str)
    answer = f"{name}()" if is_value else name
    source = source_of(exercise.solution)
    given = surroundings.given_for(exercise.id, source, folded=True)
    parts = [given, source, f'check("{exercise.id}", {answer}, record=False)']
    code = f"# Solution of {exercise.id}\n" + "\n\n\n".join(filter(None, parts))
    tags = (*exercise.tags, SOLUTION, "hide-cell")
    cell = code_cell(f"{anchor_of(exercise)}-solution", code, tags)
    cell.metadata["mystnb"] = {"code_prompt_show": "Solution", "code_prompt_hide": "Solution"}
    cell.metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
    return cell


def task(exercise):
    text = TASK.format(
        id=exercise.id,
        title=exercise.title,
        grade=exercise.grade,
        kind=exercise.kind,
        minutes=exercise.minutes,
        section=exercise.section,
        task=exercise.task.strip(),
    )
    return "\n\n".join([text, *lettered(exercise.checker)])


def lettered(checker):
    """The options to choose from, as Markdown, under the names of the parts they belong to."""
    parts = getattr(checker, "parts", {"": checker})
    sharing = {}  # the parts with the same options
    for name, part in parts.items():
        if hasattr(part, "options"):
            texts = tuple(one_line(option.text) for option in part.options)
            sharing.setdefault(texts, []).append(name)
    for texts, names in sharing.items():
        lines = [f"- **{letter}** {text}" for letter, text in zip("abcdefghij", texts)]
        of_all = len(names) == len(parts)
        yield "\n".join([f"{', '.join(names)}:\n"] * (not of_all) + lines)


def anchor_of(exercise):
    return exercise.id.lower().replace(".", "-")


def code_cell(id, source, tags=()):
    return new_code_cell(source, id=id, metadata={"tags": list(tags)} if tags else {})


def folded(summary, text, kind, name=None):
    """Markdown that a reader unfolds: raw HTML around it, which needs no script.

    name: of all boxes with one name a browser keeps at most one open
    """
    named = f' name="{name}"' if name else ""
    opening = f'<details class="{kind}"{named}><summary>{summary}</summary>'
    return f"{opening}\n\n{text.strip()}\n\n</details>"


# ---- the self-test -------------------------------------------------------------------------------


def self_test_cells(questions):
    yield new_markdown_cell(SELF_TEST, id="self-test")
    for count, question in enumerate(questions, start=1):
        name = f"self-test-{count}"
        options = (choice(option, name) for option in question.options)
        text = "\n\n".join([f"**{count}.** {question.text.strip()}", *options])
        yield new_markdown_cell(text, id=name)


def choice(option, name):
    verdict = "Not quite." if option.mistake else "Right."
    text = f"**{verdict}** {option.says.strip()}"
    return folded(inline_html(option.text), text, "choice", name)


def inline_html(text):
    """One line of Markdown as HTML, because Markdown is not looked for inside a summary."""
    markdown = MarkdownIt("commonmark", {"html": False, "typographer": True}).use(dollarmath_plugin)
    markdown.enable("smartquotes")  # as Sphinx has them in the text around it
    markdown.add_render_rule("math_inline", _formula)
    return markdown.renderInline(one_line(text))


def _formula(renderer, tokens, index, options, env):
    # The classes and signs that MathJax looks for, in the book as in JupyterLab.
    formula = html.escape(tokens[index].content)
    return f'<span class="math notranslate nohighlight">\\({formula}\\)</span>'


def one_line(text):
    return " ".join(text.split())


# ---- the code and what it uses -------------------------------------------------------------------


def source_of(code):
    """The text of a function or class, or text as it is."""
    text = code if isinstance(code, str) else inspect.getsource(code)
    return textwrap.dedent(text).strip()


def made_by(source):
    """The names that a piece of code makes, in order."""
    return list(dict.fromkeys(name for node in ast.parse(source).body for name in _made(node)))


def _made(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from map(_bound, node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = (part for target in targets for part in ast.walk(target))
        names = (part for part in parts if isinstance(part, ast.Name))
        yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def _bound(alias):
    return alias.asname or alias.name.partition(".")[0]


def used_by(source):
    """The names that a piece of code takes from outside, the built-in ones left out."""
    top = symtable.symtable(source, "cell", "exec")
    found = {
        name.get_name()
        for table in _tables(top)
        for name in table.get_symbols()
        if name.is_referenced() and (table is top or name.is_global())
    }
    return found - set(made_by(source)) - set(dir(builtins))


def _tables(table):
    yield table
    for child in table.get_children():
        yield from _tables(child)


class Surroundings:
    """What the file of a chapter has around its functions: imports, and what is given."""

    def __init__(self, module):
        self._text = inspect.getsource(module)
        self._nodes = {n: node for node in ast.parse(self._text).body for n in _made(node)}
        functions = [part for e in module.EXERCISES for part in (e.stub, e.solution)]
        self._exercises = {part.__name__ for part in functions if not isinstance(part, str)}
        self._imported = set()
        self._visible, self._folded = set(), set()  # the names made in cells so far

    def given_for(self, id, source, *, shown="", folded=False):
        """The definitions that a cell needs and no cell before it has made.

        id: of its exercise. shown: Markdown whose code names what it needs too. folded: whether
        the cell is a solution, which others cannot rely on
        """
        there = self._visible | (self._folded if folded else set())
        given = dict(self._needed(id, used_by(source) | self._named_in(shown), there))
        (self._folded if folded else self._visible).update(given, made_by(source))
        nodes = sorted(set(given.values()), key=lambda node: node.lineno)
        return "\n\n".join(ast.get_source_segment(self._text, node) for node in nodes)

    def _named_in(self, markdown):
        code = re.sub(r"#.*", "", "\n".join(re.findall(r"`([^`]+)`", markdown)))
        words = set(re.findall(r"(?<![.\w])[^\W\d]\w*", code))
        known = {name for name, node in self._nodes.items() if not _is_private(node)}
        return words & known - self._exercises

    def _needed(self, id, names, there):
        for name in sorted(names - there):
            node = self._nodes.get(name)
            if node is None or name in self._exercises:
                raise ValueError(f"{id} uses {name}, which its cell cannot know")
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported.add(name)
            else:
                yield name, node
                behind = used_by(ast.get_source_segment(self._text, node))
                yield from self._needed(id, behind, there | {name})

    def imports(self):
        """The imports of the page, once all its cells are known, in the order that ruff wants."""
        nodes = {self._nodes[name] for name in self._imported}
        found = [_import(node, self._imported) for node in nodes]
        groups = {}
        for place, text in sorted([*found, _import(OURS, {"check", "hint", "progress"})]):
            groups.setdefault(place[0], []).append(text)
        return "\n\n".join("\n".join(lines) for lines in groups.values())


def _is_private(node):
    """Whether it imports from a module that pages cannot show."""
    return "._" in (getattr(node, "module", None) or "")


def _import(node, names):
    """Where an import belongs among the others, and its text with some of its names alone."""
    kept = [alias for alias in node.names if _bound(alias) in names]
    if isinstance(node, ast.Import):
        module, text = kept[0].name, ast.unparse(ast.Import(kept))
    else:
        module, text = node.module, ast.unparse(ast.ImportFrom(node.module, kept, 0))
    if _is_private(node):
        raise ValueError(f"a page cannot show {text}: the module is private")
    if len(text) > LINE:
        head, _, tail = text.partition(" import ")
        text = "\n".join([f"{head} import (", *(f"    {n}," for n in tail.split(", ")), ")"])
    first = module.partition(".")[0]
    group = 0 if first in sys.stdlib_module_names else 2 if first == "qkvlib" else 1
    return (group, isinstance(node, ast.ImportFrom), module), text
