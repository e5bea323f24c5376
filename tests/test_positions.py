"""Learned positions: rows of a table."""

import numpy as np
import pytest
from twins import back, dtype_of


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 2, 3), ()], ids=str)
@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "int8", "uint8"])
def test_learned_positions_are_rows_of_the_table(twin, generator, shape, kind):
    positions = generator.integers(0, 7, shape)
    table = generator.normal(size=(7, 5))
    found = twin.lib.learned_positions(
        twin.array(np.asarray(positions).astype(kind)), twin.array(table)
    )
    assert dtype_of(found) == twin.dtype
    np.testing.assert_array_equal(back(found), twin.rounded(table)[0][positions])


def test_in_torch_only_the_rows_read_learn(backend, generator):
    if not backend.is_torch:
        pytest.skip("no gradients in NumPy")
    table = backend.array(generator.normal(size=(7, 5))).requires_grad_()
    found = backend.lib.learned_positions(backend.array(np.array([2, 2, 0])), table)
    found.sum().backward()
    assert back(table.grad)[:, 0].tolist() == [1, 0, 2, 0, 0, 0, 0]
