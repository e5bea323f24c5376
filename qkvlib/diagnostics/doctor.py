"""From readings to a cause."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkvlib.diagnostics import probes
from qkvlib.diagnostics.examined import Examined
from qkvlib.diagnostics.readings import allowed_pairs, as_float64, is_torch

__all__ = ["CAUSES", "Cause", "Report", "diagnose"]


class Cause(NamedTuple):
    """What a code means, the reading that gives it away, and what to do."""

    meaning: str
    sign: str
    advice: str


CAUSES = {
    "healthy": Cause(
        "nothing found",
        "no reading is out of bounds",
        "look elsewhere: data, learning rate, or parts that only a reference can check",
    ),
    # ---- the map is grey
    "tiny_init": Cause(
        "queries and keys start so small that all scores are 0",
        "lengths of q and k far below sqrt(d_k)",
        "draw weights with variance 1 / fan_in, such as Xavier; and look at the size of x",
    ),
    "tiny_but_learning": Cause(
        "the same start, but gradients reach queries and keys: a slow start, not an illness",
        "as tiny_init, with a gradient that is not 0",
        "wait: train some hundred steps and diagnose with trained=True",
    ),
    "zero_saddle": Cause(
        "W_Q and W_K are both 0: each one's gradient contains the other, so both stay 0",
        "lengths of q and k exactly 0, gradients exactly 0",
        "give one of the two any start other than 0",
    ),
    "zero_projection": Cause(
        "queries or keys are 0, the others are not: uniform until the first steps are done",
        "length of q or of k exactly 0",
        "train some steps if it was meant; else draw that matrix like the other one",
    ),
    "over_divided": Cause(
        "the scores are divided more than once: 1 / d_k, d_k ** -1.5, or a temperature above 1",
        "q and k of normal length, scores rise far less than q k / sqrt(d_k)",
        "divide once, by sqrt(d_k)",
    ),
    "collapsed_tokens": Cause(
        "the tokens have become the same before they are compared",
        "token spread and key spread near 0, length of k normal",
        "add the residual connection x + attend(x); look at x if it is the first layer",
    ),
    "key_bias": Cause(
        "the tokens differ but the keys do not: a bias drowns what the projection says",
        "key spread near 0 while token spread is not",
        "take the key bias out (softmax does not see it) and draw W_K anew",
    ),
    "softmax_twice": Cause(
        "a softmax of weights: numbers between 0 and 1 differ too little to choose",
        "weights are softmax(softmax(scores))",
        "take one softmax out",
    ),
    "finite_mask": Cause(
        "a large negative number instead of -inf: a row with nothing to read reads the forbidden",
        "weight on forbidden keys, only in rows that may attend to nothing",
        "use a Boolean mask and give such rows weights of 0",
    ),
    "score_underflow": Cause(
        "products of small queries and keys round to 0 in this dtype",
        "scores exactly 0, q and k not 0",
        "compute scores in float32; and draw weights with variance 1 / fan_in",
    ),
    # ---- the map is one-hot
    "missing_scale": Cause(
        "the scores are not divided by sqrt(d_k)",
        "q and k of normal length, scores rise far more than q k / sqrt(d_k)",
        "divide by sqrt(d_k), or draw W_Q smaller by that factor",
    ),
    "huge_init": Cause(
        "queries and keys start so large that softmax takes one key for all",
        "lengths of q and k far above sqrt(d_k)",
        "draw weights with variance 1 / fan_in, such as Xavier; and look at the size of x",
    ),
    # ---- it is suspiciously good
    "inverted_mask": Cause(
        "the mask is used the other way round: True forbids",
        "all weight on forbidden keys",
        "pass ~mask, or mask where it is False",
    ),
    "mask_after_softmax": Cause(
        "the mask is applied to weights, and the forbidden keys stay in the denominator",
        "rows sum to less than 1",
        "set forbidden scores to -inf before softmax",
    ),
    "norm_over_tokens": Cause(
        "something outside the weights mixes tokens, such as a norm over the token axis",
        "leak, while no weight is on a forbidden key",
        "normalise each token by itself: axis=-1",
    ),
    "multiplied_mask": Cause(
        "forbidden scores are set to a number such as 0: exp(0) is 1, not 0",
        "some weight on forbidden keys, and it is not the weight without a mask",
        "set forbidden scores to -inf before softmax",
    ),
    "view_without_transpose": Cause(
        "heads are made by reshaping alone: each is a stretch of the text, not of the columns",
        "influence: tokens do not reach outputs that have a weight for them",
        "reshape to (n, h, d_k), then swap the first two of these axes",
    ),
    # ---- numbers that cannot be
    "empty_row_nan": Cause(
        "softmax of a row of -inf: 0 / 0",
        "NaN in the weights, none in the scores",
        "give a query that may attend to nothing weights of 0",
    ),
    "score_overflow": Cause(
        "the scores leave the range of their dtype",
        "NaN or infinity in the scores, before softmax",
        "scale the query before the product, compute scores in float32, look at the size of x",
    ),
    "dropout_in_weights": Cause(
        "the weights that are returned have been through dropout",
        "weights differ from call to call, some are above 1",
        "return the weights before dropout",
    ),
    "ignored_mask": Cause(
        "the mask changes nothing: padding or the future is read like the rest",
        "weights with and without the mask are the same",
        "pass the mask on to the scores",
    ),
    "mask_on_wrong_axis": Cause(
        "the mask lies along the wrong axis: equal sizes hide a missing or swapped one",
        "weights are 0 where another text's or the transposed mask says so",
        "give the mask all axes of the scores, as in mask[:, None, None, :]",
    ),
    "wrong_softmax_axis": Cause(
        "softmax runs over queries or heads instead of keys",
        "rows sum to more and to less than 1",
        "softmax over the last axis",
    ),
}
"""Every code that `diagnose` may answer with. Those of one group are easily confused."""

# ---- limits, each with what was measured on both sides -------------------------------------------

NOISE = 0.01  # of a weight, a row sum or an influence that should be 0
VARIES = 1e-3  # between two calls: healthy 0, dropout one weight at least
UNCHANGED = 1e-4  # between weights with and without a mask
ALIKE = 0.05  # token spread, key spread
TINY, LARGE = 0.03, 2.5  # length of queries and keys, by sqrt(d_k)
FLAT, SHARP = 0.5, 2.0  # standard deviation of the scores
LESS, MORE = 0.5, 2.0  # scale, by 1 / sqrt(d_k)
REACHED = 0.8  # share of the pairs with a weight
GREY = 0.99  # normalized entropy

# What holds in a layer with each cause. The first that holds is the answer.

BROKEN = {
    "score_overflow": lambda s: s.nan_in_scores > 0,
    "inverted_mask": lambda s: s.weight_on_allowed < NOISE,
    "softmax_twice": lambda s: s.is_softmax_twice,
    "empty_row_nan": lambda s: s.nan_in_weights > 0,
    "mask_on_wrong_axis": lambda s: s.weight_on_forbidden > NOISE and s.keeps_swapped_mask,
    "ignored_mask": lambda s: s.weight_on_forbidden > NOISE and s.effect_of_mask < UNCHANGED,
    "multiplied_mask": lambda s: s.weight_on_forbidden > NOISE,
    "finite_mask": lambda s: s.weight_in_empty_rows > NOISE,
    "dropout_in_weights": lambda s: s.varies > VARIES,
    "wrong_softmax_axis": lambda s: s.row_sums[1] > 1 + NOISE or s.full_row_error > NOISE,
    "mask_after_softmax": lambda s: s.row_sums[0] < 1 - NOISE,
    "zero_saddle": lambda s: s.query_rms == s.key_rms == 0,
    "zero_projection": lambda s: s.query_rms == 0 or s.key_rms == 0,
    "score_underflow": lambda s: s.score_range == 0,
}
"""Signs in scores and weights that no right layer shows, trained or not."""

OUT_OF_BOUNDS = {
    "collapsed_tokens": lambda s: s.token_spread < ALIKE and s.key_spread < ALIKE,
    "key_bias": lambda s: s.key_spread < ALIKE * s.token_spread and s.logit_std < FLAT,
    "tiny_but_learning": lambda s: s.size < TINY and s.attention_gradient > 0,
    "tiny_init": lambda s: s.size < TINY,
    "over_divided": lambda s: s.scale < LESS and s.logit_std < FLAT,
    "huge_init": lambda s: s.size > LARGE and s.logit_std > SHARP,
    "missing_scale": lambda s: s.scale > MORE and s.logit_std > SHARP,
}
"""Signs by limits for an untrained layer. A trained one is ill by them only where it is grey."""

SILENT = {
    "view_without_transpose": lambda s: s.reach < REACHED,
    "norm_over_tokens": lambda s: s.leak > NOISE,
}
"""Signs in outputs alone, where the weights look right."""

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
            lines.append(f"  {name:17} {' '.join(_short(value) for value in values)}")
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

    >>> from qkvlib.numpy import MultiHeadAttention
    >>> class Divided(MultiHeadAttention):
    ...     def attention_scores(self, x, source=None, *, bias=None):
    ...         return super().attention_scores(x, source, bias=bias) / 8
    ...     def attention_weights(self, x, source=None, *, mask=None, bias=None):
    ...         return softmax(self.attention_scores(x, source, bias=bias))
    >>> from qkvlib.numpy import softmax
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(16, 64))
    >>> diagnose(Divided(64, 1, generator=generator), x).cause
    'over_divided'
    """
    layers = _layers(model)
    _check_tokens(x)
    with probes.quiet():
        with probes.at_rest(model):
            states, weights = probes.walk(model, x, mask)
        gradients = [None] * len(layers)
        if loss is not None:
            gradients = probes.gradients(model, x, loss, mask)
        if not allowed_pairs(mask, weights[0]).any():
            raise ValueError("mask must allow some pair, got only False; True is 'may attend'")
        examined = [Examined(*parts, mask) for parts in zip(layers, states, weights, gradients)]
        cause, where = _judge(examined, trained)
        if cause == "healthy" and mask is not None and probes.leak(model, x, mask) > NOISE:
            cause = "norm_over_tokens"
        names = READINGS if loss is None else (*READINGS, "gradient", "attention_gradient")
        readings = {name: [getattr(layer, name) for layer in examined] for name in names}
    return Report(cause, readings, where)


def _judge(layers, trained):
    """The first cause that holds in the first layer where one holds, and which layer that is."""
    for number, layer in enumerate(layers):
        for code, holds in (BROKEN | OUT_OF_BOUNDS | SILENT).items():
            if _counts(code, layer, trained) and holds(layer):
                return code, number
    return "healthy", None


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
    if not probes.is_ids(x) and not np.isfinite(as_float64("x", x)).all():
        raise ValueError("x must be finite, got NaN or infinity; look where x was computed")


def _short(value):
    if isinstance(value, list | tuple):
        return "/".join(map(_short, value))
    return f"{value:.2g}"
