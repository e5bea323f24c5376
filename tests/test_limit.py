"""Code that does not end is stopped, and nothing that comes late reaches the caller."""

import _thread
import gc
import itertools
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from qkvlib.book.exercises import _limit
from qkvlib.book.exercises._limit import OutOfTime, limited


def no_threads(*_):
    raise RuntimeError("can't start new thread")


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(_limit, "_PATIENCE", 0.08)
    monkeypatch.setattr(_limit, "_patience", ContextVar("patience", default=0.08))


@pytest.fixture(params=["threads", "tracing"])
def way(request, monkeypatch):
    """Both ways to stop code; afterwards neither a trace function nor a thread is left."""
    trace, threads = sys.gettrace(), _thread._count()
    if request.param == "tracing":
        monkeypatch.setattr(_thread, "start_new_thread", no_threads)
    yield request.param
    assert sys.gettrace() is trace
    assert soon(lambda: _thread._count() <= threads)


def soon(condition):
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


# fmt: off
def one_line():
    while True: pass  # noqa: E701
# fmt: on


def nested():
    def inner():
        one_line()

    inner()


def comprehension():
    return [n for n in itertools.count() if n < 0]


def generator():
    def numbers():
        while True:
            yield 1

    return sum(numbers())


def recursion():
    while True:
        try:  # noqa: SIM105
            recursion()
        except RecursionError:
            pass


def bare_except():
    n = 0
    while True:
        try:  # noqa: SIM105
            n += 1
        except:  # noqa: E722
            pass


def bare_except_around_calls():
    while True:
        try:  # noqa: SIM105
            time.sleep(0.001)
        except:  # noqa: E722
            pass


def loop_in_the_handler():
    try:
        one_line()
    except BaseException as error:
        kept = error
        one_line()
        raise kept from None


ENDLESS = [
    one_line,
    nested,
    comprehension,
    generator,
    recursion,
    bare_except,
    bare_except_around_calls,
    loop_in_the_handler,
]


@pytest.mark.parametrize("function", ENDLESS)
def test_what_does_not_end_is_stopped(way, function):
    with pytest.raises(OutOfTime, match=r"not ended after 0\.05 seconds"):
        limited(function, 0.05)
    assert sys.exc_info() == (None, None, None)


def test_what_ends_is_returned_or_raised(way):
    assert limited(lambda: [n * n for n in range(4)], 5) == [0, 1, 4, 9]
    for error in ValueError("own"), KeyboardInterrupt(), SystemExit(3), OutOfTime("own"):

        def fail(error=error):
            raise error

        with pytest.raises(type(error)) as caught:
            limited(fail, 5)
        assert caught.value is error


def test_except_exception_lets_it_pass(way):
    swallowed = []

    def function():
        try:
            one_line()
        except Exception as error:
            swallowed.append(error)

    with pytest.raises(OutOfTime):
        limited(function, 0.05)
    assert not swallowed


def test_finally_blocks_are_run_in_peace(way):
    steps = []

    def function():
        try:
            one_line()
        finally:
            for step in range(50):
                steps.append(step)

    with pytest.raises(OutOfTime):
        limited(function, 0.05)
    assert steps == list(range(50))


def test_it_works_in_another_thread(way):
    seen = []

    def caller():
        try:
            limited(bare_except, 0.05)
        except OutOfTime:
            seen.append("stopped")

    thread = threading.Thread(target=caller)  # it has its own name for start_new_thread
    thread.start()
    thread.join(5)
    assert seen == ["stopped"]


def test_the_inner_limit_leaves_the_outer_one_alone(way):
    def function():
        with pytest.raises(OutOfTime, match=r"0\.05"):
            limited(one_line, 0.05)
        return "went on"

    assert limited(function, 5) == "went on"


def test_the_outer_limit_stops_what_an_inner_one_allows(way):
    start = time.monotonic()
    with pytest.raises(OutOfTime):
        limited(lambda: limited(bare_except_around_calls, 60), 0.1)
    assert time.monotonic() - start < 5


def test_the_outer_limit_goes_on_after_an_inner_one(way):
    def function():
        try:
            limited(one_line, 0.02)
        except OutOfTime:
            one_line()

    with pytest.raises(OutOfTime, match=r"0\.1"):
        limited(function, 0.1)


def test_nothing_comes_late(way):
    """Functions that end right at their limit: the caller is hit inside `limited` or never."""
    seconds = 0.0005
    # surely in time, about the limit, surely too long (a thread that computes gives way after 5 ms)
    shares = [0, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 40]
    ends = []
    for n in range(800):
        stop = time.monotonic() + seconds * shares[n % 10]

        def function(stop=stop):
            while time.monotonic() < stop:
                pass
            return n  # noqa: B023

        try:
            ends.append(limited(function, seconds) == n)
        except OutOfTime:
            ends.append(None)
        for _ in range(20):  # where a late one would come out
            pass
    assert None in ends
    assert True in ends
    assert False not in ends


def test_a_sleep_is_left_behind():
    start = time.monotonic()
    with pytest.raises(OutOfTime):
        limited(lambda: time.sleep(0.9), 0.05)
    assert time.monotonic() - start < 0.8
    before = _thread._count()
    assert soon(lambda: _thread._count() < before)  # awake, it ends


def test_interrupting_the_caller_stops_the_function():
    threads = _thread._count()
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        limited(bare_except_around_calls, 60)
    timer.join()
    assert soon(lambda: _thread._count() <= threads)


def test_context_variables_are_the_callers():
    variable = ContextVar("variable")
    variable.set("caller's")
    assert limited(variable.get, 5) == "caller's"


def test_a_trace_function_is_restored(monkeypatch):
    def trace(frame, event, arg):
        return None

    monkeypatch.setattr(_thread, "start_new_thread", no_threads)
    former = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(OutOfTime):
            limited(bare_except, 0.05)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(former)


def test_recursion_without_end_is_the_functions_own_error(way):
    def deeper():
        return deeper()

    with pytest.raises(RecursionError):
        limited(deeper, 5)
    gc.collect()
