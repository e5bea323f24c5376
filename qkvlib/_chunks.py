"""Which keys each block of queries visits when attention goes chunk by chunk: for both twins."""

from qkvlib.patterns import Pattern


def visits(mask, n_query, n_key, chunk_size):
    """Pairs of a block of queries and the list of the chunks of keys that it may reach.

    A block is a range of indices. A chunk is one too, and what of the mask is to be asked there:
    the mask, or None where it allows all. A chunk has `chunk_size` keys, a block half as many
    queries, so that a block follows the edge of a pattern closely and a chunk is still worth a
    product. A Pattern says what can be reached; of an array that shows when it is looked at.
    """
    for queries in _cut(0, n_query, (chunk_size + 1) // 2):
        reach = common = [(0, n_key)]
        if isinstance(mask, Pattern):
            offset = n_key - n_query
            span = queries.start + offset, queries.stop - 1 + offset, n_key
            reach, common = mask.reach(*span), mask.common(*span)
        elif mask is not None:
            common = []
        chunks = [keys for stretch in reach for keys in _cut(*stretch, chunk_size)]
        yield queries, [(keys, None if _is_within(keys, common) else mask) for keys in chunks]


def _is_within(keys, stretches):
    return any(start <= keys.start and keys.stop <= stop for start, stop in stretches)


def _cut(start, stop, size):
    """Ranges of `size` indices; a rest of at most half as many goes with the range before it."""
    ends = [*range(start + size, stop - size // 2, size), stop]
    return list(map(range, [start, *ends], ends))
