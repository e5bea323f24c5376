"""Mistakes with heads: splitting, merging, sharing, projecting, mixing."""

import math

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, call, obeying
from qkvlib.numpy import (
    MultiHeadAttention,
    attention_scores,
    attention_weights,
    merge_heads,
    project,
    repeat_heads,
    scaled_dot_product_attention,
    softmax,
    split_heads,
)

_generator = np.random.default_rng(7)


def _normal(*shape):
    return 0.5 * _generator.normal(size=shape)


def _attention_inputs():
    """Those of the laws of attention for three heads, each with its own factor."""
    for arrays, mask in laws.attention_inputs():
        yield tuple(np.concatenate([x, 2 * x, -x], axis=-1) for x in arrays), mask


def _in_heads(split=split_heads, merge=merge_heads):
    """Attention of three heads that is right but for its splitting or its merging."""

    def attend(query, key, value, *, mask=None):
        mask = mask if mask is None or mask.ndim == 2 else mask[..., None, :, :]
        query, key, value = (split(x, 3) for x in (query, key, value))
        return merge(scaled_dot_product_attention(query, key, value, mask=mask))

    return attend


# ---- splitting -----------------------------------------------------------------------------------

_NUMBERED = np.arange(1.0, 73.0)

SPLIT_HEADS = Subject(
    name="split heads",
    signature="split_heads(x, num_heads)",
    right=split_heads,
    tiers=(
        (call(_NUMBERED[:60].reshape(5, 12), 3), call(_NUMBERED[:36].reshape(3, 12), 3)),
        (call(_NUMBERED.reshape(2, 3, 12), 4),),
    ),
    laws=obeying(
        laws.ATTENTION_LAWS[:-2], _attention_inputs, of=lambda split: _in_heads(split=split)
    ),
)


@SPLIT_HEADS.mistake(
    "The shape is right, rows sum to 1, a causal mask leaks nothing, and it trains.",
    law=laws.every_value_reaches_every_output,
    reported="reczoo/FuxiCTR#30",
)
def split_without_transpose(x, num_heads):
    """Reshaped at once: a head gets a run of tokens, not its columns of all of them."""
    *lead, n, width = x.shape
    return x.reshape(*lead, num_heads, n, width // num_heads)


@SPLIT_HEADS.mistake(
    "Every head gets as many columns as it should, of all tokens.",
    law=laws.the_only_key_gives_its_value,
)
def columns_dealt_in_turn(x, num_heads):
    """Head i gets every num_heads-th column: a checkpoint's columns go to the wrong heads."""
    *lead, n, width = x.shape
    return np.moveaxis(x.reshape(*lead, n, width // num_heads, num_heads), -1, -3)


@SPLIT_HEADS.mistake("For one text at a time it is right.")
def no_room_for_a_batch(x, num_heads):
    """The two axes of a single text are unpacked; a batch raises."""
    n, width = x.shape
    return x.reshape(n, num_heads, width // num_heads).swapaxes(0, 1)


# ---- merging -------------------------------------------------------------------------------------

MERGE_HEADS = Subject(
    name="merge heads",
    signature="merge_heads(x)",
    right=merge_heads,
    tiers=(
        (call(_NUMBERED[:60].reshape(3, 4, 5)), call(_NUMBERED[:36].reshape(3, 3, 4))),
        (call(_NUMBERED.reshape(2, 3, 4, 3)),),
    ),
    laws=obeying(
        laws.ATTENTION_LAWS[:-2], _attention_inputs, of=lambda merge: _in_heads(merge=merge)
    ),
)


@MERGE_HEADS.mistake(
    "The shape is right, and a simple task is learned all the same.",
    law=laws.permuting_queries_permutes_outputs,
    reported="jsbaan/transformer-from-scratch#6",
)
def merge_without_transpose(x):
    """Reshaped at once: an output row holds one head's words of several tokens."""
    *lead, h, n, d = x.shape
    return x.reshape(*lead, n, h * d)


@MERGE_HEADS.mistake(
    "All numbers of a token are in its row.", law=laws.the_only_key_gives_its_value
)
def columns_of_heads_mixed(x):
    """The heads' columns alternate: W_O meets them in another order than it was trained with."""
    *lead, h, n, d = x.shape
    return np.moveaxis(x, -3, -1).reshape(*lead, n, d * h)


@MERGE_HEADS.mistake(
    "All numbers of a token are in its row, head by head.", law=laws.the_only_key_gives_its_value
)
def heads_in_reverse(x):
    """The last head stands first."""
    return merge_heads(x[..., ::-1, :, :])


@MERGE_HEADS.mistake(
    "Heads work together, and a sum is how contributions are put together, after W_O.",
    law=laws.permuting_queries_permutes_outputs,
    reported="awf/functional-transformer#8",
)
def heads_summed(x):
    """The heads are added, not put side by side: what one found covers what another found."""
    return x.sum(axis=-3)


# ---- sharing -------------------------------------------------------------------------------------


def _shared_inputs():
    for shape, repeats in [((2, 1, 1), 2), ((3, 2, 2), 2), ((2, 2, 3, 2), 3)]:
        yield (np.arange(float(math.prod(shape))).reshape(shape), repeats), None


REPEAT_HEADS = Subject(
    name="repeat heads",
    signature="repeat_heads(x, repeats)",
    right=repeat_heads,
    tiers=(
        (call(_NUMBERED[:30].reshape(5, 2, 3), 3),),
        (call(_NUMBERED.reshape(2, 3, 4, 3), 2),),
    ),
    laws=obeying([laws.repeated_heads_are_neighbours], _shared_inputs),
)


@REPEAT_HEADS.mistake(
    "There are as many heads as should be, and all of them are used.",
    law=laws.repeated_heads_are_neighbours,
    reported="onnx/onnx#7274",
)
def tiled(x, repeats):
    """All heads, and again all heads: a query meets the keys of another group."""
    return np.concatenate([x] * repeats, axis=-3)


@REPEAT_HEADS.mistake(
    "Each key is there several times, as it should be.",
    law=laws.repeated_heads_are_neighbours,
    reported="PrimeIntellect-ai/prime-rl#2681",
)
def tokens_repeated(x, repeats):
    """The axis of the tokens is repeated, not that of the heads."""
    return np.repeat(x, repeats, axis=-2)


@REPEAT_HEADS.mistake(
    "With as many groups as heads in a group it is right.",
    law=laws.repeated_heads_are_neighbours,
    reported="PSAL-POSTECH/ONNXim#34",
)
def counted_by_the_groups(x, repeats):
    """Head i takes group i // number of groups, not i // heads in a group: the last go unread."""
    groups = x.shape[-3]
    return x[..., np.arange(groups * repeats) // groups, :, :]


# ---- the layer -----------------------------------------------------------------------------------


def _multi_head(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    return MultiHeadAttention.from_weights(W_Q, W_K, W_V, W_O, num_heads=num_heads)(x, mask=mask)


_X, _BATCH = _normal(5, 6), _normal(2, 4, 6)
# Three heads with d_k 4 and d_v 2, so that their values are together as wide as the model.
_WEIGHTS = _normal(6, 12), _normal(6, 12), _normal(6, 6), _normal(6, 6)
_MASKS = np.stack([np.tri(4, dtype=bool), np.tri(4, k=1, dtype=bool)])[:, None]


def _layer_of(multi_head):
    """`layer(x, *, mask=None)` with three heads."""

    def layer(x, *, mask=None):
        weights = (W.astype(x.dtype) for W in _WEIGHTS)
        return multi_head(x, *weights, num_heads=3, mask=mask)

    return layer


def _layer_inputs():
    for arrays, mask in laws.layer_inputs(6):
        yield arrays, mask
    for arrays, mask in laws.layer_inputs(6):
        yield tuple(x.astype(np.float32) for x in arrays), mask


MULTI_HEAD = Subject(
    name="multi-head attention",
    signature="multi_head(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None)",
    right=_multi_head,
    tiers=(
        (call(_X, *_WEIGHTS, num_heads=3), call(_X, *(_normal(6, 6),) * 4, num_heads=2)),
        (call(_BATCH, *_WEIGHTS, num_heads=3), call(_normal(4, 4, 6), *_WEIGHTS, num_heads=3)),
        (call(_BATCH, *_WEIGHTS, num_heads=3, mask=np.tri(4, dtype=bool)),),
        (call(_BATCH, *_WEIGHTS, num_heads=3, mask=_MASKS),),
        (call(_X, *_WEIGHTS[:3], _normal(6, 8), num_heads=3),),
    ),
    laws=obeying(laws.LAYER_LAWS, _layer_inputs, of=_layer_of)
    | obeying(laws.HEAD_LAWS, laws.head_inputs),
)


@MULTI_HEAD.mistake(
    "With one head it is right, and the model learns.",
    reported="karpathy/ng-video-lecture#6",
)
def scaled_by_the_width_of_the_model(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The scores are divided by sqrt(d_model), not by the root of one head's width."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    scale = 1 / math.sqrt(x.shape[-1])
    heads = scaled_dot_product_attention(query, key, value, mask=mask, scale=scale)
    return merge_heads(heads) @ W_O


@MULTI_HEAD.mistake(
    "There is a root, and it depends on the heads, as it should.",
    variant_of="scaled-by-the-width-of-the-model",
    reported="tenstorrent/tt-metal#56789",
)
def scaled_by_the_number_of_heads(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The scores are divided by sqrt(num_heads), not by the root of one head's width."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    scale = 1 / math.sqrt(num_heads)
    heads = scaled_dot_product_attention(query, key, value, mask=mask, scale=scale)
    return merge_heads(heads) @ W_O


@MULTI_HEAD.mistake(
    "It is what 'split into h parts' says, it trains, and a toy may even come out right.",
    law=laws.every_head_reads_every_column,
    reported="MarcoMeter/episodic-transformer-memory-ppo#22",
)
def token_cut_into_heads(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The token is cut, not what is made of it: a head sees its share of the columns alone."""

    def own_block(W):
        block = np.ones((len(W) // num_heads, W.shape[1] // num_heads), W.dtype)
        return W * np.kron(np.eye(num_heads, dtype=W.dtype), block)

    query, key, value = (split_heads(x @ own_block(W), num_heads) for W in (W_Q, W_K, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@MULTI_HEAD.mistake(
    "The width is right, and no loss shows it.",
    law=laws.an_output_matrix_of_zeros_silences_all,
    reported="Kyubyong/transformer#117",
)
def output_matrix_forgotten(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The heads stand side by side, and nothing mixes them."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask))


@MULTI_HEAD.mistake(
    "Shapes fit where W_O is square, and it trains.",
    law=laws.heads_in_another_order_change_nothing,
)
def output_matrix_transposed(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """W_O is taken as torch stores it, one row for each output."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O.T


@MULTI_HEAD.mistake(
    "Query and key are compared, so they seem to be one thing.",
    law=laws.another_basis_changes_nothing,
)
def one_matrix_for_query_and_key(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Keys are made by W_Q: scores are symmetric, and a token fits itself best."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_Q, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@MULTI_HEAD.mistake(
    "Query and key are compared, so they seem to be one thing.",
    law=laws.another_basis_changes_nothing,
    variant_of="one-matrix-for-query-and-key",
    reported="Khaliladib11/Transformer-from-scratch#1",
)
def queries_made_by_the_key_matrix(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Queries are made by W_K: a line was copied, and its name not changed."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_K, W_K, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@MULTI_HEAD.mistake(
    "With d_k equal to d_v the shapes fit, and it trains.",
    law=laws.another_basis_changes_nothing,
    reported="snu-comparch/InfiniGen#5",
)
def values_made_by_the_key_matrix(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Values are made by W_K, whose work is to be found, not to be read."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_K))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@MULTI_HEAD.mistake(
    "Shapes fit, weights sum to 1, and what comes out is as wide as it should be.",
    law=laws.every_token_influences_every_output,
)
def heads_attend_to_heads(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Heads are not moved before the tokens: the heads of one token read each other."""
    query, key, value = ((x @ W).reshape(*x.shape[:-1], num_heads, -1) for W in (W_Q, W_K, W_V))
    heads = scaled_dot_product_attention(query, key, value)
    return heads.reshape(*x.shape[:-1], -1) @ W_O


@MULTI_HEAD.mistake(
    "Batches come out in the shape they had, and with one text it is right.",
    law=laws.every_token_influences_every_output,
    reported="IBM/TabFormer#14",
)
def texts_attend_to_texts(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The first axis is taken for the tokens, as torch does by default: texts read each other."""
    if x.ndim == 3:
        x = x.swapaxes(0, 1)
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    output = merge_heads(scaled_dot_product_attention(query, key, value)) @ W_O
    return output.swapaxes(0, 1) if x.ndim == 3 else output


@MULTI_HEAD.mistake(
    "All weights are positive and sum to 1, only not along the keys.",
    law=laws.equal_values_come_back,
    variant_of="softmax-over-queries",
)
def softmax_over_heads(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The softmax runs along the heads: they share each pair out among themselves."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    scores = attention_scores(query, key)
    scores = scores if mask is None else np.where(mask, scores, -math.inf)
    return merge_heads(softmax(scores, axis=-3) @ value) @ W_O


@MULTI_HEAD.mistake(
    "With one text, or one mask for all of them, it is right.",
    reported="lsdefine/attention-is-all-you-need-keras#36",
)
def mask_of_another_text(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Texts and heads share one axis, and the masks are repeated along it in the other order."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    shape = query.shape
    query, key, value = (a.reshape(-1, *a.shape[-2:]) for a in (query, key, value))
    if mask is not None and mask.ndim > 2:
        mask = np.tile(mask[..., 0, :, :].reshape(-1, *mask.shape[-2:]), (num_heads, 1, 1))
    heads = scaled_dot_product_attention(query, key, value, mask=mask)
    return merge_heads(heads.reshape(*shape[:-1], -1)) @ W_O


# ---- two texts -----------------------------------------------------------------------------------


def _cross(x, source, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    layer = MultiHeadAttention.from_weights(W_Q, W_K, W_V, W_O, num_heads=num_heads)
    return layer(x, source, mask=mask)


_SOURCE = _normal(4, 6)


def _cross_as_attention(cross):
    """What attends from one text to another, as attention whose keys and values are one."""

    def attend(query, key, value, *, mask=None):
        x, source = (np.concatenate([each] * 6, -1)[..., :6] for each in (query, key))
        output = cross(x, source, *(W.astype(x.dtype) for W in _WEIGHTS), num_heads=3, mask=mask)
        return np.concatenate([output] * 2, -1)[..., : value.shape[-1]]

    return attend


def _bound(cross):
    """`cross(x, source)` with weights of its own."""
    return lambda x, source: cross(x, source, *_WEIGHTS, num_heads=3)


def _cross_inputs():
    for arrays, mask in laws.attention_inputs():
        if arrays[0].ndim == 2:
            yield arrays, mask


CROSS_ATTENTION = Subject(
    name="cross-attention",
    signature="cross(x, source, W_Q, W_K, W_V, W_O, *, num_heads, mask=None)",
    right=_cross,
    tiers=(
        (call(_X, _SOURCE, *_WEIGHTS, num_heads=3), call(_X[:4], _SOURCE, *_WEIGHTS, num_heads=3)),
        (
            call(_X, _SOURCE, *_WEIGHTS, num_heads=3, mask=np.tri(5, 4, dtype=bool)),
            call(_X[:4], _SOURCE, *_WEIGHTS, num_heads=3, mask=np.tri(4, dtype=bool)),
        ),
    ),
    laws=obeying(
        [
            laws.permuting_queries_permutes_outputs,
            laws.permuting_keys_with_values_changes_nothing,
            laws.forbidden_keys_have_no_influence,
            laws.arguments_stay_as_they_are,
        ],
        _cross_inputs,
        of=_cross_as_attention,
    )
    | obeying([laws.every_source_token_is_read], laws.source_inputs, of=_bound),
)


@CROSS_ATTENTION.mistake(
    "Two texts go in, and with equal lengths the shape is right.",
    law=laws.permuting_queries_permutes_outputs,
    reported="humza909/LLM_Survey#2",
)
def source_asks(x, source, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """The source asks, and what should be asking is read."""
    query, key, value = (
        split_heads(tokens @ W, num_heads) for tokens, W in ((source, W_Q), (x, W_K), (x, W_V))
    )
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@CROSS_ATTENTION.mistake(
    "It is a layer that works, on its own text.", law=laws.every_source_token_is_read
)
def source_not_read(x, source, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Keys and values come from the text that asks: the source is passed and not read."""
    query, key, value = (split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


@CROSS_ATTENTION.mistake(
    "The source is found, and with equal lengths the shapes fit.",
    law=laws.permuting_queries_permutes_outputs,
)
def values_from_the_asking_text(x, source, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    """Keys come from the source, values do not: found is the one, read the other."""
    query, key, value = (
        split_heads(tokens @ W, num_heads) for tokens, W in ((x, W_Q), (source, W_K), (x, W_V))
    )
    return merge_heads(scaled_dot_product_attention(query, key, value, mask=mask)) @ W_O


# ---- what a head does ----------------------------------------------------------------------------


def _head_weights(x, W_Q, W_K, *, num_heads):
    return attention_weights(split_heads(x @ W_Q, num_heads), split_heads(x @ W_K, num_heads))


HEAD_WEIGHTS = Subject(
    name="weights of each head",
    signature="head_weights(x, W_Q, W_K, *, num_heads)",
    right=_head_weights,
    tiers=((call(_X, *_WEIGHTS[:2], num_heads=3), call(_BATCH, *_WEIGHTS[:2], num_heads=3)),),
)


@HEAD_WEIGHTS.mistake(
    "Rows sum to 1; torch.nn.MultiheadAttention returns its weights this way by default.",
)
def averaged_over_the_heads(x, W_Q, W_K, *, num_heads):
    """One map for all heads: two sharp heads look like one that cannot decide."""
    query, key = (split_heads(x @ W, num_heads) for W in (W_Q, W_K))
    return attention_weights(query, key).mean(axis=-3)


@HEAD_WEIGHTS.mistake("One head is a map too, and looks like those of other layers.")
def heads_not_split(x, W_Q, W_K, *, num_heads):
    """All columns meet in one score, as if the layer had a single wide head."""
    return attention_weights(x @ W_Q, x @ W_K)


def _contributions(weights, value, W_O):
    return weights @ value @ W_O.reshape(len(value), -1, W_O.shape[1])


def _contribution_inputs():
    generator = np.random.default_rng(0)
    for h, n, n_key, d_v, d_out in [(1, 1, 2, 1, 1), (2, 2, 3, 2, 3), (3, 4, 5, 2, 6)]:
        shapes = (h, n, n_key), (h, n_key, d_v), (h * d_v, d_out)
        yield tuple(generator.integers(-3, 4, shape).astype(float) for shape in shapes), None


_HEADS = _normal(3, 4, 5), _normal(3, 5, 2), _normal(6, 8)

CONTRIBUTIONS = Subject(
    name="head contributions",
    signature="head_contributions(weights, value, W_O)",
    right=_contributions,
    tiers=((call(*_HEADS), call(*_HEADS[:2], _normal(6, 6))),),
    laws=obeying([laws.contributions_sum_to_the_output], _contribution_inputs),
)


@CONTRIBUTIONS.mistake(
    "Their sum is the output: it is the output.", law=laws.contributions_sum_to_the_output
)
def summed_too_early(weights, value, W_O):
    """What comes back is the output, in which no head can be told from another."""
    return merge_heads(weights @ value) @ W_O


@CONTRIBUTIONS.mistake(
    "Each head gets as many rows of W_O as it is wide.", law=laws.contributions_sum_to_the_output
)
def rows_dealt_in_turn(weights, value, W_O):
    """Head i gets every num_heads-th row of W_O, not its own block."""
    rows = np.moveaxis(W_O.reshape(value.shape[-1], len(value), -1), 1, 0)
    return weights @ value @ rows


@CONTRIBUTIONS.mistake(
    "Every share is there, and all are of a size.", law=laws.contributions_sum_to_the_output
)
def first_rows_for_all(weights, value, W_O):
    """Every head is sent through the rows of the first one."""
    return weights @ value @ W_O[: value.shape[-1]]


# ---- projecting ----------------------------------------------------------------------------------


def _projected(project):
    return lambda x, mask=None: project(x, _WEIGHTS[2], np.arange(6.0))


def _square_inputs():
    """As many tokens as columns, so that what mixes the two up does not raise."""
    generator = np.random.default_rng(0)
    for shape in [(6, 6), (2, 6, 6)]:
        yield (generator.integers(-3, 4, shape).astype(float),), None


PROJECT = Subject(
    name="projection",
    signature="project(x, W, b=None)",
    right=project,
    tiers=(
        (call(_X, _normal(6, 4)), call(_X, _WEIGHTS[2]), call(_normal(6, 6), _WEIGHTS[2])),
        (call(_normal(4, 6), _normal(6, 4), _normal(4)), call(_X, _normal(6, 5), _normal(5))),
        (call(_BATCH, _normal(6, 4), _normal(4)),),
        (call(*(x.astype(np.float32) for x in (_X, _normal(6, 4), _normal(4)))),),
    ),
    laws=obeying(laws.PROJECTION_LAWS, _square_inputs, of=_projected),
)


@PROJECT.mistake("With as many tokens as columns the shapes fit.", law=laws.tokens_stay_apart)
def matrix_on_the_left(x, W, b=None):
    """W x for x W: tokens are mixed, columns are not."""
    return W @ x if b is None else W @ x + b


@PROJECT.mistake(
    "A square matrix fits either way, and a loss goes down either way.",
)
def matrix_transposed(x, W, b=None):
    """W is taken as torch stores it, one row for each output."""
    return x @ W.T if b is None else x @ W.T + b


@PROJECT.mistake(
    "With as many tokens as outputs the shapes fit.", law=laws.permuting_tokens_permutes_outputs
)
def bias_along_the_tokens(x, W, b=None):
    """Each token gets one number of the bias, in all its columns."""
    return x @ W if b is None else x @ W + b[:, None]


@PROJECT.mistake(
    "Layers have activations, and dense layers come with one.",
    law=laws.projections_are_linear,
    reported="CyberZHG/keras-multi-head#8",
)
def activation_in_the_projection(x, W, b=None):
    """What is projected goes through a ReLU: a query can no longer point the other way."""
    return np.maximum(x @ W if b is None else x @ W + b, 0)
