"""Laws of masks."""

import numpy as np

from qkvlib.laws._law import CounterExample, first, law_of

__law = law_of(lambda n_query, n_key, mask: (n_query, n_key), "n_query", "n_key")


def mask_inputs():
    """Sizes for the laws of masks, from small to large. Yields `(n_query, n_key), None`."""
    for sizes in [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (1, 5), (4, 7), (6, 6)]:
        yield sizes, None


@__law
def masks_are_boolean(mask, n_query, n_key):
    """A mask says True or False, not 1 or 0, not 0 or -inf. Source: a convention."""
    got = mask(n_query, n_key).dtype
    if got.kind == "b":
        return None
    named = {"n_query": n_query, "n_key": n_key}
    return CounterExample("masks_are_boolean", named, "the dtype", np.dtype(bool), got)


@__law
def no_query_reads_the_future(mask, n_query, n_key):
    """The last query stands with the last key, each other one place earlier; no later key is open.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
    """
    is_later = np.arange(n_key) > np.arange(n_query)[:, None] + n_key - n_query
    return _allowed_wrongly(no_query_reads_the_future, mask, n_query, n_key, is_later, False)


@__law
def every_query_reads_the_past_and_itself(mask, n_query, n_key):
    """A causal mask forbids nothing else: a query reads its own key and all before it."""
    is_later = np.arange(n_key) > np.arange(n_query)[:, None] + n_key - n_query
    law = every_query_reads_the_past_and_itself
    return _allowed_wrongly(law, mask, n_query, n_key, ~is_later, True)


@__law
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
    at, named = first(wrong), {"n_query": n_query, "n_key": n_key}
    return CounterExample(law.__name__, named, f"the pair {at}", expected, not expected)


_law_of_windows = law_of(lambda n_query, n_key, mask: (n_query, n_key), "n_query", "n_key")


@_law_of_windows
def a_window_of_one_reads_itself(window_mask, n_query, n_key):
    """`window_mask(n_query, n_key, window=1)` opens to each query its own place alone.

    Source: a convention, |i - j| < window; elsewhere the window may count otherwise.
    """
    mask = window_mask(n_query, n_key, window=1)
    own = np.arange(n_key) == np.arange(n_query)[:, None] + n_key - n_query
    if np.array_equal(mask, own):
        return None
    named = {"n_query": n_query, "n_key": n_key}
    return CounterExample("a_window_of_one_reads_itself", named, "the mask", own, mask)


@_law_of_windows
def windows_open_to_both_sides(window_mask, n_query, n_key):
    """Who may read a neighbour may be read by it: among the last tokens the mask is symmetric."""
    for window in (1, 2, 3):
        mask = window_mask(n_query, n_key, window=window)[:, n_key - n_query :]
        if not np.array_equal(mask, mask.T):
            named = {"n_query": n_query, "n_key": n_key, "window": window}
            return CounterExample("windows_open_to_both_sides", named, "the mask", mask.T, mask)
    return None


_law_of_padding = law_of(
    lambda lengths, n_key, mask: (*lengths.shape, 1, n_key), "lengths", "n_key"
)


def padding_inputs():
    """Lengths for the laws of padding masks. Yields `(lengths, n_key), None`."""
    for lengths, n_key in [([1], 1), ([1], 2), ([2, 0, 3], 3), ([[4, 1, 3], [0, 5, 2]], 5)]:
        yield (np.array(lengths), n_key), None


@_law_of_padding
def padding_is_closed(mask, lengths, n_key):
    """No query reads past the end of its text."""
    padding = np.arange(n_key) >= lengths[..., None, None]
    wrong = padding & mask(lengths, n_key).astype(bool)
    named = {"lengths": lengths, "n_key": n_key}
    if not wrong.any():
        return None
    return CounterExample("padding_is_closed", named, f"the pair {first(wrong)}", False, True)


@_law_of_padding
def all_tokens_are_open(mask, lengths, n_key):
    """Every query reads all of its text, the last token too."""
    tokens = np.arange(n_key) < lengths[..., None, None]
    wrong = tokens & ~mask(lengths, n_key).astype(bool)
    named = {"lengths": lengths, "n_key": n_key}
    if not wrong.any():
        return None
    return CounterExample("all_tokens_are_open", named, f"the pair {first(wrong)}", True, False)


@_law_of_padding
def padding_masks_are_boolean(mask, lengths, n_key):
    """`masks_are_boolean`, of a mask made from lengths."""
    got = mask(lengths, n_key).dtype
    if got.kind == "b":
        return None
    named = {"lengths": lengths, "n_key": n_key}
    return CounterExample("padding_masks_are_boolean", named, "the dtype", np.dtype(bool), got)


@law_of(lambda lengths, n, mask: (*lengths.shape, n, n), "lengths", "n")
def both_masks_hold(mask, lengths, n):
    """Of two masks together a pair needs the leave of both: not the future, and not the padding."""
    past = np.arange(n) <= np.arange(n)[:, None]
    expected = past & (np.arange(n) < lengths[..., None, None])
    got = mask(lengths, n)
    if np.array_equal(got, expected):
        return None
    at = first(got != expected)
    named = {"lengths": lengths, "n": n}
    return CounterExample(
        "both_masks_hold", named, f"the pair {at}", bool(expected[at]), bool(got[at])
    )
