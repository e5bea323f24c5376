"""A function that a reader wrote, looked at: is it begun, does it run, is it right, what is wrong.

The right function, the probes and the named mistakes are those of `qkvlib.mistakes`; a checker
adds small cases to show.
"""

import inspect
import sys
import time
import traceback
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from qkvlib.book.exercises._answers import shown, what
from qkvlib.book.exercises._stub import is_missing, is_stub
from qkvlib.book.exercises._verdict import Verdict
from qkvlib.mistakes import SUBJECTS, Subject, broken_laws, examine
from qkvlib.mistakes._catalogue import near

SLOW = 50  # times as long as the right one
CHANGES = "What it returns is right. But it changes the arrays that it is given."
SINGLE = (
    "It answers rightly, though not to the last digit. "
    "Is something in it computed in float32, for inputs in float64?"
)
ELSEWHERE = "It is right on small cases, and fails on larger or more extreme ones."
BY_CHANCE = " Asked twice the same, it answers differently: where does its chance come from?"
ONLY_EQUAL = " Where all sizes are equal it is right: which axis goes where?"


class Case(NamedTuple):
    """Arguments to try a function on, and to show where it fails."""

    arguments: tuple
    named: dict

    def asked(self, function):
        """What the function answers; its arguments are copies."""
        arguments, named = deepcopy((self.arguments, self.named))
        return function(*arguments, **named)

    def changed_by(self, function):
        """Whether an array among the arguments is another one after the call."""
        given = deepcopy((self.arguments, self.named))
        function(*given[0], **given[1])
        before = _held_arrays((self.arguments, self.named))
        return any(x.tobytes() != y.tobytes() for x, y in zip(before, _held_arrays(given)))


def case(*arguments, **named):
    """A `Case` of these arguments."""
    return Case(arguments, named)


@dataclass(frozen=True, eq=False)
class Code:
    """A function, of a subject of `qkvlib.mistakes`.

    subject: its name, or a `Subject` of the exercise's own that is not listed there. cases: from
    small to large, with unequal sizes; the first that fails is shown. beyond: the names of mistakes
    that the exercise forgives, with a word: "right, but". equal: a case where all sizes are equal,
    to tell a function that works only there. large: a case on which a right function takes a while,
    to tell a slow one. laws: whether to show a law that is broken; not where the laws speak of a
    whole that the function is a part of. single: whether float32 will do inside, with a word, where
    inputs are float64, as in much code for torch.
    """

    subject: str | Subject
    cases: tuple
    beyond: tuple = ()
    equal: Case | None = None
    large: Case | None = None
    laws: bool = True
    single: bool = False

    @property
    def kind(self):
        """The `Subject` itself."""
        return SUBJECTS[self.subject] if isinstance(self.subject, str) else self.subject

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
        error = _error(function, self.cases[0])
        if _is_unfinished(error, answer):
            return Verdict(exercise.id, "not attempted", "It says so itself.")
        return self._judged(exercise, function, answer)

    def _judged(self, exercise, function, answer):
        examined = examine(function, self.subject)
        found = self._first_difference(function, answer, exercise)
        forgiven = None if examined.right or found else self._forgiven(function)
        if forgiven and examined.mistake not in self.beyond:
            examined = examined._replace(mistake=forgiven, only_its_arguments=False)
        if examined.mistake:
            return self._known(exercise, function, examined, found)
        if examined.right and found is None:
            return self._quality(exercise, function)
        if examined.only_its_arguments and found is None:
            return Verdict(exercise.id, "right, but", CHANGES)
        if self.single and self._nearly(function):
            return Verdict(exercise.id, "right, but", SINGLE)
        if found is None:
            details = self._law(function) or self._error_elsewhere(function, answer)
            return Verdict(exercise.id, "wrong", ELSEWHERE, details)
        return self._unknown(exercise, function, *found)

    def _unknown(self, exercise, function, kind, says, details, failing):
        """The verdict on a case that fails for a reason without a name."""
        if kind == "wrong":
            details += self._law(function)
            says += BY_CHANCE if self._by_chance(function) else ""
        elif kind in ("raised", "wrong shape") and self._only_equal(function, failing):
            says += ONLY_EQUAL
        return Verdict(exercise.id, kind, says, details)

    def _only_equal(self, function, failing):
        """Whether it is right where all sizes are equal, asked in the same form."""
        same_form = self.equal and _form(failing) == _form(self.equal)
        return same_form and not self._differs(function, self.equal)

    def _known(self, exercise, function, examined, found):
        mistake = self.kind.mistakes[examined.mistake]
        if examined.only_its_arguments:
            says = f"What it returns is right. But: {mistake.says}"
            return Verdict(exercise.id, "right, but", says, (), mistake.name)
        if mistake.name in self.beyond and self._forgiven(function):  # and nothing else is wrong
            says = f"It does what this exercise asks. In other work, mind: {mistake.says}"
            return Verdict(exercise.id, "right, but", says, (), mistake.name)
        says = f"{mistake.says} It is easily missed: {_lower(mistake.looks_right)}"
        law = self._broken(function).get(mistake.law and mistake.law.__name__)
        details = found[2] if found else ()
        details += (("A law that it breaks", str(law)),) if law else ()
        return Verdict(exercise.id, "known mistake", says, details, mistake.name)

    def _forgiven(self, function):
        """The first of `beyond` that shows, if no probe but those for `beyond` fails."""
        kind, shown = self.kind, []
        answers = kind._answers(function)
        for tier, (ours, rights) in enumerate(zip(answers, kind._right_answers)):
            for place, (answer, right) in enumerate(zip(ours, rights)):
                if near(answer, right):
                    continue
                for name in self.beyond:
                    if not near(kind._wrong_answers[name][tier][place], right):
                        shown.append(name)
                        break
                else:
                    return None
        return min(shown, key=self.beyond.index, default=None)

    def _nearly(self, function):
        """Whether what is wrong are late digits: from the seventh on, or the third if extreme."""
        kind, digits = self.kind, 1e-6
        try:
            pairs = [
                (_arrays(c.asked(function)), _arrays(c.asked(self._right))) for c in self.cases
            ]
        except Exception:
            return False
        for got, wanted in pairs:
            if len(got) != len(wanted) or not all(map(_alike, got, wanted)):
                return False
        for tier, rights in zip(kind._answers(function), kind._right_answers):
            if not all(_alike(answer, right, digits) for answer, right in zip(tier, rights)):
                return False
            digits = 1e-3
        return True

    def _by_chance(self, function):
        """Whether it answers the same case in two ways."""
        try:
            return any(not _same(c.asked(function), c.asked(function)) for c in self.cases)
        except Exception:
            return False

    def _slow(self, function):
        """Whether it takes far longer than the right one, in two tries: one may be disturbed."""
        limit = SLOW * _seconds(self._right, self.large)
        return all(_seconds(function, self.large) > limit for _ in range(2))

    def _quality(self, exercise, function):
        if any(each.changed_by(function) for each in self.cases):
            return Verdict(exercise.id, "right, but", CHANGES)
        if self.large and self._slow(function):
            says = "But it is slow: on a larger case more than "
            says += f"{SLOW} times as long as whole-array code. Which loop could be one operation?"
            return Verdict(exercise.id, "right, but", f"It answers rightly. {says}")
        return Verdict(exercise.id, "right", "It passes every probe, plain and extreme.")

    @property
    def _right(self):
        return self.kind.right

    def _differs(self, function, case):
        try:
            return not _same(case.asked(function), case.asked(self._right))
        except Exception:
            return True

    def _broken(self, function):
        """The broken laws worth showing: none that only a forgiven mistake breaks."""
        if not self.laws:
            return {}
        forgiven = {self.kind.mistakes[name].law for name in self.beyond}
        spared = {law.__name__ for law in forgiven if law}
        broken = broken_laws(function, self.subject)
        return {name: law for name, law in broken.items() if name not in spared}

    def _law(self, function):
        """The first law that is broken, in words."""
        for name, law in self._broken(function).items():
            if name != "an_answer_to_everything":
                return (("A law that it breaks", str(law)),)
        return ()

    def _error_elsewhere(self, function, answer):
        """What the function raises on the inputs of the laws, with the reader's line."""
        error = self._broken(function).get("an_answer_to_everything")
        return (("It raises", _raised(error, answer)),) if error else ()

    def _first_difference(self, function, answer, exercise):
        """Kind of verdict, words, details and the case, for the first that fails, or None.

        One that is wrong in late digits alone comes first only if there is no other.
        """
        late = None
        for each in self.cases:
            try:
                got = each.asked(function)
            except Exception as error:
                says = f"{type(error).__name__}: {error}"
                raised = _raised(error, answer)
                return "raised", says, (("It raises", raised), *_inputs(each, exercise)), each
            expected = each.asked(self._right)
            if not _same(got, expected):
                found = *_difference(got, expected, each, exercise), each
                if not all(map(_alike, *_both(got, expected))):
                    return found
                late = late or found
        return late


def with_more(name, *tiers):
    """A subject of the catalogue to which an exercise adds probes and mistakes of its own.

    A mistake is shown on a small case of the exercise, not by the law that it breaks.
    """
    kind = SUBJECTS[name]
    mistakes = {each.name: replace(each, law=None) for each in kind.mistakes.values()}
    return replace(kind, tiers=kind.tiers + tiers, mistakes=mistakes, listed=False)


# ---- as checkers call it -------------------------------------------------------------------------


def adapted(function, stub, first):
    """The function, called by position or by name as it takes its arguments, on arrays or tensors.

    stub: names the arguments. first: a case to find out whether it wants tensors.
    """
    on_arrays = _fitted(function, stub)
    error = _error(on_arrays, first)
    if "torch" in sys.modules and error is not None:
        on_tensors = _on_tensors(on_arrays)
        other = _error(on_tensors, first)
        wrong_kind = (TypeError, AttributeError)  # as array.softmax, tensor.astype
        if other is None or (isinstance(error, wrong_kind) and not isinstance(other, wrong_kind)):
            return _in_arrays(on_tensors)
    return _in_arrays(on_arrays)


def _fitted(function, stub):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in
        return function
    names = list(inspect.signature(stub).parameters) if callable(stub) else []

    def fitted(*arguments, **named):
        by_name = dict(zip(names, arguments)) | named
        ways = ((arguments, named), ((), by_name), ((*arguments, *named.values()), {}))
        for positional, keywords in ways:
            try:
                signature.bind(*positional, **keywords)
            except TypeError:
                continue
            return function(*positional, **keywords)
        return function(*arguments, **named)

    return fitted


def _on_tensors(function):
    import torch

    def tensor(x):
        if isinstance(x, tuple):
            return tuple(map(tensor, x))
        if callable(x):  # such as a part of a block
            return lambda *given: tensor(x(*map(_without_tensors, given)))
        return torch.from_numpy(x) if isinstance(x, np.ndarray) else x

    def on_tensors(*arguments, **named):
        return function(*map(tensor, arguments), **{key: tensor(x) for key, x in named.items()})

    return on_tensors


def _in_arrays(function):
    """The function with arrays for the tensors that it returns."""
    return lambda *arguments, **named: _without_tensors(function(*arguments, **named))


def _without_tensors(x):
    if isinstance(x, tuple):
        return tuple(map(_without_tensors, x))
    return x.detach().cpu().numpy() if hasattr(x, "detach") else x


def _form(case):
    """Which arguments there are, and how many axes each has."""
    return [*map(np.ndim, case.arguments)], {key: np.ndim(x) for key, x in case.named.items()}


def _error(function, case):
    try:
        case.asked(function)
    except Exception as error:
        return error
    return None


def _is_unfinished(error, answer):
    """Whether the reader raised NotImplementedError: torch raises it too, with a message."""
    raises = "raise " in readers_line(error, answer) if error else False
    return isinstance(error, NotImplementedError) and (raises or not str(error))


def _seconds(function, case):
    start = time.perf_counter()
    case.asked(function)
    return max(time.perf_counter() - start, 0.001)


def _raised(error, answer):
    """An error in words, and the reader's line that it comes from."""
    return f"{type(error).__name__}: {error}\n{readers_line(error, answer)}".rstrip()


def readers_line(error, answer):
    """The last line of the reader's own code in a traceback, with its number, or ""."""
    answer = getattr(answer, "func", answer)  # of a functools.partial
    called = answer if hasattr(answer, "__code__") else vars(type(answer)).get("__call__")
    file = getattr(getattr(called, "__code__", None), "co_filename", "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if each.filename == file and "site-packages" not in file]
    if not own:
        return ""
    place = f"line {own[-1].lineno} of your cell, in {own[-1].name}"
    return f"{own[-1].line}\n({place})" if own[-1].line else f"({place})"


# ---- what differs --------------------------------------------------------------------------------


def _arrays(output):
    """The parts of an output as arrays, None for what is no array of numbers."""
    parts = output if isinstance(output, tuple) else (output,)
    return tuple(map(_array, parts))


def _array(part):
    try:
        array = np.asarray(part)
    except Exception:
        return None
    return array if array.dtype.kind in "biuf" else None


def _both(got, expected):
    """The parts of two outputs; a list will do for a tuple, and rows in a tuple for an array."""
    if isinstance(expected, tuple) and isinstance(got, list):
        got = tuple(got)
    if not isinstance(expected, tuple) and isinstance(got, tuple):
        rows = _array(list(got))
        got = rows if rows is not None and near(rows, np.asarray(expected)) else got
    return _arrays(got), _arrays(expected)


def _same(got, expected):
    got, expected = _both(got, expected)
    return len(got) == len(expected) and all(map(near, got, expected))


def _alike(got, wanted, digits=1e-6):
    """Whether two arrays differ in late digits alone, if they differ."""
    if got is None or wanted is None or near(got, wanted):
        return got is wanted or (got is not None and wanted is not None)
    if got.shape != wanted.shape or not got.dtype == wanted.dtype == np.float64:
        return False
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    return np.allclose(got, wanted, 0, digits * size, equal_nan=True)


def _difference(got, expected, case, exercise):
    if got is None:
        says = "It returns nothing. Is there a return in every branch?"
        return "wrong type", says, _inputs(case, exercise)
    gots, wanteds = _both(got, expected)
    if len(gots) != len(wanteds):
        return "wrong type", _count(gots, wanteds), _inputs(case, exercise)
    for place, (one, wanted) in enumerate(zip(gots, wanteds)):
        if near(one, wanted):
            continue
        name = f"Result {place + 1}: " if len(gots) > 1 else ""
        if one is None:
            part = got[place] if isinstance(expected, tuple) else got
            says = f"{name}an array of numbers is expected, got {what(part)}."
            return "wrong type", says[:1].upper() + says[1:], _inputs(case, exercise)
        if one.shape != wanted.shape:
            return (
                "wrong shape",
                name + _shapes(one, wanted, case, exercise),
                _inputs(case, exercise),
            )
        both = (("Expected", shown(wanted)), ("Got", shown(one)))
        if wanted.dtype == bool and one.dtype != bool:
            says = f"{name}True and False are expected, got numbers ({one.dtype})."
            return "wrong dtype", says, _inputs(case, exercise) + both
        if both[0][1] == both[1][1]:  # the digits that differ come later
            both = (("Expected", shown(wanted, digits=12)), ("Got", shown(one, digits=12)))
        if one.dtype != wanted.dtype and np.allclose(one, wanted, 1e-3, equal_nan=True):
            says = f"{name}dtype {wanted.dtype} is expected for these inputs, got {one.dtype}."
            dtypes = (("Expected", str(wanted.dtype)), ("Got", str(one.dtype)))
            return "wrong dtype", says, _inputs(case, exercise) + dtypes
        return (
            "wrong",
            f"{name}This is the smallest case that fails.{_hardly_off(one, wanted)}",
            _inputs(case, exercise) + both,
        )
    return "wrong", "It fails.", ()


def _hardly_off(got, wanted):
    """What to say where a difference may be too small to be seen in the digits shown."""
    finite = wanted.dtype.kind == "f" and np.isfinite(got).all() and np.isfinite(wanted).all()
    size = np.abs(wanted).max(initial=0) if finite else 0
    off = np.abs(got - wanted).max(initial=0) / size if size else 1
    return f" It is off by only {off:.0e} of the largest number." if off < 1e-3 else ""


def _count(gots, wanteds):
    one = len(wanteds) == 1
    says = "One result is expected" if one else f"{len(wanteds)} results are expected"
    fits = one and any(near(got, wanteds[0]) for got in gots)
    more = " One of them is right: return that one alone." if fits else ""
    return f"{says}, got {len(gots)}.{more}"


def _shapes(got, wanted, case, exercise):
    says = f"Shape {wanted.shape} is expected, got {got.shape}."
    if got.ndim != wanted.ndim:
        return (
            says + f" That is {got.ndim} {'axis' if got.ndim == 1 else 'axes'} for {wanted.ndim}."
        )
    sizes = _sizes(case, exercise)
    for axis, (have, want) in enumerate(zip(got.shape, wanted.shape)):
        if have != want:
            found = [f"{have} is {sizes[have]}" if have in sizes else "", sizes.get(want, "")]
            says += f" Axis {axis} has {have} for {want}"
            says += f" ({found[0]}; {want} is {found[1]})." if all(found) else "."
    return says


def _sizes(case, exercise):
    """By size the axis of an argument that has it, where only one has."""
    found = {}
    for name, x in _named(case, exercise).items():
        for axis, size in enumerate(np.shape(x) if isinstance(x, np.ndarray) else ()):
            found.setdefault(size, []).append(f"axis {axis} of {name}")
    return {size: " and ".join(places) for size, places in found.items() if len(places) <= 2}


def _named(case, exercise):
    names = list(inspect.signature(exercise.stub).parameters)
    return dict(zip(names, case.arguments)) | case.named


def _inputs(case, exercise):
    lines = [_line(name, x) for name, x in _named(case, exercise).items()]
    return (("Inputs", "\n".join(lines)),)


def _line(name, x):
    return f"{name} = {_text(x, name)}"


def _text(x, name=""):
    if isinstance(x, tuple) and x:
        return f"({', '.join(map(_text, x))})"
    if hasattr(x, "__code__"):
        return x.__name__
    return shown(x, name) if isinstance(x, np.ndarray) else repr(x)


def _held_arrays(x):
    """The arrays in nested arguments."""
    if isinstance(x, dict):
        x = tuple(x.values())
    if isinstance(x, tuple | list):
        return [array for each in x for array in _held_arrays(each)]
    return [x] if isinstance(x, np.ndarray) else []


def _lower(text):
    return text[:1].lower() + text[1:]
