"""What is drawn from, exactly; and text that goes on, token by token."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from twins import BACKENDS, WIDE, assert_near, back, dtype_of, torch

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.3, 0.15]))


def probabilities(twin, logits, **options):
    return twin.lib.token_probabilities(twin.array(np.asarray(logits, dtype=float)), **options)


# ---- what is drawn from --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    {
        "as they are": ({}, [5, 40, 10, 30, 15]),
        "temperature of a half: squares": ({"temperature": 0.5}, [25, 1600, 100, 900, 225]),
        "one": ({"top_k": 1}, [0, 1, 0, 0, 0]),
        "three": ({"top_k": 3}, [0, 40, 0, 30, 15]),
        "all": ({"top_k": 5}, [5, 40, 10, 30, 15]),
        "more than there are": ({"top_k": 6}, [5, 40, 10, 30, 15]),
        "next to nothing": ({"top_p": 1e-300}, [0, 1, 0, 0, 0]),
        "less than the first": ({"top_p": 0.39}, [0, 1, 0, 0, 0]),
        "more than the first": ({"top_p": 0.41}, [0, 40, 0, 30, 0]),
        "less than three": ({"top_p": 0.84}, [0, 40, 0, 30, 15]),
        "more than three": ({"top_p": 0.86}, [0, 40, 10, 30, 15]),
        "nearly all": ({"top_p": 0.96}, [5, 40, 10, 30, 15]),
        "all of them": ({"top_p": 1}, [5, 40, 10, 30, 15]),
        # of 25, 1600, 100, 900, 225 the first has 0.56, the first two 0.88 together
        "the temperature comes first": ({"temperature": 0.5, "top_p": 0.5}, [0, 1, 0, 0, 0]),
        # 40 and 30 of 100 are less than 0.8, and all of the 70 that top_k leaves
        "then top_k": ({"top_k": 2, "top_p": 0.8}, [0, 4, 0, 3, 0]),
        "and top_p of what is left": ({"top_k": 2, "top_p": 0.5}, [0, 1, 0, 0, 0]),
    }.values(),
)
def test_by_hand(backend, options, expected):
    expected = np.array(expected) / np.sum(expected)
    assert_near(probabilities(backend, LOGITS, **options), expected, dtype="float64")
    moved = np.stack([LOGITS + 3, LOGITS[::-1] - 700])[:, None]
    found = probabilities(backend, moved, **options)
    assert_near(found, np.stack([expected, expected[::-1]])[:, None])


def test_what_reaches_p_exactly_is_enough(backend):
    found = probabilities(backend, np.log([0.25, 0.5, 0.25]), top_p=0.5)
    assert back(found).tolist() == [0, 1, 0]


@pytest.mark.parametrize("twin", WIDE, ids=str)
@pytest.mark.parametrize(
    ("shares", "top_p", "kept"),
    [
        ([40, 5, 30, 10, 15], 0.4, 1),
        ([40, 5, 30, 10, 15], 0.7, 2),
        ([40, 5, 30, 10, 15], 0.85, 3),
        ([30, 10, 10, 50], 0.8, 2),
        ([1, 4, 1, 2], 0.75, 2),
        ([1] * 100 + [900], 0.9, 1),
    ],
)
def test_rounding_lets_nobody_in(twin, shares, top_p, kept):
    """Where the likeliest reach p exactly, sums that come out a little off add no token."""
    found = probabilities(twin, np.log(np.array(shares) / sum(shares)), top_p=top_p)
    assert (back(found) > 0).sum() == kept


def test_at_one_the_least_likely_stays(backend):
    found = probabilities(backend, np.array([0.0, -40.0, -700.0]), top_p=1)
    assert (back(found) > 0).all()


def test_what_nearly_reaches_p_is_not_enough(backend):
    """However little is missing, the next token is needed."""
    p = np.array([0.4, 4e-6, 0.599996])
    assert_near(probabilities(backend, np.log(p), top_p=0.999997), p)
    assert back(probabilities(backend, np.log(p), top_p=0.999995))[1] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 1}, [0, 0.5, 0, 0.5, 0]),
        ({"top_k": 2}, [0, 0.5, 0, 0.5, 0]),
        ({"top_k": 3}, [0.1, 0.35, 0.1, 0.35, 0.1]),
        ({"top_p": 0.01}, [0, 0.5, 0, 0.5, 0]),
        ({"top_p": 0.69}, [0, 0.5, 0, 0.5, 0]),
        ({"top_p": 0.71}, [0.1, 0.35, 0.1, 0.35, 0.1]),
    ],
)
def test_equals_stay_or_go_together(backend, options, expected):
    logits = np.log([0.1, 0.35, 0.1, 0.35, 0.1])
    logits[4] = logits[2] = logits[0]
    assert_near(probabilities(backend, logits, **options), np.array(expected))


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_k": 4}, {"top_p": 0.9}, {"top_p": 1}])
def test_what_is_forbidden_stays_forbidden(backend, options):
    expected = np.array([0.0, 0.7, 0.0, 0.3, 0.0])
    with np.errstate(divide="ignore"):
        found = probabilities(backend, np.log(expected), **options)
    assert_near(found, expected)


def test_a_single_token_that_is_not_forbidden_is_certain(backend):
    logits = np.array([-np.inf, -1e308, -np.inf])
    for options in ({}, {"top_k": 1}, {"top_k": 3}, {"top_p": 0.1}, {"temperature": 1e-300}):
        assert_near(probabilities(backend, logits, **options), np.array([0.0, 1, 0]))


@pytest.mark.parametrize("twin", WIDE, ids=str)
def test_temperature_at_its_ends(twin):
    limits = np.finfo(twin.dtype)
    logits = np.array([1.0, 3.0, 3.0, -2.0, -np.inf])
    cold = probabilities(twin, logits, temperature=float(limits.tiny))
    assert_near(cold, np.array([0, 0.5, 0.5, 0, 0]))
    hot = probabilities(twin, logits, temperature=float(limits.max))
    assert_near(hot, np.array([0.25, 0.25, 0.25, 0.25, 0]))
    far = np.array([limits.max, -limits.max, 0])
    assert_near(probabilities(twin, far, temperature=1e-3), np.array([1.0, 0, 0]))


def test_half_types_are_computed_in_float32(twin):
    found = probabilities(twin, LOGITS, temperature=0.7, top_k=4, top_p=0.9)
    assert dtype_of(found) == twin.computed
    total = back(found).sum()
    assert total == pytest.approx(1, abs=1e-6)


def test_gradients_reach_what_stays(backend):
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    logits = backend.array(LOGITS).requires_grad_()
    found = backend.lib.token_probabilities(logits, top_k=4, top_p=0.8)
    found.square().sum().backward()
    np.testing.assert_array_equal(back(logits.grad) != 0, back(found) > 0)


ROWS = arrays(float, st.integers(1, 9), elements=st.floats(-20, 20).map(lambda x: round(x, 2)))


@pytest.mark.parametrize("twin", BACKENDS, ids=str)
@given(logits=ROWS, temperature=st.floats(0.1, 10), k=st.integers(1, 10), p=st.floats(0.01, 0.99))
def test_against_its_definition(twin, logits, temperature, k, p):
    """Token by token: how many are likelier, and how much they have together."""
    weights = np.exp((logits - logits.max()) / temperature)
    kept = [sum(other > x for other in logits) < k for x in logits]
    weights = np.where(kept, weights, 0)
    share = weights / weights.sum()
    before = np.array([share[logits > x].sum() for x in logits])
    if np.abs(before - p).min() < 1e-9:  # a hair's breadth decides
        return
    weights = np.where(before < p, weights, 0)
    found = probabilities(twin, logits, temperature=temperature, top_k=k, top_p=p)
    assert_near(found, weights / weights.sum())


@pytest.mark.parametrize("twin", BACKENDS, ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (7, None), (None, 0.8), (20, 0.6)])
def test_against_transformers(twin, generator, temperature, top_k, top_p):
    """Its warpers, one after the other; no two logits are equal, where its order is chance."""
    pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = generator.normal(size=(3, 50)) * 3
    scores = torch.tensor(logits)
    scores = process.TemperatureLogitsWarper(temperature)(None, scores)
    if top_k is not None:
        scores = process.TopKLogitsWarper(top_k)(None, scores)
    if top_p is not None:
        scores = process.TopPLogitsWarper(top_p)(None, scores)
    found = probabilities(twin, logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert_near(found, back(torch.softmax(scores, -1)))


# ---- text that goes on ---------------------------------------------------------------------------


class Listed:
    """A model whose logits are listed; it keeps what it was given to read."""

    def __init__(self, twin, logits):
        self.twin, self.logits = twin, twin.array(np.asarray(logits, dtype=float))
        self.seen = []

    def new_cache(self):
        return self.seen

    def next_logits(self, ids, *, cache):
        cache.append(back(ids).tolist())
        return self.logits[len(cache) - 1] if self.logits.ndim == 2 else self.logits


def prompt(twin, *ids):
    return twin.array(np.array(ids))


def drawn(twin, model, count, **options):
    return list(twin.lib.generate(model, prompt(twin, 4, 2), max_tokens=count, **options))


def test_the_greatest_logit_is_next_and_the_first_of_equals(twin):
    model = Listed(twin, [[1, 3, 2], [5, 5, -np.inf], [-3, -2, -1]])
    found = drawn(twin, model, 3)
    assert found == [1, 0, 2]
    assert {type(token) for token in found} == {int}
    assert model.seen == [[4, 2], [1], [0]]


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}])
def test_at_the_end_of_each_road_lies_the_greatest_logit(backend, options):
    options = {"temperature": 1.0} | options
    assert drawn(backend, Listed(backend, LOGITS), 20, **options) == [1] * 20


def test_tokens_come_one_by_one(backend):
    """None is computed before it is asked for, nor after the last."""
    model = Listed(backend, np.eye(3))
    tokens = backend.lib.generate(model, prompt(backend, 0), max_tokens=2)
    assert iter(tokens) is tokens
    assert model.seen == []
    assert next(tokens) == 0
    assert len(model.seen) == 1
    assert list(tokens) == [1]
    assert len(model.seen) == 2
    assert list(backend.lib.generate(model, prompt(backend, 0), max_tokens=0)) == []


def test_the_text_is_the_one_that_was_given(backend):
    """Though the first token is computed only when it is asked for."""
    model, ids = Listed(backend, LOGITS), prompt(backend, 4, 2)
    tokens = backend.lib.generate(model, ids, max_tokens=1)
    ids[0] = 1
    next(tokens)
    assert model.seen == [[4, 2]]


def test_a_token_is_read_once_whatever_the_model_calls_a_cache(backend):
    """None too: a model may keep what it has read in some other place."""

    class WithoutCache(Listed):
        def new_cache(self):
            return None

        def next_logits(self, ids, *, cache):
            assert cache is None
            return super().next_logits(ids, cache=self.seen)

    model = WithoutCache(backend, LOGITS)
    assert drawn(backend, model, 3) == [1, 1, 1]
    assert model.seen == [[4, 2], [1], [1]]


def test_drawn_as_often_as_said(backend):
    options = {"temperature": 0.8, "top_k": 4, "top_p": 0.9}
    p = back(probabilities(backend, LOGITS, **options))
    assert (p == 0).sum() == 2
    found = drawn(backend, Listed(backend, LOGITS), 4000, generator=backend.seeded(), **options)
    counts = np.bincount(found, minlength=5)
    assert not counts[p == 0].any()
    spread = np.sqrt(4000 * p * (1 - p))
    assert (np.abs(counts - 4000 * p) <= 4 * spread).all()
    assert np.abs(counts - 4000 * p).max() > 0


def test_of_many_tokens_in_every_dtype(twin, generator):
    """Rounded probabilities do not sum to 1 as nearly as NumPy's draw asks."""
    model = Listed(twin, generator.normal(size=1000))
    found = drawn(twin, model, 20, temperature=1.0, top_k=500, generator=twin.seeded())
    assert len(set(found)) > 15
    assert set(found) <= set(np.argsort(back(model.logits))[::-1][:600])


def test_the_generator_decides(backend):
    def once(generator):
        return drawn(backend, Listed(backend, LOGITS), 50, temperature=1.0, generator=generator)

    assert once(backend.seeded(1)) == once(backend.seeded(1))
    assert once(backend.seeded(1)) != once(backend.seeded(2))
    shared = backend.seeded(1)
    assert once(shared) != once(shared)
    assert once(None) != once(None)


def test_the_greatest_needs_no_chance(backend):
    shared = backend.seeded(1)
    drawn(backend, Listed(backend, LOGITS), 5, generator=shared)
    first = drawn(backend, Listed(backend, LOGITS), 9, temperature=1.0, generator=shared)
    again = backend.seeded(1)
    assert first == drawn(backend, Listed(backend, LOGITS), 9, temperature=1.0, generator=again)


def test_a_decoder_goes_on_as_without_a_cache(backend, generator):
    """Greedy, against the full pass over all tokens so far, each time anew."""
    lib = backend.lib
    blocks = [lib.TransformerBlock(12, 3, generator=backend.seeded(10 + i)) for i in range(2)]
    if backend.is_torch:
        blocks = [block.double() for block in blocks]
    table = backend.array(generator.normal(size=(40, 12)))
    decoder = lib.Decoder(table, norm=lambda x: -x, blocks=blocks, n_max=20)
    ids = [7, 3, 11]
    found = list(lib.generate(decoder, prompt(backend, *ids), max_tokens=17))
    for token in found:
        logits = back(decoder(prompt(backend, *ids)))[-1]
        assert token == logits.argmax()
        ids.append(token)
    assert len(set(found)) > 3
    too_long = lib.generate(decoder, prompt(backend, *ids[:4]), max_tokens=18)
    with pytest.raises(ValueError, match=r"at most n_max = 20 .* after 20 in the cache"):
        list(too_long)


def test_in_torch_nothing_is_recorded(backend):
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    model = Listed(backend, LOGITS)
    model.logits.requires_grad_()
    recorded, listed = [], model.next_logits

    def next_logits(ids, *, cache):
        logits = listed(ids, cache=cache)
        recorded.append((logits * 2).requires_grad)
        return logits

    model.next_logits = next_logits
    tokens = backend.lib.generate(model, prompt(backend, 0), max_tokens=3, temperature=1.0)
    for _ in tokens:
        assert torch.is_grad_enabled()
    assert recorded == [False] * 3


# ---- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"temperature": 0}, ValueError, r"temperature must be greater than 0, .*, got 0"),
        ({"temperature": -1}, ValueError, r"temperature must be greater than 0, .*got -1"),
        ({"temperature": math.nan}, ValueError, r"temperature must be a finite number"),
        ({"temperature": 1e-310}, ValueError, r"temperature .* for (torch\.)?float64, got 1e-310"),
        ({"temperature": "1"}, TypeError, r"temperature must be a number, got str"),
        ({"top_k": 0}, ValueError, r"top_k must be at least 1, got 0"),
        ({"top_k": 2.5}, TypeError, r"top_k must be a whole number, got float"),
        ({"top_p": 0}, ValueError, r"top_p must be greater than 0 and at most 1, got 0"),
        ({"top_p": 1.01}, ValueError, r"top_p must be greater than 0 and at most 1, got 1.01"),
        ({"top_p": True}, TypeError, r"top_p must be a number, got bool"),
    ],
)
def test_numbers_out_of_range(backend, options, error, words):
    with pytest.raises(error, match=words):
        probabilities(backend, LOGITS, **options)
    if options == {"temperature": 0} or options == {"temperature": 1e-310}:
        return
    with pytest.raises(error, match=words.replace("greater than 0, .*", "at least 0, ")):
        backend.lib.generate(Listed(backend, LOGITS), prompt(backend, 1), max_tokens=1, **options)


def test_a_temperature_that_its_dtype_does_not_hold(backend):
    logits = backend.array(LOGITS, dtype="float32")
    for temperature in (1e-40, 1e39):
        with pytest.raises(ValueError, match=r"temperature .* for (torch\.)?float32, got 1e"):
            backend.lib.token_probabilities(logits, temperature=temperature)


@pytest.mark.parametrize(
    "row",
    [[1.0, np.nan, 2.0], [np.nan] * 3, [1.0, np.inf, 0.0], [-np.inf] * 3],
    ids=str,
)
def test_logits_to_choose_by(backend, row):
    words = r"greatest of the logits in each row must be finite, .* got (nan|inf|-inf)"
    logits = backend.array(np.array([[1.0, 2.0, 3.0], row]))
    if backend.is_torch:
        logits.requires_grad_()  # which hides its values
    with pytest.raises(ValueError, match=words):
        backend.lib.token_probabilities(logits)
    for temperature in (0, 1):
        with pytest.raises(ValueError, match=words):
            drawn(backend, Listed(backend, row), 1, temperature=temperature)


def test_logits_must_be_floating_and_there(backend):
    with pytest.raises(TypeError, match="logits must be float16"):
        backend.lib.token_probabilities(backend.array(np.array([1, 2])))
    for shape in ((0,), (3, 0), ()):
        with pytest.raises(ValueError, match=r"logits must (not be empty|have at least 1)"):
            probabilities(backend, np.zeros(shape))


@pytest.mark.parametrize("shape", [(1, 5), (0,), ()], ids=str)
def test_a_model_must_say_one_logit_a_token(backend, shape):
    model = Mock(spec=["new_cache", "next_logits"])
    model.next_logits.return_value = backend.array(np.zeros(shape))
    for temperature in (0, 1):
        with pytest.raises(ValueError, match=r"one logit for each token .* got shape"):
            drawn(backend, model, 1, temperature=temperature)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_model_must_say_floating_logits_of_its_twin(backend, temperature):
    model = Mock(spec=["new_cache", "next_logits"])
    for logits, said in (([0.0, 1.0], "list"), (backend.array(np.array([0, 1])), "int64")):
        model.next_logits.return_value = logits
        tokens = backend.lib.generate(
            model, prompt(backend, 0), max_tokens=1, temperature=temperature
        )
        with pytest.raises(TypeError, match=rf"next_logits\(ids, cache=cache\) must be .*{said}"):
            next(tokens)


def test_what_generate_asks_of_its_arguments(backend):
    model, ids = Listed(backend, LOGITS), prompt(backend, 1, 2)
    generate = backend.lib.generate
    for other, words in (
        (lambda ids: ids, r"model must have new_cache\(\) and .*, got function without new_cache"),
        (Mock(spec=["new_cache"]), r"as Decoder has, got Mock without next_logits"),
    ):
        with pytest.raises(TypeError, match=words):
            generate(other, ids, max_tokens=1)
    for bad, error, words in (
        ([1, 2], TypeError, r"ids must be a .*, got builtins\.list"),
        (backend.array(np.array([1.5])), TypeError, r"ids must be whole numbers"),
        (backend.array(np.array([[1, 2]])), ValueError, r"one text \(n,\) .*got shape \(1, 2\)"),
        (backend.array(np.array([], int)), ValueError, r"at least one token, got shape \(0,\)"),
        (backend.array(np.array(1)), ValueError, r"one text \(n,\) .*got shape \(\)"),
    ):
        with pytest.raises(error, match=words):
            generate(model, bad, max_tokens=1)
    with pytest.raises(ValueError, match="max_tokens must be at least 0, got -1"):
        generate(model, ids, max_tokens=-1)
    with pytest.raises(TypeError, match="max_tokens must be a whole number"):
        generate(model, ids, max_tokens=1.5)
    with pytest.raises(TypeError, match="generator must be a"):
        generate(model, ids, max_tokens=1, generator=0)
    assert model.seen == []
