"""Answers to the exercises of chapter 1."""

import math

import numpy as np


def window_by_weights(x, back):
    t = np.arange(len(x))
    mask = (t < t[:, None]) & (t >= t[:, None] - back)
    return mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) @ x


def window_by_lists(x, back):
    rows = []
    for t in range(len(x)):
        before = [list(row) for row in x][max(t - back, 0) : t]
        columns = zip(*before) if before else [[0.0]] * x.shape[1]
        rows.append([sum(column) / max(len(before), 1) for column in columns])
    return rows


def window_in_torch(rows, k):
    import torch

    out = torch.zeros_like(rows)
    for t in range(1, rows.shape[0]):
        out[t] = rows[max(0, t - k) : t].mean(dim=0)
    return out


def blend_by_differences(s, v):
    return np.einsum("n,nd->d", 1 / np.exp(s[None, :] - s[:, None]).sum(axis=1), v)


def blend_in_a_loop(scores, values):
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    read = [0.0] * values.shape[1]
    for power, value in zip(powers, values):
        for k, number in enumerate(value):
            read[k] += power / sum(powers) * number
    return read


def blend_in_torch(scores, values):
    import torch

    return torch.softmax(scores, dim=0) @ values


def skipping_in_place_of_a_copy(weights, least=0.05):
    weights = weights.copy()
    weights[weights < least] = 0
    weights /= weights.sum(-1)[..., None]
    return weights


def skipping_by_logarithms(weights, least=0.05):
    logs = np.where(weights < least, -np.inf, np.log(np.maximum(weights, least / 2)))
    powers = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def skipping_in_torch(w, least=0.05):
    kept = w.masked_fill(w < least, 0)
    return kept / kept.sum(-1, keepdim=True)


OTHERS = {
    "E1.1": [["0", "0", "2", "-1", "0"], np.array([[0, 0, 2, -1, 0]])],
    "E1.2": ["C", "(c)"],
    "E1.3": [window_by_weights, window_by_lists, window_in_torch],
    "E1.4": [blend_by_differences, blend_in_a_loop, blend_in_torch],
    "E1.5": ["b)"],
    "E1.6": [skipping_in_place_of_a_copy, skipping_by_logarithms, skipping_in_torch],
    "E1.7": [(0, 1, -3), [2, 2, 5.0], (0, 2, -9), (2, 1, 1.6), (0, 1, -1.6), (2, 2, "2.6")],
}

WRONG = {
    "E1.1": {None: [[0, 0, -2, 1, 0], [1, 1, 1, 1, 1], [0, 1, 2, -1, 1]]},
    "E1.7": {
        "pronoun-changed": [(3, 1, -1), (3, 2, 0)],
        "another-word-changed": [(1, 1, 9), (4, 3, 0.5), (4, 1, 3)],
        "column-that-he-does-not-use": [(2, 0, 5), (2, 0, 9), (2, 3, 7), (0, 0, -4)],
        "wrong-way": [(2, 1, -3), (0, 1, 5), (0, 2, 1), (2, 2, -0.5)],
        "only-a-tie": [(2, 1, 1), (2, 2, 2), (0, 1, -1), (0, 2, -2)],
        None: [
            (2.5, 1, 2),
            (2, 5, 2),
            (2, 1, -1),
            (2, 1, 0),
            (2, 1, 1.2),
            (2, 1, 1.5),
            (2, 1, 1.59),
            (0, 1, -1.55),
            (2, 1, ...),
            ("Emma", "he/she", 2),
        ],
    },
}
