"""Answers to the exercises of chapter 7."""

import math

import numpy as np

import qkvlib.numpy as qn


def merge_by_a_choice(a, b):
    top = np.where(a[0] > b[0], a[0], b[0])
    parts = []
    for m, total, output in (a, b):
        factor = np.where(total == 0, 0.0, np.exp(m - np.nan_to_num(top)))
        parts.append((total * factor, output * factor))
    return [top, parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]]


def merge_row_by_row(one, other):
    results = []
    for m1, l1, o1, m2, l2, o2 in zip(*one, *other):
        if l1 == 0:
            results.append((m2, l2, o2))
        elif l2 == 0:
            results.append((m1, l1, o1))
        elif m1 >= m2:
            results.append((m1, l1 + l2 * math.e ** (m2 - m1), o1 + o2 * math.e ** (m2 - m1)))
        else:
            results.append((m2, l2 + l1 * math.e ** (m1 - m2), o2 + o1 * math.e ** (m1 - m2)))
    return tuple(np.array(part) for part in zip(*results))


def merge_in_torch(one, other):
    import torch

    tops = torch.stack([one[0], other[0]])
    top = tops.amax(dim=0)
    factors = torch.where(tops.isinf(), torch.zeros_like(tops), torch.exp(tops - top))
    total = factors[0] * one[1] + factors[1] * other[1]
    return top, total, factors[0] * one[2] + factors[1] * other[2]


def chunks_query_first(query, key, value, size):
    query = query / query.dtype.type(np.sqrt(query.shape[1]))
    top = np.full_like(query[:, :1], -np.inf)
    total, output = np.zeros_like(top), 0
    for start in range(0, len(key), size):
        scores = np.einsum("qd,kd->qk", query, key[start : start + size])
        higher = np.maximum(top, scores.max(-1)[:, None])
        powers, rescale = np.exp(scores - higher), np.exp(top - higher)
        total = total * rescale + powers.sum(-1)[:, None]
        output = output * rescale + powers @ value[start : start + size]
        top = higher
    return output / total


def chunks_cast_before(q, k, v, step):
    dtype = np.result_type(q, k, v)
    m = np.full(len(q), -np.inf).astype(dtype)
    total, acc = np.zeros(len(q), dtype=dtype), np.zeros((len(q), v.shape[-1]), dtype=dtype)
    scale = dtype.type(1 / np.sqrt(k.shape[-1]))
    position = 0
    while position < len(k):
        s = q @ k[position : position + step].T
        s *= scale
        new = np.maximum(m, s.max(axis=1))
        s -= new[:, None]
        np.exp(s, out=s)
        old = np.exp(m - new)
        total = total * old + s.sum(axis=1)
        acc = acc * old[:, None] + s @ v[position : position + step]
        m = new
        position += step
    return acc / total[:, None]


def chunks_in_torch(query, key, value, size):
    import torch

    top = torch.full((len(query), 1), -torch.inf, dtype=query.dtype)
    total, output = torch.zeros_like(top), torch.zeros(len(query), value.shape[1]).to(query.dtype)
    for k, v in zip(key.split(size), value.split(size)):
        scores = query @ k.T / math.sqrt(query.shape[1])
        before, top = top, torch.maximum(top, scores.amax(dim=1, keepdim=True))
        powers, rescale = torch.exp(scores - top), torch.exp(before - top)
        total = total * rescale + powers.sum(dim=1, keepdim=True)
        output = output * rescale + powers @ v
    return output / total


def step_with_causal_mask(query, key, value, cache, *, rotate):
    n = query.shape[-2]
    places = range(len(cache), len(cache) + n)
    query, key = (rotate(x, np.array(places)) for x in (query, key))
    keys, values = cache.append(key, value)
    return qn.scaled_dot_product_attention(
        query, keys, values, mask=qn.causal_mask(n, keys.shape[-2])
    )


def step_that_turns_all_keys_each_time(query, key, value, cache, rotate):
    keys, values = cache.append(key, value)
    keys = rotate(keys, np.arange(len(cache)))
    query = rotate(query, np.arange(len(cache))[-query.shape[-2] :])
    scores = np.einsum("...qd,...kd->...qk", query, keys) / query.shape[-1] ** 0.5
    ahead = np.triu(np.ones(scores.shape[-2:]), 1 + scores.shape[-1] - scores.shape[-2])
    scores = scores - ahead * 1e30
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


def step_token_by_token(query, key, value, cache, *, rotate):
    outputs = []
    for i in range(query.shape[-2]):
        here = slice(i, i + 1)
        place = np.array([len(cache)])
        keys, values = cache.append(rotate(key[..., here, :], place), value[..., here, :])
        turned = rotate(query[..., here, :], place)
        outputs.append(qn.scaled_dot_product_attention(turned, keys, values))
    return np.concatenate(outputs, axis=-2)


def leaks_by_leaving_out(model, x):
    whole = model(x)
    return any(not np.allclose(model(x[:k]), whole[:k]) for k in range(1, len(x)))


def leaks_by_one_number(model, x):
    base = model(x)
    for j in range(len(x) - 1, 0, -1):
        for one in np.eye(x.shape[1]):
            changed = np.where(np.arange(len(x))[:, None] == j, x + one, x)
            if not np.array_equal(model(changed)[:j], base[:j]):
                return True
    return False


def leaks_by_a_new_ending(f, text):
    out = f(text)
    moved = []
    for k in range(1, len(text)):
        rest = np.random.default_rng().standard_normal(text[k:].shape)
        moved += [np.max(np.abs(f(np.vstack([text[:k], rest]))[:k] - out[:k]))]
    return np.max(moved) > 1e-10


def probabilities_by_loops(logits, temperature=1.0, top_k=None, top_p=None):
    chances = [math.exp((each - max(logits)) / temperature) for each in logits]
    chances = [chance / sum(chances) for chance in chances]
    kept, reached = [], 0.0
    for token in sorted(range(len(chances)), key=chances.__getitem__, reverse=True):
        if top_k is not None and len(kept) == top_k:
            break
        if top_p is not None and reached >= top_p:
            break
        kept.append(token)
        reached += chances[token]
    return [chances[token] / reached if token in kept else 0.0 for token in range(len(chances))]


def probabilities_from_below(logits, *, temperature=1.0, top_k=None, top_p=None):
    p = qn.softmax(logits / temperature)
    if top_k is not None:
        p[np.argsort(p)[:-top_k]] = 0
    if top_p is not None:
        order = np.argsort(p)
        p[order[:-1][np.cumsum(p[order])[:-1] <= 1 - top_p]] = 0
    return p / p.sum()


def probabilities_in_torch(logits, *, temperature=1.0, top_k=None, top_p=None):
    import torch

    logits = logits / temperature
    if top_k is not None:
        logits = logits.masked_fill(
            logits < torch.topk(logits, top_k)[0][..., -1, None], -torch.inf
        )
    if top_p is not None:
        ordered, index = torch.sort(logits, descending=True)
        remove = torch.cumsum(torch.softmax(ordered, dim=-1), dim=-1) >= top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = False
        logits = logits.masked_fill(remove.scatter(-1, index, remove), -torch.inf)
    return torch.softmax(logits, dim=-1)


def chances_above_a_cutoff(logits, *, temperature=1.0, top_k=None, top_p=None):
    chances = np.exp((logits - logits.max()) / temperature)
    chances /= chances.sum()
    downwards = -np.sort(-chances)
    least = 0 if top_k is None else downwards[top_k - 1]
    if top_p is not None:
        least = downwards[np.argmax(downwards.cumsum() > top_p)]
    chances[chances < least] = 0
    return chances / chances.sum()


def step_with_heads_for_tokens(query, key, value, cache, *, rotate):
    places = len(cache) + np.arange(len(query))
    keys, values = cache.append(rotate(key, places), value)
    mask = np.arange(keys.shape[-2]) <= places[:, None]
    return qn.scaled_dot_product_attention(rotate(query, places), keys, values, mask=mask)


OTHERS = {
    "E7.1": [[192, 69, 792], {"gib": "192", "factor": 69.0, "sent": np.array(792)}],
    "E7.2": [merge_by_a_choice, merge_row_by_row, merge_in_torch],
    "E7.3": [chunks_query_first, chunks_cast_before, chunks_in_torch],
    "E7.4": [step_with_causal_mask, step_that_turns_all_keys_each_time, step_token_by_token],
    "E7.5": [leaks_by_leaving_out, leaks_by_one_number, leaks_by_a_new_ending],
    "E7.6": [
        [0, 0, 0.15, 0.35, 0.5, 0],
        np.array([0, 0, 0.4, 0.1, 0, 0.5]),
        (0, 0, 0.25, 0.25, 0.3, 0.2),
        {"row": [0, 0, "0.2", "0.3", "0.4", "0.1"]}["row"],
    ],
    "E7.7": [("B", "C", "A", "B"), {"Run 1": "b", "Run 2": "(c)", "Run 3": "a", "Run 4": "b."}],
    "E7.8": [probabilities_by_loops, probabilities_from_below, probabilities_in_torch],
}

WRONG = {
    "E7.4": {None: [step_with_heads_for_tokens]},
    "E7.8": {"no-sum-is-above-one": [chances_above_a_cutoff]},
    "E7.1": {None: [(193, 69, 792), (192, 70, 792), (192, 69, 0)]},
    "E7.6": {
        "negative-weights": [[0, 0, -0.35, 0.85, 1, -0.5]],
        "not-one": [[0, 0, 0.05, 0.05, 0.05, 0.05], [0, 0, 0, 0.35, 0.5, 0]],
        "still-read": [[0.5, 0.3, 0.05, 0.05, 0.05, 0.05], [0.4, 0, 0.25, 0.2, 0.15, 0]],
        "rest-made-one": [[0, 0, 0.25, 0.25, 0.25, 0.25]],
        "one-number-alone": [[0, 0, 0.3, 0.2, 0.5, 0], [0, 0, 0.4, 0.35, 0.25, 0]],
        None: [[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]],
    },
}
