"""Exercises of chapter 9: made up, for the tests of the pages."""

import math
from dataclasses import dataclass

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.exercises._exercise import Exercise, Option, Question


@dataclass
class Checker:
    """Stands for any of the real ones."""

    names: tuple = ()

    def mistakes(self):
        return self.names


@dataclass
class Choosing(Checker):
    options: tuple = ()


# ---- E9.1

SCORES = np.array([2.0, 1.0, 0.0, 0.0, -1.0])


def row_solution():
    powers = np.exp(SCORES)
    return powers / powers.sum()


E9_1 = Exercise(
    id="E9.1",
    title="One row, with a calculator",
    grade="warm-up",
    kind="predict",
    minutes=4,
    objective="turn a row of scores into weights",
    section="[3.2](03_computation.ipynb#the-steps)",
    task="""
`SCORES` are those of one query.
Find its weights, to three decimals, without the `softmax` that you will write in E9.2.
""",
    stub="row = [..., ..., ..., ..., ...]  # five numbers",
    solution=row_solution,
    checker=Checker(names=("no-scale", "a-slip-in-a-number")),
    hints=(
        "Which number has the largest power?",
        "All powers of $e$, and their sum.",
        "$e^2 = 7.389$",
    ),
    explanation=r"""
Each weight is $e^{s_j} / \sum_k e^{s_k}$: 0.610, 0.225, 0.083, 0.083 and 0.030.
The row sums to 1.

- Divide by the number of keys instead, and it sums to something else.
""",
)


# ---- E9.2


def softmax(scores, axis=-1):
    """Weights (..., n) from scores (..., n): positive, and 1 in sum along axis."""
    ...


def softmax_solution(scores, axis=-1):
    shifted = scores - scores.max(axis=axis, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=axis, keepdims=True)


E9_2 = Exercise(
    id="E9.2",
    title="A softmax that survives",
    grade="core",
    kind="fill in",
    minutes=12,
    objective="write a softmax for any axis and any size of scores",
    section="[3.2](03_computation.ipynb#the-steps)",
    task="""
Write `softmax(scores, axis=-1)` for scores of any shape.
Scores as large as 10000 must not overflow.

```python
softmax(np.array([0.0, math.log(3)]))   # array([0.25, 0.75])
```
""",
    stub=softmax,
    solution=softmax_solution,
    checker=Checker(names=("no-scale",)),
    hints=("What can be taken from each score without changing the weights?", "The maximum."),
    explanation="The shift cancels: numerator and denominator get the same factor.",
)


# ---- E9.3


def widths_solution():
    return math.sqrt(64), qn.softmax(np.zeros(4))[0]


E9_3 = Exercise(
    id="E9.3",
    title="Two numbers",
    grade="challenge",
    kind="choose",
    minutes=3,
    objective="name the divisor",
    section="[3.1](03_computation.ipynb#the-formula)",
    task="Which is it?",
    stub="divisor = ...\nweight = ...",
    solution=widths_solution,
    checker=Choosing(
        options=(
            Option(
                "the width of the model, $d_{model}$", "That is **wider**.", mistake="scale-d_k"
            ),
            Option("the square root of the\nwidth of a key", "So it is."),
        )
    ),
    hints=("Look at 3.1.",),
    explanation="See the formula.",
    tags=("torch",),
)

EXERCISES = (E9_1, E9_2, E9_3)

QUIZ = (
    Question(
        "All scores of a row are -10. What are its weights?",
        (
            Option("all 0: nothing is worth reading", "They sum to 1 still.", mistake="skips"),
            Option("all the same", r"Only differences count: $e^{-10} / \sum e^{-10}$."),
            Option("negative", "A power of $e$ is positive, whatever the score.", mistake="sign"),
        ),
    ),
    Question(
        r"What does `scores / sqrt(d_k)` keep the same, *whatever* $d_k$ is?",
        (
            Option(r"the *variance* of $q \cdot k$, if $a < b$ & so on", "It becomes 1."),
            Option(
                "the largest weight of `softmax(scores)`",
                "It depends on how many keys there are.",
                mistake="max",
            ),
        ),
    ),
)
