"""Exercises of chapter 3: the computation."""

import math

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.example import HEAD_A, WORDS, X
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import Subject
from qkvlib.mistakes._catalogue import afterwards, call

# ---- E3.1 ----------------------------------------------------------------------------------------


def calm_row_solution():
    key = X @ HEAD_A.W_K
    scores = key @ [1, 1] / np.sqrt(2)
    powers = np.exp(scores)
    return powers / powers.sum()


_CALM_QUERY, _CALM_KEY = X @ (HEAD_A.W_Q * [0.5, 1]), X @ HEAD_A.W_K
_CALM = _CALM_QUERY @ _CALM_KEY.T  # 3 0 -1 2 0 in the row of "he"
_LOUD_HE = (X @ HEAD_A.W_Q)[3]


def _weights(scores, base=math.e):
    powers = base ** np.asarray(scores, float)
    return powers / powers.sum()


def _divided_by(divisor):
    return lambda: _weights(_CALM[3] / divisor)


def _calm_powers():
    return np.exp(_CALM / np.sqrt(2))


def _cosines():
    lengths = np.linalg.norm(_CALM_QUERY[3]) * np.linalg.norm(_CALM_KEY, axis=1)
    return _CALM[3] / np.where(lengths == 0, 1, lengths)


E3_1 = Exercise(
    id="E3.1",
    title="A row by pocket calculator",
    grade="warm-up",
    kind="predict",
    minutes=6,
    objective="compute a row of weights with a pocket calculator",
    section="[The steps](03_computation.ipynb#32-the-steps)",
    task="""\
Take head A and the keys of the chapter, but let "he" ask less loudly: its query is (1, 1), not
(2, 1).

The keys of *Paul told Emma he won* are (1, 2), (0, 0), (1, -2), (0, 2), (0, 0).

Compute the five weights of "he" with a pocket calculator, to three decimals.
Two decimals are near enough.""",
    stub="calm_row = [..., ..., ..., ..., ...]  # Paul told Emma he won",
    solution=calm_row_solution,
    checker=Numbers(
        right=calm_row_solution,
        labels=WORDS,
        tolerance=0.005,
        slips={
            "scores-not-weights": Slip(
                lambda: _CALM[3],
                "These are the products, the first of four steps. Weights are positive and sum "
                "to 1.",
            ),
            "stopped-after-the-division": Slip(
                lambda: _CALM[3] / np.sqrt(2),
                "These are the divided scores. One of them is negative, and a weight never is.",
            ),
            "not-normalised": Slip(
                lambda: _calm_powers()[3],
                "These are the powers of e. What do the five of them sum to?",
            ),
            "powers-not-divided-and-no-scale": Slip(
                lambda: np.exp(_CALM[3]),
                "Powers of e, of scores that nothing was divided by; and they do not sum to 1.",
            ),
            "in-percent": Slip(
                lambda: 100 * _weights(_CALM[3] / np.sqrt(2)),
                "The shares are right, in percent. Here the row sums to 1.",
            ),
            "no-scale": Slip(
                _divided_by(1),
                "These weights belong to the scores 3, 0, -1, 2, 0 as they are. Step 2 is missing.",
            ),
            "divided-by-d-k": Slip(
                _divided_by(2), "These weights belong to a divisor of 2: d_k without its root."
            ),
            "scaled-by-the-width-of-the-model": Slip(
                _divided_by(np.sqrt(6)),
                "These weights belong to a divisor of 2.449, the root of 6. How many numbers has a "
                "key?",
            ),
            "divided-by-the-width-of-the-model": Slip(
                _divided_by(6), "These weights belong to a divisor of 6, the width of a word."
            ),
            "scaled-by-the-width-of-the-values": Slip(
                _divided_by(np.sqrt(3)),
                "These weights belong to a divisor of 1.732, the root of 3. Values take no part in "
                "the weights.",
            ),
            "scaled-by-the-number-of-keys": Slip(
                _divided_by(np.sqrt(5)),
                "These weights belong to a divisor of 2.236, the root of 5: that is how many keys "
                "there are, not how wide one is.",
            ),
            "multiplied-by-sqrt-d-k": Slip(
                _divided_by(1 / np.sqrt(2)),
                "The scores were multiplied by 1.414: this row is sharper than without any scale.",
            ),
            "scaled-after-the-softmax": Slip(
                lambda: _weights(_CALM[3]) / np.sqrt(2),
                "The weights were divided, not the scores; they sum to .707.",
            ),
            "sign-lost": Slip(
                lambda: _weights(abs(_CALM[3]) / np.sqrt(2)),
                "Emma has as much as if her score were +1. What is 1 times 1 plus 1 times -2?",
            ),
            "minus-lost-in-a-key": Slip(
                lambda: _weights(np.where(_CALM[3] < 0, 3, _CALM[3]) / np.sqrt(2)),
                "Emma has as much as Paul. Their keys are (1, 2) and (1, -2).",
            ),
            "negative-score-as-zero": Slip(
                lambda: _weights(np.maximum(_CALM[3], 0) / np.sqrt(2)),
                "Emma has as much as the verbs: her negative score was taken for 0.",
            ),
            "negative-score-left-out": Slip(
                lambda: _weights(np.where(_CALM[3] < 0, -np.inf, _CALM[3] / np.sqrt(2))),
                "Emma has nothing. A negative score has a power of e as well, a small one.",
            ),
            "zero-score-left-out": Slip(
                lambda: _weights(np.where(_CALM[3] == 0, -np.inf, _CALM[3] / np.sqrt(2))),
                "The verbs have nothing. What is e to the power of 0?",
            ),
            "himself-left-out": Slip(
                lambda: _weights(np.where(np.arange(5) == 3, -np.inf, _CALM[3] / np.sqrt(2))),
                '"He" has nothing of its own. A word may read itself.',
            ),
            "louder-query": Slip(
                lambda: _weights(_CALM_KEY @ _LOUD_HE / np.sqrt(2)),
                "This is the row of the chapter, where the query is (2, 1).",
            ),
            "louder-query-and-no-scale": Slip(
                lambda: _weights(_CALM_KEY @ _LOUD_HE),
                "This is a row of the chapter, of the query (2, 1) and without a division.",
            ),
            "powers-of-ten": Slip(
                lambda: _weights(_CALM[3] / np.sqrt(2), 10),
                "These are powers of 10. Take the other key of the calculator, the one with e.",
            ),
            "powers-of-two": Slip(
                lambda: _weights(_CALM[3] / np.sqrt(2), 2), "These are powers of 2, not of e."
            ),
            "no-exponential": Slip(
                lambda: _CALM[3] / _CALM[3].sum(),
                "The scores were divided by their sum, and Emma has a negative weight. Which step "
                "makes numbers positive?",
            ),
            "softmax-twice": Slip(
                lambda: _weights(_weights(_CALM[3] / np.sqrt(2))),
                "It went through the softmax twice: the second one finds hardly any differences.",
            ),
            "hard-lookup": Slip(
                lambda: np.arange(5) == 0,
                "All of it for Paul: that is a lookup. Nobody is skipped, however small the score.",
            ),
            "scores-transposed": Slip(
                lambda: _weights(_CALM[:, 3] / np.sqrt(2)),
                'These weights ask who wants "he". Its query meets the keys of all, not its key '
                "the queries.",
            ),
            "softmax-over-queries": Slip(
                lambda: (_calm_powers() / _calm_powers().sum(axis=0))[3],
                "Each power was divided by the sum of its column. A row sums to 1, over the keys.",
            ),
            "divided-without-keepdims": Slip(
                lambda: (_calm_powers() / _calm_powers().sum(axis=1))[3],
                "Each column was divided by the sum of another row.",
            ),
            "softmax-over-everything": Slip(
                lambda: _calm_powers()[3] / _calm_powers().sum(),
                "Divided by the sum of all 25 powers. Each row has a sum of its own.",
            ),
            "cosine-for-the-product": Slip(
                lambda: _weights(_cosines() / np.sqrt(2)),
                "Query and keys were brought to length 1 before. A score takes them as they are.",
            ),
        },
    ),
    hints=(
        "The first two steps give five numbers, one of them negative. Do you have 2.121 for Paul?",
        "Four different powers of e are enough, and two of them stand in the chapter.",
        "The largest power is 8.342. Divide each power by the sum of all five, and check that what "
        "you have sums to 1.",
    ),
    explanation="""\
The products are 3, 0, -1, 2, 0.
Divided by 1.414 they are 2.121, 0, -.707, 1.414, 0, and the powers of $e$ 8.342, 1, .493, 4.113, 1.
They sum to 14.948, and 8.342 / 14.948 is .558.

Paul stays ahead, but .704 has become .558: a query that is shorter asks less sharply.
Emma has less than the verbs now. In the chapter her two products cancelled; here the wrong kind
outweighs the name.

The usual slip, no division, leaves .673 for Paul, and $d_k$ without the root leaves .457.
Both rows sum to 1.""",
)

# ---- E3.2 ----------------------------------------------------------------------------------------

_HE = np.array([4.0, 0, 0, 2, 0])  # the products of "he" in the chapter


def _paul(scores):
    return _weights(np.asarray(scores) / np.sqrt(2))[0]


_ONLY_PAUL = np.arange(5) == 0


def _share(powers):
    return powers[0] / powers.sum()


def what_moves_solution():
    query, key = X @ HEAD_A.W_Q, X @ HEAD_A.W_K
    scores = query[3] @ key.T / np.sqrt(2)
    doubled = qn.softmax(2 * scores)[0]
    raised = qn.softmax(scores + 7)[0]
    wider_values = qn.softmax(scores)[0]  # no value takes part
    return doubled, raised, wider_values


E3_2 = Exercise(
    id="E3.2",
    title="Louder, higher, heavier",
    grade="warm-up",
    kind="predict",
    minutes=4,
    objective="say which changes of scores change the weights",
    section="[Normalise](03_computation.ipynb#step-3-normalise)",
    task="""\
In head A "he" gives Paul the weight .704; its scaled scores are 2.828, 0, 0, 1.414, 0.

What is the weight of Paul

- `doubled`: when $W_Q$ is doubled;
- `raised`: when 7 is added to each of the five scaled scores;
- `heavier`: when $W_V$ is doubled?

Each time the rest stays as it is. Two decimals are enough; a pocket calculator helps.""",
    stub="doubled = ...\nraised = ...\nheavier = ...",
    solution=what_moves_solution,
    checker=Items(
        {
            "doubled": Numbers(
                right=lambda: _paul(2 * _HE),
                tolerance=0.0055,
                slips={
                    "linear-in-the-scores": Slip(
                        lambda: 2 * _paul(_HE),
                        "A weight above 1? Scores double, but weights still share out 1.",
                    ),
                    "scale-does-not-matter": Slip(
                        lambda: _paul(_HE),
                        "As before? Twice the query gives twice the score, and distances between "
                        "scores count.",
                    ),
                    "power-doubled": Slip(
                        lambda: _share(np.exp(_HE / 2**0.5) * (1 + _ONLY_PAUL)),
                        "Paul's power of e was doubled. What doubles is in the exponent.",
                    ),
                    "only-one-score-doubled": Slip(
                        lambda: _paul(np.where(_ONLY_PAUL, 2, 1) * _HE),
                        "Only Paul's score was doubled. The query meets all five keys.",
                    ),
                    "both-matrices-doubled": Slip(
                        lambda: _paul(4 * _HE),
                        "This is four times each score, as if the keys were doubled too.",
                    ),
                    "weight-squared": Slip(
                        lambda: _paul(_HE) ** 2,
                        "The weight was squared. Each power is squared, those in the sum too.",
                    ),
                    "halved": Slip(
                        lambda: _paul(_HE / 2),
                        "This row is flatter than before: the scores were halved.",
                    ),
                    "scaled-no-more": Slip(
                        lambda: _paul(np.sqrt(2) * _HE),
                        "This is 1.414 times each score: it grew, but did it double?",
                    ),
                },
            ),
            "raised": Numbers(
                right=lambda: _paul(_HE),
                tolerance=0.0055,
                slips={
                    "only-one-score-raised": Slip(
                        lambda: _weights(_HE / 2**0.5 + 7 * _ONLY_PAUL)[0],
                        "That is what happens when 7 is added for Paul alone. All five grow.",
                    ),
                    "no-exponential": Slip(
                        lambda: (_HE / 2**0.5 + 7)[0] / (_HE / 2**0.5 + 7).sum(),
                        "The raised scores were divided by their sum, without powers of e.",
                    ),
                    "shift-makes-it-even": Slip(
                        lambda: 1 / 5,
                        "An even row needs even scores. Paul still leads by 2.828.",
                    ),
                    "shift-moves-the-weight": Slip(
                        lambda: _paul(_HE) + 7,
                        "A weight is a share, and no share is above 1.",
                    ),
                },
            ),
            "heavier": Numbers(
                right=lambda: _paul(_HE),
                tolerance=0.0055,
                slips={
                    "values-move-the-weights": Slip(
                        lambda: _paul(2 * _HE),
                        "Do values take part in a score? Look at what the first three steps use.",
                    ),
                    "output-for-weight": Slip(
                        lambda: 2 * _paul(_HE),
                        "What is read doubles. The weight it is read with is something else.",
                    ),
                    "weights-make-up-for-it": Slip(
                        lambda: _paul(_HE) / 2,
                        "Nothing makes up for longer values: the weights do not know of them.",
                    ),
                },
            ),
        }
    ),
    hints=(
        "For each of the three: does a score change, and does a difference of scores change?",
        "Twice the query is twice each score. The powers are then e to 5.657, 1, 1, e to 2.828, 1.",
        "When 7 is added to all, every power is multiplied by the same number. And their sum?",
    ),
    explanation="""\
Doubling $W_Q$ doubles every query and so every score: the row becomes sharper, and Paul gets .935.
That is what training does when it wants to be more certain.

Seven more for everyone multiplies each power by $e^7$ and their sum too: .704 as before.
For this reason a program may subtract the largest score first.

Values come in only at the last step: .704 again. What "he" reads is twice as long, though.""",
)

# ---- E3.3 ----------------------------------------------------------------------------------------


def softmax(scores, axis=-1):
    """Weights that are positive and sum to 1 along `axis`.

    scores: a float array of any shape -> weights of the same shape and dtype;
    where all scores along the axis are -inf: zeros
    """
    ...


def softmax_solution(scores, axis=-1):
    largest = scores.max(axis=axis, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    sums = powers.sum(axis=axis, keepdims=True)
    return powers / np.where(sums == 0, 1, sums)


_TABLE = np.array([[0.0, 1.0, 2.0], [5.0, 0.0, 0.0]])

E3_3 = Exercise(
    id="E3.3",
    title="A softmax that survives",
    grade="core",
    kind="fill in",
    minutes=12,
    objective="write a softmax along any axis that no score can break",
    section="[Normalise](03_computation.ipynb#step-3-normalise)",
    task="""\
Write the softmax that everything else stands on, without `qkvlib`.

`softmax(scores, axis=-1)` takes a float array of any shape and gives weights of the same shape and
dtype: positive, and with the sum 1 along `axis`.

- Scores as large as 10 000 or as low as -10 000 must not break it.
- Where every score along the axis is `-inf`, nothing can be chosen: the weights are 0 there.
- The array that comes in stays as it is.

`softmax(np.array([[1.0, 1.0], [0.0, -np.inf]]))` is `[[0.5, 0.5], [1, 0]]`.""",
    stub=softmax,
    solution=softmax_solution,
    checker=Code(
        "softmax",
        single=True,
        alone=True,
        cases=(
            case(np.array([0.0, 0.0, -np.inf])),
            case(_TABLE),
            case(_TABLE, 0),
            case(np.stack([_TABLE, -_TABLE, _TABLE + 1, 2 * _TABLE]), 1),
            case(np.array([[1000.0, 1000.0, 0.0], [-1000.0, -1000.0, -1000.0]])),
            case(np.array([[0.0, 0.0], [-np.inf, -np.inf]])),
            case(_TABLE.astype(np.float32)),
        ),
        laws=False,  # they speak of attention
        large=case(np.tile(_TABLE, (100, 100))),
    ),
    hints=(
        "Try it on an array `(2, 3)`, along both axes, and look at the sums.",
        "Which number may be taken away from a row so that no power is larger than 1? Each row has "
        "its own.",
        "`keepdims=True` keeps the axis, for the maximum as for the sum.",
        "In a row of `-inf` the maximum is `-inf`, and `-inf` minus itself is not a number. What "
        "else could be taken away there, and what is its sum then?",
    ),
    explanation="""\
The largest score *of each row* is taken away: the largest power is then 1, so the sum is at least
1 and at most the number of keys.
One maximum for the whole table is not enough. A row that lies 1000 below it has powers of 0 only,
and 0 / 0 is not a number.

`keepdims=True` is what makes a sum of shape `(2, 1)` meet its own row.
Without it `(2, 3) / (2,)` raises, and a square table is divided down its columns, without a word.

A row of `-inf` has no largest score worth the name. Here 0 is taken away instead, all powers are 0,
and dividing by 1 leaves zeros.
`np.exp(scores - logsumexp(scores))` would be right too, except in such a row.""",
)

# ---- E3.4 ----------------------------------------------------------------------------------------


def attend(query, key, value, *, mask=None):
    """Scaled dot-product attention.

    query: (..., n_query, d_k). key: (..., n_key, d_k). value: (..., n_key, d_v).
    mask: Boolean, of a shape that fits (..., n_query, n_key), True where a query may attend
    -> (..., n_query, d_v), in the dtype of the inputs
    """
    ...


def attend_solution(query, key, value, *, mask=None):
    scores = query / math.sqrt(query.shape[-1]) @ key.swapaxes(-2, -1)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = qn.softmax(scores)
    unread = (weights == 0).all(axis=-2)[..., None]  # 0 times NaN would be NaN
    return (weights @ np.where(unread, 0, value)).astype(value.dtype)


_Q1 = np.array([[2.0, 0.0, 0.0, 0.0]])
_K1 = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
_V1 = np.array([[1.0, 0.0, 2.0], [0.0, 4.0, 0.0]])
_Q2 = np.array([[2.0, 0, 1], [0, 4, 2]])
_K2 = np.array([[1.0, 2, 0], [0, 1, 1], [3, 0, -1]])
_V2 = np.array([[1.0, 0, 2, 0, 1], [0, 4, 0, 1, 1], [2, 2, -3, 0, 0]])
_M2 = np.array([[True, False, True], [True, True, False]])
_QS, _KS, _VS = (np.stack([x, 2 * x, -x]) for x in (_Q2, _K2, _V2))

E3_4 = Exercise(
    id="E3.4",
    title="Attention, all four steps",
    grade="core",
    kind="fill in",
    minutes=20,
    objective="write scaled dot-product attention with a mask",
    section="[The formula](03_computation.ipynb#31-the-formula)",
    task="""\
Write scaled dot-product attention. Your softmax of E3.3 or `qn.softmax` may help.

`attend(query, key, value, *, mask=None)` takes queries `(..., n_query, d_k)`, keys
`(..., n_key, d_k)` and values `(..., n_key, d_v)`, with any axes in front, such as a batch.
It gives one average of values for each query, `(..., n_query, d_v)`.

- A mask is Boolean and fits the scores; True means "may attend", and no mask allows everything.
- A query that may attend to nothing gets zeros.
- float32 in, float32 out; the arrays that come in stay as they are.

The query `[[1, 0]]` with the keys `[[3, 1], [3, 2]]` scores both alike, so values `[[1, 0, 2],
[3, 4, 0]]` give `[[2, 2, 1]]`. With the mask `[[True, False]]` they give `[[1, 0, 2]]`.""",
    stub=attend,
    solution=attend_solution,
    checker=Code(
        "attention",
        single=True,
        cases=(
            case(_Q1, _K1, _V1),
            case(_Q1, _K1, _V1, mask=np.array([[True, False]])),
            case(_Q2, _K2, _V2),
            case(_Q2, _K2, _V2, mask=_M2),
            case(_Q1, _K1, _V1, mask=np.array([[False, False]])),
            case(_QS, _KS, _VS),
            case(_QS, _KS, _VS, mask=_M2),
            case(1000 * _Q2, _K2, _V2),
            case(*(x.astype(np.float32) for x in (_Q2, _K2, _V2))),
        ),
        large=case(*(np.tile(x, (90, 1)) for x in (_Q2, _K2, _V2))),
        beyond=("zero-times-nan", "half-product-before-the-scale"),
    ),
    hints=(
        "Write down the shape of each step. Which of the two axes of the scores are the keys?",
        "`key.swapaxes(-2, -1)` turns the last two axes and leaves a batch alone.",
        "The mask belongs between two of the four steps. What must a forbidden score be, so that "
        "its power of e is 0?",
        "If float32 becomes float64: what does `np.sqrt` make of the number 4, and what "
        "`math.sqrt`?",
    ),
    explanation="""\
The steps in order: divide and compare, forbid, normalise, average.
$d_k$ is read from the query, so nothing has to be handed over, and values may be of any width.

`weights @ value` is right as long as values are numbers.
The line before the last is for padding that holds NaN: 0 times NaN is NaN, so what nobody reads is
not even looked at.

`key.T` would turn a batch around as well; `swapaxes(-2, -1)` turns the last two axes only, and
`np.einsum("...qd,...kd->...qk", query, key)` needs no turning at all.

`qn.softmax` answers zeros for a row that may choose nothing, so such a query gets zeros.
With -1e9 in place of $-\\infty$ such a row would be five equal weights, on words that are all
forbidden.

`math.sqrt` gives a plain number, which takes the dtype of the array. `np.sqrt(4)` gives a float64,
and NumPy then makes float64 of everything: right numbers, twice the memory.""",
)

# ---- E3.5 ----------------------------------------------------------------------------------------


def causal_mask(n_query, n_key):
    """Who may read whom, when nobody may read what comes later.

    -> Boolean (n_query, n_key), True where a query may attend; the queries are the last n_query
    of the n_key words
    """
    ...


def causal_mask_solution(n_query, n_key):
    query = np.arange(n_key - n_query, n_key)  # where each query stands
    key = np.arange(n_key)
    return key <= query[:, None]


E3_5 = Exercise(
    id="E3.5",
    title="No word reads the future",
    grade="core",
    kind="fill in",
    minutes=8,
    objective="write a causal mask for any number of queries and keys",
    section="[The future](03_computation.ipynb#what-the-steps-do-not-know-the-future)",
    task="""\
`causal_mask(n_query, n_key)` gives a Boolean table `(n_query, n_key)`: True where a query may
attend, that is to its own word and to earlier ones.

There may be fewer queries than keys. A model that continues a text asks for its newest words
only, and they read all that stands before.
So the queries are the **last** `n_query` words of the text: the last query stands with the last
key.

`causal_mask(2, 3)` is `[[True, True, False], [True, True, True]]`.""",
    stub=causal_mask,
    solution=causal_mask_solution,
    checker=Code(
        "causal mask",
        cases=(case(2, 2), case(3, 3), case(2, 3), case(1, 4), case(2, 5)),
        large=case(1000, 2000),
    ),
    hints=(
        "Write the table for 2 queries and 5 keys by hand. At which place does the first query "
        "stand?",
        "Query number `i` stands at place `i + n_key - n_query`.",
        "Compare the places of the keys, a row, with those of the queries, a column.",
    ),
    explanation="""\
A mask is a comparison of places: a row of keys against a column of queries, and NumPy makes the
table.
`np.tri(n_query, n_key, n_key - n_query, dtype=bool)` is the same in one call; `np.tril` of ones
takes the same shift.

Without the shift, `np.tri(1, 4)` lets the newest word read nothing but the oldest one.
As long as there are as many queries as keys the shift is 0, so all of training goes well, and the
mistake shows when the model begins to write.""",
)

# ---- E3.6 ----------------------------------------------------------------------------------------


def masked_attention(query, key, value, *, mask=None):
    """Attention with a mask, as somebody wrote it."""
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    weights = qn.softmax(scores)
    if mask is not None:
        weights = np.where(mask, weights, 0)
    return weights @ value


def masked_attention_solution(query, key, value, *, mask=None):
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = qn.softmax(scores)
    return weights @ value


E3_6 = Exercise(
    id="E3.6",
    title="Too good a loss",
    grade="core",
    kind="find the bug",
    minutes=10,
    objective="find out why a model behind a clean triangle knows the future",
    section="[Two triangles](03_computation.ipynb#two-triangles)",
    task="""\
A model that must predict each next word is trained with the function below and the mask of E3.5.
All maps are clean triangles, and the loss is better than anybody had hoped.
Asked to write by itself, the model fails.

Find the line that lets the future in and repair it: a key that a query may not attend to must not
move its output, whatever it holds.
A query that may attend to nothing still gets zeros, and without a mask nothing changes.""",
    stub=masked_attention,
    solution=masked_attention_solution,
    checker=Code(
        "attention",
        cases=(
            case(_Q1, _K1, _V1, mask=np.array([[True, False]])),
            case(_Q1, _K1, _V1, mask=np.array([[False, False]])),
            case(_Q1, _K1, _V1),
            case(_Q2, _K2, _V2, mask=_M2),
            case(_Q2, _K2, _V2),
            case(_QS, _KS, _VS, mask=_M2),
            case(1000 * _Q2, _K2, _V2, mask=_M2),
        ),
        beyond=(
            "zero-times-nan",
            "half-product-before-the-scale",
            "root-of-a-numpy-integer",
            "renormalised-after-the-mask",
        ),
    ),
    hints=(
        "The weights above the diagonal are 0. Do the rows still sum to 1?",
        "The softmax divides by a sum. Whose powers are in that sum?",
        "A forbidden score should have a power of 0 before anything is summed.",
    ),
    explanation="""\
Forbidden weights are set to 0, but the softmax has counted them: each weight was divided by a sum
that holds the later words too.
So the weights that are left say how loud the future is, and a model learns to read that.
On the sentence of the chapter an earlier output moves by .332 when the last word changes.

Dividing each row by its own sum once more repairs the weights, as long as a forbidden score is not
so large that everything else has become 0: then it is 0 / 0.
The mask before the softmax has no such case.

The picture could not show it; row sums below 1 could, and so could the test of the chapter.
A widely used library of image models had this order of lines too
(huggingface/pytorch-image-models#2236).""",
)

# ---- E3.7 ----------------------------------------------------------------------------------------


def spread_solution():
    product = 0.5**2 * 3**2  # the variance of one q_i k_i
    raw = 64 * product
    return raw, raw / np.sqrt(64) ** 2


def _spread(each):
    return lambda: 64 * each


E3_7 = Exercise(
    id="E3.7",
    title="Not everybody starts at 1",
    grade="warm-up",
    kind="predict",
    minutes=5,
    objective="predict how large fresh scores are",
    section="[Why the square root?](03_computation.ipynb#why-the-square-root)",
    task="""\
A query and a key hold 64 independent random numbers each, all of mean 0.
Those of the query have the standard deviation 0.5, those of the key 3.

What is the variance of their dot product, `raw`?
And what is the variance after the division by $\\sqrt{d_k}$, `divided`?""",
    stub="raw = ...\ndivided = ...",
    solution=spread_solution,
    checker=Items(
        {
            "raw": Numbers(
                right=_spread(0.25 * 9),
                slips={
                    "variance-is-d-k": Slip(
                        _spread(1),
                        "It is d_k where both variances are 1. Here each product has another one.",
                    ),
                    "deviation-for-the-variance": Slip(
                        _spread(0.5 * 3),
                        "The deviations were multiplied as they are. A variance is a mean of "
                        "squares.",
                    ),
                    "query-alone": Slip(
                        _spread(0.25), "This counts the variance of the query alone."
                    ),
                    "key-alone": Slip(_spread(9), "This counts the variance of the key alone."),
                    "variances-added": Slip(
                        _spread(0.25 + 9),
                        "Variances add up over the 64 terms of the sum. Within a term query and "
                        "key are multiplied.",
                    ),
                    "deviations-added": Slip(
                        _spread((0.5 + 3) ** 2),
                        "Deviations were added. In a term query and key are multiplied.",
                    ),
                    "typical-size": Slip(
                        lambda: _spread(0.25 * 9)() ** 0.5,
                        "This is the typical size of the product, the root of what is asked for.",
                    ),
                    "one-term": Slip(
                        lambda: 0.25 * 9, "This is the variance of one of the 64 terms of the sum."
                    ),
                    "width-squared": Slip(
                        lambda: 64 * _spread(0.25 * 9)(),
                        "Variances of independent terms add up: 64 of them, not 64 squared.",
                    ),
                    "root-of-the-width": Slip(
                        lambda: _spread(0.25 * 9)() / 8,
                        "Deviations grow with the root of the width; variances grow with the width "
                        "itself.",
                    ),
                },
            ),
            "divided": Numbers(
                right=lambda: 0.25 * 9,
                slips={
                    "always-one": Slip(
                        lambda: 1,
                        "The division gives 1 only to numbers of variance 1. It takes the width "
                        "out, and nothing else.",
                    ),
                    "divided-once": Slip(
                        lambda: _spread(0.25 * 9)() / 8,
                        "The variance was divided by 8. When a number is divided by 8, what "
                        "happens to its square?",
                    ),
                    "typical-size": Slip(
                        lambda: 0.5 * 3, "This is the typical size, the root of the variance."
                    ),
                    "divided-by-d-k": Slip(
                        lambda: _spread(0.25 * 9)() / 64**2,
                        "This is what comes of a division by d_k, without the root.",
                    ),
                    "not-divided": Slip(
                        _spread(0.25 * 9), "This is the variance before the division."
                    ),
                },
            ),
        }
    ),
    hints=(
        "The variance of one product $q_i k_i$ is the mean of $q_i^2 k_i^2$.",
        "The mean of $q_i^2$ is the variance of the query's numbers: 0.5 squared.",
        "Sixty-four such variances add up. And a number that is divided by 8 has its variance "
        "divided by 64.",
    ),
    explanation="""\
Each term has the variance $0.25 \\cdot 9 = 2.25$, and 64 of them make 144: scores of about 12.
The division by 8 leaves 2.25.

So it takes out the width and nothing more. That the scores of a fresh model have variance 1 is
the work of two: of the division, and of the matrices, which must make queries and keys of variance
1.
Where they make larger ones, rows are sharp from the start.""",
)

# ---- E3.8 ----------------------------------------------------------------------------------------


def grad_scores(weights, grad_weights):
    """What reaches the scores of what reached the weights.

    weights: (..., n_query, n_key), the softmax of the scores. grad_weights: the same shape, by how
    much the loss grows when each weight is nudged -> the same for each score
    """
    ...


def grad_scores_solution(weights, grad_weights):
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)
    return weights * (grad_weights - mean)


_P1, _G1 = np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
_P2 = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
_G2 = np.array([[4.0, 0.0, -4.0], [1.0, 2.0, 3.0]])
_P3 = np.stack([_P2, _P2[::-1], _P2 / 2 + 1 / 6, np.full((2, 3), 1 / 3)])
_G3 = np.stack([_G2, _G2 - 1, -_G2, 2 * _G2])

E3_8 = Exercise(
    id="E3.8",
    title="Back through the softmax",
    grade="challenge",
    kind="derive",
    minutes=20,
    objective="derive what the softmax hands back in training",
    section="[What large scores would spoil](03_computation.ipynb#what-large-scores-would-spoil)",
    task="""\
In training a model learns by how much its loss would grow if a number were nudged.
Say this is known for each weight: `grad_weights`, as large as the weights.
Which numbers follow for the **scores**?

A nudge of score $j$ moves all weights of its row, by the column $j$ of the Jacobian of the chapter.
Each weight that moves moves the loss, and these add up.

Derive a formula, and write `grad_scores(weights, grad_weights)` for arrays `(..., n_query, n_key)`.
It needs the weights alone, not the scores; no loop and no Jacobian is needed.

`weights = [[0.5, 0.5]]` and `grad_weights = [[1, 0]]` give `[[0.25, -0.25]]`.""",
    stub=grad_scores,
    solution=grad_scores_solution,
    checker=Code(
        "softmax gradient",
        does_it=("softmax_backward",),
        cases=(case(_P1, _G1), case(_P2, _G2), case(_P3, _G3)),
        equal=case(_P2[:, 1:], _G2[:, 1:]),
    ),
    hints=(
        "Write the sum for one score: over i, `grad_weights[i]` times J of i and j.",
        "One of the terms has i = j, and it is p minus p squared. Put the p squared into the sum "
        "with the others.",
        "In that sum $p_j$ is in every term. What is left, summed over i, is one number for a row.",
        "All rows of the result sum to 0: a shift of all scores changes nothing.",
    ),
    explanation="""\
With $J_{ij} = p_i [i = j] - p_i\\, p_j$ and the gradients $g_i$ of the weights the sum is

$$
\\sum_i g_i J_{ij} = p_j\\, g_j - p_j \\sum_i p_i\\, g_i
= p_j \\Big( g_j - \\sum_i p_i\\, g_i \\Big)
$$

In words: a score is worth raising if its word is worth more than the average of what the row
reads, and the more so the more it is read already.
A word with weight 0 gets nothing back, so what is masked is never learned.

$p (1 - p) g$ is the usual slip. It keeps the diagonal of the Jacobian only, and its rows do not sum
to 0: for the example it gives .25 and 0, as if
one weight could rise without another falling.""",
)

# ---- E3.9 ----------------------------------------------------------------------------------------


def read_batch(query, key, value, lengths):
    """Causal attention for a batch of texts with padding in front.

    query, key: (batch, n, d_k). value: (batch, n, d_v). lengths: (batch,), how many of the n
    places of each text are words; they are the last ones -> (batch, n, d_v)
    """
    ...


def read_batch_solution(query, key, value, lengths):
    n = key.shape[1]
    place = np.arange(n)
    not_later = place <= place[:, None]  # (n, n)
    a_word = place >= n - np.asarray(lengths)[:, None, None]  # (batch, 1, n)
    return qn.scaled_dot_product_attention(query, key, value, mask=not_later & a_word)


def _masks(n, lengths):
    """(n, n), the causal mask, and (batch, 1, n), the keys that are words."""
    return qn.causal_mask(n), np.arange(n) >= n - np.asarray(lengths)[:, None, None]


def _batch(texts, n, d_k, d_v):
    generator = np.random.default_rng([texts, n])
    sizes = (texts, n, d_k), (texts, n, d_k), (texts, n, d_v)
    return tuple(np.round(2 * generator.normal(size=size)) for size in sizes)


_BATCH_OF_3, _BATCH_OF_4 = _batch(3, 5, 4, 2), _batch(4, 4, 2, 3)
_LENGTHS_OF_3 = np.array([2, 4, 3])

READ_BATCH = Subject(
    name="batch of texts",
    signature="read_batch(query, key, value, lengths)",
    right=read_batch_solution,
    tiers=(
        (
            call(*_BATCH_OF_3, _LENGTHS_OF_3),
            call(*_BATCH_OF_4, np.array([3, 1, 4, 2])),
            call(*_BATCH_OF_3, np.array([5, 0, 3])),
        ),
        (call(1e4 * _BATCH_OF_3[0], *_BATCH_OF_3[1:], _LENGTHS_OF_3),),
        (afterwards(*_BATCH_OF_3, _LENGTHS_OF_3),),
    ),
    listed=False,
)


def _attend_under(mask, query, key, value):
    return qn.scaled_dot_product_attention(query, key, value, mask=mask)


@READ_BATCH.mistake("Without a word of padding it is right, and no word reads a later one.")
def padding_is_read(query, key, value, lengths):
    """Only the future is closed: what stands in front as padding is read like words."""
    causal, _ = _masks(key.shape[1], lengths)
    return _attend_under(causal, query, key, value)


@READ_BATCH.mistake("Padding is not read, and the last word of each text is right.")
def future_is_read(query, key, value, lengths):
    """Only the padding is closed: a word reads the words after it."""
    _, words = _masks(key.shape[1], lengths)
    return _attend_under(np.broadcast_to(words, (len(key), *2 * key.shape[1:2])), query, key, value)


@READ_BATCH.mistake("Both masks are there, and both are used.")
def or_for_and(query, key, value, lengths):
    """A pair is open if one of the two rules allows it; it takes both."""
    causal, words = _masks(key.shape[1], lengths)
    return _attend_under(causal | words, query, key, value)


@READ_BATCH.mistake("In most batches padding does stand there.")
def padding_at_the_end(query, key, value, lengths):
    """The first `lengths` places are taken for words; here they are the last ones."""
    n = key.shape[1]
    words = np.arange(n) < np.asarray(lengths)[:, None, None]
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


@READ_BATCH.mistake("Where half of a text is padding it is right.")
def lengths_count_the_padding(query, key, value, lengths):
    """`lengths` is taken for the number of places of padding; it counts the words."""
    n = key.shape[1]
    words = np.arange(n) >= np.asarray(lengths)[:, None, None]
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


@READ_BATCH.mistake("Padding gets nothing and gives nothing, it seems: its rows are 0.")
def padding_asks_nothing_but_is_read(query, key, value, lengths):
    """The rows of the padding are closed, not its columns: words still read it."""
    causal, words = _masks(key.shape[1], lengths)
    return _attend_under(causal & words.swapaxes(1, 2), query, key, value)


@READ_BATCH.mistake("With full texts it is right.")
def one_place_too_many(query, key, value, lengths):
    """The last padding before the first word is taken for a word: places count from 0."""
    n = key.shape[1]
    words = np.arange(n) >= n - np.asarray(lengths)[:, None, None] - 1
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


@READ_BATCH.mistake("No padding is read.")
def first_word_closed(query, key, value, lengths):
    """The first word of each text is taken for padding: > for >=."""
    n = key.shape[1]
    words = np.arange(n) > n - np.asarray(lengths)[:, None, None]
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


@READ_BATCH.mistake("All rows of words are right.")
def rows_of_padding_are_nan(query, key, value, lengths):
    """Padding in front may read nothing, and nothing divided by nothing is NaN."""
    causal, words = _masks(key.shape[1], lengths)
    scores = np.where(causal & words, qn.attention_scores(query, key), -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ value


@READ_BATCH.mistake("All rows of words are right, and there is no NaN anywhere.")
def average_of_all_that_is_closed(query, key, value, lengths):
    """-1e9 for -inf: where nothing may be read, the row is the average of everything forbidden."""
    causal, words = _masks(key.shape[1], lengths)
    scores = np.where(causal & words, qn.attention_scores(query, key), -1e9)
    return qn.softmax(scores) @ value


@READ_BATCH.mistake("Next to a score that counts, what is closed is as good as gone.")
def a_billion_added(query, key, value, lengths):
    """-1e9 is added: where all is closed, all scores sink alike, and the row reads everything."""
    causal, words = _masks(key.shape[1], lengths)
    scores = qn.attention_scores(query, key) + np.where(causal & words, 0, -1e9)
    return qn.softmax(scores) @ value


@READ_BATCH.mistake("Both masks are right, and every row of a word sums to 1.")
def _no_scale(query, key, value, lengths):
    """The scores are not divided by sqrt(d_k)."""
    causal, words = _masks(key.shape[1], lengths)
    return qn.scaled_dot_product_attention(query, key, value, mask=causal & words, scale=1.0)


@READ_BATCH.mistake("Rows that may read nothing are 0, without any care.")
def closed_after_the_softmax(query, key, value, lengths):
    """Weights are set to 0 after the softmax, whose sum has counted what is forbidden."""
    causal, words = _masks(key.shape[1], lengths)
    return np.where(causal & words, qn.attention_weights(query, key), 0) @ value


@READ_BATCH.mistake("With as many texts as places nothing is raised.")
def lengths_along_the_queries(query, key, value, lengths):
    """The words have no axis for the queries: text 0 decides for query 0, text 1 for query 1."""
    n = key.shape[1]
    words = np.arange(n) >= n - np.asarray(lengths)[:, None]
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


@READ_BATCH.mistake("In a batch of equal texts it is right.")
def one_length_for_all(query, key, value, lengths):
    """The longest text decides for all of them."""
    n = key.shape[1]
    words = np.arange(n) >= n - np.max(lengths)
    return _attend_under(qn.causal_mask(n) & words, query, key, value)


_SMALL_BATCH = (
    np.zeros((1, 2, 1)),
    np.zeros((1, 2, 1)),
    np.array([[[8.0, 4.0], [2.0, 6.0]]]),
)
_WIDE_BATCH = (
    np.array([[[0.0, 0, 0, 0], [2, 0, 0, 0]]]),
    np.array([[[1.0, 0, 0, 0], [0, 0, 0, 0]]]),
    _SMALL_BATCH[2],
)
_TWO_TEXTS = (
    np.zeros((2, 3, 1)),
    np.zeros((2, 3, 1)),
    np.array([[[6.0, 3], [2, 6], [0, 4]], [[1, 0], [3, 4], [2, 2]]]),
)

E3_9 = Exercise(
    id="E3.9",
    title="Padding in front",
    grade="core",
    kind="fill in",
    minutes=15,
    objective="join two masks for a batch, and leave nothing where nothing may be read",
    section="[Padding](03_computation.ipynb#padding-and-nothing-to-read)",
    task="""\
A model that writes should find the newest word of each text at the same place, the last.
So here padding stands **in front**.

`read_batch(query, key, value, lengths)` takes a batch of texts: queries and keys `(batch, n, d_k)`,
values `(batch, n, d_v)`, and in `lengths (batch,)` how many of the `n` places are words.
It gives `(batch, n, d_v)`, with the division by $\\sqrt{d_k}$ as always.

- A place reads itself and what stands before it, but no padding.
- So a place of padding may read nothing at all: its row is 0.

With queries and keys of 0, the values `[[[8, 4], [2, 6]]]` and `lengths = [1]` give
`[[[0, 0], [2, 6]]]`; with `lengths = [2]` they give `[[[8, 4], [5, 5]]]`.

You may use what you wrote before, or `qkvlib`.""",
    stub=read_batch,
    solution=read_batch_solution,
    checker=Code(
        READ_BATCH,
        cases=(
            case(*_SMALL_BATCH, np.array([2])),
            case(*_SMALL_BATCH, np.array([1])),
            case(*_WIDE_BATCH, np.array([2])),
            case(*_TWO_TEXTS, np.array([3, 2])),
            case(*_TWO_TEXTS, np.array([0, 1])),
            case(*_BATCH_OF_3, _LENGTHS_OF_3),
            case(*_BATCH_OF_4, np.array([3, 1, 4, 2])),
        ),
    ),
    hints=(
        "Write the mask of one text by hand: 3 places, the first of them padding. Which row is "
        "empty?",
        "Two rules, each a comparison: key not later than query, `(n, n)`, and key a word. Which "
        "axes has the second one, if each text has its own?",
        "With `lengths[:, None, None]` the second is `(batch, 1, n)`, and `&` makes `(batch, n, "
        "n)` of the two.",
    ),
    explanation="""\
Both rules must hold, so the masks meet in `&`.
The second has an axis of size 1 for the queries: `(batch, 1, n)` with `(n, n)` is `(batch, n, n)`.
Without that axis, `(batch, n)` lines up as *queries*, and with as many texts as places nothing is
raised.

Rows without anything to read are no rare case here: each place of padding has one.
`qn.scaled_dot_product_attention` answers 0 there. A softmax that divides 0 by 0 fills them with
NaN, and in the next layer NaN is a key and a value for all.

With padding at the end the causal mask alone would keep it from all words: it comes later.""",
)

# ---- E3.10 ---------------------------------------------------------------------------------------


def three_of_eight_solution():
    def effective_number(lead):
        weights = qn.softmax(np.array([lead, 0, 0, 0, 0, 0, 0, 0]))
        return np.exp(-(weights * np.log(weights)).sum())

    low, high = 0.0, 5.0  # 8 with no lead, nearly 1 with a large one
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if effective_number(middle) > 3 else (low, middle)
    return [low, 0, 0, 0, 0, 0, 0, 0]


def _entropy(weights):
    weights = weights[weights > 0]
    return -(weights * np.log(weights)).sum()


def _effective(scores):
    return np.exp(_entropy(qn.softmax(scores)))


def _near(x, wanted, tolerance=1e-3):
    return abs(x - wanted) < tolerance


def _is_three(scores):
    return abs(_effective(scores) - 3) < 1e-6


def _weights_handed_over(scores):
    if _is_three(scores):
        return None
    if scores.min() >= 0 and _near(scores.sum(), 1) and _near(np.exp(_entropy(scores)), 3, 0.1):
        made = _effective(scores)
        return f"the softmax makes weights of them with the effective number {made:.3f}"
    return None


def _even(scores):
    return "all scores are equal: 8 words" if np.ptp(scores) < 1e-9 else None


def _in_bits(scores):
    number = _effective(scores)
    if _is_three(scores):
        return None
    mixed = np.exp(np.log(3) * np.log(2)), 2 ** (np.log(3) / np.log(2) ** 2)
    mixed += (np.exp(np.log2(3)),)
    if any(_near(number, each) for each in mixed):
        return f"the effective number is {number:.4f}"
    return None


def _of_squares(scores):
    weights, number = qn.softmax(scores), _effective(scores)
    if _near(1 / (weights**2).sum(), 3) and not _near(number, 3):
        return f"1 / (sum of squares) is 3, the effective number {number:.4f}"
    return None


def _scaled_again(scores):
    if _is_three(scores):
        return None
    if _near(_effective(scores * 8**0.5), 3) or _near(_effective(scores / 8**0.5), 3):
        return f"the effective number is {_effective(scores):.4f}"
    return None


def _someone_skipped(scores):
    least = qn.softmax(scores).min()
    return f"the smallest weight is {least:.2g}" if least < 0.005 else None


def _only_nearly(scores):
    number = _effective(scores)
    return f"it is {number:.8f}" if 1e-6 <= abs(number - 3) < 0.02 else None


def _not_three(scores):
    return None if _is_three(scores) else f"it is {_effective(scores):.4f}"


E3_10 = Exercise(
    id="E3.10",
    title="Exactly three words",
    grade="challenge",
    kind="design",
    minutes=12,
    objective="find scores for which a row reads a given number of words",
    section="[How many words does a word read?](03_computation.ipynb"
    "#how-many-words-does-a-word-read)",
    task="""\
A word reads eight words. Find eight scores, already divided, for which the effective number of its
row is 3, to within a millionth.

Nobody is left out: each weight must be at least .005.
(Three equal scores and five of -1000 would be too easy.)

Hand over the eight scores. You may let the computer search for them.""",
    stub="three_of_eight = [..., ..., ..., ..., ..., ..., ..., ...]",
    solution=three_of_eight_solution,
    checker=Design(
        shapes={"three_of_eight": (8,)},
        rules=(
            Rule(
                "All scores are equal, so the row reads all eight.",
                _even,
                "even-row",
            ),
            Rule(
                "These look like weights. Scores are what the softmax makes weights of.",
                _weights_handed_over,
                "weights-for-scores",
            ),
            Rule(
                "Two kinds of logarithm are mixed: with `log` for the entropy it is e to the power "
                "of H; with `log2` it would be 2.",
                _in_bits,
                "bits-mixed-with-e",
            ),
            Rule(
                "These were found with another count, one divided by the sum of the squared "
                "weights. The effective number is e to the power of the entropy.",
                _of_squares,
                "inverse-sum-of-squares",
            ),
            Rule(
                "With another scale they would do. They are meant to be divided already: they go "
                "into the softmax as they are.",
                _scaled_again,
                "scaled-once-more",
            ),
            Rule(
                "Some words are left out. Each must keep .005 at least.",
                _someone_skipped,
                "some-left-out",
            ),
            Rule(
                "Very near: the search stopped too early.",
                _only_nearly,
                "stopped-too-early",
            ),
            Rule("The effective number is another one.", _not_three),
        ),
    ),
    hints=(
        "Begin with eight equal scores. What is the effective number, and what does it do when one "
        "score rises?",
        "It falls from 8 towards 1 without a jump, so on the way it is 3.",
        "Halve the interval: where it is above 3, the lead must grow. Fifty halvings are plenty.",
    ),
    explanation="""\
With one lead over seven equal scores the number falls from 8 to 1 and passes 3 at a lead of 2.958.
The first word then has .733, and each of the other seven .038.

There are many solutions, since one condition binds seven free numbers: two leads,
random scores with a factor in front. That factor is what training turns.

Who counts by the squares, $1 / \\sum_j p_j^2$, gives more say to the large weights. For the row
above that count is 1.82: both are in use, so a paper must say which one it means.""",
)

# ---- E3.11 ---------------------------------------------------------------------------------------


def three_masks_solution():
    query, key = np.arange(8)[:, None], np.arange(8)
    not_later = key <= query
    windowed = not_later & ((query - key < 3) | (key == 0))
    prefixed = not_later | ((query < 3) & (key < 3))
    document = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    packed = not_later & (document[:, None] == document)
    return windowed, prefixed, packed


_I, _J = np.arange(8)[:, None], np.arange(8)
_NOT_LATER = _J <= _I
_WINDOWED, _PREFIXED, _PACKED = three_masks_solution()
_SAME = (_I < 3) == (_J < 3)
_SETS = {  # part: {mistake: (mask, what to say)}
    "windowed": {
        "window-one-too-wide": (
            _NOT_LATER & ((_I - _J <= 3) | (_J == 0)),
            "It reads three words back and itself: four.",
        ),
        "window-one-too-narrow": (
            _NOT_LATER & ((_I - _J < 2) | (_J == 0)),
            "It reads itself and one word back: two.",
        ),
        "first-word-forgotten": (
            _NOT_LATER & (_I - _J < 3),
            "The window is there, but who is far along does not read the first word.",
        ),
        "first-word-reads-all": (
            _NOT_LATER & (_I - _J < 3) | (_I == 0),
            "A row was opened, not a column: the first word reads everybody.",
        ),
        "window-on-both-sides": (
            (abs(_I - _J) < 3) | (_J == 0),
            "The window reaches to both sides, and so into the future.",
        ),
        "window-on-both-sides-and-no-first-word": (
            abs(_I - _J) < 3,
            "The window reaches to both sides, and the first word is not always read.",
        ),
        "no-window": (_NOT_LATER, "It is a plain causal mask: nothing far away is closed."),
    },
    "prefixed": {
        "prefix-still-causal": (
            _NOT_LATER,
            "It is a plain causal mask: within the prefix, nobody reads what comes later.",
        ),
        "prefix-reads-the-rest": (
            _NOT_LATER | (_I < 3),
            "The words of the prefix read everything, the rest of the text too.",
        ),
        "prefix-one-too-long": (
            _NOT_LATER | ((_I < 4) & (_J < 4)),
            "Four words read each other, for a prefix of three.",
        ),
        "prefix-one-too-short": (
            _NOT_LATER | ((_I < 2) & (_J < 2)),
            "Two words read each other, for a prefix of three.",
        ),
        "rest-does-not-read-the-prefix": (
            _NOT_LATER & (_I >= 3) & (_J >= 3) | ((_I < 3) & (_J < 3)),
            "The words after the prefix do not read it: it comes before them.",
        ),
        "nothing-but-the-prefix": (
            np.broadcast_to(_J < 3, (8, 8)),
            "Everybody reads the prefix, and nothing else.",
        ),
    },
    "packed": {
        "reads-across-documents": (
            _NOT_LATER,
            "It is a plain causal mask: the second text reads the first.",
        ),
        "future-within-a-document": (
            _SAME,
            "The texts are apart, but within each a word reads what comes later.",
        ),
        "documents-exchanged": (
            _NOT_LATER & ((_I < 5) == (_J < 5)),
            "The first text has five words here, and the second three.",
        ),
        "reads-only-the-other-document": (
            _NOT_LATER & ~_SAME,
            "It reads the other text, and not its own.",
        ),
        "second-document-alone": (
            _NOT_LATER & (_I >= 3) & (_J >= 3),
            "The first text reads nothing, not even itself.",
        ),
    },
}
_RIGHT_SETS = {"windowed": _WINDOWED, "prefixed": _PREFIXED, "packed": _PACKED}
_ORDER = list(_RIGHT_SETS)


def _no_mask(*masks):
    for name, mask in zip(_ORDER, masks):
        odd = mask[(mask != 0) & (mask != 1)]
        if odd.size:
            return f"{name} holds {odd.flat[0]:g}"
    return None


def _all_that(change):
    """A test for a slip that turns right masks into these."""

    def test(*masks):
        for name, mask in zip(_ORDER, masks):
            right = _RIGHT_SETS[name]
            if np.array_equal(mask, change(right)) and not np.array_equal(mask, right):
                return f"{name}, row 7: {_ones(mask[7])}"
        return None

    return test


def _ones(row):
    return " ".join(str(int(each)) for each in row)


def _is_set(name, wrong):
    def test(*masks):
        mask = masks[_ORDER.index(name)]
        if not np.array_equal(mask, wrong):
            return None
        i, j = np.argwhere(wrong != _RIGHT_SETS[name])[0]
        return _pair(name, i, j, mask)

    return test


def _pair(name, i, j, mask):
    verb = "may" if mask[i, j] else "may not"
    return f"{name}: word {i} {verb} read word {j}"


def _first_wrong_pair(*masks):
    for name, mask in zip(_ORDER, masks):
        if (mask != _RIGHT_SETS[name]).any():
            i, j = np.argwhere(mask != _RIGHT_SETS[name])[0]
            return _pair(name, i, j, mask)
    return None


E3_11 = Exercise(
    id="E3.11",
    title="Three other rules",
    grade="core",
    kind="design",
    minutes=15,
    objective="turn a rule on who may read whom into a mask",
    section="[The future](03_computation.ipynb#what-the-steps-do-not-know-the-future)",
    task="""\
Make three masks for a text of eight words, numbered 0 to 7: arrays `(8, 8)`, rows read, True (or 1)
where a word may attend.

- `windowed`, for long texts: a word reads itself and the two before it, and besides always the
  first word of the text, number 0. Nobody reads what comes later.
- `prefixed`, for a question and its answer: the first three words, the question, read each other
  in both directions. All others read themselves and what comes before.
- `packed`, for two texts in one row: words 0 to 2 are one text, 3 to 7 another. A word reads
  itself and what comes before, in its own text only.

Comparisons of `np.arange(8)[:, None]` with `np.arange(8)` are quicker than typing 64 values.""",
    stub="windowed = ...\nprefixed = ...\npacked = ...",
    solution=three_masks_solution,
    checker=Design(
        shapes=dict.fromkeys(_RIGHT_SETS, (8, 8)),
        finite=False,
        rest=three_masks_solution,
        rules=(
            Rule(
                "A mask of this book holds True and False, or 1 and 0; what is added to scores "
                "comes later.",
                _no_mask,
                "numbers-for-a-mask",
            ),
            Rule(
                "It says where a word may **not** attend.",
                _all_that(lambda right: ~right),
                "mask-inverted",
            ),
            Rule(
                "Rows and columns are exchanged: here rows are read.",
                _all_that(lambda right: right.T),
                "mask-transposed",
            ),
            Rule(
                "No word may read itself.",
                _all_that(lambda right: right & (_I != _J)),
                "strict-mask",
            ),
            *(
                Rule(says, _is_set(part, wrong), name)
                for part, sets in _SETS.items()
                for name, (wrong, says) in sets.items()
            ),
            Rule("The first pair that is not as the rule says:", _first_wrong_pair),
        ),
    ),
    hints=(
        "Write each rule as a sentence with *and* and *or*, about the places of query and key.",
        "`key <= query` is the past. The window is *and* a short distance; the first word is *or* "
        "key 0.",
        "For the two texts give each word the number of its text, and compare these numbers.",
    ),
    explanation="""\
A mask is a sentence: `&` for *and*, `|` for *or*, and places to compare.

The first is how long texts are read cheaply. The word that stays open for all gives heads a place
for weight that they have no use for.
The second is for models that get a whole question before they answer.
The third saves padding: several short texts share a row, and must not read each other.

`qkvlib.patterns` writes them as `causal & (window(3) | global_tokens(1))`, nearly, and so on; the
chapter on long sequences returns to that.""",
)

# ---- E3.12 ---------------------------------------------------------------------------------------


def lecture_head(x, W_Q, W_K, W_V):
    """One causal head of a model with many. x: (n, d_model) -> (n, d_v)."""
    n, width = x.shape
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    scores = query @ key.T * width**-0.5
    scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    return qn.softmax(scores) @ value


def lecture_head_solution(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    scores = query @ key.T * key.shape[-1] ** -0.5
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    return qn.softmax(scores) @ value


def _lecture(n, d_model, d_k, d_v):
    generator = np.random.default_rng([n, d_model])
    sizes = (n, d_model), (d_model, d_k), (d_model, d_k), (d_model, d_v)
    return tuple(np.round(generator.normal(size=size), 1) for size in sizes)


_LECTURE = _lecture(5, 12, 4, 3)
_SMALL_HEAD = (
    np.array([[1.0, 0, 0, 0], [2, 0, 0, 0]]),
    np.array([[1.0], [0], [0], [0]]),
    np.array([[1.0], [0], [0], [0]]),
    np.array([[1.0, 0], [0, 0], [0, 0], [0, 1]]),
)

_TWO_COLUMNS = (
    _SMALL_HEAD[0],
    *(np.pad(each, ((0, 0), (0, 1))) for each in _SMALL_HEAD[1:3]),
    np.array([[1.0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0]]),
)

LECTURE_HEAD = Subject(
    name="head of a lecture",
    signature="lecture_head(x, W_Q, W_K, W_V)",
    right=lecture_head_solution,
    tiers=(
        (call(*_LECTURE), call(*_lecture(3, 8, 2, 5)), call(*_SMALL_HEAD)),
        (call(50 * _LECTURE[0], *_LECTURE[1:]),),
        (afterwards(*_LECTURE),),
    ),
    listed=False,
)


def _scaled_by(factor, x, W_Q, W_K, W_V, mask=None):
    mask = qn.causal_mask(len(x)) if mask is None else mask
    return qn.scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V, mask=mask, scale=factor)


@LECTURE_HEAD.mistake("A root of a width is there, and with one head it is right.")
def scaled_by_the_width_of_the_model(x, W_Q, W_K, W_V):
    """The scores are divided by the root of d_model, which is wider than one head's keys."""
    return _scaled_by(x.shape[1] ** -0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("It is still a number that belongs to x.")
def scaled_by_the_number_of_words(x, W_Q, W_K, W_V):
    """The scores are divided by the root of the number of words."""
    return _scaled_by(len(x) ** -0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("Values are often as wide as keys; then it is right.")
def scaled_by_the_width_of_the_values(x, W_Q, W_K, W_V):
    """The scores are divided by the root of d_v; values take no part in them."""
    return _scaled_by(W_V.shape[1] ** -0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("A model learns to live with it.")
def divided_by_the_width_of_the_model(x, W_Q, W_K, W_V):
    """The scores are divided by d_model itself, and that is the wrong width."""
    return _scaled_by(x.shape[1] ** -1.0, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("It is the width of a key at last.")
def divided_by_d_k(x, W_Q, W_K, W_V):
    """The scores are divided by d_k itself: the root is lost."""
    return _scaled_by(W_K.shape[1] ** -1.0, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("It is the width of a key at last, and it reads like a root.")
def divided_by_twice_d_k(x, W_Q, W_K, W_V):
    """In `d_k ** -1 / 2` the power comes first: the scores are divided by d_k, and then by 2."""
    return _scaled_by(0.5 / W_K.shape[1], x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("It is the root of the width of a key at last.")
def multiplied_by_sqrt_d_k(x, W_Q, W_K, W_V):
    """The scores are multiplied by the root of d_k: the minus is lost."""
    return _scaled_by(W_K.shape[1] ** 0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("The wrong scale is gone.")
def no_scale(x, W_Q, W_K, W_V):
    """The scores are not divided at all."""
    return _scaled_by(1.0, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("The right scale is there.")
def scaled_twice(x, W_Q, W_K, W_V):
    """The new division was added, and the old one stayed."""
    return _scaled_by((x.shape[1] * W_K.shape[1]) ** -0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("Scores are larger again, as they should be.")
def multiplied_by_the_width_of_the_model(x, W_Q, W_K, W_V):
    """The minus of the exponent is gone: scores are multiplied by the root of d_model."""
    return _scaled_by(x.shape[1] ** 0.5, x, W_Q, W_K, W_V)


@LECTURE_HEAD.mistake("The scale is right now.")
def mask_lost_on_the_way(x, W_Q, W_K, W_V):
    """The scale is right, but the mask is gone: words read the future."""
    everything = np.ones((len(x), len(x)), bool)
    return _scaled_by(W_K.shape[1] ** -0.5, x, W_Q, W_K, W_V, everything)


E3_12 = Exercise(
    id="E3.12",
    title="The width of the wrong thing",
    grade="core",
    kind="find the bug",
    minutes=8,
    objective="find a wrong divisor in code that trains well",
    section="[The formula](03_computation.ipynb#31-the-formula)",
    task="""\
This head stands in the code of a lecture that many people have copied.
It trains, and the texts it writes are fine.
But somebody compares its maps with those of the formula: all of them are too flat.

Find the line and repair it. `x` is `(n, d_model)`; a head's own matrices are narrower, `W_Q` and
`W_K` `(d_model, d_k)` and `W_V` `(d_model, d_v)`.

After the repair, `x = [[1, 0, 0, 0], [2, 0, 0, 0]]` with `W_Q = W_K = [[1], [0], [0], [0]]` has,
before the mask, the scores 1, 2 and 2, 4.""",
    stub=lecture_head,
    solution=lecture_head_solution,
    checker=Code(
        LECTURE_HEAD,
        does_it=("scaled_dot_product_attention", "attention_weights"),
        cases=(
            case(*_SMALL_HEAD),
            case(*_TWO_COLUMNS),
            case(*_lecture(3, 8, 2, 5)),
            case(*_LECTURE),
        ),
    ),
    hints=(
        "Read the divisor off the weights, as the chapter does, for the example of the task.",
        "`width` is the second size of `x`. How wide is a key?",
        "The second size of the query, of the key, of `W_Q` or of `W_K`: they are all the same.",
    ),
    explanation="""\
`width` is $d_\\text{model}$, and the formula asks for $d_k$, the width of one head's keys.
With one head of full width the two are equal, so a first test does not see it.
In a model with $h$ heads that share the width, scores come out too small by the factor $\\sqrt h$:
for eight heads their standard deviation starts at .35, not 1.

What would notice? Not row sums, and no look at a map. The standard deviation of fresh scores does,
and so does the ratio of two weights.

It is no disaster. Training may enlarge $W_Q$ and make up for the factor, which is why such code
lives long. Real cases: vit-pytorch had it at first (lucidrains/vit-pytorch#65), and notebooks of
lectures have it still.""",
)

# ---- E3.13 ---------------------------------------------------------------------------------------


def sleeping_and_awake_solution():
    asleep = [[0, 0, 2, -2], [1, 3, 5, 5]]  # the key changes, the value does not
    awake = [[0, 0, 2, 2], [1, 3, 5, 9]]  # the value changes
    return asleep, awake


def _moved(numbers, rule):
    """How far the outputs of words 0 and 1 move, and that of word 2, when word 2 changes."""
    (k0, k1, k2, new_key), (v0, v1, v2, new_value) = numbers
    outputs = []
    for key, value in (([k0, k1, k2], [v0, v1, v2]), ([k0, k1, new_key], [v0, v1, new_value])):
        scores = np.tile(np.array(key), (3, 1))
        outputs.append(rule(scores) @ np.array(value))
    moved = np.abs(outputs[1] - outputs[0])
    return moved[:2].max()


_TRIANGLE = np.tri(3, dtype=bool)
_BY_ITSELF = qn.softmax


def _multiplied(scores):
    return qn.softmax(scores * _TRIANGLE)


def _moves(numbers, rule=_multiplied):
    return f"an earlier output moves by {_moved(numbers, rule):.3g}"


def _nothing_changes(numbers):
    return np.array_equal(numbers[:, 2], numbers[:, 3])


def _asleep_unchanged(asleep, awake):
    return "column 2 and column 3 are the same" if _nothing_changes(asleep) else None


def _asleep_alike(asleep, awake):
    same = np.ptp(asleep[1]) < 1e-12
    return f"the values of asleep are all {asleep[1, 0]:g}" if same else None


def _asleep_without_a_mask(asleep, awake):
    still = _moved(asleep, _BY_ITSELF) < 0.01
    return f"asleep, no mask: {_moves(asleep, _BY_ITSELF)}" if still else None


def _asleep_value_moves(asleep, awake):
    if _moved(asleep, _multiplied) < 1e-9 or asleep[1, 2] == asleep[1, 3]:
        return None
    return f"asleep, multiplied mask: {_moves(asleep)}"


def _asleep_moves(asleep, awake):
    return None if _moved(asleep, _multiplied) < 1e-9 else f"asleep: {_moves(asleep)}"


def _awake_unchanged(asleep, awake):
    return "column 2 and column 3 are the same" if _nothing_changes(awake) else None


def _awake_key_alone(asleep, awake):
    if awake[1, 2] != awake[1, 3] or _moved(awake, _multiplied) >= 0.01:
        return None
    return f"awake, multiplied mask: {_moves(awake)}"


def _awake_still(asleep, awake):
    still = _moved(awake, _multiplied) < 0.01
    return f"awake, multiplied mask: {_moves(awake)}" if still else None


E3_13 = Exercise(
    id="E3.13",
    title="A test that sleeps",
    grade="challenge",
    kind="design",
    minutes=12,
    objective="choose inputs on which a test of a mask can fail",
    section="[Two triangles](03_computation.ipynb#two-triangles)",
    task="""\
Somebody multiplies scores by a causal mask of 0 and 1 before the softmax. That is wrong, and yet
the test "change the last word, look at earlier outputs" may miss it.

Three words, with keys and values of one number each. All queries are 1, so a score is the key.
An input is an array `(2, 4)`: the keys `[k0, k1, k2, k2_new]` over the values
`[v0, v1, v2, v2_new]`. The test changes the last word from `k2, v2` to `k2_new, v2_new`.

Hand over two inputs:

- `asleep`: under the multiplied mask no earlier output moves, by not so much as 1e-9, although
  without any mask one would move by .01 or more;
- `awake`: under the multiplied mask an earlier output moves by .01 or more.""",
    stub="asleep = [[..., ..., ..., ...], [..., ..., ..., ...]]\n"
    "awake = [[..., ..., ..., ...], [..., ..., ..., ...]]",
    solution=sleeping_and_awake_solution,
    checker=Design(
        shapes={"asleep": (2, 4), "awake": (2, 4)},
        rules=(
            Rule(
                "In `asleep` the last word does not change at all: such a test finds nothing, "
                "whatever the mask.",
                _asleep_unchanged,
                "nothing-changed",
            ),
            Rule(
                "In `asleep` all values are equal: every average of them is the same.",
                _asleep_alike,
                "values-alike",
            ),
            Rule(
                "In `asleep` no earlier output would move even without a mask: the last word is "
                "hardly read, or its change is too small.",
                _asleep_without_a_mask,
                "last-word-not-read",
            ),
            Rule(
                "In `asleep` an earlier output moves. Its score for the last word is 0 under "
                "this mask. With what weight is the value of that word still read?",
                _asleep_value_moves,
                "value-changed-too",
            ),
            Rule("In `asleep` an earlier output moves.", _asleep_moves),
            Rule(
                "In `awake` the last word does not change.",
                _awake_unchanged,
                "awake-unchanged",
            ),
            Rule(
                "In `awake` only the key changes, and the multiplied mask makes every forbidden "
                "score 0, old or new.",
                _awake_key_alone,
                "key-changed-alone",
            ),
            Rule("In `awake` no earlier output moves by as much as .01.", _awake_still),
        ),
    ),
    hints=(
        "Under the multiplied mask, what is the score of a forbidden word, and what is its power "
        "of e?",
        "So its key does not matter any more. What does?",
        "Change the key alone for one input and the value for the other. Without a mask the first "
        "must show, so the key needs a real change.",
    ),
    explanation="""\
Multiplied by 0 a score is 0, whatever the key was: changing the key alone shows nothing.
But $e^0$ is 1, so the value is still read, and changing it moves the earlier outputs.
In the solution they do not move in the first input, and by up to 1.33 in the second.

There is another way to put the test to sleep: earlier keys so large that a power of 1 vanishes
beside theirs.

A test is worth what its input can show. Change the whole word, key and value, by random numbers,
and first make sure that the test fails without a mask.""",
)

# ---- E3.14 ---------------------------------------------------------------------------------------


def read_the_figure_solution():
    return {"larger": "c", "half": "b", "twentieth": "d", "mean": "c"}


E3_14 = Exercise(
    id="E3.14",
    title="Where the gradient dies",
    grade="core",
    kind="read",
    minutes=6,
    objective="read a figure with logarithmic axes, and say what a mean hides",
    section="[What large scores would spoil](03_computation.ipynb#what-large-scores-would-spoil)",
    task="""\
Look at the figure of the chapter with the size of the Jacobian for nine widths. Both axes are
logarithmic: from one label to the next on the left is a factor of 10.

- `larger`: up to which of the nine widths is the median without the scale at least as large as
  with it?
- `half`: what is the first width at which less than half of it is left?
- `twentieth`: what is the first width at which less than a twentieth is left?
- `mean`: why does the dashed line lie so far above at 1024?""",
    stub="larger = ...\nhalf = ...\ntwentieth = ...\nmean = ...",
    solution=read_the_figure_solution,
    checker=Items(
        {
            "larger": Choice(
                options=(
                    Option(
                        "16",
                        "There the line is highest. It falls from then on, but is still above.",
                        "peak-for-the-crossing",
                    ),
                    Option(
                        "32",
                        "At 32 it is well above. And at the next point?",
                        "crossing-read-too-early",
                    ),
                    Option("64", "At 64 it is 1.2 times as large."),
                    Option(
                        "128",
                        "At 128 the lower line has crossed: compare the point with the level line.",
                        "crossing-read-too-late",
                    ),
                )
            ),
            "half": Choice(
                options=(
                    Option(
                        "64",
                        "Where the lines cross they are equal: nothing is lost yet.",
                        "crossing-for-half",
                    ),
                    Option("128", "At 128 it is .085 against .180."),
                    Option(
                        "256",
                        "Half on a logarithmic axis is a small step, a third of a factor of 10. "
                        "Look one point earlier.",
                        "log-axis-read-as-plain",
                    ),
                    Option(
                        "1024",
                        "That is where the dashed line, the mean, has lost half.",
                        "mean-for-median",
                    ),
                )
            ),
            "twentieth": Choice(
                options=(
                    Option(
                        "128",
                        "At 128 about half is left.",
                        "crossing-for-the-end",
                    ),
                    Option(
                        "256",
                        "At 256 about a ninth is left: .021 against .180.",
                        "tenth-for-twentieth",
                    ),
                    Option(
                        "none of them",
                        "For the dashed line that is true. The question is about the median.",
                        "mean-for-median",
                    ),
                    Option("512", "At 512 it is .0024 against .18, about a seventieth."),
                )
            ),
            "mean": Choice(
                options=(
                    Option(
                        "The seeds differ, and one of them did not vanish.",
                        "The shaded band shows the seeds: even its upper edge is far below.",
                        "seeds-for-rows",
                    ),
                    Option(
                        "It is a mean of logarithms, which is larger.",
                        "It is the plain mean of the sizes, drawn on a logarithmic axis.",
                        "mean-of-logarithms",
                    ),
                    Option(
                        "A few rows that are still soft carry it, while most rows are nearly dead.",
                        "A mean over many small numbers and a few large ones is that of the few.",
                    ),
                    Option(
                        "The gradient does not vanish; the median is wrong.",
                        "Half of the rows lie below the median, so for half of them it is true.",
                        "mean-is-the-truth",
                    ),
                )
            ),
        }
    ),
    hints=(
        "Compare the points of the line that falls with the level line, one width after the other.",
        "A factor of 2 is not quite a third of the way from one label to the next; a factor of 20 "
        "is that much more than a whole way.",
        "For the last one: 256 rows, each with its own size. What does a mean do with a few large "
        "ones?",
    ),
    explanation="""\
The measured ratios are 1.20 at 64, .47 at 128, .11 at 256 and .014 at 512.
So nothing dies at the width of the paper, and nearly everything does at 512, in most rows.

At 1024 the mean is still .38 of the level line, the median .002 of it.
Whoever tests the claim with a mean, or at $d_k = 64$, will say that it is wrong.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (
    *(E3_1, E3_2, E3_3, E3_4, E3_5, E3_6, E3_7),
    *(E3_8, E3_9, E3_10, E3_11, E3_12, E3_13, E3_14),
)

QUIZ = (
    Question(
        "Which of these finds out that scores were divided by $\\sqrt{d_\\text{model}}$ instead of "
        "$\\sqrt{d_k}$?",
        (
            Option(
                "The row sums: with the wrong divisor they are not 1.",
                "Any scores at all have row sums of 1 after a softmax.",
                "row-sums-catch-all",
            ),
            Option(
                "A picture of the weights: the largest is in another place.",
                "A divisor moves no weight past another; the order stays.",
                "scale-moves-the-largest",
            ),
            Option(
                "The ratio of two weights, next to their scores.",
                "The logarithm of the ratio is the difference of the scores over the divisor.",
            ),
            Option(
                "The loss: the model does not learn.",
                "It learns. $W_Q$ may grow and make up for a constant factor.",
                "bugs-stop-training",
            ),
        ),
    ),
    Question(
        "What does the division by $\\sqrt{d_k}$ see to?",
        (
            Option(
                "Fresh scores have variance 1 at any width of a key.",
                "If the numbers in queries and keys have variance 1. Training may change it.",
            ),
            Option(
                "Scores lie between -1 and 1, so that no power of e overflows.",
                "It is no bound: scores of 3 or 4 occur at the start, and larger ones later.",
                "scale-is-a-bound",
            ),
            Option(
                "The weights of a row sum to 1.",
                "That is the softmax, with any divisor.",
                "scale-normalises",
            ),
            Option(
                "Scores have variance 1 during the whole training.",
                "Training makes queries and keys depend on each other. In MiniLM the deviation is "
                "3.1 in the first layer.",
                "variance-one-forever",
            ),
        ),
    ),
    Question(
        "A mask sets forbidden weights to 0 after the softmax. What happens?",
        (
            Option(
                "Nothing bad: the map is a clean triangle.",
                "The picture is clean. The sums, by which all was divided, are not.",
                "clean-triangle-no-leak",
            ),
            Option(
                "The forbidden words are read with a small weight.",
                "Their weight is 0 indeed. They act in another way.",
                "leak-needs-a-weight",
            ),
            Option(
                "It raises, since rows must sum to 1.",
                "Nobody checks that. Rows sum to less, and all goes on.",
                "row-sums-are-checked",
            ),
            Option(
                "The rest still depends on the forbidden scores.",
                "They were divided by a sum that holds the forbidden powers.",
            ),
        ),
    ),
    Question(
        "In `F.scaled_dot_product_attention` a mask says True for a pair; in "
        "`nn.MultiheadAttention` another mask says True for it. May the query attend?",
        (
            Option(
                "Yes, in both: PyTorch means the same by True.",
                "Within PyTorch the two differ.",
                "one-meaning-of-true",
            ),
            Option(
                "Yes in the first, no in the second.",
                "The first means *may attend*, as this book does, the second *must not*.",
            ),
            Option(
                "No in the first, yes in the second.",
                "The other way round: `nn.MultiheadAttention` marks what is forbidden.",
                "mask-inverted",
            ),
        ),
    ),
    Question(
        "A query may attend to nothing. What are its weights?",
        (
            Option(
                "NaN: 0 divided by 0.",
                "In some programs. It is what comes out if nobody cares.",
                "nan-is-the-answer",
            ),
            Option(
                "Equal: it reads the average of everything.",
                "That is what -1e9 leaves in place of $-\\infty$: it reads what is forbidden.",
                "uniform-is-the-answer",
            ),
            Option(
                "That depends on the program.",
                "The formula itself does not say. `qkvlib` answers 0, others NaN or the average.",
            ),
            Option(
                "1 for itself: a word may always read itself.",
                "Only if the mask says so, and this one does not.",
                "self-is-always-allowed",
            ),
        ),
    ),
    Question(
        "A head without positions reads *Emma told Paul he won* after *Paul told Emma he won*. "
        'What does its row for "he" do?',
        (
            Option(
                "The weights move along with the names.",
                "A score depends on what is in two rows and not on where they stand.",
            ),
            Option(
                "Nothing: the weights stay on the same seats.",
                "That is head B, which looks at nothing but seats.",
                "weights-belong-to-seats",
            ),
            Option(
                "It reads the nearest name.",
                "Without positions nobody is near or far.",
                "near-is-known",
            ),
        ),
    ),
    Question(
        "How many of 64 books does a row combine when its scores have the standard deviation 1?",
        (
            Option(
                "One, the best: the others have no weight to speak of.",
                "That is a lookup; it would need scores that are far apart.",
                "hard-lookup",
            ),
            Option(
                "The best few, about five.",
                "The best five have a third of the weight. Small weights add up.",
                "reads-the-best-few",
            ),
            Option(
                "All 64 alike.",
                "That needs equal scores.",
                "scaled-means-uniform",
            ),
            Option(
                "About 41.",
                "By the effective number: six tenths of the library, whatever its size.",
            ),
        ),
    ),
)
