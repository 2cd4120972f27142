# SPDX-License-Identifier: Apache-2.0
"""Settings of jax for a program that starts, answers and ends: compiled kernels are kept for the next start."""

import os
from pathlib import Path


def prepare() -> None:
    """Sets jax up before it is imported, through its environment variables; those of the user win."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    defaults = {
        "JAX_COMPILATION_CACHE_DIR": str(Path(cache_home) / "aicjax" / "kernels"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
