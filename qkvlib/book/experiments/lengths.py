"""Models that learn on short sequences and are tried on longer ones, or look through a window.

The task: at each place, output the token that stands some places before.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from qkvlib._checks import check_count
from qkvlib.book.experiments import models, tasks
from qkvlib.book.experiments.training import train
from qkvlib.patterns import causal, window
from qkvlib.torch import (
    LayerNorm,
    alibi_bias,
    relative_buckets,
    relative_distances,
    rotary_angles,
    rotate,
    sinusoidal_positions,
)
from qkvlib.torch.multihead import linear_from

TRAINED, TRIED = 24, 48
"""How long the sequences are that a model learns on, and those that it is tried on."""

BATCH, TEST = 32, 64
POSITIONS = ("learned", "sinusoidal", "rotary", "bias", "alibi", None)


class Copied(NamedTuple):
    """What `copy_back` found.

    inside, outside: the share of right answers at the places that training had, 0 to 23, and at
    those beyond, 24 to 47. moved (48,): how far training moved each row of a learned table of
    positions; None for other kinds of positions.
    """

    inside: float
    outside: float
    near: float
    by_place: np.ndarray
    moved: np.ndarray | None


def copy_back(
    seed=0, *, positions="learned", distance=2, width=None, layers=1, num_heads=4, steps=200
):
    """Train a causal model on 24 tokens to output the token `distance` places before each.

    seed: a number, or a NumPy Generator
    positions: "learned" or "sinusoidal", added to the tokens; "rotary", turning queries and
    keys; "bias", a learned number for each bucket of distances, as in T5; "alibi", scores that
    fall with distance; or None
    width: a query sees itself and the `width - 1` tokens before it, in every layer; None for all
    num_heads: of d_model 32, so that a head is 32 / num_heads wide

    Places with nothing `distance` places before them are not asked. Guessing gives 1 in 12.

    Raises `ValueError` for other words.

    >>> copy_back(steps=0).moved.max()
    np.float64(0.0)
    """
    models.check_choice("positions", positions, *POSITIONS)
    distance = check_count("distance", distance)
    for_weights, for_batches = np.random.default_rng(seed).spawn(2)
    pattern = causal if width is None else causal & window(width)
    model = Copier(for_weights, positions, pattern, layers=layers, num_heads=num_heads)
    before = model.places.detach().numpy().copy()
    task = partial(tasks.token_before, distance=distance)
    steps = check_count("steps", steps, least=0)
    train(model, (task(for_batches, BATCH, TRAINED) for _ in range(steps)), lr=1e-2)
    moved = np.linalg.norm(model.places.detach().numpy() - before, axis=-1)
    batch = task(for_batches, TEST, TRIED)
    by_place = share_right(model, batch)
    model.pattern = pattern & window(TRAINED)
    near = share_right(model, batch)
    return Copied(
        inside=np.nanmean(by_place[:TRAINED]),
        outside=np.nanmean(by_place[TRAINED:]),
        near=np.nanmean(near[TRAINED:]),
        by_place=by_place,
        moved=moved if positions == "learned" else None,
    )


def share_right(model, batch):
    """The share of right answers at each place, (n,); NaN where nothing is asked."""
    tokens, targets = batch
    with torch.no_grad():
        given = model(torch.from_numpy(tokens)).argmax(dim=-1).numpy()
    return np.where(targets == tasks.NOT_ASKED, np.nan, given == targets).mean(axis=0)


class Copier(nn.Module):
    """A causal model of 32 numbers a token, told of positions in one of several ways."""

    def __init__(self, generator, positions, pattern, *, num_heads, layers=1, d_model=32):
        super().__init__()
        self.positions, self.pattern = positions, pattern
        self.tokens = nn.Parameter(models.normal(generator, tasks.VOCABULARY, d_model))
        places = models.normal(generator, TRIED, d_model)
        if positions == "sinusoidal":
            places = sinusoidal_positions(TRIED, d_model)
        if positions not in ("learned", "sinusoidal"):
            places = torch.zeros_like(places)
        self.places = nn.Parameter(places, requires_grad=positions == "learned")
        self.buckets = nn.Parameter(torch.zeros(16, num_heads, dtype=places.dtype))
        layer = partial(models.heads, generator, num_heads, d_model=d_model)
        self.blocks = nn.ModuleList(models.block(generator, layer()) for _ in range(layers))
        for block in self.blocks:
            block.attention.rotate = turned if positions == "rotary" else None
        answers = models.projection(generator, d_model, tasks.VOCABULARY)
        self.read_out = nn.Sequential(LayerNorm(d_model), linear_from(answers))
        self.double()

    def forward(self, ids):
        n = ids.shape[-1]
        x = self.tokens[ids] + self.places[:n]
        for block in self.blocks:
            x = block(x, mask=self.pattern, bias=self.bias(n))
        return self.read_out(x)

    def bias(self, n):
        """What is added to the scores of each head, `(h, n, n)`, or None."""
        if self.positions == "alibi":
            return alibi_bias(self.buckets.shape[1], n)
        if self.positions == "bias":
            buckets = {"bidirectional": False, "num_buckets": 16, "max_distance": 24}
            return self.buckets[relative_buckets(relative_distances(n), **buckets)].movedim(-1, 0)
        return None


def turned(x, positions):
    """Queries or keys, turned by their position."""
    return rotate(x, *rotary_angles(positions, x.shape[-1]), pairing="half")
