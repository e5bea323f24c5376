"""Where a token stands: by a table learned or of waves, by distance, by rotation."""

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from twins import BACKENDS, EVERY, EXACT, assert_near, back, dtype_of, torch

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
PAIRINGS = ["interleaved", "half"]

# ---- learned -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 2, 3), ()], ids=str)
@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "int8", "uint8"])
def test_learned_positions_are_rows_of_the_table(twin, generator, shape, kind):
    positions = generator.integers(0, 7, shape)
    table = generator.normal(size=(7, 5))
    found = twin.lib.learned_positions(
        twin.array(np.asarray(positions).astype(kind)), twin.array(table)
    )
    assert dtype_of(found) == twin.dtype
    np.testing.assert_array_equal(back(found), twin.rounded(table)[0][positions])


def test_in_torch_only_the_rows_read_learn(backend, generator):
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    table = backend.array(generator.normal(size=(7, 5))).requires_grad_()
    found = backend.lib.learned_positions(backend.array(np.array([2, 2, 0])), table)
    found.sum().backward()
    assert back(table.grad)[:, 0].tolist() == [1, 0, 2, 0, 0, 0, 0]


# ---- sinusoidal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_sinusoidal_positions(backend, n, d_model):
    found = backend.lib.sinusoidal_positions(n, d_model)
    expected = np.zeros((n, d_model))
    for position, column in np.ndindex(n, d_model):
        angle = position / 10000 ** (2 * (column // 2) / d_model)
        expected[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    assert_near(found, expected, dtype="float32" if backend.is_torch else "float64")


def test_in_torch_sinusoidal_positions_have_the_default_dtype(backend):
    if backend.is_torch:
        torch.set_default_dtype(torch.float64)
    try:
        found = backend.lib.sinusoidal_positions(500, 6)
    finally:
        if backend.is_torch:
            torch.set_default_dtype(torch.float32)
    expected = [math.sin(499), math.cos(499), math.sin(499 / 10000 ** (1 / 3))]
    assert_near(found[499, :3], expected, dtype="float64")


@needs_torch
def test_against_the_waves_of_transformers(backend):
    """Marian has all sines first, then all cosines."""
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    other = back(marian.MarianSinusoidalPositionalEmbedding(50, 6).create_weight())
    found = back(backend.lib.sinusoidal_positions(50, 6))
    np.testing.assert_allclose(found[:, [0, 2, 4, 1, 3, 5]], other, atol=1e-6)


def test_a_step_turns_the_waves_alike_everywhere(backend):
    """The waves at p + k are a linear function of those at p, the same for each p."""
    waves = back(backend.lib.sinusoidal_positions(40, 8))
    step, *_ = np.linalg.lstsq(waves[:-3], waves[3:], rcond=None)
    np.testing.assert_allclose(waves[:-3] @ step, waves[3:], atol=1e-5)


# ---- distances -----------------------------------------------------------------------------------

OFFSETS = [None, 0, 3, -2, np.array([2, 0, -1]), np.array([[1], [7]], dtype=np.int32)]


def distances_by_hand(n_query, n_key, offset):
    n_key = n_query if n_key is None else n_key
    offset = np.asarray(n_key - n_query if offset is None else offset)
    found = np.zeros((*offset.shape, n_query, n_key))
    for *item, i, j in np.ndindex(found.shape):
        found[(*item, i, j)] = j - (i + offset[tuple(item)])
    return found


def given_offset(twin, offset):
    return twin.array(offset) if isinstance(offset, np.ndarray) else offset


@pytest.mark.parametrize("offset", OFFSETS, ids=str)
@pytest.mark.parametrize("sizes", [(3, 5), (4, None), (5, 2), (0, 3)], ids=str)
def test_relative_distances(backend, sizes, offset):
    found = backend.lib.relative_distances(*sizes, offset=given_offset(backend, offset))
    assert_near_whole(found, distances_by_hand(*sizes, offset))


def assert_near_whole(found, expected):
    assert dtype_of(found) == "int64"
    np.testing.assert_array_equal(back(found), expected)


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint64"])
def test_offsets_of_any_kind_of_whole_number(backend, kind):
    found = backend.lib.relative_distances(
        2, 3, offset=backend.array(np.array([1, 4]).astype(kind))
    )
    assert_near_whole(found, distances_by_hand(2, 3, np.array([1, 4])))


def test_distances_are_aligned_as_masks_are(backend):
    for sizes, offset in (((3, 5), None), ((5, 3), None), ((3, 5), 1)):
        causal = backend.lib.causal_mask(*sizes, offset=offset)
        distances = backend.lib.relative_distances(*sizes, offset=offset)
        np.testing.assert_array_equal(back(causal), back(distances) <= 0)


# ---- Shaw's key term -----------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [None, 3, np.array([[2], [0]])], ids=str)
@pytest.mark.parametrize("n_key", [None, 6, 3])
@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("k", [0, 2, 5])
def test_relative_key_scores(twin, generator, offset, n_key, scale, k):
    query, table = generator.normal(size=(2, 3, 4, 7)), generator.normal(size=(2 * k + 1, 7))
    found = twin.lib.relative_key_scores(
        *twin.arrays(query, table), n_key, offset=given_offset(twin, offset), scale=scale
    )
    query, table = twin.rounded(query, table)
    distances = np.broadcast_to(distances_by_hand(4, n_key, offset), (2, 3, 4, n_key or 4))
    expected = np.zeros(distances.shape)
    for *item, j in np.ndindex(expected.shape):
        row = table[int(min(max(distances[(*item, j)], -k), k)) + k]
        product = math.fsum(query[tuple(item)] * row)
        expected[(*item, j)] = product * (1 / math.sqrt(7) if scale is None else scale)
    assert_near(found, expected, dtype=twin.computed)


def test_a_step_with_a_cache_gets_the_last_row(backend, generator):
    query, table = backend.arrays(generator.normal(size=(3, 6, 7)), generator.normal(size=(5, 7)))
    whole = backend.lib.relative_key_scores(query, table)
    step = backend.lib.relative_key_scores(query[:, -1:], table, 6)
    assert_near(step, back(whole)[:, -1:])


def test_as_a_bias_it_is_shaws_attention(backend, generator):
    """Equation 4: each key plus the row for its distance, then the product."""
    query, key, table = (generator.normal(size=s) for s in ((2, 3, 4, 7), (2, 3, 6, 7), (5, 7)))
    rows = table[np.clip(np.arange(6) - np.arange(4)[:, None] - 2, -2, 2) + 2]
    expected = ((key[..., None, :, :] + rows) @ query[..., None])[..., 0] / math.sqrt(7)
    query, key, table = backend.arrays(query, key, table)
    bias = backend.lib.relative_key_scores(query, table, 6)
    assert_near(backend.lib.attention_scores(query, key, bias=bias), expected)


@needs_torch
def test_shaws_table_learns(generator):
    twin = BACKENDS[-1]
    query, table = (
        twin.array(generator.normal(size=s)).requires_grad_() for s in ((3, 4, 2), (5, 2))
    )
    assert torch.autograd.gradcheck(
        lambda *given: twin.lib.relative_key_scores(*given, 5), (query, table)
    )


# ---- T5's buckets --------------------------------------------------------------------------------

SIZES = [(32, 128), (32, 20), (8, 9), (12, 30), (64, 128), (4, 3), (4, 5), (6, 1000), (33, 100)]


@needs_torch
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("sizes", [*SIZES, (320, 800), (128, 500), (26, 257)], ids=str)
def test_against_the_buckets_of_transformers(backend, sizes, bidirectional):
    """By a logarithm in float32 there, in whole numbers here: at the edges too they agree."""
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    num_buckets, max_distance = sizes
    distance = np.arange(-2 * max_distance - 3, 2 * max_distance + 4)
    expected = t5.T5Attention._relative_position_bucket(
        torch.from_numpy(distance), bidirectional, num_buckets, max_distance
    )
    found = backend.lib.relative_buckets(
        backend.array(distance),
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    assert_near_whole(found, expected.numpy())


def test_where_a_bucket_begins_is_exact(backend):
    """Each bucket reaches three times as far as the one before; floats round 3 ** (b / 6)."""
    whole = {"bidirectional": False, "num_buckets": 12, "max_distance": 6 * 3**6}
    edges = 6 * 3 ** np.arange(1, 6)
    for step, expected in ((-1, 6), (0, 7), (1, 7)):
        found = backend.lib.relative_buckets(backend.array(-edges - step), **whole)
        assert back(found).tolist() == (expected + np.arange(5)).tolist()


@pytest.mark.parametrize("kind", ["int64", "int32", "int8", "uint8", "uint16"])
@pytest.mark.parametrize("shape", [(), (3,), (1, 0, 2), (2, 3, 4)], ids=str)
def test_distances_of_any_kind_and_shape(backend, generator, kind, shape):
    low = 0 if kind[0] == "u" else -128
    distance = np.asarray(generator.integers(low, 128, shape)).astype(kind)
    for bidirectional in (True, False):
        options = {"bidirectional": bidirectional, "num_buckets": 8, "max_distance": 50}
        found = backend.lib.relative_buckets(backend.array(distance), **options)
        wide = backend.lib.relative_buckets(backend.array(distance.astype(int)), **options)
        assert_near_whole(found, back(wide))


@pytest.mark.parametrize("bidirectional", [True, False])
@given(
    num_buckets=st.integers(4, 70),
    further=st.integers(1, 3000),
    start=st.integers(0, 10_000),
)
def test_laws_of_buckets(bidirectional, num_buckets, further, start):
    """Further is never nearer; 0 is in bucket 0; from max_distance on all are in the last one."""
    single = num_buckets // 4 if bidirectional else num_buckets // 2
    max_distance = single + further
    last = (num_buckets // 2 if bidirectional else num_buckets) - 1
    away = np.sort([*range(single + 1), start, start + 1, max_distance, 10**9])
    for twin in BACKENDS:

        def bucket(distance, twin=twin):
            return back(
                twin.lib.relative_buckets(
                    twin.array(distance),
                    bidirectional=bidirectional,
                    num_buckets=num_buckets,
                    max_distance=max_distance,
                )
            )

        before = bucket(-away)
        assert (np.diff(before) >= 0).all()
        np.testing.assert_array_equal(before[away <= single], away[away <= single])
        assert (before[away >= max_distance] == last).all()
        assert before.max() == last
        after = bucket(away[away > 0])
        expected = before[away > 0] + num_buckets // 2 if bidirectional else 0
        np.testing.assert_array_equal(after, expected)


def test_as_a_bias_it_is_t5s(backend, generator):
    lib, table = backend.lib, backend.array(generator.normal(size=(8, 3)))
    buckets = lib.relative_buckets(
        lib.relative_distances(4, 6), bidirectional=True, num_buckets=8, max_distance=9
    )
    bias = table[buckets].movedim(-1, 0) if backend.is_torch else np.moveaxis(table[buckets], -1, 0)
    assert_near(bias[1, 3, 5], back(table)[0, 1])
    query, key = (backend.array(generator.normal(size=(2, 3, n, 5))) for n in (4, 6))
    plain, added = lib.attention_scores(query, key), lib.attention_scores(query, key, bias=bias)
    for head, i, j in np.ndindex(3, 4, 6):
        row = {-5: 3, -4: 2, -3: 2, -2: 2, -1: 1, 0: 0, 1: 5, 2: 6, 3: 6}[j - i - 2]
        expected = back(plain)[:, head, i, j] + back(table)[row, head]
        assert_near(added[:, head, i, j], expected)


# ---- ALiBi ---------------------------------------------------------------------------------------

SLOPES = {  # as 2 ** -x, published: for 8 heads 1 to 8, for 16 half of each
    1: [8],
    2: [4, 8],
    3: [4, 8, 2],
    6: [2, 4, 6, 8, 1, 3],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    16: [x / 2 for x in range(1, 17)],
}


@pytest.mark.parametrize("num_heads", SLOPES)
@pytest.mark.parametrize("offset", OFFSETS, ids=str)
def test_alibi_bias(exact, num_heads, offset):
    found = exact.lib.alibi_bias(num_heads, 3, 5, offset=given_offset(exact, offset))
    away = np.abs(distances_by_hand(3, 5, offset))[..., None, :, :]
    expected = np.array([2.0**-x for x in SLOPES[num_heads]])[:, None, None] * -away
    assert_near(found, expected, dtype="float64")


@needs_torch
@pytest.mark.parametrize("num_heads", [1, 3, 4, 6, 7, 8, 12, 16, 20, 71])
def test_against_blooms_alibi(backend, generator, num_heads):
    """There the bias grows with the key's position, here it falls with the distance: for causal
    attention each row differs by one number, and the weights do not."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    other = bloom.build_alibi_tensor(torch.ones(1, 5), num_heads, torch.float64)
    query, key = (generator.normal(size=(2, num_heads, 5, 3)) for _ in range(2))
    lib, other = backend.lib, backend.array(other.numpy())
    mask, ours = lib.causal_mask(5), lib.alibi_bias(num_heads, 5)
    found, expected = (
        back(lib.attention_weights(*backend.arrays(query, key), mask=mask, bias=bias))
        for bias in (ours, other)
    )
    np.testing.assert_allclose(found, expected, atol=1e-7)  # their slopes are of float32


# ---- rotary: the angles --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2, 3), ()], ids=str)
@pytest.mark.parametrize("base", [10000.0, 100000, 1])
def test_rotary_angles(exact, generator, shape, base):
    positions = np.asarray(generator.integers(-50, 50, shape))
    expected = [
        [(math.cos(p * base ** (-2 * i / 6)), math.sin(p * base ** (-2 * i / 6))) for i in range(3)]
        for p in positions.flat
    ]
    expected = np.moveaxis(np.array(expected).reshape(*shape, 3, 2), -1, 0)
    found = exact.lib.rotary_angles(exact.array(positions), 6, base=base)
    for got, wanted in zip(found, expected, strict=True):
        assert_near(got, wanted, dtype="float64")


@pytest.mark.parametrize("kind", ["int64", "int32", "int8", "uint8", "uint16"])
def test_positions_of_any_kind_of_whole_number(backend, kind):
    positions = np.array([0, 3, 120])
    found = backend.lib.rotary_angles(backend.array(positions.astype(kind)), 4)
    expected = backend.lib.rotary_angles(backend.array(positions), 4)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(back(got), back(wanted))


def test_angles_are_exact_far_out(backend):
    """In float32 the angle of position 100000 would be off by 0.004."""
    cos, sin = backend.lib.rotary_angles(backend.array(np.array([100_000])), 64)
    turn = math.fmod(100_000 * 10000.0 ** (-2 / 64), 2 * math.pi)
    np.testing.assert_allclose(back(cos)[0, 1], math.cos(turn), atol=1e-9)
    np.testing.assert_allclose(back(sin)[0, 1], math.sin(turn), atol=1e-9)


# ---- rotary: the rotation ------------------------------------------------------------------------


def turn(twin, x, positions, pairing, **options):
    cos, sin = twin.lib.rotary_angles(twin.array(np.asarray(positions)), x.shape[-1], **options)
    return twin.lib.rotate(x, cos, sin, pairing=pairing)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_rotate(twin, generator, pairing, lead):
    x, positions = generator.normal(size=(*lead, 4, 6)), np.array([7, 0, -2, 31])
    [rounded] = twin.rounded(x)
    expected = reference.rotate(rounded, positions, pairing)
    found = turn(twin, twin.array(x), positions, pairing)
    assert_near(found, expected, dtype=twin.dtype)


@pytest.mark.parametrize("twin", [twin for twin in EVERY if twin.is_half], ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_angles_are_not_rounded_to_half_precision(twin, generator, pairing):
    """Half inputs are turned in float32, by angles as exact as that, and rounded once."""
    x, positions = generator.normal(size=(50, 6)), np.arange(50)
    [rounded] = twin.rounded(x)
    exact = reference.rotate(rounded, positions, pairing)
    [expected] = twin.rounded(exact)
    found = back(turn(twin, twin.array(x), positions, pairing))
    assert (found == expected).mean() > 0.99


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_positions_of_each_batch_item(backend, generator, pairing):
    """Batch as large as heads: without the head axis the wrong one would be taken."""
    x, positions = generator.normal(size=(3, 3, 4, 6)), generator.integers(0, 9, (3, 1, 4))
    expected = reference.rotate(x, positions, pairing, base=100.0)
    assert_near(turn(backend, backend.array(x), positions, pairing, base=100.0), expected)
    single = turn(backend, backend.array(x[0, 0, 1]), positions[0, 0, 1], pairing, base=100.0)
    assert_near(single, expected[0, 0, 1])


@pytest.mark.parametrize("angles", ["float16", "float32", "float64"])
def test_angles_of_any_floating_dtype(backend, generator, angles):
    x, turns = generator.normal(size=(4, 6)), generator.normal(size=(4, 3)).astype(angles)
    cos, sin = (f(turns.astype(float)).astype(angles) for f in (np.cos, np.sin))
    for dtype in ("float32", "float64"):
        x_ = x.astype(dtype).astype(float)
        found = backend.lib.rotate(
            backend.array(x, dtype),
            *(backend.array(a, angles) for a in (cos, sin)),
            pairing="half",
        )
        first, second = x_[:, :3], x_[:, 3:]
        c, s = cos.astype(dtype).astype(float), sin.astype(dtype).astype(float)
        expected = np.concatenate([first * c - second * s, first * s + second * c], axis=-1)
        assert_near(found, expected, dtype=dtype)


@needs_torch
def test_against_llamas_rotation(backend, generator):
    """transformers rotates halves, and doubles the angles to the full width."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    query, key = generator.normal(size=(2, 3, 4, 6)), generator.normal(size=(2, 1, 4, 6))
    positions = generator.integers(0, 99, (2, 4))
    angles = positions[..., None] * 10000.0 ** (-np.arange(3) / 3)
    doubled = np.concatenate([angles, angles], axis=-1)
    expected = llama.apply_rotary_pos_emb(
        *map(torch.from_numpy, (query, key, np.cos(doubled), np.sin(doubled)))
    )
    for x, wanted in zip((query, key), expected, strict=True):
        assert_near(turn(backend, backend.array(x), positions[:, None], "half"), wanted.numpy())


@needs_torch
def test_against_llamas_angles(backend):
    """transformers computes them in float32."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    rope = {"rope_type": "default", "rope_theta": 100000.0}
    config = llama.LlamaConfig(hidden_size=24, num_attention_heads=4, rope_parameters=rope)
    positions = np.arange(200)[None]
    other = llama.LlamaRotaryEmbedding(config)(torch.zeros(1), torch.from_numpy(positions))
    found = backend.lib.rotary_angles(backend.array(positions), 6, base=100000.0)
    for got, wanted in zip(found, other, strict=True):
        np.testing.assert_allclose(back(got), wanted[..., :3].numpy(), atol=1e-4)


# ---- rotary: its laws ----------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("twin", EXACT, ids=str)
@given(data=st.data())
def test_scores_depend_on_the_distance_alone(twin, pairing, data):
    d_k = data.draw(st.sampled_from([2, 6, 8]))
    base = data.draw(st.sampled_from([1.0, 100.0, 10000.0]))
    shift = data.draw(st.integers(-500, 500))
    here = np.array(data.draw(st.lists(st.integers(0, 500), min_size=4, max_size=4)))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    query, key = (twin.array(generator.normal(size=(4, d_k))) for _ in range(2))

    def scores(positions):
        turned = (turn(twin, x, positions, pairing, base=base) for x in (query, key))
        return back(twin.lib.attention_scores(*turned))

    np.testing.assert_allclose(scores(here + shift), scores(here), atol=1e-11)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_scores_do_depend_on_the_distance(backend, generator, pairing):
    query, key = (backend.array(generator.normal(size=(4, 6))) for _ in range(2))
    still = turn(backend, query, np.zeros(4, int), pairing)
    moved = turn(backend, query, np.full(4, 3), pairing)
    gap = back(backend.lib.attention_scores(still, key) - backend.lib.attention_scores(moved, key))
    assert np.abs(gap).min() > 1e-3


@pytest.mark.parametrize("pairing", PAIRINGS)
@given(data=st.data())
def test_turning_keeps_the_length(pairing, data):
    magnitude = 10.0 ** data.draw(st.integers(-30, 30))
    positions = np.array(data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5)))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = magnitude * generator.normal(size=(3, len(positions), 8))
    for twin in BACKENDS:
        found = back(turn(twin, twin.array(x), positions, pairing))
        np.testing.assert_allclose(
            np.linalg.norm(found, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-12
        )


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_at_position_0_nothing_turns(twin, generator, pairing):
    [x] = twin.rounded(generator.normal(size=(2, 3, 4, 6)))
    np.testing.assert_array_equal(back(turn(twin, twin.array(x), np.zeros(4, int), pairing)), x)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_turning_back(twin, generator, pairing):
    [x] = twin.rounded(generator.normal(size=(3, 4, 6)))
    positions = np.arange(4) + 5
    there = turn(twin, twin.array(x), positions, pairing)
    assert_near(turn(twin, there, -positions, pairing), x, dtype=twin.dtype)


@needs_torch
def test_in_torch_its_gradient_is_the_turn_back(generator):
    twin = BACKENDS[-1]
    x = twin.array(generator.normal(size=(3, 4, 6))).requires_grad_()
    w = twin.array(generator.normal(size=(3, 4, 6)))
    (turn(twin, x, np.arange(4), "half") * w).sum().backward()
    assert_near(x.grad, back(turn(twin, w, -np.arange(4), "half")))


# ---- from one pairing to the other ---------------------------------------------------------------


@pytest.mark.parametrize("d_k", [2, 4, 6, 64])
def test_the_order_leads_from_one_pairing_to_the_other(backend, generator, d_k):
    x, order = (
        backend.array(generator.normal(size=(3, 4, d_k))),
        backend.lib.interleaved_to_half(d_k),
    )
    interleaved, half = (
        turn(backend, y, np.arange(4), p) for y, p in ((x, "interleaved"), (x[..., order], "half"))
    )
    np.testing.assert_array_equal(back(interleaved[..., order]), back(half))
    there_and_back = back(order)[np.argsort(back(order))]
    assert there_and_back.tolist() == list(range(d_k))


def test_weights_change_sides(backend, generator):
    """The same scores from a layer whose W_Q and W_K are in the other order."""
    lib, h, d_k = backend.lib, 3, 8
    x = backend.array(generator.normal(size=(2, 5, 12)))
    W_Q, W_K = (backend.array(generator.normal(size=(12, h * d_k))) for _ in range(2))
    order = lib.interleaved_to_half(d_k)

    def scores(W_Q, W_K, pairing):
        heads = (lib.split_heads(lib.project(x, W), h) for W in (W_Q, W_K))
        return lib.attention_scores(*(turn(backend, y, np.arange(5), pairing) for y in heads))

    changed = (lib.merge_heads(lib.split_heads(W, h)[..., order]) for W in (W_Q, W_K))
    expected = back(scores(W_Q, W_K, "interleaved"))
    assert_near(scores(*changed, "half"), expected)
    assert not np.allclose(back(scores(W_Q, W_K, "half")), expected)


def test_the_order_is_that_of_gguf(backend):
    """llama.cpp's converter sees each head's rows as (2, d_k / 2) and swaps those axes."""
    half = np.arange(3 * 8).reshape(3, 8)  # the rows of three heads, as transformers has them
    interleaved = half.reshape(3, 2, 4).swapaxes(1, 2).reshape(3, 8)
    order = back(backend.lib.interleaved_to_half(8))
    np.testing.assert_array_equal(interleaved[:, order], half)
