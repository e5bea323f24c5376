"""What a reader's function answers, compared with what is right, and the difference in words."""

import inspect

import numpy as np

from qkvlib.book.exercises._answers import shown, what
from qkvlib.mistakes._catalogue import near


def arrays_of(output):
    """The parts of an output as arrays, None for what is no array of numbers."""
    parts = output if isinstance(output, tuple) else (output,)
    return tuple(map(_array, parts))


def _array(part):
    try:
        array = np.asarray(part)
    except Exception:
        return None
    return array if array.dtype.kind in "biuf" else None


def both_as_arrays(got, expected):
    """The parts of two outputs; a list will do for a tuple, and rows in a tuple for an array."""
    if isinstance(expected, tuple) and isinstance(got, list):
        got = tuple(got)
    if not isinstance(expected, tuple) and isinstance(got, tuple):
        rows = _array(list(got))
        got = rows if rows is not None and near(rows, np.asarray(expected)) else got
    return arrays_of(got), arrays_of(expected)


def same(got, expected):
    got, expected = both_as_arrays(got, expected)
    return len(got) == len(expected) and all(map(near, got, expected))


def alike(got, wanted, digits=1e-6):
    """Whether two arrays differ in late digits alone, if they differ."""
    if got is None or wanted is None or near(got, wanted):
        return got is wanted or (got is not None and wanted is not None)
    if got.shape != wanted.shape or not got.dtype == wanted.dtype == np.float64:
        return False
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    return np.allclose(got, wanted, 0, digits * size, equal_nan=True)


def difference(got, expected, case, exercise):
    if got is None:
        says = "It returns nothing. Is there a return in every branch?"
        return "wrong type", says, inputs_shown(case, exercise)
    gots, wanteds = both_as_arrays(got, expected)
    if len(gots) != len(wanteds):
        return "wrong type", _count(gots, wanteds), inputs_shown(case, exercise)
    for place, (one, wanted) in enumerate(zip(gots, wanteds)):
        if near(one, wanted):
            continue
        name = f"Result {place + 1}: " if len(gots) > 1 else ""
        if one is None:
            part = got[place] if isinstance(expected, tuple) else got
            says = f"{name}an array of numbers is expected, got {what(part)}."
            return "wrong type", says[:1].upper() + says[1:], inputs_shown(case, exercise)
        if one.shape != wanted.shape:
            return (
                "wrong shape",
                name + _shapes(one, wanted, case, exercise),
                inputs_shown(case, exercise),
            )
        both = (("Expected", shown(wanted)), ("Got", shown(one)))
        if wanted.dtype == bool and one.dtype != bool:
            says = f"{name}True and False are expected, got numbers ({one.dtype})."
            return "wrong dtype", says, inputs_shown(case, exercise) + both
        if both[0][1] == both[1][1]:  # the digits that differ come later
            both = (("Expected", shown(wanted, digits=12)), ("Got", shown(one, digits=12)))
        if one.dtype != wanted.dtype and np.allclose(one, wanted, 1e-3, equal_nan=True):
            says = f"{name}dtype {wanted.dtype} is expected for these inputs, got {one.dtype}."
            dtypes = (("Expected", str(wanted.dtype)), ("Got", str(one.dtype)))
            return "wrong dtype", says, inputs_shown(case, exercise) + dtypes
        return (
            "wrong",
            f"{name}This is the smallest case that fails.{_hardly_off(one, wanted)}",
            inputs_shown(case, exercise) + both,
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
    for name, x in inputs_by_name(case, exercise).items():
        for axis, size in enumerate(np.shape(x) if isinstance(x, np.ndarray) else ()):
            found.setdefault(size, []).append(f"axis {axis} of {name}")
    return {size: " and ".join(places) for size, places in found.items() if len(places) <= 2}


def inputs_by_name(case, exercise):
    names = list(inspect.signature(exercise.stub).parameters)
    return dict(zip(names, case.arguments)) | case.named


def inputs_shown(case, exercise):
    lines = [_line(name, x) for name, x in inputs_by_name(case, exercise).items()]
    return (("Inputs", "\n".join(lines)),)


def _line(name, x):
    return f"{name} = {_text(x, name)}"


def _text(x, name=""):
    if isinstance(x, tuple) and x:
        return f"({', '.join(map(_text, x))})"
    if hasattr(x, "__code__"):
        return x.__name__
    return shown(x, name) if isinstance(x, np.ndarray) else repr(x)
