"""What chapter 7.2 watches, seed by seed, and what it asserts of it."""

from qkvlib.book.experiments import watch
from qkvlib.book.experiments.watching import FACTORS

SEEDS = range(5)


def figures_of(start):
    def figures(seed):
        run = watch(seed, start=start)
        return {
            "entropy before training": run.entropy[0],
            "entropy after training": run.entropy[-1],
            "accuracy": run.accuracy,
        }

    return figures


EXPERIMENTS = {f"watch, {start}": figures_of(start) for start in FACTORS}

BOUNDS = {
    "watch, healthy": {
        "entropy before training": "> 0.7",
        "entropy after training": "< 0.7",
        "accuracy": "> 0.95",
    },
    "watch, tiny": {
        "entropy before training": "> 0.999",
        "entropy after training": "< 0.7",
        "accuracy": "> 0.95",
    },
    "watch, N(0, 1)": {
        "entropy before training": "< 0.1",
        "entropy after training": "< 0.1",
        "accuracy": "< 0.5",
    },
    "watch, saddle": {
        "entropy before training": "> 0.999",
        "entropy after training": "> 0.999",
        "accuracy": "< 0.5",
    },
}
