"""What the clinic's wards A and B train, seed by seed, and what they assert of it."""

import qkvlib.torch
from qkvlib.book import patients
from qkvlib.book.experiments.clinic import (
    look,
    multiplied,
    patient,
    rewired,
    score,
    spread_by_depth,
    treat,
    without_output,
)

SEEDS = range(5)

WIRINGS = {
    "x - f(x)": lambda x, read, made: x - made,
    "x + x + f(x)": lambda x, read, made: x + x + made,
    "skip behind the norm": lambda x, read, made: read + made,
}


def greyness(model, seed):
    """The lowest and the highest normalized entropy of all heads."""
    layers = look(model, seed=seed).readings["entropy"]
    return min(map(min, layers)), max(map(max, layers))


def grey(seed):
    """Patients A2 and A7, of one layer."""
    models = {
        "healthy": patient(seed, layers=1),
        "both 0": multiplied(patient(seed, layers=1), 0.0, "query", "key"),
        "query 0": multiplied(patient(seed, layers=1), 0.0, "query"),
        "all tiny": patient(seed, layers=1, std=1e-3),
    }
    figures = {}
    for name, model in models.items():
        [gradient] = look(model, seed=seed).readings["attention_gradient"]
        treat(model, seed=seed)
        figures |= {
            f"{name}, gradient above 0": float(gradient > 0),
            f"{name}, accuracy": score(model, seed=seed),
            f"{name}, stays grey": float(greyness(model, seed)[0] > 0.99),
        }
    return figures


def deep(seed):
    """The healthy model of six layers, and what a small learning rate makes of it."""
    model = patient(seed)
    sharpest, greyest = greyness(model, seed)
    before = spread_by_depth(model, seed=seed)[-1]
    treat(model, seed=seed)
    timid = patient(seed)
    treat(timid, seed=seed, lr=1e-4)
    return {
        "entropy at the start, lowest": sharpest,
        "entropy at the start, highest": greyest,
        "token spread at the start": before,
        "accuracy": score(model, seed=seed),
        "accuracy at 1e-4": score(timid, seed=seed),
    }


def no_skip(seed):
    model, slow = patient(seed, skip=False), patient(seed, skip=False)
    before = spread_by_depth(model, seed=seed)[-1]
    treat(model, seed=seed)
    treat(slow, seed=seed, lr=2e-3, steps=300)
    return {
        "token spread at the start": before,
        "stays below .4": float(score(model, seed=seed) < 0.4),
        "stays below .4 at 2e-3": float(score(slow, seed=seed) < 0.4),
    }


def post_norm(seed):
    model, slow = patient(seed, norm="post"), patient(seed, norm="post")
    before = spread_by_depth(model, seed=seed)[-1]
    treat(model, seed=seed)
    treat(slow, seed=seed, lr=2e-3, steps=300)
    long = patient(seed, norm="post")
    treat(long, seed=seed, steps=300)
    return {
        "token spread at the start": before,
        "token spread afterwards": spread_by_depth(model, seed=seed)[-1],
        "stays below .4": float(score(model, seed=seed) < 0.4),
        "stays below .4 for 300 steps": float(score(long, seed=seed) < 0.4),
        "accuracy at 2e-3": score(slow, seed=seed),
        "token spread at 2e-3": spread_by_depth(slow, seed=seed)[-1],
    }


def huge(seed):
    model = patient(seed, std=1.0)
    _, greyest = greyness(model, seed)
    before = spread_by_depth(model, seed=seed)[-1]
    treat(model, seed=seed)
    return {
        "entropy at the start, highest": greyest,
        "token spread at the start": before,
        "stays below .4": float(score(model, seed=seed) < 0.4),
    }


def no_scale(seed):
    wide = {"layers": 1, "num_heads": 1, "d_k": 256}
    unscaled = patients.derive(patients.Unscaled, qkvlib.torch)
    healthy, sick = patient(seed, **wide), patient(seed, **wide, kind=unscaled)
    [before], [sick_before] = (look(m, seed=seed).readings["score_std"] for m in (healthy, sick))
    losses, sick_losses = treat(healthy, seed=seed), treat(sick, seed=seed)
    return {
        "score std": before,
        "score std without scale": sick_before,
        "loss after 40 steps": losses[40],
        "without scale still above 1.5": float(sick_losses[40] > 1.5),
    }


def undetected(seed):
    models = {name: rewired(patient(seed, layers=2), join) for name, join in WIRINGS.items()}
    models["no W_O"] = without_output(patient(seed, layers=2))
    for model in models.values():
        treat(model, seed=seed)
    return {name: score(model, seed=seed) for name, model in models.items()}


EXPERIMENTS = {
    "grey": grey,
    "six layers": deep,
    "no skip": no_skip,
    "post-norm": post_norm,
    "standard normal weights": huge,
    "no scale": no_scale,
    "undetected by accuracy": undetected,
}

BOUNDS = {
    "grey": {
        "healthy, accuracy": "> 0.95",
        "both 0, gradient above 0": "< 0.5",
        "both 0, accuracy": "< 0.4",
        "both 0, stays grey": "> 0.5",
        "query 0, accuracy": "> 0.95",
        "all tiny, gradient above 0": "> 0.5",
        "all tiny, accuracy": "> 0.95",
        "all tiny, stays grey": "< 0.5",
    },
    "six layers": {
        "entropy at the start, lowest": "> 0.6",
        "entropy at the start, highest": "< 0.97",
        "token spread at the start": "> 0.5",
        "accuracy": "> 0.95",
        "accuracy at 1e-4": "< 0.4",
    },
    "no skip": {
        "token spread at the start": "< 1e-8",
        "stays below .4": "> 0.5",
        "stays below .4 at 2e-3": "> 0.5",
    },
    "post-norm": {
        "token spread at the start": "> 0.1",
        "token spread afterwards": "< 0.001",
        "stays below .4": "> 0.5",
        "stays below .4 for 300 steps": "> 0.5",
        "accuracy at 2e-3": "> 0.9",
        "token spread at 2e-3": "> 0.5",
    },
    "standard normal weights": {
        "entropy at the start, highest": "< 0.3",
        "token spread at the start": "> 0.3",
        "stays below .4": "> 0.5",
    },
    "no scale": {
        "score std": "< 2",
        "score std without scale": "> 10",
        "loss after 40 steps": "< 1",
        "without scale still above 1.5": "> 0.5",
    },
    "undetected by accuracy": dict.fromkeys((*WIRINGS, "no W_O"), "> 0.95"),
}
