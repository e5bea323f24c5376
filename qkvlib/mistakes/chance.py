"""Mistakes in what is drawn: starting weights, dropout, the next token."""

import math

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, call, obeying
from qkvlib.numpy import (
    attention_scores,
    attention_weights,
    softmax,
    token_probabilities,
    xavier_uniform,
)

# ---- starting weights ----------------------------------------------------------------------------


def _size(fan_in, fan_out):
    """The probe that looks at the shape, and at the deviation as a share of what it should be.

    To one digit, which chance does not reach: other numbers of the same size are as good.
    """

    def probe(draw):
        W = np.asarray(draw(fan_in, fan_out, generator=np.random.default_rng(0)))
        fits = W.shape == (fan_in, fan_out)
        return np.array([fits, np.round(W.std() * math.sqrt((fan_in + fan_out) / 2), 1)])

    return probe


def _same_again(draw):
    """The probe that draws with two seeds: are the numbers the same?"""
    one, other = (draw(5, 4, generator=np.random.default_rng(seed)) for seed in (0, 1))
    return np.array_equal(one, other)


def _one_seed(draw):
    """The probe that draws twice with one seed: are the numbers the same?"""
    one, again = (draw(5, 4, generator=np.random.default_rng(0)) for _ in range(2))
    return np.array_equal(one, again)


XAVIER = Subject(
    name="Xavier initialisation",
    signature="xavier_uniform(fan_in, fan_out, *, generator)",
    right=xavier_uniform,
    tiers=((_size(300, 100), _size(100, 300)), (_same_again,), (_one_seed,)),
    laws=obeying(laws.INITIALISATION_LAWS, laws.fan_inputs),
)


@XAVIER.mistake(
    "The numbers are small and of the right order.", law=laws.weights_have_their_variance
)
def deviation_for_the_bound(fan_in, fan_out, *, generator):
    """Uniform up to the deviation that is wanted: the variance is a third of it."""
    deviation = math.sqrt(2 / (fan_in + fan_out))
    return generator.uniform(-deviation, deviation, (fan_in, fan_out))


@XAVIER.mistake("With as many outputs as inputs it is right.", law=laws.weights_have_their_variance)
def one_fan_counted_twice(fan_in, fan_out, *, generator):
    """Only what goes in counts: gradients, which come from the other side, lose their size."""
    bound = math.sqrt(6 / (fan_in + fan_in))
    return generator.uniform(-bound, bound, (fan_in, fan_out))


@XAVIER.mistake(
    "It is the bound for the matrix that is drawn, of query, key and value in one.",
    law=laws.weights_have_their_variance,
)
def drawn_as_one_with_two_others(fan_in, fan_out, *, generator):
    """Three matrices are drawn as one that is three times as wide: each comes out too small."""
    bound = math.sqrt(6 / (fan_in + 3 * fan_out))
    return generator.uniform(-bound, bound, (fan_in, 3 * fan_out))[:, :fan_out]


@XAVIER.mistake("Numbers from -1 to 1 look harmless.", law=laws.weights_have_their_variance)
def uniform_up_to_one(fan_in, fan_out, *, generator):
    """The size does not depend on the fans: scores are huge, and every row is one-hot at birth."""
    return generator.uniform(-1, 1, (fan_in, fan_out))


@XAVIER.mistake(
    "The formula has all its parts, and on paper the fraction bar is the bracket.",
    law=laws.weights_have_their_variance,
)
def brackets_forgotten(fan_in, fan_out, *, generator):
    """Only the first fan is divided by, the other one is added: the numbers are huge."""
    bound = math.sqrt(6 / fan_in + fan_out)
    return generator.uniform(-bound, bound, (fan_in, fan_out))


@XAVIER.mistake("Where rows and columns make 6 it is right.", law=laws.weights_have_their_variance)
def no_root(fan_in, fan_out, *, generator):
    """The bound is the square of what it should be: the wider the layer, the smaller its scores."""
    bound = 6 / (fan_in + fan_out)
    return generator.uniform(-bound, bound, (fan_in, fan_out))


@XAVIER.mistake(
    "It is a recipe of its own, He's, for layers that end in a ReLU.",
    law=laws.weights_have_their_variance,
    variant_of="one-fan-counted-twice",
)
def one_fan_alone(fan_in, fan_out, *, generator):
    """The sum of both fans is divided by in Xavier's recipe, and here it is one of them."""
    bound = math.sqrt(6 / fan_in)
    return generator.uniform(-bound, bound, (fan_in, fan_out))


@XAVIER.mistake("The numbers are as they should be.", law=laws.the_generator_decides)
def drawn_from_elsewhere(fan_in, fan_out, *, generator):
    """The generator is not used: the numbers are others in each run, whatever the seed."""
    return xavier_uniform(fan_in, fan_out, generator=np.random.default_rng())


@XAVIER.mistake("Every run gives the same numbers, as it should.", law=laws.the_generator_decides)
def a_seed_of_its_own(fan_in, fan_out, *, generator):
    """The generator is not used: all layers of a size start with the same weights."""
    return xavier_uniform(fan_in, fan_out, generator=np.random.default_rng(0))


# ---- dropout -------------------------------------------------------------------------------------


def _dropout(x, rate, *, training, generator):
    if not training:
        return x
    return np.where(generator.random(x.shape) < rate, 0, x / (1 - rate))


_ONES = np.linspace(1.0, 2.0, 4000).reshape(50, 80)


def _kept(rate, training):
    """The probe that looks at the share of zeros and at the mean of what is not zero.

    To a digit that chance does not reach, for which numbers are dropped says nothing.
    """

    def probe(dropout):
        x = dropout(_ONES.copy(), rate, training=training, generator=np.random.default_rng(0))
        factor = (np.where(x == 0, np.nan, x) / _ONES).reshape(-1)
        return np.round([(x == 0).mean(), np.nanmean(factor)], 1)

    return probe


DROPOUT = Subject(
    name="dropout",
    signature="dropout(x, rate, *, training, generator)",
    right=_dropout,
    tiers=((_kept(0.2, True), _kept(0.7, True)), (_kept(0.2, False),)),
    laws=obeying(laws.DROPOUT_LAWS, laws.dropout_inputs),
)


@DROPOUT.mistake("The right share is dropped.", law=laws.dropout_keeps_the_mean)
def not_made_up_for(x, rate, *, training, generator):
    """What is kept is not made larger: after training everything is louder than it was."""
    return np.where(generator.random(x.shape) < rate, 0, x) if training else x


@DROPOUT.mistake(
    "With a rate of one half it is right, and the mean is always kept.",
    law=laws.dropout_drops_its_share,
)
def rate_of_what_is_kept(x, rate, *, training, generator):
    """The rate is taken for the share that is kept."""
    return np.where(generator.random(x.shape) < rate, x / rate, 0) if training else x


@DROPOUT.mistake(
    "In training it is right.",
    law=laws.dropout_rests_after_training,
    reported="idiap/fast-transformers#131",
)
def still_at_work_after_training(x, rate, *, training, generator):
    """Nobody says that training is over: weights of a map do not sum to 1, and vary."""
    return np.where(generator.random(x.shape) < rate, 0, x / (1 - rate))


@DROPOUT.mistake("In training it is right.", law=laws.dropout_rests_after_training)
def scaled_after_training_too(x, rate, *, training, generator):
    """Nothing is dropped after training, and all is made larger all the same."""
    kept = generator.random(x.shape) >= rate if training else 1
    return x * kept / (1 - rate)


# ---- dropout in attention ------------------------------------------------------------------------


def _attend_and_drop(query, key, value, *, drop):
    return drop(attention_weights(query, key)) @ value


def _every_third(x):
    """Dropout without chance: every third number becomes 0, the others make up for it."""
    return np.where(np.arange(x.size).reshape(x.shape) % 3 == 1, 0, 1.5 * x)


_TEXT = tuple(np.random.default_rng(5).normal(size=shape) for shape in ((3, 4), (5, 4), (5, 2)))

DROPPED_ATTENTION = Subject(
    name="attention with dropout",
    signature="attend(query, key, value, *, drop)",
    right=_attend_and_drop,
    tiers=((call(*_TEXT, drop=_every_third), call(*_TEXT, drop=np.abs)),),
    laws=obeying(laws.DROPPED_ATTENTION_LAWS, laws.dropped_inputs),
)


@DROPPED_ATTENTION.mistake(
    "Dropout is there, and rows sum to 1 whatever is dropped.",
    law=laws.what_is_dropped_is_not_read,
    variant_of="scores-multiplied-by-the-mask",
)
def scores_dropped(query, key, value, *, drop):
    """Scores are dropped, not weights: a score of 0 is a weight like any other."""
    return softmax(drop(attention_scores(query, key))) @ value


@DROPPED_ATTENTION.mistake(
    "Rows sum to 1, as rows of weights should.",
    law=laws.what_is_kept_makes_up_for_it,
    reported="facebookresearch/fairseq#351",
)
def normalised_after_dropping(query, key, value, *, drop):
    """What is left is normalised once more: the factor of the dropout is divided away."""
    weights = drop(attention_weights(query, key))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


# ---- the next token ------------------------------------------------------------------------------

_LOGITS = np.log(np.array([[0.1, 0.42, 0.03, 0.25, 0.2], [0.31, 0.02, 0.15, 0.07, 0.45]]))

TOKENS = Subject(
    name="token probabilities",
    signature="token_probabilities(logits, *, temperature=1.0, top_k=None, top_p=None)",
    right=token_probabilities,
    tiers=(
        (call(_LOGITS[0]), call(_LOGITS[1])),
        (call(_LOGITS[0], temperature=0.5), call(_LOGITS[1], temperature=2.0)),
        (call(_LOGITS[0], top_k=2), call(_LOGITS[1], top_k=3)),
        (call(_LOGITS[0], top_p=0.6), call(_LOGITS[1], top_p=0.9)),
        (
            call(_LOGITS[0], temperature=2, top_p=0.6),
            call(_LOGITS[1], temperature=0.5, top_p=0.8),
        ),
        (call(1e4 * _LOGITS[0]),),
    ),
    laws=obeying(laws.TOKEN_LAWS, laws.logit_inputs),
)


def keep_top_k(scores, top_k):
    """The scores, with -inf for all but the top_k largest."""
    return np.where(scores >= np.sort(scores)[-top_k:][0], scores, -math.inf)


def keep_top_p(scores, top_p):
    """The scores, with -inf for all but the likeliest that together reach top_p."""
    order = np.argsort(-scores)
    before = np.cumsum(softmax(scores[order])) - softmax(scores[order])
    kept = scores.copy()
    kept[order[before >= top_p]] = -math.inf
    return kept


@TOKENS.mistake(
    "At a temperature of 1 it is right, and the temperature does something.",
    law=laws.warmer_is_flatter,
)
def multiplied_by_the_temperature(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Warm is cold and cold is warm."""
    scores = logits * temperature
    scores = scores if top_k is None else keep_top_k(scores, top_k)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return softmax(scores)


@TOKENS.mistake("At a temperature of 1 it is right.", law=laws.chances_sum_to_one)
def temperature_after_the_softmax(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The probabilities are divided, not the logits: they do not sum to 1 any more."""
    scores = logits if top_k is None else keep_top_k(logits, top_k)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return softmax(scores) / temperature


@TOKENS.mistake(
    "At a temperature of 1 it is right, and text is fluent.",
    law=laws.the_kept_tokens_reach_top_p,
    reported="Blaizzy/mlx-audio#732",
)
def cut_before_the_temperature(logits, *, temperature=1.0, top_k=None, top_p=None):
    """top_p cuts at temperature 1, whatever temperature is drawn with."""
    scores = logits if top_k is None else keep_top_k(logits, top_k)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return softmax(scores / temperature)


@TOKENS.mistake(
    "What is kept has together less than top_p, as the name seems to say.",
    law=laws.the_kept_tokens_reach_top_p,
    reported="rasbt/reasoning-from-scratch#164",
)
def crossing_token_dropped(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The token with which the sum reaches top_p goes too, however likely it is."""
    scores = logits / temperature
    scores = scores if top_k is None else keep_top_k(scores, top_k)
    if top_p is not None:
        order = np.argsort(-scores)
        together = np.cumsum(softmax(scores[order]))
        scores = scores.copy()
        scores[order[1:][together[1:] > top_p]] = -math.inf
    return softmax(scores)


@TOKENS.mistake("The likeliest tokens keep the chances they had.", law=laws.chances_sum_to_one)
def not_normalised_after_the_cut(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The chances of what was cut are set to 0, and what is left does not sum to 1."""
    scores = logits / temperature
    kept = scores if top_k is None else keep_top_k(scores, top_k)
    kept = kept if top_p is None else keep_top_p(kept, top_p)
    return np.where(kept == -math.inf, 0, softmax(scores))


@TOKENS.mistake(
    "A score of 0 looks like no chance.",
    law=laws.top_k_keeps_k_tokens,
    variant_of="scores-multiplied-by-the-mask",
)
def cut_scores_set_to_zero(logits, *, temperature=1.0, top_k=None, top_p=None):
    """What is cut gets a score of 0, and with logits below 0 that is the likeliest."""
    scores = logits / temperature
    scores = scores if top_k is None else keep_top_k(scores, top_k)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return softmax(np.where(scores == -math.inf, 0, scores))


@TOKENS.mistake(
    "As many tokens are kept as should be.", law=laws.the_likeliest_token_stays_likeliest
)
def least_likely_kept(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Sorted the other way round: np.sort puts the smallest first."""
    scores = logits / temperature
    if top_k is not None:
        scores = np.where(scores <= np.sort(scores)[:top_k][-1], scores, -math.inf)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return softmax(scores)


@TOKENS.mistake(
    "The chances are the right ones, and they sum to 1.",
    law=laws.the_likeliest_token_stays_likeliest,
)
def left_in_sorted_order(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The chances stay sorted: the first token of the vocabulary gets that of the likeliest."""
    scores = logits / temperature
    scores = scores if top_k is None else keep_top_k(scores, top_k)
    if top_p is not None:
        scores = np.sort(keep_top_p(scores, top_p))[::-1]
    return softmax(scores)
