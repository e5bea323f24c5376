"""What the sizes of a model do, and the sizes of its first weights."""

import math
from typing import NamedTuple

import numpy as np
from torch import nn

from qkvlib._checks import check_count
from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.reading import SIZES, TEST, draw
from qkvlib.book.experiments.training import accuracy, train
from qkvlib.diagnostics import entropy, token_spread


class Narrow(NamedTuple):
    """What `narrow_head` found.

    accuracy: the share of right answers on sequences that were not trained on.
    effective: how many of the 12 keys a query effectively reads, the mean over these sequences.
    found: the share of queries that read the right place most.
    """

    accuracy: float
    effective: float
    found: float


def narrow_head(seed=0, *, d_k, steps=300):
    """Train one head with keys `d_k` wide to output a sequence backwards.

    seed: a number, or a NumPy Generator. The values stay 32 wide, so that only the choice of
    where to read gets narrower, not what is handed over.

    >>> 1 < narrow_head(d_k=2, steps=0).effective < 12
    True
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.heads(for_weights, d_model=32, d_k=d_k)
    model = models.reader(for_weights, layer, **SIZES)
    test = tasks.reversal(for_batches, TEST)
    train(model, draw(tasks.reversal, for_batches, steps), lr=5e-3)
    weights = models.weights_of(model, test[0])
    effective = np.exp(entropy(weights)).mean()
    found = (weights.argmax(axis=-1) == np.arange(tasks.LENGTH)[::-1]).mean()
    return Narrow(accuracy(model, test), float(effective), float(found))


class Started(NamedTuple):
    """What `learn_from` found.

    losses (steps,): the loss of every step. accuracy: the share of right answers afterwards.
    """

    losses: np.ndarray
    accuracy: float


def learn_from(std=None, seed=0, *, steps=120, part="all"):
    """Train two blocks to output a sequence backwards, from weights of another size.

    std: the standard deviation of every matrix of the blocks; None for 1 / sqrt(fan_in), which
    keeps the size of what goes through. Token rows, positions and read-out always start alike.
    seed: a number, or a NumPy Generator
    part: "all", or "query-key" to give this deviation to W_Q and W_K alone

    >>> losses, accuracy = learn_from(0.02, steps=2)
    >>> losses.shape, 0 <= accuracy <= 1
    ((2,), True)
    """
    models.check_choice("part", part, "all", "query-key")
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    blocks = [models.block(for_weights, models.heads(for_weights, 4)) for _ in range(2)]
    changed = matrices(blocks)
    if part == "query-key":
        attention = [block.attention for block in blocks]
        changed = [each.weight for a in attention for each in (a.query, a.key)]
    if std is not None:
        for matrix in changed:
            of_size_one = math.sqrt(matrix.shape[1])  # torch keeps (fan_out, fan_in)
            matrix.data *= std * of_size_one
    model = models.stack(for_weights, blocks, **SIZES)
    test = tasks.reversal(for_batches, TEST)
    losses = train(model, draw(tasks.reversal, for_batches, steps), lr=1e-3)
    return Started(losses, accuracy(model, test))


def scale_in_the_weights(seed=0, *, steps=60, d_k=64):
    """The losses of `loss_curve`, with 1 / sqrt(d_k) moved from the scores into W_Q.

    seed: a number, or a NumPy Generator -> losses (steps,) float64

    Source: Raffel et al. 2020 (T5) leave the scale out and start W_Q smaller, in their code.

    >>> from qkvlib.book.experiments import loss_curve
    >>> np.allclose(scale_in_the_weights(steps=1), loss_curve(steps=1, d_k=64))
    True
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.rescaled(models.heads(for_weights, d_k=d_k), 1.0)
    layer.query.weight.data /= math.sqrt(d_k)
    model = models.reader(for_weights, layer, **SIZES)
    return train(model, draw(tasks.reversal, for_batches, steps), lr=1e-3)


class Flow(NamedTuple):
    """What `flow` found; layer 0 is the input.

    gradients (depth + 1,): the size of the loss's gradient at what each layer hands on.
    spread (depth + 1,): how far the tokens there are from their mean, relative to their size.
    query (depth,): the size of the gradient of each layer's W_Q.
    """

    gradients: np.ndarray
    spread: np.ndarray
    query: np.ndarray


def flow(seed=0, *, skip, norm, gain=1.0, depth=12):
    """One pass through `depth` fresh blocks and back: what is left of the gradient and the tokens.

    seed: a number, or a NumPy Generator
    skip: whether each part adds to what came in; norm: "pre", or None for blocks without norms
    gain: every matrix has the standard deviation gain / sqrt(fan_in)

    The loss is the sum of the outputs, each times a random number, so that the gradient at the
    last layer does not depend on the layers.

    >>> flow(skip=True, norm="pre", depth=2).gradients.shape
    (3,)
    """
    models.check_choice("norm", norm, "pre", None)
    generator = np.random.default_rng(seed)
    tokens, answer = models.normal(generator, 2, 16, 64)
    blocks = [
        models.block(generator, models.heads(generator, 4), skip=skip)
        for _ in range(check_count("depth", depth))
    ]
    for matrix in matrices(blocks):
        matrix.data *= gain
    if norm is None:
        for block in blocks:
            block.attention_norm = block.feed_forward_norm = nn.Identity()
    stream = [tokens.requires_grad_()]
    for block in blocks:
        stream.append(block.double()(stream[-1]))
        stream[-1].retain_grad()
    (stream[-1] * answer).sum().backward()
    return Flow(
        np.array([x.grad.norm().item() for x in stream]),
        np.array([token_spread(x.detach()) for x in stream]),
        np.array([block.attention.query.weight.grad.norm().item() for block in blocks]),
    )


def matrices(blocks):
    """The weight matrices of the blocks, without biases and without the vectors of the norms."""
    return [p for block in blocks for p in block.parameters() if p.ndim == 2]
