"""What laws are made of, and the two that hold for functions of every kind."""

from functools import wraps
from typing import NamedTuple

import numpy as np

# How far rounding may take an output, as a share of the largest value that went in.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}


class CounterExample(NamedTuple):
    """A law that fails: its name, the inputs, where in the output, what was expected, what came."""

    law: str
    inputs: dict
    where: str
    expected: object
    got: object

    def __str__(self):
        inputs = ", ".join(f"{name}={one_line(x)}" for name, x in self.inputs.items())
        expected, got = both_in_a_line(self.expected, self.got)
        return f"{self.law}: {self.where} must be {expected}, got {got}; with {inputs}"


def smallest_counterexample(law, function, inputs):
    """The first of `inputs` with which `function` breaks `law`, or None.

    inputs: pairs of arguments and a mask or None, from small to large: `attention_inputs()` for a
    law of attention, `layer_inputs(d_model)` for a law of layers, and so on.

    >>> from qkvlib.laws import attention_inputs, large_scores_stay_finite
    >>> def no_shift(query, key, value, *, mask=None):
    ...     with np.errstate(over="ignore", invalid="ignore"):
    ...         weights = np.exp(query @ np.swapaxes(key, -2, -1))
    ...         return weights / weights.sum(-1, keepdims=True) @ value
    >>> smallest_counterexample(large_scores_stay_finite, no_shift, attention_inputs()).got
    nan
    """
    for arguments, mask in inputs:
        found = law(function, *arguments, **({} if mask is None else {"mask": mask}))
        if found is not None:
            return found
    return None


# ---- what every output must be -------------------------------------------------------------------


class _Unfit(Exception):
    """An output that no law can look at; `args[0]` is the counter-example."""


def law_of(shape, *names):
    """Make a law of outputs fail for what is no array of numbers, or one of another shape.

    shape: what is expected, a function of the arguments and of the output. names: of the
    arguments; without them those of attention or of a layer.
    """

    def make(law):
        @wraps(law)
        def with_fit_outputs(function, *arguments, **mask):
            def checked(*arguments, **others):
                output = function(*arguments, **others)
                found = misfit(output, shape, arguments)
                if found:
                    inputs = dict(zip(names, arguments)) or named(*arguments, others.get("mask"))
                    raise _Unfit(CounterExample(law.__name__, inputs, *found))
                return output

            try:
                return law(checked, *arguments, **mask)
            except _Unfit as unfit:
                return unfit.args[0]

        return with_fit_outputs

    return make


def misfit(output, shape, arguments):
    """Where an output is not what it should be, what was expected, what came; None if it is."""
    is_array = isinstance(output, np.ndarray)
    if not is_array or output.dtype.kind not in "biuf":
        got = output.dtype if is_array else type(output).__name__
        return "the output", "a NumPy array of real numbers", got
    expected = shape(*arguments, output)
    return None if output.shape == expected else ("the shape", expected, output.shape)


def _same_tokens(*arrays_and_output):
    """The shape of what attention or a layer puts out; a layer chooses its width."""
    *arrays, output = arrays_and_output
    if len(arrays) == 3:
        return output_shape(*arrays)
    return (*arrays[0].shape[:-1], *output.shape[-1:])


# ---- laws of every function ----------------------------------------------------------------------


def arguments_stay_as_they_are(function, *arrays, mask=None):
    """Neither the arrays nor the mask that are passed in are changed. For layers too."""
    before = named(*arrays, mask)
    after = {name: None if x is None else x.copy() for name, x in before.items()}
    *given, given_mask = after.values()
    function(*given, **({} if mask is None else {"mask": given_mask}))
    for name, x in before.items():
        if x is not None and x.tobytes() != after[name].tobytes():
            return CounterExample("arguments_stay_as_they_are", before, name, x, after[name])
    return None


@law_of(_same_tokens)
def output_keeps_the_dtype(function, *arrays, mask=None):
    """The output has the dtype of the query, or of a layer's x: float32 stays float32.

    In NumPy 2 `/ np.sqrt(d_k)` breaks this: a float64 number, unlike a Python one, widens an array.
    """
    given = {} if mask is None else {"mask": mask}
    got, expected = function(*arrays, **given).dtype, arrays[0].dtype
    if got == expected:
        return None
    return CounterExample(
        "output_keeps_the_dtype", named(*arrays, mask), "the dtype", expected, got
    )


# ---- what they share -----------------------------------------------------------------------------


def difference(law, inputs, got, expected, *, rows=True, size=1.0, where="the output {at}"):
    """The first place, in the rows named, where `got` is not `expected` up to rounding."""
    tolerance = TOLERANCE.get(got.dtype.name, 0.0) * size
    with np.errstate(invalid="ignore", over="ignore"):  # NaN is not near, nor is infinity
        near = np.abs(got.astype(float) - expected.astype(float)) <= tolerance
    wrong = ~near & np.expand_dims(rows, -1)
    if not wrong.any():
        return None
    at = first(wrong)
    where = where.format(at=at, row=at[:-1])
    return CounterExample(law.__name__, inputs, where, float(expected[at]), float(got[at]))


def allowed_pairs(query, key, mask):
    """The mask written out for all scores."""
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    mask = np.True_ if mask is None else mask
    return np.broadcast_to(mask, (*lead, query.shape[-2], key.shape[-2]))


def reads(query, key, mask):
    """Which queries may attend to something."""
    return allowed_pairs(query, key, mask).any(axis=-1)


def output_shape(query, key, value):
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return (*lead, query.shape[-2], value.shape[-1])


def may_look_at(x, j, mask):
    """Which tokens may attend to token j, from a mask of two axes."""
    return allowed_pairs(x, x, mask)[..., j]


def with_another_token(x, j):
    """x with other contents in token j: random ones, for a norm takes a constant away again."""
    x = x.copy()
    x[..., j, :] += np.random.default_rng(0).uniform(0.5, 1, x.shape[-1]).astype(x.dtype)
    return x


def orders(n):
    """A swap of the first two and a rotation: together they make every order of n things."""
    swap, rotation = list(range(n)), [*range(1, n), 0]
    swap[:2] = swap[1::-1]
    return swap, rotation


def take(mask, order, axis):
    """The mask in another order; a mask that is one for all rows or columns stays."""
    if mask is None or mask.shape[axis] == 1:
        return mask
    return np.take(mask, order, axis=axis)


def size(x):
    """The largest absolute value."""
    return float(np.abs(x).max(initial=0))


def first(wrong):
    """The first index where an array is True."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def named(*arrays):
    """The arguments by their names; the mask comes last."""
    names = ("x", "mask") if len(arrays) == 2 else ("query", "key", "value", "mask")
    return dict(zip(names, arrays))


def small_integers(generator, lead, largest=3):
    def draw(*shape):
        return generator.integers(-largest, largest + 1, (*lead, *shape)).astype(float)

    return draw


def both_in_a_line(expected, got):
    """Two numbers in six digits if these tell them apart; all else as it is."""
    if isinstance(expected, float) and isinstance(got, float):
        short = tuple(str(float(f"{x:.6g}")) for x in (expected, got))
        if short[0] != short[1]:
            return short
    return one_line(expected), one_line(got)


def one_line(x):
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return str(x)
    if x.size > 40:
        return f"an array of shape {x.shape}"
    return " ".join(np.array2string(x, separator=", ").split())
