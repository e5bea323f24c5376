"""Mistakes in what tells a token where it stands."""

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, call, obeying
from qkvlib.numpy import (
    alibi_bias,
    relative_buckets,
    rotary_angles,
    rotate,
    sinusoidal_positions,
)

# ---- rotation ------------------------------------------------------------------------------------

_X = np.random.default_rng(13).normal(size=(5, 8))


def _rope(x, positions):
    cos, sin = rotary_angles(positions, x.shape[-1])
    return rotate(x, cos, sin, pairing="interleaved")


ROTATION = Subject(
    name="rotary positions",
    signature="rope(x, positions), neighbours paired",
    right=_rope,
    tiers=(
        (call(_X, np.arange(5)), call(_X[:2, :6], np.array([7, 40]))),
        (call(_X, np.full(5, 12000)),),
        (call(_X, np.arange(12000, 12005)),),
    ),
    laws=obeying(laws.ROTATION_LAWS, laws.rotation_inputs),
)


@ROTATION.mistake(
    "Lengths are kept and scores know the distance alone: a model trained so is as good.",
    reported="EleutherAI/gpt-neox#834",
)
def halves_for_neighbours(x, positions):
    """Feature i is turned with feature i + d/2: right elsewhere, wrong for these weights."""
    cos, sin = rotary_angles(positions, x.shape[-1])
    return rotate(x, cos, sin, pairing="half")


@ROTATION.mistake("Each half of it is somebody's right code.", law=laws.rotating_keeps_lengths)
def pairings_mixed(x, positions):
    """Angles for neighbours, partners for halves: what is turned is no pair."""
    cos, sin = (np.repeat(angles, 2, axis=-1) for angles in rotary_angles(positions, x.shape[-1]))
    half = x.shape[-1] // 2
    partners = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + partners * sin


@ROTATION.mistake(
    "Each half of it is somebody's right code.",
    law=laws.rotating_keeps_lengths,
    variant_of="pairings-mixed",
)
def pairings_mixed_the_other_way(x, positions):
    """Angles for halves, partners for neighbours: the two of a pair turn by different angles."""
    cos, sin = (np.tile(angles, 2) for angles in rotary_angles(positions, x.shape[-1]))
    partners = np.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
    return x * cos + partners * sin


@ROTATION.mistake(
    "Each pair is turned as it should be, and scores do not mind the order.",
    law=laws.position_0_changes_nothing,
)
def laid_out_as_halves(x, positions):
    """Neighbours are turned, and then all first numbers stand before all second ones."""
    turned = _rope(x, positions)
    return np.concatenate([turned[..., 0::2], turned[..., 1::2]], axis=-1)


@ROTATION.mistake(
    "Both lines are those of the formula.",
    law=laws.rotating_keeps_lengths,
)
def overwritten_in_place(x, positions):
    """The second number of a pair is made from the first one after it was turned."""
    cos, sin = rotary_angles(positions, x.shape[-1])
    turned = x.copy()
    turned[..., 0::2] = turned[..., 0::2] * cos - turned[..., 1::2] * sin
    turned[..., 1::2] = turned[..., 0::2] * sin + turned[..., 1::2] * cos
    return turned


@ROTATION.mistake(
    "Where the second number of a pair is 0 it is right.",
    law=laws.rotating_keeps_lengths,
)
def both_signs_alike(x, positions):
    """Sines come in with the same sign twice: that is no turn, and lengths change."""
    cos, sin = rotary_angles(positions, x.shape[-1])
    first, second = x[..., 0::2], x[..., 1::2]
    turned = first * cos + second * sin, first * sin + second * cos
    return np.stack(turned, axis=-1).reshape(x.shape)


@ROTATION.mistake(
    "A text that is read in one piece from its start is right.",
    law=laws.position_0_changes_nothing,
)
def positions_ignored(x, positions):
    """Rows are counted from 0, whatever the positions: after a cache or a gap it is wrong."""
    return _rope(x, np.arange(x.shape[-2]))


@ROTATION.mistake(
    "In texts of up to 2048 tokens it is right.",
    reported="NVIDIA/Megatron-LM#535",
)
def positions_in_half_precision(x, positions):
    """Positions go through float16, which from 2048 on has not enough numbers: neighbours meet."""
    return _rope(x, positions.astype(np.float16).astype(np.int64))


@ROTATION.mistake("Scores know the distance alone, for query and key are turned alike.")
def turned_backwards(x, positions):
    """The other way round: with keys that somebody else has turned it does not fit."""
    cos, sin = rotary_angles(positions, x.shape[-1])
    return rotate(x, cos, -sin, pairing="interleaved")


@ROTATION.mistake("It turns, and lengths are kept.", law=laws.position_0_changes_nothing)
def cosine_and_sine_exchanged(x, positions):
    """At position 0 there is a quarter turn, and further on it goes backwards."""
    cos, sin = rotary_angles(positions, x.shape[-1])
    return rotate(x, sin, cos, pairing="interleaved")


@ROTATION.mistake("Every pair turns more slowly than the one before it.")
def half_the_exponent(x, positions):
    """The exponent is -i/d for pair i, not -2i/d: the slowest pairs turn far too fast."""
    pair = np.arange(x.shape[-1] // 2)
    angles = positions[:, None] * 10000.0 ** (-pair / x.shape[-1])
    return rotate(x, np.cos(angles), np.sin(angles), pairing="interleaved")


@ROTATION.mistake("The first pair is right, and every pair turns more slowly than the one before.")
def twice_the_exponent(x, positions):
    """Doubled twice, as where i counts in steps of 2 already: later pairs hardly turn at all."""
    pair = np.arange(x.shape[-1] // 2)
    angles = positions[:, None] * 10000.0 ** (-4 * pair / x.shape[-1])
    return rotate(x, np.cos(angles), np.sin(angles), pairing="interleaved")


@ROTATION.mistake("The first pair is right, and lengths are kept.")
def faster_and_faster(x, positions):
    """The exponent has lost its minus: each pair turns faster than the one before it."""
    pair = np.arange(x.shape[-1] // 2)
    angles = positions[:, None] * 10000.0 ** (2 * pair / x.shape[-1])
    return rotate(x, np.cos(angles), np.sin(angles), pairing="interleaved")


@ROTATION.mistake("Scores know the distance alone, as they should.")
def one_angle_for_all_pairs(x, positions):
    """All pairs turn by one angle a place: after six places the clock is round."""
    angles = positions[:, None] * np.ones(x.shape[-1] // 2)
    return rotate(x, np.cos(angles), np.sin(angles), pairing="interleaved")


@ROTATION.mistake(
    "Positions come in, and every position changes x in a way of its own.",
    law=laws.position_0_changes_nothing,
)
def added_for_turned(x, positions):
    """The waves are added to queries and keys, not used to turn them."""
    return x + sinusoidal_positions(positions.max() + 1, x.shape[-1])[positions]


@ROTATION.mistake(
    "The first token is right, and lengths are kept.",
    law=laws.rotated_scores_know_the_distance,
)
def one_row_of_angles_for_all(x, positions):
    """The table of angles has one row, and NumPy uses it for every position, without a word."""
    cos, sin = rotary_angles(positions[:1], x.shape[-1])
    first, second = x[:, 0::2], x[:, 1::2]
    turned = first * cos - second * sin, first * sin + second * cos
    return np.stack(turned, axis=-1).reshape(x.shape)


# ---- waves ---------------------------------------------------------------------------------------

SINUSOIDAL = Subject(
    name="sinusoidal positions",
    signature="sinusoidal_positions(n, d_model)",
    right=sinusoidal_positions,
    tiers=((call(5, 8), call(7, 6)),),
    laws=obeying(laws.POSITION_TABLE_LAWS, laws.table_inputs),
)


@SINUSOIDAL.mistake(
    "It waves, faster in the first columns and more slowly in the last.",
    law=laws.positions_have_one_length,
    reported="jadore801120/attention-is-all-you-need-pytorch#32",
)
def a_frequency_for_each_column(n, d_model):
    """Every column has a frequency of its own, so no cosine has the sine that belongs to it."""
    column = np.arange(d_model)
    angles = np.arange(n)[:, None] / 10000.0 ** (2 * column / d_model)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


@SINUSOIDAL.mistake("Every position has its own row.", law=laws.positions_have_one_length)
def sines_alone(n, d_model):
    """There are no cosines: how far apart two positions are depends on where they are."""
    column = np.arange(d_model)
    return np.sin(np.arange(n)[:, None] / 10000.0 ** ((column - column % 2) / d_model))


@SINUSOIDAL.mistake(
    "The same waves are there, and a model that is trained with it is as good.",
    reported="tensorops/TransformerX#115",
)
def cosines_after_all_sines(n, d_model):
    """First all the sines, then all the cosines: right elsewhere, wrong for these weights."""
    angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


@SINUSOIDAL.mistake(
    "The formula has 10000, 2i and d_model in it, and the first columns wave.",
    reported="harvardnlp/annotated-transformer#131",
)
def multiplied_for_divided(n, d_model):
    """Positions are multiplied by 10000^(2i/d), not divided: the waves are noise."""
    angles = np.arange(n)[:, None] * 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


# ---- biases --------------------------------------------------------------------------------------

ALIBI = Subject(
    name="ALiBi",
    signature="alibi_bias(num_heads, n_query, n_key)",
    right=alibi_bias,
    tiers=((call(4, 5, 5), call(8, 2, 5)), (call(6, 3, 4),)),
    laws=obeying(laws.DISTANCE_BIAS_LAWS, laws.bias_inputs),
)


def _distances(n_query, n_key):
    """How far each key is from each query, the last query standing with the last key."""
    return abs(np.arange(n_key) - np.arange(n_query)[:, None] - (n_key - n_query))


@ALIBI.mistake("Distance matters, in each head otherwise.", law=laws.nearer_keys_are_favoured)
def far_keys_favoured(num_heads, n_query, n_key):
    """The sign is lost: the longer ago, the better."""
    return -alibi_bias(num_heads, n_query, n_key)


@ALIBI.mistake(
    "With as many queries as keys it is right.",
    law=laws.a_query_alone_is_biased_as_the_last_of_many,
    variant_of="aligned-to-the-first-key",
)
def distances_from_the_first_key(num_heads, n_query, n_key):
    """The first query stands with the first key: with a cache near and far change places."""
    return alibi_bias(num_heads, n_query, n_key, offset=0)


@ALIBI.mistake("Near keys are favoured.", law=laws.heads_have_slopes_of_their_own)
def one_slope_for_all_heads(num_heads, n_query, n_key):
    """Every head forgets equally fast: none is left that looks far."""
    return np.broadcast_to(-0.5 * _distances(n_query, n_key), (num_heads, n_query, n_key))


@ALIBI.mistake(
    "Slopes fall from head to head by one factor, as they should.",
    reported="paiml/aprender#2143",
)
def slopes_from_one_on(num_heads, n_query, n_key):
    """The first slope is 1, not the factor itself: every head is one step too steep."""
    slopes = 2.0 ** (-8 * np.arange(num_heads) / num_heads)
    return -slopes[:, None, None] * _distances(n_query, n_key)


@ALIBI.mistake(
    "With 2, 4 or 8 heads it is right.",
    reported="ml-explore/mlx#3071",
)
def slopes_of_any_number_of_heads(num_heads, n_query, n_key):
    """The formula for powers of 2 is used for 6 heads too, which models are not trained with."""
    slopes = 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)
    return -slopes[:, None, None] * _distances(n_query, n_key)


_BOTH_WAYS = {"bidirectional": True, "num_buckets": 12, "max_distance": 30}
_CAUSAL = _BOTH_WAYS | {"bidirectional": False}

BUCKETS = Subject(
    name="relative buckets",
    signature="relative_buckets(distance, *, bidirectional, num_buckets, max_distance)",
    right=relative_buckets,
    tiers=(
        (call(np.arange(-9, 10), **_BOTH_WAYS), call(np.arange(-9, 10), **_CAUSAL)),
        (call(np.array([-500, -40, 40, 500]), **_BOTH_WAYS), call(np.array([-500]), **_CAUSAL)),
    ),
)


@BUCKETS.mistake("Near keys have buckets of their own, far keys share one.")
def before_and_after_alike(distance, *, bidirectional, num_buckets, max_distance):
    """The sign is lost: what comes next is taken for what came before."""
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    return relative_buckets(-abs(distance), bidirectional=bidirectional, **sizes)


@BUCKETS.mistake("Both directions have their own half of the buckets.")
def before_and_after_exchanged(distance, *, bidirectional, num_buckets, max_distance):
    """The query's position less the key's, for the key's less the query's."""
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    return relative_buckets(-distance, bidirectional=bidirectional, **sizes)


@BUCKETS.mistake(
    "In texts as long as those it was tried with it is right.", reported="huggingface/candle#1312"
)
def no_last_bucket(distance, *, bidirectional, num_buckets, max_distance):
    """Beyond max_distance the numbers go on, into the other direction's buckets or past the end."""
    buckets = num_buckets // 2 if bidirectional else num_buckets
    far = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
    exact = buckets // 2
    power = np.log(np.maximum(far, 1) / exact) / np.log(max_distance / exact)
    found = np.where(far < exact, far, exact + (power * (buckets - exact)).astype(int))
    return found + buckets * (distance > 0) if bidirectional else found
