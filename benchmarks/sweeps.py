# SPDX-License-Identifier: Apache-2.0
"""How fast whole sweeps are, from 100 thousand to 100 million points, and whether they find what all points hold.

    python -m benchmarks.sweeps [--points 1e5,3e6,1e7,1e8] [--json]

Each sweep runs once to compile and load, then again under the clock: from the spec to the best points and Pareto
fronts of every group, with models bound to the tables anew. In the largest one, a hundredth of the cases (whole ones,
chosen by a fixed seed) is checked against numpy over all their points. Sweeps of one dense model and of one with
experts tell what a point of each costs.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from aicjax.sweeps.kept import no_points
from aicjax.sweeps.result import SweepResult
from aicjax.sweeps.run import sweep
from aicjax.sweeps.spec import SweepSpec
from benchmarks.brute_force import brute
from benchmarks.timing import CompileClock, machine, median_time, peak_memory_bytes, timed

DENSE, EXPERTS = "Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-235B-A22B-FP8"
MODELS = (DENSE, "meta-llama/Meta-Llama-3.1-70B", EXPERTS)
SYSTEMS = ("h200_sxm", "h100_sxm", "b200_sxm", "gb200")
BACKENDS = ("trtllm", "vllm", "sglang")
AXES: dict[str, Any] = {
    "batch": {"last": 1024},
    "ctx_tokens": {"last": 8192, "step": 64},
    "isl": [4000],
    "osl": [500],
    "limits": [{"ttft": 1000.0, "tpot": 20.0}],
}
ONE = {"models": MODELS, "systems": SYSTEMS[:1], "backends": BACKENDS[:1]}
ALL = {"models": MODELS, "systems": SYSTEMS, "backends": BACKENDS}
SIZES: dict[str, dict[str, Any]] = {  # sweeps of the same models, of at least as many points
    "1e5": {**AXES, **ONE, "ctx_tokens": {"last": 8000, "step": 1600}},
    "3e6": {**AXES, **ONE},
    "1e7": {**AXES, **ONE, "backends": BACKENDS, "isl": [4000, 1000]},
    "1e8": {**AXES, **ALL, "isl": [4000, 2000, 1000]},
}
WORKLOADS = {"isl": [4000, 2000, 1000], "osl": [500, 1000]}  # of one kind of model alone
KINDS = {"dense": DENSE, "experts": EXPERTS}
CHECKED, SEED = 0.01, 0  # share of the cases, and what they are drawn by


@dataclass(frozen=True)
class Run:
    """One sweep, warm.

    Attributes:
        points, cases: Its size.
        wall_s, cpu_s: Its time.
        points_per_s, points_per_cpu_s: Its rate.
        ns_per_point: CPU time of a point.
        compile_s: What the run before it spent on compiling.
        peak_memory_bytes: Largest memory of the process so far.
        feasible: Points that fit and meet the limits.
        checksum: Sum of the values of all best points.
    """

    points: int
    cases: int
    wall_s: float
    cpu_s: float
    points_per_s: float
    points_per_cpu_s: float
    ns_per_point: float
    compile_s: float
    peak_memory_bytes: int
    feasible: int
    checksum: float


def measure(spec: SweepSpec, clock: CompileClock, repeats: int) -> tuple[SweepResult, Run]:
    """A sweep and its time: the median of some runs after the first."""
    before = clock.seconds
    timed(lambda: sweep(spec))
    compile_s = clock.seconds - before
    found, time = median_time(lambda: sweep(spec), repeats)
    points, tops = found.done_points, found.kept.tops.values()
    return found, Run(
        points=points,
        cases=len(found.cases.cases),
        wall_s=time.wall_s,
        cpu_s=time.cpu_s,
        points_per_s=points / time.wall_s,
        points_per_cpu_s=points / time.cpu_s,
        ns_per_point=1e9 * time.cpu_s / points,
        compile_s=compile_s,
        peak_memory_bytes=peak_memory_bytes(),
        feasible=sum(int(counts[5]) for counts in found.kept.counts.values()),
        checksum=float(sum(top.value.sum() for top in tops)),
    )


def kind(name: str) -> SweepSpec:
    """The sweep of one model of a kind (a key of `KINDS`), on every system, with every backend."""
    return SweepSpec(**{**AXES, **WORKLOADS, **ALL, "models": [KINDS[name]]})


def checked(found: SweepResult) -> dict[str, int]:
    """How many groups were compared with all their points, and how many lists and fronts are other ones."""
    spec, groups = found.spec, found.groups
    names = len(groups.names)
    chosen = np.random.default_rng(SEED).permutation(names)[: max(2, math.ceil(CHECKED * names))]
    lists, wrong, points = 0, 0, 0
    for group, every in brute(spec, found.cases, groups, chosen.tolist()):
        points += len(every.number)
        for place, limits in enumerate(spec.limits):
            best = found.kept.tops.get((group, place, 0), no_points())
            front = found.kept.fronts.get((group, place), no_points())
            lists += 3
            wrong += found.kept.counts[group, place].tolist() != every.counts(limits)
            wrong += not every.same_top(best, limits, spec.objectives[0], spec.top_k)
            wrong += not every.same_front(front, limits, spec.objectives[0])
    return {"groups": len(chosen), "points": points, "compared": lists, "wrong": wrong}


def run(sizes: Sequence[str], repeats: int) -> dict[str, Any]:
    """All measurements."""
    clock, runs, check = CompileClock(), {}, None
    for size in sizes:
        found, runs[size] = measure(SweepSpec(**SIZES[size]), clock, repeats)
        check = checked(found)
    kinds = {name: measure(kind(name), clock, max(repeats, 3))[1] for name in KINDS}
    return {
        "sizes": {name: asdict(result) for name, result in runs.items()},
        "checked": check,
        "kinds": {name: asdict(result) for name, result in kinds.items()},
        "machine": machine(),
    }


def report(results: dict[str, Any]) -> str:
    """The results as lines of text."""
    layout = "{:<9} {:>13} {:>6} {:>8} {:>8} {:>13} {:>13} {:>9} {:>9} {:>8}  {}"
    names = ("points", "cases", "wall s", "CPU s", "points/s", "per CPU s", "ns/point", "compile s", "MiB", "checksum")
    lines = [layout.format("", *names)]
    for name, r in (results["sizes"] | results["kinds"]).items():
        rates = (f"{r[key]:,.0f}" for key in ("points_per_s", "points_per_cpu_s"))
        costs = f"{r['ns_per_point']:.1f}", f"{r['compile_s']:.1f}", f"{r['peak_memory_bytes'] / 2**20:.0f}"
        times = (f"{r[key]:.2f}" for key in ("wall_s", "cpu_s"))
        lines.append(
            layout.format(name, f"{r['points']:,}", r["cases"], *times, *rates, *costs, f"{r['checksum']:.9e}")
        )
    if check := results["checked"]:
        lines.append(
            f"checked against all {check['points']:,} points of {check['groups']} cases of the last: "
            f"{check['wrong']} of {check['compared']} counts, lists and fronts differ"
        )
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in results["machine"].items())])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(
        prog="sweeps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--points", default=",".join(SIZES), help=f"sizes, of {', '.join(SIZES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=1, help="warm runs of each (default: 1)")
    options = parser.parse_args(arguments)
    sizes = [size for size in options.points.split(",") if size]
    if unknown := set(sizes) - set(SIZES):
        parser.error(f"--points {sorted(unknown)[0]}: one of {', '.join(SIZES)}")
    results = run(sizes, options.repeats)
    print(json.dumps(results, indent=2) if options.json else report(results))
    return 1 if results["checked"] and results["checked"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
