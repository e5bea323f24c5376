"""Random starting weights whose size keeps the signal's size."""

import math
from copy import deepcopy

import numpy as np

from qkvlib._checks import check_count, output_matrices


def xavier_uniform(fan_in, fan_out, *, generator=None):
    """A float64 matrix `(fan_in, fan_out)`, uniform on ±sqrt(6 / (fan_in + fan_out)).

    Its variance is 2 / (fan_in + fan_out). generator: a `numpy.random.Generator`, for numbers
    that can be drawn again; None draws new ones each time.

    Raises `TypeError` or `ValueError` for fans that are not positive whole numbers, and
    `TypeError` for another kind of generator.

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward
    neural networks", equation 16.

    >>> W = xavier_uniform(300, 200, generator=np.random.default_rng(0))
    >>> W.shape, round(float(W.var()) * 250, 1)
    ((300, 200), 1.0)
    """
    generator = check_generator(generator)
    bound = math.sqrt(6 / (check_count("fan_in", fan_in) + check_count("fan_out", fan_out)))
    return generator.uniform(-bound, bound, (fan_in, fan_out))


def xavier_normal(fan_in, fan_out, *, generator=None):
    """A float64 matrix `(fan_in, fan_out)`, normal with variance 2 / (fan_in + fan_out).

    generator and errors: as in `xavier_uniform`.

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward
    neural networks", equation 12.

    >>> W = xavier_normal(300, 200, generator=np.random.default_rng(0))
    >>> W.shape, round(float(W.var()) * 250, 1)
    ((300, 200), 1.0)
    """
    generator = check_generator(generator)
    std = math.sqrt(2 / (check_count("fan_in", fan_in) + check_count("fan_out", fan_out)))
    return generator.normal(0.0, std, (fan_in, fan_out))


def scaled_residual(block, num_layers):
    """A copy of a block whose parts add less to the stream: one of `num_layers` such blocks.

    The matrices from which attention and feed-forward layer write into the residual stream,
    `W_O` and `W_2` (in `SwiGLU` `W_down`), are divided by `sqrt(2 * num_layers)`, for in so many
    blocks twice as many parts add to it. All else stays as it was drawn, in its dtype.

    Raises `ValueError` or `TypeError` for a num_layers that is not a positive whole number,
    `TypeError` for a block whose parts have no such matrices.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2),
    section 2.3.

    >>> from qkvlib.numpy import TransformerBlock
    >>> block = TransformerBlock(8, 2, generator=np.random.default_rng(0))
    >>> (scaled_residual(block, 8).attention.W_O / block.attention.W_O)[0, :2]
    array([0.25, 0.25])
    """
    factor = 1 / math.sqrt(2 * check_count("num_layers", num_layers))
    block = deepcopy(block)
    for matrix in output_matrices(block):
        matrix *= factor
    return block


def check_generator(generator):
    """A `numpy.random.Generator`: the given one, or a new one for None."""
    if generator is None:
        return np.random.default_rng()
    if not isinstance(generator, np.random.Generator):
        raise TypeError(
            f"generator must be a numpy.random.Generator, got {type(generator).__name__}; "
            "write np.random.default_rng(seed)"
        )
    return generator
