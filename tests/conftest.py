"""Fixtures for both twins, and how Hypothesis searches."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from twins import BACKENDS, EVERY, EXACT

settings.register_profile(
    "qkvlib",
    max_examples=int(os.environ.get("QKVLIB_EXAMPLES", 100)),  # fewer for each mutant
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    database=None,
)
settings.load_profile("qkvlib")


@pytest.fixture
def generator():
    return np.random.default_rng(20)


@pytest.fixture(params=EVERY, ids=str)
def twin(request):
    """Each backend, dtype and device there is."""
    return request.param


@pytest.fixture(params=EXACT, ids=str)
def exact(request):
    """Each backend and device in float64."""
    return request.param


@pytest.fixture(params=BACKENDS, ids=str)
def backend(request):
    """NumPy, and torch on the CPU, in float64."""
    return request.param
