"""Laws of attention that reads piece by piece: with a cache, or in chunks."""

import numpy as np

from qkvlib.laws._law import CounterExample, difference, law_of, size, small_integers

_law = law_of(lambda query, key, value, sizes, output: value.shape, "query", "key", "value")


def step_inputs(generator=None):
    """Tokens for the laws of reading on, from small to large; small integers.

    Yields `(query, key, value), None`, all of the same tokens, with an even d_k.
    generator: a `numpy.random.Generator`, by default one that draws the same each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for lead, n, d_k, d_v in [((), 2, 2, 1), ((), 3, 2, 1), ((), 4, 4, 3), ((3,), 6, 4, 5)]:
        draw = small_integers(generator, lead, largest=2)
        yield (draw(n, d_k), draw(n, d_k), draw(n, d_v)), None


@_law
def pieces_read_as_the_whole(read, query, key, value):
    """However the tokens are cut into pieces, read one after the other they give the same.

    read: a function of query, key, value and of the sizes of the pieces, with a cache inside.
    """
    n = query.shape[-2]
    whole = read(query, key, value, (n,))
    for sizes in ((1,) * n, (n - 1, 1), (1, n - 1)):
        named = {"query": query, "key": key, "value": value}
        found = difference(
            pieces_read_as_the_whole,
            named,
            read(query, key, value, sizes),
            whole,
            size=size(value),
            where=f"in pieces of {sizes} tokens the output {{at}}",
        )
        if found:
            return found
    return None


@_law
def no_output_waits_for_later_tokens(read, query, key, value):
    """What comes out for the tokens so far is what would come out if there were no more."""
    n = query.shape[-2]
    named = {"query": query, "key": key, "value": value}
    return difference(
        no_output_waits_for_later_tokens,
        named,
        read(query, key, value, (n,))[..., :-1, :],
        read(query[..., :-1, :], key[..., :-1, :], value[..., :-1, :], (n - 1,)),
        size=size(value),
    )


# ---- merge((m, l, acc), (m, l, acc)) -------------------------------------------------------------


def part_inputs(generator=None):
    """Scores and values for the laws of merging, from small to large.

    Yields `(scores, value), None`: scores `(n_query, n_key)` below 0, larger in the second half of
    the keys; -inf in the first row's first half and in all of the second row.
    generator: as in `step_inputs`.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for n_query, n_key, d_v in [(2, 2, 1), (3, 4, 2), (2, 7, 3)]:
        scores = generator.normal(size=(n_query, n_key)) * 3
        scores -= 20
        scores[:, n_key // 2 :] += 5
        scores[0, : n_key // 2] = -np.inf
        scores[1] = -np.inf
        yield (scores, generator.normal(size=(n_key, d_v))), None


def state(scores, value):
    """What an online softmax knows after some keys: `(m, l, acc)`, for each query.

    m `(n_query, 1)`: the largest score; l `(n_query, 1)`: the sum of the exponentials of scores
    less m; acc `(n_query, d_v)`: the sum of the values, each times its exponential. Where all
    scores are -inf, m is -inf, and l and acc are 0.
    Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3.
    """
    m = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(m == -np.inf, 0, m))
    return m, exponentials.sum(axis=-1, keepdims=True), exponentials @ value


def merged_parts_are_the_whole(merge, scores, value):
    """What is known after two parts of the keys, merged, is what is known after all of them."""
    law, half = merged_parts_are_the_whole, len(value) // 2
    merged = merge(state(scores[:, :half], value[:half]), state(scores[:, half:], value[half:]))
    return _other_state(law, scores, value, merged, state(scores, value))


def the_order_of_parts_does_not_matter(merge, scores, value):
    """The second part merged with the first is the first with the second."""
    half = len(value) // 2
    parts = state(scores[:, :half], value[:half]), state(scores[:, half:], value[half:])
    law, expected = the_order_of_parts_does_not_matter, merge(*parts)
    return _other_state(law, scores, value, merge(*parts[::-1]), expected)


def an_empty_part_adds_nothing(merge, scores, value):
    """A part of which no query may read anything leaves the other as it is."""
    all_of_it, nothing = state(scores, value), state(np.full_like(scores, -np.inf), value)
    merged = merge(all_of_it, nothing)
    return _other_state(an_empty_part_adds_nothing, scores, value, merged, all_of_it)


def _other_state(law, scores, value, got, expected):
    """The first number of a state that is not what is expected."""
    named = {"scores": scores, "value": value}
    for name, x, y in zip(("m", "l", "acc"), got, expected, strict=True):
        if np.shape(x) != np.shape(y):
            shapes = np.shape(y), np.shape(x)
            return CounterExample(law.__name__, named, f"the shape of {name}", *shapes)
        empty = (x == -np.inf) & (y == -np.inf)
        x, y = np.where(empty, 0, x), np.where(empty, 0, y)
        found = difference(law, named, x, y, size=size(y), where=f"{name} at {{at}}")
        if found:
            return found
    return None
