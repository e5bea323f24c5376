"""Answers to the exercises of chapter 5."""

import numpy as np

# ---- E5.1 ----------------------------------------------------------------------------------------

FROM_A = [0.4, 0.2, 0, 0.4, 0, 0]
FROM_B = ["0.026", "0.421", "0.447", 0, 0, 0]

# ---- E5.2 ----------------------------------------------------------------------------------------


def contributions_by_slices(w, v, o):
    width = v.shape[2]
    out = []
    for i in range(len(w)):
        out.append((w[i] @ v[i] @ o[i * width : (i + 1) * width]).tolist())
    return out


def contributions_by_silence(weights, value, W_O):
    handed = weights @ value
    heads = len(handed)
    alone = np.einsum("hg,hnd->hngd", np.eye(heads), handed)
    return alone.reshape(heads, handed.shape[1], -1) @ W_O


def contributions_by_einsum(weights, value, W_O):
    h, _, v = value.shape
    return np.einsum("hqk,hkv,hvd->hqd", weights, value, W_O.reshape(h, v, W_O.shape[-1]))


def contributions_in_torch(weights, value, W_O):
    import torch

    rows = W_O.unflatten(0, (value.size(0), value.size(2)))
    return torch.bmm(torch.bmm(weights, value), rows)


def contributions_with_half_a_desk(weights, value, W_O):
    return weights @ value @ W_O.reshape(len(value), value.shape[-1], -1) * 0.5


# ---- E5.3 ----------------------------------------------------------------------------------------


def desk(*sliders):
    made = np.zeros((6, 6))
    for row, column, gain in sliders:
        made[row, column] = gain
    return made


CHAPTERS = [(0, 0, 1), (1, 1, 1), (2, 3, 1), (3, 0, 0.5), (4, 1, 0.5), (5, 2, 0.5)]

# ---- E5.4 ----------------------------------------------------------------------------------------


def norm_by_rows(x, weight=None, bias=None, eps=1e-5):
    flat = x.reshape(-1, x.shape[-1])
    out = np.empty_like(flat)
    for i, row in enumerate(flat):
        mean = sum(row) / len(row)
        deviation = (sum((each - mean) ** 2 for each in row) / len(row) + eps) ** 0.5
        out[i] = (row - mean) / deviation
    out = out.reshape(x.shape)
    out = out * (1 if weight is None else weight)
    return out + (0 if bias is None else bias)


def norm_by_mean_of_squares(x, gamma=None, beta=None, eps=1e-5):
    x = x - np.average(x, axis=-1)[..., None]
    scale = 1 / np.sqrt(np.einsum("...d,...d->...", x, x) / x.shape[-1] + eps)
    y = x * scale[..., None]
    if gamma is not None:
        y *= gamma
    if beta is not None:
        y += beta
    return y


def norm_in_torch(x, weight=None, bias=None, eps=1e-5):
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def norm_by_hand_in_torch(x, g=None, b=None, eps=1e-5):
    var, mean = x.var(-1, unbiased=False, keepdim=True), x.mean(-1, keepdim=True)
    y = (x - mean) * (var + eps).rsqrt()
    y = y if g is None else y * g
    return y if b is None else y + b


def _finished(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def norm_with_a_lost_mean(x, weight=None, bias=None, eps=1e-5):
    y = (x - x.mean(axis=-1)) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    return _finished(y, weight, bias)


def norm_with_a_lost_deviation(x, weight=None, bias=None, eps=1e-5):
    y = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1) + eps)
    return _finished(y, weight, bias)


def norm_with_both_lost(x, weight=None, bias=None, eps=1e-5):
    centred = x - np.mean(x, -1)
    return _finished(centred / (np.mean(centred**2, -1) + eps) ** 0.5, weight, bias)


def norm_with_a_lost_axis_in_torch(x, weight=None, bias=None, eps=1e-5):
    y = (x - x.mean(-1)) / (x.var(-1, unbiased=False) + eps).sqrt()
    return _finished(y, weight, bias)


# ---- E5.7 ----------------------------------------------------------------------------------------


def block_by_names(tokens, attention, ffn, ln):
    def add_and_norm(value, part):
        return ln(part(value) + value)

    for part in (attention, ffn):
        tokens = add_and_norm(tokens, part)
    return tokens


def block_in_torch(x, attend, feed_forward, norm):
    for part in (attend, feed_forward):
        x = norm(x.add(part(x)))
    return x


def parts_in_parallel(x, attend, feed_forward, norm):
    return norm(sum((part(x) for part in (attend, feed_forward)), x))


def parts_in_parallel_unnormed(x, attend, feed_forward, norm):
    return x + attend(x) + feed_forward(x)


def parts_exchanged(x, attend, feed_forward, norm):
    x = norm(x + feed_forward(x))
    return norm(x + attend(x))


# ---- E5.8 ----------------------------------------------------------------------------------------


def fused_by_einsum(v, o, h):
    v, o = v.reshape(len(v), h, -1), o.reshape(h, -1, o.shape[1])
    return np.einsum("dhv,hvo->hdo", v, o)


def fused_by_lists(W_V, W_O, num_heads):
    d_v = W_V.shape[1] // num_heads
    return [
        [
            [
                sum(W_V[a, i * d_v + k] * W_O[i * d_v + k, b] for k in range(d_v))
                for b in range(W_O.shape[1])
            ]
            for a in range(len(W_V))
        ]
        for i in range(num_heads)
    ]


def fused_by_masks(W_V, W_O, num_heads):
    owner = np.arange(len(W_O)) * num_heads // len(W_O)
    return np.array([(W_V * (owner == i)) @ W_O for i in range(num_heads)])


def fused_in_torch(W_V, W_O, num_heads):
    import torch

    pairs = zip(W_V.chunk(num_heads, dim=1), W_O.chunk(num_heads, dim=0))
    return torch.stack([torch.matmul(v, o) for v, o in pairs])


OTHERS = {
    "E5.1": [
        {"from_A": FROM_A, "from_B": FROM_B},
        np.array([FROM_A, FROM_B], float),
        (np.array(FROM_A), [0.0264, 0.4205, 0.447, 0, 0, 0]),
    ],
    "E5.2": [
        contributions_by_slices,
        contributions_by_silence,
        contributions_by_einsum,
        contributions_in_torch,
    ],
    "E5.3": [
        desk((1, 1, 1), (4, 3, 0.5), (0, 0, 1), (2, 3, 1), (3, 2, -7)),
        desk((1, 1, 9), (4, 3, 4), (4, 1, 1), (1, 3, 0.2)).tolist(),
        desk((0, 0, 1), (1, 1, 0.4), (4, 3, 0.4), (5, 2, 0.5)),
    ],
    "E5.4": [norm_by_rows, norm_by_mean_of_squares, norm_in_torch, norm_by_hand_in_torch],
    "E5.5": [["A", "(b)", "a.", "b", "a", "b", "b"]],
    "E5.6": [
        ([[3, -3], [-3, 3]], [-4, -4], [0.5, 0.5]),
        ([[-1, 1], [1, -1]], [-1.5, -1], np.array([2, 1])),
        (np.array([[2, -1], [-1, 2]]), np.array([-2, -2]), np.array([1, 1])),
    ],
    "E5.7": [block_by_names, block_in_torch],
    "E5.8": [fused_by_einsum, fused_by_lists, fused_by_masks, fused_in_torch],
    "E5.9": ["D", "d."],
}

WRONG = {
    "E5.1": {None: [[FROM_A, [0.026, 0.421, 0.447, 0.1, 0, 0]], [FROM_A], [FROM_A, FROM_B[:3]]]},
    "E5.2": {None: [contributions_with_half_a_desk]},
    "E5.3": {
        "transposed": [
            desk((1, 1, 1), (3, 4, 1)),
            desk((1, 1, 0.5), (3, 4, -3), (3, 0, 2)) * [1, 1, 1, 1, -1, 1],
        ],
        "answers-exchanged": [desk((1, 3, 1), (4, 1, 1)), desk((1, 3, 5), (4, 1, 5), (0, 0, 1))],
        "written-to-a-seat": [
            desk((1, 1, 1), (4, 4, 1)),
            desk((1, 1, 1), (4, 3, 1), (5, 5, 0.1)),
            np.eye(6),
        ],
        "answers-cancel": [desk((1, 1, 1), (4, 1, 1), (4, 3, 1)), desk((1, 1, 2), (4, 1, 2))],
        "neighbour-louder": [desk((1, 1, 1), (4, 1, 2), (4, 3, 1)), desk((4, 1, 1), (4, 3, 1))],
        "sign-turned": [desk((1, 1, -1), (4, 3, 1)), desk((1, 1, 1), (4, 3, -1))],
        "second-answer-lost": [desk((1, 1, 1)), desk(*CHAPTERS), desk((1, 1, 1), (4, 2, 1))],
        "one-answer-twice": [desk((1, 1, 1), (1, 3, 1)), desk((1, 1, 1), (1, 3, 2), (4, 3, 1))],
        None: [
            desk((0, 0, 1)),
            desk((1, 1, 0.2), (4, 3, 1)),
            desk((1, 1, 1), (4, 3, 0.1)),
            desk((1, 1, 1), (4, 3, 1), (2, 3, 9)),
        ],
    },
    "E5.6": {
        "transposed": [([[2, -1], [-3, 3]], [-2, -3], [1, 1 / 3])],
        "nothing-bends": [
            ([[1, -1], [-1, 1]], [5, 5], [1, 1]),
            ([[1, -1], [-1, 1]], [0, 0], [1, -1]),
        ],
        "never-on": [
            ([[1, -1], [-1, 1]], [-2, -2], [1, 1]),
            ([[1, -1], [-1, 1]], [-1, -1], [0, 0]),
        ],
        "one-word-a-unit": [
            ([[1, 0], [0, -1]], [0, 0], [1, 1]),
            ([[2, 1], [0, 0]], [0, 1], [1, 1]),
        ],
        "one-order-only": [
            ([[1, 0], [-1, 0]], [-1, 0], [1, 1]),
            ([[1, 1], [-1, -1]], [-1, -1], [0.5, 0.5]),
        ],
        "another-size": [
            ([[2, -2], [-2, 2]], [-2, -2], [1, 1]),
            ([[2, -2], [-2, 2]], [-2, -2], [0.5, 0.4]),
        ],
        "kinds-taken-for-0-and-1": [
            ([[1, 1], [1, 1]], [0, -1], [1, -2]),
        ],
        "same-for-different": [([[1, -1], [1, -1]], [-1, -1], [1, 1])],
        "word-without-a-kind-counts": [
            ([[1, -1], [-1, 1]], [0, 0], [0.5, 0.5]),
            ([[1, -1], [-1, 1]], [0, 0], [1, 1]),
            ([[2, -2], [-2, 2]], [-1, -1], [1, 1]),
        ],
        None: [([[1, 1], [1, 0]], [0, 0], [1, 1])],
    },
    "E5.4": {
        "no-axis-kept": [
            norm_with_a_lost_mean,
            norm_with_a_lost_deviation,
            norm_with_both_lost,
            norm_with_a_lost_axis_in_torch,
        ]
    },
    "E5.7": {
        "feed-forward-first": [parts_exchanged],
        "parts-side-by-side": [parts_in_parallel],
        None: [parts_in_parallel_unnormed],
    },
}
