"""Whole models, assembled from the parts of this package."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from qkvlib import _checks, _minilm, _smollm2
from qkvlib._caches import unchanged_on_error
from qkvlib.patterns import causal
from qkvlib.torch._tensors import (
    check_devices,
    check_floating,
    check_whole,
    from_array,
    shape_of,
    values,
)
from qkvlib.torch.blocks import FeedForward, LayerNorm, RMSNorm, SwiGLU, TransformerBlock
from qkvlib.torch.masks import causal_mask, mask_tensor
from qkvlib.torch.multihead import KeyValueCache, MultiHeadAttention, project
from qkvlib.torch.positions import learned_positions, rotary_angles, rotate


class Trace(NamedTuple):
    """What a model went through: a list of hidden states, a list of weights.

    hidden_states: what each block read, then the result, `(..., n, d_model)`: one more than
    there are blocks. weights: what each block's heads read of it, `(..., h, n, n)`.
    """

    hidden_states: list
    weights: list


class Encoder(nn.Module):
    """Tokens and learned positions, added and normalised, then read by one block after another.

    token_table `(vocabulary, d_model)`, position_table `(n_max, d_model)`, norm: a function of
    the embeddings, blocks: a list of `TransformerBlock`.

    Raises `ValueError` for tables that do not fit together, `TypeError` for anything but
    floating tensors of one dtype.

    Source: Devlin et al. 2019, "BERT", section 3 and figure 2.

    >>> tables = torch.eye(3), torch.zeros(2, 3)
    >>> Encoder(*tables, norm=lambda x: x, blocks=[])(torch.tensor([0, 2])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, token_table, position_table, *, norm, blocks):
        super().__init__()
        check_floating(token_table=token_table, position_table=position_table)
        _checks.check_tables(shape_of(token_table), shape_of(position_table))
        self.token_table = nn.Parameter(token_table.detach().clone())
        self.position_table = nn.Parameter(position_table.detach().clone())
        self.norm, self.blocks = norm, nn.ModuleList(blocks)

    @classmethod
    def from_pretrained(cls, weights, config):
        """The encoder of `qkvlib.pretrained.load_minilm`, in the dtype of its weights.

        weights: NumPy arrays or tensors by their name in the file; config: the model's
        settings. Raises `ValueError` when a weight is missing or of another shape than the
        config says.
        """
        parts = _minilm.parts(weights, config, convert=_tensor)
        blocks = [
            TransformerBlock.from_parts(
                MultiHeadAttention.from_weights(**part.attention),
                FeedForward.from_weights(**part.feed_forward),
                LayerNorm.from_weights(**part.attention_norm),
                LayerNorm.from_weights(**part.feed_forward_norm),
                norm="post",
            )
            for part in parts.blocks
        ]
        norm = LayerNorm.from_weights(**parts.norm)
        return cls(parts.token_table, parts.position_table, norm=norm, blocks=blocks)

    def forward(self, ids, *, mask=None):
        """The last hidden states `(..., n, d_model)` of `ids`, whole numbers `(..., n)`.

        mask: as in `MultiHeadAttention`; for padding `padding_mask(lengths, n)[:, None]`.
        Padding stands after a text: the first of `ids` has position 0, in a padded row too.
        Raises `ValueError` for ids outside the vocabulary and for more than `n_max` tokens.
        """
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, mask=mask)
        return x

    def trace(self, ids, *, mask=None):
        """Every hidden state and every head's weights on the way, as a `Trace`."""
        return _trace(self.embed(ids), self.blocks, mask)

    def embed(self, ids):
        """What the first block reads: `norm(token + position)`, `(..., n, d_model)`."""
        tokens = _embedded(ids, self.token_table, n_max=len(self.position_table))
        positions = torch.arange(ids.shape[-1], device=ids.device)
        return self.norm(tokens + learned_positions(positions, self.position_table))


class Decoder(nn.Module):
    """Tokens read by one block after another, each token from itself and those before it.

    What comes out scores every token of the vocabulary as the next one: a *logit* each, the
    product of the normalised output with that token's row of the table ("tied" embeddings).
    Positions are the blocks' own business (`rotate` of their attention).

    token_table `(vocabulary, d_model)`, norm: a function of what the last block leaves, blocks: a
    list of `TransformerBlock`, n_max: how long a text may get.

    Raises `ValueError` for a table or a length that does not fit, `TypeError` for anything but a
    floating tensor.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training",
    section 3.1; tied: Press & Wolf 2017, "Using the Output Embedding to Improve Language Models".

    >>> decoder = Decoder(torch.eye(3), norm=lambda x: 2 * x, blocks=[], n_max=5)
    >>> decoder(torch.tensor([0, 2])).tolist()
    [[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    """

    def __init__(self, token_table, *, norm, blocks, n_max):
        super().__init__()
        check_floating(token_table=token_table)
        _checks.check_token_table(shape_of(token_table))
        self.token_table = nn.Parameter(token_table.detach().clone())
        self.norm, self.blocks = norm, nn.ModuleList(blocks)
        self.n_max = _checks.check_count("n_max", n_max)

    @classmethod
    def from_pretrained(cls, weights, config):
        """The decoder of `qkvlib.pretrained.load_smollm2`, in the dtype of its weights.

        weights: NumPy arrays or tensors by their name in the file; config: the model's
        settings. Raises `ValueError` when a weight is missing or of another shape than the
        config says.
        """
        parts = _smollm2.parts(weights, config, convert=_tensor)
        turn = partial(_turn, base=parts.rotary_base)
        blocks = [
            TransformerBlock.from_parts(
                MultiHeadAttention.from_weights(**part.attention, rotate=turn),
                SwiGLU.from_weights(**part.feed_forward),
                RMSNorm.from_weights(**part.attention_norm),
                RMSNorm.from_weights(**part.feed_forward_norm),
                norm="pre",
            )
            for part in parts.blocks
        ]
        norm = RMSNorm.from_weights(**parts.norm)
        return cls(parts.token_table, norm=norm, blocks=blocks, n_max=parts.n_max)

    def forward(self, ids, *, mask=None, cache=None):
        """The logits `(..., n, vocabulary)` after each of `ids`, whole numbers `(..., n)`.

        mask: what else to forbid, besides all that comes after a token: as in
        `MultiHeadAttention`; for padding `padding_mask(lengths, n)[:, None]`.
        cache: of `new_cache()`, for a text that is read piece by piece: it holds what came
        before `ids`, and then `ids` too. A call that raises leaves it as it was.

        Raises `ValueError` for ids outside the vocabulary, for more than `n_max` tokens and for
        the cache of another model.
        """
        return self.logits(self.read(ids, mask=mask, cache=cache))

    def next_logits(self, ids, *, mask=None, cache=None):
        """The logits `(..., vocabulary)` after the last of `ids` alone; arguments as above."""
        return self.logits(self.read(ids, mask=mask, cache=cache)[..., -1, :])

    def new_cache(self):
        """An empty cache for one text: a list of one `KeyValueCache` for each block."""
        return [KeyValueCache() for _ in self.blocks]

    def trace(self, ids, *, mask=None):
        """Every hidden state and every head's weights on the way, as a `Trace`.

        The last hidden state is what the last block leaves, before the norm.
        """
        return _trace(self.embed(ids), self.blocks, _causal(mask, ids))

    def read(self, ids, *, mask=None, cache=None):
        """What the last block leaves of `ids`, `(..., n, d_model)`: `logits` reads it."""
        x = self.embed(ids)
        if cache is None:
            mask = _causal(mask, ids)
            for block in self.blocks:
                x = block(x, mask=mask)
            return x
        held = _checks.check_block_caches(cache, KeyValueCache, len(self.blocks))
        _checks.check_text(shape_of(ids), self.n_max, held)
        mask = _causal(mask, ids, held)
        with unchanged_on_error(*cache):
            for block, one in zip(self.blocks, cache):
                x = block(x, mask=mask, cache=one)
        return x

    def logits(self, x):
        """The logits `(..., vocabulary)` of hidden states `x (..., d_model)`, after any block."""
        return project(self.norm(x), self.token_table.T)

    def embed(self, ids):
        """What the first block reads: the rows of the table, `(..., n, d_model)`."""
        return _embedded(ids, self.token_table, self.n_max)


def _embedded(ids, token_table, n_max):
    """The rows of the table for the ids of texts of up to `n_max` tokens."""
    check_whole("ids", ids)
    check_devices(ids=ids, token_table=token_table)
    _checks.check_text(shape_of(ids), n_max)
    if (numbers := values(ids)) is not None:
        _checks.check_table("ids", numbers, shape_of(token_table), "(vocabulary, d_model)")
    return nn.functional.embedding(ids.long(), token_table)


def _trace(x, blocks, mask):
    trace = Trace([x], [])
    for block in blocks:
        x = trace.hidden_states[-1]
        trace.weights.append(block.attention_weights(x, mask=mask))
        trace.hidden_states.append(block(x, mask=mask))
    return trace


def _causal(mask, ids, held=0):
    """`mask` less all that comes after a token; a single token has nothing after it."""
    n = ids.shape[-1]
    if mask is None:
        return None if n == 1 else causal
    shape = (*getattr(mask, "shape", ())[:-2], n, held + n)
    return causal_mask(n, held + n, device=ids.device) & mask_tensor(mask, shape, ids)


def _turn(x, positions, base):
    """Queries or keys `x (..., n, d_k)`, turned as SmolLM2's are."""
    return rotate(x, *rotary_angles(positions, x.shape[-1], base=base), pairing="interleaved")


def _tensor(weight):
    """A tensor of a NumPy array, or a tensor as it is."""
    return from_array(weight) if isinstance(weight, np.ndarray) else torch.as_tensor(weight)
