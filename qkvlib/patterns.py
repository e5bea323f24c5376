"""Who may attend to whom, written as rules on positions.

A `Pattern` is a rule that both twins accept as a `mask`. Rules are composed with `&`, `|`
and `~`, so a new kind of attention is a new rule and not a new option:

>>> from qkvlib.patterns import causal, window
>>> (causal & window(2)).array(4, 4).astype(int)
array([[1, 0, 0, 0],
       [1, 1, 0, 0],
       [0, 1, 1, 0],
       [0, 0, 1, 1]])

Query `i` of `n_query` stands at position `i + offset`, key `j` at position `j`. By default
`offset = n_key - n_query`: the last query stands where the last key stands. Of the patterns
here `causal` alone keeps queries from what comes after them; join it to the others.

A pattern also knows which keys a stretch of queries may reach at all, so that attention over
long texts never visits the others:

>>> (causal & window(2)).reach(1000, 1999, 100_000)
[(999, 2000)]
"""

import operator
from functools import cache, wraps
from inspect import signature
from typing import NamedTuple

import numpy as np

from qkvlib._checks import (
    check_answer,
    check_block,
    check_count,
    check_cover,
    check_drawn,
    check_ids,
    check_range,
    check_shift,
    check_span,
    check_stretches,
)

__all__ = [
    "Pattern",
    "causal",
    "window",
    "dilated",
    "strided",
    "blocks",
    "global_tokens",
    "random_blocks",
    "prefix",
    "documents",
]


class Pattern:
    """A rule `rule(i, j)`: may the query at position `i` attend to the key at position `j`?

    Positions are integers or integer arrays that broadcast, of NumPy or of torch; the answer
    is Boolean. A rule made of operators alone serves both backends.

    reach: a function `reach(first, last, n_key)` that answers with a list of stretches
    `(start, stop)` of keys, which together hold every key that a query at one of the positions
    from `first` to `last` may attend to. They may overlap and run over the ends. None: all keys.
    common: the same for keys that every one of these queries may attend to; not all of them need
    be told. None: none is known.

    A Boolean array may be joined to a pattern, as in `causal & padding_mask(lengths, n_key)`.
    It belongs to queries and keys by their index, whatever the offset.

    >>> even_keys = Pattern(lambda i, j: j % 2 == 0)
    >>> even_keys(3, 4), (~even_keys)(3, 4)
    (True, False)
    >>> itself = Pattern(lambda i, j: i == j, lambda first, last, n_key: [(first, last + 1)])
    >>> (itself & even_keys).reach(4, 7, 100)
    [(4, 8)]
    """

    __array_ufunc__ = None  # array & pattern: NumPy leaves the answer to Pattern

    def __init__(self, rule, reach=None, common=None):
        if not callable(rule):
            raise TypeError(
                f"rule must be a function of two positions, got {type(rule).__name__}; "
                "a Boolean array is a mask as it is"
            )
        for name, stretches, otherwise in (
            ("reach", reach, "every key may be reached"),
            ("common", common, "none is known"),
        ):
            if stretches is not None and not callable(stretches):
                raise TypeError(
                    f"{name} must be a function of the first and last position and the number of "
                    f"keys, got {type(stretches).__name__}; leave it out if {otherwise}"
                )
        self._rule = lambda i, j, block: rule(i, j)
        self._reach = _checked("reach", reach) if reach else _everything
        self._common = _checked("common", common) if common else _nothing
        self._made = Pattern, (rule, reach, common)

    def __call__(self, i, j):
        """Whether the query at position `i` may attend to the key at position `j`."""
        answer = self._rule(i, j, None)
        return bool(answer) if isinstance(answer, np.bool_) else answer

    def reach(self, first, last, n_key):
        """The keys that queries at the positions from `first` to `last` may attend to.

        first, last: whole numbers, both included; positions may lie before the first key or
        after the last. n_key: the number of keys.
        -> a list of stretches `(start, stop)` of keys, without `stop`: sorted, apart from each
        other, within 0 and `n_key`. A key in none of them is attended to by none of the queries.

        Raises `TypeError` or `ValueError` for what is no such number, and `TypeError` for a
        pattern made with a `reach` that answers with anything but stretches.

        >>> window(3).reach(10, 10, 100), causal.reach(-5, -1, 100)
        ([(8, 13)], [])
        """
        first, last, n_key = check_span(first, last, n_key)
        return _tidy(self._reach(first, last, n_key), n_key) if first <= last else []

    def common(self, first, last, n_key):
        """Keys that each query at the positions from `first` to `last` may attend to.

        Arguments and answer as those of `reach`. A key in none of the stretches may be attended
        to by each of the queries all the same. Raises what `reach` raises.

        >>> window(3).common(10, 11, 100), (~causal).common(10, 11, 100)
        ([(9, 13)], [(12, 100)])
        """
        first, last, n_key = check_span(first, last, n_key)
        stretches = self._common if first <= last else _everything
        return _tidy(stretches(first, last, n_key), n_key)

    def __and__(self, other):
        return _joined(operator.and_, _intersection, self, _as_pattern(other))

    def __or__(self, other):
        return _joined(operator.or_, _union, self, _as_pattern(other))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self):
        return _pattern(
            lambda i, j, block: _negated(self._rule(i, j, block)),
            lambda first, last, n_key: _gaps(self.common(first, last, n_key), n_key),
            (operator.invert, (self,)),
            lambda first, last, n_key: _gaps(self.reach(first, last, n_key), n_key),
        )

    def __bool__(self):
        raise TypeError(
            "a pattern is neither true nor false; join patterns with &, | and ~, "
            "not with and, or and not, as in causal & window(3)"
        )

    def __reduce__(self):
        return self._made

    def __repr__(self):
        return _told(self._made)

    def shifted(self, offset):
        """The same rule for queries that stand `offset` places further on.

        offset: a whole number, or an integer array `(..., 1, 1)` with one for each batch item

        >>> causal(2, 3), causal.shifted(1)(2, 3)
        (False, True)
        """
        offset = check_shift(offset)
        return _pattern(
            lambda i, j, block: self._rule(i + _beside(offset, i), j, block),
            _moved(self.reach, offset, _everything),
            (Pattern.shifted, (self, offset)),
            _moved(self.common, offset, _nothing),
        )

    def array(self, n_query, n_key=None, *, offset=None):
        """The rule written out: a Boolean NumPy array `(..., n_query, n_key)`.

        `n_key=None` means `n_query`. `offset=None` means `n_key - n_query`; an integer array
        of offsets gives one mask for each of its entries.

        Raises `TypeError` when the rule does not answer in Booleans, `ValueError` when not for
        each pair of positions, and what `qkvlib.numpy.causal_mask` raises for sizes and offsets.

        >>> causal.array(2, 4).astype(int)
        array([[1, 1, 1, 0],
               [1, 1, 1, 1]])
        """
        n_query, n_key, offset = check_range(n_query, n_key, offset)
        if isinstance(offset, np.ndarray):
            offset = offset.astype(np.int64)
        sizes = n_query, n_key
        return self.block(range(n_query), range(n_key), sizes, offset=offset).copy()

    def block(self, queries, keys, sizes, *, offset=None, arange=np.arange):
        """The mask of some queries and keys, as if cut out of the whole, which is not made.

        queries, keys: the indices, `range(a, b)` and `range(c, d)`
        sizes: `(n_query, n_key)`, how many there are in all
        offset: as in `array`
        arange: what counts in the backend that is to answer, such as `torch.arange`
        -> Boolean `(..., b - a, d - c)`, for NumPy `array(*sizes, offset=offset)[..., a:b, c:d]`;
        what is returned may be a view and is not to be written to

        Raises what `array` raises, and `ValueError` for indices that are not there.

        >>> causal.block(range(2, 4), range(1, 4), (4, 4)).astype(int)
        array([[1, 1, 0],
               [1, 1, 1]])
        """
        n_query, n_key = sizes
        check_block("queries", queries, n_query)
        check_block("keys", keys, n_key)
        if offset is None:
            offset = n_key - n_query
        i, j = _positions(
            arange(queries.start, queries.stop), arange(keys.start, keys.stop), offset
        )
        allowed = self._rule(i, j, _Block(queries, keys, (n_query, n_key)))
        dtype = getattr(allowed, "dtype", None)
        if "bool" not in str(dtype):
            raise TypeError(
                "a rule must answer in Booleans of the positions' shape, "
                f"got {dtype or type(allowed).__name__}; compare, as in j <= i"
            )
        whole = (*i.shape[:-1], j.shape[-1])
        return _expanded(allowed, check_answer(tuple(allowed.shape), whole))


def part(array, queries, keys):
    """`array[..., a:b, c:d]` for the ranges queries and keys; axes of size 1 stay as they are."""
    rows, columns = (
        slice(None) if size == 1 else slice(chosen.start, chosen.stop)
        for size, chosen in zip(array.shape[-2:], (queries, keys))
    )
    return array[..., rows, columns]


class _Block(NamedTuple):
    """The indices at which a rule is asked; what is joined to it as an array is cut to them."""

    queries: range
    keys: range
    sizes: tuple  # (n_query, n_key)


def _positions(queries, keys, offset):
    """The positions `i (..., n_query, 1)` and `j (1, n_key)` of two rows of indices."""
    if not isinstance(offset, int):
        offset = offset[..., None, None]
    return queries[:, None] + offset, keys[None, :]


def _beside(held, i):
    """What a pattern holds, a number or an array, in the backend and where the positions are."""
    if isinstance(held, int):
        return held
    if hasattr(i, "new_tensor"):
        import torch  # a tensor is here, so torch is

        return torch.as_tensor(held, dtype=i.dtype, device=i.device)
    return held if isinstance(held, np.ndarray) else held.cpu().numpy()


def _expanded(answer, shape):
    if hasattr(answer, "expand"):  # a tensor
        return answer.expand(shape)
    return np.broadcast_to(answer, shape)


# ---- how patterns are made of patterns -----------------------------------------------------------


def _pattern(rule, reach, made, common=None):
    """A Pattern from a rule that is told the block too; made: what makes the same once more."""
    pattern = object.__new__(Pattern)
    pattern._rule, pattern._reach, pattern._made = rule, reach, made
    pattern._common = common or _nothing
    return pattern


def _joined(join, join_stretches, one, other):
    def joined(stretches_of):
        return lambda *span: join_stretches(
            stretches_of(one, *span), stretches_of(other, *span), n_key=span[-1]
        )

    return _pattern(
        lambda i, j, block: join(one._rule(i, j, block), other._rule(i, j, block)),
        joined(Pattern.reach),
        (join, (one, other)),
        joined(Pattern.common),
    )


def _negated(answer):
    return not answer if isinstance(answer, bool) else ~answer


def _as_pattern(other):
    """A pattern as it is; a Boolean array as the one that hands it out for its own queries."""
    if isinstance(other, Pattern):
        return other
    if "bool" not in str(getattr(other, "dtype", None)):
        raise TypeError(
            "a pattern is joined with another pattern or with a Boolean array, "
            f"got {getattr(other, 'dtype', type(other).__name__)}; a float mask belongs in bias"
        )
    return _pattern(
        lambda i, j, block: _handed_out(other, i, j, block),
        _everything,
        (_as_pattern, (other,)),
    )


def _handed_out(array, i, j, block):
    if getattr(i, "ndim", 0) < 2:
        raise ValueError(
            "an array is joined to this pattern and has no answer for single positions; "
            "write the pattern out, as in pattern.array(n_query, n_key)"
        )
    if isinstance(array, np.ndarray) != isinstance(i, np.ndarray):
        raise TypeError(
            "the array joined to a pattern must belong to the twin that uses it, "
            f"a {type(i).__name__}, got a {type(array).__name__}"
        )
    if array.device != i.device:
        raise ValueError(
            "the array joined to a pattern must lie where the scores lie, "
            f"on {i.device}, got one on {array.device}; move it with .to(device)"
        )
    sizes = (i.shape[-2], j.shape[-1]) if block is None else block.sizes
    if array.ndim < 2 or _too_large(array.shape[-2:], sizes):
        raise ValueError(
            f"the array joined to a pattern must end in (n_query, n_key) = {sizes} or in "
            f"axes of size 1, got shape {tuple(array.shape)}"
        )
    return array if block is None else part(array, block.queries, block.keys)


def _too_large(shape, sizes):
    return any(got not in (1, wanted) for got, wanted in zip(shape, sizes, strict=True))


SIGNS = {
    operator.and_: "({} & {})",
    operator.or_: "({} | {})",
    operator.invert: "~{}",
    Pattern.shifted: "{}.shifted({})",
    _as_pattern: "{}",
}


def _told(made):
    """How a pattern was made, in words; arrays by their shape."""
    if isinstance(made, str):
        return made
    make, args = made
    plain = f"{make.__name__.lstrip('_')}({', '.join(['{}'] * len(args))})"
    shown = [f"<{tuple(a.shape)}>" if getattr(a, "ndim", 0) else repr(a) for a in args]
    return SIGNS.get(make, plain).format(*shown)


# ---- how far they reach --------------------------------------------------------------------------


def _everything(first, last, n_key):
    return [(0, n_key)]


def _nothing(first, last, n_key):
    return []


def _checked(name, stretches):
    """The function `reach` or `common` given to a Pattern, and what it answers looked at."""
    return lambda *span: check_stretches(name, stretches(*span))


def _tidy(stretches, n_key):
    """The same keys in stretches that are sorted, apart from each other and within 0 and n_key."""
    tidy = []
    for start, stop in sorted((max(start, 0), min(stop, n_key)) for start, stop in stretches):
        if start >= stop:
            continue
        if tidy and start <= tidy[-1][1]:
            start, before = tidy.pop()
            stop = max(stop, before)
        tidy.append((start, stop))
    return tidy


def _gaps(stretches, n_key):
    """The keys that lie in none of some tidy stretches; a gap may be empty."""
    edges = [0, *(edge for stretch in stretches for edge in stretch), n_key]
    return list(zip(edges[::2], edges[1::2]))


def _union(one, other, n_key):
    return one + other


def _intersection(one, other, n_key):
    """What lies neither in the gaps of the one nor in those of the other."""
    return _gaps(_tidy(_gaps(one, n_key) + _gaps(other, n_key), n_key), n_key)


def _moved(stretches, offset, unknown):
    """The stretches of queries that stand `offset` places further on, wherever one of them does."""

    def moved(first, last, n_key):
        bounds = _bounds(offset)
        if bounds is None:
            return unknown(first, last, n_key)
        return stretches(first + bounds[0], last + bounds[1], n_key)

    return moved


def _bounds(offset):
    """The smallest and the largest offset, or None."""
    if isinstance(offset, int):
        return offset, offset
    offset = _values(offset)
    return None if offset is None or offset.size == 0 else (int(offset.min()), int(offset.max()))


def _values(held):
    """What a pattern holds as a NumPy array, or None where it cannot be looked at.

    On an accelerator looking would stop it, and while torch traces there is nothing to see.
    """
    if str(held.device) != "cpu":
        return None
    try:
        return np.asarray(held)
    except RuntimeError:
        return None


# ---- the patterns --------------------------------------------------------------------------------


causal = Pattern(
    lambda i, j: j <= i,
    lambda first, last, n_key: [(0, last + 1)],
    lambda first, last, n_key: [(0, first + 1)],
)
"""The pattern `j <= i`, by which no query attends to what comes after it."""
causal._made = "causal"  # a copy of it is itself: the fused kernel knows it by name


def _remembered(make):
    """The patterns that `make` makes remember how they were made."""

    parameters = signature(make)

    @wraps(make)
    def remembering(*args, **named):
        if named:
            args = parameters.bind(*args, **named).args
        pattern = make(*args)
        pattern._made = remembering, args
        return pattern

    return remembering


@_remembered
def window(w):
    """Queries attend to what is fewer than `w` places away, before or after: `|i - j| < w`.

    With `causal &` in front, a query sees itself and the `w - 1` keys before it.

    Source: Beltagy et al. 2020, "Longformer", section 3.1, where the width counts both sides.

    >>> window(2).array(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    w = check_count("window", w)
    return Pattern(
        lambda i, j: abs(i - j) < w,
        lambda first, last, n_key: [(first - w + 1, last + w)],
        lambda first, last, n_key: [(last - w + 1, first + w)],
    )


@_remembered
def dilated(w, step):
    """A window with gaps: of the keys fewer than `w * step` places away every `step`-th.

    `|i - j| < w * step` and `(i - j) % step == 0`: as many keys as `window(w)`, further apart.

    Source: Beltagy et al. 2020, "Longformer", section 3.1.

    >>> dilated(2, 3).array(1, 8, offset=4).astype(int)
    array([[0, 1, 0, 0, 1, 0, 0, 1]])
    """
    w, step = check_count("w", w), check_count("step", step)
    return Pattern(
        lambda i, j: (abs(i - j) < w * step) & ((i - j) % step == 0),
        lambda first, last, n_key: [(first - w * step + 1, last + w * step)],
    )


@_remembered
def strided(s):
    """Queries attend to every `s`-th key, counted from themselves: `(i - j) % s == 0`.

    Where a text is a picture, row after row of width `s`, this is the column above and below.

    Source: Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.3;
    there it is causal, and the last `s` keys are seen too: `causal & (window(s) | strided(s))`.

    >>> strided(3).array(1, 8, offset=4).astype(int)
    array([[0, 1, 0, 0, 1, 0, 0, 1]])
    """
    s = check_count("s", s)
    return Pattern(lambda i, j: (i - j) % s == 0)


@_remembered
def blocks(size):
    """Queries attend within their own block of `size` positions: `i // size == j // size`.

    Source: Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.3,
    as one half of the fixed pattern.

    >>> blocks(2).array(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 1],
           [0, 0, 1, 1]])
    """
    size = check_count("size", size)
    return Pattern(
        lambda i, j: i // size == j // size,
        lambda first, last, n_key: [(first // size * size, (last // size + 1) * size)],
        lambda first, last, n_key: [(last // size * size, (first // size + 1) * size)],
    )


@_remembered
def global_tokens(g):
    """The first `g` positions attend to all keys and are attended to by all: `i < g or j < g`.

    Source: Beltagy et al. 2020, "Longformer", section 3.1.

    >>> global_tokens(1).array(3).astype(int)
    array([[1, 1, 1],
           [1, 0, 0],
           [1, 0, 0]])
    """
    g = check_count("g", g, least=0)
    return Pattern(
        lambda i, j: (i < g) | (j < g),
        lambda first, last, n_key: [(0, n_key if first < g else g)],
        lambda first, last, n_key: [(0, n_key if last < g else g)],
    )


@_remembered
def prefix(p):
    """All queries attend to the first `p` keys: `j < p`.

    `causal | prefix(p)` reads a prompt of `p` tokens in both directions and writes on from there.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 3.2.1.

    >>> (causal | prefix(2)).array(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    p = check_count("p", p, least=0)
    return Pattern(
        lambda i, j: j < p,
        lambda first, last, n_key: [(0, p)],
        lambda first, last, n_key: [(0, p)],
    )


def random_blocks(n, size, count, generator):
    """Each block of `size` queries attends to `count` blocks of keys, drawn at random.

    n: the number of positions; the last block may be shorter. Other positions attend to nothing
    and are attended to by none. generator: a `numpy.random.Generator`, for either backend.

    Raises `TypeError` or `ValueError` for what is no such number or generator, for more blocks
    than there are, and, once their number is known, for more keys than `n`.

    Source: Zaheer et al. 2020, "Big Bird", section 2 and, in blocks, appendix D.

    >>> random_blocks(5, 2, 2, np.random.default_rng(3)).array(5).astype(int)
    array([[0, 0, 1, 1, 1],
           [0, 0, 1, 1, 1],
           [1, 1, 0, 0, 1],
           [1, 1, 0, 0, 1],
           [1, 1, 1, 1, 0]])
    """
    n, size, count = check_count("n", n), check_count("size", size), check_count("count", count)
    number = -(-n // size)
    check_drawn(count, number, generator)
    ranks = generator.permuted(np.tile(np.arange(number), (number, 1)), axis=1)
    return _chosen_blocks((ranks < count).astype(np.int64), size, n)


@_remembered
def _chosen_blocks(chosen, size, n):
    """Query block `a` attends to key block `b` where `chosen[a, b]` is 1."""

    def rule(i, j, block):
        check_cover("n", n, block)
        i_known, j_known = _within(i, n), _within(j, n)
        held = _beside(chosen, i)
        return i_known & j_known & (held[i * i_known // size, j * j_known // size] > 0)

    def reach(first, last, n_key):
        queried = np.unique(np.arange(max(first, 0), min(last + 1, n)) // size)
        drawn = np.flatnonzero(chosen[queried].any(axis=0))
        return [(b * size, (b + 1) * size) for b in drawn.tolist()]

    return _pattern(rule, reach, None)


def documents(ids):
    """Texts packed into one row: queries attend within their own text, `ids[i] == ids[j]`.

    ids: whole numbers `(n,)`, the text that each position belongs to; or `(..., n)`, a row for
    each batch item (with heads write `ids[:, None]`). A list, or an array of either backend.
    Other positions attend to nothing and are attended to by none.

    Raises `TypeError` for ids that are not whole numbers, `ValueError` for none, and, once their
    number is known, for more keys than ids.

    Source: Llama Team 2024, "The Llama 3 Herd of Models", section 3.2.

    >>> documents([7, 7, 4]).array(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    ids = ids.clone() if hasattr(ids, "clone") else np.asarray(ids)
    return _documents(check_ids(ids))


@_remembered
def _documents(ids):
    n = ids.shape[-1]
    extents = cache(lambda: _extents(ids))

    def rule(i, j, block):
        check_cover("ids", n, block)
        if ids.ndim > 1 and getattr(i, "ndim", 0) > 2:
            raise ValueError(
                "either ids or offsets may differ between batch items, not both, got ids "
                f"{tuple(ids.shape)} and positions {tuple(i.shape)}; write one of them out"
            )
        i_known, j_known = _within(i, n), _within(j, n)
        held = _beside(ids, i)
        return i_known & j_known & (_at(held, i * i_known) == _at(held, j * j_known))

    def reach(first, last, n_key):
        if extents() is None:
            return _everything(first, last, n_key)
        queried = extents()[:, max(first, 0) : max(last, -1) + 1].reshape(-1, 2)
        return np.unique(queried, axis=0).tolist()

    return _pattern(rule, reach, None)


def _within(position, n):
    return (position >= 0) & (position < n)


def _at(ids, position):
    # FlexAttention takes apart what is indexed by a position alone, not by dots.
    return ids[position] if ids.ndim == 1 else ids[..., position]


def _extents(ids):
    """The stretch `(start, stop)` over which each one's text extends, `(rows, n, 2)`, or None."""
    ids = _values(ids)
    if ids is None:
        return None
    n = ids.shape[-1]
    stretches = []
    for row in ids.reshape(-1, n):
        _, start, text = np.unique(row, return_index=True, return_inverse=True)
        _, after = np.unique(row[::-1], return_index=True)
        stretches.append(np.stack([start[text], n - after[text]], axis=-1))
    return np.stack(stretches)
