"""Whole models, assembled from the parts of this package."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from qkvlib import _checks, _minilm
from qkvlib.torch._tensors import check_devices, check_floating, check_whole, shape_of, values
from qkvlib.torch.blocks import FeedForward, LayerNorm, TransformerBlock
from qkvlib.torch.multihead import MultiHeadAttention
from qkvlib.torch.positions import learned_positions


class Trace(NamedTuple):
    """What an encoder went through: a list of hidden states, a list of weights.

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

    Source: Devlin et al. 2018, "BERT", section 3 and figure 2.

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
        weights = {name: _tensor(weight) for name, weight in weights.items()}
        parts = _minilm.parts(weights, config)
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
        Raises `ValueError` for ids outside the vocabulary and for more than `n_max` tokens.
        """
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, mask=mask)
        return x

    def trace(self, ids, *, mask=None):
        """Every hidden state and every head's weights on the way, as a `Trace`."""
        trace = Trace([self.embed(ids)], [])
        for block in self.blocks:
            x = trace.hidden_states[-1]
            trace.weights.append(block.attention_weights(x, mask=mask))
            trace.hidden_states.append(block(x, mask=mask))
        return trace

    def embed(self, ids):
        """What the first block reads: `norm(token + position)`, `(..., n, d_model)`."""
        check_whole("ids", ids)
        check_devices(ids=ids, token_table=self.token_table)
        _checks.check_text(shape_of(ids), len(self.position_table))
        if (numbers := values(ids)) is not None:
            table = shape_of(self.token_table)
            _checks.check_table("ids", numbers, table, "(vocabulary, d_model)")
        positions = torch.arange(ids.shape[-1], device=ids.device)
        tokens = nn.functional.embedding(ids.long(), self.token_table)
        return self.norm(tokens + learned_positions(positions, self.position_table))


def _tensor(weight):
    """A tensor of a NumPy array that may be read-only, of any byte order and any strides."""
    if isinstance(weight, np.ndarray):
        weight = np.array(weight, weight.dtype.newbyteorder("="), order="C")
    return torch.as_tensor(weight)
