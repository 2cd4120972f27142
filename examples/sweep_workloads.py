# SPDX-License-Identifier: Apache-2.0
"""For the capacity planner: one model, every layout, batch and prompt budget, under many workloads at once.

All step times come from one compiled call; the serving formula then runs over every point of every workload.

    python examples/sweep_workloads.py
"""

import itertools
import time

import numpy as np

from aicjax import Parallel
from aicjax.explore.agg_points import AggPoints, Outcome
from aicjax.explore.agg_sweep import plan_agg_sweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.request import SearchRequest
from aicjax.explore.roles import deploy, worker

PROMPTS = range(500, 8001, 500)
OUTPUTS = (100, 250, 500, 1000)
BATCHES = tuple(range(1, 257))
LAYOUTS = [Parallel(tp=tp) for tp in (1, 2, 4, 8)]
TTFT_MS, TPOT_MS = 2000.0, 30.0


def sweep() -> dict[tuple[int, int], AggPoints]:
    """Estimates of all points, by prompt and output tokens."""
    evaluation, planned = Evaluation(), {}
    for isl, osl in itertools.product(PROMPTS, OUTPUTS):
        request = SearchRequest(model_path="Qwen/Qwen3-32B-FP8", system="h200_sxm", isl=isl, osl=osl)
        serving = worker(deploy(request, "agg", "trtllm"), LAYOUTS)
        budgets = [isl * prompts for prompts in (1, 2, 3, 4)]
        planned[isl, osl] = plan_agg_sweep(serving, BATCHES, budgets, evaluation.add(serving))
    return {key: sweep_points(plan, *evaluation.curves(plan.worker)) for key, plan in planned.items()}


def main() -> None:
    for what in ("loading and compiling included", "again, everything compiled"):
        started = time.perf_counter()
        points = sweep()
        seconds = time.perf_counter() - started
        print(f"{sum(part.ttft_ms.size for part in points.values())} points in {seconds:.2f} s, {what}")

    print("best tokens/s/gpu within the limits; rows: prompt tokens, columns: output tokens")
    print(f"{'':>6}" + "".join(f"{osl:>9}" for osl in OUTPUTS))
    for isl in PROMPTS:
        print(f"{isl:>6}" + "".join(f"{_best(points[isl, osl]):9.1f}" for osl in OUTPUTS))


def _best(points: AggPoints) -> float:
    """Throughput per GPU of the best point that fits into memory and meets the limits."""
    meets = (points.outcome == Outcome.EVALUATED) & (points.ttft_ms <= TTFT_MS) & (points.tpot_ms <= TPOT_MS)
    per_gpu = points.seq_per_s * points.output_tokens / points.gpus[:, None, None]
    return float(np.max(per_gpu, where=meets, initial=0.0))


if __name__ == "__main__":
    main()
