"""What a reader hands over, looked at: numbers, a choice, something designed, a function.

A checker has `look(exercise, answer)`, which gives a `Verdict`, and `mistakes()`, the names that
it can give to a wrong answer. It takes whatever a reader may hand over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkvlib.book.exercises._stub import is_missing, is_stub, value_of
from qkvlib.book.exercises._verdict import Verdict


def as_array(answer):
    """The numbers of an answer, NaN where one is missing; TypeError where it has no numbers.

    answer: a number, text such as "0.5", nested lists or tuples, an array, a tensor of any device
    """
    if isinstance(answer, Mapping | set) or callable(answer):
        raise TypeError(f"numbers are expected, got {what(answer)}")
    try:
        array = np.asarray(_plain(answer))
    except ValueError:
        got = f"{what(answer)}: {_short(answer)}"
        raise TypeError(f"numbers in equal rows are expected, got {got}") from None
    if array.dtype.kind not in "biufOU":
        raise TypeError(f"real numbers are expected, got {array.dtype}")
    try:
        return array.astype(float)
    except (TypeError, ValueError, OverflowError):
        first = next(each for each in array.ravel().tolist() if not _is_number(each))
        raise TypeError(f"numbers are expected, got {_short(first)}") from None


def _plain(answer):
    """The answer without tensors, and with NaN where something is missing."""
    if hasattr(answer, "detach"):
        return answer.detach().cpu().double().numpy()
    if isinstance(answer, list | tuple):
        return [_plain(each) for each in answer]
    return np.nan if is_missing(answer) else answer


def _is_number(x):
    try:
        float(x)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def what(answer):
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype}"
    kind = type(answer).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    if isinstance(answer, type):
        return f"the class {answer.__name__}"
    return f"the function {answer.__name__}" if hasattr(answer, "__code__") else f"{article} {kind}"


def _short(answer, most=60):
    text = " ".join(repr(answer).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def shown(x, name="", digits=3):
    """An array as a reader sees it after its name: so many decimals, and no negative zero."""
    x = np.asarray(x)
    if x.dtype.kind == "f":
        x = np.round(x.astype(float), digits) + 0.0
    if x.size > 60:
        return f"an array of shape {x.shape}"
    before = f"{name} = " if name else ""
    style = {"separator": ", ", "suppress_small": True, "threshold": 100, "prefix": before}
    return np.array2string(x, precision=max(8, digits), **style)


# ---- numbers -------------------------------------------------------------------------------------


class Slip(NamedTuple):
    """A wrong way to numbers: what comes of it, a function without arguments, and what to say."""

    values: Callable
    says: str


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers that a reader found, such as a row of weights.

    right: a function without arguments that computes them. slips: `{name: Slip}`. tolerance: how
    far each may be from the right one. labels: what to call each, in the order of the flat array.
    """

    right: Callable
    slips: Mapping
    tolerance: float = 0.002
    labels: tuple = ()

    def mistakes(self):
        return tuple(self.slips)

    def look(self, exercise, answer):
        right = np.asarray(self.right(), float)
        if is_missing(answer):
            return Verdict(exercise.id, "not attempted", "Put your numbers in its place.")
        try:
            got = as_array(answer)
        except TypeError as error:
            return Verdict(exercise.id, "wrong type", _sentence(error))
        if np.isnan(got).all():
            return Verdict(exercise.id, "not attempted", "Put your numbers in place of the dots.")
        if got.size == right.size and got.squeeze().shape == right.squeeze().shape:
            got = got.reshape(right.shape)
        look = self._compared if got.shape == right.shape else self._wrong_shape
        return look(exercise, got, right)

    def _wrong_shape(self, exercise, got, right):
        for name, slip in self.slips.items():  # as a transposed matrix
            values = np.asarray(slip.values(), float)
            if values.shape == got.shape and self._same(got, values):
                return Verdict(exercise.id, "known mistake", slip.says, mistake=name)
        says = f"{right.size} numbers of shape {right.shape} are expected, got shape {got.shape}."
        return Verdict(exercise.id, "wrong shape", says)

    def _compared(self, exercise, got, right):
        if self._same(got, right):
            return Verdict(exercise.id, "right", f"You have {_in_words(got)}.")
        slips = {name: np.asarray(slip.values(), float) for name, slip in self.slips.items()}
        shares = np.abs(right).max(initial=0) <= 1
        for rounder in (False, True) if shares else (False,):
            for name, values in slips.items():
                size = _size(values) if rounder else 1
                if values.shape == got.shape and self._same(got, values, size):
                    says = self.slips[name].says
                    return Verdict(exercise.id, "known mistake", says, mistake=name)
        off = np.flatnonzero(~self._near(got, right))
        if right.size == 1:
            return Verdict(exercise.id, "wrong", "It is another number.")
        missing = np.isnan(got).any()
        says = f"{right.size - len(off)} of {right.size} are right."
        names = self.labels or tuple(f"number {k + 1}" for k in range(right.size))
        first = names[off[0]] + (", still missing" if np.isnan(got.flat[off[0]]) else "")
        says += f" The first that is not: {first}." + (" Some are missing." if missing else "")
        return Verdict(exercise.id, "wrong", says)

    def _near(self, got, values, size=1):
        """Whether each number is near enough. size: of the numbers, where larger may be rounder."""
        within = max(self.tolerance, min(self.tolerance, 0.005) * size)
        with np.errstate(invalid="ignore"):
            return (np.abs(got - values) <= within) | (got == values)

    def _same(self, got, values, size=1):
        return bool(self._near(got, values, size).all())


def _size(values):
    """That of the largest finite number, 1 at least: percent come with fewer decimals."""
    return max(1, np.abs(values[np.isfinite(values)]).max(initial=0))


def _in_words(x):
    return ", ".join(f"{round(float(each), 3) + 0.0:g}" for each in x.flat)


def _sentence(error):
    text = str(error)
    return text[:1].upper() + text[1:] + "."


# ---- a choice ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Choice:
    """One of several options, named by its letter: "a" is the first.

    options: of the class `Option`; one has no mistake: the right one.
    """

    options: tuple

    def mistakes(self):
        return tuple(option.mistake for option in self.options if option.mistake)

    def letters(self):
        return "abcdefghij"[: len(self.options)]

    def look(self, exercise, answer):
        letters = self.letters()
        if is_missing(answer):
            return Verdict(exercise.id, "not attempted", f"Choose one of {', '.join(letters)}.")
        letter = answer.strip(" .()").lower() if isinstance(answer, str) else None
        if not letter or len(letter) > 1 or letter not in letters:
            got = _short(answer) if isinstance(answer, str) else what(answer)
            says = f'A letter is expected, one of {", ".join(letters)}, as in "a"; got {got}.'
            return Verdict(exercise.id, "wrong type", says)
        option = self.options[letters.index(letter)]
        kind = "known mistake" if option.mistake else "right"
        return Verdict(exercise.id, kind, option.says, mistake=option.mistake)


# ---- several answers -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Items:
    """Several answers in one: `{name: checker}`. A reader hands over a dictionary, or a sequence.

    The verdict is that of the first that is not right.
    """

    parts: Mapping

    def mistakes(self):
        return tuple(
            dict.fromkeys(name for part in self.parts.values() for name in part.mistakes())
        )

    def look(self, exercise, answer):
        given = self._by_name(answer)
        if isinstance(given, str):
            kind = "not attempted" if is_missing(answer) else "wrong type"
            return Verdict(exercise.id, kind, given)
        verdicts = {name: part.look(exercise, given[name]) for name, part in self.parts.items()}
        kinds = [verdict.kind for verdict in verdicts.values()]
        if set(kinds) == {"not attempted"}:
            return Verdict(exercise.id, "not attempted", "Put your answers in place of the dots.")
        count = f"{sum(map(bool, verdicts.values()))} of {len(kinds)} are right."
        for name, verdict in sorted(
            verdicts.items(), key=lambda item: item[1].kind == "not attempted"
        ):
            if not verdict:
                kind = "wrong" if verdict.kind == "not attempted" else verdict.kind
                says = f"{count} {name}: {verdict.says}"
                return Verdict(exercise.id, kind, says, verdict.details, verdict.mistake)
        says = " ".join(f"{name}: {verdict.says}" for name, verdict in verdicts.items())
        return Verdict(exercise.id, "right", says)

    def _by_name(self, answer):
        """The answers by their names, or what is the matter with them."""
        names = ", ".join(self.parts)
        if is_missing(answer):
            return f"Hand over {names}."
        if isinstance(answer, Mapping):
            missing = [name for name in self.parts if name not in answer]
            if missing:
                return f"The answers of {names} are expected; {', '.join(missing)} is not there."
            return answer
        letters = self._letters(answer)
        if letters:
            return letters
        if isinstance(answer, str) or not hasattr(answer, "__len__"):
            return f"The answers of {names} are expected, got {what(answer)}."
        if len(answer) != len(self.parts):
            return f"{len(self.parts)} answers are expected, of {names}; got {len(answer)}."
        return dict(zip(self.parts, answer))

    def _letters(self, answer):
        """The letters of a string such as "a, c, b" or "acb" by their names, or None."""
        if not isinstance(answer, str) or not all(
            isinstance(p, Choice) for p in self.parts.values()
        ):
            return None
        letters = [each for each in answer if each not in " ,;"]
        return dict(zip(self.parts, letters)) if len(letters) == len(self.parts) else None


# ---- something designed --------------------------------------------------------------------------


class Rule(NamedTuple):
    """Something a design must do.

    says: what is the matter where it does not. test: a function of the design's parts that returns
    None, or what to look at, in words. mistake: its name, where a slip is behind it.
    """

    says: str
    test: Callable
    mistake: str | None = None


@dataclass(frozen=True, eq=False)
class Design:
    """Matrices, numbers or functions of the reader's own making that must obey rules.

    rules: of the class `Rule`; the first that is broken gives the verdict. shapes: by the name of
    each part its shape, with None for any size, or "function" for a part that is one. finite:
    whether infinite numbers are refused before the rules see them. rest: where each part is looked
    at by itself, a function that gives parts to stand in for those still missing.
    """

    shapes: Mapping
    rules: tuple
    finite: bool = True
    rest: Callable | None = None

    def mistakes(self):
        return tuple(dict.fromkeys(rule.mistake for rule in self.rules if rule.mistake))

    def look(self, exercise, answer):
        names = ", ".join(self.shapes)
        parts = (answer,) if len(self.shapes) == 1 else answer
        listed = isinstance(parts, tuple | list)
        if is_missing(answer) or (listed and all(map(is_missing, parts))):
            return Verdict(exercise.id, "not attempted", f"Hand over {names}.")
        if listed and any(map(is_missing, parts)):
            return self._begun(exercise, parts)
        if not isinstance(parts, tuple | list | Mapping) or len(parts) != len(self.shapes):
            says = f"{len(self.shapes)} things are expected: {names}; got {what(answer)}."
            return Verdict(exercise.id, "wrong type", says)
        if isinstance(parts, Mapping):
            parts = [parts.get(name) for name in self.shapes]
        fit = []
        for part, (name, shape) in zip(parts, self.shapes.items()):
            found, kind, says = _fit(part, name, shape, self.finite)
            if says:
                return Verdict(exercise.id, kind, says)
            fit.append(found)
        if _is_stub(fit, exercise, self.shapes):
            return Verdict(exercise.id, "not attempted", "This is still what was given.")
        return self._ruled(exercise, fit)

    def _begun(self, exercise, parts):
        """The verdict where some parts are missing, and others are not."""
        there, missing = [], []
        for name, part in zip(self.shapes, parts):
            (missing if is_missing(part) else there).append(name)
        says = f"Still missing: {', '.join(missing)}."
        if not self.rest or len(parts) != len(self.shapes):
            return Verdict(exercise.id, "not attempted", says)
        filled = [rest if is_missing(part) else part for part, rest in zip(parts, self.rest())]
        verdict = self.look(exercise, filled)
        if not verdict:
            return verdict
        return Verdict(exercise.id, "wrong", f"Right so far: {', '.join(there)}. {says}")

    def _ruled(self, exercise, parts):
        for rule in self.rules:
            found = rule.test(*parts)
            if found is not None:
                kind = "known mistake" if rule.mistake else "wrong"
                details = (("Look at", found),) if found else ()
                return Verdict(exercise.id, kind, rule.says, details, rule.mistake)
        return Verdict(exercise.id, "right", "It does all that it should.")


def _fit(part, name, shape, finite=True):
    """The part as its rules take it, or what kind of verdict it gets and why."""
    if shape == "function":
        if callable(part) and not isinstance(part, type):
            return part, None, None
        return None, "wrong type", f"{name} must be a function, got {what(part)}."
    try:
        array = as_array(part)
    except TypeError as error:
        return None, "wrong type", f"{name}: {_sentence(error)}"
    if np.isnan(array).all() and array.size:
        return None, "not attempted", f"{name} is still to come."
    if len(array.shape) != len(shape) or any(
        want not in (None, have) for have, want in zip(array.shape, shape)
    ):
        wanted = tuple("any" if size is None else size for size in shape)
        says = f"{name} must have shape {wanted}".replace("'", "")
        return None, "wrong shape", f"{says}, got {array.shape}."
    if np.isnan(array).any():
        where = np.argwhere(np.isnan(array))[0].tolist()
        return None, "wrong", f"{name}: the number at {where} is missing or NaN."
    if finite and not np.isfinite(array).all():
        return None, "wrong", f"{name} must hold finite numbers, got {_short(part)}."
    return array, None, None


def _is_stub(parts, exercise, shapes):
    given = value_of(exercise.stub)
    given = (given,) if len(shapes) == 1 else given
    return all(map(_same_part, parts, given))


def _same_part(part, given):
    if callable(part):
        return is_stub(part, given) if callable(given) else False
    try:
        given = as_array(given)
    except TypeError:
        return False
    return np.array_equal(part, given)
