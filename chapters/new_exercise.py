from qkvlib.book.example import HEAD_A, X
from qkvlib.book.exercises._answers import Numbers, Slip
from qkvlib.book.exercises._exercise import Exercise


def told_asks_solution():
    return X[1] @ HEAD_A.W_Q


NEW = Exercise(
    id="E2.99",
    title="What a verb asks",
    grade="warm-up",
    kind="predict",
    minutes=2,
    objective="compute a query by hand",
    section="[2.1](02_qkv.ipynb#query-the-current-question)",
    task="Write down the two numbers of the query of *told*, in head A.",
    stub="told_asks = [..., ...]",
    solution=told_asks_solution,
    checker=Numbers(
        right=told_asks_solution,
        slips={"row-of-another-word": Slip(lambda: X[3] @ HEAD_A.W_Q, "This is the query of he.")},
    ),
    hints=("Which numbers of *told* are not 0?", "Which rows of `W_Q` meet them?"),
    explanation="The rows of `W_Q` that meet a verb's numbers are 0: *told* asks for nothing.",
)
