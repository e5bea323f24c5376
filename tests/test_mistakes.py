"""The catalogue: each mistake is caught, named as itself, and no right implementation is blamed."""

import math
from functools import cache

import numpy as np
import pytest
from twins import torch

import qkvlib.numpy
from qkvlib.book import mistakes_table
from qkvlib.mistakes import MISTAKES, SUBJECTS, _catalogue, broken_laws, name_of_mistake

NO_LAW = "an_answer_to_everything"  # not a law: the function raised somewhere


def mistakes():
    return pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)


# ---- each mistake --------------------------------------------------------------------------------


@mistakes()
def test_a_mistake_is_named_as_itself(mistake):
    assert name_of_mistake(mistake.function, mistake.subject) == mistake.name


@cache
def broken_by(name):
    mistake = MISTAKES[name]
    return broken_laws(mistake.function, mistake.subject)


@mistakes()
def test_a_mistake_breaks_its_law_or_none(mistake):
    broken = broken_by(mistake.name)
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


def test_there_are_many_misconceptions():
    """Variants of one count once."""
    assert sum(mistake.variant_of is None for mistake in MISTAKES.values()) >= 40


@mistakes()
def test_a_mistake_is_told_by_an_answer(mistake):
    """Else whatever raises would be named so."""
    subject = SUBJECTS[mistake.subject]
    wrong = subject._wrong_answers[mistake.name]
    told = wrong[: subject._told(wrong)]
    assert any(answer is not None for tier in told for answer in tier)


def test_no_two_mistakes_of_a_subject_answer_alike():
    for subject in SUBJECTS.values():
        answers = [subject._wrong_answers[name] for name in subject.mistakes]
        for i, one in enumerate(answers):
            assert not any(_catalogue._same(one, other) for other in answers[:i])


@mistakes()
def test_rounding_does_not_hide_a_mistake(mistake):
    """Another order of the same sums: each number a little off, as rounding leaves it."""

    def rounded(x):
        if isinstance(x, tuple):
            return tuple(map(rounded, x))
        generator = np.random.default_rng(2)
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            return x
        step = np.finfo(x.dtype).eps * (1 if x.dtype == np.float16 else 3)
        return (x * (1 + step * generator.uniform(-1, 1, x.shape))).astype(x.dtype)

    def again(*arguments, **named):
        return rounded(mistake.function(*arguments, **named))

    assert name_of_mistake(again, mistake.subject) == mistake.name


@mistakes()
def test_what_is_broken_is_said(mistake):
    for law, found in broken_by(mistake.name).items():
        if law == NO_LAW:
            assert isinstance(found, Exception)
        else:
            assert found.law == law
            assert found.inputs
            assert str(found).startswith(f"{law}: {found.where} must be ")


def test_the_table_is_that_of_the_file():
    assert mistakes_table.FILE.read_text(encoding="utf-8") == mistakes_table.render()


def test_every_law_catches_something():
    caught = {law for laws in mistakes_table.load().values() for law in laws}
    assert caught - {NO_LAW} == {law for subject in SUBJECTS.values() for law in subject.laws}


# ---- the right ones ------------------------------------------------------------------------------


def in_torch(function):
    """A function of the torch twin, on NumPy arrays and with NumPy's generators."""

    def there(x):
        if isinstance(x, np.random.Generator):
            return torch.Generator().manual_seed(int(x.integers(2**32)))
        return torch.from_numpy(x) if isinstance(x, np.ndarray) else x

    def by_torch(*arguments, **named):
        arguments, named = map(there, arguments), {name: there(x) for name, x in named.items()}
        return function(*arguments, **named).detach().numpy()

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
        layer = lib.MultiHeadAttention.from_weights(W_Q, W_K, W_K, W_K.T, num_heads=num_heads)
        return layer.attention_weights(x)

    return head_weights


def feed_forward_by(lib):
    return lambda x, *weights: lib.FeedForward.from_weights(*weights)(x)


def rope_by(lib):
    def rope(x, positions):
        cos, sin = lib.rotary_angles(positions, x.shape[-1])
        return lib.rotate(x, cos, sin, pairing="interleaved")

    return rope


def block_by(lib, norm):
    """A block of this package whose parts are functions of NumPy arrays."""
    is_torch = lib is not qkvlib.numpy

    def block(x, attend, feed_forward, norm_):
        def part(function):
            if not is_torch:
                return lambda x, **_: function(x)
            return lambda x, **_: torch.from_numpy(function(x.numpy()))

        parts = (part(function) for function in (attend, feed_forward, norm_, norm_))
        return lib.TransformerBlock.from_parts(*parts, norm=norm)(x)

    return block


def step_by(lib):
    """A step whose rotation, mask and attention are this package's; the cache is the caller's."""
    rope, attend = rope_by(lib), lib.scaled_dot_product_attention
    if lib is not qkvlib.numpy:
        rope, attend = in_torch(rope), in_torch(attend)

    def step(query, key, value, cache, *, rotate):
        positions = np.arange(len(cache), len(cache) + query.shape[-2])
        keys, values = cache.append(rope(key, positions), value)
        mask = np.asarray(lib.causal_mask(query.shape[-2], keys.shape[-2]))
        return attend(rope(query, positions), keys, values, mask=mask)

    return step


RIGHT = {
    "attention": lambda lib: lib.scaled_dot_product_attention,
    "attention with bias and softcap": lambda lib: lib.scaled_dot_product_attention,
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
    "layer norm": lambda lib: lib.layer_norm,
    "RMS norm": lambda lib: lib.rms_norm,
    "feed-forward": feed_forward_by,
    "pre-norm block": lambda lib: block_by(lib, "pre"),
    "post-norm block": lambda lib: block_by(lib, "post"),
    "rotary positions": rope_by,
    "sinusoidal positions": lambda lib: lib.sinusoidal_positions,
    "ALiBi": lambda lib: lib.alibi_bias,
    "relative buckets": lambda lib: lib.relative_buckets,
    "step with a cache": step_by,
    "Xavier initialisation": lambda lib: lib.xavier_uniform,
    "token probabilities": lambda lib: lib.token_probabilities,
}
# What no public function of both twins does by itself: right by the catalogue's own definition.
OWN = {
    "softmax gradient",
    "head contributions",
    "merge of an online softmax",
    "dropout",
    "attention with dropout",
}
AS_IT_IS = {"step with a cache"}  # speaks NumPy already


def test_every_subject_has_a_right_one_from_the_twins():
    assert set(RIGHT) | OWN == set(SUBJECTS)
    assert not set(RIGHT) & OWN


@pytest.mark.parametrize("subject", RIGHT)
def test_the_right_ones_are_not_blamed(subject, exact):
    right = RIGHT[subject](exact.lib)
    right = in_torch(right) if exact.is_torch and subject not in AS_IT_IS else right
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


@written_differently("attention", "cosine-for-the-product")
def by_normalised_rows(query, key, value, *, mask=None):
    products = query @ key.swapaxes(-2, -1)
    squares = (query**2).sum(-1)[..., :, None] * (key**2).sum(-1)[..., None, :]
    scores = products / np.sqrt(squares * query.shape[-1])
    return plain_softmax(np.where(allowed(mask, scores), scores, -math.inf)) @ value


@written_differently("softmax", "exponentials-as-they-are")
def in_one_line(scores, axis=-1):
    return np.exp(scores) / np.maximum(np.exp(scores).sum(axis=axis, keepdims=True), 1e-300)


@written_differently("softmax", "powers-over-their-sum")
def the_textbook_softmax(scores, axis=-1):
    return np.exp(scores) / np.exp(scores).sum(axis=axis, keepdims=True)


@written_differently("softmax", "rows-of-minus-infinity-are-nan")
def softmax_by_logarithms(scores, axis=-1):
    largest = scores.max(axis=axis, keepdims=True)
    total = np.exp(scores - largest).sum(axis=axis, keepdims=True)
    return np.exp(scores - largest - np.log(total))


@written_differently("causal mask", "upper-triangle")
def transposed(n_query, n_key):
    return np.tri(n_key, n_query, dtype=bool).T if n_query == n_key else upper(n_query, n_key)


def upper(n_query, n_key):
    j, i = np.meshgrid(np.arange(n_key), np.arange(n_query))
    return j - (n_key - n_query) >= i


@written_differently("causal mask", "aligned-to-the-first-key")
def by_comparison(n_query, n_key):
    return np.arange(n_query)[:, None] >= np.arange(n_key)[None, :]


@written_differently("causal mask", "future-open-past-closed")
def inverted_tril(n_query, n_key):
    return ~np.tril(np.ones((n_query, n_key), bool), n_key - n_query)


@written_differently("split heads", "split-without-transpose")
def by_view(x, num_heads):
    return x.reshape(*x.shape[:-2], num_heads, -1, x.shape[-1] // num_heads)


@written_differently("merge heads", "heads-in-reverse")
def joined_from_the_last(x):
    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3] - 1, -1, -1)], axis=-1)


@written_differently("repeat heads", "tiled")
def by_tile(x, repeats):
    return np.tile(x, (*(1,) * (x.ndim - 3), repeats, 1, 1))


@written_differently("multi-head attention", "output-matrix-forgotten")
def head_by_head(x, W_Q, W_K, W_V, W_O, *, num_heads, mask=None):
    outputs = []
    for q, k, v in zip(*(np.split(x @ W, num_heads, axis=-1) for W in (W_Q, W_K, W_V))):
        scores = q @ k.swapaxes(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = np.where(mask if mask.ndim == 2 else mask[:, 0], scores, -math.inf)
        outputs.append(plain_softmax(scores) @ v)
    return np.concatenate(outputs, axis=-1)


@written_differently("layer norm", "unbiased-variance")
def as_torch_std_does(x, weight=None, bias=None, eps=1e-5):
    """With eps outside of the root too: both show at once, and the second hardly."""
    n = x.shape[-1]
    mean = x.sum(-1, keepdims=True) / n
    variance = ((x - mean) ** 2).sum(-1, keepdims=True) / (n - 1)
    x = (x - mean) / (variance + eps) ** 0.5
    return x * (1 if weight is None else weight) + (0 if bias is None else bias)


@written_differently("layer norm", "eps-outside-the-root")
def by_std(x, weight=None, bias=None, eps=1e-5):
    x = (x - x.mean(-1, keepdims=True)) / (np.std(x, axis=-1, keepdims=True) + eps)
    return x * (1 if weight is None else weight) + (0 if bias is None else bias)


@written_differently("pre-norm block", "skip-after-the-norm")
def in_two_lines(x, attend, feed_forward, norm):
    x = norm(x) + attend(norm(x))
    return norm(x) + feed_forward(norm(x))


@written_differently("attention", "root-of-a-numpy-integer")
def divided_by_np_sqrt(query, key, value, *, mask=None):
    """The product is still float32, the division is what widens it."""
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
    scores = np.where(allowed(mask, scores), scores, -np.inf)
    greatest = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)
    weights = np.exp(scores - greatest)
    return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300) @ value


@written_differently("attention", "softmax-over-everything")
def with_one_sum(query, key, value, *, mask=None):
    """Over the texts of a batch too."""
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    weights = np.exp(np.where(allowed(mask, scores), scores, -np.inf))
    return weights / weights.sum() @ value


@written_differently("causal mask", "future-open-past-closed")
def triu_of_ones(n_query, n_key):
    """And from the first key on: right for torch.nn.MultiheadAttention, without a cache."""
    return np.triu(np.ones((n_query, n_key), bool), k=1)


@written_differently("causal mask", "upper-triangle")
def triu_with_the_diagonal(n_query, n_key):
    return np.triu(np.ones((n_query, n_key), bool))


@written_differently("window mask", "window-one-too-wide")
def band(n_query, n_key, *, window):
    """And from the first key on."""
    return np.abs(np.arange(n_query)[:, None] - np.arange(n_key)) <= window


@written_differently("layer norm", "unbiased-variance")
def as_annotated(x, weight=None, bias=None, eps=1e-5):
    """With eps outside the root too."""
    y = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True, ddof=1) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


@written_differently("rotary positions", "halves-for-neighbours")
def as_in_llama(x, positions):
    d = x.shape[-1]
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    cos, sin = (np.concatenate([a, a], axis=-1) for a in (np.cos(angles), np.sin(angles)))
    rotated = np.concatenate([-x[:, d // 2 :], x[:, : d // 2]], axis=-1)
    return x * cos + rotated * sin


@written_differently("step with a cache", "positions-restart")
def counts_from_0(query, key, value, cache, *, rotate):
    n = query.shape[-2]
    query, key = rotate(query, np.arange(n)), rotate(key, np.arange(n))
    past, values = cache.append(key, value)
    i = np.arange(past.shape[-2] - n, past.shape[-2])
    scores = query @ past.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    return plain_softmax(np.where(np.arange(len(cache)) <= i[:, None], scores, -1e9)) @ values


@written_differently("token probabilities", "crossing-token-dropped")
def as_reported(logits, *, temperature=1.0, top_k=None, top_p=None):
    """With the likeliest token gone too where it crosses alone, which no probe here asks for."""
    chances = plain_softmax(logits / temperature)
    if top_k is not None:
        chances = np.where(chances < np.sort(chances)[-top_k], 0, chances)
    if top_p is not None:
        order = np.argsort(chances)[::-1]
        chances[order[np.cumsum(chances[order]) > top_p]] = 0
    return chances / chances.sum()


@written_differently("Xavier initialisation", "deviation-for-the-bound")
def drawn_otherwise(fan_in, fan_out, *, generator):
    """Other numbers of the same size."""
    return (generator.random((fan_in, fan_out)) * 2 - 1) * (2 / (fan_in + fan_out)) ** 0.5


@written_differently("dropout", "not-made-up-for")
def by_choice(x, rate, *, training, generator):
    """Other numbers are dropped, as many."""
    return x * (generator.random(x.shape) > rate) if training else x.copy()


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rounding_next_to_nothing_is_judged_by_the_largest_number(dtype):
    """A number that should be 0 is often not, and by itself it has no size to compare with."""
    right, most = np.array([3.0, 0.0], dtype), _catalogue.NEAR[np.dtype(dtype).name]
    assert _catalogue.near(np.array([3.0, 2 * most], dtype), right)
    assert not _catalogue.near(np.array([3.0, 5 * most], dtype), right)
    assert not _catalogue.near(np.array([0.0, 2 * most], dtype), 0 * right)


def test_an_unknown_subject_is_named():
    with pytest.raises(ValueError, match=r"subject must be one of attention, .*got 'atention'"):
        name_of_mistake(fails, "atention")


def test_two_mistakes_of_one_name_are_refused():
    def no_scale(query, key, value, *, mask=None):
        """The scores are not divided."""

    with pytest.raises(ValueError, match="already a mistake called no-scale"):
        SUBJECTS["attention"].mistake("It looks right.")(no_scale)
