"""Answers to the exercises of chapter 2."""

import numpy as np

from qkvlib.book.example import COORDINATES, HEAD_A


def project_by_loops(x, W, b=None):
    if x.ndim > 2:
        return [project_by_loops(each, W, b) for each in x]
    rows = []
    for row in x.tolist():
        out = [sum(row[a] * W[a, c] for a in range(len(W))) for c in range(W.shape[1])]
        rows.append(out if b is None else [o + float(bias) for o, bias in zip(out, b)])
    return rows


def project_by_einsum(rows, matrix, bias=0):
    return np.einsum("...i,io->...o", rows, matrix) + (0 if bias is None else bias)


def project_by_dot(x, W, b=None):
    out = np.dot(x, W)
    if b is not None:
        out += b
    return out


def project_in_torch(x, W, b=None):
    import torch

    return torch.nn.functional.linear(x, W.T, b)


def loaded_on_its_side(x, weight, bias):
    return (weight @ x.T + bias[:, None]).T


def loaded_told_by_the_file(x, weight, bias):
    W = weight.T if weight.shape == (len(bias), x.shape[-1]) else weight
    return [list(row @ W + bias) for row in x]


def loaded_in_torch(x, weight, bias):
    import torch

    return torch.nn.functional.linear(x, weight, bias)


def read_by_rows(x, source, W_Q, W_K, W_V):
    out = []
    for word in x:
        scores = [word @ W_Q @ (other @ W_K) / W_Q.shape[1] ** 0.5 for other in source]
        powers = np.exp(np.array(scores) - max(scores))
        out.append(sum(p * (other @ W_V) for p, other in zip(powers / powers.sum(), source)))
    return out


def read_with_values_last(x, source, W_Q, W_K, W_V):
    import qkvlib.numpy as qn

    return qn.attention_weights(x @ W_Q, source @ W_K) @ source @ W_V


def read_in_torch(x, source, W_Q, W_K, W_V):
    import torch

    return torch.nn.functional.scaled_dot_product_attention(x @ W_Q, source @ W_K, source @ W_V)


def pull_by_all_weights(query, key, value, j):
    scores = key @ query / np.sqrt(len(query))
    p = np.exp(scores - scores.max())
    p = p / p.sum()
    d_weights = (np.diag(p) - np.outer(p, p))[j]  # of all weights, by score j
    return np.einsum("i,ia,c->ac", d_weights, value, query) / np.sqrt(query.size)


def pull_by_differences(query, key, value, j):
    def output(key):
        scores = key @ query / np.sqrt(len(query))
        p = np.exp(scores - scores.max())
        return p / p.sum() @ value

    columns = []
    for c in range(key.shape[1]):
        step = np.zeros_like(key)
        step[j, c] = 1e-6
        columns.append((output(key + step) - output(key - step)) / 2e-6)
    return np.stack(columns, axis=1)


def pull_in_torch(query, key, value, j):
    import torch

    def output(row):
        keys = torch.cat([key[:j], row[None], key[j + 1 :]])
        return torch.softmax(keys @ query / len(query) ** 0.5, dim=0) @ value

    return torch.autograd.functional.jacobian(output, key[j])


def matrices(width=2, **rows):
    """`W_Q, W_K` with the rows of these coordinates; `he` is short for he/she."""
    W_Q, W_K = np.zeros((6, width)), np.zeros((6, width))
    for name, (query, key) in rows.items():
        place = COORDINATES.index({"he": "he/she", "x": "seat-x", "y": "seat-y"}.get(name, name))
        W_Q[place], W_K[place] = query, key
    return W_Q, W_K


def mixed(G, H):
    return HEAD_A.W_Q @ np.array(G), HEAD_A.W_K @ np.array(H)


def undone(G):
    return mixed(G, np.linalg.inv(G).T)


def with_one(row, column, value):
    W_K = HEAD_A.W_K.copy()
    W_K[COORDINATES.index(row), column] = value
    return W_K


O2, FOUR = (0, 0), (4, 0)
EIGHTH = [[np.sqrt(0.5), np.sqrt(0.5)], [-np.sqrt(0.5), np.sqrt(0.5)]]
VERBS_READ_NAMES = matrices(action=(FOUR, O2), name=(O2, (1, 0)))
SAME_KIND = matrices(name=((2, 0), (2, 0)), action=((0, 2), (0, 2)))
CLOSE = undone([[2, 3], [1, 2]])[0], undone([[2, 3], [1, 2]])[1] + 1e-5

OTHERS = {
    "E2.1": [
        [(7, 4), (9, 4), (9, 3), (7, 9), (7, 3)],
        {"output": [7, 3], "scores": np.array([7, 9]), "V": (9, 3), "K": (9, 4.0), "Q": ("7", 4)},
    ],
    "E2.2": [
        [(2, 0), (0.37, 0.09, 0.37, 0.09, 0.09)],
        {"query": np.array([[2, 0]]), "weights": [0.3664, 0.0891, 0.3664, 0.0891, 0.0891]},
    ],
    "E2.3": [project_by_loops, project_by_einsum, project_by_dot, project_in_torch],
    "E2.4": [loaded_on_its_side, loaded_told_by_the_file, loaded_in_torch],
    "E2.5": [
        matrices(action=((0, -2), O2), name=(O2, (0, -2))),
        matrices(width=1, action=((100,), (0,)), name=((0,), (100,))),
        matrices(action=((2, 2), O2), name=(O2, (2, 2)), refers=((5, 5), (-1, 1))),
        [m.tolist() for m in matrices(action=((5, 0), (-2, 0)), name=((1, 1), (2, 0)))],
        matrices(width=3, action=((9, 1, 0), (0, 0, 1)), name=((0, 0, 3), (1, 0, 0))),
    ],
    "E2.6": [
        matrices(width=1, name=((2,), (2,)), action=((-2,), (-2,))),
        matrices(name=((4, 0), (1, 0)), action=((0, -4), (0, -1))),
        matrices(name=((2, 2), (1, 1)), action=((2, -2), (1, -1))),
        matrices(width=3, name=((0, 9, 0), (0, 9, 0)), action=((9, 0, 0), (9, 0, 0))),
    ],
    "E2.7": [
        undone([[2, 3], [1, 2]]),
        undone(EIGHTH),
        undone([[-3, 0.5], [0.25, 7]]),
        [m.tolist() for m in undone([[0.3, -0.7], [1.1, 0.2]])],
    ],
    "E2.8": [["B", "c.", "(a)"], ("b", "c", "a"), "bca"],
    "E2.9": [with_one("refers", 0, -1), with_one("refers", 0, -50).tolist()],
    "E2.10": [read_by_rows, read_with_values_last, read_in_torch],
    "E2.11": [pull_by_all_weights, pull_in_torch],
}


def project_in_float64(x, W, b=None):
    return np.asarray(x, dtype=float) @ W + (0 if b is None else b)


WRONG = {
    "E2.3": {None: [project_in_float64]},
    "E2.1": {None: [[(7, 4), (9, 4), (9, 3), (7, 9), (9, 9)], [7, 9, 9, 7, 7]]},
    "E2.2": {None: [[(2, 0), (0.4, 0.1, 0.4, 0.05, 0.05)], [(2, 3), (0.2,) * 5]]},
    "E2.5": {
        "query-and-key-exchanged": [
            VERBS_READ_NAMES[::-1],
            matrices(name=(FOUR, O2), action=(O2, (2, 0))),
        ],
        "nothing-asked": [
            matrices(name=((1, 0), (4, 0))),
            matrices(action=((4, 0), O2), name=(O2, (0, 4))),
        ],
        "names-repelled": [matrices(action=((-4, 0), O2), name=(O2, (1, 0)))],
        "attends-to-verbs": [
            matrices(action=((4, 0), (1, 0))),
            (np.eye(6), np.eye(6)),
            (HEAD_A.W_Q + np.eye(6)[:, 2:4], HEAD_A.W_K + 4 * np.eye(6)[:, 2:4]),
        ],
        "reads-the-seats": [
            matrices(action=((3, 0), O2), name=(O2, (1, 0)), x=((2, 0), O2)),
            matrices(action=(FOUR, O2), name=(O2, (1, 0)), y=(O2, (0.3, 0))),
        ],
        "pronoun-read-too": [
            matrices(action=(FOUR, (-4, 0))),
            matrices(action=(FOUR, O2), name=(O2, (1, 0)), refers=(O2, (1, 0))),
        ],
        "too-small-a-lead": [
            matrices(action=((2, 0), O2), name=(O2, (1, 0))),
            matrices(action=((1, 0), O2), name=(O2, (1, 0))),
        ],
        None: [
            (np.zeros((6, 2)), np.zeros((6, 3))),
            (np.zeros((6, 0)), np.zeros((6, 0))),
            (np.zeros((2, 6)), np.zeros((2, 6))),
            tuple(np.full_like(m, 1e308) for m in VERBS_READ_NAMES),
            matrices(
                action=((9, 0), O2), name=(O2, (1, 0)), he=(O2, (-0.8, 0)), refers=(O2, (0.8, 0))
            ),
        ],
    },
    "E2.6": {
        "kinds-crossed": [matrices(name=((2, 0), (0, 2)), action=((0, 2), (2, 0)))],
        "nobody-asks": [
            matrices(name=((2, 0), O2), action=((0, 2), O2)),
            matrices(name=((2, 0), (0, 2)), refers=(O2, (9, 0)))[::-1],
        ],
        "one-kind-alone": [
            matrices(name=((2, 0), (2, 0))),
            matrices(action=((0, 2), (0, 2)), name=(O2, (2, 0))),
        ],
        "both-kinds-in-one-column": [
            matrices(width=1, name=((2,), (2,)), action=((2,), (2,))),
            matrices(name=((2, 0), (2, 0)), action=((2, 0), (2, 0))),
        ],
        "he-or-she-counts": [
            (4 * np.eye(6)[:, :4], np.eye(6)[:, :4]),
            matrices(width=3, name=((2, 0, 0),) * 2, action=((0, 2, 0),) * 2, he=((0, 0, 1),) * 2),
        ],
        "reads-itself": [
            (np.eye(6), np.eye(6)),
            matrices(name=((2, 0),) * 2, action=((0, 2),) * 2, x=((2, 0),) * 2, y=((0, 2),) * 2),
        ],
        "kinds-lead-too-little": [matrices(name=((1, 0), (1, 0)), action=((0, 1), (0, 1)))],
        "pronoun-asks-too": [
            matrices(
                width=3, name=((3, 0, 0),) * 2, action=((0, 3, 0),) * 2, refers=((0, 0, 2),) * 2
            ),
            matrices(name=((2, 0), (2, 0)), action=((0, 2), (0, 2)), refers=((2, 0), O2)),
        ],
        None: [
            (np.zeros((6, 2)), np.zeros((6, 3))),
            matrices(name=((-2, 0), (2, 0)), action=((0, 2), (0, 2))),
        ],
    },
    "E2.7": {
        "one-side-mixed": [mixed([[2, 3], [1, 2]], np.eye(2)), mixed(np.eye(2), [[2, 3], [1, 2]])],
        "same-mixing-on-both": [mixed([[2, 3], [1, 2]], [[2, 3], [1, 2]])],
        "inverse-not-transposed": [mixed([[2, 3], [1, 2]], [[2, -3], [-1, 2]])],
        "transposed-for-the-inverse": [mixed([[2, 3], [1, 2]], [[2, 1], [3, 2]])],
        "rounded-on-the-way": [
            tuple(np.round(m, 3) for m in undone(EIGHTH)),
            tuple(np.round(m, 2) for m in undone([[3, 1], [1, 3]])),
            CLOSE,
        ],
        "roles-exchanged": [(HEAD_A.W_K, HEAD_A.W_Q), undone([[2, 3], [1, 2]])[::-1]],
        "columns-only-stretched": [undone([[2, 0], [0, 5]]), mixed(-np.eye(2), -np.eye(2))],
        "columns-only-exchanged": [undone([[0, 1], [1, 0]]), undone([[0, 3], [0.5, 0]])],
        None: [
            (HEAD_A.W_Q, HEAD_A.W_K),
            undone([[2, 1], [1, 1]]),
            undone([[1, 2], [3, 4]]),
            undone([[2, 3], [0, 2]]),
            mixed(np.zeros((2, 2)), [[2, 3], [1, 2]]),
            (1e9 * np.ones((6, 2)), 1e9 * np.ones((6, 2))),
        ],
    },
    "E2.8": {None: [["b", "c"], "bcab"]},
    "E2.11": {None: [pull_by_differences]},
    "E2.9": {
        "several-numbers": [
            HEAD_A.W_K - 2 * np.eye(6)[:, [2, 3]],
            HEAD_A.W_K @ [[1, 1], [1, 1]],
        ],
        "known-by-its-seat": [with_one("seat-y", 0, -9), with_one("seat-x", 0, 3)],
        "names-changed-too": [
            with_one("he/she", 1, 0),
            with_one("name", 1, 9),
            with_one("he/she", 0, -3),
        ],
        "names-of-another-strength": [with_one("name", 0, 4), with_one("name", 0, 0.5)],
        "verbs-changed": [with_one("action", 0, -2)],
        "names-notice-it": [with_one("refers", 1, -2), with_one("refers", 1, -9)],
        "wrong-sign": [with_one("refers", 0, 2)],
        "not-strong-enough": [with_one("refers", 0, -0.9), with_one("refers", 0, -0.1)],
        None: [HEAD_A.W_K[:, :1], np.full((6, 2), np.nan)],
    },
}
