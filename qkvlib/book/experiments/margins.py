"""How far the experiments stay from what the chapters assert about them.

    python -m qkvlib.book.experiments.margins reading

measures every figure of the study `studies/reading.py` with several seeds, once with the fastest
kernels of this processor and once with the plainest ones that torch has, and writes
`studies/reading.json`: for each figure the bound that a chapter asserts, if any, the smallest,
mean and largest value, and the largest difference between the two runs. Without a name it does
so for all studies, which takes a while.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np

from qkvlib.book.experiments import studies

FOLDER = Path(studies.__file__).parent
STUDIES = sorted(module.name for module in iter_modules(studies.__path__))
PLAIN_KERNELS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}


def study_of(name):
    """The module of one study."""
    return import_module(f"{studies.__name__}.{name}")


def table(name):
    """The rows that were stored for one study."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def measure(study, experiment):
    """The figures of one experiment, by label: one value for each seed of its study."""
    measured = [study.EXPERIMENTS[experiment](seed) for seed in study.SEEDS]
    return {label: [float(figures[label]) for figures in measured] for label in measured[0]}


def summary(values, other):
    """The spread of `values`, one for each seed, and how far `other` is from them."""
    return {
        "min": round(min(values), 4),
        "mean": round(float(np.mean(values)), 4),
        "max": round(max(values), 4),
        "difference with plain kernels": float(f"{np.abs(np.subtract(values, other)).max():.0e}"),
    }


def room(row):
    """How far the worst seed stays on the right side of the bound; negative beyond it."""
    sign, bound = row["bound"].split()
    return row["min"] - float(bound) if sign == ">" else float(bound) - row["max"]


def main(*names):
    for name in names or STUDIES:
        print(name, flush=True)
        store(name)


def store(name):
    """Measure one study and write its table."""
    study = study_of(name)
    fast, plain = (measured_with(kernels, name) for kernels in ({}, PLAIN_KERNELS))
    lines = [
        {"experiment": experiment, "figure": label, "bound": study.BOUNDS[experiment].get(label)}
        | summary(values, plain[experiment][label])
        for experiment, figures in fast.items()
        for label, values in figures.items()
    ]
    text = ",\n".join(json.dumps(line) for line in lines)
    (FOLDER / f"{name}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def measured_with(kernels, name):
    """All figures of a study, measured in a process of its own: torch chooses kernels once."""
    command = "import json; from qkvlib.book.experiments.margins import *; "
    command += f"study = study_of({name!r}); "
    command += "print(json.dumps({each: measure(study, each) for each in study.EXPERIMENTS}))"
    result = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | kernels,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(result.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
