"""Both twins under one hand: a test says once what must hold, and it is asked of each."""

from dataclasses import dataclass

import numpy as np

import qkvlib.numpy

try:
    import torch

    import qkvlib.torch
except ImportError:  # the NumPy half of the suite runs without torch
    torch = None

# How far an implementation may be from the truth, relative and absolute, by the dtype of what it
# returns. Stated here and nowhere else.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True)
class Twin:
    """One backend with one dtype on one device, spoken to in NumPy arrays."""

    lib: object
    dtype: str
    device: str | None = None

    def __str__(self):
        where = f"-{self.device}" if self.device else ""
        return f"{self.lib.__name__.rpartition('.')[2]}{where}-{self.dtype}"

    @property
    def is_torch(self):
        return self.device is not None

    @property
    def is_half(self):
        return self.dtype.endswith("16")

    @property
    def computed(self):
        """The dtype of scores and weights."""
        return "float32" if self.is_half else self.dtype

    def array(self, x, dtype=None):
        """A NumPy array as this twin has it: floats in its dtype, the rest as they are."""
        x = np.asarray(x)
        dtype = dtype or (self.dtype if x.dtype.kind == "f" else None)
        if not self.is_torch:
            return x.astype(dtype or x.dtype)
        return torch.tensor(x, dtype=dtype and getattr(torch, dtype), device=self.device)

    def arrays(self, *xs):
        return [self.array(x) for x in xs]

    def named(self, arrays):
        return {name: self.array(x) for name, x in arrays.items()}

    def rounded(self, *xs):
        """What is left of these numbers in this dtype, as float64: what a reference is given."""
        return [back(self.array(x)) for x in xs]

    def seeded(self, seed=0):
        """A generator of this backend."""
        return torch.Generator().manual_seed(seed) if self.is_torch else np.random.default_rng(seed)


# Shapes of a layer's weights: d_model 12, three heads of d_k 5 and d_v 2, d_ff 20.
ATTENTION = {"W_Q": (12, 15), "W_K": (12, 15), "W_V": (12, 6), "W_O": (6, 12)}
ATTENTION |= {"b_Q": (15,), "b_K": (15,), "b_V": (6,), "b_O": (12,)}
FEED_FORWARD = {"W_1": (12, 20), "b_1": (20,), "W_2": (20, 12), "b_2": (12,)}
GATED = {"W_gate": (12, 20), "W_up": (12, 20), "W_down": (20, 12)}
GATED |= {"b_gate": (20,), "b_up": (20,), "b_down": (12,)}
NORM = {"weight": (12,), "bias": (12,)}


def weights(generator, shapes):
    """Random weights by name, as large as keeps the signal's size."""
    return {name: generator.normal(size=s) / np.sqrt(s[0]) for name, s in shapes.items()}


def back(x):
    """An array of either twin as a NumPy array, floats in float64."""
    if not isinstance(x, np.ndarray | np.generic):
        x = x.detach().cpu()
        x = (x.double() if x.is_floating_point() else x).numpy()
    return x.astype(float) if x.dtype.kind == "f" else x


def dtype_of(x):
    """The name of a dtype: float32, bool."""
    return str(x.dtype).removeprefix("torch.")


def assert_near(got, expected, *, dtype=None, rounded=None):
    """`got`, of either twin, must be `expected`, in float64, as far as its dtype can tell.

    dtype: what `got` must have, when that is said. rounded: the dtype of numbers on the way, when
    that is shorter.
    """
    assert dtype in (None, dtype_of(got))
    tolerance = TOLERANCE[rounded or dtype_of(got)]
    expected = np.asarray(expected)
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(back(got), expected, rtol=tolerance, atol=tolerance)


def _devices():
    yield "cpu"
    if torch.accelerator.is_available():
        yield torch.accelerator.current_accelerator().type


def _twins():
    for dtype in ("float64", "float32", "float16"):
        yield Twin(qkvlib.numpy, dtype)
    if torch is None:
        return
    for device in _devices():
        for dtype in TOLERANCE:
            if (device, dtype) != ("mps", "float64"):  # MPS has no float64
                yield Twin(qkvlib.torch, dtype, device)


EVERY = list(_twins())
EXACT = [twin for twin in EVERY if twin.dtype == "float64"]
WIDE = [twin for twin in EVERY if not twin.is_half]
BACKENDS = [twin for twin in EXACT if twin.device in (None, "cpu")]


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


# The same numbers, lying in memory in other ways.
LAYOUTS = {
    "read only": read_only,
    "columns first": np.asfortranarray,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}
