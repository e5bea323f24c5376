"""Break the code in small ways, one at a time, and see whether a test notices.

`python run.py mutants` does it to every line of both twins, with mutmut, in a copy of the project
under _build/mutants; that takes hours. `python run.py mutants attention` breaks the two files of
that name alone. Either writes the score of each file that it went through to
qkvlib/book/mutants.json. What no test noticed is looked up in tests/survivors.toml, which gives
the reasons; a change without one is printed, and the command fails.
"""

import json
import os
import re
import shutil
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
    shutil.rmtree(COPY, ignore_errors=True)
    copy_to(COPY)
    configure(COPY, names or all_names())
    mutmut(COPY, "run", "--max-children", "2")
    found = outcomes(COPY)
    survivors = [change(COPY, name) for name, how in found.items() if how not in NOTICED]
    write_score(found)
    unexplained = [each for each in survivors if each not in reasons()]
    print(len(found), "mutants,", len(survivors), "not noticed; without a reason:", *unexplained)
    sys.exit(bool(unexplained))


def all_names():
    """The files of the twins, but for those that only pass names on."""
    found = {path.stem for twin in TWINS for path in Path("qkvlib", twin).glob("*.py")}
    return sorted(found - {"__init__"})


def copy_to(project):
    """What git knows of the project, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\0")[:-1]:
        if Path(name).is_file() and not name.startswith(LEFT_OUT):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, project / name)


def configure(project, names):
    files = [f"qkvlib/{twin}/{name}.py" for twin in TWINS for name in names]
    copied = [path.name for path in project.iterdir() if path.name not in ("qkvlib", "tests")]
    text = CONFIG.format(files=json.dumps(files), copied=json.dumps(copied), chosen=CHOSEN)
    with (project / "pyproject.toml").open("a", encoding="utf-8") as config:
        config.write(text)


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
    """What became of each mutant, by name."""
    lines = mutmut(project, "results", "--all", "true").splitlines()
    return dict(line.strip().split(": ", 1) for line in lines if ": " in line)


def change(project, mutant):
    """A mutant as one line: the file, what stood there, what stands there instead."""
    lines = mutmut(project, "show", mutant).splitlines()
    file = next(line[4:] for line in lines if line.startswith("--- "))
    before = " ".join(line[1:].strip() for line in lines if re.match(r"-(?!--)", line))
    after = " ".join(line[1:].strip() for line in lines if re.match(r"\+(?!\+\+)", line))
    return f"{file}: {before}  ->  {after}"


def write_score(found):
    """The counts of each file that was gone through, beside those of the others."""
    score = json.loads(SCORE.read_text(encoding="utf-8")) if SCORE.exists() else {}
    made, noticed = Counter(), Counter()
    for name, how in found.items():
        module = ".".join(name.split(".")[:3])
        made[module] += 1
        noticed[module] += how in NOTICED
    score |= {module: {"mutants": made[module], "noticed": noticed[module]} for module in made}
    SCORE.write_text(json.dumps(score, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def reasons():
    """The changes that no test can notice, or need not."""
    groups = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivors"]
    return {change for group in groups for change in group["changes"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
