# SPDX-License-Identifier: Apache-2.0
"""The program keeps its compiled kernels: the second start compiles nothing."""

import os
import subprocess
import sys
from pathlib import Path

from aicjax.cli import device

QUERY = "query gemm --system h200_sxm -m 64 -n 4096 -k 4096".split()


def test_second_start_adds_no_compiled_kernel(tmp_path: Path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**clean, "XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    kernels = []
    for _ in range(2):
        command = [sys.executable, "-m", "aicjax", *QUERY]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        kernels.append(sorted(path.name for path in tmp_path.rglob("*-cache")))
    assert kernels[0]
    assert kernels[0] == kernels[1]


def test_settings_of_the_user_win(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    device.prepare()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
