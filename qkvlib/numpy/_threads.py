"""Work for all cores: one Python thread for each, and a BLAS that does not split its products."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

_one_at_a_time = Lock()


def for_each(function, items):
    """Call `function(*item)` for each item of the generator `items`, in any order.

    As many threads share them as NumPy's BLAS may use (OPENBLAS_NUM_THREADS says how many), while
    BLAS itself keeps to one: threads that split their products again would wait for each other.
    A BLAS that cannot be told so is left alone, and then one thread does it all.
    """
    taking = Lock()

    def work():
        try:
            while True:
                with taking:
                    item = next(items, None)
                if item is None:
                    return
                function(*item)
        finally:
            with taking:
                items.close()  # after an error or an interrupt nobody takes another one

    with _threads_of_blas() as count:
        if count == 1:
            return work()
        with ThreadPoolExecutor(count - 1) as pool:
            helpers = [pool.submit(copy_context().run, work) for _ in range(count - 1)]
            work()
            for helper in helpers:
                helper.result()


@contextmanager
def _threads_of_blas():
    """How many threads BLAS would use. Until the end of the `with` block it uses one."""
    blas = _openblas()
    if blas is None or not _one_at_a_time.acquire(blocking=False):
        yield 1
        return
    count = blas.scipy_openblas_get_num_threads64_()
    try:
        blas.scipy_openblas_set_num_threads64_(1)
        yield count
    finally:
        blas.scipy_openblas_set_num_threads64_(count)
        _one_at_a_time.release()


@cache
def _openblas():
    """The OpenBLAS that NumPy's wheels bring along, if this is one of them."""
    folder = Path(np.__file__).parent
    for path in (*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None
