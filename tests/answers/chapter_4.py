"""Answers to the exercises of chapter 4."""

import math

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.example import HEAD_B, SEATS
from qkvlib.book.exercises import find

# ---- dividing, merging, repeating ----------------------------------------------------------------


def split_by_slices(x, num_heads):
    d = x.shape[-1] // num_heads
    return np.stack([x[..., i * d : (i + 1) * d] for i in range(num_heads)], axis=-3)


def split_by_numpy(x, h):
    return np.moveaxis(np.array(np.split(x, h, axis=-1)), 0, -3)


def split_by_einsum(x, num_heads):
    grouped = x.reshape(*x.shape[:-1], num_heads, -1)
    return np.einsum("...nhd->...hnd", grouped)


def split_in_torch(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def split_to_lists(x, num_heads):
    return split_by_slices(x, num_heads).tolist()


def heads_before_texts(x, num_heads):
    """As in a layer that puts the heads and the batch into one axis."""
    return np.concatenate(np.split(x, num_heads, axis=-1), axis=0)


def heads_last(x, num_heads):
    return x.reshape(*x.shape[:-1], num_heads, -1)


def turned_wholly(x, num_heads):
    return x.reshape(*x.shape[:-1], num_heads, -1).T


def layer_head_by_head(x, W_Q, W_K, W_V, W_O, num_heads):
    out = 0
    for parts in zip(
        *(np.split(W, num_heads, axis=1) for W in (W_Q, W_K, W_V)), np.split(W_O, num_heads)
    ):
        q, k, v = (x @ W for W in parts[:3])
        scores = q @ k.T / math.sqrt(k.shape[1])
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        out = out + powers / powers.sum(axis=1, keepdims=True) @ v @ parts[3]
    return out


def layer_of_the_library(x, W_Q, W_K, W_V, W_O, h):
    return qn.MultiHeadAttention.from_weights(W_Q, W_K, W_V, W_O, num_heads=h)(x)


def layer_by_columns_first(x, W_Q, W_K, W_V, W_O, num_heads):
    n = len(x)
    q, k, v = ((x @ W).reshape(n, num_heads, -1).swapaxes(0, 1) for W in (W_Q, W_K, W_V))
    heads = qn.scaled_dot_product_attention(q, k, v)
    return heads.swapaxes(1, 2).reshape(-1, n).T @ W_O


def layer_in_torch(x, W_Q, W_K, W_V, W_O, num_heads):
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = ((x @ W).view(len(x), num_heads, -1).transpose(0, 1) for W in (W_Q, W_K, W_V))
    return scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1) @ W_O


def layer_of_the_library_without_its_desk(x, W_Q, W_K, W_V, W_O, h):
    desk = np.eye(W_V.shape[1])
    return qn.MultiHeadAttention.from_weights(W_Q, W_K, W_V, desk, num_heads=h)(x)


def layer_with_a_turned_desk(x, W_Q, W_K, W_V, W_O, num_heads):
    return layer_by_columns_first(x, W_Q, W_K, W_V, W_O.T, num_heads)


def layer_with_added_heads(x, W_Q, W_K, W_V, W_O, num_heads):
    q, k, v = (qn.split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    return qn.scaled_dot_product_attention(q, k, v).sum(0) @ W_O


def repeat_by_a_list(x, repeats):
    return np.take(x, [i // repeats for i in range(x.shape[-3] * repeats)], axis=-3)


def repeat_by_broadcasting(x, repeats):
    *batch, h, n, d = x.shape
    wide = np.broadcast_to(x[..., None, :, :], (*batch, h, repeats, n, d))
    return wide.reshape(*batch, h * repeats, n, d)


def repeat_in_torch(x, repeats):
    return x.repeat_interleave(repeats, dim=-3)


def columns_repeated(x, repeats):
    return np.repeat(x, repeats, axis=-1)


def first_axis_repeated(x, repeats):
    return np.repeat(x, repeats, axis=0)


def tiled_by_numpy(x, repeats):
    return np.tile(x, (repeats, 1, 1))


def tiled_by_torch_for_one_text(x, repeats):
    import torch

    return torch.as_tensor(x).repeat(repeats, 1, 1)


def tiled_by_torch_for_a_batch(x, repeats):
    import torch

    return torch.as_tensor(x).repeat(1, repeats, 1, 1)


# ---- counting ------------------------------------------------------------------------------------


def counted_by_arrays(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    shapes = [(d_model, num_heads * d_k), (d_model, num_kv_heads * d_k)]
    shapes += [(d_model, num_kv_heads * d_v), (num_heads * d_v, d_model)]
    return sum(rows * columns + bias * columns for rows, columns in shapes)


def counted_in_torch(d_model, heads, d_k, d_v, kv_heads, bias):
    from torch.nn import Linear

    layers = [
        Linear(d_model, heads * d_k, bias, "meta"),
        Linear(heads * d_v, d_model, bias, "meta"),
    ]
    layers += [Linear(d_model, kv_heads * d, bias, "meta") for d in (d_k, d_v)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def divided_among_heads(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    return 4 * d_model * (d_model // num_heads) * num_heads


# ---- keys ----------------------------------------------------------------------------------------


def wins_by_a_sweep(keys):
    if keys.shape[1] == 1:
        return [k in (keys.min(), keys.max()) for k in keys[:, 0]]
    angles = np.linspace(0, 2 * np.pi, 5000)
    winners = (keys @ [np.cos(angles), np.sin(angles)]).argmax(axis=0)
    return np.isin(np.arange(len(keys)), winners)


def wins_by_random_queries(keys):
    queries = np.random.default_rng(0).normal(size=(20_000, keys.shape[1]))
    return np.bincount((queries @ keys.T).argmax(1), minlength=len(keys)) > 0


def wins_by_walking_the_band(keys):
    points = [tuple(key) if len(key) == 2 else (key[0], 0.0) for key in keys]
    corners, at = set(), min(points)
    while at not in corners:
        corners.add(at)
        ahead = next(p for p in points if p != at)
        for p in points:
            turn = (ahead[0] - at[0]) * (p[1] - at[1]) - (ahead[1] - at[1]) * (p[0] - at[0])
            far = math.dist(at, p) > math.dist(at, ahead)
            if turn < 0 or (turn == 0 and far and p != at):
                ahead = p
        at = ahead
    return [p in corners for p in points]


def wins_in_torch(keys):
    import torch

    angles = torch.linspace(0, 2 * math.pi, 5000, dtype=keys.dtype)
    queries = torch.stack([angles.cos(), angles.sin()])[: keys.shape[1]]
    winners = (keys @ queries).argmax(0)
    return torch.isin(torch.arange(len(keys)), winners)


def wins_by_a_hundred_draws(keys):
    queries = np.random.default_rng(0).normal(size=(100, keys.shape[1]))
    return np.bincount((queries @ keys.T).argmax(1), minlength=len(keys)) > 0


def wins_by_whole_degrees(keys):
    angles = np.radians(range(360))
    queries = np.stack([np.cos(angles), np.sin(angles)])[: keys.shape[1]]
    return np.isin(np.arange(len(keys)), (keys @ queries).argmax(axis=0))


def with_eight_directions(keys):
    queries = SEATS[:, : keys.shape[1]]
    return np.isin(np.arange(len(keys)), (queries @ keys.T).argmax(axis=1))


# ---- induction -----------------------------------------------------------------------------------


def _layers(me, *, lower=None, upper=None, scale=8, say=None):
    n = len(me)
    seats, past = SEATS[:n], np.tri(n, dtype=bool)
    turned, hands = seats @ HEAD_B.W_Q[4:], seats @ HEAD_B.W_K[4:]
    lower = past if lower is None else lower
    stood_before = qn.scaled_dot_product_attention(turned, hands, me, mask=lower)
    if say:
        say(stood_before)
    upper = past if upper is None else upper
    return qn.scaled_dot_product_attention(me, stood_before, me, mask=upper, scale=scale)[-1]


def _without_key_0(n):
    return np.tri(n, dtype=bool) & (np.arange(n) > 0)


def key_0_closed(me):
    return _layers(me, upper=_without_key_0(len(me)))


def strict_below(me):
    return _layers(me, lower=np.tri(len(me), k=-1, dtype=bool))


def nobody_has_a_column(me):
    """A kind of its own for nobody, taken away in the end."""
    wide = np.hstack([me, np.zeros((len(me), 1))])

    def say(stood_before):
        stood_before[0] = 0
        stood_before[0, -1] = 1

    return _layers(wide, say=say)[:-1]


def by_looking_it_up(me):
    """No circuit at all."""
    after = [me[i + 1] for i in range(len(me) - 1) if (me[i] == me[-1]).all()]
    return np.mean(after, axis=0) if after else np.full(me.shape[1], 1 / me.shape[1])


def in_torch(me):
    import torch

    return torch.tensor(key_0_closed(np.asarray(me)))


def louder(me):
    return _layers(me, scale=20)


def softer(me):
    return _layers(me, scale=2)


def strict_above(me):
    return _layers(me, upper=np.tri(len(me), k=-1, dtype=bool))


def cut_out_everywhere(me):
    n = len(me)
    lower = _without_key_0(n)
    lower[0, 0] = True
    return _layers(me, lower=lower, upper=_without_key_0(n))


def first_word_zeroed(me):
    me = me.copy()
    me[0] = 0
    return _layers(me)


def with_a_start_token(me):
    wide = np.zeros((len(me) + 1, me.shape[1] + 1))
    wide[1:, 1:], wide[0, 0] = me, 1
    return _layers(wide)[1:]


def with_a_start_token_kept(me):
    wide = np.zeros((len(me) + 1, me.shape[1] + 1))
    wide[1:, 1:], wide[0, 0] = me, 1
    return _layers(wide)


def minus_infinity_for_all(me):
    with np.errstate(invalid="ignore"):
        return _layers(me, say=lambda stood_before: stood_before.__setitem__(0, np.inf - np.inf))


def no_word_twice(me):
    upper = np.tri(len(me), dtype=bool) & (me @ me.T == 0)
    return _layers(me, upper=upper)


def strict_in_both(me):
    strict = np.tri(len(me), k=-1, dtype=bool)
    return _layers(me, lower=strict, upper=strict)


def always_told(me):
    return np.eye(me.shape[1])[1]


def the_last_follower(me):
    places = [i for i in range(len(me) - 1) if (me[i] == me[-1]).all()]
    return me[places[0] + 1] * 0.5 if len(places) > 1 else by_looking_it_up(me)


# ---- designs -------------------------------------------------------------------------------------

_BACK_90 = np.array([[0.0, -1.0], [1.0, 0.0]])
_BACK_45 = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
_EYE = np.eye(2)
_FLIP = np.array([[0.0, 1.0], [1.0, 0.0]])


def _blocks(letters, seats, columns=None):
    W = np.zeros((5, 5))
    W[:3, :3] = letters * np.eye(3)
    W[3:, 3:] = seats * np.eye(2)
    return W if columns is None else W[:, columns]


def _same(letters, seats):
    return _blocks(letters, seats), np.eye(5)


def _look_back(letters, W):
    W_Q = _blocks(letters, 0)
    W_Q[3:, 3:] = W
    return W_Q, np.eye(5)


def _copy(place, vowel, start, turn=_BACK_45, far_vowel=0):
    W_Q, W_K = np.zeros((5, 4)), np.zeros((5, 4))
    W_Q[3:, :2], W_Q[0, 2:] = turn, 1
    W_K[3:, :2], W_K[1, 2], W_K[2, 3] = place * np.eye(2), vowel, start
    return W_Q, W_K


def _copy_by_one_column_less(place, vowel, start):
    """Vowel and start in one column."""
    W_Q, W_K = _copy(place, vowel, start)
    W_K[2, 2] = start
    return W_Q[:, :3] * 2, W_K[:, :3]


_DIGIT = np.arange(10)
_WRITTEN = np.append(_DIGIT, -1)[:, None]


def _sorting(allowed, forbidden, over=None):
    over = _DIGIT > _WRITTEN if over is None else over
    return np.where(over, allowed, forbidden)


_OR, _AND = [0, 9, 0, 1], [9, 0, 0, 1]

OTHERS = {
    "E4.1": [
        [[12, 15], [3, 7, 5], (3, 7, 7), np.array([7, 6]), (6, 12)],
        {name: list(shape) for name, shape in find("E4.1").solution().items()},
    ],
    "E4.2": [split_by_slices, split_by_numpy, split_by_einsum, split_in_torch, split_to_lists],
    "E4.3": [layer_head_by_head, layer_of_the_library, layer_by_columns_first, layer_in_torch],
    "E4.4": [
        counted_by_arrays,
        counted_in_torch,
        lambda *sizes: float(counted_by_arrays(*sizes)),
    ],
    "E4.5": [
        (20 * _EYE, _BACK_90.T),
        (9 * _BACK_45, 2 * _BACK_45.T),
        [(-12 * _BACK_90).tolist(), (-2 * _EYE).tolist()],
        {"W_Q": 30 * _BACK_90, "W_K": _EYE},
        (10 * _FLIP, np.diag([2, -2])),
    ],
    "E4.6": [np.diag([-7, 7]), [[-20, 0], [0, 20]], np.diag([-1e4, 1e4])],
    "E4.7": [
        _same(2000, -500),
        (np.eye(5), _blocks(300, -80)),
        (_blocks(-200, 60), -np.eye(5)),
        (_blocks(200, -60)[:, [3, 0, 4, 2, 1]], np.eye(5)[:, [3, 0, 4, 2, 1]]),
    ],
    "E4.8": [
        _copy(200, 80, 250),
        _copy(1000, 400, 1250),
        _copy_by_one_column_less(100, 40, 125),
        tuple(-W for W in _copy(100, 40, 125)),
    ],
    "E4.9": [
        _sorting(-100 * _DIGIT, -1e4),
        _sorting(50 - 5 * _DIGIT, -90),
        _sorting(-8 * _DIGIT, -200).tolist(),
        _sorting(-8 * _DIGIT, -200) + 7 * _WRITTEN,
    ],
    "E4.10": [key_0_closed, strict_below, nobody_has_a_column, by_looking_it_up, in_torch],
    "E4.11": [
        [[5, 0, 0, -1], [0, 5, 0, 1]],
        [[0, 5, 7, 8], [5, 0, -7, -8]],
        [[0, 9, 0, 3], [0, -9, 0, -3]],
        [[0, 1, 0, 10], [1, 0, 0, -10]],
        [[-3, 3, -1, 0], [3, -3, 1, 0]],
        [[0, 9, 0, 1], [9, 0, 1, 0]],
    ],
    "E4.12": [repeat_by_a_list, repeat_by_broadcasting, repeat_in_torch],
    "E4.13": [wins_by_a_sweep, wins_by_random_queries, wins_by_walking_the_band, wins_in_torch],
    "E4.14": ["D", "(d)"],
}

WRONG = {
    "E4.1": {None: [[(12, 15), (3, 7, 5), (3, 7, 7), (7, 6), (6, 7)]]},
    "E4.2": {
        None: [heads_before_texts, heads_last, turned_wholly],
    },
    "E4.3": {
        "output-matrix-gone": [layer_of_the_library_without_its_desk],
        "output-matrix-turned": [layer_with_a_turned_desk],
        None: [layer_with_added_heads],
    },
    "E4.4": {None: [divided_among_heads]},
    "E4.5": {
        "turned-the-wrong-way": [(10 * _BACK_90.T, 2 * _EYE), (2 * _EYE, 10 * _BACK_90)],
        "only-one-back": [(10 * _BACK_45, 2 * _EYE)],
        "nothing-is-turned": [(10 * _EYE, 2 * _EYE), (_EYE, _EYE)],
        "turned-too-far": [(-10 * _EYE, 2 * _EYE), (10 * _BACK_90 @ _BACK_45, 2 * _EYE)],
        "too-soft": [(4 * _BACK_90, 2 * _EYE), (0.1 * _BACK_90, _EYE)],
        None: [(0 * _EYE, _EYE), (10 * _FLIP, _EYE), ([[9, 0], [0, 0]], _EYE)],
    },
    "E4.6": {
        "turned-by-a-half": [-7 * _EYE, -30 * _EYE],
        "mirror-lies-across": [np.diag([7, -7])],
        "numbers-exchanged": [7 * _FLIP],
        "off-by-one": [10 * np.array([[-1.0, 1], [1, 1]])],
        "reads-the-one-before": [HEAD_B.W_Q[4:]],
        "reads-itself": [7 * _EYE],
        "too-soft": [np.diag([-5, 5]), np.diag([-20, 9]), np.diag([-0.1, 0.1])],
        None: [0 * _EYE, 7 * _BACK_90, np.diag([-9, 0]), [[1e4, 1], [0, 0]]],
    },
    "E4.7": {
        "place-not-looked-at": [_same(200, 0), _same(50, 0)],
        "itself-wins": [_same(200, 60), _same(0, 100)],
        "one-side-only": [_look_back(400, 100 * _BACK_90), _look_back(400, 100 * _BACK_90.T)],
        "other-letters-win": [
            _same(-200, 60),
            _same(0, -60),
            _same(30, -60),
            _same(0, 0),
            _same(1, 0),
        ],
        "too-soft": [_same(40, -9), _same(200, -12)],
        None: [(np.eye(5), np.ones((5, 2))), (np.zeros((5, 0)), np.zeros((5, 0)))],
    },
    "E4.8": {
        "turned-the-wrong-way": [_copy(100, 40, 125, turn=_BACK_45.T)],
        "reads-itself": [_copy(100, 40, 125, turn=_EYE)],
        "turned-too-far": [_copy(100, 40, 125, turn=_BACK_90)],
        "place-alone-is-enough": [_copy(100, 40, 0), _copy(100, 40, 80), _copy(100, 0, 50)],
        "vowel-anywhere": [_copy(0, 40, 20), _copy(20, 100, 90), _copy(100, 40, 105)],
        "start-too-strong": [_copy(100, 40, 150), _copy(100, 0, 120), _copy(0, 0, 50)],
        "nowhere-to-rest": [_copy(0, 0, 0)],
        "too-soft": [_copy(10, 4, 12.5), _copy(40, 16, 50)],
        None: [
            (np.eye(5), np.ones((5, 2))),
        ],
    },
    "E4.9": {
        "downwards": [_sorting(8 * _DIGIT, -200, (_DIGIT < _WRITTEN) | (_WRITTEN < 0))],
        "undecided": [
            np.vstack([_sorting(-8 * _DIGIT, -200)[:10], np.zeros((1, 10))]),
            50.0 * (_DIGIT == _WRITTEN + 1),
        ],
        "written-twice": [
            np.tile(-8 * _DIGIT, (11, 1)),
            _sorting(-8 * _DIGIT, -200, _DIGIT >= _WRITTEN),
            _sorting(-8 * _DIGIT, -50),
        ],
        "goes-back": [_sorting(-8 * _DIGIT, -200, _DIGIT != _WRITTEN)],
        "leaves-one-out": [np.vstack([_sorting(8 * _DIGIT, -200)[:10], [-8 * _DIGIT]])],
        "too-soft": [_sorting(-2 * _DIGIT, -200), _sorting(-0.1 * _DIGIT, -200)],
        None: [],
    },
    "E4.10": {
        "nobody-became-nan": [minus_infinity_for_all],
        "upper-layer-made-louder": [louder],
        "first-row-still-claims": [softer, strict_above],
        "first-word-cut-out": [cut_out_everywhere, first_word_zeroed],
        "token-without-a-seat": [with_a_start_token],
        "own-word-forbidden": [no_word_twice, strict_in_both],
        None: [with_a_start_token_kept, always_told, the_last_follower, lambda me: me[-1] * 0],
    },
    "E4.11": {
        "one-head-alone": [[_OR, [0, 0, 0, 0]], [_OR, [3, 1, 2, 2]], np.ones((2, 4))],
        "heads-read-alike": [[_OR, [0, 9, 0, -1]], [[0, 0, 0, 1], [2, 2, 0, -1]]],
        "upside-down": [[[9, 0, 0, 1], [0, 9, 0, -1]]],
        "or-instead": [[_OR, [1, 8, 0, 1]], [_OR, _AND]],
        "and-instead": [[_AND, [8, 1, 0, 1]]],
        "too-soft": [[[0, 0.5, 0, 1], [0.5, 0, 0, -1]]],
        None: [[[0, 1, 5, 0], [0, 2, 4, 0]]],
    },
    "E4.12": {
        "tiled": [tiled_by_numpy, tiled_by_torch_for_one_text],
        "tiled-behind-a-batch": [tiled_by_torch_for_a_batch],
        None: [columns_repeated, first_axis_repeated],
    },
    "E4.13": {
        "too-few-directions": [
            wins_by_a_hundred_draws,
            wins_by_whole_degrees,
            with_eight_directions,
        ],
    },
}
