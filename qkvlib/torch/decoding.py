"""From a model's logits to text: which token comes next, and the one after it."""

import math

import torch

from qkvlib import _checks
from qkvlib.torch._tensors import check_floating, check_whole, shape_of, values, working
from qkvlib.torch.attention import softmax
from qkvlib.torch.initialization import check_generator


def token_probabilities(logits, *, temperature=1.0, top_k=None, top_p=None):
    """With which probability each token is drawn: `softmax(logits / temperature)`, then cut.

    logits `(..., vocabulary)` -> probabilities of the same shape, dtype and device (float32 for
    half types).
    temperature: a number above 0; below 1 it favours the likely tokens, above 1 it evens out.
    top_k: only the `top_k` greatest logits stay, with those that equal the last of them.
    top_p: only the likeliest tokens stay that together reach `top_p`, the fewest that do, with
    those that equal the last of them; what `top_k` cut does not count. At 1 all stay.

    Raises `ValueError` for numbers out of range and for rows whose greatest logit is not finite
    (not checked on an accelerator, which would have to stop for it, nor while torch traces),
    `TypeError` for anything but a floating tensor.

    Source: temperature: Ackley et al. 1985, "A Learning Algorithm for Boltzmann Machines";
    top_k: Fan et al. 2018, "Hierarchical Neural Story Generation"; top_p: Holtzman et al. 2020,
    "The Curious Case of Neural Text Degeneration", section 3.1.

    >>> logits = torch.log(torch.tensor([0.5, 0.1, 0.4]))
    >>> token_probabilities(logits, top_k=1), token_probabilities(logits, top_p=0.6)
    (tensor([1., 0., 0.]), tensor([0.5556, 0.0000, 0.4444]))
    """
    check_floating(logits=logits)
    _checks.check_logits(shape_of(logits))
    temperature = _checks.check_temperature(temperature, torch.finfo(working(logits).dtype))
    top_k, top_p = _checks.check_cuts(top_k, top_p)
    scores = working(logits)
    greatest = scores.amax(-1, keepdim=True)
    if (numbers := values(greatest.detach())) is not None:
        _checks.check_greatest(numbers)
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
    generator: a `torch.Generator` to draw with, on any device; None is torch's own.

    It does not stop at a token that ends a text; the caller does, as below. A token is computed
    when it is asked for, so the loop may be wrapped in tqdm, and without recording gradients.

    Raises `ValueError` or `TypeError` for arguments that do not fit, at once; for a text that
    grows too long for the model, and for logits that are no numbers, when it comes to that.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.

    >>> class Count:  # after each token comes the one whose id is greater by 1
    ...     def new_cache(self):
    ...         return None
    ...     def next_logits(self, ids, *, cache):
    ...         return torch.eye(9)[ids[-1] + 1]
    >>> for token in generate(Count(), torch.tensor([4, 5]), max_tokens=99):
    ...     print(token)
    ...     if token == 8:
    ...         break
    6
    7
    8
    """
    _checks.check_decoder(model)
    check_whole("ids", ids)
    _checks.check_prompt(shape_of(ids))
    max_tokens = _checks.check_count("max_tokens", max_tokens, least=0)
    _checks.check_sampling(temperature, top_k, top_p)
    generator = check_generator(generator)

    def tokens(read, cache):
        for _ in range(max_tokens):
            with torch.no_grad():
                logits = model.next_logits(read, cache=cache)
                token = _choose(logits, temperature, top_k, top_p, generator)
            yield token
            read = torch.tensor([token], device=ids.device)

    return tokens(ids.clone(), model.new_cache())


def _choose(logits, temperature, top_k, top_p, generator):
    """The id of the next token, by its logits `(vocabulary,)`."""
    check_floating(**{"next_logits(ids, cache=cache)": logits})
    _checks.check_next_logits(shape_of(logits))
    _checks.check_greatest(logits.amax(dim=0, keepdim=True).cpu().double().numpy())
    if temperature == 0:
        return int(logits.argmax())
    p = token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    where = p.device if generator is None else generator.device
    return int(torch.multinomial(p.to(where), 1, generator=generator))


def _keep_greatest(scores, k):
    """`scores` with -inf for all that are smaller than the `k`-th greatest of their row."""
    least = scores.topk(min(k, scores.shape[-1])).values[..., -1:]
    return scores.masked_fill(scores < least, -math.inf)


def _keep_nucleus(scores, p):
    """`scores` with -inf for all tokens that the likelier ones, reaching `p`, make needless.

    From the least likely up, tokens go as long as what has gone stays within `1 - p`, but for
    rounding: where those that stay reach `p` exactly, no other one does.
    """
    ascending = scores.sort(-1).values
    rounding = 8 * torch.finfo(scores.dtype).eps
    gone = softmax(ascending).cumsum(-1) <= 1 - p + rounding
    last = gone.sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
    least = ascending.gather(-1, last)
    return scores.masked_fill(scores < least, -math.inf)
