"""Attention once more, number by number, in Python's own floats: slow, and hard to get wrong."""

import math

import numpy as np


def attention(query, key, value, mask=None, bias=None, scale=None, softcap=None):
    """(scores, weights, output) in float64; `scores` are those before the mask."""
    n_query, d_k = query.shape[-2:]
    n_key, d_v = value.shape[-2:]
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (np.broadcast_to(x, lead + x.shape[-2:]) for x in (query, key, value))
    mask = np.broadcast_to(True if mask is None else mask, (*lead, n_query, n_key))
    bias = np.broadcast_to(0.0 if bias is None else bias, (*lead, n_query, n_key))
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    scores, weights = np.zeros((2, *lead, n_query, n_key))
    output = np.zeros((*lead, n_query, d_v))
    for item in np.ndindex(*lead, n_query):
        for j in range(n_key):
            score = scale * math.fsum(query[item][c] * key[item[:-1]][j, c] for c in range(d_k))
            if softcap is not None:
                score = softcap * math.tanh(score / softcap)
            scores[item][j] = score + bias[item][j]
        open_keys = [j for j in range(n_key) if mask[item][j] and scores[item][j] > -math.inf]
        if open_keys:
            top = max(scores[item][j] for j in open_keys)
            powers = {j: math.exp(scores[item][j] - top) for j in open_keys}
            for j in open_keys:
                weights[item][j] = powers[j] / math.fsum(powers.values())
        for column in range(d_v):
            output[item][column] = math.fsum(
                weights[item][j] * value[item[:-1]][j, column] for j in open_keys
            )
    return scores, weights, output


def layer_norm(x, weight, bias, eps):
    """Each row by itself, in float64."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean = math.fsum(row) / len(row)
        variance = math.fsum((number - mean) ** 2 for number in row) / len(row)
        rows.append([(number - mean) / math.sqrt(variance + eps) for number in row])
    return np.array(rows).reshape(x.shape) * weight + bias


def rms_norm(x, weight, eps):
    """Each row by itself, in float64."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean_square = math.fsum(number**2 for number in row) / len(row)
        rows.append([number / math.sqrt(mean_square + eps) for number in row])
    return np.array(rows).reshape(x.shape) * weight


def gelu(x):
    return np.array([n * 0.5 * (1 + math.erf(n / math.sqrt(2))) for n in x.flat]).reshape(x.shape)


def gelu_tanh(x):
    inner = [math.sqrt(2 / math.pi) * (n + 0.044715 * n * n * n) for n in x.flat]
    return np.array([n / 2 * (1 + math.tanh(t)) for n, t in zip(x.flat, inner)]).reshape(x.shape)


def silu(x):
    """By tanh, which never overflows: 1 / (1 + exp(-n)) is (1 + tanh(n / 2)) / 2."""
    return np.array([n / 2 * (1 + math.tanh(n / 2)) for n in x.flat]).reshape(x.shape)


def relu(x):
    return np.array([n if n > 0 else 0.0 for n in x.flat]).reshape(x.shape)


def rotate(x, positions, pairing, base=10000.0):
    """Each pair of features as a complex number, turned; positions broadcast to rows."""
    d_k = x.shape[-1]
    half, turned = d_k // 2, np.array(x, float)
    positions = np.broadcast_to(positions, x.shape[:-1])
    for row in np.ndindex(*x.shape[:-1]):
        for i in range(half):
            one, two = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + half)
            angle = float(positions[row]) / base ** (2 * i / d_k)
            number = complex(x[row][one], x[row][two]) * complex(math.cos(angle), math.sin(angle))
            turned[row][one], turned[row][two] = number.real, number.imag
    return turned
