"""The numbers in the explanations of exercises, and in tables of tasks, computed once more."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from twins import torch

import qkvlib.numpy as qn
from qkvlib.book.example import HEAD_A, HEAD_B, SEATS, W_O, X
from qkvlib.book.exercises import chapters, find
from qkvlib.mistakes import MISTAKES

CHAPTERS = Path(__file__).parent.parent / "chapters"
HE, WON = 3, 4
SAID = {}


def says(id):
    """Enter a function that gives what the explanation of an exercise must say, as phrases."""

    def enter(phrases):
        SAID[id] = phrases
        return phrases

    return enter


def short(x, digits=3):
    """A number as the book writes it: .447, -.027, 1.000."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{x:.{digits}f}")


def attend(head, x=X):
    return qn.scaled_dot_product_attention(x @ head.W_Q, x @ head.W_K, x @ head.W_V)


def turned(length, degrees):
    """A matrix that turns rows backwards by so much, and makes them as long."""
    angle = math.radians(degrees)
    turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return length * np.array(turn)


# ---- chapter 4 -----------------------------------------------------------------------------------


@says("E4.1")
def _():
    keys, values, width = HEAD_A.W_K.shape[1], HEAD_A.W_V.shape[1], len(HEAD_A.W_Q)
    yield f"12 / 3 = {12 // 3}"
    yield f"keys of {keys} and values of {values} in a model that is {width} wide"


@says("E4.2")
def _():
    yield f"`{np.arange(1, 9).reshape(2, 2, 2)[0].tolist()}`"


@says("E4.3")
def _():
    joint = [np.hstack([getattr(h, W) for h in (HEAD_A, HEAD_B)]) for W in ("W_Q", "W_K", "W_V")]
    exercise = find("E4.3")
    bug, right = (f(X, *joint, W_O, 2)[HE, 1] for f in (exercise.stub, exercise.solution))
    assert f'gives "he" {short(bug)} in the column `he/she`' in exercise.task
    assert f"the layer of\nthe chapter gives {short(right)}" in exercise.task
    exchanged = np.hstack([attend(HEAD_B), attend(HEAD_A)]) @ W_O
    yield f"Head B's columns before A's would give {short(exchanged[HE, 1])}"


@says("E4.4")
def _():
    count = find("E4.4").solution
    spaced = f"{count(576, 9, 64, 64, 3, False):,}".replace(",", " ")
    assert f"`parameters(576, 9, 64, 64, 3, False)` is {spaced}" in find("E4.4").task
    assert f"is {count(6, 2, 2, 3, 2, False)}, four" in find("E4.4").task
    large = count(1024, 128, 128, 128, 128, False)
    assert large == 16 * 4 * 1024**2
    spaced = f"{large:,}".replace(",", " ")
    yield f"1024 wide with 128 heads of 128, and its layer has {spaced}\nparameters, sixteen times"


def _two_back(length):
    hands = SEATS[:5]
    return qn.attention_weights(hands @ turned(length, 90), 2 * hands)


@says("E4.5")
def _():
    weights = _two_back(5 * math.sqrt(2))
    assert np.allclose(turned(5 * math.sqrt(2), 45), HEAD_B.W_Q[4:])
    late = weights[[2, 3, 4], [0, 1, 2]]
    yield f"the weights are\n{short(late.min())} or more"
    low = np.sort(_two_back(5)[[2, 3, 4], [0, 1, 2]])
    assert low[0] < 0.8 < low[1]
    yield f"with 5 one of them is only {short(low[0])}"
    assert math.isclose(weights[0, 0], weights[0, 4])
    yield f"so it reads both, {short(weights[0, 0])} each"
    assert weights[1].argmax() == 0
    yield "Two seats are a quarter turn, 90 degrees"


@says("E4.6")
def _():
    hands = SEATS[:5]
    weights = qn.attention_weights(hands @ np.diag([-7, 7]), hands @ HEAD_B.W_K[4:])
    yield f"`diag(-7, 7)` gives {short(np.fliplr(weights).diagonal().min())} or more"
    yield "the distance is " + ", ".join(str(4 - 2 * i) for i in range(5))


@says("E4.7")
def _():
    W_Q, _ = find("E4.7").solution()
    letters, seats = W_Q[0, 0], -W_Q[4, 4]
    itself, neighbour, far = (seats * SEATS[0] @ SEATS[i] for i in (0, 1, 4))
    yield f"The score is {letters:.0f} for the same letter, less {seats:.0f} times the product"
    yield f"about {itself:.0f} for\nitself, {neighbour:.0f} for a neighbour, {far:.0f} for the far"
    gap = f"{letters - neighbour:.0f}"
    yield f"itself gets {letters - itself:.0f}, a neighbour with the same letter {gap}, another"
    yield f"another letter at most {-far:.0f}"
    yield f"The {letters:.0f} must be larger"
    yield f"the {seats:.0f} large enough that {itself - neighbour:.0f} is a clear"
    assert W_Q.shape[1] == 5
    yield "root of 5"
    kinds = np.eye(3)[[0, 1, 0, 2, 1, 0]]
    assert np.allclose(qn.attention_weights(200 * kinds, kinds)[0, [0, 2, 5]], 1 / 3)


@says("E4.8")
def _():
    _, W_K = find("E4.8").solution()
    place, vowel, start = W_K[3, 0], W_K[1, 2], W_K[2, 3]
    yield f"Place alone is worth {place:.0f}, a vowel {vowel:.0f}, the start {start:.0f}"
    yield f"Both together, {place + vowel:.0f}, beat the start"
    yield f"before, {place:.0f}, does not"
    near = place * math.cos(math.pi / 4)
    yield f"has {near:.0f} + {vowel:.0f} = {near + vowel:.0f}"
    assert near + vowel < start < place + vowel


@says("E4.9")
def _():
    scores = find("E4.9").solution()
    assert np.allclose(np.diff(scores[10]), -8)
    assert scores[3, 3] == -200
    yield "Allowed digits get -8 for each unit"
    yield "the smallest one leads by at least 8: weight .999"
    assert qn.softmax(scores[10])[0] >= 0.999
    yield "Everything up to the last digit written gets -200"
    assert -50 > scores[3, 9] == -72
    yield "With -50 it would look right and fail: 9 has -72, so from the list 3 9"


@says("E4.10")
def _():
    me = np.eye(5)[[0, 1, 2, 3, 4, 0]]
    seats, past = SEATS[:6], np.tri(6, dtype=bool)
    queries, keys = seats @ HEAD_B.W_Q[4:], seats @ HEAD_B.W_K[4:]
    before = qn.scaled_dot_product_attention(queries, keys, me, mask=past)

    def copied(scale):
        return qn.scaled_dot_product_attention(me, before, me, mask=past, scale=scale)[-1]

    paul, told = copied(8)[:2]
    assert (
        f"say *Paul*, with {short(paul)}, and *told*\nonly with {short(told)}" in find("E4.10").task
    )
    assert np.allclose(find("E4.10").stub(me), copied(8))
    yield f"*told* gets\n{short(find('E4.10').solution(me)[1])}"
    yield f"20 for 8, takes Paul from {short(paul)} to {short(copied(20)[0])}"
    fits = me[-1] @ before.T
    yield f"the wrong fit, {short(fits[0])}, is\nbetter than the right one, {short(fits[1])}"


@says("E4.11")
def _():
    first, second = np.array(find("E4.11").solution(), float)
    for bits in ((0, 0), (0, 1), (1, 1)):
        heads = [qn.softmax(h[:2][list(bits)]) @ h[2:][list(bits)] for h in (first, second)]
        cells = [short(x) if x % 1 else f"{x:.0f}" for x in (*heads, sum(heads))]
        yield f"| {bits[0]} {bits[1]} | {' | '.join(cells)} |"


@says("E4.13")
def _():
    keys = np.array([[4, 0], [2, 1], [0, 1.5]])
    scores = keys @ [2, 1]
    yield f"from the query (2, 1) the\nkey (4, 0) gets {scores[0]:g} and (2, 1) itself only"
    yield f"itself only {scores[1]:g}"
    yield "From the query (1, 3) they get {:g}, {:g} and {:g}".format(*(keys @ [1, 3]))
    yield "(0, 1.5)"
    assert find("E4.13").solution(keys) == [True] * 3
    assert find("E4.13").solution(SEATS) == [True] * 8


@says("E4.14")
def _():
    rows = [qn.attention_weights(X @ h.W_Q, X @ h.W_K)[HE] for h in (HEAD_A, HEAD_B)]
    mean = np.mean(rows, axis=0)
    assert ", ".join(map(short, mean)) in find("E4.14").task
    yield f"the average {short(mean[2])}"


# ---- chapter 5 -----------------------------------------------------------------------------------


@says("E5.1")
def _():
    from_A, from_B = attend(HEAD_A)[WON] @ W_O[:3], attend(HEAD_B)[WON] @ W_O[3:]
    whole = short(2 * from_B[2])
    yield f"With {whole} for `refers` from B you forgot the half"
    yield f"would say {whole} where it says {short(from_B[2])}"
    he_she = from_A[1], from_B[1]
    yield "its `he/she`, {} and {}, is the {} that".format(*map(short, (*he_she, sum(he_she))))


@says("E5.3")
def _():
    A, B = attend(HEAD_A)[HE], attend(HEAD_B)[HE]
    yield f'the row of "he" holds {short(A[1])} and {short(B[1])} side by side'
    yield f"adding them leaves {short(A[1] + B[1])}"
    yield f"A's `action` is {short(A[2])} here"


@says("E5.4")
def _():
    row = np.array([1.0, 0, 0, 0])
    wrong = MISTAKES["unbiased-variance"].function(row, eps=0)[0]
    yield f"it gives {wrong:.1f} where {short(qn.layer_norm(row, eps=0)[0])} is right"
    yield rf"a factor of $\sqrt{{3/4}}$, {short(math.sqrt(3 / 4))}"
    assert math.isclose(wrong / qn.layer_norm(row, eps=0)[0], math.sqrt(3 / 4))
    yield f"With 512 columns the factor is {short(math.sqrt(511 / 512))}"
    root = math.sqrt(0.001**2 + 1e-5)
    assert root > 3 * 0.001
    yield f"with a deviation of .001 the\nroot of variance and eps is {short(root, 4)}"


@says("E5.6")
def _():
    kinds = np.array([(a, b) for a in (1, 0, -1) for b in (1, 0, -1)])
    gaps = np.sort(kinds[:, 0] - kinds[:, 1])
    yield f"is {gaps[-1]} for he-like and she-like, and at most {gaps[-2]} for all other"


# ---- all of them ---------------------------------------------------------------------------------

# Numbers of a chapter that runs a real model or many words: they must stand in its pages.
FROM_THE_CHAPTER = {
    "E4.12": ("4.5", "11.4"),
    "E5.7": ("1.00", "1.24"),
    "E5.8": ("64", "512"),
    "E5.9": ("64",),
}
EXPLAINED = {e.id: e for n in (4, 5) for e in chapters()[n].EXERCISES}


def without_code(text):
    return re.sub(r"`[^`]*`", "", text)


@pytest.mark.parametrize("id", SAID)
def test_the_numbers_of_an_explanation_are_true(id):
    for phrase in SAID[id]():
        assert phrase in find(id).explanation


@pytest.mark.parametrize("id", EXPLAINED)
def test_no_number_of_an_explanation_goes_unproved(id):
    text = EXPLAINED[id].explanation
    proved = "\n".join(SAID[id]()) if id in SAID else ""
    proved += " ".join(FROM_THE_CHAPTER.get(id, ()))
    for number in re.findall(r"(?<![\w.-])-?(?:\d*\.\d+|\d\d+)", without_code(text)):
        in_a_section = f"{number} once more" in text  # "the pair of 4.1 once more"
        assert number in proved or in_a_section, number


@pytest.mark.parametrize("id", FROM_THE_CHAPTER)
def test_a_number_from_the_chapter_stands_there(id):
    [page] = CHAPTERS.glob(f"0{id[1]}_[!e]*.ipynb")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    text = json.dumps([cell["source"] for cell in cells] + [cell.get("outputs") for cell in cells])
    for number in FROM_THE_CHAPTER[id]:
        assert number in EXPLAINED[id].explanation
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text), number


def test_a_minus_for_a_plus_changes_a_block_by_about_its_length():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(16, 64))
    parts = [generator.normal(size=shape) / 8 for shape in [(64, 64)] * 4]
    layer = qn.MultiHeadAttention.from_weights(*parts, num_heads=4)
    W_1, W_2 = generator.normal(size=(64, 256)) / 8, generator.normal(size=(256, 64)) / 16

    def block(sign):
        y = x + sign * layer(qn.layer_norm(x))
        return y + sign * np.maximum(0, qn.layer_norm(y) @ W_1) @ W_2

    plus, minus = block(1), block(-1)
    assert 0.7 < np.linalg.norm(plus - minus) / np.linalg.norm(plus) < 1.3


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_the_table_of_four_readings_is_that_of_four_models():
    from qkvlib.book.experiments.watching_gradients import deep_reader, query_gradients
    from qkvlib.diagnostics import gradient_norms, token_spread

    def cell(x):
        if 0 < x < 1e-14:
            return "below 1e-14"
        return f"{x:.{1 - math.floor(math.log10(x))}f}" if x else "0"  # two digits

    runs = [("no skip", 1), ("healthy", 1e-4), ("no queries, no keys", 1), ("no skip, no norm", 1)]
    for number, (kind, share) in enumerate(runs, start=1):
        model = deep_reader(kind, seed=3)
        norms = share * np.asarray(gradient_norms(*model))[[0, 11]]
        queries = share * query_gradients(model)[11]
        spread = np.mean(token_spread(model.encoder(model.tokens).detach()))
        row = " | ".join([str(number), *map(cell, (*norms, queries, spread))])
        assert f"| {row} |" in find("E7.7").task
