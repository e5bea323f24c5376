"""What every right implementation of attention obeys, whoever wrote it.

A law is a function of the implementation under test and of inputs for it. It returns None when
it holds, else a `CounterExample` that says where it fails and how:

>>> from qkvlib.numpy import scaled_dot_product_attention
>>> query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]])
>>> rows_sum_to_one(scaled_dot_product_attention, query, key, value) is None
True
>>> def forgot_to_normalise(query, key, value, *, mask=None):
...     return np.exp(query @ key.T) @ value
>>> print(rows_sum_to_one(forgot_to_normalise, query, np.zeros((2, 1)), value))
rows_sum_to_one: weights of query (0,), summed, must be 1.0, got 2.0; with query=[[1.]], \
key=[[0.], [0.]], value=[[1.], [3.]], mask=None

There are laws of several kinds of function, on plain NumPy arrays, with masks that say True for
"may attend":

- `attend(query, key, value, *, mask=None)`, shapes and mask as in
  `qkvlib.numpy.scaled_dot_product_attention`: `ATTENTION_LAWS`. Of a function that stops at the
  weights make one by `lambda query, key, value, *, mask=None: weights(...) @ value`; of several
  heads that are split, attend and are merged again, one whose widths are `num_heads * d`.
- `layer(x, *, mask=None)`, from tokens to tokens, with masks of two axes: `LAYER_LAWS`.
- `mask(n_query, n_key)`, who may attend to whom: `CAUSAL_MASK_LAWS`.

A function that answers with something else than an array of the right shape breaks every law
that looks at the output. `smallest_counterexample` tries a law on inputs from small to large.

Laws see neither the scale nor the projections: a wrong `1 / sqrt(d_k)` obeys them all. For that
compare with a reference.
"""

from functools import wraps
from typing import NamedTuple

import numpy as np

__all__ = [
    "CounterExample",
    "smallest_counterexample",
    "attention_inputs",
    "layer_inputs",
    "mask_inputs",
    "rows_sum_to_one",
    "empty_rows_are_zero",
    "forbidden_keys_have_no_influence",
    "unreachable_keys_may_hold_anything",
    "permuting_queries_permutes_outputs",
    "permuting_keys_with_values_changes_nothing",
    "shifting_scores_changes_nothing",
    "every_value_reaches_every_output",
    "large_scores_stay_finite",
    "half_scores_that_fit_stay_finite",
    "arguments_stay_as_they_are",
    "output_keeps_the_dtype",
    "permuting_tokens_permutes_outputs",
    "forbidden_tokens_have_no_influence",
    "every_token_influences_every_output",
    "masks_are_boolean",
    "no_query_reads_the_future",
    "every_query_reads_the_past_and_itself",
    "a_query_alone_reads_as_the_last_of_many",
    "ATTENTION_LAWS",
    "LAYER_LAWS",
    "CAUSAL_MASK_LAWS",
]

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
        inputs = ", ".join(f"{name}={_one_line(x)}" for name, x in self.inputs.items())
        return (
            f"{self.law}: {self.where} must be {_one_line(self.expected)}, "
            f"got {_one_line(self.got)}; with {inputs}"
        )


def smallest_counterexample(law, function, inputs):
    """The first of `inputs` with which `function` breaks `law`, or None.

    inputs: pairs of arguments and a mask or None, from small to large: `attention_inputs()` for a
    law of attention, `layer_inputs(d_model)` for a law of layers, and so on.

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


def attention_inputs(generator=None):
    """Inputs for the laws of attention, from one number to batches of heads; small integers.

    Yields `(query, key, value), mask`. Sizes differ from each other where they can, some masks
    have a row that allows nothing. generator: a `numpy.random.Generator`, by default one that
    draws the same inputs each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for lead, n_query, n_key, d_k, d_v in [
        ((), 1, 1, 1, 1),
        ((), 1, 2, 1, 1),
        ((), 2, 2, 1, 1),
        ((), 3, 3, 1, 2),
        ((), 2, 3, 4, 2),
        ((), 4, 4, 2, 3),
        ((3,), 4, 5, 4, 6),
        ((2, 3), 4, 5, 7, 6),
    ]:
        draw = _small_integers(generator, lead)
        yield (draw(n_query, d_k), draw(n_key, d_k), draw(n_key, d_v)), None
        for mask_lead in sorted({(), lead}):
            mask = generator.random((*mask_lead, n_query, n_key)) < 0.6
            mask[..., 0, :] = n_query == 1
            yield (draw(n_query, d_k), draw(n_key, d_k), draw(n_key, d_v)), mask


def layer_inputs(d_model, generator=None):
    """Inputs for the laws of layers, from one token to a batch; small integers.

    Yields `(x,), mask` with `x (..., n, d_model)`. The masks have two axes, which fit with and
    without heads. generator: as in `attention_inputs`.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for lead, n in [((), 1), ((), 2), ((), 3), ((), 5), ((2,), 4), ((3,), 7)]:
        draw = _small_integers(generator, lead, largest=1)
        yield (draw(n, d_model),), None
        yield (draw(n, d_model),), np.tri(n, dtype=bool)
        yield (draw(n, d_model),), np.eye(n, dtype=bool) | (generator.random((n, n)) < 0.5)


def mask_inputs():
    """Sizes for the laws of masks, from small to large. Yields `(n_query, n_key), None`."""
    for sizes in [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (1, 5), (4, 7), (6, 6)]:
        yield sizes, None


# ---- what every output must be -------------------------------------------------------------------


class _Unfit(Exception):
    """An output that no law can look at; `args[0]` is the counter-example."""


def _law_of(shape, *names):
    """Make a law of outputs fail for what is no array of numbers, or one of another shape.

    shape: what is expected, a function of the arguments and of the output. names: of the
    arguments; without them those of attention or of a layer.
    """

    def make(law):
        @wraps(law)
        def with_fit_outputs(function, *arguments, **mask):
            def checked(*arguments, **mask):
                output = function(*arguments, **mask)
                found = _misfit(output, shape, arguments)
                if found:
                    named = dict(zip(names, arguments)) or _named(*arguments, mask.get("mask"))
                    raise _Unfit(CounterExample(law.__name__, named, *found))
                return output

            try:
                return law(checked, *arguments, **mask)
            except _Unfit as unfit:
                return unfit.args[0]

        return with_fit_outputs

    return make


def _misfit(output, shape, arguments):
    """Where an output is not what it should be, what was expected, what came; None if it is."""
    is_array = isinstance(output, np.ndarray)
    if not is_array or output.dtype.kind not in "biuf":
        got = output.dtype if is_array else type(output).__name__
        return "the output", "a NumPy array of real numbers", got
    expected = shape(*arguments, output)
    return None if output.shape == expected else ("the shape", expected, output.shape)


@_law_of
def _law(*arrays_and_output):
    """The shape of what attention or a layer puts out; a layer chooses its width."""
    *arrays, output = arrays_and_output
    if len(arrays) == 3:
        return _output_shape(*arrays)
    return (*arrays[0].shape[:-1], *output.shape[-1:])


_law_of_masks = _law_of(lambda n_query, n_key, mask: (n_query, n_key), "n_query", "n_key")


# ---- laws of attention ---------------------------------------------------------------------------


@_law
def rows_sum_to_one(attend, query, key, value, *, mask=None):
    """The weights of a query sum to 1: values that are all 1 come back as 1.

    Of a query that may attend to nothing `empty_rows_are_zero` speaks. Source: the definition of
    softmax; an output is an average of values.
    """
    shape = _output_shape(query, key, value)
    return _difference(
        rows_sum_to_one,
        _named(query, key, value, mask),
        attend(query, key, np.ones_like(value), mask=mask),
        np.ones(shape),
        rows=_reads(query, key, mask),
        where="weights of query {row}, summed,",
    )


@_law
def empty_rows_are_zero(attend, query, key, value, *, mask=None):
    """A query that may attend to nothing gets zeros. Here the first query is forbidden all keys.

    Source: a convention, for softmax has no answer there. Zero is the sum of no values, and what
    torch's fused attention returns; NaN or an average over all keys would spoil what comes after.
    """
    mask = _allowed(query, key, mask).copy()
    mask[..., :1, :] = False
    return _difference(
        empty_rows_are_zero,
        _named(query, key, value, mask),
        attend(query, key, value, mask=mask),
        np.zeros(_output_shape(query, key, value)),
        rows=~_reads(query, key, mask),
    )


@_law
def forbidden_keys_have_no_influence(attend, query, key, value, *, mask=None):
    """What a key and its value hold cannot change the output of a query that may not attend to it.

    One key after the other gets other finite numbers. Without a mask there is nothing to forbid.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
    """
    forbidden = ~_allowed(query, key, mask)
    before = attend(query, key, value, mask=mask)
    for j in range(key.shape[-2]):
        other_key, other_value = key.copy(), value.copy()
        other_key[..., j, :] = _size(key) + 1
        other_value[..., j, :] = 2 * _size(value) + 1
        found = _difference(
            forbidden_keys_have_no_influence,
            _named(query, key, value, mask),
            attend(query, other_key, other_value, mask=mask),
            before,
            rows=forbidden[..., j],
            size=_size(value),
            where=f"after another key {j} the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def unreachable_keys_may_hold_anything(attend, query, key, value, *, mask=None):
    """A key to which no query may attend may even hold NaN or infinity. Here it is the last one.

    In a batch it is closed to the first item alone; other items may read their own last key.
    Source: a convention. Padding is memory that nobody filled, and 0 * NaN is NaN.
    """
    mask = _allowed(query, key, mask).copy()
    first_item = (0,) * (mask.ndim - 2)
    mask[(*first_item, slice(None), -1)] = False
    unreached = ~mask.any(axis=-2)[..., None]
    before = attend(query, key, value, mask=mask)
    for filling in (np.nan, np.inf, -np.inf):
        spoilt_key, spoilt_value = (
            np.where(unreached, x.dtype.type(filling), x) for x in (key, value)
        )
        found = _difference(
            unreachable_keys_may_hold_anything,
            _named(query, key, value, mask),
            attend(query, spoilt_key, spoilt_value, mask=mask),
            before,
            size=_size(value),
            where=f"with {filling} in keys that nobody may read the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def permuting_queries_permutes_outputs(attend, query, key, value, *, mask=None):
    """Queries do not see each other: in another order they get the same outputs in that order.

    Tried with a swap of the first two and with a rotation, which together make every order.
    """
    before = attend(query, key, value, mask=mask)
    for order in _orders(query.shape[-2]):
        found = _difference(
            permuting_queries_permutes_outputs,
            _named(query, key, value, mask),
            attend(query[..., order, :], key, value, mask=_take(mask, order, axis=-2)),
            before[..., order, :],
            size=_size(value),
            where=f"for queries in the order {order} the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def permuting_keys_with_values_changes_nothing(attend, query, key, value, *, mask=None):
    """Attention reads a set: the order in which keys stand with their values says nothing.

    Source: Lee et al. 2019, "Set Transformer", section 3.1.
    """
    before = attend(query, key, value, mask=mask)
    for order in _orders(key.shape[-2]):
        other_key, other_value = key[..., order, :], value[..., order, :]
        found = _difference(
            permuting_keys_with_values_changes_nothing,
            _named(query, key, value, mask),
            attend(query, other_key, other_value, mask=_take(mask, order, axis=-1)),
            before,
            size=_size(value),
            where=f"for keys in the order {order} the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def shifting_scores_changes_nothing(attend, query, key, value, *, mask=None):
    """Softmax sees differences: a constant added to a row of scores changes nothing.

    The constant comes by the keys: all of them move by 1, and with them a query's scores by the
    sum of its numbers. For scores below 30, where rounding stays small; a softcap breaks this law.
    Source: exp(s + c) / sum(exp(s + c)) = exp(s) / sum(exp(s)).
    """
    return _difference(
        shifting_scores_changes_nothing,
        _named(query, key, value, mask),
        attend(query, key + key.dtype.type(1), value, mask=mask),
        attend(query, key, value, mask=mask),
        size=_size(value),
        where="with all keys moved by 1 the output {at}",
    )


@_law
def every_value_reaches_every_output(attend, query, key, value, *, mask=None):
    """A value reaches each output that may attend to it in every column, and so in every head.

    All values are 0 but one, which is 1; what arrives is its weight. For scores below 30 (in
    float16 below 5), where no weight rounds to 0. Source: exp is positive.
    """
    allowed = _allowed(query, key, mask)
    one = np.zeros_like(value)
    silence = attend(query, key, one, mask=mask)
    for j in range(key.shape[-2]):
        one[..., j, :] = 1
        unheard = (attend(query, key, one, mask=mask) == silence) & allowed[..., j, None]
        one[..., j, :] = 0
        if unheard.any():
            at = _first(unheard)
            return CounterExample(
                "every_value_reaches_every_output",
                _named(query, key, value, mask),
                f"what value {j} adds to the output {at}",
                "more than 0",
                0.0,
            )
    return None


@_law
def large_scores_stay_finite(attend, query, key, value, *, mask=None):
    """With scores of 10000 the output is still an average of the values, not infinite, not NaN.

    Source: Goodfellow et al. 2016, "Deep Learning", section 4.1. exp(10000) is infinite in every
    dtype; what helps is to subtract the row's maximum.
    """
    largest = np.abs(query @ np.swapaxes(key, -2, -1)).max(initial=0)
    factor = query.dtype.type(np.sqrt(1e4 / largest) if largest else 1)
    output = attend(query * factor, key * factor, value, mask=mask)
    lowest, highest = value.min(-2, keepdims=True), value.max(-2, keepdims=True)
    return _difference(
        large_scores_stay_finite,
        _named(query * factor, key * factor, value, mask),
        output,
        np.clip(np.nan_to_num(output), lowest, highest),
        rows=_reads(query, key, mask),
        size=_size(value),
    )


@_law
def half_scores_that_fit_stay_finite(attend, query, key, value, *, mask=None):
    """In float16 a score that fits into it once it is scaled does no harm before it is.

    The largest scaled score is 30000, so from a d_k of 5 on its product of query and key is more
    than the 65504 that float16 holds. Source: scale * (query key^T) = (scale * query) key^T.
    """
    query, key, value = (x.astype(np.float16) for x in (query, key, value))
    products = query.astype(float) @ np.swapaxes(key, -2, -1).astype(float)
    largest = np.abs(products).max(initial=0) / np.sqrt(query.shape[-1])
    factor = min(np.sqrt(3e4 / (largest or 1)), 6e4 / max(_size(query), _size(key), 1))
    query, key = ((x * factor).astype(np.float16) for x in (query, key))
    lowest, highest = value.min(-2, keepdims=True), value.max(-2, keepdims=True)
    output = attend(query, key, value, mask=mask)
    return _difference(
        half_scores_that_fit_stay_finite,
        _named(query, key, value, mask),
        output,
        np.clip(np.nan_to_num(output), lowest, highest),
        rows=_reads(query, key, mask),
        size=_size(value),
    )


def arguments_stay_as_they_are(function, *arrays, mask=None):
    """Neither the arrays nor the mask that are passed in are changed. For layers too."""
    before = _named(*arrays, mask)
    after = {name: None if x is None else x.copy() for name, x in before.items()}
    *given, given_mask = after.values()
    function(*given, mask=given_mask)
    for name, x in before.items():
        if x is not None and x.tobytes() != after[name].tobytes():
            return CounterExample("arguments_stay_as_they_are", before, name, x, after[name])
    return None


@_law
def output_keeps_the_dtype(function, *arrays, mask=None):
    """The output has the dtype of the query, or of a layer's x: float32 stays float32.

    In NumPy 2 `/ np.sqrt(d_k)` breaks this: a float64 number, unlike a Python one, widens an array.
    """
    got, expected = function(*arrays, mask=mask).dtype, arrays[0].dtype
    if got == expected:
        return None
    return CounterExample(
        "output_keeps_the_dtype", _named(*arrays, mask), "the dtype", expected, got
    )


# ---- laws of layers ------------------------------------------------------------------------------


@_law
def permuting_tokens_permutes_outputs(layer, x, *, mask=None):
    """A layer without positions treats all tokens alike: in another order, the same outputs."""
    before = layer(x, mask=mask)
    for order in _orders(x.shape[-2]):
        other_mask = _take(_take(mask, order, axis=-1), order, axis=-2)
        found = _difference(
            permuting_tokens_permutes_outputs,
            _named(x, mask),
            layer(x[..., order, :], mask=other_mask),
            before[..., order, :],
            size=_size(before),
            where=f"for tokens in the order {order} the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def forbidden_tokens_have_no_influence(layer, x, *, mask=None):
    """What a token holds cannot change the output of another that may not attend to it."""
    before = layer(x, mask=mask)
    for j in range(x.shape[-2]):
        another = np.arange(x.shape[-2]) != j
        found = _difference(
            forbidden_tokens_have_no_influence,
            _named(x, mask),
            layer(_with_another_token(x, j), mask=mask),
            before,
            rows=another & ~_may_look_at(x, j, mask),
            size=_size(before),
            where=f"after another token {j} the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def every_token_influences_every_output(layer, x, *, mask=None):
    """What a token holds changes the output of every token that may attend to it.

    For scores below 10 or so, where no change is lost in rounding.
    """
    before = layer(x, mask=mask)
    for j in range(x.shape[-2]):
        after = layer(_with_another_token(x, j), mask=mask)
        unmoved = (after == before).all(axis=-1) & _may_look_at(x, j, mask)
        if unmoved.any():
            at = _first(unmoved)
            return CounterExample(
                "every_token_influences_every_output",
                _named(x, mask),
                f"after another token {j} the output {at}",
                "changed",
                after[at],
            )
    return None


# ---- laws of masks -------------------------------------------------------------------------------


@_law_of_masks
def masks_are_boolean(mask, n_query, n_key):
    """A mask says True or False, not 1 or 0, not 0 or -inf. Source: a convention."""
    got = mask(n_query, n_key).dtype
    if got.kind == "b":
        return None
    named = {"n_query": n_query, "n_key": n_key}
    return CounterExample("masks_are_boolean", named, "the dtype", np.dtype(bool), got)


@_law_of_masks
def no_query_reads_the_future(mask, n_query, n_key):
    """The last query stands with the last key, each other one place earlier; no later key is open.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
    """
    is_later = np.arange(n_key) > np.arange(n_query)[:, None] + n_key - n_query
    return _allowed_wrongly(no_query_reads_the_future, mask, n_query, n_key, is_later, False)


@_law_of_masks
def every_query_reads_the_past_and_itself(mask, n_query, n_key):
    """A causal mask forbids nothing else: a query reads its own key and all before it."""
    is_later = np.arange(n_key) > np.arange(n_query)[:, None] + n_key - n_query
    law = every_query_reads_the_past_and_itself
    return _allowed_wrongly(law, mask, n_query, n_key, ~is_later, True)


@_law_of_masks
def a_query_alone_reads_as_the_last_of_many(mask, n_query, n_key):
    """With the keys in a cache, one query reads what it would read at the end of them all.

    True of any rule on positions in which the last query stands with the last key.
    """
    last, alone = mask(n_query, n_key)[-1:], mask(1, n_key)
    if np.array_equal(last, alone):
        return None
    law, named = a_query_alone_reads_as_the_last_of_many, {"n_query": 1, "n_key": n_key}
    return CounterExample(law.__name__, named, "the mask", last, alone)


def _allowed_wrongly(law, mask, n_query, n_key, where, expected):
    """The first pair, of those named, for which the mask does not say what is expected."""
    wrong = where & (mask(n_query, n_key).astype(bool) != expected)
    if not wrong.any():
        return None
    at, named = _first(wrong), {"n_query": n_query, "n_key": n_key}
    return CounterExample(law.__name__, named, f"the pair {at}", expected, not expected)


ATTENTION_LAWS = (
    rows_sum_to_one,
    empty_rows_are_zero,
    forbidden_keys_have_no_influence,
    unreachable_keys_may_hold_anything,
    permuting_queries_permutes_outputs,
    permuting_keys_with_values_changes_nothing,
    shifting_scores_changes_nothing,
    every_value_reaches_every_output,
    large_scores_stay_finite,
    half_scores_that_fit_stay_finite,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of `attend(query, key, value, *, mask=None)`."""

LAYER_LAWS = (
    permuting_tokens_permutes_outputs,
    forbidden_tokens_have_no_influence,
    every_token_influences_every_output,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of `layer(x, *, mask=None)` without positions."""

CAUSAL_MASK_LAWS = (
    masks_are_boolean,
    no_query_reads_the_future,
    every_query_reads_the_past_and_itself,
    a_query_alone_reads_as_the_last_of_many,
)
"""The laws of `mask(n_query, n_key)`, a causal mask."""


# ---- what they share -----------------------------------------------------------------------------


def _difference(law, inputs, got, expected, *, rows=True, size=1.0, where="the output {at}"):
    """The first place, in the rows named, where `got` is not `expected` up to rounding."""
    tolerance = TOLERANCE.get(got.dtype.name, 0.0) * size
    with np.errstate(invalid="ignore", over="ignore"):  # NaN is not near, nor is infinity
        near = np.abs(got.astype(float) - expected.astype(float)) <= tolerance
    wrong = ~near & np.expand_dims(rows, -1)
    if not wrong.any():
        return None
    at = _first(wrong)
    where = where.format(at=at, row=at[:-1])
    return CounterExample(law.__name__, inputs, where, float(expected[at]), float(got[at]))


def _allowed(query, key, mask):
    """The mask written out for all scores."""
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    mask = np.True_ if mask is None else mask
    return np.broadcast_to(mask, (*lead, query.shape[-2], key.shape[-2]))


def _reads(query, key, mask):
    """Which queries may attend to something."""
    return _allowed(query, key, mask).any(axis=-1)


def _output_shape(query, key, value):
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return (*lead, query.shape[-2], value.shape[-1])


def _may_look_at(x, j, mask):
    """Which tokens may attend to token j, from a mask of two axes."""
    return _allowed(x, x, mask)[..., j]


def _with_another_token(x, j):
    """x with other contents in token j: random ones, for a norm takes a constant away again."""
    x = x.copy()
    x[..., j, :] += np.random.default_rng(0).uniform(0.5, 1, x.shape[-1]).astype(x.dtype)
    return x


def _orders(n):
    """A swap of the first two and a rotation: together they make every order of n things."""
    swap, rotation = list(range(n)), [*range(1, n), 0]
    swap[:2] = swap[1::-1]
    return swap, rotation


def _take(mask, order, axis):
    """The mask in another order; a mask that is one for all rows or columns stays."""
    if mask is None or mask.shape[axis] == 1:
        return mask
    return np.take(mask, order, axis=axis)


def _size(x):
    """The largest absolute value."""
    return float(np.abs(x).max(initial=0))


def _first(wrong):
    """The first index where an array is True."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _named(*arrays):
    """The arguments by their names; the mask comes last."""
    names = ("x", "mask") if len(arrays) == 2 else ("query", "key", "value", "mask")
    return dict(zip(names, arrays))


def _small_integers(generator, lead, largest=3):
    def draw(*shape):
        return generator.integers(-largest, largest + 1, (*lead, *shape)).astype(float)

    return draw


def _one_line(x):
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return str(x)
    if x.size > 40:
        return f"an array of shape {x.shape}"
    return " ".join(np.array2string(x, separator=", ").split())
