"""Patterns and others' masks: FlexAttention, torch's causal biases, transformers, Longformer."""

import numpy as np
import pytest
from twins import BACKENDS, assert_near, back

from qkvlib.patterns import (
    blocks,
    causal,
    dilated,
    documents,
    global_tokens,
    prefix,
    random_blocks,
    strided,
    window,
)

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

N_QUERY, N_KEY = 11, 14
OFFSET = N_KEY - N_QUERY
TEXTS = torch.tensor([4, 4, 4, 9, 9, 2, 2, 2, 2, 2, 7, 7, 4, 4])
CHOSEN = random_blocks(N_KEY, 3, 2, np.random.default_rng(5))
TABLE = torch.from_numpy(CHOSEN.array(N_KEY)[::3, ::3].copy())


# ---- FlexAttention -------------------------------------------------------------------------------

# Each pattern and, written for FlexAttention, what it means; q and k are positions.
RULES = {
    "causal": (causal, lambda q, k: q >= k),
    "window": (window(3), lambda q, k: (q - k < 3) & (k - q < 3)),
    "dilated": (
        dilated(2, 3),
        lambda q, k: (q == k) | (q - k == 3) | (k - q == 3),
    ),
    "strided": (strided(4), lambda q, k: q % 4 == k % 4),
    "blocks": (blocks(4), lambda q, k: (q >> 2) == (k >> 2)),
    "global tokens": (global_tokens(4), lambda q, k: torch.minimum(q, k) < 4),
    "random blocks": (CHOSEN, lambda q, k: TABLE[q // 3, k // 3]),
    "prefix": (prefix(2), lambda q, k: k <= 1),
    "documents": (documents(TEXTS), lambda q, k: TEXTS[q] == TEXTS[k]),
    "prefix and causal": (causal | prefix(6), lambda q, k: (k <= q) | (k < 6)),
    "Sparse Transformer": (
        causal & (window(4) | strided(4)),
        lambda q, k: (q >= k) & ((q - k < 4) | ((q - k) % 4 == 0)),
    ),
    "Longformer": (
        window(2) | global_tokens(1),
        lambda q, k: ((q - k) ** 2 <= 1) | (q == 0) | (k == 0),
    ),
    "Big Bird": (
        window(2) | global_tokens(1) | CHOSEN,
        lambda q, k: ((q - k) ** 2 <= 1) | (q == 0) | (k == 0) | TABLE[q // 3, k // 3],
    ),
    "packed": (causal & documents(TEXTS), lambda q, k: (q >= k) & (TEXTS[q] == TEXTS[k])),
    "nothing for some": (~causal & prefix(6), lambda q, k: (k > q) & (k < 6)),
}


def block_mask(rule, size):
    return flex.create_block_mask(
        lambda b, h, q, k: rule(q + OFFSET, k), 1, 1, N_QUERY, N_KEY, "cpu", BLOCK_SIZE=size
    )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", RULES)
def test_attention_is_that_of_flex_attention(generator, name):
    pattern, rule = RULES[name]
    arrays = [
        generator.normal(size=(2, 3, n, d)) for n, d in ((N_QUERY, 5), (N_KEY, 5), (N_KEY, 6))
    ]
    expected = flex.flex_attention(*map(torch.from_numpy, arrays), block_mask=block_mask(rule, 4))
    for twin in BACKENDS:
        query, key, value = twin.arrays(*arrays)
        found = twin.lib.scaled_dot_product_attention(query, key, value, mask=pattern)
        assert_near(found, back(expected))
        found = twin.lib.chunked_attention(query, key, value, mask=pattern, chunk_size=3)
        assert_near(found, back(expected))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", RULES)
def test_a_pattern_is_a_rule_of_flex_attention(generator, name):
    """It asks for one pair of positions at a time, under vmap."""
    pattern, rule = RULES[name]
    expected, found = block_mask(rule, 4), block_mask(pattern, 4)
    assert torch.equal(found.to_dense(), expected.to_dense())
    query, key, value = (
        torch.from_numpy(generator.normal(size=(1, 1, n, 5))) for n in (N_QUERY, N_KEY, N_KEY)
    )
    expected = flex.flex_attention(query, key, value, block_mask=expected)
    assert_near(flex.flex_attention(query, key, value, block_mask=found), back(expected))


# What reaches as far as its hull: keys in between that no query of the block attends to.
WITH_GAPS = {"dilated", "strided", "documents", "packed", "Sparse Transformer", "nothing for some"}


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", RULES)
def test_the_blocks_within_reach_are_those_of_flex_attention(name, size):
    pattern, rule = RULES[name]
    expected = block_mask(rule, size).to_dense()[0, 0] != 0
    found = np.zeros(expected.shape, bool)
    for row, first in enumerate(range(0, N_QUERY, size)):
        last = min(first + size, N_QUERY) - 1
        for start, stop in pattern.reach(first + OFFSET, last + OFFSET, N_KEY):
            found[row, start // size : -(-stop // size)] = True
    assert (found >= expected.numpy()).all()
    if name not in WITH_GAPS:
        np.testing.assert_array_equal(found, expected)


# ---- torch's own causal masks --------------------------------------------------------------------


@pytest.mark.parametrize(("n_query", "n_key"), [(3, 7), (5, 5), (1, 6)])
def test_causal_is_torchs_lower_right_and_from_the_start_its_upper_left(generator, n_query, n_key):
    bias = pytest.importorskip("torch.nn.attention.bias")
    arrays = [
        generator.normal(size=(2, 3, n, d)) for n, d in ((n_query, 5), (n_key, 5), (n_key, 6))
    ]
    for pattern, its in (
        (causal, bias.causal_lower_right(n_query, n_key)),
        (causal.shifted(n_query - n_key), bias.causal_upper_left(n_query, n_key)),
    ):
        tensors = map(torch.from_numpy, arrays)
        expected = back(torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=its))
        for twin in BACKENDS:
            found = twin.lib.scaled_dot_product_attention(*twin.arrays(*arrays), mask=pattern)
            assert_near(found, expected)


# ---- transformers --------------------------------------------------------------------------------


@pytest.fixture
def masking():
    return pytest.importorskip("transformers.masking_utils")


@pytest.mark.parametrize(("n_query", "n_key"), [(3, 9), (9, 9), (1, 7)])
def test_the_masks_of_transformers(masking, n_query, n_key):
    texts = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 3, 3], [0, 0, 1, 1, 1, 1, 2, 2, 2]])[:, :n_key]
    padding = torch.zeros(2, dtype=torch.int64)
    packed = masking.packed_sequence_mask_function(texts)
    for pattern, rule in (
        (causal, masking.causal_mask_function),
        (causal & window(4), masking.sliding_window_causal_mask_function(4)),
        (causal & blocks(4), masking.chunked_causal_mask_function(4, padding)),
        (documents(texts[:, None]), packed),
        (
            causal & documents(texts[:, None]),
            masking.and_masks(packed, masking.causal_mask_function),
        ),
        (
            causal | prefix(3),
            masking.or_masks(masking.causal_mask_function, lambda b, h, q, k: k < 3),
        ),
    ):
        expected = masking.sdpa_mask(
            2,
            n_query,
            n_key,
            q_offset=n_key - n_query,
            mask_function=rule,
            allow_is_causal_skip=False,
        )
        assert expected.shape == (2, 1, n_query, n_key)
        found = np.broadcast_to(pattern.array(n_query, n_key), expected.shape)
        np.testing.assert_array_equal(found, expected)


def test_padding_joined_to_a_pattern_is_that_of_transformers(masking):
    lengths = [7, 4]
    padding = BACKENDS[0].lib.padding_mask(lengths, 7)[:, None]
    expected = masking.sdpa_mask(
        2,
        3,
        7,
        q_offset=4,
        mask_function=masking.sliding_window_causal_mask_function(3),
        attention_mask=torch.from_numpy(padding[:, 0, 0]),
        allow_is_causal_skip=False,
    )
    found = (causal & window(3) & padding).array(3, 7)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("g", [0, 1, 3])
def test_longformer(generator, g):
    """Its own code computes the window in sliding chunks, and global tokens apart."""
    longformer = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    config = longformer.LongformerConfig(
        hidden_size=12, num_attention_heads=3, attention_window=[6], attention_probs_dropout_prob=0
    )
    torch.manual_seed(0)
    layer = longformer.LongformerSelfAttention(config, layer_id=0).double().eval()
    with torch.no_grad():
        for one in (layer.query, layer.key, layer.value):
            one.weight.normal_(0, 0.4, generator=torch.Generator().manual_seed(one.out_features))
    layer.query_global, layer.key_global, layer.value_global = layer.query, layer.key, layer.value
    x = generator.normal(size=(2, 18, 12))
    is_global = torch.zeros(2, 18, dtype=torch.bool)
    is_global[:, :g] = True
    expected = layer(
        torch.from_numpy(x),
        attention_mask=10000.0 * is_global,
        is_index_masked=torch.zeros(2, 18, dtype=torch.bool),
        is_index_global_attn=is_global,
        is_global_attn=bool(g),
    )[0]
    W = {
        f"W_{name[0].upper()}": back(getattr(layer, name).weight).T
        for name in ("query", "key", "value")
    }
    b = {
        f"b_{name[0].upper()}": back(getattr(layer, name).bias)
        for name in ("query", "key", "value")
    }
    for twin in BACKENDS:
        mha = twin.lib.MultiHeadAttention.from_weights(
            **twin.named(W | b | {"W_O": np.eye(12)}), num_heads=3
        )
        found = mha(twin.array(x), mask=window(4) | global_tokens(g))
        assert_near(found, back(expected), rounded="float32")  # its softmax is computed in float32
