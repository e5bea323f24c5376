"""The one training loop of the book, and the one question asked of a model afterwards."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm


def train(model, batches, *, lr, weight_decay=0.0):
    """Train `model` with AdamW, one step for each batch, and return the loss of every step.

    model: a module; called with the arrays that it reads it returns scores (..., choices)
    batches: an iterable of batches: NumPy arrays, first what the model reads, last the targets,
    whole numbers (...)
    -> losses (number of batches,) float64: the mean cross-entropy of each batch before its step

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.

    >>> one_number = torch.nn.Linear(1, 2, dtype=torch.float64)
    >>> batch = np.ones((4, 1)), np.array([1, 1, 1, 1])
    >>> losses = train(one_number, [batch] * 50, lr=0.1)
    >>> losses.shape, bool(losses[-1] < losses[0])
    ((50,), True)
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for batch in tqdm(batches, unit=" steps", leave=False, delay=1):  # a bar from 1 s on
        *inputs, targets = map(torch.from_numpy, batch)
        scores = model(*inputs)
        loss = cross_entropy(scores.flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def accuracy(model, batch):
    """The share of the targets in `batch` to which `model` gives the highest score."""
    *inputs, targets = map(torch.from_numpy, batch)
    with torch.no_grad():
        return (model(*inputs).argmax(dim=-1) == targets).double().mean().item()
