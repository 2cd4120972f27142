# SPDX-License-Identifier: Apache-2.0
"""Sweeps on a GPU: rate and memory traffic of the scan kernel, time of whole sweeps, and agreement with the CPU.

    python -m benchmarks.gpu [--peak GB_PER_S] [--points 1e7,1e8] [--force-cpu] [--json]

The scan kernel is timed over several numbers of rows (layouts) and lengths of blocks (batches that share a bound).
Bytes are those of the arrays: of each row its curves and limits, and the grid once, and all that is written; the share
of the peak memory bandwidth is of the GPU's system file, or of `--peak`. The same points are looked at on the CPU, and
a whole sweep is run on both. Without a GPU it says so and ends, unless `--force-cpu` asks for a trial run.
"""

import argparse
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import jax
import numpy as np

from aicjax import _paths
from aicjax._types import Device
from aicjax.hardware import load_system
from aicjax.serving.agg import AggEstimate
from aicjax.sweeps import kernel
from aicjax.sweeps.cases import enumerate_cases, grid_rules
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.kernel import Grid, Rows
from aicjax.sweeps.prepare import Preparation
from aicjax.sweeps.run import sweep
from aicjax.sweeps.spec import SweepSpec
from benchmarks import sweeps
from benchmarks.timing import CompileClock, machine, median_time, timed

ROWS = {"gpu": (4, 16, 64, 256), "cpu": (4,)}  # of a call
BLOCKS = (8, 16, 32, 64)  # batches of a block
SAMPLE, SEED = 1 << 16, 0  # points that are looked at on both devices
QUANTILES = (0.5, 0.999, 1.0)


@dataclass(frozen=True)
class KernelRun:
    """The scan kernel in one shape.

    Attributes:
        rows, block: Rows of a call, and batches of a block.
        points: Points of a call.
        compile_s, wall_s: Time to compile, and of a call.
        points_per_s, bytes_per_s: Rates.
        of_peak: Share of the peak memory bandwidth; None if that is not known.
    """

    rows: int
    block: int
    points: int
    compile_s: float
    wall_s: float
    points_per_s: float
    bytes_per_s: float
    of_peak: float | None


def case_arrays(spec: SweepSpec) -> tuple[Rows, Grid, bool]:
    """The layouts of the first case of a sweep, its grid, and whether Little's law caps the rate."""
    cases = enumerate_cases(spec)
    preparation, case = Preparation(spec, cases), cases.cases[0]
    return preparation.rows(case), preparation.grid(case).grid, grid_rules(cases.engines[case.engine]).littles_law_cap


def kernel_runs(
    device: Device, rows: Rows, grid: Grid, capped: bool, peak_bytes_per_s: float | None, repeats: int
) -> Iterator[KernelRun]:
    """The scan kernel over all `ROWS` and `BLOCKS`; rows are repeated up to the number."""
    limits = np.array([[1000.0, 20.0]], np.float32)
    clock = CompileClock()
    for count in ROWS[device.platform]:
        at = np.arange(count) % len(rows.replicas)
        given = jax.device_put((jax.tree.map(lambda leaf, at=at: leaf[at], rows), grid, limits), device)
        read = count * _bytes(grid) + _bytes(given[0])
        for block in BLOCKS:
            body = functools.partial(
                kernel.scan, worth=None, measures=("seq_per_s",), corners=True, littles_law_cap=capped
            )
            before = clock.seconds
            with mock.patch.object(kernel, "BLOCK", block):  # read while the kernel is traced
                scan = jax.jit(lambda *arrays, body=body: body(*arrays))
                found, _ = timed(lambda: scan(*given))  # noqa: B023
            compile_s = clock.seconds - before
            _, time = median_time(lambda: scan(*given), repeats)  # noqa: B023
            points, moved = count * grid.needs.inside.size, read + _bytes(found)
            rate = moved / time.wall_s
            of_peak = None if peak_bytes_per_s is None else rate / peak_bytes_per_s
            yield KernelRun(count, block, points, compile_s, time.wall_s, points / time.wall_s, rate, of_peak)


def errors(device: Device, rows: Rows, grid: Grid, capped: bool) -> dict[str, list[float]]:
    """Relative differences between the device and the CPU over a sample of points, `QUANTILES` by estimate."""
    random = np.random.default_rng(SEED)
    batches, budgets = grid.needs.inside.shape
    where = [random.integers(0, size, SAMPLE, np.int32) for size in (len(rows.replicas), batches, budgets)]
    look = jax.jit(functools.partial(kernel.look, littles_law_cap=capped))
    found = []
    for on in (device, jax.devices("cpu")[0]):
        estimates, fits = jax.device_get(look(*jax.device_put((rows, grid, *where), on)))
        found.append((estimates, fits & np.isfinite(estimates.request_latency_ms)))
    (ours, ours_fit), (theirs, theirs_fit) = found
    differences = {"fit": [float(np.mean(ours_fit != theirs_fit))]}
    for name in AggEstimate._fields:
        one, other = (getattr(side, name)[theirs_fit].astype(np.float64) for side in (ours, theirs))
        difference = np.abs(one - other) / np.maximum(np.abs(other), np.finfo(np.float32).tiny)
        differences[name] = [float(value) for value in np.quantile(difference, QUANTILES)]
    return differences


def kept_differences(ours: Kept, theirs: Kept) -> dict[str, float]:
    """How the best points and the counts of two devices differ."""
    tops = [(ours.tops[key], theirs.tops[key]) for key in theirs.tops]
    pairs = [(one, other) for one, other in tops if len(one.number) == len(other.number)]
    values = [np.abs(one.value / other.value - 1).max(initial=0) for one, other in pairs]
    moved = [np.abs(ours.counts[key] - theirs.counts[key]).max() for key in theirs.counts]
    return {
        "lists": len(theirs.tops),
        "lists of another length": len(tops) - len(pairs) + abs(len(ours.tops) - len(theirs.tops)),
        "points of another number": float(sum((one.number != other.number).sum() for one, other in pairs)),
        "largest relative difference of a value": float(max(values, default=0.0)),
        "largest difference of a count": float(max(moved, default=0)),
    }


def run(device: Device, sizes: Sequence[str], peak_bytes_per_s: float | None, repeats: int) -> dict[str, Any]:
    """All measurements."""
    rows, grid, capped = case_arrays(sweeps.kind("experts"))
    runs = list(kernel_runs(device, rows, grid, capped, peak_bytes_per_s, repeats))
    best = max(runs, key=lambda result: result.points_per_s)
    clock = CompileClock()
    whole = {size: sweeps.measure(SweepSpec(**sweeps.SIZES[size]), clock, repeats)[1] for size in sizes}
    spec = sweeps.kind("dense")
    found = sweep(spec).kept
    jax.config.update("jax_default_device", jax.devices("cpu")[0])
    reference = sweep(spec, devices=jax.devices("cpu")[:1]).kept
    return {
        "kernel": [asdict(result) for result in runs],
        "best": asdict(best),
        "sweeps": {size: asdict(result) for size, result in whole.items()},
        "errors": errors(device, rows, grid, capped),
        "kept": kept_differences(found, reference),
        "peak_bytes_per_s": peak_bytes_per_s,
        "machine": machine() | {"device": device.device_kind},
    }


def report(results: dict[str, Any]) -> str:
    """The results as lines of text."""
    layout = "{:>5} {:>6} {:>12} {:>10} {:>9} {:>14} {:>9} {:>8}"
    lines = [layout.format("rows", "block", "points", "compile s", "ms", "points/s", "GB/s", "of peak")]
    for r in results["kernel"]:
        share = "" if r["of_peak"] is None else f"{r['of_peak']:.1%}"
        rates = f"{r['points_per_s']:,.0f}", f"{r['bytes_per_s'] / 1e9:,.1f}", share
        times = f"{r['compile_s']:.1f}", f"{1e3 * r['wall_s']:.3f}"
        lines.append(layout.format(r["rows"], r["block"], f"{r['points']:,}", *times, *rates))
    best = results["best"]
    lines.append(f"best: {best['rows']} rows, blocks of {best['block']}: {best['points_per_s']:,.0f} points/s")
    for size, r in results["sweeps"].items():
        rate = f"{r['points_per_s']:,.0f} points/s"
        lines.append(
            f"sweep {size}: {r['points']:,} points in {r['wall_s']:.2f} s, {rate}, compile {r['compile_s']:.1f} s"
        )
    lines.append(f"differences from the CPU, quantiles {', '.join(map(str, QUANTILES))} of {SAMPLE:,} points:")
    lines += [f"  {name}: {', '.join(f'{v:.1e}' for v in values)}" for name, values in results["errors"].items()]
    lines += [f"  {name}: {value:g}" for name, value in results["kept"].items()]
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in results["machine"].items())])


def peak_of(kind: str) -> float | None:
    """Peak memory bandwidth [B/s] of the system whose name is in the name of a device; None if there is none."""
    names = sorted(_paths.systems_dir().glob("*.yaml"), key=lambda path: "sxm" not in path.stem)
    words = kind.lower().replace("-", " ").split()
    found = [path.stem for path in names if path.stem.split("_")[0] in words]
    return load_system(found[0]).mem_bw_bytes_per_s if found else None


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree) if hasattr(leaf, "nbytes"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peak", type=float, metavar="GB_PER_S", help="peak memory bandwidth")
    parser.add_argument("--points", default="1e7,1e8", help=f"sizes of whole sweeps, of {', '.join(sweeps.SIZES)}")
    parser.add_argument("--repeats", type=int, default=3, help="warm runs of each kind (default: 3)")
    parser.add_argument("--force-cpu", action="store_true", help="run on the CPU, to try the script")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    device = jax.devices("cpu" if options.force_cpu else None)[0]
    if device.platform != "gpu" and not options.force_cpu:
        print("No GPU: nothing measured.")
        return 0
    peak = peak_of(device.device_kind) if options.peak is None else options.peak * 1e9
    results = run(device, [size for size in options.points.split(",") if size], peak, options.repeats)
    print(json.dumps(results, indent=2) if options.json else report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
