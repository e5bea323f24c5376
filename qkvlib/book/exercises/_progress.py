"""Which exercises a reader has done: a small file beside the notebooks."""

import json
import os
from pathlib import Path

FILE = "exercise_progress.json"


def file():
    """The file, or None where nothing is to be kept: in tests and when the book is made."""
    where = os.environ.get("QKVLIB_PROGRESS", "" if os.environ.get("CI") else FILE)
    return Path(where) if where else None


def load():
    """What is known: `{exercise: "right" or "tried"}`; nothing if there is no readable file."""
    path = file()
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def keep(verdict):
    """Note a verdict. What was right once stays right; an exercise not attempted is not noted."""
    path, known = file(), load()
    if path is None or verdict.kind == "not attempted" or known.get(verdict.exercise) == "right":
        return
    known[verdict.exercise] = "right" if verdict else "tried"
    try:
        path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError:  # a folder that cannot be written to: the reader can still go on
        return
