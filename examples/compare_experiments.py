# SPDX-License-Identifier: Apache-2.0
"""For the planner: several searches from one file, and the best of each.

python examples/compare_experiments.py
"""

from pathlib import Path

import aicjax


def main() -> None:
    result = aicjax.run_experiments(Path(__file__).with_name("experiments.yaml"), top_n=1)
    for name, task in result.tasks.items():
        latencies = ", ".join(f"{kind} {ms:.1f} ms" for kind, ms in task.best_latencies.items() if ms is not None)
        print(f"{name}: {task.score:.2f} tokens/s/gpu, {latencies}")
    print(f"best: {result.chosen}")


if __name__ == "__main__":
    main()
