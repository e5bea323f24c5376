"""The experiments of the chapters: right tasks, one honest loop, and bounds with room."""

import math
import re

import numpy as np
import pytest
import torch

import qkvlib.torch
from qkvlib.book import patients
from qkvlib.book.example import CONTENT, embed
from qkvlib.book.experiments import (
    clinic,
    copy_back,
    copy_previous,
    learn_rules,
    loss_curve,
    margins,
    mirror,
    mix_heads,
    models,
    output,
    reading,
    six_layers,
    tasks,
    training,
)
from qkvlib.diagnostics import leak
from qkvlib.patterns import causal
from qkvlib.torch import causal_mask

TABLE = [row for name in margins.STUDIES for row in margins.table(name)]
ROWS = {(row["experiment"], row["figure"]): row for row in TABLE}
BOUNDED = [row for row in TABLE if row["bound"]]


@pytest.fixture
def generator():
    return np.random.default_rng(7)


# Tasks


@pytest.mark.parametrize("task", [tasks.reversal, tasks.previous_token])
def test_tokens_are_of_every_kind_and_the_answers_are_known(generator, task):
    tokens, targets = task(generator, 50)
    assert tokens.shape == targets.shape == (50, 12)
    assert tokens.dtype == targets.dtype == np.int64
    assert set(tokens.ravel()) == set(range(12))


def test_reversal(generator):
    tokens, targets = tasks.reversal(generator, 50)
    for sequence, answers in zip(tokens.tolist(), targets.tolist()):
        assert answers == list(reversed(sequence))


def test_previous_token(generator):
    tokens, targets = tasks.previous_token(generator, 50)
    for sequence, answers in zip(tokens.tolist(), targets.tolist()):
        for place, answer in enumerate(answers):
            assert answer == (sequence[place - 1] if place else sequence[0])


@pytest.mark.parametrize("distance", [1, 3])
def test_token_before(generator, distance):
    tokens, targets = tasks.token_before(generator, 50, 7, distance=distance)
    assert tokens.shape == targets.shape == (50, 7)
    for sequence, answers in zip(tokens.tolist(), targets.tolist()):
        assert answers == [tasks.NOT_ASKED] * distance + sequence[:-distance]


def words_of(content):
    """The words, read back from their first four coordinates."""
    known = {tuple(row): word for word, row in CONTENT.items() if word != "won"}
    return [known.get(tuple(row), "then") for row in content.astype(int).tolist()]


def test_pronoun_sentences_are_32_different_ones_of_the_stated_form():
    X, is_word, pronoun, name = tasks.pronoun_sentences()
    lengths = is_word.sum(axis=1)
    read = [words_of(x[:n, :4]) for x, n in zip(X, lengths)]
    assert len({tuple(words) for words in read}) == len(read) == 32
    form = r"(then )?(Paul|Emma) told (told )?(Paul|Emma) (then )?(he|she) told"  # told: or won
    for words, place, named in zip(read, pronoun, name):
        assert re.fullmatch(form, " ".join(words))
        assert {"Paul", "Emma"} < set(words)
        assert words[named] == {"he": "Paul", "she": "Emma"}[words[place]]


def test_pronoun_sentences_are_written_as_in_the_running_example():
    X, is_word, _, _ = tasks.pronoun_sentences()
    for x, n in zip(X, is_word.sum(axis=1)):
        words = words_of(x[:n, :4])
        known = [word != "then" for word in words]
        as_embedded = embed([word if word != "then" else "told" for word in words])
        np.testing.assert_array_equal(x[:n][known], as_embedded[known])
        np.testing.assert_array_equal(x[:n, 4:], as_embedded[:, 4:])
        assert not x[:n, :4][np.logical_not(known)].any()
        assert not x[n:].any()


def test_no_fixed_distance_finds_the_name():
    _, _, pronoun, name = tasks.pronoun_sentences()
    _, counts = np.unique(pronoun - name, return_counts=True)
    assert counts.max() <= len(name) / 2


# The loop


def test_a_step_is_adamw(generator):
    x, target = generator.normal(size=(5, 3)), generator.integers(4, size=5)
    model = torch.nn.Linear(3, 4, bias=False, dtype=torch.float64)
    W = model.weight.detach().numpy().copy()
    m = v = np.zeros_like(W)
    losses = []
    for step in range(1, 5):
        p = np.exp(x @ W.T)
        p /= p.sum(axis=1, keepdims=True)
        losses.append(-np.log(p[np.arange(5), target]).mean())
        gradient = (p - np.eye(4)[target]).T @ x / 5
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        W = W * (1 - 0.1 * 0.3)
        W -= 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    measured = training.train(model, [(x, target)] * 4, lr=0.1, weight_decay=0.3)
    np.testing.assert_allclose(measured, losses, rtol=1e-12)
    np.testing.assert_allclose(model.weight.detach().numpy(), W, rtol=1e-9)


def test_accuracy_is_the_share_of_right_answers():
    scores = np.array([[[0.0, 1.0, 0.5], [2.0, 1.0, 0.0]], [[0.0, 0.0, 3.0], [9.0, 8.0, 7.0]]])
    batch = scores, np.array([[1, 1], [2, 0]])
    assert training.accuracy(lambda scores: scores, batch) == 0.75


def test_training_brings_the_loss_down():
    losses = loss_curve(3)
    assert losses.shape == (100,)
    assert losses[0] > math.log(12) > 2 * losses[-10:].max()


# Models


@pytest.mark.parametrize("scale", [None, 0.0, 1.0])
def test_rescaled_heads_attend_with_that_scale(generator, scale):
    x = generator.normal(size=(5, 12))
    plain = models.heads(generator, 3, d_model=12, d_k=7)
    Q, K, V = (
        (x @ W.detach().numpy()).reshape(5, 3, -1).swapaxes(0, 1)
        for W in (plain.W_Q, plain.W_K, plain.W_V)
    )
    weights = np.exp(Q @ K.swapaxes(1, 2) * (7**-0.5 if scale is None else scale))
    weights /= weights.sum(axis=-1, keepdims=True)
    output = (weights @ V).swapaxes(0, 1).reshape(5, 12) @ plain.W_O.detach().numpy()
    layer = models.rescaled(plain, scale)
    with torch.no_grad():
        x = torch.from_numpy(x)
        np.testing.assert_allclose(layer.attention_weights(x).numpy(), weights, atol=1e-12)
        np.testing.assert_allclose(layer(x).numpy(), output, atol=1e-12)


@pytest.mark.parametrize(
    ("pair", "one", "other", "apart"),
    [("query-key", "query", "key", "value"), ("key-value", "key", "value", "query")],
)
def test_tied_projections_stay_one_parameter(generator, pair, one, other, apart):
    layer = models.tied(models.heads(generator), pair)
    model = models.reader(generator, layer, **reading.SIZES)
    before = getattr(layer, one).weight.detach().clone()
    training.train(model, [tasks.reversal(generator, 4)] * 3, lr=0.01)
    assert getattr(layer, one).weight is getattr(layer, other).weight
    assert getattr(layer, one).weight is not getattr(layer, apart).weight
    assert not torch.equal(getattr(layer, one).weight, before)
    assert len(list(layer.parameters())) == 3


def test_untied_projections_are_four_parameters(generator):
    layer = models.tied(models.heads(generator), None)
    assert len({parameter.data_ptr() for parameter in layer.parameters()}) == 4


@pytest.mark.parametrize("positions", ["learned", None])
def test_only_a_reader_with_positions_knows_the_order(generator, positions):
    model = models.reader(generator, models.heads(generator), **reading.SIZES, positions=positions)
    tokens, targets = tasks.reversal(generator, 2)
    training.train(model, [(tokens, targets)] * 3, lr=0.01, weight_decay=0.1)
    order = generator.permutation(12)
    with torch.no_grad():
        straight = model(torch.from_numpy(tokens)).numpy()[:, order]
        shuffled = model(torch.from_numpy(tokens[:, order])).numpy()
    assert np.allclose(straight, shuffled, atol=1e-9) == (positions is None)


def test_weights_are_drawn_with_the_size_that_keeps_the_signal(generator):
    layer = models.heads(generator, 2, d_model=64, d_k=512)
    for W, fan_in in [(layer.W_Q, 64), (layer.W_K, 64), (layer.W_V, 64), (layer.W_O, 64)]:
        assert float(W.detach().var()) * fan_in == pytest.approx(1, rel=0.1)
    assert layer.W_Q.shape == layer.W_K.shape == (64, 1024)
    assert layer.W_V.shape == layer.W_O.shape == (64, 64)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_without_skip_hands_on_only_what_its_parts_make(generator, norm):
    x = torch.from_numpy(generator.normal(size=(5, 12)))
    layer = models.heads(generator, 3, d_model=12)
    seeds = (np.random.default_rng(1) for _ in "12")
    sound, sick = (
        models.block(g, layer, norm=norm, skip=skip).double()
        for g, skip in zip(seeds, (True, False))
    )
    with torch.no_grad():
        read = sick.attention(sick.attention_norm(x) if norm == "pre" else x)
        read = sick.feed_forward_norm(read) if norm == "pre" else sick.attention_norm(read)
        made = sick.feed_forward(read)
        made = made if norm == "pre" else sick.feed_forward_norm(made)
        np.testing.assert_allclose(sick(x).numpy(), made.numpy(), atol=1e-12)
        if norm == "pre":  # what the sound block adds on the way is missing at the end
            middle = x + sound.attention(sound.attention_norm(x))
            added = sound.feed_forward(sound.feed_forward_norm(middle))
            np.testing.assert_allclose(sound(x).numpy(), (middle + added).numpy(), atol=1e-12)
        assert not torch.allclose(sick(x), sound(x), atol=0.1)


def three_blocks(generator, pattern=None):
    blocks = [models.block(generator, models.heads(generator, 2, d_model=12)) for _ in range(3)]
    return models.stack(generator, blocks, vocabulary=7, length=5, pattern=pattern)


def test_a_stack_reads_block_after_block(generator):
    model = three_blocks(generator)
    tokens = torch.tensor([[6, 0, 3, 3, 1]])
    encoder, norm, answers = model
    with torch.no_grad():
        x = encoder.token_table[tokens] + encoder.position_table
        for block in encoder.blocks:
            x = block(x)
        np.testing.assert_array_equal(model(tokens).numpy(), answers(norm(x)).numpy())
        assert torch.equal(encoder.trace(tokens).hidden_states[-1], x)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert model(tokens).shape == (1, 5, 7)


def test_an_encoder_with_a_pattern_keeps_it_in_every_block(generator):
    tokens = torch.tensor([[6, 0, 3, 3, 1]])
    straight, everybody = (three_blocks(generator, p)[0] for p in (causal, None))
    with torch.no_grad():
        for weights in straight.trace(tokens).weights:
            assert not weights.triu(1).any()
            assert (weights.tril() > 0).sum() == 2 * 15
        masks = np.tri(5) > 0
        assert leak(lambda x, mask: straight(x), tokens, masks) == 0
        assert leak(lambda x, mask: everybody(x), tokens, masks) > 0.01


def test_a_mask_that_is_passed_replaces_the_pattern(generator):
    encoder, tokens = three_blocks(generator, causal)[0], torch.tensor([[6, 0, 3, 3, 1]])
    own = torch.eye(5, dtype=torch.bool)
    with torch.no_grad():
        for weights in encoder.trace(tokens, mask=own).weights:
            assert torch.equal(weights, own.double().expand_as(weights))
        last = encoder.trace(tokens, mask=own).hidden_states[-1]
        assert torch.equal(encoder(tokens, mask=own), last)
        assert not torch.allclose(encoder(tokens), last, atol=0.01)


# The clinic


def test_patients_of_one_seed_start_alike_whatever_their_fault():
    healthy = dict(clinic.patient(1).named_parameters())
    for fault in ({"norm": "post"}, {"skip": False}, {"scale": 0.5}, {"pattern": causal}):
        for name, parameter in clinic.patient(1, **fault).named_parameters():
            assert torch.equal(parameter, healthy[name]), fault
    assert not torch.equal(clinic.patient(2)[0].token_table, healthy["0.token_table"])


def test_std_is_that_of_every_matrix_in_the_blocks():
    healthy, sick = clinic.patient(layers=2), clinic.patient(layers=2, std=0.5)
    for (name, before), after in zip(healthy.named_parameters(), sick.parameters()):
        matrix = before.ndim == 2 and ".blocks." in name
        factor = 0.5 * math.sqrt(before.shape[1]) if matrix else 1
        torch.testing.assert_close(after, before * factor)
        assert not matrix or float(after.detach().std()) == pytest.approx(0.5, rel=0.1)


def test_only_the_named_projections_are_multiplied():
    before, after = clinic.patient(layers=2), clinic.patient(layers=2)
    clinic.multiplied(after, 3.0, "key", "output")
    for (name, one), other in zip(before.named_parameters(), after.parameters()):
        factor = 3 if ".key." in name or ".output." in name else 1
        assert torch.equal(other, factor * one)


def test_a_patient_of_another_kind_keeps_its_weights():
    sick = patients.derive(patients.MaskAfterSoftmax, qkvlib.torch)
    model = clinic.patient(layers=2, kind=sick, pattern=causal)
    mask = causal_mask(tasks.LENGTH)
    assert clinic.look(model, mask=mask).cause == "mask_after_softmax"
    for parameter, healthy in zip(model.parameters(), clinic.patient(layers=2).parameters()):
        assert torch.equal(parameter, healthy)


def test_looking_changes_nothing():
    looked, other = clinic.patient(layers=2), clinic.patient(layers=2)
    assert clinic.look(looked).cause == "healthy"
    clinic.spread_by_depth(looked), clinic.score(looked)
    losses = [clinic.treat(model, steps=3) for model in (looked, other)]
    np.testing.assert_array_equal(*losses)


def test_looking_gives_the_gradients_of_the_loss_that_is_trained():
    model = clinic.patient(layers=2)
    tokens, targets = tasks.reversal(clinic.generator_of(0, clinic.UNSEEN), 16)
    scores = model(torch.from_numpy(tokens)).log_softmax(dim=-1)
    right = scores.gather(-1, torch.from_numpy(targets)[..., None])
    (-right.mean()).backward()
    norms = [
        math.sqrt(sum(float((p.grad**2).sum()) for p in block.parameters()))
        for block in model[0].blocks
    ]
    np.testing.assert_allclose(clinic.look(model).readings["gradient"], norms, rtol=1e-9)


def test_unseen_sequences_are_not_those_of_the_batches():
    unseen, trained = (
        tasks.reversal(clinic.generator_of(0, use), 20)[0].tolist()
        for use in (clinic.UNSEEN, clinic.BATCHES)
    )
    assert not any(sequence in trained for sequence in unseen)


def test_a_rewired_block_adds_up_as_it_is_told(generator):
    x = torch.from_numpy(generator.normal(size=(2, 12, 32)))
    sound, same, less = (clinic.patient(layers=1) for _ in range(3))
    clinic.rewired(same, lambda x, read, made: x + made)
    clinic.rewired(less, lambda x, read, made: 2 * x - read - made)
    block = sound[0].blocks[0]
    with torch.no_grad():
        assert torch.equal(same[0].blocks[0](x), block(x))
        middle = 2 * x - block.attention_norm(x) - block.attention(block.attention_norm(x))
        read = block.feed_forward_norm(middle)
        expected = 2 * middle - read - block.feed_forward(read)
        np.testing.assert_allclose(less[0].blocks[0](x).numpy(), expected.numpy(), atol=1e-12)
    assert clinic.distance(same, sound) == 0
    assert clinic.distance(less, sound) > 0.1


def test_without_output_the_heads_are_only_put_side_by_side():
    model = clinic.without_output(clinic.patient(layers=1))
    attention = model[0].blocks[0].attention
    clinic.treat(model, steps=3)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 32)))
    with torch.no_grad():
        weights, value = attention.attention_weights(x), attention.project_heads(x)[2]
        side_by_side = (weights @ value).transpose(0, 1).reshape(12, 32)
        np.testing.assert_allclose(attention(x).numpy(), side_by_side.numpy(), atol=1e-12)


# The experiments


def test_the_mirror_weight_is_read_off_the_anti_diagonal(generator):
    layer = models.heads(generator, 4)
    model = models.reader(generator, layer, **reading.SIZES)
    tokens, _ = tasks.reversal(generator, 3)
    weights = models.weights_of(model, tokens)
    assert weights.shape == (3, 4, 12, 12)
    by_hand = [
        sum(weights[b, head, place, 11 - place] for b in range(3) for place in range(12)) / 36
        for head in range(4)
    ]
    np.testing.assert_allclose(reading.mirror_weight(model, tokens), by_hand, rtol=1e-12)


def test_attention_can_be_forced_to_be_uniform():
    forced = mirror(steps=3, attention="uniform")
    np.testing.assert_allclose(np.concatenate(forced[:2]), 1 / 12, rtol=1e-12)


@pytest.fixture
def trained(monkeypatch):
    """The models that the experiments of the output layer make, each with its weights before."""
    models_seen = []

    def look(model, generator, steps, lr):
        before = {name: W.detach().clone() for name, W in model.named_parameters()}
        models_seen.append((model, before))
        return after_training(model, generator, steps, lr)

    after_training = output._after_training
    monkeypatch.setattr(output, "_after_training", look)
    return models_seen


@pytest.mark.parametrize(("kind", "moves"), [("learned", True), ("frozen", False)])
def test_only_a_learned_output_matrix_moves(trained, kind, moves):
    mix_heads(W_O=kind, steps=2)
    [(model, before)] = trained
    moved = {name for name, W in model.named_parameters() if not torch.equal(W, before[name])}
    W_O = "0.blocks.0.attention.output.weight"
    assert set(before) - moved == (set() if moves else {W_O})


def test_without_an_output_matrix_the_heads_lie_side_by_side(trained, generator):
    mix_heads(W_O="absent", steps=0)
    [(model, _)] = trained
    attention = model[0].blocks[0].attention
    x = models.normal(generator, 5, 32)
    weights, (_, _, value) = attention.attention_weights(x), attention.project_heads(x)
    side_by_side = np.hstack([(w @ v).detach() for w, v in zip(weights, value)])
    np.testing.assert_allclose(attention(x).detach(), side_by_side, atol=1e-12)


def test_six_layers_are_six_and_differ_by_their_order_alone(trained):
    for norm in ("pre", "post"):
        six_layers(norm=norm, steps=0)
    (pre, before), (post, also_before) = trained
    assert [block.norm for block in pre[0].blocks] == ["pre"] * 6
    assert [block.norm for block in post[0].blocks] == ["post"] * 6
    assert all(torch.equal(W, also_before[name]) for name, W in before.items())


QUICK = {
    "mirror": lambda seed: mirror(seed, steps=3),
    "copy_previous": lambda seed: copy_previous(seed, steps=3),
    "copy_back": lambda seed: copy_back(seed, steps=3),
    "loss_curve": lambda seed: loss_curve(seed, steps=3),
    "learn_rules": learn_rules,
    "mix_heads": lambda seed: [mix_heads(seed, steps=3)],
    "six_layers": lambda seed: [six_layers(seed, steps=3)],
}


def numbers(result):
    return np.concatenate([np.ravel(part) for part in result])


@pytest.mark.parametrize("experiment", QUICK.values(), ids=QUICK)
def test_the_seed_decides_everything(experiment):
    of_numpy, of_torch = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first = numbers(experiment(1))
    torch.rand(3)
    np.testing.assert_array_equal(first, numbers(experiment(1)))
    np.testing.assert_array_equal(first, numbers(experiment(np.random.default_rng(1))))
    assert not np.array_equal(first, numbers(experiment(2)))
    torch.set_rng_state(of_torch)
    experiment(1)
    assert torch.equal(torch.get_rng_state(), of_torch)
    np.testing.assert_array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mirror(attention="equal"),
            "attention must be 'learned' or 'uniform', got 'equal'",
        ),
        (lambda: mirror(positions="clock"), "positions must be 'learned' or None, got 'clock'"),
        (lambda: copy_previous(tied="qk"), "tied must be None or 'query-key' or 'key-value', got"),
        (
            lambda: mix_heads(W_O="random"),
            "W_O must be 'learned' or 'frozen' or 'absent', got 'random'",
        ),
        (lambda: six_layers(norm="middle"), "norm must be .pre. or .post., got 'middle'"),
        (lambda: loss_curve(d_k=0), "d_k must be at least 1, got 0"),
        (lambda: loss_curve(steps=-1), "steps must be at least 0, got -1"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# The margins


def figure(row):
    return f"{row['experiment']}: {row['figure']}"


@pytest.mark.parametrize("name", margins.STUDIES)
def test_a_table_has_every_experiment_and_every_bound_of_its_study(name):
    study, rows = margins.study_of(name), margins.table(name)
    assert len(study.SEEDS) >= 5
    assert {row["experiment"] for row in rows} == set(study.EXPERIMENTS) == set(study.BOUNDS)
    for experiment, bounds in study.BOUNDS.items():
        stored = {row["figure"]: row["bound"] for row in rows if row["experiment"] == experiment}
        assert {figure: bound for figure, bound in stored.items() if bound} == bounds


def test_no_experiment_belongs_to_two_studies():
    assert len(ROWS) == len(TABLE)


@pytest.mark.parametrize("row", BOUNDED, ids=figure)
def test_every_bound_holds_with_room(row):
    """The worst seed stays clear of the bound by at least a third of what seeds differ by."""
    assert margins.room(row) > 0
    assert margins.room(row) >= (row["max"] - row["min"]) / 3


@pytest.mark.parametrize("row", TABLE, ids=figure)
def test_other_kernels_change_nothing_that_is_shown(row):
    assert row["difference with plain kernels"] < 1e-3


def test_learned_rules_reproduce_their_rows():
    for label, values in margins.measure(margins.study_of("reading"), "learn_rules").items():
        row = ROWS["learn_rules", label]
        measured = [min(values), float(np.mean(values)), max(values)]
        assert measured == pytest.approx([row["min"], row["mean"], row["max"]], abs=1e-3)


@pytest.mark.parametrize("name", ["mirror", "copy_previous", "loss_curve"])
def test_one_seed_falls_within_its_rows(name):
    for label, value in margins.study_of("reading").EXPERIMENTS[name](0).items():
        row = ROWS[name, label]
        assert row["min"] - 1e-3 <= value <= row["max"] + 1e-3


@pytest.mark.parametrize(
    ("bound", "room"), [("> 0.5", 0.25), ("< 0.5", -0.5), ("< 2", 1.0), ("> 0.8", -0.05)]
)
def test_room_is_the_distance_of_the_worst_seed(bound, room):
    assert margins.room({"min": 0.75, "max": 1.0, "bound": bound}) == pytest.approx(room)


def test_a_summary_compares_seed_by_seed():
    assert margins.summary([1.0, 3.0, 2.0], [1.0, 2.8, 2.0]) == {
        "min": 1.0,
        "mean": 2.0,
        "max": 3.0,
        "difference with plain kernels": 0.2,
    }
