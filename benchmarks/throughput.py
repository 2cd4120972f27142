# SPDX-License-Identifier: Apache-2.0
"""How many serving points the engine estimates per second.

A point of in-flight batching is one (layout, batch, ctx_tokens): TTFT, TPOT, request latency, throughput and memory
verdict, on the host. Nothing is kept between calls but measured tables and compiled kernels: each call plans its steps,
binds the model to the tables, evaluates the distinct step times and gathers all points from them. Kernels are compiled
in a first call, whose compile time is told apart. Repeats are medians; the checksum tells whether two runs computed the
same.

    python -m benchmarks.throughput [--json]
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import jax
import numpy as np

from aicjax.explore import SearchRequest
from aicjax.explore.agg_sweep import plan_agg_sweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.grid import load_grid
from aicjax.explore.roles import Worker, deploy, worker
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import plan_static_sweep, static_frame, static_points
from aicjax.forward.memory import Verdict
from aicjax.models import Parallel
from benchmarks.timing import CompileClock, machine, median_time, peak_memory_bytes, timed

Backend = Literal["trtllm", "vllm", "sglang"]

BATCHES = range(1, 1025)
CTX_TOKENS = range(64, 16384 + 1, 64)
PREFILL_BATCHES = range(1, 129)
LAYOUTS = tuple(Parallel(tp) for tp in (1, 2, 4, 8))
ISL, OSL, PREFIX = 4000, 500, 500
ENGINES: tuple[tuple[str, str, Backend], ...] = (  # model, system, backend; the first alone, then all
    ("Qwen/Qwen3-32B-FP8", "h200_sxm", "trtllm"),
    ("meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm"),
    ("Qwen/Qwen3-8B", "b200_sxm", "sglang"),
    ("Qwen/Qwen3-32B", "a100_sxm", "trtllm"),
)


@dataclass(frozen=True)
class Rate:
    """Throughput of one kind of work.

    Attributes:
        points: Points of one call.
        points_per_s, points_per_cpu_s: Points per second on the wall, and of CPU time.
        wall_s, cpu_s: Time of one warm call.
        compile_s: Time that the first call spent compiling.
        fitting: Points that fit their GPU.
        checksum: Sum of all times.
    """

    points: int
    points_per_s: float
    points_per_cpu_s: float
    wall_s: float
    cpu_s: float
    compile_s: float
    fitting: int
    checksum: float


def agg_points(model: str, system: str, backend: Backend) -> tuple[int, int, float]:
    """Estimates of a whole (layout, batch, ctx_tokens) grid: points, those that fit, and a checksum."""
    target, engine = _worker(model, system, backend, "agg"), Evaluation()
    sweep = plan_agg_sweep(target, BATCHES, CTX_TOKENS, engine.add(target))
    points = sweep_points(sweep, *engine.curves(target))
    times = np.nansum(points.ttft_ms) + np.nansum(points.tpot_ms) + np.nansum(points.seq_per_s)
    return points.verdict.size, int((points.verdict == Verdict.FITS).sum()), float(times)


def disagg_candidates(model: str, system: str, backend: Backend) -> tuple[int, int, float]:
    """Rows of prefill and decode workers over batches: rows, those that fit, and a checksum."""
    engine, stride = Evaluation(), load_grid().disagg.decode_stride
    prefill, decode = _worker(model, system, backend, "prefill"), _worker(model, system, backend, "decode")
    sweeps = (
        plan_static_sweep(prefill, "static_ctx", PREFILL_BATCHES, engine.add(prefill), stride),
        plan_static_sweep(decode, "static_gen", BATCHES, engine.add(decode), stride),
    )
    rows, fitting, times = 0, 0, 0.0
    for sweep in sweeps:
        points = static_points(sweep, *engine.curves(sweep.worker))
        frame = static_frame(sweep, points, np.ones_like(points.verdict, bool))
        rows, fitting = rows + points.verdict.size, fitting + int((points.verdict == Verdict.FITS).sum())
        times += float(np.nansum(frame["request_latency"]))
    return rows, fitting, times


def measure(call: Callable[[], tuple[int, int, float]], clock: CompileClock, repeats: int) -> Rate:
    """Throughput of a call, warm."""
    before = clock.seconds
    timed(call)
    compile_s = clock.seconds - before
    (points, fitting, checksum), time = median_time(call, repeats)
    return Rate(points, points / time.wall_s, points / time.cpu_s, *time, compile_s, fitting, checksum)


def run(repeats: int) -> dict[str, object]:
    """All measurements; kernels are compiled anew, as on the first start of a machine."""
    jax.config.update("jax_enable_compilation_cache", False)
    clock = CompileClock()

    def everything() -> tuple[int, int, float]:
        counts = [agg_points(*engine) for engine in ENGINES]
        return sum(c[0] for c in counts), sum(c[1] for c in counts), sum(c[2] for c in counts)

    rates = {
        "agg": measure(lambda: agg_points(*ENGINES[0]), clock, repeats),
        f"agg, {len(ENGINES)} models": measure(everything, clock, repeats),
        "disagg candidates": measure(lambda: disagg_candidates(*ENGINES[0]), clock, repeats),
    }
    return {
        "agg_points_per_s": rates["agg"].points_per_s,
        "disagg_candidates_per_s": rates["disagg candidates"].points_per_s,
        "compile_s": clock.seconds,
        "peak_memory_bytes": peak_memory_bytes(),
        "rates": {name: asdict(rate) for name, rate in rates.items()},
        "machine": machine(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="throughput", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5, help="warm calls of each kind (default: 5)")
    options = parser.parse_args(arguments)
    results = run(options.repeats)
    print(json.dumps(results, indent=2) if options.json else report(results))
    return 0


def report(results: dict) -> str:
    """The results as lines of text."""
    layout = "{:<18} {:>9} {:>12} {:>12} {:>8} {:>8} {:>9}  {}"
    lines = [layout.format("", "points", "per s", "per CPU s", "wall s", "CPU s", "compile s", "checksum")]
    for name, r in results["rates"].items():
        rates = f"{r['points_per_s']:,.0f}", f"{r['points_per_cpu_s']:,.0f}"
        times = f"{r['wall_s']:.3f}", f"{r['cpu_s']:.3f}", f"{r['compile_s']:.1f}"
        lines.append(layout.format(name, r["points"], *rates, *times, f"{r['checksum']:.9e}"))
    lines.append(f"compile {results['compile_s']:.1f} s, peak memory {results['peak_memory_bytes'] / 2**20:.0f} MiB")
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in results["machine"].items())])


def _worker(model: str, system: str, backend: Backend, role: Role) -> Worker:
    request = SearchRequest(model_path=model, system=system, backend=backend, isl=ISL, osl=OSL, prefix=PREFIX)
    return worker(deploy(request, role, backend), LAYOUTS)


if __name__ == "__main__":
    sys.exit(main())
