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


def sinusoidal_positions(n, d_model):
    """A table of waves, each slower than the one before, to be added to the tokens.

    n, d_model: whole numbers -> `(n, d_model)` in float64. Columns `2 i` and `2 i + 1` hold the
    sine and the cosine of `position / 10000 ** (2 i / d_model)`; with an odd d_model the last
    sine goes without its cosine.

    Raises `ValueError` or `TypeError` for sizes that are not whole numbers of at least 0 and 1.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    >>> sinusoidal_positions(3, 4).round(2)
    array([[ 0.  ,  1.  ,  0.  ,  1.  ],
           [ 0.84,  0.54,  0.01,  1.  ],
           [ 0.91, -0.42,  0.02,  1.  ]])
    """
    n = _checks.check_count("n", n, least=0)
    d_model = _checks.check_count("d_model", d_model)
    angles = _angles(np.arange(n), d_model, 10000.0)
    waves = np.stack((np.sin(angles), np.cos(angles)), axis=-1)
    return waves.reshape(n, 2 * angles.shape[-1])[:, :d_model]


def relative_distances(n_query, n_key=None, *, offset=None):
    """How far after each query each key stands, negative before it: `(..., n_query, n_key)`.

    Sizes, offset and errors: as in `causal_mask`, so by default the last query stands with the
    last key. Returns int64.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations",
    section 3.2, before they are clipped.

    >>> relative_distances(2, 4)
    array([[-2, -1,  0,  1],
           [-3, -2, -1,  0]])
    """
    n_query, n_key, offset = _checks.check_range(n_query, n_key, offset)
    queries = np.arange(n_query)[:, None] + np.asarray(offset, np.int64)[..., None, None]
    return np.arange(n_key) - queries


def relative_key_scores(query, table, n_key=None, *, offset=None, scale=None):
    """Scores of each query with learned keys that stand for distances: Shaw's key term, a `bias`.

    query `(..., n_query, d_k)`; table `(2 * k + 1, d_k)`, whose row `k + r` stands for a key `r`
    places after the query, `r` clipped to -k to k -> `(..., n_query, n_key)` in the query's
    dtype (float32 for float16), to be passed as `bias=` to any attention with the same query.
    n_key, offset: as in `causal_mask`; `n_key=None` means `n_query`, and by default the last
    query stands with the last key. An array of offsets must broadcast to the query's leading
    axes; with heads write `offset[:, None]`.
    scale: a number, by default `1 / sqrt(d_k)`: that of the attention.

    Raises `ValueError` for shapes that do not fit, `TypeError` for anything but floating NumPy
    arrays of one dtype.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations",
    the second term of equation 5.

    >>> query, table = np.array([[1.0], [2.0]]), np.array([[-1.0], [0.0], [5.0]])
    >>> relative_key_scores(query, table)
    array([[ 0.,  5.],
           [-2.,  0.]])
    """
    check_floating(query=query, table=table)
    _checks.check_distance_table(query.shape, table.shape)
    scale = _checks.resolve_scale(scale, query.shape[-1], np.finfo(working_dtype(query)))
    distances = relative_distances(query.shape[-2], n_key, offset=offset)
    lead = _checks.broadcast({"query": query.shape[:-2], "offset": distances.shape[:-2]})
    reach = len(table) // 2
    rows = np.clip(distances, -reach, reach) + reach
    scores = (working(query) * scale) @ working(table).T
    scores, rows = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (scores, rows))
    return np.take_along_axis(scores, rows, axis=-1)


def relative_buckets(distance, *, bidirectional, num_buckets, max_distance):
    """Numbers of buckets for distances, fine near 0 and coarse further out: rows of a table.

    distance: whole numbers of any shape, key position minus query position as in
    `relative_distances` -> int64 of the same shape, from 0 to `num_buckets - 1`. Of a learned
    table `(num_buckets, num_heads)` make a bias `(num_heads, n_query, n_key)` by
    `np.moveaxis(table[buckets], -1, 0)`.
    bidirectional: True gives keys after the query their own half of the buckets; False puts
    them all into bucket 0, for causal attention.
    The first half of a direction's buckets hold one distance each, the rest grow like powers,
    up to `max_distance`, from where on all is one bucket. Where they begin is computed in whole
    numbers: no rounding of a logarithm decides.

    Raises `TypeError` for distances that are not whole numbers, `ValueError` for too few buckets
    or a max_distance that these reach one by one.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 2.1, and its code.

    >>> distance = np.array([-40, -9, -2, -1, 0, 1, 2, 9, 40])
    >>> relative_buckets(distance, bidirectional=True, num_buckets=12, max_distance=30)
    array([ 5,  4,  2,  1,  0,  7,  8, 10, 11])
    """
    check_whole("distance", distance)
    buckets, max_distance = _checks.check_buckets(bidirectional, num_buckets, max_distance)
    distance = distance.astype(np.int64)
    far = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
    found = np.searchsorted(bucket_edges(buckets, max_distance), far, side="right")
    return found + buckets * (distance > 0) if bidirectional else found


def alibi_bias(num_heads, n_query, n_key=None, *, offset=None):
    """A `bias` that lowers scores with distance, in each head by another slope.

    num_heads: any number -> `(..., num_heads, n_query, n_key)` in float64. A score falls by the
    head's slope for each place between query and key, in either direction. With `h` heads, a
    power of two, the slopes are `2 ** (-8 i / h)` for i from 1 to h; with another number those
    of the largest power of two below it, then every second one of twice as many heads.
    n_query, n_key, offset and errors: as in `causal_mask`. (Published for causal attention; the
    keys after a query are the mirror image here.)

    Source: Press et al. 2022, "Train Short, Test Long", section 3; other numbers of heads: its
    code.

    >>> alibi_bias(2, 3)[1] * 2**8
    array([[ 0., -1., -2.],
           [-1.,  0., -1.],
           [-2., -1.,  0.]])
    """
    slopes = np.array(alibi_slopes(_checks.check_count("num_heads", num_heads)))
    distances = relative_distances(n_query, n_key, offset=offset)
    return slopes[:, None, None] * -np.abs(distances)[..., None, :, :]


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


def alibi_slopes(num_heads):
    """The slope of each head, as floats."""
    power = 1 << (num_heads.bit_length() - 1)  # the largest power of two that is not larger
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
    return (slopes + between)[:num_heads]


def bucket_edges(buckets, max_distance):
    """The distances at which bucket 1, 2, ... of one direction begin, as ints.

    After the `single` buckets of one distance come `rest` more. The one numbered `b` of these
    begins with the first distance at which
    `rest * log(distance / single) / log(max_distance / single) >= b`.
    """
    single = buckets // 2
    rest = buckets - single
    edges = list(range(1, single))
    for b in range(rest):
        edge = int(single * (max_distance / single) ** (b / rest))
        while edge**rest < max_distance**b * single ** (rest - b):  # the same, in whole numbers
            edge += 1
        edges.append(edge)
    return edges


def _angles(positions, width, base):
    """`position * base ** (-c / width)` for each even column `c`: `(..., n, ceil(width / 2))`."""
    return positions[..., None] * base ** (-np.arange(0, width, 2) / width)
