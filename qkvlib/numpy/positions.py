"""Where a token stands, told to a layer that by itself does not know."""

import numpy as np

from qkvlib import _checks
from qkvlib.numpy._arrays import check_array, check_floating, check_whole, working, working_dtype


def learned_positions(positions, table):
    """The rows of a learned table for these positions, to be added to the tokens.

    positions: whole numbers of any shape `(..., n)`; table `(n_max, d_model)` -> `(..., n,
    d_model)` in the table's dtype.

    Raises `ValueError` for positions outside the table: there a learned table says nothing.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.

    >>> learned_positions(np.arange(2), np.array([[0.5, 1.0], [2.0, 4.0], [7.0, 8.0]]))
    array([[0.5, 1. ],
           [2. , 4. ]])
    """
    check_array("positions", positions)
    check_floating(table=table)
    _checks.check_table("positions", positions, table.shape, "(n_max, d_model)")
    return table[positions]


def rotary_angles(positions, d_k, *, base=10000.0):
    """The cosine and sine of the angle by which each pair of features turns at each position.

    positions: whole numbers `(..., n)`; d_k: an even width -> `(cos, sin)`, each
    `(..., n, d_k // 2)` in float64. Pair `i` turns by `base ** (-2 * i / d_k)` a position: the
    first pair fastest, each further one more slowly.

    Raises `TypeError` for positions that are not whole numbers, `ValueError` for an odd width
    or a base below 1.

    Source: Su et al. 2021, "RoFormer", section 3.2.2.

    >>> cos, sin = rotary_angles(np.arange(3), 4)
    >>> np.arctan2(sin, cos)
    array([[0.  , 0.  ],
           [1.  , 0.01],
           [2.  , 0.02]])
    """
    check_whole("positions", positions)
    angles = _angles(positions, _checks.check_pairs(d_k), _checks.check_base(base))
    return np.cos(angles), np.sin(angles)


def rotate(x, cos, sin, *, pairing):
    """Turn each pair of features by its angle, which tells queries and keys where they stand.

    x `(..., n, d_k)`, queries or keys -> the same shape and dtype (float16 is computed in
    float32). cos and sin: as `rotary_angles` makes them, in any floating dtype, with 2 axes
    `(n, d_k // 2)` or as many as x; with heads and a position for each batch item, write
    `cos[:, None]`.
    pairing: which two features turn together, "interleaved" for 0 and 1, 2 and 3, ..., or
    "half" for 0 and d_k/2, 1 and d_k/2 + 1, ... A model needs the one it was trained with;
    `interleaved_to_half` leads from one to the other.

    Turned so, a query and a key have a product that depends on their distance alone.

    Raises `ValueError` for shapes that do not fit or another pairing, `TypeError` for anything
    but floating NumPy arrays.

    Source: Su et al. 2021, "RoFormer", section 3.4.2, for "interleaved"; "half" is how the
    transformers library stores Llama.

    >>> cos, sin = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])  # a quarter turn, and none
    >>> rotate(np.array([[1.0, 2.0, 3.0, 4.0]]), cos, sin, pairing="interleaved")
    array([[-2.,  1.,  3.,  4.]])
    >>> rotate(np.array([[1.0, 2.0, 3.0, 4.0]]), cos, sin, pairing="half")
    array([[-3.,  2.,  1.,  4.]])
    """
    check_floating(x=x)
    check_floating(cos=cos, sin=sin)
    _checks.check_rotation(x.shape, cos.shape, sin.shape, pairing)
    cos, sin = (angle.astype(working_dtype(x), copy=False) for angle in (cos, sin))
    half = x.shape[-1] // 2
    axis, sizes = (-1, (half, 2)) if pairing == "interleaved" else (-2, (2, half))
    first, second = np.moveaxis(working(x).reshape(*x.shape[:-1], *sizes), axis, 0)
    turned = np.stack((first * cos - second * sin, first * sin + second * cos), axis)
    return turned.reshape(x.shape).astype(x.dtype.type, copy=False)


def interleaved_to_half(d_k):
    """The order of features that leads from one pairing of `rotate` to the other: `(d_k,)`.

    With `order = interleaved_to_half(d_k)`, `rotate(x, ..., pairing="interleaved")[..., order]`
    is `rotate(x[..., order], ..., pairing="half")`; `np.argsort(order)` leads back. Weights
    change sides by `merge_heads(split_heads(W_Q, num_heads)[..., order])`, `W_K` and biases
    likewise: scores stay what they were. (GGUF files hold Llama's interleaved.)

    Raises `ValueError` for an odd width.

    Source: llama.cpp, convert_hf_to_gguf.py, `permute`, which goes the other way.

    >>> interleaved_to_half(6)
    array([0, 2, 4, 1, 3, 5])
    """
    return np.arange(_checks.check_pairs(d_k)).reshape(-1, 2).T.reshape(-1)


def _angles(positions, width, base):
    """`position * base ** (-c / width)` for each even column `c`: `(..., n, ceil(width / 2))`."""
    return positions[..., None] * base ** (-np.arange(0, width, 2) / width)
