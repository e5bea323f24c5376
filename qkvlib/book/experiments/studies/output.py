"""What chapter 5 trains, seed by seed, and what it asserts of it."""

from qkvlib.book.experiments import mix_heads, six_layers

SEEDS = range(5)


def mixing_figures(seed):
    return {
        f"accuracy, W_O {kind}": mix_heads(seed, kind) for kind in ("learned", "frozen", "absent")
    }


def depth_figures(seed):
    """Runs that fail are chaotic: of them only the band is kept, in which they all end."""
    return {
        "accuracy, norm before": six_layers(seed),
        "norm after: accuracy below 0.4": float(six_layers(seed, "post") < 0.4),
    }


EXPERIMENTS = {"mix_heads": mixing_figures, "six_layers": depth_figures}

BOUNDS = {
    "mix_heads": {
        "accuracy, W_O learned": "> 0.95",
        "accuracy, W_O frozen": "> 0.95",
        "accuracy, W_O absent": "> 0.95",
    },
    "six_layers": {
        "accuracy, norm before": "> 0.95",
        "norm after: accuracy below 0.4": "> 0.5",
    },
}
