"""The storyteller: its stories, their least cost, and what is asked of a trained model."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

import qkvlib.numpy as qn
import qkvlib.torch as qt
from qkvlib.book.experiments import storyteller as st
from qkvlib.diagnostics import leak


@pytest.fixture(scope="module")
def read():
    return st.books()[0]


@pytest.fixture(scope="module")
def model(read):
    return st.new_model(np.random.default_rng(3), len(read.letters))


def test_the_pronoun_tells_who_acts_and_the_event_what_they_do():
    stories = st.all_stories()
    assert len(set(stories)) == 8 * 4 * 2 * 4 * 2
    for story in stories:
        *_, first, told, second, pronoun, event, meant, deed = story.replace(".", "").split()
        assert told == "told"
        assert {first in st.HE, second in st.HE} == {True, False}
        assert meant in (first, second)
        assert meant in (st.HE if pronoun == "he" else st.SHE)
        assert st.EVENTS[event] == deed


def test_two_never_meet_in_what_is_read():
    read, unread = st.books()
    assert len(read.stories) == 480
    assert len(unread.stories) == 32
    for story in unread.stories:
        assert {"Paul", "Emma"} <= set(story.split())
    assert not set(read.stories) & set(unread.stories)
    assert not any({"Paul", "Emma"} <= set(story.split()) for story in read.stories)
    assert read.letters == unread.letters


def test_letters_are_numbers_and_back(read):
    assert read.decode(read.encode("Then Kate\n")) == "Then Kate\n"


def test_rows_are_stories_one_after_the_other_and_targets_come_next(read):
    tokens, targets = read.batch(np.random.default_rng(0), 30)
    assert tokens.shape == targets.shape == (30, 48)
    np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
    for row in tokens:
        start, *lines, cut = read.decode(row).split("\n")
        assert start == ""
        assert set(lines) <= set(read.stories)
        assert any(story.startswith(cut) for story in read.stories)


@pytest.mark.parametrize("story", ["Ben told Lucy he lost. Ben sighed.", "Then Kate told Paul"])
def test_the_surprise_is_that_of_counted_letters(read, story):
    if story not in read.stories:
        with pytest.raises(ValueError, match="story must be one of the book's"):
            read.surprise(story)
        return
    bits = read.surprise(story)
    for place, letter in enumerate(story):
        following = Counter(s[place] for s in read.stories if s.startswith(story[:place]))
        chance = following[letter] / following.total()
        assert bits[place] == pytest.approx(-math.log2(chance), abs=1e-12)
    assert bits.sum() == pytest.approx(math.log2(480))


def test_the_least_loss_is_the_mean_surprise_of_drawn_rows(read):
    surprise = {story: read.surprise(story) for story in read.stories}
    rows, _ = read.batch(np.random.default_rng(1), 3000, length=49)
    costs = []
    for row in rows:
        *lines, cut = read.decode(row[1:]).split("\n")
        whole = next(story for story in read.stories if story.startswith(cut))
        costs.append(sum(surprise[s].sum() for s in lines) + surprise[whole][: len(cut)].sum())
    assert read.least() == pytest.approx(np.mean(costs) / 48 * math.log(2), rel=0.01)


def test_a_model_costs_what_its_chances_say_and_never_less_than_the_least(read, model):
    by_hand = []
    for story in read.stories[::40]:
        ids = torch.from_numpy(read.encode(f"\n{story}\n"))
        with torch.no_grad():
            chances = torch.softmax(model(ids[:-1]), dim=-1)
        by_hand.append(-float(torch.log2(chances[torch.arange(len(ids) - 1), ids[1:]]).sum()))
    some = st.Book(read.stories[::40], read.letters)
    assert st.bits(model, some) == pytest.approx(np.mean(by_hand))
    assert st.bits(model, read) > math.log2(480)


def test_places_are_those_of_the_words(read):
    places, (tokens, targets, is_story) = st.places(read), read.table()
    for i, story in enumerate(read.stories):
        *_, first, _, second, pronoun, _, meant, deed = story.replace(".", "").split()
        other = second if meant == first else first
        for mask, word in [(places.meant, meant), (places.other, other), (places.pronoun, pronoun)]:
            assert read.decode(tokens[i][mask[i]]) == word
        assert not places.meant[i, places.asks[i] :].any()
        assert read.decode(targets[i])[places.asks[i] :].startswith(meant)
        assert read.decode(targets[i])[places.deed[i] :].startswith(deed)
        assert read.decode(targets[i][is_story[i]]) == f"{story}\n"


def test_what_is_said_is_the_likeliest_letter_and_right_counts_it(read, model):
    some = st.Book(read.stories[::60], read.letters)
    where, by_hand, hits = st.places(some).asks, "", []
    for story, place in zip(some.stories, where):
        with torch.no_grad():
            logits = model(torch.from_numpy(read.encode(f"\n{story}"[: place + 1])))[-1]
        by_hand += read.letters[int(logits.argmax())]
        hits.append(by_hand[-1] == story[place])
    assert st.said(model, some, where) == by_hand
    assert st.right(model, some, where) == np.mean(hits)


def test_readings_are_sums_of_weights(read, model):
    some = st.Book(read.stories[:3], read.letters)
    places, maps = st.places(some), st.head_weights(model, some)
    found = st.reading(model, some, places.asks, places.meant)
    assert found.shape == (2, 4)
    by_hand = [maps[1][i, 2, places.asks[i]][places.meant[i]].sum() for i in range(3)]
    assert found[1, 2] == pytest.approx(np.mean(by_hand))
    before = [
        maps[0][i, 3, j, j - 1]
        for i, story in enumerate(some.stories)
        for j in range(1, len(story) + 1)
    ]
    assert st.previous(model, some)[0, 3] == pytest.approx(np.mean(before))


def test_a_muted_head_says_nothing_and_comes_back(read, model):
    attention, x = model.blocks[1].attention, torch.randn(5, 32).double()
    before = attention(x)
    with st.muted(model, 1, 2):
        heads = attention.head_contributions(x)
        assert not heads[2].any()
        assert heads[1].any()
    assert torch.equal(attention(x), before)


def test_what_is_written_follows_the_chances(read, model):
    one = st.write(model, read, np.random.default_rng(0), 3)
    assert one == st.write(model, read, np.random.default_rng(0), 3)
    many = st.write(model, read, np.random.default_rng(1), 4000, start="\nB", longest=1)
    with torch.no_grad():
        chances = torch.softmax(model(torch.from_numpy(read.encode("\nB")))[-1], dim=-1)
    counts = Counter(many)
    for letter, chance in zip(read.letters, chances.tolist()):
        text = "B" + letter.strip("\n")
        assert counts[text] / 4000 == pytest.approx(chance, abs=0.03)


def test_the_twin_in_numpy_computes_the_same(read, model):
    weights = {name: w.numpy() for name, w in model.state_dict().items()}
    twin, ids = st.numpy_model(weights), read.encode("\nThen Kate told")
    np.testing.assert_allclose(twin(ids), model(torch.from_numpy(ids)).detach().numpy())
    in_numpy = list(qn.generate(twin, ids, max_tokens=5))
    assert in_numpy == list(qt.generate(model, torch.from_numpy(ids), max_tokens=5))


def test_peeking_differs_by_the_mask_alone(read, model):
    peeking = st.new_model(np.random.default_rng(3), len(read.letters), kind=st.Peeking)
    for one, other in zip(model.parameters(), peeking.parameters()):
        assert torch.equal(one, other)
    ids = torch.from_numpy(read.table()[0][:4])
    mask = qt.causal_mask(ids.shape[-1])
    assert leak(model, ids, mask) == 0
    assert leak(peeking, ids, mask) > 0.01


def test_the_seed_decides_everything():
    one, other = st.tell(1, steps=3), st.tell(1, steps=3)
    np.testing.assert_array_equal(one.losses, other.losses)
    assert not np.array_equal(one.losses, st.tell(2, steps=3).losses)


def test_a_world_of_ones_own_is_read_and_examined():
    own = st.books(("Tom", "Pia"), he=("Tom", "Ben"), she=("Pia", "Kate"), events={"ran": "fell"})
    read, unread = own
    assert len(read.stories) == 2 * 2 * 2 * 2 * 2 - 8
    assert all({"Tom", "Pia"} <= set(story.split()) for story in unread.stories)
    told = st.tell(steps=1, texts=own)
    assert told.read is read
    assert told.unread is unread
    assert len(told.model.token_table) == len(read.letters)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: st.Book(["a", "a"]), "stories must be different"),
        (lambda: st.Book([]), "stories must be different texts, at least one"),
        (lambda: st.Book(["abc"], letters="\nab"), "letters must hold all of the stories, .'c'."),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
