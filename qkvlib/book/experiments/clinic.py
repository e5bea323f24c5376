"""Deep models with one fault each, for the clinic: build, look at, train, look again.

    model = patient(seed=0, skip=False)     a model; every switch left alone makes a healthy one
    look(model)                             `diagnose`, with gradients, before training
    spread_by_depth(model)                  how different the tokens still are, layer by layer
    losses = treat(model, lr=1e-2)          training: it changes the model
    score(model)                            the share of right answers on unseen sequences

Weights, batches and unseen sequences of one seed come from three generators, so two patients of
the same seed start alike and are trained on the same batches, whatever their fault.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from qkvlib._checks import check_count
from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.training import accuracy, train
from qkvlib.diagnostics import diagnose, token_spread_by_depth
from qkvlib.torch import MultiHeadAttention, TransformerBlock

WEIGHTS, BATCHES, UNSEEN = range(3)
"""What the generators of a seed are for."""


def generator_of(seed, use):
    """The NumPy Generator of a seed, a whole number, for WEIGHTS, BATCHES or UNSEEN."""
    return np.random.default_rng([seed, use])


def patient(
    seed=0,
    *,
    layers=6,
    d_model=32,
    num_heads=4,
    d_k=None,
    norm="pre",
    skip=True,
    std=None,
    scale=None,
    kind=MultiHeadAttention,
    pattern=None,
    vocabulary=tasks.VOCABULARY,
    length=tasks.LENGTH,
):
    """A model that reads tokens and scores, at each place, every possible token.

    layers, d_model, num_heads, d_k: its size
    norm: "pre" or "post"; skip: False for blocks that add nothing to what came in
    std: the standard deviation of all weights in the blocks, by default 1 / sqrt(fan_in)
    scale: what scores are multiplied by, by default 1 / sqrt(d_k)
    kind: the class of the attention layers, such as `derive` of `qkvlib.book.patients` makes one
    pattern: who may attend to whom, such as `qkvlib.patterns.causal`; None for everybody
    -> an `nn.Sequential` of encoder, norm and read-out, as `models.stack` makes it

    >>> tuple(patient(layers=2)(torch.tensor([[4, 0, 2]])).shape)
    (1, 3, 12)
    """
    generator = generator_of(seed, WEIGHTS)
    blocks = []
    for _ in range(check_count("layers", layers)):
        attention = models.heads(generator, num_heads, d_model=d_model, d_k=d_k, kind=kind)
        attention = models.rescaled(attention, scale)
        blocks.append(models.block(generator, attention, norm=norm, skip=skip))
    if std is not None:
        redrawn(blocks, std)
    if pattern is not None:  # sick layers understand nothing but arrays
        pattern = torch.from_numpy(pattern.array(length, length))
    return models.stack(generator, blocks, vocabulary=vocabulary, length=length, pattern=pattern)


def redrawn(blocks, std):
    """`blocks` with the same random numbers in their matrices, of standard deviation `std`."""
    for linear in (part for block in blocks for part in block.modules()):
        if isinstance(linear, nn.Linear):
            linear.weight.data *= std * math.sqrt(linear.in_features)
    return blocks


def multiplied(model, factor, *names):
    """`model` with the weights of these projections of every layer multiplied by `factor`.

    names: some of "query", "key", "value", "output"

    >>> model = multiplied(patient(layers=1), 0.0, "query", "key")
    >>> look(model).cause
    'zero_saddle'
    """
    for block in model[0].blocks:
        for name in names:
            getattr(block.attention, name).weight.data *= factor
    return model


class Rewired(TransformerBlock):
    """A block with norm="pre" that adds up in its own way: x becomes `join(x, read, made)`.

    read: what a part was given, the norm of x; made: what it made of that. `x + made` is right.
    """

    join = None

    def forward(self, x, *, mask=None, bias=None, cache=None):
        read = self.attention_norm(x)
        x = self.join(x, read, self.attention(read, mask=mask, bias=bias, cache=cache))
        read = self.feed_forward_norm(x)
        return self.join(x, read, self.feed_forward(read))


def rewired(model, join):
    """`model`, whose norms come first, with blocks that add up by `join`, a function as above."""
    encoder = model[0]
    for number, block in enumerate(encoder.blocks):
        parts = block.attention, block.feed_forward, block.attention_norm, block.feed_forward_norm
        encoder.blocks[number] = Rewired.from_parts(*parts)
        encoder.blocks[number].join = join
    return model


def without_output(model):
    """`model` without W_O: a matrix that changes nothing stands in its place, and stays."""
    for block in model[0].blocks:
        weight = block.attention.output.weight
        weight.data = torch.eye(*weight.shape, dtype=weight.dtype)
        weight.requires_grad_(False)
    return model


def distance(model, reference, *, task=tasks.reversal, seed=0):
    """How far the outputs of two models are apart, by the size of the reference's."""
    tokens, _ = task(generator_of(seed, UNSEEN), 16)
    with torch.no_grad():
        one, other = (each(torch.from_numpy(tokens)) for each in (model, reference))
    return float((one - other).norm() / other.norm())


def treat(model, *, task=tasks.reversal, seed=0, steps=100, lr=1e-2, batch=16):
    """Train the model with AdamW, and return the loss of every step."""
    generator = generator_of(seed, BATCHES)
    steps = check_count("steps", steps, least=0)
    return train(model, (task(generator, batch) for _ in range(steps)), lr=lr)


def score(model, *, task=tasks.reversal, seed=0):
    """The share of right answers on 256 sequences that were not trained on."""
    return accuracy(model, task(generator_of(seed, UNSEEN), 256))


def look(model, *, task=tasks.reversal, seed=0, mask=None, trained=False):
    """What `diagnose` says of the model's layers on 16 unseen sequences, with gradients."""
    tokens, targets = map(torch.from_numpy, task(generator_of(seed, UNSEEN), 16))

    def loss(hidden):
        return cross_entropy(model[1:](hidden).flatten(0, -2), targets.flatten())

    return diagnose(model[0], tokens, mask=mask, loss=loss, trained=trained)


def spread_by_depth(model, *, task=tasks.reversal, seed=0, mask=None):
    """`token_spread` of what goes into the first layer and comes out of each, `(layers + 1,)`."""
    tokens, _ = task(generator_of(seed, UNSEEN), 16)
    return token_spread_by_depth(model[0], torch.from_numpy(tokens), mask)
