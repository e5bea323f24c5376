"""One layer of attention on two processes: first its heads are split, then its text.

    python two_processes.py

starts both processes itself, on the processor of this machine, and ends after some seconds. Each
process asserts that it ends up with what one process computes alone.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import scaled_dot_product_attention

import qkvlib.torch as qt
from qkvlib.book.example import COORDINATES, HEAD_A, HEAD_B, W_O, WORDS, X
from qkvlib.book.show import table

HE = WORDS.index("he")
GPUS = torch.cuda.device_count()


def two_heads():
    """The layer of the running example: heads A and B, and the matrix that mixes their answers."""
    W_Q, W_K, W_V = (torch.tensor(np.hstack(pair)) for pair in zip(HEAD_A, HEAD_B))
    return qt.MultiHeadAttention.from_weights(W_Q, W_K, W_V, torch.tensor(W_O), num_heads=2)


# ---- the heads are split -------------------------------------------------------------------------


def split_by_head(layer, mesh, output):
    """Leave in this process one head of two, with its rows of W_O."""
    columns = {name: ColwiseParallel() for name in ("query", "key", "value")}
    parallelize_module(layer, mesh, columns | {"output": output})
    layer.num_heads = layer.num_kv_heads = 1
    return layer


def heads_split(rank):
    x, alone, mesh = torch.tensor(X), two_heads(), init_device_mesh("cpu", (2,))

    mine = split_by_head(two_heads(), mesh, RowwiseParallel(output_layouts=Partial()))
    held = {name: getattr(mine, name).to_local().shape for name in ("W_Q", "W_K", "W_V", "W_O")}
    show("what it holds", held, [" x ".join(map(str, shape)) for shape in held.values()])

    share = mine(x)
    show("what it computes for he", COORDINATES, share[HE].tolist())
    assert torch.allclose(share, alone.head_contributions(x)[rank], atol=1e-12)

    output = share.clone()
    dist.all_reduce(output)  # the sum of all processes, in each of them
    show(f"after an all-reduce of {size(share)} bytes", COORDINATES, output[HE].tolist())
    assert torch.allclose(output, alone(x), atol=1e-12)

    usual = split_by_head(two_heads(), mesh, RowwiseParallel())  # sums by itself
    assert torch.allclose(usual(x), alone(x), atol=1e-12)


# ---- the text is split ---------------------------------------------------------------------------


def text_split(rank):
    x, alone, causal = torch.tensor(X), two_heads(), qt.causal_mask(5)
    mine = slice(0, 3) if rank == 0 else slice(3, 5)  # Paul told Emma, he won

    query, key, value = alone.project_heads(x)
    key, value = key[:, mine], value[:, mine]  # the other keys are not seen from here on
    scores = qt.attention_scores(query, key)
    scores = torch.where(causal[:, mine], scores, -torch.inf)

    part = read(scores, value)
    columns = ["keys", "top", "total", "name", "he/she", "action"]
    show(
        "what head A has read for he",
        columns,
        [" ".join(WORDS[mine]), *(number for array in part for number in array[0, HE].tolist())],
    )

    output = qt.project(qt.merge_heads(merge(*part)), alone.W_O)
    show(f"after three all-reduces of {size(*part)} bytes", COORDINATES, output[HE].tolist())
    assert torch.allclose(output, alone(x, mask=causal), atol=1e-12)


def read(scores, value):
    """Top, total and output, not yet divided, over the keys of this process."""
    top = scores.amax(dim=-1, keepdim=True)
    finite = top.clamp(min=torch.finfo(top.dtype).min)  # a query may have no key here at all
    powers = torch.exp(scores - finite)
    return top, powers.sum(dim=-1, keepdim=True), powers @ value


def merge(top, total, output):
    """The output over the keys of all processes."""
    highest = top.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    rescale = torch.exp(top - highest)
    total, output = total * rescale, output * rescale
    dist.all_reduce(total)
    dist.all_reduce(output)
    return output / total


# ---- the same on two GPUs, by torch --------------------------------------------------------------


def text_split_by_torch(rank):
    if GPUS < 2:
        return say("context_parallel: needs two GPUs, skipped")
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.cuda.set_device(rank)
    mesh = init_device_mesh("cuda", (2,))
    drawn = torch.randn(3, 1, 8, 1024, 64, generator=torch.Generator().manual_seed(0))
    query, key, value = (part.clone().half().cuda() for part in drawn)
    alone = scaled_dot_product_attention(query, key, value, is_causal=True)
    buffers = {"buffers": [query, key, value], "buffer_seq_dims": [2, 2, 2]}
    with context_parallel(mesh, **buffers), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        mine = scaled_dot_product_attention(query, key, value, is_causal=True)
    [together] = context_parallel_unshard(mesh, [mine], [2])
    assert torch.allclose(together, alone, atol=2e-3)
    say(f"context_parallel: {mine.shape[2]} of {together.shape[2]} tokens in each process, equal")


# ---- starting, showing ---------------------------------------------------------------------------


def show(title, columns, row):
    """Print a table with a row from each process."""
    rows = [None, None]
    dist.all_gather_object(rows, row)
    names = ["process 0", "process 1"]
    say(f"{table(rows, rows=names, columns=columns, caption=f'{title}:')}\n")


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def size(*tensors):
    """How many bytes these tensors are."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def work(rank, meeting_place):
    """What each of the two processes runs."""
    torch.set_num_threads(1)
    backend = "gloo" if GPUS < 2 else "cpu:gloo,cuda:nccl"
    store = dist.FileStore(meeting_place, 2)
    dist.init_process_group(backend, store=store, rank=rank, world_size=2)
    try:
        with torch.no_grad():
            heads_split(rank)
            text_split(rank)
            text_split_by_torch(rank)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        torch.multiprocessing.spawn(work, (str(Path(folder, "meeting_place")),), nprocs=2)
