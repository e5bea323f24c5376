"""Exercises of chapter 5: the output layer."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.example import COORDINATES, HEAD_A, HEAD_B, W_O, X, embed
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import SUBJECTS, Subject
from qkvlib.mistakes._catalogue import afterwards, call


def _read(x, head):
    return qn.scaled_dot_product_attention(x @ head.W_Q, x @ head.W_K, x @ head.W_V)


def _with_room_for_more(subject, *first, last=()):
    """A subject of the catalogue with all its mistakes, for an exercise that knows more of them.

    first, last: probes to come before and after all others. Small cases say more here than laws do.
    """
    known = SUBJECTS[subject]
    tiers = tuple(tier for tier in (first, *known.tiers, last) if tier)
    return replace(known, tiers=tiers, laws={}, mistakes=dict(known.mistakes), listed=False)


def _few(numbers):
    return " ".join(f"{round(float(each), 3) + 0.0:g}" for each in numbers)


# ---- E5.1 ----------------------------------------------------------------------------------------

_A, _B = _read(X, HEAD_A), _read(X, HEAD_B)  # what the heads hand over: (5, 3) each
_HE, _WON = 3, 4


def contributions_of_won_solution():
    heads = [
        qn.scaled_dot_product_attention(X @ head.W_Q, X @ head.W_K, X @ head.W_V)
        for head in (HEAD_A, HEAD_B)
    ]
    return heads[0][4] @ W_O[:3], heads[1][4] @ W_O[3:]


E5_1 = Exercise(
    id="E5.1",
    title="What won is told",
    grade="warm-up",
    kind="predict",
    minutes=4,
    objective="compute the contribution of each head by hand",
    section="[A mixing desk](05_output_layer.ipynb#a-mixing-desk)",
    task=f"""\
For the word *won*, head A hands over the numbers {_few(_A[_WON])} (`name`, `he/she`, `action`),
and head B hands over {_few(_B[_WON])} (`name`, `he/she`, `refers`).

Send both through $W_O$, the mixing desk of the chapter, by hand.
Write down the contribution of A and the contribution of B: six numbers each, with three decimals,
in the order {", ".join(f"`{each}`" for each in COORDINATES)}.""",
    stub="""\
from_A = [..., ..., ..., ..., ..., ...]  # name, he/she, refers, action, seat-x, seat-y
from_B = [..., ..., ..., ..., ..., ...]""",
    solution=contributions_of_won_solution,
    checker=Items(
        {
            "from_A": Numbers(
                right=lambda: _A[_WON] @ W_O[:3],
                labels=COORDINATES,
                slips={
                    "answers-side-by-side": Slip(
                        lambda: np.hstack([_A[_WON], _B[_WON]]),
                        "These are the six numbers before the desk, both heads in one row. "
                        "Which column does each slider lead to?",
                    ),
                    "columns-of-the-head": Slip(
                        lambda: [*_A[_WON], 0, 0, 0],
                        "These columns are still those of the head. Its third number is an "
                        "action, and here it stands under another name.",
                    ),
                    "heads-exchanged": Slip(
                        lambda: _B[_WON] @ W_O[3:],
                        "This is what B contributes.",
                    ),
                    "rows-of-the-other-head": Slip(
                        lambda: _A[_WON] @ W_O[3:],
                        "A went through the rows of B. Which three rows of the desk are A's?",
                    ),
                    "both-turned-down": Slip(
                        lambda: _A[_WON] @ W_O[:3] / 2,
                        "The columns are right. How far up are the sliders of A?",
                    ),
                    "already-added": Slip(
                        lambda: (_A @ W_O[:3] + _B @ W_O[3:])[_WON],
                        "This is the output, both contributions in one. Keep them apart.",
                    ),
                    "word-itself-added": Slip(
                        lambda: X[_WON] + _A[_WON] @ W_O[:3],
                        "The row of the word is in it. A contribution is what a head adds to it.",
                    ),
                    "row-of-another-word": Slip(
                        lambda: _A[_HE] @ W_O[:3], "This is the row of he, from the chapter."
                    ),
                },
            ),
            "from_B": Numbers(
                right=lambda: _B[_WON] @ W_O[3:],
                labels=COORDINATES,
                slips={
                    "slider-at-one-half-forgotten": Slip(
                        lambda: 2 * _B[_WON] @ W_O[3:],
                        "The columns are right. How far up are the sliders of B?",
                    ),
                    "written-to-action": Slip(
                        lambda: _B[_WON] @ W_O[3:][:, [0, 1, 3, 2, 4, 5]],
                        "Its third number lands under `action`, where the third number of A goes. "
                        "What is the third number of B about?",
                    ),
                    "heads-exchanged": Slip(
                        lambda: _A[_WON] @ W_O[:3],
                        "This is what A contributes.",
                    ),
                    "rows-of-the-other-head": Slip(
                        lambda: _B[_WON] @ W_O[:3],
                        "B went through the rows of A. Which three rows of the desk are B's?",
                    ),
                    "last-three-columns": Slip(
                        lambda: [0, 0, 0, *_B[_WON] / 2],
                        "B has the last three rows of the desk, not the last three columns: "
                        "here a name stands under `action`.",
                    ),
                    "already-added": Slip(
                        lambda: (_A @ W_O[:3] + _B @ W_O[3:])[_WON],
                        "This is the output, both contributions in one. Keep them apart.",
                    ),
                    "word-itself-added": Slip(
                        lambda: X[_WON] + _B[_WON] @ W_O[3:],
                        "The row of the word is in it. A contribution is what a head adds to it.",
                    ),
                    "row-of-another-word": Slip(
                        lambda: _B[_HE] @ W_O[3:], "This is the row of he, from the chapter."
                    ),
                },
            ),
        }
    ),
    hints=(
        "Each number that comes in meets one slider that is up. Follow its row to the column.",
        "The third number of A is `action`, the third of B is `refers`: they go to different "
        "columns.",
        "The sliders of A stand at 1, those of B at one half. Nobody writes to the seats.",
    ),
    explanation="""\
Each row of the desk has one slider up, so each number is only moved to its column and turned down:
A by 1, B by a half.
With .894 for `refers` from B you forgot the half, and the output would say .894 where it says .447.

The two rows add up to the output for *won*; its `he/she`, .200 and .421, is the .621 that answers
"who won?".""",
)

# ---- E5.2 ----------------------------------------------------------------------------------------


def head_contributions(weights, value, W_O):
    """What each head adds to each word.

    weights: (heads, n, n_key), of attention. value: (heads, n_key, d_v). W_O: (heads * d_v, d)
    -> (heads, n, d); their sum over the heads is the output of the layer
    """
    ...


def head_contributions_solution(weights, value, W_O):
    heads, _, d_v = value.shape
    rows = W_O.reshape(heads, d_v, -1)  # rows[i]: those that belong to head i
    return weights @ value @ rows


_some = np.random.default_rng(52).integers
_SQUARE = (
    _some(0, 5, (3, 5, 4)) / 4,
    _some(-2, 3, (3, 4, 2)) * 1e4,
    _some(-2, 3, (6, 6)) * 1.0,
)

CONTRIBUTIONS = _with_room_for_more("head contributions", call(*_SQUARE))


@CONTRIBUTIONS.mistake("Where W_O is square, its shape is right either way.")
def columns_for_rows(weights, value, W_O):
    """Each head goes through columns of W_O, turned over, where rows belong to it."""
    d_v = value.shape[-1]
    columns = [W_O[:, i * d_v : (i + 1) * d_v].T for i in range(len(value))]
    return weights @ value @ np.stack(columns)


@CONTRIBUTIONS.mistake("Each head has an answer of its own.")
def before_the_output_matrix(weights, value, W_O):
    """This is what the heads hand over. W_O, which writes it into the columns, is missing."""
    return weights @ value


@CONTRIBUTIONS.mistake("Every head has its own rows of W_O.")
def nothing_read(weights, value, W_O):
    """The weights are not used: the values are written as they are, one row for each key."""
    return value @ W_O.reshape(len(value), value.shape[-1], -1)


@CONTRIBUTIONS.mistake("What one head writes is in the right proportion to what another writes.")
def shares_of_an_average(weights, value, W_O):
    """Each is divided by the number of heads: heads are added, not averaged."""
    return weights @ value @ W_O.reshape(len(value), value.shape[-1], -1) / len(value)


@CONTRIBUTIONS.mistake("The columns that are not 0 are right.")
def columns_dealt_to_the_heads(weights, value, W_O):
    """The output is cut by columns. A head owns rows of W_O; it may write into every column."""
    parts = np.concatenate(list(weights @ value), axis=-1) @ W_O
    owner = np.arange(W_O.shape[1]) * len(value) // W_O.shape[1]
    return np.stack([np.where(owner == i, parts, 0) for i in range(len(value))])


_TWO_HEADS = np.array([[[0.5, 0.5]], [[1.0, 0.0]]]), np.array([[[2.0], [4.0]], [[1.0], [3.0]]])
_DESK = np.array([[1.0, 2.0], [0.0, 3.0]])

E5_2 = Exercise(
    id="E5.2",
    title="Who wrote what",
    grade="core",
    kind="fill in",
    minutes=12,
    objective="take the output of a layer apart, head by head",
    section="[A mixing desk](05_output_layer.ipynb#a-mixing-desk)",
    task="""\
The output of a layer is a sum of contributions, one of each head.
Write the function that gives the terms of this sum.

`head_contributions(weights, value, W_O)` takes the weights of all heads, `(heads, n, n_key)`, their
values, `(heads, n_key, d_v)`, and $W_O$, `(heads * d_v, d)`.
The first `d_v` rows of $W_O$ belong to head 0, the next to head 1, and so on.
It gives an array `(heads, n, d)`.

Two heads with one word and two keys: the weights are `[[[0.5, 0.5]], [[1, 0]]]`, the values
`[[[2], [4]], [[1], [3]]]`, and $W_O$ is `[[1, 2], [0, 3]]`.
Then head 0 adds `[3, 6]` to the word and head 1 adds `[0, 3]`.""",
    stub=head_contributions,
    solution=head_contributions_solution,
    checker=Code(
        CONTRIBUTIONS,
        cases=(
            case(*_TWO_HEADS, _DESK),
            case(
                np.array([[[0.5, 0.5]], [[1.0, 0.0]]]),
                np.array([[[2.0, 0.0], [4.0, 2.0]], [[1.0, 1.0], [3.0, 0.0]]]),
                np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 2]]),
            ),
            case(
                _some(0, 5, (3, 2, 4)) / 4,
                _some(-2, 3, (3, 4, 2)) * 1.0,
                _some(-2, 3, (6, 5)) * 1.0,
            ),
            case(*_SQUARE),
        ),
        equal=case(_some(0, 5, (2, 2, 2)) / 4, _some(1, 4, (2, 2, 2)) * 1.0, _DESK[[0, 1, 1, 0]]),
    ),
    hints=(
        "What does a head hand over before $W_O$, and of which shape is it?",
        "Head i owns the rows from `i * d_v` to `(i + 1) * d_v` of $W_O$, and all columns of them.",
        "`W_O.reshape(...)` with the heads on an axis of their own lays these blocks one after "
        "another; `@` then takes each head with its own block.",
    ),
    explanation="""\
`weights @ value` is what each head hands over, `(heads, n, d_v)`, and its own rows of $W_O$ write
it into all columns.
Summed over the heads it is the same as side by side times $W_O$, because a product of a row with
a matrix can be added up in pieces.

A loop over slices does it as well, and so does
`np.einsum("hqk,hkv,hvd->hqd", weights, value, rows)`.
Or set what the other heads hand over to 0 and multiply with the whole $W_O$.

The sum alone proves little: contributions that are cut by *columns* add up to the output too.
Change the values of one head, and look which of your contributions move.""",
)

# ---- E5.3 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pronoun:
    """What the heads hand over for the pronoun of a sentence, and which kinds they found."""

    words: tuple
    meant: int
    before: int

    def __str__(self):
        return " ".join(self.words)

    @property
    def answers(self):
        x = embed(self.words)
        return np.hstack([_read(x, HEAD_A), _read(x, HEAD_B)])[_HE]


_PRONOUNS = [
    _Pronoun((first, "told", last, word, "won"), 1 if word == "he" else -1, kind)
    for first, last, kind in (("Paul", "Emma", -1), ("Emma", "Paul", 1))
    for word in ("he", "she")
]
_MEANT, _BEFORE = (np.array([getattr(p, k) for p in _PRONOUNS]) for k in ("meant", "before"))
_ANSWERS = np.array([pronoun.answers for pronoun in _PRONOUNS])  # (4, 6)
_CLEAR = 0.3


def both_answers_solution():
    desk = np.zeros((6, 6))
    desk[1, 1] = 1  # A: he/she to he/she
    desk[4, 3] = 1  # B: he/she to action
    return desk


def _says(column, kinds):
    """Whether the four numbers have the signs of these kinds, and clearly."""
    return bool((column * kinds >= _CLEAR).all())


def _obeys(desk):
    he_she, action = (_ANSWERS @ desk)[:, [1, 3]].T
    return _says(he_she, _MEANT) and _says(action, _BEFORE) and _seats(desk) is None


def _numbers_in(column, desk):
    """The four numbers of a column, with the shares of A and B."""
    lines = []
    for pronoun, from_A, from_B in zip(_PRONOUNS, *_shares(column, desk)):
        shares = f"{from_A + 0.0:.3f} from A, {from_B + 0.0:.3f} from B"
        lines.append(f"{pronoun}: {from_A + from_B + 0.0:.3f} in {COORDINATES[column]} ({shares})")
    return "\n".join(lines)


def _shares(column, desk):
    return [_ANSWERS[:, head] @ desk[head, column] for head in (slice(3), slice(3, 6))]


def _turned(desk):
    return _numbers_in(1, desk) if not _obeys(desk) and _obeys(desk.T) else None


def _exchanged(desk):
    he_she, action = (_ANSWERS @ desk)[:, [1, 3]].T
    return _numbers_in(1, desk) if _says(he_she, _BEFORE) and _says(action, _MEANT) else None


def _seats(desk):
    used = [COORDINATES[column] for column in (4, 5) if np.abs(desk[:, column]).max() > 1e-9]
    return f"sliders are up in {' and '.join(used)}" if used else None


def _nobody(desk):
    return "he/she is 0 in all four sentences" if not desk[:, 1].any() else None


def _silent_there(desk):
    return _numbers_in(3, desk) if not desk[3:, 3].any() else None


def _cancelled(desk):
    from_A, from_B = _shares(1, desk)
    lost = (np.abs(from_A + from_B) < _CLEAR) & (np.abs(from_A) >= _CLEAR) & (from_A * from_B < 0)
    return _numbers_in(1, desk) if lost.any() else None


def _has_signs(column, kinds):
    def test(desk):
        return _numbers_in(column, desk) if _says(_ANSWERS @ desk[:, column], kinds) else None

    return test


def _not_signs(column, kinds):
    def test(desk):
        return None if _says(_ANSWERS @ desk[:, column], kinds) else _numbers_in(column, desk)

    return test


E5_3 = Exercise(
    id="E5.3",
    title="A desk that loses nothing",
    grade="core",
    kind="design",
    minutes=10,
    objective="write an output matrix that keeps two answers apart",
    section="[A mixing desk](05_output_layer.ipynb#a-mixing-desk)",
    task="""\
The desk of the chapter mixes both kinds that "he" is told of into one column; what B said is hard
to get back.
Set the sliders so that the next layer can read both. In the row of the pronoun of the output,

- `he/she` has the sign of the one who is *meant*, as A found it: plus for he-like, minus for
  she-like;
- `action` has the sign of the *word before*, as B found it (a pronoun is no action, so its row has
  room there);
- both are at least 0.3 above or below 0, and the two seat columns get nothing.

It must hold in all four sentences with Paul and Emma in either order and "he" or "she", as in
*Emma told Paul she won*.""",
    stub="""\
desk = np.zeros((6, 6))
# rows: A name, A he/she, A action, B name, B he/she, B refers
# columns: name, he/she, refers, action, seat-x, seat-y""",
    solution=both_answers_solution,
    checker=Design(
        shapes={"desk": (6, 6)},
        rules=(
            Rule(
                "Turned over it would do: you have columns for what comes in and rows for what "
                "goes out.",
                _turned,
                "transposed",
            ),
            Rule(
                "Both answers are there, each in the column of the other.",
                _exchanged,
                "answers-exchanged",
            ),
            Rule(
                "It writes into a seat, where the next layer reads a place.",
                _seats,
                "written-to-a-seat",
            ),
            Rule("Nobody writes into he/she.", _nobody),
            Rule(
                "Both heads speak in he/she, and where they disagree they cancel.",
                _cancelled,
                "answers-cancel",
            ),
            Rule(
                "he/she follows the word before: there B is louder than A.",
                _has_signs(1, _BEFORE),
                "neighbour-louder",
            ),
            Rule("In he/she plus and minus are exchanged.", _has_signs(1, -_MEANT), "sign-turned"),
            Rule("he/she does not tell clearly which kind is meant.", _not_signs(1, _MEANT)),
            Rule(
                "In action stands the kind of the one who is meant, once more.",
                _has_signs(3, _MEANT),
                "one-answer-twice",
            ),
            Rule("Nothing that B found reaches action.", _silent_there, "second-answer-lost"),
            Rule("In action plus and minus are exchanged.", _has_signs(3, -_BEFORE), "sign-turned"),
            Rule("action does not tell clearly which kind stands before.", _not_signs(3, _BEFORE)),
        ),
    ),
    hints=(
        "Which of the six numbers that come in speak of a kind? Only these two matter here.",
        "Each of the two needs a column that the other does not write to.",
        "`desk[row, column]` is a slider: `desk[5, 2]` lets B's `refers` into `refers`. Which "
        "do you need?",
    ),
    explanation="""\
Two sliders are enough: A's kind goes to `he/she`, B's kind to `action`.
Then the row of "he" holds .834 and -.860 side by side, where simply adding them leaves -.027.
Other sliders may be up, as long as they are quieter: A's `action` is .083 here and does no harm.

The name of a column is an agreement between layers.
In a model with hundreds of columns each head can have its own, or even its own direction across
many: that is why the twelve contributions in MiniLM do not disturb each other much.""",
)

# ---- E5.4 ----------------------------------------------------------------------------------------


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Each row without its mean and divided by its deviation, then scaled and shifted.

    x: (..., d). weight, bias: (d,) each, for the columns, or None -> (..., d), of the dtype of x
    """
    ...


def layer_norm_solution(x, weight=None, bias=None, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt(variance + eps)
    if weight is not None:
        normed = normed * weight
    return normed if bias is None else normed + bias


_ROW = np.array([[1.0, 3.0], [2.0, 8.0]])
_ROWS = np.array([[1.0, 0, 0, 0], [4, 8, 4, 0]])

_FAR = 1e6 + np.random.default_rng(23).normal(size=(4, 6))  # far from 0, next to how they vary


def _exact_far_from_0(norm):
    """The probe for rows far from 0: are six digits right? Which other ones there are is chance."""
    return np.abs(np.asarray(norm(_FAR.copy())) - qn.layer_norm(_FAR)).max() < 1e-6


def _fits_a_single_row_alone(norm):
    """The probe for rows without an axis of their own: do only single rows and squares run?"""
    row, square, rows = _ROWS[0], _ROWS[[0, 1, 0, 1]], _ROWS
    try:
        alone = np.allclose(norm(row.copy()), qn.layer_norm(row))
        norm(square.copy())
    except Exception:
        return np.bool_(False)
    try:
        norm(rows.copy())
    except Exception:
        return np.bool_(alone)
    return np.bool_(False)


_KNOWN_NORM = _with_room_for_more(
    "layer norm",
    call(1e5 * _ROWS),
    call(1e5 * _ROWS[:, :3]),
    call(_ROWS, None, np.arange(4.0)),
    call(_ROWS, np.arange(4.0), None),
    last=(_exact_far_from_0,),
)
LAYER_NORM = replace(_KNOWN_NORM, tiers=((_fits_a_single_row_alone,), *_KNOWN_NORM.tiers))


def _dressed(x, weight, bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@LAYER_NORM.mistake(
    "Rows that vary with size 1 come out right.", reported="hyunwoongko/transformer#7"
)
def root_taken_twice(x, weight=None, bias=None, eps=1e-5):
    """The root of the deviation is a second root: the deviation is the root already."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return _dressed(centred / np.sqrt(x.std(axis=-1, keepdims=True) + eps), weight, bias)


@LAYER_NORM.mistake("Rows of any size come out alike.")
def length_for_the_deviation(x, weight=None, bias=None, eps=1e-5):
    """Divided by the length: squares are summed, not averaged, and rows come out with length 1."""
    centred = x - x.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1, keepdims=True)
    return _dressed(centred / np.sqrt(squares + eps), weight, bias)


@LAYER_NORM.mistake(
    "Rows that vary with size 1 come out nearly right.", reported="hyunwoongko/transformer#7"
)
def root_taken_twice_of_too_much(x, weight=None, bias=None, eps=1e-5):
    """Two slips at once: the deviation is a root already, and this one divides by d - 1."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return _dressed(centred / np.sqrt(x.std(axis=-1, keepdims=True, ddof=1) + eps), weight, bias)


@LAYER_NORM.mistake(
    "On paper it is the variance, and near 0 it is.", reported="pytorch/pytorch#51102"
)
def squares_less_a_square(x, weight=None, bias=None, eps=1e-5):
    """Mean of squares less square of mean: where rows lie far from 0 their digits cancel."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = (x**2).mean(axis=-1, keepdims=True) - mean**2
    return _dressed((x - mean) / np.sqrt(variance + eps), weight, bias)


@LAYER_NORM.mistake("Only rows that hardly vary show it.")
def nothing_under_the_root(x, weight=None, bias=None, eps=1e-5):
    """eps is not used: a row of equal numbers is divided by 0."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return _dressed(centred / x.std(axis=-1, keepdims=True), weight, bias)


@LAYER_NORM.mistake("For the usual eps it is right.")
def another_eps_than_given(x, weight=None, bias=None, eps=1e-5):
    """The eps that is handed over is not used, but always the usual one."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return _dressed(centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5), weight, bias)


@LAYER_NORM.mistake("The rows come out with a deviation of 1.")
def mean_left_in(x, weight=None, bias=None, eps=1e-5):
    """Each row is divided by its deviation, and its mean is not taken away."""
    return _dressed(x / np.sqrt(x.var(axis=-1, keepdims=True) + eps), weight, bias)


@LAYER_NORM.mistake("Where both are given it is right.")
def bias_waits_for_a_weight(x, weight=None, bias=None, eps=1e-5):
    """A bias without a weight is left out: each of the two may be given alone."""
    centred = x - x.mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    return normed if weight is None else _dressed(normed, weight, bias)


@LAYER_NORM.mistake("With two axes it is right.")
def axis_counted_from_the_front(x, weight=None, bias=None, eps=1e-5):
    """Axis 1 is the last one only where there are two: with a batch before them it is the words."""
    centred = x - x.mean(axis=1, keepdims=True)
    return _dressed(centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps), weight, bias)


@LAYER_NORM.mistake("A single row comes out right, and a square table runs.")
def no_axis_kept(x, weight=None, bias=None, eps=1e-5):
    """A mean or variance has lost its axis: in a table it is a row now, and meets columns."""
    normed = (x - x.mean(axis=-1)) / np.sqrt(x.var(axis=-1) + eps)
    return _dressed(normed, weight, bias)


E5_4 = Exercise(
    id="E5.4",
    title="LayerNorm by hand",
    grade="core",
    kind="fill in",
    minutes=12,
    objective="write LayerNorm to the last digit",
    section="[LayerNorm: which half of it?](05_output_layer.ipynb#layernorm-which-half-of-it)",
    task=r"""
Write LayerNorm, without `qkvlib`.

$$
\text{normed} = \frac{x - \text{mean}}{\sqrt{\text{variance} + \text{eps}}}
$$

The mean and the variance are those of each row by itself; the variance is the mean of the squares
of what is left after the mean is taken away. `eps` only keeps a row of equal numbers from dividing
by 0.

`layer_norm(x, weight, bias, eps)` takes `x (..., d)` with any number of axes, and keeps its dtype.
Where a `weight (d,)` is given it multiplies what is normed, column by column; where a `bias (d,)`
is given it is added after that. Each may come without the other.

`[[1, 3]]` becomes `[[-1, 1]]`, and with `weight = [2, 1]`, `bias = [0, 5]` it becomes `[[-2, 6]]`,
both nearly.""",
    stub=layer_norm,
    solution=layer_norm_solution,
    checker=Code(
        LAYER_NORM,
        alone=True,
        cases=(
            case(_ROW, eps=0),
            case(_ROWS, eps=0),
            case(_ROW / 1000),
            case(_ROWS[:, :3], np.array([1.0, 2, 3]), np.array([0.0, 5, -5])),
            case(_ROWS[:, :3], None, np.array([0.0, 5, -5])),
            case(_ROWS[:, :3], np.array([1.0, 2, 3]), None),
            case(np.stack([_ROWS[:, :3], _ROWS[:, 1:]])),
            case(np.stack([_ROWS, _ROWS * 1e4, _ROWS - 1e4])),
            case(_ROWS.astype(np.float32)),
        ),
        beyond=("squares-less-a-square",),
    ),
    hints=(
        "Along which axis does one row lie, and how does its mean keep an axis to be taken away "
        "along?",
        "`np.var` divides by the number of columns; `torch.var` divides by one less unless told "
        "otherwise.",
        "What stands under the root? `eps` is added before the root is taken, not after.",
    ),
    explanation="""\
The mean and the variance are taken along the last axis, and `keepdims=True` lets each row meet its
own.
`np.var(x, axis=-1, keepdims=True)` is the same variance.

The usual slip divides the squares by `d - 1`, which is what `std` in PyTorch does unless told
otherwise.
On `[1, 0, 0, 0]` it gives 1.5 where 1.732 is right: a factor of $\\sqrt{3/4}$, .866.
With 512 columns the factor is .999, and nobody sees it.
The second slip, `eps` outside the root, shows on small rows alone: with a deviation of .001 the
root of variance and eps is .0033, more than three times as much.""",
)

# ---- E5.5 ----------------------------------------------------------------------------------------


def _linear_or_not(linear, not_linear, wrong, says, right_says, first="linear"):
    """A choice between a reason for being linear and one for not being so; one of them is wrong.

    wrong: "linear" or "not", which of them, and its name
    """
    which, name = wrong
    options = {
        "linear": Option(f"Linear: {linear}", right_says),
        "not": Option(f"Not linear: {not_linear}", right_says),
    }
    options[which] = replace(options[which], says=says, mistake=name)
    order = ("linear", "not") if first == "linear" else ("not", "linear")
    return Choice(tuple(options[each] for each in order))


def linear_maps_solution():
    return "a", "b", "a", "b", "a", "b", "b"


E5_5 = Exercise(
    id="E5.5",
    title="Seven maps",
    grade="core",
    kind="choose",
    minutes=6,
    objective="tell a linear map from one that is not",
    section="[A linear map](05_output_layer.ipynb#a-linear-map)",
    task="""\
A map is linear if $f(a + b) = f(a) + f(b)$ and $f(2a) = 2 f(a)$.
Here are seven; `x` is `(n, d)`, and `W` is fixed.

1. `minus`: `x - x @ W`
2. `centre`: `x - x.mean(axis=-1, keepdims=True)`
3. `alike`: a head of attention whose $W_Q$ is 0, so that all its scores are 0
4. `head`: a head of attention with all its matrices
5. `shift`: `x @ W + b`, with a bias `b` that is not 0
6. `divide`: `x / x.std(axis=-1, keepdims=True)`
7. `relu`: `np.maximum(0, x)`

For each choose the letter of the reason that is right.""",
    stub="""\
minus = ...
centre = ...
alike = ...
head = ...
shift = ...
divide = ...
relu = ...""",
    solution=linear_maps_solution,
    checker=Items(
        {
            "minus": _linear_or_not(
                "two linear maps, one taken from the other.",
                "x is used twice, once as it is and once changed.",
                ("not", "residual-is-not-linear"),
                "Write out f(a + b): both uses of x split into a part of a and a part of b.",
                "So is a residual connection around a matrix, with plus for minus.",
            ),
            "centre": _linear_or_not(
                "the mean of a + b is the mean of a and the mean of b.",
                "what is taken away is computed from x.",
                ("not", "centring-is-not-linear"),
                "It is computed from x, but by adding and by dividing by a fixed number. "
                "What is the mean of a + b?",
                "Taking the mean away is a product with a fixed matrix.",
                first="not",
            ),
            "alike": _linear_or_not(
                "every weight is 1/n, whatever x is.",
                "there is a softmax in it.",
                ("not", "softmax-is-enough"),
                "There is. Which weights does it give for scores that are all 0, and do they "
                "change when x does?",
                "Weights that stay put leave nothing but matrices.",
            ),
            "head": _linear_or_not(
                "the output is weights times values, and values are x times a matrix.",
                "the weights are computed from x too.",
                ("linear", "attention-is-linear"),
                "It is linear for weights that stay put. Do they, when x becomes 2x?",
                "With x twice as large its scores are four times as large, and its weights are "
                "others.",
            ),
            "shift": _linear_or_not(
                "there is nothing in it but a matrix and a sum.",
                "f(a) + f(b) holds b twice.",
                ("linear", "bias-is-linear"),
                "Put a row of zeros in: what comes out, and what does f(2a) = 2 f(a) ask for then?",
                "It is called affine: linear but for a constant shift.",
                first="not",
            ),
            "divide": _linear_or_not(
                "each row is multiplied by a number.",
                "a row twice as long comes out the same.",
                ("linear", "division-is-linear"),
                "By which number? It is another one for every row.",
                "f(2a) is f(a), not 2 f(a).",
            ),
            "relu": _linear_or_not(
                "relu(2x) is 2 relu(x).",
                "relu(1) + relu(-1) is 1, and relu(0) is 0.",
                ("linear", "half-of-the-test"),
                "True, and only half of the test. Try f(a + b) where a and b have opposite signs.",
                "It passes f(2a) = 2 f(a) and fails with sums.",
            ),
        }
    ),
    hints=(
        "Try a row of zeros, then a row twice as long, then two rows of opposite signs.",
        "Something computed from x may still be linear. Ask how it is computed.",
        "In `alike`, write down the weights before you think about the softmax.",
    ),
    explanation="""\
`minus`, `centre` and `alike` are linear; the other four are not.
Linear does not mean simple, and using x twice does not spoil it.
What spoils it is a product or quotient of two things that both depend on x (the weights and the
values, a row and its deviation), a bend as in relu, and, in the strict sense, a constant shift.

When in doubt, ask the computer: two random inputs, and the length of
`f(a + b) - f(a) - f(b)`.""",
)

# ---- E5.6 ----------------------------------------------------------------------------------------

_KINDS = np.array([(first, second) for first in (1, 0, -1) for second in (1, 0, -1)], float)
_DIFFERENT = (_KINDS[:, 0] * _KINDS[:, 1] < 0).astype(float)


def opposite_kinds_solution():
    W_1 = np.array([[1, -1], [-1, 1]])  # unit 0: first minus second. unit 1: the reverse
    b_1 = np.array([-1, -1])
    w_2 = np.array([1, 1])
    return W_1, b_1, w_2


def _answer(W_1, b_1, w_2):
    """The nine answers, in the order of `_KINDS`."""
    return np.maximum(0, _KINDS @ W_1 + b_1) @ w_2


def _at(*pairs):
    """The places of these pairs among the nine."""
    return [int(np.flatnonzero(np.equal(_KINDS, pair).all(axis=1))[0]) for pair in pairs]


_CORNERS = _at((1, 1), (1, -1), (-1, 1), (-1, -1))
_BITS = _at((0, 0), (1, 0), (0, 1), (1, 1))
_NO_KIND = np.flatnonzero((_KINDS == 0).any(axis=1))
_OPPOSITE = _at((1, -1), (-1, 1))


def _near(got, wanted):
    return bool((np.abs(got - np.asarray(wanted)) <= 0.01).all())


def _the_nine(answers):
    rows = [f"{kind:+.0f}".replace("+0", " 0") for kind in (1, 0, -1)]
    lines = ["first word by row, second by column:", f"{'':8}" + "".join(f"{r:>8}" for r in rows)]
    for row, values in zip(rows, np.reshape(answers, (3, 3))):
        lines.append(f"{row:>8}" + "".join(f"{value + 0.0:8.3g}" for value in values))
    return "\n".join(lines)


def _if(looks_wrong):
    """A test of what comes out: `looks_wrong(answers)` says whether this slip is there."""

    def test(W_1, b_1, w_2):
        answers = _answer(W_1, b_1, w_2)
        if _near(answers, _DIFFERENT) or not looks_wrong(answers):
            return None
        return _the_nine(answers)

    return test


def _nothing_bends(answers):
    """Whether a matrix and a bias could do the same."""
    columns = np.column_stack([_KINDS, np.ones(9)])
    fit = columns @ np.linalg.lstsq(columns, answers, rcond=None)[0]
    return np.abs(answers - fit).max() <= 1e-6 * max(1, np.abs(answers).max())


def _one_order(answers):
    up, down = answers[_OPPOSITE]
    others = np.delete(answers, _OPPOSITE)
    return _near(others, 0) and min(abs(up), abs(down)) <= 0.01 < max(abs(up), abs(down))


def _tells_kinds_apart(answers):
    """Whether it does what it should for two kinds, but for a factor, and more besides."""
    size = answers[_OPPOSITE].mean()
    return size > 0.01 and _near(answers[_CORNERS] / size, (0, 1, 1, 0))


def _of_another_size(answers):
    up, down = answers[_OPPOSITE]
    return _near(np.delete(answers, _OPPOSITE), 0) and min(abs(up), abs(down)) > 0.01


def _turned_over(W_1, b_1, w_2):
    if _near(_answer(W_1, b_1, w_2), _DIFFERENT) or not _near(_answer(W_1.T, b_1, w_2), _DIFFERENT):
        return None
    return _the_nine(_answer(W_1, b_1, w_2))


def _one_word_each(W_1, b_1, w_2):
    return _the_units(W_1, b_1, w_2) if (np.count_nonzero(W_1, axis=0) <= 1).all() else None


def _the_units(W_1, b_1, w_2):
    units = np.maximum(0, _KINDS @ W_1 + b_1).T
    return "\n".join(f"unit {k}, {_the_nine(values)}" for k, values in enumerate(units))


def _the_same_kind(answers):
    same = answers[_CORNERS]
    return same[[0, 3]].min() > 0.01 and _near(same[[1, 2]], 0)


E5_6 = Exercise(
    id="E5.6",
    title="Two units",
    grade="challenge",
    kind="design",
    minutes=15,
    objective="write a small feed-forward layer that does what no matrix can",
    section="[The layer that is left out](05_output_layer.ipynb#the-layer-that-is-left-out)",
    task=r"""
Two words have a kind each: 1 for he-like, -1 for she-like, 0 for none.
Is one of them he-like and the other she-like?

Write the feed-forward layer that says so, with two units of relu and no more.
For the two kinds in a row `kinds (2,)` it computes

$$
\text{answer} = \mathrm{relu}(\text{kinds}\; W_1 + b_1) \cdot w_2
$$

with `W_1 (2, 2)`, a row for each word and a column for each unit, `b_1 (2,)` and `w_2 (2,)`.
The answer is 1 for the kinds 1 and -1 in either order. It is 0 for the seven other pairs, also
where a word has no kind, as in 1 and 0.""",
    stub="""\
W_1 = np.zeros((2, 2))
b_1 = np.zeros(2)
w_2 = np.zeros(2)""",
    solution=opposite_kinds_solution,
    checker=Design(
        shapes={"W_1": (2, 2), "b_1": (2,), "w_2": (2,)},
        rules=(
            Rule(
                "It answers 0 for all nine pairs: either no unit is ever on, or its weight in w_2 "
                "is 0.",
                lambda *parts: None if _answer(*parts).any() else _the_units(*parts),
                "never-on",
            ),
            Rule(
                "With rows and columns of W_1 exchanged it would do.",
                _turned_over,
                "transposed",
            ),
            Rule(
                "Each unit looks at one word alone. What they add up to cannot tell which kinds "
                "come together.",
                _one_word_each,
                "one-word-a-unit",
            ),
            Rule(
                "A matrix and a bias could do the same: on these nine pairs each unit is on "
                "everywhere or off everywhere, or the bends of the two cancel.",
                _if(_nothing_bends),
                "nothing-bends",
            ),
            Rule(
                "It sees one of the two orders, and not the reverse.",
                _if(_one_order),
                "one-order-only",
            ),
            Rule(
                "It answers for the right pairs and for no others, but not with 1 for both.",
                _if(_of_another_size),
                "another-size",
            ),
            Rule(
                "It tells two kinds apart; but a word without a kind counts too.",
                _if(_tells_kinds_apart),
                "word-without-a-kind-counts",
            ),
            Rule(
                "This is exclusive or of 0 and 1. Here the kinds are 1 and -1, and 0 is none.",
                _if(lambda answers: _near(answers[_BITS], (0, 1, 1, 0))),
                "kinds-taken-for-0-and-1",
            ),
            Rule(
                "It answers where both are of the same kind.",
                _if(_the_same_kind),
                "same-for-different",
            ),
            Rule(
                "Some of the nine answers are not right.",
                _if(lambda answers: True),
            ),
        ),
    ),
    hints=(
        'Begin with one unit, for "the first is he-like and the second is she-like".',
        "Which sum or difference of the two kinds is largest for just this pair? How large is it "
        "for 1 and 0?",
        "How large is `first - second` for this pair, and how large at most for all others? What "
        "can a bias do between the two?",
    ),
    explanation="""\
`first - second` is 2 for he-like and she-like, and at most 1 for all other pairs.
With a bias of -1 the unit answers 1 there and 0 elsewhere: it is an *and*, like the unit of the
chapter.
The second unit is the same in reverse, and `w_2` adds them: an *or*.

Any weights that are larger will do, if the bias keeps pace and `w_2` turns them down again.
Without a bias the pair 1 and 0 gets half an answer.

Why two units? One of them bends along one line, and along that line's direction it only rises.
So it cannot be high at both 1, -1 and -1, 1 and low between them, at 0, 0.""",
)

# ---- E5.7 ----------------------------------------------------------------------------------------


def block(x, attend, feed_forward, norm):
    """A block in the order of the first Transformer: what each part says is added, then normed.

    x: (n, d). attend, feed_forward, norm: functions that take such an array and give one
    -> (n, d), all its rows normed
    """
    x = x + attend(norm(x))
    return x + feed_forward(norm(x))


def block_solution(x, attend, feed_forward, norm):
    x = norm(x + attend(x))
    return norm(x + feed_forward(x))


@dataclass(frozen=True)
class _Part:
    """A part of a block that a reader can compute in the head, and its text."""

    text: str
    does: Callable

    def __call__(self, x):
        return self.does(x)

    def __repr__(self):
        return self.text


_BY_LARGEST = _Part(
    "each row divided by its largest number (signs left out)",
    lambda x: x / np.abs(x).max(axis=-1, keepdims=True),
)
_PLUS = _Part("x + [1, 0]", lambda x: x + np.array([1, 0]))
_OTHER_PLUS = _Part("x + [0, 2]", lambda x: x + np.array([0, 2]))
_EXCHANGE = _Part("the two columns of x exchanged", lambda x: x[..., [1, 0]])
_STANDARD = _Part("LayerNorm", layer_norm_solution)
_x, _W_1, _W_2 = (np.random.default_rng(57).normal(size=size) for size in [(3, 4), (4, 4), (4, 4)])
_TANH = _Part("tanh of x @ W", lambda x: np.tanh(x @ _W_1))
_OTHER_TANH = _Part("tanh of x @ another W", lambda x: np.tanh(x @ _W_2))
_PARTS = _TANH, _OTHER_TANH, _STANDARD

_KNOWN = _with_room_for_more("post-norm block")
POST_NORM = replace(_KNOWN, tiers=(*_KNOWN.tiers, (afterwards(_x, *_PARTS),)))
POST_NORM.mistakes["skip-after-the-norm"] = SUBJECTS["pre-norm block"].mistakes[
    "skip-after-the-norm"
]


@POST_NORM.mistake("A norm stands behind every sum, as the text says.")
def normed_before_and_after(x, attend, feed_forward, norm):
    """The sums are normed, and what goes into the parts is normed once more."""
    x = norm(x + attend(norm(x)))
    return norm(x + feed_forward(norm(x)))


@POST_NORM.mistake("There are two sums and two norms.")
def only_x_normed(x, attend, feed_forward, norm):
    """x is normed before what the part says is added: the sum is not."""
    x = norm(x) + attend(x)
    return norm(x) + feed_forward(x)


@POST_NORM.mistake("All rows come out normed.")
def one_norm_at_the_end(x, attend, feed_forward, norm):
    """It is still the order of before, with one norm behind it all."""
    x = x + attend(norm(x))
    return norm(x + feed_forward(norm(x)))


@POST_NORM.mistake("All rows come out normed.")
def first_sum_not_normed(x, attend, feed_forward, norm):
    """The second sum is normed, the first one is not."""
    x = x + attend(x)
    return norm(x + feed_forward(x))


@POST_NORM.mistake("The norm has moved behind a sum.")
def only_the_first_part_repaired(x, attend, feed_forward, norm):
    """The first part is right. The second still norms what goes in, not the sum."""
    x = norm(x + attend(x))
    return x + feed_forward(norm(x))


@POST_NORM.mistake("The first part is right.")
def second_sum_not_normed(x, attend, feed_forward, norm):
    """After the second sum there is no norm: rows leave with any size."""
    x = norm(x + attend(x))
    return x + feed_forward(x)


@POST_NORM.mistake("There is a norm after each part, and all rows come out normed.")
def nothing_added(x, attend, feed_forward, norm):
    """The norm has moved, and the sums are gone: what a word was is lost."""
    return norm(feed_forward(norm(attend(x))))


@POST_NORM.mistake("There are two sums and two norms, and all rows come out normed.")
def second_sum_from_the_start(x, attend, feed_forward, norm):
    """The second sum begins with the block's input again, and what attention found is not in it."""
    y = norm(x + attend(x))
    return norm(x + feed_forward(y))


@POST_NORM.mistake("There are two sums and two norms, and all rows come out normed.")
def added_after_the_norm_too(x, attend, feed_forward, norm):
    """x is added inside the norm and once more outside."""
    x = x + norm(x + attend(x))
    return x + norm(x + feed_forward(x))


@POST_NORM.mistake("Sums are normed, and both parts are there.")
def feed_forward_first(x, attend, feed_forward, norm):
    """The sums and norms are right, and the parts have changed places: attention comes first."""
    x = norm(x + feed_forward(x))
    return norm(x + attend(x))


@POST_NORM.mistake("Some models have their parts side by side, and all rows come out normed.")
def parts_side_by_side(x, attend, feed_forward, norm):
    """Both parts read the same x. Feed-forward must read what attention has made of it."""
    return norm(x + attend(x) + feed_forward(x))


@POST_NORM.mistake("There are two sums and two norms, and all rows come out normed.")
def second_part_reads_the_start(x, attend, feed_forward, norm):
    """Feed-forward reads the block's input. It should read what attention has made of it."""
    return norm(norm(x + attend(x)) + feed_forward(x))


@POST_NORM.mistake("Some models have their parts side by side.", variant_of="parts-side-by-side")
def parts_side_by_side_before_a_norm(x, attend, feed_forward, norm):
    """Both parts read the same x, normed, and their sum is not normed: two changes to the text."""
    return x + attend(norm(x)) + feed_forward(norm(x))


E5_7 = Exercise(
    id="E5.7",
    title="The text says after",
    grade="core",
    kind="find the bug",
    minutes=8,
    objective="tell pre-norm from post-norm in code",
    section="[Before or after?](05_output_layer.ipynb#before-or-after)",
    task=r"""
A well-known page on the Transformer says that each part hands on
$\mathrm{norm}(x + \mathrm{part}(x))$, and its code does something else.
Many readers have asked about it.
The block below is written in the same way: it runs and it learns, and it is not what its
docstring says.

Say to yourself which order it is. Then repair it, so that both parts do what the text says.

`attend`, `feed_forward` and `norm` are functions that take an array `(n, d)` and give one;
`x` itself must stay as it is.""",
    stub=block,
    solution=block_solution,
    checker=Code(
        POST_NORM,
        cases=(
            case(np.array([[1.0, 3.0]]), _PLUS, _OTHER_PLUS, _BY_LARGEST),
            case(np.array([[1.0, 3.0], [2.0, -4.0]]), _EXCHANGE, _PLUS, _BY_LARGEST),
            case(_x, *_PARTS),
            case(1e4 * _x, *_PARTS),
        ),
    ),
    hints=(
        "Read the formula of the text from the inside out: what is computed first, what last?",
        "In the code, what does `norm` get, and what does the part get? What should they get?",
        "Read the formula from the inside out: what happens first, what last? "
        "Compare each of the two lines.",
    ),
    explanation="""\
The code was pre-norm: it norms what goes *into* a part, and adds to an `x` that is never normed.
The text describes post-norm: the sum is normed, so all rows leave with a deviation of 1.

Both learn, so no loss tells them apart; but weights trained in one order are worthless in the
other.
Look at what comes out: is the deviation of each row 1? In the chapter it is 1.00 for post and 1.24
for pre.

A repair that was proposed in public is `x + norm(part(x))`. It norms what the part says and leaves
the sum alone: a third order, and not the one of the text either.""",
)

# ---- E5.8 ----------------------------------------------------------------------------------------


def one_matrix_a_head(W_V, W_O, num_heads):
    """What each head writes about a word that it reads, as one matrix.

    W_V: (d, num_heads * d_v). W_O: (num_heads * d_v, d_out) -> (num_heads, d, d_out)
    """
    ...


def one_matrix_a_head_solution(W_V, W_O, num_heads):
    reads = np.split(W_V, num_heads, axis=1)  # the columns of each head
    writes = np.split(W_O, num_heads, axis=0)  # and its rows
    return np.stack([read @ write for read, write in zip(reads, writes)])


_mixed = np.random.default_rng(58).integers
_SHAPES = [((5, 6), (6, 5), 3), ((6, 6), (6, 6), 3), ((4, 6), (6, 7), 2)]
_PAIRS = [(_mixed(-3, 4, v) * 1.0, _mixed(-3, 4, o) * 1.0, heads) for v, o, heads in _SHAPES]
_THIN = np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[1.0, 1.0], [0.0, 2.0]])

FUSED = Subject(
    name="one matrix a head",
    signature="one_matrix_a_head(W_V, W_O, num_heads)",
    right=one_matrix_a_head_solution,
    tiers=(
        (call(*_THIN, 2), *(call(*pair) for pair in _PAIRS), call(*_PAIRS[1][:2], 1)),
        (afterwards(*_PAIRS[0][:2], 3),),
    ),
    listed=False,
)


@FUSED.mistake("It is the product of the two matrices.")
def all_heads_in_one(W_V, W_O, num_heads):
    """One product for the whole layer. But each head has weights of its own."""
    return W_V @ W_O


@FUSED.mistake("There is one for each head, and the shape is right.")
def the_same_for_every_head(W_V, W_O, num_heads):
    """Every head gets the product of the whole matrices."""
    return np.stack([W_V @ W_O] * num_heads)


@FUSED.mistake("Both matrices of a head are in it.")
def written_before_read(W_V, W_O, num_heads):
    """The order is reversed: with rows for words, what is done first stands on the left."""
    reads, writes = np.split(W_V, num_heads, axis=1), np.split(W_O, num_heads, axis=0)
    return np.stack([write @ read for read, write in zip(reads, writes)])


@FUSED.mistake("One call, and the shape is right.")
def reshaped_without_a_transpose(W_V, W_O, num_heads):
    """reshape cuts W_V in the order of memory, row by row, and heads get parts of each other."""
    d, width = W_V.shape
    return W_V.reshape(num_heads, d, -1) @ W_O.reshape(num_heads, width // num_heads, -1)


@FUSED.mistake("The rows of W_O are cut as they should be.")
def columns_dealt_in_turn(W_V, W_O, num_heads):
    """Head i gets every num_heads-th column of W_V, not its own block."""
    writes = np.split(W_O, num_heads, axis=0)
    return np.stack([W_V[:, i::num_heads] @ write for i, write in enumerate(writes)])


@FUSED.mistake("Columns and rows of a head belong together.")
def all_dealt_in_turn(W_V, W_O, num_heads):
    """Head i gets every num_heads-th column and row, not its own block of each."""
    return np.stack([W_V[:, i::num_heads] @ W_O[i::num_heads] for i in range(num_heads)])


@FUSED.mistake("Where W_V is square its rows can be cut as well.")
def rows_of_both(W_V, W_O, num_heads):
    """W_V is cut by rows. A head has columns of W_V, for its values are what comes out there."""
    reads, writes = np.split(W_V, num_heads, axis=0), np.split(W_O, num_heads, axis=0)
    return np.stack([read.T @ write for read, write in zip(reads, writes)])


@FUSED.mistake("Where W_O is square its columns can be cut as well.")
def columns_of_both(W_V, W_O, num_heads):
    """W_O is cut by columns. A head has rows of W_O, for its values are what goes in there."""
    reads, writes = np.split(W_V, num_heads, axis=1), np.split(W_O, num_heads, axis=1)
    return np.stack([read @ write.T for read, write in zip(reads, writes)])


@FUSED.mistake("Where the layer is as wide as its input, the shape is right.")
def turned_over(W_V, W_O, num_heads):
    """Each is transposed, as torch stores the matrix of a Linear."""
    return np.swapaxes(one_matrix_a_head_solution(W_V, W_O, num_heads), 1, 2)


@FUSED.mistake("Each head has columns of its own.")
def first_rows_of_the_desk_for_all(W_V, W_O, num_heads):
    """Every head writes through the rows of the first one."""
    reads = np.split(W_V, num_heads, axis=1)
    return np.stack([read @ W_O[: read.shape[1]] for read in reads])


E5_8 = Exercise(
    id="E5.8",
    title="One matrix for each head",
    grade="challenge",
    kind="derive",
    minutes=12,
    objective="say what a head writes about a word, as one matrix, and how much fits through it",
    section="[A linear map](05_output_layer.ipynb#a-linear-map)",
    task="""\
With weights `P[i]` of its own, head i adds `P[i] @ x @ M[i]` to the words: `M[i]` says what it
writes about a word that it reads.
Find `M` from the two big matrices of a layer.

`one_matrix_a_head(W_V, W_O, num_heads)` takes `W_V (d, num_heads * d_v)` and
`W_O (num_heads * d_v, d_out)`.
Their columns and rows belong to the heads in blocks, head 0 first.
It gives an array `(num_heads, d, d_out)`.

For two heads with `W_V = [[1, 2], [0, 3]]` and `W_O = [[1, 1], [0, 2]]` it gives
`[[[1, 1], [0, 0]], [[0, 4], [0, 6]]]`.

When it is right, look at `np.linalg.matrix_rank(M)` for a few sizes: what decides it?""",
    stub=one_matrix_a_head,
    solution=one_matrix_a_head_solution,
    checker=Code(
        FUSED,
        cases=(
            case(*_THIN, 2),
            case(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]), 2),
            case(np.eye(4)[:3], np.arange(8.0).reshape(4, 2), 2),
            *(case(*pair) for pair in _PAIRS),
        ),
        equal=case(_PAIRS[2][0][:2, :4], _PAIRS[2][1][:4, :2], 2),
    ),
    hints=(
        "Write the contribution of head i out: which parts of $W_V$ and $W_O$ does it use?",
        "Its values are its columns of $W_V$, `d_v` of them, and they meet its rows of $W_O$.",
        "Move the brackets: (P (x V)) O is P x (V O). Cut first, then multiply, head by head.",
    ),
    explanation="""\
The values of head i are `x` times its columns of $W_V$; they are averaged and go through its rows
of $W_O$.
Averaging works on words and the matrices on columns, so `P @ (x @ V) @ O` is `P @ x @ (V @ O)`.
`np.einsum("dhv,hvo->hdo", ...)` on both matrices, cut by `reshape`, does the same.

The whole product `W_V @ W_O` is the *sum* of these matrices. It would do if all heads had the same
weights.

The rank of each is at most `d_v`, however wide the model: the chapter found 64 in 512 columns.
Everything that a head says about a word passes through its `d_v` values.
And the same `M` comes from many pairs: `V @ R` and `inv(R) @ O`, for every `R` that has an
inverse.""",
)

# ---- E5.9 ----------------------------------------------------------------------------------------


def finds_the_minus_solution():
    return "d"


E5_9 = Exercise(
    id="E5.9",
    title="A minus for a plus",
    grade="warm-up",
    kind="choose",
    minutes=3,
    objective="choose a check that can see a fault",
    section="[What the sum is for](05_output_layer.ipynb#what-the-sum-is-for)",
    task="""\
Somebody typed `x - part(x)` where a block should have `x + part(x)`.
The model learns its task as well as any other: a part can simply learn to say the opposite.

Which of these checks finds the fault?""",
    stub="finds_it = ...  # a letter",
    solution=finds_the_minus_solution,
    checker=Choice(
        options=(
            Option(
                "The loss, if one trains long enough.",
                "The last matrix of a part needs only the opposite sign. It is learned like any "
                "other, and the loss is none the worse.",
                "loss-tells-all",
            ),
            Option(
                "Counting the parameters.",
                "A sign is no parameter. The count finds a matrix that is missing, as a forgotten "
                "$W_O$.",
                "count-tells-all",
            ),
            Option(
                "Set the last matrix of each part to 0: the block must hand on `x` itself.",
                "It does, with a minus as with a plus. This finds a missing sum, or a norm in its "
                "way.",
                "silent-part-tells-all",
            ),
            Option(
                "Give the same matrices to a block that is known to be right, and compare outputs.",
                "With the same matrices and the same input, every difference is a fault in the "
                "code.",
            ),
            Option(
                "Measure the spread of the words after many layers.",
                "With a minus `x` is handed on too, so the words stay apart. This finds a missing "
                "sum.",
                "spread-tells-all",
            ),
        )
    ),
    hints=(
        "For each check ask: would the number be another one with a plus?",
        "What a model learns can hide a fault in the code. So which check does not let it learn?",
    ),
    explanation="""\
Training bends around a fault that it can undo, and a sign is the easiest of all.
With the same matrices there is nothing to learn: in a random block 64 wide, as in the chapter, the
two outputs differ by about their whole length.

A fault that training hides is still one: a model that somebody else has trained will speak nonsense
in such a block.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (E5_1, E5_2, E5_3, E5_4, E5_5, E5_6, E5_7, E5_8, E5_9)

QUIZ = (
    Question(
        "What does $W_O$ do with the answers of the heads?",
        (
            Option(
                "It lays them side by side.",
                "That happens before it, and needs no matrix.",
                "output-matrix-is-a-reshape",
            ),
            Option(
                "It chooses the head that knows best for this word.",
                "It is the same matrix for every word. Only the weights of attention follow the "
                "text.",
                "output-matrix-chooses",
            ),
            Option(
                "It mixes them into the columns of the word.",
                "Each head has its rows, and the output is the sum of what they write, for every "
                "word in the same way.",
            ),
            Option(
                "It bends them: that is where the layer is not linear.",
                "It is a product with a matrix, the most linear thing there is.",
                "output-matrix-is-not-linear",
            ),
        ),
    ),
    Question(
        "A head has .9 of its weight on one token. How much does it write into the word?",
        (
            Option(
                "Much: .9 is almost everything.",
                "It is almost everything that the head *reads*. In the chapter a head with .91 on "
                "one token wrote less than the two others of the table.",
                "weight-is-what-is-written",
            ),
            Option(
                "The weight does not say.",
                "Its contribution does: values may be short, and rows of $W_O$ may turn them down.",
            ),
            Option(
                "Little: one sharp weight leaves no room for others.",
                "A sharp head may write much, if the value and its rows of $W_O$ are large.",
                "sharp-heads-write-little",
            ),
        ),
    ),
    Question(
        "Which of these brings non-linearity into a block?",
        (
            Option(
                "The residual connection.",
                "A sum of two linear maps is linear.",
                "residual-is-not-linear",
            ),
            Option(
                "That many matrices stand one after another, each with its own numbers.",
                "A hundred of them can be folded into one.",
                "depth-bends",
            ),
            Option(
                "That LayerNorm subtracts the mean.",
                "Subtracting the mean is linear. The other half of LayerNorm is not.",
                "centring-is-not-linear",
            ),
            Option(
                "The relu of the feed-forward layer, and the softmax.",
                "And the division in LayerNorm, a little.",
            ),
        ),
    ),
    Question(
        "A model is 512 wide, and its heads have values that are 64 wide. What is the rank of the "
        "fused matrix $W_V W_O$ of one head?",
        (
            Option(
                "At most 64.",
                "All that is said about a word passes through 64 numbers.",
            ),
            Option(
                "512, for it is 512 by 512.",
                "That is its size. A product has no more rank than the thinnest of its factors.",
                "size-for-rank",
            ),
            Option(
                "8, one for each head.",
                "There may be 8 heads; this is about one of them.",
                "heads-for-rank",
            ),
        ),
    ),
    Question(
        "Which size of $W_O$ is forced, once the model is 512 wide?",
        (
            Option(
                "Both: it must be square.",
                "In many models it is, by choice. T5 11B has 16384 rows and 1024 columns.",
                "output-matrix-must-be-square",
            ),
            Option(
                "Its rows: as many as the model is wide.",
                "It has a row for each value of each head, and there may be more or fewer.",
                "rows-forced",
            ),
            Option(
                "None: the next layer takes whatever width it is handed.",
                "Its output is added to the word, and only rows of the same width can be added.",
                "nothing-forced",
            ),
            Option(
                "Its columns: as many as the model is wide.",
                "What comes out is added to the word.",
            ),
        ),
    ),
    Question(
        "A deep stack of attention without residual connections, and nothing else: what becomes of "
        "the words?",
        (
            Option(
                "They become unrelated to each other.",
                "Averages are nearer to each other than what they are made of.",
                "attention-drives-words-apart",
            ),
            Option(
                "They become all the same within a few layers.",
                "In the chapter sixteen words were one after four layers. With the sums a word "
                "keeps itself.",
            ),
            Option(
                "They stay as they are; only the gradients suffer.",
                "Without the sum nothing of a word is handed on but averages.",
                "skip-is-for-gradients-alone",
            ),
            Option(
                "They grow without bound.",
                "How long they get is up to the matrices. What averaging does is to bring words "
                "together.",
                "attention-adds-up",
            ),
        ),
    ),
)
