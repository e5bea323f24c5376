"""Exercises of chapter 6: sizes, first numbers, and what ails a model."""

from functools import cache
from typing import NamedTuple

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.configurations import find
from qkvlib.book.exercises._answers import (
    Choice,
    Design,
    Items,
    Numbers,
    Rule,
    Slip,
    as_array,
    what,
)
from qkvlib.book.exercises._calling import Case
from qkvlib.book.exercises._code import Code, case, with_more
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.diagnostics import key_spread, normalized_entropy, rms, score_std

# ---- E6.1 ----------------------------------------------------------------------------------------


def sizes_solution():
    return {
        "Qwen3 32B": (128, 64 * 128, 8 * 128),
        "SmolLM2 135M": (576 // 9, 576, 3 * 64),
        "T5 3B": (128, 32 * 128, 32 * 128),
        "Gemma 2 2B": (256, 8 * 256, 4 * 256),
    }


def _sizes(name):
    """The checker of one model's three sizes."""
    c = find(name)
    width = c.d_model // c.heads
    by_name = {
        "d-model-over-h": (
            (width, c.d_model, c.kv_heads * width),
            "The width of a head is computed from the other sizes. Is it given here?",
        ),
        "square-by-habit": (
            (c.d_k, c.d_model, c.kv_heads * c.d_k),
            "The width of a head is right, and W_Q is as wide as the model all the same. "
            "Whose numbers lie side by side in W_Q?",
        ),
        "key-heads-forgotten": (
            (c.d_k, c.heads * c.d_k, c.heads * c.d_k),
            "W_K is as wide as W_Q here. How many heads have keys of their own?",
        ),
        "all-square": (
            (c.d_k, c.d_model, c.d_model),
            "The width of a head is right, and both matrices are square. "
            "Who says that heads side by side are as wide as the model?",
        ),
        "key-heads-for-heads": (
            (c.d_model // c.kv_heads, c.d_model, c.d_model),
            "The width of the model was shared out among the heads of keys. "
            "Which heads are there more of?",
        ),
        "one-head-of-keys": (
            (c.d_k, c.heads * c.d_k, c.d_k),
            "W_K has the columns of a single head here. How many heads have keys of their own?",
        ),
        "heads-by-key-heads": (
            (c.d_k, c.heads * c.d_k, c.heads // c.kv_heads * c.d_k),
            "W_K has as many heads here as share one head of keys. "
            "How many heads have keys of their own?",
        ),
        "one-head-alone": (
            (c.d_k, c.d_k, c.d_k),
            "These are the columns of one head. The matrices hold all heads side by side.",
        ),
    }
    right = (c.d_k, c.heads * c.d_k, c.kv_heads * c.d_k)
    slips, known = {}, [right]
    for slip, (values, says) in by_name.items():
        if values not in known:
            known.append(values)
            slips[slip] = Slip(lambda values=values: values, says)
    return Numbers(
        right=lambda: right, slips=slips, labels=("d_k", "columns of W_Q", "columns of W_K")
    )


E6_1 = Exercise(
    id="E6.1",
    title="Four configurations",
    grade="warm-up",
    kind="predict",
    minutes=6,
    objective="read the shapes of a layer off a model's configuration",
    section="[What people choose](06_practice/01_dimensions.ipynb#what-people-choose)",
    task="""\
A configuration file names the width of the model, the heads, and sometimes more:

| | width | heads | heads of keys and values | width of a head |
|---|---|---|---|---|
| Qwen3 32B | 5120 | 64 | 8 | 128 |
| SmolLM2 135M | 576 | 9 | 3 | not given |
| T5 3B | 1024 | 32 | not given | 128 |
| Gemma 2 2B | 2304 | 8 | 4 | 256 |

Where the width of a head is not given, it is the width of the model divided by the heads.
Where the heads of keys are not given, each head has keys of its own.
(Files call these four `hidden_size`, `num_attention_heads`, `num_key_value_heads`, `head_dim`.)

For each model: $d_k$, and how many columns $W_Q$ and $W_K$ have, all heads side by side.""",
    stub="""\
sizes = {  # d_k, columns of W_Q, columns of W_K
    "Qwen3 32B": (..., ..., ...),
    "SmolLM2 135M": (..., ..., ...),
    "T5 3B": (..., ..., ...),
    "Gemma 2 2B": (..., ..., ...),
}""",
    solution=sizes_solution,
    checker=Items({name: _sizes(name) for name in sizes_solution()}),
    hints=(
        "What is given counts. Divide only where nothing is given.",
        "The columns of $W_Q$: as many numbers as a head has, times the heads.",
        "For $W_K$ the same, with the heads of keys.",
    ),
    explanation="""\
Nothing outside a head sees how wide its queries and keys are, so the width of a head is free.
Qwen3 has 8192 columns of queries for words of 5120 numbers, Gemma 2 has 2048 for 2304.
$W_Q$ turns the one width into the other, and $W_O$ leads back.

Dividing 5120 by 64 gives 80, and many a program has failed to load this model with an error about
shapes, for its heads are 128 wide.
Shapes that fit prove less than shapes that do not: where the rule of thumb happens to hold, as in
SmolLM2, nobody notices that a program relies on it.""",
)

# ---- E6.2 ----------------------------------------------------------------------------------------


def xavier_uniform(fan_in, fan_out, *, generator):
    """A random matrix (fan_in, fan_out) after Xavier's recipe, uniform from -bound to bound.

    generator: a NumPy random generator, from which all numbers are drawn
    """
    ...


def xavier_uniform_solution(fan_in, fan_out, *, generator):
    bound = np.sqrt(6 / (fan_in + fan_out))
    return generator.uniform(-bound, bound, size=(fan_in, fan_out))


class _Steady(np.random.Generator):
    """A generator without chance: whatever it draws lies three quarters of the way up."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return "one whose every draw lies three quarters of the way up, as 0.5 does from -1 to 1"

    def random(self, size=None, dtype=np.float64, out=None):
        return np.full(() if size is None else size, 0.75)[()]

    def uniform(self, low=0.0, high=1.0, size=None):
        return low + (high - low) * self.random(
            np.broadcast(low, high).shape if size is None else size
        )

    def standard_normal(self, size=None, dtype=np.float64, out=None):
        return 0.6745 * np.ones(() if size is None else size)[()]

    def normal(self, loc=0.0, scale=1.0, size=None):
        return loc + scale * self.standard_normal(size)


def _is_xavier(draw, fan_in=200, fan_out=100):
    """Whether what a function draws is uniform between the bounds, by whatever way it comes there.

    The largest distance from the uniform distribution is measured, as by Kolmogorov and Smirnov;
    one draw in a million that is right is further away. The generator must decide.
    """
    try:
        drawn, again, other = (
            np.asarray(draw(fan_in, fan_out, generator=np.random.default_rng(seed)))
            for seed in (62, 62, 63)
        )
    except Exception:
        return False
    if drawn.shape != (fan_in, fan_out) or drawn.dtype != float:
        return False
    bound = np.sqrt(6 / (fan_in + fan_out))
    below = np.sort(drawn.ravel() / bound + 1) / 2  # the share that should lie below each number
    even = (np.arange(below.size) + 0.5) / below.size
    near = np.abs(below - even).max() < 2.7 / np.sqrt(below.size)
    decided = np.array_equal(drawn, again) and not np.array_equal(drawn, other)
    return bool(near and decided and below[0] >= 0 and below[-1] <= 1)


class _Drawing(Case):
    """A case of a function that draws: what is right in the long run is right here too."""

    def asked(self, function):
        draw = xavier_uniform_solution if _is_xavier(function) else function
        return super().asked(draw)


_SMALL_DRAWS = tuple(
    _Drawing(sizes, {"generator": _Steady()}) for sizes in ((1, 5), (4, 2), (3, 5))
)

XAVIER = with_more(
    "Xavier initialisation", tuple(each.asked for each in _SMALL_DRAWS), (_is_xavier,)
)


@XAVIER.mistake("The deviation is right, and so are rows and columns.")
def normal_for_uniform(fan_in, fan_out, *, generator):
    """These numbers are normal: not all equally likely, and some of them beyond the bound."""
    return generator.normal(0, np.sqrt(2 / (fan_in + fan_out)), (fan_in, fan_out))


@XAVIER.mistake("The formula of the bound is right.")
def bound_for_the_deviation(fan_in, fan_out, *, generator):
    """These numbers are normal, with the bound as their deviation: three times the variance."""
    return generator.normal(0, np.sqrt(6 / (fan_in + fan_out)), (fan_in, fan_out))


@XAVIER.mistake("No number is beyond the bound.")
def none_below_zero(fan_in, fan_out, *, generator):
    """The numbers begin at 0: their mean is not 0, and they are only half as far apart."""
    return generator.uniform(0, np.sqrt(6 / (fan_in + fan_out)), (fan_in, fan_out))


@XAVIER.mistake("The numbers lie on both sides of 0, and the formula of the bound is right.")
def half_of_the_range(fan_in, fan_out, *, generator):
    """The numbers reach half of the bound: from -1/2 to 1/2 is one unit wide, and not two."""
    return (generator.random((fan_in, fan_out)) - 0.5) * np.sqrt(6 / (fan_in + fan_out))


@XAVIER.mistake("It is the bound that PyTorch's nn.Linear draws with.")
def the_recipe_of_a_linear_layer(fan_in, fan_out, *, generator):
    """That is the bound of another recipe in the section, whose scores have a variance of 1/9."""
    bound = 1 / np.sqrt(fan_in)
    return generator.uniform(-bound, bound, (fan_in, fan_out))


E6_2 = Exercise(
    id="E6.2",
    title="Xavier's recipe",
    grade="core",
    kind="fill in",
    minutes=8,
    objective="draw a matrix whose numbers have the size that a recipe asks for",
    section="[Six recipes](06_practice/02_initialisation.ipynb#six-recipes)",
    task="""\
Write Xavier's recipe with NumPy alone, without `qkvlib`.

`xavier_uniform(fan_in, fan_out, *, generator)` gives a float64 array of `fan_in` rows and `fan_out`
columns. Its numbers lie between `-bound` and `bound`, all equally likely, and their variance is
$2 / (\\text{rows} + \\text{columns})$.
Numbers that are uniform from $-b$ to $b$ have variance $b^2 / 3$, so what is `bound`?
For 2 rows and 4 columns it is 1.

`generator` is a NumPy random generator such as `np.random.default_rng(0)`, and all numbers come
from it: the same seed gives the same matrix.""",
    stub=xavier_uniform,
    solution=xavier_uniform_solution,
    checker=Code(XAVIER, cases=_SMALL_DRAWS, alone=True),
    hints=(
        "Set $b^2 / 3$ equal to the variance that is wanted, and solve for $b$.",
        "The bound is larger than the deviation: by the root of 3.",
        "`generator.uniform(low, high, size=...)` draws an array of any shape.",
    ),
    explanation="""\
From $b^2/3 = 2/(\\text{rows} + \\text{columns})$ comes
$b = \\sqrt{6 / (\\text{rows} + \\text{columns})}$.
`bound * (2 * generator.random((fan_in, fan_out)) - 1)` does the same.

Whoever takes the deviation $\\sqrt{2 / (\\ldots)}$ for the bound gets a third of the variance. The
variance of the scores is then a ninth of what it should be, since queries and keys are both too
small.
And the recipe looks at the matrix that is *drawn*: for $Q$, $K$ and $V$ in one, `fan_out` is three
times as large, and the chapter measured what that makes of the scores, 0.25 in place of 1.""",
)

# ---- E6.3 ----------------------------------------------------------------------------------------


def fresh_scores_solution():
    variance = 0.02**2
    return (1024 * variance) ** 2, (5120 * variance) ** 2, 1 / np.sqrt(1600)


def _score_variance(d, tolerance, std=0.02, d_k=64):
    slips = {
        "not-squared": Slip(
            lambda: d * std**2,
            "That is the deviation of the scores. Query and key both bring a factor.",
        ),
        "deviation-for-variance": Slip(
            lambda: (d * std) ** 2,
            "0.02 is a standard deviation. The formula asks for the variance of a number of W.",
        ),
        "scale-forgotten": Slip(
            lambda: d_k * (d * std**2) ** 2,
            "That is the variance of query times key. What does the division do to it?",
        ),
        "divided-like-a-deviation": Slip(
            lambda: np.sqrt(d_k) * (d * std**2) ** 2,
            "Scores are divided by the root of d_k. What does that divide their variance by?",
        ),
        "divided-again": Slip(
            lambda: (d * std**2) ** 2 / d_k,
            "The division by the root of d_k is in the formula already: it does not know the "
            "width of a head.",
        ),
    }
    if d > 1024:
        slips["grows-with-the-width"] = Slip(
            lambda: d / 1024 * (1024 * std**2) ** 2,
            "That is the first variance times 5, as the width is. But queries and keys both grow.",
        )
    return Numbers(right=lambda: (d * std**2) ** 2, slips=slips, tolerance=tolerance)


E6_3 = Exercise(
    id="E6.3",
    title="How far apart fresh scores are",
    grade="core",
    kind="predict",
    minutes=6,
    objective="foretell the scores of a fresh layer from the size of its weights",
    section="[How large is a fresh score?]"
    "(06_practice/02_initialisation.ipynb#how-large-is-a-fresh-score)",
    task="""\
Three fresh layers read words that come out of a layer norm.
All have heads 64 wide, and divide their scores by 8 as usual.

1. The model is 1024 wide, and the numbers of $W_Q$ and $W_K$ are drawn with a standard deviation
   of 0.02. Which variance do the scores have, before the softmax?
2. The same for a model 5120 wide.
3. In a model 1600 wide, which standard deviation of $W_Q$ and $W_K$ gives scores of variance 1?

Three digits are enough.""",
    stub="""\
narrow = ...  # variance of the scores, 1024 wide
wide = ...  # variance of the scores, 5120 wide
wanted = ...  # standard deviation of the weights, 1600 wide""",
    solution=fresh_scores_solution,
    checker=Items(
        {
            "narrow": _score_variance(1024, 0.0025),
            "wide": _score_variance(5120, 0.03),
            "wanted": Numbers(
                right=lambda: 1 / np.sqrt(1600),
                tolerance=0.0003,
                slips={
                    "variance-for-deviation": Slip(
                        lambda: 1 / 1600,
                        "That is the variance of the weights. Which deviation goes with it?",
                    ),
                    "width-of-a-head": Slip(
                        lambda: 1 / np.sqrt(64),
                        "That is made of the width of a head. Over how many numbers does a sum "
                        "such as q_1 run?",
                    ),
                    "xavier-per-head": Slip(
                        lambda: np.sqrt(2 / (1600 + 64)),
                        "That is Xavier's recipe for the matrix of one head. Which variance do the "
                        "scores have in the section, if each head is drawn by itself?",
                    ),
                    "one-root-too-many": Slip(
                        lambda: 1600**-0.25,
                        "Here the variance of the weights squares to 1 over the width: a root too "
                        "many. What must the width times the variance be?",
                    ),
                },
            ),
        }
    ),
    hints=(
        "One formula of the section is enough: width and variance of the weights go in, and the "
        "width of a head does not.",
        "0.02 is a standard deviation. Its square is 0.0004.",
        "For the last: width times variance must be 1, and the deviation is the root of the "
        "variance.",
    ),
    explanation="""\
$(1024 \\cdot 0.0004)^2 = 0.168$ and $(5120 \\cdot 0.0004)^2 = 4.19$: with the same 0.02 one layer
is rather grey at the start, and the other rather sharp.
The width enters squared, so a model five times as wide has a variance 25 times as large.

$1/\\sqrt{1600} = 0.025$ is what 1600 numbers ask for.
0.02 suits a width of 2500, and is copied to all others.""",
)

# ---- E6.4 ----------------------------------------------------------------------------------------


def stds_without_scale(d_model, d_k):
    """Standard deviations for the numbers of W_Q and W_K, in a layer that does not scale.

    d_model: the width of the words. d_k: the width of a head -> two numbers, such that a product
    of query and key, as it is, has variance 1
    """
    ...


def stds_without_scale_solution(d_model, d_k):
    return 1 / np.sqrt(d_model * d_k), 1 / np.sqrt(d_model)


_WIDTHS = ((512, 64), (48, 5), (300, 128))


def _stds(function, d, d_k):
    """The two numbers that a reader's function gives, or what is wrong with them."""
    answer = function(d, d_k)
    if answer is None or answer is ...:
        return f"for d_model {d} and d_k {d_k} it returns nothing"
    try:
        stds = as_array(answer)
    except TypeError as error:
        return str(error)
    if stds.shape != (2,):
        got = f"{stds.size} numbers" if stds.ndim == 1 else f"an array of shape {stds.shape}"
        got = got if stds.ndim else "one number"
        return f"for d_model {d} and d_k {d_k} it gives {got}"
    if not (np.isfinite(stds).all() and (stds > 0).all()):
        return f"for d_model {d} and d_k {d_k} it gives {stds[0]:.3g} and {stds[1]:.3g}"
    return stds


def _two_positive_numbers(function):
    found = [_stds(function, *sizes) for sizes in _WIDTHS]
    return next((each for each in found if isinstance(each, str)), None)


def _variance_of(stds, d, d_k):
    # d_k products of a number of the query and one of the key, each a sum over d numbers.
    return d_k * (d * stds[0] ** 2) * (d * stds[1] ** 2)


def _gives(product, only=None):
    """The test whether the two deviations make this product; `only` looks at the pairs first."""

    def test(function):
        pairs = [_stds(function, *sizes) for sizes in _WIDTHS]
        if only is not None and not all(only(*pair) for pair in pairs):
            return None
        if not all(np.isclose(p[0] * p[1], product(*s)) for p, s in zip(pairs, _WIDTHS)):
            return None
        return _variances(pairs)

    return test


def _variances(pairs):
    return "\n".join(
        f"d_model {d}, d_k {d_k}: deviations {p[0]:.3g} and {p[1]:.3g}, "
        f"products of variance {_variance_of(p, d, d_k):.3g}"
        for p, (d, d_k) in zip(pairs, _WIDTHS)
    )


def _right_variances(function):
    pairs = [_stds(function, *sizes) for sizes in _WIDTHS]
    if all(np.isclose(_variance_of(p, *s), 1, rtol=0.01) for p, s in zip(pairs, _WIDTHS)):
        return None
    return _variances(pairs)


def _right_once(function):
    pairs = [_stds(function, *sizes) for sizes in _WIDTHS]
    right = [np.isclose(_variance_of(p, *s), 1, rtol=0.01) for p, s in zip(pairs, _WIDTHS)]
    return _variances(pairs) if any(right) and not all(right) else None


E6_4 = Exercise(
    id="E6.4",
    title="A layer without a scale",
    grade="challenge",
    kind="derive",
    minutes=10,
    objective="move the scale into the first numbers of a matrix",
    section="[Must the scale be exact?]"
    "(06_practice/02_initialisation.ipynb#must-the-scale-be-exact)",
    task="""\
T5 multiplies queries and keys and does not divide by $\\sqrt{d_k}$.
Its fresh scores have variance 1 all the same, for $W_Q$ and $W_K$ begin with other numbers.

Derive how large these must be. `stds_without_scale(d_model, d_k)` gives two numbers: the standard
deviation for $W_Q$ and the one for $W_K$, both `(d_model, d_k)`, with mean 0.
Words come out of a layer norm, so a word's squared length is `d_model`.
The product `query @ key`, not divided by anything, must have variance 1.

There are many right pairs. With both `1 / np.sqrt(d_model)` the variance would be `d_k`.""",
    stub=stds_without_scale,
    solution=stds_without_scale_solution,
    checker=Design(
        shapes={"stds_without_scale": "function"},
        rules=(
            Rule("Two positive numbers are expected.", _two_positive_numbers),
            Rule(
                "The product has the variance d_k: this is the start of a layer that divides. "
                "Nothing has taken the place of the division.",
                _gives(lambda d, d_k: 1 / d),
                "scale-forgotten",
            ),
            Rule(
                "It went the other way: the weights have become larger where the scores should "
                "become smaller.",
                _gives(lambda d, d_k: np.sqrt(d_k) / d),
                "scale-turned-round",
            ),
            Rule(
                "Both matrices carry the whole root of d_k, so the scores are divided twice.",
                _gives(lambda d, d_k: 1 / (d * d_k), only=np.isclose),
                "divided-in-both",
            ),
            Rule(
                "The scores come out divided by d_k. It is their deviation that the root of d_k "
                "divides, and a deviation is what is asked for here.",
                _gives(lambda d, d_k: 1 / (d * d_k)),
                "d-k-for-its-root",
            ),
            Rule(
                "The product of the two is the square of what it should be. These are variances, "
                "or what belongs to both together was given to each.",
                _gives(lambda d, d_k: 1 / (d * d * d_k)),
                "variances-handed-over",
            ),
            Rule(
                "The root of d_model stands where that of d_k should. Which width does the sum of "
                "query times key run over?",
                _gives(lambda d, d_k: d**-1.5),
                "width-of-the-model-for-the-head",
            ),
            Rule(
                "The numbers know the width of a head and not that of the model. Over how many "
                "numbers does each number of a query sum?",
                _gives(lambda d, d_k: 1 / d_k),
                "width-of-the-head-for-the-model",
            ),
            Rule(
                "The numbers know the width of a head and not that of the model. Over how many "
                "numbers does each number of a query sum?",
                _gives(lambda d, d_k: d_k**-1.5),
                "width-of-the-head-for-the-model",
            ),
            Rule(
                "This is Xavier's recipe for the matrix of one head, with the root of d_k moved. "
                "Which variance does the chapter measure for that recipe?",
                _gives(lambda d, d_k: 2 / ((d + d_k) * np.sqrt(d_k))),
                "xavier-per-head",
            ),
            Rule(
                "This is Xavier's recipe as it is, and its layer divides. "
                "What has taken the place of the division?",
                _gives(lambda d, d_k: 2 / (d + d_k)),
                "xavier-as-it-is",
            ),
            Rule(
                "The width of the model counts once only. Queries and keys are both sums over "
                "that many numbers.",
                _gives(lambda d, d_k: 1 / np.sqrt(d * d_k)),
                "width-of-the-model-once",
            ),
            Rule(
                "These would be right for words of length 1. How long are they here?",
                _gives(lambda d, d_k: 1 / np.sqrt(d_k)),
                "words-of-length-1",
            ),
            Rule("It is right for some widths and not for others.", _right_once, "one-size-only"),
            Rule("The product has another variance.", _right_variances),
        ),
    ),
    hints=(
        "Which variance has a number of the query? And a number of the key? "
        "How many products are added up?",
        "Call the two deviations $a$ and $b$. The product of query and key has the variance "
        "$d_k \\cdot d_\\text{model} a^2 \\cdot d_\\text{model} b^2$.",
        "That is 1 for $a b = 1 / (d_\\text{model} \\sqrt{d_k})$. Now choose one, and the other "
        "follows.",
    ),
    explanation="""\
A number of the query sums over `d_model` numbers and has variance $d_\\text{model} a^2$.
The same holds for the key with $b$, and $d_k$ such products are added.
So $a b = 1/(d_\\text{model} \\sqrt{d_k})$, and T5 leaves $W_K$ as it was and divides $W_Q$.
Each by the fourth root of $d_k$ is right, too; some programs scale queries and keys that way.

Take any layer that divides, replace $W_Q$ by $W_Q / \\sqrt{d_k}$, and leave out the division: all
scores stay the same to the last digit that counts.
From then on training goes another way, for a smaller $W_Q$ moves the scores by another amount: in
the chapter the loss after 60 steps was 0.03 in place of 0.13.""",
)

# ---- E6.5 ----------------------------------------------------------------------------------------


class _Head(NamedTuple):
    """One head that reads a text: queries, keys, scores as they go into the softmax, weights."""

    q: np.ndarray
    k: np.ndarray
    scores: np.ndarray
    weights: np.ndarray


def _head(n, d_k=64, *, seed=0, q=1.0, k=1.0, differ=1.0, bias=0.0, divide=1.0, after=qn.softmax):
    """A head of n words, whose queries and keys have these lengths.

    differ: how much of a key is its own. bias: how much of what all have in common is added.
    divide: what scores are divided by besides the root of d_k. after: makes weights of them.
    """
    rng = np.random.default_rng(seed)
    query, key, common = rng.normal(size=(n, d_k)), rng.normal(size=(n, d_k)), rng.normal(size=d_k)
    if differ != 1:
        key = common + differ * key
    query, key = q * query, k * key + bias * common
    scores = query @ key.T / np.sqrt(d_k) / divide
    return _Head(query, key, scores, after(scores))


def _softmax_twice(scores):
    return qn.softmax(qn.softmax(scores))


def _heated(scores):
    return qn.softmax(scores / 100)


class _Readings(NamedTuple):
    """The five of the clinic."""

    q: float
    k: float
    spread: float
    std: float
    entropy: float

    def __str__(self):
        names = ("|q|", "|k|", "key spread", "score std", "entropy")
        return ", ".join(f"{name} {_short(each)}" for name, each in zip(names, self))


def _short(reading):
    return "below 1e-9" if 0 < abs(reading) < 1e-9 else f"{reading:.2g}"


def _read(head):
    spread = key_spread(head.k)
    lengths = rms(head.q).mean(), rms(head.k).mean()
    std = np.sqrt((score_std(head.scores) ** 2).mean())
    return _Readings(*map(float, (*lengths, spread, std, normalized_entropy(head.weights).mean())))


_CAUSES = {
    "healthy": "Nothing. It is a healthy layer at its start.",
    "zero": "$W_Q$ or $W_K$ started at 0.",
    "small": "$W_Q$ or $W_K$ started far too small.",
    "large": "$W_Q$ and $W_K$ started far too large.",
    "divided": "The scores were divided once too often.",
    "unscaled": "The scores were not divided at all.",
    "same keys": "All keys are nearly the same.",
    "after the scores": "Something happens to the scores on their way to the weights.",
}

_CARDS = {
    "card 1": ("divided", _head(24, seed=1, divide=8)),
    "card 2": ("healthy", _head(24, seed=2, q=3**-0.5, k=3**-0.5)),
    "card 3": ("same keys", _head(24, seed=3, differ=1e-5)),
    "card 4": ("zero", _head(24, seed=4, q=0)),
    "card 5": ("after the scores", _head(24, seed=5, after=_softmax_twice)),
    "card 6": ("large", _head(24, seed=6, q=6, k=6)),
    "card 7": ("small", _head(24, seed=7, q=1e-3, k=1e-3)),
    "card 8": ("unscaled", _head(24, seed=8, divide=1 / 8)),
    "card 9": ("same keys", _head(24, seed=9, k=1e-3, bias=10)),
    "card 10": ("small", _head(24, seed=10, k=0.01)),
}


def _speaks_against(chosen, true, r):
    """Why it cannot be this cause: what one would read, and what one does read."""
    both = f"|q| {_short(r.q)} and |k| {_short(r.k)}"
    grey = r.entropy > 0.99
    before = f"Look further left: {both}. What comes first is to blame for what follows."
    if chosen == "healthy":
        looks = "are all alike" if grey else "lie on one word, nearly"
        return (
            f"The entropy is {_short(r.entropy)}: the weights {looks}. A fresh layer is in between."
        )
    if chosen == "zero":
        says = "Small is not 0" if true == "small" else "If so, a length would be exactly 0"
        return f"{says}. Here are {both}."
    if chosen == "small" and true == "zero":
        return f"Smaller than that: {both}. One of the two has no gradient but through the other."
    if chosen == "small":
        return f"If so, a length would be far below 1. Here are {both}."
    if chosen == "large" and max(r.q, r.k) > 4:
        return (
            f"Here are {both}: one is long, one is not, and large weights do not make keys alike."
        )
    if chosen == "large":
        return f"If so, both lengths would be far above 1. Here are {both}."
    if chosen == "same keys":
        return f"If so, the key spread would be near 0. Here it is {_short(r.spread)}."
    if true == "same keys":
        spread = f"a key spread of {_short(r.spread)}"
        return f"The scores are off, and so is something before them: {spread}."
    if true in ("zero", "small", "large"):
        return before
    if chosen == "divided" and r.std > 1.5:
        return f"That makes scores lie too close together. Here their std is {_short(r.std)}."
    if chosen == "unscaled" and r.std < 1.5:
        return f"If so, the score std would be about 8. Here their std is {_short(r.std)}."
    if true == "healthy":
        product = f"{_short(r.q)} times {_short(r.k)}"
        return (
            f"The score std, {_short(r.std)}, is what these lengths make, {product}; "
            f"and so is the entropy, {_short(r.entropy)}, not quite 1."
        )
    if chosen == "divided":
        return f"The score std is {_short(r.std)}: up to the scores nothing is lost."
    return (
        f"If so, the scores would be those of a healthy layer. Here their std is {_short(r.std)}."
    )


def _name(chosen, true):
    if true == "healthy":
        return "pale-called-ill"
    if chosen == "healthy":
        return "ill-called-healthy"
    if "same keys" in (true, chosen):
        return "spread-ignored"
    if {true, chosen} == {"zero", "small"}:
        return "zero-for-small"
    if chosen in ("zero", "small", "large"):
        return "weights-blamed-by-habit"
    if true in ("zero", "small", "large"):
        return "effect-for-the-cause"
    return "scores-not-read"


def _card(true, head):
    readings = _read(head)
    options = []
    for cause, text in _CAUSES.items():
        says, name = f"{true}.", None
        if cause != true:
            says, name = _speaks_against(cause, true, readings), _name(cause, true)
        options.append(Option(text, says, name))
    return Choice(tuple(options))


def diagnosis_solution():
    return ["e", "a", "g", "b", "h", "d", "c", "f", "g", "c"]


_TABLE = "\n".join(
    f"| {name} | " + " | ".join(map(_short, _read(head))) + " |"
    for name, (_, head) in _CARDS.items()
)

E6_5 = Exercise(
    id="E6.5",
    title="Ten cards",
    grade="core",
    kind="choose",
    minutes=10,
    objective="name what ails a layer from five readings",
    section="[Ward A](06_practice/03_clinic_ab.ipynb#what-to-take-home-from-ward-a)",
    task=f"""\
Ten layers with one head, 64 wide, have read 24 words each, before any training.
Their readings are those of the clinic:

| | \\|q\\| | \\|k\\| | key spread | score std | entropy |
|---|---|---|---|---|---|
{_TABLE}

What ails each of them? Some causes occur twice. Hand over ten letters, in the order of the cards;
the check takes a list with gaps, too. *Far* too small or too large means by a factor of five or
more.""",
    stub="diagnosis = [..., ..., ..., ..., ..., ..., ..., ..., ..., ...]  # ten letters",
    solution=diagnosis_solution,
    checker=Items({name: _card(*card) for name, card in _CARDS.items()}),
    hints=(
        "Read from left to right, and stop at the first number that is out of order: what comes "
        "later follows from it.",
        "Lengths first: 0, far below 1, far above 1? Then the key spread. Then the score std, "
        "which should be about |q| times |k|.",
        "If all of these are in order and the entropy is 1 all the same, the fault lies behind "
        "the scores.",
    ),
    explanation=f"""\
Each reading is made from those to the left of it, so the first that is out of order names the
cause.
Cards 3, 7, 9 and 10 all have a tiny score std, and in none of them is the scale to blame.

Card 2 is the one that people treat for nothing: it started like PyTorch's `nn.Linear`, a little
short and a little pale.
Its score std, {_short(_read(_CARDS["card 2"][1]).std)}, is just the product of its lengths.
In card 9 the keys are long, and all the same: a bias has drowned them.

Five readings separate causes whose maps look alike.
A gradient would tell more: that of cards 7 and 10 is small and alive.""",
)

# ---- E6.6 ----------------------------------------------------------------------------------------


def quiet_start(d_model, d_k, d_v, generator):
    """The first W_Q, W_K (d_model, d_k) and W_V (d_model, d_v) of a head that begins grey."""
    W_Q = np.zeros((d_model, d_k))
    W_K = np.zeros((d_model, d_k))
    W_V = qn.xavier_uniform(d_model, d_v, generator=generator)
    return W_Q, W_K, W_V


def quiet_start_solution(d_model, d_k, d_v, generator):
    W_Q = np.zeros((d_model, d_k))
    W_K = qn.xavier_uniform(d_model, d_k, generator=generator)
    W_V = qn.xavier_uniform(d_model, d_v, generator=generator)
    return W_Q, W_K, W_V


_STARTS = ((12, 5, 7), (48, 16, 8))  # d_model, d_k, d_v


def _start(function, sizes, seed=0):
    """The three matrices, or what is wrong with them."""
    d_model, d_k, d_v = sizes
    answer = function(d_model, d_k, d_v, np.random.default_rng(seed))
    if not isinstance(answer, tuple | list) or len(answer) != 3:
        return "W_Q, W_K and W_V are expected"
    wanted = {"W_Q": (d_model, d_k), "W_K": (d_model, d_k), "W_V": (d_model, d_v)}
    matrices = []
    for part, (name, shape) in zip(answer, wanted.items()):
        try:
            matrix = as_array(part)
        except TypeError as error:
            return f"{name}: {error}"
        if matrix.shape != shape:
            return f"{name} has shape {matrix.shape} for {shape}"
        if not np.isfinite(matrix).all():
            return f"{name} holds numbers that are not finite"
        matrices.append(matrix)
    return matrices


def _normed_words(d_model):
    return qn.layer_norm(np.random.default_rng(5).normal(size=(9, d_model)))


def _first_scores(function, sizes):
    W_Q, W_K, _ = _start(function, sizes)
    x = _normed_words(sizes[0])
    return qn.attention_scores(x @ W_Q, x @ W_K)


def _gradients(function, sizes):
    """The gradients of W_Q, W_K and W_V, for a random gradient of what the head hands out."""
    W_Q, W_K, W_V = _start(function, sizes)
    x = _normed_words(sizes[0])
    grad_read = np.random.default_rng(6).normal(size=(len(x), sizes[2]))
    weights = qn.softmax(qn.attention_scores(x @ W_Q, x @ W_K))
    grad_weights = grad_read @ (x @ W_V).T
    average = (weights * grad_weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - average) / np.sqrt(sizes[1])
    return (
        x.T @ grad_scores @ (x @ W_K),
        x.T @ grad_scores.T @ (x @ W_Q),
        (weights @ x).T @ grad_read,
    )


def _three_matrices(function):
    found = (_start(function, sizes) for sizes in _STARTS)
    return next((each for each in found if isinstance(each, str)), None)


def _largest_gradients(function, sizes):
    sizes_of = [_short(float(np.abs(g).max())) for g in _gradients(function, sizes)]
    names = ("W_Q", "W_K", "W_V")
    return "largest gradients: " + ", ".join(f"{n} {s}" for n, s in zip(names, sizes_of))


def _values_heard(function):
    for sizes in _STARTS:
        if not _start(function, sizes)[2].any():
            return _largest_gradients(function, sizes)
    return None


def _awake(function):
    for sizes in _STARTS:
        if not any(g.any() for g in _gradients(function, sizes)[:2]):
            return _largest_gradients(function, sizes)
    return None


def _scores_found(function, wanted):
    for sizes in _STARTS:
        largest = np.abs(_first_scores(function, sizes)).max()
        if wanted(largest):
            return f"with 9 words from a layer norm, the largest score is {_short(float(largest))}"
    return None


def _columns_differ(function):
    for sizes in _STARTS:
        W_Q, W_K, _ = _start(function, sizes)
        rank = np.linalg.matrix_rank(np.concatenate([W_Q, W_K]))
        if rank < sizes[1]:
            return f"of {sizes[1]} columns, only {rank} are independent of each other"
    return None


def _usual_size(function):
    for sizes in _STARTS:
        W_Q, W_K, W_V = _start(function, sizes)
        x = _normed_words(sizes[0])
        for name, matrix in {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}.items():
            length = rms(x @ matrix).mean()
            if matrix.any() and not 0.1 < length < 4:
                return (
                    f"{name} makes numbers of size {_short(float(length))} out of words of size 1"
                )
    return None


def _drawn(function):
    """Whether the generator decides: one seed gives one start, another gives another."""
    for sizes in _STARTS:
        one, again, other = (_start(function, sizes, seed) for seed in (0, 0, 1))
        if not all(map(np.array_equal, one, again)):
            return "the same seed gives different matrices"
        if any(w.any() and np.array_equal(w, v) and not _is_plain(w) for w, v in zip(one, other)):
            return "two seeds give the same matrix"
    return None


def _is_plain(W):
    """Whether nothing is random about it, as in the unit matrix."""
    return len(np.unique(W)) <= 3


E6_6 = Exercise(
    id="E6.6",
    title="The head that never woke up",
    grade="core",
    kind="find the bug",
    minutes=10,
    objective="find a dead start by its gradient, and keep it grey but alive",
    section="[Three that are too small]"
    "(06_practice/03_clinic_ab.ipynb#a1-a2-a7-three-that-are-too-small)",
    task="""\
Somebody wants a head that begins without an opinion: at its first step every word reads all words
alike, exactly $1/n$ each. Training should then teach it whom to read.

The code below begins grey. After a week of training it is as grey as on the first day.
Which line is it? Say to yourself what the gradients of $W_Q$ and $W_K$ are.

Repair it. All scores must still be exactly 0 at the start, for whatever words, and the head must
be able to learn. Other matrices than 0 get their usual size: from words of size 1 they make numbers
of about that size. Random numbers come from `generator`.""",
    stub=quiet_start,
    solution=quiet_start_solution,
    checker=Design(
        shapes={"quiet_start": "function"},
        rules=(
            Rule("Three matrices are expected: W_Q, W_K, W_V.", _three_matrices),
            Rule(
                "The head hands out nothing, so it makes no difference whom it reads, and W_Q and "
                "W_K hear nothing yet.",
                _values_heard,
                "values-silenced",
            ),
            Rule(
                "It still sleeps. The gradient of each of the two matrices contains the other one.",
                _awake,
                "still-asleep",
            ),
            Rule(
                "Nearly grey is not grey: the scores are small, and not 0. "
                "Must both matrices differ from 0 to be awake?",
                lambda f: _scores_found(f, lambda largest: 1e-12 < largest < 0.01),
                "small-for-zero",
            ),
            Rule(
                "It is awake, and it begins with an opinion: the scores are not 0.",
                lambda f: _scores_found(f, lambda largest: largest >= 0.01),
                "no-longer-grey",
            ),
            Rule(
                "It is grey and awake. But the head is narrower than it seems. Columns that are "
                "copies of each other get the same gradients and stay copies, and where a column "
                "is 0 in both matrices it stays so.",
                _columns_differ,
                "columns-alike",
            ),
            Rule(
                "It is grey and awake. But its numbers are not of the usual size: words of size 1 "
                "should make numbers of about 1.",
                _usual_size,
                "not-of-the-usual-size",
            ),
            Rule(
                "It is grey and awake. But the random numbers do not come from the generator.",
                _drawn,
                "generator-ignored",
            ),
        ),
    ),
    hints=(
        "The scores are $X W_Q (X W_K)^\\top$. When are they all 0?",
        "It takes only one of two factors to make a product 0.",
        "The gradient of $W_Q$ contains $W_K$, and the other way round. If exactly one of them is "
        "0, which of the two gradients is alive?",
    ),
    explanation="""\
With $W_Q = 0$ and $W_K$ as usual, all scores are 0, and the gradient of $W_Q$ contains $W_K$: it is
alive. After one step $W_Q$ is not 0 any more, and then $W_K$ has a gradient, too.
The other way round is as good.

In the clinic the model with both at 0 came to 0.24 right answers, and the one with only $W_Q$ at 0
to 1.00.
The same trap waits wherever two matrices are multiplied: LoRA, a way to train large models with
small additions, adds a product of two, starts one of them at 0, and programs that set both to 0 by
accident have trained nothing.

A matrix of ones in place of random numbers makes all columns alike. They get the same gradient
and stay alike, so that however wide the head is, its keys are one number.""",
)

# ---- E6.7 ----------------------------------------------------------------------------------------


def why_grey(q, k, scores, weights):
    """Why the weights of a head are all alike.

    q, k: (n, d_k), as they are compared. scores: (n, n), as they go into the softmax. weights:
    (n, n), as they multiply the values
    -> "not grey", "start", "same keys", "divided" or "after the scores"
    """
    ...


def why_grey_solution(q, k, scores, weights):
    if normalized_entropy(weights).mean() < 0.99:
        return "not grey"
    if min(rms(q).mean(), rms(k).mean()) < 0.1:
        return "start"
    if key_spread(k) < 0.1:
        return "same keys"
    if score_std(scores).mean() < 0.2:
        return "divided"
    return "after the scores"


_ANSWERS = ("not grey", "start", "same keys", "divided", "after the scores")
_LENGTHS = (16, 64, 256)


@cache
def _patients():
    """By its cause and a note, one head for each length of text."""
    kinds = {
        ("not grey", "healthy"): {},
        ("not grey", "narrow"): {"d_k": 16},
        ("not grey", "pale"): {"q": 0.65, "k": 0.65},
        ("not grey", "sharp"): {"divide": 1 / 8},
        ("start", "both"): {"q": 1e-3, "k": 1e-3},
        ("start", "wide"): {"q": 1e-2, "k": 1e-2, "d_k": 100},
        ("start", "queries"): {"q": 1e-3},
        ("start", "keys"): {"k": 1e-3},
        ("start", "zero"): {"q": 0.0},
        ("start", "both zero"): {"q": 0.0, "k": 0.0},
        ("same keys", "collapsed"): {"differ": 1e-4},
        ("same keys", "equal"): {"differ": 0.0},
        ("same keys", "bias"): {"k": 1e-3, "bias": 10.0, "d_k": 16},
        ("divided", "once"): {"divide": 8},
        ("divided", "wide"): {"divide": 10, "d_k": 100},
        ("divided", "twice"): {"divide": 64},
        ("after the scores", "softmax"): {"after": _softmax_twice},
        ("after the scores", "heated"): {"after": _heated, "d_k": 16},
    }
    return {
        (*kind, n): _head(n, seed=20 + n, **options)
        for kind, options in kinds.items()
        for n in _LENGTHS
    }


def _opinion(function, head):
    answer = function(*(part.copy() for part in head))
    return answer.strip().lower() if isinstance(answer, str) else _Other(answer)


class _Other:
    """An answer that is no text."""

    def __init__(self, answer):
        self.answer = answer

    def __repr__(self):
        return "nothing" if self.answer is None else what(self.answer)


_opinions = {}  # of the function that is looked at


def _ask_all(function):
    _opinions.clear()
    _opinions.update({each: _opinion(function, head) for each, head in _patients().items()})
    return _told(lambda cause, note, n, answer: answer not in _ANSWERS)


def _told(mistaken):
    """A patient for which `mistaken(cause, note, n, answer)` holds, in words."""
    for patient, answer in _opinions.items():
        if mistaken(*patient, answer):
            n = patient[-1]
            return f"{n} words, {_read(_patients()[patient])}.\nYour function says {answer!r}."
    return None


def _found(mistaken):
    """The test of a rule, which looks at what `_ask_all` has kept."""
    return lambda function: _told(mistaken)


def _right_elsewhere(cause, note):
    return any(_opinions[cause, note, n] == cause for n in _LENGTHS)


E6_7 = Exercise(
    id="E6.7",
    title="A doctor for grey maps",
    grade="challenge",
    kind="design",
    minutes=25,
    objective="write a test that tells causes of a grey map apart, at any length of text",
    section="[Ward A](06_practice/03_clinic_ab.ipynb#ward-a-my-heatmap-is-grey)",
    task="""\
Write `why_grey(q, k, scores, weights)` for one head without a mask. It gets queries and keys
`(n, d_k)`, the scores `(n, n)` as they go into the softmax, and the weights `(n, n)` as they
multiply the values. All are NumPy arrays. It answers with one of five strings:

- `"not grey"`: the weights are not all alike. A pale or a sharp head is not grey;
- `"start"`: queries or keys are far too small;
- `"same keys"`: all keys are nearly the same;
- `"divided"`: the scores were divided too often;
- `"after the scores"`: scores are as they should be, and the weights are grey even so.

Where two of them fit, name the cause and not its effect.
Patients come with 16, 64 and 256 words and heads from 16 to 100 wide.
The grey ones have an entropy above 0.995 of the largest, all others below 0.985.
You may use `qkvlib.diagnostics`, whose `rms`, `key_spread`, `score_std` and `normalized_entropy`
are the readings of the clinic. `key_spread(k)` is one number, the others give one for each row.""",
    stub=why_grey,
    solution=why_grey_solution,
    checker=Design(
        shapes={"why_grey": "function"},
        rules=(
            Rule("One of the five strings is expected for each patient.", _ask_all),
            Rule(
                "Only one of the two is small here, and that is enough to make every score small.",
                _found(
                    lambda cause, note, n, a: (
                        note in ("queries", "keys", "zero")
                        and a not in (cause, "not grey")
                        and _opinions[cause, "both", n] == cause
                    )
                ),
                "one-of-two-lengths",
            ),
            Rule(
                "Small scores come of small queries, or of keys that are alike, too. "
                "In which order must you ask?",
                _found(
                    lambda cause, note, n, a: cause in ("start", "same keys") and a == "divided"
                ),
                "order-of-tests",
            ),
            Rule(
                "Short keys lie close together because they are short. "
                "How far apart they are must be measured by their own length.",
                _found(
                    lambda cause, note, n, a: (
                        cause == "start" and note != "both zero" and a == "same keys"
                    )
                ),
                "spread-not-by-length",
            ),
            Rule(
                "This map is pale or sharp, and not grey. Do you ask for that first, and is the "
                "limit near enough to 1?",
                _found(
                    lambda cause, note, n, a: (
                        cause == "not grey" != a and not _right_elsewhere(cause, note)
                    )
                ),
                "pale-called-grey",
            ),
            Rule(
                "For one length of text it is right, and for another it is not. "
                "What is a large weight, when n words share 1?",
                _found(
                    lambda cause, note, n, a: (
                        (cause == "not grey") != (a == "not grey") and _right_elsewhere(cause, note)
                    )
                ),
                "limit-for-one-length",
            ),
            Rule(
                "This one is grey, though not to the last digit: the limit is too strict.",
                _found(lambda cause, note, n, a: cause != "not grey" == a),
                "grey-only-if-exact",
            ),
            Rule(
                "Up to the scores nothing is lost here: their deviation says so.",
                _found(lambda cause, note, n, a: cause == "after the scores" and a == "divided"),
                "scores-not-read",
            ),
            Rule(
                "These scores are too close together for queries and keys of such lengths, so the "
                "fault is not behind them.",
                _found(lambda cause, note, n, a: cause == "divided" and a == "after the scores"),
                "scores-taken-for-healthy",
            ),
            Rule("This patient has something else.", _found(lambda cause, note, n, a: a != cause)),
        ),
    ),
    hints=(
        "Ask first whether it is grey at all. The entropy, divided by $\\ln n$, is 1 for a row of "
        "equal weights at any length.",
        "Then from left to right, as on the cards of E6.5: lengths, key spread, score std, "
        "and what is left.",
        "Healthy values are about 1. Ill lengths and spreads are smaller by a hundred and more. "
        "But one division too many makes scores smaller by the root of the width only: "
        "how much is that for a head 64 wide? Choose each limit in between.",
    ),
    explanation="""\
The order is most of the work: each reading is asked only when those before it are in order, since
small queries make small scores, and keys that are alike make scores that are alike.

`np.allclose(weights, 1 / n)` is too strict, since no sick row is equal to the last digit;
`abs(weights - 1 / n).max() < 0.01` is too generous with 256 words, where every weight is small.
The entropy has neither trouble, for it is measured by what is possible.

Instead of limits one can compute again: compare the scores with `q @ k.T / np.sqrt(d_k)` and the
weights with the softmax of the scores. `diagnose` does some of both.""",
)

# ---- E6.8 ----------------------------------------------------------------------------------------


def reach_solution():
    return 1 + 4 * (6 - 1), 4, 1 + 32 * (4096 - 1)


def _reached(window, layers):
    slips = {
        "window-for-each-layer": Slip(
            lambda: layers * window,
            "In a window a word counts itself. How many places *further* does one layer carry?",
        ),
        "itself-counted-twice": Slip(
            lambda: layers * window + 1,
            "In each window the word itself is counted already. How many places *further* does "
            "one layer carry?",
        ),
        "itself-forgotten": Slip(
            lambda: layers * (window - 1),
            "So many words lie before it. The word itself is among those that have influence.",
        ),
        "one-layer-alone": Slip(
            lambda: window,
            "That is what one layer reads. What has each of these words read, a layer below?",
        ),
        "both-sides": Slip(
            lambda: 1 + 2 * layers * (window - 1),
            "That counts later words, too. The pattern is causal.",
        ),
        "window-to-the-power": Slip(
            lambda: window**layers,
            "The words that two layers reach overlap. Draw the windows of neighbours.",
        ),
    }
    return Numbers(right=lambda: 1 + layers * (window - 1), slips=slips)


E6_8 = Exercise(
    id="E6.8",
    title="How far news travels",
    grade="warm-up",
    kind="predict",
    minutes=4,
    objective="compute how far a model with windows can see",
    section="[F2](06_practice/04_long_sequences.ipynb"
    "#f2-it-has-learned-nothing-on-a-task-for-children)",
    task="""\
In a causal pattern with a window of $w$, a word reads itself and the $w - 1$ words before it.

1. Four layers, each with a window of 6: how many words can influence the last word of a long text,
   itself included?
2. A window of 16: how many layers does it take at least, until a word can learn of the word 48
   places before it?
3. Mistral 7B has 32 layers, each with a window of 4096: how many words can influence the last one,
   itself included?

Give exact numbers.""",
    stub="""\
four_layers = ...
layers_needed = ...
mistral = ...""",
    solution=reach_solution,
    checker=Items(
        {
            "four_layers": _reached(6, 4),
            "layers_needed": Numbers(
                right=lambda: 4,
                slips={
                    "window-for-each-layer": Slip(
                        lambda: 48 / 16,
                        "With three layers it is just out of reach: the last of 16 words is the "
                        "word itself.",
                    ),
                    "layers-in-parts": Slip(
                        lambda: 48 / 15,
                        "There are no parts of layers. With fewer than this it cannot arrive.",
                    ),
                    "one-too-many": Slip(
                        lambda: 5, "It takes fewer. How many places does one layer carry?"
                    ),
                },
            ),
            "mistral": _reached(4096, 32),
        }
    ),
    hints=(
        "How many places does a window of 6 carry news in one layer? Not 6.",
        "One layer carries $w - 1$ places. So do all further ones, each on top of the others.",
        "For the second: find the smallest $L$ with $L (w - 1)$ at least 48.",
    ),
    explanation="""\
Each layer carries $w - 1$ places: 1 + 4 · 5 = 21 words, and 4 layers, since 3 · 15 = 45 is not yet
48.
Mistral's authors name its window times its layers, about 131 thousand; exactly it is 131041.

News *can* travel so far; whether it does is another matter. At every stop it is averaged with
other news.""",
)

# ---- E6.9 ----------------------------------------------------------------------------------------


def two_back(n):
    """A bias (n, n) with which every word reads the word two places before it."""
    ...


def two_back_solution(n):
    return 20 * np.eye(n, k=-2)


_TEXTS = (24, 96, 1000)


_biases = {}  # of the function that is looked at, by the length of the text


def _bias(function, n):
    if n not in _biases:
        _biases[n] = _asked_for_bias(function, n)
    return _biases[n]


def _asked_for_bias(function, n):
    answer = function(n)
    if answer is None or answer is ...:
        return f"for n = {n} it returns nothing"
    try:
        bias = as_array(answer)
    except TypeError as error:
        return f"for n = {n}: {error}"
    if bias.shape != (n, n):
        return f"for n = {n} it gives shape {bias.shape}"
    return bias


def _square_arrays(function):
    _biases.clear()
    found = (_bias(function, n) for n in (3, *_TEXTS))
    return next((each for each in found if isinstance(each, str)), None)


def _weights_of(bias):
    allowed = np.tri(len(bias), dtype=bool)
    masked = np.where(allowed, bias, -np.inf)
    with np.errstate(all="ignore"):
        powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def _infinite(function):
    for n in _TEXTS:
        found = np.argwhere(np.isposinf(np.tril(_bias(function, n))))
        if len(found):
            return f"n = {n}: infinity in row {found[0][0]}, column {found[0][1]}"
    return None


def _numbers_everywhere(function):
    for n in (3, *_TEXTS):
        rows = np.flatnonzero(np.isnan(_weights_of(_bias(function, n))).any(axis=-1))
        if len(rows):
            return f"n = {n}: the weights of row {rows[0]} are not numbers"
    return None


def _peak(away):
    """The test whether the largest bias of a middle row lies so many places away."""

    def test(function):
        bias = _bias(function, _TEXTS[0])
        row = len(bias) // 2
        largest = np.flatnonzero(bias[row] == bias[row].max())
        if len(largest) == 1 and away(largest[0] - row):
            return f"row {row}: the largest bias stands in column {largest[0]}"
        return None

    return test


def _weight_two_back(function, n):
    return _weights_of(_bias(function, n)).diagonal(-2).min()


def _enough(function):
    shares = {n: _weight_two_back(function, n) for n in _TEXTS}
    if min(shares.values()) >= 0.99:
        return None
    return "smallest weight two back: " + ", ".join(
        f"{s:.3f} at n = {n}" for n, s in shares.items()
    )


def _enough_when_short(function):
    short_enough = _weight_two_back(function, _TEXTS[0]) >= 0.99
    return _enough(function) if short_enough else None


def _distance_alone(function):
    for n in _TEXTS:
        bias = _bias(function, n)
        along, after = np.tril(bias)[:-1, :-1], np.tril(bias[1:, 1:])
        apart = ~(np.isclose(along, after, atol=1e-6) | (along == after))
        if apart.any():
            i, j = np.argwhere(apart)[0]
            return (
                f"n = {n}: {bias[i, j]:.3g} in row {i}, column {j}, and {bias[i + 1, j + 1]:.3g} "
                f"in row {i + 1}, column {j + 1}"
            )
    return None


def _one_table(function):
    small, large = (_bias(function, n) for n in (_TEXTS[0], _TEXTS[-1]))
    ours, theirs = small[-1], large[-1, -_TEXTS[0] :]
    if np.allclose(ours, theirs, atol=1e-6):
        return None
    away = np.flatnonzero(~np.isclose(ours, theirs, atol=1e-6))[-1]
    return (
        f"{_TEXTS[0] - 1 - away} places back: {ours[away]:.3g} at n = {_TEXTS[0]}, "
        f"{theirs[away]:.3g} at n = {_TEXTS[-1]}"
    )


E6_9 = Exercise(
    id="E6.9",
    title="Two words back, and not one",
    grade="core",
    kind="design",
    minutes=10,
    objective="steer a head by distance alone, at any length of text",
    section="[A fixed slope: ALiBi](06_practice/04_long_sequences.ipynb#a-fixed-slope-alibi)",
    task="""\
A head asks nothing: its queries are 0, and so are all its scores. A bias for each distance is added
to them, and the softmax is causal, as in the section about T5's bias.

Design the bias. `two_back(n)` gives an array `(n, n)`, rows for queries, columns for keys.
Every word from the third on gives at least 0.99 of its weight to the word *two* places before it,
in texts of 24, 96 and 1000 words.
The number for a distance is the same in all rows and for all lengths.
The first two words have nothing two places before them, and read what there is.

What lies above the diagonal does not matter. Say to yourself why no slope of ALiBi can do this.""",
    stub=two_back,
    solution=two_back_solution,
    checker=Design(
        shapes={"two_back": "function"},
        rules=(
            Rule("A square array of numbers is expected.", _square_arrays),
            Rule(
                "Infinity is too much: softmax takes the largest number of a row away, and "
                "infinity minus infinity is not a number.",
                _infinite,
                "infinity-for-large",
            ),
            Rule(
                "A row in which all keys have minus infinity has no weights. "
                "What do the first two words read?",
                _numbers_everywhere,
                "nothing-left-to-read",
            ),
            Rule(
                "The head would look ahead, where the mask lets it read nothing. "
                "Rows are queries: is the key two before it in a column further left or right?",
                _peak(lambda away: away > 0),
                "looks-ahead",
            ),
            Rule(
                "A word likes itself best. Any slope that falls with the distance does so.",
                _peak(lambda away: away == 0),
                "nearest-is-best",
            ),
            Rule("It reads one place back.", _peak(lambda away: away == -1), "one-back"),
            Rule("It reads further back than two.", _peak(lambda away: away < -2), "too-far-back"),
            Rule(
                "In a short text it is right, in a long one it drowns: "
                "the others are small, but they are many.",
                _enough_when_short,
                "drowns-in-a-long-text",
            ),
            Rule("Too soft: the others keep a part of the weight.", _enough, "too-soft"),
            Rule(
                "It reads the right word, but not by distance: the number for one distance is not "
                "the same in all rows.",
                _distance_alone,
                "place-for-distance",
            ),
            Rule(
                "It reads the right word, but each length has numbers of its own. "
                "A trained model takes its numbers along.",
                _one_table,
                "numbers-for-one-length",
            ),
        ),
    ),
    hints=(
        "Almost all numbers of the array are 0. Which diagonal is not?",
        "The word two back competes with n - 1 others, each with a power $e^0 = 1$. "
        "How large must $e^b$ be against 999 of them?",
        "Its power must be 99 times as large as all others together, for the longest text.",
    ),
    explanation="""\
`np.eye(n, k=-2)` has its ones where the column is the row minus two.
With a bias of $b$ the word two back gets $e^b / (e^b + n - 1)$ of the last row.
For 0.99 of it among 1000 words, $b$ must be at least $\\ln(99 \\cdot 999) = 11.5$.
With $b = 10$ the share is 0.996 among 96 words and 0.957 among 1000.
The lead grows with the logarithm of the length only, as in the haystack of F3.

ALiBi's bias falls with every place. So the word itself always gets more than the word before it,
and that one more than the word two back: the third best at most, whatever the slope.
T5's bias has a number of its own for each near distance and can single one out.""",
)

# ---- E6.10 ---------------------------------------------------------------------------------------


def rope(x, positions):
    """Turn each pair of neighbours in a row of x by an angle that says where the row stands.

    x: (n, d), with an even d. positions: (n,), whole numbers -> (n, d)
    """
    ...


def rope_solution(x, positions):
    d = x.shape[-1]
    speeds = 10000.0 ** -(np.arange(0, d, 2) / d)
    angles = positions[:, None] * speeds
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[:, 0::2], x[:, 1::2]
    turned = np.empty_like(x)
    turned[:, 0::2] = first * cos - second * sin
    turned[:, 1::2] = first * sin + second * cos
    return turned


_ROWS = np.array([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 3.0, 0.0], [2.0, 1.0, 1.0, 2.0]])

E6_10 = Exercise(
    id="E6.10",
    title="Queries that turn",
    grade="challenge",
    kind="fill in",
    minutes=15,
    objective="write RoPE for the pairing that a model was trained with",
    section="[Turning instead of adding: RoPE]"
    "(06_practice/04_long_sequences.ipynb#turning-instead-of-adding-rope)",
    task="""\
Write RoPE without `qkvlib`, for a model that pairs *neighbours*: numbers 0 and 1 of a row turn
together, 2 and 3, and so on.

`rope(x, positions)` takes rows `x (n, d)`, queries or keys of one head, with an even `d`, and the
place of each row, `positions (n,)`. Places may begin anywhere and leave gaps.
Pair $i$ turns by $10000^{-2i/d}$ radians for each place, counter-clockwise as in the chapter. The
result is `(n, d)`.

For `x = [[1, 0, 1, 0]]` and `positions = [3]` it is `[[-0.990, 0.141, 1.000, 0.030]]`.""",
    stub=rope,
    solution=rope_solution,
    checker=Code(
        "rotary positions",
        single=True,
        alone=True,
        cases=(
            case(np.array([[1.0, 0.0]]), np.array([1])),
            case(np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([1])),
            case(_ROWS[:2], np.array([0, 1])),
            case(_ROWS, np.array([7, 3, 40])),
            case(np.random.default_rng(17).normal(size=(5, 8)), np.arange(3, 8)),
            case(np.array([[1.0, 0.0]]), np.array([4097])),
        ),
        equal=case(np.tile(_ROWS[0], (4, 1)), np.array([2, 0, 3, 7])),
    ),
    hints=(
        "Begin with `d = 2` and one row: the tip of a clock hand, turned.",
        "`x[:, 0::2]` are the first numbers of all pairs, `x[:, 1::2]` the second ones. "
        "Which shape have the angles?",
        "The angles are `(n, d / 2)`: a row for each place, a column for each pair. "
        "The pairs must stand beside each other again in the result.",
    ),
    explanation="""\
Other programs pair number $i$ with number $i + d/2$.
Lengths stay, scores know the distance alone, and a model trained so is as good:
no such test can tell the two apart.
Values can: at place 1 `[1, 0, 0, 0]` becomes `[0.540, 0.841, 0, 0]` here and
`[0.540, 0, 0.841, 0]` there.
Weights trained for the one are wrong for the other, as patient E3 of the clinic was.

The cure is to reorder the columns of $W_Q$ and $W_K$ within each head once: 0, 2, 4, ... first,
then 1, 3, 5, ... Scores stay what they were, for a sum does not mind the order of its parts.

Worst is a mixture, angles for neighbours and partners for halves: what it turns is no pair, and
not even the lengths stay.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (E6_1, E6_2, E6_3, E6_4, E6_5, E6_6, E6_7, E6_8, E6_9, E6_10)

QUIZ = (
    Question(
        "Why is a very narrow head, with keys of one or two numbers, a poor head?",
        (
            Option(
                "Its weights are spread too thin, whatever it has learned.",
                "With the scale a fresh head reads the same share of keys at any width. "
                "The narrow one that was trained is blurred for another reason.",
                "narrow-means-diffuse",
            ),
            Option(
                "Most keys can never win: only the corners of the fence around them can.",
                "With one number these are two keys, with two a handful.",
            ),
            Option(
                "Its gradient vanishes, because one key soon takes all the weight.",
                "It vanishes where one key takes all, and the width does not decide that.",
                "width-decides-the-gradient",
            ),
        ),
    ),
    Question(
        "Someone divides scores by 7.3 where the root of $d_k$ is 8. What comes of it?",
        (
            Option(
                "Nothing that one could notice.",
                "The scale multiplies two matrices that are learned, and a tenth is quickly made "
                "up for.",
            ),
            Option(
                "Training becomes unstable.",
                "A tenth off, the loss after 60 steps was 0.12 for 0.13. A factor of 64 is another "
                "story.",
                "scale-must-be-exact",
            ),
            Option(
                "The rows of weights no longer make 1.",
                "Softmax divides by the sum of the row, whatever the scores are.",
                "scale-makes-the-row-sums",
            ),
        ),
    ),
    Question(
        "Which first numbers do most harm, if every matrix of the model has them?",
        (
            Option(
                "A hundred times too small.",
                "Such a model begins grey and a little late. Adam divides small gradients by their "
                "size.",
                "small-start-is-worse",
            ),
            Option(
                "Drawn like PyTorch's `nn.Linear`.",
                "Its scores begin with a variance of 1/9 and nobody minds.",
                "pale-means-ill",
            ),
            Option(
                "Ten times too large.",
                "One-hot rows, and steps that are short against the size of the numbers.",
            ),
        ),
    ),
    Question(
        "Products of queries and keys are too large for float16. What do the weights look like?",
        (
            Option(
                "All alike, 1/n.",
                "Numbers too *small* for float16 do that: all scores become 0.",
                "overflow-makes-grey",
            ),
            Option(
                "Not a number, in the rows where it happens.",
                "Softmax takes the largest score away, and infinity minus infinity is NaN.",
            ),
            Option(
                "One word takes all, as with any large scores.",
                "If the numbers were merely large. Infinity is not a large number.",
                "infinity-is-a-large-number",
            ),
            Option(
                "As always: softmax takes the largest score away.",
                "That helps against large scores, and here the damage is done before.",
                "shift-cures-overflow",
            ),
        ),
    ),
    Question(
        "The loss has been flat from the first step. Before training, all tokens came out of the "
        "last block the same. What helps?",
        (
            Option(
                "A lower learning rate.",
                "It heals steps that are too large. This model was dead before its first step.",
                "lower-rate-cures-all",
            ),
            Option(
                "More heads.",
                "More heads average the same tokens that have become one.",
                "more-heads-cure-all",
            ),
            Option(
                "A layer norm after each block.",
                "A norm sets the size of a token, and tokens that are alike stay alike.",
                "norm-keeps-tokens-apart",
            ),
            Option(
                "A skip around attention.",
                "Each word then keeps what it was beside what it reads.",
            ),
        ),
    ),
    Question(
        "A model with RoPE was trained on 24 tokens and fails beyond. With a window of 24, and no "
        "further training, it is right again. Why?",
        (
            Option(
                "With fewer keys to read each step is faster, and so better.",
                "It saves work, too. That is another matter.",
                "cheap-means-good",
            ),
            Option(
                "The window makes far places known to it, one layer after the other.",
                "It teaches nothing: the weights are the same.",
                "window-teaches",
            ),
            Option(
                "All distances that are left are ones that it was trained on.",
                "The far keys, at distances it never met, had drowned the right one.",
            ),
        ),
    ),
    Question(
        "A model with `x - f(x)` in place of `x + f(x)` learns the task and answers all questions. "
        "What does that show?",
        (
            Option(
                "That it works; that it is wired as intended, it does not show.",
                "Loaded with somebody else's weights it would fail. Only a reference tells.",
            ),
            Option(
                "That a sign error cannot be there, for training would have found it.",
                "It is there, and training has adapted to it.",
                "accuracy-proves-wiring",
            ),
            Option(
                "That skips are not needed for a task as simple as this one.",
                "It has one. Only the sign of the other part is turned.",
                "skip-not-needed",
            ),
        ),
    ),
)
