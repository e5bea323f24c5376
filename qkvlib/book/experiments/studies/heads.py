"""What chapter 4 trains, seed by seed, and what it asserts of it."""

import numpy as np

from qkvlib.book.experiments import early_loss, pair_before, repeats, two_patterns

SEEDS = range(5)
HEADS = (1, 2, 4, 8)


def pair_figures(seed):
    found = {h: pair_before(seed, num_heads=h) for h in (1, 2, 4, 12, 24)}
    return {
        **{f"both right, heads: {h}": lookups.accuracy for h, lookups in found.items()},
        "both right, heads: 24, keys of 2": pair_before(seed, num_heads=24, d_k=2).accuracy,
        "two heads read one and two back": float(sorted(found[2].distances) == [1, 2]),
        "different distances of four heads": len(set(found[4].distances)),
    }


def two_patterns_figures(seed):
    found = two_patterns(seed)
    even, odd = range(2, 12, 2), range(3, 12, 2)
    [weights] = found.weights
    return {
        "accuracy": found.accuracy,
        "even places, weight on the token before": np.mean([weights[i, i - 1] for i in even]),
        "odd places, weight on the first token": np.mean([weights[i, 0] for i in odd]),
    }


def repeats_figures(seed):
    wide, deep = repeats(seed, layers=1, num_heads=2), repeats(seed, layers=2)
    fixed = repeats(seed, layers=1, num_heads=2, period=9, steps=100)
    below, above = deep.weights[:, 0]
    return {
        "one layer, seen periods": wide.seen,
        "one layer, unseen period": wide.unseen,
        "two layers, seen periods": deep.seen,
        "two layers, unseen period": deep.unseen,
        "one layer, one period, that period": fixed.seen,
        "one layer, one period, another": fixed.unseen,
        "lower head, first round, weight on the token before": np.diagonal(below[:9], -1).mean(),
        "upper head, later rounds, weight on what came next": followers(above).mean(),
    }


def followers(weights, period=9):
    """For each place of the later rounds the weight on what came after the same token before."""
    n = len(weights)
    return np.array([weights[i, i + 1 - period :: -period].sum() for i in range(period, n)])


def early_loss_figures(seed):
    return {
        f"{task}, heads: {h}": early_loss(task, seed, num_heads=h)
        for task in ("backwards", "pair")
        for h in HEADS
    }


EXPERIMENTS = {
    "pair_before": pair_figures,
    "two_patterns": two_patterns_figures,
    "repeats": repeats_figures,
    "early_loss": early_loss_figures,
}

BOUNDS = {
    "pair_before": {
        "both right, heads: 1": "< 0.5",
        "both right, heads: 2": "> 0.99",
        "both right, heads: 4": "> 0.99",
        "both right, heads: 12": "> 0.99",
        "both right, heads: 24": "< 0.8",
        "both right, heads: 24, keys of 2": "> 0.95",
        "two heads read one and two back": "> 0.5",
        "different distances of four heads": "< 2.5",
    },
    "two_patterns": {"accuracy": "> 0.95"},
    "repeats": {
        "one layer, seen periods": "< 0.6",
        "one layer, unseen period": "< 0.3",
        "two layers, seen periods": "> 0.95",
        "two layers, unseen period": "> 0.9",
        "one layer, one period, that period": "> 0.95",
        "one layer, one period, another": "< 0.3",
        "lower head, first round, weight on the token before": "> 0.4",
        "upper head, later rounds, weight on what came next": "> 0.9",
    },
    "early_loss": {},
}
