"""What the output matrix is worth to a small model, and where a norm has to stand in a deep one."""

import numpy as np
from torch import nn

from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.reading import SIZES, TEST, draw
from qkvlib.book.experiments.training import accuracy, train


def mix_heads(seed=0, W_O="learned", *, steps=120):
    """Train four heads to output a sequence backwards, with one output matrix or another.

    seed: a number, or a NumPy Generator
    W_O: "learned"; "frozen", random numbers that training leaves as they are; or "absent", the
    heads' values side by side, as if somebody had forgotten it
    -> the share of right answers on sequences that were not trained on

    Raises `ValueError` for other words.

    >>> mix_heads(W_O="absent", steps=0) < 0.3
    True
    """
    models.check_choice("W_O", W_O, "learned", "frozen", "absent")
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    layer = models.heads(for_weights, num_heads=4, d_model=32)
    if W_O == "absent":
        layer.output = nn.Identity()
    layer.output.requires_grad_(W_O == "learned")
    model = models.reader(for_weights, layer, **SIZES)
    return _after_training(model, for_batches, steps, lr=3e-3)


def six_layers(seed=0, norm="pre", *, steps=120):
    """Train six blocks at the learning rate 0.01 to output a sequence backwards.

    seed: a number, or a NumPy Generator
    norm: "pre" or "post", where the norms of each block stand, as in `TransformerBlock`
    -> the share of right answers on sequences that were not trained on

    Which few answers a model gets right that did not learn is chance, and another processor may
    draw another one.

    >>> six_layers(steps=0) < 0.3
    True
    """
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    blocks = [
        models.block(for_weights, models.heads(for_weights, num_heads=2, d_model=16), norm=norm)
        for _ in range(6)
    ]
    model = models.stack(for_weights, blocks, **SIZES)
    return _after_training(model, for_batches, steps, lr=1e-2)


def _after_training(model, generator, steps, lr):
    """The accuracy of `model` on sequences that it was not trained on."""
    test = tasks.reversal(generator, TEST)
    train(model, draw(tasks.reversal, generator, steps), lr=lr)
    return accuracy(model, test)
