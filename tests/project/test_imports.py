"""Who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "qkvlib"
MODULES = sorted(PACKAGE.rglob("*.py"))
# The twin, and what the book alone uses with it, may import torch at their top.
TORCH_SIDE = [PACKAGE / "torch", PACKAGE / "book" / "experiments"]
LEAN = [path for path in MODULES if not any(path.is_relative_to(side) for side in TORCH_SIDE)]
HEAVY = ["torch", "matplotlib", "safetensors", "tokenizers", "gguf", "transformers"]


def imports(path, *, top=False):
    """What a file imports, by full name; `top`: only what it imports when it is imported."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in at_the_top(tree) if top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(filter(None, [base, node.module]))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def at_the_top(node):
    """Every node that runs on import: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_the_top(child)


def is_lean(name):
    first, *rest = name.split(".")
    if first == "qkvlib":
        return rest[:1] != ["torch"] and rest[:2] != ["book", "experiments"]
    return first == "numpy" or first in sys.stdlib_module_names


@pytest.mark.parametrize("path", LEAN, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_backend_free_modules_import_only_numpy_and_each_other(path):
    assert [name for name in imports(path, top=True) if not is_lean(name)] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_imports_chapters_tests_or_tools(path):
    outside = {"chapters", "tests", "tools", "conftest", "run"}
    assert [name for name in imports(path) if name.split(".")[0] in outside] == []


@pytest.mark.parametrize(
    "module", ["qkvlib", *(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in LEAN)]
)
def test_importing_it_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == []
