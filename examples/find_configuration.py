# SPDX-License-Identifier: Apache-2.0
"""For the engineer: the best way to serve a model on some GPUs, and what holds it back.

python examples/find_configuration.py
"""

import aicjax
from aicjax.explore import frame as frames


def main() -> None:
    result = aicjax.search(
        model_path="Qwen/Qwen3-32B-FP8",
        system="h200_sxm",
        backend="trtllm",
        total_gpus=32,
        isl=4000,
        osl=500,
        prefix=500,
        ttft=300,
        tpot=10,
    )
    for name, task in result.tasks.items():
        print(f"{name}: {task.evaluated} points, {frames.length(task.feasible)} rows within the targets")
        for position, row in enumerate(frames.rows(task.best)):
            print(
                f"  {row['tokens/s/gpu_cluster']:8.2f} tokens/s/gpu, TTFT {row['ttft']:6.1f} ms, "
                f"TPOT {row['tpot']:5.2f} ms, limited by {task.explain(position).binding if task.explain else '-'}"
            )
    print(f"best: {result.chosen}")


if __name__ == "__main__":
    main()
