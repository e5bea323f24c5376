"""How a benchmark is measured: side by side with its rival, in turns, in one process.

On a busy machine a time by itself means nothing. So the rival runs before each of our rounds, and
what counts is the ratio of the two medians. `run.py bench` runs these files and prints the table.
"""

import time
from statistics import median

import pytest


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where torch computes")


def pytest_collection_modifyitems(config, items):
    """On an accelerator only what computes there: the benchmarks that ask for `device`."""
    if config.getoption("--device") != "cpu":
        items[:] = [item for item in items if "device" in item.fixturenames]


@pytest.fixture
def device(request):
    return request.config.getoption("--device")


@pytest.fixture
def compare(benchmark):
    """Time `ours` and `rival` in turns: `compare(row, ours, rival, reach=, aim=, rounds=, calls=)`.

    The row of the table gets the ratio of the medians, `ours / rival`; both are called once
    before, to warm up. reach: the ratio that must not be exceeded; aim: a better one, hoped for.
    calls: how many make one turn; of a short call one alone would mostly show how long it takes to
    drive the other side's numbers out of the processor's cache.
    """

    def compare(row, ours, rival, *, reach, aim=None, rounds=15, calls=1):
        rivals_times = []

        def our_turn():
            for _ in range(calls):
                ours()

        def rivals_turn():
            start = time.perf_counter()
            for _ in range(calls):
                rival()
            rivals_times.append(time.perf_counter() - start)

        ours()
        rival()
        benchmark.pedantic(our_turn, setup=rivals_turn, rounds=rounds)
        ratio = benchmark.stats.stats.median / median(rivals_times)
        benchmark.extra_info.update(row=row, value=ratio, reach=reach, aim=aim, unit="times")

    return compare


@pytest.fixture
def record(benchmark):
    """Keep what `measure()` returns, a number, as a row: `record(row, measure, reach=, unit=)`.

    For memory, and for how a time grows; `measure` runs once.
    """

    def record(row, measure, *, reach, unit, aim=None):
        value = benchmark.pedantic(measure, rounds=1)
        benchmark.extra_info.update(row=row, value=value, reach=reach, aim=aim, unit=unit)

    return record
