"""The decoder, put together from small parts: what it may see, its cache, its file."""

import copy
import math
import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from twins import ATTENTION, FEED_FORWARD, LAYOUTS, NORM, assert_near, back, dtype_of, weights

import qkvlib.numpy
from qkvlib.patterns import causal, window

# Six heads of queries, three of keys, d_k 4; each size is another one.
CONFIG = {"vocabulary": 11, "n_max": 16, "d_model": 18, "d_k": 4, "d_ff": 14, "num_blocks": 2}
CONFIG |= {"num_heads": 6, "num_kv_heads": 3, "eps": 0.1, "rotary_base": 50.0}


def draw_file(generator, num_blocks=2):
    """Weights as a file of SmolLM2 names them, much smaller."""
    shapes = {"token_embd.weight": (11, 18), "output_norm.weight": (18,)}
    for i in range(num_blocks):
        block = f"blk.{i}."
        shapes |= {f"{block}attn_{n}.weight": (d, 18) for n, d in (("q", 24), ("k", 12), ("v", 12))}
        shapes |= {f"{block}ffn_{n}.weight": (14, 18) for n in ("gate", "up")}
        shapes |= {f"{block}attn_output.weight": (18, 24), f"{block}ffn_down.weight": (18, 14)}
        shapes |= {f"{block}{n}_norm.weight": (18,) for n in ("attn", "ffn")}
    return {name: generator.normal(size=s) / np.sqrt(s[-1]) for name, s in shapes.items()}


@pytest.fixture
def file(generator):
    return draw_file(generator)


@pytest.fixture
def small(backend, file):
    """The decoder of such a file."""
    return backend.lib.Decoder.from_pretrained(file, CONFIG)


def decoder_and_parts(twin, generator):
    """A decoder, and beside it the table, norm and blocks it is made of."""
    lib = twin.lib
    table = twin.array(generator.normal(size=(9, 12)))
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
                norm="pre",
            )
        )
    return lib.Decoder(table, norm=norm, blocks=blocks, n_max=7), table, norm, blocks


# ---- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_a_decoder_is_its_parts_one_after_the_other(twin, generator, shape, kind):
    decoder, table, norm, blocks = decoder_and_parts(twin, generator)
    ids = generator.integers(0, 9, shape)
    x = table[twin.array(ids)]
    ids = twin.array(ids.astype(kind))
    assert_near(decoder.embed(ids), back(x), dtype=twin.dtype)
    trace = decoder.trace(ids)
    assert len(trace.hidden_states) == 3
    assert len(trace.weights) == 2
    assert_near(trace.hidden_states[0], back(x))
    for i, block in enumerate(blocks):
        expected = block.attention_weights(x, mask=causal)
        assert_near(trace.weights[i], back(expected), dtype=twin.computed)
        x = block(x, mask=causal)
        assert_near(trace.hidden_states[i + 1], back(x), dtype=twin.dtype)
    assert_near(decoder.read(ids), back(x), dtype=twin.dtype)
    logits = twin.lib.project(norm(x), table.T)
    assert_near(decoder.logits(x), back(logits), dtype=twin.dtype)
    assert_near(decoder(ids), back(logits), dtype=twin.dtype)
    assert_near(decoder.next_logits(ids), back(logits)[..., -1, :], dtype=twin.dtype)


def test_a_file_is_put_together(backend, file, small, generator):
    """Written out once more: a number is turned by multiplying it with a complex one."""
    ids = generator.integers(0, 11, (2, 5))

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * file[f"{name}.weight"]

    def linear(x, name):
        return x @ file[f"{name}.weight"].T

    def turned(x):
        pairs = np.ascontiguousarray(x).view(complex)
        speeds = np.array([1.0, 50.0**-0.5])
        return (pairs * np.exp(1j * np.arange(5)[:, None] * speeds)).view(float)

    x = file["token_embd.weight"][ids]
    for i in range(2):
        seen = norm(x, f"blk.{i}.attn_norm")
        query, key, value = (linear(seen, f"blk.{i}.attn_{letter}") for letter in "qkv")
        found = []
        for head in range(6):
            own, shared = (slice(4 * h, 4 * h + 4) for h in (head, head // 2))
            scores = turned(query[..., own]) @ turned(key[..., shared]).swapaxes(-2, -1) / 2
            exponentials = np.tril(np.exp(scores))
            found.append(
                exponentials / exponentials.sum(-1, keepdims=True) @ value[..., shared],
            )
        x = x + linear(np.concatenate(found, axis=-1), f"blk.{i}.attn_output")
        seen = norm(x, f"blk.{i}.ffn_norm")
        gate = linear(seen, f"blk.{i}.ffn_gate")
        wide = gate / (1 + np.exp(-gate)) * linear(seen, f"blk.{i}.ffn_up")
        x = x + linear(wide, f"blk.{i}.ffn_down")
    expected = norm(x, "output_norm") @ file["token_embd.weight"].T
    assert_near(small(backend.array(ids)), expected, dtype="float64")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_transformers_computes_the_same(dtype, file, generator):
    """Its Llama with these weights, in whose file the rows of W_Q and W_K stand in halves."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=18,
        intermediate_size=14,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=4,
        max_position_embeddings=16,
        rms_norm_eps=0.1,
        rope_parameters={"rope_theta": 50.0, "rope_type": "default"},
        tie_word_embeddings=True,
        attn_implementation="eager" if dtype == "float32" else "sdpa",
    )
    llama = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    llama.load_state_dict({name: torch.tensor(x) for name, x in as_llama(file).items()})
    if dtype == "float64":
        keep_float64(torch, llama.model)
    ids = generator.integers(0, 11, (2, 13))
    with torch.no_grad():
        found = llama(torch.tensor(ids), output_attentions=dtype == "float32")
    file = {name: x.astype(dtype) for name, x in file.items()}
    decoder = qkvlib.numpy.Decoder.from_pretrained(file, CONFIG)
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(decoder(ids), back(found.logits), rtol=0, atol=tolerance)
    for ours, expected in zip(decoder.trace(ids).weights, found.attentions or []):
        np.testing.assert_allclose(ours, back(expected), rtol=0, atol=tolerance)


def as_llama(file):
    """The weights as transformers names them."""
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj"}
    names |= {"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}
    names |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    names |= {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    table = file["token_embd.weight"]
    found = {"model.embed_tokens.weight": table, "lm_head.weight": table}
    found["model.norm.weight"] = file["output_norm.weight"]
    for i in range(2):
        for ours, theirs in names.items():
            x = file[f"blk.{i}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):
                x = x.reshape(-1, 2, 2, 18).swapaxes(1, 2).reshape(x.shape)
            found[f"model.layers.{i}.{theirs}.weight"] = x
    return found


def keep_float64(torch, model):
    """Norms and angles by torch itself, for transformers computes these two in float32."""

    def norm(own):
        made = torch.nn.RMSNorm(18, eps=0.1, dtype=torch.float64)
        made.weight = own.weight
        return made

    def angles(x, position_ids):
        speeds = torch.tensor([1.0, 1 / math.sqrt(50)], dtype=torch.float64).repeat(2)
        turned = position_ids[..., None] * speeds
        return turned.cos(), turned.sin()

    model.norm, model.rotary_emb.forward = norm(model.norm), angles
    for layer in model.layers:
        layer.input_layernorm = norm(layer.input_layernorm)
        layer.post_attention_layernorm = norm(layer.post_attention_layernorm)


def test_no_token_sees_what_comes_after_it(backend, small, generator):
    ids = generator.integers(0, 11, 9)
    other = ids.copy()
    other[6:] = (other[6:] + 3) % 11
    found, changed = (back(small(backend.array(x))) for x in (ids, other))
    np.testing.assert_allclose(changed[:6], found[:6], rtol=0, atol=1e-12)
    assert np.abs(changed[6:] - found[6:]).max(axis=-1).min() > 1e-3


def test_order_matters(backend, small):
    """Through the rotation alone: there is no other trace of where a token stands."""
    found = [back(small.next_logits(backend.array(np.array(x)))) for x in ([1, 2, 3], [2, 1, 3])]
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("kind", ["pattern", "array"])
def test_a_mask_forbids_more(backend, small, generator, kind):
    """Besides what comes later: a window, so that a far token cannot be told from another."""
    ids = generator.integers(0, 11, 9)
    other = ids.copy()
    other[0] = (ids[0] + 1) % 11
    mask = window(3) if kind == "pattern" else backend.lib.window_mask(9, window=3)
    found, changed = (back(small(backend.array(x), mask=mask)) for x in (ids, other))
    np.testing.assert_allclose(changed[5:], found[5:], rtol=0, atol=1e-12)
    assert np.abs(changed[:5] - found[:5]).max(axis=-1).min() > 1e-9
    for weights_ in small.trace(backend.array(ids), mask=mask).weights:
        allowed = (causal & window(3)).array(9)
        np.testing.assert_array_equal(back(weights_) > 0, np.broadcast_to(allowed, (6, 9, 9)))


def test_padding_changes_nothing(backend, small, generator):
    """A text alone, and in a batch beside a longer one."""
    ids = generator.integers(0, 11, (2, 5))
    mask = backend.lib.padding_mask([5, 3], 5)[:, None]
    together = small.trace(backend.array(ids), mask=mask)
    alone = small.trace(backend.array(ids[1, :3]))
    for batch, one in zip(together.hidden_states, alone.hidden_states):
        assert_near(batch[1, :3], back(one))
    for batch, one in zip(together.weights, alone.weights):
        assert_near(batch[1, :, :3, :3], back(one))
        assert not back(batch)[1, ..., 3:].any()
    assert_near(small(backend.array(ids), mask=mask)[1, :3], back(small(backend.array(ids[1, :3]))))


def test_only_the_last_token_is_scored_for_the_next(backend, generator):
    """Logits of 300 tokens would take a hundred times as much memory as those of one."""
    table = generator.normal(size=(20_000, 4))
    decoder = backend.lib.Decoder(backend.array(table), norm=lambda x: x, blocks=[], n_max=300)
    ids = backend.array(np.arange(300))
    with patch.object(decoder, "logits", wraps=decoder.logits) as logits:
        found = decoder.next_logits(ids)
        assert tuple(logits.call_args.args[0].shape) == (4,)
        assert_near(found, table @ table[299])
        next(backend.lib.generate(decoder, ids, max_tokens=3))
        assert tuple(logits.call_args.args[0].shape) == (4,)
    if not backend.is_torch:
        tracemalloc.start()
        decoder.next_logits(ids)
        assert tracemalloc.get_traced_memory()[1] < 300 * 20_000
        tracemalloc.stop()


# ---- the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,)], ids=str)
@pytest.mark.parametrize("pieces", [[13], [1] * 13, [4, 1, 1, 5, 2], [1, 12], [12, 1]], ids=str)
def test_a_text_may_be_read_piece_by_piece(backend, small, generator, pieces, lead):
    ids = generator.integers(0, 11, (*lead, 13))
    expected = back(small(backend.array(ids)))
    for read in (small, small.next_logits):
        cache, at = small.new_cache(), 0
        for n in pieces:
            found = read(backend.array(ids[..., at : at + n]), cache=cache)
            wanted = (
                expected[..., at : at + n, :] if read is small else expected[..., at + n - 1, :]
            )
            assert_near(found, wanted)
            at += n
        assert {len(one) for one in cache} == {13}


def test_a_mask_counts_what_the_cache_holds(backend, small, generator):
    ids = generator.integers(0, 11, 9)
    expected = back(small(backend.array(ids), mask=window(3)))
    allowed = window(3).array(9)
    cache = small.new_cache()
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        mask = backend.array(allowed[start:stop, :stop]) if stop == 5 else window(3)
        found = small(backend.array(ids[start:stop]), mask=mask, cache=cache)
        assert_near(found, expected[start:stop])


def test_two_texts_have_two_caches(backend, small, generator):
    one, two = generator.integers(0, 11, (2, 6))
    caches = [small.new_cache() for _ in range(2)]
    for i in range(6):
        found = [small(backend.array(x[i : i + 1]), cache=c) for x, c in zip((one, two), caches)]
    for x, got in zip((one, two), found):
        assert_near(got[0], back(small(backend.array(x)))[-1])


@pytest.mark.parametrize("held", [0, 5])
def test_a_call_that_fails_leaves_the_cache_as_it_was(backend, small, generator, held):
    ids = generator.integers(0, 11, 9)
    cache = small.new_cache()
    if held:
        small(backend.array(ids[:held]), cache=cache)
    further = backend.array(ids[held:])
    block, name = backend.lib.TransformerBlock, "forward" if backend.is_torch else "__call__"
    run = getattr(block, name)

    def interrupted(self, x, **options):
        y = run(self, x, **options)
        if self is small.blocks[1]:
            raise KeyboardInterrupt
        return y

    with patch.object(block, name, interrupted), pytest.raises(KeyboardInterrupt):
        small(further, cache=cache)
    assert {len(one) for one in cache} == {held}
    assert {len(one) for one in cache} == {held}
    assert_near(small(further, cache=cache), back(small(backend.array(ids)))[held:])


# ---- its file ------------------------------------------------------------------------------------


def test_the_dtype_is_that_of_the_file(twin, file):
    ids = np.array([1, 2, 5])
    expected = back(qkvlib.numpy.Decoder.from_pretrained(file, CONFIG)(ids))
    given = {name: twin.array(x) for name, x in file.items()}
    decoder = twin.lib.Decoder.from_pretrained(given, CONFIG)
    cache = decoder.new_cache()
    found = [decoder.next_logits(twin.array(ids[i : i + 1]), cache=cache) for i in range(3)]
    assert {dtype_of(x) for x in found} == {twin.dtype}
    coarse = {"float16": 0.03, "bfloat16": 0.3}.get(twin.dtype, 1e-4)
    np.testing.assert_allclose([back(x) for x in found], expected, rtol=0, atol=coarse)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_file_may_lie_in_memory_in_any_way(backend, file, small, layout):
    ids = backend.array(np.array([3, 0, 8]))
    file = {name: layout(x) for name, x in file.items()}
    decoder = backend.lib.Decoder.from_pretrained(file, CONFIG)
    assert_near(decoder(ids), back(small(ids)))
    if backend.is_torch:  # safetensors saves no others
        assert all(p.is_contiguous() for p in decoder.parameters())


@pytest.mark.parametrize("kind", ["NumPy's", "its own"])
def test_the_file_is_not_changed(backend, file, kind):
    """Not even by training: the decoder has its own copy."""
    given = copy.deepcopy(file) if kind == "NumPy's" else backend.named(file)
    decoder = backend.lib.Decoder.from_pretrained(given, CONFIG)
    decoder(backend.array(np.array([3, 0, 8])))
    if backend.is_torch:
        for parameter in decoder.parameters():
            parameter.data += 1
    for name, x in file.items():
        np.testing.assert_array_equal(back(given[name]), x)


def test_in_torch_every_weight_is_a_parameter(backend, file, small):
    if not backend.is_torch:
        pytest.skip("no parameters in NumPy")
    assert sum(p.numel() for p in small.parameters()) == sum(x.size for x in file.values())
    small(backend.array(np.array([1, 2, 0]))).sin().sum().backward()
    assert min(p.grad.abs().max() for p in small.parameters()) > 1e-9


def test_in_torch_gradients_flow_through_the_cache(backend, small, generator):
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    ids, found = backend.array(generator.integers(0, 11, 6)), []
    for pieces in ([6], [2, 1, 3]):
        cache, small.token_table.grad = small.new_cache(), None
        read = [small(piece, cache=cache) for piece in ids.split(pieces)]
        (read[-1][-1] ** 2).sum().backward()
        found.append(small.token_table.grad)
    assert_near(found[1], back(found[0]))


def test_torch_may_trace_it(backend, small, generator):
    """`torch.compile`, `torch.export` and `torch.func`, where ids cannot be looked at."""
    if not backend.is_torch:
        pytest.skip("nothing to trace in NumPy")
    import torch
    from torch.func import functional_call, grad, vmap

    ids = backend.array(generator.integers(0, 11, (2, 5)))
    mask = backend.lib.padding_mask([5, 3], 5)[:, None]
    compiled = torch.compile(small, backend="eager", fullgraph=True)
    assert_near(compiled(ids), back(small(ids)))
    assert_near(compiled(ids, mask=mask), back(small(ids, mask=mask)))
    assert_near(torch.export.export(small, (ids,)).module()(ids), back(small(ids)))

    def loss(weights, ids):
        return functional_call(small, weights, (ids,)).square().sum()

    weights_ = {name: p.detach() for name, p in small.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0))(weights_, ids)
    loss(dict(small.named_parameters()), ids[1]).backward()
    for name, p in small.named_parameters():
        assert_near(found[name][1], back(p.grad))


def test_it_may_be_copied_and_kept(backend, small, tmp_path):
    import pickle

    ids = backend.array(np.array([3, 0, 8]))
    for twice in (copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert_near(twice(ids), back(small(ids)))


# ---- what does not fit ---------------------------------------------------------------------------


def test_ids_must_be_in_the_vocabulary(backend, small):
    for ids in ([11], [0, -1]):
        for read in (small, small.next_logits, small.trace):
            with pytest.raises(
                ValueError, match=r"ids must lie between 0 and 10, .* \(11, 18\), got"
            ):
                read(backend.array(np.array(ids)))


def test_ids_must_be_whole_numbers_in_an_array(backend, small):
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got .*float64"):
        small(backend.array(np.array([1.0])))
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got .*bool"):
        small(backend.array(np.array([True])))
    with pytest.raises(TypeError, match=r"ids must be a .*, got builtins\.list"):
        small([1, 2])
    with pytest.raises(ValueError, match=r"ids must have at least 1 axes"):
        small(backend.array(np.array(1)))


def test_a_text_has_a_token(backend, small):
    for read in (small, small.next_logits, small.trace):
        with pytest.raises(ValueError, match=r"ids must hold at least one token, .*\(2, 0\)"):
            read(backend.array(np.zeros((2, 0), int)))
    assert small(backend.array(np.zeros((0, 3), int))).shape == (0, 3, 11)


def test_a_text_has_no_more_tokens_than_the_model_can_read(backend, small):
    for read in (small, small.next_logits, small.trace):
        with pytest.raises(
            ValueError, match=r"at most n_max = 16 tokens, .* got 17 .* cut the text"
        ):
            read(backend.array(np.zeros(17, int)))
    cache = small.new_cache()
    small(backend.array(np.zeros(15, int)), cache=cache)
    with pytest.raises(ValueError, match=r"at most n_max = 16 .* got 2 .* after 15 in the cache"):
        small(backend.array(np.zeros(2, int)), cache=cache)
    small(backend.array(np.zeros(1, int)), cache=cache)


def test_a_mask_must_fit(backend, small):
    ids = backend.array(np.arange(4))
    cache = small.new_cache()
    small(ids, cache=cache)
    true = np.ones((2, 1, 4, 4), bool)
    for mask, error, words in (
        (true[0, 0, :3], ValueError, r"mask must broadcast to the scores .*got shape \(3, 4\)"),
        (true[0, 0, 0], ValueError, r"mask must have 2 axes .*got shape \(4,\)"),
        (true[:, 0], ValueError, r"mask must have 2 axes .*\(2, 4, 4\).*head axis is missing"),
        (true.astype(float), TypeError, r"mask must be a Boolean .*float64; .* belongs in bias"),
    ):
        for read in (small, small.next_logits, small.trace):
            with pytest.raises(error, match=words):
                read(
                    ids if read is small.trace else backend.array(np.ones((2, 4), int)),
                    mask=backend.array(mask),
                )
    with pytest.raises(TypeError, match=r"mask must be a Boolean .*, got str"):
        small(ids, mask="window")
    with pytest.raises(ValueError, match=r"mask must broadcast .*\(4, 8\).*got shape \(4, 4\)"):
        small(ids, mask=backend.array(true[0, 0]), cache=cache)
    assert {len(one) for one in cache} == {4}


def test_a_cache_must_be_the_models_own(backend, file, small):
    ids = backend.array(np.array([1, 2]))
    one = backend.lib.KeyValueCache
    other = backend.lib.Decoder.from_pretrained(file, CONFIG | {"num_blocks": 1})
    for cache, error, words in (
        (other.new_cache(), ValueError, r"each of the 2 blocks, got 1 from another model"),
        (one(), TypeError, r"list of one KeyValueCache for each block, got KeyValueCache"),
        ([one()] * 2, ValueError, r"of its own for each of the 2 blocks, got the same one more"),
        ([one(), None], TypeError, r"one KeyValueCache for each block, got NoneType"),
    ):
        with pytest.raises(error, match=words) as caught:
            small(ids, cache=cache)
        assert "decoder.new_cache()" in str(caught.value)
    cache = small.new_cache()
    other(ids, cache=cache[:1])
    with pytest.raises(ValueError, match=r"same tokens for each block, got \[0, 2\]"):
        small(ids, cache=cache)
    narrow = backend.lib.Decoder.from_pretrained(
        file, CONFIG | {"num_heads": 12, "num_kv_heads": 6, "d_k": 2}
    )
    cache = narrow.new_cache()
    narrow(ids, cache=cache)
    with pytest.raises(ValueError, match=r"key must have the shape .* make a new"):
        small(ids, cache=cache)


@pytest.mark.parametrize("name", sorted(draw_file(np.random.default_rng(0))))
def test_a_weight_that_is_missing_or_does_not_fit_is_named(name, file):
    right = file.pop(name)
    for wrong, said in ((None, "got nothing"), (right[:-1], f"got {right[:-1].shape}")):
        if wrong is not None:
            file[name] = wrong
        with pytest.raises(ValueError, match="take weights and config from one call") as caught:
            qkvlib.numpy.Decoder.from_pretrained(file, CONFIG)
        assert f"weights must hold {name!r} of shape {right.shape}" in str(caught.value)
        assert said in str(caught.value)
        assert "load_smollm2()" in str(caught.value)


def test_a_config_of_another_model_is_refused(backend, file):
    with pytest.raises(ValueError, match=r"'blk\.0\.attn_k\.weight' of shape \(8, 18\).*got \(12"):
        backend.lib.Decoder.from_pretrained(file, CONFIG | {"num_kv_heads": 2})
    with pytest.raises(ValueError, match=r"'blk\.2\..*got nothing"):
        backend.lib.Decoder.from_pretrained(file, CONFIG | {"num_blocks": 3})
    config = {name: x for name, x in CONFIG.items() if name not in ("d_k", "eps")}
    with pytest.raises(ValueError, match=r"none named d_k, eps; .* one call of .*load_smollm2\(\)"):
        backend.lib.Decoder.from_pretrained(file, config)


def test_a_table_and_a_length_must_fit(backend):
    def make(table, n_max=3):
        return backend.lib.Decoder(table, norm=lambda x: x, blocks=[], n_max=n_max)

    with pytest.raises(ValueError, match=r"token_table must have 2 axes .* got shape \(3,\)"):
        make(backend.array(np.zeros(3)))
    with pytest.raises(TypeError, match=r"token_table must be float"):
        make(backend.array(np.zeros((3, 2), int)))
    for n_max, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="n_max must be"):
            make(backend.array(np.zeros((3, 2))), n_max)
