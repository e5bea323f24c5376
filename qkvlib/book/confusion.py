"""How often the doctor is right: `diagnose` on patients drawn at random.

    python -m qkvlib.book.confusion

draws 50 patients with each cause and 250 healthy models, half of NumPy and half of torch, and
writes what the doctor answered to `confusion.json`. It takes about two minutes. `table` reads it.

The limits of the doctor were set on other patients: these seeds were not looked at before.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np

from qkvlib.book.ward import draw
from qkvlib.diagnostics import CAUSES, diagnose

TABLE = Path(__file__).with_name("confusion.json")
SEED = 2037
PATIENTS = dict.fromkeys(CAUSES, 50) | {"healthy": 250}
NEEDS_TORCH = {"tiny_but_learning"}  # seen in gradients


def visit(cause, number):
    """What the doctor says to patient `number` with this cause: a code."""
    backend = "torch" if number % 2 or cause in NEEDS_TORCH else "numpy"
    generator = np.random.default_rng([SEED, number, *cause.encode()])
    patient = draw(cause, generator, backend=backend)
    return diagnose(patient.model, patient.x, mask=patient.mask, loss=patient.loss).cause


def stored_answers():
    """What the doctor said when the table was made: for each cause a list of codes."""
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    return {
        cause: [row["mistaken"].get(str(i), cause) for i in range(row["patients"])]
        for cause, row in stored.items()
    }


def table():
    """Those answers counted: `{cause: {answer: how often}}`."""
    return {cause: dict(Counter(answers)) for cause, answers in stored_answers().items()}


def main():
    lines = []
    for cause, patients in PATIENTS.items():
        answers = {i: visit(cause, i) for i in range(patients)}
        mistaken = {i: answer for i, answer in answers.items() if answer != cause}
        lines.append(f'"{cause}": {json.dumps({"patients": patients, "mistaken": mistaken})}')
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
