"""Mistakes in attention that reads piece by piece: with a cache, or in chunks."""

from copy import deepcopy

import numpy as np

from qkvlib import laws
from qkvlib.laws import state
from qkvlib.mistakes._catalogue import Subject, obeying
from qkvlib.numpy import (
    KeyValueCache,
    causal_mask,
    rotary_angles,
    scaled_dot_product_attention,
)
from qkvlib.numpy import rotate as turn_by

# ---- with a cache --------------------------------------------------------------------------------


def _rotate(x, positions):
    cos, sin = rotary_angles(positions, x.shape[-1])
    return turn_by(x, cos, sin, pairing="interleaved")


def _reading(step):
    """`read(query, key, value, sizes)`: the steps of a text in pieces, with one cache."""

    def read(query, key, value, sizes):
        cache, outputs, start = KeyValueCache(), [], 0
        for size in sizes:
            piece = slice(start, start + size)
            query_, key_, value_ = (x[..., piece, :] for x in (query, key, value))
            outputs.append(step(query_, key_, value_, cache, rotate=_rotate))
            start += size
        return np.concatenate(outputs, axis=-2)

    return read


_generator = np.random.default_rng(17)
_TEXT = tuple(_generator.normal(size=(6, d)) for d in (4, 4, 3))
_TEXTS = tuple(_generator.normal(size=(2, 3, 5, d)) for d in (4, 4, 3))


def _pieces(text, sizes):
    return lambda step: _reading(step)(*deepcopy(text), sizes)


def _step(query, key, value, cache, *, rotate):
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = causal_mask(query.shape[-2], keys.shape[-2])
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


STEP = Subject(
    name="step with a cache",
    signature="step(query, key, value, cache, *, rotate)",
    right=_step,
    tiers=(
        (_pieces(_TEXT, (6,)), _pieces(_TEXTS, (5,))),
        (_pieces(_TEXT, (1, 1, 1, 1, 1, 1)), _pieces(_TEXTS, (4, 1))),
        (_pieces(_TEXT, (3, 1, 2)), _pieces(_TEXTS, (1, 2, 2))),
    ),
    laws=obeying(laws.CACHE_LAWS, laws.step_inputs, of=_reading),
)


@STEP.mistake(
    "The prompt is read as it should be, for there are as many queries as keys.",
    law=laws.pieces_read_as_the_whole,
    variant_of="aligned-to-the-first-key",
    reported="pytorch/pytorch#144858",
)
def mask_from_the_first_key(query, key, value, cache, *, rotate):
    """The mask is aligned to the first key: each new token reads the oldest one alone."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.tri(query.shape[-2], keys.shape[-2], dtype=bool)
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake(
    "The prompt is read as it should be, and so is the first word of the answer.",
    law=laws.pieces_read_as_the_whole,
    reported="Blaizzy/mlx-vlm#1983",
)
def positions_restart(query, key, value, cache, *, rotate):
    """Positions count from 0 in each step: all new tokens stand where the first one stands."""
    positions = np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = causal_mask(query.shape[-2], keys.shape[-2])
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake(
    "Keys stand where they should, and token by token a query is only one place off.",
    law=laws.pieces_read_as_the_whole,
    reported="microsoft/onnxruntime-genai#2354",
)
def queries_ahead_of_their_keys(query, key, value, cache, *, rotate):
    """The length is asked for after appending: queries stand one piece further on than keys."""
    places = np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, len(cache) + places), value)
    mask = causal_mask(query.shape[-2], keys.shape[-2])
    query = rotate(query, len(cache) + places)
    return scaled_dot_product_attention(query, keys, values, mask=mask)


@STEP.mistake(
    "The cache grows as it should.",
    law=laws.pieces_read_as_the_whole,
)
def appended_after_use(query, key, value, cache, *, rotate):
    """What is new is appended after attending: no new token can read itself."""
    positions = len(cache) + np.arange(query.shape[-2])
    if len(cache) == 0:
        keys, values = cache.append(rotate(key, positions), value)
    else:
        keys, values = cache.key, cache.value
        cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake(
    "The prompt is read as it should be, and each step is quick.",
    law=laws.pieces_read_as_the_whole,
)
def past_not_read(query, key, value, cache, *, rotate):
    """What is in the cache is kept and not read: each piece knows itself alone."""
    positions = len(cache) + np.arange(query.shape[-2])
    query, key = rotate(query, positions), rotate(key, positions)
    cache.append(key, value)
    return scaled_dot_product_attention(query, key, value, mask=causal_mask(query.shape[-2]))


@STEP.mistake(
    "Every token is in the cache.",
    law=laws.pieces_read_as_the_whole,
)
def appended_twice(query, key, value, cache, *, rotate):
    """One call appends and returns, another one before it has appended already."""
    positions = len(cache) + np.arange(query.shape[-2])
    cache.append(rotate(key, positions), value)
    keys, values = cache.append(rotate(key, positions), value)
    mask = causal_mask(query.shape[-2], keys.shape[-2])
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake(
    "Token by token it is right, for there is no later token yet.",
    law=laws.no_output_waits_for_later_tokens,
)
def no_mask_within_a_piece(query, key, value, cache, *, rotate):
    """Without a mask the tokens of a prompt read what comes after them."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    return scaled_dot_product_attention(rotate(query, positions), keys, values)


@STEP.mistake(
    "In pieces or as a whole, it gives the same.",
    reported="EleutherAI/gpt-neox#363",
)
def kept_keys_rotated_again(query, key, value, cache, *, rotate):
    """Keys are kept rotated and rotated once more: they seem to stand twice as far on."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    keys = rotate(keys, np.arange(len(cache)))
    mask = causal_mask(query.shape[-2], keys.shape[-2])
    return scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


# ---- in chunks -----------------------------------------------------------------------------------


def _merge(one, other):
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    safe = np.where(m == -np.inf, 0, m)
    old, new = np.exp(m_1 - safe), np.exp(m_2 - safe)
    return m, l_1 * old + l_2 * new, acc_1 * old + acc_2 * new


def _merging(*parts):
    """The probe that merges these parts and looks at all that is known afterwards."""
    return lambda merge: np.concatenate(merge(*deepcopy(parts)), axis=-1)


_SCORES, _VALUE = 2 * _generator.normal(size=(3, 6)), _generator.normal(size=(6, 2))
_EMPTY = np.where(np.arange(3)[:, None] == 1, -np.inf, _SCORES)
_SMALL_FIRST, _LARGE_FIRST, _HALF_EMPTY = (
    (state(first, _VALUE[:2]), state(second, _VALUE[2:]))
    for first, second in (
        (_SCORES[:, :2] - 4, _SCORES[:, 2:]),
        (_SCORES[:, :2] + 4, _SCORES[:, 2:]),
        (_EMPTY[:, :2], _EMPTY[:, 2:]),
    )
)
_FAR_BELOW_0 = state(_SCORES[:, :2] - 900, _VALUE[:2]), state(_SCORES[:, 2:] - 900, _VALUE[2:])

MERGE = Subject(
    name="merge of an online softmax",
    signature="merge((m, l, acc), (m, l, acc))",
    right=_merge,
    tiers=(
        (_merging(*_SMALL_FIRST), _merging(*_LARGE_FIRST)),
        (_merging(*_FAR_BELOW_0),),
        (_merging(*_HALF_EMPTY),),
    ),
    laws=obeying(laws.MERGE_LAWS, laws.part_inputs),
)


@MERGE.mistake("The weights are right: maximum and sum are.", law=laws.merged_parts_are_the_whole)
def outputs_not_rescaled(one, other):
    """The sums of values are added as they are, though the maximum under them has moved."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    safe = np.where(m == -np.inf, 0, m)
    return m, l_1 * np.exp(m_1 - safe) + l_2 * np.exp(m_2 - safe), acc_1 + acc_2


@MERGE.mistake(
    "The outputs are right: their sums are rescaled.", law=laws.merged_parts_are_the_whole
)
def sums_not_rescaled(one, other):
    """The sums of exponentials are added as they are, though the maximum has moved."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    safe = np.where(m == -np.inf, 0, m)
    return m, l_1 + l_2, acc_1 * np.exp(m_1 - safe) + acc_2 * np.exp(m_2 - safe)


@MERGE.mistake(
    "While the scores grow from part to part it is right.",
    law=laws.the_order_of_parts_does_not_matter,
)
def only_the_old_part_rescaled(one, other):
    """The new part is taken to hold the maximum."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    old = np.exp(m_1 - np.where(m == -np.inf, 0, m))
    return m, l_1 * old + l_2, acc_1 * old + acc_2


@MERGE.mistake("Two averages, of which the average is taken.", law=laws.merged_parts_are_the_whole)
def averages_averaged(one, other):
    """Each part counts the same, however much weight it holds."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    return np.maximum(m_1, m_2), (l_1 + l_2) / 2, (acc_1 + acc_2) / 2


@MERGE.mistake(
    "A maximum has to start somewhere, and exp(0) is 1.", law=laws.merged_parts_are_the_whole
)
def maximum_from_zero(one, other):
    """The maximum is never below 0: where all scores are far below, everything rounds to 0."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(np.maximum(m_1, m_2), 0)
    old, new = np.exp(m_1 - m), np.exp(m_2 - m)
    return m, l_1 * old + l_2 * new, acc_1 * old + acc_2 * new


@MERGE.mistake(
    "As long as every part has a key that may be read it is right.",
    law=laws.an_empty_part_adds_nothing,
    variant_of="empty-rows-are-nan",
    reported="flashinfer-ai/flashinfer#4401",
)
def nothing_yet_is_nan(one, other):
    """A row that has read nothing so far has -inf for its maximum: -inf less -inf."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    old, new = np.exp(m_1 - m), np.exp(m_2 - m)
    return m, l_1 * old + l_2 * new, acc_1 * old + acc_2 * new
