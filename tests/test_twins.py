"""The twins: the same names, the same parameters, the same numbers; and no input is changed."""

import inspect
import math
from pathlib import Path

import numpy as np
import pytest
from twins import (
    ATTENTION,
    BACKENDS,
    EVERY,
    FEED_FORWARD,
    GATED,
    LAYOUTS,
    NORM,
    TOLERANCE,
    back,
    dtype_of,
    torch,
    weights,
)

import qkvlib.numpy
from qkvlib.patterns import causal

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")

# What the twins do not share, and why.
ONLY_IN_TORCH = {"best_device": "NumPy has one place to compute"}
METHODS_ONLY_IN_TORCH = {
    "from_numpy": "each twin is made from the other there",
    "to_numpy": "the same",
    "from_torch": "torch's own layer is made of tensors",
    "to_torch": "the same",
}
PARAMETERS_ONLY_IN_TORCH = {"dropout": "there is no training in NumPy"}
LAST_IN_TORCH = {"device": "torch creates tensors on a device"}
OTHER_FILES = {"_arrays.py", "_tensors.py", "devices.py"}
OTHER_FILES |= {"_threads.py", "gradients.py"}  # torch has its own threads, and autograd


# ---- names and parameters ------------------------------------------------------------------------


def parameters(function):
    """Names, kinds and defaults; a default that is a function by its name."""
    found = []
    for p in inspect.signature(function).parameters.values():
        default = getattr(p.default, "__name__", p.default) if callable(p.default) else p.default
        found.append((p.name, p.kind, default))
    return found


def without_device(function):
    found = [p for p in parameters(function) if p[0] not in PARAMETERS_ONLY_IN_TORCH]
    if found and found[-1][0] in LAST_IN_TORCH:
        assert found.pop() == ("device", inspect.Parameter.KEYWORD_ONLY, None)
    return found


def public_methods(cls):
    """What a class of this package defines itself: constructor, call, methods."""
    own = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
    methods = {name: getattr(cls, name) for name, v in own.items() if not isinstance(v, property)}
    return {name: m for name, m in methods.items() if callable(m)}


@needs_torch
def test_every_name_has_its_twin():
    import qkvlib.torch

    here, there = set(qkvlib.numpy.__all__), set(qkvlib.torch.__all__)
    assert there - here == set(ONLY_IN_TORCH)
    assert here <= there
    for lib in (qkvlib.numpy, qkvlib.torch):
        assert lib.__all__ == sorted(lib.__all__)
        public = {
            name
            for name, value in vars(lib).items()
            if not (name.startswith("_") or inspect.ismodule(value))
        }
        assert public == set(lib.__all__)


@needs_torch
@pytest.mark.parametrize("name", qkvlib.numpy.__all__)
def test_twins_take_the_same_parameters(name):
    import qkvlib.torch

    here, there = getattr(qkvlib.numpy, name), getattr(qkvlib.torch, name)
    if not inspect.isclass(here):
        assert without_device(there) == parameters(here)
        return
    assert without_device(there) == parameters(here)
    methods = {"forward" if k == "__call__" else k: v for k, v in public_methods(here).items()}
    if "__call__" in vars(here):
        methods["forward"] = here.__call__
    of_twin = public_methods(there)
    assert of_twin.keys() - methods.keys() <= METHODS_ONLY_IN_TORCH.keys()
    assert methods.keys() <= of_twin.keys()
    for method, function in methods.items():
        assert without_device(of_twin[method]) == parameters(function), method


@needs_torch
def test_the_twins_have_the_same_files():
    import qkvlib.torch

    here, there = (
        {path.name for path in Path(lib.__file__).parent.glob("*.py")}
        for lib in (qkvlib.numpy, qkvlib.torch)
    )
    assert here ^ there == OTHER_FILES


@needs_torch
@pytest.mark.parametrize("name", qkvlib.numpy.__all__)
def test_both_say_where_it_comes_from_and_show_an_example(name):
    import qkvlib.torch

    for lib in (qkvlib.numpy, qkvlib.torch):
        text = inspect.getdoc(getattr(lib, name))
        assert text
        if name != "Trace":
            assert ">>>" in text
            assert "Source: " in text


# ---- numbers -------------------------------------------------------------------------------------


def qkv(generator):
    return [generator.normal(size=s) for s in ((2, 3, 4, 7), (2, 3, 5, 7), (2, 3, 5, 6))]


def some_mask():
    mask = np.random.default_rng(3).random((4, 5)) < 0.7
    mask[1] = mask[:, 2] = False
    return mask


def a_bias():
    return np.where(some_mask(), np.random.default_rng(4).normal(size=(3, 4, 5)), -math.inf)


def layer(lib, cls, shapes, arrays, **options):
    return getattr(lib, cls).from_weights(**dict(zip(shapes, arrays)), **options)


def block(lib, arrays, norm):
    """A block from a flat list of weights."""
    arrays = list(arrays)
    made = [
        layer(lib, cls, shapes, [arrays.pop(0) for _ in shapes], **options)
        for cls, shapes, options in (
            ("MultiHeadAttention", ATTENTION, {"num_heads": 3}),
            ("FeedForward", FEED_FORWARD, {}),
            ("LayerNorm", NORM, {}),
            ("LayerNorm", NORM, {}),
        )
    ]
    return lib.TransformerBlock.from_parts(*made, norm=norm)


def cached(lib, key, value, next_key, next_value):
    """Keys and values after two steps, in one array."""
    cache = lib.KeyValueCache()
    cache.append(key, value)
    key, value = cache.append(next_key, next_value)
    return (key[..., :1] * value).sum(-2)


def drawn(*shapes):
    return lambda generator: [generator.normal(size=shape) for shape in shapes]


def with_weights(*shape_tables):
    def draw(generator):
        tables = [weights(generator, shapes) for shapes in shape_tables]
        return [generator.normal(size=(2, 4, 12)), *(x for t in tables for x in t.values())]

    return draw


def encoder(lib, ids, tokens, positions, *arrays):
    made = layer(lib, "LayerNorm", NORM, arrays[:2])
    return lib.Encoder(tokens, positions, norm=made, blocks=[block(lib, arrays[2:], "post")])(ids)


def encoder_inputs(generator):
    _, *arrays = with_weights(NORM, ATTENTION, FEED_FORWARD, NORM, NORM)(generator)
    ids = generator.integers(0, 9, (2, 4))
    return [ids, generator.normal(size=(9, 12)), generator.normal(size=(6, 12)), *arrays]


def decoder(lib, ids, tokens, *arrays):
    made = layer(lib, "LayerNorm", NORM, arrays[:2])
    blocks = [block(lib, arrays[2:], "pre")]
    return lib.Decoder(tokens, norm=made, blocks=blocks, n_max=6)(ids)


def decoder_inputs(generator):
    ids, tokens, _, *arrays = encoder_inputs(generator)
    return [ids, tokens, *arrays]


def generated(lib, tokens, ids):
    """The rows of what comes after `ids`, where each token is followed by the least like it."""
    model = lib.Decoder(tokens, norm=lambda x: -x, blocks=[], n_max=9)
    return tokens[list(lib.generate(model, ids, max_tokens=5))]


def some_positions(generator):
    return [np.array([[3, 0, 7], [-2, 5, 40]])]


# d_model 12, d_source 10, six heads of d_k 5 and d_v 2, two heads of keys, d_out 7
GROUPED = {"W_Q": (12, 30), "W_K": (10, 10), "W_V": (10, 4), "W_O": (12, 7)}
GROUPED |= {"b_Q": (30,), "b_K": (10,), "b_V": (4,), "b_O": (7,)}
BLOCK = (ATTENTION, FEED_FORWARD, NORM, NORM)
# For each name: how to call it, and with what. The first array decides the dtype of the result.
CALLS = {
    "softmax": (lambda lib, x: lib.softmax(x, 1), drawn((3, 4, 5))),
    "log_softmax": (lambda lib, x: lib.log_softmax(x), drawn((3, 4, 5))),
    "attention_scores": (
        lambda lib, q, k, bias: lib.attention_scores(q, k, bias=bias, softcap=2.0),
        lambda generator: [*qkv(generator)[:2], a_bias()],
    ),
    "attention_weights": (
        lambda lib, q, k, mask: lib.attention_weights(q, k, mask=mask, scale=0.5),
        lambda generator: [*qkv(generator)[:2], some_mask()],
    ),
    "scaled_dot_product_attention": (
        lambda lib, q, k, v, mask, bias: lib.scaled_dot_product_attention(
            q, k, v, mask=mask, bias=bias
        ),
        lambda generator: [*qkv(generator), some_mask(), a_bias()],
    ),
    "scaled_dot_product_attention, fused": (
        lambda lib, q, k, v, mask: lib.scaled_dot_product_attention(q, k, v, mask=mask),
        lambda generator: [*qkv(generator), some_mask()],
    ),
    "chunked_attention": (
        lambda lib, q, k, v, mask, bias: lib.chunked_attention(
            q, k, v, mask=mask, bias=bias, softcap=2.0, chunk_size=3
        ),
        lambda generator: [*qkv(generator), some_mask(), a_bias()],
    ),
    "causal_mask": (
        lambda lib, offset: lib.causal_mask(3, 5, offset=offset),
        lambda generator: [np.array([2, 0, 4])],
    ),
    "window_mask": (
        lambda lib, offset: lib.window_mask(3, 5, window=2, offset=offset),
        lambda generator: [np.array([2, 0, 4])],
    ),
    "padding_mask": (
        lambda lib, lengths: lib.padding_mask(lengths, 5),
        lambda generator: [np.array([2, 0, 5])],
    ),
    "project": (lambda lib, x, W, b: lib.project(x, W, b), drawn((2, 4, 5), (5, 7), (7,))),
    "split_heads": (lambda lib, x: lib.split_heads(x, 3), drawn((2, 4, 6))),
    "repeat_heads": (lambda lib, x: lib.repeat_heads(x, 3), drawn((2, 3, 4, 5))),
    "merge_heads": (lambda lib, x: lib.merge_heads(x), drawn((2, 3, 4, 5))),
    "MultiHeadAttention": (
        lambda lib, x, *w: layer(lib, "MultiHeadAttention", ATTENTION, w, num_heads=3)(
            x, mask=causal
        ),
        with_weights(ATTENTION),
    ),
    "MultiHeadAttention, cross and grouped": (
        lambda lib, x, source, *w: layer(
            lib, "MultiHeadAttention", GROUPED, w, num_heads=6, num_kv_heads=2
        )(x, source, mask=causal),
        lambda generator: [
            *(generator.normal(size=s) for s in ((2, 4, 12), (2, 5, 10))),
            *weights(generator, GROUPED).values(),
        ],
    ),
    "KeyValueCache": (
        lambda lib, *arrays: cached(lib, *arrays),
        drawn((2, 3, 4, 5), (2, 3, 4, 6), (2, 3, 1, 5), (2, 3, 1, 6)),
    ),
    "layer_norm": (lambda lib, x, w, b: lib.layer_norm(x, w, b, 0.1), drawn((2, 4, 5), (5,), (5,))),
    "rms_norm": (lambda lib, x, w: lib.rms_norm(x, w, 0.1), drawn((2, 4, 5), (5,))),
    "relu": (lambda lib, x: lib.relu(x), drawn((2, 4, 5))),
    "gelu": (lambda lib, x: lib.gelu(x), drawn((2, 4, 5))),
    "gelu_tanh": (lambda lib, x: lib.gelu_tanh(x), drawn((2, 4, 5))),
    "silu": (lambda lib, x: lib.silu(x), drawn((2, 4, 5))),
    "LayerNorm": (lambda lib, x, *w: layer(lib, "LayerNorm", NORM, w)(x), with_weights(NORM)),
    "RMSNorm": (
        lambda lib, x, w: lib.RMSNorm.from_weights(w)(x),
        drawn((2, 4, 12), (12,)),
    ),
    "SwiGLU": (lambda lib, x, *w: layer(lib, "SwiGLU", GATED, w)(x), with_weights(GATED)),
    "FeedForward": (
        lambda lib, x, *w: layer(lib, "FeedForward", FEED_FORWARD, w)(x),
        with_weights(FEED_FORWARD),
    ),
    "TransformerBlock": (
        lambda lib, x, *w: block(lib, w, "pre")(x, mask=causal),
        with_weights(*BLOCK),
    ),
    "TransformerBlock, post": (
        lambda lib, x, *w: block(lib, w, "post")(x, mask=causal),
        with_weights(*BLOCK),
    ),
    "scaled_residual": (
        lambda lib, x, *w: lib.scaled_residual(block(lib, w, "pre"), 3)(x),
        with_weights(*BLOCK),
    ),
    "learned_positions": (
        lambda lib, table, positions: lib.learned_positions(positions, table),
        lambda generator: [generator.normal(size=(7, 5)), np.array([[3, 0], [6, 3]])],
    ),
    "sinusoidal_positions": (lambda lib: lib.sinusoidal_positions(5, 7), drawn()),
    "relative_distances": (
        lambda lib, offset: lib.relative_distances(3, 5, offset=offset),
        lambda generator: [np.array([2, 0, 4])],
    ),
    "relative_key_scores": (
        lambda lib, q, table, offset: lib.relative_key_scores(q, table, 5, offset=offset),
        lambda generator: [*drawn((2, 3, 4, 7), (5, 7))(generator), np.array([[1], [0]])],
    ),
    "relative_buckets": (
        lambda lib, distance: lib.relative_buckets(
            distance, bidirectional=True, num_buckets=12, max_distance=30
        ),
        lambda generator: [generator.integers(-40, 40, (3, 5))],
    ),
    "relative_buckets, causal": (
        lambda lib, distance: lib.relative_buckets(
            distance, bidirectional=False, num_buckets=7, max_distance=30
        ),
        lambda generator: [generator.integers(-40, 40, (3, 5))],
    ),
    "alibi_bias": (
        lambda lib, offset: lib.alibi_bias(6, 3, 5, offset=offset),
        lambda generator: [np.array([2, 0, 4])],
    ),
    "rotary_angles": (lambda lib, positions: lib.rotary_angles(positions, 6)[0], some_positions),
    "rotary_angles, sine": (
        lambda lib, positions: lib.rotary_angles(positions, 6, base=100)[1],
        some_positions,
    ),
    "rotate": (
        lambda lib, x, cos, sin: lib.rotate(x, cos, sin, pairing="interleaved"),
        drawn((2, 3, 4, 6), (4, 3), (4, 3)),
    ),
    "rotate, half": (
        lambda lib, x, cos, sin: lib.rotate(x, cos, sin, pairing="half"),
        drawn((2, 3, 4, 6), (2, 1, 4, 3), (2, 1, 4, 3)),
    ),
    "interleaved_to_half": (lambda lib: lib.interleaved_to_half(6), drawn()),
    "Encoder": (encoder, encoder_inputs),
    "Decoder": (decoder, decoder_inputs),
    "generate": (
        generated,
        lambda generator: [generator.normal(size=(9, 12)), np.array([3, 0])],
    ),
    "token_probabilities": (
        lambda lib, x: lib.token_probabilities(x, temperature=0.7, top_k=6, top_p=0.9),
        drawn((2, 3, 9)),
    ),
}
DRAWS = {"xavier_uniform", "xavier_normal"}  # other numbers from another backend's generator
RETURNS_FLOAT32_FOR_HALF = {"softmax", "log_softmax", "attention_scores", "attention_weights"}
RETURNS_FLOAT32_FOR_HALF |= {"relative_key_scores", "token_probabilities"}
# What has its own dtype, whatever that of its arguments: masks, tables of angles, whole numbers.
RETURNS = dict.fromkeys(("causal_mask", "padding_mask", "window_mask"), "bool")
RETURNS |= dict.fromkeys(("alibi_bias", "rotary_angles"), "float64")
RETURNS |= dict.fromkeys(("interleaved_to_half", "relative_buckets", "relative_distances"), "int64")


def returned(twin, name):
    """The dtype of what a function returns to this twin."""
    name = name.partition(",")[0]
    if name == "sinusoidal_positions":  # to be added to tokens
        return "float32" if twin.is_torch else "float64"
    if RETURNS.get(name) == "float64" and twin.device == "mps":
        return "float32"
    return RETURNS.get(name, twin.computed if name in RETURNS_FLOAT32_FOR_HALF else twin.dtype)


def test_every_name_is_called_here():
    called = {name.partition(",")[0] for name in CALLS}
    assert called | DRAWS | {"Trace"} == set(qkvlib.numpy.__all__)


@needs_torch
@pytest.mark.parametrize("name", CALLS)
def test_torch_computes_what_numpy_computes(name, generator):
    """NumPy in float64 decides; every twin, given numbers that its dtype has, must come near."""
    call, draw = CALLS[name]
    arrays = draw(generator)
    for twin in EVERY:
        rounded = [back(twin.array(x)) for x in arrays]
        expected = back(call(qkvlib.numpy, *rounded))
        found = call(twin.lib, *map(twin.array, arrays))
        tolerance = max(TOLERANCE.get(dtype, 0) for dtype in (twin.dtype, returned(twin, name)))
        np.testing.assert_allclose(
            back(found), expected, rtol=tolerance, atol=tolerance, err_msg=str(twin)
        )


@pytest.mark.parametrize("name", CALLS)
def test_dtype(twin, name, generator):
    call, draw = CALLS[name]
    arrays = draw(generator)
    found = call(twin.lib, *map(twin.array, arrays))
    if not twin.is_torch:
        assert isinstance(found, np.ndarray)
    assert dtype_of(found) == returned(twin, name)


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_is_changed(twin, name, generator):
    call, draw = CALLS[name]
    given = [twin.array(x) for x in draw(generator)]
    before = [back(x).copy() for x in given]
    call(twin.lib, *given)
    for x, copy in zip(given, before):
        np.testing.assert_array_equal(back(x), copy)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_memory_layout_does_not_matter_in_numpy(name, generator, layout):
    call, draw = CALLS[name]
    arrays = draw(generator)
    found = call(qkvlib.numpy, *map(layout, arrays))
    np.testing.assert_allclose(found, call(qkvlib.numpy, *arrays), rtol=1e-13, atol=1e-14)


@needs_torch
@pytest.mark.parametrize("name", CALLS)
def test_memory_layout_does_not_matter_in_torch(name, generator):
    call, draw = CALLS[name]
    twin = BACKENDS[-1]
    tensors = [twin.array(x) for x in draw(generator)]
    expected = back(call(twin.lib, *tensors))
    strided = [x.repeat_interleave(2, dim=-1)[..., ::2] for x in tensors]
    columns = [x.mT.contiguous().mT if x.ndim > 1 else x for x in tensors]
    for others in (strided, columns):
        found = back(call(twin.lib, *others))
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@needs_torch
@pytest.mark.parametrize("name", CALLS)
def test_tensors_that_learn_may_be_passed(name, generator):
    call, draw = CALLS[name]
    twin = BACKENDS[-1]
    leaves = [twin.array(x) for x in draw(generator)]
    leaves = [x.requires_grad_() if x.is_floating_point() else x for x in leaves]
    found = call(twin.lib, *leaves)
    assert found.requires_grad == any(x.requires_grad for x in leaves)
    if found.requires_grad:
        found.masked_fill(~found.isfinite(), 0).square().sum().backward()
        first = leaves[0]
        if first.requires_grad:
            assert first.grad.isfinite().all()
            assert first.grad.abs().max() > 0
