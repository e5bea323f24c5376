"""Exercises that answer back.

`check("E3.3", softmax)` looks at what a reader wrote and says what it sees: that it is not begun,
where it raises, which axis is wrong, which known mistake it is, with a small case to look at; or
that it is right. It never shows a solution. `hint("E3.3")` gives one hint at a time, and
`progress()` shows what is done.

>>> check("E1.2", ...)
E1.2: not attempted. Choose one of a, b, c, d.

There is one file of exercises for each chapter, from which its page is made.
"""

import contextlib
import importlib
import io
import pkgutil
import warnings

import numpy as np

from qkvlib.book.exercises import _progress
from qkvlib.book.exercises._calling import readers_line
from qkvlib.book.exercises._limit import OutOfTime, limited
from qkvlib.book.exercises._verdict import Verdict
from qkvlib.book.show import table

__all__ = ["check", "hint", "progress", "find", "chapters"]

SECONDS = 10.0  # for all probes of one answer together

_hints_given = {}


def check(id, answer, *, record=True):
    """Look at an answer to an exercise.

    id: such as "E3.3". answer: whatever the exercise asks for: a function, numbers, a letter, an
    array or tensor; `...` while there is none. record: note the outcome for `progress`
    -> a `Verdict`, which is true if the answer is right

    A function is tried on plain and extreme inputs and is stopped after ten seconds. What it
    prints is not shown, and the arrays of the reader stay as they are.

    Raises ValueError for an id that is none.
    """
    exercise = find(id)
    verdict = _look(exercise, answer)
    if record:
        _progress.keep(verdict)
    return verdict


def _look(exercise, answer):
    def look():
        with np.errstate(all="ignore"):
            return exercise.checker.look(exercise, answer)

    try:
        with _quiet():  # here, since a thread that had to be left behind would never undo it
            return limited(look, SECONDS)
    except OutOfTime:
        says = f"It did not come to an end within {SECONDS:.0f} seconds. Does a loop ever stop?"
        return Verdict(exercise.id, "out of time", says)
    except (Exception, SystemExit, GeneratorExit) as error:
        line = readers_line(error, answer)
        details = (("Your line", line),) if line else ()
        return Verdict(exercise.id, "raised", f"{type(error).__name__}: {error}", details)


@contextlib.contextmanager
def _quiet():
    """Without prints and warnings, of which a reader's function may have many."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        yield


def hint(id):
    """The next hint for an exercise, the mildest first.

    id: such as "E3.3" -> a `Hint`, which shows as text
    """
    exercise = find(id)
    given = _hints_given.get(exercise.id, 0)
    if given == len(exercise.hints):
        _hints_given[exercise.id] = 0
        return Hint(f"{exercise.id}: those were all the hints. The next one is the first again.")
    _hints_given[exercise.id] = given + 1
    return Hint(
        f"{exercise.id}, hint {given + 1} of {len(exercise.hints)}: {exercise.hints[given]}"
    )


class Hint(str):
    """A hint, shown without quotes, and as Markdown in a notebook."""

    def __repr__(self):
        return str(self)

    def _repr_markdown_(self):
        return str(self)


def progress(chapter=None):
    """What is done so far, by chapter: a table.

    chapter: the number of one chapter, to see that one alone

    It is kept in exercise_progress.json beside the notebooks; delete that file to begin anew.

    Raises ValueError for a chapter without exercises.
    """
    if chapter is not None and chapter not in chapters():
        numbers = ", ".join(map(str, chapters()))
        raise ValueError(f"chapter must be one of {numbers}, or None for all; got {chapter!r}")
    known = _progress.load()
    rows, names = [], []
    for number in chapters() if chapter is None else [chapter]:
        ids = [exercise.id for exercise in chapters()[number].EXERCISES]
        done = [id for id in ids if known.get(id) == "right"]
        tried = [id for id in ids if known.get(id) == "tried"]
        names.append(f"chapter {number}")
        rows.append([len(done), len(ids), " ".join(tried) or "-"])
    return table(rows, rows=names, columns=["right", "of", "tried, not right yet"])


def find(id):
    """The `Exercise` of this id.

    Raises TypeError for what is no string, ValueError for an id that is none.
    """
    if not isinstance(id, str):
        raise TypeError(f'id must be a string such as "E3.3", got {type(id).__name__}')
    wanted = id.strip().upper()
    for chapter in chapters().values():
        for exercise in chapter.EXERCISES:
            if exercise.id in (wanted, f"E{wanted}"):
                return exercise
    known = ", ".join(f"E{n}.1 to E{n}.{len(c.EXERCISES)}" for n, c in chapters().items())
    raise ValueError(f"id must be that of an exercise, {known}; got {id!r}")


def chapters():
    """The file of each chapter that has exercises: `{number: module}`."""
    names = [found.name for found in pkgutil.iter_modules(__path__)]
    numbers = sorted(int(name[8:]) for name in names if name.startswith("chapter_"))
    return {n: importlib.import_module(f"{__name__}.chapter_{n}") for n in numbers}
