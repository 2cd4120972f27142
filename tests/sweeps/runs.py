# SPDX-License-Identifier: Apache-2.0
"""A tiny sweep of several chunks, here and in other processes, and the bytes of all that it writes."""

import os
import subprocess
import sys
from pathlib import Path

from aicjax.report.sweep_save import save_sweep
from aicjax.sweeps.result import SweepResult
from aicjax.sweeps.spec import SweepSpec

CHUNKS = 6  # of SPEC: one for each workload
SPEC = SweepSpec(
    models=("Qwen/Qwen3-8B",),
    systems=("h200_sxm",),
    backends=("vllm",),
    total_gpus=2,
    isl=(300, 500, 1000),
    osl=(100, 200),
    batch=tuple(range(1, 21)),
    ctx_tokens=(256, 512, 768, 1024),
    limits=({}, {"ttft": 60, "tpot": 7}),  # pyright: ignore[reportArgumentType]
    group_by=("model", "backend"),
    top_k=3,
)

_HEAD = """
import os, sys, time
from pathlib import Path
from tests.sweeps.runs import SPEC, files
from aicjax.report.sweep_save import save_sweep
from aicjax.sweeps.run import sweep
"""


def python(code: str, *, devices: int = 1, cache: Path | None = None) -> "subprocess.Popen[str]":
    """A process that runs some lines with this module and `sweep` at hand, and its output as text."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    if cache is not None:
        environment |= {
            "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    return subprocess.Popen(
        [sys.executable, "-c", _HEAD + code],
        cwd=Path(__file__).parents[2],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: "subprocess.Popen[str]", timeout_s: float = 120) -> str:
    """What a process prints, once it has ended well."""
    text, errors = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, errors
    return text


def files(result: SweepResult, out: Path) -> dict[str, bytes]:
    """All files of a result, with those of its rows, by name."""
    save_sweep(result, out)
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix != ".log"]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}
