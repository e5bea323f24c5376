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
"""

import numpy as np

from qkvlib._checks import check_answer, check_count, check_range

__all__ = ["Pattern", "causal", "window"]


class Pattern:
    """A rule `rule(i, j)`: may the query at position `i` attend to the key at position `j`?

    Positions are integers or integer arrays that broadcast, of NumPy or of torch; the answer
    is Boolean. A rule made of operators alone serves both backends.

    A Boolean array may be joined to a pattern, as in `causal & padding_mask(lengths, n_key)`.
    It belongs to queries and keys by their index, whatever the offset.

    >>> even_keys = Pattern(lambda i, j: j % 2 == 0)
    >>> even_keys(3, 4), (~even_keys)(3, 4)
    (True, False)
    """

    __array_ufunc__ = None  # array & pattern: NumPy leaves the answer to Pattern

    def __init__(self, rule):
        if not callable(rule):
            raise TypeError(
                f"rule must be a function of two positions, got {type(rule).__name__}; "
                "a Boolean array is a mask as it is"
            )
        self._rule = rule

    def __call__(self, i, j):
        """Whether the query at position `i` may attend to the key at position `j`."""
        return self._rule(i, j)

    def __and__(self, other):
        other = _as_rule(other)
        return Pattern(lambda i, j: self(i, j) & other(i, j))

    def __or__(self, other):
        other = _as_rule(other)
        return Pattern(lambda i, j: self(i, j) | other(i, j))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self):
        return Pattern(lambda i, j: _negated(self(i, j)))

    def __bool__(self):
        raise TypeError(
            "a pattern is neither true nor false; join patterns with &, | and ~, "
            "not with and, or and not, as in causal & window(3)"
        )

    def shifted(self, offset):
        """The same rule for queries that stand `offset` places further on.

        >>> causal(2, 3), causal.shifted(1)(2, 3)
        (False, True)
        """
        return Pattern(lambda i, j: self(i + offset, j))

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
        allowed = self(*positions(np.arange(n_query), np.arange(n_key), offset))
        if getattr(allowed, "dtype", None) != np.bool_:
            raise TypeError(
                "a rule must answer in Booleans of the positions' shape, "
                f"got {getattr(allowed, 'dtype', type(allowed).__name__)}; compare, as in j <= i"
            )
        shape = check_answer(allowed.shape, (*np.shape(offset), n_query, n_key))
        return np.broadcast_to(allowed, shape).copy()


def positions(queries, keys, offset):
    """The positions `i (..., n_query, 1)` and `j (1, n_key)` of two index ranges."""
    if getattr(offset, "ndim", 0):
        offset = offset[..., None, None]
    return queries[:, None] + offset, keys[None, :]


def _as_rule(other):
    """A pattern as it is; a Boolean array as the rule that hands it out for its own queries."""
    if isinstance(other, Pattern):
        return other
    if "bool" not in str(getattr(other, "dtype", None)):
        raise TypeError(
            "a pattern is joined with another pattern or with a Boolean array, "
            f"got {type(other).__name__}; a float mask belongs in bias"
        )

    def handed_out(i, j):
        if getattr(i, "ndim", 0) < 2:
            raise ValueError(
                "an array is joined to this pattern and has no answer for single positions; "
                "write the pattern out, as in pattern.array(n_query, n_key)"
            )
        if isinstance(other, np.ndarray) != isinstance(i, np.ndarray):
            raise TypeError(
                "the array joined to a pattern must belong to the twin that uses it, "
                f"a {type(i).__name__}, got a {type(other).__name__}"
            )
        if other.device != i.device:
            raise ValueError(
                "the array joined to a pattern must lie where the scores lie, "
                f"on {i.device}, got one on {other.device}; move it with .to(device)"
            )
        sizes = (i.shape[-2], j.shape[-1])
        if other.ndim < 2 or _too_large(other.shape[-2:], sizes):
            raise ValueError(
                f"the array joined to a pattern must end in (n_query, n_key) = {sizes} or in "
                f"axes of size 1, got shape {tuple(other.shape)}"
            )
        return other

    return handed_out


def _too_large(shape, sizes):
    return any(got not in (1, wanted) for got, wanted in zip(shape, sizes, strict=True))


def _negated(answer):
    return not answer if isinstance(answer, bool) else ~answer


causal = Pattern(lambda i, j: j <= i)
"""The pattern `j <= i`, by which no query attends to what comes after it."""


def window(w):
    """Queries attend to what is fewer than `w` places away, before or after: `|i - j| < w`.

    With `causal &` in front, a query sees itself and the `w - 1` keys before it.

    >>> window(2).array(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    w = check_count("window", w)
    return Pattern(lambda i, j: abs(i - j) < w)
