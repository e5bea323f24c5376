"""Reading a text piece by piece with a cache, against reading it at once."""

import contextlib
import copy

import numpy as np
import pytest
from twins import (
    ATTENTION,
    BACKENDS,
    FEED_FORWARD,
    NORM,
    assert_near,
    back,
    dtype_of,
    torch,
    weights,
)

from qkvlib.patterns import causal, window

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")

# d_model 12, six heads of d_k 5 and d_v 2 that share two heads of keys, d_out 7
GROUPED = {"W_Q": (12, 30), "W_K": (12, 10), "W_V": (12, 4), "W_O": (12, 7)}
GROUPED |= {"b_Q": (30,), "b_K": (10,), "b_V": (4,), "b_O": (7,)}
PIECES = [[10], [1] * 10, [3, 1, 4, 2], [6, 1, 1, 1, 1]]


def rotation(twin):
    """Two pairs of columns turned by an angle that grows with the position; the fifth stays."""
    angles = np.outer(np.arange(20), [0.7, 0.3])
    cos, sin = twin.arrays(np.cos(angles), np.sin(angles))
    join = torch.cat if twin.is_torch else np.concatenate

    def rotate(x, positions):
        c, s, a, b = cos[positions], sin[positions], x[..., :2], x[..., 2:4]
        return join([a * c - b * s, a * s + b * c, x[..., 4:]], -1)

    return rotate


def layer(twin, rotate=None):
    w = twin.named(weights(np.random.default_rng(7), GROUPED))
    return twin.lib.MultiHeadAttention.from_weights(**w, num_heads=6, num_kv_heads=2, rotate=rotate)


def pieces(x, lengths):
    stops = np.cumsum(lengths)
    return [x[..., stop - n : stop, :] for n, stop in zip(lengths, stops)]


def read(twin, mha, x, lengths, mask):
    """The output of all pieces, one after the other."""
    cache = twin.lib.KeyValueCache()
    outputs = []
    for piece in pieces(x, lengths):
        outputs.append(mha(piece, mask=mask, cache=cache))
        assert len(cache) == sum(o.shape[-2] for o in outputs)
    return twin.array(np.concatenate([back(o) for o in outputs], axis=-2))


def without_gradients(twin):
    return torch.no_grad() if twin.is_torch else contextlib.nullcontext()


@pytest.mark.parametrize("lengths", PIECES, ids=str)
@pytest.mark.parametrize("lead", [(), (2,), (3, 2)], ids=str)
@pytest.mark.parametrize("rotated", [True, False])
def test_piece_by_piece_is_all_at_once(twin, generator, lengths, lead, rotated):
    mha = layer(twin, rotation(twin) if rotated else None)
    x = twin.array(generator.normal(size=(*lead, 10, 12)))
    expected = back(mha(x, mask=causal))
    assert_near(read(twin, mha, x, lengths, causal), expected)
    assert not np.allclose(expected, back(mha(x)), atol=0.05)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "mask",
    [causal & window(3), causal.shifted(-1), causal | window(2)],
    ids=["near", "past", "far"],
)
def test_the_last_query_stands_with_the_last_key(exact, generator, mask, grad):
    """Also where a query reads nothing, or the one after it as long as it is there."""
    mha = layer(exact, rotation(exact))
    x = exact.array(generator.normal(size=(2, 10, 12)))
    with contextlib.nullcontext() if grad else without_gradients(exact):
        found = read(exact, mha, x, [3, 1, 4, 2], mask)
    written = mask.array(10)
    for start, stop in ((0, 3), (3, 4), (4, 8), (8, 10)):
        written[start:stop, stop:] = False
    assert_near(found, back(mha(x, mask=exact.array(written))))


def test_a_mask_and_a_bias_have_a_column_for_each_key_so_far(exact, generator):
    mha = layer(exact)
    x = exact.array(generator.normal(size=(2, 10, 12)))
    mask = np.tri(10, dtype=bool) & (generator.random((2, 6, 10, 10)) < 0.7)
    bias = generator.normal(size=(6, 10, 10))
    cache, found = exact.lib.KeyValueCache(), []
    for start, stop in ((0, 3), (3, 4), (4, 8), (8, 10)):
        now = slice(start, stop)
        options = {"mask": mask[..., now, :stop], "bias": bias[..., now, :stop]}
        found.append(back(mha(x[:, now], **exact.named(options), cache=cache)))
    expected = mha(x, **exact.named({"mask": mask, "bias": bias}))
    assert_near(exact.array(np.concatenate(found, axis=1)), back(expected))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_hands_the_cache_to_its_attention(exact, generator, norm):
    lib = exact.lib
    attention, ff, *norms = (
        exact.named(weights(generator, shapes)) for shapes in (ATTENTION, FEED_FORWARD, NORM, NORM)
    )
    block = lib.TransformerBlock.from_parts(
        lib.MultiHeadAttention.from_weights(**attention, num_heads=3),
        lib.FeedForward.from_weights(**ff),
        *(lib.LayerNorm.from_weights(**n) for n in norms),
        norm=norm,
    )
    x = exact.array(generator.normal(size=(2, 10, 12)))
    cache = lib.KeyValueCache()
    found = [back(block(p, mask=causal, cache=cache)) for p in pieces(x, [3, 1, 4, 2])]
    assert len(cache) == 10
    assert_near(exact.array(np.concatenate(found, axis=1)), back(block(x, mask=causal)))


# ---- what it holds -------------------------------------------------------------------------------


def test_it_holds_rotated_keys_that_are_not_repeated(exact, generator):
    rotate = rotation(exact)
    mha = layer(exact, rotate)
    x = exact.array(generator.normal(size=(2, 10, 12)))
    cache = exact.lib.KeyValueCache()
    assert len(cache) == 0
    assert cache.key is None
    assert cache.value is None
    for piece in pieces(x, [3, 1, 6]):
        mha(piece, mask=causal, cache=cache)
    _, key, value = mha.project_heads(x)
    positions = exact.array(np.arange(10))
    assert tuple(cache.key.shape) == (2, 2, 10, 5)
    assert_near(cache.key, back(rotate(key, positions)))
    assert_near(cache.value, back(value))


def entries(twin, n=1, start=0):
    """Keys and values whose numbers say which token they are of."""
    tokens = np.arange(start, start + n, dtype=float)[:, None]
    return [
        twin.array(np.broadcast_to(tokens + 1000 * i, (2, 3, n, d))) for i, d in ((0, 5), (1, 6))
    ]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("lengths", [(2, 0, 1, 5), (1, 3)], ids=str)
def test_append_returns_all_so_far_and_keeps_copies(twin, grad, lengths):
    cache = twin.lib.KeyValueCache()
    with contextlib.nullcontext() if grad else without_gradients(twin):
        for n in lengths:
            start = len(cache)
            given = entries(twin, n, start)
            found = cache.append(*given)
            for x in given:
                x *= 0
            for got, held, first in zip(found, (cache.key, cache.value), (0, 1000)):
                assert dtype_of(got) == twin.dtype
                [numbers] = twin.rounded(np.arange(first, first + start + n, dtype=float))
                for x in (got, held):
                    np.testing.assert_array_equal(back(x)[1, 2, :, 4], numbers)
                    assert (back(x) == back(x)[:1, :1, :, :1]).all()
            assert len(cache) == start + n


@needs_torch
def test_a_learned_beginning_before_frozen_tokens():
    """What comes later has no gradient of its own, and must not be written over what has."""
    twin = BACKENDS[-1]
    generator = np.random.default_rng(3)
    w = twin.named(weights(generator, ATTENTION))
    mha = twin.lib.MultiHeadAttention.from_weights(**w, num_heads=3).requires_grad_(False)
    x = twin.array(generator.normal(size=(6, 12)))
    learned = x[:1].clone().requires_grad_()
    whole = mha(torch.cat([learned, x[1:]]), mask=causal)
    [expected] = torch.autograd.grad(whole.square().sum(), learned)
    cache = twin.lib.KeyValueCache()
    outputs = [mha(piece, cache=cache) for piece in (learned, *x[1:].split(1))]
    [found] = torch.autograd.grad(torch.cat(outputs).square().sum(), learned)
    assert_near(found, back(expected))


def test_what_was_returned_stays_what_it_was(backend):
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        returned = [cache.append(*entries(backend, start=i)) for i in range(10)]
    for i, (key, _) in enumerate(returned):
        np.testing.assert_array_equal(back(key)[0, 0, :, 0], np.arange(i + 1))


def test_the_room_doubles(backend):
    """What is held is moved when the room is full, and else stays where it is."""
    moved = []
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        for i in range(100):
            before = cache.key
            key, _ = cache.append(*entries(backend, start=i))
            if i and address(key) != address(before):
                moved.append(i)
    assert moved == [1, 2, 4, 8, 16, 32, 64]


def address(x):
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()


def test_a_cache_can_be_cut(backend, generator):
    mha = layer(backend, rotation(backend))
    x = backend.array(generator.normal(size=(2, 10, 12)))
    other = backend.array(generator.normal(size=(2, 10, 12)))
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        for piece in (x[:, :4], other[:, :3]):
            mha(piece, mask=causal, cache=cache)
        cache.truncate(4)
        assert len(cache) == cache.key.shape[-2] == cache.value.shape[-2] == 4
        found = mha(x[:, 4:], mask=causal, cache=cache)
        assert_near(found, back(mha(x, mask=causal))[:, 4:])
        cache.truncate(0)
        assert cache.key is cache.value is None
        assert_near(mha(other, mask=causal, cache=cache), back(mha(other, mask=causal)))
        cache.truncate(0)  # what comes next may be of another shape
        assert_near(mha(other[0], mask=causal, cache=cache), back(mha(other[0], mask=causal)))


# ---- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [lambda cache: cache.copy(), copy.copy, copy.deepcopy])
def test_a_copy_reads_on_by_itself(backend, generator, copied):
    mha = layer(backend)
    texts = [backend.array(generator.normal(size=(n, 12))) for n in (3, 1, 1, 1, 1)]
    cache, alone = backend.lib.KeyValueCache(), backend.lib.KeyValueCache()
    with without_gradients(backend):  # so that there is room for what comes next
        for text in texts[:2]:
            mha(text, cache=cache)
        other = copied(cache)
        mha(texts[2], cache=cache)
        mha(texts[3], cache=other)
        found = back(mha(texts[4], cache=cache))
        for text in (*texts[:3], texts[4]):
            expected = back(mha(text, cache=alone))
    np.testing.assert_array_equal(found, expected)
    assert (len(cache), len(other)) == (6, 5)
    assert len(copied(backend.lib.KeyValueCache())) == 0


def test_what_does_not_continue_the_cache_is_refused_and_changes_nothing(backend):
    cache = backend.lib.KeyValueCache()
    key, value = entries(backend, 4)
    for wrong, said in (
        ((key, value[..., :3, :]), r"key and value must hold as many rows.*\(2, 3, 4, 5\)"),
        ((key[0, 0, 0], value), r"key must have at least 2 axes, \(\.\.\., n, d_k\)"),
        ((key, value[0, 0, 0]), r"value must have at least 2 axes, \(\.\.\., n, d_v\)"),
    ):
        with pytest.raises(ValueError, match=said):
            cache.append(*wrong)
    assert len(cache) == 0
    cache.append(key, value)
    for wrong, said in (
        ((key[:1], value), r"key must have the shape \(2, 3, 4, 5\) .* for n .*got \(1, 3, 4, 5\)"),
        ((key[..., :4], value), r"key must have the shape .* new KeyValueCache\(\)"),
        ((key, value[:, :2]), r"value must have the shape \(2, 3, 4, 6\)"),
    ):
        with pytest.raises(ValueError, match=said):
            cache.append(*wrong)
    with pytest.raises(
        TypeError, match=r"got key .*float32.* cache\.key .* cache\.value .*float64"
    ):
        cache.append(*(backend.array(x, "float32") for x in (back(key), back(value))))
    with pytest.raises(TypeError, match=r"value must be .*list"):
        cache.append(key, [[0.0]])
    for length, kind in ((5, ValueError), (-1, ValueError), (2.0, TypeError)):
        with pytest.raises(kind, match="length must be"):
            cache.truncate(length)
    assert len(cache) == 4
    np.testing.assert_array_equal(back(cache.key), back(key))


def test_a_source_with_a_cache_is_refused(backend):
    mha = backend.lib.MultiHeadAttention.from_weights(
        **backend.named(weights(np.random.default_rng(7), ATTENTION)), num_heads=3
    )
    x, cache = backend.array(np.ones((2, 4, 12))), backend.lib.KeyValueCache()
    for sources in ((x,), (None, x), (x, x)):
        with pytest.raises(ValueError, match="cache must be None with a source"):
            mha(x, *sources, cache=cache)
    for wrong in ({}, 3, True, [cache]):
        with pytest.raises(TypeError, match=r"cache must be a qkvlib\.\w+\.KeyValueCache, got"):
            mha(x, cache=wrong)
    if torch is not None:
        other = BACKENDS[0 if backend.is_torch else -1].lib.KeyValueCache()
        said = rf"cache must be a qkvlib\.\w+\.KeyValueCache, got {type(other).__module__}\.KeyV"
        with pytest.raises(TypeError, match=said):
            mha(x, cache=other)
    assert len(cache) == 0


def test_a_call_that_raises_leaves_the_cache_as_it_was(backend, generator):
    mha = layer(backend, rotation(backend))
    x = backend.array(generator.normal(size=(2, 10, 12)))
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        with pytest.raises(ValueError, match="mask must"):
            mha(x[:1], mask=backend.array(np.ones((6, 6), bool)), cache=cache)
        assert cache.key is cache.value is None
        mha(x[:, :4], mask=causal, cache=cache)
        for wrong in (
            {"mask": backend.array(np.ones((6, 6), bool))},
            {"mask": [[True]]},
            {"mask": causal & backend.array(np.ones((6, 9), bool))},
            {"bias": backend.array(np.zeros((6, 9)))},
        ):
            with pytest.raises((ValueError, TypeError)):
                mha(x[:, 4:], cache=cache, **wrong)
            assert len(cache) == 4
        found = mha(x[:, 4:], mask=causal, cache=cache)
    assert_near(found, back(mha(x, mask=causal))[:, 4:])


def test_what_fails_after_the_attention_leaves_the_cache_as_it_was_too(backend, generator):
    mha, x = layer(backend), backend.array(generator.normal(size=(2, 6, 12)))
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        mha(x[:, :4], mask=causal, cache=cache)
        if backend.is_torch:
            mha.output = torch.nn.Linear(5, 7)
        else:
            mha.W_O = np.zeros((5, 7))
        with pytest.raises((ValueError, RuntimeError)):
            mha(x[:, 4:], mask=causal, cache=cache)
    assert len(cache) == 4


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_fails_later_in_a_block_leaves_the_cache_as_it_was(backend, generator, norm):
    block = backend.lib.TransformerBlock(12, 2, norm=norm, generator=backend.seeded())
    x = backend.array(generator.normal(size=(2, 6, 12)), dtype="float32")
    if not backend.is_torch:
        x = x.astype("float64")
    with without_gradients(backend):
        cache = backend.lib.KeyValueCache()
        block(x[:, :4], mask=causal, cache=cache)
        block.feed_forward = backend.lib.FeedForward(5)  # for another width
        with pytest.raises(ValueError, match="x must"):
            block(x[:, 4:], mask=causal, cache=cache)
    assert len(cache) == 4


# ---- torch ---------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("lengths", PIECES, ids=str)
@pytest.mark.parametrize("num_kv_heads", [6, 2])
def test_gradients_flow_through_a_cache(generator, lengths, num_kv_heads):
    """Keys that are shared are repeated, others are attended to where they are kept."""
    twin = BACKENDS[-1]
    mha = twin.lib.MultiHeadAttention(
        12, 6, num_kv_heads=num_kv_heads, d_k=5, rotate=rotation(twin), generator=twin.seeded()
    ).double()
    x = twin.array(generator.normal(size=(2, 10, 12)))

    def gradients(outputs):
        return torch.autograd.grad(torch.cat(outputs, dim=1).sin().sum(), list(mha.parameters()))

    cache = twin.lib.KeyValueCache()
    masks = [None if n == 1 else causal for n in lengths]  # one token reads all that came before
    read_on = [mha(p, mask=m, cache=cache) for p, m in zip(pieces(x, lengths), masks)]
    for got, expected in zip(gradients(read_on), gradients([mha(x, mask=causal)])):
        assert_near(got, back(expected))


@needs_torch
def test_without_gradients_a_cache_may_be_read_under_inference_mode(generator):
    twin = BACKENDS[-1]
    mha = layer(twin)
    x = twin.array(generator.normal(size=(2, 10, 12)))
    cache = twin.lib.KeyValueCache()
    with torch.inference_mode():
        found = [mha(p, mask=causal, cache=cache) for p in pieces(x, [3, 1, 4])]
    found.append(mha(x[:, 8:], mask=causal, cache=cache).detach())
    assert_near(torch.cat(found, dim=1), back(mha(x, mask=causal)))


@needs_torch
def test_a_compiled_layer_reads_on(generator):
    """As one graph, whatever the numbers of queries and keys: here they change at each step."""
    twin = BACKENDS[-1]
    mha = layer(twin)
    compiled = torch.compile(mha, backend="eager", fullgraph=True)
    x = twin.array(generator.normal(size=(2, 10, 12)))
    with torch.no_grad():
        assert_near(read(twin, compiled, x, [3, 1, 6], causal), back(mha(x, mask=causal)))
        assert_near(compiled(x[:, :7], mask=causal), back(mha(x[:, :7], mask=causal)))
