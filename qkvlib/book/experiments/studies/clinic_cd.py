"""What the clinic's wards C and D train, seed by seed, and what they assert of it."""

import numpy as np

import qkvlib.torch
from qkvlib.book import patients
from qkvlib.book.experiments.coins import flip_coins, told_by_row_sums
from qkvlib.diagnostics import influence, leak

SEEDS = range(5)
CAUSAL = qkvlib.torch.causal_mask(12)


def figures(coins):
    """The readings that the chapter asserts something of."""
    tokens = coins.tokens[:8]
    moved = influence(coins.encoder, tokens, CAUSAL, tokens=[0])
    return {
        "accuracy on coins": coins.accuracy,
        "leak": leak(coins.encoder, tokens, CAUSAL),
        "outputs that token 0 reaches": np.median((moved > 1e-9).sum(axis=-2)),
    }


def with_row_sums(seed):
    coins = flip_coins(seed, layer=patients.MaskAfterSoftmax)
    return figures(coins) | {"told by row sums": told_by_row_sums(coins)}


EXPERIMENTS = {
    "coins, healthy": lambda seed: figures(flip_coins(seed)),
    "coins, C1": lambda seed: figures(flip_coins(seed, layer=patients.Inverted)),
    "coins, C2": with_row_sums,
    "coins, C3": lambda seed: figures(flip_coins(seed, norm=patients.norm_over_tokens)),
    "coins, C4": lambda seed: figures(flip_coins(seed, layer=patients.Multiplied)),
    "coins, C5": lambda seed: figures(flip_coins(seed, layer=patients.Viewed)),
    "coins, labels": lambda seed: figures(flip_coins(seed, target="same", steps=100)),
}

HEALTHY = {"accuracy on coins": "< 0.12", "leak": "< 1e-05"}
SICK = {"accuracy on coins": "> 0.2", "leak": "> 0.01"}

BOUNDS = {
    "coins, healthy": HEALTHY,
    "coins, C1": SICK,
    "coins, C2": SICK | {"told by row sums": "> 0.5"},
    "coins, C3": SICK,
    "coins, C4": SICK,
    "coins, C5": HEALTHY | {"outputs that token 0 reaches": "< 4"},
    "coins, labels": {"accuracy on coins": "> 0.9", "leak": "< 1e-05"},
}
