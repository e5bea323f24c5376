"""Where a token stands, told to a layer that by itself does not know."""

import torch
from torch.nn.functional import embedding

from qkvlib import _checks
from qkvlib.torch._tensors import (
    check_devices,
    check_floating,
    check_whole,
    exact_dtype,
    shape_of,
    values,
    working,
    working_dtype,
)


def learned_positions(positions, table):
    """The rows of a learned table for these positions, to be added to the tokens.

    positions: whole numbers of any shape `(..., n)`; table `(n_max, d_model)` -> `(..., n,
    d_model)` in the table's dtype, on its device.

    Raises `ValueError` for positions outside the table: there a learned table says nothing.
    (Not checked on an accelerator, which would have to stop for it, nor while torch traces.)

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.

    >>> learned_positions(torch.arange(2), torch.tensor([[0.5, 1.0], [2.0, 4.0], [7.0, 8.0]]))
    tensor([[0.5000, 1.0000],
            [2.0000, 4.0000]])
    """
    check_whole("positions", positions)
    check_floating(table=table)
    check_devices(positions=positions, table=table)
    if (numbers := values(positions)) is not None:
        _checks.check_table("positions", numbers, shape_of(table), "(n_max, d_model)")
    return embedding(positions.long(), table)


def rotary_angles(positions, d_k, *, base=10000.0):
    """The cosine and sine of the angle by which each pair of features turns at each position.

    positions: whole numbers `(..., n)`; d_k: an even width -> `(cos, sin)`, each
    `(..., n, d_k // 2)` on the device of the positions, in float64 (float32 where there is
    none). Pair `i` turns by `base ** (-2 * i / d_k)` a position: the first pair fastest, each
    further one more slowly.

    Raises `TypeError` for positions that are not whole numbers, `ValueError` for an odd width
    or a base below 1.

    Source: Su et al. 2021, "RoFormer", section 3.2.2.

    >>> cos, sin = rotary_angles(torch.arange(3), 4)
    >>> torch.atan2(sin, cos).float()
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0100],
            [2.0000, 0.0200]])
    """
    check_whole("positions", positions)
    angles = _angles(positions, _checks.check_pairs(d_k), _checks.check_base(base))
    return torch.cos(angles), torch.sin(angles)


def rotate(x, cos, sin, *, pairing):
    """Turn each pair of features by its angle, which tells queries and keys where they stand.

    x `(..., n, d_k)`, queries or keys -> the same shape, dtype and device (half types are
    computed in float32). cos and sin: as `rotary_angles` makes them, in any floating dtype,
    with 2 axes `(n, d_k // 2)` or as many as x; with heads and a position for each batch item,
    write `cos[:, None]`.
    pairing: which two features turn together, "interleaved" for 0 and 1, 2 and 3, ..., or
    "half" for 0 and d_k/2, 1 and d_k/2 + 1, ... A model needs the one it was trained with;
    `interleaved_to_half` leads from one to the other.

    Turned so, a query and a key have a product that depends on their distance alone.

    Raises `ValueError` for shapes or devices that do not fit or another pairing, `TypeError`
    for anything but floating tensors.

    Source: Su et al. 2021, "RoFormer", section 3.4.2, for "interleaved"; "half" is how the
    transformers library stores Llama.

    >>> cos, sin = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> rotate(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), cos, sin, pairing="interleaved")
    tensor([[-2.,  1.,  3.,  4.]])
    >>> rotate(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), cos, sin, pairing="half")
    tensor([[-3.,  2.,  1.,  4.]])
    """
    check_floating(x=x)
    check_floating(cos=cos, sin=sin)
    check_devices(x=x, cos=cos)
    _checks.check_rotation(shape_of(x), shape_of(cos), shape_of(sin), pairing)
    cos, sin = cos.to(working_dtype(x)), sin.to(working_dtype(x))
    half = x.shape[-1] // 2
    axis, sizes = (-1, (half, 2)) if pairing == "interleaved" else (-2, (2, half))
    first, second = working(x).unflatten(-1, sizes).unbind(axis)
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), axis)
    return turned.flatten(-2).to(x.dtype)


def interleaved_to_half(d_k, *, device=None):
    """The order of features that leads from one pairing of `rotate` to the other: `(d_k,)`.

    With `order = interleaved_to_half(d_k)`, `rotate(x, ..., pairing="interleaved")[..., order]`
    is `rotate(x[..., order], ..., pairing="half")`; `torch.argsort(order)` leads back. Weights
    change sides by `merge_heads(split_heads(W_Q, num_heads)[..., order])`, `W_K` and biases
    likewise: scores stay what they were. (GGUF files hold Llama's interleaved.)

    Raises `ValueError` for an odd width.

    Source: llama.cpp, convert_hf_to_gguf.py, `permute`, which goes the other way.

    >>> interleaved_to_half(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.arange(_checks.check_pairs(d_k), device=device).reshape(-1, 2).T.reshape(-1)


def _angles(positions, width, base):
    """`position * base ** (-c / width)` for each even column `c`: `(..., n, ceil(width / 2))`."""
    dtype, device = exact_dtype(positions.device), positions.device
    columns = torch.arange(0, width, 2, dtype=dtype, device=device)
    return positions[..., None].to(dtype) * base ** (-columns / width)
