"""The experiments of chapter 6.1 and 6.2: the start is what was asked for, and nothing else."""

import math

import numpy as np
import pytest

from qkvlib.book.experiments import loss_curve, margins, models, sizes

ROWS = {(row["experiment"], row["figure"]): row for row in margins.table("sizes")}


def captured(monkeypatch, call):
    """The model that an experiment hands to the training loop."""
    held = []
    monkeypatch.setattr(sizes, "train", lambda model, *_, **__: held.append(model) or np.zeros(0))
    call()
    return held[0]


@pytest.mark.parametrize("std", [None, 0.02, 1.0])
def test_every_matrix_of_the_blocks_starts_with_that_deviation(monkeypatch, std):
    encoder = captured(monkeypatch, lambda: sizes.learn_from(std))[0]
    found = sizes.matrices(encoder.blocks)
    assert len(found) == 12
    for matrix in found:
        wanted = 1 / math.sqrt(matrix.shape[1]) if std is None else std
        assert matrix.std().item() == pytest.approx(wanted, rel=0.05)
    assert encoder.token_table.std().item() == pytest.approx(1, rel=0.1)


def test_queries_and_keys_alone_can_start_with_another_deviation(monkeypatch):
    changed = captured(monkeypatch, lambda: sizes.learn_from(1.0, part="query-key"))[0]
    healthy = captured(monkeypatch, lambda: sizes.learn_from())[0]
    for each, other in zip(changed.blocks, healthy.blocks):
        for name in ("query", "key"):
            weight = getattr(each.attention, name).weight
            assert weight.std().item() == pytest.approx(1, rel=0.05)
        assert each.attention.value.weight.equal(other.attention.value.weight)


@pytest.mark.parametrize("d_k", [1, 4])
def test_only_queries_and_keys_get_narrow(monkeypatch, d_k):
    [block] = captured(monkeypatch, lambda: sizes.narrow_head(d_k=d_k))[0].blocks
    attention = block.attention
    assert attention.W_Q.shape == attention.W_K.shape == (32, d_k)
    assert attention.W_V.shape == attention.W_O.shape == (32, 32)


def test_the_scale_moves_into_the_weights_without_a_change_at_first():
    moved, plain = sizes.scale_in_the_weights(3, steps=2), loss_curve(3, steps=2, d_k=64)
    assert moved[0] == pytest.approx(plain[0], abs=1e-12)
    assert abs(moved[1] - plain[1]) > 1e-6


@pytest.mark.parametrize("norm", ["pre", None])
def test_blocks_that_add_nothing_pass_the_gradient_unchanged(norm):
    found = sizes.flow(skip=True, norm=norm, gain=0.0, depth=3)
    np.testing.assert_allclose(found.gradients, found.gradients[-1], rtol=1e-12)
    np.testing.assert_allclose(found.spread, found.spread[0], rtol=1e-12)


def test_without_a_skip_such_blocks_pass_nothing():
    found = sizes.flow(skip=False, norm=None, gain=0.0, depth=3)
    assert not found.gradients[:-1].any()
    assert found.gradients[-1] > 0


def test_the_last_gradient_does_not_depend_on_the_layers():
    one, other = (
        sizes.flow(skip=skip, norm=norm, depth=2).gradients[-1]
        for skip, norm in [(True, "pre"), (False, None)]
    )
    assert one == pytest.approx(other)


@pytest.mark.parametrize(
    "experiment",
    [
        lambda seed: sizes.narrow_head(seed, d_k=2, steps=3),
        lambda seed: sizes.learn_from(0.02, seed, steps=2).losses,
        lambda seed: sizes.scale_in_the_weights(seed, steps=3),
        lambda seed: sizes.flow(seed, skip=True, norm="pre", depth=2).gradients,
    ],
)
def test_the_seed_decides_everything(experiment):
    first = np.array(experiment(1))
    np.testing.assert_array_equal(first, np.array(experiment(1)))
    np.testing.assert_array_equal(first, np.array(experiment(np.random.default_rng(1))))
    assert not np.array_equal(first, np.array(experiment(2)))


def test_flow_reproduces_its_rows():
    for label, values in margins.measure(margins.study_of("sizes"), "flow").items():
        row = ROWS["flow", label]
        measured = [min(values), float(np.mean(values)), max(values)]
        assert measured == pytest.approx([row["min"], row["mean"], row["max"]], abs=1e-3)


def test_a_wrong_norm_is_an_error():
    with pytest.raises(ValueError, match="norm must be 'pre' or None, got 'post'"):
        sizes.flow(skip=True, norm="post")


def test_matrices_leaves_vectors_out():
    generator = np.random.default_rng(0)
    block = models.block(generator, models.heads(generator, 2, d_model=8))
    assert sorted(tuple(m.shape) for m in sizes.matrices([block])) == sorted(
        [(8, 8)] * 4 + [(32, 8), (8, 32)]
    )
