"""Exercises of chapter 4: several heads."""

import functools
from itertools import product

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.example import HEAD_B, SEATS
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case, with_more
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import MISTAKES, Subject
from qkvlib.mistakes._catalogue import afterwards, call

# ---- E4.1 ----------------------------------------------------------------------------------------


def layer_shapes_solution():
    return {
        "W_Q": (12, 15),
        "queries": (3, 7, 5),
        "weights": (3, 7, 7),
        "side by side": (7, 6),
        "W_O": (6, 12),
    }


def _shape(right, **slips):
    return Numbers(
        right=lambda: right,
        slips={
            name.replace("_", "-"): Slip(lambda wrong=wrong: wrong, says)
            for name, (wrong, says) in slips.items()
        },
    )


_TURNED = "Rows and columns are exchanged. A word is a row and stands on the left of the matrix."

_APART = "These are the matrices of the heads, one behind the other. Joined, they are one matrix."

E4_1 = Exercise(
    id="E4.1",
    title="The shapes of a layer",
    grade="warm-up",
    kind="predict",
    minutes=5,
    objective="name the shape of every array in a layer of several heads",
    section="[In one matrix](04_multi_head.ipynb#in-one-matrix)",
    task="""\
A text of 7 words, each 12 wide, goes through a layer of 3 heads.
A key has 5 numbers and a value has 2.
The matrices of all heads are joined as in the chapter, and what comes out is 12 wide again.

Give five shapes: of the joint $W_Q$; of the queries, once they are divided among the heads; of the
weights of all heads; of the heads' outputs side by side; and of $W_O$.""",
    stub="""\
layer_shapes = {
    "W_Q": (..., ...),
    "queries": (..., ..., ...),
    "weights": (..., ..., ...),
    "side by side": (..., ...),
    "W_O": (..., ...),
}""",
    solution=layer_shapes_solution,
    checker=Items(
        {
            "W_Q": _shape(
                (12, 15),
                width_divided_among_heads=(
                    (12, 12),
                    "These are 4 columns for each head, 12 / 3. A key's width is given, and it "
                    "need not be that.",
                ),
                not_joined=((3, 12, 5), _APART),
                one_head_alone=((12, 5), "That is the matrix of one head. How many are joined?"),
                rows_and_columns_exchanged=((15, 12), _TURNED),
            ),
            "queries": _shape(
                (3, 7, 5),
                heads_not_in_front=(
                    (7, 3, 5),
                    "`reshape` alone gives this. A head needs its words together, so one more "
                    "step follows.",
                ),
                columns_before_words=(
                    (3, 5, 7),
                    "Within a head a word stays a row, with its numbers beside each other.",
                ),
                words_divided=(
                    (3, 7, 4),
                    "Each head gets its own columns of the joint product, and there are 15.",
                ),
            ),
            "weights": _shape(
                (3, 7, 7),
                one_map_for_all_heads=((7, 7), "One map? Each head has a row for each word."),
                keys_compared_by_column=(
                    (3, 5, 5),
                    "Words are compared with words; the 5 numbers of a key are summed over.",
                ),
                weights_as_wide_as_queries=(
                    (3, 7, 5),
                    "This is the shape of the queries. Query times key leaves one number for each "
                    "pair of words.",
                ),
            ),
            "side by side": _shape(
                (7, 6),
                values_as_wide_as_keys=((7, 15), "What is read is values, and a value has 2."),
                heads_added=((7, 2), "Side by side, not added: each head keeps its own columns."),
                width_of_the_model=(
                    (7, 12),
                    "12 is what comes out in the end. Which matrix does that?",
                ),
                heads_stacked=(
                    (3, 7, 2),
                    "These are the heads one behind the other, before they are put side by side.",
                ),
            ),
            "W_O": _shape(
                (6, 12),
                not_joined=((3, 2, 12), _APART),
                square_output_matrix=(
                    (12, 12),
                    "What meets this matrix is what the heads hand over, side by side. How wide "
                    "is that?",
                ),
                rows_and_columns_exchanged=((12, 6), _TURNED),
                rows_for_keys=(
                    (15, 12),
                    "Keys have done their work before. What is read is values.",
                ),
            ),
        }
    ),
    hints=(
        "The widths of keys and of values never meet: keys are in the weights, values in what "
        "comes out.",
        "Joining goes along the columns: 3 heads with 5 columns each.",
        "A weight belongs to a head, to a word that asks and to a word that is read.",
    ),
    explanation="""\
The 5 of the keys is gone after the scores, and the 2 of the values goes through to the end.
12 / 3 = 4 appears nowhere: that the heads share the width of the model out among them is a custom
and no law.
In the chapter's toy it is the same: keys of 2 and values of 3 in a model that is 6 wide.

Only two shapes look at the width of the model: the rows of $W_Q$ and the columns of $W_O$.""",
)

# ---- E4.2 ----------------------------------------------------------------------------------------


def split_heads(x, num_heads):
    """The columns of each head, as a text of its own.

    x: (..., n, h * d), first the d columns of head 0, then those of head 1, and so on
    num_heads: h -> (..., h, n, d)
    """
    ...


def split_heads_solution(x, num_heads):
    *batch, n, width = x.shape
    return x.reshape(*batch, n, num_heads, width // num_heads).swapaxes(-3, -2)


_COUNTED = np.arange(1.0, 73.0)

E4_2 = Exercise(
    id="E4.2",
    title="Divide the columns among the heads",
    grade="core",
    kind="fill in",
    minutes=10,
    objective="split a joint product into heads, for one text and for many",
    section="[In one matrix](04_multi_head.ipynb#in-one-matrix)",
    task="""\
Write `split_heads(x, num_heads)` with NumPy or torch, without `qkvlib`.

`x` is a joint product such as the queries of all heads, `(n, h * d)`: first the `d` columns of head
0, then those of head 1, and so on. The result is `(h, n, d)`: for each head its columns of all
words. There may be more axes in front, of many texts, and they stay: `(..., n, h * d)` becomes
`(..., h, n, d)`.

For two heads, `[[1, 2, 3, 4], [5, 6, 7, 8]]` becomes `[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]`.""",
    stub=split_heads,
    solution=split_heads_solution,
    checker=Code(
        "split heads",
        alone=True,
        cases=(
            case(_COUNTED[:12].reshape(3, 4), 2),
            case(_COUNTED[:18].reshape(3, 6), 3),
            case(_COUNTED[:24].reshape(2, 2, 6), 3),
            case(_COUNTED.reshape(2, 3, 12), 4),
            case(_COUNTED[:48].reshape(2, 1, 2, 12), 3),
        ),
        laws=False,
    ),
    hints=(
        "Look at head 0 of your result: are all words in it?",
        "Two steps, as in the chapter. The first one only gives the groups of columns a name.",
        "Count the axes from the end: -1, -2, -3. Then it does not matter how many stand in front.",
    ),
    explanation="""\
`reshape` never moves a number: it reads the array row by row and sets new borders.
So it can name the groups of columns, `(..., n, h, d)`, and the order is still word by word.
`swapaxes` then brings the head before the words.

Reshaped to `(h, n, d)` at once, head 0 of the example is `[[1, 2], [3, 4]]`: the first word cut in
two.
`np.stack(np.split(x, num_heads, axis=-1), axis=-3)` does the same as the solution, and so does a
loop over slices.""",
)

# ---- E4.3 ----------------------------------------------------------------------------------------


def multi_head(x, W_Q, W_K, W_V, W_O, num_heads):
    """A layer of several heads. x: (n, d_model) -> (n, d_model)."""
    n = len(x)

    def split(joint):  # (n, h * d) -> (h, n, d)
        return joint.reshape(n, num_heads, -1).swapaxes(0, 1)

    query, key, value = split(x @ W_Q), split(x @ W_K), split(x @ W_V)
    heads = qn.scaled_dot_product_attention(query, key, value)
    side_by_side = heads.reshape(n, -1)  # (n, h * d_v)
    return side_by_side @ W_O


def multi_head_solution(x, W_Q, W_K, W_V, W_O, num_heads):
    n = len(x)

    def split(joint):  # (n, h * d) -> (h, n, d)
        return joint.reshape(n, num_heads, -1).swapaxes(0, 1)

    query, key, value = split(x @ W_Q), split(x @ W_K), split(x @ W_V)
    heads = qn.scaled_dot_product_attention(query, key, value)
    side_by_side = heads.swapaxes(0, 1).reshape(n, -1)  # (h, n, d_v) -> (n, h, d_v) -> (n, h * d_v)
    return side_by_side @ W_O


_generator = np.random.default_rng(44)


def _small(*shape):
    return _generator.integers(-2, 3, shape).astype(float)


def _layer(n, d_model, num_heads, d_k, d_v, draw=_small):
    shapes = [(d_model, num_heads * d_k)] * 2 + [(d_model, num_heads * d_v)]
    return (
        draw(n, d_model),
        *(draw(*shape) for shape in shapes),
        draw(num_heads * d_v, d_model),
        num_heads,
    )


def _normal(*shape):
    return _generator.normal(size=shape)


_EYE = np.eye(2)
_TWO_WORDS = np.array([[1.0, 2.0], [3.0, 4.0]])
_LAYERS = [_layer(5, 6, 2, 4, 3, _normal), _layer(4, 7, 3, 2, 5, _normal)]
_SQUARE_DESK = _layer(3, 4, 2, 1, 2)  # values of all heads are as wide as the model

LAYER = Subject(
    name="layer of one text",
    signature="multi_head(x, W_Q, W_K, W_V, W_O, num_heads)",
    right=multi_head_solution,
    tiers=(
        tuple(call(*each) for each in [*_LAYERS, _SQUARE_DESK]),
        (call(*_layer(3, 4, 1, 2, 3, _normal)),),
        (afterwards(*_LAYERS[1]),),
    ),
    listed=False,
)


def _of_layer(looks_right, split=qn.split_heads):
    """Enter a wrong way to merge heads, as a layer with it, and maybe with a wrong way to split."""

    def enter(merge):
        @functools.wraps(merge)
        def layer(x, W_Q, W_K, W_V, W_O, num_heads):
            query, key, value = (split(x @ W, num_heads) for W in (W_Q, W_K, W_V))
            return merge(qn.scaled_dot_product_attention(query, key, value)) @ W_O

        LAYER.mistake(looks_right)(layer)
        return merge

    return enter


for _name in ("merge-without-transpose", "columns-of-heads-mixed", "heads-in-reverse"):
    _of_layer(MISTAKES[_name].looks_right)(MISTAKES[_name].function)


@_of_layer(
    "The two steps undo each other, shapes fit, and rows of weights sum to 1.",
    split=MISTAKES["split-without-transpose"].function,
)
def no_swap_on_either_side(heads):
    """Now no head sees the whole text: each gets a run of words, as in 'Forget the swap'."""
    return MISTAKES["merge-without-transpose"].function(heads)


@_of_layer(
    "All numbers of a row belong to one place.",
    split=MISTAKES["split-without-transpose"].function,
)
def swap_only_at_the_end(heads):
    """Merging swaps, and splitting does not any more: a head gets a run of words. Both need it."""
    return qn.merge_heads(heads)


@_of_layer("Side by side they are in order.", split=lambda x, h: x.reshape(len(x), h, -1))
def heads_of_a_word_for_words(heads):
    """Now the heads of one word read each other, and no word reads another. Splitting was right."""
    return heads.reshape(len(heads), -1)


@_of_layer("There is a swap, and the shape is right.")
def words_swapped_with_columns(heads):
    """The swap exchanges the words with a head's columns; a row must hold one word of all heads."""
    return heads.swapaxes(-2, -1).reshape(heads.shape[-2], -1)


@_of_layer("There is a swap, and the shape is right.")
def swapped_after_the_reshape(heads):
    """The reshape has mixed words and columns before anything is turned: first swap, then merge."""
    return heads.reshape(-1, heads.shape[-2]).swapaxes(0, 1)


@LAYER.mistake("Where values of all heads are as wide as the model, the shape is right.")
def output_matrix_gone(x, W_Q, W_K, W_V, W_O, num_heads):
    """The heads stand side by side in the right order, and W_O, which mixes them, is gone."""
    query, key, value = (qn.split_heads(x @ W, num_heads) for W in (W_Q, W_K, W_V))
    return qn.merge_heads(qn.scaled_dot_product_attention(query, key, value))


@LAYER.mistake("A square matrix fits either way.")
def output_matrix_turned(x, W_Q, W_K, W_V, W_O, num_heads):
    """W_O was right as it stood, and is transposed now. The heads are merged rightly."""
    return output_matrix_gone(x, W_Q, W_K, W_V, W_O, num_heads) @ W_O.T


E4_3 = Exercise(
    id="E4.3",
    title="Comments that are right",
    grade="core",
    kind="find the bug",
    minutes=10,
    objective="find a fault that no shape and no row sum shows",
    section="[Forget the swap](04_multi_head.ipynb#forget-the-swap)",
    task="""\
This layer runs, and each comment states the right shape. A model built on such a layer has learned
to copy its input, so its training test passed.
But with the two heads of the chapter it gives "he" .951 in the column `he/she`, and the layer of
the chapter gives .403. Find the fault and repair it.

`x` is one text, `(n, d_model)`; the matrices are joint, as in the chapter.""",
    stub=multi_head,
    solution=multi_head_solution,
    checker=Code(
        LAYER,
        does_it=("MultiHeadAttention",),
        cases=(
            case(_TWO_WORDS, 0 * _EYE, 0 * _EYE, np.array([[1.0, 0], [0, 10]]), _EYE, 2),
            case(_TWO_WORDS, _EYE, _EYE, np.array([[1.0, 0, 10, 0], [0, 1, 0, 10]]), np.eye(4), 2),
            case(*_SQUARE_DESK),
            case(*_LAYERS[0]),
            case(*_LAYERS[1]),
        ),
    ),
    hints=(
        "The shapes are those of the comments. Which numbers stand in row 0 of `side_by_side`?",
        "Write down the order of the numbers in `heads`: head 0 with all its words, then head 1.",
        "`split` needs two steps. Merging is the way back.",
    ),
    explanation="""\
`heads` is `(h, n, d_v)` in memory: all words of head 0, then all words of head 1.
`reshape(n, -1)` cuts this row into n pieces, and with two heads the first words get nothing of
head 1, the last ones nothing of head 0.
`swapaxes` first, and each piece is one word of all heads.

Why did nobody see it? Every output still depends on every word, so the test of reach passes; only
the rows are not those of their words.
What finds it: exchange two words, and the outputs must change places too.
Head B's columns before A's would give -.443, another fault with the right shape.""",
)

# ---- E4.4 ----------------------------------------------------------------------------------------


def parameters(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """How many numbers training sets in a layer of several heads: a whole number."""
    ...


def parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    columns = num_heads * d_k + num_kv_heads * (d_k + d_v)  # of W_Q, W_K and W_V
    matrices = d_model * columns + num_heads * d_v * d_model
    return matrices + (columns + d_model if bias else 0)


_SIZES = [(6, 2, 2, 3, 2, False), (12, 3, 5, 2, 1, False), (10, 4, 3, 7, 2, False)]

PARAMETERS = Subject(
    name="parameters of a layer",
    signature="parameters(d_model, num_heads, d_k, d_v, num_kv_heads, bias)",
    right=parameters_solution,
    tiers=(
        tuple(call(*sizes) for sizes in _SIZES),
        tuple(call(*sizes[:-1], True) for sizes in _SIZES),
        (call(1024, 128, 128, 128, 128, False), call(512, 8, 64, 64, 8, True)),
    ),
    listed=False,
)


@PARAMETERS.mistake("For most models it is the right number.")
def four_squares(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """Four matrices of d_model x d_model: true only where the heads' widths make d_model in sum."""
    return 4 * d_model**2 + (4 * d_model if bias else 0)


@PARAMETERS.mistake("Without shared keys it is right.")
def key_heads_like_query_heads(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """Keys and values are counted for each query head: those that share have one for several."""
    return parameters_solution(d_model, num_heads, d_k, d_v, num_heads, bias)


@PARAMETERS.mistake("All three projections are there.")
def output_matrix_not_counted(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """A fourth matrix is missing: the one that mixes what the heads hand over."""
    columns = num_heads * d_k + num_kv_heads * (d_k + d_v)
    return d_model * columns + (columns if bias else 0)


@PARAMETERS.mistake("Where the values of all heads are as wide as the model, it is right.")
def square_output_matrix(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """W_O is counted as a square. It has a row for each number that a head hands over."""
    columns = num_heads * d_k + num_kv_heads * (d_k + d_v)
    return d_model * columns + d_model**2 + (columns + d_model if bias else 0)


@PARAMETERS.mistake("All heads of the queries are counted.")
def output_rows_of_shared_heads(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """W_O is counted for the heads of the values, but each query head hands over what it reads."""
    columns = num_heads * d_k + num_kv_heads * (d_k + d_v)
    return d_model * columns + num_kv_heads * d_v * d_model + (columns + d_model if bias else 0)


@PARAMETERS.mistake("With d_k equal to d_v it is right.")
def values_as_wide_as_keys(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """Values are counted with the width of a key."""
    return parameters_solution(d_model, num_heads, d_k, d_k, num_kv_heads, bias)


@PARAMETERS.mistake("Every head has its own matrices.")
def output_matrix_for_each_head(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """W_O is counted once for each head: it is one matrix, and each head has only some rows."""
    columns = num_heads * d_k + num_kv_heads * (d_k + d_v)
    matrices = d_model * columns + num_heads**2 * d_v * d_model
    return matrices + (columns + d_model if bias else 0)


@PARAMETERS.mistake("It is the size of head A.")
def one_head_counted(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """This is a layer with a single head: the sizes are those of one head."""
    return parameters_solution(d_model, 1, d_k, d_v, 1, bias)


@PARAMETERS.mistake("With a width of d_model / num_heads it is right.")
def width_divided_among_heads(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """A head is counted as d_model / num_heads wide. Its widths are given, and need not be that."""
    width = d_model // num_heads
    return parameters_solution(d_model, num_heads, width, width, num_kv_heads, bias)


@PARAMETERS.mistake("With d_k equal to d_v it is right.")
def output_rows_as_wide_as_keys(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """W_O is counted with the width of a key. What do heads hand over, keys or values?"""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, bias)
    return count + num_heads * (d_k - d_v) * d_model


@PARAMETERS.mistake("All heads of the queries are counted.")
def only_values_shared(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """Values are counted once for those that share them, and keys for every query head."""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, bias)
    return count + (num_heads - num_kv_heads) * d_k * (d_model + bool(bias))


@PARAMETERS.mistake("For queries, keys and values it is right.")
def output_bias_as_long_as_its_input(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """The last bias is counted with the rows of W_O. It is added to what comes out."""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, bias)
    return count + (num_heads * d_v - d_model if bias else 0)


@PARAMETERS.mistake("Without a bias it is right.")
def bias_not_counted(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """The matrices are right, but with bias = True there is more to set."""
    return parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, False)


@PARAMETERS.mistake("Without a bias it is right.")
def output_bias_not_counted(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """The biases of queries, keys and values are there; the product with W_O has one too."""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, bias)
    return count - (d_model if bias else 0)


@PARAMETERS.mistake("Where all matrices are squares it is right.")
def a_bias_for_each_row(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """A bias is added to the result, so it is as wide as the matrix has columns, not rows."""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, False)
    return count + (3 * d_model + num_heads * d_v if bias else 0)


@PARAMETERS.mistake("Where all matrices are squares it is right.")
def a_bias_as_wide_as_the_model(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """Four biases of d_model each: but a bias is as wide as what it is added to."""
    count = parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, False)
    return count + (4 * d_model if bias else 0)


@PARAMETERS.mistake("Without a bias it is right.")
def one_number_for_each_bias(d_model, num_heads, d_k, d_v, num_kv_heads, bias):
    """A bias is counted as one number; it is a row of them, one for each column."""
    return parameters_solution(d_model, num_heads, d_k, d_v, num_kv_heads, False) + 4 * bool(bias)


E4_4 = Exercise(
    id="E4.4",
    title="Count what is trained",
    grade="core",
    kind="derive",
    minutes=10,
    objective="count the parameters of any layer of heads",
    section="[More of what?](04_multi_head.ipynb#more-of-what)",
    task="""\
Find a formula for the number of parameters of a layer, and write it as
`parameters(d_model, num_heads, d_k, d_v, num_kv_heads, bias)`.

`d_k` and `d_v` are the widths of one head's keys and values. There are `num_kv_heads` heads of keys
and values, which the `num_heads` heads of queries share. With `bias=True` each of the four products
also adds a row of numbers, the same for all words.

The chapter's layer: `parameters(6, 2, 2, 3, 2, False)` is 120, four matrices with 24, 24, 36 and 36
numbers. SmolLM2: `parameters(576, 9, 64, 64, 3, False)` is 884 736.""",
    stub=parameters,
    solution=parameters_solution,
    checker=Code(
        PARAMETERS,
        cases=tuple(
            case(*sizes)
            for sizes in [
                (1, 2, 3, 5, 2, False),
                (1, 2, 3, 5, 1, False),
                *_SIZES,
                (2, 1, 1, 1, 1, True),
                (2, 4, 3, 5, 2, True),
                (512, 8, 64, 64, 8, True),
            ]
        ),
    ),
    hints=(
        "Write down the shapes of the four joint matrices. E4.1 has them for a layer that shares "
        "nothing.",
        "Who is shared? Keys and values. How many heads hand something over to $W_O$?",
        "A bias is added to the product, so it has one number for each column of its matrix.",
    ),
    explanation="""\
$W_Q$ has `num_heads * d_k` columns, $W_K$ has `num_kv_heads * d_k` and $W_V$
`num_kv_heads * d_v`, each of `d_model` numbers; $W_O$ has `num_heads * d_v` rows of `d_model`.

The formula grows with the number of heads, and the chapter says that more heads are not more
parameters. Both are true: in most models `d_k` is `d_model / num_heads`, and then the number of
heads drops out and $4\\, d_{model}^2$ is left.
Where it is not, it matters: T5-11B is 1024 wide with 128 heads of 128, and its layer has 67 108 864
parameters, sixteen times $4\\, d_{model}^2$.""",
)

# ---- seats, turned -------------------------------------------------------------------------------

_HANDS = SEATS[:5]
_PLACES = np.arange(5)


def _map(W_Q, W_K=HEAD_B.W_K[4:]):
    """The weights of five words that know nothing but their seats."""
    return qn.attention_weights(_HANDS @ W_Q, _HANDS @ W_K)


def _reads(weights, query):
    best = int(np.argmax(weights[query]))
    return f"place {query} reads place {best} most, with {weights[query, best]:.3f}"


def _pointed(weights):
    """What each row reads most, -1 where that is not clear."""
    first, second = np.sort(weights, axis=1)[:, :-3:-1].T
    return np.where(first > second + 1e-6, weights.argmax(axis=1), -1)


def _if_best(best, says, rows=_PLACES):
    """A test: that rows do not read `best` most; `says` makes words of the map where they do."""

    def test(*matrices):
        weights = _map(*matrices)
        if (_pointed(weights[rows]) == best).all():
            return says(weights)
        return None

    return test


def _weights_at(targets, rows, least=0.8):
    """A test: that each row gives its target more than `least`."""

    def test(*matrices):
        weights = _map(*matrices)
        found = weights[rows, targets]
        if (found > least).all():
            return None
        row = rows[int(np.argmin(found))]
        target = targets[int(np.argmin(found))]
        if weights[row].argmax() == target:
            return f"place {row} gives place {target} only {weights[row, target]:.3f}"
        return _reads(weights, row) + f"; it should read place {target}"

    return test


def _too_soft(targets, rows):
    """A test for maps that point at the right places, but not clearly."""

    def test(*matrices):
        pointed = _pointed(_map(*matrices)[rows]) == targets
        return _weights_at(targets, rows)(*matrices) if pointed.all() else None

    return test


# ---- E4.5 ----------------------------------------------------------------------------------------


def two_back_solution():
    W_Q = 10 * np.array([[0.0, -1.0], [1.0, 0.0]])  # a quarter turn back
    W_K = 2 * np.eye(2)
    return W_Q, W_K


_LATE = np.array([2, 3, 4])

E4_5 = Exercise(
    id="E4.5",
    title="Two words back",
    grade="core",
    kind="design",
    minutes=12,
    objective="make a head that looks at a distance of your choice",
    section="[Why several heads](04_multi_head.ipynb#41-why-several-heads)",
    task="""\
Head B reads the word before. Make a head that reads the word *two* places before.

It sees the seats alone: `hands = SEATS[:5]`, one row for each of five words. Hand over `W_Q` and
`W_K`, both 2 × 2, so that in `qn.attention_weights(hands @ W_Q, hands @ W_K)` each word that has a
word two places before gives it more than .8. There is no mask. What the first two words read does
not matter.

Head B has `W_Q = [[5, -5], [5, 5]]` and `W_K = [[2, 0], [0, 2]]`.""",
    stub="""\
W_Q = [[..., ...], [..., ...]]
W_K = [[..., ...], [..., ...]]""",
    solution=two_back_solution,
    checker=Design(
        shapes={"W_Q": (2, 2), "W_K": (2, 2)},
        rules=(
            Rule(
                "It looks two places ahead: the hand is turned the other way.",
                _if_best([2, 3, 4], lambda w: _reads(w, 0), [0, 1, 2]),
                "turned-the-wrong-way",
            ),
            Rule(
                "It reads the word directly before, as head B does. How far apart are two seats, "
                "and how far must the hand turn?",
                _if_best([1, 2, 3], lambda w: _reads(w, 4), _LATE),
                "only-one-back",
            ),
            Rule(
                "Every word reads itself: query and key point the same way.",
                _if_best([2, 3, 4], lambda w: _reads(w, 4), _LATE),
                "nothing-is-turned",
            ),
            Rule(
                "The hand is turned too far: the last word reads back further than two places.",
                lambda *m: (
                    _if_best([0, 1], lambda w: _reads(w, 4), [3, 4])(*m)
                    or _if_best([0, 0], lambda w: _reads(w, 4), [3, 4])(*m)
                ),
                "turned-too-far",
            ),
            Rule(
                "It points at the right places, and not clearly enough. What makes a softmax "
                "sharper?",
                _too_soft([0, 1, 2], _LATE),
                "too-soft",
            ),
            Rule(
                "Not every word reads the one two places before.",
                _weights_at([0, 1, 2], _LATE),
            ),
        ),
    ),
    hints=(
        "Head B turns the hand back by 45 degrees. How many degrees are two seats?",
        "A quarter turn takes (1, 0) to (0, -1) or to (0, 1). One of the two is back.",
        "`(1, 0) @ W_Q` is the first row of `W_Q`, and `(0, 1) @ W_Q` the second. Write down where "
        "the hands of seat 0 and of seat 2 should point.",
    ),
    explanation="""\
Two seats are a quarter turn, 90 degrees. The rows of `W_Q` say where the hands (1, 0) and (0, 1)
go: the second must come out along (1, 0), for that is seat 0, which the word in seat 2 reads.
Length makes it clear: with the length of head B, 5 times the square root of 2, the weights are
.892 or more; with 5 one of them is only .783.
The keys may be turned forward instead, or each of the two by half.

What do the first two words do? The query of seat 0 points straight down.
Seats 0 and 4 are equally far from there, so it reads both, .500 each. The query of seat 1 finds
seat 0 nearest. Nothing says "nobody": without a mask a word with no target reads something all the
same.""",
)

# ---- E4.6 ----------------------------------------------------------------------------------------


def mirror_solution():
    return 10 * np.array([[-1.0, 0.0], [0.0, 1.0]])  # left becomes right


_BACKWARDS = [4, 3, 2, 1, 0]


def _half_turn(W_Q):
    best = _map(W_Q).argmax(axis=1)
    ends = best[0] == 4 and best[4] == 0
    if ends and np.linalg.det(W_Q) > 0 and best[2] != 2:
        return _reads(_map(W_Q), 2)
    return None


def _other_axis(W_Q):
    best = _map(W_Q).argmax(axis=1)
    if best[0] == 0 and best[4] == 4 and np.linalg.det(W_Q) < 0:
        return _reads(_map(W_Q), 0)
    return None


def _mirrored_at(W_Q, best_of_first):
    """Whether the query of seat 0 is nearest to another seat than 4, of which it is the mirror."""
    weights = _map(W_Q)
    best = weights.argmax(axis=1)
    if best[0] == best_of_first and best[best_of_first] == 0 and np.linalg.det(W_Q) < 0:
        return _reads(weights, 0)
    return None


E4_6 = Exercise(
    id="E4.6",
    title="Backwards",
    grade="core",
    kind="design",
    minutes=10,
    objective="tell what turning can do from what a mirror can",
    section="[Why several heads](04_multi_head.ipynb#41-why-several-heads)",
    task="""\
A head is to read five words backwards: the first word reads the last, the second the one before the
last, the third itself, and so on.

Its keys are those of head B, `hands @ HEAD_B.W_K[4:]` with `hands = SEATS[:5]`: twice the hand.
Hand over `W_Q`, 2 × 2, so that each word gives its partner more than .8. There is no mask.""",
    stub="W_Q = [[..., ...], [..., ...]]",
    solution=mirror_solution,
    checker=Design(
        shapes={"W_Q": (2, 2)},
        rules=(
            Rule(
                "First and last word are right, the one in the middle is not: the clock is turned "
                "by a half. After a turn the hands still run the same way round.",
                _half_turn,
                "turned-by-a-half",
            ),
            Rule(
                "It is a mirror, and the first word finds itself in it. Which seats must change "
                "places?",
                _other_axis,
                "mirror-lies-across",
            ),
            Rule(
                "It is a mirror that exchanges the two numbers of a hand: seat 0 and seat 2 change "
                "places, for seat 4 there is nothing.",
                lambda W_Q: _mirrored_at(W_Q, 2),
                "numbers-exchanged",
            ),
            Rule(
                "It is a mirror, one seat off: the first word reads the last but one.",
                lambda W_Q: _mirrored_at(W_Q, 3),
                "off-by-one",
            ),
            Rule(
                "Each word reads the one before it. That is head B itself.",
                _if_best([0, 1, 2, 3], lambda w: _reads(w, 4), [1, 2, 3, 4]),
                "reads-the-one-before",
            ),
            Rule(
                "Each word reads itself.",
                _if_best([0, 1, 2, 3, 4], lambda w: _reads(w, 0)),
                "reads-itself",
            ),
            Rule(
                "It points at the right places, and not clearly enough.",
                _too_soft(_BACKWARDS, _PLACES),
                "too-soft",
            ),
            Rule("Not every word reads its partner.", _weights_at(_BACKWARDS, _PLACES)),
        ),
    ),
    hints=(
        "Draw the five hands. Where should those of seat 0 and seat 1 point after `W_Q`?",
        "Seat 2, in the middle, stays where it is, and seats 0 and 4 change places.",
        "Left and right are exchanged, up and down are not. Which of a hand's two numbers changes "
        "its sign?",
    ),
    explanation="""\
A turn moves all hands by the same angle, and so the distance to what is read is the same for all
words. Backwards, the distance is 4, 2, 0, -2, -4: the hands must run the other way round, and that
is what a mirror does. `diag(-7, 7)` gives .889 or more.

The mirror stands upright because the middle of five words is seat 2. For four words the middle lies
between seats 1 and 2, and the mirror is a slanted one: the head knows the length of the sentence.
A head that should read *any* sentence backwards would have to be told its length.""",
)

# ---- E4.7 ----------------------------------------------------------------------------------------


def rows_of_text(text):
    """Five numbers for each letter: 1 for a, for b or for c, and the two of its hand."""
    kinds = np.array([[letter == kind for kind in "abc"] for letter in text])
    return np.hstack([kinds, SEATS[: len(text)]])


def same_letter_solution():
    W_Q = np.diag([200.0, 200.0, 200.0, -60.0, -60.0])  # alike, and far from my own seat
    W_K = np.eye(5)
    return W_Q, W_K


_TEXTS = ("aa", "abca", "abacba", "aabb", "cabcab", "bbb", "acbbcaab", "cbcbaaaa")


def _rows_with_partners(W_Q, W_K):
    """For each letter that stands elsewhere too: its text, its place, its weights, who is alike."""
    for text in _TEXTS:
        x = rows_of_text(text)
        weights = qn.attention_weights(x @ W_Q, x @ W_K)
        letters = np.array(list(text))
        for place, row in enumerate(weights):
            alike = (letters == letters[place]) & (np.arange(len(text)) != place)
            if alike.any():
                yield text, place, row, alike


def _columns_agree(W_Q, W_K):
    if W_Q.shape[1] == W_K.shape[1] > 0:
        return None
    return f"W_Q has {W_Q.shape[1]} columns and W_K has {W_K.shape[1]}"


def _where(text, place):
    return f"in {text!r}, {text[place]} at place {place}"


def _reads_other_letters(W_Q, W_K):
    for text, place, row, alike in _rows_with_partners(W_Q, W_K):
        others = 1 - row[alike].sum() - row[place]
        if others > 0.5:
            return f"{_where(text, place)} gives other letters {others:.3f}"
    return None


def _ties_with_itself(W_Q, W_K):
    rows = list(_rows_with_partners(W_Q, W_K))
    if all(np.allclose(row[alike], row[place], atol=1e-6) for _, place, row, alike in rows):
        text, place, row, _ = rows[0]
        found = ", ".join(f"{weight:.3f}" for weight in row)
        return f"{_where(text, place)} has the row {found}"
    return None


def _reads_itself(W_Q, W_K):
    for text, place, row, alike in _rows_with_partners(W_Q, W_K):
        if row[place] > max(0.5, row[alike].sum()):
            return f"{_where(text, place)} gives itself {row[place]:.3f}"
    return None


def _most_elsewhere(W_Q, W_K):
    text, place, row, alike = min(
        _rows_with_partners(W_Q, W_K), key=lambda found: found[2][found[3]].sum()
    )
    if row[alike].sum() > 0.9:
        return None
    return (
        f"{_where(text, place)} gives the same letter elsewhere {row[alike].sum():.3f}, "
        f"itself {row[place]:.3f}"
    )


def _one_side_only(W_Q, W_K):
    """Letters whose like comes on one side only are right, on the other side wrong."""
    fine = {"earlier": [], "later": []}
    wrong = None
    for text, place, row, alike in _rows_with_partners(W_Q, W_K):
        sides = {"earlier": alike[:place].any(), "later": alike[place:].any()}
        if sum(sides.values()) == 1:
            side = "earlier" if sides["earlier"] else "later"
            fine[side].append(row[alike].sum() > 0.9)
            wrong = wrong or (None if fine[side][-1] else (text, place, side))
    shares = sorted(np.mean(each) for each in fine.values())
    if shares[0] < 0.3 and shares[1] > 0.7:
        text, place, side = wrong
        return f"{_where(text, place)} does not find the one that comes {side}"
    return None


def _almost_elsewhere(W_Q, W_K):
    rows = list(_rows_with_partners(W_Q, W_K))
    if all(row[alike].sum() > row[~alike].sum() for _, _, row, alike in rows):
        return _most_elsewhere(W_Q, W_K)
    return None


E4_7 = Exercise(
    id="E4.7",
    title="The same letter, elsewhere",
    grade="challenge",
    kind="design",
    minutes=15,
    objective="let a head mind what a word is and where it stands, at once",
    section="[A gallery](04_multi_head.ipynb#a-gallery)",
    task="""\
L2H9 in the gallery reads the same word in another place. Build such a head for texts of up to eight
letters out of a, b and c.

`rows_of_text(text)` gives each letter five numbers, three for its kind and two for its seat. Hand
over `W_Q` and `W_K`, both with 5 rows and with equally many columns, so that each letter that
stands in the text more than once gives more than .9 to the *other* places with the same letter, all
together. In *abacba* the first a reads places 2 and 5. What a letter does that stands there only
once does not matter. There is no mask; weights are `qn.attention_weights(x @ W_Q, x @ W_K)`.""",
    stub="""\
W_Q = ...  # 5 rows
W_K = ...  # 5 rows, as many columns as W_Q""",
    solution=same_letter_solution,
    checker=Design(
        shapes={"W_Q": (5, None), "W_K": (5, None)},
        rules=(
            Rule("A query and a key must be equally wide.", _columns_agree),
            Rule(
                "Other letters get the weight. What a letter is must count for more than where it "
                "stands.",
                _reads_other_letters,
                "other-letters-win",
            ),
            Rule(
                "Each letter reads its own kind, and itself as much as the others. What does the "
                "head know of itself that no other place has?",
                _ties_with_itself,
                "place-not-looked-at",
            ),
            Rule(
                "Only on one side is the same letter found. A seat that is to be avoided is the "
                "letter's own, not a neighbour's.",
                _one_side_only,
                "one-side-only",
            ),
            Rule(
                "It finds the same letter, and the nearest one like it is the letter itself.",
                _reads_itself,
                "itself-wins",
            ),
            Rule(
                "It looks at the right places, and too much is left on others. Two neighbours with "
                "the same letter are the hardest.",
                _almost_elsewhere,
                "too-soft",
            ),
            Rule("Some letter does not read its like.", _most_elsewhere),
        ),
    ),
    hints=(
        "A score can have two parts: one that says how alike two letters are, one that says how "
        "near two seats are.",
        "The product of two hands is largest when they are the same hand. With a minus it is "
        "smallest there.",
        "Diagonal matrices are enough: a positive factor for the letters, a negative one for the "
        "seats.",
        "How much may the seats count at most? A neighbour with the same letter must still beat "
        "another letter on the far side of the clock.",
    ),
    explanation="""\
The score is 200 for the same letter, less 60 times the product of the two hands: about 60 for
itself, 42 for a neighbour, -60 for the far side.
So itself gets 140, a neighbour with the same letter 158, another letter at most 60.
The 200 must be larger than what seats can add, and the 60 large enough that 18 is a clear
difference after the division by the root of 5.

Without the seats the three a of *abacba* get a third each, itself included: content alone cannot
say "not me".""",
)

# ---- E4.8 ----------------------------------------------------------------------------------------


def rows_of_word(word):
    """Five numbers for the start token and for each letter: what the columns say is in the task."""
    rows = [[1.0, 0, 1, 0, 0]]  # the start token has no seat
    for letter, seat in zip(word, SEATS[1:]):
        rows.append([1, letter in "aeiou", 0, *seat])
    return np.array(rows)


def copy_vowel_solution():
    back = HEAD_B.W_Q[4:] / np.sqrt(50)  # turns a hand back by 45 degrees
    W_Q = np.zeros((5, 4))
    W_Q[3:, :2] = back  # where the one before stands
    W_Q[0, 2:] = 1  # asked by everybody: vowel? start?
    W_K = np.zeros((5, 4))
    W_K[3:, :2] = 100 * np.eye(2)
    W_K[1, 2] = 40  # a vowel
    W_K[2, 3] = 125  # between 100 for place alone and 140 for both
    return W_Q, W_K


_SOME_WORDS = ["n", "a", "banana", "queue", "audio"]
_SOME_WORDS += ["".join(each) for n in range(2, 8) for each in product("na", repeat=n)]


def _copying(W_Q, W_K):
    """For each letter of many words: the word, its place, its weights, the place to read."""
    for word in _SOME_WORDS:
        x = rows_of_word(word)
        weights = qn.attention_weights(x @ W_Q, x @ W_K)
        for place in range(1, len(x)):
            vowel_before = x[place - 1, 1] == 1
            yield word, place, weights[place], place - 1 if vowel_before else 0


def _some_letter(wrong):
    """A test: the first letter of which `wrong(word, place, row, target)` says something."""

    def test(W_Q, W_K):
        for word, place, row, target in _copying(W_Q, W_K):
            if row[target] <= 0.9:
                says = wrong(word, place, row, target)
                if says:
                    return f"in {word!r}, letter {place}, {word[place - 1]}, {says}"
        return None

    return test


def _mostly(shift):
    """A test: whether in a word of vowels most letters read the one that is `shift` further."""

    def test(W_Q, W_K):
        x = rows_of_word("a" * 7)
        weights = qn.attention_weights(x @ W_Q, x @ W_K)
        found = [weights[place, place + shift] for place in range(2, 7)]
        if np.median(found) > 0.5:
            return f"in 'aaaaaaa', letter 4 gives letter {4 + shift} {weights[4, 4 + shift]:.3f}"
        return None

    return test


def _reads_a_consonant(word, place, row, target):
    if target == 0 and place > 1 and row[place - 1] > 0.5:
        return f"gives {word[place - 2]} before it {row[place - 1]:.3f}, which is no vowel"
    return None


def _reads_a_far_vowel(word, place, row, target):
    for other in range(1, len(row)):
        far = word[other - 1] in "aeiou" and other != place - 1
        if far and row[other] == row.max() and row[other] > row[target] + 1e-6:
            return f"gives {word[other - 1]} at place {other} {row[other]:.3f}"
    return None


def _always_rests(word, place, row, target):
    if target > 0 and row[0] > 0.5:
        return f"gives the start {row[0]:.3f}, and has {word[place - 2]} before it"
    return None


def _cannot_rest(word, place, row, target):
    if target == 0 and row[0] <= row[1:].max() + 1e-6:
        return f"gives the start only {row[0]:.3f}"
    return None


def _softly(word, place, row, target):
    if row[target] == row.max():
        return f"gives place {target} only {row[target]:.3f}"
    return None


def _wrongly(word, place, row, target):
    return f"gives place {target} {row[target]:.3f}, and place {row.argmax()} {row.max():.3f}"


E4_8 = Exercise(
    id="E4.8",
    title="Copy it if it is a vowel",
    grade="challenge",
    kind="design",
    minutes=25,
    objective="build an AND of two conditions, with a place to rest",
    section="[Induction by hand](04_multi_head.ipynb#induction-by-hand)",
    task="""\
Each letter of a word is to read the letter before it if that is a vowel, and else the start token.
For *banana* the six letters read: start, start, a, start, a, start.

`rows_of_word(word)` has the start token in row 0 and then up to seven letters. Its five columns
are: 1 for everybody; 1 for a vowel; 1 for the start token; and the hand of the seat, which the
start token has not.

Hand over `W_Q` and `W_K`, both with 5 rows and equally many columns, so that each letter gives its
place more than .9 in `qn.attention_weights(x @ W_Q, x @ W_K)`. There is no mask. What the start
token reads does not matter.""",
    stub="""\
W_Q = ...  # 5 rows
W_K = ...  # 5 rows, as many columns as W_Q""",
    solution=copy_vowel_solution,
    checker=Design(
        shapes={"W_Q": (5, None), "W_K": (5, None)},
        rules=(
            Rule("A query and a key must be equally wide.", _columns_agree),
            Rule(
                "It reads the letter that comes after: the hand is turned the other way.",
                _mostly(1),
                "turned-the-wrong-way",
            ),
            Rule("A letter reads itself: nothing turns its hand.", _mostly(0), "reads-itself"),
            Rule(
                "It reads the letter two places before: the hand is turned too far.",
                _mostly(-2),
                "turned-too-far",
            ),
            Rule(
                "The letter before is read although it is no vowel. To stand there must not be "
                "enough: the start must beat it.",
                _some_letter(_reads_a_consonant),
                "place-alone-is-enough",
            ),
            Rule(
                "A vowel is read that does not stand directly before. To be a vowel must not be "
                "enough, nor to stand near.",
                _some_letter(_reads_a_far_vowel),
                "vowel-anywhere",
            ),
            Rule(
                "The start wins even where the letter before is a vowel.",
                _some_letter(_always_rests),
                "start-too-strong",
            ),
            Rule(
                "Where there is nothing to copy, the weight does not go to the start. It needs a "
                "score of its own.",
                _some_letter(_cannot_rest),
                "nowhere-to-rest",
            ),
            Rule(
                "The right place leads, and others have too much. What makes a softmax sharper?",
                _some_letter(_softly),
                "too-soft",
            ),
            Rule("A letter reads the wrong place.", _some_letter(_wrongly)),
        ),
    ),
    hints=(
        "Write the score as a sum of three parts: to stand directly before, to be a vowel, to be "
        "the start.",
        "Order these scores: the vowel before; the start; a consonant before; a vowel next to the "
        "place before. Which must be above which?",
        "A query can ask the same of everybody: that is what the column of ones is for.",
        "A neighbour of the place before gets .7 of what that place gets.",
    ),
    explanation="""\
Place alone is worth 100, a vowel 40, the start 125. Both together, 140, beat the start; a consonant
before, 100, does not, and a vowel next to that place has 71 + 40 = 111.
A sum with a threshold is an AND, and the start token is the threshold: the softmax compares with
it.

It is the circuit's full stop once more: a place to point at when there is nothing to point at.
Without it a head must read something wrong.""",
)

# ---- E4.9 ----------------------------------------------------------------------------------------


def sorting_solution():
    written = np.append(np.arange(10), -1)[:, None]  # the last row: nothing yet
    digit = np.arange(10)
    return np.where(digit > written, -8.0 * digit, -200.0)


def _steps():
    """Every step of sorting every list of digits: last digit written, the list, the right next."""
    for listed in product([False, True], repeat=10):
        last = 10
        for digit in np.flatnonzero(listed):
            yield last, listed, digit
            last = digit


_LAST, _LISTED, _NEXT = map(np.array, zip(*_steps()))


def _step_weights(scores):
    return qn.softmax(np.where(_LISTED, scores[_LAST], -np.inf))


def _some_step(wrong):
    """A test: the first step with too little weight of which `wrong(best, last, right)` is true."""

    def test(scores):
        weights = _step_weights(scores)
        best = weights.argmax(axis=1)
        given = weights[np.arange(len(_NEXT)), _NEXT]
        for k in np.flatnonzero((given <= 0.9) & wrong(best, _LAST, _NEXT)):
            digits = " ".join(map(str, np.flatnonzero(_LISTED[k])))
            after = "at first" if _LAST[k] == 10 else f"after {_LAST[k]}"
            says = f"list {digits}: {after} the digit {_NEXT[k]} gets only {given[k]:.3f}"
            if best[k] == _NEXT[k]:
                return says
            return f"{says}, and {best[k]} gets {weights[k, best[k]]:.3f}"
        return None

    return test


def _downwards(scores):
    first = _LAST == 10
    best = _step_weights(scores).argmax(axis=1)
    largest = 9 - _LISTED[:, ::-1].argmax(axis=1)
    if (best == largest)[first & (largest != _NEXT)].mean() > 0.9:
        return f"list 2 5 7: the first digit that is read is {best[_at(10, (2, 5, 7))]}"
    return None


def _undecided(scores):
    """A step in which the right digit shares the highest weight, if no step does worse."""
    weights = _step_weights(scores)
    top = weights >= weights.max(axis=1, keepdims=True) - 1e-9
    right = top[np.arange(len(_NEXT)), _NEXT]
    shared = right & (top.sum(axis=1) > 1)
    if not right.all() or not shared.any():
        return None
    k = shared.argmax()
    digits = " ".join(map(str, np.flatnonzero(_LISTED[k])))
    after = "at first" if _LAST[k] == 10 else f"after {_LAST[k]}"
    alike = " and ".join(map(str, np.flatnonzero(top[k])))
    return f"list {digits}: {after} the digits {alike} get {weights[k].max():.3f} each"


def _at(last, digits):
    listed = np.isin(np.arange(10), digits)
    return int(np.flatnonzero((last == _LAST) & (listed == _LISTED).all(axis=1))[0])


E4_9 = Exercise(
    id="E4.9",
    title="Sort, a digit at a time",
    grade="challenge",
    kind="design",
    minutes=20,
    objective="write a head as a table of scores, with a score for never",
    section="[Induction by hand](04_multi_head.ipynb#induction-by-hand)",
    task="""\
A head sorts a list of different digits, from small to large. At each step it knows which digit was
written last, reads the list, and what it reads most is written next. For the list 5 2 7 it reads 2,
then 5, then 7, and stops.

With one column for each digit in queries and keys, $W_Q W_K^T$ is a table: the score that digit
`u` of the list gets when `last` was written last. Hand over this table, `scores`, with 11 rows and
10 columns: `scores[last, u]`. Row 10 is for the first step, when nothing is written yet.

The weights of a step are the softmax of the scores of the digits in the list. Those written before
are still there. At each step of each list the right digit must get more than .9. All scores are
finite numbers.""",
    stub="scores = ...  # 11 rows for what was written last, 10 columns for what may come next",
    solution=sorting_solution,
    checker=Design(
        shapes={"scores": (11, 10)},
        rules=(
            Rule("It sorts the other way: the largest comes first.", _downwards, "downwards"),
            Rule(
                "It cannot decide: the right digit and another one share the highest weight.",
                _undecided,
                "undecided",
            ),
            Rule(
                "It writes the digit again that it has just written: it is still in the list.",
                _some_step(lambda best, last, right: best == last),
                "written-twice",
            ),
            Rule(
                "It goes back to a smaller digit. That must be impossible, whatever else the list "
                "has: compare the score with the lowest that is allowed.",
                _some_step(lambda best, last, right: (last < 10) & (best < last)),
                "goes-back",
            ),
            Rule(
                "It leaves a digit out: a larger one is read first.",
                _some_step(lambda best, last, right: best > right),
                "leaves-one-out",
            ),
            Rule(
                "It would write the right digit, and other digits have too much weight.",
                _some_step(lambda best, last, right: best == right),
                "too-soft",
            ),
            Rule("Some step goes wrong.", _some_step(lambda best, last, right: best >= 0)),
        ),
    ),
    hints=(
        "Begin with row 10. Which of the ten digits gets the highest score, which the lowest?",
        "In row 4 the digits from 5 on are allowed. Among these the order is the same as in row "
        "10.",
        "What must never come next gets a score far below all others. The lowest score that is "
        "allowed is that of 9.",
    ),
    explanation="""\
Allowed digits get -8 for each unit, so the smallest one leads by at least 8: weight .999 and more.
Everything up to the last digit written gets -200.
With -50 it would look right and fail: 9 has -72, so from the list 3 9 the head would write 3 again
and again.

No digit was counted or compared with another in the list; the softmax does it.
It works because each step knows its own last word, as a model does that writes one token after the
other.""",
)

# ---- E4.10 ---------------------------------------------------------------------------------------


def comes_next(me):
    """What comes after the last word, by the chapter's two layers.

    me: (n, k), for each word a 1 in the column of its kind, up to 8 words
    -> (k,) how much of each kind the last word copies
    """
    n = len(me)
    seats, past = SEATS[:n], qn.causal_mask(n)
    turned, hands = seats @ HEAD_B.W_Q[4:], seats @ HEAD_B.W_K[4:]
    stood_before = qn.scaled_dot_product_attention(turned, hands, me, mask=past)
    copied = qn.scaled_dot_product_attention(me, stood_before, me, mask=past, scale=8)
    return copied[-1]


def comes_next_solution(me):
    n = len(me)
    seats, past = SEATS[:n], qn.causal_mask(n)
    turned, hands = seats @ HEAD_B.W_Q[4:], seats @ HEAD_B.W_K[4:]
    stood_before = qn.scaled_dot_product_attention(turned, hands, me, mask=past)
    stood_before[0] = 0  # nobody stood before the first word
    copied = qn.scaled_dot_product_attention(me, stood_before, me, mask=past, scale=8)
    return copied[-1]


def _asked(comes_next, *text):
    """What a function says comes after these words, numbered by their kinds."""
    answer = comes_next(np.eye(max(text) + 1)[list(text)])
    if hasattr(answer, "detach"):
        answer = answer.detach().numpy()
    return np.asarray(answer, float)


_PAUL = (0, 1, 2, 3, 4, 0)  # Paul told Emma he won Paul


def _one_for_each_kind(comes_next):
    got = _asked(comes_next, *_PAUL).shape
    return None if got == (5,) else f"for 5 kinds of words the shape is {got}"


def _said(answer):
    return "Paul told Emma he won Paul: " + ", ".join(
        f"{word} {weight:.3f}"
        for word, weight in zip(("Paul", "told", "Emma", "he", "won"), answer)
    )


def _no_numbers(comes_next):
    answer = _asked(comes_next, *_PAUL)
    return _said(answer) if np.isnan(answer).any() else None


def _louder(comes_next):
    answer = _asked(comes_next, *_PAUL)
    return _said(answer) if answer[0] > 0.62 else None


def _still_paul(comes_next):
    answer = _asked(comes_next, *_PAUL)
    return _said(answer) if answer[0] > 0.3 and answer[0] > answer[2:].max() + 0.1 else None


def _nothing_found(comes_next):
    answer = _asked(comes_next, *_PAUL)
    return _said(answer) if max(answer[:2]) < 0.4 and answer.sum() > 0.5 else None


def _told(comes_next):
    answer = _asked(comes_next, *_PAUL)
    return None if answer[1] > 0.9 else _said(answer)


def _eight_words(comes_next):
    try:
        _asked(comes_next, 0, 1, 2, 3, 4, 1, 2, 1)
    except Exception as error:
        return f"with eight words: {type(error).__name__}: {error}"
    return None


def _elsewhere(comes_next):
    asked = {
        "Paul told Emma he told": ((0, 1, 2, 3, 1), 2, "Emma"),
        "Paul told Emma": ((0, 1, 2), None, ""),
        "Emma told Paul he won Emma told": ((2, 1, 0, 3, 4, 2, 1), 0, "Paul"),
    }
    for text, (words, right, word) in asked.items():
        try:
            answer = _asked(comes_next, *words)
        except Exception as error:
            return f"{text}: it raises {type(error).__name__}: {error}"
        if right is not None and answer[right] <= 0.9:
            return f"{text}: {word} should come next, and gets {answer[right]:.3f}"
        if not np.isfinite(answer).all():
            return f"{text}: the answer is not made of numbers"
    return None


def _own_word(comes_next):
    answer = _asked(comes_next, 1, 0, 0)
    if answer[0] > 0.9:
        return None
    return f"told Paul Paul: after Paul came Paul, which gets {answer[0]:.3f}"


def _both_followers(comes_next):
    answer = _asked(comes_next, 0, 1, 2, 0, 3, 4, 5, 0)
    if answer[0] < 0.05 and answer[1] + answer[3] > 0.9:
        return None
    return (
        "Paul told Emma Paul he won ... Paul: told and he have come after Paul, and get "
        f"{answer[1]:.3f} and {answer[3]:.3f}"
    )


E4_10 = Exercise(
    id="E4.10",
    title="Nobody stood before the first word",
    grade="challenge",
    kind="find the bug",
    minutes=15,
    objective="repair a circuit of two layers where its fault is",
    section="[Induction by hand](04_multi_head.ipynb#induction-by-hand)",
    task="""\
After *Paul told Emma he won Paul* the two layers of the chapter say *Paul*, with .596, and *told*
only with .403. The chapter cures it by a start token.

Here the text is given as it is, with up to eight words for the eight seats, so no token can be
added. Find another cure: what has followed the last word earlier in the text must get more than .9,
or those that have followed it together. If nothing has, any finite numbers will do. Other texts
must stay right, and so must *told Paul Paul*, where Paul came after Paul.

`me` has a row for each word with a 1 in the column of its kind; the answer has one number for each
kind.""",
    stub=comes_next,
    solution=comes_next_solution,
    checker=Design(
        shapes={"comes_next": "function"},
        rules=(
            Rule("One number for each kind of word is expected, as before.", _one_for_each_kind),
            Rule(
                "A row has nowhere to look and became nan, and the layer above multiplies with it.",
                _no_numbers,
                "nobody-became-nan",
            ),
            Rule(
                "The upper layer speaks louder now, and says Paul more clearly. It does what it "
                "was told; what was it told?",
                _louder,
                "upper-layer-made-louder",
            ),
            Rule(
                "The first word still gets much of the weight. Print `stood_before`: which row is "
                "not true?",
                _still_paul,
                "first-row-still-claims",
            ),
            Rule(
                "Now nobody knows any more before whom Paul stood. The first word must be read by "
                "the lower layer: the second word learns from it.",
                _nothing_found,
                "first-word-cut-out",
            ),
            Rule("After Paul came told, and it does not get .9.", _told),
            Rule(
                "With eight words it fails, and with six it does not: there is no seat for one "
                "more.",
                _eight_words,
                "token-without-a-seat",
            ),
            Rule("Another text has become wrong.", _elsewhere),
            Rule(
                "A word may follow itself, and here that is forbidden.",
                _own_word,
                "own-word-forbidden",
            ),
            Rule("Where a word came twice, both followers count.", _both_followers),
        ),
    ),
    hints=(
        "Print `stood_before` for the text. Which of its rows says something that is not true?",
        "Row 0 claims that Paul stood before Paul. What would a row look like that says *nobody*?",
        "You can change the row, or see to it that the upper layer does not read it. Can place 0 "
        "ever be the place to copy from?",
    ),
    explanation="""\
The lower layer has to say something for the first word, and with the mask it can only say the word
itself. Setting that row to zero means *nobody*: a key of zeros fits no query, and *told* gets
.997.
Nor is place 0 ever the place to copy from, for nothing stands before it. So a mask in the upper
layer that closes key 0 does as well. In `qkvlib` a strict mask in the lower layer works too, since
a row without keys is zero there; in other libraries it may be nan.

To make the upper layer louder, 20 for 8, takes Paul from .596 to .726: the wrong fit, 1.000, is
better than the right one, .951.""",
)

# ---- E4.11 ---------------------------------------------------------------------------------------


def two_bits(heads, first, second):
    """What the heads hand over for two bits, added up. heads: a row of four for each."""
    bits = [first, second]
    return sum(qn.softmax(head[:2][bits]) @ head[2:][bits] for head in np.array(heads, float))


def one_of_two_solution():
    return [
        [0, 5, 0, 1],  # reads a 1 where there is one: 0, 1, 1
        [5, 0, 0, -1],  # reads a 0 where there is one: 0, 0, -1
    ]


def _corners(heads):
    return tuple(two_bits(heads, *bits) for bits in [(0, 0), (0, 1), (1, 1)])


def _margin(heads):
    both_0, mixed, both_1 = _corners(heads)
    return mixed - max(both_0, both_1)


def _unless_solved(wrong):
    """A test: what the heads say, where they do not solve it and `wrong(heads, *corners)`."""

    def test(heads):
        if _margin(heads) > 0.3 or not wrong(heads, *_corners(heads)):
            return None
        both_0, mixed, both_1 = _corners(heads)
        return f"0 0 gives {both_0:.3f}, 0 1 and 1 0 give {mixed:.3f}, 1 1 gives {both_1:.3f}"

    return test


E4_11 = Exercise(
    id="E4.11",
    title="Exactly one of two",
    grade="challenge",
    kind="derive",
    minutes=20,
    objective="show what two heads can tell and one cannot",
    section="[Is one head really not enough?](04_multi_head.ipynb#is-one-head-really-not-enough)",
    task="""\
A text is two bits, and a reader always asks the same question, so a head is four numbers: the score
of a 0, the score of a 1, the value of a 0, the value of a 1. The heads' answers are added.
`two_bits(heads, first, second)` computes the sum.

The sum should be large when *exactly one* of the two bits is 1: for 0 1 and 1 0 at least .3 larger
than for 0 0 and than for 1 1.

First convince yourself that one head cannot do it. Then hand over two heads that can: 2 rows of 4
numbers.""",
    stub="""\
heads = [
    [..., ..., ..., ...],  # score of a 0, score of a 1, value of a 0, value of a 1
    [..., ..., ..., ...],
]""",
    solution=one_of_two_solution,
    checker=Design(
        shapes={"heads": (2, 4)},
        rules=(
            Rule(
                "One of the heads hands over the same for a 0 as for a 1, so the other one is "
                "alone. For 0 1 a single head is between what it says for 0 0 and for 1 1.",
                _unless_solved(lambda heads, *_: np.isclose(heads[:, 2], heads[:, 3]).any()),
                "one-head-alone",
            ),
            Rule(
                "Both heads divide their weight in the same way between a 0 and a 1. Together they "
                "are one head, with the sum of their values.",
                _unless_solved(
                    lambda heads, *_: abs(np.subtract(*(heads[:, 1] - heads[:, 0]))) < 1e-3
                ),
                "heads-read-alike",
            ),
            Rule(
                "It is upside down: the sum is smallest where exactly one bit is 1.",
                _unless_solved(lambda _, a, mixed, b: mixed < min(a, b) - 0.1),
                "upside-down",
            ),
            Rule(
                "That is OR: one bit is enough, and two are as good or better. Who speaks against "
                "two?",
                _unless_solved(lambda _, a, mixed, b: mixed > a + 0.3 and b > a + 0.3),
                "or-instead",
            ),
            Rule(
                "That is AND: only two bits together are large.",
                _unless_solved(lambda _, a, mixed, b: b > max(a, mixed) + 0.3),
                "and-instead",
            ),
            Rule(
                "The mixed pairs are larger, and not by .3.",
                _unless_solved(lambda _, a, mixed, b: mixed > max(a, b)),
                "too-soft",
            ),
            Rule(
                "The mixed pairs are not larger than both others.",
                _unless_solved(lambda *_: True),
            ),
        ),
    ),
    hints=(
        "For 0 0 and 1 1 the weights do not matter. What does a head hand over?",
        "A head that reads a 1 wherever there is one says whether *any* bit is 1. Which scores are "
        "these?",
        "A head that reads a 0 wherever there is one says whether *all* bits are 1. The first "
        "answer less the second one is what you need.",
    ),
    explanation="""\
For two equal bits a head hands over the value of that bit, whatever the scores. For two different
ones it gives an average of the two values, and so lies between: never above both.
Two heads may lie in different places between. The first one is near its value of 1, the second near
its value of 0:

| bits | first head | second head | sum |
|---|---|---|---|
| 0 0 | 0 | 0 | 0 |
| 0 1 | .993 | -.007 | .987 |
| 1 1 | 1 | -1 | 0 |

It is the pair of 4.1 once more. Two averages of the same things are more than one average.""",
)

# ---- E4.12 ---------------------------------------------------------------------------------------


def repeat_heads(x, repeats):
    """Each head as often as query heads share it.

    x: (..., h, n, d) -> (..., h * repeats, n, d)
    """
    ...


def repeat_heads_solution(x, repeats):
    return np.repeat(x, repeats, axis=-3)


REPEAT_HEADS = with_more("repeat heads")


@REPEAT_HEADS.mistake("It is torch's word for it, and with a batch the shape is right.")
def tiled_behind_a_batch(x, repeats):
    """All heads, and again all heads. Besides, a single text gets one axis more than it had."""
    return np.tile(x, (1, repeats, 1, 1))


E4_12 = Exercise(
    id="E4.12",
    title="Hand out the shared keys",
    grade="core",
    kind="fill in",
    minutes=6,
    objective="give each query head the keys that it was trained with",
    section="[Heads that share](04_multi_head.ipynb#heads-that-share)",
    task="""\
Several query heads share one head of keys. Write `repeat_heads(x, repeats)`, which makes as many
key heads as there are query heads, without `qkvlib`.

`x` is `(..., h, n, d)`: heads, words, columns, and maybe more axes in front. The result is
`(..., h * repeats, n, d)`. The first `repeats` query heads share head 0, the next ones head 1, and
so on, as in the table of the chapter.

Two heads of one word, `[[[1, 2]], [[3, 4]]]`, with `repeats = 2` become
`[[[1, 2]], [[1, 2]], [[3, 4]], [[3, 4]]]`.""",
    stub=repeat_heads,
    solution=repeat_heads_solution,
    checker=Code(
        REPEAT_HEADS,
        alone=True,
        cases=(
            case(_COUNTED[:6].reshape(2, 1, 3), 2),
            case(_COUNTED[:12].reshape(2, 3, 2), 3),
            case(_COUNTED[:24].reshape(2, 2, 3, 2), 3),
            case(_COUNTED[:60].reshape(5, 4, 3), 1),
        ),
    ),
    hints=(
        "Which axis holds the heads, counted from the end?",
        "NumPy has two functions for *several times*, and the table of the chapter shows what each "
        "does with the order.",
        "In torch the function that does not tile is called `repeat_interleave`; `repeat` is the "
        "other one.",
    ),
    explanation="""\
`np.repeat` repeats each head in its place: 0 0 1 1. `np.tile` repeats the whole row: 0 1 0 1, and
query head 1 gets keys that it was never trained with. In the chapter this raised the loss of
SmolLM2 from 4.5 to 11.4.
The words differ between libraries: `repeat` of torch is `tile` of NumPy.

Axis -3 holds for any number of axes in front. A new axis and a broadcast do the same:
`np.broadcast_to(x[..., None, :, :], (h, repeats, n, d)).reshape(-1, n, d)` for a single text.""",
)

# ---- E4.13 ---------------------------------------------------------------------------------------


def can_win(keys):
    """Which keys have the highest score of all for some query.

    keys: (n, d_k), n at least 2, d_k 1 or 2, no two alike -> n times True or False
    """
    ...


def can_win_solution(keys):
    n, d_k = keys.shape
    plane = np.hstack([keys, np.zeros((n, 2 - d_k))])
    wins = []
    for j in range(n):
        ahead = plane[j] - np.delete(plane, j, axis=0)  # q @ ahead must be positive for all
        angles = np.sort(np.arctan2(ahead[:, 1], ahead[:, 0]))
        gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
        wins.append(bool(gaps.max() > np.pi + 1e-9))  # they lie on one side of a line
    return wins


_ON_A_LINE = np.array([[1.0], [2.0], [4.0]])
_BOTH_SIGNS = np.array([[3.0], [-2.0], [0.5], [0.0]])
_INSIDE = np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 1.0], [-3.0, -3.0]])
_SHORT = np.array([[4.0, 0.0], [2.0, 1.0], [0.0, 1.5], [-1.0, -1.0], [1.0, 0.25]])
_ASIDE = np.array([[5.0, 5.0], [6.0, 5.0], [5.0, 6.0], [5.6, 5.6], [5.3, 5.3]])
_BETWEEN = np.array([[0.0, 2.0], [0.0, 1.0], [0.0, -1.0], [2.0, 0.0]])
_SCATTERED, _OTHERS, _MORE = np.random.default_rng(22).normal(size=(3, 12, 2))


def _band(turns):
    """The corners of a rubber band, each of which wins from so many radians of directions."""
    ahead = np.cumsum(turns)  # where the edges look; a corner wins between two of them
    edges = np.stack([-np.sin(ahead), np.cos(ahead)], axis=1)
    lengths = np.full(len(turns), 0.5)
    wide = np.argsort(turns)[-2:]  # two edges that close the band
    lengths[wide] = 0
    lengths[wide] = np.linalg.solve(edges[wide].T, -lengths @ edges)
    return np.array([5.0, -3.0]) + np.cumsum(lengths[:, None] * edges, axis=0)


_NARROW = np.tile([0.01, 0.01, 0.01, 0.01, 0.01, 2 * np.pi / 4 - 0.05], 4)
_MANY_CORNERS = _band(_NARROW)


def _misses_some(can_win):
    """The probe for corners that win from a hundredth of a radian alone: are only some found?"""
    found = np.asarray(can_win(_MANY_CORNERS.copy()))
    return np.bool_(found.shape == (24,) and 4 <= found.sum() < 23)


CAN_WIN = Subject(
    name="keys that can win",
    signature="can_win(keys)",
    right=can_win_solution,
    tiers=(
        (_misses_some,),
        (
            *(call(keys) for keys in (_ON_A_LINE, _BOTH_SIGNS, -_ON_A_LINE, _INSIDE, _SHORT)),
            *(
                call(keys)
                for keys in (_BETWEEN, -_SHORT, _ASIDE, SEATS, _SCATTERED, _OTHERS + 7, _MORE)
            ),
        ),
        (
            call(_MANY_CORNERS),
            call(1e4 * _SCATTERED),
            call(_SHORT.astype(np.float32)),
            afterwards(_SCATTERED),
        ),
    ),
    listed=False,
)


@CAN_WIN.mistake("On a few keys that lie far apart it is right.")
def too_few_directions(keys):
    """A key that wins from few directions alone is missed: there are more between those you try."""
    angles = np.arange(100) * 2 * np.pi / 100
    queries = np.stack([np.cos(angles), np.sin(angles)])[: keys.shape[1]]
    return np.isin(np.arange(len(keys)), (keys @ queries).argmax(axis=0))


@CAN_WIN.mistake("For keys of equal length, such as the seats, it is so.")
def everyone_can(keys):
    """All are said to win. But a longer key may lie ahead in every direction."""
    return [True for _ in keys]


@CAN_WIN.mistake("The best query for a key seems to be the key itself.")
def asked_with_the_key_itself(keys):
    """The query is the key itself. Another query may suit it better, for others like that less."""
    return np.argmax(keys @ keys.T, axis=-1) == np.arange(len(keys))


@CAN_WIN.mistake(
    "It looks at each key from the middle of all.", variant_of="asked-with-the-key-itself"
)
def asked_away_from_the_middle(keys):
    """The query points from the middle of all keys to this one. That is not always the best one."""
    away = keys - keys.mean(axis=0)
    return np.argmax(away @ keys.T, axis=-1) == np.arange(len(keys))


@CAN_WIN.mistake("It is so where no key lies on a line between two others.")
def a_draw_counts_as_a_win(keys):
    """A key between two others is said to win: at best it gets as much as they, never more."""
    if keys.shape[1] == 1:
        return can_win_solution(keys)
    wins = []
    for j in range(len(keys)):
        ahead = keys[j] - np.delete(keys, j, axis=0)
        angles = np.sort(np.arctan2(ahead[:, 1], ahead[:, 0]))
        wins.append(bool(np.diff(angles, append=angles[0] + 2 * np.pi).max() > np.pi - 1e-9))
    return wins


@CAN_WIN.mistake("One key wins, as for a single query.")
def only_the_longest(keys):
    """Only the longest key wins. That is true if the query points where this one points."""
    lengths = np.linalg.norm(keys, axis=-1)
    return lengths == lengths.max()


@CAN_WIN.mistake("Keys of one number have a largest one.")
def only_the_largest_numbers(keys):
    """A query may be negative: then the smallest number gives the highest score."""
    return (keys == keys.max(axis=0)).any(axis=-1)


@CAN_WIN.mistake("With keys of one number it is right.")
def only_along_the_axes(keys):
    """The queries point along the axes only. There are all the directions between."""
    return ((keys == keys.max(axis=0)) | (keys == keys.min(axis=0))).any(axis=-1)


@CAN_WIN.mistake("The largest and the smallest are there, and they do win.")
def all_but_the_middle(keys):
    """A key is said to lose only if it is shorter than all others: length is not what decides."""
    lengths = np.linalg.norm(keys, axis=-1)
    return lengths > lengths.min()


E4_13 = Exercise(
    id="E4.13",
    title="Keys that nobody can find",
    grade="challenge",
    kind="derive",
    minutes=20,
    objective="tell which keys a query can single out, and what narrow keys cost",
    section="[More of what?](04_multi_head.ipynb#more-of-what)",
    task="""\
With keys of one number only the largest and the smallest can have the highest score, the chapter
says. What about keys of two numbers?

Write `can_win(keys)`: `keys` is `(n, d_k)` with at least two keys, `d_k` is 1 or 2, and no two keys
are the same. The result has `True` for each key that gets a higher score than all others from
*some* query, of any direction and length, and `False` for the rest.

For the keys 1, 2 and 4 it is `[True, False, True]`. For `[3, 0]`, `[0, 3]`, `[1, 1]` and `[-3, -3]`
it is `[True, True, False, True]`.""",
    stub=can_win,
    solution=can_win_solution,
    checker=Code(
        CAN_WIN,
        cases=(
            case(_ON_A_LINE),
            case(_BOTH_SIGNS),
            case(np.array([[3.0, 0.0], [1.0, 0.5], [0.0, 1.0], [-1.0, -1.0]])),
            case(_INSIDE),
            case(_BETWEEN),
            case(_SHORT),
            case(_ASIDE),
            case(np.array(SEATS)),
            case(_SCATTERED),
            case(_MANY_CORNERS),
        ),
    ),
    hints=(
        "Draw the keys as points. A query is a direction, and the score says how far a point lies "
        "in that direction.",
        "Stretch a rubber band around all points. Which ones does it touch?",
        "Key j beats key i if the query has a positive product with `keys[j] - keys[i]`. When is "
        "there one query for all i?",
        "When all these differences lie on one side of a line through 0. Or simply try very many "
        "directions.",
    ),
    explanation="""\
The winners are the corners of the rubber band around the points, and what lies inside can never
win, whatever the query. On a line the band has two ends; with two numbers it has as many corners as
the points allow. The eight seats lie on a circle, so each of them can be found: that is why head B
works with keys of 2.

The query need not point at the key. Take (4, 0), (2, 1) and (0, 1.5): from the query (2, 1) the
key (4, 0) gets 8 and (2, 1) itself only 5. From the query (1, 3) they get 4, 5 and 4.5.
A sweep, `[(keys @ q).argmax() for q in directions]` with some thousand directions, finds the
corners too.""",
)

# ---- E4.14 ---------------------------------------------------------------------------------------


def average_row_solution():
    return "d"


E4_14 = Exercise(
    id="E4.14",
    title="The row that PyTorch shows",
    grade="warm-up",
    kind="read",
    minutes=4,
    objective="say what an average of maps tells about the heads behind it",
    section="[In one matrix](04_multi_head.ipynb#in-one-matrix)",
    task="""\
Look at the last table of the section, and cover its first two rows. What is left is the row of "he"
that PyTorch shows for a layer of two heads: .352, .044, .474, .109, .021, for *Paul told Emma he
won*.

Which of these follows from this row alone?""",
    stub="average_row = ...  # a letter",
    solution=average_row_solution,
    checker=Choice(
        options=(
            Option(
                "The layer cannot decide between Paul and Emma.",
                "Uncover the two rows: each head has decided. The average of two clear answers "
                "looks like a doubt.",
                "average-looks-undecided",
            ),
            Option(
                "One of the heads gives Paul .352.",
                "Here they give Paul .704 and .000. An average need not be a number of either.",
                "average-taken-for-a-head",
            ),
            Option(
                "Both heads read Emma more than any other word.",
                "Their average does. Uncover the two rows, and see what head A reads.",
                "average-holds-for-each-head",
            ),
            Option(
                "At least one head gives Emma .474 or more.",
                "If both gave less, so would their average. That is about all it says: one head "
                "may have .948 and the other nothing.",
            ),
            Option(
                "The output for \"he\" is .352 of Paul's value, .474 of Emma's, and so on.",
                "Each head reads with its own weights, and from its own values.",
                "output-from-the-average",
            ),
        )
    ),
    hints=(
        "Which pairs of rows have this average? Two that are equal to it, for one. Find another.",
        "A statement follows if it is true for *all* such pairs.",
    ),
    explanation="""\
Two numbers with the average .474 cannot both be below it.
Everything else depends on the heads: two like this row would read both names, and the real ones
read one name each.

PyTorch averages by default. `average_attn_weights=False` gives one map for each head.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (
    E4_1,
    E4_2,
    E4_3,
    E4_4,
    E4_5,
    E4_6,
    E4_7,
    E4_8,
    E4_9,
    E4_10,
    E4_11,
    E4_12,
    E4_13,
    E4_14,
)

QUIZ = (
    Question(
        "What can a layer with one head not do?",
        (
            Option(
                "Follow one rule at even places and another one at odd places.",
                "A row may depend on the place that asks. In 4.1 one head did just that.",
                "one-head-one-pattern",
            ),
            Option(
                "Read more than one word.",
                "A row may spread over many words. What comes out is one mixture of them.",
                "one-head-one-word",
            ),
            Option(
                "Give one word two separate answers.",
                "A word has one row of weights in each head, and so one average.",
            ),
            Option(
                "Look at the content and at the seat.",
                "A score is a sum, and each part may look at something else.",
                "one-head-one-feature",
            ),
        ),
    ),
    Question(
        "A layer is 512 wide with 8 heads. How many of a word's 512 numbers can reach the queries "
        "of head 0?",
        (
            Option(
                "64, its eighth of them.",
                "The product is cut, not the word: head 0 has 64 columns of $W_Q$, each with 512 "
                "numbers.",
                "input-is-cut",
            ),
            Option(
                "All 512.",
                "Each head projects the whole word. Only what comes out is divided.",
            ),
            Option(
                "512 in the first layer, 64 in later ones.",
                "In each layer the heads are put together again, and each head of the next layer "
                "sees the whole.",
                "heads-stay-separate",
            ),
        ),
    ),
    Question(
        "Somebody forgot the swap before the scores. Which check shows it?",
        (
            Option(
                "Change one word, and see which outputs move.",
                'Paul no longer reaches "he". Reach is what is broken.',
            ),
            Option(
                "Add up the rows of weights, each of which must sum to 1.",
                "They still do: a softmax sees to that, whatever it is given.",
                "row-sums-show-everything",
            ),
            Option(
                "The shapes.",
                "They are all right. `reshape` gives whatever shape you ask for.",
                "shapes-show-everything",
            ),
            Option(
                "The loss falls.",
                "Models learn with it, only less. A falling loss is no proof.",
                "falling-loss-proves",
            ),
        ),
    ),
    Question(
        "A model stays 512 wide and gets 16 heads in place of 8, each half as wide. What grows?",
        (
            Option(
                "The number of parameters.",
                "The same matrices are cut into narrower strips.",
                "more-heads-more-parameters",
            ),
            Option(
                "The width of what comes out.",
                "16 outputs of half the width are side by side as wide as before.",
                "more-heads-wider-output",
            ),
            Option(
                "How exactly a head can point at a word.",
                "The other way round: narrower keys are worse addresses.",
                "more-heads-sharper-heads",
            ),
            Option(
                "The number of scores.",
                "Each head has one for each pair of words, and there are twice as many heads.",
            ),
        ),
    ),
    Question(
        "Two heads in *one* layer cannot continue a repeated text, one head in each of *two* "
        "layers can. Why?",
        (
            Option(
                "Two layers have more parameters.",
                "That alone would not help. A larger single layer has the same lack.",
                "more-parameters-explain-it",
            ),
            Option(
                "The second job needs what the first one found.",
                "To look for a place *before which* the word stood, places must know what stood "
                "before them.",
            ),
            Option(
                "Heads of one layer see the same words, and so they always learn the same.",
                "In 4.1 two heads of one layer divided the work without being told.",
                "heads-of-a-layer-are-alike",
            ),
            Option(
                "One layer reads only the last word.",
                "A layer reads all words; it lacks a second step.",
                "one-layer-looks-one-back",
            ),
        ),
    ),
    Question(
        "In the gallery L2H9 reads the same word elsewhere, and *won* gives `[CLS]` .85. What does "
        "the .85 say?",
        (
            Option(
                "*Won* has to do with the start of the sentence.",
                "`[CLS]` stands for no word, and many words read it.",
                "parked-weight-is-meaning",
            ),
            Option(
                "The head was never trained on verbs, and is broken for them.",
                "It does what it should: there is no second *won* to be read.",
                "parked-weight-is-a-fault",
            ),
            Option(
                "The head found nothing of its kind and rests there.",
                "Its row must sum to 1, so the weight has to go somewhere.",
            ),
        ),
    ),
    Question(
        "Five of 72 heads prefer *animal* with *tired* and *street* with *wide*. What do we know?",
        (
            Option(
                'These five heads find out what "it" is.',
                "Six heads did the opposite. Among 72, some will do it by chance.",
                "best-of-many-proves",
            ),
            Option(
                'The model does not know what "it" is.',
                "That it cannot be seen in two weights does not mean that it is not there.",
                "weights-are-all-there-is",
            ),
            Option(
                "Attention as it is built cannot find out what a pronoun stands for.",
                "Head A does, by hand, and L1H3 prefers the right name in most sentences.",
                "no-head-proves",
            ),
            Option(
                "Little: as many heads change their mind the wrong way round.",
                "How many were looked at, and in how many sentences, must be said too.",
            ),
        ),
    ),
)
