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
`offset = n_key - n_query`: the last query stands where the last key stands.

A pattern also knows which keys a stretch of queries may reach at all, so that attention over
long texts never visits the others:

>>> (causal & window(2)).reach(1000, 1999, 100_000)
[(999, 2000)]
"""

import operator
from functools import wraps
from typing import NamedTuple

import numpy as np

from qkvlib._checks import check_answer, check_block, check_count, check_range, check_shift

__all__ = ["Pattern", "causal", "window"]


class Pattern:
    """A rule `rule(i, j)`: may the query at position `i` attend to the key at position `j`?

    Positions are integers or integer arrays that broadcast, of NumPy or of torch; the answer
    is Boolean. A rule made of operators alone serves both backends.

    reach: a function `reach(first, last, n_key)` that answers with a list of stretches
    `(start, stop)` of keys, which together hold every key that a query at one of the positions
    from `first` to `last` may attend to. They may overlap and run over the ends. None: all keys.

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

    def __init__(self, rule, reach=None):
        if not callable(rule):
            raise TypeError(
                f"rule must be a function of two positions, got {type(rule).__name__}; "
                "a Boolean array is a mask as it is"
            )
        if reach is not None and not callable(reach):
            raise TypeError(
                "reach must be a function of the first and last position and the number of keys, "
                f"got {type(reach).__name__}; leave it out if every key may be reached"
            )
        self._rule = lambda i, j, block: rule(i, j)
        self._reach = reach or _everything
        self._made = Pattern, (rule, reach)

    def __call__(self, i, j):
        """Whether the query at position `i` may attend to the key at position `j`."""
        return self._rule(i, j, None)

    def reach(self, first, last, n_key):
        """The keys that queries at the positions from `first` to `last` may attend to.

        first, last: whole numbers, both included; positions may lie before the first key or
        after the last. n_key: the number of keys.
        -> a list of stretches `(start, stop)` of keys, without `stop`: sorted, apart from each
        other, within 0 and `n_key`. A key in none of them is attended to by none of the queries.

        >>> window(3).reach(10, 10, 100), causal.reach(-5, -1, 100)
        ([(8, 13)], [])
        """
        return _tidy(self._reach(first, last, n_key), n_key) if first <= last else []

    def __and__(self, other):
        return _joined(operator.and_, _intersection, self, _as_pattern(other))

    def __or__(self, other):
        return _joined(operator.or_, _union, self, _as_pattern(other))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self):
        return _pattern(
            lambda i, j, block: _negated(self._rule(i, j, block)),
            _everything,
            (operator.invert, (self,)),
        )

    def __bool__(self):
        raise TypeError(
            "a pattern is neither true nor false; join patterns with &, | and ~, "
            "not with and, or and not, as in causal & window(3)"
        )

    def __reduce__(self):
        return self._made

    def shifted(self, offset):
        """The same rule for queries that stand `offset` places further on.

        offset: a whole number, or an integer array `(..., 1, 1)` with one for each batch item

        >>> causal(2, 3), causal.shifted(1)(2, 3)
        (False, True)
        """
        offset = check_shift(offset)
        return _pattern(
            lambda i, j, block: self._rule(i + _beside(offset, i), j, block),
            lambda first, last, n_key: _shifted_reach(self, offset, first, last, n_key),
            (Pattern.shifted, (self, offset)),
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
        if type(allowed) is bool or "bool" not in str(dtype):
            raise TypeError(
                "a rule must answer in Booleans of the positions' shape, "
                f"got {dtype or type(allowed).__name__}; compare, as in j <= i"
            )
        whole = (*np.shape(offset), len(queries), len(keys))
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
    if getattr(offset, "ndim", 0):
        offset = offset[..., None, None]
    return queries[:, None] + offset, keys[None, :]


def _beside(held, i):
    """What a pattern holds, a number or an array, in the backend and where the positions are."""
    if isinstance(held, int):
        return held
    if hasattr(i, "new_tensor"):
        return held.to(i.device) if hasattr(held, "cpu") else i.new_tensor(held)
    return held.cpu().numpy() if hasattr(held, "cpu") else held


def _expanded(answer, shape):
    if hasattr(answer, "expand"):  # a tensor
        return answer.expand(shape)
    return np.broadcast_to(answer, shape)


# ---- how patterns are made of patterns -----------------------------------------------------------


def _pattern(rule, reach, made):
    """A Pattern from a rule that is told the block too; made: what makes the same once more."""
    pattern = object.__new__(Pattern)
    pattern._rule, pattern._reach, pattern._made = rule, reach, made
    return pattern


def _joined(join, join_reaches, one, other):
    return _pattern(
        lambda i, j, block: join(one._rule(i, j, block), other._rule(i, j, block)),
        lambda first, last, n_key: join_reaches(
            one.reach(first, last, n_key), other.reach(first, last, n_key), n_key
        ),
        (join, (one, other)),
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
            f"got {type(other).__name__}; a float mask belongs in bias"
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


# ---- how far they reach --------------------------------------------------------------------------


def _everything(first, last, n_key):
    return [(0, n_key)]


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
    """The keys that lie in none of some tidy stretches."""
    edges = [0, *(edge for stretch in stretches for edge in stretch), n_key]
    return [gap for gap in zip(edges[::2], edges[1::2]) if gap[0] < gap[1]]


def _union(one, other, n_key):
    return one + other


def _intersection(one, other, n_key):
    """What lies neither in the gaps of the one nor in those of the other."""
    return _gaps(_tidy(_gaps(one, n_key) + _gaps(other, n_key), n_key), n_key)


def _shifted_reach(pattern, offset, first, last, n_key):
    bounds = _bounds(offset)
    if bounds is None:
        return _everything(first, last, n_key)
    return pattern.reach(first + bounds[0], last + bounds[1], n_key)


def _bounds(offset):
    """The smallest and the largest offset; None where they cannot be looked at.

    On an accelerator looking would stop it, and while torch traces there is nothing to see.
    """
    if isinstance(offset, int):
        return offset, offset
    if str(offset.device) != "cpu" or 0 in offset.shape:
        return None
    try:
        return int(offset.min()), int(offset.max())
    except RuntimeError:
        return None


# ---- the patterns --------------------------------------------------------------------------------


causal = Pattern(lambda i, j: j <= i, lambda first, last, n_key: [(0, last + 1)])
"""The pattern `j <= i`, by which no query attends to what comes after it."""
causal._made = "causal"  # a copy of it is itself: the fused kernel knows it by name


def _remembered(make):
    """The patterns that `make` makes remember how they were made."""

    @wraps(make)
    def remembering(*args):
        pattern = make(*args)
        pattern._made = remembering, args
        return pattern

    return remembering


@_remembered
def window(w):
    """Queries attend to what is fewer than `w` places away, before or after: `|i - j| < w`.

    With `causal &` in front, a query sees itself and the `w - 1` keys before it.

    >>> window(2).array(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    w = check_count("window", w)
    return Pattern(
        lambda i, j: abs(i - j) < w,
        lambda first, last, n_key: [(first - w + 1, last + w)],
    )
