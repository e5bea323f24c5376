"""What both twins do with the caches of keys and values."""

from contextlib import contextmanager


@contextmanager
def unchanged_on_error(*caches):
    """What raises in this `with` block leaves each cache as long as it was; None is no cache."""
    caches = [cache for cache in caches if cache is not None]
    lengths = [len(cache) for cache in caches]
    try:
        yield
    except BaseException:
        for cache, length in zip(caches, lengths):
            cache.truncate(length)
        raise
