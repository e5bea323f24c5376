"""Where to compute."""

import torch


def best_device():
    """The accelerator of this machine (CUDA, MPS, XPU, ...), or the CPU if it has none.

    >>> torch.zeros(2, device=best_device()).device.type == best_device().type
    True
    """
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return torch.device("cpu")
