"""`chunked_attention`: NumPy's time against torch's fused kernel, memory of both, and their growth.

Float32, width 64. What inputs, output and gradients take is not counted as memory.
"""

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import torch

import qkvlib.numpy
import qkvlib.torch
from qkvlib.patterns import causal, window

WIDTH = 64


def numpy_qkv(*shape):
    return np.random.default_rng(0).standard_normal((3, *shape, WIDTH), dtype=np.float32)


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2048, 4096])
def bench_numpy(compare, n):
    qkv = numpy_qkv(8, n)
    tensors = [torch.from_numpy(x)[None] for x in qkv]
    compare(
        f"NumPy chunked_attention against torch's fused kernel, 8 heads, n {n}",
        lambda: qkvlib.numpy.chunked_attention(*qkv),
        lambda: torch.nn.functional.scaled_dot_product_attention(*tensors),
        reach=1.5,
        aim=1.3,
    )


@pytest.mark.parametrize("n", [2048, 4096])
def bench_numpy_causal(compare, n):
    qkv = numpy_qkv(8, n)
    compare(
        f"NumPy chunked_attention, causal against all keys, 8 heads, n {n}",
        lambda: qkvlib.numpy.chunked_attention(*qkv, mask=causal),
        lambda: qkvlib.numpy.chunked_attention(*qkv),
        reach=0.65,
    )


def bench_numpy_window(record):
    """In turns, because the machine may be busy now and idle then."""
    lengths = [4096, 8192, 16384, 32768]

    def growth():
        times = {n: [] for n in lengths}
        for _ in range(15):
            for n in lengths:
                qkv = numpy_qkv(1, n)
                start = time.perf_counter()
                qkvlib.numpy.chunked_attention(*qkv, mask=window(256))
                times[n].append(time.perf_counter() - start)
        per_token = [median(times[n]) / n for n in lengths]
        return max(per_token) / per_token[0]

    record(
        "NumPy chunked_attention, window(256), n 4096 to 32768: time per token, largest by first",
        growth,
        reach=1.3,
        unit="times",
    )


# ---- memory --------------------------------------------------------------------------------------


def numpy_memory(n):
    qkv = numpy_qkv(n)
    tracemalloc.start()
    output = qkvlib.numpy.chunked_attention(*qkv)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - output.nbytes


def torch_memory(n, device):
    """Forward and backward in a process of its own, whose peak is told by the system.

    There C's allocator takes each block from the system and gives it back at once, which is slow:
    otherwise it keeps pages for later, more at one time than at another.
    """
    if device == "cpu" and not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux forgets an earlier peak")
    command = [sys.executable, "-c", MEASURE_TORCH, str(n), device]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | KEEPS_NOTHING
    )
    return int(done.stdout)


KEEPS_NOTHING = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}  # of glibc

MEASURE_TORCH = f"""
import sys
from pathlib import Path

import torch
from qkvlib.torch import chunked_attention

n, device = int(sys.argv[1]), sys.argv[2]


def attend(qkv):
    output = chunked_attention(*qkv, softcap=5.0)  # a softcap has no fused kernel
    return output, torch.autograd.grad(output.sum(), qkv)


def drawn(n):
    return [torch.rand(n, {WIDTH}, device=device, requires_grad=True) for _ in range(3)]


def told(name):
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if name in x]
    return 1024 * int(line.split()[1])


attend(drawn(1024))  # what torch needs once is there
qkv = drawn(n)
if device == "cpu":
    Path("/proc/self/clear_refs").write_text("5")
    before = told("VmRSS")
else:
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
output, gradients = attend(qkv)
peak = told("VmHWM") if device == "cpu" else torch.accelerator.max_memory_allocated()
print(peak - before - sum(x.nbytes for x in (output, *gradients)))
"""


def share_of_scores(memory, n):
    return 100 * memory / (4 * n**2)


def bench_numpy_memory(record):
    record(
        "NumPy chunked_attention, memory at n 16384",
        lambda: share_of_scores(numpy_memory(16384), 16384),
        reach=5,
        unit="% of the scores",
    )


def bench_torch_memory(record, device):
    record(
        "torch chunked_attention, memory at n 16384, forward and backward",
        lambda: share_of_scores(torch_memory(16384, device), 16384),
        reach=5,
        unit="% of the scores",
    )


def bench_numpy_memory_grows_with_the_length(record):
    record(
        "NumPy chunked_attention, memory at n 32768 against n 4096",
        lambda: numpy_memory(32768) / numpy_memory(4096),
        reach=8,
        unit="times",
    )


def bench_torch_memory_grows_with_the_length(record, device):
    record(
        "torch chunked_attention, memory at n 8192 against n 4096, forward and backward",
        lambda: torch_memory(8192, device) / torch_memory(4096, device),
        reach=2.2,
        unit="times",
    )
