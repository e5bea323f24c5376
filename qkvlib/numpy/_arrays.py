"""What the NumPy twin asks of its arrays."""

import numpy as np

FLOATS = (np.float16, np.float32, np.float64)


def check_array(name, x):
    """`x` must be a plain NumPy array."""
    if not isinstance(x, np.ndarray) or isinstance(x, (np.ma.MaskedArray, np.matrix)):
        kind = f"{type(x).__module__.split('.')[0]}.{type(x).__name__}"
        if kind.startswith("torch."):
            hint = f"use qkvlib.torch, or pass {name}.detach().cpu().numpy()"
        elif isinstance(x, np.ma.MaskedArray):
            hint = f"pass {name}.data, and what it hides as a mask (True: may attend)"
        else:
            hint = f"write np.asarray({name})"
        raise TypeError(f"{name} must be a NumPy array, got {kind}; {hint}")


def check_floating(**arrays):
    """The named arrays must be NumPy arrays of one and the same floating dtype."""
    for name, x in arrays.items():
        check_array(name, x)
        if x.dtype.type not in FLOATS:
            raise TypeError(
                f"{name} must be float16, float32 or float64, got {x.dtype}; "
                f"convert it, as in {name}.astype(np.float32)"
            )
    if len({x.dtype.type for x in arrays.values()}) > 1:
        listed = ", ".join(f"{name} {x.dtype}" for name, x in arrays.items())
        raise TypeError(f"all must have one dtype, got {listed}; convert with .astype")


def check_whole(name, x):
    """`x` must be a NumPy array of whole numbers."""
    check_array(name, x)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, got {x.dtype}; cast them to int")


def shape_of(x):
    """The shape of an optional array."""
    return None if x is None else x.shape


def working_dtype(x):
    """The precision that is computed in: float32 for float16, else that of `x`."""
    return np.float32 if x.dtype.type is np.float16 else x.dtype.type


def working(x):
    """`x` in the precision that is computed in."""
    return x.astype(working_dtype(x), copy=False)
