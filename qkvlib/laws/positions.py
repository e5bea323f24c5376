"""Laws of what tells a token where it stands."""

import numpy as np

from qkvlib.laws._law import CounterExample, difference, first, law_of, size

_law = law_of(lambda x, positions, output: x.shape, "x", "positions")


def rotation_inputs(generator=None):
    """Tokens and positions for the laws of rotation, from small to large.

    Yields `(x, positions), None` with `x (n, d_k)`, d_k even, positions `(n,)` whole numbers.
    generator: a `numpy.random.Generator`, by default one that draws the same each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for n, d_k in [(2, 2), (2, 4), (5, 8)]:
        yield (generator.integers(1, 4, (n, d_k)).astype(float), np.arange(n)), None


@_law
def position_0_changes_nothing(rotate, x, positions):
    """What stands at position 0 is not turned. Source: Su et al. 2021, "RoFormer"."""
    nowhere = np.zeros_like(positions)
    named = {"x": x, "positions": nowhere}
    return difference(position_0_changes_nothing, named, rotate(x, nowhere), x, size=size(x))


@_law
def rotating_keeps_lengths(rotate, x, positions):
    """To turn is not to stretch: each row keeps its length. Source: R^T R = 1."""
    before, after = (
        np.linalg.norm(each, axis=-1, keepdims=True) for each in (x, rotate(x, positions))
    )
    named = {"x": x, "positions": positions}
    where = "the length of row {row}"
    return difference(rotating_keeps_lengths, named, after, before, size=size(before), where=where)


@_law
def rotated_scores_know_the_distance_alone(rotate, x, positions):
    """Products of rows stay as they are when all stand 3 places further on.

    Source: Su et al. 2021, "RoFormer", section 3.1.
    """

    def scores(positions):
        turned = rotate(x, positions)
        return turned @ turned.T

    law, here = rotated_scores_know_the_distance_alone, scores(positions)
    named = {"x": x, "positions": positions}
    where = "3 places further on the score {at}"
    return difference(law, named, scores(positions + 3), here, size=size(here), where=where)


@_law
def rotated_scores_know_the_distance(rotate, x, positions):
    """One row at two places has another product with itself than at one: it was turned.

    Source: Su et al. 2021, "RoFormer", section 3.2.2.
    """
    same = np.repeat(x[:1], len(x), axis=0)
    turned = rotate(same, positions)
    products, square = (turned[1:] * turned[:1]).sum(axis=-1), (x[0] ** 2).sum()
    unmoved = np.abs(products - square) < 1e-9 * square
    if not unmoved.any():
        return None
    name, named = "rotated_scores_know_the_distance", {"x": same, "positions": positions}
    where = f"the product of row 0 with row {first(unmoved)[0] + 1}, which is the same one,"
    return CounterExample(name, named, where, f"other than {square}", square)


_law_of_tables = law_of(lambda n, d_model, output: (n, d_model), "n", "d_model")


def table_inputs():
    """Sizes for the laws of tables of positions. Yields `(n, d_model), None`, d_model even."""
    for sizes in [(2, 2), (3, 4), (7, 6)]:
        yield sizes, None


@_law_of_tables
def positions_have_one_length(table, n, d_model):
    """Sine and cosine of one angle have length 1, d_model / 2 pairs of them sqrt(d_model / 2)."""
    squares = (table(n, d_model) ** 2).sum(axis=-1, keepdims=True)
    named, where = {"n": n, "d_model": d_model}, "the sum of squares of row {row}"
    expected = np.full_like(squares, d_model / 2)
    return difference(positions_have_one_length, named, squares, expected, where=where)


@_law_of_tables
def products_know_the_distance_alone(table, n, d_model):
    """The product of two positions depends on how far they are apart: cos(a - b) in each pair.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    positions = table(n, d_model)
    products = positions @ positions.T
    named = {"n": n, "d_model": d_model}
    law, where = products_know_the_distance_alone, "the product {at}, one place further on,"
    return difference(law, named, products[1:, 1:], products[:-1, :-1], size=d_model, where=where)


_law_of_biases = law_of(
    lambda num_heads, n_query, n_key, output: (num_heads, n_query, n_key),
    "num_heads",
    "n_query",
    "n_key",
)


def bias_inputs():
    """Sizes for the laws of biases. Yields `(num_heads, n_query, n_key), None`."""
    for sizes in [(1, 2, 2), (2, 1, 3), (8, 2, 5), (6, 4, 4)]:
        yield sizes, None


@_law_of_biases
def nearer_keys_are_favoured(bias, num_heads, n_query, n_key):
    """In each head a key scores the less the longer ago it was, up to the query's own key.

    Source: Press et al. 2022, "Train Short, Test Long", figure 3.
    """
    found = bias(num_heads, n_query, n_key)
    past = np.arange(n_key - 1) < np.arange(n_query)[:, None] + n_key - n_query
    wrong = (found[..., 1:] <= found[..., :-1]) & past
    if not wrong.any():
        return None
    head, i, j = (int(k) for k in np.argwhere(wrong)[0])
    named = {"num_heads": num_heads, "n_query": n_query, "n_key": n_key}
    where = f"in head {head}, for query {i}, the bias of key {j + 1}"
    expected = f"more than {found[head, i, j]} of key {j}"
    return CounterExample("nearer_keys_are_favoured", named, where, expected, found[head, i, j + 1])


@_law_of_biases
def a_query_alone_is_biased_as_the_last_of_many(bias, num_heads, n_query, n_key):
    """With the keys in a cache one query sees the bias it would see at the end of them all."""
    last, alone = bias(num_heads, n_query, n_key)[:, -1:], bias(num_heads, 1, n_key)
    named = {"num_heads": num_heads, "n_query": 1, "n_key": n_key}
    law = a_query_alone_is_biased_as_the_last_of_many
    return difference(law, named, alone, last, size=n_key)


@_law_of_biases
def heads_have_slopes_of_their_own(bias, num_heads, n_query, n_key):
    """No two heads forget equally fast. Source: Press et al. 2022, section 3."""
    first_keys = bias(num_heads, n_query, n_key)[:, -1, 0]
    if len(set(first_keys.tolist())) == num_heads:
        return None
    name = "heads_have_slopes_of_their_own"
    named = {"num_heads": num_heads, "n_query": n_query, "n_key": n_key}
    return CounterExample(name, named, "the bias of key 0", "another in each head", first_keys)
