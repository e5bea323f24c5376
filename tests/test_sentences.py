"""The sentences of the statistics: complete, with the right name marked, one batch each."""

from types import SimpleNamespace

import numpy as np
import pytest

from qkvlib.book.sentences import HER_NAMES, HIS_NAMES, PRONOUN_SEAT, encode, family

KINDS = [("he", "his"), ("he", "her"), ("she", "his"), ("she", "her")]


class Tokenizer:
    """One id per word: its length."""

    def encode(self, sentence):
        return SimpleNamespace(ids=[len(word) for word in sentence.split()])


def test_four_families_of_all_pairs():
    sentences = [s for pronoun, first in KINDS for s in family(pronoun, first=first).sentences]
    assert len(set(sentences)) == len(sentences) == 4 * 15 * 15


@pytest.mark.parametrize(("pronoun", "first"), KINDS)
def test_the_meant_name_fits_the_pronoun(pronoun, first):
    meant_names, other_names = (HIS_NAMES, HER_NAMES) if pronoun == "he" else (HER_NAMES, HIS_NAMES)
    sentences, meant, other = family(pronoun, first=first)
    words = [sentence.split() for sentence in sentences]
    assert {w[meant] for w in words} == set(meant_names)
    assert {w[other] for w in words} == set(other_names)
    assert {w[0] for w in words} == set(HIS_NAMES if first == "his" else HER_NAMES)
    assert {w[PRONOUN_SEAT] for w in words} == {pronoun}


def test_a_fixed_seat_is_right_in_half_of_them():
    assert [family(pronoun, first=first).meant for pronoun, first in KINDS].count(0) == 2


@pytest.mark.parametrize(
    ("pronoun", "first", "message"),
    [("they", "his", "pronoun must be 'he' or 'she'"), ("he", "Paul", "first must be 'his' or")],
)
def test_other_words_are_refused(pronoun, first, message):
    with pytest.raises(ValueError, match=message):
        family(pronoun, first=first)


def test_one_batch_of_ids():
    ids = encode(Tokenizer(), ["a bb ccc", "ccc bb a"])
    np.testing.assert_array_equal(ids, [[1, 2, 3], [3, 2, 1]])
    assert ids.dtype == np.int64


@pytest.mark.parametrize(
    ("sentences", "message"), [(["a", "a b"], r"got \[1, 2\]"), ([], "got no sentence")]
)
def test_sentences_of_other_lengths_are_refused(sentences, message):
    with pytest.raises(ValueError, match=message):
        encode(Tokenizer(), sentences)


def test_every_name_is_one_token_of_minilm():
    pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    from qkvlib.pretrained import load_minilm

    ids = encode(load_minilm().tokenizer, list(HIS_NAMES + HER_NAMES))
    assert ids.shape == (30, 3)  # [CLS] name [SEP]
