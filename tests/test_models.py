"""The encoder, put together from small parts, and what a weights file must hold."""

import copy

import numpy as np
import pytest
from twins import (
    ATTENTION,
    FEED_FORWARD,
    LAYOUTS,
    NORM,
    assert_near,
    back,
    dtype_of,
    weights,
)

import qkvlib.numpy
from qkvlib.patterns import causal

CONFIG = {"num_attention_heads": 3, "num_hidden_layers": 2, "layer_norm_eps": 0.1}
CONFIG |= {"hidden_size": 12, "intermediate_size": 20, "vocab_size": 9}
CONFIG |= {"max_position_embeddings": 6, "type_vocab_size": 2}


def draw_file(generator):
    """Weights as a file of MiniLM names them, much smaller: d_model 12, d_ff 20, 2 layers."""
    shapes = {
        "embeddings.word_embeddings.weight": (9, 12),
        "embeddings.position_embeddings.weight": (6, 12),
        "embeddings.token_type_embeddings.weight": (2, 12),
        "embeddings.LayerNorm.weight": (12,),
        "embeddings.LayerNorm.bias": (12,),
        "pooler.dense.weight": (12, 12),
    }
    for i in range(2):
        layer = f"encoder.layer.{i}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{layer}attention.{name}.weight"] = (12, 12)
            shapes[f"{layer}attention.{name}.bias"] = (12,)
        shapes[f"{layer}intermediate.dense.weight"] = (20, 12)
        shapes[f"{layer}intermediate.dense.bias"] = (20,)
        shapes[f"{layer}output.dense.weight"] = (12, 20)
        shapes[f"{layer}output.dense.bias"] = (12,)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{layer}{norm}.weight"] = shapes[f"{layer}{norm}.bias"] = (12,)
    return weights(generator, shapes)


@pytest.fixture
def file(generator):
    return draw_file(generator)


def encoder_and_parts(twin, generator):
    """An encoder, and beside it the tables, norm and blocks it is made of."""
    lib = twin.lib
    tokens, positions = twin.arrays(generator.normal(size=(9, 12)), generator.normal(size=(6, 12)))
    norm = lib.LayerNorm.from_weights(**twin.named(weights(generator, NORM)))
    blocks = []
    for _ in range(2):
        tables = (ATTENTION, FEED_FORWARD, NORM, NORM)
        attention, ff, *norms = (twin.named(weights(generator, shapes)) for shapes in tables)
        blocks.append(
            lib.TransformerBlock.from_parts(
                lib.MultiHeadAttention.from_weights(**attention, num_heads=3),
                lib.FeedForward.from_weights(**ff),
                *(lib.LayerNorm.from_weights(**n) for n in norms),
                norm="post",
            )
        )
    return lib.Encoder(tokens, positions, norm=norm, blocks=blocks), tokens, positions, norm, blocks


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_an_encoder_is_its_parts_one_after_the_other(twin, generator, shape, kind):
    encoder, tokens, positions, norm, blocks = encoder_and_parts(twin, generator)
    ids = generator.integers(0, 9, shape)
    x = norm(tokens[twin.array(ids)] + positions[:4])
    ids = twin.array(ids.astype(kind))
    assert_near(encoder.embed(ids), back(x), dtype=twin.dtype)
    trace = encoder.trace(ids, mask=causal)
    assert len(trace.hidden_states) == 3
    assert len(trace.weights) == 2
    assert_near(trace.hidden_states[0], back(x))
    for i, block in enumerate(blocks):
        expected = block.attention_weights(x, mask=causal)
        assert_near(trace.weights[i], back(expected), dtype=twin.computed)
        x = block(x, mask=causal)
        assert_near(trace.hidden_states[i + 1], back(x), dtype=twin.dtype)
    assert_near(encoder(ids, mask=causal), back(x), dtype=twin.dtype)
    assert not np.allclose(back(encoder(ids)), back(x))


def test_padding_changes_nothing(backend, generator):
    """A sentence alone, and in a batch beside a longer one."""
    encoder, *_ = encoder_and_parts(backend, generator)
    ids = generator.integers(0, 9, (2, 5))
    mask = backend.lib.padding_mask([5, 3], 5)[:, None]
    together = encoder.trace(backend.array(ids), mask=mask)
    alone = encoder.trace(backend.array(ids[1, :3]))
    for batch, one in zip(together.hidden_states, alone.hidden_states):
        assert_near(batch[1, :3], back(one))
    for batch, one in zip(together.weights, alone.weights):
        assert_near(batch[1, :, :3, :3], back(one))
        assert not back(batch)[1, ..., 3:].any()


def test_a_file_is_put_together(backend, file, generator):
    encoder = backend.lib.Encoder.from_pretrained(copy.deepcopy(file), CONFIG)
    ids = generator.integers(0, 9, (2, 4))

    def take(name):
        return file[f"{name}.weight"], file[f"{name}.bias"]

    def norm(x, name):
        weight, bias = take(name)
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * weight + bias

    def linear(x, name):
        weight, bias = take(name)
        return x @ weight.T + bias

    types = file["embeddings.token_type_embeddings.weight"]
    x = file["embeddings.word_embeddings.weight"][ids] + types[0]
    x = norm(x + file["embeddings.position_embeddings.weight"][:4], "embeddings.LayerNorm")
    assert_near(encoder.embed(backend.array(ids)), x)
    for i in range(2):
        layer = f"encoder.layer.{i}."
        heads = [linear(x, f"{layer}attention.self.{n}") for n in ("query", "key", "value")]
        heads = [qkvlib.numpy.split_heads(h, 3) for h in heads]
        read = qkvlib.numpy.merge_heads(qkvlib.numpy.scaled_dot_product_attention(*heads))
        x = norm(
            x + linear(read, f"{layer}attention.output.dense"), f"{layer}attention.output.LayerNorm"
        )
        wide = qkvlib.numpy.gelu(linear(x, f"{layer}intermediate.dense"))
        x = norm(x + linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
    found = encoder(backend.array(ids))
    assert_near(found, x, dtype="float64")


def test_the_dtype_is_that_of_the_file(twin, file):
    file = {name: x.astype("float32") for name, x in file.items()}
    if twin.dtype == "float32" and twin.device in (None, "cpu"):
        encoder = twin.lib.Encoder.from_pretrained(file, CONFIG)
        assert dtype_of(encoder(twin.array(np.array([1, 2])))) == "float32"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_file_may_lie_in_memory_in_any_way(backend, file, layout):
    ids = backend.array(np.array([3, 0, 8]))
    expected = back(backend.lib.Encoder.from_pretrained(file, CONFIG)(ids))
    file = {name: layout(x) for name, x in file.items()}
    encoder = backend.lib.Encoder.from_pretrained(file, CONFIG)
    assert_near(encoder(ids), expected)
    if backend.is_torch:  # safetensors saves no others
        assert all(p.is_contiguous() for p in encoder.parameters())


def test_the_file_is_not_changed(backend, file):
    """Not even by training: the encoder has its own copy."""
    given = copy.deepcopy(file)
    encoder = backend.lib.Encoder.from_pretrained(given, CONFIG)
    if backend.is_torch:
        for parameter in encoder.parameters():
            parameter.data += 1
    for name, x in file.items():
        np.testing.assert_array_equal(given[name], x)


def test_in_torch_every_weight_is_a_parameter(backend, generator):
    if not backend.is_torch:
        pytest.skip("no parameters in NumPy")
    encoder, *_ = encoder_and_parts(backend, generator)
    shapes = [*ATTENTION.values(), *FEED_FORWARD.values(), *NORM.values(), *NORM.values()]
    per_block = sum(int(np.prod(shape)) for shape in shapes)
    assert sum(p.numel() for p in encoder.parameters()) == 2 * per_block + (9 + 6 + 2) * 12
    encoder(backend.array(np.array([1, 2, 0]))).sin().sum().backward()
    still = {n for n, p in encoder.named_parameters() if p.grad.abs().max() < 1e-9}
    assert still == {f"blocks.{i}.attention.key.bias" for i in range(2)}


def test_in_torch_the_gradient_of_each_text_by_itself(backend, generator):
    """`torch.func` calls the encoder with ids whose values cannot be looked at."""
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    import torch
    from torch.func import functional_call, grad, vmap

    encoder, *_ = encoder_and_parts(backend, generator)
    ids, lengths = torch.tensor([[1, 2, 0], [8, 3, 3]]), torch.tensor([3, 2])
    weights = {name: p.detach() for name, p in encoder.named_parameters()}

    def loss(weights, ids, length):
        mask = backend.lib.padding_mask(length, 3)
        return functional_call(encoder, weights, (ids,), {"mask": mask}).sin().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, ids, lengths)
    for i in range(2):
        encoder.zero_grad()
        loss(dict(encoder.named_parameters()), ids[i], lengths[i]).backward()
        for name, p in encoder.named_parameters():
            assert_near(found[name][i], back(p.grad))


# ---- what does not fit ---------------------------------------------------------------------------


def test_ids_must_be_in_the_vocabulary(backend, generator):
    encoder, *_ = encoder_and_parts(backend, generator)
    for ids in ([9], [0, -1]):
        with pytest.raises(ValueError, match=r"ids must lie between 0 and 8, .* \(9, 12\), got"):
            encoder(backend.array(np.array(ids)))


def test_ids_must_be_whole_numbers_in_an_array(backend, generator):
    encoder, *_ = encoder_and_parts(backend, generator)
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got .*float64"):
        encoder(backend.array(np.array([1.0])))
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got .*bool"):
        encoder(backend.array(np.array([True])))
    with pytest.raises(TypeError, match=r"ids must be a .*, got builtins\.list"):
        encoder([1, 2])
    with pytest.raises(ValueError, match=r"ids must have at least 1 axes"):
        encoder(backend.array(np.array(1)))


def test_a_text_has_a_token(backend, generator):
    encoder, *_ = encoder_and_parts(backend, generator)
    for read in (encoder, encoder.trace):
        with pytest.raises(ValueError, match=r"ids must hold at least one token, .*\(2, 0\)"):
            read(backend.array(np.zeros((2, 0), int)))
    assert encoder(backend.array(np.zeros((0, 3), int))).shape == (0, 3, 12)


def test_no_more_tokens_than_positions(backend, generator):
    encoder, *_ = encoder_and_parts(backend, generator)
    with pytest.raises(ValueError, match=r"at most n_max = 6 tokens, .* got 7 .* cut the text"):
        encoder(backend.array(np.zeros(7, int)))


NAMES = sorted(set(draw_file(np.random.default_rng(0))) - {"pooler.dense.weight"})


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_that_is_missing_or_does_not_fit_is_named(name, file):
    right = file.pop(name)
    for wrong, said in ((None, "got nothing"), (right[:-1], f"got {right[:-1].shape}")):
        if wrong is not None:
            file[name] = wrong
        with pytest.raises(ValueError, match="take weights and config from one call") as caught:
            qkvlib.numpy.Encoder.from_pretrained(file, CONFIG)
        assert f"weights must hold {name!r} of shape {right.shape}" in str(caught.value)
        assert said in str(caught.value)


def test_a_config_of_another_model_is_refused(backend, file):
    with pytest.raises(ValueError, match=r"multiple of num_heads = 5"):
        backend.lib.Encoder.from_pretrained(file, CONFIG | {"num_attention_heads": 5})
    with pytest.raises(ValueError, match=r"'encoder\.layer\.2\..*got nothing"):
        backend.lib.Encoder.from_pretrained(file, CONFIG | {"num_hidden_layers": 3})
