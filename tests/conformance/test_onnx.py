"""ONNX's own node cases, built in memory, put to both backends."""

import ast
import importlib
import inspect
from collections import Counter
from typing import NamedTuple

import numpy as np
import onnx_adapter
import pytest
from onnx_adapter import Adapter
from twins import BACKENDS, back, dtype_of, torch

onnx = pytest.importorskip("onnx")

COUNTS = {
    "Attention": 93,
    "RotaryEmbedding": 8,
    "LayerNormalization": 19,
    "RMSNormalization": 19,
    "Softmax": 7,
    "LogSoftmax": 7,
}
LEFT_OUT = {"Mean", "InvStdDev"}  # what LayerNormalization saw on its way
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}  # of float32
ULPS = 2  # of half types: how many numbers of that type further


TWINS = {twin.lib.__name__: twin for twin in BACKENDS}
on_both = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)


# ---- the cases -----------------------------------------------------------------------------------


class Case(NamedTuple):
    """One application of an operator; inputs, outputs and attributes by ONNX's formal names."""

    name: str
    operator: str
    inputs: dict
    attributes: dict
    outputs: dict


def collected():
    """The cases of our operators. ONNX builds them on import, from NumPy's global generator."""
    before = np.random.get_state()  # noqa: NPY002
    for operator in COUNTS:
        importlib.import_module(f"onnx.backend.test.case.node.{operator.lower()}")
    np.random.set_state(before)  # noqa: NPY002
    built = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    return [
        case_of(each)
        for each in built
        if "_expanded" not in each.name and each.model.graph.node[0].op_type in COUNTS
    ]


def case_of(built):
    [node] = built.model.graph.node
    [(inputs, outputs)] = built.data_sets
    [opset] = built.model.opset_import
    schema = onnx.defs.get_schema(node.op_type, opset.version)
    return Case(
        built.name.removeprefix("test_"),
        node.op_type,
        by_formal_name(schema.inputs, node.input, inputs),
        {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        by_formal_name(schema.outputs, node.output, outputs),
    )


def by_formal_name(formal, actual, arrays):
    """An optional array that is left out has no name in the node, and no array."""
    names = [each.name for each, name in zip(formal, actual) if name]
    return dict(zip(names, arrays, strict=True))


CASES = collected()


def test_every_case_is_there():
    assert Counter(case.operator for case in CASES) == COUNTS


def test_every_kind_of_case_is_there():
    """What the counts do not tell: half types, shared key heads, masks, caches."""
    attention = [case for case in CASES if case.operator == "Attention"]
    dtypes = Counter(case.inputs["Q"].dtype.name for case in attention)
    assert dtypes == {"float32": 82, "float16": 6, "bfloat16": 5}
    given = Counter(name for case in attention for name in {**case.inputs, **case.attributes})
    assert given["past_key"] == 21
    assert given["nonpad_kv_seqlen"] == 13
    assert given["softcap"] == 11
    assert given["left_window_size"] == 11


# ---- agreement -----------------------------------------------------------------------------------


def adapter_of(twin):
    def give(x):
        """In its own dtype; NumPy has no bfloat16, and takes those numbers as float32."""
        if x is None:
            return None
        if x.dtype.name == "bfloat16":
            return twin.array(x.astype(np.float32), "bfloat16" if twin.is_torch else "float32")
        return twin.array(x, x.dtype.name if x.dtype.kind == "f" else None)

    return Adapter(twin.lib, give)


def disagreement(twin, case):
    """What is wrong with the outputs of a case, in words; empty when nothing is."""
    adapter = adapter_of(twin)
    found = getattr(adapter, case.operator)(**case.inputs, **case.attributes)
    for name in case.outputs.keys() - LEFT_OUT:
        expected = case.outputs[name]
        got = back(found[name]).astype(expected.dtype)
        if got.shape != expected.shape:
            return f"{name} must have shape {expected.shape}, got {got.shape}"
        if expected.dtype.itemsize == 2:
            if (far := ulps_between(got, expected).max()) > ULPS:
                return f"{name} is {far} numbers of its dtype away"
        elif not np.allclose(got, expected, **TOLERANCE):
            return f"{name} is too far away"
    return ""


def ulps_between(x, y):
    """How many numbers of their half dtype lie between two arrays, entry by entry."""

    def place(x):
        bits = x.view(np.int16).astype(int)
        return np.where(bits < 0, -(bits & 0x7FFF), bits)

    return np.abs(place(x) - place(y))


@on_both
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees(twin, case):
    assert disagreement(twin, case) == ""


@on_both
def test_the_main_output_has_the_dtype_of_the_first_input(twin):
    adapter = adapter_of(twin)
    for case in CASES:
        found = getattr(adapter, case.operator)(**case.inputs, **case.attributes)
        main = found.get("Y", found.get("output"))
        first = adapter.give(next(iter(case.inputs.values())))
        assert dtype_of(main) == dtype_of(first), case.name


# ---- each part, broken ---------------------------------------------------------------------------


def deaf_to(option):
    return lambda right, twin: lambda *x, **options: right(*x, **options | {option: None})


def rows_cut(right, twin):
    """Reshaped, where numbers should change places."""
    return lambda x, h: x.reshape(*x.shape[:-2], h, x.shape[-2], x.shape[-1] // h)


def rows_pasted(right, twin):
    return lambda x: x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])


def tiled(right, twin):
    """h0 h1 h0 h1, where h0 h0 h1 h1 is meant."""

    def heads(x, n):
        h = x.shape[1]
        return right(x, n)[:, [j % h * n for j in range(h * n)]]

    return heads


def capped_last(right, twin):
    """The cap bounds the bias too."""
    tanh = torch.tanh if twin.is_torch else np.tanh

    def scores(query, key, *, softcap=None, **options):
        found = right(query, key, **options)
        return found if softcap is None else softcap * tanh(found / softcap)

    return scores


def newest_first(right, twin):
    def append(cache, key, value):
        held = right(cache, key, value)
        return tuple(x[..., list(range(x.shape[-2]))[::-1], :] for x in held)

    return append


ATTENTION, ROTARY = {"Attention"}, {"RotaryEmbedding"}
LIBRARY, INSIDE, CACHE, ADAPTER = "library", "inside attention", "cache", "adapter"
# For each mistake: in which place, what is replaced, by what, and which operators must notice.
MISTAKES = {
    "softmax along one axis": (
        (LIBRARY, "softmax"),
        lambda right, twin: lambda x, axis: right(x, 0),
        {"Softmax"},
    ),
    "log_softmax along one axis": (
        (LIBRARY, "log_softmax"),
        lambda right, twin: lambda x, axis: right(x, 0),
        {"LogSoftmax"},
    ),
    "layer_norm keeps the mean": (
        (LIBRARY, "layer_norm"),
        lambda right, twin: lambda x, w, b, eps: twin.lib.rms_norm(x, w, eps) + b,
        {"LayerNormalization"},
    ),
    "layer_norm has an eps of its own": (
        (LIBRARY, "layer_norm"),
        lambda right, twin: lambda x, w, b, eps: right(x, w, b),
        {"LayerNormalization"},
    ),
    "rms_norm takes the mean away": (
        (LIBRARY, "rms_norm"),
        lambda right, twin: lambda x, w, eps: twin.lib.layer_norm(x, w, None, eps),
        {"RMSNormalization"},
    ),
    "rms_norm has an eps of its own": (
        (LIBRARY, "rms_norm"),
        lambda right, twin: lambda x, w, eps: right(x, w),
        {"RMSNormalization"},
    ),
    "rotate turns back": (
        (LIBRARY, "rotate"),
        lambda right, twin: lambda x, cos, sin, **pairing: right(x, cos, -sin, **pairing),
        ROTARY,
    ),
    "rotate has one pairing": (
        (LIBRARY, "rotate"),
        lambda right, twin: lambda x, cos, sin, pairing: right(x, cos, sin, pairing="half"),
        ROTARY,
    ),
    "heads are cut in rows": ((LIBRARY, "split_heads"), rows_cut, ATTENTION | ROTARY),
    "heads are pasted in rows": ((LIBRARY, "merge_heads"), rows_pasted, ATTENTION | ROTARY),
    "shared heads are tiled": ((LIBRARY, "repeat_heads"), tiled, ATTENTION),
    "padding is read": (
        (LIBRARY, "padding_mask"),
        lambda right, twin: lambda lengths, n_key: right(0 * lengths + n_key, n_key),
        ATTENTION,
    ),
    "a cache is read backwards": ((CACHE, "append"), newest_first, ATTENTION),
    "the scale is fixed": (
        (LIBRARY, "scaled_dot_product_attention"),
        deaf_to("scale"),
        ATTENTION,
    ),
    "there is no cap": (
        (LIBRARY, "scaled_dot_product_attention"),
        deaf_to("softcap"),
        ATTENTION,
    ),
    "there is no mask": (
        (LIBRARY, "scaled_dot_product_attention"),
        deaf_to("mask"),
        ATTENTION,
    ),
    "there is no bias": (
        (LIBRARY, "scaled_dot_product_attention"),
        deaf_to("bias"),
        ATTENTION,
    ),
    "values change their sign": (
        (LIBRARY, "scaled_dot_product_attention"),
        lambda right, twin: lambda q, k, v, **options: right(q, k, -v, **options),
        ATTENTION,
    ),
    "products change their sign": (
        (INSIDE, "attention_scores"),
        lambda right, twin: lambda q, k, **options: right(q, -k, **options),
        ATTENTION,
    ),
    "the cap comes last": ((INSIDE, "attention_scores"), capped_last, ATTENTION),
    "softmax over the queries": (
        (INSIDE, "softmax"),
        lambda right, twin: lambda x: right(x, -2),
        ATTENTION,
    ),
    "shown scores change their sign": (
        (LIBRARY, "attention_scores"),
        lambda right, twin: lambda q, k, **options: right(q, -k, **options),
        ATTENTION,
    ),
    "shown weights have no mask": ((LIBRARY, "attention_weights"), deaf_to("mask"), ATTENTION),
    "a window reaches one key further": (
        (ADAPTER, "window"),
        lambda right, twin: lambda w: right(w + 1),
        ATTENTION,
    ),
    "causal reaches one key further": (
        (ADAPTER, "causal"),
        lambda right, twin: right.shifted(1),
        ATTENTION,
    ),
}


@on_both
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_broken_part_turns_the_operators_that_use_it_red(twin, mistake, monkeypatch):
    (place, name), broken, operators = MISTAKES[mistake]
    place = {
        LIBRARY: twin.lib,
        INSIDE: twin.lib.attention,
        CACHE: twin.lib.KeyValueCache,
        ADAPTER: onnx_adapter,
    }[place]
    monkeypatch.setattr(place, name, broken(getattr(place, name), twin))
    assert {case.operator for case in CASES if disagreement(twin, case)} == operators


def test_the_adapter_computes_nothing():
    """Only the backend's library is asked for more than shapes, places and comparisons."""
    tree = ast.parse(inspect.getsource(onnx_adapter))
    asked = {
        (ast.unparse(node.func.value), node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    harmless = {"append", "array", "asarray", "broadcast_to", "float32", "give", "pad", "ravel"}
    harmless |= {"reduce", "reshape", "where", *vars(Adapter)}
    assert {name for owner, name in asked if owner != "self.lib"} <= harmless
    operators = {type(node.op) for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
    assert not operators & {ast.MatMult, ast.Pow, ast.Div}
    of_backend = {name for owner, name in asked if owner == "self.lib"} - {"KeyValueCache"}
    assert of_backend <= {name for (place, name), *_ in MISTAKES.values() if place == LIBRARY}
