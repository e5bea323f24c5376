"""Laws of what is drawn: starting weights, dropout, the next token."""

import numpy as np

from qkvlib.laws._law import CounterExample, difference, law_of, size, small_integers

# ---- xavier(fan_in, fan_out, *, generator) -------------------------------------------------------

_law_of_weights = law_of(lambda fan_in, fan_out, output: (fan_in, fan_out), "fan_in", "fan_out")


def fan_inputs():
    """Sizes for the laws of starting weights. Yields `(fan_in, fan_out), None`."""
    for sizes in [(300, 100), (100, 300), (200, 200)]:
        yield sizes, None


@_law_of_weights
def weights_have_their_variance(draw, fan_in, fan_out):
    """The variance is 2 / (fan_in + fan_out), here within 5 parts in 100, the mean 0.

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward
    neural networks", equation 12.
    """
    W = draw(fan_in, fan_out, generator=np.random.default_rng(0))
    share = float((W**2).mean() * (fan_in + fan_out) / 2)
    if abs(share - 1) < 0.05:
        return None
    named = {"fan_in": fan_in, "fan_out": fan_out}
    where = "the mean square times (fan_in + fan_out) / 2"
    return CounterExample("weights_have_their_variance", named, where, 1.0, share)


@_law_of_weights
def the_generator_decides(draw, fan_in, fan_out):
    """One seed draws the same numbers again, another seed draws others."""
    one, again, other = (
        draw(fan_in, fan_out, generator=np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    if np.array_equal(one, again) and not np.array_equal(one, other):
        return None
    named = {"fan_in": fan_in, "fan_out": fan_out}
    got = "others" if not np.array_equal(one, again) else "the same for another seed too"
    where = "what one seed draws again"
    return CounterExample("the_generator_decides", named, where, "the same", got)


# ---- dropout(x, rate, *, training, generator) ----------------------------------------------------

_law_of_dropout = law_of(lambda x, rate, output: x.shape, "x", "rate")


def dropout_inputs():
    """Numbers and rates for the laws of dropout. Yields `(x, rate), None`."""
    for rate in (0.5, 0.1, 0.75):
        yield (np.linspace(1.0, 2.0, 40000).reshape(200, 200), rate), None


def _dropped(dropout, x, rate):
    return dropout(x, rate, training=True, generator=np.random.default_rng(0))


@_law_of_dropout
def dropout_keeps_the_mean(dropout, x, rate):
    """What is kept makes up for what is dropped. Source: Srivastava et al. 2014, "Dropout"."""
    share = float(_dropped(dropout, x, rate).mean() / x.mean())
    if abs(share - 1) < 0.05:
        return None
    where = "the mean, as a share of what it was,"
    return CounterExample("dropout_keeps_the_mean", {"x": x, "rate": rate}, where, 1.0, share)


@_law_of_dropout
def dropout_drops_its_share(dropout, x, rate):
    """Of many numbers a share of `rate` becomes 0."""
    share = float((_dropped(dropout, x, rate) == 0).mean())
    if abs(share - rate) < 0.02:
        return None
    named, where = {"x": x, "rate": rate}, "the share of zeros"
    return CounterExample("dropout_drops_its_share", named, where, rate, share)


@_law_of_dropout
def dropout_rests_after_training(dropout, x, rate):
    """When nothing is learned, nothing is dropped."""
    output = dropout(x, rate, training=False, generator=np.random.default_rng(0))
    return difference(dropout_rests_after_training, {"x": x, "rate": rate}, output, x, size=2)


# ---- attend(query, key, value, *, drop) ----------------------------------------------------------

_law_of_dropped = law_of(
    lambda query, key, value, output: (*query.shape[:-1], value.shape[-1]), "query", "key", "value"
)


def dropped_inputs(generator=None):
    """Inputs for the laws of attention with dropout; small integers.

    Yields `(query, key, value), None`. generator: a `numpy.random.Generator`, by default one that
    draws the same each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for n_query, n_key, d_k, d_v in [(1, 2, 1, 1), (2, 3, 4, 2), (4, 5, 2, 3)]:
        draw = small_integers(generator, ())
        yield (draw(n_query, d_k), draw(n_key, d_k), draw(n_key, d_v)), None


@_law_of_dropped
def what_is_dropped_is_not_read(attend, query, key, value):
    """Where `drop` makes the numbers of the last key 0, its value does not come through."""

    def drop(x):
        return np.where(np.arange(x.shape[-1]) == x.shape[-1] - 1, 0.0, x)

    other = value.copy()
    other[-1] += size(value) + 1
    return difference(
        what_is_dropped_is_not_read,
        {"query": query, "key": key, "value": value},
        attend(query, key, other, drop=drop),
        attend(query, key, value, drop=drop),
        size=size(other),
        where="after another last value, which is dropped, the output {at}",
    )


@_law_of_dropped
def what_is_kept_makes_up_for_it(attend, query, key, value):
    """Weights that `drop` has doubled, to make up for others, are not normalised again."""
    once = attend(query, key, value, drop=lambda x: x)
    return difference(
        what_is_kept_makes_up_for_it,
        {"query": query, "key": key, "value": value},
        attend(query, key, value, drop=lambda x: 2 * x),
        2 * once,
        size=size(value),
        where="with twice the weights the output {at}",
    )


# ---- chances(logits, *, temperature=1.0, top_k=None, top_p=None) ---------------------------------

_law_of_chances = law_of(lambda logits, output: logits.shape, "logits")


def logit_inputs(generator=None):
    """Logits for the laws of the next token, from few to many. Yields `(logits,), None`.

    generator: a `numpy.random.Generator`, by default one that draws the same each time.
    """
    generator = np.random.default_rng(0) if generator is None else generator
    for size_ in (2, 3, 5, 12):
        yield (generator.permutation(size_) - 0.4 * generator.random(size_),), None


@_law_of_chances
def chances_sum_to_one(chances, logits):
    """Whatever is left out, the rest is all there is to choose from."""
    for filters in ({}, {"top_k": 2}, {"top_p": 0.7}, {"temperature": 0.5, "top_p": 0.7}):
        total = float(chances(logits, **filters).sum())
        if not abs(total - 1) < 1e-6:
            named = {"logits": logits, **filters}
            return CounterExample("chances_sum_to_one", named, "the sum", 1.0, total)
    return None


@_law_of_chances
def the_likeliest_token_stays_likeliest(chances, logits):
    """No filter and no temperature takes the lead from the token with the largest logit."""
    for filters in ({}, {"top_k": 1}, {"top_k": 2}, {"top_p": 0.1}, {"temperature": 2.0}):
        best, largest = int(chances(logits, **filters).argmax()), int(logits.argmax())
        if best != largest:
            named = {"logits": logits, **filters}
            law = "the_likeliest_token_stays_likeliest"
            return CounterExample(law, named, "the likeliest token", largest, best)
    return None


@_law_of_chances
def top_k_keeps_k_tokens(chances, logits):
    """With `top_k` that many tokens can come, if there are as many.

    Source: Fan et al. 2018, "Hierarchical Neural Story Generation".
    """
    for k in (1, 2, 3):
        kept, expected = int((chances(logits, top_k=k) > 0).sum()), min(k, len(logits))
        if kept != expected:
            named = {"logits": logits, "top_k": k}
            where = "the number of tokens that can come"
            return CounterExample("top_k_keeps_k_tokens", named, where, expected, kept)
    return None


@_law_of_chances
def the_kept_tokens_reach_top_p(chances, logits):
    """The likeliest tokens are kept until together they had a chance of `top_p`, and no more.

    At any temperature: what counts is the chance at that temperature.
    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", equation 2.
    """
    for p, temperature in [(0.5, 1.0), (0.8, 1.0), (0.95, 1.0), (0.8, 2.0), (0.8, 0.5)]:
        likely = np.sort(np.exp((logits - logits.max()) / temperature))[::-1]
        expected = int((likely.cumsum() / likely.sum() < p).sum()) + 1
        kept = int((chances(logits, top_p=p, temperature=temperature) > 0).sum())
        if kept != expected:
            named = {"logits": logits, "top_p": p, "temperature": temperature}
            where = "the number of tokens that can come"
            return CounterExample("the_kept_tokens_reach_top_p", named, where, expected, kept)
    return None


@_law_of_chances
def warmer_is_flatter(chances, logits):
    """A higher temperature takes from the likeliest token, a lower one gives to it."""
    cold, mild, warm = (float(chances(logits, temperature=t).max()) for t in (0.5, 1.0, 2.0))
    if cold > mild > warm:
        return None
    named, where = {"logits": logits}, "the largest chance at temperatures 0.5, 1, 2"
    return CounterExample("warmer_is_flatter", named, where, "falling", (cold, mild, warm))
