"""Models that are asked to foretell coin flips: one that can has seen the future."""

from typing import NamedTuple

import numpy as np
import torch

import qkvlib.torch
from qkvlib.book import patients
from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.reading import SIZES, TEST, draw
from qkvlib.book.experiments.training import accuracy, train

TOKENS = {"next": tasks.next_flip, "same": tasks.same_flip}


class Coins(NamedTuple):
    """What `flip_coins` found.

    accuracy: the share of tokens that were foretold, in sequences that were not trained on.
    encoder: the trained blocks, a model of `qkvlib.torch` that reads token ids.
    tokens (256, 12): those sequences, as a tensor of ids.
    """

    accuracy: float
    encoder: torch.nn.Module
    tokens: torch.Tensor


def flip_coins(seed=0, *, steps=300, layer=None, norm=None, target="next"):
    """Train two causal blocks to foretell each next token, where no token depends on another.

    Nobody can be right more often than 1 in 12 times, except by seeing the next token.

    seed: a number, or a NumPy Generator. All that is drawn is the same for all patients.
    layer: a class of `qkvlib.book.patients` for attention that is ill, None for healthy heads
    norm: a function in place of the two norms of each block, None for `LayerNorm`
    target: "next", or "same" for labels that somebody forgot to shift

    Raises `ValueError` for another target.

    >>> flip_coins(steps=0).accuracy < 0.12
    True
    """
    models.check_choice("target", target, *TOKENS)
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    blocks = [_block(for_weights, layer, norm) for _ in range(2)]
    causal = qkvlib.torch.causal_mask(tasks.LENGTH)
    model = models.stack(for_weights, blocks, **SIZES, pattern=causal)
    test = TOKENS[target](for_batches, TEST)
    train(model, draw(TOKENS[target], for_batches, steps), lr=3e-3)
    return Coins(accuracy(model, test), model[0], torch.from_numpy(test[0]))


def _block(generator, kind, norm):
    lib = qkvlib.torch
    kind = lib.MultiHeadAttention if kind is None else patients.derive(kind, lib)
    attention = models.heads(generator, 4, d_model=32, kind=kind)
    block = models.block(generator, attention)
    if norm is not None:
        block.attention_norm, block.feed_forward_norm = _Norm(norm), _Norm(norm)
    return block


class _Norm(torch.nn.Module):
    """A function as a module, which is what a block takes for a norm."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def told_by_row_sums(coins, *, place=5):
    """How many next tokens the row sums of the last block give away, and nothing else.

    For each token the mean of its row sums at this place, one number for each head, is taken
    over every second sequence; in the others, the token with the nearest means is the guess.

    -> a float: the share that was guessed right, 1 in 12 where all rows sum to 1
    """
    sums = row_sums_of(coins)[:, :, place]
    following = coins.tokens[:, place + 1].numpy()
    known, asked = slice(0, None, 2), slice(1, None, 2)
    means = [sums[known][following[known] == token].mean(axis=0) for token in range(12)]
    distances = np.linalg.norm(sums[asked][:, None] - means, axis=-1)
    return float((distances.argmin(axis=-1) == following[asked]).mean())


def row_sums_of(coins):
    """The row sums of the last block, as NumPy numbers (256, heads, 12)."""
    with torch.no_grad():
        weights = coins.encoder.trace(coins.tokens).weights
    return weights[-1].sum(dim=-1).numpy()
