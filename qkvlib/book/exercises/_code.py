"""A function that a reader wrote, looked at: is it begun, does it run, is it right, what is wrong.

The right function, the probes and the named mistakes are those of `qkvlib.mistakes`; a checker
adds small cases to show. How a function is called stands in `_calling`, how two answers are
compared in `_comparing`, and which verdict follows in `_judging`.
"""

from dataclasses import dataclass, replace

from qkvlib.book.exercises._answers import what
from qkvlib.book.exercises._calling import Case, adapted, case, error_of, is_unfinished
from qkvlib.book.exercises._judging import Judgement
from qkvlib.book.exercises._stub import is_missing, is_stub
from qkvlib.book.exercises._verdict import Verdict
from qkvlib.mistakes import SUBJECTS, Subject

__all__ = ["Code", "case", "with_more"]


@dataclass(frozen=True, eq=False)
class Code:
    """A function, of a subject of `qkvlib.mistakes`.

    subject: its name, or a `Subject` of the exercise's own that is not listed there. cases: from
    small to large, with unequal sizes; the first that fails is shown. beyond: the names of mistakes
    that the exercise forgives, with a word: "right, but". equal: a case where all sizes are equal,
    to tell a function that works only there. large: a case on which a right function takes a while,
    to tell a slow one. laws: whether to show a law that is broken; not where the laws speak of a
    whole that the function is a part of. single: whether float32 will do inside, with a word, where
    inputs are float64, as in much code for torch. alone: whether the task says "without `qkvlib`".
    does_it: names of functions of `qkvlib` that do what is asked for, beside the right one.

    An answer that leaves the work to the library is "right, but": it is not the reader's own. That
    is one that calls anything of `qkvlib` if the task is `alone`, else a function that does it.
    """

    subject: str | Subject
    cases: tuple
    beyond: tuple = ()
    equal: Case | None = None
    large: Case | None = None
    laws: bool = True
    single: bool = False
    alone: bool = False
    does_it: tuple = ()

    @property
    def kind(self):
        """The `Subject` itself."""
        return SUBJECTS[self.subject] if isinstance(self.subject, str) else self.subject

    @property
    def studied(self):
        """The names of the functions of `qkvlib` that do what is asked for."""
        right = self.kind.right
        of_the_library = right.__module__.startswith("qkvlib.numpy")
        return (*self.does_it, *([right.__name__] if of_the_library else []))

    def mistakes(self):
        return tuple(self.kind.mistakes)

    def look(self, exercise, answer):
        if is_missing(answer):
            return Verdict(exercise.id, "not attempted", "Hand over your function.")
        if not callable(answer) or isinstance(answer, type):
            says = f"A function is expected, got {what(answer)}. Hand over the function itself, "
            return Verdict(exercise.id, "wrong type", says + "without calling it.")
        if is_stub(answer, exercise.stub):
            return Verdict(exercise.id, "not attempted", "This is still the code that was given.")
        function = adapted(answer, exercise.stub, self.cases[0])
        if is_unfinished(error_of(function, self.cases[0]), answer):
            return Verdict(exercise.id, "not attempted", "It says so itself.")
        return Judgement(self, exercise, function, answer).verdict()


def with_more(name, *tiers):
    """A subject of the catalogue to which an exercise adds probes and mistakes of its own.

    A mistake is shown on a small case of the exercise, not by the law that it breaks.
    """
    kind = SUBJECTS[name]
    mistakes = {each.name: replace(each, law=None) for each in kind.mistakes.values()}
    return replace(kind, tiers=kind.tiers + tiers, mistakes=mistakes, listed=False)
