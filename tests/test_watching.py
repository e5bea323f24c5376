"""The run that is watched is the one that is trained, and the reading is an entropy."""

import numpy as np
import pytest
import torch

from qkvlib.book.experiments import clinic, margins, models, tasks, watch
from qkvlib.book.experiments.watching import D_MODEL, FACTORS


@pytest.mark.parametrize(("steps", "every", "at"), [(7, 3, [0, 3, 6, 7]), (6, 3, [0, 3, 6])])
def test_it_looks_before_these_steps_and_after_the_last(steps, every, at):
    run = watch(1, steps=steps, every=every)
    assert run.steps.tolist() == at
    assert run.entropy.shape == (len(at),)


@pytest.mark.parametrize("start", FACTORS)
def test_the_entropy_is_that_of_the_weights(start):
    model = clinic.patient(3, layers=1, d_model=D_MODEL)
    with torch.no_grad():
        for projection in (model[0].blocks[0].attention.query, model[0].blocks[0].attention.key):
            projection.weight *= FACTORS[start]
    tokens, _ = tasks.reversal(np.random.default_rng([3, clinic.UNSEEN]), 64)
    p = np.maximum(models.weights_of(model, tokens), 1e-300)
    expected = -(p * np.log(p)).sum(axis=-1).mean() / np.log(tasks.LENGTH)
    assert watch(3, start=start, steps=0).entropy == pytest.approx([expected], rel=1e-9)


def test_looking_changes_nothing():
    often, rarely = watch(2, steps=6, every=1), watch(2, steps=6, every=6)
    assert often.entropy[[0, -1]].tolist() == rarely.entropy.tolist()
    assert often.accuracy == rarely.accuracy


def test_the_seed_decides():
    first, again, other = watch(1, steps=3), watch(1, steps=3), watch(2, steps=3)
    assert first.entropy.tolist() == again.entropy.tolist()
    assert first.entropy.tolist() != other.entropy.tolist()


def test_standard_normal_matrices_are_standard_normal():
    model = clinic.multiplied(
        clinic.patient(0, layers=1, d_model=D_MODEL), FACTORS["N(0, 1)"], "query"
    )
    assert model[0].blocks[0].attention.query.weight.std().item() == pytest.approx(1, rel=0.1)


def test_errors_say_what_was_expected():
    with pytest.raises(ValueError, match=r"start must be 'healthy' or 'tiny' or .*, got 'ill'"):
        watch(start="ill")
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        watch(steps=-1)
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        watch(every=0)


@pytest.mark.parametrize("start", FACTORS)
def test_one_seed_falls_within_its_rows(start):
    name = f"watch, {start}"
    rows = {r["figure"]: r for r in margins.table("watching") if r["experiment"] == name}
    for label, value in margins.study_of("watching").EXPERIMENTS[name](0).items():
        assert rows[label]["min"] - 1e-3 <= value <= rows[label]["max"] + 1e-3
