"""torch: `MultiHeadAttention` against `nn.MultiheadAttention`."""

import pytest
import torch

import qkvlib.torch


def layers(n, device):
    """Our layer, torch's own, and what they read: d_model 512, 8 heads, batch 4."""
    generator = torch.Generator().manual_seed(0)
    ours = qkvlib.torch.MultiHeadAttention(512, 8, generator=generator, device=device)
    rival = torch.nn.MultiheadAttention(512, 8, batch_first=True, device=device)
    return ours, rival, torch.randn(4, n, 512, generator=generator).to(device)


def finished(call, device):
    """The call, and waiting until an accelerator has done it."""

    def run():
        call()
        if device != "cpu":
            torch.accelerator.synchronize()

    return run


@pytest.mark.parametrize("n", [128, 512, 1024, 2048])
def bench_forward(compare, device, n):
    ours, rival, x = layers(n, device)
    ours.eval(), rival.eval()
    with torch.no_grad():
        compare(
            f"torch layer, forward, n {n}",
            finished(lambda: ours(x), device),
            finished(lambda: rival(x, x, x, need_weights=False), device),
            reach=1.0,
            aim=0.85,
            calls=2048 // n,
        )


@pytest.mark.parametrize("n", [128, 512, 1024, 2048])
def bench_forward_and_backward(compare, device, n):
    ours, rival, x = layers(n, device)
    compare(
        f"torch layer, forward and backward, n {n}",
        finished(lambda: ours(x).sum().backward(), device),
        finished(lambda: rival(x, x, x, need_weights=False)[0].sum().backward(), device),
        reach=1.0,
        calls=2048 // n,
    )
