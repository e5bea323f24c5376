"""Where a token stands: learned, and by rotation."""

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from twins import BACKENDS, EXACT, assert_near, back, dtype_of, torch

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
