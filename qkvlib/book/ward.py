"""Patients drawn at random, for a doctor to be tried on: `draw` makes one for each cause.

>>> from qkvlib.diagnostics import diagnose
>>> patient = draw("over_divided", np.random.default_rng(0))
>>> diagnose(patient.model, patient.x, mask=patient.mask, loss=patient.loss).cause
'over_divided'
"""

import importlib
from typing import NamedTuple

import numpy as np

from qkvlib.book import patients
from qkvlib.diagnostics import CAUSES
from qkvlib.numpy import causal_mask, padding_mask, window_mask, xavier_uniform


class Patient(NamedTuple):
    """What the doctor is given. `loss` is a function of the output, or None."""

    model: object
    x: object
    mask: object = None
    loss: object = None


def draw(cause, generator, *, backend="numpy"):
    """A patient of random size that is ill with `cause`, a code of `qkvlib.diagnostics.CAUSES`.

    generator: a NumPy Generator; backend: "numpy" or "torch" -> `Patient`

    Texts are 8 to 64 tokens long, alone or in a batch of 3; d_model is 16 to 128, with 1 to 8
    heads, in float32 or float64 (float16 for what only half precision has, and for healthy ones).
    The layer stands alone, or in one or several blocks with the norms before or after.

    `tiny_but_learning` shows in gradients, and so in torch alone.
    """
    if cause not in CAUSES:
        raise ValueError(f"cause must be one of {', '.join(CAUSES)}, got {cause!r}")
    return getattr(Ward(generator, backend), cause)()


class Ward:
    """Makes patients: first what all are made of, then a method for each cause."""

    def __init__(self, generator, backend):
        self.generator = generator
        self.xp = importlib.import_module(backend)
        self.lib = importlib.import_module(f"qkvlib.{backend}")
        self.dtype = self.one_of("float32", "float64")
        self.sizes()

    def sizes(self, *, d_k=(2, 128), heads=(1, 8), n=(8, 64)):
        """Draw sizes within these bounds; d_model, a multiple of the heads, is 16 to 128."""
        h, widths = range(heads[0], heads[1] + 1), range(d_k[0], d_k[1] + 1)
        possible = [(h, width) for h in h for width in widths if 16 <= h * width <= 128]
        self.h, self.d_k = self.one_of(*possible)
        self.d_model = self.h * self.d_k
        self.n = int(self.generator.integers(n[0], n[1], endpoint=True))
        self.batch = self.one_of((), (1,), (3,))

    def one_of(self, *choices):
        return choices[self.generator.integers(len(choices))]

    # ---- arrays

    def array(self, x):
        """A NumPy array as the twin has it; numbers in the dtype of the patient."""
        x = x.astype(self.dtype) if x.dtype.kind == "f" else x
        return x if self.xp is np else self.xp.from_numpy(x)

    def tokens(self):
        return self.generator.normal(size=(*self.batch, self.n, self.d_model))

    def mask(self, *kinds):
        """A mask of one of these kinds: None, "causal", "window", "padding", "both", "empty"."""
        kind = self.one_of(*kinds)
        causal = causal_mask(self.n)
        if kind is None:
            return None
        if kind == "causal":
            return self.array(causal)
        if kind == "window":
            return self.array(window_mask(self.n, window=int(self.generator.integers(2, self.n))))
        if kind == "empty" and self.batch != (3,):
            causal[self.generator.integers(self.n)] = False
            return self.array(causal)
        shortest = max(2, self.n // 4)
        lengths = self.generator.integers(shortest, self.n, self.batch or 1, endpoint=True)
        lengths[0] = 0 if kind == "empty" else self.generator.integers(shortest, self.n)
        padding = padding_mask(lengths, self.n)
        padding = padding[:, None] if self.batch else padding
        return self.array(padding & causal if kind == "both" else padding)

    # ---- weights, each matrix drawn by a function of its two widths

    def xavier(self, fan_in, fan_out):
        return xavier_uniform(fan_in, fan_out, generator=self.generator)

    def small(self, fan_in, fan_out):
        return 1e-3 * self.xavier(fan_in, fan_out)

    def standard_normal(self, fan_in, fan_out):
        return self.generator.normal(size=(fan_in, fan_out))

    def zero(self, fan_in, fan_out):
        return np.zeros((fan_in, fan_out))

    def healthy_starts(self):
        normal, uniform = self.generator.normal, self.generator.uniform
        return [
            self.xavier,
            lambda a, b: normal(0, a**-0.5, (a, b)),
            lambda a, b: normal(0, 0.02, (a, b)),  # BERT, GPT-2
            lambda a, b: uniform(-(a**-0.5), a**-0.5, (a, b)),  # nn.Linear
        ]

    def weights(self, start=None, **starts):
        """The matrices of attention by name, each drawn by `start` or by one of its own."""
        draws = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), start or self.xavier) | starts
        return {name: draw(self.d_model, self.d_model) for name, draw in draws.items()}

    # ---- models

    def attention(self, weights, kind=None, **options):
        """A layer with these weights, of this kind of patient, or a healthy one."""
        layer = self.lib.MultiHeadAttention if kind is None else patients.derive(kind, self.lib)
        arrays = {name: self.array(w) for name, w in weights.items()}
        return layer.from_weights(**arrays, num_heads=self.h, **options)

    def block(self, attention, *, start=None, order=None, norm=None):
        """A block around a layer; `start` draws the other weights, `norm` stands for both norms."""
        d, d_ff, start = self.d_model, 4 * self.d_model, start or self.xavier
        arrays = (start(d, d_ff), np.zeros(d_ff), start(d_ff, d), np.zeros(d))
        feed_forward = self.lib.FeedForward.from_weights(*map(self.array, arrays))
        ones, zeros = self.array(np.ones(d)), self.array(np.zeros(d))
        norm = norm or self.lib.LayerNorm.from_weights(ones, zeros)
        order = order or self.one_of("pre", "post")
        parts = (attention, feed_forward, norm, norm)
        return self.lib.TransformerBlock.from_parts(*parts, norm=order)

    def model(self, attention, *, deepest=3, **block):
        """One layer that `attention` makes, one in a block, or up to `deepest` blocks."""
        if self.one_of(True, False, False):
            return attention()
        block = {"order": self.one_of("pre", "post")} | block
        depth = self.generator.integers(1, deepest, endpoint=True)
        blocks = [self.block(attention(), **block) for _ in range(depth)]
        return blocks[0] if depth == 1 else blocks

    def patient(self, attention, *masks, size=1.0, **model):
        """A model of such layers with something to read; any mask, if none is named."""
        masks = masks or (None, "causal", "window", "padding", "both", "empty")
        x = self.array(size * self.tokens())
        return Patient(self.model(attention, **model), x, self.mask(*masks))

    def ill(self, *kinds, masks=(), start=None, **model):
        """A model whose layers are all of one of these kinds, with usual weights otherwise."""
        kind, start = self.one_of(*kinds), start or self.one_of(*self.healthy_starts())
        model |= {"start": start}
        return self.patient(lambda: self.attention(self.weights(start), kind), *masks, **model)

    # ---- one method for each cause

    def healthy(self):
        """With usual weights, biases, shared keys, rotation, dropout, and a loss or not."""
        self.dtype = self.one_of("float16", "float32", "float64")
        start = self.one_of(*self.healthy_starts())
        of_torch = self.xp is not np
        attention = self.usual_attention(start)
        if of_torch and self.one_of(True, False, False):
            attention = self.attention_of_torch
        patient = self.patient(attention, deepest=6, start=start)
        return self.learning(patient) if of_torch and self.one_of(True, False) else patient

    def usual_attention(self, start):
        """A function that makes healthy layers, all with the same options."""
        kv_heads = self.one_of(*(h for h in range(1, self.h + 1) if self.h % h == 0))
        biased = self.one_of(True, False)
        turns = self.d_k % 2 == 0 and self.one_of(True, False)

        def attention():
            weights = self.weights(start)
            for name in ("W_K", "W_V"):
                weights[name] = start(self.d_model, kv_heads * self.d_k)
            if biased:
                weights |= {f"b_{W[2]}": start(w.shape[1], 1)[:, 0] for W, w in weights.items()}
            rotate = self.turned if turns else None
            return self.attention(weights, num_kv_heads=kv_heads, rotate=rotate)

        return attention

    def attention_of_torch(self):
        """A layer with the weights, and the dropout, that `nn.MultiheadAttention` starts with."""
        torch, sizes = self.xp, (self.d_model, self.h)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.generator.integers(2**31)))
            module = torch.nn.MultiheadAttention(*sizes, dropout=0.1, batch_first=True)
        dtype = getattr(torch, self.dtype)
        return self.lib.MultiHeadAttention.from_torch(module.to(dtype))

    def turned(self, x, positions):
        angles = self.lib.rotary_angles(positions, self.d_k)
        return self.lib.rotate(x, *angles, pairing="half")

    def learning(self, patient):
        """The patient with a loss: how far its output is from random numbers."""
        target = self.array(self.tokens())
        return patient._replace(loss=lambda output: ((output - target) ** 2).mean())

    def tiny_init(self):
        return self.patient(lambda: self.attention(self.weights(W_Q=self.small, W_K=self.small)))

    def tiny_but_learning(self):
        small = self.small
        return self.learning(self.patient(lambda: self.attention(self.weights(small)), start=small))

    def zero_saddle(self):
        patient = self.patient(lambda: self.attention(self.weights(W_Q=self.zero, W_K=self.zero)))
        return patient if self.xp is np else self.learning(patient)

    def zero_projection(self):
        zero = {self.one_of("W_Q", "W_K"): self.zero}
        return self.patient(lambda: self.attention(self.weights(**zero)))

    def over_divided(self):
        return self.ill(patients.Divided, patients.DividedThrice, patients.Heated)

    def collapsed_tokens(self):
        depth = self.generator.integers(4, 8, endpoint=True)
        layers = [self.attention(self.weights()) for _ in range(depth)]
        return Patient(layers, self.array(self.tokens()))

    def key_bias(self):
        def attention():
            bias = {"b_K": 10 * self.generator.normal(size=self.d_model)}
            return self.attention(self.weights(W_K=self.small) | bias)

        return self.patient(attention)

    def softmax_twice(self):
        return self.ill(patients.SoftmaxTwice, patients.WeightsAsScores)

    def finite_mask(self):
        return self.ill(patients.FiniteMask, masks=["empty"])

    def score_underflow(self):
        self.dtype = "float16"
        size = 5e-5 * self.d_k**-0.5  # products stay below what float16 can hold

        def tiny(fan_in, fan_out):
            return size * self.xavier(fan_in, fan_out)

        def attention():
            weights = self.weights(W_Q=tiny, W_K=tiny)
            return self.attention(weights, patients.HalfPrecision)

        return self.patient(attention, None, "causal", "window")

    def missing_scale(self):
        return self.ill(patients.Unscaled, start=self.xavier)

    def huge_init(self):
        start = self.standard_normal
        return self.patient(lambda: self.attention(self.weights(start)), start=start)

    def inverted_mask(self):
        return self.ill(patients.Inverted, masks=self.closing)

    def mask_after_softmax(self):
        return self.ill(patients.MaskAfterSoftmax, masks=self.closing)

    def multiplied_mask(self):
        return self.ill(patients.Multiplied, masks=self.closing)

    def ignored_mask(self):
        return self.ill(patients.Ignored, patients.MapOnly, masks=self.closing)

    closing = ("causal", "window", "padding", "both")

    def norm_over_tokens(self):
        block = self.block(self.attention(self.weights()), norm=patients.norm_over_tokens)
        return Patient(block, self.array(self.tokens()), self.mask("causal", "both"))

    def view_without_transpose(self):
        self.sizes(heads=(2, 8))
        if self.one_of(True, False, False):
            return self.ill(patients.MergedByView, masks=["causal"])
        return self.ill(patients.Viewed, patients.SplitByView, masks=[None, "causal"])

    def lost_tokens(self):
        """Some tokens hold one huge number, the first of a text among them, as after training."""
        block = self.block(self.attention(self.weights()), norm=patients.norm_in_half, order="pre")
        x = self.tokens()
        some = [0, *self.generator.permutation(np.arange(1, self.n))[: self.n // 4]]
        x[..., some, self.generator.integers(self.d_model)] = self.generator.uniform(1e3, 3e4)
        return Patient(block, self.array(x), self.mask(None, "causal"))

    def empty_row_nan(self):
        return self.ill(patients.Naive, masks=["empty"])

    def score_overflow(self):
        self.dtype = "float16"
        self.sizes(d_k=(8, 128))
        return self.ill(patients.HalfPrecision, start=self.xavier, size=128.0, order="post")

    def nan_outside_scores(self):
        def attention():
            weights = self.weights()
            poisoned = weights[self.one_of(*weights)]
            row = self.generator.integers(self.d_model)
            poisoned[row, self.generator.integers(self.d_model)] = self.one_of(np.nan, np.inf)
            return self.attention(weights)

        return self.patient(attention)

    def dropout_left_on(self):
        return self.ill(patients.LeftOn)

    def dropout_in_weights(self):
        return self.ill(patients.Dropped)

    def mask_on_wrong_axis(self):
        self.sizes(n=(8, 16))
        self.batch = (self.n,)
        return self.ill(patients.WrongAxis, masks=["padding"])

    def wrong_softmax_axis(self):
        return self.ill(patients.SoftmaxOverQueries, masks=[None, "causal"])
