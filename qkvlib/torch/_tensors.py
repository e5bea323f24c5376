"""What the torch twin asks of its tensors."""

from contextlib import nullcontext

import numpy as np
import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HALF = (torch.float16, torch.bfloat16)


def check_tensor(name, x):
    """`x` must be a torch tensor."""
    if not isinstance(x, torch.Tensor):
        kind = f"{type(x).__module__.split('.')[0]}.{type(x).__name__}"
        hint = (
            f"use qkvlib.numpy, or pass torch.from_numpy({name})"
            if kind.startswith("numpy.")
            else f"write torch.tensor({name})"
        )
        raise TypeError(f"{name} must be a torch tensor, got {kind}; {hint}")
    if torch.compiler.is_compiling():  # which may not ask for a layout
        return
    if x.layout != torch.strided or x.is_nested:
        kind = "a nested one" if x.is_nested else f"layout {x.layout}"
        hint = (
            f"torch.nested.to_padded_tensor({name}, 0.0)" if x.is_nested else f"{name}.to_dense()"
        )
        raise TypeError(f"{name} must be a plain dense tensor, got {kind}; write {hint}")


def check_floating(**tensors):
    """The named tensors must have one and the same floating dtype, and lie on one device."""
    for name, x in tensors.items():
        check_tensor(name, x)
        if x.dtype not in FLOATS:
            raise TypeError(
                f"{name} must be float16, bfloat16, float32 or float64, got {x.dtype}; "
                f"convert it, as in {name}.float()"
            )
    differ = len({x.dtype for x in tensors.values()}) > 1  # which autocast may bring into line
    if differ and len({product_dtype(x) for x in tensors.values()}) > 1:
        listed = ", ".join(f"{name} {x.dtype}" for name, x in tensors.items())
        raise TypeError(f"all must have one dtype, got {listed}; convert with .to(dtype)")
    check_devices(**tensors)


def check_whole(name, x):
    """`x` must be a tensor of whole numbers."""
    check_tensor(name, x)
    if x.dtype == torch.bool or x.is_floating_point() or x.is_complex():
        raise TypeError(f"{name} must be whole numbers, got {x.dtype}; cast them with .long()")


def check_devices(**tensors):
    """The named tensors must lie on one device."""
    if len({x.device for x in tensors.values()}) > 1:
        listed = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise ValueError(f"all must lie on one device, got {listed}; move them with .to(device)")


def values(x):
    """The values of a tensor as a NumPy array, or None where they cannot be looked at.

    On an accelerator looking would stop it. While torch traces (`torch.compile`, `torch.func`,
    fake tensors) there are none.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    try:
        return x.numpy()
    except RuntimeError:
        return None


def from_array(x):
    """An optional NumPy array as a tensor; it may be read-only, of any byte order and strides."""
    return (
        None if x is None else torch.from_numpy(np.array(x, x.dtype.newbyteorder("="), order="C"))
    )


def to_array(name, x):
    """An optional tensor as a NumPy array."""
    if x is None:
        return None
    if x.dtype == torch.bfloat16:
        raise TypeError(
            f"{name} must be of a dtype that NumPy has, got torch.bfloat16; convert it first, "
            "as in layer.float().to_numpy()"
        )
    return x.detach().cpu().numpy()


def shape_of(x):
    """The shape of an optional tensor, as a plain tuple."""
    return None if x is None else tuple(x.shape)


def working_dtype(x):
    """The precision that is computed in: float32 for half types, else that of `x`."""
    return torch.float32 if x.dtype in HALF else x.dtype


def autocasts(x):
    """Whether torch, under autocast, brings the inputs of a product with `x` to another dtype."""
    kind = x.device.type
    there = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return there and x.dtype != torch.float64


def product_dtype(x):
    """The dtype of a product with `x`: that of `x`, or under autocast what autocast says."""
    return torch.get_autocast_dtype(x.device.type) if autocasts(x) else x.dtype


def without_autocast(x):
    """A context in which autocast, if it is on where `x` lies, leaves dtypes alone."""
    return torch.autocast(x.device.type, enabled=False) if autocasts(x) else nullcontext()


def working(x):
    """`x` in the precision that is computed in."""
    return x.to(working_dtype(x))


def exact_dtype(device):
    """The longest float of a device: float64, where there is one."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64
