"""Models tried on longer sequences than they were trained on: told of positions in six ways."""

import numpy as np
import pytest
import torch

from qkvlib.book.experiments import copy_back, lengths, margins, tasks, training
from qkvlib.patterns import causal, window


def copier(positions, *, pattern=causal, num_heads=4, **options):
    generator = np.random.default_rng(7)
    return lengths.Copier(generator, positions, pattern, num_heads=num_heads, **options)


def trained(model, steps=3):
    generator = np.random.default_rng(1)
    task = (tasks.token_before(generator, 8, 24, distance=2) for _ in range(steps))
    training.train(model, task, lr=0.1)
    return model


def outputs(model, tokens):
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).numpy()


@pytest.fixture
def tokens():
    return np.random.default_rng(3).integers(12, size=(5, 48))


@pytest.mark.parametrize("positions", lengths.POSITIONS)
def test_no_token_sees_the_future(tokens, positions):
    model = trained(copier(positions))
    changed = np.concatenate([tokens[:, :30], (tokens[:, 30:] + 1) % 12], axis=1)
    before, after = outputs(model, tokens), outputs(model, changed)
    np.testing.assert_allclose(before[:, :30], after[:, :30], atol=1e-12)
    assert not np.allclose(before[:, 30:], after[:, 30:], atol=1e-3)


@pytest.mark.parametrize("positions", lengths.POSITIONS)
def test_only_distances_count_for_relative_positions(tokens, positions):
    """With a window, what stands before the window can be cut off: places change, not distances."""
    model = trained(copier(positions, pattern=causal & window(5)))
    whole, cut = outputs(model, tokens)[:, 14:], outputs(model, tokens[:, 10:])[:, 4:]
    relative = positions in ("rotary", "bias", "alibi", None)
    assert np.allclose(whole, cut, atol=1e-9) == relative


@pytest.mark.parametrize("positions", lengths.POSITIONS)
def test_every_kind_but_none_knows_the_order(tokens, positions):
    model = trained(copier(positions))
    swapped = tokens[:, [*range(44), 45, 44, 46, 47]]
    last = slice(-1, None)
    same = np.allclose(outputs(model, tokens)[:, last], outputs(model, swapped)[:, last], atol=1e-9)
    assert same == (positions is None)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_window_reaches_one_step_less_than_its_width_in_each_layer(tokens, layers):
    model = copier("bias", pattern=causal & window(4), layers=layers)
    before = outputs(model, tokens)
    reach = []
    for back in range(12):
        changed = tokens.copy()
        changed[:, 40 - back] = (changed[:, 40 - back] + 1) % 12
        reach.append(np.abs(outputs(model, changed)[:, 40] - before[:, 40]).max() > 0)
    assert sum(reach) == 1 + layers * 3
    assert all(reach[: sum(reach)])


def test_only_the_rows_of_trained_places_move():
    moved = copy_back(steps=3).moved
    assert moved.shape == (48,)
    assert moved[:24].min() > 0
    assert moved[24:].max() == 0
    assert copy_back(steps=1, positions="rotary").moved is None


def test_answers_are_counted_by_place():
    copied = copy_back(steps=0, distance=3)
    assert copied.by_place.shape == (48,)
    assert np.isnan(copied.by_place[:3]).all()
    assert copied.inside == pytest.approx(copied.by_place[3:24].mean())
    assert copied.outside == pytest.approx(copied.by_place[24:].mean())


def test_places_that_are_not_asked_do_not_count():
    batch = tasks.token_before(np.random.default_rng(0), 3, 10, distance=4)

    def half_right(tokens):  # right but in the second sequence; anything where nothing is asked
        answers = torch.roll(tokens, 4, dims=1)
        answers[1] = (answers[1] + 1) % 12
        return torch.nn.functional.one_hot(answers, 12).double()

    share = lengths.share_right(half_right, batch)
    assert np.isnan(share[:4]).all()
    np.testing.assert_allclose(share[4:], 2 / 3)


def test_near_keys_alone_are_read_in_the_second_test():
    """With a window as wide as the training, the same is asked twice."""
    copied = copy_back(steps=20, width=24)
    assert copied.near == copied.outside
    assert copy_back(steps=20).near != copy_back(steps=20).outside


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "clock"}, "positions must be 'learned' or 'sinusoidal' or"),
        ({"distance": 0}, "distance must be at least 1, got 0"),
        ({"width": 0}, "window must be at least 1, got 0"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
    ],
)
def test_errors_say_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        copy_back(**options)


def test_one_seed_falls_within_its_rows():
    rows = {row["figure"]: row for row in margins.table("lengths")}
    near = margins.study_of("lengths").EXPERIMENTS["copy_back, near keys"](0)
    for label, value in near.items():
        assert rows[label]["min"] - 1e-3 <= value <= rows[label]["max"] + 1e-3
