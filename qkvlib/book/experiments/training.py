"""The one training loop of the book, and what is asked of a model afterwards."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy


def train(model, batches, *, lr, weight_decay=0.0):
    """Train `model` with AdamW, one step for each batch, and return the loss of every step.

    model: a module that answers with scores (..., choices) for the arrays that it reads
    batches: an iterable of batches, NumPy arrays: what the model reads, and last the targets,
    whole numbers (...)
    -> losses (number of batches,) float64: the mean cross-entropy before each step

    Source: Loshchilov & Hutter 2017, "Decoupled Weight Decay Regularization", algorithm 2.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for batch in batches:
        *inputs, targets = map(torch.from_numpy, batch)
        scores = model(*inputs)
        loss = cross_entropy(scores.flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def accuracy(model, batch):
    """The share of targets in `batch` to which `model` gives the highest score."""
    *inputs, targets = map(torch.from_numpy, batch)
    with torch.no_grad():
        return (model(*inputs).argmax(dim=-1) == targets).double().mean().item()
