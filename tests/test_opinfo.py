"""Both twins on the inputs with which PyTorch tests its own functions (its OpInfo samples)."""

import numpy as np
import pytest
from twins import assert_near, back

torch = pytest.importorskip("torch")
samples = pytest.importorskip("torch.testing._internal.common_methods_invocations")

from qkvlib.patterns import causal  # noqa: E402

OPERATORS = {(op.name, op.variant_test_name): op for op in samples.op_db}


def drawn(name, variant=""):
    """Pairs of a sample and what torch answers, in float64; samples with dropout are left out."""
    operator = OPERATORS[name, variant]
    for sample in operator.sample_inputs("cpu", torch.float64, requires_grad=False):
        if not sample.kwargs.get("dropout_p") and not sample.kwargs.get("training"):
            yield sample, operator(sample.input, *sample.args, **sample.kwargs)


def given(backend, x):
    return None if x is None else backend.array(back(x))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(backend, name):
    count = 0
    for sample, expected in drawn(name):
        if sample.input.ndim:  # a single number has no axis
            found = getattr(backend.lib, name)(given(backend, sample.input), *sample.args)
            assert_near(found, back(expected))
            count += 1
    assert count == 6


def test_scaled_dot_product_attention(backend):
    count = 0
    for sample, expected in drawn("nn.functional.scaled_dot_product_attention"):
        query, key, value = (given(backend, x) for x in (sample.input, *sample.args))
        options = {"bias": given(backend, sample.kwargs.get("attn_mask"))}
        if sample.kwargs["is_causal"]:  # torch lets the first query stand with the first key
            n_query, n_key = query.shape[-2], key.shape[-2]
            options["mask"] = causal.shifted(n_query - n_key)
        found = backend.lib.scaled_dot_product_attention(query, key, value, **options)
        assert_near(found, back(expected))
        count += 1
    assert count == 13


def test_multi_head_attention(backend):
    """Samples that append a learned key and value too, which our layer leaves to its parts."""
    count = 0
    for sample, (expected, expected_weights) in drawn("nn.functional.multi_head_attention_forward"):
        found, weights = from_parts(backend, sample)
        assert_near(found, back(expected))
        if expected_weights is not None:
            assert_near(back(weights).mean(-3), back(expected_weights))
        count += 1
    assert count == 96


def from_parts(backend, sample):
    """Output and weights per head, from our functions; torch puts the batch in the second place."""
    lib, options = backend.lib, sample.kwargs
    key, value, _, num_heads, W, b, b_key, b_value, _, _, W_O, b_O = sample.args
    if options["use_separate_proj_weight"]:
        W = [options[f"{letter}_proj_weight"] for letter in "qkv"]
    else:
        W = W.chunk(3)
    rows = [x.transpose(0, 1) if x.ndim == 3 else x for x in (sample.input, key, value)]
    biases = [None] * 3 if b is None else b.chunk(3)
    projected = [
        lib.project(given(backend, x), given(backend, w.T), given(backend, b_))
        for x, w, b_ in zip(rows, W, biases)
    ]
    for i, extra in ((1, b_key), (2, b_value)):
        if extra is not None:
            x = back(projected[i])
            last = np.broadcast_to(back(extra).reshape(-1), (*x.shape[:-2], 1, x.shape[-1]))
            projected[i] = backend.array(np.concatenate([x, last], axis=-2))
    query, key, value = (lib.split_heads(x, num_heads) for x in projected)
    mask = masking(options["attn_mask"], query, key)
    mask = {kind: backend.array(x) for kind, x in mask.items()}
    heads = lib.scaled_dot_product_attention(query, key, value, **mask)
    weights = lib.attention_weights(query, key, **mask)
    output = lib.project(lib.merge_heads(heads), given(backend, W_O.T), given(backend, b_O))
    output = output if sample.input.ndim == 2 else back(output).swapaxes(0, 1)
    return output, weights


def masking(mask, query, key):
    """torch's mask, True where forbidden or added, as ours; a key that was appended may be read."""
    if mask is None:
        return {}
    mask = back(mask)
    appended = key.shape[-2] - mask.shape[-1]
    mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, appended)])
    if mask.ndim == 3:  # batch and heads in one axis
        mask = mask.reshape(*query.shape[:-2], *mask.shape[-2:])
    return {"mask": ~mask} if mask.dtype == bool else {"bias": mask}


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms(backend, name):
    """torch normalises over several axes; here they are laid side by side."""
    count = 0
    for sample, expected in drawn(f"nn.functional.{name}"):
        shape, *parts = sample.args
        parts += [sample.kwargs[part] for part in ("weight", "bias") if part in sample.kwargs]
        eps = sample.kwargs.get("eps")
        if eps is not None and eps < 0:  # refused here
            continue
        if eps is None:
            eps = {"layer_norm": 1e-5, "rms_norm": torch.finfo(torch.float64).eps}[name]
        x = sample.input.flatten(-len(shape))
        parts = [given(backend, None if part is None else part.flatten()) for part in parts]
        found = getattr(backend.lib, name)(given(backend, x), *parts, eps=eps)
        assert_near(back(found).reshape(expected.shape), back(expected))
        count += 1
    assert count == 5


@pytest.mark.parametrize("name", ["gelu", "silu", "relu"])
def test_activations(backend, name):
    if not hasattr(backend.lib, name):
        pytest.skip(f"no public {name}")
    count = 0
    for sample, expected in drawn(f"nn.functional.{name}"):
        function = getattr(backend.lib, name)
        if sample.kwargs.get("approximate") == "tanh":
            function = backend.lib.gelu_tanh
        assert_near(function(given(backend, sample.input)), back(expected))
        count += 1
    assert count >= 3
