"""The NumPy side under the oldest NumPy and Matplotlib, in an environment without torch."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run import executable

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NOTEBOOKS = [
    path
    for path in sorted((ROOT / "chapters").rglob("*.ipynb"))
    if ".ipynb_checkpoints" not in path.parts
]
ABSENT = ("torch", "safetensors", "tokenizers", "transformers", "gguf", "onnx")
NEEDS_TORCH = ("qkvlib.torch", "qkvlib.book.experiments")


@pytest.fixture(scope="module")
def lean():
    """The Python of the lean environment, made once and kept under .pytest_cache."""
    if sys.version_info >= (3, 13):
        pytest.skip("NumPy 2.0.2 and Matplotlib 3.8.4 have no wheels for Python 3.13")
    wanted = (HERE / "lean.txt").read_text(encoding="utf-8") + "\n".join(pinned_tools())
    key = hashlib.sha256(f"{sys.version}{wanted}".encode()).hexdigest()[:12]
    home = ROOT / ".pytest_cache" / f"lean-{key}"
    python = home / executable("python")
    if not (home / "complete").exists():
        try:
            install_into(home, python)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(home)
            if os.environ.get("CI"):
                raise
            pytest.skip(f"the packages could not be had: {error.stderr.splitlines()[-1]}")
        (home / "complete").touch()
    return python


def pinned_tools():
    """pytest and hypothesis, as pinned in requirements.txt."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.findall(r"^(?:pytest|hypothesis)==.*$", text, flags=re.MULTILINE)


def install_into(home, python):
    for command in (
        [sys.executable, "-m", "venv", home],
        [python, "-m", "pip", "install", "--quiet", "-r", HERE / "lean.txt", *pinned_tools()],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)


def run_lean(python, *command):
    """Run a command there, with this repository in place of an installed package."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    result = subprocess.run(
        [python, *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    return result.stdout


def needs_what_is_absent(path):
    """Whether a module imports, at its top, something that the lean environment lacks."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return any(name.split(".")[0] in ABSENT or name.startswith(NEEDS_TORCH) for name in names)


def test_the_environment_is_lean(lean):
    found = run_lean(
        lean,
        "-c",
        "import importlib.util as u, numpy, matplotlib;"
        "print(numpy.__version__, matplotlib.__version__, u.find_spec('torch'))",
    )
    assert found.split() == ["2.0.2", "3.8.4", "None"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_untagged_cells_run(lean, notebook):
    run_lean(lean, HERE / "run_untagged.py", notebook)


def test_the_suite_without_torch_passes(lean):
    tests = (ROOT / "tests").rglob("test_*.py")
    modules = (ROOT / "qkvlib").rglob("*.py")
    left_out = [ROOT / name.replace(".", "/") for name in NEEDS_TORCH]
    left_out += [path for path in (*tests, *modules) if needs_what_is_absent(path)]
    printed = run_lean(
        lean,
        *("-m", "pytest", "tests", "qkvlib", "-q", "-o", "addopts=--doctest-modules"),
        *("-p", "no:cacheprovider", "--ignore=tests/project"),
        *(f"--ignore={path.relative_to(ROOT)}" for path in left_out),
    )
    passed = int(re.search(r"(\d+) passed", printed)[1])
    assert passed >= 1000, f"only {passed} tests ran without torch:\n{printed}"
