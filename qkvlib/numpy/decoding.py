"""From a model's logits to text: which token comes next, and the one after it."""

import numpy as np

from qkvlib import _checks
from qkvlib.numpy._arrays import check_floating, check_whole, working
from qkvlib.numpy.attention import softmax
from qkvlib.numpy.initialization import check_generator


def token_probabilities(logits, *, temperature=1.0, top_k=None, top_p=None):
    """With which probability each token is drawn: `softmax(logits / temperature)`, then cut.

    logits `(..., vocabulary)` -> probabilities of the same shape and dtype (float32 for float16).
    temperature: a number above 0; below 1 it favours the likely tokens, above 1 it evens out.
    top_k: only the `top_k` greatest logits stay, with those that equal the last of them.
    top_p: only the likeliest tokens stay that together reach `top_p`, the fewest that do, with
    those that equal the last of them; what `top_k` cut does not count. At 1 all stay.

    Raises `ValueError` for numbers out of range and for rows whose greatest logit is not finite,
    `TypeError` for anything but a floating NumPy array.

    Source: temperature: Ackley et al. 1985, "A Learning Algorithm for Boltzmann Machines";
    top_k: Fan et al. 2018, "Hierarchical Neural Story Generation"; top_p: Holtzman et al. 2020,
    "The Curious Case of Neural Text Degeneration", section 3.1.

    >>> logits = np.log(np.array([0.5, 0.1, 0.4]))
    >>> token_probabilities(logits, top_k=1), token_probabilities(logits, top_p=0.6).round(3)
    (array([1., 0., 0.]), array([0.556, 0.   , 0.444]))
    """
    check_floating(logits=logits)
    _checks.check_logits(logits.shape)
    temperature = _checks.check_temperature(temperature, np.finfo(working(logits).dtype))
    top_k, top_p = _checks.check_cuts(top_k, top_p)
    scores = working(logits)
    greatest = scores.max(-1, keepdims=True)
    _checks.check_greatest(greatest)
    with np.errstate(over="ignore"):  # that far below the greatest a probability is 0
        scores = (scores - greatest) / temperature
    if top_k is not None:
        scores = _keep_greatest(scores, top_k)
    if top_p is not None and top_p < 1:
        scores = _keep_nucleus(scores, top_p)
    return softmax(scores)


def generate(model, ids, *, max_tokens, temperature=0.0, top_k=None, top_p=None, generator=None):
    """Continue a text: yields the ids of up to `max_tokens` further tokens, one by one.

    model: a `Decoder`, or whatever has its methods `new_cache()` and
    `next_logits(ids, cache=cache)`. ids: the text so far, whole numbers `(n,)`.
    temperature: 0 takes the greatest logit each time, the first of equals ("greedy"); above 0
    tokens are drawn by `token_probabilities` with this temperature, `top_k` and `top_p`.
    generator: a `numpy.random.Generator` to draw with; None draws otherwise each time.

    It does not stop at a token that ends a text; the caller does, as below. A token is computed
    when it is asked for, so the loop may be wrapped in tqdm.

    Raises `ValueError` or `TypeError` for arguments that do not fit, at once; for a text that
    grows too long for the model, and for logits that are no numbers, when it comes to that.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.

    >>> class Count:  # after each token comes the one whose id is greater by 1
    ...     def new_cache(self):
    ...         return None
    ...     def next_logits(self, ids, *, cache):
    ...         return np.eye(9)[ids[-1] + 1]
    >>> for token in generate(Count(), np.array([4, 5]), max_tokens=99):
    ...     print(token)
    ...     if token == 8:
    ...         break
    6
    7
    8
    """
    _checks.check_decoder(model)
    check_whole("ids", ids)
    _checks.check_prompt(ids.shape)
    max_tokens = _checks.check_count("max_tokens", max_tokens, least=0)
    _checks.check_sampling(temperature, top_k, top_p)
    generator = check_generator(generator)

    def tokens(read, cache):
        for _ in range(max_tokens):
            logits = model.next_logits(read, cache=cache)
            token = _choose(logits, temperature, top_k, top_p, generator)
            yield token
            read = np.array([token])

    return tokens(ids.copy(), model.new_cache())


def _choose(logits, temperature, top_k, top_p, generator):
    """The id of the next token, by its logits `(vocabulary,)`."""
    check_floating(**{"next_logits(ids, cache=cache)": logits})
    _checks.check_next_logits(logits.shape)
    if temperature == 0:
        _checks.check_greatest(logits.max(keepdims=True))
        return int(logits.argmax())
    p = token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    p = p.astype(float)
    return int(generator.choice(len(p), p=p / p.sum()))


def _keep_greatest(scores, k):
    """`scores` with -inf for all that are smaller than the `k`-th greatest of their row."""
    size = scores.shape[-1]
    last = size - min(k, size)
    least = np.partition(scores, last, axis=-1)[..., last, None]
    return np.where(scores < least, -np.inf, scores)


def _keep_nucleus(scores, p):
    """`scores` with -inf for all tokens that the likelier ones, reaching `p`, make needless.

    From the least likely up, tokens go as long as what has gone stays within `1 - p`, but for
    rounding: where those that stay reach `p` exactly, no other one does.
    """
    ascending = np.sort(scores, axis=-1)
    rounding = 8 * float(np.finfo(scores.dtype).eps)
    gone = np.cumsum(softmax(ascending), axis=-1) <= 1 - p + rounding
    last = np.minimum(gone.sum(-1, keepdims=True), scores.shape[-1] - 1)
    least = np.take_along_axis(ascending, last, axis=-1)
    return np.where(scores < least, -np.inf, scores)
