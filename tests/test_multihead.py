"""Projections, heads and the layer: one head after the other, and torch's own layer beside it."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from twins import ATTENTION, BACKENDS, assert_near, back, dtype_of, torch, weights

from qkvlib.patterns import causal

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


# ---- project -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (4,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_project(twin, generator, lead, with_bias):
    x, W, b = (generator.normal(size=s) for s in ((*lead, 5), (5, 7), (7,)))
    rounded_x, rounded_W, rounded_b = twin.rounded(x, W, b)
    expected = np.zeros((*lead, 7))
    for item in np.ndindex(*lead):
        for column in range(7):
            products = rounded_x[item] * rounded_W[:, column]
            expected[item][column] = sum(products) + with_bias * rounded_b[column]
    x, W, b = twin.arrays(x, W, b)
    found = twin.lib.project(x, W, b) if with_bias else twin.lib.project(x, W)
    assert_near(found, expected, dtype=twin.dtype)


def test_half_types_are_projected_in_float32(twin):
    """300 * 300 is no float16, 300 * 300 - 60000 is one."""
    x, b = twin.arrays(np.array([[300.0]]), np.array([-60000.0]))
    [[size], [less]] = twin.rounded(np.array([300.0]), np.array([60000.0]))
    assert_near(twin.lib.project(x, x, b), np.array([[size * size - less]]))


# ---- split and merge -----------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 5)], ids=str)
def test_head_i_gets_its_own_columns(backend, lead):
    x = np.arange(np.prod((*lead, 4, 6))).reshape(*lead, 4, 6)
    heads = backend.lib.split_heads(backend.array(x), 3)
    assert tuple(heads.shape) == (*lead, 3, 4, 2)
    for i in range(3):
        np.testing.assert_array_equal(back(heads)[..., i, :, :], x[..., 2 * i : 2 * i + 2])
    merged = backend.lib.merge_heads(heads)
    np.testing.assert_array_equal(back(merged), x)
    assert dtype_of(merged) == dtype_of(heads) == "int64"


def test_split_is_a_view(backend):
    x = backend.array(np.zeros((4, 6)))
    backend.lib.split_heads(x, 3)[1, 2, 0] = 7.0
    assert back(x)[2, 2] == 7


def test_one_head_and_heads_of_one(backend):
    x = backend.array(np.arange(24.0).reshape(4, 6))
    assert tuple(backend.lib.split_heads(x, 1).shape) == (1, 4, 6)
    assert tuple(backend.lib.split_heads(x, np.int64(6)).shape) == (6, 4, 1)


# ---- the layer -----------------------------------------------------------------------------------


def by_hand(x, w, mask, bias, num_heads=3, num_kv_heads=3, source=None, value_source=None):
    """(scores, weights, what each head adds, output) in float64, one head after the other.

    mask and bias have an axis for the heads.
    """
    source = x if source is None else source
    value_source = source if value_source is None else value_source
    found = []
    for h in range(num_heads):
        projected = []
        for letter, tokens in zip("QKV", (x, source, value_source)):
            there = num_heads if letter == "Q" else num_kv_heads
            d = w[f"W_{letter}"].shape[1] // there
            at = h if letter == "Q" else h // (num_heads // num_kv_heads)
            columns = slice(at * d, (at + 1) * d)
            projected.append(tokens @ w[f"W_{letter}"][:, columns] + w[f"b_{letter}"][columns])
        scores, weights_, read = reference.attention(
            *projected, mask[..., h, :, :], bias[..., h, :, :]
        )
        rows = slice(h * read.shape[-1], (h + 1) * read.shape[-1])
        found.append((scores, weights_, read @ w["W_O"][rows]))
    scores, weights_, added = (np.stack(parts, axis=-3) for parts in zip(*found))
    return scores, weights_, added, added.sum(axis=-3) + w["b_O"]


def some_mask():
    """By item and head; query 1 may attend to nothing, key 2 is read by nobody."""
    mask = np.random.default_rng(3).random((2, 3, 4, 4)) < 0.7
    mask[..., 1, :] = mask[..., 2] = False
    return mask


MASKS = {
    "none": np.ones((1, 4, 4), dtype=bool),
    "two axes": some_mask()[0, :1],
    "per item and head": some_mask(),
    "padding": (np.arange(4) < np.array([4, 2])[:, None, None, None]),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer(twin, generator, name, with_bias):
    w = weights(generator, ATTENTION | {"W_O": (6, 10), "b_O": (10,)})
    x, bias = generator.normal(size=(2, 4, 12)), generator.normal(size=(3, 4, 4))
    if not with_bias:
        w |= {key: 0 * b for key, b in w.items() if key.startswith("b")}
    rounded = dict(zip(w, twin.rounded(*w.values())))
    full = np.broadcast_to(MASKS[name], (2, 3, 4, 4))
    rounded_x, rounded_bias = twin.rounded(x, bias)
    _, expected_weights, _, expected = by_hand(rounded_x, rounded, full, rounded_bias[None])

    given = {key: twin.array(v) for key, v in w.items() if with_bias or key.startswith("W")}
    mha = twin.lib.MultiHeadAttention.from_weights(**given, num_heads=3)
    mask = {"none": None, "two axes": MASKS[name][0]}.get(name, MASKS[name])
    options = {"mask": None if mask is None else twin.array(mask), "bias": twin.array(bias)}
    x = twin.array(x)
    found = mha(x, **options)
    assert_near(found, expected, dtype=twin.dtype)
    found = mha.attention_weights(x, **options)
    assert_near(found, expected_weights, dtype=twin.computed, rounded=twin.dtype)


# d_model 12, d_source 10, six heads of d_k 5 and d_v 2, d_out 7
def shared(num_kv_heads):
    """Shapes for six heads of queries that share this many heads of keys."""
    shapes = {"W_Q": (12, 30), "W_K": (10, 5 * num_kv_heads), "W_V": (10, 2 * num_kv_heads)}
    biases = {name.replace("W", "b"): (width,) for name, (_, width) in shapes.items()}
    return shapes | {"W_O": (12, 7)} | biases | {"b_O": (7,)}


def cross_mask():
    """By item and head, 4 queries and 5 keys; query 1 reads nothing, key 2 is read by nobody."""
    mask = np.random.default_rng(3).random((2, 6, 4, 5)) < 0.7
    mask[..., 1, :] = mask[..., 2] = False
    return mask


@pytest.mark.parametrize("num_kv_heads", [6, 2, 1])
@pytest.mark.parametrize("values_apart", [True, False])
def test_cross_attention_with_shared_heads(twin, generator, num_kv_heads, values_apart):
    w = weights(generator, shared(num_kv_heads))
    x, source = generator.normal(size=(2, 4, 12)), generator.normal(size=(2, 5, 10))
    bias, sources = generator.normal(size=(6, 4, 5)), [source]
    if values_apart:
        sources.append(generator.normal(size=(5, 10)))  # the same for both items
    rounded_x, rounded_bias, *rounded_sources = twin.rounded(x, bias, *sources)
    scores, weights_, added, output = by_hand(
        rounded_x,
        dict(zip(w, twin.rounded(*w.values()))),
        cross_mask(),
        rounded_bias,
        6,
        num_kv_heads,
        *rounded_sources,
    )
    mha = twin.lib.MultiHeadAttention.from_weights(
        **twin.named(w), num_heads=6, num_kv_heads=num_kv_heads
    )
    x, bias, mask, *sources = twin.arrays(x, bias, cross_mask(), *sources)
    options = {"mask": mask, "bias": bias}
    assert_near(mha(x, *sources, **options), output, dtype=twin.dtype)
    assert_near(mha.head_contributions(x, *sources, **options), added, dtype=twin.dtype)
    found = mha.attention_weights(x, sources[0], **options)
    assert_near(found, weights_, dtype=twin.computed, rounded=twin.dtype)
    found = mha.attention_scores(x, sources[0], bias=bias)
    assert_near(found, scores, dtype=twin.computed, rounded=twin.dtype)


@st.composite
def configurations(draw):
    """Sizes of a layer and of what it reads, and which pairs may meet, head by head."""
    h_kv, repeats = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d_model, d_source, d_k, d_v, d_out = (draw(st.integers(1, 4)) for _ in range(5))
    lead, n, n_key = draw(st.sampled_from([(), (2,)])), *(draw(st.integers(1, 4)) for _ in "nk")
    shapes = {"W_Q": (d_model, h_kv * repeats * d_k), "W_O": (h_kv * repeats * d_v, d_out)}
    shapes |= {"W_K": (d_source, h_kv * d_k), "W_V": (d_source, h_kv * d_v)}
    shapes |= {name.replace("W", "b"): shape[1:] for name, shape in shapes.items()}
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = (*lead, h_kv * repeats, n, n_key)
    tokens = [generator.normal(size=s) for s in ((*lead, n, d_model), (*lead, n_key, d_source))]
    mask = generator.random(scores) < draw(st.sampled_from([0.2, 0.6, 1.0]))
    bias = draw(st.sampled_from([None, generator.normal(size=scores)]))
    return weights(generator, shapes), (h_kv * repeats, h_kv), tokens, mask, bias


@given(configurations())
def test_any_layer(configuration):
    w, heads, (x, source), mask, bias = configuration
    no_bias = np.zeros((1, 1, 1))
    _, weights_, added, output = by_hand(
        x, w, mask, np.broadcast_to(no_bias if bias is None else bias, mask.shape), *heads, source
    )
    for twin in BACKENDS:
        mha = twin.lib.MultiHeadAttention.from_weights(
            **twin.named(w), num_heads=heads[0], num_kv_heads=heads[1]
        )
        options = {"mask": twin.array(mask), "bias": None if bias is None else twin.array(bias)}
        given_ = twin.arrays(x, source)
        assert_near(mha(*given_, **options), output)
        assert_near(mha.attention_weights(*given_, **options), weights_)
        assert_near(mha.head_contributions(*given_, **options), added)


def test_keys_are_made_of_x_and_values_of_what_keys_are_made_of(backend, generator):
    mha = backend.lib.MultiHeadAttention.from_weights(
        **backend.named(weights(generator, ATTENTION)), num_heads=3
    )
    x, other, third = backend.arrays(*(generator.normal(size=(2, 4, 12)) for _ in range(3)))
    for read in (mha, mha.head_contributions):
        np.testing.assert_array_equal(back(read(x)), back(read(x, x, x)))
        np.testing.assert_array_equal(back(read(x, other)), back(read(x, other, other)))
        np.testing.assert_array_equal(back(read(x, None, other)), back(read(x, x, other)))
        assert not np.allclose(back(read(x, other)), back(read(x, None, other)))
        assert not np.allclose(back(read(x, other, third)), back(read(x, other)))
    for read in (mha.attention_weights, mha.attention_scores):
        np.testing.assert_array_equal(back(read(x)), back(read(x, x)))
        assert not np.allclose(back(read(x)), back(read(x, other)))
    for i, (found, tokens) in enumerate(zip(mha.project_heads(x, other, third), (x, other, third))):
        np.testing.assert_array_equal(back(found), back(mha.project_heads(tokens)[i]))


def test_what_the_heads_add_makes_the_output(exact, generator):
    w = exact.named(weights(generator, shared(2)))
    mha = exact.lib.MultiHeadAttention.from_weights(**w, num_heads=6, num_kv_heads=2)
    x, source = exact.arrays(generator.normal(size=(4, 12)), generator.normal(size=(5, 10)))
    added = back(mha.head_contributions(x, source, mask=causal))
    assert added.shape == (6, 4, 7)
    assert_near(mha(x, source, mask=causal), added.sum(axis=0) + back(w["b_O"]))
    silent = dict(w)
    silent["W_O"] = exact.array(np.where(np.arange(12)[:, None] // 2 == 4, back(w["W_O"]), 0))
    one = exact.lib.MultiHeadAttention.from_weights(**silent, num_heads=6, num_kv_heads=2)
    assert_near(one(x, source, mask=causal), added[4] + back(w["b_O"]))


def test_repeated_heads_stand_in_a_row(backend):
    x = np.arange(24).reshape(2, 3, 4, 1)
    found = backend.lib.repeat_heads(backend.array(x), 2)
    assert tuple(found.shape) == (2, 6, 4, 1)
    for head in range(6):
        np.testing.assert_array_equal(back(found)[:, head], x[:, head // 2])
    np.testing.assert_array_equal(back(backend.lib.repeat_heads(backend.array(x), 1)), x)


@needs_torch
def test_repeated_heads_as_in_transformers(backend):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    expected = llama.repeat_kv(torch.from_numpy(x), 2)
    np.testing.assert_array_equal(
        back(backend.lib.repeat_heads(backend.array(x), 2)), back(expected)
    )


def turned(x, positions):
    """A rotation that needs no library: each row times a number of its position."""
    return x * (1 + positions[:, None] * 0.5)


def test_rotate_gets_queries_and_keys_with_their_positions(exact, generator):
    w = weights(generator, shared(2))
    mha = exact.lib.MultiHeadAttention.from_weights(
        **exact.named(w), num_heads=6, num_kv_heads=2, rotate=turned
    )
    x, source = generator.normal(size=(2, 4, 12)), generator.normal(size=(2, 5, 10))
    query, key, value = (back(a) for a in mha.project_heads(*exact.arrays(x, source)))
    query = query * np.array([1, 1.5, 2, 2.5])[:, None]
    key = key * np.array([1, 1.5, 2, 2.5, 3])[:, None]
    key, value = (a[:, [0, 0, 0, 1, 1, 1]] for a in (key, value))
    scores, weights_, output = reference.attention(query, key, value)
    x, source = exact.arrays(x, source)
    assert_near(mha.attention_scores(x, source), scores)
    assert_near(mha.attention_weights(x, source), weights_)
    rows = np.swapaxes(output, 1, 2).reshape(2, 4, 12)
    assert_near(mha(x, source), rows @ w["W_O"] + w["b_O"])


def test_rotate_of_a_new_layer(backend, generator):
    new = backend.lib.MultiHeadAttention(12, 3, rotate=turned, generator=backend.seeded())
    same = backend.lib.MultiHeadAttention(12, 3, generator=backend.seeded())
    assert new.rotate is turned
    assert same.rotate is None
    x = backend.array(generator.normal(size=(4, 12)), dtype_of(same.W_Q))
    assert not np.allclose(back(new.attention_weights(x)), back(same.attention_weights(x)))


def test_the_heads_can_be_read(twin, generator):
    """A key's bias moves a whole row of scores, so weights and outputs do not show it."""
    w = twin.named(weights(generator, ATTENTION))
    mha = twin.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    x = twin.array(generator.normal(size=(2, 4, 12)))
    for letter, found in zip("QKV", mha.project_heads(x)):
        expected = back(twin.lib.project(x, w[f"W_{letter}"], w[f"b_{letter}"]))
        assert tuple(found.shape) == (2, 3, 4, expected.shape[-1] // 3)
        assert_near(twin.lib.merge_heads(found), expected, dtype=twin.dtype)


def test_a_query_that_may_attend_to_nothing_gets_the_output_bias(backend, generator):
    w = backend.named(weights(generator, ATTENTION))
    mha = backend.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    mask = backend.array(some_mask()[0, 0])
    found = back(mha(backend.array(generator.normal(size=(4, 12))), mask=mask))
    np.testing.assert_array_equal(found[1], back(w["b_O"]))
    assert not np.allclose(found[0], found[1])


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 5)], ids=str)
def test_any_leading_axes(backend, generator, lead):
    w = backend.named(weights(generator, ATTENTION))
    mha = backend.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    x = generator.normal(size=(*lead, 4, 12))
    found, weights_ = (
        mha(backend.array(x), mask=causal),
        mha.attention_weights(backend.array(x), mask=causal),
    )
    assert tuple(weights_.shape) == (*lead, 3, 4, 4)
    for item in np.ndindex(*lead):
        one = backend.array(x[item])
        assert_near(back(found)[item], back(mha(one, mask=causal)))
        assert_near(back(weights_)[item], back(mha.attention_weights(one, mask=causal)))


def test_the_weights_given_are_copied(backend, generator):
    w = backend.named(weights(generator, ATTENTION))
    mha = backend.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    x = backend.array(generator.normal(size=(4, 12)))
    before = back(mha(x))
    for x_ in w.values():
        x_ *= 3
    np.testing.assert_array_equal(back(mha(x)), before)


def test_the_weights_can_be_read(backend, generator):
    w = backend.named(weights(generator, ATTENTION))
    mha = backend.lib.MultiHeadAttention.from_weights(**w, num_heads=3)
    for name, x in w.items():
        np.testing.assert_array_equal(back(getattr(mha, name)), back(x))
    bare = {name: x for name, x in w.items() if name.startswith("W")}
    mha = backend.lib.MultiHeadAttention.from_weights(**bare, num_heads=3)
    assert [getattr(mha, name) for name in ("b_Q", "b_K", "b_V", "b_O")] == [None] * 4


# ---- a new layer ---------------------------------------------------------------------------------

NAMES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, [(12, 12)] * 4 + [(12,)] * 4),
        ({"d_k": 5}, [(12, 15), (12, 15), (12, 12), (12, 12), (15,), (15,), (12,), (12,)]),
        (
            {"d_k": 5, "d_v": 2, "d_out": 7},
            [(12, 15), (12, 15), (12, 6), (6, 7), (15,), (15,), (6,), (7,)],
        ),
        (
            {"num_kv_heads": 1, "d_source": 10},
            [(12, 12), (10, 4), (10, 4), (12, 12), (12,), (4,), (4,), (12,)],
        ),
        ({"projection_bias": False}, [(12, 12)] * 4 + [None] * 4),
    ],
    ids=str,
)
def test_a_new_layer_has_these_shapes(backend, options, shapes):
    mha = backend.lib.MultiHeadAttention(12, 3, generator=backend.seeded(), **options)
    found = [getattr(mha, name) for name in NAMES]
    assert [None if x is None else tuple(x.shape) for x in found] == shapes
    for x in found[4:]:
        assert x is None or not back(x).any()
    x = backend.array(np.ones((4, 12)), dtype=dtype_of(found[0]))
    source = backend.array(np.ones((5, shapes[1][0])), dtype=dtype_of(found[0]))
    assert tuple(mha(x, source).shape) == (4, shapes[3][1])
    assert (
        dtype_of(mha(x, source))
        == dtype_of(found[0])
        == ("float32" if backend.is_torch else "float64")
    )


def test_a_new_layer_is_drawn_from_the_generator(backend):
    def drawn(seed):
        mha = backend.lib.MultiHeadAttention(60, 3, d_v=30, generator=backend.seeded(seed))
        return [back(getattr(mha, name)) for name in NAMES[:4]]

    first, again, other = drawn(0), drawn(0), drawn(1)
    for a, b, c in zip(first, again, other):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
        bound = np.sqrt(6 / sum(a.shape))
        assert 0.97 * bound < np.abs(a).max() <= bound
        assert abs(a.mean()) < 0.05 * bound
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[2], first[3].T)


def test_without_a_generator_each_layer_is_another(backend):
    one, two = (backend.lib.MultiHeadAttention(12, 3) for _ in range(2))
    assert not np.array_equal(back(one.W_Q), back(two.W_Q))


# ---- torch ---------------------------------------------------------------------------------------


@needs_torch
def test_in_torch_it_is_a_module():
    seeded = torch.Generator().manual_seed(0)
    mha = BACKENDS[-1].lib.MultiHeadAttention(12, 3, d_k=5, d_v=2, generator=seeded)
    names = [
        f"{part}.{kind}"
        for part in ("query", "key", "value", "output")
        for kind in ("weight", "bias")
    ]
    assert [name for name, _ in mha.named_parameters()] == names
    assert (
        sum(p.numel() for p in mha.parameters()) == 12 * 15 * 2 + 12 * 6 + 6 * 12 + 15 * 2 + 6 + 12
    )
    mha(torch.randn(4, 12, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    for name, parameter in mha.named_parameters():
        moved = parameter.grad.abs().max() > 1e-4
        assert moved != (name == "key.bias")  # it adds one number to a whole row of scores
    other = BACKENDS[-1].lib.MultiHeadAttention(12, 3, d_k=5, d_v=2)
    other.load_state_dict(mha.state_dict())
    x = torch.randn(4, 12, generator=torch.Generator().manual_seed(1))
    assert torch.equal(other(x), mha(x))
    assert mha.double()(x.double()).dtype == torch.float64


def torchs_own(w, num_heads=3):
    """`nn.MultiheadAttention` with the same weights: heads of d_model // num_heads."""
    other = torch.nn.MultiheadAttention(12, num_heads, batch_first=True, dtype=torch.float64)
    w = {name: torch.from_numpy(x) for name, x in w.items()}
    other.load_state_dict(
        {
            "in_proj_weight": torch.cat([w["W_Q"].T, w["W_K"].T, w["W_V"].T]),
            "in_proj_bias": torch.cat([w["b_Q"], w["b_K"], w["b_V"]]),
            "out_proj.weight": w["W_O"].T,
            "out_proj.bias": w["b_O"],
        }
    )
    return other


SQUARE = {f"W_{n}": (12, 12) for n in "QKVO"} | {f"b_{n}": (12,) for n in "QKVO"}


@needs_torch
@pytest.mark.parametrize("how", ["none", "attention mask", "padding"])
def test_against_torchs_own_layer(backend, generator, how):
    """True means "may attend" here and "is forbidden" there."""
    w = weights(generator, SQUARE)
    x = generator.normal(size=(2, 4, 12))
    mask = some_mask()[0, 0] | np.eye(4, dtype=bool)
    lengths = np.arange(4) < np.array([[4], [2]])
    here = {"none": None, "attention mask": mask, "padding": lengths[:, None, None]}[how]
    there = {
        "none": {},
        "attention mask": {"attn_mask": torch.from_numpy(~mask)},
        "padding": {"key_padding_mask": torch.from_numpy(~lengths)},
    }[how]
    other_x = torch.from_numpy(x)
    expected, expected_weights = torchs_own(w)(
        other_x, other_x, other_x, average_attn_weights=False, **there
    )
    mha = backend.lib.MultiHeadAttention.from_weights(**backend.named(w), num_heads=3)
    here = None if here is None else backend.array(here)
    assert_near(mha(backend.array(x), mask=here), back(expected))
    assert_near(mha.attention_weights(backend.array(x), mask=here), back(expected_weights))


@needs_torch
def test_cross_attention_against_torchs_own_layer(backend, generator):
    w = weights(generator, SQUARE | {"W_K": (10, 12), "W_V": (10, 12)})
    x, source, other = (generator.normal(size=s) for s in ((2, 4, 12), (2, 5, 10), (2, 5, 10)))
    mask = np.tri(4, 5, 1, dtype=bool)
    theirs = torch.nn.MultiheadAttention(
        12, 3, kdim=10, vdim=10, batch_first=True, dtype=torch.float64
    )
    state = {f"{n}_proj_weight": w[f"W_{n.upper()}"].T for n in "qkv"}
    state |= {"in_proj_bias": np.concatenate([w["b_Q"], w["b_K"], w["b_V"]])}
    state |= {"out_proj.weight": w["W_O"].T, "out_proj.bias": w["b_O"]}
    theirs.load_state_dict({name: torch.tensor(a) for name, a in state.items()})
    expected, expected_weights = theirs(
        *map(torch.from_numpy, (x, source, other)),
        attn_mask=torch.from_numpy(~mask),
        average_attn_weights=False,
    )
    mha = backend.lib.MultiHeadAttention.from_weights(**backend.named(w), num_heads=3)
    x, source, other, mask = backend.arrays(x, source, other, mask)
    assert_near(mha(x, source, other, mask=mask), back(expected))
    assert_near(mha.attention_weights(x, source, mask=mask), back(expected_weights))


@needs_torch
@pytest.mark.parametrize("with_bias", [True, False])
def test_gradients_of_shared_heads_are_finite_differences(generator, with_bias):
    twin = BACKENDS[-1]
    w = twin.named(weights(generator, shared(2)))
    x, source, bias = (
        twin.array(generator.normal(size=s)).requires_grad_() for s in ((4, 12), (5, 10), (4, 5))
    )
    mask = twin.array(cross_mask()[0, 0])
    mha = twin.lib.MultiHeadAttention.from_weights(**w, num_heads=6, num_kv_heads=2, rotate=turned)
    parameters = dict(mha.named_parameters())

    def output(x, source, bias, *given):
        options = {"mask": mask, "bias": bias if with_bias else None}
        return torch.func.functional_call(
            mha, dict(zip(parameters, given)), (x, source), options
        ).sin()

    given_ = [x, source, bias, *parameters.values()]
    assert torch.autograd.gradcheck(output, given_, fast_mode=True)


@needs_torch
def test_gradients_against_torchs_own_layer(generator):
    twin = BACKENDS[-1]
    w = weights(generator, SQUARE)
    mha, other = (
        twin.lib.MultiHeadAttention.from_weights(**twin.named(w), num_heads=3),
        torchs_own(w),
    )
    x = generator.normal(size=(2, 4, 12))
    mask = np.tri(4, dtype=bool)
    ours, theirs = (torch.tensor(x, requires_grad=True) for _ in range(2))
    mha(ours, mask=torch.from_numpy(mask)).sin().sum().backward()
    other(theirs, theirs, theirs, attn_mask=torch.from_numpy(~mask))[0].sin().sum().backward()
    assert_near(ours.grad, back(theirs.grad))
    parts = [mha.query, mha.key, mha.value]
    assert_near(torch.cat([p.weight.grad for p in parts]), back(other.in_proj_weight.grad))
    assert_near(torch.cat([p.bias.grad for p in parts]), back(other.in_proj_bias.grad))
    assert_near(mha.output.weight.grad, back(other.out_proj.weight.grad))
    assert_near(mha.output.bias.grad, back(other.out_proj.bias.grad))
