# SPDX-License-Identifier: Apache-2.0
"""For the capacity planner: one model, every layout, batch and prompt budget, under many workloads at once.

All step times come from one compiled call; the serving formula then runs over every point of every workload.

    python examples/sweep_workloads.py
"""

import time

import numpy as np

import aicjax
from aicjax.search.agg_sweep import plan_agg_sweep, sweep_points
from aicjax.search.evaluation import Evaluation
from aicjax.search.request import SearchRequest
from aicjax.search.roles import deploy, worker

PROMPTS = range(500, 8001, 500)
OUTPUTS = (100, 250, 500, 1000)
BATCHES = tuple(range(1, 257))
TTFT_MS, TPOT_MS = 2000.0, 30.0


def main() -> None:
    layouts = [aicjax.Parallel(tp=tp) for tp in (1, 2, 4, 8)]
    evaluation, sweeps = Evaluation(), {}
    started = time.perf_counter()
    for isl in PROMPTS:
        for osl in OUTPUTS:
            request = SearchRequest(model_path="Qwen/Qwen3-32B-FP8", system="h200_sxm", isl=isl, osl=osl)
            serving = worker(deploy(request, "agg", "trtllm"), layouts)
            budgets = [isl * prompts for prompts in (1, 2, 3, 4)]
            sweeps[isl, osl] = plan_agg_sweep(serving, BATCHES, budgets, evaluation.add(serving))
    points = {key: sweep_points(sweep, *evaluation.curves(sweep.worker)) for key, sweep in sweeps.items()}
    seconds = time.perf_counter() - started

    print("best tokens/s/gpu within the limits; rows: prompt tokens, columns: output tokens")
    print(f"{'':>6}" + "".join(f"{osl:>9}" for osl in OUTPUTS))
    for isl in PROMPTS:
        best = [_best(points[isl, osl], [layout.gpus for layout in layouts]) for osl in OUTPUTS]
        print(f"{isl:>6}" + "".join(f"{value:9.1f}" for value in best))
    count = sum(estimate.ttft_ms.size for estimate in points.values())
    print(f"{count} points in {seconds:.2f} s, loading and compiling included")


def _best(points, gpus: list[int]) -> float:
    """Throughput per GPU of the best point that fits into memory and meets the limits."""
    fits = points.verdict == 0
    meets = fits & (points.ttft_ms <= TTFT_MS) & (points.tpot_ms <= TPOT_MS)
    per_gpu = points.seq_per_s * points.output_tokens / np.array(gpus)[:, None, None]
    return float(np.max(per_gpu, where=meets, initial=0.0))


if __name__ == "__main__":
    main()
