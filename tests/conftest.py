# SPDX-License-Identifier: Apache-2.0
"""Settings of the whole suite: one CPU device, one BLAS thread, strict dtypes, reproducible property tests."""

import os

# Read by jax and by BLAS when they are first imported.
os.environ.update(
    JAX_PLATFORMS="cpu",
    JAX_ENABLE_COMPILATION_CACHE="false",
    JAX_NUMPY_DTYPE_PROMOTION="strict",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
)

from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
