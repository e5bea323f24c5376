"""Norms, activations, feed-forward layer and block: by formula, and torch's own beside them."""

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from twins import (
    ATTENTION,
    BACKENDS,
    EXACT,
    FEED_FORWARD,
    GATED,
    NORM,
    TOLERANCE,
    WIDE,
    assert_near,
    back,
    dtype_of,
    torch,
    weights,
)

from qkvlib.patterns import causal

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


# ---- layer norm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)], ids=str)
@pytest.mark.parametrize("eps", [1e-5, 0.3, 0])
def test_layer_norm(twin, generator, lead, eps):
    x, weight, bias = (generator.normal(size=s) for s in ((*lead, 5), (5,), (5,)))
    expected = reference.layer_norm(*twin.rounded(x, weight, bias), eps)
    x, weight, bias = twin.arrays(x, weight, bias)
    assert_near(twin.lib.layer_norm(x, weight, bias, eps), expected, dtype=twin.dtype)


def test_layer_norm_with_one_or_no_parameter(backend, generator):
    x, weight, bias = generator.normal(size=(4, 5)), *generator.normal(size=(2, 5))
    given = dict(zip(("x", "weight", "bias"), backend.arrays(x, weight, bias)))
    norm, x_ = backend.lib.layer_norm, given["x"]
    assert_near(norm(x_), reference.layer_norm(x, 1, 0, 1e-5))
    assert_near(norm(x_, given["weight"]), reference.layer_norm(x, weight, 0, 1e-5))
    assert_near(norm(x_, bias=given["bias"]), reference.layer_norm(x, 1, bias, 1e-5))


def test_eps_is_under_the_root(backend):
    """At numbers of 1e-4 the variance is far below eps; outside the root eps would hardly count."""
    x = 1e-4 * np.array([[1.0, -1, 1, -1]])
    found = back(backend.lib.layer_norm(backend.array(x)))
    np.testing.assert_allclose(found, x / math.sqrt(1e-8 + 1e-5), rtol=1e-12)


def test_a_constant_row_becomes_zero(twin):
    assert not back(twin.lib.layer_norm(twin.array(np.full((2, 4), 3.0)))).any()


def test_half_types_are_normalised_in_float32(twin):
    """300 ** 2 is no float16, and 4096 numbers do not sum to anything sensible in one."""
    x = np.where(np.arange(4096) % 2, 300.0, -300.0)
    [rounded] = twin.rounded(x)
    found = twin.lib.layer_norm(twin.array(x))
    assert_near(found, reference.layer_norm(rounded, 1, 0, 1e-5), dtype=twin.dtype)


@needs_torch
def test_against_torchs_own_norm(backend, generator):
    x, w = generator.normal(size=(2, 3, 12)), weights(generator, NORM)
    other = torch.nn.LayerNorm(12, eps=0.1, dtype=torch.float64)
    other.load_state_dict({name: torch.from_numpy(v) for name, v in w.items()})
    norm = backend.lib.LayerNorm.from_weights(**backend.named(w), eps=0.1)
    assert_near(norm(backend.array(x)), back(other(torch.from_numpy(x))))


def test_a_new_norm_changes_no_column(backend):
    norm = backend.lib.LayerNorm(4)
    assert back(norm.weight).tolist() == [1] * 4
    assert back(norm.bias).tolist() == [0] * 4
    x = backend.array(np.array([[1.0, 3, 1, 3]]), dtype=dtype_of(norm.weight))
    np.testing.assert_allclose(back(norm(x)), [[-1, 1, -1, 1]], rtol=1e-5)
    np.testing.assert_allclose(back(backend.lib.LayerNorm(4, eps=3)(x)), [[-0.5, 0.5, -0.5, 0.5]])


# ---- RMS norm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)], ids=str)
@pytest.mark.parametrize("eps", [1e-5, 0.3, 0])
def test_rms_norm(twin, generator, lead, eps):
    x, weight = (generator.normal(size=s) for s in ((*lead, 5), (5,)))
    expected = reference.rms_norm(*twin.rounded(x, weight), eps)
    x, weight = twin.arrays(x, weight)
    assert_near(twin.lib.rms_norm(x, weight, eps), expected, dtype=twin.dtype)


def test_rms_norm_without_a_weight(backend, generator):
    x = generator.normal(size=(4, 5))
    assert_near(backend.lib.rms_norm(backend.array(x)), reference.rms_norm(x, 1, 1e-5))


def test_rms_norm_keeps_the_mean_where_it_is(backend):
    """A constant row is no constant 0; eps, under the root, makes it a little less than 1."""
    found = back(backend.lib.rms_norm(backend.array(np.full((1, 3), 1e-2))))
    np.testing.assert_allclose(found, 1e-2 / math.sqrt(1e-4 + 1e-5), rtol=1e-12)


def test_a_row_of_zeros_stays_zero(twin):
    assert not back(twin.lib.rms_norm(twin.array(np.zeros((2, 4))))).any()


def test_half_types_are_rms_normalised_in_float32(twin):
    x = np.where(np.arange(4096) % 3, 300.0, -200.0)
    [rounded] = twin.rounded(x)
    found = twin.lib.rms_norm(twin.array(x))
    assert_near(found, reference.rms_norm(rounded, 1, 1e-5), dtype=twin.dtype)


@needs_torch
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_against_llamas_norm(twin, generator, eps):
    """transformers' computes in float32, whatever it is given."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    x, weight = twin.rounded(generator.normal(size=(2, 3, 12)), generator.normal(size=12))
    other = llama.LlamaRMSNorm(12, eps=eps)
    other.load_state_dict({"weight": torch.from_numpy(weight)})
    norm = twin.lib.RMSNorm.from_weights(twin.array(weight), eps=eps)
    expected = back(other(torch.from_numpy(x).float()))
    rounded = "float32" if twin.dtype == "float64" else None
    assert_near(norm(twin.array(x)), expected, dtype=twin.dtype, rounded=rounded)


@needs_torch
def test_numpy_against_torchs_own_rms_norm(generator):
    x, weight = generator.normal(size=(2, 3, 12)), generator.normal(size=12)
    for eps in (1e-5, 0.1):
        other = torch.nn.RMSNorm(12, eps=eps, dtype=torch.float64)
        other.load_state_dict({"weight": torch.from_numpy(weight)})
        norm = BACKENDS[0].lib.RMSNorm.from_weights(weight, eps=eps)
        assert_near(norm(x), back(other(torch.from_numpy(x))))


def test_a_new_rms_norm_changes_no_column(backend):
    norm = backend.lib.RMSNorm(4)
    assert back(norm.weight).tolist() == [1] * 4
    x = backend.array(np.array([[1.0, 7, 1, 7]]), dtype=dtype_of(norm.weight))
    np.testing.assert_allclose(back(norm(x)), [[0.2, 1.4, 0.2, 1.4]], rtol=1e-5)
    found = back(backend.lib.RMSNorm(4, eps=75)(x))
    np.testing.assert_allclose(found, [[0.1, 0.7, 0.1, 0.7]], rtol=1e-5)


# ---- laws of norms -------------------------------------------------------------------------------


def magnitudes(twin):
    """Rows of one size of number each; squares and their sums fit the dtype."""
    reach = 30 if twin.dtype == "float64" else 12
    rows = arrays(np.float64, (3, 5), elements=st.floats(-1, 1, width=16))
    return st.tuples(rows, st.integers(-reach, reach))


@pytest.mark.parametrize("twin", WIDE, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@given(data=st.data())
def test_norms_of_any_magnitude(twin, name, data):
    """By formula, for numbers from 1e-30 to 1e30, ties, zeros and -0.0 among them."""
    rows, power = data.draw(magnitudes(twin))
    [x] = twin.rounded(rows * 10.0**power)
    expected = {
        "layer_norm": lambda: reference.layer_norm(x, 1, 0, 1e-5),
        "rms_norm": lambda: reference.rms_norm(x, 1, 1e-5),
    }[name]()
    found = getattr(twin.lib, name)(twin.array(x))
    room = np.ones((3, 1))
    if name == "layer_norm":  # a mean far from 0 costs digits, more the less the row differs
        room += np.abs(x).max(-1, keepdims=True) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert (np.abs(back(found) - expected) <= room * TOLERANCE[twin.dtype]).all()


@pytest.mark.parametrize("twin", WIDE, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_reach_as_far_as_they_say(twin, name):
    large = 1e153 if twin.dtype == "float64" else 1e18
    found = getattr(twin.lib, name)(twin.array(large * np.array([1.0, -1, -1, 1])))
    assert_near(found, [1, -1, -1, 1])


@pytest.mark.parametrize("twin", EXACT, ids=str)
@given(data=st.data())
def test_a_norm_without_eps_does_not_see_the_size_of_a_row(twin, data):
    power = data.draw(st.integers(-100, 100))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(3, 5))
    for norm in (twin.lib.layer_norm, twin.lib.rms_norm):
        small, large = (back(norm(twin.array(y), eps=0)) for y in (x, x * 2.0**power))
        np.testing.assert_allclose(large, small, rtol=1e-12)


# ---- activations ---------------------------------------------------------------------------------

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu"]


def by_formula(name, x):
    return getattr(reference, name)(x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(twin, name):
    x = np.concatenate([np.linspace(-6, 6, 97), [0.0, -0.0, 1e-8, -1e-8, 30, -30]]).reshape(-1, 1)
    [rounded] = twin.rounded(x)
    found = getattr(twin.lib, name)(twin.array(x))
    assert_near(found, by_formula(name, rounded), dtype=twin.dtype)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_of_any_shape(twin, generator, name, shape):
    x = np.asarray(generator.normal(size=shape))
    [rounded] = twin.rounded(x)
    found = getattr(twin.lib, name)(twin.array(x))
    assert_near(found, by_formula(name, rounded), dtype=twin.dtype)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_of_large_numbers(twin, name):
    """What is positive stays as it is, what is negative becomes 0, without a warning."""
    large = 6e4 if twin.dtype == "float16" else 1e38 if twin.computed == "float32" else 1e300
    x = np.array([large, -large])
    found = getattr(twin.lib, name)(twin.array(x))
    assert_near(found, twin.rounded(x)[0] * [1, 0], dtype=twin.dtype)


def test_gelu_is_the_exact_one(exact):
    """By the error function; the approximation by tanh is off by 0.0001 here."""
    x = exact.array(np.array([2.0]))
    assert abs(back(exact.lib.gelu(x)).item() - 1.9544997361036416) < 1e-15
    assert abs(back(exact.lib.gelu_tanh(x)).item() - 1.954597694087775) < 1e-15


def test_the_two_gelus_differ_by_half_a_thousandth(exact):
    x = exact.array(np.linspace(-6, 6, 4801))
    gap = np.abs(back(exact.lib.gelu(x)) - back(exact.lib.gelu_tanh(x))).max()
    assert 0.00045 < gap < 0.0005


@needs_torch
def test_against_the_gelu_of_transformers(backend, generator):
    """Written out there by its formula; in torch it is torch's own."""
    gelu_new = pytest.importorskip("transformers.activations").ACT2FN["gelu_new"]
    x = generator.normal(size=(4, 50)) * 3
    assert_near(backend.lib.gelu_tanh(backend.array(x)), gelu_new(torch.from_numpy(x)).numpy())


@needs_torch
def test_numpy_against_torchs_own_silu(generator):
    x = generator.normal(size=(4, 50)) * 3
    assert_near(BACKENDS[0].lib.silu(x), torch.nn.functional.silu(torch.from_numpy(x)).numpy())


@needs_torch
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_numpy_against_torchs_own_gelu(generator, approximate):
    x = generator.normal(size=(4, 50)) * 3
    name = {"none": "gelu", "tanh": "gelu_tanh"}[approximate]
    expected = torch.nn.functional.gelu(torch.from_numpy(x), approximate=approximate)
    assert_near(getattr(BACKENDS[0].lib, name)(x), expected.numpy())


# ---- feed-forward --------------------------------------------------------------------------------


def by_hand(x, w, activation=reference.gelu):
    return activation(x @ w["W_1"] + w["b_1"]) @ w["W_2"] + w["b_2"]


@pytest.mark.parametrize("lead", [(4,), (2, 3, 4)], ids=str)
def test_feed_forward(twin, generator, lead):
    w, x = weights(generator, FEED_FORWARD), generator.normal(size=(*lead, 12))
    rounded = dict(zip(w, twin.rounded(*w.values())))
    expected = by_hand(*twin.rounded(x), rounded)
    ff = twin.lib.FeedForward.from_weights(**twin.named(w))
    assert_near(ff(twin.array(x)), expected, dtype=twin.dtype)
    for name, value in w.items():
        assert_near(getattr(ff, name), value)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_feed_forward_with_each_activation(twin, generator, name):
    w, x = weights(generator, FEED_FORWARD), generator.normal(size=(2, 3, 12))
    rounded = dict(zip(w, twin.rounded(*w.values())))
    expected = by_hand(*twin.rounded(x), rounded, activation=lambda y: by_formula(name, y))
    activation = getattr(twin.lib, name)
    ff = twin.lib.FeedForward.from_weights(**twin.named(w), activation=activation)
    assert_near(ff(twin.array(x)), expected, dtype=twin.dtype)


def test_another_activation(backend, generator):
    w, x = weights(generator, FEED_FORWARD), generator.normal(size=(4, 12))
    ff = backend.lib.FeedForward.from_weights(**backend.named(w), activation=lambda x: x * x)
    assert_near(ff(backend.array(x)), by_hand(x, w, activation=np.square))
    new = backend.lib.FeedForward(12, activation=abs, generator=backend.seeded())
    expected = by_hand(x, {name: back(getattr(new, name)) for name in w}, activation=np.abs)
    found = new(backend.array(x, dtype_of(new.W_1)))
    np.testing.assert_allclose(back(found), expected, atol=1e-5)


def test_a_new_feed_forward_layer(backend):
    shapes = {"W_1": (12, 48), "b_1": (48,), "W_2": (48, 12), "b_2": (12,)}
    new, again = (backend.lib.FeedForward(12, generator=backend.seeded()) for _ in range(2))
    for name, shape in shapes.items():
        assert tuple(getattr(new, name).shape) == shape
        np.testing.assert_array_equal(back(getattr(new, name)), back(getattr(again, name)))
    assert not back(new.b_1).any()
    assert not back(new.b_2).any()
    for W in (back(new.W_1), back(new.W_2)):
        assert 0.97 * math.sqrt(6 / 60) < np.abs(W).max() <= math.sqrt(6 / 60)
    assert tuple(backend.lib.FeedForward(12, 7).W_1.shape) == (12, 7)


# ---- SwiGLU --------------------------------------------------------------------------------------


def swiglu_by_hand(x, w):
    """x is a list of rows; a bias that is not there adds nothing."""
    gate = reference.silu(x @ w["W_gate"] + w.get("b_gate", 0))
    return (gate * (x @ w["W_up"] + w.get("b_up", 0))) @ w["W_down"] + w.get("b_down", 0)


def without_biases(w):
    return {name: x for name, x in w.items() if name[0] == "W"}


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("lead", [(4,), (2, 3, 4)], ids=str)
def test_swiglu(twin, generator, lead, biases):
    w, x = weights(generator, GATED), generator.normal(size=(*lead, 12))
    w = w if biases else without_biases(w)
    rounded = dict(zip(w, twin.rounded(*w.values())))
    expected = swiglu_by_hand(*twin.rounded(x), rounded)
    layer = twin.lib.SwiGLU.from_weights(**twin.named(w))
    assert_near(layer(twin.array(x)), expected, dtype=twin.dtype)
    for name in GATED:
        if name in w:
            assert_near(getattr(layer, name), w[name])
        else:
            assert getattr(layer, name) is None


def test_swiglu_with_one_bias(backend, generator):
    w, x = weights(generator, GATED), generator.normal(size=(4, 12))
    for name in ("b_gate", "b_up", "b_down"):
        one = without_biases(w) | {name: w[name]}
        layer = backend.lib.SwiGLU.from_weights(**backend.named(one))
        assert_near(layer(backend.array(x)), swiglu_by_hand(x, one))


@needs_torch
@pytest.mark.parametrize("biases", [True, False])
def test_against_llamas_feed_forward(backend, generator, biases):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=12, intermediate_size=20, num_attention_heads=3, mlp_bias=biases
    )
    other = llama.LlamaMLP(config).double()
    w = weights(generator, GATED)
    w = w if biases else without_biases(w)
    state = {
        f"{name[2:]}_proj.{'weight' if name[0] == 'W' else 'bias'}": torch.tensor(x.T)
        for name, x in w.items()
    }
    other.load_state_dict(state)
    x = generator.normal(size=(2, 3, 12))
    layer = backend.lib.SwiGLU.from_weights(**backend.named(w))
    assert_near(layer(backend.array(x)), back(other(torch.from_numpy(x))))


def test_a_new_swiglu_layer(backend):
    shapes = {"W_gate": (12, 32), "W_up": (12, 32), "W_down": (32, 12)}
    new, again = (backend.lib.SwiGLU(12, generator=backend.seeded()) for _ in range(2))
    for name, shape in shapes.items():
        W = back(getattr(new, name))
        assert W.shape == shape
        np.testing.assert_array_equal(W, back(getattr(again, name)))
        assert 0.95 * math.sqrt(6 / 44) < np.abs(W).max() <= math.sqrt(6 / 44)
    assert not np.array_equal(back(new.W_gate), back(new.W_up))
    assert new.b_gate is new.b_up is new.b_down is None
    with_biases = backend.lib.SwiGLU(12, 7, projection_bias=True)
    assert tuple(with_biases.W_gate.shape) == (12, 7)
    for name, width in (("b_gate", 7), ("b_up", 7), ("b_down", 12)):
        assert back(getattr(with_biases, name)).tolist() == [0] * width


def test_by_default_it_has_as_many_weights_as_a_feed_forward_layer(backend):
    gated, plain = backend.lib.SwiGLU(48), backend.lib.FeedForward(48)
    count = sum(math.prod(w.shape) for w in (gated.W_gate, gated.W_up, gated.W_down))
    assert count == sum(math.prod(w.shape) for w in (plain.W_1, plain.W_2))
    widths = [tuple(backend.lib.SwiGLU(d_model).W_gate.shape) for d_model in (1, 7, 8)]
    assert widths == [(1, 2), (7, 18), (8, 21)], "8 * d_model // 3"


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("LayerNorm", NORM),
        ("RMSNorm", {"weight": (12,)}),
        ("FeedForward", FEED_FORWARD),
        ("SwiGLU", GATED),
    ],
)
def test_the_weights_given_are_copied(backend, generator, name, shapes):
    w = backend.named(weights(generator, shapes))
    layer = getattr(backend.lib, name).from_weights(**w)
    x = backend.array(generator.normal(size=(4, 12)))
    before = back(layer(x))
    for given_ in w.values():
        given_ += 3
        np.testing.assert_array_equal(back(layer(x)), before)


# ---- the block -----------------------------------------------------------------------------------


def parts(twin, generator):
    """The parts of a block; `from_parts` takes them in this order."""
    attention, feed_forward, *norms = (
        twin.named(weights(generator, shapes)) for shapes in (ATTENTION, FEED_FORWARD, NORM, NORM)
    )
    lib = twin.lib
    return [
        lib.MultiHeadAttention.from_weights(**attention, num_heads=3),
        lib.FeedForward.from_weights(**feed_forward),
        *(lib.LayerNorm.from_weights(**norm, eps=0.1) for norm in norms),
    ]


def test_pre_norm_reads_what_is_normalised(twin, generator):
    attention, feed_forward, first, second = given = parts(twin, generator)
    block = twin.lib.TransformerBlock.from_parts(*given)  # "pre" is what one gets
    x = twin.array(generator.normal(size=(2, 4, 12)))
    y = x + attention(first(x), mask=causal)
    assert_near(block(x, mask=causal), back(y + feed_forward(second(y))), dtype=twin.dtype)
    expected = attention.attention_weights(first(x), mask=causal)
    assert_near(block.attention_weights(x, mask=causal), back(expected), dtype=twin.computed)
    assert_near(block.attention_scores(x), back(attention.attention_scores(first(x))))
    for part, of_block in zip(attention.project_heads(first(x)), block.project_heads(x)):
        assert_near(of_block, back(part), dtype=twin.dtype)


def test_post_norm_normalises_what_comes_out(twin, generator):
    attention, feed_forward, first, second = given = parts(twin, generator)
    block = twin.lib.TransformerBlock.from_parts(*given, norm="post")
    x = twin.array(generator.normal(size=(2, 4, 12)))
    y = first(x + attention(x, mask=causal))
    assert_near(block(x, mask=causal), back(second(y + feed_forward(y))), dtype=twin.dtype)
    expected = attention.attention_weights(x, mask=causal)
    assert_near(block.attention_weights(x, mask=causal), back(expected), dtype=twin.computed)
    assert_near(block.attention_scores(x), back(attention.attention_scores(x)))
    for part, of_block in zip(attention.project_heads(x), block.project_heads(x)):
        assert_near(of_block, back(part), dtype=twin.dtype)


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        # pre: y = x + 10 (x + 3), then y + 7 (y + 5)
        ("pre", [8 * (11 * 2 + 30) + 35, 8 * (-11 + 30) + 35]),
        # post: y = (x + 10 x) + 3, then (y + 7 y) + 5
        ("post", [8 * (11 * 2 + 3) + 5, 8 * (-11 + 3) + 5]),
    ],
)
def test_the_order_of_norm_part_and_sum(backend, norm, expected):
    """Parts that are plain functions show who reads what, and what is added to what."""
    block = backend.lib.TransformerBlock.from_parts(
        lambda x, **options: 10 * x, lambda x: 7 * x, lambda x: x + 3, lambda x: x + 5, norm=norm
    )
    assert back(block(backend.array(np.array([[2.0], [-1.0]])))).ravel().tolist() == expected


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_of_other_parts(twin, generator, norm):
    """RMSNorm and SwiGLU, as in Llama: the block is a composition, not an option."""
    lib = twin.lib
    attention, swiglu = weights(generator, ATTENTION), weights(generator, GATED)
    first, second = generator.normal(size=(2, 12))
    block = lib.TransformerBlock.from_parts(
        lib.MultiHeadAttention.from_weights(**twin.named(attention), num_heads=3),
        lib.SwiGLU.from_weights(**twin.named(swiglu)),
        *(lib.RMSNorm.from_weights(twin.array(w), eps=0.1) for w in (first, second)),
        norm=norm,
    )
    [x] = twin.rounded(generator.normal(size=(2, 4, 12)))
    attention, swiglu = (dict(zip(w, twin.rounded(*w.values()))) for w in (attention, swiglu))

    def attend(y):
        heads = [
            (y @ attention[f"W_{c}"] + attention[f"b_{c}"]).reshape(2, 4, 3, -1).swapaxes(1, 2)
            for c in "QKV"
        ]
        _, _, output = reference.attention(*heads, mask=np.tri(4, dtype=bool))
        return output.swapaxes(1, 2).reshape(2, 4, -1) @ attention["W_O"] + attention["b_O"]

    def normed(y, weight):
        return reference.rms_norm(y, twin.rounded(weight)[0], 0.1)

    if norm == "pre":
        y = x + attend(normed(x, first))
        expected = y + swiglu_by_hand(normed(y, second), swiglu)
    else:
        y = normed(x + attend(x), first)
        expected = normed(y + swiglu_by_hand(y, swiglu), second)
    found = block(twin.array(x), mask=causal)
    np.testing.assert_allclose(  # half types round after each part
        back(found), expected, atol=TOLERANCE[twin.dtype] * (10 if twin.is_half else 1)
    )
    assert dtype_of(found) == twin.dtype


def test_mask_and_bias_reach_the_attention(backend, generator):
    x = backend.array(generator.normal(size=(2, 4, 12)))
    bias = backend.array(generator.normal(size=(3, 4, 4)))
    for norm in ("pre", "post"):
        block = backend.lib.TransformerBlock.from_parts(*parts(backend, generator), norm=norm)
        plain = back(block(x))
        assert not np.allclose(back(block(x, bias=bias)), plain)
        assert not np.allclose(back(block(x, mask=causal)), plain)
        for read in (block.attention_weights, block.attention_scores):
            assert not np.allclose(back(read(x, bias=bias)), back(read(x)))
        assert not back(block.attention_weights(x, mask=causal))[..., 0, 1:].any()


@needs_torch
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_against_torchs_own_block(backend, generator, norm):
    square = {f"W_{n}": (12, 12) for n in "QKVO"} | {f"b_{n}": (12,) for n in "QKVO"}
    attention, feed_forward, first, second = (
        weights(generator, shapes) for shapes in (square, FEED_FORWARD, NORM, NORM)
    )
    other = torch.nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, activation="gelu", layer_norm_eps=0.1, batch_first=True,
        norm_first=norm == "pre", dtype=torch.float64,
    )  # fmt: skip
    state = {
        "self_attn.in_proj_weight": np.concatenate([attention[f"W_{n}"].T for n in "QKV"]),
        "self_attn.in_proj_bias": np.concatenate([attention[f"b_{n}"] for n in "QKV"]),
        "self_attn.out_proj.weight": attention["W_O"].T,
        "self_attn.out_proj.bias": attention["b_O"],
        "linear1.weight": feed_forward["W_1"].T,
        "linear1.bias": feed_forward["b_1"],
        "linear2.weight": feed_forward["W_2"].T,
        "linear2.bias": feed_forward["b_2"],
        **{f"norm1.{name}": x for name, x in first.items()},
        **{f"norm2.{name}": x for name, x in second.items()},
    }
    other.load_state_dict({name: torch.tensor(x) for name, x in state.items()})
    lib = backend.lib
    block = lib.TransformerBlock.from_parts(
        lib.MultiHeadAttention.from_weights(**backend.named(attention), num_heads=3),
        lib.FeedForward.from_weights(**backend.named(feed_forward)),
        *(lib.LayerNorm.from_weights(**backend.named(w), eps=0.1) for w in (first, second)),
        norm=norm,
    )
    x = generator.normal(size=(2, 4, 12))
    expected = other(torch.from_numpy(x), src_mask=torch.from_numpy(~np.tri(4, dtype=bool)))
    assert_near(block(backend.array(x), mask=causal), back(expected))


def test_a_new_block_hands_its_settings_to_its_parts(backend):
    def new(seed=0):
        return backend.lib.TransformerBlock(
            12, 3, d_ff=20, norm="post", activation=abs, eps=0.5, generator=backend.seeded(seed)
        )

    block, again, other = new(), new(), new(1)
    assert block.attention.num_heads == 3
    assert tuple(block.feed_forward.W_1.shape) == (12, 20)
    assert block.feed_forward.activation is abs
    assert block.attention_norm.eps == block.feed_forward_norm.eps == 0.5
    assert block.norm == "post"
    assert backend.lib.TransformerBlock(12, 3).norm == "pre"
    assert backend.lib.TransformerBlock(12, 3).attention_norm.eps == 1e-5
    assert tuple(backend.lib.TransformerBlock(12, 3).feed_forward.W_1.shape) == (12, 48)
    x = backend.array(np.arange(48.0).reshape(4, 12), dtype_of(block.attention.W_Q))
    np.testing.assert_array_equal(back(block(x)), back(again(x)))
    assert not np.allclose(back(block(x)), back(other(x)))


@needs_torch
def test_in_torch_every_weight_is_a_parameter_and_learns():
    block = BACKENDS[-1].lib.TransformerBlock(12, 3, generator=torch.Generator().manual_seed(0))
    counts = [p.numel() for p in block.parameters()]
    assert sum(counts) == 4 * (12 * 12 + 12) + (12 * 48 + 48) + (48 * 12 + 12) + 4 * 12
    assert all(p.is_contiguous() for p in block.parameters())  # safetensors saves no others
    x = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(0))
    block(x, mask=causal).sin().sum().backward()
    still = [name for name, p in block.named_parameters() if p.grad.abs().max() < 1e-6]
    assert still == ["attention.key.bias"]  # it adds one number to a whole row of scores
