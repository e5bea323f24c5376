"""The running example: one sentence of five words that can be computed by hand.

Paul told Emma he won. Who won? Each word is a row of six numbers: four say what it is
(a name, he-like or she-like, a pronoun, a verb) and two say where it sits (the hand of a
clock that turns 45 degrees per word). The rows are written by hand, not learned, so that
every product and every weight in the chapters can be checked with a pencil.

Everything here is read-only or freshly made, so no chapter can change what another one sees.
`torch.tensor(X)` copies X; `torch.from_numpy(X)` would warn that the array is read-only.
"""

from types import MappingProxyType
from typing import NamedTuple

import numpy as np

COORDINATES = ("name", "he/she", "refers", "action", "seat-x", "seat-y")
"""The names of the six columns of X: d_model = 6."""

WORDS = ("Paul", "told", "Emma", "he", "won")
"""The sentence, one word per token: n = 5."""

VARIANTS = MappingProxyType(
    {word: (*WORDS[:3], word, *WORDS[4:]) for word in ("he", "she", "they", "Paul")}
)
"""The sentence with another word in seat 3; VARIANTS["he"] is WORDS."""

CONTENT = MappingProxyType(
    {  #        name he/she refers action
        "Paul": (1, 1, 0, 0),
        "Emma": (1, -1, 0, 0),
        "he": (0, 1, 1, 0),
        "she": (0, -1, 1, 0),
        "they": (0, 0, 1, 0),
        "told": (0, 0, 0, 1),
        "won": (0, 0, 0, 1),
    }
)
"""What each known word is: the first four columns of its row."""


def _read_only(values):
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


SEATS = _read_only(
    [(1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7), (-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7)]
)
"""Where each of the eight seats is: the last two columns. 0.7 stands for sqrt(1/2)."""


def embed(words):
    """Write a sentence as numbers: what each word is, then the seat it takes.

    words: a sequence of 1 to 8 words out of `CONTENT`, in the order of the sentence
    -> a fresh float64 array (n, 6), columns as in `COORDINATES`

    Raises TypeError for a plain string, ValueError for an unknown word or too many words.

    >>> embed(("Emma", "told"))
    array([[ 1. , -1. ,  0. ,  0. ,  1. ,  0. ],
           [ 0. ,  0. ,  0. ,  1. ,  0.7,  0.7]])
    """
    if isinstance(words, str):
        raise TypeError(
            f"words must be a sequence of words, got the string {words!r}; try words.split()"
        )
    words = tuple(words)
    if not 1 <= len(words) <= len(SEATS):
        raise ValueError(
            f"words must be 1 to {len(SEATS)} words, got {len(words)}; "
            f"the clock hand has only {len(SEATS)} seats, try a shorter sentence"
        )
    unknown = [word for word in words if word not in CONTENT]
    if unknown:
        raise ValueError(
            f"words must be among {', '.join(CONTENT)}, got {unknown}; "
            "check the spelling, names start with a capital letter"
        )
    content = np.array([CONTENT[word] for word in words], dtype=np.float64)
    return np.concatenate([content, SEATS[: len(words)]], axis=-1)


X = _read_only(embed(WORDS))
"""The sentence as numbers: (5, 6), read-only."""


class Head(NamedTuple):
    """The three matrices of one attention head, each acting on the right: q = x @ W_Q.

    W_Q and W_K are (6, 2), W_V is (6, 3): d_k = 2, d_v = 3. All are read-only.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray


def _matrix(rows, width):
    """A (6, width) matrix from its named rows; every row that is not named is zero."""
    return _read_only([rows.get(name, (0,) * width) for name in COORDINATES])


def _copy(*names):
    """A matrix that copies the named coordinates, in this order, and drops the others."""
    return _matrix(dict(zip(names, np.eye(len(names)))), len(names))


HEAD_A = Head(
    W_Q=_matrix({"refers": (2, 0), "he/she": (0, 1)}, 2),
    W_K=_matrix({"name": (1, 0), "he/she": (0, 2)}, 2),
    W_V=_copy("name", "he/she", "action"),
)
"""Who is meant? A pronoun looks for a name of its own kind."""

HEAD_B = Head(
    W_Q=_matrix({"seat-x": (5, -5), "seat-y": (5, 5)}, 2),
    W_K=_matrix({"seat-x": (2, 0), "seat-y": (0, 2)}, 2),
    W_V=_copy("name", "he/she", "refers"),
)
"""What stands before me? Each seat looks for the seat one turn of the hand earlier."""

W_O = _read_only(
    [  # name he/she refers action seat-x seat-y
        (1, 0, 0, 0, 0, 0),  # A's name
        (0, 1, 0, 0, 0, 0),  # A's he/she
        (0, 0, 0, 1, 0, 0),  # A's action
        (0.5, 0, 0, 0, 0, 0),  # B's name
        (0, 0.5, 0, 0, 0, 0),  # B's he/she
        (0, 0, 0.5, 0, 0, 0),  # B's refers
    ]
)
"""What becomes of the two answers: (6, 6), a row for each number that a head hands over.

Head A's answer goes in whole and head B's at half strength, so that where both speak of the same
coordinate A is heard. Read-only.
"""
