"""Laws of `attend(query, key, value, *, mask=None)`."""

import numpy as np

from qkvlib.laws._law import (
    CounterExample,
    allowed_pairs,
    difference,
    first,
    law_of,
    named,
    orders,
    output_shape,
    reads,
    size,
    small_integers,
    take,
)

_law = law_of(lambda query, key, value, output: output_shape(query, key, value))


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
        draw = small_integers(generator, lead)
        yield (draw(n_query, d_k), draw(n_key, d_k), draw(n_key, d_v)), None
        for mask_lead in sorted({(), lead}):
            mask = generator.random((*mask_lead, n_query, n_key)) < 0.6
            mask[..., 0, :] = n_query == 1
            yield (draw(n_query, d_k), draw(n_key, d_k), draw(n_key, d_v)), mask


@_law
def rows_sum_to_one(attend, query, key, value, *, mask=None):
    """The weights of a query sum to 1: values that are all 1 come back as 1.

    Of a query that may attend to nothing `empty_rows_are_zero` speaks. Source: the definition of
    softmax; an output is an average of values.
    """
    shape = output_shape(query, key, value)
    return difference(
        rows_sum_to_one,
        named(query, key, value, mask),
        attend(query, key, np.ones_like(value), mask=mask),
        np.ones(shape),
        rows=reads(query, key, mask),
        where="weights of query {row}, summed,",
    )


@_law
def the_only_key_gives_its_value(attend, query, key, value, *, mask=None):
    """A query that may attend to one key alone gets the value of that key, column by column.

    The mask is made here: one query after the other is left with the next key. Source: the
    softmax of one number is 1.
    """
    n_query, n_key = query.shape[-2], key.shape[-2]
    only = np.arange(n_query) % n_key
    mask = np.arange(n_key) == only[:, None]
    return difference(
        the_only_key_gives_its_value,
        named(query, key, value, mask),
        attend(query, key, value, mask=mask),
        np.broadcast_to(value[..., only, :], output_shape(query, key, value)),
        size=size(value),
    )


@_law
def empty_rows_are_zero(attend, query, key, value, *, mask=None):
    """A query that may attend to nothing gets zeros. Here the first query is forbidden all keys.

    Source: a convention, for softmax has no answer there. Zero is the sum of no values, and what
    torch's fused attention returns; NaN or an average over all keys would spoil what comes after.
    """
    mask = allowed_pairs(query, key, mask).copy()
    mask[..., :1, :] = False
    return difference(
        empty_rows_are_zero,
        named(query, key, value, mask),
        attend(query, key, value, mask=mask),
        np.zeros(output_shape(query, key, value)),
        rows=~reads(query, key, mask),
    )


@_law
def forbidden_keys_have_no_influence(attend, query, key, value, *, mask=None):
    """What a key and its value hold cannot change the output of a query that may not attend to it.

    One key after the other gets other finite numbers. Without a mask there is nothing to forbid.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
    """
    forbidden = ~allowed_pairs(query, key, mask)
    before = attend(query, key, value, mask=mask)
    for j in range(key.shape[-2]):
        other_key, other_value = key.copy(), value.copy()
        other_key[..., j, :] = size(key) + 1
        other_value[..., j, :] = 2 * size(value) + 1
        found = difference(
            forbidden_keys_have_no_influence,
            named(query, key, value, mask),
            attend(query, other_key, other_value, mask=mask),
            before,
            rows=forbidden[..., j],
            size=size(value),
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
    mask = allowed_pairs(query, key, mask).copy()
    first_item = (0,) * (mask.ndim - 2)
    mask[(*first_item, slice(None), -1)] = False
    unreached = ~mask.any(axis=-2)[..., None]
    before = attend(query, key, value, mask=mask)
    for filling in (np.nan, np.inf, -np.inf):
        spoilt_key, spoilt_value = (
            np.where(unreached, x.dtype.type(filling), x) for x in (key, value)
        )
        found = difference(
            unreachable_keys_may_hold_anything,
            named(query, key, value, mask),
            attend(query, spoilt_key, spoilt_value, mask=mask),
            before,
            size=size(value),
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
    for order in orders(query.shape[-2]):
        found = difference(
            permuting_queries_permutes_outputs,
            named(query, key, value, mask),
            attend(query[..., order, :], key, value, mask=take(mask, order, axis=-2)),
            before[..., order, :],
            size=size(value),
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
    for order in orders(key.shape[-2]):
        other_key, other_value = key[..., order, :], value[..., order, :]
        found = difference(
            permuting_keys_with_values_changes_nothing,
            named(query, key, value, mask),
            attend(query, other_key, other_value, mask=take(mask, order, axis=-1)),
            before,
            size=size(value),
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
    return difference(
        shifting_scores_changes_nothing,
        named(query, key, value, mask),
        attend(query, key + key.dtype.type(1), value, mask=mask),
        attend(query, key, value, mask=mask),
        size=size(value),
        where="with all keys moved by 1 the output {at}",
    )


@_law
def every_value_reaches_every_output(attend, query, key, value, *, mask=None):
    """A value reaches each output that may attend to it in every column, and so in every head.

    All values are 0 but one, which is 1; what arrives is its weight. For scores below 30 (in
    float16 below 5), where no weight rounds to 0. Source: exp is positive.
    """
    allowed = allowed_pairs(query, key, mask)
    one = np.zeros_like(value)
    silence = attend(query, key, one, mask=mask)
    for j in range(key.shape[-2]):
        one[..., j, :] = 1
        unheard = (attend(query, key, one, mask=mask) == silence) & allowed[..., j, None]
        one[..., j, :] = 0
        if unheard.any():
            at = first(unheard)
            return CounterExample(
                "every_value_reaches_every_output",
                named(query, key, value, mask),
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
    return difference(
        large_scores_stay_finite,
        named(query * factor, key * factor, value, mask),
        output,
        np.clip(np.nan_to_num(output), lowest, highest),
        rows=reads(query, key, mask),
        size=size(value),
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
    factor = min(np.sqrt(3e4 / (largest or 1)), 6e4 / max(size(query), size(key), 1))
    query, key = ((x * factor).astype(np.float16) for x in (query, key))
    lowest, highest = value.min(-2, keepdims=True), value.max(-2, keepdims=True)
    output = attend(query, key, value, mask=mask)
    return difference(
        half_scores_that_fit_stay_finite,
        named(query, key, value, mask),
        output,
        np.clip(np.nan_to_num(output), lowest, highest),
        rows=reads(query, key, mask),
        size=size(value),
    )


# ---- grad_scores(weights, grad_weights) ----------------------------------------------------------


def gradient_inputs(generator=None):
    """Weights and gradients for the law of the softmax backward. Yields `(weights, grad), None`."""
    generator = np.random.default_rng(0) if generator is None else generator
    for shape in [(1, 2), (2, 3), (2, 4, 5)]:
        weights = generator.random(shape)
        yield (weights / weights.sum(axis=-1, keepdims=True), generator.normal(size=shape)), None


@law_of(lambda weights, grad_weights, output: weights.shape, "weights", "grad_weights")
def gradients_of_scores_sum_to_zero(grad_scores, weights, grad_weights):
    """A row of scores may be moved as a whole and nothing happens: its gradients cancel."""
    totals = grad_scores(weights, grad_weights).sum(axis=-1, keepdims=True)
    named = {"weights": weights, "grad_weights": grad_weights}
    return difference(
        gradients_of_scores_sum_to_zero,
        named,
        totals,
        np.zeros_like(totals),
        size=size(grad_weights),
        where="the gradients of row {row}, summed,",
    )
