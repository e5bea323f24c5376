"""One layer on the table: everything that `diagnose` wants to know of it."""

import math
from functools import cached_property

import numpy as np

from qkvlib.diagnostics import probes
from qkvlib.diagnostics.readings import (
    allowed_pairs,
    as_float64,
    forbidden_weight,
    key_spread,
    nan_share,
    normalized_entropy,
    rms,
    rounding,
    row_sums,
    score_range,
    score_scale,
    score_std,
    softmax_slope,
    token_spread,
)
from qkvlib.numpy import softmax


class Examined:
    """A layer, what goes in and comes out, its weights, and its parameters' gradients or None.

    Each reading is a number, computed when it is first asked for.
    """

    def __init__(self, layer, x, y, weights, gradients, mask):
        self._layer, self._x, self._y, self._mask = layer, x, y, mask
        self._gradients = gradients
        with probes.at_rest(layer):
            self._parts = self._query, self._key, _ = layer.project_heads(x)
            self._scores = layer.attention_scores(x)
        self._weights = weights
        self._allowed = allowed_pairs(mask, weights)
        self._choices = self._allowed.sum(axis=-1)

    # ---- queries, keys and tokens, without those of the padding

    @cached_property
    def query_rms(self):
        """The length of the queries by sqrt(d_k)."""
        return _mean(rms(self._query), self._allowed.any(axis=(-3, -1))[..., None, :])

    @cached_property
    def key_rms(self):
        """The length of the keys by sqrt(d_k)."""
        return _mean(rms(self._key), self._read[..., None, :])

    @cached_property
    def size(self):
        """Queries and keys together: the geometric mean of both."""
        return math.sqrt(self.query_rms * self.key_rms)

    @cached_property
    def key_spread(self):
        spread = key_spread(self._key, self._read[..., None, :])
        return _mean(spread, self._compares[..., None])

    @cached_property
    def token_spread(self):
        return _mean(token_spread(self._x, self._read), self._compares)

    @cached_property
    def output_spread(self):
        return _mean(token_spread(self._y, self._read), self._compares)

    @cached_property
    def _read(self):
        """The tokens that some query may read, `(..., n)`."""
        return self._allowed.any(axis=(-3, -2))

    @cached_property
    def _compares(self):
        """The texts with at least two such tokens, `(...)`."""
        return self._read.sum(axis=-1) > 1

    # ---- scores

    @cached_property
    def nan_in_scores(self):
        return nan_share(self._scores)

    @cached_property
    def score_range(self):
        return score_range(self._scores)

    @cached_property
    def score_std(self):
        """The root mean square over all rows in which there is a choice."""
        return math.sqrt(_mean(score_std(self._scores, self._mask) ** 2, self._choices > 1))

    @cached_property
    def scale(self):
        """By what the products of queries and keys are multiplied on their way into the weights."""
        return score_scale(self._query, self._key, self._scores) * self._softmax_slope

    @cached_property
    def logit_std(self):
        """The standard deviation of what softmax gets in truth: a temperature is in it."""
        return self.score_std * self._softmax_slope if self.score_std else 0.0

    @cached_property
    def _softmax_slope(self):
        slope = softmax_slope(self._scores, self._weights, self._mask)
        return 1.0 if math.isnan(slope) else slope  # one key takes all: nothing to see it by

    # ---- weights

    @cached_property
    def nan_outside_scores(self):
        """Whether q, k or v are not finite, or the output is not while the weights are."""
        if not all(map(_is_finite, self._parts)):
            return True
        weights_are_numbers = self.nan_in_scores == self.nan_in_weights == 0
        return weights_are_numbers and not _is_finite(self._y)

    @cached_property
    def nan_in_weights(self):
        return nan_share(self._weights)

    @cached_property
    def score_behind_nan(self):
        """The largest score of a row that may attend to something, and yet its weights are NaN."""
        rows = np.isnan(row_sums(self._weights)) & (self._choices > 0)
        return _largest(np.abs(as_float64("scores", self._scores)), rows[..., None])

    @cached_property
    def entropy(self):
        """The normalized entropy of each head: 1 for grey."""
        heads = np.moveaxis(normalized_entropy(self._weights, self._mask), -2, 0)
        return [_mean(head, ~np.isnan(head)) for head in heads]

    @cached_property
    def row_sums(self):
        """The lowest and the highest sum of a row that may attend to something."""
        sums = row_sums(self._weights)[self._choices > 0]
        return (float(sums.min()), float(sums.max())) if sums.size else (1.0, 1.0)

    @cached_property
    def full_row_error(self):
        """How far the sums of rows that may attend to everything are from 1."""
        full = self._choices == self._allowed.shape[-1]
        return float(np.abs(row_sums(self._weights) - 1).max(where=full, initial=0.0))

    @cached_property
    def weight_on_forbidden(self):
        """The most that a query which may attend to something spends on what it may not."""
        return _largest(self._forbidden, self._choices > 0)

    @cached_property
    def weight_in_empty_rows(self):
        """The most that a query spends which may attend to nothing."""
        return _largest(self._forbidden, self._choices == 0)

    @cached_property
    def weight_on_allowed(self):
        """The most that a query spends on what it may attend to, when that is not everything."""
        mixed = (self._choices > 0) & (self._choices < self._allowed.shape[-1])
        spent = row_sums(self._weights) - self._forbidden
        return _largest(spent, mixed)

    @cached_property
    def _forbidden(self):
        return forbidden_weight(self._weights, self._mask)

    @cached_property
    def is_deaf_to_mask(self):
        """Whether the outputs are the same with and without the mask."""
        with probes.at_rest(self._layer):
            outputs = [self._layer(self._x, mask=mask) for mask in (self._mask, None)]
        return np.array_equal(*(as_float64("the output", y) for y in outputs))

    # ---- the weights against what a mistake would make of the same scores

    @cached_property
    def is_softmax_twice(self):
        """Whether the weights are the softmax of weights, and not just as grey as that."""
        scores = as_float64("scores", self._scores)
        if scores.shape[-1] > 1 and (scores >= 0).all() and np.allclose(scores.sum(axis=-1), 1):
            return True  # what goes into softmax are weights already
        once = softmax(np.where(self._allowed, scores, -np.inf))
        masked = softmax(np.where(self._allowed, once, -np.inf))
        weights = as_float64("weights", self._weights)
        grey = self._allowed / np.maximum(self._choices, 1)[..., None]
        return any(
            10 * self._distance(weights, twice) < self._distance(masked, grey)
            for twice in (masked, softmax(once))
        )

    def _distance(self, weights, other):
        """The mean distance of two kinds of weights, in rows that may attend to something."""
        return _mean(np.abs(weights - other).sum(axis=-1), self._choices > 0)

    @cached_property
    def effect_of_mask(self):
        """How much the mask changes the weights."""
        with probes.at_rest(self._layer):
            plain = self._layer.attention_weights(self._x, mask=None)
        return _apart(self._weights, plain)

    @cached_property
    def keeps_swapped_mask(self):
        """Whether the weights keep to the mask with two of its axes taken for each other."""
        weights = as_float64("weights", self._weights)
        swapped = [self._allowed.swapaxes(0, -2), self._allowed.swapaxes(-2, -1)]
        return any(
            allowed.shape == weights.shape and weights.max(where=~allowed, initial=0.0) == 0
            for allowed in swapped
        )

    @cached_property
    def varies(self):
        """How far the weights of two calls are apart, with dropout if the model has it on."""
        return _apart(*(self._layer.attention_weights(self._x, mask=self._mask) for _ in "12"))

    # ---- probes

    @cached_property
    def unrest(self):
        """How far the outputs of two calls of a layer at rest are apart, by the largest number."""
        with probes.at_rest(self._layer):
            one, other = (
                as_float64("the output", self._layer(self._x, mask=self._mask)) for _ in "12"
            )
        apart = np.abs(one - other).max()
        return float(apart / np.abs(one).max()) if apart else 0.0

    @cached_property
    def leak(self):
        """The largest change of an output that may not depend on the token that was changed."""
        return _largest(self._moved, self._closed)

    @cached_property
    def leak_share(self):
        """The share of such outputs that changed at all."""
        return _mean(self._moved > 0, self._closed)

    @cached_property
    def reach(self):
        """The share of the pairs with a weight in which the output depends on the other token.

        NaN where the dtype is too coarse to tell: where next to the rest of the output, such as
        the residual, a token moves so little that the change may be rounded away.
        """
        claimed = as_float64("weights", self._weights).max(axis=-3) > 1e-3
        other = claimed & ~np.eye(claimed.shape[-1], dtype=bool)
        other = other[..., self._tried] & self._arrives
        moves = self._moved[other & (self._moved > 0)]
        if moves.size and np.median(moves) < rounding(self._y):
            return math.nan
        return _mean(self._moved > 0, other)

    @cached_property
    def strays(self):
        """The share of the other queries that move with a token, though they are not its own."""
        others = ~np.eye(self._query.shape[-2], dtype=bool)
        moved = [query[..., others[j]] for j, (query, *_) in zip(self._tried, self._moved_parts)]
        return float(np.mean(moved)) if others.any() else 0.0

    @cached_property
    def lost(self):
        """The share of the tokens of which nothing arrives, of those that were tried."""
        return 1.0 - float(self._arrives.mean())

    @cached_property
    def _arrives(self):
        """Of each token tried, whether another in its place changes any query, key or value."""
        return np.array([any(part.any() for part in parts) for parts in self._moved_parts])

    @cached_property
    def _moved_parts(self):
        """Which queries, keys and values `(..., h, n)` move with each of the tokens tried."""
        found = []
        with probes.at_rest(self._layer):
            for j in self._tried:
                parts = self._layer.project_heads(probes.with_another_token(self._x, j))
                pairs = zip(parts, self._parts)
                found.append([_differ(part, before).any(axis=-1) for part, before in pairs])
        return found

    @cached_property
    def _closed(self):
        return ~probes.may_reach(self._mask, self._x)[..., self._tried]

    @cached_property
    def _moved(self):
        with probes.at_rest(self._layer):
            return probes.influence(self._layer, self._x, self._mask, tokens=self._tried)

    @property
    def _tried(self):
        return probes.some_tokens(self._x)

    # ---- gradients

    @cached_property
    def gradient(self):
        """The norm of the gradient of all parameters of the layer."""
        return probes.norm(self._gradients.values())

    @cached_property
    def attention_gradient(self):
        """The gradient of what only queries and keys are made with, its norm; NaN without loss."""
        if self._gradients is None:
            return math.nan
        used = probes.attention_parameters(self._layer, self._x)
        return probes.norm(self._gradients[p] for p in used)


def _is_finite(x):
    return bool(np.isfinite(as_float64("x", x)).all())


def _mean(values, where):
    """The mean of the values that count; NaN when none does."""
    where = np.broadcast_to(where, np.shape(values))
    return float(np.mean(values, where=where)) if where.any() else math.nan


def _differ(part, before):
    return as_float64("heads", part) != as_float64("heads", before)


def _apart(weights, other):
    """The largest difference between two arrays of weights."""
    return float(np.abs(as_float64("weights", weights) - as_float64("weights", other)).max())


def _largest(values, where):
    """The largest of the values that count; 0 when none does."""
    where = np.broadcast_to(where, np.shape(values))
    return float(np.max(values, where=where, initial=0.0))
