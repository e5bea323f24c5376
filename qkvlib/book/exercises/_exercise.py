"""What an exercise is, and a question of a self-test."""

from collections.abc import Callable
from dataclasses import dataclass

GRADES = ("warm-up", "core", "challenge")
KINDS = ("fill in", "predict", "find the bug", "derive", "read", "choose", "design")


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise: what its page shows and what its checker knows.

    id: "E3.4", the fourth of chapter 3. grade, kind: of `GRADES` and `KINDS`. minutes: how long a
    reader may take. objective: what a reader can do afterwards, continuing "You can ...".
    section: a Markdown link to the section it belongs to. task: what to do, with signature,
    shapes and an example, in Markdown. stub: the code that the reader completes, a function or the
    text of assignments. solution: a function; where the stub is text it takes no arguments and
    returns the answer. checker: one of `Code`, `Numbers`, `Choice`, `Items`, `Design`.
    hints: mildest first. explanation: why the solution is right, what else would do, which trace
    the usual slip leaves, in Markdown. tags: of its code cells, ("torch",) if it needs torch.
    """

    id: str
    title: str
    grade: str
    kind: str
    minutes: int
    objective: str
    section: str
    task: str
    stub: Callable | str
    solution: Callable
    checker: object
    hints: tuple
    explanation: str
    tags: tuple = ()


@dataclass(frozen=True)
class Option:
    """One of the answers to choose from.

    text: the answer. says: what to tell a reader who chooses it. mistake: the name of the
    misconception behind it, None for the right one.
    """

    text: str
    says: str
    mistake: str | None = None


@dataclass(frozen=True)
class Question:
    """A question of a self-test: Markdown text, and the options in the order of the page."""

    text: str
    options: tuple
