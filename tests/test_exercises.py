"""The checkers: no stub, junk or mistake passes, a mistake gets its name, what is right passes."""

import importlib
import inspect
import json
import math
import textwrap
import time
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from twins import torch

import qkvlib.numpy as qn
from qkvlib.book.exercises import _progress, chapters, check, find, hint, progress
from qkvlib.book.exercises._answers import Choice, Design, Items, Numbers
from qkvlib.book.exercises._code import Code
from qkvlib.book.exercises._exercise import GRADES, KINDS
from qkvlib.book.exercises._stub import value_of
from qkvlib.book.exercises._verdict import KINDS as VERDICTS
from qkvlib.book.exercises._verdict import Verdict
from qkvlib.mistakes import Subject
from qkvlib.numpy.gradients import softmax_backward

EXERCISES = {each.id: each for chapter in chapters().values() for each in chapter.EXERCISES}
ANSWERS = [importlib.import_module(f"answers.chapter_{number}") for number in chapters()]
OTHERS = {id: each for answers in ANSWERS for id, each in answers.OTHERS.items()}
WRONG = {id: each for answers in ANSWERS for id, each in answers.WRONG.items()}

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
every = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def solution_of(exercise):
    return exercise.solution if callable(exercise.stub) else exercise.solution()


def look(exercise, answer):
    return check(exercise.id, answer, record=False)


def of_kind(kind):
    chosen = [each for each in EXERCISES.values() if isinstance(each.checker, kind)]
    return pytest.mark.parametrize("exercise", chosen, ids=[each.id for each in chosen])


# ---- the exercises -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", chapters())
def test_a_chapter_has_exercises_of_many_kinds(number):
    exercises = chapters()[number].EXERCISES
    assert [each.id for each in exercises] == [f"E{number}.{k + 1}" for k in range(len(exercises))]
    kinds = Counter(each.kind for each in exercises)
    assert max(kinds.values()) <= 2 / 5 * len(exercises)
    assert {each.grade for each in exercises} == set(GRADES)


@every
def test_an_exercise_says_all_that_a_reader_needs(exercise):
    assert exercise.grade in GRADES
    assert exercise.kind in KINDS
    assert 2 <= exercise.minutes <= 30
    assert 2 <= len(exercise.hints) <= 4
    assert exercise.section.startswith("[")
    for text in (exercise.task, exercise.explanation, *exercise.hints):
        assert text.strip()[-1] in ".?!$`)|:", text[-40:]
    if callable(exercise.stub):
        assert inspect.getdoc(exercise.stub)
        assert exercise.solution.__name__ != exercise.stub.__name__


@every
def test_every_exercise_can_name_mistakes(exercise):
    assert exercise.checker.mistakes()


@pytest.mark.parametrize("number", chapters())
def test_a_self_test_has_one_right_option_a_question(number):
    quiz = chapters()[number].QUIZ
    assert len(quiz) >= 6
    for question in quiz:
        assert 3 <= len(question.options) <= 5
        assert sum(option.mistake is None for option in question.options) == 1
    places = [[o.mistake for o in question.options].index(None) for question in quiz]
    assert len(set(places)) >= 3  # the right one does not always stand in the same place
    lengths = [[len(option.text) for option in question.options] for question in quiz]
    longest = [row[place] > sorted(row)[-2] for row, place in zip(lengths, places)]
    assert sum(longest) <= len(quiz) / 3  # nor is it always the longest


# ---- stubs and solutions -------------------------------------------------------------------------


@every
def test_the_stub_is_not_attempted(exercise):
    given = value_of(exercise.stub)
    assert look(exercise, given).kind == "not attempted"
    assert not look(exercise, given)
    for nothing in (..., None):
        assert look(exercise, nothing).kind == "not attempted"


@of_kind(Code)
def test_the_stub_in_a_cell_of_its_own_is_not_attempted(exercise):
    space = dict(vars(inspect.getmodule(exercise.stub)))
    exec(textwrap.dedent(inspect.getsource(exercise.stub)), space)
    assert look(exercise, space[exercise.stub.__name__]).kind == "not attempted"


@every
def test_the_solution_is_right(exercise):
    verdict = look(exercise, solution_of(exercise))
    forgiven = getattr(exercise.checker, "beyond", ())
    assert verdict.kind == "right" or verdict.mistake in forgiven, verdict


@every
def test_an_answer_that_is_written_differently_is_right(exercise):
    for answer in OTHERS[exercise.id]:
        if torch is None and callable(answer) and "torch" in inspect.getsource(answer):
            continue
        verdict = look(exercise, answer)
        assert verdict, (answer, verdict)


@of_kind(Code)
def test_an_answer_in_torch_is_right_where_the_exercise_allows_it(exercise):
    if "NumPy alone" not in exercise.task:
        assert any("in_torch" in getattr(f, "__name__", "") for f in OTHERS[exercise.id])


@of_kind(Numbers)
def test_numbers_may_come_in_any_form(exercise):
    right = np.asarray(exercise.checker.right(), float)
    forms = [right, right.tolist(), tuple(right.tolist()) if right.ndim else right.item()]
    forms += [right + exercise.checker.tolerance / 2]
    forms += [torch.tensor(right)] if torch else []
    forms += [str(right.item())] if right.size == 1 else [right.astype(str)]
    for answer in forms:
        assert look(exercise, answer).kind == "right", answer


@every
def test_no_verdict_shows_the_solution(exercise):
    body = inspect.getsource(exercise.solution).split("\n", 1)[1]
    lines = {line.strip() for line in body.splitlines() if len(line.strip()) > 25}
    wrong = [each for some in WRONG.get(exercise.id, {}).values() for each in some]
    if isinstance(exercise.checker, Code):
        wrong += [mistake.function for mistake in exercise.checker.kind.mistakes.values()]
    for answer in [*junk(), *wrong, *(getattr(exercise.checker, "letters", str)())]:
        verdict = look(exercise, answer)
        own = [text for label, text in verdict.details if label == "It raises"]  # the answer's line
        said = repr(replace(verdict, details=[d for d in verdict.details if d[1] not in own]))
        assert not any(line in said for line in lines)


# ---- mistakes ------------------------------------------------------------------------------------


def wrong_code():
    for exercise in EXERCISES.values():
        if isinstance(exercise.checker, Code):
            for mistake in exercise.checker.kind.mistakes.values():
                yield pytest.param(exercise, mistake, id=f"{exercise.id}-{mistake.name}")


@pytest.mark.parametrize(("exercise", "mistake"), list(wrong_code()))
def test_a_mistake_in_code_is_named_and_shown(exercise, mistake):
    verdict = look(exercise, mistake.function)
    given = value_of(exercise.stub)
    if verdict.kind == "not attempted":  # the code that was given is this very mistake
        assert look(exercise, lambda *a, **k: given(*a, **k)).mistake == mistake.name
        return
    assert verdict.mistake == mistake.name
    assert mistake.says in verdict.says
    if verdict.kind == "right, but":
        in_place = "changes its" in verdict.says or "What it returns is right" in verdict.says
        assert in_place or mistake.name in exercise.checker.beyond
    else:
        assert verdict.kind == "known mistake"
        assert verdict.details, "no counter-example"


@pytest.mark.parametrize("id", ["E3.3", "E3.4", "E3.6", "E4.2"])
def test_the_probes_are_answered_once_for_a_verdict(id, monkeypatch):
    checker = EXERCISES[id].checker
    kind = checker.kind
    answers = [mistake.function for mistake in kind.mistakes.values()]
    answers += [EXERCISES[id].solution, lambda *given, **named: 0.1 + kind.right(*given, **named)]
    assert kind._right_answers
    assert kind._wrong_answers  # both are computed once for all
    asked = []
    ask = Subject._answers
    monkeypatch.setattr(Subject, "_answers", lambda *given: asked.append(1) or ask(*given))
    for count, answer in enumerate(answers, start=1):
        look(EXERCISES[id], answer)
        assert len(asked) <= count


def numbers_in(checker):
    if isinstance(checker, Numbers):
        yield checker, lambda answer: answer
    elif isinstance(checker, Items):
        right = {name: right_part(part) for name, part in checker.parts.items()}
        for name, part in checker.parts.items():
            if isinstance(part, Numbers):
                yield part, lambda answer, name=name: right | {name: answer}


def right_part(part):
    if isinstance(part, Numbers):
        return part.right()
    return part.letters()[[option.mistake for option in part.options].index(None)]


@of_kind(Numbers | Items)
def test_a_slip_in_numbers_is_named(exercise):
    for part, whole in numbers_in(exercise.checker):
        for name, slip in part.slips.items():
            verdict = look(exercise, whole(slip.values()))
            assert (verdict.kind, verdict.mistake) == ("known mistake", name)
            assert slip.says in verdict.says


@of_kind(Choice | Items)
def test_a_wrong_choice_is_named(exercise):
    checker = exercise.checker
    parts = checker.parts if isinstance(checker, Items) else {None: checker}
    for place, part in parts.items():
        if not isinstance(part, Choice):
            continue
        assert sum(option.mistake is None for option in part.options) == 1
        for letter, option in zip(part.letters(), part.options):
            answer = letter
            if place is not None:
                answer = {name: right_part(each) for name, each in checker.parts.items()}
                answer[place] = letter
            verdict = look(exercise, answer)
            assert verdict.mistake == option.mistake
            assert bool(verdict) == (option.mistake is None)


@of_kind(Code)
def test_wrong_code_is_named_in_other_styles_too(exercise):
    for name, wrong in WRONG.get(exercise.id, {}).items():
        for answer in wrong if name else ():
            if torch is None and "torch" in inspect.getsource(answer):
                continue
            assert look(exercise, answer).mistake == name, answer


@of_kind(Design)
def test_a_wrong_design_is_named(exercise):
    answers = WRONG[exercise.id]
    assert set(answers) - {None} == set(exercise.checker.mistakes())
    for name, wrong in answers.items():
        for answer in wrong:
            verdict = look(exercise, answer)
            assert not verdict
            assert verdict.mistake == name, (answer, verdict)


@every
def test_wrong_answers_without_a_name_are_refused(exercise):
    for answer in WRONG.get(exercise.id, {}).get(None, ()):
        verdict = look(exercise, answer)
        assert not verdict
        assert verdict.mistake is None, verdict


# ---- the work of others --------------------------------------------------------------------------


def by_the_library():
    for exercise in EXERCISES.values():
        if isinstance(exercise.checker, Code):
            right = exercise.checker.kind.right
            if right.__name__ in exercise.checker.studied:
                yield pytest.param(exercise.id, right, right.__name__, id=exercise.id)
    yield "E1.4", lambda scores, values: qn.softmax(scores) @ values, "softmax"
    yield "E3.8", lambda p, g: softmax_backward(g, p), "softmax_backward"
    yield "E3.12", lecture_head_of_the_library, "scaled_dot_product_attention"
    yield "E4.3", layer_of_the_library, "MultiHeadAttention"
    yield "E7.3", chunks_of_the_library, "chunked_attention"
    yield "E7.8", lambda x, **how: qn.token_probabilities(x, **how), "token_probabilities"


def lecture_head_of_the_library(x, W_Q, W_K, W_V):
    past = qn.causal_mask(len(x))
    return qn.scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V, mask=past)


def layer_of_the_library(x, W_Q, W_K, W_V, W_O, num_heads):
    return qn.MultiHeadAttention.from_weights(W_Q, W_K, W_V, W_O, num_heads=num_heads)(x)


def chunks_of_the_library(query, key, value, size):
    return qn.chunked_attention(query, key, value, chunk_size=size)


@pytest.mark.parametrize(("id", "function", "name"), list(by_the_library()))
def test_what_the_library_does_is_right_but_not_the_readers_own(id, function, name):
    verdict = check(id, function, record=False)
    assert verdict.kind == "right, but"
    assert f"the work is done by `{name}` of `qkvlib`" in verdict.says


@needs_torch
def test_the_library_in_torch_is_the_library_too():
    import qkvlib.torch as qt

    verdict = check("E4.2", lambda x, h: qt.split_heads(torch.tensor(x), h), record=False)
    assert "the work is done by `split_heads`" in verdict.says


@of_kind(Code)
def test_the_task_says_where_the_library_must_not_help(exercise):
    assert exercise.checker.alone == ("without `qkvlib`" in exercise.task)


# ---- anything at all -----------------------------------------------------------------------------


def junk():
    class Begun:
        pass

    yield from (0, -1.5, math.nan, math.inf, True, "", "z", "right", b"a", [], {}, (), set(), 1j)
    yield from ([[1, 2], [3]], {"a": 1}, range(3), object(), Begun, Begun(), np, len, iter([1]))
    yield from (np.zeros(0), np.zeros((3, 4)), np.full(5, np.nan), np.array(["x"]), [None, 1])
    yield from (np.array([object()]), ValueError("no"), "e" * 999)
    if torch:
        yield from (torch.ones(2), torch.nn.Linear(2, 2))


@every
def test_junk_is_refused_with_a_reason(exercise):
    for answer in junk():
        verdict = look(exercise, answer)
        assert verdict.kind in VERDICTS
        assert not verdict, (answer, verdict)
        assert verdict.says
        assert verdict._repr_html_().startswith("<div")


def random_functions(exercise):
    """Functions that answer something of the right shape, and some that do not run."""
    generator = np.random.default_rng(1)
    right = exercise.checker.kind.right

    def like(make):
        def wrong(*arguments, **named):
            output = right(*deepcopy(arguments), **deepcopy(named))
            parts = output if isinstance(output, tuple) else (output,)
            made = tuple(np.asarray(make(np.asarray(part))) for part in parts)
            return made if isinstance(output, tuple) else made[0]

        return wrong

    def noise(x):
        return generator.normal(size=x.shape)

    yield like(np.zeros_like)
    yield like(np.ones_like)
    yield like(noise)
    yield like(
        lambda x: x * 0.99 + 0.017 if x.dtype.kind == "f" else ~x if x.dtype == bool else x + 1
    )
    yield lambda *arguments, **named: arguments[0]
    yield lambda: 1
    yield lambda *arguments, **named: 1 / 0
    yield lambda *arguments, **named: {"a": 1}


def _spoilt(x):
    """Overwrite all arrays in nested arguments."""
    for each in x if isinstance(x, tuple | list) else ():
        _spoilt(each)
    if isinstance(x, np.ndarray) and x.flags.writeable:
        x[...] = 0


@of_kind(Code)
def test_what_an_answer_does_to_its_arguments_does_not_reach_the_next_one(exercise):
    kind = exercise.checker.kind

    def spoiling(*arguments, **named):
        output = deepcopy(kind.right(*arguments, **named))
        _spoilt([*arguments, *named.values()])
        return output

    look(exercise, spoiling)
    assert look(exercise, kind.right).kind in ("right", "right, but")


@of_kind(Code)
def test_random_functions_are_refused(exercise):
    for wrong in random_functions(exercise):
        assert not look(exercise, wrong)


@of_kind(Numbers)
def test_random_numbers_are_refused(exercise):
    generator = np.random.default_rng(2)
    right = np.asarray(exercise.checker.right(), float)
    step = 3 * exercise.checker.tolerance
    for _ in range(30):
        off = generator.uniform(step, 5 + step, right.shape) * generator.choice(
            [-1, 1], right.shape
        )
        assert not look(exercise, right + off)
    for place in range(right.size):  # one wrong number is enough
        one = right.copy()
        one.flat[place] += step
        assert not look(exercise, one)


@of_kind(Design)
def test_random_designs_are_refused(exercise):
    generator = np.random.default_rng(3)
    shapes = exercise.checker.shapes.values()

    def part(shape, scale):
        if shape == "function":
            return lambda *given, **named: scale * generator.normal(size=(3, 3))
        return scale * generator.normal(size=[3 if size is None else size for size in shape])

    for scale in (0, 1, 10):
        parts = [part(shape, scale) for shape in shapes]
        assert not look(exercise, parts[0] if len(parts) == 1 else tuple(parts))


@of_kind(Design)
def test_functions_that_know_nothing_are_refused(exercise):
    shapes = exercise.checker.shapes.values()
    for nothing in (
        lambda *given, **named: None,
        lambda *given, **named: 0,
        lambda *given, **named: True,
        lambda *given, **named: given[0] if given else 1.0,
        lambda *given, **named: np.zeros(1),
        lambda: 1,
    ):
        if set(shapes) == {"function"}:
            assert not look(exercise, nothing if len(shapes) == 1 else (nothing,) * len(shapes))


@of_kind(Items)
def test_one_random_part_is_refused(exercise):
    generator = np.random.default_rng(4)
    parts = exercise.checker.parts
    right = {name: right_part(part) for name, part in parts.items()}
    assert look(exercise, right).kind == "right"
    for name, part in parts.items():
        if isinstance(part, Numbers):
            shape = np.shape(right[name])
            off = generator.uniform(3, 9, shape) * max(part.tolerance, 0.5)
            assert not look(exercise, right | {name: right[name] + off})
        assert not look(exercise, right | {name: "z"})


# ---- check, hint, progress -----------------------------------------------------------------------


def test_what_its_writer_calls_unfinished_is_not_attempted():
    def later(x, back):
        raise NotImplementedError("later")

    def broken(x, back):
        return later(x, back) if back < 0 else np.full(3, x, dtype="no such type")

    assert check("E1.3", later, record=False).kind == "not attempted"
    assert check("E1.3", broken, record=False).kind == "raised"


@needs_torch
def test_what_torch_has_not_implemented_is_an_error():
    def softmax_of_whole_numbers(x, back):
        return torch.softmax(torch.ones(3, dtype=torch.int64), dim=0)

    verdict = check("E1.3", softmax_of_whole_numbers, record=False)
    assert verdict.kind == "raised"
    assert "NotImplementedError" in verdict.says


def test_an_endless_loop_is_stopped(monkeypatch):
    monkeypatch.setattr("qkvlib.book.exercises.SECONDS", 0.2)

    def forever(x, back):
        while True:
            pass

    verdict = check("E1.3", forever, record=False)
    assert verdict.kind == "out of time"
    assert "0 seconds" in verdict.says


def test_the_readers_own_line_is_shown():
    def broken(x, back):
        y = x.T
        return np.linalg.inv(y)  # the line

    verdict = check("E1.3", broken, record=False)
    assert verdict.kind == "raised"
    assert "LinAlgError" in verdict.says
    assert "return np.linalg.inv(y)  # the line" in repr(verdict)


def test_a_wrong_axis_is_pointed_out():
    verdict = check("E1.3", lambda x, back: x[:-1], record=False)
    assert verdict.kind == "wrong shape"
    assert "Axis 0 has 0 for 1" in verdict.says


def test_another_dtype_is_pointed_out():
    solution = find("E1.3").solution
    verdict = check("E1.3", lambda x, back: solution(x, back).astype(np.float32), record=False)
    assert verdict.kind == "wrong dtype"
    assert "float64" in verdict.says


def test_what_works_only_for_equal_sizes_is_told_so():
    def square(x, back):
        if len(x) != x.shape[1]:
            return np.zeros((2, 2))
        return find("E1.3").solution(x, back)

    verdict = check("E1.3", square, record=False)
    assert not verdict
    assert "Where all sizes are equal it is right" in verdict.says


def test_what_fails_without_an_argument_or_with_a_batch_is_not_told_of_its_axes():
    def always_with_a_bias(x, W, b=None):
        return x @ W + b

    def without_a_batch(weights, grad_weights):
        rows = [np.diag(p) @ g - p * (p @ g) for p, g in zip(weights, grad_weights)]
        return np.reshape(rows, weights.shape)

    for id, function in (("E2.3", always_with_a_bias), ("E3.8", without_a_batch)):
        verdict = check(id, function, record=False)
        assert verdict.kind == "raised"
        assert "axis" not in verdict.says


def one_that_needs_a_batch(x, repeats):
    _, _, _, _ = x.shape
    return np.repeat(x, repeats, axis=1)


def one_that_has_no_room_for_a_batch(x, repeats):
    _, _, _ = x.shape
    return np.repeat(x, repeats, axis=0)


def one_for_a_batch_of_texts(x, num_heads):
    batch, n, width = x.shape
    return x.reshape(batch, n, num_heads, width // num_heads).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("id", "function", "says"),
    [
        ("E4.2", one_for_a_batch_of_texts, "Where `x` has 3 axes it is right, and here it has 2"),
        ("E4.12", one_that_needs_a_batch, "Where `x` has 4 axes it is right, and here it has 3"),
        ("E4.12", one_that_has_no_room_for_a_batch, "has 3 axes it is right, and here it has 4"),
        ("E4.12", lambda x, repeats: np.repeat(x, repeats, 0), "is right, and here it has 4"),
    ],
)
def test_what_needs_a_batch_or_has_no_room_for_one_is_told_so(id, function, says):
    verdict = check(id, function, record=False)
    assert not verdict
    assert says in verdict.says
    assert ". Where" in verdict.says


def test_what_is_right_for_some_with_as_many_axes_is_not_told_of_axes():
    def always_with_a_bias(x, W, b=None):
        return qn.project(x, W, b) if x.ndim > 2 else x @ W + b

    verdict = check("E2.3", always_with_a_bias, record=False)
    assert verdict.kind == "raised"
    assert "axes" not in verdict.says


@needs_torch
def test_laws_see_arrays_where_a_function_returns_tensors():
    def a_fresh_layer(x, W, b=None):
        return torch.nn.Linear(*W.shape, bias=b is not None)(torch.tensor(x).float())

    verdict = check("E2.3", a_fresh_layer, record=False)
    assert verdict.kind in ("wrong", "wrong dtype")
    assert "got Tensor" not in repr(verdict)


def test_numbers_that_look_alike_are_shown_with_more_digits():
    solution = find("E1.4").solution
    verdict = check("E1.4", lambda *given: solution(*given) * (1 + 1e-6), record=False)
    shown = dict(verdict.details)
    assert shown["Expected"] != shown["Got"]


def test_shares_in_rounded_percent_are_named():
    verdict = check("E3.1", [55.8, 6.7, 3.3, 27.5, 6.7], record=False)
    assert verdict.mistake == "in-percent"


def test_a_design_that_is_half_done_is_told_what_is_missing():
    windowed, *_ = find("E3.11").solution()
    verdict = check("E3.11", (windowed, ..., ...), record=False)
    assert verdict.kind == "wrong"
    assert "Right so far: windowed. Still missing: prefixed, packed." in verdict.says
    assert check("E3.11", (np.tri(8), ..., ...), record=False).mistake == "no-window"
    verdict = check("E2.5", (np.eye(6), ...), record=False)
    assert verdict.kind == "not attempted"
    assert "Still missing: W_K." in verdict.says


def test_several_right_answers_come_with_their_names():
    assert "raw: You have 144. divided: You" in check("E3.7", (144, 2.25), record=False).says


def test_what_fails_on_extreme_input_alone_is_not_told_of_its_axes():
    def plain(scores, values):
        powers = np.exp(scores.clip(-700, 700))
        return powers / powers.sum() @ values

    verdict = check("E1.4", plain, record=False)
    assert verdict.kind in ("wrong", "known mistake")
    assert "axis" not in verdict.says


def test_what_is_hardly_wrong_is_told_so():
    solution = find("E1.4").solution
    verdict = check("E1.4", lambda *given: solution(*given) * (1 + 1e-6), record=False)
    assert verdict.kind == "wrong"
    assert "off by only 1e-06" in verdict.says
    verdict = check("E1.4", lambda *given: solution(*given) * 1.1, record=False)
    assert "off by" not in verdict.says


def test_numbers_of_a_wrong_shape_are_told_so():
    for answer in ([1, 2], [[0, 0, 2, -1]], 3):
        verdict = check("E1.1", answer, record=False)
        assert verdict.kind == "wrong shape"
        assert "of shape (5,)" in verdict.says


def test_an_answer_that_changes_its_input_is_right_but():
    def changing(x, back):
        x += 1
        return find("E1.3").solution(x - 1, back)

    verdict = check("E1.3", changing, record=False)
    assert verdict.kind == "right, but"
    assert "changes" in verdict.says


def test_an_answer_that_changes_what_lies_in_a_tuple_is_right_but():
    def changing(one, other):
        merged = find("E7.2").solution(one, other)
        one[1][:] = 7
        return merged

    verdict = check("E7.2", changing, record=False)
    assert verdict.kind == "right, but"
    assert "changes" in verdict.says


def test_what_raises_on_other_inputs_alone_is_shown():
    def for_few(query, key, value, cache, *, rotate):
        if len(cache) > 1:
            raise RuntimeError("too many")
        return find("E7.4").solution(query, key, value, cache, rotate=rotate)

    verdict = check("E7.4", for_few, record=False)
    assert not verdict
    assert "RuntimeError: too many" in repr(verdict)
    assert 'raise RuntimeError("too many")' in repr(verdict)


def test_letters_may_come_in_one_string():
    for answer in ("bcab", "b, c, a, b", "B C A B"):
        assert check("E7.7", answer, record=False).kind == "right"
    assert check("E7.7", "bcabb", record=False).kind == "wrong type"


def test_rows_may_come_in_lists_or_tuples_of_whole_numbers():
    def in_tuples(x, back):
        rows = find("E1.3").solution(x, back).tolist()
        return tuple(tuple(int(n) if n == int(n) else n for n in row) for row in rows)

    assert check("E1.3", in_tuples, record=False).kind == "right"
    assert check("E1.3", lambda x, back: list(in_tuples(x, back)), record=False).kind == "right"


def test_what_is_no_number_is_named():
    for answer, said in [
        ((0, 0, 2, "two", 0), "got 'two'"),
        ((0, 0, 2, 1j, 0), "complex"),
        ((0, 0, 2, [1], 0), "equal rows"),
        ((0, 0, 2, 10**400, 0), "got 1000"),
        (map(int, "00200"), "map"),
    ]:
        verdict = check("E1.1", answer, record=False)
        assert verdict.kind == "wrong type"
        assert said in verdict.says


@needs_torch
def test_numbers_may_come_as_tensors_of_any_kind():
    assert check("E1.1", torch.tensor([0, 0, 2, -1, 0], dtype=torch.bfloat16), record=False)
    assert check("E1.1", list(torch.tensor([0.0, 0, 2, -1, 0], requires_grad=True)), record=False)


def test_prints_come_back_after_a_check_that_was_left_behind(monkeypatch, capsys):
    monkeypatch.setattr("qkvlib.book.exercises.SECONDS", 0.1)

    def sleeping(x, back):
        time.sleep(1.5)

    assert check("E1.3", sleeping, record=False).kind == "out of time"
    print("visible")
    assert capsys.readouterr().out == "visible\n"


def test_a_right_answer_may_be_slow():
    def one_by_one(n_query, n_key):
        rows = [[j <= i + n_key - n_query for j in range(n_key)] for i in range(n_query)]
        return np.array(rows)

    verdict = check("E3.5", one_by_one, record=False)
    assert verdict.kind == "right, but"
    assert "slow" in verdict.says
    assert check("E3.5", lambda m, n: np.tri(m, n, n - m, dtype=bool), record=False).kind == "right"


def test_arguments_may_be_taken_by_other_names_or_by_name_alone():
    solution = find("E1.6").solution
    assert check("E1.6", lambda w, limit=0.05: solution(w, limit), record=False)
    assert check("E1.6", lambda *, weights, least=0.05: solution(weights, least), record=False)


def test_what_a_function_prints_or_warns_is_not_shown(capsys, recwarn):
    def loud(x, back):
        print("here")
        np.array([1.0]) / np.array([0.0])
        return find("E1.3").solution(x, back)

    assert check("E1.3", loud, record=False)
    assert capsys.readouterr().out == ""
    assert not recwarn.list


def test_a_verdict_in_a_notebook_is_safe_and_marks_code():
    says = "`x < 1` & <b>"
    page = Verdict("E1.1", "wrong", says, (("<i>", "<script>"),))._repr_html_()
    assert "<code>x &lt; 1</code> &amp; &lt;b&gt;" in page
    assert "<script>" not in page
    assert "<i>" not in page


def test_hints_come_one_at_a_time(monkeypatch):
    monkeypatch.setattr("qkvlib.book.exercises._hints_given", {})
    hints = find("E1.1").hints
    for number, text in enumerate(hints, start=1):
        text_of = hint("E1.1")
        assert (
            repr(text_of)
            == text_of._repr_markdown_()
            == f"E1.1, hint {number} of {len(hints)}: {text}"
        )
    assert "those were all the hints" in hint("E1.1")
    assert "hint 1 of" in hint("E1.1")


def test_an_exercise_is_found_by_its_id():
    assert find("1.3") is find(" e1.3 ") is EXERCISES["E1.3"]
    with pytest.raises(ValueError, match=r"id must be that of an exercise, E1\.1 to .*'E9\.9'"):
        find("E9.9")
    with pytest.raises(TypeError, match="id must be a string"):
        find(1.3)


def test_progress_is_kept_for_readers_alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QKVLIB_PROGRESS", "")
    check("E1.2", "c")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("QKVLIB_PROGRESS")
    monkeypatch.setenv("CI", "true")
    check("E1.2", "c")
    assert list(tmp_path.iterdir()) == []

    monkeypatch.delenv("CI")
    check("E1.1", ...)
    assert list(tmp_path.iterdir()) == []  # nothing was attempted
    check("E1.2", "c", record=False)
    check("E1.5", "a")
    check("E1.2", "c")
    check("E1.2", "a")  # once right, always right
    [file] = tmp_path.iterdir()
    assert file.name == _progress.FILE
    assert json.loads(file.read_text(encoding="utf-8")) == {"E1.2": "right", "E1.5": "tried"}
    line = repr(progress()).splitlines()[1].split()
    assert line == ["chapter", "1", "1", str(len(chapters()[1].EXERCISES)), "E1.5"]
    assert len(repr(progress()).splitlines()) == 1 + len(chapters())
    assert repr(progress(1)).splitlines()[1].split() == line
    with pytest.raises(ValueError, match=r"chapter must be one of 1.*got 99"):
        progress(99)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_a_file_that_cannot_be_read_is_none(monkeypatch, tmp_path, text):
    monkeypatch.setenv("QKVLIB_PROGRESS", str(tmp_path / "progress.json"))
    (tmp_path / "progress.json").write_text(text, encoding="utf-8")
    assert _progress.load() == {}
    check("E1.2", "c")
    assert _progress.load() == {"E1.2": "right"}
