"""Break the code in small ways, one at a time, and see whether a test notices.

`python run.py mutants` does it to every line of both twins, with mutmut, in a copy of the project
under _build/mutants; that takes hours. `python run.py mutants attention` breaks the two files of
that name alone. What was noticed once is not tried again unless its file has changed, so a run
that was stopped goes on where it stood; what nobody noticed is tried again.

The counts of each file go to qkvlib/book/mutants.json. What no test noticed is looked up in
tests/survivors.toml, which gives the reasons; a change without one is printed, and the command
fails.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

COPY = Path("_build", "mutants")
SCORE = Path("qkvlib", "book", "mutants.json")
REASONS = Path("tests", "survivors.toml")
TWINS = ("numpy", "torch")
# What these would notice the quicker tests notice too, and a mutant that lives runs them all.
SLOW = [f"tests/test_{name}.py" for name in ("claims", "example", "experiments", "mistakes")]
SLOW += [f"tests/test_{name}.py" for name in ("diagnostics", "pretrained", "plots", "smollm2")]
SLOW += [f"tests/test_{name}.py" for name in ("exercises", "limit", "new_exercise")]
NOTICED = {"killed", "timeout", "segfault", "suspicious"}
# torch.compile cannot look through what mutmut puts in, and it adds methods to classes.
CHOSEN = "not compile and not trace and not twins_take_the_same_parameters"
LEFT_OUT = ("tests/project/", "tests/benchmarks/", *SLOW)

CONFIG = """

[tool.mutmut]
source_paths = ["qkvlib"]
only_mutate = {files}
also_copy = {copied}
pytest_add_cli_args = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:nbval", "-o", "addopts=",
  "-k", "{chosen}"]
pytest_add_cli_args_test_selection = ["tests"]
timeout_constant = 10.0
"""


def main(*names):
    copy_to(COPY, names or all_names())
    forget_survivors(COPY)
    try:
        mutmut(COPY, "run", "--max-children", "2")
    finally:
        unexplained = report(outcomes(COPY))
    sys.exit(bool(unexplained))


def report(found):
    """Store the counts; print, and return, what lives without a reason."""
    write_score(found)
    lived = [change(COPY, name) for name, how in found.items() if how not in NOTICED]
    unexplained = [each for each in lived if each not in reasons()]
    print(len(found), "tried,", len(lived), "not noticed, of these without a reason:")
    print(*unexplained, sep="\n")
    return unexplained


def all_names():
    """The files of the twins, but for those that only pass names on."""
    found = {path.stem for twin in TWINS for path in Path("qkvlib", twin).glob("*.py")}
    return sorted(found - {"__init__"})


def chosen(names):
    """The files of these names."""
    return [f"qkvlib/{twin}/{name}.py" for twin in TWINS for name in names]


def copy_to(project, names):
    """What git knows of the project, as it is now; mutmut sees by its time what has changed.

    It does not see that a test has changed and now reaches other functions: then it must ask all
    tests again what they reach. Nor does it see, in its own copy, files that are no Python.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    wanted = [name for name in listed.stdout.split("\0")[:-1] if not name.startswith(LEFT_OUT)]
    texts = {Path(name): Path(name).read_bytes() for name in wanted if Path(name).is_file()}
    texts[Path("pyproject.toml")] += config(names, {name.split("/")[0] for name in wanted})
    for old in [path for path in project.rglob("*") if path.is_file()]:
        name = old.relative_to(project)
        copied = name.relative_to("mutants") if name.parts[0] == "mutants" else name
        if copied not in texts and (copied == name or copied.parts[0] == "tests"):
            old.unlink()
    for name in chosen(names):  # it may have been copied whole while other files were broken
        (project / "mutants" / name).unlink(missing_ok=True)
    for name, text in texts.items():
        new = project / name
        if not new.exists() or new.read_bytes() != text:
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(text)
            if name.parts[0] == "tests":
                (project / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
            elif name.suffix != ".py" and (project / "mutants" / name).exists():
                (project / "mutants" / name).write_bytes(text)


def config(names, top):
    """mutmut's settings: what to break, and what a test may need beside it."""
    files = chosen(names)
    copied = sorted(top - {"qkvlib", "tests"})
    text = CONFIG.format(files=json.dumps(files), copied=json.dumps(copied), chosen=CHOSEN)
    return text.encode()


def forget_survivors(project):
    """mutmut tries what has no result: take it from what lived, for there may be new tests."""
    for path in project.glob("mutants/qkvlib/*/*.meta"):
        known = json.loads(path.read_text(encoding="utf-8"))
        results = known["exit_code_by_key"]
        known["exit_code_by_key"] = {name: code or None for name, code in results.items()}
        path.write_text(json.dumps(known), encoding="utf-8")


def mutmut(project, *command):
    environment = {**os.environ, "CI": "true", "PYTHONPATH": ".", "QKVLIB_EXAMPLES": "20"}
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *command],
        cwd=project,
        env=environment,
        check=True,
        text=True,
        stdout=None if command[0] == "run" else subprocess.PIPE,
    ).stdout


def outcomes(project):
    """What became of each mutant that was tried, by name."""
    lines = mutmut(project, "results", "--all", "true").splitlines()
    found = dict(line.strip().split(": ", 1) for line in lines if ": " in line)
    return {name: how for name, how in found.items() if how != "not checked"}


def change(project, mutant):
    """A mutant as one line: the file, what stood there, what stands there instead."""
    lines = mutmut(project, "show", mutant).splitlines()
    file = next(line[4:] for line in lines if line.startswith("--- "))
    before = " ".join(line[1:].strip() for line in lines if re.match(r"-(?!--)", line))
    after = " ".join(line[1:].strip() for line in lines if re.match(r"\+(?!\+\+)", line))
    return f"{file}: {before}  ->  {after}"


def write_score(found):
    """How many were tried in each file and how many noticed, beside the counts of the others."""
    score = json.loads(SCORE.read_text(encoding="utf-8")) if SCORE.exists() else {}
    tried, noticed = Counter(), Counter()
    for name, how in found.items():
        module = ".".join(name.split(".")[:3])
        tried[module] += 1
        noticed[module] += how in NOTICED
    score |= {module: {"tried": tried[module], "noticed": noticed[module]} for module in tried}
    SCORE.write_text(json.dumps(score, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def reasons():
    """The changes that no test can notice, or need not."""
    groups = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivors"]
    return {change for group in groups for change in group["changes"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
