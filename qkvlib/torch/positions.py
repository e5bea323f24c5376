"""Where a token stands, told to a layer that by itself does not know."""

import torch
from torch.nn.functional import embedding

from qkvlib import _checks
from qkvlib.numpy.positions import alibi_slopes, bucket_edges
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


def sinusoidal_positions(n, d_model, *, device=None):
    """A table of waves, each slower than the one before, to be added to the tokens.

    n, d_model: whole numbers -> `(n, d_model)` in torch's default dtype. Columns `2 i` and
    `2 i + 1` hold the sine and the cosine of `position / 10000 ** (2 i / d_model)`; with an odd
    d_model the last sine goes without its cosine.

    Raises `ValueError` or `TypeError` for sizes that are not whole numbers of at least 0 and 1.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    >>> sinusoidal_positions(3, 4)
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8415,  0.5403,  0.0100,  0.9999],
            [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    n = _checks.check_count("n", n, least=0)
    d_model = _checks.check_count("d_model", d_model)
    angles = _angles(torch.arange(n, device=device), d_model, 10000.0)
    waves = torch.stack((torch.sin(angles), torch.cos(angles)), dim=-1)
    return waves.flatten(-2)[:, :d_model].to(torch.get_default_dtype())


def relative_distances(n_query, n_key=None, *, offset=None, device=None):
    """How far after each query each key stands, negative before it: `(..., n_query, n_key)`.

    Sizes, offset and errors: as in `causal_mask`, so by default the last query stands with the
    last key. Returns int64.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations",
    section 3.2, before they are clipped.

    >>> relative_distances(2, 4)
    tensor([[-2, -1,  0,  1],
            [-3, -2, -1,  0]])
    """
    n_query, n_key, offset = _checks.check_range(n_query, n_key, offset, torch.Tensor)
    if isinstance(offset, torch.Tensor):
        device = offset.device if device is None else device
        offset = offset.to(device, torch.int64)[..., None, None]
    queries = torch.arange(n_query, device=device)[:, None] + offset
    return torch.arange(n_key, device=device) - queries


def relative_key_scores(query, table, n_key=None, *, offset=None, scale=None):
    """Scores of each query with learned keys that stand for distances: Shaw's key term, a `bias`.

    query `(..., n_query, d_k)`; table `(2 * k + 1, d_k)`, whose row `k + r` stands for a key `r`
    places after the query, `r` clipped to -k to k -> `(..., n_query, n_key)` in the query's
    dtype (float32 for half types), to be passed as `bias=` to any attention with the same query.
    n_key, offset: as in `causal_mask`; `n_key=None` means `n_query`, and by default the last
    query stands with the last key. A tensor of offsets must broadcast to the query's leading
    axes; with heads write `offset[:, None]`.
    scale: a number, by default `1 / sqrt(d_k)`: that of the attention.

    Raises `ValueError` for shapes or devices that do not fit, `TypeError` for anything but
    floating tensors of one dtype.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations",
    the second term of equation 5.

    >>> query, table = torch.tensor([[1.0], [2.0]]), torch.tensor([[-1.0], [0.0], [5.0]])
    >>> relative_key_scores(query, table)
    tensor([[ 0.,  5.],
            [-2.,  0.]])
    """
    check_floating(query=query, table=table)
    _checks.check_distance_table(shape_of(query), shape_of(table))
    scale = _checks.resolve_scale(scale, query.shape[-1], torch.finfo(working_dtype(query)))
    distances = relative_distances(query.shape[-2], n_key, offset=offset, device=query.device)
    lead = _checks.broadcast({"query": shape_of(query)[:-2], "offset": shape_of(distances)[:-2]})
    reach = len(table) // 2
    rows = distances.clamp(-reach, reach) + reach
    scores = (working(query) * scale) @ working(table).T
    scores, rows = (x.expand(*lead, *x.shape[-2:]) for x in (scores, rows))
    return scores.gather(-1, rows)


def relative_buckets(distance, *, bidirectional, num_buckets, max_distance):
    """Numbers of buckets for distances, fine near 0 and coarse further out: rows of a table.

    distance: whole numbers of any shape, key position minus query position as in
    `relative_distances` -> int64 of the same shape, from 0 to `num_buckets - 1`. Of a learned
    table `(num_buckets, num_heads)` make a bias `(num_heads, n_query, n_key)` by
    `table[buckets].movedim(-1, 0)`.
    bidirectional: True gives keys after the query their own half of the buckets; False puts
    them all into bucket 0, for causal attention.
    The first half of a direction's buckets hold one distance each, the rest grow like powers,
    up to `max_distance`, from where on all is one bucket. Where they begin is computed in whole
    numbers: no rounding of a logarithm decides.

    Raises `TypeError` for distances that are not whole numbers, `ValueError` for too few buckets
    or a max_distance that these reach one by one.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 2.1, and its code.

    >>> distance = torch.tensor([-40, -9, -2, -1, 0, 1, 2, 9, 40])
    >>> relative_buckets(distance, bidirectional=True, num_buckets=12, max_distance=30)
    tensor([ 5,  4,  2,  1,  0,  7,  8, 10, 11])
    """
    check_whole("distance", distance)
    buckets, max_distance = _checks.check_buckets(bidirectional, num_buckets, max_distance)
    distance = distance.to(torch.int64)
    far = distance.abs() if bidirectional else (-distance).clamp(min=0)
    edges = torch.tensor(bucket_edges(buckets, max_distance), device=distance.device)
    found = torch.bucketize(far.contiguous(), edges, right=True)
    return found + buckets * (distance > 0) if bidirectional else found


def alibi_bias(num_heads, n_query, n_key=None, *, offset=None, device=None):
    """A `bias` that lowers scores with distance, in each head by another slope.

    num_heads: any number -> `(..., num_heads, n_query, n_key)` in float64 (float32 where there
    is none). A score falls by the head's slope for each place between query and key, in either
    direction. With `h` heads, a power of two, the slopes are `2 ** (-8 i / h)` for i from 1 to
    h; with another number those of the largest power of two below it, then every second one of
    twice as many heads.
    n_query, n_key, offset and errors: as in `causal_mask`. (Published for causal attention; the
    keys after a query are the mirror image here.)

    Source: Press et al. 2022, "Train Short, Test Long", section 3; other numbers of heads: its
    code.

    >>> alibi_bias(2, 3)[1].float() * 2**8
    tensor([[ 0., -1., -2.],
            [-1.,  0., -1.],
            [-2., -1.,  0.]])
    """
    slopes = alibi_slopes(_checks.check_count("num_heads", num_heads))
    distances = relative_distances(n_query, n_key, offset=offset, device=device)
    slopes = torch.tensor(slopes, dtype=exact_dtype(distances.device), device=distances.device)
    return slopes[:, None, None] * -distances.abs()[..., None, :, :]


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
