"""Deep models before the first step of training: what do their gradients give away?"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from qkvlib.book.experiments import models
from qkvlib.book.experiments.reading import SIZES
from qkvlib.book.experiments.tasks import reversal

DEEP = ("healthy", "no skip, no norm", "no skip", "no queries, no keys")
D_MODEL, HEADS, DEPTH, BATCH = 32, 4, 12, 32


class Deep(NamedTuple):
    """A model that has learned nothing yet, and what is needed to ask for its gradients.

    encoder: its blocks, a model of `qkvlib.torch` that reads token ids. tokens (32, 12): a batch
    to read. loss: a function of the encoder's output, the cross-entropy of reading backwards.
    """

    encoder: nn.Module
    tokens: torch.Tensor
    loss: object


def deep_reader(kind="healthy", seed=0):
    """Twelve blocks that are to read sequences backwards: healthy, or with a fault.

    kind: "healthy", with the norms before the parts and a skip around each; "no skip", without
    the skips; "no skip, no norm", without the norms too, also the one before the read-out; or
    "no queries, no keys", healthy but for W_Q = W_K = 0
    seed: a number, or a NumPy Generator; all kinds draw the same numbers
    -> `Deep`

    Weights have variance 1 / (3 fan_in), as those of a fresh `nn.Linear` of torch.

    Raises `ValueError` for another kind.

    >>> encoder, tokens, loss = deep_reader()
    >>> len(encoder.blocks), tuple(encoder(tokens).shape)
    (12, (32, 12, 32))
    """
    models.check_choice("kind", kind, *DEEP)
    generator = np.random.default_rng(seed)
    blocks = [_block(generator, kind) for _ in range(DEPTH)]
    encoder, norm, read_out = models.stack(generator, blocks, **SIZES)
    norm = nn.Identity() if kind == "no skip, no norm" else norm
    tokens, targets = map(torch.from_numpy, reversal(generator, BATCH))

    def loss(output):
        return cross_entropy(read_out(norm(output)).flatten(0, -2), targets.flatten())

    return Deep(encoder, tokens, loss)


def query_gradients(model):
    """The size of the gradient of W_Q in each block of a `Deep`: a NumPy array."""
    encoder, tokens, loss = model
    matrices = [block.attention.query.weight for block in encoder.blocks]
    gradients = torch.autograd.grad(loss(encoder(tokens)), matrices)
    return np.array([gradient.norm().item() for gradient in gradients])


def _block(generator, kind):
    block = models.block(
        generator,
        models.heads(generator, HEADS, d_model=D_MODEL),
        skip=kind in ("healthy", "no queries, no keys"),
    )
    with torch.no_grad():
        for parameter in block.parameters():
            if parameter.ndim == 2:
                parameter /= math.sqrt(3)
    if kind == "no skip, no norm":
        block.attention_norm = block.feed_forward_norm = nn.Identity()
    if kind == "no queries, no keys":
        nn.init.zeros_(block.attention.query.weight)
        nn.init.zeros_(block.attention.key.weight)
    return block
