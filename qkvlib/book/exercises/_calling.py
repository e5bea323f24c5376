"""A reader's function, called: on copies, by position or by name, with arrays or with tensors."""

import inspect
import sys
import time
import traceback
from copy import deepcopy
from typing import NamedTuple

import numpy as np

_THE_BOOK = ("qkvlib.book", "qkvlib.mistakes")


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

    @property
    def axes(self):
        """How many axes the first argument has, 0 if it is no array."""
        return np.ndim(self.arguments[0]) if isinstance(self.arguments[0], np.ndarray) else 0

    @property
    def form(self):
        """Which arguments there are, and how many axes each has."""
        return [*map(np.ndim, self.arguments)], {key: np.ndim(x) for key, x in self.named.items()}


def case(*arguments, **named):
    """A `Case` of these arguments."""
    return Case(arguments, named)


def adapted(function, stub, first):
    """The function, called by position or by name as it takes its arguments, on arrays or tensors.

    stub: names the arguments. first: a case to find out whether it wants tensors.
    """
    on_arrays = _fitted(function, stub)
    error = error_of(on_arrays, first)
    if "torch" in sys.modules and error is not None:
        on_tensors = _on_tensors(on_arrays)
        other = error_of(on_tensors, first)
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


def error_of(function, case):
    try:
        case.asked(function)
    except Exception as error:
        return error
    return None


def is_unfinished(error, answer):
    """Whether the reader raised NotImplementedError: torch raises it too, with a message."""
    raises = "raise " in readers_line(error, answer) if error else False
    return isinstance(error, NotImplementedError) and (raises or not str(error))


def library_functions(function, case):
    """The names of the functions of `qkvlib` that are called, by others, while a case is asked."""
    found = set()

    def watch(frame, event, argument):
        if event == "call" and _of_the_library(frame) and not _of_the_library(frame.f_back):
            found.add(frame.f_code.co_qualname.split(".")[0])

    former = sys.getprofile()
    sys.setprofile(watch)
    try:
        error_of(function, case)
    finally:
        sys.setprofile(former)
    return found


def _of_the_library(frame):
    """Whether a frame is of `qkvlib`, the book left out: exercises hand over functions of it."""
    module = frame.f_globals.get("__name__", "") if frame else ""
    return module.startswith("qkvlib.") and not module.startswith(_THE_BOOK)


def seconds_of(function, case):
    start = time.perf_counter()
    case.asked(function)
    return max(time.perf_counter() - start, 0.001)


def raised(error, answer):
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


def _held_arrays(x):
    """The arrays in nested arguments."""
    if isinstance(x, dict):
        x = tuple(x.values())
    if isinstance(x, tuple | list):
        return [array for each in x for array in _held_arrays(each)]
    return [x] if isinstance(x, np.ndarray) else []
