"""The experiments of the chapters: small tasks, small models, one training loop.

mirror          four heads learn to output a sequence backwards: what do they read?
copy_previous   one head learns to output the token before each token, with matrices shared or not
loss_curve      the losses while one head learns, with the scale 1 / sqrt(d_k) or another
copy_back       copy the token some places before: what is left beyond the trained length?
watch           the entropy of the weights while four heads learn, from a good start or a bad one
learn_rules     W_Q and W_K of the running example, learned instead of written by hand
pair_before     heads learn to output the two tokens before each place: how many does it take?
two_patterns    one head learns to read by one rule at even places and by another at odd ones
repeats         layers of heads learn to continue a sequence that repeats itself
early_loss      how far heads have come after a few steps
mix_heads       four heads whose output matrix is learned, frozen or absent
six_layers      six blocks whose norms stand before their parts or after them
clinic          a module: deep models with one fault each, to be looked at, trained, looked at again
sizes           a module: narrow heads, first weights of several sizes, gradients through depth
coins           a module: models that are asked to foretell coin flips, which no model can
storyteller     a module: a small world of stories, and a decoder that learns to tell them

Every random number, weights included, comes from a NumPy Generator made from the seed.
"""

from qkvlib.book.experiments.heads import (
    Lookups,
    Repeats,
    early_loss,
    pair_before,
    repeats,
    two_patterns,
)
from qkvlib.book.experiments.lengths import Copied, copy_back
from qkvlib.book.experiments.output import mix_heads, six_layers
from qkvlib.book.experiments.reading import (
    Copying,
    Mirror,
    copy_previous,
    loss_curve,
    mirror,
)
from qkvlib.book.experiments.rules import Rules, learn_rules
from qkvlib.book.experiments.watching import Watched, watch

__all__ = [
    "mirror",
    "copy_previous",
    "loss_curve",
    "learn_rules",
    "pair_before",
    "two_patterns",
    "repeats",
    "early_loss",
    "mix_heads",
    "six_layers",
    "copy_back",
    "watch",
    "Copied",
    "Mirror",
    "Copying",
    "Watched",
    "Rules",
    "Lookups",
    "Repeats",
]
