"""Devices without a device: shapes on `meta`, and fake CUDA tensors that notice a stray CPU one."""

import math
from unittest.mock import patch

import numpy as np
import pytest

from qkvlib.patterns import blocks, causal, documents, random_blocks, window

torch = pytest.importorskip("torch")
lib = pytest.importorskip("qkvlib.torch")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
TorchFunctionMode = pytest.importorskip("torch.overrides").TorchFunctionMode


class FakeCuda(TorchFunctionMode):
    """What a build without CUDA refuses to do even with fake tensors, done by other operators.

    `x[...]`, `x[...] = y`, `~x`, `x.to(device)` and `torch.tensor` switch to the CUDA device on
    the way.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.Tensor.__getitem__:
            return indexed(*args)
        if function is torch.Tensor.__setitem__:
            return torch.ops.aten.copy_(indexed(*args[:2]), args[2])
        if function is torch.Tensor.__invert__:
            return torch.logical_not(*args)
        if function is torch.Tensor.to and isinstance(args[1], str | torch.device):
            return moved(*args)
        if function is torch.tensor and kwargs.get("device") is not None:
            return moved(torch.tensor(*args), kwargs["device"])
        return function(*args, **kwargs)


def moved(x, device, dtype=None):
    return torch.ops.aten._to_copy(x, device=torch.device(device), dtype=dtype)


def indexed(x, index):
    """`x[index]` for numbers, slices, None, dots and tensors."""
    if isinstance(index, torch.Tensor):
        return torch.ops.aten.index(x, [index])
    index = index if isinstance(index, tuple) else (index,)
    if ... in index:
        at = index.index(...)
        named = sum(part is not None for part in index) - 1
        index = (*index[:at], *[slice(None)] * (x.ndim - named), *index[at + 1 :])
    axis, at = 0, {}
    for part in index:
        if isinstance(part, torch.Tensor):
            at[axis] = part
        elif part is None:
            x = x.unsqueeze(axis)
        elif isinstance(part, slice):
            assert part.step is None
            x = torch.ops.aten.slice(x, axis, part.start, part.stop)
        else:
            x = x.select(axis, part)
            continue
        axis += 1
    return torch.ops.aten.index(x, [at.get(a) for a in range(x.ndim)]) if at else x


@pytest.fixture(params=["meta", "cuda"])
def device(request):
    """`meta` computes shapes alone. Fake CUDA tensors do too, and refuse to meet a CPU tensor."""
    if request.param == "meta":
        yield "meta"
    else:
        with FakeTensorMode(), FakeCuda(), torch.no_grad():  # autograd would ask for a stream
            yield "cuda"


def is_there(x, device):
    return x.device.type == device


def attention_inputs(device, dtype=torch.float32):
    shapes = ((2, 3, 4, 7), (2, 3, 5, 7), (2, 3, 5, 6))
    return [torch.empty(*shape, device=device, dtype=dtype) for shape in shapes]


def masks(device):
    true = torch.ones(4, 5, dtype=torch.bool, device=device)
    offsets = torch.tensor([0, 1], device=device)
    return [
        None,
        true,
        causal,
        ~window(2) | causal,
        causal & true,
        true | window(1),
        causal.shifted(-1),
        causal.shifted(np.array([[[[0]]], [[[1]]]])),
        window(2).shifted(offsets[:, None, None, None]),
        blocks(2) | random_blocks(5, 2, 1, np.random.default_rng(0)),
        documents([0, 0, 4, 4, 4]),
        documents(torch.zeros(2, 1, 5, dtype=torch.int64, device=device)),
        lib.causal_mask(4, 5, device=device),
        lib.causal_mask(4, 5, offset=offsets)[:, None],
        lib.window_mask(4, 5, window=2, offset=offsets, device=device)[:, None],
        lib.padding_mask([5, 2], 5, device=device)[:, None],
        lib.padding_mask(torch.tensor([5, 2], device=device), 5)[:, None],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weights_stay_on_the_device(device, dtype):
    query, key, _ = attention_inputs(device, dtype)
    bias = torch.zeros(5, device=device)
    for mask in masks(device):
        for options in ({}, {"bias": bias, "softcap": 2.0}):
            found = lib.attention_weights(query, key, mask=mask, **options)
            assert is_there(found, device)
            assert found.shape == (2, 3, 4, 5)
            assert found.dtype == torch.float32
    found = lib.attention_scores(query, key, bias=bias)
    assert is_there(found, device)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_explicit_attention_stays_on_the_device(device, dtype):
    bias = torch.zeros(5, device=device)
    for mask in masks(device):
        for options in ({"bias": bias}, {"softcap": 2.0}):
            found = lib.scaled_dot_product_attention(
                *attention_inputs(device, dtype), mask=mask, **options
            )
            assert is_there(found, device)
            assert found.shape == (2, 3, 4, 6)
            assert found.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_chunked_attention_stays_on_the_device(device, dtype):
    bias = torch.zeros(5, device=device)
    for mask in masks(device):
        for options in ({}, {"bias": bias}, {"softcap": 2.0}):
            found = lib.chunked_attention(
                *attention_inputs(device, dtype), mask=mask, chunk_size=4, **options
            )
            assert is_there(found, device)
            assert found.shape == (2, 3, 4, 6)
            assert found.dtype == dtype


def test_the_gradients_of_chunked_attention_stay_on_the_device():
    for mask in masks("meta"):
        inputs = [x.requires_grad_() for x in attention_inputs("meta", torch.float16)]
        lib.chunked_attention(*inputs, mask=mask, chunk_size=4).sum().backward()
        for x in inputs:
            assert is_there(x.grad, "meta")
            assert (x.grad.shape, x.grad.dtype) == (x.shape, x.dtype)


def plain(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """In place of torch's kernel, which asks a real device; the shapes and devices are the same."""
    scores = scale * query @ key.mT
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return torch.softmax(scores, -1) @ value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_what_surrounds_the_fused_kernel_stays_on_the_device(device, dtype):
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", plain):
        for mask in masks(device):
            found = lib.scaled_dot_product_attention(*attention_inputs(device, dtype), mask=mask)
            assert is_there(found, device)
            assert found.shape == (2, 3, 4, 6)
            assert found.dtype == dtype


def test_the_fused_kernel_on_meta():
    for mask in masks("meta"):
        found = lib.scaled_dot_product_attention(*attention_inputs("meta"), mask=mask)
        assert is_there(found, "meta")
        assert found.shape == (2, 3, 4, 6)


def test_masks_are_made_on_the_device(device):
    for mask in masks(device)[-5:]:
        assert is_there(mask, device)
        assert mask.dtype == torch.bool


def test_masks_may_be_made_elsewhere_than_their_arguments():
    numbers = torch.tensor([2, 1])
    for mask in (
        lib.padding_mask(numbers, 5, device="meta"),
        lib.causal_mask(4, 5, offset=numbers, device="meta"),
        lib.window_mask(4, 5, window=2, offset=numbers, device="meta"),
        lib.relative_distances(4, 5, offset=numbers, device="meta"),
        lib.alibi_bias(3, 4, 5, offset=numbers, device="meta"),
    ):
        assert is_there(mask, "meta")


def test_functions_stay_on_the_device(device):
    x = torch.empty(2, 4, 12, device=device)
    weight, W = torch.empty(12, device=device), torch.empty(12, 5, device=device)
    table, positions = torch.empty(9, 12, device=device), torch.arange(4, device=device)
    for found in (
        lib.softmax(x),
        lib.log_softmax(x, 1),
        lib.layer_norm(x, weight, weight),
        lib.rms_norm(x, weight),
        lib.relu(x),
        lib.gelu(x),
        lib.gelu_tanh(x),
        lib.silu(x),
        lib.project(x, W),
        lib.split_heads(x, 3),
        lib.merge_heads(x[:, None]),
        lib.learned_positions(positions, table),
        lib.sinusoidal_positions(4, 7, device=device),
        lib.relative_distances(4, 5, device=device),
        lib.relative_distances(4, 5, offset=positions),
        lib.relative_key_scores(x, table, 5),
        lib.relative_key_scores(x, table, offset=positions[:2]),
        *(
            lib.relative_buckets(positions, bidirectional=both, num_buckets=8, max_distance=9)
            for both in (True, False)
        ),
        lib.alibi_bias(6, 4, device=device),
        lib.alibi_bias(6, 4, 5, offset=positions),
        *lib.rotary_angles(positions, 12),
        lib.rotate(x, *lib.rotary_angles(positions, 12), pairing="interleaved"),
        lib.rotate(x, *lib.rotary_angles(positions, 12), pairing="half"),
        lib.interleaved_to_half(12, device=device),
        lib.xavier_uniform(2, 3, device=device),
        lib.xavier_normal(2, 3, device=device),
    ):
        assert is_there(found, device)


def test_layers_are_made_and_stay_on_the_device(device):
    x = torch.empty(2, 4, 12, device=device)
    layers = [
        lib.MultiHeadAttention(12, 3, device=device),
        lib.FeedForward(12, device=device),
        lib.SwiGLU(12, projection_bias=True, device=device),
        lib.LayerNorm(12, device=device),
        lib.RMSNorm(12, device=device),
        lib.TransformerBlock(12, 3, device=device),
        lib.TransformerBlock(12, 3, norm="post", device=device),
    ]
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", plain):
        for layer in layers:
            assert all(is_there(p, device) for p in layer.parameters())
            assert is_there(layer(x), device)
    padding = lib.padding_mask([4, 2], 4, device=device)[:, None]
    for layer in (layers[0], *layers[-2:]):
        for mask in (None, causal, causal & padding, padding):
            weights = layer.attention_weights(x, mask=mask)
            assert is_there(weights, device)
            assert weights.shape == (2, 3, 4, 4)


def test_a_scaled_copy_stays_on_the_device():
    """On `meta` alone: torch cannot copy fake tensors."""
    block = lib.scaled_residual(lib.TransformerBlock(12, 3, device="meta"), 4)
    assert all(is_there(p, "meta") for p in block.parameters())


def turned(x, positions):
    return x * (1 + positions[:, None].to(x.dtype))


def test_cache_source_and_shared_heads_stay_on_the_device(device):
    x, source = torch.empty(2, 4, 12, device=device), torch.empty(2, 5, 12, device=device)
    mha = lib.MultiHeadAttention(12, 6, num_kv_heads=2, rotate=turned, dropout=0.5, device=device)
    bias = torch.zeros(5, device=device)
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", plain):
        for layer in (mha, mha.eval()):
            for found in (layer(x, source), layer(x, source, bias=bias), layer(x, x, x)):
                assert is_there(found, device)
                assert found.shape == (2, 4, 12)
    assert is_there(mha.attention_scores(x, source), device)
    assert mha.head_contributions(x, source, bias=bias).shape == (2, 6, 4, 12)
    for grad in (True, False):
        cache = lib.KeyValueCache()
        with torch.set_grad_enabled(grad and device == "meta"):
            for piece in (x, x[:, :1], x):
                mha(piece, mask=causal, cache=cache, bias=torch.zeros(1, device=device))
        assert is_there(cache.key, device)
        assert cache.key.shape == cache.value.shape == (2, 2, 9, 2)


def test_an_encoder_stays_on_the_device(device):
    tables = torch.empty(9, 12, device=device), torch.empty(6, 12, device=device)
    norm, block = lib.LayerNorm(12, device=device), lib.TransformerBlock(12, 3, device=device)
    encoder = lib.Encoder(*tables, norm=norm, blocks=[block])
    ids = torch.zeros(2, 4, dtype=torch.int64, device=device)
    assert is_there(encoder.embed(ids), device)
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", plain):
        assert is_there(encoder(ids, mask=causal), device)
        trace = encoder.trace(ids, mask=lib.padding_mask([4, 2], 4, device=device)[:, None])
    for x in (*trace.hidden_states, *trace.weights):
        assert is_there(x, device)


def test_a_decoder_stays_on_the_device(device):
    def turn(x, positions):
        return lib.rotate(x, *lib.rotary_angles(positions, 4), pairing="interleaved")

    block = lib.TransformerBlock.from_parts(
        lib.MultiHeadAttention(12, 3, num_kv_heads=1, rotate=turn, device=device),
        lib.SwiGLU(12, device=device),
        lib.RMSNorm(12, device=device),
        lib.RMSNorm(12, device=device),
    )
    table, norm = torch.empty(9, 12, device=device), lib.RMSNorm(12, device=device)
    decoder = lib.Decoder(table, norm=norm, blocks=[block], n_max=6)
    ids = torch.zeros(2, 4, dtype=torch.int64, device=device)
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", plain):
        found = [decoder(ids), decoder.next_logits(ids)]
        found += [decoder(ids, mask=lib.padding_mask([4, 2], 4, device=device)[:, None])]
        trace = decoder.trace(ids)
    options = {"temperature": 0.5, "top_k": 3, "top_p": 0.9}
    found += [lib.token_probabilities(found[1], **options)]
    for x in (*found, *trace.hidden_states, *trace.weights):
        assert is_there(x, device)
    if device == "meta":  # there fake tensors cannot be written to
        cache = decoder.new_cache()
        for read in (ids, ids[:, :1]):
            assert is_there(decoder.next_logits(read, cache=cache), "meta")
        with pytest.raises(ValueError, match="mask on cpu"):
            decoder(ids, mask=lib.padding_mask([4, 2], 4, device="cpu")[:, None])


def test_weights_are_drawn_on_the_cpu_whatever_the_default_device():
    """A generator of the CPU gives the same numbers everywhere."""
    for make in (lib.xavier_uniform, lib.xavier_normal):
        expected = make(2, 3, generator=torch.Generator().manual_seed(0))
        with torch.device("meta"):
            generator = torch.Generator().manual_seed(0)
            assert is_there(make(2, 3, generator=generator), "meta")
            assert torch.equal(
                make(2, 3, generator=generator.manual_seed(0), device="cpu"), expected
            )
            layer = lib.MultiHeadAttention(12, 3, device="cpu")
        assert all(is_there(p, "cpu") for p in layer.parameters())


def test_device_0_is_not_no_device():
    """It is the first accelerator: without one torch refuses it."""
    numbers = torch.tensor([2, 1])
    for make in (
        lambda: lib.padding_mask(numbers, 5, device=0),
        lambda: lib.causal_mask(4, 5, offset=numbers, device=0),
        lambda: lib.xavier_uniform(2, 3, device=0),
    ):
        if torch.accelerator.is_available():
            assert is_there(make(), torch.accelerator.current_accelerator().type)
        else:
            with pytest.raises((RuntimeError, AssertionError), match=r"accelerator|CUDA"):
                make()


def test_what_cannot_be_looked_at_reaches_every_key():
    """On an accelerator looking would stop it; fake tensors hold nothing to see."""
    with FakeTensorMode():
        for held in (torch.ones(2, 5, dtype=torch.int64), torch.ones(5, dtype=torch.int32)):
            assert documents(held).reach(1, 2, 5) == [(0, 5)]
            assert window(2).shifted(held[..., None, None]).reach(1, 2, 5) == [(0, 5)]
    assert documents(torch.zeros(5, dtype=torch.int64, device="meta")).reach(1, 2, 5) == [(0, 5)]


# ---- two devices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["query", "key", "value", "mask", "bias"])
def test_two_devices_are_refused_by_name(name):
    query, key, value = attention_inputs("cpu")
    given = {"query": query, "key": key, "value": value}
    given |= {"mask": torch.ones(4, 5, dtype=torch.bool), "bias": torch.zeros(4, 5)}
    given[name] = given[name].to("meta")
    with pytest.raises(
        ValueError, match=r"all must lie on one device, got .*; move them with"
    ) as e:
        lib.scaled_dot_product_attention(**given)
    assert f"{name} on meta" in str(e.value)
    assert "on cpu" in str(e.value)


def test_two_devices_are_refused_everywhere():
    here, there = torch.zeros(4, 12), torch.zeros(12, device="meta")
    ids = torch.zeros(2, dtype=torch.int64)
    table = torch.zeros(9, 12, device="meta")
    encoder = lib.Encoder(table, table, norm=lambda x: x, blocks=[])
    for wrong in (
        lambda: lib.layer_norm(here, there),
        lambda: lib.project(here, there[:, None]),
        lambda: lib.MultiHeadAttention(12, 3, device="meta")(here),
        lambda: lib.FeedForward(12, device="meta")(here),
        lambda: lib.SwiGLU(12, device="meta")(here),
        lambda: lib.LayerNorm(12, device="meta")(here),
        lambda: lib.RMSNorm(12, device="meta")(here),
        lambda: lib.rms_norm(here, there),
        lambda: lib.relative_key_scores(here, table),
        lambda: lib.rotate(here, *lib.rotary_angles(ids.to("meta"), 12), pairing="half"),
        lambda: lib.learned_positions(ids, table),
        lambda: encoder(ids),
        lambda: lib.Decoder(table, norm=lambda x: x, blocks=[], n_max=3)(ids),
        lambda: lib.attention_weights(here, here, mask=causal & there.bool()[None, :4]),
        lambda: lib.chunked_attention(here, here, here, mask=causal & there.bool()[None, :4]),
    ):
        with pytest.raises(ValueError, match=r"on (one device|cpu), got .*on meta.*\.to\(device\)"):
            wrong()


def test_a_mask_on_the_cpu_is_refused_by_fake_cuda_too():
    with FakeTensorMode():
        query, key, _ = attention_inputs("cuda")
        mask = torch.ones(4, 5, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"mask on cpu"):
            lib.attention_weights(query, key, mask=mask)


def test_dtypes_are_refused_on_any_device(device):
    query, key, _ = attention_inputs(device)
    with pytest.raises(TypeError, match="all must have one dtype"):
        lib.attention_weights(query, key.double())
    with pytest.raises(TypeError, match="lengths must be whole numbers"):
        lib.padding_mask(torch.zeros(2, device=device), 5)
    with pytest.raises(TypeError, match="positions must be whole numbers"):
        lib.learned_positions(torch.zeros(2, device=device), torch.zeros(4, 3, device=device))


# ---- the best device -----------------------------------------------------------------------------


def test_best_device_is_the_cpu_without_an_accelerator():
    with patch.object(torch.accelerator, "is_available", return_value=False):
        assert lib.best_device() == torch.device("cpu")


def test_best_device_is_the_accelerator():
    with (
        patch.object(torch.accelerator, "is_available", return_value=True),
        patch.object(torch.accelerator, "current_accelerator", return_value=torch.device("cuda")),
    ):
        assert lib.best_device() == torch.device("cuda")


def test_the_best_device_of_this_machine_computes():
    device = lib.best_device()
    mha = lib.MultiHeadAttention(12, 3, generator=torch.Generator().manual_seed(0), device=device)
    same = lib.MultiHeadAttention(12, 3, generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 4, 12))).float()
    torch.testing.assert_close(mha(x.to(device), mask=causal).cpu(), same(x, mask=causal))
