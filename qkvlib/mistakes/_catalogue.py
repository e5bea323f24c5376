"""What a mistake is, what it is a mistake in, and how the one in a function is found."""

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from qkvlib.laws import smallest_counterexample

SUBJECTS = {}
MISTAKES = {}

# How near two answers must be to be the same one, as a share of the largest number in them.
NEAR = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}
LOOSELY = 1e-3  # for a mistake with a number of its own, as -1e10 for -1e9, or in float32


@dataclass(frozen=True)
class Mistake:
    """A wrong variant of a function, and what is known about it.

    name: how it is called everywhere. subject: the name of what it is a variant of. function: the
    variant. looks_right: why one does not see it. law: the law it breaks, None where only a
    comparison with right values shows it. variant_of: the name of another mistake that rests on
    the same misconception. reported: where somebody met it, as "owner/repository#number".
    """

    name: str
    subject: str
    function: Callable
    looks_right: str
    law: Callable | None = None
    variant_of: str | None = None
    reported: str | None = None

    @property
    def says(self):
        """What is wrong, in one line."""
        return inspect.getdoc(self.function)

    @property
    def source(self):
        """The code, without the docstring that would give it away."""
        lines, _ = inspect.getsourcelines(self.function)
        function = ast.parse(textwrap.dedent("".join(lines))).body[0]
        head = lines[function.lineno - 1 : function.body[0].lineno - 1]
        return "".join(head + lines[function.body[0].end_lineno :])


@dataclass(frozen=True, eq=False)
class Subject:
    """A kind of function: what a right one answers, how one is asked, what it obeys.

    signature: how it is called. right: a right one. tiers: rows of probes, from plain inputs to
    extreme ones; a probe is a function of the function under test. laws: by the name of each law
    a function of the function under test that returns a counter-example or None, and an error or
    None. listed: whether it and its mistakes stand in the catalogue; what only one exercise of the
    book asks for does not.
    """

    name: str
    signature: str
    right: Callable
    tiers: tuple
    laws: dict = field(default_factory=dict)
    mistakes: dict = field(default_factory=dict)
    listed: bool = True

    def __post_init__(self):
        if self.listed:
            SUBJECTS[self.name] = self

    def mistake(self, looks_right, **known):
        """Enter a function in the catalogue under its own name, with hyphens."""

        def enter(function):
            name = function.__name__.strip("_").replace("_", "-")
            known_names = MISTAKES if self.listed else self.mistakes
            if name in known_names:
                raise ValueError(f"there is already a mistake called {name}")
            mistake = Mistake(name, self.name, function, looks_right, **known)
            known_names[name] = self.mistakes[name] = mistake
            return function

        return enter

    @cached_property
    def _right_answers(self):
        return self._answers(self.right)

    @cached_property
    def _wrong_answers(self):
        return {name: self._answers(m.function) for name, m in self.mistakes.items()}

    def _told(self, wrong, least=0):
        """How many tiers it takes to see that these answers are wrong; None if they are near."""
        tiers = enumerate(zip(wrong, self._right_answers), start=1)
        return next((count for count, pair in tiers if not _same_tier(*pair, least)), None)

    def _answers(self, function):
        return [[_answer(probe, function) for probe in tier] for tier in self.tiers]

    def _differs(self, answers, *, but):
        """Whether an answer is wrong, leaving out the probes of one kind."""
        return any(
            not isinstance(probe, but) and not near(answer, right)
            for probes, *rows in zip(self.tiers, answers, self._right_answers)
            for probe, answer, right in zip(probes, *rows)
        )


def name_of_mistake(function, subject):
    """The name of the mistake in `function`, or None: it is right, or nobody knows its mistake.

    subject: what the function should be, one of `SUBJECTS`, whose `signature` says how it is
    called. It is asked for its answers to a few probes, from plain to extreme. The mistake is the
    one with the same answers to all of them, up to rounding; else, for a function with several,
    the first in the catalogue that has the same ones up to where it can be told from what is
    right; else the first of which that is so up to a thousandth. A function may answer in NumPy
    arrays, lists or tensors; where it raises, or answers otherwise, it has no answer.

    >>> def attend(query, key, value, *, mask=None):
    ...     scores = np.einsum("...qd,...kd->...qk", query, key)
    ...     weights = np.exp(scores if mask is None else np.where(mask, scores, -np.inf))
    ...     return weights / weights.sum(axis=-1, keepdims=True) @ value
    >>> name_of_mistake(attend, "attention")
    'no-scale'
    """
    return examine(function, subject).mistake


class Examined(NamedTuple):
    """What the probes say of a function.

    right: whether it has the right answers to all. mistake: the name of its mistake, None where it
    is right or nobody knows the mistake. only_its_arguments: whether all is right but what it
    leaves of its arguments.
    """

    right: bool
    mistake: str | None
    only_its_arguments: bool


def examine(function, subject):
    """What `name_of_mistake` finds, and whether a function without a known mistake is right."""
    subject = _subject(subject)
    return examined(subject._answers(function), subject)


def examined(answers, subject):
    """What `examine` finds, of the answers that a function has given to the probes of a `Subject`.

    They may come from a checker that needs them for more than this.
    """
    if _same(answers, subject._right_answers):
        return Examined(True, None, False)
    returned = subject._differs(answers, but=Afterwards)
    return Examined(False, _mistake_with(answers, subject), not returned)


def _mistake_with(answers, subject):
    for least in (0, LOOSELY):
        for name, wrong in subject._wrong_answers.items():
            if subject._told(wrong, least) and _same(answers, wrong, least):
                return name
        for name, wrong in subject._wrong_answers.items():
            told = subject._told(wrong, least)
            if told and _same(answers[:told], wrong[:told], least):
                return name
    return None


def broken_laws(function, subject):
    """The laws of the subject that `function` breaks: `{name: CounterExample}`.

    Inputs at which the function raises say nothing about a law. If there are such, the first
    error stands under the name `an_answer_to_everything`.
    """
    broken = {}
    for name, law in _subject(subject).laws.items():
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            found, error = law(function)
        if error is not None:
            broken.setdefault("an_answer_to_everything", error)
        if found is not None:
            broken[name] = found
    return broken


def table():
    """Which laws each mistake breaks: `{mistake: [law, ...]}`; none where only values show it."""
    return {
        name: list(broken_laws(mistake.function, mistake.subject))
        for name, mistake in MISTAKES.items()
    }


# ---- for the subjects ----------------------------------------------------------------------------


def call(*arguments, **named):
    """The probe that asks a function for its answer to these arguments."""
    return lambda function: function(*deepcopy(arguments), **deepcopy(named))


class Afterwards(NamedTuple):
    """The probe that looks at the arguments after the call."""

    arguments: tuple
    named: dict

    def __call__(self, function):
        given, named = deepcopy((self.arguments, self.named))
        function(*given, **named)
        arrays = (x for x in (*given, *named.values()) if isinstance(x, np.ndarray))
        return np.concatenate([x.ravel() for x in arrays])


def afterwards(*arguments, **named):
    """The probe that looks at these arguments after the call."""
    return Afterwards(arguments, named)


def obeying(laws, inputs, of=lambda function: function):
    """The laws by their names, tried on `inputs()`, from small to large.

    of: makes of the function under test the one that these laws speak of.
    """
    return {law.__name__: lambda f, law=law: _tried(law, of(f), inputs()) for law in laws}


def _tried(law, function, inputs):
    """The smallest counter-example, or None, and the first error, or None."""
    error = None
    for one in inputs:
        try:
            found = smallest_counterexample(law, function, [one])
        except Exception as raised:
            error = error or raised
        else:
            if found is not None:
                return found, error
    return None, error


# ---- answers -------------------------------------------------------------------------------------


def _subject(name):
    if isinstance(name, Subject):
        return name
    if name not in SUBJECTS:
        raise ValueError(f"subject must be one of {', '.join(SUBJECTS)}, got {name!r}")
    return SUBJECTS[name]


def _answer(probe, function):
    """What a function answers to a probe, as an array; None if that is no array of numbers."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            output = probe(function)
            if hasattr(output, "detach"):  # a tensor
                output = output.detach().cpu()
            output = np.asarray(output)
        except Exception:
            return None
    return output if output.dtype.kind in "biuf" else None


def _same(answers, others, least=0):
    return all(_same_tier(*tiers, least) for tiers in zip(answers, others))


def _same_tier(answers, others, least=0):
    return all(near(*pair, least) for pair in zip(answers, others))


def near(answer, other, least=0):
    """Whether two answers are the same up to rounding; NaN is the same as NaN.

    least: how large a share may differ at least, whatever the dtype
    """
    if answer is None or other is None:
        return answer is other
    if answer.dtype.kind in "iu" and other.dtype == np.float64:  # as in a list of whole numbers
        answer = answer.astype(float)
    if other.dtype.kind in "iu" and answer.dtype == np.float64:  # a count that comes as 120.0
        other = other.astype(float)
    if answer.shape != other.shape or answer.dtype != other.dtype:
        return False
    if answer.dtype.kind != "f":
        return np.array_equal(answer, other)
    size = max(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in (answer, other))
    near = max(NEAR[answer.dtype.name], least)
    return np.allclose(answer.astype(float), other.astype(float), near, near * size, True)
