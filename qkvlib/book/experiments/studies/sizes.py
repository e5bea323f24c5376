"""The figures behind chapters 6.1 and 6.2, and what the chapters assert about them."""

import numpy as np

from qkvlib.book.experiments import loss_curve
from qkvlib.book.experiments.sizes import flow, learn_from, narrow_head, scale_in_the_weights

SEEDS = range(5)


def narrow_figures(seed):
    narrow = {d_k: narrow_head(seed, d_k=d_k) for d_k in (1, 2, 4, 16)}
    names = {
        "accuracy": "accuracy",
        "effective": "effective keys",
        "found": "right place read most",
    }
    return {
        f"{name}, d_k {d_k}": getattr(found, field)
        for field, name in names.items()
        for d_k, found in narrow.items()
    }


def start_figures(seed):
    healthy, small, tiny = (learn_from(std, seed) for std in (None, 0.02, 0.001))
    large = learn_from(1.0, seed, steps=300)
    large_scores = learn_from(1.0, seed, steps=300, part="query-key")
    return {
        "accuracy": healthy.accuracy,
        "accuracy, std 0.02": small.accuracy,
        "accuracy, std 0.001": tiny.accuracy,
        "accuracy below 0.4 after 300 steps, std 1": float(large.accuracy < 0.4),
        "accuracy above 0.9 after 300 steps, W_Q and W_K 1": float(large_scores.accuracy > 0.9),
        "loss after 60 steps": healthy.losses[60],
        "loss after 60 steps, std 0.02": small.losses[60],
        "loss after 60 steps, std 0.001": tiny.losses[60],
    }


def scale_figures(seed):
    curves = {
        factor: loss_curve(seed, steps=60, d_k=64, scale=factor / 8)
        for factor in (1, 0.9, 1.1, 1 / 64, 1 / 8, 8, 64)
    }
    steps = {factor: np.argmax(losses < 0.5) for factor, losses in curves.items()}
    moved = scale_in_the_weights(seed)
    return {
        "loss after 60 steps": curves[1][-1],
        "steps with 0.9, share of those with 1": steps[0.9] / steps[1],
        "steps with 1.1, share of those with 1": steps[1.1] / steps[1],
        "loss after 60 steps, 64 times too small": curves[1 / 64][-1],
        "loss after 60 steps, 8 times too small": curves[1 / 8][-1],
        "loss after 60 steps, 8 times too large": curves[8][-1],
        "loss after 60 steps, 64 times too large": curves[64][-1],
        "first loss, scale in the weights, difference": abs(moved[0] - curves[1][0]),
        "loss after 60 steps, scale in the weights": moved[-1],
    }


def flow_figures(seed):
    small = 1 / np.sqrt(3)
    cases = {
        "small start, no skip": flow(seed, skip=False, norm=None, gain=small),
        "small start, skip": flow(seed, skip=True, norm=None, gain=small),
        "larger start, no skip": flow(seed, skip=False, norm=None),
        "larger start, skip": flow(seed, skip=True, norm=None),
        "norm, no skip": flow(seed, skip=False, norm="pre"),
        "norm and skip": flow(seed, skip=True, norm="pre"),
    }
    figures = {
        f"log10 of first / last gradient, {name}": np.log10(each.gradients[0] / each.gradients[-1])
        for name, each in cases.items()
    }
    collapsed = cases["norm, no skip"]
    return figures | {
        "spread below 1e-8, norm, no skip": float(collapsed.spread[-1] < 1e-8),
        "gradient of the last W_Q below 1e-8, norm, no skip": float(collapsed.query[-1] < 1e-8),
        "spread, norm and skip": cases["norm and skip"].spread[-1],
    }


EXPERIMENTS = {
    "narrow_head": narrow_figures,
    "learn_from": start_figures,
    "scale": scale_figures,
    "flow": flow_figures,
}

BOUNDS = {
    "narrow_head": {
        "accuracy, d_k 1": "< 0.75",
        "accuracy, d_k 4": "> 0.95",
        "effective keys, d_k 1": "> 4",
        "effective keys, d_k 4": "< 3",
        "right place read most, d_k 1": "< 0.25",
        "right place read most, d_k 4": "> 0.9",
    },
    "learn_from": {
        "accuracy": "> 0.95",
        "accuracy, std 0.02": "> 0.95",
        "accuracy, std 0.001": "> 0.95",
        "accuracy below 0.4 after 300 steps, std 1": "> 0.5",
        "accuracy above 0.9 after 300 steps, W_Q and W_K 1": "> 0.5",
    },
    "scale": {
        "loss after 60 steps": "< 0.5",
        "steps with 0.9, share of those with 1": "< 1.1",
        "steps with 1.1, share of those with 1": "< 1.1",
        "loss after 60 steps, 64 times too small": "> 1",
        "loss after 60 steps, 64 times too large": "> 1",
        "first loss, scale in the weights, difference": "< 1e-5",
        "loss after 60 steps, scale in the weights": "< 0.5",
    },
    "flow": {
        "log10 of first / last gradient, small start, no skip": "< -10",
        "log10 of first / last gradient, small start, skip": "< 0.5",
        "log10 of first / last gradient, larger start, no skip": "< -3",
        "log10 of first / last gradient, larger start, skip": "> 3",
        "log10 of first / last gradient, norm, no skip": "> -3",
        "spread below 1e-8, norm, no skip": "> 0.5",
        "gradient of the last W_Q below 1e-8, norm, no skip": "> 0.5",
        "spread, norm and skip": "> 0.2",
    },
}
