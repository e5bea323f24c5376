"""The catalogue: each mistake is caught, named as itself, and no right implementation is blamed."""

import math

import numpy as np
import pytest
from twins import torch

from qkvlib.mistakes import MISTAKES, SUBJECTS, broken_laws, name_of_mistake, table

NO_LAW = "an_answer_to_everything"  # not a law: the function raised somewhere


def mistakes():
    return pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)


# ---- each mistake --------------------------------------------------------------------------------


@mistakes()
def test_a_mistake_is_named_as_itself(mistake):
    assert name_of_mistake(mistake.function, mistake.subject) == mistake.name


@mistakes()
def test_a_mistake_breaks_its_law_or_none(mistake):
    broken = broken_laws(mistake.function, mistake.subject)
    if mistake.law is None:
        assert set(broken) <= {NO_LAW}
    else:
        assert mistake.law.__name__ in broken


@mistakes()
def test_a_mistake_is_explained(mistake):
    says = mistake.says
    assert "\n" not in says
    for sentence in (says, mistake.looks_right):
        assert sentence.endswith(".")
    assert mistake.variant_of is None or MISTAKES[mistake.variant_of].variant_of is None


@mistakes()
def test_the_source_is_the_code_alone(mistake):
    assert mistake.source.startswith("def ")
    assert mistake.says not in mistake.source
    assert "return" in mistake.source
    compile(mistake.source, mistake.name, "exec")


def test_there_are_forty_misconceptions():
    assert sum(mistake.variant_of is None for mistake in MISTAKES.values()) >= 40


def test_every_law_catches_something():
    caught = {law for laws in table().values() for law in laws}
    assert caught - {NO_LAW} == {law for subject in SUBJECTS.values() for law in subject.laws}


# ---- the right ones ------------------------------------------------------------------------------


def in_turn(function):
    """A function of the torch twin, on NumPy arrays."""

    def there(x):
        return torch.from_numpy(x) if isinstance(x, np.ndarray) else x

    def by_torch(*arguments, **named):
        output = function(*map(there, arguments), **{name: there(x) for name, x in named.items()})
        return output.detach().numpy()

    return by_torch


def layer_by(lib):
    """A layer of these weights, as a function of tokens and weights."""

    def multi_head(x, *weights, num_heads, mask=None):
        return lib.MultiHeadAttention.from_weights(*weights, num_heads=num_heads)(x, mask=mask)

    return multi_head


def cross_by(lib):
    def cross(x, source, *weights, num_heads, mask=None):
        layer = lib.MultiHeadAttention.from_weights(*weights, num_heads=num_heads)
        return layer(x, source, mask=mask)

    return cross


def head_weights_by(lib):
    def head_weights(x, W_Q, W_K, *, num_heads):
        W = lib.MultiHeadAttention.from_weights(W_Q, W_K, W_K, W_K.T, num_heads=num_heads)
        return W.attention_weights(x)

    return head_weights


RIGHT = {
    "attention": lambda lib: lib.scaled_dot_product_attention,
    "softmax": lambda lib: lib.softmax,
    "causal mask": lambda lib: lib.causal_mask,
    "window mask": lambda lib: lib.window_mask,
    "padding mask": lambda lib: lib.padding_mask,
    "causal and padding mask": lambda lib: (
        lambda lengths, n: lib.causal_mask(n) & lib.padding_mask(lengths, n)
    ),
    "split heads": lambda lib: lib.split_heads,
    "merge heads": lambda lib: lib.merge_heads,
    "repeat heads": lambda lib: lib.repeat_heads,
    "multi-head attention": layer_by,
    "cross-attention": cross_by,
    "weights of each head": head_weights_by,
    "projection": lambda lib: lib.project,
}
# What no public function of the twins does by itself: right by the catalogue's own definition.
OWN = {"softmax gradient", "head contributions"}


def test_every_subject_has_a_right_one_from_the_twins():
    assert set(RIGHT) | OWN == set(SUBJECTS)
    assert not set(RIGHT) & OWN


@pytest.mark.parametrize("subject", RIGHT)
def test_the_right_ones_are_not_blamed(subject, exact):
    right = RIGHT[subject](exact.lib)
    right = in_turn(right) if exact.is_torch else right
    assert broken_laws(right, subject) == {}
    assert name_of_mistake(right, subject) is None
    assert right_answers_everything(right, subject)


def right_answers_everything(right, subject):
    """None of the probes is one that the right one refuses."""
    subject = SUBJECTS[subject]
    return all(a is not None for tier in subject._answers(right) for a in tier)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_the_catalogue_holds_for_right_is_not_blamed(subject):
    right = SUBJECTS[subject].right
    assert broken_laws(right, subject) == {}
    assert name_of_mistake(right, subject) is None


# ---- written differently -------------------------------------------------------------------------

SAME_MISTAKE = {}


def written_differently(subject, name):
    def enter(function):
        SAME_MISTAKE[f"{name}: {function.__name__}"] = function, subject, name
        return function

    return enter


def plain_softmax(scores, axis=-1):
    scores = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return scores / scores.sum(axis=axis, keepdims=True)


def allowed(mask, scores):
    return np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)


@written_differently("attention", "no-scale")
def by_einsum(query, key, value, *, mask=None):
    """And with NaN for a query that may attend to nothing."""
    scores = np.einsum("...qd,...kd->...qk", query, key)
    scores = np.where(allowed(mask, scores), scores, -math.inf)
    return np.einsum("...qk,...kv->...qv", plain_softmax(scores), value)


@written_differently("attention", "divided-by-d-k")
def scaled_twice(query, key, value, *, mask=None):
    root = math.sqrt(query.shape[-1])
    scores = (query / root) @ (key / root).swapaxes(-2, -1)
    return plain_softmax(np.where(allowed(mask, scores), scores, -1e30)) @ value


@written_differently("attention", "mask-after-softmax")
def multiplied_by_the_mask(query, key, value, *, mask=None):
    weights = plain_softmax(query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1]))
    return (weights * allowed(mask, weights)) @ value


@written_differently("attention", "mask-inverted")
def masked_where_true(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, -1e9, scores)
    return plain_softmax(scores) @ value


@written_differently("attention", "softmax-over-queries")
def axis_by_number(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    scores = np.where(allowed(mask, scores), scores, -math.inf)
    return plain_softmax(scores, axis=-2) @ value


@written_differently("attention", "empty-rows-are-nan")
def the_textbook(query, key, value, *, mask=None):
    """Without a shift by the maximum too: the first that its answers tell is named."""
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    scores = np.exp(np.where(allowed(mask, scores), scores, -math.inf))
    return scores / scores.sum(axis=-1, keepdims=True) @ value


@written_differently("attention", "a-billion-for-infinity")
def the_least_number(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    least = np.finfo(scores.dtype).min
    return plain_softmax(np.where(allowed(mask, scores), scores, least)) @ value


@written_differently("attention", "scores-multiplied-by-the-mask")
def zero_for_forbidden(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    return plain_softmax(np.where(allowed(mask, scores), scores, 0)) @ value


@written_differently("causal mask", "upper-triangle")
def transposed_tril(n_query, n_key):
    return np.tri(n_key, n_query, n_query - n_key, dtype=bool).T[:, ::1]


@written_differently("causal mask", "aligned-to-the-first-key")
def by_comparison(n_query, n_key):
    return np.arange(n_query)[:, None] >= np.arange(n_key)[None, :]


@pytest.mark.parametrize(("function", "subject", "name"), SAME_MISTAKE.values(), ids=SAME_MISTAKE)
def test_the_same_mistake_is_named_however_it_is_written(function, subject, name):
    assert name_of_mistake(function, subject) == name


# ---- what has no name ----------------------------------------------------------------------------


def fails(*arguments, **named):
    raise NotImplementedError


NAMELESS = {
    "raises": fails,
    "nothing": lambda *_, **__: None,
    "text": lambda *_, **__: "weights",
    "an empty list": lambda *_, **__: [],
    "a ragged list": lambda *_, **__: [[1.0], [1.0, 2.0]],
    "a number": lambda *_, **__: 0.5,
    "nan": lambda *_, **__: math.nan,
    "an object": lambda *_, **__: object(),
    "a generator": lambda *_, **__: (x for x in range(3)),
    "takes nothing": lambda: 1.0,
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("function", NAMELESS.values(), ids=NAMELESS)
def test_what_is_no_answer_has_no_name(function, subject):
    assert name_of_mistake(function, subject) is None
    assert bool(broken_laws(function, subject)) == bool(SUBJECTS[subject].laws)


ANSWERS = {
    "lists": lambda x: x.tolist(),
    "tensors": lambda x: torch.from_numpy(x),
    "tensors with a gradient": lambda x: torch.from_numpy(x).requires_grad_(),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("name", ["no-scale", "softmax-over-queries", "empty-rows-are-nan"])
def test_whoever_answers_in_lists_or_tensors_is_told_too(name, kind):
    if kind != "lists":
        pytest.importorskip("torch")
    wrong = MISTAKES[name].function

    def otherwise(query, key, value, *, mask=None):
        return ANSWERS[kind](wrong(query, key, value, mask=mask))

    assert name_of_mistake(otherwise, "attention") == name


def test_an_unknown_subject_is_named():
    with pytest.raises(ValueError, match=r"subject must be one of attention, .*got 'atention'"):
        name_of_mistake(fails, "atention")


def test_two_mistakes_of_one_name_are_refused():
    def no_scale(query, key, value, *, mask=None):
        """The scores are not divided."""

    with pytest.raises(ValueError, match="already a mistake called no-scale"):
        SUBJECTS["attention"].mistake("It looks right.")(no_scale)
