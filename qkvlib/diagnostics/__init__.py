"""What to look at when attention goes wrong, and what it says.

`diagnose` examines a layer or a model of either twin, or your own class with the same methods,
and answers with the code of a cause, what it read, and advice. The readings are functions of
arrays and of layers that can be used alone.

>>> import numpy as np
>>> from qkvlib.numpy import MultiHeadAttention
>>> generator = np.random.default_rng(0)
>>> layer = MultiHeadAttention(64, 4, generator=generator)
>>> x = generator.normal(size=(16, 64))
>>> diagnose(layer, x).cause
'healthy'
>>> layer.W_Q *= 1e-3
>>> layer.W_K *= 1e-3
>>> report = diagnose(layer, x)
>>> report.cause
'tiny_init'
"""

from qkvlib.diagnostics.causes import CAUSES, Cause
from qkvlib.diagnostics.doctor import Report, diagnose
from qkvlib.diagnostics.probes import gradient_norms, influence, leak, token_spread_by_depth
from qkvlib.diagnostics.readings import (
    dead_heads,
    duplicate_heads,
    entropy,
    forbidden_weight,
    head_distance,
    key_spread,
    nan_share,
    normalized_entropy,
    rms,
    row_sums,
    score_range,
    score_scale,
    score_std,
    softmax_slope,
    token_spread,
)

__all__ = [
    "CAUSES",
    "Cause",
    "Report",
    "diagnose",
    "entropy",
    "normalized_entropy",
    "row_sums",
    "forbidden_weight",
    "score_std",
    "score_range",
    "score_scale",
    "softmax_slope",
    "nan_share",
    "rms",
    "key_spread",
    "token_spread",
    "head_distance",
    "duplicate_heads",
    "dead_heads",
    "influence",
    "leak",
    "token_spread_by_depth",
    "gradient_norms",
]
