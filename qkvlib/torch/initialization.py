"""Random starting weights whose size keeps the signal's size."""

import math
from copy import deepcopy

import torch

from qkvlib._checks import check_count, output_matrices


def xavier_uniform(fan_in, fan_out, *, generator=None, device=None):
    """A matrix `(fan_in, fan_out)`, uniform on ±sqrt(6 / (fan_in + fan_out)).

    Its variance is 2 / (fan_in + fan_out), its dtype torch's default. generator: a
    `torch.Generator` on the CPU, for numbers that can be drawn again on any device; None uses
    torch's own.

    Raises `TypeError` or `ValueError` for fans that are not positive whole numbers, and
    `TypeError` for another kind of generator.

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward
    neural networks", equation 16.

    >>> W = xavier_uniform(300, 200, generator=torch.Generator().manual_seed(0))
    >>> tuple(W.shape), round(float(W.var()) * 250, 1)
    ((300, 200), 1.0)
    """
    bound = math.sqrt(6 / (check_count("fan_in", fan_in) + check_count("fan_out", fan_out)))
    matrix = torch.rand(fan_in, fan_out, generator=check_generator(generator), device="cpu")
    return ((2 * matrix - 1) * bound).to(default_device(device))


def xavier_normal(fan_in, fan_out, *, generator=None, device=None):
    """A matrix `(fan_in, fan_out)`, normal with variance 2 / (fan_in + fan_out).

    dtype, generator and errors: as in `xavier_uniform`.

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward
    neural networks", equation 12.

    >>> W = xavier_normal(300, 200, generator=torch.Generator().manual_seed(0))
    >>> tuple(W.shape), round(float(W.var()) * 250, 1)
    ((300, 200), 1.0)
    """
    std = math.sqrt(2 / (check_count("fan_in", fan_in) + check_count("fan_out", fan_out)))
    matrix = torch.randn(fan_in, fan_out, generator=check_generator(generator), device="cpu")
    return (matrix * std).to(default_device(device))


def scaled_residual(block, num_layers):
    """A copy of a block whose parts add less to the stream: one of `num_layers` such blocks.

    The matrices from which attention and feed-forward layer write into the residual stream,
    `W_O` and `W_2` (in `SwiGLU` `W_down`), are divided by `sqrt(2 * num_layers)`, for in so many
    blocks twice as many parts add to it. All else stays as it was drawn, in its dtype, on its
    device.

    Raises `ValueError` or `TypeError` for a num_layers that is not a positive whole number,
    `TypeError` for a block whose parts have no such matrices.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2),
    section 2.3.

    >>> from qkvlib.torch import TransformerBlock
    >>> block = TransformerBlock(8, 2, generator=torch.Generator().manual_seed(0))
    >>> (scaled_residual(block, 8).attention.W_O / block.attention.W_O)[0, :2].detach()
    tensor([0.2500, 0.2500])
    """
    factor = 1 / math.sqrt(2 * check_count("num_layers", num_layers))
    block = deepcopy(block)
    with torch.no_grad():
        for matrix in output_matrices(block):
            matrix *= factor
    return block


def check_generator(generator):
    """A `torch.Generator`, or None for torch's own."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {type(generator).__name__}; "
            "write torch.Generator().manual_seed(seed)"
        )
    return generator


def default_device(device):
    """`device`, or torch's default one for None."""
    return torch.get_default_device() if device is None else device
