# SPDX-License-Identifier: Apache-2.0
"""Settings of the whole suite: one CPU device, one BLAS thread, strict dtypes, kept kernels, reproducible examples."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Read by jax and by BLAS when they are first imported.
os.environ.update(
    JAX_PLATFORMS="cpu",
    JAX_ENABLE_COMPILATION_CACHE="true",
    JAX_COMPILATION_CACHE_DIR=str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"),
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    JAX_NUMPY_DTYPE_PROMOTION="strict",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
)

import jax
import pytest
from hypothesis import settings

gc.set_threshold(20_000, 20, 20)  # tracing makes many objects, and a full collection walks all that there are
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

KERNELS = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])  # shared by workers, by programs that they start, and by runs
MOST_KERNEL_BYTES = 2_000_000_000  # several suites: each change of a program leaves its old kernels behind
MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # of the 65,530 that Linux gives a process: each compiled kernel takes some


def pytest_configure(config: pytest.Config) -> None:
    """Begins with no kept kernels when there are too many."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker and sum(path.stat().st_size for path in KERNELS.glob("*-cache")) > MOST_KERNEL_BYTES:
        shutil.rmtree(KERNELS, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiles with few optimisations what a test runs once, and as users do where the module is marked so.

    Forgets compiled kernels between the two, and when there are many: a process that runs out of maps crashes.
    """
    as_shipped = request.node.get_closest_marker("as_shipped") is not None
    if as_shipped:
        _forget_kernels()
    jax.config.update("jax_disable_most_optimizations", not as_shipped)
    yield
    if as_shipped or (MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS):
        _forget_kernels()


def _forget_kernels() -> None:
    jax.clear_caches()
    gc.collect()
