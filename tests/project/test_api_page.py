"""The API page names everything that is public, and Sphinx can read the docstrings it shows."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest
from docutils.core import publish_doctree
from docutils.utils import Reporter

from tools.api_page import module_names, render

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "_ext"))
plain_docstrings = importlib.import_module("plain_docstrings")

PAGE = render()
TWINS = ["qkvlib.numpy", "qkvlib.torch"]


def is_public(path):
    return not any(part.startswith("_") for part in path.relative_to(ROOT).with_suffix("").parts)


FILES = [
    path
    for path in sorted((ROOT / "qkvlib").rglob("*.py"))
    if is_public(path.parent if path.name == "__init__.py" else path)
]


def module_of(path):
    where = path.parent if path.name == "__init__.py" else path.with_suffix("")
    return ".".join(where.relative_to(ROOT).parts)


def exported(path):
    return getattr(importlib.import_module(module_of(path)), "__all__", None)


# A package that exports names speaks for its files and folders. Only a file of a twin that has
# names of its own speaks for itself: gradients, which has no twin.
SPEAKING = [path.parent for path in FILES if path.name == "__init__.py" and exported(path)]
QUIET = [
    path
    for path in FILES
    if any(folder in SPEAKING for folder in path.parents)
    and path.name != "__init__.py"
    and (path.parent.name not in ("numpy", "torch") or not exported(path))
]
EXPORTING = [path for path in FILES if exported(path) and path not in QUIET]
OTHERS = [path for path in FILES if path not in (*EXPORTING, *QUIET)]

each = {"ids": lambda path: path.relative_to(ROOT).as_posix()}


def has_entry(name):
    directive = rf"^\.\. auto(function|class|data):: {re.escape(name)}$"
    return re.search(directive, PAGE, flags=re.MULTILINE)


# ---- every name --------------------------------------------------------------------------------


def test_both_twins_are_packages_that_export_names():
    assert {module_of(path) for path in EXPORTING} >= set(TWINS)


@pytest.mark.parametrize("path", EXPORTING, **each)
def test_every_exported_name_has_an_entry(path):
    assert [n for n in exported(path) if not has_entry(f"{module_of(path)}.{n}")] == []


@pytest.mark.parametrize("path", OTHERS, **each)
def test_every_public_function_and_class_has_an_entry(path):
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    public = [name for name in names if not name.startswith("_")]
    assert [name for name in public if not has_entry(f"{module_of(path)}.{name}")] == []


def test_no_name_has_two_entries():
    names = re.findall(r"^\.\. auto(?:function|class|data):: (\S+)$", PAGE, flags=re.MULTILINE)
    assert len(names) == len(set(names)) > 60


def test_what_both_twins_have_stands_side_by_side():
    grids = re.findall(r"^::::\{grid\}.*?^::::$", PAGE, flags=re.MULTILINE | re.DOTALL)
    pairs = [re.findall(r":: qkvlib\.(numpy|torch)\.(\w+)", grid) for grid in grids]
    shared = set.intersection(*(set(importlib.import_module(twin).__all__) for twin in TWINS))
    found = {pair[0][1] for pair in pairs if len(pair) == 2}
    assert found == shared
    assert all(pair == [("numpy", pair[0][1]), ("torch", pair[0][1])] for pair in pairs if pair[1:])


def test_every_module_with_an_entry_is_one_that_can_be_imported():
    assert {"qkvlib.patterns", "qkvlib.pretrained", "qkvlib.book.show"} <= set(module_names())
    assert not any(part.startswith("_") for name in module_names() for part in name.split("."))


# ---- docstrings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Sum to 1 along `axis`.", r"Sum to 1 along ``axis``\ ."),
        ("one sentence\nthat goes on", "one sentence that goes on"),
        ("x `(..., n)`, a\nrow\ny: b", "| x ``(..., n)``\\ , a row\n| y: b"),
        ("values: rows\n  of numbers\n-> Axes", "| values: rows of numbers\n| -> Axes"),
        ("- one\n- two, and\n  more", "- one\n- two, and more"),
        ("a * b, W_ and |i|, but *this*", r"a \* b, W\_ and \|i\|, but *this*"),
        ("name    what\nother   it is", "::\n\n    name    what\n    other   it is"),
        ("as in:\n>>> f(1)\n2", "as in:\n\n>>> f(1)\n2"),
        (">>> f(1)\n>>> f(2)\n3", ">>> f(1)\n>>> f(2)\n3"),
        ("one\n\n\ntwo", "one\n\ntwo"),
    ],
)
def test_plain_text_becomes_restructured_text(written, shown):
    assert plain_docstrings.restructured(written) == shown + "\n"


def test_only_docstrings_of_this_package_are_rewritten():
    lines = ["a `b`"]
    plain_docstrings.rewrite(None, "function", "numpy.sum", None, None, lines)
    assert lines == ["a `b`"]
    plain_docstrings.rewrite(None, "function", "qkvlib.numpy.softmax", None, None, lines)
    assert lines == ["a ``b``"]


@pytest.mark.parametrize("path", FILES, **each)
def test_every_docstring_is_free_of_markup_errors(path):
    settings = {"report_level": Reporter.INFO_LEVEL, "halt_level": Reporter.INFO_LEVEL + 1}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            text = plain_docstrings.restructured(ast.get_docstring(node) or "")
            publish_doctree(text, settings_overrides=settings)
