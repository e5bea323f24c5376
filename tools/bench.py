"""Run the benchmarks and write their table: `python run.py bench`.

Each file of tests/benchmarks runs in a process of its own, on two threads and with the fastest
kernels that NumPy's OpenBLAS finds. The table goes to tests/benchmarks/results.md. With
`--device cuda`, or another accelerator's name, the rows of torch are measured there, and their
table goes to results-cuda.md. Names, as in `bench layer`, choose files; then nothing is written.
"""

import argparse
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


def main():
    parser = argparse.ArgumentParser(prog="run.py bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="layer for bench_layer.py; by default all")
    parser.add_argument("--device", default="cpu", help="where torch computes")
    options = parser.parse_args()
    chosen = [FOLDER / f"bench_{name}.py" for name in options.names]
    files = chosen or sorted(FOLDER.glob("bench_*.py"))
    rows = [row for file in files for row in measured(file, options.device)]
    table = "\n".join([HEAD.format(machine=machine(options.device)), *map(line, rows), ""])
    print(table)
    if not chosen:
        name = "results.md" if options.device == "cpu" else f"results-{options.device}.md"
        (FOLDER / name).write_text(table, encoding="utf-8")


def measured(file, device):
    """The rows of one file of benchmarks, in its order."""
    environment = {k: v for k, v in os.environ.items() if k not in SLOWER_KERNELS} | THREADS
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "rows.json")
        command = ["-m", "pytest", file, "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
        command += ["-o", "python_files=bench_*.py", "-o", "python_functions=bench_*"]
        command += ["--device", device, "--benchmark-quiet", f"--benchmark-json={kept}"]
        done = subprocess.run([sys.executable, *command], env=environment)
        if done.returncode == NOTHING_COLLECTED:
            return []
        done.check_returncode()
        found = json.loads(kept.read_text(encoding="utf-8"))["benchmarks"]
    return [benchmark["extra_info"] for benchmark in found]


NOTHING_COLLECTED = 5  # pytest's exit status

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


def machine(device):
    """The machine in general words."""
    words = f"{os.cpu_count()} cores of a processor with {platform.machine()} instructions"
    if device == "cpu":
        return f"{words}, {platform.system()}"
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return f"an accelerator ({name}), {words}, {platform.system()}"


if __name__ == "__main__":
    main()
