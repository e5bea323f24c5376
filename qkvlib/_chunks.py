"""Which keys each block of queries visits when attention goes chunk by chunk: for both twins."""

from qkvlib.patterns import Pattern


def visits(mask, n_query, n_key, chunk_size):
    """Pairs of a block of queries and the list of the chunks of keys that it may reach.

    Both are ranges: a chunk of at most `chunk_size` keys, a block of half as many queries, so
    that a block follows the edge of a pattern closely and a chunk is still worth a product.
    A Pattern says what can be reached at all; of an array that shows when it is looked at.
    """
    for queries in _cut(0, n_query, (chunk_size + 1) // 2):
        stretches = [(0, n_key)]
        if isinstance(mask, Pattern):
            offset = n_key - n_query
            stretches = mask.reach(queries.start + offset, queries.stop - 1 + offset, n_key)
        yield queries, [keys for stretch in stretches for keys in _cut(*stretch, chunk_size)]


def _cut(start, stop, size):
    return [
        range(first, min(first + size, stop)) for first in range(start, max(stop, start + 1), size)
    ]
