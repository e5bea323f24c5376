"""How far the experiments stay from what the chapters assert about them.

    python -m qkvlib.book.experiments.margins

measures every figure with 8 seeds, once with the fastest kernels of this processor and once with
the plainest ones that torch has, and writes `margins.json`: for each figure the bound that a
chapter asserts, if any, the smallest, mean and largest value, and the largest difference between
the two runs. It takes about six minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from qkvlib.book.example import COORDINATES, X
from qkvlib.book.experiments import copy_previous, learn_rules, loss_curve, mirror
from qkvlib.book.experiments.tasks import pronoun_sentences
from qkvlib.numpy import attention_weights

TABLE = Path(__file__).with_name("margins.json")
SEEDS = range(8)
PLAIN_KERNELS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}


def mirror_figures(seed):
    told, not_told = mirror(seed), mirror(seed, positions=None)
    uniform = mirror(seed, attention="uniform")
    return {
        "weight on the mirror token, untrained, highest head": told.before.max(),
        "weight on the mirror token, trained, mean of the heads": told.after.mean(),
        "accuracy": told.accuracy,
        "accuracy without positions": not_told.accuracy,
        "accuracy with uniform attention": uniform.accuracy,
        "without positions minus uniform": not_told.accuracy - uniform.accuracy,
    }


def copy_figures(seed):
    untied, query_key = copy_previous(seed), copy_previous(seed, tied="query-key")
    return {
        "accuracy": untied.accuracy,
        "weight on the token before": np.diag(untied.weights, -1).mean(),
        "accuracy, queries and keys tied": query_key.accuracy,
        "weight on the token itself, queries and keys tied": np.diag(query_key.weights).mean(),
        "accuracy, keys and values tied": copy_previous(seed, tied="key-value").accuracy,
    }


def loss_figures(seed):
    scaled, unscaled = loss_curve(seed), loss_curve(seed, scale=1.0)
    return {
        "loss after 60 steps": scaled[60],
        "loss after 60 steps without scale": unscaled[60],
        "last loss": scaled[-1],
        "last loss without scale": unscaled[-1],
    }


def rules_figures(seed):
    W_Q, W_K, accuracy = learn_rules(seed)
    M = W_Q @ W_K.T
    sentences, is_word, pronoun, name = pronoun_sentences()
    weights = attention_weights(sentences @ W_Q, sentences @ W_K, mask=is_word[:, None])
    he, paul = 3, 0
    pairs = [("he/she", "he/she"), ("refers", "name"), ("refers", "refers"), ("refers", "action")]
    return {
        **{f"M[{a}, {b}]": M[COORDINATES.index(a), COORDINATES.index(b)] for a, b in pairs},
        "accuracy": accuracy,
        "mean weight on the right name": weights[np.arange(len(name)), pronoun, name].mean(),
        "weight of Paul for he, running sentence": attention_weights(X @ W_Q, X @ W_K)[he, paul],
    }


EXPERIMENTS = {
    "mirror": mirror_figures,
    "copy_previous": copy_figures,
    "loss_curve": loss_figures,
    "learn_rules": rules_figures,
}

BOUNDS = {
    "mirror": {
        "weight on the mirror token, untrained, highest head": "< 0.12",
        "weight on the mirror token, trained, mean of the heads": "> 0.5",
        "accuracy": "> 0.95",
        "without positions minus uniform": "< 0.1",
    },
    "copy_previous": {
        "accuracy": "> 0.99",
        "weight on the token before": "> 0.5",
        "accuracy, queries and keys tied": "< 0.85",
        "accuracy, keys and values tied": "> 0.95",
    },
    "loss_curve": {},
    "learn_rules": {
        "M[he/she, he/she]": "> 2.5",
        "M[refers, name]": "> 1.5",
        "M[refers, refers]": "< -1",
        "mean weight on the right name": "> 0.9",
    },
}
"""What the chapters assert of these figures; the other figures they only show."""


def study(name, seeds=SEEDS):
    """The figures of one experiment, by label: one value for each seed."""
    measured = [EXPERIMENTS[name](seed) for seed in seeds]
    return {label: [float(figures[label]) for figures in measured] for label in measured[0]}


def summary(values, other):
    """The spread of `values`, one for each seed, and how far `other` is from them."""
    return {
        "min": round(min(values), 4),
        "mean": round(float(np.mean(values)), 4),
        "max": round(max(values), 4),
        "difference with plain kernels": float(f"{np.abs(np.subtract(values, other)).max():.0e}"),
    }


def room(row):
    """How far the worst seed stays on the right side of the bound; negative beyond it."""
    sign, bound = row["bound"].split()
    return row["min"] - float(bound) if sign == ">" else float(bound) - row["max"]


def main():
    fast, plain = (measured_with(kernels) for kernels in ({}, PLAIN_KERNELS))
    lines = [
        {"experiment": name, "figure": label, "bound": BOUNDS[name].get(label)}
        | summary(values, plain[name][label])
        for name, figures in fast.items()
        for label, values in figures.items()
    ]
    text = ",\n".join(json.dumps(line) for line in lines)
    TABLE.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def measured_with(kernels):
    """All figures, measured in a process of its own: torch chooses its kernels once."""
    command = "import json; from qkvlib.book.experiments.margins import *; "
    command += "print(json.dumps({name: study(name) for name in EXPERIMENTS}))"
    result = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | kernels,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(result.stdout)


if __name__ == "__main__":
    main()
