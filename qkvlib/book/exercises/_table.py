"""The table of exercises for teachers, made from the chapters: `run.py refresh` writes the page."""

from qkvlib.book.exercises import chapters
from qkvlib.book.exercises._exercise import GRADES
from qkvlib.mistakes import MISTAKES

NUMBERS = ("Exercises", *GRADES, "Minutes")

HEAD = """\
% Made by run.py refresh from the files of the exercises. Do not edit.

# Exercises at a glance

For teachers, and for whoever looks for an exercise to do.
{exercises} exercises take about {hours} hours.
What a student can do afterwards stands in the last column of the first table.
The last table says which mistakes an exercise names to a student who makes them.

For a class, `python run.py book --without-solutions` builds the book without the solutions.
The notebooks that it is built from lie there too, to hand out.
"""


def render():
    """The page as MyST Markdown, the same for the same exercises."""
    by_chapter = {number: module.EXERCISES for number, module in chapters().items()}
    exercises = [exercise for each in by_chapter.values() for exercise in each]
    minutes = sum(exercise.minutes for exercise in exercises)
    parts = [
        HEAD.format(exercises=len(exercises), hours=f"{minutes / 60:.1f}"),
        "## Objectives\n",
        *_table(["Exercise", "Grade", "Kind", "Minutes", "You can"], map(_row, exercises)),
        "## By chapter\n",
        *_table(["Chapter", "Exercises", *GRADES, "Minutes"], _sums(by_chapter)),
        "## Mistakes that are named\n",
        *_table(["Exercise", "Mistakes"], map(_mistakes, exercises)),
    ]
    return "\n".join(parts)


def _table(columns, rows):
    yield _line(columns)
    yield _line("---:" if name in NUMBERS else "---" for name in columns)
    yield from map(_line, rows)
    yield ""


def _line(cells):
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _row(e):
    return f"{_link(e)} {e.title}", e.grade, e.kind, e.minutes, e.objective


def _link(exercise):
    return f"{{ref}}`{exercise.id} <{exercise.id.lower().replace('.', '-')}>`"


def _sums(by_chapter):
    everything = [exercise for exercises in by_chapter.values() for exercise in exercises]
    for name, exercises in {**by_chapter, "all": everything}.items():
        grades = [exercise.grade for exercise in exercises]
        minutes = sum(exercise.minutes for exercise in exercises)
        yield name, len(exercises), *map(grades.count, GRADES), minutes


def _mistakes(exercise):
    names = dict.fromkeys(exercise.checker.mistakes())
    links = (f"{{ref}}`{name} <mistake-{name}>`" if name in MISTAKES else name for name in names)
    return _link(exercise), ", ".join(links)
