"""What the chapter on long sequences trains, seed by seed, and what it asserts of it."""

from qkvlib.book.experiments.lengths import copy_back

SEEDS = range(5)


def positions_figures(seed):
    learned, bias = copy_back(seed), copy_back(seed, positions="bias")
    alibi = copy_back(seed, positions="alibi")
    return {
        "learned, inside": learned.inside,
        "learned, twice as far": learned.outside,
        "rows moved, inside": learned.moved[:24].min(),
        "rows moved, beyond": learned.moved[24:].max(),
        "sinusoidal, twice as far": copy_back(seed, positions="sinusoidal").outside,
        "bias, inside": bias.inside,
        "bias, twice as far": bias.outside,
        "alibi, inside": alibi.inside,
        "alibi, twice as far": alibi.outside,
    }


def window_figures(seed):
    def right(width, layers):
        options = {"positions": "bias", "distance": 6, "width": width, "layers": layers}
        return copy_back(seed, **options).inside

    return {
        "window 4": right(4, 1),
        "window 4, two layers": right(4, 2),
        "window 8": right(8, 1),
    }


def width_figures(seed):
    narrow, middle, wide = (
        copy_back(seed, positions="rotary", num_heads=heads).outside for heads in (4, 2, 1)
    )
    return {
        "rotary, d_k 8": narrow,
        "rotary, d_k 16": middle,
        "rotary, d_k 32": wide,
        "rotary, d_k 32 minus d_k 8": wide - narrow,
        "learned, d_k 32": copy_back(seed, num_heads=1).outside,
    }


def near_figures(seed):
    return {
        "rotary, near keys alone": copy_back(seed, positions="rotary").near,
        "learned, near keys alone": copy_back(seed).near,
    }


EXPERIMENTS = {
    "copy_back, positions": positions_figures,
    "copy_back, windows": window_figures,
    "copy_back, widths": width_figures,
    "copy_back, near keys": near_figures,
}

BOUNDS = {
    "copy_back, positions": {
        "learned, inside": "> 0.95",
        "learned, twice as far": "< 0.2",
        "sinusoidal, twice as far": "< 0.6",
        "bias, inside": "> 0.95",
        "bias, twice as far": "> 0.9",
        "alibi, inside": "< 0.7",
        "alibi, twice as far": "< 0.6",
    },
    "copy_back, windows": {
        "window 4": "< 0.2",
        "window 4, two layers": "> 0.95",
        "window 8": "> 0.95",
    },
    "copy_back, widths": {
        "rotary, d_k 8": "< 0.9",
        "rotary, d_k 32 minus d_k 8": "> 0.05",
        "learned, d_k 32": "< 0.2",
    },
    "copy_back, near keys": {
        "rotary, near keys alone": "> 0.95",
        "learned, near keys alone": "< 0.2",
    },
}
