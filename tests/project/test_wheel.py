"""The wheel, installed alone: NumPy is all it needs."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from run import executable

ROOT = Path(__file__).parents[2]
OFFLINE = os.environ | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}

RUN_DOCTESTS = """
import doctest, importlib, pkgutil, sys
import qkvlib, qkvlib.numpy
names = [found.name for found in pkgutil.iter_modules(qkvlib.numpy.__path__, "qkvlib.numpy.")]
results = [doctest.testmod(importlib.import_module(name)) for name in names]
print(qkvlib.__file__)
print(sum(r.failed for r in results), sum(r.attempted for r in results))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, env=OFFLINE, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"qkvlib", "qkvlib-0.1.0.dist-info"}
    assert "qkvlib-0.1.0.dist-info/licenses/LICENSE" in names
    stored = {name for name in names if name.startswith("qkvlib/")}
    tracked = subprocess.run(
        ["git", "ls-files", "qkvlib"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert set(tracked.stdout.split()) <= stored


def test_with_numpy_alone_its_examples_run(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / executable("python")
    copy_numpy(site_packages(python))
    pip("--python", python, "install", wheel)
    result = subprocess.run(
        [python, "-I", "-c", RUN_DOCTESTS], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    *report, where, counts = result.stdout.splitlines()
    failed, attempted = map(int, counts.split())
    assert Path(where).is_relative_to(tmp_path)
    assert failed == 0, "\n".join(report)
    assert attempted >= 10


def site_packages(python):
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def copy_numpy(target):
    """Put the NumPy of this environment there, as pip would have: nothing is downloaded."""
    numpy = distribution("numpy")
    source = Path(numpy.locate_file(""))
    folders = {file.parts[0] for file in numpy.files if len(file.parts) > 1} - {".."}
    for folder in folders:
        shutil.copytree(source / folder, target / folder)
