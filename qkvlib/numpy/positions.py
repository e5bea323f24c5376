"""Where a token stands, told to a layer that by itself does not know."""

from qkvlib import _checks
from qkvlib.numpy._arrays import check_array, check_floating


def learned_positions(positions, table):
    """The rows of a learned table for these positions, to be added to the tokens.

    positions: whole numbers of any shape `(..., n)`; table `(n_max, d_model)` -> `(..., n,
    d_model)` in the table's dtype.

    Raises `ValueError` for positions outside the table: there a learned table says nothing.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.

    >>> import numpy as np
    >>> learned_positions(np.arange(2), np.array([[0.5, 1.0], [2.0, 4.0], [7.0, 8.0]]))
    array([[0.5, 1. ],
           [2. , 4. ]])
    """
    check_array("positions", positions)
    check_floating(table=table)
    _checks.check_table("positions", positions, table.shape, "(n_max, d_model)")
    return table[positions]
