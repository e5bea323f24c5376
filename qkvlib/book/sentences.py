"""Many sentences of one form, to ask whether a head of a real model does what one example shows.

Every sentence reads "NAME told NAME he won", or "she", with the name of a man and the name of a
woman. The names are single tokens for MiniLM, so all sentences have the same length and run as
one batch.
"""

from typing import NamedTuple

import numpy as np

HIS_NAMES = tuple(
    "John Tom Peter James David Paul Mark George Henry Adam Jack Leo Max Sam Ben".split()  # noqa: SIM905
)
HER_NAMES = tuple(
    "Mary Anna Emma Sarah Alice Jane Lucy Kate Eva Clara Laura Julia Rose Ruth Helen".split()  # noqa: SIM905
)
PRONOUN_SEAT = 3
"""Where the pronoun stands, counted in words from 0."""


class Family(NamedTuple):
    """sentences: a list of strings; meant, other: the seats of the two names, 0 and 2 or 2 and 0.

    meant is the seat of the name that the pronoun stands for, other the seat of the other name.
    """

    sentences: list
    meant: int
    other: int


def family(pronoun, *, first):
    """Each man's name with each woman's name, in sentences of one form: 15 times 15 of them.

    pronoun: "he" or "she"; first: whose name comes first, "his" or "her" -> `Family`

    Raises ValueError for any other pronoun or order.

    >>> sentences, meant, other = family("he", first="her")
    >>> len(sentences), sentences[0], sentences[0].split()[meant]
    (225, 'Mary told John he won', 'John')
    """
    _check_choice("pronoun", pronoun, ("he", "she"))
    _check_choice("first", first, ("his", "her"))
    pairs = [(his, her) if first == "his" else (her, his) for his in HIS_NAMES for her in HER_NAMES]
    seats = (0, 2) if (pronoun, first) in {("he", "his"), ("she", "her")} else (2, 0)
    return Family([f"{one} told {two} {pronoun} won" for one, two in pairs], *seats)


def _check_choice(name, given, choices):
    if given not in choices:
        raise ValueError(f"{name} must be {choices[0]!r} or {choices[1]!r}, got {given!r}")


def encode(tokenizer, sentences):
    """The token ids of sentences that have equally many tokens, as one batch.

    tokenizer: as in `qkvlib.pretrained.load_minilm()`; sentences: a list of strings
    -> int64 array (len(sentences), n)

    Raises ValueError for no sentence and for sentences of different lengths.

    >>> from qkvlib.pretrained import load_minilm
    >>> encode(load_minilm().tokenizer, ["Paul told Emma"])  # doctest: +SKIP
    array([[ 101, 2703, 2409, 5616,  102]])
    """
    ids = [tokenizer.encode(sentence).ids for sentence in sentences]
    lengths = sorted({len(row) for row in ids})
    if len(lengths) != 1:
        raise ValueError(
            f"sentences must all have the same number of tokens, got {lengths or 'no sentence'}; "
            "try words that are one token each, or encode them one by one"
        )
    return np.array(ids)
