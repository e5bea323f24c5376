"""Code that a learner wrote, stopped when it does not end.

Where there are threads, the function runs in one of its own, and only that thread is ever
interrupted: whatever comes too late dies with it and cannot reach the caller. Where there are
none (Python in a browser), a trace function looks at the clock before every instruction.
"""

import _thread
import contextvars
import dis
import functools
import sys
import time

_PATIENCE = 0.25  # seconds for `finally` blocks, before OutOfTime is raised at every step
_patience = contextvars.ContextVar("patience", default=_PATIENCE)
_end = contextvars.ContextVar("end", default=float("inf"))  # where the limit around this one ends
# Python relies on these not to fail: raised there, an exception stays behind as "being handled"
_HANDLING = {dis.opmap[name] for name in ("PUSH_EXC_INFO", "COPY", "POP_EXCEPT", "RERAISE")}


class OutOfTime(BaseException):
    """Code did not end in time. Not an Exception, so that `except Exception` lets it pass."""


def limited(function, seconds):
    """Call a function, and stop it when it does not end in time.

    function: called without arguments; seconds: how long it may take
    -> what the function returns

    Raises OutOfTime after `seconds`, and whatever the function itself raises. The function is
    left through its `finally` blocks. If it has not ended a quarter of a second later, OutOfTime
    is raised again at every step, so a bare `except:` in a loop does not hold it.

    The function runs in a thread of its own, with the caller's context variables. What belongs
    to one thread, such as `torch.no_grad()`, is therefore written inside it.

    What cannot be stopped is a single call that never comes back to Python. If the call lets
    other threads run, as `time.sleep(1000)` does, OutOfTime is raised half a second late, and
    the call is left behind until it ends. If it does not, as `sum(itertools.count())`, the
    caller waits with it. Without threads the caller waits in both cases, and Python code is
    many times slower.

    >>> limited(lambda: 6 * 7, seconds=5)
    42
    >>> def forever():
    ...     while True: pass
    >>> try:
    ...     limited(forever, seconds=0.1)
    ... except OutOfTime as error:
    ...     print(error)
    not ended after 0.1 seconds
    """
    try:
        return _in_a_thread(function, seconds)
    except _NoThreads:
        pass
    return _traced(function, seconds)


class _NoThreads(Exception):
    """This platform starts no threads."""


class _Leave(OutOfTime, SystemExit):
    """OutOfTime in a thread of ours; as a SystemExit it ends the thread without a message."""


def _in_a_thread(function, seconds):
    """`limited`, where threads can be started.

    `done` is locked until the thread has left the function. `gate` is locked for good from then
    on, and by the caller while it raises something there: the thread cannot end meanwhile, and
    its number cannot become that of another thread.
    """
    results, errors = [], []
    done, gate = _thread.allocate_lock(), _thread.allocate_lock()
    done.acquire()
    patience = _patience.get()
    calm = None

    def work():
        _patience.set(patience / 4)  # a limit inside this one is done before this one insists
        try:
            try:
                results.append(function())
            except BaseException as error:
                errors.append(error)
        finally:  # nothing can be raised before the first call of a block has been made
            try:
                gate.acquire()
            finally:
                try:
                    if calm:
                        calm()
                finally:
                    done.release()

    def ended(seconds):
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            # short waits: not every platform lets Ctrl-C or an outer limit into a long one
            if done.acquire(timeout=min(rest, 0.02)):
                return True
        return done.acquire(blocking=False)

    def stop():
        nonlocal calm
        insisting, calm = _insisting(thread)
        for exception, wait in [(_Leave, patience)] + 10 * [(insisting, patience / 10)]:
            if gate.acquire(blocking=False):
                _raise_in(thread, exception)
                gate.release()
            if ended(wait):
                return

    try:
        thread = _thread.start_new_thread(contextvars.copy_context().run, (work,))
    except RuntimeError as error:
        raise _NoThreads from error
    try:
        if not ended(seconds):
            raise OutOfTime(f"not ended after {seconds} seconds")
    except BaseException:  # KeyboardInterrupt and an outer limit too
        stop()
        raise
    if errors:
        raise errors.pop()
    return results.pop()


def _raise_in(thread, exception):
    """Have an exception class raised at the next step of a thread's Python code."""
    import ctypes  # only here: where there are no threads, it may be missing

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def _insisting(thread):
    """An exception class that, whenever it is raised in the thread, asks to be raised again.

    And a function that ends this: called in the thread, it raises a last _Leave there. A thread
    must not end while something is still to be raised in it: in Python 3.11 the interpreter then
    goes on looking for it, and a debugger's trace function hangs.
    """
    import ctypes

    set_async_exc = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
    set_async_exc.restype = None

    def raise_in_thread(exception):
        return functools.partial(set_async_exc, ctypes.c_ulong(thread), ctypes.py_object(exception))

    class Insisting(_Leave):
        pass

    # no line of Python: it would be the next step, and be hit itself
    Insisting.__init__ = staticmethod(raise_in_thread(Insisting))
    return Insisting, raise_in_thread(_Leave)


def _traced(function, seconds):
    """`limited`, with a trace function that is called before every instruction.

    Only frames that the function makes are traced, and none of this file, so OutOfTime cannot
    hit the caller or the bookkeeping of a limit inside this one.
    """
    former, end = sys.gettrace(), min(time.monotonic() + seconds, _end.get())
    active, patience = True, _PATIENCE

    def enter(frame, event, arg):
        if frame.f_globals is not globals():
            frame.f_trace_opcodes = True
            return _Step(too_deep if _little_stack_left() else step, again)

    def too_deep(again, frame, event, arg):
        if not _is_handling(frame):
            raise RecursionError("maximum recursion depth exceeded")

    def step(again, frame, event, arg):
        nonlocal end, patience
        if active and time.monotonic() > end and not _is_handling(frame):
            end, patience = time.monotonic() + patience, 0  # from the second time on: every step
            raise OutOfTime(f"not ended after {seconds} seconds")

    def again(frame):
        if active and sys.gettrace() is None and frame.f_globals is not globals():
            frame.f_trace, frame.f_trace_opcodes = _Step(step, again), True
            sys.settrace(enter)

    token = _end.set(end)
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks for it before settrace
    try:
        sys.settrace(enter)
        return function()
    finally:
        active = False
        sys.settrace(former)
        _end.reset(token)


def _is_handling(frame):
    return frame.f_code.co_code[frame.f_lasti] in _HANDLING


def _little_stack_left():
    """True where a trace function might itself be what exceeds the recursion limit."""
    try:
        sys._getframe(sys.getrecursionlimit() - 50)
    except ValueError:
        return False
    return True


class _Step(functools.partial):
    """The trace function of one frame, which nothing else holds.

    Python gives up tracing when a trace function raises, and drops the frame's. So this one,
    when it is dropped, begins again. It is no method: the traceback would hold its `self`.
    """

    def __del__(self):
        again = self.args[0]
        again(sys._getframe(1))
