"""What a layer or a model shows when it is asked more than once, or asked for gradients.

A model here is what `diagnose` takes: a layer, a list of layers, or a whole model.
"""

import contextlib
import sys

import numpy as np

from qkvlib.diagnostics.readings import as_float64, is_torch, mask_array, rms, token_spread

__all__ = ["gradient_norms", "influence", "leak", "token_spread_by_depth"]

PROBED = 8  # how many tokens of a text `leak` and `diagnose` replace, first and last among them


def influence(model, x, mask=None, *, tokens=None):
    """How far each output moves when another token stands in one place.

    x, mask: as for the model; tokens: the places that are tried one by one, by default all
    -> `(..., n, len(tokens))`: the distance that output i moves, by the mean length of an output

    The other token is the old one plus random noise of the same size, in every text of a batch
    at once. (Not plus a constant: a norm takes that away again, and nothing would seem to move.)
    A token id is replaced by another id of the same texts.

    >>> from qkvlib.numpy import MultiHeadAttention, causal_mask
    >>> layer = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
    >>> x = np.random.default_rng(1).normal(size=(3, 8))
    >>> influence(layer, x, causal_mask(3)) > 0
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    tokens = range(length(x)) if tokens is None else tokens
    with quiet(), at_rest(model):
        before = as_float64("the output", run(model, x, mask))
        outputs = [run(model, with_another_token(x, j), mask) for j in tokens]
        outputs = np.stack([as_float64("the output", y) for y in outputs], axis=-2)
        moved = np.linalg.norm(outputs - before[..., None, :], axis=-1)
        size = np.linalg.norm(before, axis=-1).mean(axis=-1)[..., None, None]
        return np.where(moved > 0, moved / size, moved)


def leak(model, x, mask, *, tokens=None):
    """The largest `influence` of a token on an output to which the mask leaves no path.

    x, mask: as for the model; tokens: the places that are tried, by default 8 from first to last
    -> a float: 0 for a model that keeps the mask

    A path has a step for each layer, and every output may depend on its own token.

    >>> from qkvlib.numpy import MultiHeadAttention, causal_mask
    >>> layer = MultiHeadAttention(8, 2, generator=np.random.default_rng(0))
    >>> x = np.random.default_rng(1).normal(size=(3, 8))
    >>> leak(layer, x, causal_mask(3))
    0.0
    >>> leak(lambda x, mask: layer(x), x, causal_mask(3)) > 0.01
    True
    """
    tokens = some_tokens(x) if tokens is None else tokens
    moved = influence(model, x, mask, tokens=tokens)
    step = paths = may_reach(mask, x)
    for _ in layers_of(model)[1:]:
        paths = step @ paths
    closed = np.broadcast_to(~paths[..., list(tokens)], moved.shape)
    return float(moved.max(where=closed, initial=0.0))


def token_spread_by_depth(model, x, mask=None):
    """`token_spread` of what goes into the first layer and of what comes out of each.

    x, mask: as for the model -> `(layers + 1,)`, the mean over the texts of a batch

    Source: Dong et al. 2021, "Attention is Not All You Need: Pure Attention Loses Rank Doubly
    Exponentially with Depth", section 2: attention alone makes all tokens the same.

    >>> from qkvlib.numpy import MultiHeadAttention
    >>> generator = np.random.default_rng(0)
    >>> layers = [MultiHeadAttention(32, 4, generator=generator) for _ in range(4)]
    >>> spread = token_spread_by_depth(layers, generator.normal(size=(9, 32)))
    >>> bool(spread[0] > 0.8), bool(spread[-1] < 1e-4)
    (True, True)
    """
    with quiet(), at_rest(model):
        states, _ = walk(model, x, mask)
        return np.array([np.mean(token_spread(state)) for state in states])


def gradient_norms(model, x, loss, mask=None):
    """How large the gradient is in each layer of a torch model: the norm over its parameters.

    x, mask: as for the model; loss: a function of the model's output that returns one number
    -> `(layers,)`; dropout is off. Raises `TypeError` for a model that is not torch's.
    """
    return np.array([norm(layer.values()) for layer in gradients(model, x, loss, mask)])


# ---- what a model is -----------------------------------------------------------------------------


def layers_of(model):
    """The layers of a model in order: its `blocks`, those of a list, or the model itself."""
    if hasattr(model, "blocks"):
        return list(model.blocks)
    return list(model) if hasattr(model, "__iter__") else [model]


def run(model, x, mask):
    """The output of a model, or of a list of layers one after another."""
    if hasattr(model, "__iter__"):
        for layer in model:
            x = layer(x, mask=mask)
        return x
    return model(x, mask=mask)


def walk(model, x, mask):
    """What goes into each layer and comes out of the last, and the weights of each layer."""
    if hasattr(model, "trace"):
        return model.trace(x, mask=mask)
    states, weights = [x], []
    for layer in layers_of(model):
        weights.append(layer.attention_weights(states[-1], mask=mask))
        states.append(layer(states[-1], mask=mask))
    return states, weights


def is_ids(x):
    """Whether x holds token ids `(..., n)`, not vectors `(..., n, d_model)`."""
    return not (x.is_floating_point() if is_torch(x) else x.dtype.kind == "f")


def length(x):
    """The number of tokens."""
    return x.shape[-1] if is_ids(x) else x.shape[-2]


def some_tokens(x):
    """At most `PROBED` places: the first, the last, and any between, at no even distance.

    (At even distances a reshape may bring each of them back to its own place.)
    """
    n = length(x)
    between = np.random.default_rng(n).permutation(np.arange(1, n - 1))
    return sorted({0, n - 1, *between[: PROBED - 2].tolist()})


@contextlib.contextmanager
def quiet(*, gradients=False):
    """No warning about NaN, and in torch no gradients unless they are asked for."""
    with np.errstate(all="ignore"):
        if "torch" not in sys.modules:
            yield
            return
        with sys.modules["torch"].set_grad_enabled(gradients):
            yield


@contextlib.contextmanager
def at_rest(model):
    """The model without dropout; afterwards each module is in the mode in which it was."""
    parts = [part for part in (model, *layers_of(model)) if hasattr(part, "modules")]
    modes = {module: module.training for part in parts for module in part.modules()}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def with_another_token(x, j):
    """A copy of x with another token in place j of every text."""
    x = x.detach().clone() if is_torch(x) else x.copy()
    at = (..., j) if is_ids(x) else (..., j, slice(None))
    old = x[at].cpu().numpy() if is_ids(x) and is_torch(x) else x[at]
    new = _another_id(old, x, j) if is_ids(x) else _another_vector(old, x, j)
    x[at] = x.new_tensor(new) if is_torch(x) else new
    return x


def _another_vector(old, x, seed):
    noise = np.random.default_rng(seed).normal(size=tuple(old.shape))
    return as_float64("x", old) + noise * np.sqrt((rms(x) ** 2).mean())


def _another_id(old, x, seed):
    known = np.unique(x.cpu().numpy() if is_torch(x) else x)
    known = np.array([0, 1]) if len(known) == 1 else known
    step = np.random.default_rng(seed).integers(1, len(known), old.shape)
    return known[(np.searchsorted(known, old) + step) % len(known)]


def may_reach(mask, x):
    """Which output may depend on which token after one layer, in any head: `(..., n, n)`.

    Every output may depend on its own token, which asks the question or is added to the answer.
    """
    own = np.eye(length(x), dtype=bool)
    if mask is None:
        return np.ones_like(own)
    allowed = mask_array(mask, *own.shape, is_torch(x))
    return own | (allowed.any(axis=-3) if allowed.ndim > 2 else allowed)


def gradients(model, x, loss, mask):
    """The gradients of each layer's parameters: for each layer `{parameter: gradient}`."""
    if not callable(loss):
        raise TypeError(
            "loss must be a function of the model's output that returns one number, "
            f"got {type(loss).__name__}"
        )
    if not is_torch(x):
        raise TypeError(
            "loss needs gradients, which only torch has: pass a qkvlib.torch model and tensors, "
            f"got a {type(x).__name__}"
        )
    import torch

    layers = [[p for p in layer.parameters() if p.requires_grad] for layer in layers_of(model)]
    learning = [p for layer in layers for p in layer]
    with quiet(gradients=True), at_rest(model):
        value = loss(run(model, x, mask))
        _check_loss(value)
        if not learning:  # all are frozen
            return [{} for _ in layers]
        if not value.requires_grad:
            raise ValueError(
                "loss must be computed from the model's output in torch, got a number without a "
                "gradient; leave out detach, item and no_grad"
            )
        found = iter(torch.autograd.grad(value, learning, allow_unused=True))
    return [{p: next(found) for p in layer} for layer in layers]


def _check_loss(value):
    if not is_torch(value):
        raise TypeError(
            f"loss must return a tensor of one number, got {type(value).__name__}; "
            "leave out item and float"
        )
    if value.numel() != 1:
        raise ValueError(
            f"loss must return one number, got shape {tuple(value.shape)}; write loss.mean()"
        )


def attention_parameters(layer, x):
    """The parameters of a torch layer on which its queries or keys depend, but not its values."""
    import torch

    parameters = [p for p in layer.parameters() if p.requires_grad]
    if not parameters:
        return []
    with torch.enable_grad():
        query, key, value = layer.project_heads(x)
        uses = [
            torch.autograd.grad(part.sum(), parameters, allow_unused=True, retain_graph=True)
            for part in (query, key, value)
        ]
    return [
        p for p, q, k, v in zip(parameters, *uses) if v is None and not (q is None and k is None)
    ]


def norm(gradients):
    """The length of all these gradients together; None counts as 0."""
    return float(np.sqrt(sum(float(g.double().square().sum()) for g in gradients if g is not None)))
