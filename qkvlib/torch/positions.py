"""Where a token stands, told to a layer that by itself does not know."""

from torch.nn.functional import embedding

from qkvlib import _checks
from qkvlib.torch._tensors import check_devices, check_floating, check_whole, shape_of, values


def learned_positions(positions, table):
    """The rows of a learned table for these positions, to be added to the tokens.

    positions: whole numbers of any shape `(..., n)`; table `(n_max, d_model)` -> `(..., n,
    d_model)` in the table's dtype, on its device.

    Raises `ValueError` for positions outside the table: there a learned table says nothing.
    (Not checked on an accelerator, which would have to stop for it, nor while torch traces.)

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.

    >>> import torch
    >>> learned_positions(torch.arange(2), torch.tensor([[0.5, 1.0], [2.0, 4.0], [7.0, 8.0]]))
    tensor([[0.5000, 1.0000],
            [2.0000, 4.0000]])
    """
    check_whole("positions", positions)
    check_floating(table=table)
    check_devices(positions=positions, table=table)
    if (numbers := values(positions)) is not None:
        _checks.check_table("positions", numbers, shape_of(table), "(n_max, d_model)")
    return embedding(positions.long(), table)
