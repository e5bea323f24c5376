"""Exercises of chapter 1: the essence of self-attention."""

import numpy as np

from qkvlib.book.example import COORDINATES, WORDS, X
from qkvlib.book.exercises._answers import Choice, Design, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import Subject
from qkvlib.mistakes._catalogue import afterwards, call

# ---- E1.1 ----------------------------------------------------------------------------------------


def emma_row_solution():
    content = X[:, :4]
    return content @ content[2]


E1_1 = Exercise(
    id="E1.1",
    title="What Emma matches",
    grade="warm-up",
    kind="predict",
    minutes=3,
    objective="compute a row of scores by hand",
    section="[Rule 3: read what is alike](01_essence.ipynb#rule-3-read-what-is-alike)",
    task="""\
*Emma* compares her content with that of each word: the four numbers `name`, `he/she`, `refers`,
`action`, as in rule 3.

Write down the five scores of the row *Emma*, in the order *Paul told Emma he won*.
Use pencil and paper, not the computer.""",
    stub="emma_row = [..., ..., ..., ..., ...]  # Paul told Emma he won",
    solution=emma_row_solution,
    checker=Numbers(
        right=emma_row_solution,
        labels=WORDS,
        slips={
            "seats-compared-too": Slip(
                lambda: X @ X[2],
                "These scores compare the seats as well. Content is the first four numbers alone.",
            ),
            "signs-lost": Slip(
                lambda: abs(X[:, :4]) @ abs(X[2, :4]),
                "A minus is lost: where signs differ, a product takes away from the score.",
            ),
            "row-of-another-word": Slip(
                lambda: X[:, :4] @ X[0, :4],
                "This is the row of Paul. Which word asks here?",
            ),
            "products-not-added": Slip(
                lambda: X[2, [0, 1, 2, 3, 3]],
                "These look like the numbers of Emma herself. A score is a sum of products.",
            ),
        },
    ),
    hints=(
        "Begin with the word that is least like her. Which of her numbers are not 0?",
        "Only `name` and `he/she` of Emma are not 0, so the rest never matters: "
        "each score is 1 times `name` of the other word, minus 1 times its `he/she`.",
        "*He* has `name` 0 and `he/she` 1. Now do the same with the other four.",
    ),
    explanation="""\
Emma is `name` 1 and `he/she` -1, so her score with a word is the word's `name` minus its `he/she`.
With Paul the two cancel, and the score is 0: a name like her, of another kind.
Against "he" it is even -1, below the two verbs, which have nothing to do with her at all.

If you had -0.7 for "he" or 0.7 for *told*, you compared the seats too.""",
)

# ---- E1.2 ----------------------------------------------------------------------------------------


def equal_scores_solution():
    return "c"


E1_2 = Exercise(
    id="E1.2",
    title="Five low scores",
    grade="warm-up",
    kind="choose",
    minutes=2,
    objective="say why a low score does not skip a word",
    section="[Is anything skipped?](01_essence.ipynb#is-anything-skipped)",
    task="""\
A word has the score -10 with each of the five words, itself included.
Which weights does it give them?""",
    stub='equal_scores = ...  # a letter, as in "a"',
    solution=equal_scores_solution,
    checker=Choice(
        options=(
            Option(
                "All are 0: nothing matches, so nothing is read.",
                "The weights of a row always make 1. A word cannot read nothing.",
                "low-score-means-skip",
            ),
            Option(
                "All are about 0.00005, the power of $e$ with -10.",
                "That is each number before it is divided by their sum.",
                "not-normalised",
            ),
            Option(
                "Each is 1/5.",
                "Only differences of scores count, and here there are none.",
            ),
            Option(
                "There are none: softmax needs a positive score somewhere.",
                "A power of e is positive whatever the score, so softmax can always divide.",
                "needs-positive-scores",
            ),
        )
    ),
    hints=(
        "Which two steps make weights of scores? Do the first one on a single score.",
        "All five powers of $e$ are the same number. What is its share of the five?",
    ),
    explanation="""\
All five powers of $e$ are equal, so each is a fifth of their sum, however small they are.
With 10 in place of -10 the weights are the same.
A score says nothing by itself; what counts is how far it lies above or below the others.""",
)

# ---- E1.3 ----------------------------------------------------------------------------------------


def window_reader(x, back):
    """What each word gets from the words before it.

    x: (n, d), one row for each word. back: how many words it looks back, at least 1
    -> (n, d): row t is the average of the rows of x from t - back to t - 1, as far as there are
    such; row 0, which has none before it, is zero
    """
    ...


def window_reader_solution(x, back):
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t].mean(axis=0)
    return read


_WORDS = np.array([[2.0, 0.0], [4.0, 6.0], [0.0, 3.0], [1.0, 1.0]])
_MANY = np.random.default_rng(13).normal(size=(7, 3))

WINDOW_READER = Subject(
    name="window reader",
    signature="window_reader(x, back)",
    right=window_reader_solution,
    tiers=(
        (call(_WORDS, 1), call(_MANY, 2), call(_MANY, 3), call(_MANY[:3], 1)),
        (call(_MANY, 9),),
        (afterwards(_MANY, 2),),
    ),
    listed=False,
)


@WINDOW_READER.mistake("Every row but the first ones is right, and nothing is raised.")
def wraps_around(x, back):
    """At the start it takes words from the end: -1 counts from behind."""
    return np.array([np.mean([x[t - k] for k in range(1, back + 1)], 0) for t in range(len(x))])


@WINDOW_READER.mistake("With one column more it has the right shape.")
def mean_over_the_coordinates(x, back):
    """The mean is taken along a word's own numbers, not over the words."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t].mean(axis=-1).mean()
    return read


@WINDOW_READER.mistake("The first row is not empty, which looks like an improvement.")
def includes_itself(x, back):
    """The word itself is in its window: the slice ends one too late."""
    return np.array([x[max(0, t - back) : t + 1].mean(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("From row `back` on it is right.")
def divided_by_the_whole_window(x, back):
    """At the start there are fewer words than `back`, and the sum is divided by `back` even so."""
    rows = [x[max(0, t - back) : t].sum(axis=0) / back for t in range(len(x))]
    return np.array(rows)


@WINDOW_READER.mistake("With back = 1 it is right.")
def only_the_farthest(x, back):
    """It reads the one word that is `back` places away, and not the average of those between."""
    read = np.zeros(x.shape)
    read[back:] = x[:-back] if back < len(x) else 0
    return read


@WINDOW_READER.mistake("An average of neighbours, and the last row is the empty one.")
def looks_ahead(x, back):
    """It reads the words that come after."""
    read = np.zeros(x.shape)
    for t in range(len(x) - 1):
        read[t] = x[t + 1 : t + 1 + back].mean(axis=0)
    return read


E1_3 = Exercise(
    id="E1.3",
    title="A reader that looks back",
    grade="core",
    kind="fill in",
    minutes=8,
    objective="write a rule for reading as an average of rows",
    section="[Rule 2: read at a fixed distance](01_essence.ipynb#rule-2-read-at-a-fixed-distance)",
    task="""\
Rules 1 and 2 in one: each word reads the words just before it, all alike.

`window_reader(x, back)` takes the rows of a sentence, `x (n, d)`, and gives an array `(n, d)`: row
`t` is the average of the `back` rows before row `t`.
Near the start there are fewer, and it is the average of those.
The first word has nothing before it, and its row is zero.

For `x = [[2, 0], [4, 6], [0, 3]]` and `back = 2` the rows are `[0, 0]`, `[2, 0]` and `[3, 3]`.""",
    stub=window_reader,
    solution=window_reader_solution,
    checker=Code(
        WINDOW_READER,
        cases=(
            case(_WORDS[:1], 1),
            case(_WORDS[:2], 1),
            case(_WORDS[:3], 1),
            case(_WORDS[:3], 2),
            case(_WORDS, 2),
            case(_WORDS, 9),
        ),
        equal=case(_WORDS[2:], 2),
    ),
    hints=(
        "Look at row 0 and row 1 of your result before all others.",
        "The rows before row `t` are a slice of `x`. Where must it begin when `t` is less than "
        "`back`?",
        "`max(0, ...)` keeps the start of the slice from going below 0; the mean runs over the "
        "words, which is axis 0.",
    ),
    explanation="""\
A slice that begins at `t - back` begins below 0 for the first words, and Python counts that from
the end: no error, but words from the end of the sentence leak into the start.
That is why the first rows are the ones to look at.
`mean` of the slice divides by the number of words that are really there.

The same as weights: row `t` of a matrix `(n, n)` holds one over their number in the columns of
those words and 0 elsewhere, and `weights @ x` reads them all at once.
Rules of this kind are *masks* in chapter 3.""",
)

# ---- E1.4 ----------------------------------------------------------------------------------------


def blend(scores, values):
    """The average of values, weighted by the softmax of scores, for one reading word.

    scores: (n,). values: (n, d) -> (d,), the same numbers as softmax(scores) @ values
    """
    ...


def blend_solution(scores, values):
    powers = np.exp(scores - np.max(scores))
    weights = powers / powers.sum()
    return weights @ values


_SCORES = np.array([2.0, 0.0, -1.0, 0.5])
_VALUES = np.array([[1.0, 0.0], [0.0, 4.0], [2.0, 2.0], [-3.0, 1.0]])

BLEND = Subject(
    name="blend",
    signature="blend(scores, values)",
    right=blend_solution,
    tiers=(
        (call(_SCORES, _VALUES), call(_SCORES[:3], _VALUES[:3]), call(_SCORES[:2], _VALUES[:2])),
        (call(_SCORES - 50, _VALUES),),
        (call(_SCORES.astype(int), _VALUES.astype(int)),),
        (call(_SCORES + 1000, _VALUES), call(_SCORES - 1000, _VALUES)),
        (afterwards(_SCORES, _VALUES),),
    ),
    listed=False,
)


@BLEND.mistake("The largest score has the largest say.")
def not_normalised(scores, values):
    """The powers of e are used as they are: nothing makes them 1 in sum."""
    return np.exp(scores) @ values


@BLEND.mistake("The weights make 1, and for positive scores they are all positive.")
def scores_as_weights(scores, values):
    """The scores are divided by their sum, without powers of e: some weights are negative."""
    return scores / scores.sum() @ values


@BLEND.mistake("On scores of usual size it is right to the last digit.")
def no_shift(scores, values):
    """e to the power of 1000 is too large for the computer: take the largest score away first."""
    powers = np.exp(scores)
    return powers / powers.sum() @ values


@BLEND.mistake("What comes back is right.")
def scores_changed_in_place(scores, values):
    """`-=` writes into the caller's scores."""
    if scores.dtype.kind == "f":
        scores -= scores.max()
    else:
        scores = scores - scores.max()
    powers = np.exp(scores)
    return powers / powers.sum() @ values


@BLEND.mistake("A number for each word, and the weights make 1.")
def values_not_added_up(scores, values):
    """Each value is multiplied by its weight, and the products are never added up."""
    powers = np.exp(scores - scores.max())
    return (powers / powers.sum())[:, None] * values


@BLEND.mistake("It answers with one of the values, so it looks decided.")
def only_the_best(scores, values):
    """It takes the value with the highest score alone: a lookup, not an average."""
    return values[np.argmax(scores)] * 1.0


E1_4 = Exercise(
    id="E1.4",
    title="One word reads",
    grade="core",
    kind="fill in",
    minutes=8,
    objective="turn a row of scores into weights and read with them",
    section="[From scores to weights](01_essence.ipynb#from-scores-to-weights)",
    task="""\
Write attention for a single reading word, with NumPy and without `qkvlib`.

`blend(scores, values)` takes the scores of one row, `(n,)`, and a row of values for each word,
`(n, d)`. It gives their average `(d,)`, with weights that are positive and make 1: the softmax of
the scores.

Two equal scores and the values `[1, 0]` and `[3, 4]` give `[2, 2]`.
Your function will be asked with scores of 1000 too.""",
    stub=blend,
    solution=blend_solution,
    checker=Code(
        BLEND,
        cases=(
            case(np.array([0.0, 0.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([0.0, 1.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([0, 1]), np.array([[1, 0, 2], [3, 4, 0]])),
            case(np.array([0.0, 1000.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(_SCORES, _VALUES),
        ),
        equal=case(_SCORES[:2], _VALUES[:2]),
    ),
    hints=(
        "Three steps: powers of e, divided by their sum, and then the average.",
        "What happens to the weights when the same number is taken away from all scores?",
        "Nothing happens to them. So take the largest score away before `np.exp`, and no power "
        "is larger than 1.",
    ),
    explanation="""\
Taking the largest score away multiplies every power by the same number, which the division takes
out again; the weights are the same, and $e^0 = 1$ is the largest power there is.
Without it `np.exp(1000)` is infinite, and infinity divided by infinity is not a number: `nan`.

`weights @ values` is short for the loop of the chapter, weight times row, added up.
`(weights[:, None] * values).sum(axis=0)` does the same,
and so does `np.einsum("n,nd->d", weights, values)`.""",
)

# ---- E1.5 ----------------------------------------------------------------------------------------


def loudest_solution():
    return "b"


E1_5 = Exercise(
    id="E1.5",
    title="A row of a real head",
    grade="core",
    kind="read",
    minutes=4,
    objective="read a row of a real map, and say what it does not prove",
    section="[A real model](01_essence.ipynb#a-real-model)",
    task="""\
Look at the two pictures of head L1H3 in the chapter, and at the table below them.

Which token does "he" read most, and what follows from that?""",
    stub="loudest = ...  # a letter",
    solution=loudest_solution,
    checker=Choice(
        options=(
            Option(
                "Paul, with 0.39: the head has understood the sentence.",
                "0.39 is what Paul gets. Another token gets more: add up what the names leave.",
                "the-name-must-be-loudest",
            ),
            Option(
                "`[CLS]`: a head must spend its whole weight, and parks what it has no use for.",
                "Among the words it reads Paul most, but the largest part of the row lies on a "
                "token that stands for no word.",
            ),
            Option(
                "`[CLS]`: the start of the text is what the sentence is about.",
                "`[CLS]` stands for no word. Weight on it tells of what the head did not find.",
                "parked-weight-is-meaning",
            ),
            Option(
                "Emma, for she is read by Paul's row.",
                "That goes down a column. The row of the reader says what it reads.",
                "row-and-column-confused",
            ),
        )
    ),
    hints=(
        "Rows read, columns are read. Which row do you need?",
        "Paul and Emma get 0.47 together. Where is the rest?",
    ),
    explanation="""\
The row of "he" makes 1, and the two names have less than half of it.
`[CLS]` holds a large part: the row must make 1 even where a head finds little.
What a head reads most is not what it is about, and what it reads is not yet what a model uses.""",
)

# ---- E1.6 ----------------------------------------------------------------------------------------


def skipping_weights(weights, least=0.05):
    """Weights (..., n) in which every weight below `least` is 0: the reader skips these words."""
    return np.where(weights < least, 0, weights)


def skipping_weights_solution(weights, least=0.05):
    kept = np.where(weights < least, 0, weights)
    return kept / kept.sum(axis=-1, keepdims=True)


_WEIGHTS = np.array([[0.6, 0.02, 0.03, 0.35], [0.25, 0.25, 0.25, 0.25], [0.04, 0.9, 0.05, 0.01]])
_BATCH = np.stack([_WEIGHTS, _WEIGHTS[::-1]])

SKIPPING_WEIGHTS = Subject(
    name="skipping weights",
    signature="skipping_weights(weights, least=0.05)",
    right=skipping_weights_solution,
    tiers=(
        (call(_WEIGHTS), call(_WEIGHTS[:2], least=0.1), call(_BATCH)),
        (call(_WEIGHTS[0]),),
        (afterwards(_WEIGHTS),),
    ),
    listed=False,
)


@SKIPPING_WEIGHTS.mistake("The small weights are gone, and the others are what they were.")
def rows_not_one(weights, least=0.05):
    """What was cut is missing: the rows make less than 1, and everything that is read shrinks."""
    return np.where(weights < least, 0, weights)


@SKIPPING_WEIGHTS.mistake("There is a division by a sum, as in softmax.")
def divided_by_the_sum_of_columns(weights, least=0.05):
    """The sum runs over the readers, down each column, not over what one of them reads."""
    kept = np.where(weights < least, 0, weights)
    total = kept.sum(axis=-2 if kept.ndim > 1 else -1, keepdims=True)
    return kept / np.where(total == 0, 1, total)


@SKIPPING_WEIGHTS.mistake("All numbers together make 1.")
def divided_by_the_sum_of_all(weights, least=0.05):
    """One sum for the whole array: each row makes far less than 1."""
    kept = np.where(weights < least, 0, weights)
    return kept / kept.sum()


@SKIPPING_WEIGHTS.mistake("Rows make 1 again, by the means that made weights of scores.")
def softmax_of_weights(weights, least=0.05):
    """A second softmax: a weight of 0 becomes positive again, and the row is nearly flat."""
    kept = np.where(weights < least, 0, weights)
    powers = np.exp(kept)
    return powers / powers.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("Rows make 1.")
def the_rest_to_the_largest(weights, least=0.05):
    """What was cut goes to the largest weight alone, and the ratios of the others change."""
    kept = np.where(weights < least, 0, weights)
    best = np.arange(weights.shape[-1]) == weights.argmax(axis=-1)[..., None]
    return kept + best * (1 - kept.sum(axis=-1, keepdims=True))


E1_6 = Exercise(
    id="E1.6",
    title="A reader that skips",
    grade="challenge",
    kind="find the bug",
    minutes=10,
    objective="repair weights so that every row makes 1",
    section="[From scores to weights](01_essence.ipynb#from-scores-to-weights)",
    task="""\
Somebody wants a model that really skips words: every weight below 0.05 becomes 0.
The code below does that, and afterwards everything the model reads is a little too small.

Say to yourself what is broken. Then repair it: what is cut stays 0, the weights that are left keep
their ratios, and each row along the last axis makes 1 again.
`weights` may have any number of axes, and no row has only weights below `least`.""",
    stub=skipping_weights,
    solution=skipping_weights_solution,
    checker=Code(
        SKIPPING_WEIGHTS,
        cases=(
            case(np.array([0.97, 0.03])),
            case(np.array([[0.97, 0.03, 0.0], [0.5, 0.25, 0.25]])),
            case(_WEIGHTS),
            case(_BATCH, least=0.1),
        ),
    ),
    hints=(
        "Compute the sum of each row before and after.",
        "What must a row be divided by, so that it makes 1 and its ratios stay?",
        "By its own sum. `keepdims=True` keeps the axis, so that each row meets its own.",
    ),
    explanation="""\
What was cut is missing from the row, and an average whose weights make 0.95 is 5 % too small.
Dividing the row by its own sum hands the rest out in proportion.

`keepdims=True` matters: without it an array `(n, n)` divided by sums `(n,)` divides each *column*
by the sum of another row, and with as many words as readers nothing raises.

Even so, is it a good idea? The gradient of a weight that is cut is 0, so the model cannot learn
that the word would have mattered.""",
)

# ---- E1.7 ----------------------------------------------------------------------------------------


def one_number_solution():
    return 2, 1, 2  # row Emma, column he/she


def _changed(change):
    content = X[:, :4].copy()
    row, column, value = change
    content[int(row), int(column)] = value
    return content


def _whole_and_inside(change):
    row, column, _ = change
    if row != int(row) or column != int(column) or not (0 <= row < 5 and 0 <= column < 4):
        return f"row {row:g}, column {column:g}: rows are 0 to 4, columns 0 to 3"
    return None


def _other_row(change):
    return f"row {change[0]:g} is the row of he" if change[0] == 3 else None


def _emma_ahead(change):
    content = _changed(change)
    scores = content @ content[3]
    if scores[2] > scores[0] + 0.5:
        return None
    return f"he scores {scores[0]:g} with Paul and {scores[2]:g} with Emma"


def _no_tie(change):
    content = _changed(change)
    scores = content @ content[3]
    if 0 <= scores[2] - scores[0] <= 0.5:
        return f"he scores {scores[0]:g} with Paul and {scores[2]:g} with Emma: too close"
    return None


E1_7 = Exercise(
    id="E1.7",
    title="One number decides",
    grade="challenge",
    kind="design",
    minutes=8,
    objective="say which number of a word decides whom a pronoun reads",
    section="[Rule 3: read what is alike](01_essence.ipynb#rule-3-read-what-is-alike)",
    task=f"""\
In rule 3 "he" scores Paul above Emma.
Change **one** number, in the row of another word than "he", so that it scores Emma at least 0.6
above Paul.

Give the row (0 to 4, in the order *{" ".join(WORDS)}*), the column (0 to 3, in the order
{", ".join(COORDINATES[:4])}) and the new value, as in `(4, 3, 0.5)`.""",
    stub="one_number = (..., ..., ...)  # row, column, value",
    solution=one_number_solution,
    checker=Design(
        shapes={"one_number": (3,)},
        rules=(
            Rule("Row and column must be whole numbers of the table.", _whole_and_inside),
            Rule(
                "The pronoun stays as it is: what changes is whom it finds.",
                _other_row,
                "pronoun-changed",
            ),
            Rule("Emma does not win clearly: make the distance larger.", _no_tie, "only-a-tie"),
            Rule("Paul still scores more than Emma.", _emma_ahead),
        ),
    ),
    hints=(
        'Which numbers of Paul and Emma meet a number of "he" that is not 0?',
        '"He" has `he/she` 1 and `refers` 1. `name` cannot help, for "he" has 0 there.',
        "There are several ways: Emma's `he/she` or `refers` up, or Paul's down.",
    ),
    explanation="""\
A score is a sum of products, and only where "he" itself has something can the other word's number
count: in the columns `he/she` and `refers`.
So there are four numbers that can do it, those of Paul and of Emma in these two columns.
Here Emma becomes he-like, and more so than Paul: her `he/she` goes from -1 to 2.
With 1 the two would tie.

To raise Emma's `name` does nothing at all, however far: "he" does not look there.
That will be the work of the *query* in chapter 2.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (E1_1, E1_2, E1_3, E1_4, E1_5, E1_6, E1_7)

QUIZ = (
    Question(
        "What does attention hand to a word?",
        (
            Option(
                "The word that matches best.",
                "That is a lookup. Attention takes something of every word, much of some.",
                "hard-lookup",
            ),
            Option(
                "An average of what all words hold, with weights from comparing.",
                "Weights that are positive and make 1, and a sum over all words.",
            ),
            Option(
                "The sum of all scores.",
                "Scores only decide the weights. What is added up is what the words hold.",
                "scores-are-the-output",
            ),
        ),
    ),
    Question(
        "All scores of a row are raised by 7. What happens to its weights?",
        (
            Option("Nothing.", "The factor $e^7$ stands in every power and in their sum."),
            Option(
                "They grow by a factor of $e^7$.",
                "The powers do, and their sum does too; the shares stay.",
                "shift-changes-the-weights",
            ),
            Option(
                "The row becomes sharper.",
                "A row becomes sharper when scores are multiplied, not when they are shifted.",
                "shift-for-stretch",
            ),
        ),
    ),
    Question(
        "Two sentences hold the same words in another order. What can rule 3, on content alone, "
        "tell about the order?",
        (
            Option(
                "What a word reads first.",
                "A word reads all words at once; there is no first.",
                "reads-from-left-to-right",
            ),
            Option(
                "Nothing: the weights move along with the words.",
                "Shuffle the rows, and the outputs are the same ones, shuffled.",
            ),
            Option(
                "Which words are neighbours.",
                "Nothing in the content says where a word stands.",
                "neighbours-are-known",
            ),
        ),
    ),
    Question(
        "A score of -3 gives a weight that is ...",
        (
            Option(
                "negative.",
                "A power of $e$ is never negative.",
                "negative-score-negative-weight",
            ),
            Option("zero.", "Small, perhaps; but nobody is skipped.", "low-score-means-skip"),
            Option(
                "positive, and how large depends on the other scores.",
                "If all others are -9, it is nearly 1.",
            ),
        ),
    ),
    Question(
        "Before training, what does a head of random numbers read?",
        (
            Option(
                "Roughly everything alike.",
                "In the chapter each of 12 tokens got about 1/12. Training decides what is right.",
            ),
            Option(
                "The important words.",
                "Important for what? Only a task and its training say so.",
                "attention-knows-what-matters",
            ),
            Option(
                "Only itself.",
                "Its own row does not stand out: query and key are made by different matrices.",
                "diagonal-before-training",
            ),
        ),
    ),
    Question(
        "A head of a real model gives 0.39 to the right name in one sentence. What has been shown?",
        (
            Option(
                "The head resolves pronouns.",
                "One sentence, chosen together with the head. In 900 it was right in 766, and in "
                "one kind of four no better than a coin.",
                "one-sentence-proves",
            ),
            Option(
                "That the model uses this name.",
                "A weight shows what is read, not what is made of it.",
                "weights-are-explanations",
            ),
            Option(
                "That it reads this name in this sentence; for more one must count.",
                "And compare with a coin, and with the other heads.",
            ),
        ),
    ),
)
