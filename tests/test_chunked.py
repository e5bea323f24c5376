"""Chunked attention: the same numbers, no dead chunk visited, memory that grows with the length."""

import math
import threading
import time
import tracemalloc
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import reference
from test_attention import MASKS, OPTIONS, SHAPES, in_twin, rounded, two_axes
from twins import BACKENDS, assert_near, back, torch

from qkvlib.numpy import _threads, chunked_attention
from qkvlib.patterns import Pattern, causal, window

NUMPY, *_ = BACKENDS
needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


def drawn(lead=(2, 3), n_query=4, n_key=5):
    """Sizes all different: batch 2, heads 3, d_k 7, d_v 6."""
    generator = np.random.default_rng(20)
    return [generator.normal(size=(*lead, *s)) for s in ((n_query, 7), (n_key, 7), (n_key, 6))]


SPARSE = Pattern(lambda i, j: (i - j) % 7 == 0)  # reaches everywhere, so every chunk has a mask
LONG = {"all": None, "causal": causal, "window": window(256), "every seventh": SPARSE}


# ---- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_any_mask_and_option(twin, mask, options):
    qkv = drawn()
    _, weights, output = reference.attention(*twin.rounded(*qkv), mask, **rounded(twin, options))
    options = in_twin(twin, options) | {"mask": None if mask is None else twin.array(mask)}
    for chunk_size in (1, 2, 3, 9):
        found = twin.lib.chunked_attention(*twin.arrays(*qkv), **options, chunk_size=chunk_size)
        assert_near(found, output, dtype=twin.dtype)
        assert (back(found) == 0)[(weights == 0).all(axis=-1)].all()


PATTERNS = {
    "causal": causal,
    "window": window(3),
    "causal window": causal & window(3),
    "not causal": ~causal,
    "shifted": causal.shifted(-4),
    "even keys": Pattern(lambda i, j: j % 2 == 0),
}


@pytest.mark.parametrize("sizes", [(11, 11), (7, 12), (12, 7), (1, 9)], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_patterns(exact, pattern, sizes):
    query, key, value = qkv = drawn((3,), *sizes)
    _, _, output = reference.attention(query, key, value, pattern.array(*sizes))
    for chunk_size in (1, 3, 4, 512):
        found = exact.lib.chunked_attention(
            *exact.arrays(*qkv), mask=pattern, chunk_size=chunk_size
        )
        assert_near(found, output)


def test_a_pattern_joined_to_an_array(exact):
    qkv = drawn((2, 3), 6, 8)
    padding = np.arange(8) < np.array([8, 5])[:, None, None, None]
    _, _, output = reference.attention(*qkv, padding & causal.array(6, 8))
    mask = causal & exact.array(padding)
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask, chunk_size=3)
    assert_near(found, output)


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_leading_axes_broadcast(exact, generator, shapes, masked):
    qkv = [generator.normal(size=shape) for shape in shapes]
    mask = two_axes()[: shapes[0][-2], : shapes[1][-2]] if masked else None
    _, _, output = reference.attention(*qkv, mask)
    mask = exact.array(mask) if masked else None
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask, chunk_size=2)
    assert_near(found, output)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_mask_may_have_as_many_axes_as_the_scores(exact, generator, shapes):
    qkv = [generator.normal(size=shape) for shape in shapes]
    lead = np.broadcast_shapes(*(shape[:-2] for shape in shapes[:2]))
    mask = generator.random((*lead, shapes[0][-2], shapes[1][-2])) < 0.7
    _, _, output = reference.attention(*qkv, mask)
    mask = exact.array(mask)
    assert_near(exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask, chunk_size=2), output)


@pytest.mark.parametrize("mask", LONG.values(), ids=LONG)
def test_many_chunks_of_the_default_size(exact, mask):
    query, key, value = qkv = drawn((3,), 700, 1300)
    powers = np.exp(query @ key.swapaxes(-2, -1) / math.sqrt(7))
    powers = powers if mask is None else powers * mask.array(700, 1300)
    output = powers / powers.sum(-1, keepdims=True) @ value
    assert_near(exact.lib.chunked_attention(*exact.arrays(*qkv), mask=mask), output)


@pytest.mark.parametrize("step", [4.0, -4.0, 400.0, -400.0])
def test_when_the_highest_score_comes_makes_no_difference(twin, step):
    """Rising scores rescale what was summed with every chunk, falling ones never.

    exp(800), the factor by which a chunk of falling scores would be smaller, is infinite.
    """
    key = step * np.arange(9)[:, None]
    qkv = np.array([[1.0], [-1.0]]), key, np.random.default_rng(1).normal(size=(9, 3))
    _, _, output = reference.attention(*twin.rounded(*qkv))
    found = twin.lib.chunked_attention(*twin.arrays(*qkv), chunk_size=2)
    assert_near(found, output, dtype=twin.dtype)


def test_scores_as_far_apart_as_the_dtype_allows(twin):
    """Their difference is infinite."""
    largest = {"float16": 6e4}.get(twin.dtype, 1.5e308 if twin.dtype == "float64" else 3e38)
    key = np.array([[-largest], [largest], [-largest], [largest]])
    qkv = twin.arrays(np.ones((1, 1)), key, np.array([[1.0], [2.0], [3.0], [4.0]]))
    found = twin.lib.chunked_attention(*qkv, chunk_size=1)
    assert back(found).tolist() == [[3.0]]


def test_the_first_chunks_may_hold_nothing(exact):
    """-inf minus -inf is NaN: a row whose keys come late, and one that has none."""
    qkv = drawn((3,), 4, 8)
    mask = np.ones((4, 8), dtype=bool)
    mask[1, :5] = mask[2] = mask[3, 2:] = False
    _, _, output = reference.attention(*qkv, mask)
    found = exact.lib.chunked_attention(*exact.arrays(*qkv), mask=exact.array(mask), chunk_size=2)
    assert_near(found, output)
    assert (back(found)[..., 2, :] == 0).all()


@pytest.mark.parametrize("filling", [math.nan, math.inf, -math.inf])
def test_what_nobody_may_read_may_hold_anything(exact, filling):
    query, key, value = drawn((2, 3), 6, 8)
    mask = np.tri(6, 8, dtype=bool)  # keys 6 and 7 are read by nobody
    _, _, output = reference.attention(query, key, value, mask)
    key[..., 6:, :] = value[..., 6:, :] = filling
    qkv = exact.arrays(query, key, value)
    for options in (
        {"mask": exact.array(mask)},
        {"mask": causal.shifted(-2)},
        {"bias": exact.array(np.where(mask, 0, -math.inf))},
    ):
        assert_near(exact.lib.chunked_attention(*qkv, **options, chunk_size=4), output)


def test_a_bias_that_is_minus_infinity_once_cast_forbids(twin):
    """finfo.min of float64, a usual stand-in for -inf, does not fit float32."""
    if twin.device == "mps":
        pytest.skip("no float64 there")
    query, key, value = drawn()
    key[..., 2, :] = value[..., 2, :] = math.nan
    bias = np.zeros((4, 5))
    bias[:, 2] = np.finfo(float).min
    found = twin.lib.chunked_attention(
        *twin.arrays(query, key, value), bias=twin.array(bias, "float64"), chunk_size=2
    )
    assert np.isfinite(back(found)).all() == (twin.computed == "float32")


def test_chunk_size_must_be_a_whole_number(backend):
    qkv = backend.arrays(*drawn())
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (None, TypeError)):
        with pytest.raises(error, match="chunk_size must be"):
            backend.lib.chunked_attention(*qkv, chunk_size=wrong)


def test_mask_and_bias_must_fit(backend):
    """Also where nothing is visited: where there is no query, where a pattern reaches nothing."""
    for n_query, mask in ((4, None), (0, None), (4, causal.shifted(-9))):
        qkv = backend.arrays(*drawn((2, 3), n_query, 5))
        for wrong, error, message in (
            ({"mask": np.ones((n_query, 6), bool)}, ValueError, "mask must broadcast to the"),
            ({"mask": np.ones((2, n_query, 5), bool)}, ValueError, "mask must have 2 axes"),
            ({"mask": np.ones((n_query, 5))}, TypeError, "mask must be a Boolean"),
            ({"bias": np.ones((n_query, 6))}, ValueError, "bias must broadcast to the scores"),
            ({"bias": np.ones((n_query, 5), bool)}, TypeError, "bias must be floating"),
        ):
            options = {"mask": mask} | in_twin(backend, wrong)
            with pytest.raises(error, match=message):
                backend.lib.chunked_attention(*qkv, **options)
    joined = mask & backend.array(np.ones((4, 6), bool))
    with pytest.raises(ValueError, match=r"must end in \(n_query, n_key\) = \(4, 5\)"):
        backend.lib.chunked_attention(*qkv, mask=joined)


# ---- dead chunks are not visited -----------------------------------------------------------------


def visited(twin, qkv, **options):
    """How many scores are computed for each item of the leading axes."""
    return sum(map(math.prod, shapes_of_scores(twin, qkv, **options)))


def shapes_of_scores(twin, qkv, **options):
    """The shapes of the scores that are computed, chunk by chunk."""
    module = import_module(f"{twin.lib.__name__}.attention")
    name = "attention_scores" if twin.is_torch else "_capped"
    product, counted = getattr(module, name), []

    def counting(*inputs, **options):
        scores = product(*inputs, **options)
        counted.append(tuple(scores.shape))
        return scores

    with patch.object(module, name, counting):
        twin.lib.chunked_attention(*twin.arrays(*qkv), **options)
    return counted


# With chunks of 4 keys a block has 2 queries: of 12 there are 6.
VISITS = {
    "all": (None, 12 * 12),
    "causal": (causal, 2 * (2 + 4 + 6 + 8 + 10 + 12)),
    "window": (window(2), 2 * (3 + 4 + 4 + 4 + 4 + 3)),
    "causal window": (causal & window(2), 2 * (2 + 3 + 3 + 3 + 3 + 3)),
    "nothing": (causal.shifted(-100), 0),
}


@pytest.mark.parametrize(("pattern", "scores"), VISITS.values(), ids=VISITS)
def test_a_pattern_tells_which_keys_to_visit(backend, pattern, scores):
    assert visited(backend, drawn((), 12, 12), mask=pattern, chunk_size=4) == scores


@pytest.mark.parametrize(
    ("n_key", "widths"), [(4, [4]), (6, [6]), (7, [4, 3]), (10, [4, 6]), (11, [4, 4, 3])]
)
def test_a_rest_of_at_most_half_a_chunk_is_read_with_the_one_before(backend, n_key, widths):
    mask = backend.array(np.ones((2, n_key), dtype=bool))
    shapes = shapes_of_scores(backend, drawn((), 2, n_key), mask=mask, chunk_size=4)
    assert shapes == [(2, width) for width in widths]


@pytest.mark.parametrize(
    ("chunk_size", "n_key", "widths"),
    [(5, 7, [7]), (5, 8, [5, 3]), (3, 4, [4]), (3, 5, [3, 2]), (1, 3, [1, 1, 1])],
)
def test_half_of_an_odd_chunk_is_rounded_down(backend, chunk_size, n_key, widths):
    mask = backend.array(np.ones((1, n_key), dtype=bool))
    shapes = shapes_of_scores(backend, drawn((), 1, n_key), mask=mask, chunk_size=chunk_size)
    assert shapes == [(1, width) for width in widths]


def test_a_pattern_is_not_asked_about_other_keys(backend):
    asked = []

    def rule(i, j):
        asked.append(i.shape[-2] * j.shape[-1])
        return abs(i - j) < 2

    mask = Pattern(rule, lambda first, last, n_key: [(first - 1, last + 2)])
    backend.lib.chunked_attention(*backend.arrays(*drawn((3,), 12, 12)), mask=mask, chunk_size=4)
    assert sum(asked) == VISITS["window"][1]
    assert max(asked) == 2 * 4


def test_a_pattern_is_not_asked_about_keys_that_are_common(backend):
    asked = []

    def rule(i, j):
        asked.append((i.shape[-2], j.shape[-1]))
        return j <= i

    bounds = causal.reach, causal.common
    mask = Pattern(rule, *bounds)
    backend.lib.chunked_attention(*backend.arrays(*drawn((3,), 12, 12)), mask=mask, chunk_size=4)
    blocks = [n for n in asked if n != (0, 0)]  # once for the sake of errors
    assert blocks == [(2, 2), (2, 4), (2, 6), (2, 4), (2, 6), (2, 4)]


def test_a_chunk_that_an_array_forbids_is_not_visited(backend):
    mask = np.kron(np.eye(3, dtype=bool), np.ones((4, 4), dtype=bool))
    for forbidding in (
        {"mask": backend.array(mask)},
        {"bias": backend.array(np.where(mask, 0, -math.inf))},
    ):
        found = visited(backend, drawn((), 12, 12), chunk_size=4, **forbidding)
        assert found == 12 * 4


def test_the_chunks_of_padding_are_not_visited_for_one_item_alone():
    padding = np.arange(12) < np.array([12, 3])[:, None, None]
    found = visited(NUMPY, drawn((2,), 12, 12), mask=padding, chunk_size=4)
    assert found == 12 * 12 + 12 * 4


# ---- threads -------------------------------------------------------------------------------------


class Blas:
    """Stands for an OpenBLAS of three threads."""

    def __init__(self):
        self.count, self.told = 3, []

    def scipy_openblas_get_num_threads64_(self):
        return self.count

    def scipy_openblas_set_num_threads64_(self, count):
        self.count = count
        self.told.append(count)


@pytest.fixture
def blas():
    made = Blas()
    with patch.object(_threads, "_openblas", lambda: made):
        yield made


def test_the_threads_of_blas_become_threads_of_ours(blas):
    together = threading.Barrier(3, timeout=20)
    done = []

    def function(number):
        assert blas.count == 1
        together.wait()  # goes on only when three are here
        done.append(number)

    _threads.for_each(function, ((number,) for number in range(12)))
    assert sorted(done) == list(range(12))
    assert blas.told == [1, 3]


def test_an_error_in_a_thread_is_an_error_here(blas):
    done = []

    def function(number):
        if number == 4:
            raise RuntimeError("the fifth")
        time.sleep(0.001)
        done.append(number)

    with pytest.raises(RuntimeError, match="the fifth"):
        _threads.for_each(function, ((number,) for number in range(6000)))
    assert len(done) < 5999
    assert blas.told == [1, 3]


def test_a_thread_heeds_what_numpy_was_told_about_errors(blas):
    def function(zero):
        1 / zero

    with np.errstate(divide="ignore"):
        _threads.for_each(function, ((np.zeros(1),) for _ in range(9)))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        _threads.for_each(function, ((np.zeros(1),) for _ in range(9)))


def test_who_comes_while_others_work_works_alone(blas):
    """And does not tell BLAS its own number, which the others would find when they are done."""
    names = set()

    def inner():
        names.add((threading.current_thread().name, blas.count))

    def outer(number):
        names.clear()
        _threads.for_each(inner, (() for _ in range(9)))
        assert names == {(threading.current_thread().name, 1)}

    _threads.for_each(outer, ((number,) for number in range(1)))
    assert blas.told == [1, 3]


@pytest.mark.parametrize("found", [None, 1], ids=["another BLAS", "one thread"])
def test_without_threads_to_share_it_is_done_here(blas, found):
    blas.count = found
    here = []
    with patch.object(_threads, "_openblas", lambda: found and blas):
        _threads.for_each(lambda: here.append(threading.current_thread()), (() for _ in range(3)))
    assert here == 3 * [threading.main_thread()]


def test_threads_change_no_number(blas):
    qkv = drawn((2, 3), 40, 50)
    options = {"mask": causal & (np.arange(50) > 2)[None], "chunk_size": 4}
    shared = chunked_attention(*qkv, **options)
    blas.count = 1
    np.testing.assert_array_equal(shared, chunked_attention(*qkv, **options))
    assert blas.told == [1, 3, 1, 1]


WHEEL = list(Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"))


@pytest.mark.skipif(not WHEEL, reason="this NumPy has another BLAS, or keeps it elsewhere")
def test_the_blas_of_numpy_is_told():
    """Whatever its number was: the environment may have set it to one."""
    real = _threads._openblas()
    count = real.scipy_openblas_get_num_threads64_()
    try:
        real.scipy_openblas_set_num_threads64_(2)
        with _threads._threads_of_blas() as threads:
            assert threads == 2
            assert real.scipy_openblas_get_num_threads64_() == 1
        assert real.scipy_openblas_get_num_threads64_() == 2
    finally:
        real.scipy_openblas_set_num_threads64_(count)


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", LONG.values(), ids=LONG)
def test_memory_grows_with_the_length_in_numpy(mask):
    def peak(n):
        """What is needed beside inputs and output, in bytes."""
        query, key, value = np.random.default_rng(0).random((3, n, 8), dtype=np.float32)
        tracemalloc.start()
        output = chunked_attention(query, key, value, mask=mask)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most - output.nbytes

    scores = 4096**2 * 4
    assert peak(4096) < scores / 8
    assert peak(4096) < 2.2 * peak(2048)


@needs_torch
@pytest.mark.parametrize("mask", LONG.values(), ids=LONG)
def test_memory_grows_with_the_length_in_torch(mask):
    """Forward and backward, counted on a device where nothing is computed."""

    def peak(n):
        """What is needed beside inputs, output and gradients, in bytes."""
        qkv = [torch.zeros(3, n, 8, device="meta", requires_grad=True) for _ in range(3)]
        bias = torch.zeros(n, n, device="meta")  # does not learn, so it has no gradient
        with storages_counted([*qkv, bias]) as memory:
            output = lib_of_torch().chunked_attention(*qkv, mask=mask, bias=bias, chunk_size=128)
            output.sum().backward()
        return memory.peak - 4 * output.untyped_storage().nbytes()

    scores = 3 * 768**2 * 4
    assert peak(768) < scores / 5
    assert peak(768) < 2.2 * peak(384)


def storages_counted(given):
    """A context with `peak`, the most bytes held at a time by tensors made in it, not `given`."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakIdKeyDictionary

    known = WeakIdKeyDictionary({x.untyped_storage(): None for x in given})

    class Counted(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.alive, self.peak = WeakIdKeyDictionary(), 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            for x in tree_leaves(made):
                if isinstance(x, torch.Tensor) and x.untyped_storage() not in known:
                    self.alive[x.untyped_storage()] = x.untyped_storage().nbytes()
            self.peak = max(self.peak, sum(self.alive.values()))
            return made

    return Counted()


# ---- gradients -----------------------------------------------------------------------------------


def lib_of_torch():
    return BACKENDS[-1].lib


def leaves(arrays):
    return [torch.tensor(x, requires_grad=True) for x in arrays]


def gradients(function, inputs, bias, **options):
    """The gradients of some loss with regard to query, key, value and, if there is one, bias."""
    output = function(*inputs, bias=bias, **options)
    of_output = torch.tensor(np.random.default_rng(3).normal(size=output.shape))
    return torch.autograd.grad(output, inputs if bias is None else [*inputs, bias], of_output)


@needs_torch
def test_gradients_at_large_scores_that_are_alike():
    """Whole numbers, so that no score is rounded: each key has the same weight, 1 in 3."""
    query, key = torch.full((2, 4), 1000.0), torch.full((3, 4), 1000.0)
    value = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    found = BACKENDS[-1].lib.chunked_attention(query, key, value, mask=window(9), chunk_size=2)
    (of_value,) = torch.autograd.grad(found.sum(), value)
    assert_near(of_value, np.full((3, 1), 2 / 3))


@needs_torch
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mask", [*MASKS.values(), causal], ids=[*MASKS, "causal"])
def test_gradients_are_those_of_the_weights(mask, options):
    lib, twin = lib_of_torch(), BACKENDS[-1]
    bias = options.get("bias")
    bias = None if bias is None else leaves([bias])[0]
    options = {k: v for k, v in options.items() if k != "bias"}
    options["mask"] = twin.array(mask) if isinstance(mask, np.ndarray) else mask
    inputs = leaves(drawn())
    expected = gradients(
        lambda q, k, v, **options: lib.attention_weights(q, k, **options) @ v,
        inputs,
        bias,
        **options,
    )
    for chunk_size in (2, 3):
        found = gradients(lib.chunked_attention, inputs, bias, **options, chunk_size=chunk_size)
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


@needs_torch
@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"scale": -0.3}], ids=str)
@pytest.mark.parametrize("mask", [two_axes(), causal, window(2)], ids=["array", "causal", "window"])
def test_against_finite_differences(mask, options):
    """Once and twice: also what the backward pass computes has gradients."""
    mask = torch.tensor(mask) if isinstance(mask, np.ndarray) else mask
    inputs = leaves([*(x[0, :2, :, :2] for x in drawn()), np.array([[[0.5]], [[-0.3]]])])

    def attend(query, key, value, bias):
        return lib_of_torch().chunked_attention(
            query, key, value, mask=mask, bias=bias, chunk_size=3, **options
        )

    assert torch.autograd.gradcheck(attend, inputs)
    assert torch.autograd.gradgradcheck(attend, [x[:1].detach().requires_grad_() for x in inputs])


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("filling", [math.nan, math.inf, 1e4])
def test_what_cannot_be_reached_has_gradient_zero(dtype, filling):
    query, key, value = drawn()
    key[..., 2, :] = value[..., 2, :] = filling
    [*inputs, bias] = leaves([query, key, value, np.zeros((4, 5))])
    inputs = [x.detach().to(getattr(torch, dtype)).requires_grad_() for x in inputs]
    output = lib_of_torch().chunked_attention(
        *inputs, mask=torch.tensor(two_axes()), bias=bias, chunk_size=3
    )
    assert output.isfinite().all()
    output.square().sum().backward()
    for x in (*inputs, bias):
        assert x.grad.dtype == x.dtype
        assert x.grad.isfinite().all()
        assert x.grad.abs().max() > 0
    query, key, value = (x.grad for x in inputs)
    for nothing in (query[..., 1, :], key[..., 2, :], value[..., 2, :], bias.grad[1]):
        assert (nothing == 0).all()


@needs_torch
def test_what_many_blocks_say_is_added_up_in_float32():
    """A block of a single query each; in float16 the sum would stay at 2048."""
    query, key, value, bias = (torch.zeros(n, 1).half() for n in (101, 1, 1, 1))
    value.requires_grad_()
    output = lib_of_torch().chunked_attention(query, key, value, bias=bias, chunk_size=1)
    output.backward(torch.tensor([[2048.0], *[[1.0]] * 100]).half())
    assert value.grad.item() == 2148


@needs_torch
def test_autocast_has_its_own_rules():
    """Inputs and output in its dtype, what is between in float32: also on the way back."""
    lib = lib_of_torch()
    inputs = [x.detach().float().requires_grad_() for x in leaves(drawn())]
    query, key, value = inputs
    for options in ({}, {"softcap": 3.0, "mask": causal, "bias": torch.zeros(5)}):
        options["chunk_size"] = 2
        expected = lib.chunked_attention(*(x.bfloat16() for x in inputs), **options)
        wanted = torch.autograd.grad(expected.float().cos().sum(), inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = lib.chunked_attention(*inputs, **options)
            mixed = lib.chunked_attention(query, key.bfloat16(), value, **options)
            got = torch.autograd.grad(found.float().cos().sum(), inputs)
        assert expected.dtype == torch.bfloat16
        for x, y in zip([found, mixed, *got], [expected, expected, *wanted], strict=True):
            assert torch.equal(x, y)


@needs_torch
def test_transforms_of_functions():
    """torch.func's and vmap see through it, forward-mode derivatives excepted."""
    lib = lib_of_torch()
    query, key, value = (torch.tensor(x) for x in drawn())
    mask = torch.tensor(two_axes())

    def chunked(q, k, v, mask):
        return lib.chunked_attention(q, k, v, mask=mask, softcap=2.0, chunk_size=3)

    def whole(q, k, v, mask):
        return lib.scaled_dot_product_attention(q, k, v, mask=mask, softcap=2.0)

    def slope(attend):
        return torch.func.grad(lambda *x: attend(*x, mask).cos().sum(), argnums=(0, 1, 2))

    def curvature(attend):
        return torch.func.grad(lambda q: slope(attend)(q, key, value)[1].sum())

    def every_head(attend):
        return torch.vmap(torch.vmap(attend, (0, 0, 0, None)), (0, 0, 0, None))

    for transformed in (
        lambda attend: every_head(attend)(query, key, value, mask),
        lambda attend: torch.vmap(attend, (1, None, None, None))(
            query, key[:, 0], value[:, 0], mask
        ),
        lambda attend: torch.vmap(attend, (None, None, None, 0))(
            query, key, value, torch.stack([mask, ~mask, mask])
        ),
        lambda attend: slope(attend)(query, key, value),
        lambda attend: torch.vmap(slope(attend))(query, key, value),
        lambda attend: curvature(attend)(query),
        lambda attend: torch.func.jacrev(attend)(query[0, 0], key[0, 0], value[0, 0], mask),
    ):
        found, expected = transformed(chunked), transformed(whole)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@needs_torch
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by dynamo
@pytest.mark.parametrize("mask", [two_axes(), causal], ids=["array", "pattern"])
def test_it_compiles_in_one_piece(mask):
    mask = torch.tensor(mask) if isinstance(mask, np.ndarray) else mask

    def attend(*qkv):
        return lib_of_torch().chunked_attention(*qkv, mask=mask, softcap=2.0, chunk_size=3)

    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    inputs = leaves(drawn())
    expected, found = attend(*inputs), compiled(*inputs)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.cos().sum(), inputs) for x in (found, expected)]
    torch.testing.assert_close(*gradients)
    torch.compiler.reset()


@needs_torch
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by dynamo
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_it_takes_texts_of_any_length():
    def attend(*qkv):
        return lib_of_torch().chunked_attention(*qkv, mask=causal & window(3), chunk_size=3)

    compiled = torch.compile(attend, backend="aot_eager")
    for n in (4, 5, 9):  # from the second on torch takes the length for a variable
        inputs = leaves(drawn((2,), n, n))
        expected, found = attend(*inputs), compiled(*inputs)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(x.cos().sum(), inputs) for x in (found, expected)]
        torch.testing.assert_close(*gradients)
    torch.compiler.reset()


# ---- torch's fused kernel ------------------------------------------------------------------------

FUSED = {
    "all": ({}, (2, 3, 4, 6), (2, 3, 5, 6)),
    "causal": ({"mask": causal}, (3, 5, 6), (3, 5, 6)),
    "no leading axes": ({"scale": 0.3}, (4, 6), (5, 6)),
    "five axes": ({}, (2, 1, 3, 4, 6), (2, 3, 5, 6)),
}
NOT_FUSED = {
    "causal, more keys": ({"mask": causal}, (3, 4, 6), (3, 5, 6)),
    "pattern": ({"mask": window(2)}, (3, 5, 6), (3, 5, 6)),
    "array": ({"mask": np.ones((5, 5), bool)}, (3, 5, 6), (3, 5, 6)),
    "bias": ({"bias": np.zeros((5, 5))}, (3, 5, 6), (3, 5, 6)),
    "softcap": ({"softcap": 2.0}, (3, 5, 6), (3, 5, 6)),
    "other width": ({}, (3, 5, 7), (3, 5, 7)),
}


def calls_of_the_kernel(qkv, options):
    kernel = torch.nn.functional.scaled_dot_product_attention
    with patch.object(torch.nn.functional, kernel.__name__, wraps=kernel) as wrapped:
        lib_of_torch().chunked_attention(*qkv, **options)
    return [call.args for call in wrapped.call_args_list]


@needs_torch
@pytest.mark.parametrize(("options", "query", "key"), FUSED.values(), ids=FUSED)
def test_the_kernel_is_used_when_it_keeps_no_scores(options, query, key):
    """And is one that keeps none, so torch says itself."""
    generator = np.random.default_rng(6)
    qkv = leaves([generator.normal(size=shape) for shape in (query, key, key)])
    [given] = calls_of_the_kernel(qkv, options)
    is_causal = "mask" in options
    chosen = torch._fused_sdp_choice(*given, is_causal=is_causal)
    assert chosen != torch.nn.attention.SDPBackend.MATH.value
    lib = lib_of_torch()
    expected = lib.attention_weights(*qkv[:2], **options) @ qkv[2]
    found = lib.chunked_attention(*qkv, **options)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.cos().sum(), qkv) for x in (found, expected)]
    torch.testing.assert_close(*gradients)


@needs_torch
@pytest.mark.parametrize(("options", "query", "key"), NOT_FUSED.values(), ids=NOT_FUSED)
def test_the_kernel_is_not_used_when_it_would_need_scores_or_mask(options, query, key):
    generator = np.random.default_rng(6)
    qkv = [torch.tensor(generator.normal(size=shape)) for shape in (query, key, key)]
    qkv[2] = qkv[2][..., :6]
    assert calls_of_the_kernel(qkv, in_twin(BACKENDS[-1], options)) == []


@needs_torch
def test_the_kernel_is_not_used_when_it_is_switched_off_or_not_known_to_fit():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    qkv = leaves(drawn())
    qkv[2] = torch.cat([qkv[2], qkv[2][..., :1]], dim=-1)
    assert len(calls_of_the_kernel(qkv, {})) == 1
    with sdpa_kernel(SDPBackend.MATH):
        assert calls_of_the_kernel(qkv, {}) == []
    assert calls_of_the_kernel([x.mT.contiguous().mT for x in qkv], {}) == []
    assert calls_of_the_kernel([x.to("meta") for x in qkv], {}) == []
