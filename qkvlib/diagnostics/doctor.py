"""From readings to a cause."""

from dataclasses import dataclass

import numpy as np

from qkvlib import _checks
from qkvlib.diagnostics import probes
from qkvlib.diagnostics.causes import CAUSES
from qkvlib.diagnostics.examined import Examined
from qkvlib.diagnostics.readings import allowed_pairs, as_float64, is_torch

__all__ = ["Report", "diagnose"]


# ---- limits --------------------------------------------------------------------------------------
#
# With each limit what was measured on both sides of it, lowest to highest, before training, on 300
# healthy models and 80 with each cause, drawn as `qkvlib.book.ward` draws them.

NOISE = 1e-6
"""Weight on forbidden keys: healthy 0, sick 0.04 to 1 (1e-4 where 10 is subtracted). What is less
moves no output by as much as a leak does."""

SUMS = 2e-3
"""Error of a row sum: healthy 4e-7 (4e-4 where weights are float16), sick 4e-3 to 6."""

SAME = 1e-6
"""Difference of weights between two calls: healthy 0, dropout 0.02 to 1. Between calls with and
without a mask that does too little: 1e-3 to 0.9; a mask that is ignored 0."""

TINY, LARGE = 0.05, 2.5
"""Length of queries and keys by sqrt(d_k): 1e-3 times Xavier 1e-3 (standard deviation 1e-3 at
d_model 128: 0.011; 1e-3 times one of W_Q and W_K alone: 0.032), healthy 0.08 (standard deviation
0.02 at d_model 16) to 1.3, standard normal weights 4 to 11."""

LESS, MORE = 0.8, 1.25
"""Scale by 1 / sqrt(d_k): divided again 0.01 to 0.45 (0.71 where d_k is 2), healthy 1.00, not
divided 1.7 to 11 (1.4 where d_k is 2)."""

FLAT, SHARP = 0.8, 1.4
"""Standard deviation of the scores: divided again up to 0.5, healthy 0.006 to 1.45, not divided 1.6
to 10, standard normal weights 15 and more. It says nothing without a wrong scale or length: a
scale may live in W_Q."""

TALL = 11.0
"""A score whose exponential float16 cannot hold: it explains NaN, a smaller one does not."""

ALIKE = 0.02
"""Token spread, and key spread by token spread: four layers without a residual 1e-3 and less,
healthy 0.3 (0.18 after 12 blocks with norm="post", 0.023 after 24); a key bias 1e-4, healthy
0.8. With a causal mask tokens collapse slowly: 6 layers without a residual leave 0.02 to 0.2,
and are rarely found."""

LEAK = 1e-5
"""Influence of what may have none: healthy 0, sick 7e-4 to 2."""

MOST = 0.9
"""Share of the pairs with a weight whose output moves: healthy 0.99 to 1 (0 where W_O starts at 0),
heads made by reshaping 0.1 to 0.8, and 0 where there are more heads than tokens."""

EVERY = 0.97
"""Share of the forbidden outputs that a leak moves: a norm over tokens 1, reshaping up to 0.9.
Share of the queries that move with a token other than their own: healthy 0, heads split by
reshaping 0.01 to 0.2, a norm over tokens 1."""

GREY = 0.99
"""Normalized entropy of the sharpest head of a layer that is trained: MiniLM at most 0.58, SmolLM2
0.53."""

# What holds in a layer with each cause. The first that holds is the answer.

BROKEN = {
    "inverted_mask": lambda s: s.weight_on_allowed < NOISE < s.weight_on_forbidden,
    "nan_outside_scores": lambda s: s.nan_outside_scores,
    "score_overflow": lambda s: s.nan_in_scores > 0 or s.score_behind_nan > TALL,
    "softmax_twice": lambda s: s.is_softmax_twice,
    "empty_row_nan": lambda s: s.nan_in_weights > 0,
    "mask_on_wrong_axis": lambda s: s.weight_on_forbidden > NOISE and s.keeps_swapped_mask,
    "ignored_mask": lambda s: (
        (s.weight_on_forbidden > NOISE and s.effect_of_mask < SAME)
        or (s.leak > LEAK and s.is_deaf_to_mask)
    ),
    "multiplied_mask": lambda s: s.weight_on_forbidden > NOISE,
    "finite_mask": lambda s: s.weight_in_empty_rows > NOISE,
    "dropout_in_weights": lambda s: s.varies > SAME,
    "dropout_left_on": lambda s: s.unrest > LEAK,
    "wrong_softmax_axis": lambda s: s.row_sums[1] > 1 + SUMS or s.full_row_error > SUMS,
    "mask_after_softmax": lambda s: s.row_sums[0] < 1 - SUMS,
    "zero_saddle": lambda s: s.query_rms == s.key_rms == 0 and not s.token_spread < ALIKE,
    "zero_projection": lambda s: (s.query_rms == 0) != (s.key_rms == 0),
    "score_underflow": lambda s: s.score_range == 0 < s.size,
}
"""Signs in scores and weights that no right layer shows, trained or not."""

OUT_OF_BOUNDS = {
    "collapsed_tokens": lambda s: s.token_spread < ALIKE,
    "key_bias": lambda s: s.key_spread < ALIKE * s.token_spread and s.logit_std < FLAT,
    "tiny_but_learning": lambda s: s.size < TINY and s.attention_gradient > 0,
    "tiny_init": lambda s: s.size < TINY,
    "over_divided": lambda s: s.scale < LESS and s.logit_std < FLAT,
    "huge_init": lambda s: s.size > LARGE and s.logit_std > SHARP,
    "missing_scale": lambda s: s.scale > MORE and s.logit_std > SHARP,
}
"""Signs by limits for an untrained layer. A trained one is ill by them only where it is grey."""

SILENT = {
    "lost_tokens": lambda s: s.lost > 0,
    "view_without_transpose": lambda s: (
        0 < s.reach < MOST or 0 < s.strays < EVERY or (s.leak > LEAK and s.leak_share < EVERY)
    ),
    "norm_over_tokens": lambda s: s.leak > LEAK,
}
"""Signs that show when a token is replaced, where the weights look right."""

READINGS = (
    "query_rms",
    "key_rms",
    "key_spread",
    "token_spread",
    "score_std",
    "score_range",
    "scale",
    "entropy",
    "nan_in_scores",
    "nan_in_weights",
    "row_sums",
    "weight_on_forbidden",
    "leak",
    "reach",
)


@dataclass(frozen=True, repr=False)
class Report:
    """What `diagnose` found: a code of `CAUSES`, the readings, and what to do.

    cause: the code. readings: a dictionary of lists with one entry for each layer. layer: the
    first layer that shows the cause, counted from 0; None for a healthy model.
    """

    cause: str
    readings: dict
    layer: int | None

    @property
    def advice(self):
        return CAUSES[self.cause].advice

    def __repr__(self):
        where = "" if self.layer is None else f" (layer {self.layer})"
        lines = [f"{self.cause}{where}: {CAUSES[self.cause].meaning}", f"  advice: {self.advice}"]
        for name, values in self.readings.items():
            lines.append(f"  {name:19} {_short(values)}")
        return "\n".join(lines)


def diagnose(model, x, *, mask=None, loss=None, trained=False):
    """Why attention goes wrong in this model, if it does: a `Report`.

    model: a layer, a list of layers, or a whole model, of NumPy or of torch (see below)
    x: what the model reads, `(..., n, d_model)`, or token ids `(..., n)`
    mask: the mask that the model should obey, as its owner means it: True is "may attend"
    loss: torch only, a function of the output that returns one number: adds gradients
    trained: whether it has been trained. Scores and entropies that would be out of bounds
    before training are then no sign of illness, as long as the map is not grey all over.

    What is called on a model, your own class as well as those of this package:

    - a layer: `layer(x, mask=mask)`, the output; `layer.project_heads(x)`, query, key and value
      `(..., h, n, d)`; `layer.attention_scores(x)`, the scores `(..., h, n, n)` before any
      mask; `layer.attention_weights(x, mask=mask)`, what became of them;
    - a list of layers: each reads what the one before it returned;
    - a whole model: `model(x, mask=mask)`, `model.blocks`, which are layers, and
      `model.trace(x, mask=mask)`, what goes into each and comes out of the last, and the
      weights of each.

    Nothing else is looked at: no name, no weight matrix, no setting. Each call is made without
    dropout, but for one comparison of two calls. The model is left as it was.

    Raises `TypeError` for a model without these methods, a mask that is not Boolean, and a loss
    for a model that is not torch's.

    >>> from qkvlib.numpy import MultiHeadAttention, softmax
    >>> class Divided(MultiHeadAttention):
    ...     def attention_scores(self, x, source=None, *, bias=None):
    ...         return super().attention_scores(x, source, bias=bias) / 8
    ...     def attention_weights(self, x, source=None, *, mask=None, bias=None):
    ...         return softmax(self.attention_scores(x, source, bias=bias))
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(16, 64))
    >>> diagnose(Divided(64, 1, generator=generator), x).cause
    'over_divided'
    """
    layers = _layers(model)
    _check_tokens(x)
    _checks.check_flag("trained", trained)
    with probes.quiet():
        with probes.at_rest(model):
            states, weights = probes.walk(model, x, mask)
        gradients = [None] * len(layers)
        if loss is not None:
            gradients = probes.gradients(model, x, loss, mask)
        if not allowed_pairs(mask, weights[0]).any():
            raise ValueError("mask must allow some pair, got only False; True is 'may attend'")
        parts = zip(layers, states, states[1:], weights, gradients)
        examined = [Examined(*part, mask) for part in parts]
        cause, where = _judge(examined, trained)
        if cause == "healthy":
            cause = _judge_whole(model, x, mask, examined, trained)
        names = READINGS if loss is None else (*READINGS, "gradient", "attention_gradient")
        readings = {name: [getattr(layer, name) for layer in examined] for name in names}
    return Report(cause, readings, where)


def _judge(layers, trained):
    """The first cause that holds in the first layer where one holds, and which layer that is.

    A slow start is no illness: it is the answer only where nothing else is found further on.
    """
    slow_start = None
    for number, layer in enumerate(layers):
        for code, holds in (BROKEN | OUT_OF_BOUNDS | SILENT).items():
            if not (_counts(code, layer, trained) and holds(layer)):
                continue
            if code != "tiny_but_learning":
                return code, number
            slow_start = slow_start or (code, number)
            break
    return slow_start or ("healthy", None)


def _judge_whole(model, x, mask, layers, trained):
    """What no layer shows by itself: tokens alike at the end, a mask lost between the layers."""
    if len(layers) > 1 and layers[-1].output_spread < ALIKE and not trained:
        return "collapsed_tokens"
    if mask is None or probes.leak(model, x, mask) < LEAK:
        return "healthy"
    with probes.at_rest(model):
        outputs = [probes.run(model, x, m) for m in (mask, None)]
        weights = [probes.walk(model, x, m)[1][0] for m in (mask, None)]
    return "ignored_mask" if _same(*outputs) and not _same(*weights) else "norm_over_tokens"


def _same(one, other):
    return np.array_equal(*(as_float64("the output", x) for x in (one, other)))


def _counts(code, layer, trained):
    """Whether a sign counts: in a trained layer limits do not, as long as some head chooses."""
    if not trained or code not in OUT_OF_BOUNDS:
        return True
    return code != "tiny_but_learning" and min(layer.entropy) > GREY


def _layers(model):
    """The layers of the model, which must have all methods that will be called."""
    if hasattr(model, "blocks"):
        _check_methods("model", model, ["__call__", "trace"])
    layers = probes.layers_of(model)
    if not layers:
        raise ValueError("model must have at least one layer, got none; pass a layer or a list")
    for layer in layers:
        methods = ["__call__", "project_heads", "attention_scores", "attention_weights"]
        _check_methods("each layer", layer, methods)
    return layers


def _check_methods(name, owner, methods):
    missing = [method for method in methods if not callable(getattr(owner, method, None))]
    if missing:
        raise TypeError(
            f"{name} must have the methods {', '.join(methods)}, got a {type(owner).__name__} "
            f"without {', '.join(missing)}; derive it from MultiHeadAttention or TransformerBlock"
        )


def _check_tokens(x):
    if not isinstance(x, np.ndarray) and not is_torch(x):
        raise TypeError(
            f"x must be a NumPy array or a torch tensor, got {type(x).__name__}; "
            "write np.asarray(x) for a list"
        )
    if 0 in x.shape:
        raise ValueError(
            f"x must hold at least one text of at least one token, got shape {tuple(x.shape)}; "
            "there is nothing to look at"
        )
    if not probes.is_ids(x) and not np.isfinite(as_float64("x", x)).all():
        raise ValueError("x must be finite, got NaN or infinity; look where x was computed")


def _short(values):
    """The readings of a few layers one by one, those of many as lowest and highest."""
    if len(values) > 6:
        flat = np.concatenate([np.ravel(value) for value in values])
        return f"{flat.min():.2g} to {flat.max():.2g} in {len(values)} layers"
    return "  ".join("/".join(f"{number:.2g}" for number in np.ravel(value)) for value in values)
