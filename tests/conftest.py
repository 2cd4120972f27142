# SPDX-License-Identifier: Apache-2.0
"""Settings of the whole suite: one CPU device, one BLAS thread, strict dtypes, reproducible property tests."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# Read by jax and by BLAS when they are first imported.
os.environ.update(
    JAX_PLATFORMS="cpu",
    JAX_ENABLE_COMPILATION_CACHE="false",
    JAX_NUMPY_DTYPE_PROMOTION="strict",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
)

import jax
import pytest
from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # of the 65,530 that Linux gives a process: each compiled kernel takes some


@pytest.fixture(autouse=True, scope="module")
def _few_compiled_kernels() -> Iterator[None]:
    """Forgets compiled kernels after a module when there are many: a process that runs out of maps crashes."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
