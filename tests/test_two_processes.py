"""The script of section 7.4 prints what the page shows, and notices what may be forgotten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parents[1] / "chapters" / "07_theory_to_practice"
SCRIPT = FOLDER / "two_processes.py"

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch was built without gloo, which connects processes on the CPU",
)


def run(script):
    """The finished process: on the CPU, and with nothing but this machine."""
    return subprocess.run(
        [sys.executable, script],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_it_prints_what_the_page_shows():
    done = run(SCRIPT)
    assert done.returncode == 0, done.stderr
    stored = (FOLDER / "two_processes.txt").read_text(encoding="utf-8")
    assert done.stdout == stored, "run: python two_processes.py > two_processes.txt"


@pytest.mark.parametrize(
    ("right", "wrong", "noticed_by"),
    [
        (
            "    dist.all_reduce(output)  # the sum of all processes, in each of them\n",
            "",
            "alone(x)",
        ),
        ("total * rescale, output * rescale", "total * rescale, output", "mask=causal"),
    ],
    ids=["no all-reduce", "output not rescaled"],
)
def test_what_is_forgotten_is_noticed(tmp_path, right, wrong, noticed_by):
    source = SCRIPT.read_text(encoding="utf-8")
    assert source.count(right) == 1
    broken = tmp_path / "broken.py"
    broken.write_text(source.replace(right, wrong), encoding="utf-8")
    done = run(broken)
    assert done.returncode != 0
    assert "AssertionError" in done.stderr
    assert noticed_by in done.stderr
