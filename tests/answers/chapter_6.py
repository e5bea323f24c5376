"""Answers to the exercises of chapter 6."""

import numpy as np

# ---- E6.2 ----------------------------------------------------------------------------------------


def xavier_by_random(fan_in, fan_out, *, generator):
    bound = (6 / (fan_in + fan_out)) ** 0.5
    return bound * (2 * generator.random((fan_in, fan_out)) - 1)


def xavier_turned(rows, columns, *, generator):
    bound = (6 / (rows + columns)) ** 0.5
    return generator.uniform(low=-bound, high=bound, size=(columns, rows)).T


def xavier_by_lists(fan_in, fan_out, generator):
    std = np.sqrt(2 / (fan_in + fan_out))
    return [
        [generator.uniform(-1, 1) * std * np.sqrt(3) for _ in range(fan_out)] for _ in range(fan_in)
    ]


def xavier_mirrored(fan_in, fan_out, *, generator):
    bound = (6 / (fan_in + fan_out)) ** 0.5
    return bound - 2 * bound * generator.random((fan_in, fan_out))


def xavier_from_the_other_end(fan_in, fan_out, *, generator):
    bound = (6 / (fan_in + fan_out)) ** 0.5
    return -generator.uniform(-bound, bound, (fan_in, fan_out))[::-1]


def xavier_by_signs(fan_in, fan_out, *, generator):
    signs = generator.choice([-1, 1], (fan_in, fan_out))
    return signs * generator.random((fan_in, fan_out)) * (6 / (fan_in + fan_out)) ** 0.5


def xavier_all_above_zero(fan_in, fan_out, *, generator):
    return np.abs(xavier_turned(fan_in, fan_out, generator=generator))


def xavier_one_row_for_all(fan_in, fan_out, *, generator):
    bound = (6 / (fan_in + fan_out)) ** 0.5
    return np.tile(generator.uniform(-bound, bound, fan_out), (fan_in, 1))


def xavier_by_two_ends(fan_in, fan_out, *, generator):
    """The right variance, and only two numbers."""
    return generator.choice([-1, 1], (fan_in, fan_out)) * (2 / (fan_in + fan_out)) ** 0.5


def xavier_too_wide(fan_in, fan_out, *, generator):
    bound = np.sqrt(9 / (fan_in + fan_out))
    return generator.uniform(-bound, bound, (fan_in, fan_out))


def xavier_clipped(fan_in, fan_out, *, generator):
    std = np.sqrt(2 / (fan_in + fan_out))
    return generator.normal(0, 2 * std, (fan_in, fan_out)).clip(-3 * std, 3 * std)


def xavier_without_brackets(fan_in, fan_out, *, generator):
    return np.sqrt(6.0 / fan_in + fan_out) * generator.uniform(-1, 1, (fan_in, fan_out))


def xavier_without_a_root(fan_in, fan_out, *, generator):
    return (2 * generator.random((fan_in, fan_out)) - 1) * 6 / (fan_in + fan_out)


def xavier_with_chance_of_its_own(fan_in, fan_out, *, generator):
    bound = (6 / (fan_in + fan_out)) ** 0.5
    return np.random.default_rng().uniform(-bound, bound, (fan_in, fan_out))


# ---- E6.4 ----------------------------------------------------------------------------------------


def fourth_roots(d_model, d_k):
    return [d_model**-0.5 * d_k**-0.25] * 2


def all_in_the_keys(d_model, d_k):
    return np.array([1.0, 1 / (d_model * np.sqrt(d_k))])


def in_torch(d_model, d_k):
    import torch

    return torch.tensor([(d_model * d_k) ** -0.5, d_model**-0.5])


# ---- E6.6 ----------------------------------------------------------------------------------------


def keys_at_zero(d_model, d_k, d_v, generator):
    W_Q = generator.normal(size=(d_model, d_k)) / np.sqrt(d_model)
    return [W_Q, W_Q * 0, generator.normal(size=(d_model, d_v)) / np.sqrt(d_model)]


def halves_at_zero(d_model, d_k, d_v, generator):
    W_Q, W_K = generator.normal(size=(2, d_model, d_k)) / np.sqrt(d_model)
    W_Q[:, : d_k // 2] = 0
    W_K[:, d_k // 2 :] = 0
    return W_Q, W_K, generator.uniform(-0.3, 0.3, (d_model, d_v))


def unit_matrix(d_model, d_k, d_v, generator):
    W_V = generator.normal(0, d_model**-0.5, (d_model, d_v))
    return np.eye(d_model, d_k), np.zeros((d_model, d_k)), W_V


def quiet_in_torch(d_model, d_k, d_v, generator):
    import torch

    W_K = torch.from_numpy(generator.normal(0, d_model**-0.5, (d_model, d_k)))
    W_V = torch.from_numpy(generator.normal(0, d_model**-0.5, (d_model, d_v)))
    return torch.zeros(d_model, d_k), W_K.requires_grad_(), W_V


def start(W_Q=0.0, W_K=0.0, W_V=1.0, draw=None):
    """A start with these multiples of a matrix of usual size."""

    def begun(d_model, d_k, d_v, generator):
        make = draw or (lambda *size: generator.normal(size=size) / np.sqrt(size[0]))
        widths = (d_k, d_k, d_v)
        return tuple(f * make(d_model, w) for f, w in zip((W_Q, W_K, W_V), widths))

    return begun


def ones(*size):
    return np.ones(size) / np.sqrt(size[0])


def from_a_seed(*size):
    return np.random.default_rng(3).normal(size=size) / np.sqrt(size[0])


def from_nowhere(*size):
    return np.random.default_rng().normal(size=size) / np.sqrt(size[0])


# ---- E6.7 ----------------------------------------------------------------------------------------


def entropy(weights):
    positive = np.where(weights > 0, weights, 1)
    return -(weights * np.log(positive)).sum(axis=-1).mean() / np.log(len(weights))


def length(x):
    return np.linalg.norm(x, axis=-1).mean() / np.sqrt(x.shape[-1])


def spread(k):
    return np.linalg.norm(k - k.mean(axis=0), axis=-1).mean() / np.linalg.norm(k, axis=-1).mean()


def by_computing_again(q, k, scores, weights):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    if not np.allclose(weights, powers / powers.sum(axis=-1, keepdims=True)):
        return "after the scores"
    if entropy(weights) < 0.99:
        return "not grey"
    if length(q) < 0.2 or length(k) < 0.2:
        return "start"
    if spread(k) < 0.01:
        return "same keys"
    return "divided"


def by_largest_weight(q, k, scores, weights):
    if weights.max() * len(weights) > 2:
        return "Not grey"
    if np.abs(q).max() < 0.5 or np.abs(k).max() < 0.5:
        return "Start"
    if np.abs(k - k[0]).max() < 0.01 * np.abs(k).max():
        return "Same keys "
    return "Divided" if scores.std() < 0.3 else "After the scores"


def doctor(order="lsd", grey=None, short=None, alike=None, close=0.2):
    """A doctor that asks in this order: lengths, spread, deviation."""
    grey = grey or (lambda weights: entropy(weights) > 0.99)
    short = short or (lambda q, k: min(length(q), length(k)) < 0.1)
    alike = alike or (lambda k: spread(k) < 0.1)
    asked = {
        "l": lambda q, k, scores: "start" if short(q, k) else None,
        "s": lambda q, k, scores: "same keys" if alike(k) else None,
        "d": lambda q, k, scores: "divided" if scores.std(axis=-1).mean() < close else None,
    }

    def says(q, k, scores, weights):
        if not grey(weights):
            return "not grey"
        found = (asked[letter](q, k, scores) for letter in order)
        return next(filter(None, found), "after the scores")

    return says


# ---- E6.9 ----------------------------------------------------------------------------------------


def by_distance(n):
    back = np.arange(n)[:, None] - np.arange(n)
    return np.where(back == 2, 0.0, -30.0).tolist()


def on_both_sides(n):
    place = np.arange(n)
    return 15.0 * (abs(place - place[:, None]) == 2) - 3


def falling_beyond(n):
    back = np.subtract.outer(np.arange(n), np.arange(n))
    return np.select([back < 2, back == 2], [-20, 0], -15 - back)


def two_back_in_torch(n):
    import torch

    return 13 * torch.diag(torch.ones(max(n - 2, 0)), -2)[:n, :n]


def at(offset, size=20.0):
    return lambda n: size * np.eye(n, k=offset)


def closed(n):
    back = np.arange(n)[:, None] - np.arange(n)
    return np.where(back == 2, 0, -np.inf)


def slope(n):
    return -abs(np.arange(n)[:, None] - np.arange(n)) / 4


def growing_with_the_row(n):
    return np.eye(n, k=-2) * (20 + np.arange(n))[:, None]


def first_rows_apart(n):
    bias = np.where(np.eye(n, k=-2) > 0, 0.0, -np.inf)
    bias[:2] = 0
    return bias


# ---- E6.10 ---------------------------------------------------------------------------------------


def rope_by_complex_numbers(x, positions):
    pairs = x[:, 0::2] + 1j * x[:, 1::2]
    d = x.shape[-1]
    turned = pairs * np.exp(1j * np.outer(positions, 10000.0 ** (-2 * np.arange(d // 2) / d)))
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def rope_by_partners(x, pos):
    d = x.shape[1]
    angles = np.repeat(np.outer(pos, 1 / 10000 ** (np.arange(0, d, 2) / d)), 2, axis=1)
    partners = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    return x * np.cos(angles) + partners * np.sin(angles)


def rope_by_matrices(x, positions):
    rows = []
    for row, place in zip(x, positions):
        new = []
        for i in range(len(row) // 2):
            angle = place / 10000 ** (2 * i / len(row))
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            new.extend(turn @ row[2 * i : 2 * i + 2])
        rows.append(new)
    return rows


def rope_in_torch(x, positions):
    import torch

    d = x.shape[-1]
    speeds = 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angles = positions.to(x.dtype)[:, None] * speeds
    turned = torch.view_as_complex(x.reshape(len(x), -1, 2)) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).reshape(x.shape)


def rope_one_place_further(x, positions):
    return rope_by_partners(x, positions + 1)


def width_for_half_of_it(x, positions):
    d = x.shape[1]
    angles = np.repeat(
        np.outer(positions, 10000.0 ** (-np.arange(d // 2) / (d // 2 + 1))), 2, axis=1
    )
    partners = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    return x * np.cos(angles) + partners * np.sin(angles)


SIZES = {
    "Qwen3 32B": (128, 8192, 1024),
    "SmolLM2 135M": (64, 576, 192),
    "T5 3B": (128, 4096, 4096),
    "Gemma 2 2B": (256, 2048, 1024),
}
CARDS = list("eagbhdcfgc")


def rope_in_torch_in_float32(x, positions):
    import torch

    d = x.shape[-1]
    angles = torch.outer(positions.float(), 10000 ** (-torch.arange(0, d, 2).float() / d))
    numbers = torch.view_as_complex(x.float().reshape(len(x), -1, 2))
    turned = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(1).type_as(x)


OTHERS = {
    "E6.1": [SIZES, list(SIZES.values()), np.array(list(SIZES.values()))],
    "E6.2": [
        xavier_by_random,
        xavier_turned,
        xavier_by_lists,
        xavier_mirrored,
        xavier_from_the_other_end,
        xavier_by_signs,
    ],
    "E6.3": [("0.168", 4.19, 0.025), [0.17, 4.2, "0.025"], np.array([0.1678, 4.194, 1 / 40])],
    "E6.4": [fourth_roots, all_in_the_keys, in_torch],
    "E6.5": [
        CARDS,
        "eagbhdcfgc",
        "e, a, g, b, h, d, c, f, g, C",
        " ".join(CARDS).upper().split(),
        tuple(f"{letter})" for letter in CARDS),
    ],
    "E6.6": [keys_at_zero, halves_at_zero, unit_matrix, quiet_in_torch],
    "E6.7": [
        by_computing_again,
        by_largest_weight,
        doctor("sld", alike=lambda k: 0 < spread(k) < 0.1),
    ],
    "E6.8": [["21", "4", "131041"], {"four_layers": 21.0, "layers_needed": 4, "mistral": 131041}],
    "E6.9": [by_distance, on_both_sides, falling_beyond, two_back_in_torch],
    "E6.10": [
        rope_by_complex_numbers,
        rope_by_partners,
        rope_by_matrices,
        rope_in_torch,
        rope_in_torch_in_float32,
    ],
}

WRONG = {
    "E6.1": {
        None: [
            SIZES | {"Qwen3 32B": (128, 8192, 8)},
            SIZES | {"T5 3B": (128, ..., 4096)},
            dict.fromkeys(SIZES, (64, 64, 64)),
        ]
    },
    "E6.2": {
        None: [
            xavier_too_wide,
            xavier_clipped,
            xavier_one_row_for_all,
            xavier_by_two_ends,
        ],
        "none-below-zero": [xavier_all_above_zero],
        "drawn-from-elsewhere": [xavier_with_chance_of_its_own],
        "brackets-forgotten": [xavier_without_brackets],
        "no-root": [xavier_without_a_root],
    },
    "E6.3": {None: [(0.2, 4.19, 0.025), (0.168, 4.0, 0.025), (0.168, 4.19, ...)]},
    "E6.4": {
        "scale-forgotten": [lambda d, w: (d**-0.5, d**-0.5), lambda d, w: [1, 1 / d]],
        "scale-turned-round": [lambda d, w: ((w / d) ** 0.5, d**-0.5)],
        "divided-in-both": [lambda d, w: ((d * w) ** -0.5,) * 2],
        "d-k-for-its-root": [lambda d, w: (1 / (d**0.5 * w), d**-0.5)],
        "variances-handed-over": [lambda d, w: (1 / (d * w), 1 / d)],
        "width-of-the-model-for-the-head": [lambda d, w: (1 / d, d**-0.5)],
        "width-of-the-head-for-the-model": [
            lambda d, w: (w**-0.5, w**-0.5),
            lambda d, w: (1 / w, w**-0.5),
        ],
        "xavier-per-head": [lambda d, w: ((2 / (d + w) / w) ** 0.5, (2 / (d + w)) ** 0.5)],
        "xavier-as-it-is": [lambda d, w: ((2 / (d + w)) ** 0.5,) * 2],
        "width-of-the-model-once": [lambda d, w: ((d * w) ** -0.5, 1)],
        "words-of-length-1": [lambda d, w: (w**-0.5, 1), lambda d, w: (w**-0.25, w**-0.25)],
        "one-size-only": [
            lambda d, w: (0.0055242717, 0.0441941738),
            lambda d, w: (d**-0.5 / 8, d**-0.5),
        ],
        None: [
            lambda d, w: (0.02, 0.02),
            lambda d, w: 1 / d,
            lambda d, w: (d**-0.5, 0),
            lambda d, w: ("a", "b"),
            lambda d, w: (d**-0.5, d**-0.5, w**-0.5),
            lambda d, w: None if d == 48 else (1, 1),
        ],
    },
    "E6.5": {None: [[*CARDS[:4], ..., *CARDS[5:]], [*CARDS[:9], "k"]]},
    "E6.6": {
        "values-silenced": [start(W_K=1.0, W_V=0.0), start(W_V=0.0)],
        "still-asleep": [start(), lambda a, b, c, g: (np.zeros((a, b)),) * 2 + (ones(a, c),)],
        "small-for-zero": [start(1e-3, 1e-3), start(0.02, 0.02)],
        "no-longer-grey": [start(1.0, 1.0), start(0.2, 0.2)],
        "columns-alike": [
            start(W_K=1.0, draw=ones),
            start(W_Q=1.0, draw=ones),
            lambda a, b, c, g: (np.zeros((a, b)), np.eye(a, b, -8), g.normal(size=(a, c)) / a**0.5),
        ],
        "not-of-the-usual-size": [start(W_K=1e-3), start(W_K=7.0), start(W_Q=1.0, W_V=100.0)],
        "generator-ignored": [start(W_K=1.0, draw=from_a_seed), start(W_K=1.0, draw=from_nowhere)],
        None: [
            lambda a, b, c, g: (np.zeros((a, b)), np.ones((a, b))),
            lambda a, b, c, g: (np.zeros((b, a)), np.ones((b, a)), np.ones((a, c))),
            lambda a, b, c, g: np.ones((a, b)),
            lambda a, b, c, g: (np.zeros((a, b)), np.full((a, b), np.nan), np.ones((a, c))),
        ],
    },
    "E6.7": {
        "order-of-tests": [doctor("dls"), doctor("lds"), doctor("d")],
        "spread-not-by-length": [
            doctor("sld", alike=lambda k: np.linalg.norm(k - k.mean(axis=0), axis=-1).mean() < 0.5)
        ],
        "one-of-two-lengths": [
            doctor(short=lambda q, k: length(q) < 0.1),
            doctor(short=lambda q, k: max(length(q), length(k)) < 0.1),
        ],
        "limit-for-one-length": [
            doctor(grey=lambda weights: abs(weights - 1 / len(weights)).max() < 0.02),
            doctor(grey=lambda weights: weights.max() < 0.12),
        ],
        "pale-called-grey": [
            doctor(grey=lambda weights: entropy(weights) > 0.9),
            doctor(grey=lambda weights: weights.max() < 0.9),
        ],
        "grey-only-if-exact": [
            doctor(grey=lambda weights: np.allclose(weights, 1 / len(weights))),
            doctor(grey=lambda weights: entropy(weights) == 1),
        ],
        "scores-not-read": [doctor(close=9)],
        "scores-taken-for-healthy": [doctor("ls"), doctor(close=0.05)],
        None: [
            lambda q, k, scores, weights: None,
            lambda q, k, scores, weights: True,
            lambda q, k, scores, weights: "grey",
            doctor(short=lambda q, k: True),
        ],
    },
    "E6.8": {None: [(21, 4, 131040.5), (22, 4, 131041), (21, 6, 131041)]},
    "E6.9": {
        "infinity-for-large": [lambda n: np.where(at(-2)(n) > 0, np.inf, 0.0)],
        "nothing-left-to-read": [closed],
        "looks-ahead": [at(2), lambda n: at(-2)(n).T],
        "nearest-is-best": [slope, at(0)],
        "one-back": [at(-1)],
        "too-far-back": [at(-3), lambda n: -slope(n)],
        "drowns-in-a-long-text": [at(-2, 10.0), at(-2, 9.0)],
        "too-soft": [at(-2, 4.0), at(-2, 1.0), lambda n: np.zeros((n, n))],
        "place-for-distance": [growing_with_the_row, first_rows_apart],
        "numbers-for-one-length": [lambda n: at(-2, 12 + np.log(n))(n)],
        None: [
            lambda n: np.zeros(n),
            lambda n: [[1, 2], [3]],
            lambda n: at(-2)(24),
            lambda n: None,
        ],
    },
    "E6.10": {None: [rope_one_place_further, width_for_half_of_it]},
}
