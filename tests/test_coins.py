"""The coin-flip test: nothing to learn but the future, and patients that differ in their fault."""

import numpy as np
import pytest
import torch

from qkvlib.book import patients
from qkvlib.book.experiments import coins, tasks
from qkvlib.diagnostics import influence, leak
from qkvlib.torch import MultiHeadAttention, causal_mask
from qkvlib.torch.models import Trace

CAUSAL = causal_mask(tasks.LENGTH)
FAULTS = {
    "healthy": {},
    "inverted": {"layer": patients.Inverted},
    "after softmax": {"layer": patients.MaskAfterSoftmax},
    "norm": {"norm": patients.norm_over_tokens},
    "multiplied": {"layer": patients.Multiplied},
    "viewed": {"layer": patients.Viewed},
}
LEAKING = {"inverted", "after softmax", "norm", "multiplied"}

every_fault = pytest.mark.parametrize("fault", FAULTS)


@pytest.fixture
def generator():
    return np.random.default_rng(7)


def test_the_next_flip_is_the_next_token(generator):
    tokens, targets = tasks.next_flip(generator, 50)
    assert tokens.shape == targets.shape == (50, 12)
    assert tokens.dtype == targets.dtype == np.int64
    assert set(tokens.ravel()) == set(range(12))
    np.testing.assert_array_equal(targets[:, :-1], tokens[:, 1:])


def test_what_was_read_says_nothing_about_the_next_flip(generator):
    tokens, targets = tasks.next_flip(generator, 20_000)
    for read in (tokens[:, -1], tokens[:, 0], tokens.sum(axis=1) % 12):
        pairs = np.zeros((12, 12))
        np.add.at(pairs, (read, targets[:, -1]), 1)
        shares = pairs / pairs.sum(axis=1, keepdims=True)
        assert np.abs(shares - 1 / 12).max() < 0.03


def test_labels_that_nobody_shifted(generator):
    tokens, targets = tasks.same_flip(generator, 50)
    np.testing.assert_array_equal(tokens, targets)
    np.testing.assert_array_equal(tokens, tasks.next_flip(np.random.default_rng(7), 50)[0])


@every_fault
def test_all_patients_start_alike_and_flip_the_same_coins(fault):
    one, healthy = coins.flip_coins(3, steps=0, **FAULTS[fault]), coins.flip_coins(3, steps=0)
    assert torch.equal(one.tokens, healthy.tokens)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        for block, sound in zip(one.encoder.blocks, healthy.encoder.blocks):
            assert torch.equal(getattr(block.attention, name), getattr(sound.attention, name))
    assert torch.equal(one.encoder.token_table, healthy.encoder.token_table)


def test_the_healthy_one_is_made_of_the_layers_of_the_library():
    encoder, tokens = coins.flip_coins(steps=2)[1:]
    assert {type(block.attention) for block in encoder.blocks} == {MultiHeadAttention}
    assert leak(encoder, tokens[:2], CAUSAL) == 0


@every_fault
def test_faults_show_before_training(fault):
    encoder, tokens = coins.flip_coins(steps=0, **FAULTS[fault])[1:]
    assert (leak(encoder, tokens[:4], CAUSAL) > 0.01) == (fault in LEAKING)
    moved = influence(encoder, tokens[:4], CAUSAL, tokens=[0])[..., 0] > 1e-9
    reach = {"viewed": 3, "inverted": 1}.get(fault, 12)
    assert (moved.sum(axis=-1) == reach).all()


def test_a_few_steps_teach_the_ones_that_see_the_future():
    assert coins.flip_coins(steps=60, layer=patients.Inverted).accuracy > 0.3
    assert coins.flip_coins(steps=60).accuracy < 0.12


def test_the_seed_decides_everything():
    one, other, another = (coins.flip_coins(seed, steps=2) for seed in (1, 1, 2))
    for a, b, c in zip(*(x.encoder.parameters() for x in (one, other, another))):
        assert torch.equal(a, b)
        assert not torch.equal(a, c) or not a.abs().sum()
    assert one.accuracy == other.accuracy


def made_up(sums, tokens):
    """Coins whose last block has weights with these row sums."""

    class Encoder:
        def trace(self, ids):
            weights = torch.zeros(*sums.shape, 12, dtype=torch.float64)
            weights[..., 0] = torch.from_numpy(sums)
            return Trace([], [weights / 2, weights])

    return coins.Coins(0.0, Encoder(), torch.from_numpy(tokens))


def test_row_sums_that_say_the_next_token_are_read(generator):
    tokens = generator.integers(12, size=(256, 12))
    sums = generator.random((256, 4, 12))
    assert coins.told_by_row_sums(made_up(sums, tokens)) < 0.2
    sums[:, 2, 5] = tokens[:, 6]
    assert coins.told_by_row_sums(made_up(sums, tokens)) > 0.95
    np.testing.assert_allclose(coins.row_sums_of(made_up(sums, tokens)), sums)
    assert coins.told_by_row_sums(made_up(sums, tokens), place=7) < 0.2


def test_errors_say_what_was_expected():
    with pytest.raises(ValueError, match="target must be 'next' or 'same', got 'last'"):
        coins.flip_coins(target="last")
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        coins.flip_coins(steps=-1)
