"""Attention that is ill on purpose: each patient differs from a healthy layer in one line.

`draw` makes a patient with a given cause, of random size, for either twin, and healthy ones too:

>>> from qkvlib.diagnostics import diagnose
>>> patient = draw("mask_after_softmax", np.random.default_rng(0))
>>> diagnose(patient.model, patient.x, mask=patient.mask).cause
'mask_after_softmax'

The doctor gets the model, x and the mask, and nothing of what is written here.
"""

import importlib
import math
from typing import NamedTuple

import numpy as np

from qkvlib.diagnostics import CAUSES
from qkvlib.numpy import causal_mask, padding_mask, window_mask, xavier_uniform

# ---- one sick line each --------------------------------------------------------------------------


class Open:
    """A layer of three steps, scores, weights, output, that can be replaced one by one.

    It is derived together with the layer of a twin, `lib`; `xp` is NumPy or torch.
    """

    @property
    def d_k(self):
        return self.W_Q.shape[-1] // self.num_heads

    def forward(self, x, *, mask=None, bias=None, cache=None):
        weights = self.attention_weights(x, mask=mask)
        _, _, value = self.project_heads(x)
        return self.lib.project(self.merge(weights @ value), self.W_O, self.b_O)

    def attention_weights(self, x, source=None, *, mask=None, bias=None):
        scores = self.attention_scores(x)
        return self.weights(scores, self.xp.ones_like(scores) > 0 if mask is None else mask)

    def weights(self, scores, mask):
        return self.lib.softmax(self.closed(scores, mask))

    def closed(self, scores, mask):
        return self.xp.where(mask, scores, -math.inf)

    def merge(self, heads):
        return self.lib.merge_heads(heads)


class Divided(Open):
    def attention_scores(self, x, source=None, *, bias=None):
        return super().attention_scores(x) / math.sqrt(self.d_k)


class DividedThrice(Open):
    def attention_scores(self, x, source=None, *, bias=None):
        return super().attention_scores(x) / self.d_k


class Heated(Open):
    def weights(self, scores, mask):
        return super().weights(scores / 100, mask)


class Unscaled(Open):
    def attention_scores(self, x, source=None, *, bias=None):
        return super().attention_scores(x) * math.sqrt(self.d_k)


class SoftmaxTwice(Open):
    def weights(self, scores, mask):
        return super().weights(super().weights(scores, mask), mask)


class FiniteMask(Open):
    def closed(self, scores, mask):
        return self.xp.where(mask, scores, scores - 1e9)


class Naive(Open):
    def weights(self, scores, mask):
        exponentials = self.xp.exp(self.closed(scores, mask))
        return exponentials / exponentials.sum(-1, keepdims=True)  # 0 / 0 in an empty row


class Half(Naive):
    def attention_scores(self, x, source=None, *, bias=None):
        query, key, _ = self.project_heads(x)
        return query @ key.swapaxes(-2, -1) / math.sqrt(self.d_k)  # all in float16


class Inverted(Open):
    def weights(self, scores, mask):
        return super().weights(scores, ~mask)


class MaskAfterSoftmax(Open):
    def weights(self, scores, mask):
        return self.lib.softmax(scores) * mask


class Multiplied(Open):
    def closed(self, scores, mask):
        return scores * mask


class Ignoring(Open):
    def closed(self, scores, mask):
        return scores


class WrongAxis(Open):
    def closed(self, scores, mask):
        if mask.ndim == 4 and mask.shape[1:3] == (1, 1):
            mask = mask[:, 0, 0]  # (batch, n), which broadcasts as (n_query, n_key)
        return super().closed(scores, mask)


class SoftmaxOverQueries(Open):
    def weights(self, scores, mask):
        return self.lib.softmax(self.closed(scores, mask), axis=-2)


class Viewed(Open):
    def project_heads(self, x, source=None, value_source=None):
        heads = (self.lib.merge_heads(part) for part in super().project_heads(x))
        return tuple(part.reshape(*x.shape[:-2], self.num_heads, x.shape[-2], -1) for part in heads)

    def merge(self, heads):
        *lead, h, n, d = heads.shape
        return heads.reshape(*lead, n, h * d)


class Dropped(Open):
    def weights(self, scores, mask):
        weights = super().weights(scores, mask)
        kept = self.generator.random(tuple(weights.shape)) < 0.9
        return weights * (weights.new_tensor(kept) if self.xp is not np else kept) / 0.9


def norm_over_tokens(x):
    """A norm over the wrong axis."""
    centred = x - x.mean(-2, keepdims=True)
    return centred / ((centred**2).mean(-2, keepdims=True) + 1e-5) ** 0.5


# ---- putting patients together -------------------------------------------------------------------


class Patient(NamedTuple):
    """What the doctor is given. `loss` is a function of the output, or None."""

    model: object
    x: object
    mask: object = None
    loss: object = None


def draw(cause, generator, *, backend="numpy"):
    """A patient of random size that is ill with `cause`, a code of `qkvlib.diagnostics.CAUSES`.

    generator: a NumPy Generator; backend: "numpy" or "torch" -> `Patient`

    Texts are 8 to 64 tokens long, d_model is 16 to 128, with 1 to 8 heads, in float32 or float64
    (float16 for what only half precision has). The layer stands alone or in a block with the
    norm before or after, or in several blocks one after another.
    """
    if cause not in CAUSES:
        raise ValueError(f"cause must be one of {', '.join(CAUSES)}, got {cause!r}")
    return getattr(Ward(generator, backend), cause)()


class Ward:
    """Makes patients: a method for each cause, and what the methods share."""

    def __init__(self, generator, backend):
        self.generator, self.choose = generator, generator.choice
        self.xp = importlib.import_module(backend)
        self.lib = importlib.import_module(f"qkvlib.{backend}")
        self.dtype = str(self.choose(["float32", "float64"]))
        self.sizes()

    def sizes(self, *, d_k=(2, 128), heads=(1, 8), n=(8, 64)):
        """Draw sizes within these bounds; d_model, a multiple of the heads, is 16 to 128."""
        possible = [
            (h, width)
            for h in range(heads[0], heads[1] + 1)
            for width in range(d_k[0], d_k[1] + 1)
            if 16 <= h * width <= 128
        ]
        self.h, self.d_k = map(int, self.choose(possible))
        self.d_model = self.h * self.d_k
        self.n = int(self.generator.integers(n[0], n[1], endpoint=True))
        self.batch = [(), (1,), (3,)][self.generator.integers(3)]

    # ---- parts

    def array(self, x):
        """A NumPy array as the twin has it; numbers in the dtype of the patient."""
        x = x.astype(self.dtype) if x.dtype.kind == "f" else x
        return x if self.xp is np else self.xp.from_numpy(x)

    def tokens(self):
        return self.generator.normal(size=(*self.batch, self.n, self.d_model))

    def xavier(self, fan_in, fan_out):
        return xavier_uniform(fan_in, fan_out, generator=self.generator)

    def matrices(self, start=None):
        """The weights of attention by name, each drawn by `start(fan_in, fan_out)`."""
        start = start or self.xavier
        return {name: start(self.d_model, self.d_model) for name in ("W_Q", "W_K", "W_V", "W_O")}

    def attention(self, kind=None, **weights):
        """A layer of this kind, with some weights in place of those drawn."""
        base = self.lib.MultiHeadAttention
        if kind is not None:
            own = {"lib": self.lib, "xp": self.xp, "generator": self.generator}
            own |= {"__call__": kind.forward} if self.xp is np else {}
            base = type(kind.__name__, (kind, base), own)
        arrays = {name: self.array(w) for name, w in (self.matrices() | weights).items()}
        return base.from_weights(**arrays, num_heads=self.h)

    def block(self, attention, *, start=None, order=None, norm=None):
        d, d_ff = self.d_model, 4 * self.d_model
        start = start or self.xavier
        feed_forward = self.lib.FeedForward.from_weights(
            *(self.array(w) for w in (start(d, d_ff), np.zeros(d_ff), start(d_ff, d), np.zeros(d)))
        )
        one, zero = self.array(np.ones(d)), self.array(np.zeros(d))
        norms = [norm or self.lib.LayerNorm.from_weights(one, zero) for _ in "12"]
        order = order or str(self.choose(["pre", "post"]))
        return self.lib.TransformerBlock.from_parts(attention, feed_forward, *norms, norm=order)

    def model(self, attention, **block):
        """The layers that `attention` makes: one alone, one in a block, or two or three blocks."""
        shape = self.choose(["layer", "block", "blocks"])
        if shape == "layer":
            return attention()
        if shape == "block":
            return self.block(attention(), **block)
        order = str(self.choose(["pre", "post"]))
        count = self.generator.integers(2, 3, endpoint=True)
        return [self.block(attention(), **({"order": order} | block)) for _ in range(count)]

    def mask(self, *kinds):
        """A mask of one of these kinds: None, "causal", "window", "padding", "empty", "both"."""
        kind = kinds[self.generator.integers(len(kinds))]
        if kind is None:
            return None
        if kind == "causal":
            return self.array(causal_mask(self.n))
        if kind == "empty" and self.batch in ((), (1,)):
            mask = causal_mask(self.n)
            mask[self.generator.integers(self.n)] = False
            return self.array(mask)
        if kind == "window":
            return self.array(window_mask(self.n, window=int(self.generator.integers(2, self.n))))
        shortest = max(2, self.n // 4)
        lengths = self.generator.integers(shortest, self.n, size=self.batch or 1, endpoint=True)
        lengths[0] = 0 if kind == "empty" else self.generator.integers(shortest, self.n)
        mask = padding_mask(lengths, self.n)
        mask = mask[:, None] if self.batch else mask
        return self.array(mask & causal_mask(self.n) if kind == "both" else mask)

    def patient(self, attention, *masks, size=1.0, **block):
        masks = masks or (None, "causal", "window", "padding", "empty", "both")
        x = self.array(size * self.tokens())
        return Patient(self.model(attention, **block), x, self.mask(*masks))

    # ---- one method for each cause

    def healthy(self):
        start = self.starts[self.choose(list(self.starts))]
        self.dtype = str(self.choose(["float16", "float32", "float64"]))
        return self.patient(lambda: self.attention(**self.matrices(start)), start=start)

    @property
    def starts(self):
        """How healthy weights are drawn: `start(fan_in, fan_out)`."""
        normal, uniform = self.generator.normal, self.generator.uniform
        return {
            "Xavier": self.xavier,
            "BERT, GPT-2": lambda a, b: normal(0, 0.02, (a, b)),
            "nn.Linear": lambda a, b: uniform(-(a**-0.5), a**-0.5, (a, b)),
            "nn.MultiheadAttention": lambda a, b: self.xavier(a, 3 * b)[:, :b],
            "1 / fan_in": lambda a, b: normal(0, a**-0.5, (a, b)),
        }

    def tiny_init(self):
        def attention():
            W = self.matrices()
            return self.attention(**W | {"W_Q": 1e-3 * W["W_Q"], "W_K": 1e-3 * W["W_K"]})

        return self.patient(attention)

    def tiny_but_learning(self):
        def start(a, b):
            return 1e-3 * self.xavier(a, b)

        return self.learning(
            self.patient(lambda: self.attention(**self.matrices(start)), start=start)
        )

    def learning(self, patient):
        """The patient with a loss: the mean square distance of its output from random numbers."""
        target = self.array(self.tokens())
        return patient._replace(loss=lambda output: ((output - target) ** 2).mean())

    def zero_saddle(self):
        zero = np.zeros((self.d_model, self.d_model))
        return self.patient(lambda: self.attention(W_Q=zero, W_K=zero))

    def zero_projection(self):
        zero = {str(self.choose(["W_Q", "W_K"])): np.zeros((self.d_model, self.d_model))}
        return self.patient(lambda: self.attention(**zero))

    def over_divided(self):
        self.sizes(d_k=(16, 128))
        kind = [Divided, DividedThrice, Heated][self.generator.integers(3)]
        return self.patient(lambda: self.attention(kind))

    def collapsed_tokens(self):
        layers = [self.attention() for _ in range(self.generator.integers(4, 8, endpoint=True))]
        return Patient(layers, self.array(self.tokens()), self.mask(None))

    def key_bias(self):
        def attention():
            W = self.matrices()
            biases = {f"b_{letter}": np.zeros(self.d_model) for letter in "QVO"}
            bias = 10 * self.generator.normal(size=self.d_model)
            return self.attention(**W | biases | {"W_K": 1e-3 * W["W_K"], "b_K": bias})

        return self.patient(attention)

    def softmax_twice(self):
        return self.patient(lambda: self.attention(SoftmaxTwice))

    def finite_mask(self):
        return self.patient(lambda: self.attention(FiniteMask), "empty")

    def score_underflow(self):
        self.dtype = "float16"

        def attention():
            W = self.matrices()
            small = 5e-5 / self.d_k**0.5
            return self.attention(Half, **W | {"W_Q": small * W["W_Q"], "W_K": small * W["W_K"]})

        return self.patient(attention, None, "causal", "window")

    def missing_scale(self):
        self.sizes(d_k=(16, 128))
        return self.patient(lambda: self.attention(Unscaled))

    def huge_init(self):
        def start(a, b):
            return self.generator.normal(size=(a, b))

        return self.patient(lambda: self.attention(**self.matrices(start)), start=start)

    def inverted_mask(self):
        return self.patient(lambda: self.attention(Inverted), *self.closing)

    def mask_after_softmax(self):
        return self.patient(lambda: self.attention(MaskAfterSoftmax), *self.closing)

    def multiplied_mask(self):
        return self.patient(lambda: self.attention(Multiplied), *self.closing)

    def ignored_mask(self):
        return self.patient(lambda: self.attention(Ignoring), *self.closing)

    closing = ("causal", "window", "padding", "both")

    def norm_over_tokens(self):
        model = self.block(self.attention(), norm=norm_over_tokens)
        return Patient(model, self.array(self.tokens()), self.mask("causal", "both"))

    def view_without_transpose(self):
        self.sizes(heads=(2, 8))
        return self.patient(lambda: self.attention(Viewed), None, "causal")

    def empty_row_nan(self):
        return self.patient(lambda: self.attention(Naive), "empty")

    def score_overflow(self):
        self.dtype = "float16"
        self.sizes(d_k=(8, 128))
        return self.patient(lambda: self.attention(Half), size=128.0, order="post")

    def dropout_in_weights(self):
        return self.patient(lambda: self.attention(Dropped))

    def mask_on_wrong_axis(self):
        self.sizes(n=(8, 16))
        self.batch = (self.n,)
        return self.patient(lambda: self.attention(WrongAxis), "padding")

    def wrong_softmax_axis(self):
        return self.patient(lambda: self.attention(SoftmaxOverQueries), None, "causal")
