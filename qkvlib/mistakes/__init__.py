"""Mistakes that people make in attention, each a small wrong variant with a name.

`MISTAKES` holds them by name, `SUBJECTS` what they are mistakes in. `name_of_mistake` says which
one a function has, `broken_laws` which laws it breaks, `table` both for all of the catalogue.

>>> print(MISTAKES["mask-after-softmax"].says)
Forbidden weights are set to 0 after the softmax, which has counted them already.
"""

from qkvlib.mistakes import attention, heads, masks, softmax  # noqa: F401  each subject enters its mistakes
from qkvlib.mistakes._catalogue import (
    MISTAKES,
    SUBJECTS,
    Mistake,
    Subject,
    broken_laws,
    name_of_mistake,
    table,
)

__all__ = [
    "MISTAKES",
    "SUBJECTS",
    "Mistake",
    "Subject",
    "broken_laws",
    "name_of_mistake",
    "table",
]
