# SPDX-License-Identifier: Apache-2.0
"""How long the program takes: as a fresh command, in a running process, and per point of a big sweep.

Every line gives wall and CPU seconds (the CPU figure is the one to compare on a shared machine), what was answered as a
checksum, and for sweeps the points per second. Compiling and running are told apart by running twice.

    python -m benchmarks.speed
    python -m benchmarks.speed --json results.json
"""

import argparse
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEMO = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "backend": "trtllm",
    "total_gpus": 32,
    "isl": 4000,
    "osl": 500,
    "prefix": 500,
    "ttft": 300,
    "tpot": 10,
}
SWEEP_LENGTHS = range(500, 8001, 500), (100, 250, 500, 1000)  # prompt and output tokens
SWEEP_BATCHES, SWEEP_PROMPTS = range(1, 1025), range(1, 9)  # and prompts of a mixed step
REPEATS = 5


def measure(name: str, call: Callable[[], tuple[str, int]]) -> dict[str, Any]:
    """One call, timed: wall and CPU seconds of this process and of the processes that it waits for."""
    cpu_before, started = _cpu_s(), time.perf_counter()
    answer, points = call()
    wall_s = time.perf_counter() - started
    record = {"name": name, "wall_s": wall_s, "cpu_s": _cpu_s() - cpu_before, "points": points, "answer": answer}
    rate = f"{points / wall_s / 1e6:8.2f} M points/s" if points else ""
    print(f"{name:<44} {wall_s:8.3f} s wall {record['cpu_s']:8.3f} s CPU  {answer:<24} {rate}".rstrip(), flush=True)
    return record


def _cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _command(*arguments: str, cache: str) -> Callable[[], tuple[str, int]]:
    def call() -> tuple[str, int]:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-m", "aicjax", *arguments]
        out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        return out.split(";")[0].strip() if "--quiet" in arguments else "", 0

    return call


def commands() -> list[dict[str, Any]]:
    """The help, and the demo as a fresh command: nothing compiled yet, then with the kernels of the first run."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in DEMO.items()]
    with tempfile.TemporaryDirectory() as cache:
        demo = _command("search", *flags, "--quiet", cache=cache)
        return [
            measure("aicjax --help", _command("--help", cache=cache)),
            measure("demo as a command, nothing compiled", demo),
            measure("demo as a command, kernels kept", demo),
        ]


def searches() -> list[dict[str, Any]]:
    """The demo in one process, the first time and again."""
    from aicjax.explore import SearchRequest, search

    def call() -> tuple[str, int]:
        result = search(SearchRequest(**DEMO))
        evaluated = sum(task.evaluated for task in result.tasks.values())
        return f"{result.require().best['tokens/s/gpu'][0]:.3f} tokens/s/gpu", evaluated

    again = [f"demo in a process, again ({number})" for number in range(1, REPEATS + 1)]
    return [measure(name, call) for name in ("demo in a process, first", *again)]


def sweeps() -> list[dict[str, Any]]:
    """All layouts, batches and prompt budgets of one model under many workloads."""
    import numpy as np

    from aicjax.explore.agg_sweep import plan_agg_sweep, sweep_points
    from aicjax.explore.evaluation import Evaluation
    from aicjax.explore.request import SearchRequest
    from aicjax.explore.roles import deploy, worker
    from aicjax.models import Parallel

    layouts = [Parallel(tp=tp) for tp in (1, 2, 4, 8)]

    def call() -> tuple[str, int]:
        evaluation, plans = Evaluation(), []
        for isl, osl in itertools.product(*SWEEP_LENGTHS):
            request = SearchRequest(**{**DEMO, "isl": isl, "osl": osl, "prefix": 0})
            serving = worker(deploy(request, "agg", "trtllm"), layouts)
            budgets = [isl * prompts for prompts in SWEEP_PROMPTS]
            plans.append(plan_agg_sweep(serving, SWEEP_BATCHES, budgets, evaluation.add(serving)))
        points = [sweep_points(plan, *evaluation.curves(plan.worker)) for plan in plans]
        best = max(float(np.nanmax(part.seq_per_s)) for part in points)
        return f"{best:.3f} requests/s", sum(part.seq_per_s.size for part in points)

    return [measure(f"sweep of workloads, {which}", call) for which in ("first", "again")]


def main() -> None:
    """Runs every measurement and writes the records if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the records")
    options = parser.parse_args()

    import jax

    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, jax {jax.__version__}"
    print(f"{machine}, {jax.default_backend()}")
    records = [*commands(), *searches(), *sweeps()]
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "records": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
