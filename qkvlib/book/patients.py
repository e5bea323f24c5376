"""Attention that is ill on purpose: each class differs from a healthy layer in one line.

`derive` makes a layer of either twin of it:

>>> import qkvlib.numpy
>>> from qkvlib.diagnostics import diagnose
>>> Sick = derive(MaskAfterSoftmax, qkvlib.numpy)
>>> generator = np.random.default_rng(0)
>>> layer, x = Sick(16, 4, generator=generator), generator.normal(size=(5, 16))
>>> diagnose(layer, x, mask=qkvlib.numpy.causal_mask(5)).cause
'mask_after_softmax'

The doctor sees the layer, x and the mask, and nothing of what is written here.
"""

import math
import sys

import numpy as np


def derive(kind, lib):
    """A class like `lib.MultiHeadAttention` that does what `kind`, one of those below, does.

    lib: `qkvlib.numpy` or `qkvlib.torch`. Its layers read one text or a batch, with a Boolean
    array as a mask, without bias or cache.
    """
    of_numpy = lib.__name__ == "qkvlib.numpy"
    parts = {"lib": lib, "xp": np if of_numpy else sys.modules["torch"]}
    if of_numpy:
        parts["__call__"] = kind.forward
    return type(kind.__name__, (kind, lib.MultiHeadAttention), parts)


class Open:
    """A healthy layer in steps that can be replaced one by one: scores, weights, output."""

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


# ---- scores


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


class WeightsAsScores(Open):
    def attention_scores(self, x, source=None, *, bias=None):
        return self.lib.softmax(super().attention_scores(x))


class FiniteMask(Open):
    def closed(self, scores, mask):
        return self.xp.where(mask, scores, scores - 1e9)


class Naive(Open):
    def weights(self, scores, mask):
        exponentials = self.xp.exp(self.closed(scores, mask))
        return exponentials / exponentials.sum(-1, keepdims=True)  # 0 / 0 in an empty row


class HalfPrecision(Naive):
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


class Ignored(Open):
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


class SplitByView(Open):
    def project_heads(self, x, source=None, value_source=None):
        heads = (self.lib.merge_heads(part) for part in super().project_heads(x))
        return tuple(part.reshape(*x.shape[:-2], self.num_heads, x.shape[-2], -1) for part in heads)


class MergedByView(Open):
    def merge(self, heads):
        *lead, h, n, d = heads.shape
        return heads.reshape(*lead, n, h * d)


class Viewed(SplitByView, MergedByView):
    pass


class Dropped(Open):
    lottery = np.random.default_rng(0)

    def weights(self, scores, mask):
        kept = self.lottery.random(tuple(scores.shape)) < 0.9
        return super().weights(scores, mask) * self.xp.asarray(kept) / 0.9


class MapOnly(Open):
    def forward(self, x, *, mask=None, bias=None, cache=None):
        return super().forward(x)


class LeftOn(Open):
    lottery = np.random.default_rng(0)

    def merge(self, heads):
        kept = self.lottery.random(tuple(heads.shape)) < 0.9
        return super().merge(self.xp.where(self.xp.asarray(kept), heads / 0.9, 0.0))


def norm_in_half(x):
    """A norm in float16: the mean square of a large token is infinite, and its numbers become 0."""
    half = x.astype(np.float16) if isinstance(x, np.ndarray) else x.half()
    mean_square = (half * half).mean(-1, keepdims=True)
    normed = half / (mean_square + 1e-5) ** 0.5
    return normed.astype(x.dtype) if isinstance(x, np.ndarray) else normed.to(x.dtype)


def norm_over_tokens(x):
    """A norm over the wrong axis."""
    centred = x - x.mean(-2, keepdims=True)
    return centred / ((centred**2).mean(-2, keepdims=True) + 1e-5) ** 0.5
