"""Laws of `norm(x)`, which brings each row of `x (..., d)` to one size."""

import numpy as np

from qkvlib.laws._law import difference, law_of, size

_law = law_of(lambda x, output: x.shape, "x")


def norm_inputs(generator=None):
    """Rows for the laws of norms, from small to large. Yields `(x,), None`.

    No row has equal numbers throughout; their size is about a billion, next to which a usual `eps`
    is nothing. generator: a `numpy.random.Generator`, by default one that draws the same each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for shape in [(1, 2), (2, 3), (3, 4), (2, 5, 6)]:
        yield (1e9 * generator.permuted(np.ones(shape).cumsum(axis=-1) ** 2, axis=-1),), None


@_law
def normed_rows_have_mean_0(norm, x):
    """The mean of a row is taken away. True of layer norm. Source: Ba et al. 2016, section 3."""
    means = norm(x).mean(axis=-1, keepdims=True)
    where = "the mean of row {row}"
    return difference(normed_rows_have_mean_0, {"x": x}, means, np.zeros_like(means), where=where)


@_law
def normed_rows_have_mean_square_1(norm, x):
    """The mean of a row's squares is 1, taken over all of them and not over one less.

    True of layer norm, whose rows have mean 0, and of RMS norm. Source: Ba et al. 2016, "Layer
    Normalization", section 3; Zhang & Sennrich 2019, "Root Mean Square Layer Normalization",
    section 4.
    """
    squares = (norm(x).astype(float) ** 2).mean(axis=-1, keepdims=True).astype(x.dtype)
    where = "the mean square of row {row}"
    law = normed_rows_have_mean_square_1
    return difference(law, {"x": x}, squares, np.ones_like(squares), where=where)


@_law
def stretching_a_row_changes_nothing(norm, x):
    """A row twice as long comes out the same. Source: Ba et al. 2016, section 5.1."""
    before = norm(x)
    return difference(
        stretching_a_row_changes_nothing,
        {"x": x},
        norm(2 * x),
        before,
        size=size(before),
        where="with all numbers doubled the output {at}",
    )


@_law
def large_half_rows_stay_finite(norm, x):
    """Numbers that float16 holds may have squares that it does not: no reason to fail.

    The largest is 30000, with a square far beyond 65504.
    """
    x = (x * (3e4 / size(x))).astype(np.float16)
    squares = (norm(x).astype(float) ** 2).mean(axis=-1, keepdims=True).astype(np.float16)
    where = "the mean square of row {row}"
    law = large_half_rows_stay_finite
    return difference(law, {"x": x}, squares, np.ones_like(squares), where=where)
