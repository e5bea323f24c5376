"""Run the benchmarks and write their table: `python run.py bench`.

Each file of tests/benchmarks runs in a process of its own, on two threads and with the fastest
kernels that NumPy's OpenBLAS finds. The table goes to tests/benchmarks/results.md, or, when torch
finds an accelerator, to results-accelerator.md, which holds the rows of torch alone.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path("tests", "benchmarks")
THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
SLOWER_KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def main(*names):
    files = [FOLDER / f"bench_{name}.py" for name in names] or sorted(FOLDER.glob("bench_*.py"))
    rows = [row for file in files for row in measured(file)]
    table = "\n".join([HEAD.format(machine=machine()), *map(line, rows), ""])
    print(table)
    if not names:
        result().write_text(table, encoding="utf-8")
        print(f"Written to {result()}.")


def measured(file):
    """The rows of one file of benchmarks, in its order."""
    environment = {k: v for k, v in os.environ.items() if k not in SLOWER_KERNELS} | THREADS
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "rows.json")
        command = ["-m", "pytest", file, "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
        command += ["-o", "python_files=bench_*.py", "-o", "python_functions=bench_*"]
        command += ["--benchmark-quiet", f"--benchmark-json={kept}"]
        subprocess.run([sys.executable, *command], env=environment, check=True)
        found = json.loads(kept.read_text(encoding="utf-8"))["benchmarks"]
    return [benchmark["extra_info"] for benchmark in found]


HEAD = """\
# Benchmarks

Measured by `python run.py bench` on {machine}.
Times are ratios of medians, both sides measured in turns in one process.

| work | measured | must not exceed | aim |
| --- | --- | --- | --- |"""


def line(row):
    """One line of the table."""
    aim = "" if row["aim"] is None else f"{row['aim']:g}"
    return f"| {row['row']} | {row['value']:.2f} {row['unit']} | {row['reach']:g} | {aim} |"


def machine():
    """The machine in general words."""
    cores = f"{os.cpu_count()} cores of a processor with {platform.machine()} instructions"
    return f"{cores}, {platform.system()}" + (
        f", with an {name}" if (name := accelerator()) else ""
    )


def accelerator():
    """The name of the accelerator that torch finds, or None."""
    import torch

    if not torch.accelerator.is_available():
        return None
    device = torch.accelerator.current_accelerator()
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


def result():
    return FOLDER / ("results-accelerator.md" if accelerator() else "results.md")


if __name__ == "__main__":
    main(*sys.argv[1:])
