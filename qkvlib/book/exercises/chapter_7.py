"""Exercises of chapter 7: from theory to practice."""

import math
import tracemalloc
from copy import deepcopy
from dataclasses import replace

import numpy as np

import qkvlib.numpy as qn
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers, Rule, Slip
from qkvlib.book.exercises._code import Code, case, with_more
from qkvlib.book.exercises._exercise import Exercise, Option, Question
from qkvlib.mistakes import Subject
from qkvlib.mistakes._catalogue import Afterwards, afterwards, call

# ---- E7.1 ----------------------------------------------------------------------------------------


def before_it_runs_solution():
    gib = 12 * 65536**2 * 4 / 1024**3
    factor = math.isqrt(65504 // 14) + 1  # 14 times its square is the first above 65504
    sent = 12 * (1 + 1 + 64)
    return gib, factor, sent


E7_1 = Exercise(
    id="E7.1",
    title="Before it runs",
    grade="warm-up",
    kind="predict",
    minutes=6,
    objective="count bytes, reach and traffic of attention before it runs",
    section="[At what length the memory ends]"
    "(07_theory_to_practice/01_compute.ipynb#at-what-length-the-memory-ends)",
    task="""\
Three numbers, with pencil and paper.

1. A layer of 12 heads reads 65 536 tokens, four bytes a number.
   How many GiB do its scores take, all heads together? ($65536 = 2^{16}$, and a GiB is $2^{30}$
   bytes.)
2. The largest score of head B on our sentence is 14, before the division.
   We multiply all of $X$ by a whole number and compute in float16, which ends at 65504, with the
   division after the product.
   What is the smallest whole number at which that score becomes infinite?
3. A text is split between two processes, 4096 tokens each, as in section 7.4.
   The model writes one more token.
   With 12 heads and values of 64 numbers, how many numbers does each process send in one layer?""",
    stub="""\
gib = ...
factor = ...
sent = ...""",
    solution=before_it_runs_solution,
    checker=Items(
        {
            "gib": Numbers(
                right=lambda: before_it_runs_solution()[0],
                slips={
                    "heads-forgotten": Slip(
                        lambda: 65536**2 * 4 / 2**30,
                        "That is one head. Each head has scores of its own.",
                    ),
                    "bytes-forgotten": Slip(
                        lambda: 12 * 65536**2 / 2**30,
                        "That counts the numbers. How many bytes has each?",
                    ),
                    "bits-for-bytes": Slip(
                        lambda: 12 * 65536**2 * 32 / 2**30,
                        "Eight times too much: that counts bits.",
                    ),
                    "once-for-each-token": Slip(
                        lambda: 12 * 65536 * 4 / 2**30,
                        "One score for each token would be little. But a score belongs to a pair "
                        "of tokens, one that asks and one that is read.",
                    ),
                    "mask-saves-half": Slip(
                        lambda: 12 * 65536**2 * 4 / 2**30 / 2,
                        "That is half. A number has four bytes here, and a causal mask does not "
                        "make the array smaller: what is forbidden takes its bytes too.",
                    ),
                    "bytes-for-gib": Slip(
                        lambda: 12 * 65536**2 * 4,
                        "These are bytes. How many of them make a GiB?",
                    ),
                    "a-thousand-for-1024": Slip(
                        lambda: 12 * 65536**2 * 4 / 1e9,
                        "Nearly: that is in units of 1000 to the third. A GiB is 1024 to the "
                        "third.",
                    ),
                },
                tolerance=0.05,
            ),
            "factor": Numbers(
                right=lambda: before_it_runs_solution()[1],
                tolerance=0.05,
                slips={
                    "not-a-whole-number": Slip(
                        lambda: math.sqrt(65504 / 14),
                        "With this number the score is 65504 exactly, the last that fits. Which "
                        "whole number is the first beyond it?",
                    ),
                    "the-last-that-fits": Slip(
                        lambda: math.isqrt(65504 // 14),
                        "With this one the score still fits. The next?",
                    ),
                    "only-one-side-grows": Slip(
                        lambda: math.ceil(65504 / 14),
                        "Query and key both come from X, and both grow.",
                    ),
                    "scaled-before-the-product": Slip(
                        lambda: math.isqrt(int(65504 * math.sqrt(2) / 14)) + 1,
                        "So it would be if the query were divided first. Here the large number "
                        "comes up before the division.",
                    ),
                    "head-a-for-head-b": Slip(
                        lambda: math.isqrt(65504 // 4) + 1,
                        "That is head A of the chapter, whose largest score is 4.",
                    ),
                },
            ),
            "sent": Numbers(
                right=lambda: before_it_runs_solution()[2],
                slips={
                    "top-and-total-not-sent": Slip(
                        lambda: 12 * 64,
                        "With the outputs alone the other process cannot tell how much they "
                        "count. What else is needed to merge?",
                    ),
                    "top-not-sent": Slip(
                        lambda: 12 * 65,
                        "One number is missing for each head: without the tops nobody knows by "
                        "which factor to rescale. Top and total both travel.",
                    ),
                    "heads-forgotten": Slip(
                        lambda: 66, "That is one head. Each head has scores of its own."
                    ),
                    "query-sent-too": Slip(
                        lambda: 12 * (1 + 1 + 64 + 64),
                        "Queries are counted, too. What is sent is what came of reading, and "
                        "nothing that it took to read.",
                    ),
                    "keys-and-values-sent": Slip(
                        lambda: 12 * 4096 * 2 * 64,
                        "No key and no value leaves its process. Only what came of reading does.",
                    ),
                    "scores-sent": Slip(
                        lambda: 12 * 4096,
                        "These are the scores of the new token. They stay where they are: the "
                        "answer does not depend on 4096 at all.",
                    ),
                    "once-for-each-token": Slip(
                        lambda: 12 * 66 * 4096,
                        "All 4096 tokens were asked for once. Who asks now?",
                    ),
                },
            ),
        }
    ),
    hints=(
        "Scores: one for each head and each pair of tokens. All but 12 are powers of 2.",
        "Query and key are both multiplied, so the score grows with the square of the number. "
        "Which square is the first above 65504 / 14?",
        "What is carried from chunk to chunk in section 7.1 is what is sent here: for one query "
        "and one head, how many numbers are that?",
    ),
    explanation="""\
1. $12 \\cdot 2^{16} \\cdot 2^{16} \\cdot 4$ bytes are $192 \\cdot 2^{30}$, so 192 GiB.
   With 16 you had one head, with 48 you had counted numbers and not bytes.
2. Query and key both grow, so the score is $14 f^2$.
   At 68 it is 64736, at 69 it is 66654, above 65504.
   If the query is divided first, 82 is the first that breaks.
3. One query, so for each head one top, one total and 64 numbers of output: $12 \\cdot 66 = 792$.
   How long the text is does not matter; with keys and values it would be 6 291 456 numbers.""",
)

# ---- E7.2 ----------------------------------------------------------------------------------------


def merge(one, other):
    """Top, total and output over the keys of two parts, from those of each part.

    one, other: (top, total, output) of shapes (n, 1), (n, 1), (n, d_v), for n queries
    -> (top, total, output) of the same shapes
    """
    ...


def merge_solution(one, other):
    (top_1, total_1, output_1), (top_2, total_2, output_2) = one, other
    top = np.maximum(top_1, top_2)
    safe = np.where(np.isfinite(top), top, 0)  # a query that has read nothing at all
    factor_1, factor_2 = np.exp(top_1 - safe), np.exp(top_2 - safe)
    total = total_1 * factor_1 + total_2 * factor_2
    return top, total, output_1 * factor_1 + output_2 * factor_2


MERGE = replace(with_more("merge of an online softmax"), laws={})


@MERGE.mistake("Where both parts have the same top it is right.")
def nothing_rescaled(one, other):
    """Totals and outputs are added as they are, and each is measured from the top of its part."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    return np.maximum(m_1, m_2), l_1 + l_2, acc_1 + acc_2


@MERGE.mistake("There is a factor, it is a power of e, and for equal tops it is 1.")
def rescaled_the_wrong_way(one, other):
    """The exponent has the wrong sign: what lies below the top grows where it should shrink."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.maximum(m_1, m_2)
    safe = np.where(m == -np.inf, 0, m)
    old, new = np.exp(safe - m_1), np.exp(safe - m_2)
    return m, l_1 * old + l_2 * new, acc_1 * old + acc_2 * new


@MERGE.mistake("It is the output that one wants in the end.")
def divided_too_early(one, other):
    """The output comes back divided by the total: the next merge takes it for one that is not."""
    m, total, acc = merge_solution(one, other)
    return m, total, acc / np.where(total == 0, 1, total)


@MERGE.mistake("Papers merge outputs so, but theirs are divided already.")
def taken_for_divided(one, other):
    """Outputs are taken for divided ones: each is multiplied by its total, and the sum divided."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m, total, acc = merge_solution((m_1, l_1, acc_1 * l_1), (m_2, l_2, acc_2 * l_2))
    return m, total, acc / np.where(total == 0, 1, total)


@MERGE.mistake("With a single query it is right.")
def one_winner_for_all_queries(one, other):
    """The part with the highest top of all queries is left as it is: the other may win a row."""
    if one[0].max() < other[0].max():
        one, other = other, one
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    factor = np.exp(m_2 - np.where(m_1 == -np.inf, 0, m_1))
    return m_1, l_1 + l_2 * factor, acc_1 + acc_2 * factor


@MERGE.mistake("Nothing is NaN any more, and the total is 0 as it should be.")
def top_of_nothing_lost(one, other):
    """Who has read nothing comes back with a top of 0: the next merge takes it for a score."""
    m, total, acc = merge_solution(one, other)
    return np.where(m == -np.inf, 0, m), total, acc


@MERGE.mistake("With a single query it is right.")
def one_top_for_all_queries(one, other):
    """The highest top of all queries is taken for each of them."""
    (m_1, l_1, acc_1), (m_2, l_2, acc_2) = one, other
    m = np.full_like(m_1, max(m_1.max(), m_2.max()))
    safe = np.where(m == -np.inf, 0, m)
    old, new = np.exp(m_1 - safe), np.exp(m_2 - safe)
    return m, l_1 * old + l_2 * new, acc_1 * old + acc_2 * new


def _part(scores, value):
    """What is known after a part of the keys."""
    scores, value = np.array(scores, dtype=float), np.array(value, dtype=float)
    top = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    return top, powers.sum(axis=-1, keepdims=True), powers @ value


_LOW, _HIGH = _part([[0]], [[4, 0]]), _part([[math.log(4)]], [[0, 8]])
_NOTHING = _part([[-np.inf]], [[5, 5]])
_FAR_BELOW = _part([[-900]], [[4, 0]]), _part([[-901]], [[0, 8]])
_TWO = _part([[0, 1], [3, 0]], [[1, 0, 2], [0, 1, 0]])
_OTHER_TWO = _part([[2, -1, 0], [-np.inf, -np.inf, -np.inf]], [[0, 2, 0], [1, 1, 1], [3, 0, 0]])

E7_2 = Exercise(
    id="E7.2",
    title="What two readers know together",
    grade="core",
    kind="fill in",
    minutes=12,
    objective="merge what is known of two parts of a text, without reading them again",
    section="[A softmax that never sees the whole row](07_theory_to_practice/01_compute.ipynb"
    "#a-softmax-that-never-sees-the-whole-row)",
    task="""\
Two readers have read different keys of one text, for the same queries.
Each knows three things: the **top** `(n, 1)`, its highest scores; the **total** `(n, 1)` of the
powers of $e$, each measured from that top; the **output** `(n, d_v)`, not yet divided.

`merge(one, other)` takes two such triples and returns the triple for all keys.
It does not divide.

`(0, 1, [4, 0])` and `(log 4, 1, [0, 8])` together are `(log 4, 1.25, [1, 8])`.

Either of the two may have the higher top, another one for each query.
Who was allowed to read nothing has the top $-\\infty$, total 0 and output 0, and adds nothing; this
may be both.""",
    stub=merge,
    solution=merge_solution,
    checker=Code(
        MERGE,
        cases=(
            case(_LOW, _LOW),
            case(_LOW, _HIGH),
            case(_HIGH, _LOW),
            case(_LOW, _NOTHING),
            case(_NOTHING, _NOTHING),
            case(*_FAR_BELOW),
            case(_TWO, _OTHER_TWO),
        ),
    ),
    hints=(
        "Which of the two triples is measured from a top that is no longer the top? It may be "
        "either, and in another row the other.",
        "A power $e^{s - m}$ becomes $e^{s - m'}$ by a factor that does not depend on $s$. Total "
        "and output are sums of such powers.",
        "Give both triples a factor, $e$ to the power of their own top less the common one; the "
        "one that has the common top gets the factor 1.",
        "$-\\infty - (-\\infty)$ is no number. Where the common top is $-\\infty$, measure from 0.",
    ),
    explanation="""\
Each triple is brought down to the common top by one factor, and then all is a sum.
Whoever had the common top already gets $e^0 = 1$, so nothing has to be decided, and
rows may differ.
In the example the first triple gets $e^{0 - \\log 4} = 1/4$.

A factor for the first triple alone is what the loop of section 7.1 seems to have.
It is right there, since the powers of the new chunk are taken from the new top; here the second
triple comes with a top of its own.
To test a merge, let the top fall as well as rise, and let somebody read nothing.

The order does not matter, nor who merges with whom first: that is why many processes can do it.""",
)

# ---- E7.3 ----------------------------------------------------------------------------------------


def read_in_chunks(query, key, value, size):
    """Attention that takes `size` keys at a time, with what it knows so far."""
    top = np.full((len(query), 1), -np.inf)
    total = np.zeros((len(query), 1))
    output = np.zeros((len(query), value.shape[1]))
    for start in range(0, len(key), size):
        k, v = key[start : start + size], value[start : start + size]
        scores = query @ k.T / np.sqrt(query.shape[1])
        before, top = top, np.maximum(top, scores.max(axis=1, keepdims=True))
        rescale = np.exp(before - top)
        powers = np.exp(scores - top)
        total = total * rescale + powers.sum(axis=1, keepdims=True)
        output = output * rescale + powers @ v
    return output / total


def read_in_chunks_solution(query, key, value, size):
    dtype = query.dtype
    top = np.full((len(query), 1), -np.inf, dtype)
    total = np.zeros((len(query), 1), dtype)
    output = np.zeros((len(query), value.shape[1]), dtype)
    for start in range(0, len(key), size):
        k, v = key[start : start + size], value[start : start + size]
        scores = query @ k.T / math.sqrt(query.shape[1])
        before, top = top, np.maximum(top, scores.max(axis=1, keepdims=True))
        rescale = np.exp(before - top)
        powers = np.exp(scores - top)
        total = total * rescale + powers.sum(axis=1, keepdims=True)
        output = output * rescale + powers @ v
    return output / total


def _peak(function, *arguments):
    """The bytes that are held at the worst moment of a call, beyond what is held before."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        function(*arguments)
        _, most = tracemalloc.get_traced_memory()
    finally:
        if not running:
            tracemalloc.stop()
    return most - before


_LONG = tuple(
    np.random.default_rng(73).normal(size=shape).astype(np.float32)
    for shape in ((128, 8), (4096, 8), (4096, 4))
)
_SHORT = tuple(np.random.default_rng(37).normal(size=shape) for shape in ((3, 2), (7, 2), (7, 4)))
_LARGE_SCORES = (
    np.array([[1, 0, 0]], dtype=np.float32),
    np.array([[1000001, 0, 0], [1000003, 0, 0], [1000000, 0, 0]], dtype=np.float32),
    np.array([[0], [1], [0]], dtype=np.float32),
)


def _where_it_widens(function):
    """The probe that asks in 32 bits: bytes of a number of the output, and where it grew wide.

    0: nowhere; 1: already the scores have more than 32 bits; 2: something after them
    """
    output = np.asarray(function(*deepcopy(_LARGE_SCORES), 2))
    if output.itemsize <= 4:
        return np.array([output.itemsize, 0])
    wide = qn.scaled_dot_product_attention(*(x.astype(float) for x in _LARGE_SCORES))
    return np.array([output.itemsize, 1 if abs(output[0, 0] - wide[0, 0]) < 1e-6 else 2])


def _digits(function):
    """The probe that asks in 64 bits: bytes of a number of the output, and how it differs.

    0: not at all; 1: behind the first five digits; 2: more
    """
    output = np.asarray(function(*deepcopy(_SHORT), 3))
    off = np.abs(output - qn.scaled_dot_product_attention(*_SHORT)).max()
    return np.array([output.itemsize, int(off > 1e-12) + int(off > 1e-5)])


def _memory(function):
    """The probe that tells memory as a share of what the code that is given takes.

    0: as it should be; 1: as much as before; 2: more
    """
    share = _peak(function, *_LONG, 512) / _peak(read_in_chunks, *_LONG, 512)
    return np.array(int(share > 0.8) + int(share > 1.7))


def holds_half_as_much(function):
    """In 32 bits it takes about half of the memory that it takes in 64."""
    try:
        most = _peak(function, *_LONG, 512)
    except Exception as error:
        return None, error
    given = _peak(read_in_chunks, *_LONG, 512)
    if most < 0.8 * given:
        return None, None
    return (
        f"128 queries, 4096 keys in chunks of 512, all in float32: at the worst moment "
        f"{most / 2**20:.1f} MiB, with the code that was given {given / 2**20:.1f} MiB.",
        None,
    )


IN_CHUNKS = Subject(
    name="attention in chunks",
    signature="read_in_chunks(query, key, value, size)",
    right=read_in_chunks_solution,
    tiers=(
        (_digits,),
        (call(*_SHORT, 3), call(*(x[::-1] for x in _SHORT), 1), call(*_SHORT, 7)),
        (_where_it_widens,),
        (_memory,),
        (call(*(x.astype(np.float32) for x in _SHORT), 2),),
        (call(100 * _SHORT[0], 100 * _SHORT[1], _SHORT[2], 2),),
        (afterwards(*_SHORT, 3),),
    ),
    laws={"holds_half_as_much": holds_half_as_much},
    listed=False,
)


@IN_CHUNKS.mistake("Given 64 bits it is right, and nothing in it speaks of bits.")
def wide_scores(query, key, value, size):
    """You give 32 bits, and already the scores have 64: which number do they meet?"""
    return read_in_chunks(query, key, value, size)


@IN_CHUNKS.mistake("The scores have 32 bits now, and values agree.")
def wide_start(query, key, value, size):
    """The scores have 32 bits, and yet the output has 64: an array made here is wide."""
    top = np.full((len(query), 1), -np.inf)
    total, output = np.zeros((len(query), 1)), np.zeros((len(query), value.shape[1]))
    for start in range(0, len(key), size):
        k, v = key[start : start + size], value[start : start + size]
        scores = query @ k.T / math.sqrt(query.shape[1])
        before, top = top, np.maximum(top, scores.max(axis=1, keepdims=True))
        powers = np.exp(scores - top)
        total = total * np.exp(before - top) + powers.sum(axis=1, keepdims=True)
        output = output * np.exp(before - top) + powers @ v
    return output / total


@IN_CHUNKS.mistake("What comes back has the right dtype.", law=holds_half_as_much)
def narrowed_at_the_end(query, key, value, size):
    """Only the result is made narrow: on the way everything has 64 bits, and takes their memory."""
    return read_in_chunks(query, key, value, size).astype(query.dtype)


@IN_CHUNKS.mistake("In 32 bits it does what it should.")
def always_32_bits(query, key, value, size):
    """Given 64 bits, it answers in 32: half of the digits are lost."""
    query, key, value = (x.astype(np.float32) for x in (query, key, value))
    return read_in_chunks_solution(query, key, value, size)


@IN_CHUNKS.mistake("Three decimals show no difference.")
def fixed_at_32_bits(query, key, value, size):
    """Given 64 bits, it answers in 64, but only half of the digits are right: some array has 32."""
    narrow = read_in_chunks_solution(*(x.astype(np.float32) for x in (query, key, value)), size)
    return narrow.astype(query.dtype)


@IN_CHUNKS.mistake("The bits are right, and it is shorter.", law=holds_half_as_much)
def all_scores_at_once(query, key, value, size):
    """The scores of all keys are held at the same time: more memory than before, in fewer bits."""
    scores = query @ key.T / math.sqrt(query.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ value


E7_3 = Exercise(
    id="E7.3",
    title="Twice the memory",
    grade="core",
    kind="find the bug",
    minutes=10,
    objective="find where an array silently becomes twice as wide",
    section="[What it saves](07_theory_to_practice/01_compute.ipynb#what-it-saves)",
    task="""\
The code below is right, and yet somebody complains: queries, keys and values are float32, but the
output is float64, and the peak of the memory is twice what it should be.
No word in it speaks of bits.

Say to yourself what makes a number wide; it happens in more than one place.
Then repair it: given float32 it works in float32 all the way, given float64 in float64.
It must still take `size` keys at a time.

`query (n, d_k)`, `key (m, d_k)`, `value (m, d_v)`; all three have the same dtype.
The check looks at `output.dtype` and at the peak of the memory.""",
    stub=read_in_chunks,
    solution=read_in_chunks_solution,
    checker=Code(
        IN_CHUNKS,
        does_it=("chunked_attention",),
        cases=(
            case(*(x[:1].astype(np.float32) for x in _SHORT), 1),
            case(*(x[:2].astype(np.float32) for x in _SHORT), 1),
            case(*(x[:2] for x in _SHORT), 1),
            case(*(x.astype(np.float32) for x in _SHORT), 3),
            case(*_SHORT, 3),
        ),
    ),
    hints=(
        "Print `.dtype` of every array, line by line, with float32 given.",
        "Two kinds of things bring 64 bits in: a number that is not one of Python's own, and "
        "arrays that are made here.",
        "What does `np.zeros(3).dtype` say? And `type(np.sqrt(64))`?",
        "`math.sqrt` gives a plain number. `np.full` and `np.zeros` take a `dtype`: whose should "
        "it be?",
    ),
    explanation="""\
`np.sqrt` of a whole number is a NumPy number of 64 bits, and since NumPy 2 it widens the array that
it divides.
`np.full` and `np.zeros` make 64 bits unless they are told otherwise, and `top` meets every chunk:
`scores - top` has 64 bits again.
Repair one and the other is enough to undo it.

`np.full_like`, `np.float32(...)` around the divisor, or a query that is divided by `math.sqrt`
before the loop, would do as well.
To narrow the result at the end does not help: the peak was before.
Nor does it help to write float32 into the code, for then whoever gives 64 bits loses half of
them.""",
)

# ---- E7.4 ----------------------------------------------------------------------------------------


def rotate(x, positions):
    """RoPE: the rows of x (..., n, d) turned as far as their positions (n,) say."""
    cos, sin = qn.rotary_angles(positions, x.shape[-1])
    return qn.rotate(x, cos, sin, pairing="interleaved")


def step(query, key, value, cache, *, rotate):
    """What the next tokens of a text read, each of them all tokens so far up to itself.

    query, key: (..., new, d_k), not yet turned. value: (..., new, d_v). cache: a KeyValueCache
    with the tokens before, which takes in the new ones. rotate: turns x (..., n, d_k) to whole
    numbers positions (n,), the first token of the text being at 0
    -> (..., new, d_v)
    """
    ...


def step_solution(query, key, value, cache, *, rotate):
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


STEP = with_more("step with a cache")


@STEP.mistake("Keys are turned, and shapes are right.")
def queries_not_turned(query, key, value, cache, *, rotate):
    """Only the keys are turned, so that where the asking token stands does not count."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return qn.scaled_dot_product_attention(query, keys, values, mask=mask)


@STEP.mistake("Every key is turned as it should be, and shapes are right.")
def length_of_afterwards(query, key, value, cache, *, rotate):
    """The length is asked for after appending: queries stand too far on and read what follows."""
    new = np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, len(cache) + new), value)
    positions = len(cache) + new
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake("Queries are turned, and shapes are right.")
def keys_not_turned(query, key, value, cache, *, rotate):
    """Only the queries are turned, so that where a token stands that is read does not count."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(key, value)
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake("In pieces or as a whole, it gives the same.")
def scores_not_divided(query, key, value, cache, *, rotate):
    """Scores are not divided by the root of d_k: rows read fewer tokens than they should."""
    return step_solution(query * query.shape[-1] ** 0.5, key, value, cache, rotate=rotate)


@STEP.mistake("Everywhere there is a triangle.")
def mask_turned_round(query, key, value, cache, *, rotate):
    """The mask allows what it should forbid: a token reads what follows, and not what was."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) > positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


@STEP.mistake("The prompt is read as it should be, and so is every key.")
def queries_restart(query, key, value, cache, *, rotate):
    """Keys stand where they should, but queries are counted from 0 in each step."""
    new = np.arange(query.shape[-2])
    positions = len(cache) + new
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) <= positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, new), keys, values, mask=mask)


@STEP.mistake("Token by token it is right.")
def one_place_for_the_piece(query, key, value, cache, *, rotate):
    """All new tokens get one position, how many there were before: in a prompt all stand at 0."""
    new = np.arange(query.shape[-2])
    same_place = np.full(len(new), len(cache))
    turned, mask = rotate(query, same_place), np.arange(len(cache) + len(new))
    mask = mask <= len(cache) + new[:, None]
    keys, values = cache.append(rotate(key, same_place), value)
    return qn.scaled_dot_product_attention(turned, keys, values, mask=mask)


@STEP.mistake("Everything else is as it should be, and without positions nothing would be wrong.")
def nothing_turned(query, key, value, cache, *, rotate):
    """`rotate` is not used: the model does not know the order of its words."""
    new = query.shape[-2]
    keys, values = cache.append(key, value)
    mask = np.arange(len(cache)) <= len(cache) - new + np.arange(new)[:, None]
    return qn.scaled_dot_product_attention(query, keys, values, mask=mask)


@STEP.mistake("The new tokens read everything that came before.")
def new_tokens_do_not_read_themselves(query, key, value, cache, *, rotate):
    """The mask is one key too short: a token may read what came before it, and not itself."""
    positions = len(cache) + np.arange(query.shape[-2])
    keys, values = cache.append(rotate(key, positions), value)
    mask = np.arange(keys.shape[-2]) < positions[:, None]
    return qn.scaled_dot_product_attention(rotate(query, positions), keys, values, mask=mask)


class _Cache(qn.KeyValueCache):
    """A cache that says what it holds where a case is shown."""

    def __repr__(self):
        if not len(self):
            return "an empty cache"
        held = f"key {self.key.tolist()}, value {self.value.tolist()}"
        return f"a cache with {len(self)} token{'s' * (len(self) > 1)}: {held}"


def _held(*parts):
    cache = _Cache()
    if parts:
        cache.append(*parts)
    return cache


_TEXT = tuple(
    np.array(rows, dtype=float)
    for rows in (
        [[1, 0], [0, 2], [1, 1]],
        [[2, 0], [1, 1], [0, 1]],
        [[1, 0, 0], [0, 2, 0], [0, 0, 4]],
    )
)
_PLAIN_STEPS = (
    case(*(x[:1] for x in _TEXT), _held(), rotate=rotate),
    case(*(x[1:2] for x in _TEXT), _held(*(x[:1] for x in _TEXT[1:])), rotate=rotate),
    case(*(x[:2] for x in _TEXT), _held(), rotate=rotate),
    case(*(x[1:] for x in _TEXT), _held(*(x[:1] for x in _TEXT[1:])), rotate=rotate),
    case(*(np.stack([x, x[::-1]]) for x in _TEXT), _held(), rotate=rotate),
)

E7_4 = Exercise(
    id="E7.4",
    title="One more word",
    grade="challenge",
    kind="fill in",
    minutes=15,
    objective="let a model read on with what it has kept",
    section="[Word by word](07_theory_to_practice/05_closing_piece.ipynb#word-by-word)",
    task="""\
A model that writes keeps the keys and values of what it has read.
Write the step that reads on, for one new token or for several.

`step(query, key, value, cache, *, rotate)` gets the new tokens alone: `query` and `key`
`(..., new, d_k)`, `value` `(..., new, d_v)`.
`cache` is a `qn.KeyValueCache` with the tokens before: `len(cache)` says how many,
`cache.append(key, value)` takes in more and returns the keys and values of all.
`rotate(x, positions)` turns rows to their places in the text, as in section 6.3: queries and keys
need it, values do not.
The output `(..., new, d_v)` is what each new token reads: all tokens up to itself.

Read in one piece or in several, a text must give the same.
It works on NumPy arrays: NumPy alone, and what you like of `qkvlib.numpy`.""",
    stub=step,
    solution=step_solution,
    checker=Code(STEP, cases=_PLAIN_STEPS),
    hints=(
        "Take a cache with 4 tokens and 2 new ones. At which places do the new ones stand, and how "
        "many keys may each read?",
        "Ask for `len(cache)` before you append: the first new token stands just there.",
        "The mask has `new` rows and as many columns as there are keys in all. Row i belongs to "
        "the token at place `len(cache) + i`, with the length from before.",
    ),
    explanation="""\
Everything hangs on one number, how many tokens came before.
It is the place of the first new token, for `rotate`, and it shifts the rows of the mask.
`qn.causal_mask(new, len(keys))` is that mask too: its last query stands where the last key stands.

Count from the first key instead, and the prompt is still right, for there the cache is empty.
Then each new token reads the oldest one alone: that is the model that answered `The-----`.
A test of a step therefore reads one text in several ways: whole, token by token, and in pieces of
unequal size, since some mistakes show only in pieces of two and more.""",
)

# ---- E7.5 ----------------------------------------------------------------------------------------


def reads_ahead(x):
    """A model to try with: each token reads all tokens."""
    return qn.scaled_dot_product_attention(x, x, x)


def reads_back(x):
    """Another one: each token reads itself and those before it."""
    return qn.scaled_dot_product_attention(x, x, x, mask=qn.causal_mask(len(x)))


def leaks(model, x):
    """Whether an output of the model depends on a later token.

    model: a function, (n, d) -> (n, d). x: (n, d), a text of n tokens -> True or False
    """
    ...


def leaks_solution(model, x):
    before = model(x)
    generator = np.random.default_rng(0)
    for j in range(1, len(x)):
        other = x.copy()
        other[j] = generator.normal(size=x.shape[1])
        if np.abs(model(other) - before)[:j].max() > 1e-9:
            return True
    return False


class _Model:
    """A small model, and what is known of it in words."""

    def __init__(self, about, *layers):
        self.about, self.layers = about, layers

    def __call__(self, x):
        x = np.array(x, dtype=float)
        for layer in self.layers:
            x = layer(x)
        return x

    def __repr__(self):
        return f"a model: {self.about}"


def _reader(seed, weigh, norm=qn.layer_norm):
    """A layer with a norm before it and a skip around it. weigh: weights from scores (n, n)."""
    W_Q, W_K, W_V = np.random.default_rng(seed).normal(size=(3, 4, 4)) / 2

    def layer(x):
        y = norm(x)
        return x + weigh((y @ W_Q) @ (y @ W_K).T / 2) @ y @ W_V

    return layer


def _masked(allowed):
    """Weights where `allowed(i, j)` says who may read whom."""

    def weigh(scores):
        i, j = np.indices(scores.shape)
        return qn.softmax(np.where(allowed(i, j), scores, -np.inf))

    return weigh


def _masked_afterwards(scores):
    return np.tril(qn.softmax(scores))


def _masked_a_little(scores):
    return qn.softmax(scores - 6.0 * np.triu(np.ones_like(scores), 1))


def _norm_over_tokens(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)


_BACK = _masked(lambda i, j: j <= i)
_MODELS = (
    _Model("healthy: each token reads what came before", _reader(1, _BACK), _reader(2, _BACK)),
    _Model("healthy: it reads nothing, each token is worked on alone", lambda x: np.tanh(2 * x)),
    _Model("it has no mask", _reader(3, _masked(lambda i, j: j >= 0))),
    _Model("its norm runs over the tokens", _reader(4, _BACK, _norm_over_tokens)),
    _Model("it sets forbidden weights to 0 after the softmax", _reader(55, _masked_afterwards)),
    _Model(
        "its first layer has no mask, its second has",
        _reader(6, _masked(lambda i, j: j >= 0)),
        _reader(7, _BACK),
    ),
    _Model(
        "the first three tokens read each other, all others what came before",
        _reader(8, _masked(lambda i, j: (j <= i) | (j < 3))),
    ),
    _Model(
        "its mask was made for four tokens, and those after them read everything",
        _reader(66, _masked(lambda i, j: (j <= i) | (i >= 4))),
    ),
    _Model(
        "each token also reads the one three places on",
        _reader(11, _masked(lambda i, j: (j <= i) | (j == i + 3))),
    ),
    _Model("it takes 6 away from forbidden scores", _reader(21, _masked_a_little)),
)
_WORDS_6 = np.random.default_rng(75).normal(size=(6, 4))
_WORDS_7 = np.random.default_rng(57).normal(size=(7, 4))


class _Unchanged(Afterwards):
    """The probe that asks whether the arguments are what they were, whatever they became."""

    def __call__(self, function):
        before = afterwards(*self.arguments)(lambda *arguments: None)
        return np.array_equal(super().__call__(function), before)


def _cleaned(x):
    return np.nan_to_num(x)


_CLEANS_UP = _Model("healthy: what is no number it takes for 0", _cleaned, _reader(1, _BACK))

LEAKS = Subject(
    name="leaks",
    signature="leaks(model, x)",
    right=leaks_solution,
    tiers=(
        tuple(call(model, _WORDS_6) for model in _MODELS),
        tuple(call(model, _WORDS_7) for model in _MODELS),
        (call(_CLEANS_UP, _WORDS_6),),
        (_Unchanged((_MODELS[0], _WORDS_6), {}),),
    ),
    listed=False,
)


def _moved(model, x, change, limit=1e-9, seen=lambda j: slice(j), tokens=range(1, 99)):
    """Whether outputs move: how a token is changed, and which outputs are looked at."""
    before = model(x)
    for j in set(tokens) & set(range(len(x))):
        other = x.copy()
        other[j] = change(x[j])
        if np.abs(model(other) - before)[seen(j)].max(initial=0) > limit:
            return True
    return False


def _noise(row):
    return np.random.default_rng(5).normal(size=row.shape)


@LEAKS.mistake("For a model without a norm it is right.")
def hidden_by_the_norm(model, x):
    """The change of a token is one that a norm takes away before anybody reads it."""
    return _moved(model, x, lambda row: row + 1)


@LEAKS.mistake("Where all later tokens leak, the last one does.")
def only_the_last_token_changed(model, x):
    """The last token may be well hidden, and another one be seen too early."""
    return _moved(model, x, _noise, tokens=[len(x) - 1])


@LEAKS.mistake("A model in which everybody reads ahead is found.")
def only_token_1_changed(model, x):
    """Only token 1 is changed. Does the loop return an answer in its first round already?"""
    return _moved(model, x, _noise, tokens=[1])


@LEAKS.mistake("What a NaN touches becomes NaN, so it leaves a trace.")
def traced_by_nan(model, x):
    """A NaN is seen where nothing is read: a forbidden weight is 0, and 0 times NaN is NaN."""
    return any(
        np.isnan(model(np.where(np.arange(len(x))[:, None] == j, np.nan, x))[:j]).any()
        for j in range(1, len(x))
    )


@LEAKS.mistake("Where everybody reads ahead, the first token does.")
def only_the_first_output_watched(model, x):
    """The first token sees nothing of what follows, but a later one may."""
    return _moved(model, x, _noise, seen=lambda j: slice(1))


@LEAKS.mistake("Outputs move, and the model that works on each token alone is found healthy.")
def later_outputs_watched(model, x):
    """An output after the changed token may move: that is what reading back means."""
    return _moved(model, x, _noise, seen=lambda j: slice(j + 1, None), tokens=range(99))


@LEAKS.mistake("No leak escapes it.")
def own_output_counted(model, x):
    """It finds a leak in every model. A token may move its own output: is that counted?"""
    return _moved(model, x, _noise, seen=lambda j: slice(j + 1))


@LEAKS.mistake("No leak escapes it.")
def changes_pile_up(model, x):
    """The text is changed and never put back: what moves may be owed to an earlier change."""
    before = model(x)
    for j in range(len(x)):
        x[j] = _noise(x[j])
        if np.abs(model(x) - before)[:j].max(initial=0) > 1e-9:
            return True
    return False


@LEAKS.mistake("Where a token reads ahead, it mostly reads the next one.")
def only_the_neighbour_watched(model, x):
    """Only the output just before the changed token is watched: one farther back may move."""
    return _moved(model, x, _noise, seen=lambda j: slice(max(j - 1, 0), j))


@LEAKS.mistake("Strong leaks are found, and rounding does no harm.")
def small_moves_forgiven(model, x):
    """A leak may be small. What must stand still stands still to the last digits."""
    return _moved(model, x, _noise, limit=0.02)


E7_5 = Exercise(
    id="E7.5",
    title="Does it see the future?",
    grade="core",
    kind="design",
    minutes=15,
    objective="design a probe for leaks that does not lie",
    section="[Three triangles](07_theory_to_practice/03_debugging.ipynb#three-triangles)",
    task="""\
A model that writes must not read ahead: no output may depend on a later token.
Ten models will be put before you.
You get no map and no code: a model is a function that takes a text `x (n, d)` and gives the
outputs `(n, d)`, the same each time.

Design the test: `leaks(model, x)` returns `True` if some output depends on a later token, and
`False` if none does.
`leaks(reads_ahead, x)` is `True`, and `leaks(reads_back, x)` is `False`.

Two of the ten are healthy.
Most begin with a LayerNorm, some have more than one layer, and not all leaks are large or
everywhere.
The models are NumPy alone; leave `x` as it was.""",
    stub=leaks,
    solution=leaks_solution,
    checker=Code(
        LEAKS,
        does_it=("leak", "influence"),
        cases=tuple(case(model, _WORDS_6) for model in _MODELS),
    ),
    hints=(
        "Which outputs may move when token j is changed, and which must stand still?",
        "A leak may run from any token to any earlier one. So change each token in turn, and look "
        "at all outputs before it.",
        "Section 7.3 has a probe that calls healthy blocks deaf, and one that does not. They "
        "differ in how a token is changed.",
        "Start from a fresh copy of `x` for each token. What must stand still differs by nothing "
        "but rounding, below 1e-9.",
    ),
    explanation="""\
Change a token by noise, look at the outputs before it, and do so for every token.
Each half of the sentence rules out a mistake.
A constant is taken away by the norm; outputs after the token may move; and where only the first
three tokens read each other, changing the last one shows nothing.

Another good way: read the first k tokens alone, for every k, and compare with the first k outputs
of the whole text.
What follows cannot matter if it may be left out.

Maps would have misled you: in three of the eight ill models the last map has no weight on a later
token, and in a fourth it is too little to be seen.
A test like yours belongs beside every model that writes; it takes n runs and finds what a falling
loss hides, for a model that reads ahead learns very well.""",
)

# ---- E7.6 ----------------------------------------------------------------------------------------

VALUES = np.array([[1, 1], [2, 1], [0, 0], [4, 0], [0, 2], [2, 2]])
WEIGHTS = np.array([0.5, 0.3, 0.05, 0.05, 0.05, 0.05])


def another_row_solution():
    # words 2, 3, 4: two numbers of the output and the sum are three equations
    equations = np.vstack([VALUES[2:5].T, np.ones(3)])
    kept = np.linalg.solve(equations, [*WEIGHTS @ VALUES, 1])
    return np.array([0, 0, *kept, 0])


def _no_negative(row):
    if row.min() < -1e-6:
        return f"the smallest weight is {row.min():.3g}"
    return None


def _makes_one(row):
    return None if abs(row.sum() - 1) < 0.002 else f"the weights make {row.sum():.3f}"


def _not_read(row):
    read = [f"word {i} has {row[i]:.3g}" for i in (0, 1) if row[i] > 1e-6]
    return ", ".join(read) or None


def _outputs(row):
    have, want = row @ VALUES, WEIGHTS @ VALUES
    return f"your output is ({have[0]:.3f}, {have[1]:.3f}), it was ({want[0]:.3f}, {want[1]:.3f})"


def _not_the_rest_alone(row):
    rest = np.where(np.arange(6) < 2, 0, WEIGHTS)
    return _outputs(row) if np.abs(row - rest / rest.sum()).max() < 0.002 else None


def _not_just_one_number(row):
    right = np.abs(row @ VALUES - WEIGHTS @ VALUES) < 0.002
    return _outputs(row) if right.sum() == 1 else None


def _same_output(row):
    right = np.abs(row @ VALUES - WEIGHTS @ VALUES) < 0.002
    return None if right.all() else _outputs(row)


E7_6 = Exercise(
    id="E7.6",
    title="Another map, the same output",
    grade="challenge",
    kind="design",
    minutes=12,
    objective="show by an example that an output does not tell what was read",
    section="[Five conditions on sixteen numbers](07_theory_to_practice/03_debugging.ipynb"
    "#five-conditions-on-sixteen-numbers)",
    task="""\
A word reads six words, 0 to 5, with `WEIGHTS`: nearly everything comes from the words 0 and 1.
Each of the six hands over two numbers, its row of `VALUES`.
The output, `WEIGHTS @ VALUES`, is `(1.4, 1.0)`.

Design another row of six weights that gives the same output and does not read the words 0 and 1 at
all.
It must be a row that a softmax could round to: no weight below 0, and 1 in sum.

Paper and pencil are enough; a few lines of NumPy do it too.""",
    stub="row = ...  # six weights, as in [0.0, 0.0, ...]",
    solution=another_row_solution,
    checker=Design(
        shapes={"row": (6,)},
        rules=(
            Rule(
                "A weight is negative. A softmax cannot do that: a word may be left out, and not "
                "taken away.",
                _no_negative,
                "negative-weights",
            ),
            Rule("The weights do not make 1.", _makes_one, "not-one"),
            Rule("The words 0 and 1 are still read.", _not_read, "still-read"),
            Rule(
                "You left the two words out and divided by the sum: the others keep their ratios, "
                "and the output moves. Which other ratios would bring it back?",
                _not_the_rest_alone,
                "rest-made-one",
            ),
            Rule(
                "One number of the output is right, the other one is not: a value has two.",
                _not_just_one_number,
                "one-number-alone",
            ),
            Rule("The output is another one.", _same_output),
        ),
    ),
    hints=(
        "Draw the six values as points in the plane. The output is a point too; between which of "
        "the words 2 to 5 does it lie?",
        "There are four weights left, and three conditions: two numbers of the output, and the "
        "sum. So one weight is yours to choose.",
        "Choose 0 for word 5. The second number of the output then comes from word 4 alone.",
    ),
    explanation="""\
Three equations for four weights.
With $f$ on word 5, word 4 has $0.5 - f$, word 3 has $0.35 - f/2$, word 2 has $0.15 + f/2$:
every $f$ from 0 to 0.5 is an answer.
For $f = 0$ the new row has hardly a weight in common with the old one: their distance, as in the
chapter, is 0.85 of at most 1.

In the plane the output is a point, and a row of weights says how to reach it as an average of other
points.
Any points around it will do.
Who knows the output alone cannot know who was read, and who draws the map has not drawn what each
word adds.
To divide what is left by its sum gives (1.5, 1.0): near, and another output.""",
)

# ---- E7.7 ----------------------------------------------------------------------------------------


def four_runs_solution():
    return "b", "c", "a", "b"


E7_7 = Exercise(
    id="E7.7",
    title="Four readings",
    grade="core",
    kind="read",
    minutes=6,
    objective="name what ails a model from gradients and token spread",
    section="[The flow of gradients]"
    "(07_theory_to_practice/03_debugging.ipynb#the-flow-of-gradients)",
    task="""\
Four deep models like those of the chapter, with other random numbers, before the first step.
Columns two and three: the norm of the gradient of a whole layer.
Column four: that of $W_Q$ alone.
Column five: the token spread after the last layer.

| run | layer 0 | layer 11 | $W_Q$, layer 11 | token spread |
|---|---|---|---|---|
| 1 | 3.6 | 3.4 | below 1e-14 | below 1e-14 |
| 2 | 0.000028 | 0.000030 | 0.0000016 | 0.87 |
| 3 | 0.28 | 0.30 | 0 | 0.87 |
| 4 | below 1e-14 | 0.041 | below 1e-14 | below 1e-14 |

What is the matter with each?""",
    stub="""\
run_1 = ...  # a letter each
run_2 = ...
run_3 = ...
run_4 = ...""",
    solution=four_runs_solution,
    checker=Items(
        {
            "Run 1": Choice(
                (
                    Option(
                        "Nothing: every layer gets a gradient.",
                        "The norm of a layer is a sum over all its matrices, and a sum hides a "
                        "zero. Read on in the row.",
                        "layer-norm-alone",
                    ),
                    Option(
                        "Its tokens have all become the same.",
                        "with no difference between tokens no change of W_Q changes a "
                        "weight, while the other matrices learn.",
                    ),
                    Option(
                        "Its $W_Q$ and $W_K$ are 0.",
                        "That would explain the fourth column, not the fifth: with zeros there, "
                        "tokens stay as different as they were.",
                        "spread-not-read",
                    ),
                )
            ),
            "Run 2": Choice(
                (
                    Option(
                        "Its gradient vanishes.",
                        "It is small. To vanish on its way down, it would have to be smaller in "
                        "layer 0 than in layer 11.",
                        "small-for-vanishing",
                    ),
                    Option(
                        "Its queries and keys hardly learn.",
                        "Compare W_Q with its layer: the share is as in a healthy model, about a "
                        "twentieth.",
                        "small-for-stuck",
                    ),
                    Option(
                        "Nothing, but that the loss is multiplied by a small number.",
                        "all gradients are small alike, and the tokens differ.",
                    ),
                )
            ),
            "Run 3": Choice(
                (
                    Option(
                        "Its $W_Q$ and $W_K$ are 0.",
                        "each is a factor in the gradient of the other, so both stay there.",
                    ),
                    Option(
                        "Its tokens have all become the same.",
                        "Look at the fifth column: they have not.",
                        "spread-not-read",
                    ),
                    Option(
                        "Nothing: every layer gets a gradient.",
                        "The norm of a layer is a sum over all its matrices, and a sum hides a "
                        "zero. Read on in the row.",
                        "layer-norm-alone",
                    ),
                )
            ),
            "Run 4": Choice(
                (
                    Option(
                        "It has norms, and no skips.",
                        "Norms would keep the rows long, and every layer would get a gradient, as "
                        "in another of the four runs.",
                        "norms-not-missed",
                    ),
                    Option(
                        "It has neither norms nor skips.",
                        "the gradient gets smaller in each layer on its way down, and the "
                        "tokens have become the same.",
                    ),
                    Option(
                        "Its $W_Q$ and $W_K$ are 0, and nothing else.",
                        "Then values and feed-forward would still get their gradients, in layer 0 "
                        "too.",
                        "one-zero-for-all",
                    ),
                )
            ),
        }
    ),
    hints=(
        "First compare layer 0 with layer 11: does something get lost on the way down?",
        "Then the spread: are there tokens to tell apart? Without, no $W_Q$ can learn.",
        "Only then $W_Q$, and as a share of its layer: small everywhere is not small in one place.",
    ),
    explanation="""\
The runs are *no skip*, *healthy* with its loss divided by 10 000, *no queries, no keys*, and *no
skip, no norm*, with another seed than in the chapter.

A look at the norms alone would have blamed run 2, which is healthy, and run 4, and would have
let runs 1 and 3 pass.
(In float16 run 2 would be in danger all the same: for that there is loss scaling, section 7.2.)
Three numbers together tell all four apart: does the gradient shrink from layer to layer, does $W_Q$
get its share, do the tokens differ?""",
)

# ---- E7.8 ----------------------------------------------------------------------------------------


def token_probabilities(logits, *, temperature=1.0, top_k=None, top_p=None):
    """With which probability each token is drawn.

    logits: (vocabulary,). temperature: above 0. top_k: how many tokens keep a chance.
    top_p: what the likeliest tokens, as few as will do, must reach together
    -> (vocabulary,), in the order of the vocabulary
    """
    ...


def token_probabilities_solution(logits, *, temperature=1.0, top_k=None, top_p=None):
    scores = logits / temperature
    order = np.argsort(-scores)  # the likeliest first
    if top_k is not None:
        kept = order[:top_k]
    elif top_p is not None:
        together = np.cumsum(qn.softmax(scores)[order])
        kept = order[: np.searchsorted(together, top_p) + 1]
    else:
        kept = order
    cut = np.full(scores.shape, -np.inf)
    cut[kept] = scores[kept]
    return qn.softmax(cut)


_CHANCES = np.array([0.15, 0.5, 0.05, 0.3])
_HALVES = np.array([0.25, 0.5, 0.125, 0.125])  # they make 1 to the last digit


def _tokens():
    """The subject of the catalogue, and a top_p that the likeliest token reaches alone."""
    kind = with_more("token probabilities")
    alone = (call(np.log(_CHANCES), top_p=0.4), call(np.log(_CHANCES), top_p=0.04))
    tiers = (
        *kind.tiers,
        alone,
        (call(np.log(_HALVES), top_p=1.0),),
        (afterwards(np.log(_CHANCES), top_p=0.6, temperature=2.0),),
    )
    right = token_probabilities_solution
    return Subject(kind.name, kind.signature, right, tiers, kind.laws, kind.mistakes, listed=False)


TOKENS = _tokens()


@TOKENS.mistake("On logits of usual size it is right.")
def no_shift(logits, *, temperature=1.0, top_k=None, top_p=None):
    """A power of e is too large or too small to be written down: shift by the largest score."""
    cut = token_probabilities_solution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    powers = np.where(cut > 0, np.exp(logits / temperature), 0)
    return powers / powers.sum()


@TOKENS.mistake("At a temperature of 1 it is right, and the chances always make 1.")
def temperature_without_effect(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The temperature changes nothing: chances divided by it are divided by their sum again."""
    return token_probabilities_solution(logits, top_k=top_k, top_p=top_p)


@TOKENS.mistake("With a top_p below 1 it is right.", reported="BlinkDL/ChatRWKV#170")
def no_sum_is_above_one(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Who goes begins where a sum is above top_p: none is above 1, and argmax of nothing is 0."""
    p = qn.softmax(logits / temperature)
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    chances = np.sort(p)[::-1]
    p = np.where(p < chances[np.argmax(np.cumsum(chances) > top_p)], 0, p)
    return p / p.sum()


@TOKENS.mistake("The likeliest token always stays, as it should.")
def the_first_taken_from_all_sums(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The likeliest chance is taken away from every sum, not each token's own: too many stay."""
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    p = qn.softmax(logits / temperature)
    order = np.argsort(-p)
    gone = order[np.cumsum(p[order]) - p.max() >= top_p]
    p[gone] = 0
    return p / p.sum()


@TOKENS.mistake("The chances that are left are the right ones, in another place.")
def found_in_sorted_order(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Who stays is found among the sorted tokens, and looked up among the unsorted ones."""
    p = qn.softmax(logits / temperature)
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    chances = np.sort(p)[::-1]
    p = np.where(np.cumsum(chances) - chances < top_p, p, 0)
    return p / p.sum()


@TOKENS.mistake("As many stay as together reach top_p.")
def summed_from_the_unlikeliest(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Sorted upwards, the sum begins with the least likely token: these stay."""
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    p = qn.softmax(logits / temperature)
    order = np.argsort(p)
    p[order[np.cumsum(p[order]) - p[order] >= top_p]] = 0
    return p / p.sum()


@TOKENS.mistake("The chances make 1 once more.")
def softmax_of_what_is_left(logits, *, temperature=1.0, top_k=None, top_p=None):
    """A second softmax, of chances: what was cut to 0 gets one again, for e to the power 0 is 1."""
    p = token_probabilities_solution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return p if top_k is None and top_p is None else qn.softmax(p)


@TOKENS.mistake("The chances make 1, and likelier tokens have more.")
def softmax_of_chances(logits, *, temperature=1.0, top_k=None, top_p=None):
    """A softmax takes logits. Chances go through it here, which differ by less than 1."""
    p = token_probabilities_solution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return qn.softmax(np.where(p > 0, qn.softmax(logits / temperature), -np.inf))


@TOKENS.mistake("The chances are the right ones, and they make 1.")
def left_in_the_order_of_size(logits, *, temperature=1.0, top_k=None, top_p=None):
    """The chances stay sorted, the largest first. Which token of the vocabulary is that?"""
    p = token_probabilities_solution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return p if top_k is None and top_p is None else np.sort(p)[::-1]


@TOKENS.mistake("Likely tokens stay, unlikely ones go.")
def each_chance_against_top_p(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Each chance is compared with top_p, and none may reach it: top_p is what several reach."""
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    p = qn.softmax(logits / temperature)
    return np.where(p >= top_p, p, 0) / p[p >= top_p].sum()


@TOKENS.mistake("Likely tokens stay, unlikely ones go.")
def each_token_on_its_own(logits, *, temperature=1.0, top_k=None, top_p=None):
    """Each chance is compared with a limit, by itself. But top_p is what they reach together."""
    if top_p is None:
        return token_probabilities_solution(logits, temperature=temperature, top_k=top_k)
    p = qn.softmax(logits / temperature)
    p = np.where((p > 1 - top_p) | (p == p.max()), p, 0)
    return p / p.sum()


E7_8 = Exercise(
    id="E7.8",
    title="Before the dice are thrown",
    grade="core",
    kind="fill in",
    minutes=15,
    objective="make the chances that a model draws its next token with",
    section="[Word by word](07_theory_to_practice/05_closing_piece.ipynb#word-by-word)",
    task="""\
The models of this chapter always take the token with the largest logit.
Others throw dice, and three numbers shape the dice.
Write the chances, not the throw: `token_probabilities(logits, *, temperature=1.0, top_k=None,
top_p=None)` takes logits `(vocabulary,)` and returns chances `(vocabulary,)` that make 1, in the
order of the vocabulary.

- **temperature**, above 0: the softmax is that of `logits / temperature`.
- **top_k**: the `top_k` likeliest tokens keep a chance, all others get 0.
- **top_p**: the likeliest tokens keep a chance, as few as together reach `top_p` with their chances
  at this temperature; one token stays at least.

What is left keeps its ratios. At most one of `top_k` and `top_p` is given.

For the chances `.15 .5 .05 .3` and `top_p=0.6` the answer is `0 .625 0 .375`.
You may use `qn.softmax`.""",
    stub=token_probabilities,
    solution=token_probabilities_solution,
    checker=Code(
        TOKENS,
        single=True,
        does_it=("token_probabilities",),
        cases=(
            case(np.log(_CHANCES[:2])),
            case(np.log(_CHANCES[:2]), temperature=2.0),
            case(np.log(_CHANCES), top_k=1),
            case(np.log(_CHANCES), top_k=3),
            case(np.log(_CHANCES), top_p=0.6),
            case(np.log(_CHANCES), top_p=0.4),
            case(np.log(_HALVES), top_p=1.0),
            case(np.log(_CHANCES), temperature=0.5, top_p=0.6),
            case(np.array([1000.0, 0.0, 1001.0]), top_k=2),
        ),
    ),
    hints=(
        "Do the three in this order: divide, decide who stays, softmax of those. A score of "
        "$-\\infty$ has no chance.",
        "For `top_p` sort from the likeliest down and add up. Look at the token with which the sum "
        "reaches `top_p`: does it belong to those that reach it together?",
        "Keep a token when the sum *before* it is below `top_p`. `np.argsort` tells where each "
        "sorted token comes from, so that you can mark it there.",
    ),
    explanation="""\
The temperature comes first: it changes the chances, and `top_p` asks what the chances are.
A low temperature makes the likely tokens likelier, so that fewer reach `top_p`; a high one more.

The token with which the sum reaches `top_p` stays.
In the example .5 is not .6 yet, so .3 is needed too, and together they are .8.
If only .5 is left, this token was dropped; somebody who draws with `top_p` 0.9 would then get a set
that reaches less than 0.9, and for a small `top_p` none at all.

To cut means $-\\infty$ before the softmax, or 0 after it and a division by the sum.
A score of 0 is no cut: like the masks of chapter 3, it leaves $e^0 = 1$.""",
)

# ---- the page ------------------------------------------------------------------------------------

EXERCISES = (E7_1, E7_2, E7_3, E7_4, E7_5, E7_6, E7_7, E7_8)

QUIZ = (
    Question(
        "Attention in chunks, as in FlashAttention: what does it change?",
        (
            Option(
                "The output, a little: it is an approximation.",
                "The factors repair every power exactly. What differs is rounding.",
                "chunks-approximate",
            ),
            Option(
                "The number of multiplications, which no longer grows with $n^2$.",
                "Every query still meets every key.",
                "chunks-save-work",
            ),
            Option(
                "The memory: the scores of all pairs are never held at once.",
                "The outputs are the same, and so are the multiplications.",
            ),
            Option(
                "What the model reads: only the current chunk.",
                "That would be a window, which is another model with other answers.",
                "chunks-are-windows",
            ),
        ),
    ),
    Question(
        "A model runs in bfloat16 and gives NaN in float16. What is the likely reason?",
        (
            Option(
                "Some number is larger than 65504, the largest of float16.",
                "bfloat16 reaches as far as float32, with coarser steps.",
            ),
            Option(
                "float16 has too few digits, so that its sums go astray step by step.",
                "It has three bits of digits more than bfloat16; what it lacks is reach.",
                "reach-for-steps",
            ),
            Option(
                "The softmax forgot to subtract the largest score.",
                "Then bfloat16 would be in danger too, and library softmaxes do it. The scores "
                "come before the softmax.",
                "softmax-is-to-blame",
            ),
        ),
    ),
    Question(
        "Before the first step all heads of a model read everything alike: entropy 1.000. "
        "What follows?",
        (
            Option(
                "The model is dead.",
                "A model with small queries and keys starts like that too, and learns.",
                "flat-is-dead",
            ),
            Option(
                "Not much yet: whether the entropy moves will tell.",
                "After fifty steps the slow start has moved, and the saddle has not.",
            ),
            Option(
                "It is well initialised: so far it prefers nothing to anything.",
                "It may be, and it may stay there for ever, if $W_Q$ and $W_K$ are 0.",
                "flat-is-healthy",
            ),
            Option(
                "Its scores are too large.",
                "Large scores make rows that read one word, so the entropy would be near 0.",
                "flat-from-large-scores",
            ),
        ),
    ),
    Question(
        "The map of a head is a perfect triangle: no weight on a later token. What is proved?",
        (
            Option(
                "That no output of this layer depends on a later token.",
                "A norm over the tokens, or a mask after the softmax, leaks beside the map.",
                "triangle-means-no-leak",
            ),
            Option(
                "That the model was trained with a causal mask.",
                "An untrained one has the same triangle.",
                "map-tells-training",
            ),
            Option(
                "That the output is owed to the words with large weights.",
                "The weight is one of two factors, and another row may give the same output.",
                "weights-are-explanations",
            ),
            Option(
                "That no value of a later token is added in this head.",
                "That is the wiring. Whether something leaks beside it only a probe can tell.",
            ),
        ),
    ),
    Question(
        "Why does a model that writes keep keys and values, but no queries?",
        (
            Option(
                "Queries are smaller than keys and values, so that keeping them saves little.",
                "They are as wide as keys.",
                "queries-are-small",
            ),
            Option(
                "A query is asked once, by its own token; keys and values are read by all later "
                "ones.",
                "What an old token asked, it has been told. Nobody needs its query again.",
            ),
            Option(
                "Queries are the same for all tokens.",
                "Each token asks with its own.",
                "one-query-for-all",
            ),
            Option(
                "Old queries change with each new token, so that all of them must be made again.",
                "Under a causal mask nothing of an old token changes, in any layer.",
                "old-tokens-change",
            ),
        ),
    ),
    Question(
        "Two devices share a layer: each has half of the heads. What must they send each other?",
        (
            Option(
                "Their scores, for the softmax needs those of all heads.",
                "A softmax runs along the keys of one head, and a head lies on one device.",
                "softmax-over-heads",
            ),
            Option(
                "Their keys and values.",
                "A head reads keys and values of its own. That would be needed if the text were "
                "split.",
                "heads-share-keys",
            ),
            Option(
                "Nothing: heads do not need each other.",
                "They do not until $W_O$. But the output of the layer is the sum of what all heads "
                "add, and without it each device goes on with half a layer.",
                "sum-forgotten",
            ),
            Option(
                "What their heads add to the output, to be summed.",
                "One tensor of the shape of the output, whatever the number of heads.",
            ),
        ),
    ),
)
