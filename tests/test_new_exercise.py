"""The exercise that the page for teachers shows as an example, held to what all others do."""

import runpy
from pathlib import Path

import pytest

from qkvlib.book import exercises

CHAPTERS = Path(__file__).parents[1] / "chapters"
FILE = CHAPTERS / "new_exercise.py"


@pytest.fixture
def new(monkeypatch):
    chapter = exercises.chapters()[2]
    made = runpy.run_path(str(FILE))["NEW"]
    monkeypatch.setattr(chapter, "EXERCISES", (*chapter.EXERCISES, made))
    return made


def test_it_takes_less_than_30_lines():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 30


def test_it_answers_back(new):
    look = exercises.check
    assert look(new.id, [..., ...], record=False).kind == "not attempted"
    assert look(new.id, [0, 0], record=False).kind == "right"
    assert look(new.id, [2, 1], record=False).mistake == "row-of-another-word"
    assert look(new.id, [0, 1], record=False).kind == "wrong"
    assert look(new.id, [0, 0, 0], record=False).kind == "wrong shape"


def test_the_page_shows_it():
    page = (CHAPTERS / "for_teachers.md").read_text(encoding="utf-8")
    assert f"{{literalinclude}} {FILE.name}" in page
