"""Which laws each mistake of the catalogue breaks, kept as a file.

`run.py refresh` writes the file anew; chapters read it, because to try each mistake on each law
takes some seconds.
"""

import json
from pathlib import Path

from qkvlib.mistakes import table

FILE = Path(__file__).with_name("mistakes_table.json")


def render():
    """The text of the file: one line a mistake, with the laws that it breaks."""
    lines = (f"{json.dumps(name)}: {json.dumps(laws)}" for name, laws in table().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load():
    """What the file holds, `{mistake: [law, ...]}`, as `qkvlib.mistakes.table()` would give it."""
    return json.loads(FILE.read_text(encoding="utf-8"))
