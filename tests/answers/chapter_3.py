"""Answers to the exercises of chapter 3."""

import math

import numpy as np

import qkvlib.numpy as qn

# ---- E3.3 ----------------------------------------------------------------------------------------


def softmax_by_logarithms(s, axis=-1):
    top = np.max(s, axis, keepdims=True)
    top = np.where(top == -np.inf, s.dtype.type(0), top)
    total = np.exp(s - top).sum(axis, keepdims=True)
    return np.exp(s - top - np.log(np.where(total > 0, total, 1)))


def softmax_row_by_row(scores, axis=-1):
    moved = np.moveaxis(scores, axis, -1)
    out = np.zeros_like(moved)
    for place in np.ndindex(moved.shape[:-1]):
        row = moved[place]
        if np.isneginf(row).all():
            continue
        powers = np.exp(row - max(row))
        out[place] = powers / sum(powers)
    return np.moveaxis(out, -1, axis)


def softmax_that_mends_nan(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.nan_to_num(e / e.sum(axis=axis, keepdims=True))


def softmax_by_turning(x, axis=-1):
    x = np.swapaxes(x, axis, -1)
    e = np.exp((x.T - np.maximum(x.max(axis=-1), np.finfo(x.dtype).min).T).T)
    s = e.sum(axis=-1)
    return np.swapaxes((e.T / np.where(s == 0, 1, s).T).T, axis, -1)


def softmax_in_torch(scores, axis=-1):
    import torch

    return torch.softmax(scores, dim=axis).nan_to_num(0)


# ---- E3.4, E3.6 ----------------------------------------------------------------------------------


def attend_by_einsum(q, k, v, *, mask=None):
    scores = np.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), np.finfo(scores.dtype).min))
    sums = powers.sum(-1, keepdims=True)
    return np.einsum("...ij,...jd->...id", powers / np.where(sums == 0, 1, sums), v)


def attend_by_an_added_mask(Q, K, V, mask=None):
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(K.shape[-1])
    if mask is not None:
        scores = scores + np.where(mask, 0, -np.inf).astype(scores.dtype)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.nan_to_num(e / e.sum(axis=-1, keepdims=True)) @ V


def attend_by_low_scores(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if mask is None:
        mask = np.ones(scores.shape[-2:], bool)
    scores = np.where(mask, scores, np.finfo(scores.dtype).min)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True) * mask
    return weights @ value


def attend_by_loops(query, key, value, *, mask=None):
    shape = (*query.shape[:-1], key.shape[-2])
    allowed = np.broadcast_to(True if mask is None else mask, shape)
    out = np.zeros((*query.shape[:-1], value.shape[-1]), value.dtype)
    for place in np.ndindex(query.shape[:-1]):
        keys, values = key[place[:-1]], value[place[:-1]]
        open_keys = [j for j in range(len(keys)) if allowed[place][j]]
        if not open_keys:
            continue
        root = math.sqrt(query.shape[-1])
        scores = [float(query[place] @ keys[j]) / root for j in open_keys]
        powers = [math.exp(score - max(scores)) for score in scores]
        for j, power in zip(open_keys, powers):
            out[place] += values[j] * (power / sum(powers))
    return out


def attend_in_torch(query, key, value, *, mask=None):
    import torch

    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return torch.nan_to_num(out)


def attend_by_hand_in_torch(query, key, value, *, mask=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num(0) @ value


def attend_renormalised(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    if mask is not None:
        weights = np.where(mask, weights, 0)
    sums = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(sums == 0, 1, sums) @ value


# ---- E3.5 ----------------------------------------------------------------------------------------


def mask_by_tri(n_query, n_key):
    return np.tri(n_query, n_key, n_key - n_query) == 1


def mask_by_lists(n_query, n_key):
    return [[j <= i + n_key - n_query for j in range(n_key)] for i in range(n_query)]


def mask_of_the_last_rows(n_query, n_key):
    return np.tril(np.ones((n_key, n_key), dtype=bool))[n_key - n_query :]


def mask_by_what_is_forbidden(n_query, n_key):
    return ~np.triu(np.ones((n_query, n_key), bool), k=1 + n_key - n_query)


def mask_in_torch(n_query, n_key):
    import torch

    return torch.ones(n_query, n_key).tril(n_key - n_query).bool()


# ---- E3.8 ----------------------------------------------------------------------------------------


def grad_by_jacobians(p, g):
    jacobian = p[..., :, None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
    return np.einsum("...i,...ij->...j", g, jacobian)


def grad_by_loops(weights, grad_weights):
    out = np.zeros_like(weights)
    n = weights.shape[-1]
    for row in np.ndindex(weights.shape[:-1]):
        p, g = weights[row], grad_weights[row]
        for j in range(n):
            out[row][j] = sum(g[i] * p[i] * ((i == j) - p[j]) for i in range(n))
    return out


def grad_in_torch(weights, grad_weights):
    product = weights * grad_weights
    return product - weights * product.sum(dim=-1, keepdim=True)


# ---- E3.9 ----------------------------------------------------------------------------------------


def batch_by_slices(query, key, value, lengths):
    out = np.zeros(value.shape)
    n = key.shape[1]
    for text, length in enumerate(lengths):
        for i in range(n - length, n):
            past = slice(n - length, i + 1)
            scores = key[text, past] @ query[text, i] / math.sqrt(key.shape[-1])
            powers = np.exp(scores - scores.max())
            out[text, i] = powers / powers.sum() @ value[text, past]
    return out


def softmax_with_a_little_more_below(s, axis=-1):
    powers = np.exp(s - s.max(axis=axis, keepdims=True))
    return powers / (powers.sum(axis=axis, keepdims=True) + 1e-8)


def attend_with_ten_billion_added(q, k, v, *, mask=None):
    scores = qn.attention_scores(q, k)
    if mask is not None:
        scores = scores + (1 - mask.astype(scores.dtype)) * scores.dtype.type(-1e10)
    return qn.softmax(scores) @ v


def attend_with_a_hundred_billion_taken_away(q, k, v, *, mask=None):
    scores = qn.attention_scores(q, k)
    if mask is not None:
        scores = np.where(mask, scores, scores - scores.dtype.type(1e11))
    return qn.softmax(scores) @ v


def attend_unscaled_in_float32(q, k, v, *, mask=None):
    single = (x.astype(np.float32) for x in (q, k, v))
    output = qn.scaled_dot_product_attention(*single, mask=mask, scale=1.0)
    return output.astype(v.dtype)


def batch_by_low_scores(q, k, v, lengths):
    n = q.shape[1]
    i, j = np.indices((n, n))
    allowed = np.array([(j <= i) & (j >= n - length) for length in lengths])
    scores = np.where(allowed, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]), -1e30)
    powers = np.exp(scores - scores.max(axis=2, keepdims=True)) * allowed
    return powers @ v / np.maximum(powers.sum(axis=2, keepdims=True), 1e-300)


def batch_in_torch(query, key, value, lengths):
    import torch

    n = query.shape[1]
    place = torch.arange(n)
    open_pairs = (place <= place[:, None]) & (place >= n - lengths[:, None, None])
    scores = query @ key.mT / key.shape[-1] ** 0.5
    weights = scores.masked_fill(~open_pairs, -torch.inf).softmax(-1)
    return torch.nan_to_num(weights) @ value


# ---- E3.10 ---------------------------------------------------------------------------------------


def effective(scores):
    weights = np.exp(scores - np.max(scores))
    weights /= weights.sum()
    return np.exp(-(weights * np.log(weights)).sum())


def stretched(direction, count=effective, wanted=3.0):
    """The multiple of these scores whose count is the wanted one."""
    low, high = 0.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle * direction) > wanted else (low, middle)
    return low * direction


def squares(scores):
    weights = np.exp(scores - np.max(scores))
    weights /= weights.sum()
    return 1 / (weights**2).sum()


def in_bits(scores):
    return np.log(effective(scores)) / np.log(2)


ONE_LEADS = np.arange(8) == 0
TWO_LEAD = (np.arange(8) < 2) * 1.0
ROUGH = np.array([0.9, 0.5, 0.4, 0.1, 0, 0.2, -0.1, 0.0])
STAIRS = np.linspace(0, 1, 8)


def weights_of(scores):
    powers = np.exp(scores)
    return powers / powers.sum()


# ---- E3.11 ---------------------------------------------------------------------------------------

QUERY, KEY = np.indices((8, 8))
NOT_LATER = KEY <= QUERY


def right_masks():
    windowed = np.zeros((8, 8), bool)
    prefixed, packed = np.tri(8, dtype=bool), np.tri(8, dtype=bool)
    for i in range(8):
        windowed[i, max(0, i - 2) : i + 1] = True
    windowed[:, 0] = True
    prefixed[:3, :3] = True
    packed[3:, :3] = False
    return windowed, prefixed, packed


WINDOWED, PREFIXED, PACKED = right_masks()


def with_window(mask):
    return mask, PREFIXED, PACKED


def with_prefix(mask):
    return WINDOWED, mask, PACKED


def with_packing(mask):
    return WINDOWED, PREFIXED, mask


def flipped(mask, i, j):
    mask = mask.copy()
    mask[i, j] = ~mask[i, j]
    return mask


# ---- E3.12 ---------------------------------------------------------------------------------------


def head_by_the_key(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    out = []
    for i in range(len(x)):
        scores = k[: i + 1] @ q[i] / np.sqrt(len(q[i]))
        powers = np.exp(scores - scores.max())
        out.append(powers @ v[: i + 1] / powers.sum())
    return out


def head_scaled_before(x, W_Q, W_K, W_V):
    scores = x @ (W_Q / W_Q.shape[1] ** 0.5) @ (x @ W_K).T
    scores[np.triu_indices(len(x), 1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ (x @ W_V)


def head_in_torch(x, W_Q, W_K, W_V):
    import torch

    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    return torch.nn.functional.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True
    )[0]


# ---- E3.13 ---------------------------------------------------------------------------------------

ASLEEP = [[0, 1, 3, -1], [2, 0, 4, 4]]
AWAKE = [[0, 1, 3, -1], [2, 0, 4, 1]]

# ---- all -----------------------------------------------------------------------------------------

OTHERS = {
    "E3.1": [
        ["0.56", "0.07", ".03", "0.28", "0.07"],
        [[0.558], [0.067], [0.033], [0.275], [0.067]],
    ],
    "E3.2": [
        {"heavier": 0.704, "raised": "0.704", "doubled": 0.935},
        [0.935, 0.7040, np.float32(0.704)],
    ],
    "E3.3": [
        softmax_by_logarithms,
        softmax_row_by_row,
        softmax_that_mends_nan,
        softmax_by_turning,
        softmax_in_torch,
    ],
    "E3.4": [
        attend_by_einsum,
        attend_by_an_added_mask,
        attend_by_low_scores,
        attend_by_loops,
        attend_in_torch,
        attend_by_hand_in_torch,
    ],
    "E3.5": [
        mask_by_tri,
        mask_by_lists,
        mask_of_the_last_rows,
        mask_by_what_is_forbidden,
        mask_in_torch,
    ],
    "E3.6": [
        attend_by_einsum,
        attend_by_low_scores,
        attend_renormalised,
        attend_in_torch,
        attend_by_hand_in_torch,
    ],
    "E3.7": [("144", "2.25"), {"raw": 144.0, "divided": 9 / 4}],
    "E3.8": [grad_by_jacobians, grad_by_loops, grad_in_torch],
    "E3.9": [batch_by_slices, batch_by_low_scores, batch_in_torch],
    "E3.10": [
        stretched(TWO_LEAD),
        list(-7 + stretched(ROUGH)),
        stretched(ROUGH[::-1]).tolist(),
        stretched(2.0 * ONE_LEADS),
    ],
    "E3.11": [
        right_masks(),
        [mask.astype(int) for mask in right_masks()],
        dict(zip(("windowed", "prefixed", "packed"), (m.tolist() for m in right_masks()))),
    ],
    "E3.12": [head_by_the_key, head_scaled_before, head_in_torch],
    "E3.13": [
        (ASLEEP, AWAKE),
        ([[5, 5, 9, 0], [-1, 2, 7, 7]], [[0, 0, 0, 0], [0, 0, 0, 1]]),
        ([[1000, 1000, 1001, -4], [0, 0, 1, 1]], AWAKE),
        ([[900, 900, 0, 990], [0, 0, 1, 6]], AWAKE),
    ],
    "E3.14": [["C", "b", "(d)", "c"]],
}

WRONG = {
    "E3.4": {
        "a-billion-added": [
            attend_with_ten_billion_added,
            attend_with_a_hundred_billion_taken_away,
        ],
        "no-scale": [attend_unscaled_in_float32],
    },
    "E3.6": {"a-billion-added": [attend_with_ten_billion_added]},
    "E3.3": {
        "rows-of-minus-infinity-are-nan": [softmax_with_a_little_more_below],
        None: [lambda s, axis=-1: s / s.sum(axis=axis, keepdims=True)],
    },
    "E3.8": {
        None: [
            lambda p, g: p * g - g * (p * g).sum(axis=-1, keepdims=True),
            lambda p, g: p * (g - g.max(axis=-1, keepdims=True)),
        ]
    },
    "E3.10": {
        "even-row": [np.zeros(8), np.full(8, 2.08)],
        "weights-for-scores": [weights_of(stretched(ROUGH))],
        "bits-mixed-with-e": [
            stretched(ONE_LEADS, in_bits, np.log(3)),
            stretched(STAIRS, lambda s: 2 ** np.log(effective(s))),
            stretched(STAIRS, lambda s: np.exp(in_bits(s))),
        ],
        "inverse-sum-of-squares": [stretched(ROUGH, squares), stretched(ONE_LEADS, squares)],
        "scaled-once-more": [8**0.5 * stretched(ROUGH), stretched(TWO_LEAD) / 8**0.5],
        "some-left-out": [[0, 0, 0, -1000, -1000, -1000, -1000, -1000]],
        "stopped-too-early": [np.round(stretched(ROUGH), 3)],
        None: [[1, 0, 1, 0, 1, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0] + [-np.inf] * 5],
    },
    "E3.11": {
        "numbers-for-a-mask": [
            [np.where(m, 0, hidden) for m in right_masks()] for hidden in (-1e9, -np.inf)
        ],
        "mask-inverted": [[~m for m in right_masks()], with_prefix(~PREFIXED)],
        "mask-transposed": [[m.T for m in right_masks()], with_window(WINDOWED.T)],
        "strict-mask": [[m & (QUERY != KEY) for m in right_masks()]],
        "window-one-too-wide": [with_window(NOT_LATER & ((QUERY - KEY < 4) | (KEY == 0)))],
        "window-one-too-narrow": [with_window(NOT_LATER & ((QUERY - KEY < 2) | (KEY == 0)))],
        "first-word-forgotten": [with_window(NOT_LATER & (QUERY - KEY < 3))],
        "first-word-reads-all": [with_window((NOT_LATER & (QUERY - KEY < 3)) | (QUERY == 0))],
        "window-on-both-sides": [with_window((abs(QUERY - KEY) < 3) | (KEY == 0))],
        "window-on-both-sides-and-no-first-word": [with_window(abs(QUERY - KEY) < 3)],
        "no-window": [with_window(NOT_LATER)],
        "prefix-still-causal": [with_prefix(NOT_LATER)],
        "prefix-reads-the-rest": [with_prefix(NOT_LATER | (QUERY < 3))],
        "prefix-one-too-long": [with_prefix(NOT_LATER | ((QUERY < 4) & (KEY < 4)))],
        "prefix-one-too-short": [with_prefix(NOT_LATER | ((QUERY < 2) & (KEY < 2)))],
        "rest-does-not-read-the-prefix": [
            with_prefix((NOT_LATER | ((QUERY < 3) & (KEY < 3))) & ((QUERY < 3) == (KEY < 3)))
        ],
        "nothing-but-the-prefix": [with_prefix(KEY < 3)],
        "reads-across-documents": [with_packing(NOT_LATER)],
        "future-within-a-document": [with_packing((QUERY < 3) == (KEY < 3))],
        "documents-exchanged": [with_packing(NOT_LATER & ((QUERY < 5) == (KEY < 5)))],
        "reads-only-the-other-document": [with_packing(NOT_LATER & ((QUERY < 3) != (KEY < 3)))],
        "second-document-alone": [with_packing(NOT_LATER & (QUERY > 2) & (KEY > 2))],
        None: [
            with_window(flipped(WINDOWED, 0, 7)),
            with_prefix(flipped(PREFIXED, 7, 0)),
            with_packing(flipped(PACKED, 4, 4)),
            with_packing(np.zeros((8, 8))),
        ],
    },
    "E3.12": {None: [lambda x, W_Q, W_K, W_V: head_scaled_before(x, W_K, W_Q, W_V)]},
    "E3.13": {
        "nothing-changed": [([[0, 1, 3, 3], [2, 0, 4, 4]], AWAKE)],
        "values-alike": [
            ([[0, 1, 3, -1], [1, 1, 1, 1]], AWAKE),
            ([[0, 0, 5, 2], [3, 3, 3, 3]], AWAKE),
        ],
        "last-word-not-read": [([[1000, 1000, 0, 3], [0, 1, 2, 2]], AWAKE)],
        "value-changed-too": [(AWAKE, AWAKE), ([[0, 0, 0, 0], [0, 0, 0, 1]], AWAKE)],
        "awake-unchanged": [(ASLEEP, [[0, 1, 3, 3], [2, 0, 4, 4]])],
        "key-changed-alone": [(ASLEEP, ASLEEP)],
        None: [(ASLEEP, [[1000, 1000, 0, 1], [0, 1, 2, 9]])],
    },
}
