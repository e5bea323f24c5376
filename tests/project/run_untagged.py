"""Run the untagged code cells of a notebook in this Python, without Jupyter.

python run_untagged.py NOTEBOOK
"""

import ast
import json
import linecache
import sys
from pathlib import Path

TAGGED = {"torch", "model"}


def main(path):
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    namespace = {"__name__": "__main__"}
    count = 0
    for number, cell in enumerate(cells):
        tags = set(cell["metadata"].get("tags", ()))
        if cell["cell_type"] == "code" and not tags & TAGGED:
            run("".join(cell["source"]), f"<cell {number}>", namespace, tags)
            count += 1
    print(f"{count} untagged cells run")


def run(source, name, namespace, tags):
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    try:
        execute(source, name, namespace)
    except Exception:
        if "raises-exception" not in tags:
            raise
    else:
        if "raises-exception" in tags:
            sys.exit(f"{name} is tagged raises-exception and raised nothing")


def execute(source, name, namespace):
    """Run the statements; if the last is an expression, show its value as a notebook would."""
    statements = ast.parse(source, name).body
    last = statements.pop() if statements and isinstance(statements[-1], ast.Expr) else None
    exec(compile(ast.Module(statements, []), name, "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            print(repr(value))


if __name__ == "__main__":
    main(sys.argv[1])
