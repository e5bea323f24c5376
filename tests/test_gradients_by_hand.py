"""Backward passes by hand, against autograd and against differences of the forward passes."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import TOLERANCE, torch

import qkvlib.numpy
from qkvlib.numpy import gradients
from qkvlib.patterns import causal, window

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
BY_AUTOGRAD = {"rtol": 1e-10, "atol": 1e-10}
BY_DIFFERENCES = {"rtol": 1e-7, "atol": 1e-7}


# ---- one way to call them all --------------------------------------------------------------------


def forward(lib, name, arrays, options):
    if name == "multi_head_attention":
        if lib is not qkvlib.numpy:
            return by_parts(lib, **arrays, **options)
        mha, inputs = layer_and_inputs(arrays, options)
        return mha(**inputs)
    return getattr(lib, name)(**arrays, **options)


def layer_and_inputs(arrays, options):
    weights = {name: x for name, x in arrays.items() if name[:2] in ("W_", "b_")}
    sizes = {name: n for name, n in options.items() if name.startswith("num")}
    given = {name: x for name, x in (arrays | options).items() if name not in weights | sizes}
    return qkvlib.numpy.MultiHeadAttention.from_weights(**weights, **sizes), given


def by_parts(lib, x, source=None, value_source=None, *, num_heads, num_kv_heads, mask, **others):
    """The layer once more, from the functions it is made of."""

    def heads(letter, x, h):
        return lib.split_heads(lib.project(x, others[f"W_{letter}"], others.get(f"b_{letter}")), h)

    source = x if source is None else source
    value_source = source if value_source is None else value_source
    repeats = num_heads // num_kv_heads
    found = lib.scaled_dot_product_attention(
        heads("Q", x, num_heads),
        lib.repeat_heads(heads("K", source, num_kv_heads), repeats),
        lib.repeat_heads(heads("V", value_source, num_kv_heads), repeats),
        mask=mask,
        bias=others.get("bias"),
    )
    return lib.project(lib.merge_heads(found), others["W_O"], others.get("b_O"))


def backward(name, grad, arrays, options):
    """The gradients by hand, under the names of the arrays."""
    function = getattr(gradients, f"{name}_backward")
    if name.endswith("softmax"):
        returned = forward(qkvlib.numpy, name, arrays, options)
        return {"scores": function(grad, returned, **options)}
    if name == "repeat_heads":
        return {"x": function(grad, **options)}
    if name == "multi_head_attention":
        mha, inputs = layer_and_inputs(arrays, options)
        found = function(grad, mha, **inputs)._asdict()
    else:
        found = function(grad, **arrays, **options)._asdict()
    assert all(found.pop(each) is None for each in list(found) if each not in arrays)
    return found


def by_autograd(name, grad, arrays, options):
    """What torch makes of the torch twin."""
    import qkvlib.torch

    leaves = {each: torch.tensor(x, requires_grad=True) for each, x in arrays.items()}
    options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    returned = forward(qkvlib.torch, name, leaves, options)
    returned.backward(torch.tensor(grad))
    return {each: x.grad.numpy() for each, x in leaves.items()}


def slope(function, arrays, directions, step=1e-3):
    """How fast a number grows along `directions`, from four of its values."""

    def value(t):
        return function({name: x + t * directions[name] for name, x in arrays.items()})

    return (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (12 * step)


def grad_and_directions(seed, name, arrays, options):
    generator = np.random.default_rng([seed, 1])
    shape = forward(qkvlib.numpy, name, arrays, options).shape
    return generator.normal(size=shape), {
        each: generator.normal(size=x.shape) for each, x in arrays.items()
    }


def agrees_with_autograd(seed, name, arrays, options):
    grad, _ = grad_and_directions(seed, name, arrays, options)
    found = backward(name, grad, arrays, options)
    expected = by_autograd(name, grad, arrays, options)
    assert found.keys() == arrays.keys()
    for each, x in arrays.items():
        assert found[each].shape == x.shape
        assert found[each].dtype == x.dtype
        np.testing.assert_allclose(found[each], expected[each], err_msg=each, **BY_AUTOGRAD)


def agrees_with_differences(seed, name, arrays, options):
    """The slope of the loss sum(grad * returned) along random directions, array by array."""
    grad, directions = grad_and_directions(seed, name, arrays, options)
    found = backward(name, grad, arrays, options)
    for each, x in arrays.items():

        def loss(moved, each=each):
            return (grad * forward(qkvlib.numpy, name, arrays | moved, options)).sum()

        expected = slope(loss, {each: x}, directions)
        got = (found[each] * directions[each]).sum()
        np.testing.assert_allclose(got, expected, err_msg=each, **BY_DIFFERENCES)


# ---- what they are asked about -------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
LEADS = [  # of query, key and value
    ((), (), ()),
    ((3,), (3,), (3,)),
    ((2, 3), (2, 3), (2, 3)),
    ((2, 1), (1, 3), (3,)),
    ((3,), (2, 3), (2, 1)),
    ((1,), (), (2, 3)),
    ((), (2, 3), ()),
]


def broadcasting(draw, shape):
    """A shape that broadcasts to this one without enlarging it."""
    kept = [size if draw(st.booleans()) else 1 for size in shape]
    return tuple(kept[draw(st.integers(0, len(kept) - 2)) :])


@st.composite
def attention_cases(draw, *, masks=True, magnitudes=(0.1, 1.0, 3.0), softcaps=(None, 0.5, 20.0)):
    """Arrays and options of attention, with rows that may attend to nothing among them."""
    generator = np.random.default_rng(draw(seeds))
    lead = draw(st.sampled_from(LEADS))
    n_query, n_key, d_k, d_v = (draw(sizes) for _ in range(4))
    rows = zip(lead, ((n_query, d_k), (n_key, d_k), (n_key, d_v)))
    magnitude = draw(st.sampled_from(magnitudes))
    arrays = {
        name: magnitude * generator.normal(size=(*axes, *row))
        for name, (axes, row) in zip(("query", "key", "value"), rows)
    }
    shape = (*np.broadcast_shapes(*lead[:2]), n_query, n_key)
    options = {
        "scale": draw(st.sampled_from([None, 0.0, 0.3, -0.7])),
        "softcap": draw(st.sampled_from(softcaps)),
    }
    if draw(st.booleans()):
        bias = generator.normal(size=broadcasting(draw, shape))
        if masks and draw(st.booleans()):
            bias[generator.random(bias.shape) < 0.3] = -math.inf
        arrays["bias"] = bias
    if masks:
        options["mask"] = draw(st.sampled_from(["none", "pattern", "two axes", "all axes"]))
        if options["mask"] == "two axes":
            options["mask"] = generator.random(shape[-2:]) < draw(st.sampled_from([0.3, 0.7]))
        elif options["mask"] == "all axes":
            options["mask"] = generator.random(shape) < 0.6
        else:
            options["mask"] = {"none": None, "pattern": causal & window(2)}[options["mask"]]
    return arrays, options


@st.composite
def score_cases(draw, **kinds):
    arrays, options = draw(attention_cases(masks=False, **kinds))
    return {name: x for name, x in arrays.items() if name != "value"}, options


@st.composite
def softmax_cases(draw):
    shape = draw(st.sampled_from([(5,), (4, 3), (2, 3, 4), (3, 0)]))
    scores = draw(st.sampled_from([0.1, 3.0, 30.0])) * np.random.default_rng(draw(seeds)).normal(
        size=shape
    )
    return {"scores": scores}, {"axis": draw(st.integers(-len(shape), len(shape) - 1))}


@st.composite
def norm_cases(draw, name, *, eps=(0.0, None, 0.3)):
    generator = np.random.default_rng(draw(seeds))
    lead, width = draw(st.sampled_from([(), (1,), (4,), (2, 3)])), draw(st.integers(3, 7))
    arrays = {"x": generator.normal(1.0, draw(st.sampled_from([0.3, 5.0])), (*lead, width))}
    for optional in {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}[name]:
        if draw(st.booleans()):
            arrays[optional] = generator.normal(size=width)
    eps = draw(st.sampled_from(eps))
    return arrays, {} if eps is None else {"eps": eps}


@st.composite
def projection_cases(draw):
    generator = np.random.default_rng(draw(seeds))
    lead, d_in, d_out = draw(st.sampled_from([(), (4,), (2, 0), (2, 3)])), draw(sizes), draw(sizes)
    arrays = {"x": generator.normal(size=(*lead, d_in)), "W": generator.normal(size=(d_in, d_out))}
    if draw(st.booleans()):
        arrays["b"] = generator.normal(size=d_out)
    return arrays, {}


@st.composite
def repeat_cases(draw):
    shape = (*draw(st.sampled_from([(), (2,)])), *(draw(sizes) for _ in range(3)))
    x = np.random.default_rng(draw(seeds)).normal(size=shape)
    return {"x": x}, {"repeats": draw(st.integers(1, 4))}


@st.composite
def layer_cases(draw):
    """Self-attention and cross attention, key heads that are shared, each bias or none."""
    generator = np.random.default_rng(draw(seeds))
    h, h_kv = draw(st.sampled_from([(1, 1), (3, 3), (3, 1), (4, 2)]))
    d_model, d_k, d_v, d_out, n_query, n_key = (draw(sizes) for _ in range(6))
    sources = draw(st.sampled_from(["self", "cross", "values apart"]))
    d_source, n_key = (d_model, n_query) if sources == "self" else (draw(sizes), n_key)
    lead, source_lead = draw(st.sampled_from([((), ()), ((2,), (2,)), ((2,), ()), ((), (3, 2))]))
    shapes = {"x": (*lead, n_query, d_model)}
    if sources != "self":
        shapes["source"] = (*source_lead, n_key, d_source)
    if sources == "values apart":
        shapes["value_source"] = shapes["source"]
    shapes |= {"W_Q": (d_model, h * d_k), "W_K": (d_source, h_kv * d_k)}
    shapes |= {"W_V": (d_source, h_kv * d_v), "W_O": (h * d_v, d_out)}
    if draw(st.booleans()):
        shapes |= {f"b_{letter}": shapes[f"W_{letter}"][1:] for letter in "QKVO"}
    if draw(st.booleans()):
        shapes["bias"] = (h, 1, n_key)
    arrays = {name: 0.5 * generator.normal(size=shape) for name, shape in shapes.items()}
    mask = draw(st.sampled_from([None, causal, "drawn"]))
    mask = generator.random((n_query, n_key)) < 0.6 if mask == "drawn" else mask
    return arrays, {"num_heads": h, "num_kv_heads": h_kv, "mask": mask}


CASES = {
    "softmax": softmax_cases(),
    "log_softmax": softmax_cases(),
    "attention_scores": score_cases(),
    "scaled_dot_product_attention": attention_cases(),
    "layer_norm": norm_cases("layer_norm"),
    "rms_norm": norm_cases("rms_norm"),
    "project": projection_cases(),
    "repeat_heads": repeat_cases(),
    "multi_head_attention": layer_cases(),
}
# What bends within one step, a steep cap or a small eps, is left to autograd.
GENTLE = {"magnitudes": (0.1, 1.0), "softcaps": (None, 5.0)}
SMOOTH = CASES | {
    "attention_scores": score_cases(**GENTLE),
    "scaled_dot_product_attention": attention_cases(**GENTLE),
    "layer_norm": norm_cases("layer_norm", eps=(0.3,)),
    "rms_norm": norm_cases("rms_norm", eps=(0.3,)),
}


def test_every_backward_pass_is_asked():
    functions = {name for name in gradients.__all__ if name.endswith("_backward")}
    assert functions == {f"{name}_backward" for name in CASES}


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_against_autograd(name):
    @given(CASES[name], seeds)
    def check(case, seed):
        agrees_with_autograd(seed, name, *case)

    check()


@pytest.mark.parametrize("name", SMOOTH)
def test_against_differences(name):
    @given(SMOOTH[name], seeds)
    def check(case, seed):
        agrees_with_differences(seed, name, *case)

    check()


# ---- rows that may attend to nothing, keys that nobody may read ----------------------------------


def test_an_empty_row_hands_nothing_back(generator):
    scores = np.array([[-math.inf] * 3, [1.0, -math.inf, 2.0]])
    grad = generator.normal(size=(2, 3))
    for name in ("softmax", "log_softmax"):
        found = backward(name, grad, {"scores": scores}, {})["scores"]
        assert found[0].tolist() == [0, 0, 0]
        assert np.isfinite(found).all()
        assert found[1, 0] != 0


@pytest.mark.parametrize("said", ["mask", "bias"])
@pytest.mark.parametrize("filling", [math.nan, math.inf, 1e300])
def test_what_cannot_be_reached_has_gradient_zero(generator, said, filling):
    """Query 1 may attend to nothing and key 2 is read by nobody."""
    mask = generator.random((4, 5)) < 0.7
    mask[1] = mask[:, 2] = False
    options = {"mask": mask} if said == "mask" else {"bias": np.where(mask, 0.0, -math.inf)}
    shapes = {"query": (2, 3, 4, 7), "key": (2, 3, 5, 7), "value": (2, 3, 5, 6)}
    arrays = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    grad = generator.normal(size=(2, 3, 4, 6))
    clean = gradients.scaled_dot_product_attention_backward(grad, **arrays, **options)
    for name in ("key", "value"):
        arrays[name][..., 2, :] = filling
    found = gradients.scaled_dot_product_attention_backward(grad, **arrays, **options)
    for got, expected in zip(found[:3], clean):
        np.testing.assert_array_equal(got, expected)
    assert not found.query[..., 1, :].any()
    assert not found.key[..., 2, :].any()
    assert not found.value[..., 2, :].any()
    assert all(x[..., 0, :].all() for x in found[:3])
    if said == "bias":
        assert ((found.bias == 0) == ~mask).all()


def test_keys_that_only_one_item_may_read_are_one_for_all(generator):
    """The mask has a batch axis, keys and values have none: their gradients have none either."""
    shapes = {"query": (2, 4, 7), "key": (5, 7), "value": (5, 6)}
    arrays = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    mask = np.ones((2, 4, 5), dtype=bool)
    mask[0, :, 2] = mask[1, :, 3] = False
    agrees_with_differences(0, "scaled_dot_product_attention", arrays, {"mask": mask})
    grad = generator.normal(size=(2, 4, 6))
    found = backward("scaled_dot_product_attention", grad, arrays, {"mask": mask})
    assert {name: x.shape for name, x in found.items()} == shapes


def test_a_bias_of_the_keys_changes_nothing():
    """It adds one number to all scores of a query, and softmax does not see it."""
    grad, arrays, options = example("multi_head_attention")
    found = backward("multi_head_attention", grad, arrays, options)
    np.testing.assert_allclose(found["b_K"], 0, atol=1e-14)
    assert all(abs(found[each]).max() > 0.1 for each in arrays if each != "b_K")


# ---- dtypes, layouts, errors ---------------------------------------------------------------------

SHAPES = {
    "softmax": {"scores": (3, 4, 5)},
    "log_softmax": {"scores": (3, 4, 5)},
    "attention_scores": {"query": (2, 3, 4, 7), "key": (3, 5, 7), "bias": (3, 1, 5)},
    "scaled_dot_product_attention": {
        "query": (2, 3, 4, 7),
        "key": (2, 1, 5, 7),
        "value": (3, 5, 6),
        "bias": (4, 5),
    },
    "layer_norm": {"x": (2, 4, 5), "weight": (5,), "bias": (5,)},
    "rms_norm": {"x": (2, 4, 5), "weight": (5,)},
    "project": {"x": (2, 4, 5), "W": (5, 7), "b": (7,)},
    "repeat_heads": {"x": (2, 3, 4, 5)},
    "multi_head_attention": {
        "x": (2, 4, 7),
        "source": (2, 5, 6),
        "bias": (5,),
        "W_Q": (7, 20),
        "W_K": (6, 10),
        "W_V": (6, 6),
        "W_O": (12, 8),
        "b_Q": (20,),
        "b_K": (10,),
        "b_V": (6,),
        "b_O": (8,),
    },
}
OPTIONS = {
    "repeat_heads": {"repeats": 2},
    "multi_head_attention": {"num_heads": 4, "num_kv_heads": 2, "mask": causal},
    "attention_scores": {"softcap": 2.0},
    "scaled_dot_product_attention": {"softcap": 2.0, "mask": causal},
}


def example(name, dtype="float64"):
    """Some arrays, options and a gradient of what comes out."""
    generator = np.random.default_rng(20)
    arrays = {n: generator.normal(size=s) for n, s in SHAPES[name].items()}
    arrays |= {n: x / math.sqrt(len(x)) for n, x in arrays.items() if n.startswith("W")}
    arrays = {n: x.astype(dtype) for n, x in arrays.items()}
    options = OPTIONS.get(name, {})
    returned = forward(qkvlib.numpy, name, arrays, options)
    return generator.normal(size=returned.shape).astype(returned.dtype), arrays, options


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_gradient_has_the_dtype_of_its_array(name, dtype):
    grad, arrays, options = example(name, dtype)
    found = backward(name, grad, arrays, options)
    wide = {each: x.astype(float) for each, x in arrays.items()}
    expected = backward(name, grad.astype(float), wide, options)
    softmaxes = {"softmax", "log_softmax"}  # their way back begins at weights, in float32
    returned = "float32" if name in softmaxes else dtype
    for each in arrays:
        assert found[each].dtype == returned
        largest = max(1, abs(expected[each]).max())  # rounding on the way goes by the large ones
        np.testing.assert_allclose(
            found[each].astype(float), expected[each], atol=TOLERANCE[dtype] * largest, rtol=0
        )


def test_a_bias_may_have_a_dtype_of_its_own():
    grad, arrays, options = example("scaled_dot_product_attention", "float32")
    bias = arrays["bias"].astype("float16")
    found = backward("scaled_dot_product_attention", grad, arrays | {"bias": bias}, options)
    assert {each: str(x.dtype) for each, x in found.items()} == {
        "query": "float32",
        "key": "float32",
        "value": "float32",
        "bias": "float16",
    }


LAYOUTS = {
    "columns first": np.asfortranarray,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", SHAPES)
def test_layouts_do_not_matter_and_no_argument_is_changed(name, layout):
    grad, arrays, options = example(name)
    expected = backward(name, grad, arrays, options)
    given = {each: layout(x) for each, x in arrays.items()}
    for x in (grad, *given.values()):
        x.setflags(write=False)
    found = backward(name, layout(grad), given, options)
    for each in arrays:
        np.testing.assert_allclose(found[each], expected[each], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"repeat_heads"}))
def test_a_gradient_that_does_not_fit_is_refused(name):
    grad, arrays, options = example(name)
    argument = next(iter(inspect.signature(getattr(gradients, f"{name}_backward")).parameters))
    assert argument.startswith("grad_")
    with pytest.raises(ValueError, match=rf"{argument} must have the shape of what came out, \("):
        backward(name, grad[..., :-1], arrays, options)
    with pytest.raises(ValueError, match=argument):
        backward(name, grad[:1], arrays, options)  # would broadcast in silence
    with pytest.raises(TypeError, match=argument):
        backward(name, grad.astype(np.float32), arrays, options)
    with pytest.raises(TypeError, match=f"{argument} must be float16, float32 or float64"):
        backward(name, grad.astype(int), arrays, options)
    with pytest.raises(TypeError, match=rf"{argument} must be a NumPy array, got builtins.list"):
        backward(name, grad.tolist(), arrays, options)


def test_the_forward_passes_refusals_are_theirs_too():
    grad, arrays, options = example("scaled_dot_product_attention")
    attend = gradients.scaled_dot_product_attention_backward
    for changes, message in (
        ({"key": arrays["key"][..., :-1]}, "query and key must have the same width"),
        ({"value": arrays["value"][..., :-1, :]}, "value must hold one row for each key"),
        ({"mask": np.ones((4, 6), bool)}, "mask must broadcast to the scores"),
        ({"bias": np.ones((4, 6))}, "bias must broadcast to the scores"),
        ({"softcap": -1.0}, "softcap must be greater than 0"),
        ({"scale": math.inf}, "scale must be a finite number"),
    ):
        with pytest.raises(ValueError, match=message):
            attend(grad, **(arrays | options | changes))
    scores, (query, key, _, bias) = np.ones((2, 3, 4, 5)), arrays.values()
    with pytest.raises(ValueError, match="bias must broadcast to the scores"):
        gradients.attention_scores_backward(scores, query, key, bias=np.ones((2, 2, 3, 4, 5)))
    with pytest.raises(TypeError, match="bias must be floating, got bool"):
        gradients.attention_scores_backward(scores, query, key, bias=bias > 0)
    with pytest.raises(ValueError, match="eps must be at least 0"):
        gradients.rms_norm_backward(np.ones((1, 3)), np.ones((1, 3)), eps=-1)
    with pytest.raises(ValueError, match="weight must have shape"):
        gradients.layer_norm_backward(np.ones((1, 3)), np.ones((1, 3)), np.ones(4))
    with pytest.raises(ValueError, match="W must have as many rows"):
        gradients.project_backward(np.ones((1, 3)), np.ones((1, 3)), np.ones((4, 3)))
    with pytest.raises(ValueError, match="axis must name one of the 1 axes"):
        gradients.softmax_backward(np.ones(3), np.ones(3), axis=1)


ATTENTIONS = ["attention_scores", "scaled_dot_product_attention"]


@pytest.mark.parametrize("name", [*ATTENTIONS, "layer_norm", "rms_norm", "project"])
def test_each_array_is_checked_by_name(name):
    grad, arrays, options = example(name)
    for each, x in arrays.items():
        if each == "bias" and name in ATTENTIONS:
            continue  # it may have a dtype of its own
        for wrong, said in ((x.tolist(), "a NumPy array, got builtins.list"), (x > 0, "float16, ")):
            with pytest.raises(TypeError, match=f"^{each} must be {said}"):
                backward(name, grad, arrays | {each: wrong}, options)
        with pytest.raises(TypeError, match=rf"all must have one dtype, got .*\b{each} float32"):
            backward(name, grad, arrays | {each: x.astype("float32")}, options)
        if each in ("weight", "bias", "b"):
            with pytest.raises(ValueError, match=f"^{each} must have shape"):
                backward(name, grad, arrays | {each: x[:-1]}, options)


def test_what_many_heads_say_is_added_up_in_float32():
    """In float16 a sum of ones would stop at 2048."""
    found = gradients.repeat_heads_backward(np.ones((4096, 3, 5), np.float16), 4096)
    assert (found == 4096).all()


def test_what_repeated_heads_refuse():
    for grad, repeats, error, message in (
        (np.ones((4, 5)), 2, ValueError, r"grad_y must .* 3 axes, \(\.\.\., h \* repeats, n, d\),"),
        (np.ones((3, 4, 5)), 2, ValueError, "multiple of repeats = 2, got 3 from shape"),
        (np.ones((3, 4, 5)), 0, ValueError, "repeats must be at least 1"),
        (np.ones((3, 4, 5), int), 3, TypeError, "grad_y must be float16, float32 or float64"),
    ):
        with pytest.raises(error, match=message):
            gradients.repeat_heads_backward(grad, repeats)


def test_a_layer_that_rotates_is_refused_by_name():
    W = np.eye(4)

    def turned(x, positions):
        return x

    mha = qkvlib.numpy.MultiHeadAttention.from_weights(W, W, W, W, num_heads=2, rotate=turned)
    with pytest.raises(ValueError, match=r"mha must not rotate, got rotate=.*turned.*qkvlib.torch"):
        gradients.multi_head_attention_backward(np.ones((3, 4)), mha, np.ones((3, 4)))


@pytest.mark.parametrize("wrong", [None, np.eye(4), lambda x: x], ids=["none", "array", "function"])
def test_what_is_no_layer_is_refused(wrong):
    said = rf"mha must be a qkvlib\.numpy\.MultiHeadAttention, got {type(wrong).__name__}; in torch"
    with pytest.raises(TypeError, match=said):
        gradients.multi_head_attention_backward(np.ones((3, 4)), wrong, np.ones((3, 4)))


# ---- docstrings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in gradients.__all__ if n.endswith("_backward")])
def test_each_says_where_it_comes_from_derives_itself_and_shows_an_example(name):
    text = inspect.getdoc(getattr(gradients, name))
    assert "Source: " in text
    assert ">>> " in text
    assert "dL/d" in text


def test_the_arguments_are_those_of_the_forward_pass():
    for name in set(CASES) - {"softmax", "log_softmax", "repeat_heads", "multi_head_attention"}:
        forward_pass = inspect.signature(getattr(qkvlib.numpy, name)).parameters
        way_back = inspect.signature(getattr(gradients, f"{name}_backward")).parameters
        assert list(map(str, way_back.values()))[1:] == list(map(str, forward_pass.values()))


def test_the_arguments_are_those_of_the_layers_call():
    forward_pass = inspect.signature(qkvlib.numpy.MultiHeadAttention.__call__).parameters
    way_back = inspect.signature(gradients.multi_head_attention_backward).parameters
    assert list(way_back)[2:] == [name for name in forward_pass if name not in ("self", "cache")]
