"""Mistakes that people make with attention, each a small wrong variant with a name.

The wrong code of a mistake, what looks right about it, and how it shows:

>>> mistake = MISTAKES["mask-after-softmax"]
>>> print(mistake.says)
Forbidden weights are set to 0 after the softmax, which has counted them already.
>>> print(mistake.looks_right)
The heatmap is a perfect triangle: no weight above the diagonal.
>>> print(mistake.source)
def mask_after_softmax(query, key, value, *, mask=None):
    weights = softmax(attention_scores(query, key))
    return read(weights if mask is None else np.where(mask, weights, 0), value)
<BLANKLINE>
>>> list(broken_laws(mistake.function, mistake.subject))[:2]
['rows_sum_to_one', 'the_only_key_gives_its_value']

Where all laws hold, as with a wrong scale, only right values tell. `name_of_mistake` compares with
them and with those of each mistake, and so says which one somebody's function has.

A mistake is one in something: a whole attention, a mask, a norm. These are the `SUBJECTS`. For
another, write a right variant and some wrong ones in a file of this package.
"""

from qkvlib.mistakes import (  # noqa: F401  each file enters its subjects and their mistakes
    _catalogue,
    attention,
    chance,
    heads,
    masks,
    parts,
    positions,
    softmax,
    steps,
)
from qkvlib.mistakes._catalogue import (
    Examined,
    Mistake,
    Subject,
    broken_laws,
    examine,
    name_of_mistake,
    table,
)

MISTAKES = _catalogue.MISTAKES
"""Each `Mistake` by its name."""

SUBJECTS = _catalogue.SUBJECTS
"""Each `Subject` by its name."""

__all__ = [
    "MISTAKES",
    "SUBJECTS",
    "Examined",
    "Mistake",
    "Subject",
    "broken_laws",
    "examine",
    "name_of_mistake",
    "table",
]
