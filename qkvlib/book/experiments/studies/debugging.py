"""What section 7.3 reads off six heads, and off deep models before training, seed by seed.

Sizes of gradients and spreads are logarithms to base 10. What is below 1e-10 counts as 1e-10:
further down is rounding.
"""

import numpy as np

from qkvlib.book.experiments import pair_before
from qkvlib.book.experiments.watching_gradients import DEEP, deep_reader, query_gradients
from qkvlib.diagnostics import gradient_norms, head_distance, token_spread_by_depth

SEEDS = range(5)


def deep_figures(kind):
    def figures(seed):
        model = deep_reader(kind, seed)
        norms = _size(gradient_norms(*model))
        return {
            "gradient, smallest of the layers": norms.min(),
            "gradient, largest of the layers": norms.max(),
            "gradient of W_Q, last layer": _size(query_gradients(model)[-1]),
            "token spread, last layer": _size(token_spread_by_depth(*model[:2])[-1]),
        }

    return figures


def six_heads(seed):
    six, fresh = (pair_before(seed, num_heads=6, **steps) for steps in ({}, {"steps": 0}))
    jobs, distance = np.array(six.distances), head_distance(six.weights[:, 2:])
    same = jobs[:, None] == jobs
    return {
        "accuracy": six.accuracy,
        "heads that read 1 or 2 places back": np.isin(jobs, (1, 2)).sum(),
        "heads of the rarer kind": min((jobs == 1).sum(), (jobs == 2).sum()),
        "mean distance within a job": distance[same & ~np.eye(6, dtype=bool)].mean(),
        "mean distance between jobs": distance[~same].mean(),
        "mean distance, untrained": head_distance(fresh.weights[:, 2:])[
            np.triu_indices(6, 1)
        ].mean(),
    }


def _size(x):
    return np.log10(np.maximum(x, 1e-10))


EXPERIMENTS = {
    "pair_before, six heads": six_heads,
    **{f"deep_reader, {kind}": deep_figures(kind) for kind in DEEP},
}

BOUNDS = {
    "pair_before, six heads": {
        "heads that read 1 or 2 places back": "> 5.5",
        "heads of the rarer kind": "> 0.5",
        "mean distance within a job": "< 0.4",
        "mean distance between jobs": "> 0.6",
        "mean distance, untrained": "< 0.4",
    },
    "deep_reader, healthy": {
        "gradient, smallest of the layers": "> -2",
        "gradient, largest of the layers": "< 2",
        "gradient of W_Q, last layer": "> -3",
        "token spread, last layer": "> -1",
    },
    "deep_reader, no skip, no norm": {
        "gradient, smallest of the layers": "< -8",
        "gradient of W_Q, last layer": "< -8",
        "token spread, last layer": "< -8",
    },
    "deep_reader, no skip": {
        "gradient, smallest of the layers": "> -2",
        "gradient, largest of the layers": "< 2",
        "gradient of W_Q, last layer": "< -8",
        "token spread, last layer": "< -8",
    },
    "deep_reader, no queries, no keys": {
        "gradient, smallest of the layers": "> -2",
        "gradient, largest of the layers": "< 2",
        "gradient of W_Q, last layer": "< -8",
        "token spread, last layer": "> -1",
    },
}
