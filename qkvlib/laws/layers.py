"""Laws of layers, from tokens to tokens, and of what they are made of."""

import numpy as np

from qkvlib.laws._law import (
    CounterExample,
    difference,
    first,
    law_of,
    may_look_at,
    named,
    orders,
    size,
    small_integers,
    take,
    with_another_token,
)

_law = law_of(lambda x, output: (*x.shape[:-1], *output.shape[-1:]))


def layer_inputs(d_model, generator=None):
    """Inputs for the laws of layers, from one token to a batch; small integers.

    Yields `(x,), mask` with `x (..., n, d_model)`. The masks have two axes, which fit with and
    without heads. generator: as in `attention_inputs`.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for lead, n in [((), 1), ((), 2), ((), 3), ((), 5), ((2,), 4), ((3,), 7)]:
        draw = small_integers(generator, lead, largest=1)
        yield (draw(n, d_model),), None
        yield (draw(n, d_model),), np.tri(n, dtype=bool)
        yield (draw(n, d_model),), np.eye(n, dtype=bool) | (generator.random((n, n)) < 0.5)


@_law
def permuting_tokens_permutes_outputs(layer, x, *, mask=None):
    """A layer without positions treats all tokens alike: in another order, the same outputs."""
    before = layer(x, mask=mask)
    for order in orders(x.shape[-2]):
        other_mask = take(take(mask, order, axis=-1), order, axis=-2)
        found = difference(
            permuting_tokens_permutes_outputs,
            named(x, mask),
            layer(x[..., order, :], mask=other_mask),
            before[..., order, :],
            size=size(before),
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
        found = difference(
            forbidden_tokens_have_no_influence,
            named(x, mask),
            layer(with_another_token(x, j), mask=mask),
            before,
            rows=another & ~may_look_at(x, j, mask),
            size=size(before),
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
        after = layer(with_another_token(x, j), mask=mask)
        unmoved = (after == before).all(axis=-1) & may_look_at(x, j, mask)
        if unmoved.any():
            at = first(unmoved)
            return CounterExample(
                "every_token_influences_every_output",
                named(x, mask),
                f"after another token {j} the output {at}",
                "changed",
                after[at],
            )
    return None


@_law
def tokens_stay_apart(part, x):
    """What a token becomes depends on that token alone: true of all parts but attention.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.3 ("identically").
    """
    before = part(x)
    last = x.shape[-2] - 1
    return difference(
        tokens_stay_apart,
        {"x": x},
        part(with_another_token(x, last)),
        before,
        rows=np.arange(x.shape[-2]) != last,
        size=size(before),
        where="after another last token the output {at}",
    )


@_law
def projections_are_linear(project, x):
    """Twice the tokens, twice what they become, up to the bias, which is what zeros become."""
    bias = project(np.zeros_like(x))
    return difference(
        projections_are_linear,
        {"x": x},
        project(2 * x),
        2 * project(x) - bias,
        size=size(project(x)),
        where="with all numbers doubled the output {at}",
    )


@_law
def feed_forward_is_not_linear(feed_forward, x):
    """Twice the tokens is not twice what they become, or two projections would be one."""
    silence = feed_forward(np.zeros_like(x))
    once, twice = feed_forward(x) - silence, feed_forward(2 * x) - silence
    if size(twice - 2 * once) > 1e-6 * size(once):
        return None
    name, where = "feed_forward_is_not_linear", "the output with all numbers doubled"
    return CounterExample(name, {"x": x}, where, "not simply doubled", twice)


# ---- heads: mha(x, W_Q, W_K, W_V, W_O, num_heads=...) --------------------------------------------


def head_inputs(generator=None):
    """Tokens and weights for the laws of heads, from small to large.

    Yields `(x, W_Q, W_K, W_V, W_O, num_heads), None`: small integers; values are together as wide
    as the model. generator: as in `layer_inputs`.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for lead, n, d_model, h, d_k in [((), 2, 4, 2, 2), ((), 3, 6, 2, 4), ((2,), 4, 12, 3, 5)]:
        draw, weights = (small_integers(generator, where, largest=1) for where in (lead, ()))
        yield (
            (
                draw(n, d_model),
                weights(d_model, h * d_k),
                weights(d_model, h * d_k),
                weights(d_model, d_model),
                weights(d_model, d_model),
                h,
            ),
            None,
        )


_HEADS = ("x", "W_Q", "W_K", "W_V", "W_O")
_law_of_heads = law_of(lambda x, W_Q, W_K, W_V, W_O, y: (*x.shape[:-1], W_O.shape[1]), *_HEADS)


@_law_of_heads
def equal_values_come_back(mha, x, W_Q, W_K, W_V, W_O, num_heads):
    """Where all tokens have one value, its average is that value, whatever the weights.

    Only the first column of x is made to a value here, and it is 1 everywhere.
    Source: the weights of each head sum to 1.
    """
    x = np.where(np.arange(x.shape[-1]) == 0, 1.0, x)
    W_V = np.where(np.arange(len(W_V))[:, None] == 0, W_V, 0.0)
    output = mha(x, W_Q, W_K, W_V, W_O, num_heads=num_heads)
    return difference(
        equal_values_come_back,
        dict(zip(_HEADS, (x, W_Q, W_K, W_V, W_O))),
        output,
        np.broadcast_to(W_V[0] @ W_O, output.shape),
        size=size(W_V) * size(W_O) * len(W_O),
    )


@_law_of_heads
def heads_in_another_order_change_nothing(mha, x, W_Q, W_K, W_V, W_O, num_heads):
    """A head is its columns of W_Q, W_K, W_V and its rows of W_O; which one is first says nothing.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
    """

    def turned(W, axis):
        return np.roll(W, W.shape[axis] // num_heads, axis)

    before = mha(x, W_Q, W_K, W_V, W_O, num_heads=num_heads)
    others = turned(W_Q, 1), turned(W_K, 1), turned(W_V, 1), turned(W_O, 0)
    return difference(
        heads_in_another_order_change_nothing,
        dict(zip(_HEADS, (x, W_Q, W_K, W_V, W_O))),
        mha(x, *others, num_heads=num_heads),
        before,
        size=size(before),
        where="with the last head first the output {at}",
    )


@_law_of_heads
def another_basis_changes_nothing(mha, x, W_Q, W_K, W_V, W_O, num_heads):
    """Only the products of queries and keys count: W_Q twice as large and W_K half is the same.

    More generally W_Q A and W_K A^-T in each head. Source: (W_Q A) (W_K A^-T)^T = W_Q W_K^T.
    """
    before = mha(x, W_Q, W_K, W_V, W_O, num_heads=num_heads)
    return difference(
        another_basis_changes_nothing,
        dict(zip(_HEADS, (x, W_Q, W_K, W_V, W_O))),
        mha(x, 2 * W_Q, W_K / 2, W_V, W_O, num_heads=num_heads),
        before,
        size=size(before),
        where="with W_Q doubled and W_K halved the output {at}",
    )


@_law_of_heads
def every_head_reads_every_column(mha, x, W_Q, W_K, W_V, W_O, num_heads):
    """Each head projects the whole token, not its share of it.

    Heard alone, a head moves with each column of x. All weights are 1 here.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
    """
    W_Q, W_K, W_V = (np.ones_like(W) for W in (W_Q, W_K, W_V))
    rows = len(W_O) // num_heads
    for head in range(num_heads):
        alone = np.where(np.arange(len(W_O))[:, None] // rows == head, np.ones_like(W_O), 0)
        before = mha(x, W_Q, W_K, W_V, alone, num_heads=num_heads)
        for column in range(x.shape[-1]):
            other = x + (np.arange(x.shape[-1]) == column)
            if np.array_equal(mha(other, W_Q, W_K, W_V, alone, num_heads=num_heads), before):
                where = f"what column {column} of x changes in head {head}"
                named = {"x": x, "num_heads": num_heads}
                name = "every_head_reads_every_column"
                return CounterExample(name, named, where, "something", "nothing")
    return None


@_law_of_heads
def an_output_matrix_of_zeros_silences_all(mha, x, W_Q, W_K, W_V, W_O, num_heads):
    """All that a layer writes goes through W_O. Source: `Concat(head_1, ..., head_h) W_O`."""
    output = mha(x, W_Q, W_K, W_V, np.zeros_like(W_O), num_heads=num_heads)
    named = dict(zip(_HEADS, (x, W_Q, W_K, W_V, np.zeros_like(W_O))))
    return difference(an_output_matrix_of_zeros_silences_all, named, output, np.zeros_like(output))


def contributions_sum_to_the_output(contribute, weights, value, W_O):
    """What each head adds, `(h, n, d_out)`, is together what all of them put out side by side.

    contribute: a function of weights `(h, n, n_key)`, value `(h, n_key, d_v)` and
    `W_O (h*d_v, d_out)`. Source: a product with W_O is the sum of products with blocks of it.
    """
    each = np.asarray(contribute(weights, value, W_O))
    h, n, _ = weights.shape
    named = {"weights": weights, "value": value, "W_O": W_O}
    if each.shape != (h, n, W_O.shape[1]):
        law, shape = "contributions_sum_to_the_output", (h, n, W_O.shape[1])
        return CounterExample(law, named, "the shape", shape, each.shape)
    side_by_side = np.concatenate(list(weights @ value), axis=-1) @ W_O
    law, scale = contributions_sum_to_the_output, size(side_by_side)
    return difference(law, named, each.sum(axis=0), side_by_side, size=scale)


def repeated_heads_are_neighbours(repeat, x, repeats):
    """Shared heads stand beside each other, each `repeats` times in a row: `(..., h, n, d)`.

    Source: Ainslie et al. 2023, "GQA", section 2.2.
    """
    law, each = "repeated_heads_are_neighbours", repeat(x, repeats)
    named = {"x": x, "repeats": repeats}
    shape = (*x.shape[:-3], x.shape[-3] * repeats, *x.shape[-2:])
    if np.shape(each) != shape:
        return CounterExample(law, named, "the shape", shape, np.shape(each))
    for head in range(shape[-3]):
        expected = x[..., head // repeats, :, :]
        if not np.array_equal(each[..., head, :, :], expected):
            return CounterExample(law, named, f"head {head}", expected, each[..., head, :, :])
    return None


# ---- two texts: cross(x, source) -----------------------------------------------------------------


def source_inputs(generator=None):
    """Two texts of width 6 for the laws of attention between them. Yields `(x, source), None`."""
    generator = np.random.default_rng(0) if generator is None else generator
    for n, n_source in [(1, 2), (3, 2), (4, 4)]:
        draw = small_integers(generator, (), largest=1)
        yield (draw(n, 6), draw(n_source, 6)), None


@law_of(lambda x, source, output: (*x.shape[:-1], *output.shape[-1:]), "x", "source")
def every_source_token_is_read(cross, x, source):
    """Each token of the source changes what each token that asks gets."""
    before = cross(x, source)
    for j in range(source.shape[-2]):
        after = cross(x, with_another_token(source, j))
        unmoved = (after == before).all(axis=-1)
        if unmoved.any():
            named, where = {"x": x, "source": source}, f"after another token {j} of the source"
            where += f" the output {first(unmoved)}"
            return CounterExample("every_source_token_is_read", named, where, "changed", "the same")
    return None


# ---- blocks: block(x, attend, feed_forward, norm) ------------------------------------------------


def block_inputs():
    """Tokens for the laws of blocks, from small to large. Yields `(x,), None`."""
    for shape in [(1, 1), (2, 3), (2, 4, 5)]:
        yield (np.arange(1.0, 1 + np.prod(shape)).reshape(shape),), None


_law_of_blocks = law_of(lambda x, attend, feed_forward, norm, output: x.shape, "x")


def _says(number):
    return lambda x: np.full_like(x, number)


@_law_of_blocks
def what_parts_say_is_added(block, x):
    """A pre-norm block hands x on as it is, and adds what its parts say: 2 and 3 make x + 5.

    Source: He et al. 2016, "Identity Mappings in Deep Residual Networks", equation 1.
    """
    output = block(x, _says(2.0), _says(3.0), lambda x: x / 2)
    return difference(what_parts_say_is_added, {"x": x}, output, x + 5, size=size(x))


@_law_of_blocks
def parts_read_normed_tokens(block, x):
    """In a pre-norm block both parts are given what the norm made, here 7.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", figure 1.
    """
    read = []

    def part(x):
        read.append(x.copy())
        return np.zeros_like(x)

    block(x, part, part, _says(7.0))
    for got in read:
        found = difference(
            parts_read_normed_tokens, {"x": x}, got, np.full_like(x, 7), where="what a part reads"
        )
        if found:
            return found
    return None


@_law_of_blocks
def feed_forward_reads_what_attention_wrote(block, x):
    """The second part is given x with what the first one added, here x + 2."""
    read = []

    def feed_forward(x):
        read.append(x.copy())
        return np.zeros_like(x)

    block(x, _says(2.0), feed_forward, lambda x: x)
    law = feed_forward_reads_what_attention_wrote
    return difference(law, {"x": x}, read[0], x + 2, size=size(x), where="what it reads at {at}")


@_law_of_blocks
def sums_are_normed(block, x):
    """A post-norm block norms x and what each part said together: doubled, 2 (2 (x + 2) + 3).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.
    """
    output = block(x, _says(2.0), _says(3.0), lambda x: 2 * x)
    return difference(sums_are_normed, {"x": x}, output, 2 * (2 * (x + 2) + 3), size=size(x))
