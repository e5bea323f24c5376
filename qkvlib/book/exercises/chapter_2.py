"""Exercises of chapter 2: query, key and value."""

import itertools
import math

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.example import COORDINATES, HEAD_A, VARIANTS, WORDS, X, embed
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import Subject
from qkvlib.mistakes._catalogue import afterwards, call

_ROWS = "# rows: name, he/she, refers, action, seat-x, seat-y"
_STUB_MATRICES = f"""\
{_ROWS}
W_Q = np.zeros((6, 2))
W_K = np.zeros((6, 2))"""


def _normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# ---- E2.1 ----------------------------------------------------------------------------------------


def shapes_solution():
    return {"Q": (7, 4), "K": (9, 4), "V": (9, 3), "scores": (7, 9), "output": (7, 3)}


def _shape(right, slips):
    """A part of E2.1. slips: by name the wrong shape and what to say."""
    made = {name: Slip(lambda shape=shape: shape, says) for name, (shape, says) in slips.items()}
    return Numbers(right=lambda: right, slips=made, tolerance=0.1, labels=("rows", "columns"))


_ON_ITS_SIDE = "Rows and columns are exchanged: in this book a row is a word."
_THE_MATRIX = "This is the shape of the matrix, not of what it makes of the words."
_WIDTH_KEPT = "This is as wide as the input. The matrix changes the width."

E2_1 = Exercise(
    id="E2.1",
    title="Shapes, before any number",
    grade="warm-up",
    kind="predict",
    minutes=3,
    objective="tell the shape of everything in a head before you compute it",
    section="[Keys and values of another sentence]"
    "(02_qkv.ipynb#keys-and-values-of-another-sentence)",
    task="""\
A sentence of 7 words reads another one, of 9 words, as *she won* read our five.
Each word is a row of 10 numbers.
Queries and keys have 4 numbers, values have 3.

Which shapes do the queries, the keys, the values, the scores and the output have?
Write each as `(rows, columns)`.""",
    stub="""\
shapes = {
    "Q": (..., ...),
    "K": (..., ...),
    "V": (..., ...),
    "scores": (..., ...),
    "output": (..., ...),
}""",
    solution=shapes_solution,
    checker=Items(
        {
            "Q": _shape(
                (7, 4),
                {
                    "queries-of-the-words-read": (
                        (9, 4),
                        "These words are read. Who asks?",
                    ),
                    "query-on-its-side": ((4, 7), _ON_ITS_SIDE),
                    "query-as-wide-as-the-input": ((7, 10), _WIDTH_KEPT),
                    "shape-of-W_Q": ((10, 4), _THE_MATRIX),
                    "query-as-wide-as-a-value": (
                        (7, 3),
                        "A query meets keys in a dot product. Which width must it share?",
                    ),
                },
            ),
            "K": _shape(
                (9, 4),
                {
                    "keys-of-the-words-that-ask": (
                        (7, 4),
                        "These words ask. Which words are looked at?",
                    ),
                    "key-on-its-side": ((4, 9), _ON_ITS_SIDE),
                    "key-as-wide-as-the-input": ((9, 10), _WIDTH_KEPT),
                    "shape-of-W_K": ((10, 4), _THE_MATRIX),
                    "key-as-wide-as-a-value": (
                        (9, 3),
                        "A key meets queries in a dot product. Which width must it share?",
                    ),
                },
            ),
            "V": _shape(
                (9, 3),
                {
                    "values-of-the-words-that-ask": (
                        (7, 3),
                        "These words ask. Which words hand something over?",
                    ),
                    "value-on-its-side": ((3, 9), _ON_ITS_SIDE),
                    "value-as-wide-as-the-input": ((9, 10), _WIDTH_KEPT),
                    "shape-of-W_V": ((10, 3), _THE_MATRIX),
                    "value-as-wide-as-a-key": (
                        (9, 4),
                        "A value is handed over and meets no query. Its width is its own.",
                    ),
                },
            ),
            "scores": _shape(
                (7, 9),
                {
                    "scores-on-their-side": (
                        (9, 7),
                        "In row i, column j, word i asks and word j is asked. Who has the rows?",
                    ),
                    "one-sentence-for-both": (
                        (7, 7),
                        "This is a sentence that reads itself. Here there are two.",
                    ),
                    "only-the-words-read": (
                        (9, 9),
                        "This is a sentence that reads itself. Here there are two.",
                    ),
                    "words-added-up": (
                        (4, 4),
                        "Here the words were added up. A dot product adds over the numbers of a "
                        "query and a key, and there is one for each pair of words.",
                    ),
                    "scores-as-queries": (
                        (7, 4),
                        "This is the shape of the queries. A score belongs to a pair of words.",
                    ),
                },
            ),
            "output": _shape(
                (7, 3),
                {
                    "output-as-wide-as-a-key": (
                        (7, 4),
                        "Keys have done their work once the weights are known. "
                        "Of what is the output an average?",
                    ),
                    "output-for-the-words-read": (
                        (9, 3),
                        "Who gets something, the words that ask or the words that are read?",
                    ),
                    "output-on-its-side": ((3, 7), _ON_ITS_SIDE),
                    "weights-for-the-output": (
                        (7, 9),
                        "This is the shape of the weights. They are still to meet the values.",
                    ),
                    "output-as-wide-as-the-input": (
                        (7, 10),
                        "Nothing has led back to the width of the input yet. "
                        "Of what is the output an average?",
                    ),
                },
            ),
        }
    ),
    hints=(
        "How many rows: who asks, who is read? How many columns: which matrix made it?",
        "In a product `(a, b) @ (b, c)` the inner sizes meet, and `(a, c)` is left.",
        "The scores are `Q @ K.T`, the output is `P @ V`; P is as large as the scores.",
    ),
    explanation="""\
Queries come from the 7 words that ask, keys and values from the 9 that are read.
The width 4 disappears in the scores, where each query meets each key: `(7, 4) @ (4, 9)`.
The 9 disappears in the output, where the values are added up: `(7, 9) @ (9, 3)`.

So the output has a row for each word that asks, and the width of the values.
Only two sizes must agree: the width of queries and keys, and the number of keys and values.
With 7 = 9 and 4 = 3 nearly every slip here would go unseen.""",
)

# ---- E2.2 ----------------------------------------------------------------------------------------


def they_solution():
    x = embed(VARIANTS["they"])
    Q, K = x @ HEAD_A.W_Q, x @ HEAD_A.W_K
    return {"query": Q[3], "weights": qn.attention_weights(Q, K)[3]}


_THEY = embed(VARIANTS["they"])
_THEY_SCORES = _THEY[3] @ HEAD_A.W_Q @ (_THEY @ HEAD_A.W_K).T  # 2 0 2 0 0


def _row_of(word, query=None):
    x = embed(VARIANTS[word])
    query = x[3] @ HEAD_A.W_Q if query is None else np.array(query, float)
    return qn.attention_weights(query[None], x @ HEAD_A.W_K)[0]


def _without_itself():
    powers = np.exp(_THEY_SCORES / math.sqrt(2)) * [1, 1, 1, 0, 1]
    return powers / powers.sum()


E2_2 = Exercise(
    id="E2.2",
    title="What does *they* read?",
    grade="warm-up",
    kind="predict",
    minutes=6,
    objective="follow one word by hand from its row to its weights",
    section="[One question, one row](02_qkv.ipynb#one-question-one-row)",
    task="""\
*Paul told Emma they won.*
"They" is a pronoun and of neither kind: `refers` is 1, and `name`, `he/she` and `action` are 0.

In head A a query is (2 · `refers`, 1 · `he/she`), and a key is (1 · `name`, 2 · `he/she`).

Find the query of "they", and the five weights of its row, to three decimals.
Use pencil and paper: scores, divided by $\\sqrt{2}$, then softmax.
You need two powers of $e$: $e^0 = 1$ and $e^{1.414} = 4.113$.""",
    stub="""\
they = {
    "query": (..., ...),
    "weights": (..., ..., ..., ..., ...),  # Paul told Emma they won
}""",
    solution=they_solution,
    checker=Items(
        {
            "query": Numbers(
                right=lambda: they_solution()["query"],
                labels=("name?", "he-like?"),
                slips={
                    "query-of-he": Slip(
                        lambda: X[3] @ HEAD_A.W_Q,
                        'This is the question of "he". Which of its two numbers came from '
                        "`he/she`?",
                    ),
                    "query-of-she": Slip(
                        lambda: embed(VARIANTS["she"])[3] @ HEAD_A.W_Q,
                        'This is the question of "she". Which of its two numbers came from '
                        "`he/she`?",
                    ),
                    "strength-forgotten": Slip(
                        lambda: (1, 0),
                        "The right wish, but not as strong as the matrix makes it.",
                    ),
                    "columns-of-the-query-exchanged": Slip(
                        lambda: (0, 2),
                        "The first number says how much a name is wanted, the second of which "
                        "kind. Which did you fill?",
                    ),
                    "no-query": Slip(
                        lambda: (0, 0),
                        "This is the question of a verb, which wants nothing. "
                        "Is the row `refers` of the matrix empty?",
                    ),
                    "row-for-query": Slip(
                        lambda: _THEY[3],
                        "This is the row of the word itself. It must still meet the matrix W_Q.",
                    ),
                },
            ),
            "weights": Numbers(
                right=lambda: they_solution()["weights"],
                tolerance=0.005,
                labels=VARIANTS["they"],
                slips={
                    "no-root-of-two": Slip(
                        lambda: qn.softmax(_THEY_SCORES),
                        "The scores went into the softmax as they are, without the division.",
                    ),
                    "divided-by-two": Slip(
                        lambda: qn.softmax(_THEY_SCORES / 2),
                        "The scores were divided by 2. The divisor is its root.",
                    ),
                    "scores-for-weights": Slip(
                        lambda: _THEY_SCORES,
                        "These are the scores. Weights make 1.",
                    ),
                    "divided-scores-for-weights": Slip(
                        lambda: _THEY_SCORES / math.sqrt(2),
                        "These are the scores, divided by the root. Softmax comes next.",
                    ),
                    "in-percent": Slip(
                        lambda: 100 * they_solution()["weights"],
                        "The shares are right, in percent. Weights make 1.",
                    ),
                    "powers-not-divided": Slip(
                        lambda: np.exp(_THEY_SCORES / math.sqrt(2)),
                        "These are the powers of e. They must be divided by their sum.",
                    ),
                    "a-score-of-zero-skips": Slip(
                        lambda: _THEY_SCORES / _THEY_SCORES.sum(),
                        "Three words got nothing. A score of 0 is a score like others: what is "
                        "its power of e?",
                    ),
                    "itself-left-out": Slip(
                        _without_itself,
                        "The word that asks is missing from its own row. It has a key too.",
                    ),
                    "row-of-he": Slip(
                        lambda: _row_of("he"),
                        'This is the row of "he". "They" asks for no kind.',
                    ),
                    "asked-as-he": Slip(
                        lambda: _row_of("they", (2, 1)),
                        'These are the weights of the query (2, 1), which is that of "he".',
                    ),
                    "everybody-alike": Slip(
                        lambda: np.full(5, 0.2),
                        "So reads a word that asks nothing. What do the two names get more than "
                        "the verbs?",
                    ),
                },
            ),
        }
    ),
    hints=(
        'Which row of W_Q does "they" meet with a number that is not 0? Seats do not count here.',
        "The keys of Paul and Emma are (1, 2) and (1, -2). The query has a 0 where they differ.",
        "Two scores are 2 and three are 0. So two powers are 4.113 and three are 1.",
    ),
    explanation="""\
Only `refers` meets something in $W_Q$: the query is (2, 0), a name of any kind.
Both names score 2, and the three others 0, "they" itself included.
The powers are 4.113 twice and 1 three times, 11.226 together: 0.366 for each name and 0.089 for
each of the rest.

A tie is an answer too: nothing in the sentence says whom "they" means, and the head shows it.
If you had 0.416 for the names, the scores were not divided; with 0.322 they were divided by 2.""",
)

# ---- E2.3 ----------------------------------------------------------------------------------------


def project(x, W, b=None):
    """What a matrix makes of every row: queries, keys or values.

    x: (..., n, d_in). W: (d_in, d_out). b: (d_out,), or None for no bias -> (..., n, d_out)
    """
    ...


def project_solution(x, W, b=None):
    return x @ W if b is None else x @ W + b


_PAIR = np.array([[1.0, 3.0]])
_TURN = np.array([[0.0, 2.0], [1.0, 0.0]])
_BIAS = np.array([10.0, 20.0])

E2_3 = Exercise(
    id="E2.3",
    title="One matrix for every row",
    grade="core",
    kind="fill in",
    minutes=6,
    objective="write the projection that makes queries, keys and values",
    section="[Which side does the matrix stand on?]"
    "(02_qkv.ipynb#which-side-does-the-matrix-stand-on)",
    task="""\
Write the projection, without `qkvlib`.

`project(x, W, b=None)` takes rows `x (n, d_in)` and a matrix `W (d_in, d_out)`, and gives
`(n, d_out)`: each row through the matrix, and the bias `b (d_out,)` added to each row, if there is
one.
There may be axes before these two: several sentences at once, `(batch, n, d_in)`, give
`(batch, n, d_out)`. float32 in, float32 out.

For `x = [[1, 3]]` and `W = [[0, 2], [1, 0]]` it gives `[[3, 2]]`; with `b = [10, 20]`,
`[[13, 22]]`.""",
    stub=project,
    solution=project_solution,
    checker=Code(
        "projection",
        alone=True,
        cases=(
            case(_PAIR, _TURN),
            case(_PAIR, _TURN, _BIAS),
            case(np.array([[1.0, 3.0], [0.0, 1.0], [2.0, 0.0]]), _TURN),
            case(np.array([[1.0, -3.0]]), np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 1.0]])),
            case(np.array([[[1.0, 3.0]], [[0.0, 1.0]]]), _TURN),
            case(_normal(1, 3, 6), _normal(2, 6, 3), _normal(3, 3)),
            case(_normal(4, 2, 3, 5), _normal(5, 5, 4), _normal(6, 4)),
            case(_normal(7, 2, 1, 3, 5), _normal(8, 5, 4)),
            case(*(each.astype(np.float32) for each in (_PAIR, _TURN, _BIAS))),
        ),
        equal=case(_normal(9, 3, 3, 3), _normal(10, 3, 3), _normal(11, 3)),
    ),
    hints=(
        "Write the shapes below each other. On which side of `x` must `W` stand for the inner "
        "sizes to meet?",
        "`@` multiplies the last two axes and carries those before them along.",
        "A row `(d_out,)` that is added to `(n, d_out)` is added to each row. The bias may be "
        "missing: ask `b is None`.",
    ),
    explanation="""\
`x @ W` does each row by itself: row $i$ of the result comes from row $i$ of `x` and from no other.
`W @ x` would mix the words with each other; with as many words as numbers nothing raises.
`x @ W.T` is right only for a matrix that is stored the other way round, as PyTorch stores it.

`np.einsum("...ni,io->...no", x, W)` does the same, and so does a loop over rows.
`b[:, None]` is the usual slip with the bias: it gives each *word* a number, not each column.""",
)

# ---- E2.4 ----------------------------------------------------------------------------------------


def loaded_queries(x, weight, bias):
    """Queries of the rows of x, with the numbers of a layer that PyTorch has stored.

    x: (n, d_model). weight: (d_k, d_model), as PyTorch stores it. bias: (d_k,) -> (n, d_k)
    """
    d_model, d_k = x.shape[-1], len(bias)
    W_Q = weight
    if W_Q.shape != (d_model, d_k):  # it lies the other way round
        W_Q = W_Q.T
    return x @ W_Q + bias


def loaded_queries_solution(x, weight, bias):
    return x @ weight.T + bias


_TWO = np.array([[1.0, 3.0]]), np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([10.0, 20.0])
_NARROW = np.array([[1.0, 3.0, 0.0]]), np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 5.0]]), _TWO[2]
_SQUARE_LAYER = _normal(20, 3, 4), _normal(21, 4, 4), _normal(22, 4)
_NARROW_LAYER = _normal(23, 3, 6), _normal(24, 4, 6), _normal(25, 4)
_AS_MANY_WORDS = _normal(26, 4, 6), _normal(27, 4, 6), _normal(28, 4)

LOADED_QUERIES = Subject(
    name="loaded queries",
    signature="loaded_queries(x, weight, bias)",
    right=loaded_queries_solution,
    tiers=(
        (call(*_SQUARE_LAYER), call(*_NARROW_LAYER), call(*_AS_MANY_WORDS)),
        (call(_normal(29, 3, 4), _normal(30, 6, 4), _normal(31, 6)),),
        (afterwards(*_SQUARE_LAYER),),
    ),
    listed=False,
)


@LOADED_QUERIES.mistake(
    "Wherever the sizes differ it is right.", reported="vllm-project/vllm#44110"
)
def turned_only_where_it_must(x, weight, bias):
    """The shape is asked which way a matrix lies, and a square one cannot say."""
    W_Q = weight if weight.shape == (x.shape[-1], len(bias)) else weight.T
    return x @ W_Q + bias


@LOADED_QUERIES.mistake("Square matrices raise no error.")
def never_turned(x, weight, bias):
    """It is used as it lies. Turning twice turns nothing, nor does NumPy's `transpose(0, 1)`."""
    return x @ weight + bias


@LOADED_QUERIES.mistake("The model that spoke nonsense is well again.")
def turned_once_more(x, weight, bias):
    """Now square ones are turned, and those of unequal sizes are turned back."""
    W_Q = weight.T if weight.shape[0] == weight.shape[1] else weight
    return x @ W_Q + bias


@LOADED_QUERIES.mistake("The shape is the one that was wanted.")
def reshaped_for_turned(x, weight, bias):
    """`reshape` fills the other shape in the old order, and turns nothing."""
    return x @ weight.reshape(x.shape[-1], len(bias)) + bias


@LOADED_QUERIES.mistake("With as many words as numbers in a query the shape is right.")
def left_on_its_side(x, weight, bias):
    """`weight @ x.T` has the right numbers, in columns for rows."""
    return weight @ x.T + bias[:, None]


@LOADED_QUERIES.mistake("All weights look as before, and often biases are small.")
def bias_lost(x, weight, bias):
    """The bias of the file is not added."""
    return x @ weight.T


E2_4 = Exercise(
    id="E2.4",
    title="One model is well, the other speaks nonsense",
    grade="core",
    kind="find the bug",
    minutes=8,
    objective="load a matrix the right way round, whatever its shape",
    section="[Which side does the matrix stand on?]"
    "(02_qkv.ipynb#which-side-does-the-matrix-stand-on)",
    task="""\
Somebody reads the weights of trained models from files.
PyTorch has written them, so a matrix lies there as `(d_k, d_model)`, each bias as `(d_k,)`.

With a model of `d_k` 4 and `d_model` 6 the code below gives the right queries.
With another, where both are 4, it gives others than PyTorch does. Nothing raises.

Say to yourself for which matrices it goes wrong, and why no shape can show it. Then repair it.""",
    stub=loaded_queries,
    solution=loaded_queries_solution,
    checker=Code(
        LOADED_QUERIES,
        cases=(
            case(*_TWO),
            case(*_NARROW),
            case(np.array([[1.0, 3.0], [0.0, 1.0]]), _TWO[1], _TWO[2]),
            case(*_NARROW_LAYER),
            case(*_AS_MANY_WORDS),
        ),
    ),
    hints=(
        "Follow a matrix of 2 by 2 through the `if`.",
        "What do you know about the file that its shapes need not tell you?",
        "It is always stored the same way round. So what is done to it must not depend on its "
        "shape.",
    ),
    explanation="""\
The `if` asks the shape which way the matrix lies. A square one has the same shape both ways, so it
is never turned, and `x @ W.T` has the right shape and the wrong numbers.
How a file is written is known, and not to be guessed: turn it always.

The same test on shapes stood in a program that many people use to run large models.
There just the square matrices, those of the queries among them, came out unturned, and the models
printed rows of commas.
Try code on a square matrix that is not symmetric *and* on one of unequal sizes: each shows what the
other hides.""",
)

# ---- designs: what they share --------------------------------------------------------------------


def _weights(W_Q, W_K, words=WORDS):
    x = embed(words)
    return qn.attention_weights(x @ W_Q, x @ W_K)


def _scores(W_Q, W_K, words=WORDS):
    x = embed(words)
    return x @ W_Q @ (x @ W_K).T


def _places(words, *kinds):
    """Where in a sentence the names, verbs or pronouns stand."""
    columns = [COORDINATES.index(kind) for kind in kinds]
    return np.flatnonzero(embed(words)[:, columns].any(axis=1))


def _equally_wide(W_Q, W_K):
    if W_Q.shape == W_K.shape and W_Q.shape[1]:
        return None
    return f"W_Q has {W_Q.shape[1]} columns, W_K has {W_K.shape[1]}"


_SAME_WORDS = tuple(itertools.permutations(WORDS))
_OTHER_WORDS = tuple(VARIANTS.values())

# ---- E2.5 ----------------------------------------------------------------------------------------


def verbs_read_names_solution():
    W_Q, W_K = np.zeros((6, 2)), np.zeros((6, 2))
    W_Q[COORDINATES.index("action")] = [4, 0]
    W_K[COORDINATES.index("name")] = [1, 0]
    return W_Q, W_K


def _on_names(W_Q, W_K, words=WORDS):
    """By verb, what it puts on all names together."""
    weights = _weights(W_Q, W_K, words)
    names = _places(words, "name")
    return {words[v]: weights[v, names].sum() for v in _places(words, "action")}


def _verbs_are_done(W_Q, W_K, words=WORDS):
    return all(share >= 0.9 for share in _on_names(W_Q, W_K, words).values())


def _said_of(shares, whom="on the names"):
    return ", ".join(f"{word} puts {share:.3f} {whom}" for word, share in shares.items())


def _until_verbs_are_done(test):
    """A test of matrices that do not yet do it for the sentence of the chapter."""
    return lambda W_Q, W_K: None if _verbs_are_done(W_Q, W_K) else test(W_Q, W_K)


def _verbs_ask_nothing(W_Q, W_K):
    scores = _scores(W_Q, W_K)[_places(WORDS, "action")]
    return (
        "every score of told and won is the same" if np.ptp(scores, axis=1).max() < 1e-9 else None
    )


def _names_ask_for_verbs(W_Q, W_K):
    weights = _weights(W_Q, W_K)
    share = weights[0, _places(WORDS, "action")].sum()
    if _verbs_ask_nothing(W_Q, W_K) and share > 0.5:
        return f"Paul puts {share:.3f} on the verbs; told puts 0.200 on everybody"
    return None


def _names_repelled(W_Q, W_K):
    told = _scores(W_Q, W_K)[1]
    if told[[0, 2]].max() < min(told[3], told[[1, 4]].min()):
        return f"told scores {told[0]:g} with Paul, {told[3]:g} with he, {told[4]:g} with won"
    return None


def _verbs_on_verbs(W_Q, W_K):
    told = _weights(W_Q, W_K)[1]
    verbs, names = told[[1, 4]].sum(), told[[0, 2]].sum()
    return (
        f"told puts {verbs:.3f} on the verbs, {names:.3f} on the names" if verbs > names else None
    )


def _verbs_differ(W_Q, W_K):
    shares = _on_names(W_Q, W_K)
    return _said_of(shares) if abs(shares["told"] - shares["won"]) > 0.01 else None


def _pronoun_as_good(W_Q, W_K):
    told = _weights(W_Q, W_K)[1]
    if told[3] > min(told[[0, 2]]) - 0.01 and told[3] > told[[1, 4]].max():
        return f"told puts {told[0]:.3f} on Paul, {told[2]:.3f} on Emma, {told[3]:.3f} on he"
    return None


def _too_weak_for_names(W_Q, W_K):
    weights = _weights(W_Q, W_K)[_places(WORDS, "action")]
    ahead = weights[:, [0, 2]].min() > weights[:, [1, 3, 4]].max()
    return _said_of(_on_names(W_Q, W_K)) if ahead else None


def _verbs_not_done(W_Q, W_K):
    return None if _verbs_are_done(W_Q, W_K) else _said_of(_on_names(W_Q, W_K))


def _verbs_in(sentences):
    def test(W_Q, W_K):
        for words in sentences:
            if not _verbs_are_done(W_Q, W_K, words):
                return f"in {' '.join(words)}, {_said_of(_on_names(W_Q, W_K, words))}"
        return None

    return test


E2_5 = Exercise(
    id="E2.5",
    title="Verbs look for names",
    grade="core",
    kind="design",
    minutes=10,
    objective="write a rule for reading into $W_Q$ and $W_K$",
    section="[Rules, by hand and learned](02_qkv.ipynb#rules-by-hand-and-learned)",
    task="""\
Who told, who won? Make a head in which verbs look for names.

Hand over `W_Q` and `W_K`, each with six rows, in the order of the coordinates, and equally many
columns.
*told* and *won* must put at least 0.9 of their weight on the names, on all of them together, by
`qn.attention_weights(X @ W_Q, X @ W_K)`.
This must hold in our sentence, with "she", "they" or "Paul" in the place of "he", and in any order
of the words.
What other words read is free.""",
    stub=_STUB_MATRICES,
    solution=verbs_read_names_solution,
    checker=Design(
        shapes={"W_Q": (6, None), "W_K": (6, None)},
        rules=(
            Rule("Queries and keys must be equally wide to meet in a dot product.", _equally_wide),
            Rule(
                "This is the rule the other way round: names look for verbs. "
                "Which matrix belongs to the word that asks?",
                _until_verbs_are_done(_names_ask_for_verbs),
                "query-and-key-exchanged",
            ),
            Rule(
                "The verbs read everybody alike: they ask nothing, or in a column where nobody "
                "answers.",
                _until_verbs_are_done(_verbs_ask_nothing),
                "nothing-asked",
            ),
            Rule(
                "The names score least of all. A minus too many?",
                _until_verbs_are_done(_names_repelled),
                "names-repelled",
            ),
            Rule(
                "The verbs read verbs: their keys answer the question better than those of names.",
                _until_verbs_are_done(_verbs_on_verbs),
                "attends-to-verbs",
            ),
            Rule(
                "The two verbs are the same word to the first four coordinates, and yet they read "
                "differently: the seats have a say.",
                _until_verbs_are_done(_verbs_differ),
                "reads-the-seats",
            ),
            Rule(
                "The pronoun is read as much as a name. What has a name that a pronoun has not?",
                _until_verbs_are_done(_pronoun_as_good),
                "pronoun-read-too",
            ),
            Rule(
                "The names come first, but the lead is too small for the weight that is asked.",
                _until_verbs_are_done(_too_weak_for_names),
                "too-small-a-lead",
            ),
            Rule("The verbs put less than 0.9 on the names.", _verbs_not_done),
            Rule(
                "It works as long as the words stand where they stand: the seats have a say.",
                _verbs_in(_SAME_WORDS),
                "reads-the-seats",
            ),
            Rule(
                "It works for this sentence, but not for every one.",
                _verbs_in(_OTHER_WORDS),
            ),
        ),
    ),
    hints=(
        "Say the rule in one sentence: a word with `...` wants a word with `...`. The first of the "
        "two belongs to W_Q, the second to W_K.",
        "One number that is not 0 in each matrix is enough, both in the same column.",
        "With two names among five words each name must get 0.45 where each other word gets 0.033: "
        "its power of e must be 13.5 times as large. How large a score is that, before it is "
        "divided?",
    ),
    explanation="""\
Row `action` of $W_Q$ and row `name` of $W_K$ are filled, in the same column: $M$ has the single
rule `action` → `name`, of strength 4.
Divided by 1.414 that is 2.83, its power of $e$ is 16.9, and the names get 0.919.
A strength of 3.7 would just do; 2 gives 0.733.

Only the product counts: 4 and 1, 2 and 2, -2 and -2 or two columns that share the work do the same.
Words are told apart by what the matrices read; whoever reads the seats gets a head for one order
of the words.""",
)

# ---- E2.6 ----------------------------------------------------------------------------------------


def same_kind_solution():
    W_Q, W_K = np.zeros((6, 2)), np.zeros((6, 2))
    W_Q[COORDINATES.index("name")] = W_K[COORDINATES.index("name")] = [2, 0]
    W_Q[COORDINATES.index("action")] = W_K[COORDINATES.index("action")] = [0, 2]
    return W_Q, W_K


def _own_kind(W_Q, W_K, words=WORDS):
    """For each name and verb its place, its weights, and the places of its kind."""
    weights = _weights(W_Q, W_K, words)
    for kind in ("name", "action"):
        places = _places(words, kind)
        for place in places:
            yield place, weights[place], places


def _kinds_are_found(W_Q, W_K, words=WORDS):
    return all(row[kind].sum() >= 0.9 for _, row, kind in _own_kind(W_Q, W_K, words))


def _kinds_tie(W_Q, W_K, words=WORDS):
    return all(np.ptp(row[kind]) <= 0.01 for _, row, kind in _own_kind(W_Q, W_K, words))


def _shares(W_Q, W_K):
    """What Paul puts on names and on verbs, and the same of told."""
    weights = _weights(W_Q, W_K)
    return (
        weights[0, [0, 2]].sum(),
        weights[0, [1, 4]].sum(),
        *(
            weights[1, [0, 2]].sum(),
            weights[1, [1, 4]].sum(),
        ),
    )


def _kinds_crossed(W_Q, W_K):
    own_name, other_name, other_verb, own_verb = _shares(W_Q, W_K)
    if other_name > max(own_name, 0.5) and other_verb > max(own_verb, 0.5):
        return f"Paul puts {other_name:.3f} on the verbs, told puts {other_verb:.3f} on the names"
    return None


def _one_kind_alone(W_Q, W_K):
    weights = _weights(W_Q, W_K)
    flat = [np.ptp(weights[place]) < 1e-3 for place in (0, 1)]
    if sum(flat) == 1:
        word = WORDS[flat.index(True)]
        return f"{word} puts 0.200 on everybody"
    return None


def _kinds_in_one_column(W_Q, W_K):
    own_name, other_name, other_verb, own_verb = _shares(W_Q, W_K)
    apart = max(abs(own_name - other_name), abs(own_verb - other_verb))
    if apart < 0.01 < own_name - 0.4:
        return f"Paul puts {own_name:.3f} on the names, {other_name:.3f} on the verbs"
    return None


def _he_or_she_counts(W_Q, W_K):
    without = [np.where(np.arange(6)[:, None] == 1, 0, W) for W in (W_Q, W_K)]
    paul = _weights(W_Q, W_K)[0]
    if abs(paul[0] - paul[2]) > 0.01 and np.ptp(_weights(*without)[0, [0, 2]]) <= 0.01:
        return f"Paul puts {paul[0]:.3f} on Paul and {paul[2]:.3f} on Emma"
    return None


def _kinds_ask_nothing(W_Q, W_K):
    flat = np.ptp(_weights(W_Q, W_K)[[0, 1, 2, 4]], axis=1).max() < 1e-3
    return "each of their weights is 0.200" if flat else None


def _reads_itself(W_Q, W_K):
    for place, row, kind in _own_kind(W_Q, W_K):
        other = next(each for each in kind if each != place)
        if row[place] > row[other] + 0.01:
            return (
                f"{WORDS[place]} puts {row[place]:.3f} on itself, "
                f"{row[other]:.3f} on {WORDS[other]}"
            )
    return None


def _kind_does_not_tie(W_Q, W_K):
    for place, row, kind in _own_kind(W_Q, W_K):
        if np.ptp(row[kind]) > 0.01:
            first, second = kind
            return (
                f"{WORDS[place]} puts {row[first]:.3f} on {WORDS[first]}, "
                f"{row[second]:.3f} on {WORDS[second]}"
            )
    return None


def _too_weak_for_kinds(W_Q, W_K):
    least, ahead = 1.0, True
    for _, row, kind in _own_kind(W_Q, W_K):
        least = min(least, row[kind].sum())
        ahead = ahead and row[kind].min() > np.delete(row, kind).max()
    return f"the least that a word puts on its own kind is {least:.3f}" if ahead else None


def _kinds_not_found(W_Q, W_K):
    for place, row, kind in _own_kind(W_Q, W_K):
        if not row[kind].sum() >= 0.9:
            return f"{WORDS[place]} puts {row[kind].sum():.3f} on its own kind"
    return None


def _until_kinds_are_found(test):
    return lambda W_Q, W_K: None if _kinds_are_found(W_Q, W_K) else test(W_Q, W_K)


def _pronoun_takes_part(W_Q, W_K):
    row = _weights(W_Q, W_K)[3]
    if np.ptp(row) <= 0.01:
        return None
    return f"he puts {row.max():.3f} on {WORDS[row.argmax()]}, {row.min():.3f} on another word"


def _kinds_in(sentences):
    def test(W_Q, W_K):
        for words in sentences:
            pronouns = _weights(W_Q, W_K, words)[_places(words, "refers")]
            flat = np.ptp(pronouns, axis=1).max(initial=0) <= 0.01
            right = _kinds_are_found(W_Q, W_K, words) and _kinds_tie(W_Q, W_K, words)
            if not (right and flat):
                return f"not in {' '.join(words)}"
        return None

    return test


E2_6 = Exercise(
    id="E2.6",
    title="Same kind",
    grade="core",
    kind="design",
    minutes=10,
    objective="put two rules into one head without mixing them",
    section="[Rules, by hand and learned](02_qkv.ipynb#rules-by-hand-and-learned)",
    task="""\
Make a head with two rules: names read names, and verbs read verbs.

Hand over `W_Q` and `W_K`, six rows each and equally many columns, so that

- each name puts at least 0.9 on the names and each verb at least 0.9 on the verbs, itself included;
- the words of one kind get the same: Paul reads himself and Emma alike;
- a pronoun, which is of neither kind, reads everybody alike.

It must hold in our sentence, in its variants, and in any order of the words.""",
    stub=_STUB_MATRICES,
    solution=same_kind_solution,
    checker=Design(
        shapes={"W_Q": (6, None), "W_K": (6, None)},
        rules=(
            Rule("Queries and keys must be equally wide to meet in a dot product.", _equally_wide),
            Rule(
                "Names read verbs, and verbs read names: each asks in the column where the other "
                "answers.",
                _kinds_crossed,
                "kinds-crossed",
            ),
            Rule(
                "Names and verbs read everybody alike: they ask nothing, or in a column where "
                "nobody answers.",
                _kinds_ask_nothing,
                "nobody-asks",
            ),
            Rule(
                "One kind finds its own, and the other still asks nothing.",
                _one_kind_alone,
                "one-kind-alone",
            ),
            Rule(
                "Names and verbs read each other as much as their own: both ask in one column, "
                "and the answers there look alike.",
                _until_kinds_are_found(_kinds_in_one_column),
                "both-kinds-in-one-column",
            ),
            Rule(
                "Paul and Emma do not get the same, for they differ in `he/she`, which should "
                "not count here.",
                _he_or_she_counts,
                "he-or-she-counts",
            ),
            Rule(
                "A word reads itself more than the other of its kind. What tells the two apart?",
                _reads_itself,
                "reads-itself",
            ),
            Rule("The two of a kind do not get the same.", _kind_does_not_tie),
            Rule(
                "Each kind finds its own, but the lead is too small for the weight that is asked.",
                _until_kinds_are_found(_too_weak_for_kinds),
                "kinds-lead-too-little",
            ),
            Rule("Not every word finds its own kind.", _kinds_not_found),
            Rule(
                "The pronoun takes part: it is of neither kind, and should ask nothing.",
                _pronoun_takes_part,
                "pronoun-asks-too",
            ),
            Rule("It holds in our sentence, but not in each.", _kinds_in(_SAME_WORDS)),
            Rule("It holds in our sentence, but not in each.", _kinds_in(_OTHER_WORDS)),
        ),
    ),
    hints=(
        "Two rules, two columns: which coordinate belongs to each?",
        "In one column only names should ask, and only names should answer.",
        "The row of *he* is flat as soon as its query is zero. Which rows of W_Q must be zero?",
    ),
    explanation="""\
One column for names and one for verbs, with 2 in both matrices: a word scores 4 with its own kind
and 0 with all others. Two of a kind get 0.459 each, together 0.919.
Here one matrix for both would do, since the rule is symmetric; but nobody asks for it: 4 in $W_Q$
and 1 in $W_K$ is the same head.
One column is enough, too, with 2 for names and -2 for verbs: the other kind then scores -4.

The tie cannot be broken by content: *told* and *won* have the same content, so they have the same
key, and no query in the world can score them differently.
Only something else in the row of a word, its seat, could tell them apart.""",
)

# ---- E2.7 ----------------------------------------------------------------------------------------


def other_numbers_solution():
    G = np.array([[2, 3], [1, 2]])
    return HEAD_A.W_Q @ G, HEAD_A.W_K @ np.linalg.inv(G).T


_RULES = HEAD_A.W_Q @ HEAD_A.W_K.T


def _mixing(new, old):
    """The matrix that makes the new one out of the old one, None if none does."""
    G = np.linalg.lstsq(old, new, rcond=None)[0]
    return G if np.allclose(old @ G, new, atol=1e-9) else None


def _far_off(W_Q, W_K):
    return np.abs(W_Q @ W_K.T - _RULES).max()


def _same_rules(W_Q, W_K):
    size = np.abs(W_Q).max() * np.abs(W_K).max()
    return _far_off(W_Q, W_K) <= min(1e-6, 1e-9 * max(1, size))


def _he_and_paul(W_Q, W_K):
    scores = _scores(W_Q, W_K)
    asks, asked = scores[3, 0], scores[0, 3]
    return f"he scores {asks:.3g} with Paul, before 4; Paul {asked:.3g} with he, before 2"


def _if_mixed(test):
    """A test of the two matrices that mixed W_Q and W_K, where scores have changed."""

    def of_both(W_Q, W_K):
        G, H = _mixing(W_Q, HEAD_A.W_Q), _mixing(W_K, HEAD_A.W_K)
        if _same_rules(W_Q, W_K) or G is None or H is None or not test(G, H):
            return None
        return _he_and_paul(W_Q, W_K)

    return of_both


def _close(A, B):
    return np.allclose(A, B, atol=1e-6)


def _inverse(G):
    return np.linalg.inv(G) if abs(np.linalg.det(G)) > 1e-9 else np.full((2, 2), np.nan)


def _still_the_old(W_Q, W_K):
    same = _close(W_Q, HEAD_A.W_Q) and _close(W_K, HEAD_A.W_K)
    return "all numbers are as they were" if same else None


def _almost_same(W_Q, W_K):
    if _same_rules(W_Q, W_K) or _far_off(W_Q, W_K) > 0.05:
        return None
    return f"a score is off by up to {np.abs(_scores(W_Q, W_K) - _scores(*HEAD_A[:2])).max():.2g}"


def _same_for_this_sentence(W_Q, W_K):
    if _same_rules(W_Q, W_K) or not _close(_scores(W_Q, W_K), _scores(*HEAD_A[:2])):
        return None
    return "in our sentence every score is the same"


def _roles_exchanged(W_Q, W_K):
    return _he_and_paul(W_Q, W_K) if _close(W_Q @ W_K.T, _RULES.T) else None


def _other_scores(W_Q, W_K):
    return None if _same_rules(W_Q, W_K) else _he_and_paul(W_Q, W_K)


def _mixing_is_empty(W_Q, places):
    """Whether the matrix that mixed W_Q is 0 in these places, as far as rounding allows."""
    G = _mixing(W_Q, HEAD_A.W_Q)
    return G is not None and all(abs(G[place]) < 1e-9 * np.abs(G).max() for place in places)


def _each_column_by_itself(W_Q, W_K):
    return "" if _mixing_is_empty(W_Q, [(0, 1), (1, 0)]) else None


def _columns_exchanged(W_Q, W_K):
    return "" if _mixing_is_empty(W_Q, [(0, 0), (1, 1)]) else None


def _a_number_stayed(W_Q, W_K):
    for name, new, old in (("W_Q", W_Q, HEAD_A.W_Q), ("W_K", W_K, HEAD_A.W_K)):
        for row, column in itertools.product(np.flatnonzero(old.any(axis=1)), range(2)):
            now, before = new[row, column], old[row, column]
            if min(abs(now), abs(now - before)) < 1e-9:
                place = f"{('first', 'second')[column]} number in row {COORDINATES[row]} of {name}"
                return f"{place}: {now + 0.0:g}, before {before:g}"
    return None


E2_7 = Exercise(
    id="E2.7",
    title="Other numbers, same head",
    grade="challenge",
    kind="design",
    minutes=12,
    objective="change every number of a head without changing a score",
    section="[One question, one row](02_qkv.ipynb#one-question-one-row)",
    task="""\
Hand over two other matrices in the place of `HEAD_A.W_Q` and `HEAD_A.W_K`, `(6, 2)` both, with
which every sentence has the same scores as before.

The rows `he/she` and `refers` of $W_Q$ and the rows `name` and `he/she` of $W_K$ are not empty.
None of their eight numbers may be 0 or what it was.

The $G$ of the chapter is not good enough. With it row `he/she` of $W_Q$, which was (0, 1), becomes
(1, 1): its second number has stayed.""",
    stub="W_Q = ...\nW_K = ...",
    solution=other_numbers_solution,
    checker=Design(
        shapes={"W_Q": (6, 2), "W_K": (6, 2)},
        rules=(
            Rule("These are the old matrices.", _still_the_old),
            Rule(
                "Nearly: scores are close, but not the same. Were numbers rounded on the way?",
                _almost_same,
                "rounded-on-the-way",
            ),
            Rule(
                "One matrix was mixed and the other left as it was, so nothing undoes the mixing.",
                _if_mixed(lambda G, H: _close(G, np.eye(2)) or _close(H, np.eye(2))),
                "one-side-mixed",
            ),
            Rule(
                "Both were mixed by the same matrix. In a score the two then meet as G times G "
                "transposed. Is that the identity?",
                _if_mixed(_close),
                "same-mixing-on-both",
            ),
            Rule(
                "The keys were mixed by the inverse as it stands. In Q times K transposed the "
                "keys are turned, and what was done to them turns with them.",
                _if_mixed(lambda G, H: _close(H, _inverse(G))),
                "inverse-not-transposed",
            ),
            Rule(
                "The keys were mixed by the transposed matrix. Transposed is not the inverse.",
                _if_mixed(lambda G, H: _close(H, G.T)),
                "transposed-for-the-inverse",
            ),
            Rule(
                "Each score is that of the other way round: who asked is asked now.",
                _roles_exchanged,
                "roles-exchanged",
            ),
            Rule("Every sentence is asked for, not this one alone.", _same_for_this_sentence),
            Rule("The scores have changed.", _other_scores),
            Rule(
                "The scores are the same. But each column was only multiplied by a number of its "
                "own, so what was 0 is still 0.",
                _each_column_by_itself,
                "columns-only-stretched",
            ),
            Rule(
                "The scores are the same. But the columns have only changed places, and each row "
                "still has a 0.",
                _columns_exchanged,
                "columns-only-exchanged",
            ),
            Rule("The scores are the same. But a number is 0 or has stayed.", _a_number_stayed),
        ),
    ),
    hints=(
        "The chapter did this with a matrix G and its inverse. Which rows does G make of (2, 0) "
        "and of (0, 1)?",
        "`W_Q @ G` and `W_K @ H` give the scores `Q @ G @ H.T @ K.T`. What must `G @ H.T` be?",
        "No number of G may be 0, and neither number of its diagonal may be 1; the same is true "
        "of the matrix for the keys. `np.linalg.inv` gives the inverse.",
    ),
    explanation="""\
Row (2, 0) becomes twice the first row of $G$, and row (0, 1) becomes its second row; for the keys
the same with the transposed inverse. With $G$ = [[2, 3], [1, 2]] all eight numbers are new:
`refers` asks (4, 6), `he/she` asks (1, 2), and `name` shows (2, -1), `he/she` shows (-6, 4).

Their products are what they were: 4 · 2 - 6 · 1 = 2, and -4 · 6 + 6 · 4 = 0.
Any $G$ with an inverse does it, a random one too, as far as rounding allows.
So there are endlessly many pairs of matrices for one and the same head, and a single number of a
trained query says nothing.""",
)

# ---- E2.8 ----------------------------------------------------------------------------------------


def moves_solution():
    return {"value": "b", "key": "c", "query": "a"}


E2_8 = Exercise(
    id="E2.8",
    title="Change one, and see what moves",
    grade="core",
    kind="choose",
    minutes=4,
    objective="tell which weights and outputs a query, a key or a value can move",
    section="[Where, and what](02_qkv.ipynb#where-and-what)",
    task="""\
In a sentence where every word asks something, one row of Emma is replaced by another: first her
value alone, then, starting afresh, her key alone, then her query alone.

What can move in each case, in the table of weights and in that of outputs?
Rows read, columns are read.""",
    stub='moves = {"value": ..., "key": ..., "query": ...}  # letters',
    solution=moves_solution,
    checker=Items(
        {
            "value": Choice(
                (
                    Option(
                        "The column Emma of the weights, and with it all outputs.",
                        "Weights are made of queries and keys. No value is in them.",
                        "value-moves-weights",
                    ),
                    Option(
                        "No weight; all outputs.",
                        "Each output moves by its weight on Emma.",
                    ),
                    Option(
                        "No weight; the output of Emma alone.",
                        "A value is handed to those who read it. Who reads Emma?",
                        "value-kept-to-itself",
                    ),
                )
            ),
            "key": Choice(
                (
                    Option(
                        "The column Emma of the weights and no other weight; all outputs.",
                        "Each row of weights makes 1. If one of them grows, what do the others do?",
                        "column-alone",
                    ),
                    Option(
                        "The row Emma of the weights; the output of Emma.",
                        "A row belongs to the word that asks. Her key is asked by all.",
                        "key-moves-its-row",
                    ),
                    Option(
                        "All weights; all outputs.",
                        "Every query meets her key, and in each row the rest makes room.",
                    ),
                    Option(
                        "No weight; all outputs.",
                        "That is what a value does. A key is half of each score for Emma.",
                        "key-as-a-value",
                    ),
                )
            ),
            "query": Choice(
                (
                    Option(
                        "The row Emma of the weights; the output of Emma.",
                        "What she reads is her own affair.",
                    ),
                    Option(
                        "The column Emma of the weights; all outputs.",
                        "The column is what others read of her, by their own queries.",
                        "query-moves-its-column",
                    ),
                    Option(
                        "The row and the column Emma of the weights; all outputs.",
                        "That would be so if query and key were one. Only one of them changed.",
                        "query-and-key-as-one",
                    ),
                )
            ),
        }
    ),
    hints=(
        "Which of the three stands in `Q @ K.T`, and on which side?",
        "Softmax runs along a row: a row that has one new score has new weights everywhere.",
        "The output is `P @ V`. First say what happens to $P$.",
    ),
    explanation="""\
A query is one row of $Q$, and so one row of the scores.
A key is one column of the scores, but after the softmax every row that has a new score moves as a
whole: what Emma gains the others lose.
A value is in no score at all.

In our sentence *told* and *won* ask nothing: their scores are 0 whatever the key, so their rows
stay. That is why the task has words that all ask.""",
)

# ---- E2.9 ----------------------------------------------------------------------------------------


def not_me_solution():
    W_K = HEAD_A.W_K.copy()
    W_K[COORDINATES.index("refers"), 0] = -2
    return W_K


_NOT_ME_STUB = "\n".join(
    [
        "W_K = np.array(  # of head A; change one number",
        "    [",
        *(
            f"        [{first:.1f}, {second:.1f}],  # {name}"
            for name, (first, second) in zip(COORDINATES, HEAD_A.W_K)
        ),
        "    ]",
        ")",
    ]
)


def _changes(W_K):
    """The places that have another number than in head A."""
    return [tuple(map(int, place)) for place in np.argwhere(np.abs(W_K - HEAD_A.W_K) > 1e-12)]


def _he_reads(W_K):
    row = _weights(HEAD_A.W_Q, W_K)[3]
    return f"he puts {row[3]:.3f} on itself and {row[0]:.3f} on Paul; before 0.171 and 0.704"


def _in_rows(*rows):
    """What "he" reads, if the number that was changed stands in one of these rows."""
    places = [COORDINATES.index(row) for row in rows]
    return lambda W_K: _he_reads(W_K) if _changes(W_K)[0][0] in places else None


def _he_prefers(W_K):
    """What "he" puts on Emma and told, where only pronouns notice the number that was changed."""
    row, place = _weights(HEAD_A.W_Q, W_K)[3], _changes(W_K)[0]
    if place != (COORDINATES.index("name"), 0):
        return None
    return f"he puts {row[2]:.3f} on Emma and {row[1]:.3f} on told; before 0.042 on each"


def _several(W_K):
    count = len(_changes(W_K))
    return f"{count} numbers are not those of head A" if count != 1 else None


def _names_notice(W_K):
    if _changes(W_K)[0][1] != 1:
        return None
    before, after = _weights(*HEAD_A[:2])[0, 3], _weights(HEAD_A.W_Q, W_K)[0, 3]
    return f"Paul puts {after:.3f} on he, before {before:.3f}"


def _likes_itself(W_K):
    return _he_reads(W_K) if W_K[2, 0] > 0 else None


def _still_itself(W_K):
    for words in (VARIANTS["he"], VARIANTS["she"], VARIANTS["they"]):
        share = _weights(HEAD_A.W_Q, W_K, words)[3, 3]
        if not share < 0.05:
            return f"{words[3]} puts {share:.3f} on itself"
    return None


E2_9 = Exercise(
    id="E2.9",
    title="Not me",
    grade="challenge",
    kind="design",
    minutes=10,
    objective="add a rule to a head by one number, and touch nothing else",
    section="[Rules, by hand and learned](02_qkv.ipynb#rules-by-hand-and-learned)",
    task="""\
In head A "he" still puts 0.171 on itself.
A trained head found a third rule, *not me*: a pronoun avoids pronouns.

Give head A this rule. Change **one** number of `W_K`, and leave $W_Q$ as it is, so that

- "he", "she" and "they" put less than 0.05 on themselves, at any seat;
- the rows of Paul, Emma, *told* and *won* in the table of weights stay what they are;
- "he" still reads Emma and *told* alike.""",
    stub=_NOT_ME_STUB,
    solution=not_me_solution,
    checker=Design(
        shapes={"W_K": (6, 2)},
        rules=(
            Rule("One number may change.", _several, "several-numbers"),
            Rule(
                "It knows the pronoun by where it sits. At another seat it is lost.",
                _in_rows("seat-x", "seat-y"),
                "known-by-its-seat",
            ),
            Rule(
                "Now each name is more or less of a name to a pronoun, Emma as well as Paul. What "
                "a pronoun shows has not changed.",
                _he_prefers,
                "names-of-another-strength",
            ),
            Rule(
                "The keys of Paul and Emma are made of this row too, so all who ask for them "
                "notice. Which row is met by pronouns alone?",
                _in_rows("name", "he/she"),
                "names-changed-too",
            ),
            Rule(
                "This changes what the verbs show, not what a pronoun shows.",
                _in_rows("action"),
                "verbs-changed",
            ),
            Rule(
                "The right row. But the column `he-like` is what Paul and Emma ask by, so they "
                "notice it too.",
                _names_notice,
                "names-notice-it",
            ),
            Rule(
                "The right number. But now a pronoun likes pronouns.",
                _likes_itself,
                "wrong-sign",
            ),
            Rule("The right number, but not strong enough.", _still_itself, "not-strong-enough"),
        ),
    ),
    hints=(
        "As a rule of M: row `refers`, column `refers`. Which number of W_K feeds it, and "
        "through which column?",
        "Only pronouns ask in the column `name?`. Paul and Emma have a 0 there.",
        'The score of "he" for itself is 2 · (first number of its key) + 1 · 2. It has to come '
        "down to about 0.",
    ),
    explanation="""\
Row `refers` of $W_K$ was empty: a pronoun showed nothing of being one.
Now it shows -2 in the column `name`, which says: less than no name.
Only pronouns ask in that column, so nobody else notices. The score of "he" for itself falls from 2
to -2, its weight from 0.171 to 0.012, and Paul gets 0.839.

In $M$ this is `refers` → `refers` of -4; the trained head of the chapter had found -2.7.
-1 is just enough, with 0.048. In the other column -2 would silence "he" for itself as well, and for
Paul, who reads it by the rule that like wants like.""",
)

# ---- E2.10 ---------------------------------------------------------------------------------------


def read_other(x, source, W_Q, W_K, W_V):
    """What the words of one sentence read in another one.

    x: (n, d), they ask. source: (m, d), they are read. W_Q, W_K: (d, d_k). W_V: (d, d_v)
    -> (n, d_v)
    """
    query = x @ W_Q
    source = source @ W_K
    weights = qn.attention_weights(query, source)
    return weights @ (source @ W_V)


def read_other_solution(x, source, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, source @ W_K, source @ W_V
    return qn.attention_weights(query, key) @ value


_THREE = np.eye(3)
_READ_SMALL = (
    np.array([[0.0, 0.0]]),
    np.array([[1.0, 2.0], [3.0, 0.0]]),
    np.array([[1.0, 0.0], [0.0, 1.0]]),
    np.array([[0.0, 1.0], [2.0, 0.0]]),
    np.array([[1.0, 0.0], [0.0, 10.0]]),
)
_READ_NARROW = (
    np.array([[1.0, 0.0, 0.0, 0.0]]),
    np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 1.0]]),
    np.array([[2.0], [0.0], [1.0], [0.0]]),
    np.array([[1.0], [0.0], [0.0], [0.0]]),
    np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [0.0, 0.0]]),
)
_READ_SQUARE = tuple(
    0.7 * _normal(40 + seed, *shape)
    for seed, shape in enumerate([(3, 4), (5, 4), (4, 4), (4, 4), (4, 4)])
)
_READ_ALIKE = tuple(
    0.7 * _normal(50 + seed, *shape)
    for seed, shape in enumerate([(4, 6), (4, 6), (6, 2), (6, 2), (6, 2)])
)
_READ_OTHER = tuple(
    0.7 * _normal(60 + seed, *shape)
    for seed, shape in enumerate([(3, 6), (5, 6), (6, 2), (6, 2), (6, 4)])
)

READ_OTHER = Subject(
    name="reading another sentence",
    signature="read_other(x, source, W_Q, W_K, W_V)",
    right=read_other_solution,
    tiers=(
        (call(*_READ_SQUARE), call(*_READ_ALIKE), call(*_READ_OTHER)),
        (call(*(1000 * x if i < 2 else x for i, x in enumerate(_READ_OTHER))),),
        (afterwards(*_READ_SQUARE),),
    ),
    listed=False,
)


@READ_OTHER.mistake("With square matrices every shape fits.", reported="shenweichen/DeepCTR#490")
def values_through_the_keys(x, source, W_Q, W_K, W_V):
    """The values are made of the keys, and not of the words: they go through two matrices."""
    key = source @ W_K
    return qn.attention_weights(x @ W_Q, key) @ (key @ W_V)


@READ_OTHER.mistake(
    "Keys as wide as values make the shapes fit.", reported="snu-comparch/InfiniGen#5"
)
def key_matrix_makes_the_values(x, source, W_Q, W_K, W_V):
    """What is averaged are the keys; W_V is not used at all."""
    key = source @ W_K
    return qn.attention_weights(x @ W_Q, key) @ key


@READ_OTHER.mistake("It raises no more, whatever the shapes.")
def cut_to_fit(x, source, W_Q, W_K, W_V):
    """W_V is cut until it fits the keys: the error is gone, and its cause is not."""
    key = source @ W_K
    return qn.attention_weights(x @ W_Q, key) @ (key @ W_V[: key.shape[-1]])


@READ_OTHER.mistake("Two sentences of equal length fit each other.")
def asking_words_hand_over(x, source, W_Q, W_K, W_V):
    """The values come from the words that ask, not from those that are read."""
    return qn.attention_weights(x @ W_Q, source @ W_K) @ (x @ W_V)


@READ_OTHER.mistake("The weights are right, and so is every shape in a square model.")
def words_as_they_are(x, source, W_Q, W_K, W_V):
    """The rows of the words are averaged as they are, without W_V."""
    return qn.attention_weights(x @ W_Q, source @ W_K) @ source


@READ_OTHER.mistake("The values are right at last.")
def keys_left_raw(x, source, W_Q, W_K, W_V):
    """Now the keys are missing: queries meet the words themselves, without W_K."""
    return qn.attention_weights(x @ W_Q, source) @ (source @ W_V)


@READ_OTHER.mistake("The asking sentence is there, and the shapes fit.")
def other_sentence_asks(x, source, W_Q, W_K, W_V):
    """The sentence that is read asks itself: `x` is not used."""
    return qn.attention_weights(source @ W_Q, source @ W_K) @ (source @ W_V)


@READ_OTHER.mistake("Only the divisor is missing, and weights make 1 without it.")
def divisor_dropped(x, source, W_Q, W_K, W_V):
    """The scores are not divided by the root of their width."""
    weights = qn.softmax(x @ W_Q @ (source @ W_K).T)
    return weights @ (source @ W_V)


@READ_OTHER.mistake("Two sentences of equal length fit each other, and weights make 1.")
def keys_ask(x, source, W_Q, W_K, W_V):
    """Keys ask and queries are asked: the two have changed places in the weights."""
    return qn.attention_weights(source @ W_K, x @ W_Q) @ (source @ W_V)


@READ_OTHER.mistake("Where the words are as wide as the keys it is right.")
def root_of_the_width_of_words(x, source, W_Q, W_K, W_V):
    """The scores are divided by the root of the width of a word, not of a key."""
    scores = x @ W_Q @ (source @ W_K).T
    return qn.softmax(scores / math.sqrt(x.shape[-1])) @ (source @ W_V)


@READ_OTHER.mistake("On scores of usual size it is right.")
def powers_without_a_shift(x, source, W_Q, W_K, W_V):
    """Powers of e are infinite for large scores: `qn.attention_weights` takes care of that."""
    powers = np.exp(x @ W_Q @ (source @ W_K).T / math.sqrt(W_K.shape[1]))
    return powers / powers.sum(axis=-1, keepdims=True) @ (source @ W_V)


E2_10 = Exercise(
    id="E2.10",
    title="It runs, as long as everything is square",
    grade="core",
    kind="find the bug",
    minutes=8,
    objective="find a value that was made of the wrong thing",
    section="[Is a third matrix needed?](02_qkv.ipynb#is-a-third-matrix-needed)",
    task="""\
One sentence reads another.
The code below ran for weeks in a model with square matrices, `d = d_k = d_v`, and the weights it
makes are right.
Then somebody chose narrower keys, and now it raises.

Find what is wrong in both models, not only in the one that raises, and repair it.
`x (n, d)` asks, `source (m, d)` is read; `W_Q` and `W_K` are `(d, d_k)`, `W_V` is `(d, d_v)`, and
the output is `(n, d_v)`. Leave `qn.attention_weights` as it is.""",
    stub=read_other,
    solution=read_other_solution,
    checker=Code(
        READ_OTHER,
        cases=(
            case(*_READ_SMALL),
            case(np.array([[1.0, 0.0]]), *_READ_SMALL[1:]),
            case(*_READ_NARROW),
            case(*_READ_SQUARE),
            case(*_READ_ALIKE),
            case(*_READ_OTHER),
        ),
        beyond=("powers-without-a-shift",),
    ),
    hints=(
        "Read it line by line, and say after each line what every name holds.",
        "What does `source` hold in the last line, and what did it hold in the first?",
        "Queries, keys and values are each one product of a sentence and a matrix. "
        "Give each a name of its own.",
    ),
    explanation="""\
`source` is overwritten by the keys, and the last line makes values of keys:
each value has gone through $W_K$ and $W_V$.
With square matrices that is silent, and the model even learns, since $W_K W_V$ is a matrix too.
But a value can then hand over only what the keys show. In head A no key shows `action`, so no
output could have it, whatever $W_V$ says.

Two probes find it: unequal widths, with which it raises, and a changed $W_K$ in a sentence where
nobody asks: the weights stay at 1 over the number of words, so the output must stay as well.
The same two lines were reported in a library in use, where only square matrices occurred.""",
)

# ---- E2.11 ---------------------------------------------------------------------------------------


def output_by_key(query, key, value, j):
    """How the output of one word that asks moves with the key of word j.

    query: (d_k,). key: (n, d_k). value: (n, d_v). j: which key -> (d_v, d_k)
    """
    ...


def output_by_key_solution(query, key, value, j):
    weights = qn.attention_weights(query[None], key)[0]
    output = weights @ value
    return np.outer(weights[j] * (value[j] - output), query) / math.sqrt(len(query))


def _by_a_tiny_step(query, key, value, j):
    """The derivative without its formula, and exact: by steps along the imaginary axis."""
    moved = np.empty((value.shape[1], key.shape[1]))
    for c in range(key.shape[1]):
        stepped = key.astype(complex)
        stepped[j, c] += 1e-30j
        scores = stepped @ query / np.sqrt(len(query))
        powers = np.exp(scores - scores.real.max())
        moved[:, c] = (powers / powers.sum() @ value).imag / 1e-30
    return moved


_ASKED = 0.8 * _normal(70, 3), 0.8 * _normal(71, 5, 3), _normal(72, 5, 2)
_ASKED_WIDE = _normal(73, 2), _normal(74, 4, 2), _normal(75, 4, 3)
_ASKED_SQUARE = _normal(76, 3), _normal(77, 3, 3), _normal(78, 3, 3)
_LARGE_KEYS = np.array([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])  # scores 7071, 7071, -7071
_EQUAL_KEYS = np.array([2.0, 0.0, 4.0, 0.0]), np.zeros((2, 4)), np.array([[4.0], [0.0]])

OUTPUT_BY_KEY = Subject(
    name="output by key",
    signature="output_by_key(query, key, value, j)",
    right=_by_a_tiny_step,
    tiers=(
        (call(*_ASKED, 1), call(*_ASKED, 4), call(*_ASKED_WIDE, 0), call(*_ASKED_SQUARE, 2)),
        (call(np.array([1e4, -1e4]), _LARGE_KEYS, _ASKED_WIDE[2][:3], 0),),
        (afterwards(*_ASKED, 1),),
    ),
    listed=False,
)


def _parts(query, key, value):
    weights = qn.attention_weights(query[None], key)[0]
    return weights, weights @ value, query / math.sqrt(len(query))


@OUTPUT_BY_KEY.mistake("One factor for the weight, one for the value, one for the query.")
def denominator_forgotten(query, key, value, j):
    """The weight of word j grows and no other one shrinks: the sum in the softmax moves too."""
    weights, _, step = _parts(query, key, value)
    return np.outer(weights[j] * value[j], step)


@OUTPUT_BY_KEY.mistake(
    "p (1 - p) is the derivative that one remembers.", reported="deeplearning4j/libnd4j#440"
)
def only_its_own_weight(query, key, value, j):
    """The weight of word j moves rightly, but those of the other words move too, and they read."""
    weights, _, step = _parts(query, key, value)
    return np.outer(weights[j] * (1 - weights[j]) * value[j], step)


@OUTPUT_BY_KEY.mistake("With a width of 1 it is right.")
def root_forgotten(query, key, value, j):
    """The scores were divided by the root of their width, and here it is missing."""
    weights, output, _ = _parts(query, key, value)
    return np.outer(weights[j] * (value[j] - output), query)


@OUTPUT_BY_KEY.mistake("A key of width 1 does not show it.")
def width_for_its_root(query, key, value, j):
    """It is divided by the width of a key; the scores were divided by its root."""
    weights, output, _ = _parts(query, key, value)
    return np.outer(weights[j] * (value[j] - output), query) / len(query)


@OUTPUT_BY_KEY.mistake("Both parts of it stand in a right formula, though not together.")
def room_made_twice(query, key, value, j):
    """That the others make room is counted twice, by 1 - p and by the output taken away."""
    weights, output, step = _parts(query, key, value)
    return np.outer(weights[j] * (1 - weights[j]) * (value[j] - output), step)


@OUTPUT_BY_KEY.mistake("The other words make room, as they should.")
def own_share_left_out(query, key, value, j):
    """The other weights shrink rightly, but weight j grows by p and not by p (1 - p)."""
    weights, output, step = _parts(query, key, value)
    others = output - weights[j] * value[j]
    return np.outer(weights[j] * (value[j] - others), step)


@OUTPUT_BY_KEY.mistake("Every number is right.")
def derivative_on_its_side(query, key, value, j):
    """A row for each number of the key: rows belong to the output here."""
    weights, output, step = _parts(query, key, value)
    return np.outer(step, weights[j] * (value[j] - output))


@OUTPUT_BY_KEY.mistake("Query and key are equally wide.")
def key_in_place_of_the_query(query, key, value, j):
    """By its key a score moves as far as the query says; here stands the key itself."""
    weights, output, _ = _parts(query, key, value)
    return np.outer(weights[j] * (value[j] - output), key[j] / math.sqrt(len(query)))


@OUTPUT_BY_KEY.mistake("It says where the output is pulled to.")
def weight_missing(query, key, value, j):
    """A word with a weight of nearly 0 would pull as hard as any other."""
    _, output, step = _parts(query, key, value)
    return np.outer(value[j] - output, step)


@OUTPUT_BY_KEY.mistake("The size of each number is right.")
def pulled_the_wrong_way(query, key, value, j):
    """More weight on word j must pull the output towards its value, not away from it."""
    weights, output, step = _parts(query, key, value)
    return np.outer(weights[j] * (output - value[j]), step)


@OUTPUT_BY_KEY.mistake("Where all weights are equal it is right.")
def mean_for_the_output(query, key, value, j):
    """The value is compared with the plain mean of all values, not with what is read."""
    weights, _, step = _parts(query, key, value)
    return np.outer(weights[j] * (value[j] - value.mean(axis=0)), step)


@OUTPUT_BY_KEY.mistake("It holds the weight, as the derivative by a value does.")
def derivative_by_the_value(query, key, value, j):
    """This is how the output moves with the value of word j: by its weight. A key is asked for."""
    weights, *_ = _parts(query, key, value)
    return weights[j] * np.eye(value.shape[1], key.shape[1])


@OUTPUT_BY_KEY.mistake("On scores of usual size it is right.")
def powers_too_large(query, key, value, j):
    """Powers of e are infinite for large scores: take the largest score away first."""
    powers = np.exp(key @ query / math.sqrt(len(query)))
    weights = powers / powers.sum()
    return np.outer(weights[j] * (value[j] - weights @ value), query / math.sqrt(len(query)))


def _output(query, key, value):
    return qn.attention_weights(query[None], key)[0] @ value


def _stepped(key, j, c, step):
    moved = key.copy()
    moved[j, c] += step
    return moved


@OUTPUT_BY_KEY.mistake("It is right to three or four digits.")
def one_step_for_the_derivative(query, key, value, j):
    """This is a difference of two outputs, a test for a formula and not yet one."""
    at = _output(query, key, value)
    steps = [_output(query, _stepped(key, j, c, 1e-5), value) - at for c in range(key.shape[1])]
    return np.stack(steps, axis=1) / 1e-5


@OUTPUT_BY_KEY.mistake("It is right to nine digits, as long as the scores are small.")
def two_steps_for_the_derivative(query, key, value, j):
    """This is a difference of two outputs, a test for a formula and not yet one."""
    steps = [
        _output(query, _stepped(key, j, c, 1e-5), value)
        - _output(query, _stepped(key, j, c, -1e-5), value)
        for c in range(key.shape[1])
    ]
    return np.stack(steps, axis=1) / 2e-5


E2_11 = Exercise(
    id="E2.11",
    title="How far does a key pull?",
    grade="challenge",
    kind="derive",
    minutes=20,
    objective="derive how an output moves with a key",
    section="[Where, and what](02_qkv.ipynb#where-and-what)",
    task="""\
When the value of word $j$ rises by 1, the output moves by its weight.
How does it move when the *key* of word $j$ changes?

One word asks: `query (d_k,)`, `key (n, d_k)`, `value (n, d_v)`.
Derive a formula and write `output_by_key(query, key, value, j)`, which gives `(d_v, d_k)`: row
`a`, column `c` is the derivative of number `a` of the output by number `c` of key `j`.
`qn.attention_weights(query[None], key)[0]` gives the weights `(n,)`.

For `query = [2, 0, 4, 0]`, two keys of zeros, values `[4]` and `[0]`, and `j = 0` it is
`[[1, 0, 2, 0]]`.
To test your formula, move one number of the key by 0.00001 and see how far the output moves.""",
    stub=output_by_key,
    solution=output_by_key_solution,
    checker=Code(
        OUTPUT_BY_KEY,
        cases=(
            case(*_EQUAL_KEYS, 0),
            case(
                np.array([1.0, 2.0, 0.0, 0.0]),
                np.array([[0.0, 0.0, 3.0, 0.0], [4.0, 0.0, 0.0, 1.0]]),
                np.array([[3.0, 0.0], [0.0, 1.0]]),
                1,
            ),
            case(*_ASKED, 1),
            case(*_ASKED_WIDE, 0),
            case(np.array([4e3, -4e3]), _LARGE_KEYS, np.array([[1.0], [5.0], [9.0]]), 0),
        ),
        beyond=("powers-too-large",),
        equal=case(np.array([4e3, -4e3, 0.0]), np.pad(_LARGE_KEYS, ((0, 0), (0, 1))), np.eye(3), 0),
    ),
    hints=(
        "Key j is in a single score, `query @ key[j]` over the root of `d_k`. Go step by step: "
        "key, score, weights, output.",
        "When that score rises, weight j changes by `p[j] * (1 - p[j])`, and each other weight i "
        "by `-p[i] * p[j]`.",
        "Add up value times change of weight over all words, and take `p[j]` out. What is left in "
        "the bracket is the value of word $j$ less a sum that you know.",
    ),
    explanation="""\
With $p$ the weights and $o$ the output, the score moves the output by
$p_j (1 - p_j)\\, v_j - \\sum_{i \\neq j} p_i p_j v_i = p_j (v_j - o)$,
and the key moves the score by $q / \\sqrt{d_k}$. Together: $p_j (v_j - o)^\\top q / \\sqrt{d_k}$.

In words: more weight on word $j$ pulls the output towards its value, in proportion to the weight it
has already. A word that is not read at all cannot be found by small steps, and where the value is
what is read anyway, the key gets no push.

Whoever forgets that the other weights shrink has $p_j v_j$ in the place of $p_j (v_j - o)$: in the
example [[2, 0, 4, 0]], twice too much. A test with values of zero mean would not have shown it
where all weights are equal.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (E2_1, E2_2, E2_3, E2_4, E2_5, E2_6, E2_7, E2_8, E2_9, E2_10, E2_11)

QUIZ = (
    Question(
        'A trained head gives "he" the query (5, 3). What does the 5 say?',
        (
            Option(
                "How much a name is wanted.",
                "Names for single numbers were ours, for a head written by hand.",
                "single-numbers-have-a-meaning",
            ),
            Option(
                "That this question is stronger than one of (2, 1).",
                "If the keys stay, a longer query makes a sharper row. With other keys (5, 3) "
                "asks just what (2, 1) asked.",
                "length-of-a-query-alone",
            ),
            Option(
                "Nothing, as long as the keys are not known.",
                "Mix the numbers of all queries, undo it in the keys, and every score stays.",
            ),
            Option(
                "That the word is important.",
                "A query says what its own word looks for. How much others read of the word is "
                "up to their queries and its key.",
                "query-is-importance",
            ),
        ),
    ),
    Question(
        "Queries and keys are made by one and the same matrix. What is certain?",
        (
            Option(
                "What word 2 scores with word 5, word 5 scores with word 2.",
                "The scores are symmetric. The weights need not be: each row has its own sum.",
            ),
            Option(
                "Each word reads itself most.",
                "Often, but not for certain: a longer key beats it. In the chapter Paul and "
                '"he" came out alike in the row of "he".',
                "tied-reads-itself-always",
            ),
            Option(
                "The table of weights is symmetric.",
                "The scores are. Each row is divided by a sum of its own, and that breaks it.",
                "weights-symmetric-too",
            ),
            Option(
                "Nothing changes, for a query and a key are the same thing anyway.",
                'Then nobody could ask for something that they do not show. "He" asks for a name '
                "and shows none.",
                "query-and-key-are-the-same",
            ),
        ),
    ),
    Question(
        "Somebody computes $K Q^\\top$ for $Q K^\\top$ in a sentence that reads itself. "
        "Which check shows it?",
        (
            Option(
                "Add up each row of the weights, and see whether it makes 1.",
                "Softmax makes every row 1, whatever the scores are.",
                "row-sums-show-everything",
            ),
            Option(
                "Compare the shape of the scores with the number of words.",
                "In self-attention it is square both ways.",
                "shapes-show-everything",
            ),
            Option(
                "Change one query, and count the rows that move.",
                "It must be one row. With the product the wrong way round several rows move.",
            ),
        ),
    ),
    Question(
        "Two keys point in the same direction, and the second is twice as long. A query has a "
        "positive score with the first. What does it read more?",
        (
            Option(
                "Both alike, for a score says how similar they are.",
                "That is the cosine. A dot product grows with length.",
                "score-is-a-cosine",
            ),
            Option(
                "The second.",
                "Its score is twice as large. With a negative score it would read it less.",
            ),
            Option(
                "The first, for its length is closer to that of the query.",
                "Nothing compares lengths. They are multiplied.",
                "score-is-a-distance",
            ),
            Option(
                "The second, with exactly twice the weight.",
                "The score doubles. The weight goes through a power of $e$.",
                "weights-grow-like-scores",
            ),
        ),
    ),
    Question(
        "Attention is called a dictionary. What does a word get that asks for something that no "
        "key shows?",
        (
            Option(
                "Nothing: all of its weights are 0, and so is its output.",
                "The weights of a row make 1, whatever the scores.",
                "not-found-gives-nothing",
            ),
            Option(
                "Its own value, since its own key is always at hand.",
                "Its own key has no privilege. It is one key among others.",
                "falls-back-on-itself",
            ),
            Option(
                "The value with the best key, however badly that one fits.",
                "That would be a choice of one. Each value comes in by its weight, and equal "
                "scores have equal weights.",
                "nearest-entry-alone",
            ),
            Option(
                "A blend of all values.",
                "There is no *not found*. If all scores are the same it is the plain average: "
                "*told* asked nothing and got that.",
            ),
        ),
    ),
    Question(
        "Two words of one sentence read five of another. What has five rows?",
        (
            Option(
                "The queries and the keys.",
                "The queries come from the words that ask, and those are two.",
                "queries-from-the-words-read",
            ),
            Option(
                "The keys and the values.",
                "Each word that is read has both. Queries, weights and outputs have two rows.",
            ),
            Option(
                "The values and the output.",
                "The output has a row for each word that asks.",
                "output-for-each-value",
            ),
            Option(
                "The weights.",
                "They have five columns: one row for each word that asks.",
                "weights-on-their-side",
            ),
        ),
    ),
)
