"""The experiments of the chapter on several heads: right tasks, and models that cannot cheat."""

import numpy as np
import pytest
import torch

from qkvlib.book.experiments import (
    early_loss,
    heads,
    margins,
    pair_before,
    repeats,
    tasks,
    training,
    two_patterns,
)

ROWS = {(row["experiment"], row["figure"]): row for row in margins.table("heads")}


@pytest.fixture
def generator():
    return np.random.default_rng(7)


# Tasks


def test_pair_before(generator):
    tokens, targets = tasks.pair_before(generator, 50)
    assert tokens.dtype == targets.dtype == np.int64
    assert set(tokens.ravel()) == set(range(12))
    for sequence, answers in zip(tokens.tolist(), targets.tolist()):
        padded = [sequence[0]] * 2 + sequence
        assert answers == [[padded[i + 1], padded[i]] for i in range(12)]


def test_two_patterns(generator):
    tokens, targets = tasks.two_patterns(generator, 50)
    assert targets.shape == (50, 12, 1)
    for sequence, answers in zip(tokens.tolist(), targets[..., 0].tolist()):
        for i, answer in enumerate(answers):
            assert answer == (sequence[max(i - 1, 0)] if i % 2 == 0 else sequence[0])


def test_repeats_start_over_and_ask_only_what_can_be_known(generator):
    tokens, targets = tasks.repeats(generator, 60, periods=[5, 7])
    assert tokens.shape == targets.shape == (60, 24)
    assert tokens.dtype == targets.dtype == np.int64
    periods = []
    for sequence, answers in zip(tokens.tolist(), targets.tolist()):
        period = next(p for p in range(1, 24) if sequence[p] == sequence[0])
        periods.append(period)
        assert len(set(sequence[:period])) == period
        assert sequence == [sequence[i % period] for i in range(24)]
        assert answers[:period] == [tasks.NOT_ASKED] * period
        assert answers[period:] == [sequence[(i + 1) % period] for i in range(period, 24)]
    assert set(periods) == {5, 7}


def test_unknown_targets_teach_nothing(generator):
    model = torch.nn.Linear(3, 4, dtype=torch.float64)
    x = generator.normal(size=(5, 3))
    targets = np.array([1, tasks.NOT_ASKED, 2, tasks.NOT_ASKED, 0])
    other = x.copy()
    other[targets == tasks.NOT_ASKED] = 9
    with torch.no_grad():
        known = torch.from_numpy(x)[targets != tasks.NOT_ASKED]
        log_p = torch.log_softmax(model(known), dim=-1)
        expected = -log_p[range(3), targets[targets != tasks.NOT_ASKED]].mean()
    [loss] = training.train(model, [(other, targets)], lr=0.0)
    assert loss == pytest.approx(float(expected))


# Models


def test_a_place_reader_chooses_by_place_and_is_linear_in_the_token_values(generator):
    model = heads.PlaceReader(generator, 3, answers=2)
    assert heads._count(model) == 3456
    W_Q, W_K, W_V, W_O = (
        getattr(model.attention, name).detach().numpy() for name in ("W_Q", "W_K", "W_V", "W_O")
    )
    places, table = model.places.detach().numpy(), model.tokens.detach().numpy()
    tokens = generator.integers(12, size=12)
    mixed = 0
    for part in np.split(np.arange(24), 3):
        scores = places @ W_Q[:, part] @ (places @ W_K[:, part]).T / np.sqrt(8)
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        mixed = mixed + weights @ table[tokens] @ W_V[:, part] @ W_O[part]
    expected = (mixed @ model.read_out.detach().numpy()).reshape(12, 2, 12)
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(tokens)), expected, atol=1e-12)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 8, 12, 24])
def test_the_layer_is_as_large_with_any_number_of_heads(num_heads):
    assert pair_before(num_heads=num_heads, steps=0).parameters == 3456


def test_distances_are_counted_from_the_place():
    weights = np.zeros((3, 6, 6))
    for head, back in enumerate([2, 0, 1]):
        for i in range(6):
            weights[head, i, max(i - back, 0)] = 1
    assert heads.distances(weights) == [2, 0, 1]


def test_a_repeat_reader_does_not_see_what_comes_next(generator):
    model = heads.RepeatReader(generator, layers=2, num_heads=2)
    torch.nn.init.normal_(model.liked, generator=torch.Generator().manual_seed(1))
    [tokens], _ = tasks.repeats(generator, 1, periods=[9])
    changed = tokens.copy()
    changed[13] = (tokens[13] + 1) % 16
    with torch.no_grad():
        moved = (model(torch.from_numpy(changed)) - model(torch.from_numpy(tokens))).abs()
    assert (moved.amax(dim=-1) > 1e-9).tolist() == [False] * 13 + [True] * 11


def test_a_repeat_reader_shows_what_it_reads(generator):
    model = heads.RepeatReader(generator, layers=2, num_heads=2)
    torch.nn.init.normal_(model.liked, generator=torch.Generator().manual_seed(1))
    [tokens], _ = tasks.repeats(generator, 1, periods=[9])
    weights = model.read(tokens)
    assert weights.shape == (2, 2, 24, 24)
    with torch.no_grad():
        x = model.norms[0](model.tokens[torch.from_numpy(tokens)]).numpy()
    W_Q, W_K = (W.detach().numpy()[:, 16:] for W in (model.layers[0].W_Q, model.layers[0].W_K))
    liked = model.liked.detach().numpy()[0, 1]
    for i in range(24):
        scores = [x[i] @ W_Q @ (x[j] @ W_K) / 4 + liked[i - j] for j in range(i + 1)]
        expected = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(weights[0, 1, i, : i + 1], expected, atol=1e-12)
    assert not np.triu(weights[0, 1], 1).any()


# The experiments

QUICK = {
    "pair_before": lambda seed: pair_before(seed, num_heads=2, steps=3),
    "two_patterns": lambda seed: two_patterns(seed, steps=3),
    "repeats": lambda seed: repeats(seed, layers=2, steps=3),
    "early_loss": lambda seed: [early_loss("backwards", seed, num_heads=2, steps=3)],
}


@pytest.mark.parametrize("experiment", QUICK.values(), ids=QUICK)
def test_the_seed_decides_everything(experiment):
    def numbers(seed):
        return np.concatenate([np.ravel(part) for part in experiment(seed)])

    first, torch_state = numbers(1), torch.get_rng_state()
    torch.rand(3)
    np.testing.assert_array_equal(first, numbers(1))
    np.testing.assert_array_equal(first, numbers(np.random.default_rng(1)))
    assert not np.array_equal(first, numbers(2))
    torch.set_rng_state(torch_state)
    experiment(1)
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_an_early_loss_is_the_mean_of_the_last_ten():
    assert early_loss("pair", 3, steps=10) > early_loss("pair", 3, steps=40) > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: early_loss("mirror"), "task must be 'backwards' or 'pair', got 'mirror'"),
        (lambda: pair_before(steps=-1), "steps must be at least 0, got -1"),
        (lambda: repeats(layers=1, steps=-1), "steps must be at least 0, got -1"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["two_patterns", "repeats"])
def test_one_seed_falls_within_its_rows(name):
    for label, value in margins.study_of("heads").EXPERIMENTS[name](0).items():
        row = ROWS[name, label]
        assert row["min"] - 1e-3 <= value <= row["max"] + 1e-3, label


def test_the_followers_are_the_places_after_the_same_token():
    study = margins.study_of("heads")
    weights = np.zeros((24, 24))
    sequence = [i % 9 for i in range(24)]
    for i in range(24):
        for j in range(1, i + 1):
            weights[i, j] = sequence[j - 1] == sequence[i]
    counts = [1] * 9 + [2] * 6  # one earlier round, then two
    np.testing.assert_array_equal(study.followers(weights), counts)
