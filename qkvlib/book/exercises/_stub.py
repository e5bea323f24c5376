"""Whether an answer is begun: what counts as a stub, and as nothing."""

import dis
import inspect
import textwrap

import numpy as np

NOTHING = (..., None, NotImplemented)


def is_missing(answer):
    """Whether something stands where an answer should, such as `...`, or nothing does."""
    return any(answer is nothing for nothing in NOTHING) or (isinstance(answer, str) and not answer)


def value_of(stub):
    """What the text of a stub leaves: the value of its name, or a tuple of those of its names."""
    if not isinstance(stub, str):
        return stub
    space = {"np": np}
    before = set(space)
    exec(stub, space)
    values = [value for name, value in space.items() if name not in before | {"__builtins__"}]
    return values[0] if len(values) == 1 else tuple(values)


def is_stub(function, stub):
    """Whether a function is still the one that was given, or does nothing yet."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    does = [each.opname for each in dis.get_instructions(code)]
    returns_nothing = set(does) <= {"RESUME", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "NOP"}
    if returns_nothing and is_missing(_constant(code)):
        return True
    return any(_print(code, function) == _print(given, stub) for given in _codes(stub))


def _codes(stub):
    """The code of a stub as its file has it, and as a cell of its own has it.

    They differ: Python compiles `np.exp` in another way where it sees that np is a module.
    """
    given = getattr(stub, "__code__", None)
    if given is None:
        return
    yield given
    source = textwrap.dedent(inspect.getsource(stub))
    cell = compile(source, given.co_filename, "exec")
    yield from (each for each in cell.co_consts if inspect.iscode(each))


def _constant(code):
    """What code without any operation returns."""
    last = [each for each in dis.get_instructions(code) if each.opname != "NOP"]
    loads = [each for each in last if each.opname in ("LOAD_CONST", "RETURN_CONST")]
    return loads[-1].argval if loads else None


def _print(code, function=None):
    """What code does, without its place, its names for arguments and its docstring."""
    said = getattr(function, "__doc__", None)
    constants = tuple(
        _print(each) if inspect.iscode(each) else repr(each)
        for each in code.co_consts
        if each is not None and each != said
    )
    return code.co_code, constants, code.co_names
