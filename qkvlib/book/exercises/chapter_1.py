"""Exercises of chapter 1: the essence of self-attention."""

import numpy as np

import qkvlib.numpy as qn
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


def _row_of(word):
    return X[:, :4] @ X[WORDS.index(word), :4]


def _one_sign_turned(word):
    row = _row_of("Emma")
    return np.where([each == word for each in WORDS], -row, row)


def _with(word, score):
    return np.where([each == word for each in WORDS], score, _row_of("Emma"))


def _cosines():
    lengths = np.linalg.norm(X[:, :4], axis=1)
    return _row_of("Emma") / lengths / lengths[2]


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
            "minus-lost-with-he": Slip(
                lambda: _one_sign_turned("he"),
                'One sign is off, that of the score with "he". What is -1 times 1?',
            ),
            "minus-lost-with-paul": Slip(
                lambda: _with("Paul", abs(X[0, :4]) @ abs(X[2, :4])),
                "One score is off, that with Paul: their `name` agrees, and their `he/she` does "
                "not. What does each of the two add?",
            ),
            "minus-times-minus": Slip(
                lambda: _with("Emma", 0),
                "Emma's score with herself is not 0: she is like herself. What is -1 times -1?",
            ),
            "row-of-another-word": Slip(
                lambda: _row_of("Paul"),
                "This is the row of Paul. Which word asks here?",
            ),
            "row-of-he": Slip(
                lambda: _row_of("he"),
                'This is the row of "he", as the chapter has it. Which word asks here?',
            ),
            "weights-for-scores": Slip(
                lambda: qn.softmax(_row_of("Emma")),
                "These are Emma's weights, after softmax. The scores come before them.",
            ),
            "divided-by-lengths": Slip(
                _cosines,
                "These are cosines: each score is divided by the lengths of the two rows. "
                "Rule 3 only adds up products.",
            ),
            "equal-numbers-counted": Slip(
                lambda: (X[:, :4] == X[2, :4]).sum(axis=1),
                "This counts the places where the two rows agree. A place where one of them is 0 "
                "should count for nothing.",
            ),
            "name-alone": Slip(
                lambda: X[:, 0] * X[2, 0],
                "Only `name` is counted. Emma has another number that is not 0.",
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

If you had -0.3 for "he" and 0.7 for *told*, you compared the seats too.""",
)

# ---- E1.2 ----------------------------------------------------------------------------------------


def low_scores_solution():
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
A word has the score -10 with each of four words, and -9 with the fifth.
Which weights does it give them?""",
    stub='low_scores = ...  # a letter, as in "a"',
    solution=low_scores_solution,
    checker=Choice(
        options=(
            Option(
                "All are 0: nothing matches, so nothing is read.",
                "The weights of a row always make 1. A word cannot read nothing.",
                "low-score-means-skip",
            ),
            Option(
                "About 0.00005 for each of the four, and 0.0001 for the fifth.",
                "These are the powers of e. Do they make 1 together?",
                "not-normalised",
            ),
            Option(
                "About 0.15 for each of the four, and 0.40 for the fifth.",
                "One step in the score is a factor of 2.718 in the weight, at -10 as anywhere.",
            ),
            Option(
                "About 0.20 for each: beside scores as low as -10, one step hardly counts.",
                "How far a score lies from 0 does not matter, only how far from the others. "
                "Which factor is one step?",
                "step-counts-by-its-share",
            ),
        )
    ),
    hints=(
        "What happens to the weights if you add 10 to all five scores?",
        "Nothing happens to them. So the scores may as well be 0, 0, 0, 0 and 1.",
        "Then four powers of $e$ are 1 and the fifth is 2.718. What is the share of each?",
    ),
    explanation="""\
With 10 added the scores are 0, 0, 0, 0 and 1, and the weights are the same.
The powers of $e$ are 1, 1, 1, 1 and 2.718, in sum 6.718: weights of 0.149 and 0.405.
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


@WINDOW_READER.mistake("With back = 1 it is right.", variant_of="wraps-around")
def wraps_around_after_the_first_row(x, back):
    """Row 0 is zero, but row 1 takes words from the end: an index below 0 counts from behind."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        for k in range(1, back + 1):
            read[t] += x[t - k] / back
    return read


@WINDOW_READER.mistake("It divides by the right number.", variant_of="wraps-around")
def wraps_around_and_divides_rightly(x, back):
    """At the start it adds words from the end: an index below 0 counts from behind."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = sum(x[t - k] for k in range(1, back + 1)) / min(t, back)
    return read


@WINDOW_READER.mistake("From row `back` on it is right.")
def empty_slice(x, back):
    """Near the start the slice begins below 0, which counts from the end: nothing is in it."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[t - back : t].mean(axis=0)
    return read


@WINDOW_READER.mistake("From row `back` on it is right.", variant_of="empty-slice")
def empty_slice_in_row_0_too(x, back):
    """Near the start the slice is empty, in row 0 too, and the mean of nothing is no number."""
    return np.array([x[t - back : t].mean(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("No nan anywhere, and row 0 is zero.", variant_of="empty-slice")
def empty_slice_added_up(x, back):
    """Near the start the slice begins below 0 and is empty, and the sum of nothing is 0."""
    return np.array([x[t - back : t].sum(axis=0) / back for t in range(len(x))])


@WINDOW_READER.mistake("From row `back` on it is right.")
def only_whole_windows(x, back):
    """A row with fewer than `back` words before it reads nothing, and not those that are there."""
    read = np.zeros(x.shape)
    for t in range(back, len(x)):
        read[t] = x[t - back : t].mean(axis=0)
    return read


@WINDOW_READER.mistake("From row 1 on it is right.")
def mean_of_nothing(x, back):
    """Row 0 has nothing before it, and the mean of nothing is no number."""
    return np.array([x[max(0, t - back) : t].mean(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("From row 1 on it is right, and row 0 looks better than zeros.")
def first_reads_itself(x, back):
    """The first row is the word itself, and it should be zero: nothing stands before it."""
    read = x.copy()
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t].mean(axis=0)
    return read


@WINDOW_READER.mistake("With back = 1, or as many words as columns, nothing is raised.")
def mean_over_the_coordinates(x, back):
    """The mean is taken along a word's own numbers, not over the words."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t].mean(axis=1)
    return read


@WINDOW_READER.mistake("With one column it is right.", variant_of="mean-over-the-coordinates")
def one_mean_of_all(x, back):
    """Without an axis the mean is one number for all columns together."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t].mean()
    return read


@WINDOW_READER.mistake("The first row is not empty, which looks like an improvement.")
def includes_itself(x, back):
    """The word itself is in its window: the slice ends one too late."""
    return np.array([x[max(0, t - back) : t + 1].mean(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("Row 0 is zero, as it should be.", variant_of="includes-itself")
def includes_itself_after_the_first_row(x, back):
    """Row 0 is zero, but from row 1 on the word itself is in its window."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t - back) : t + 1].mean(axis=0)
    return read


@WINDOW_READER.mistake("It is an average of `back` words.", variant_of="includes-itself")
def ends_with_itself(x, back):
    """The window has the right length, but ends with the word itself, not with the one before."""
    return np.array([x[max(0, t + 1 - back) : t + 1].mean(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("It is an average of `back` words.", variant_of="includes-itself")
def ends_with_itself_after_the_first_row(x, back):
    """Row 0 is zero, but each window after it ends with the word itself, not the one before."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[max(0, t + 1 - back) : t + 1].mean(axis=0)
    return read


@WINDOW_READER.mistake("From row `back` on it is right.")
def divided_by_the_whole_window(x, back):
    """At the start there are fewer words than `back`, and the sum is divided by `back` even so."""
    rows = [x[max(0, t - back) : t].sum(axis=0) / back for t in range(len(x))]
    return np.array(rows)


@WINDOW_READER.mistake("With back = 1 it is right.")
def added_up_alone(x, back):
    """The rows are added up and never divided by their number."""
    return np.array([x[max(0, t - back) : t].sum(axis=0) for t in range(len(x))])


@WINDOW_READER.mistake("With back = 1 it is right.")
def only_the_farthest(x, back):
    """It reads the one word that is `back` places away, and not the average of those between."""
    read = np.zeros(x.shape)
    read[back:] = x[:-back] if back < len(x) else 0
    return read


@WINDOW_READER.mistake("With back = 1 it is right.")
def only_the_nearest(x, back):
    """It reads the one word just before, however large `back` is."""
    read = np.zeros(x.shape)
    read[1:] = x[:-1]
    return read


@WINDOW_READER.mistake("The first rows are right.")
def everything_before(x, back):
    """It reads all words before, however small `back` is."""
    read = np.zeros(x.shape)
    for t in range(1, len(x)):
        read[t] = x[:t].mean(axis=0)
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

For `x = np.array([[2.0, 0.0], [4.0, 6.0], [0.0, 3.0]])` and `back = 2` the rows are `[0, 0]`,
`[2, 0]` and `[3, 3]`.""",
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
Near the start `t - back` is below 0, and Python counts that from the end.
A single index such as `x[t - 1]` then takes a word from the end of the sentence, and nothing is
raised.
A slice takes none: `x[-1:1]` begins behind its own end and is empty.
Its mean is `nan`, and its sum 0.
That is why the first rows are the ones to look at.
`mean` of the right slice divides by the number of words that are really there.

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
_ONE_AHEAD = np.array([0.0, 0.0, 0.0, 1000.0])

BLEND = Subject(
    name="blend",
    signature="blend(scores, values)",
    right=blend_solution,
    tiers=(
        (call(_SCORES, _VALUES), call(_SCORES[:3], _VALUES[:3]), call(_SCORES[:2], _VALUES[1:3])),
        (call(_SCORES - 50, _VALUES),),
        (call(_SCORES + 1000, _VALUES), call(_SCORES - 1000, _VALUES)),
        (call(_ONE_AHEAD, _VALUES), call(_ONE_AHEAD[:2] + _ONE_AHEAD[2:], _VALUES[:2])),
        (afterwards(_SCORES, _VALUES),),
    ),
    listed=False,
)


@BLEND.mistake("The largest score has the largest say.")
def not_normalised(scores, values):
    """The powers of e are used as they are: nothing makes them 1 in sum."""
    return np.exp(scores) @ values


@BLEND.mistake("No power is larger than 1, whatever the scores.", variant_of="not-normalised")
def shifted_and_not_normalised(scores, values):
    """The largest score is taken away, but nothing makes the powers 1 in sum."""
    return np.exp(scores - scores.max()) @ values


@BLEND.mistake("The largest score has the largest say.")
def scores_for_weights(scores, values):
    """The scores themselves serve as weights: they may be negative, and do not make 1."""
    return scores @ values


@BLEND.mistake("The weights make 1, and for positive scores they are all positive.")
def scores_as_weights(scores, values):
    """The scores are divided by their sum, without powers of e: some weights are negative."""
    return scores / scores.sum() @ values


@BLEND.mistake("On scores of usual size it is right to the last digit.")
def no_shift(scores, values):
    """e to the power of 1000 is too large for the computer: take the largest score away first."""
    powers = np.exp(scores)
    return powers / powers.sum() @ values


@BLEND.mistake("If the largest score is 0 it is right.")
def shifted_in_the_powers_alone(scores, values):
    """The largest score is taken away in the powers, but not in the sum they are divided by."""
    return np.exp(scores - scores.max()) / np.exp(scores).sum() @ values


@BLEND.mistake("With all scores at 1000 it is right, and at -1000 too.")
def shifted_by_the_mean(scores, values):
    """The mean is taken away, and one score far above it is still too large for `np.exp`."""
    powers = np.exp(scores - scores.mean())
    return powers / powers.sum() @ values


@BLEND.mistake("With all scores at 1000 it is right, and at -1000 too.")
def shifted_by_the_smallest(scores, values):
    """The smallest score is taken away: then 0 is the least, and the largest is still too large."""
    powers = np.exp(scores - scores.min())
    return powers / powers.sum() @ values


@BLEND.mistake("No power is too large, and the weights make 1.")
def divided_by_the_largest(scores, values):
    """The scores are divided by the largest one, which changes their differences."""
    powers = np.exp(scores / scores.max())
    return powers / powers.sum() @ values


@BLEND.mistake("What comes back is right.")
def scores_changed_in_place(scores, values):
    """`-=` writes into the caller's scores."""
    scores -= scores.max()
    powers = np.exp(scores)
    return powers / powers.sum() @ values


@BLEND.mistake("A number for each word, and the weights make 1.")
def values_not_added_up(scores, values):
    """Each value is multiplied by its weight, and the products are never added up."""
    powers = np.exp(scores - scores.max())
    return (powers / powers.sum())[:, None] * values


@BLEND.mistake("They are positive and make 1.")
def weights_alone(scores, values):
    """It gives back the weights, and has not read with them."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


@BLEND.mistake("With as many words as columns nothing is raised.")
def values_before_weights(scores, values):
    """`values @ weights` adds up along a word's own numbers, not over the words."""
    powers = np.exp(scores - scores.max())
    return values @ (powers / powers.sum())


@BLEND.mistake("With as many words as columns it has the right shape.")
def added_up_along_the_coordinates(scores, values):
    """The products are added up along each word's own numbers, not over the words."""
    powers = np.exp(scores - scores.max())
    return ((powers / powers.sum())[:, None] * values).sum(axis=1)


@BLEND.mistake("For equal scores it is right.", variant_of="not-normalised")
def divided_by_their_number(scores, values):
    """The powers are divided by how many they are, and not by their sum."""
    return np.exp(scores - scores.max()) / len(scores) @ values


@BLEND.mistake("No power is too large, and scores of usual size are left alone.")
def cut_off(scores, values):
    """Scores that are too large are cut off, and then those above the limit are all alike."""
    powers = np.exp(np.clip(scores, -700, 700))
    return powers / powers.sum() @ values


@BLEND.mistake("For equal scores it is right.")
def all_alike(scores, values):
    """It is the plain average of the values: the scores have no say."""
    return values.mean(axis=0)


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

For two equal scores, `np.array([0.0, 0.0])`, and the values `np.array([[1.0, 0.0], [3.0, 4.0]])` it
gives `[2, 2]`.
Your function will be asked with scores of 1000 and of -1000 too.""",
    stub=blend,
    solution=blend_solution,
    checker=Code(
        BLEND,
        alone=True,
        cases=(
            case(np.array([0.0, 0.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([0.0, 1.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([1000.0, 1001.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([-1000.0, -1001.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(np.array([0.0, 1000.0]), np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])),
            case(_SCORES, _VALUES),
            case(_ONE_AHEAD, _VALUES),
        ),
        equal=case(_SCORES[:2], _VALUES[1:3]),
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
                "Paul, with 0.39: the head has found out who won, and so it has understood the "
                "sentence.",
                "0.39 is what Paul gets. Look at the last column of the table.",
                "the-name-must-be-loudest",
            ),
            Option(
                "`[CLS]`, with 0.42: the weights must make 1, and a head parks there what it has "
                "no use for.",
                "Of the words it reads Paul most, but the largest part of the row lies on a "
                "token that stands for no word.",
            ),
            Option(
                "`[CLS]`, with 0.42: the sentence begins there, and it is what the sentence is "
                "about.",
                '`[CLS]` stands for no word. Look at "they", which finds no name: is its weight '
                "on `[CLS]` smaller or larger?",
                "parked-weight-is-meaning",
            ),
            Option(
                "Emma, with 0.43: she is the name that stands nearest, and the nearest name wins.",
                "0.43 is in the table, but another pronoun reads there.",
                "row-of-another-word",
            ),
        )
    ),
    hints=(
        "Each row of the table belongs to one reader. Which row do you need?",
        "Paul and Emma get 0.47 together. Where is the rest?",
    ),
    explanation="""\
The row of "he" makes 1, and the two names have less than half of it, 0.47.
`[CLS]` holds 0.42: the row must make 1 even where a head finds little, and "they", which finds
least, has the most there.
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
_SQUARE = np.array([[0.97, 0.03], [0.6, 0.4]])

SKIPPING_WEIGHTS = Subject(
    name="skipping weights",
    signature="skipping_weights(weights, least=0.05)",
    right=skipping_weights_solution,
    tiers=(
        (
            call(_WEIGHTS),
            call(_WEIGHTS[1:], least=0.1),
            call(_BATCH),
            call(_SQUARE),
        ),
        (call(_WEIGHTS[0]),),
        (afterwards(_WEIGHTS),),
    ),
    listed=False,
)


@SKIPPING_WEIGHTS.mistake("The small weights are gone, and the others are what they were.")
def rows_not_one(weights, least=0.05):
    """What was cut is missing: the rows make less than 1, and everything that is read shrinks."""
    return np.where(weights < least, 0, weights)


@SKIPPING_WEIGHTS.mistake("Each row meets its own sum, and ratios stay.")
def multiplied_by_the_sum(weights, least=0.05):
    """The row is multiplied by its own sum: what was too small becomes smaller still."""
    kept = np.where(weights < least, 0, weights)
    return kept * kept.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("What is left makes 1.")
def what_is_cut_is_gone(weights, least=0.05):
    """The words that are cut have no place any more: they should have the weight 0 in theirs."""
    kept = weights[weights >= least]
    return kept / kept.sum()


@SKIPPING_WEIGHTS.mistake("There is a division by a sum, as in softmax.")
def divided_by_the_sum_of_columns(weights, least=0.05):
    """The sum runs over the readers, down each column, not over what one of them reads."""
    kept = np.where(weights < least, 0, weights)
    return kept / kept.sum(axis=-2 if kept.ndim > 1 else -1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("A single row is right.", variant_of="divided-by-the-sum-of-columns")
def divided_by_the_sum_of_the_first_axis(weights, least=0.05):
    """The sum runs along axis 0. That is the rows only if `weights` has one axis."""
    kept = np.where(weights < least, 0, weights)
    return kept / kept.sum(axis=0)


@SKIPPING_WEIGHTS.mistake("With as many words as readers nothing is raised.")
def divided_without_the_kept_axis(weights, least=0.05):
    """The sums have lost their last axis, so each column is divided by the sum of another row."""
    kept = np.where(weights < least, 0, weights)
    return kept / kept.sum(axis=-1)


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


@SKIPPING_WEIGHTS.mistake("Rows make 1, and what is cut is 0.")
def softmax_of_what_is_left(weights, least=0.05):
    """A second softmax, over the weights that are left: their ratios change, to nearly flat."""
    powers = np.where(weights < least, 0, np.exp(weights))
    return powers / powers.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("As long as nobody asks for another limit it is right.")
def least_ignored(weights, least=0.05):
    """The limit is 0.05, whatever `least` is."""
    kept = np.where(weights < 0.05, 0, weights)
    return kept / kept.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("Rows make 1, and the ratios stay.")
def cuts_the_limit_too(weights, least=0.05):
    """A weight of exactly `least` is cut as well, and it is not below `least`."""
    kept = np.where(weights <= least, 0, weights)
    return kept / kept.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("The ratios stay, and the largest weight is a round 1.")
def divided_by_the_largest_of_the_row(weights, least=0.05):
    """Each row is divided by its largest weight: that one is 1 alone, and the row more."""
    kept = np.where(weights < least, 0, weights)
    return kept / kept.max(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("Rows make 1, and what is cut is 0.")
def the_rest_in_equal_parts(weights, least=0.05):
    """What was cut is shared in equal parts by those that are left, and their ratios change."""
    kept = np.where(weights < least, 0, weights)
    left = weights >= least
    rest = 1 - kept.sum(axis=-1, keepdims=True)
    return kept + left * rest / left.sum(axis=-1, keepdims=True)


@SKIPPING_WEIGHTS.mistake("Rows make 1.")
def the_rest_to_all(weights, least=0.05):
    """What was cut is shared by all words, and those that were cut are not 0 any more."""
    kept = np.where(weights < least, 0, weights)
    return kept + (1 - kept.sum(axis=-1, keepdims=True)) / weights.shape[-1]


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
`weights` may have any number of axes, and no row has only weights below `least`.

For `weights = np.array([0.72, 0.18, 0.04, 0.06])` the result is
`[0.75, 0.1875, 0, 0.0625]`.""",
    stub=skipping_weights,
    solution=skipping_weights_solution,
    checker=Code(
        SKIPPING_WEIGHTS,
        cases=(
            case(np.array([0.97, 0.03])),
            case(_SQUARE),
            case(np.array([[0.97, 0.03, 0.0], [0.5, 0.25, 0.25]])),
            case(np.array([0.75, 0.2, 0.05, 0.0])),
            case(np.array([0.75, 0.2, 0.05, 0.0]), least=0.1),
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


def _word_that_he_scores(change):
    row = int(change[0])
    if row in (0, 2):
        return None
    return f"row {row} is the row of {WORDS[row]}"


def _column_that_counts(change):
    column = int(change[1])
    if X[3, column] != 0:
        return None
    return f'column {column} is {COORDINATES[column]}, where "he" has 0'


def _another_value(change):
    row, column, value = change
    old = X[int(row), int(column)]
    if value != old:
        return None
    return f"{COORDINATES[int(column)]} of {WORDS[int(row)]} was {old:g} before"


def _scores(change):
    content = _changed(change)
    scores = content @ content[3]
    return scores[0], scores[2]


def _in_words(change):
    paul, emma = _scores(change)
    return f"he scores {paul:g} with Paul and {emma:g} with Emma; before it was 1 and -1"


def _right_way(change):
    paul, emma = _scores(change)
    return _in_words(change) if emma - paul < -2 else None


def _not_behind(change):
    paul, emma = _scores(change)
    return _in_words(change) if emma - paul < -_EQUAL else None


def _no_tie(change):
    paul, emma = _scores(change)
    return _in_words(change) if abs(emma - paul) <= _EQUAL else None


def _far_enough(change):
    paul, emma = _scores(change)
    if emma - paul >= 0.6 - _EQUAL:
        return None
    return f"Emma is ahead by {emma - paul:g}; at least 0.6 is asked"


_EQUAL = 1e-9


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

Give three numbers: the row (0 to 4, in the order *{" ".join(WORDS)}*), the column (0 to 3, in the
order {", ".join(COORDINATES[:4])}) and the new value, as in `(4, 3, 0.5)`.""",
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
            Rule(
                'This is neither Paul nor Emma. What "he" scores with these two stays as it was.',
                _word_that_he_scores,
                "another-word-changed",
            ),
            Rule(
                '"He" has 0 in this column, so every product there is 0, whatever you put in.',
                _column_that_counts,
                "column-that-he-does-not-use",
            ),
            Rule("This number stands there already.", _another_value),
            Rule(
                "Now Paul is farther ahead than before. The number goes the other way.",
                _right_way,
                "wrong-way",
            ),
            Rule("It goes the right way, but Paul still scores more than Emma.", _not_behind),
            Rule("Emma has only drawn level with Paul.", _no_tie, "only-a-tie"),
            Rule("Emma is ahead, but not far enough.", _far_enough),
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
                "What the word holds that matches best, and nothing of the others.",
                "That is a lookup. Attention takes something of every word, much of some.",
                "hard-lookup",
            ),
            Option(
                "An average of what all words hold, weighted by how they match.",
                "Weights that are positive and make 1, and a sum over all words.",
            ),
            Option(
                "The sum of its scores: the larger it is, the more the word has found.",
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
                "Which word comes first, because a reader begins there.",
                "A word reads all words at once; there is no first.",
                "reads-from-left-to-right",
            ),
            Option(
                "Nothing: the weights only move along with the words.",
                "Shuffle the rows, and the outputs are the same ones, shuffled.",
            ),
            Option(
                "Which words are neighbours, because they read each other more.",
                "Nothing in the content says where a word stands.",
                "neighbours-are-known",
            ),
        ),
    ),
    Question(
        "A score of -3 gives a weight that is ...",
        (
            Option(
                "negative: the word is taken away from the average.",
                "A power of $e$ is never negative.",
                "negative-score-negative-weight",
            ),
            Option(
                "zero: a word that does not match is left out.",
                "Small, perhaps; but nobody is skipped.",
                "low-score-means-skip",
            ),
            Option(
                "not there, unless another score of the row is positive.",
                "A power of $e$ is positive whatever the score, so softmax can always divide.",
                "needs-positive-scores",
            ),
            Option("positive, and it may be nearly 1.", "As if all others are -9."),
        ),
    ),
    Question(
        "From *Who decides what is right?*, near the end: what does a head of random numbers read, "
        "before any training?",
        (
            Option(
                "All tokens roughly alike.",
                "In the chapter the mirrored token got about 1/12, its share among 12. "
                "Training decides what is right.",
            ),
            Option(
                "The important words, only less clearly than after training.",
                "Important for what? Only a task and its training say so.",
                "attention-knows-what-matters",
            ),
            Option(
                "Itself, for nothing is more like a token than the token.",
                "That was rule 3, which compares a row with itself. Here random numbers stand "
                "between, and nothing makes a token match itself best.",
                "diagonal-before-training",
            ),
        ),
    ),
    Question(
        "From *One sentence proves little*, near the end: a head of a real model gives 0.39 to the "
        "right name in one sentence. What has been shown?",
        (
            Option(
                "That this head resolves pronouns, which is what it was trained for.",
                "One sentence, chosen together with the head. In 900 it was right in 766, and in "
                "one kind of four no better than a coin.",
                "one-sentence-proves",
            ),
            Option(
                "That the model uses this name when it says who won.",
                "A weight shows what is read, not what is made of it.",
                "weights-are-explanations",
            ),
            Option(
                "That it reads this name here, and no more.",
                "For more one must count, and compare with a coin and with the other heads.",
            ),
        ),
    ),
)
