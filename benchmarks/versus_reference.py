# SPDX-License-Identifier: Apache-2.0
"""Time of the same searches, and points of in-flight batching per second, in this program and AIConfigurator 0.12.0.

Both try the same candidates. Each search runs as a fresh command, with an empty and with a filled cache of compiled
kernels (AIConfigurator has none), and repeatedly within one process. The programs take turns; times are medians. That
the answers agree is shown by `benchmarks.parity`.

Points per second of one core are those of a sweep here, from the spec to the best points and fronts, all included, and
there those of a search, the evaluation of each new point alone; of a dense model and of one with experts.

    python -m benchmarks.versus_reference --reference-python PYTHON [--only searches|points] [--repeats N] [--json]

PYTHON is an interpreter with the package `aiconfigurator` installed.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import sweeps
from benchmarks.timing import CompileClock, Timing

ROOT = Path(__file__).parents[1]
SEARCHES: Mapping[str, Mapping[str, object]] = {
    "Qwen3-32B-FP8, 32 H200, TensorRT-LLM": {
        "model": "Qwen/Qwen3-32B-FP8",
        "system": "h200_sxm",
        "total-gpus": 32,
        "backend": "trtllm",
        "isl": 4000,
        "osl": 500,
        "prefix": 500,
        "ttft": 300,
        "tpot": 10,
    },
    "Llama-3.1-70B, 16 H100, vLLM": {
        "model": "meta-llama/Meta-Llama-3.1-70B",
        "system": "h100_sxm",
        "total-gpus": 16,
        "backend": "vllm",
        "isl": 3500,
        "osl": 350,
        "ttft": 2000,
        "tpot": 40,
    },
    "Qwen3-32B-FP8, 64 H200, SGLang": {
        "model": "Qwen/Qwen3-32B-FP8",
        "system": "h200_sxm",
        "total-gpus": 64,
        "backend": "sglang",
        "isl": 1500,
        "osl": 1500,
        "ttft": 600,
        "tpot": 8,
    },
    "Qwen3-8B, 8 H200, vLLM, long prompts": {
        "model": "Qwen/Qwen3-8B",
        "system": "h200_sxm",
        "total-gpus": 8,
        "backend": "vllm",
        "isl": 32768,
        "osl": 1024,
        "ttft": 8000,
        "tpot": 25,
    },
}


RATE_SEARCH: Mapping[str, object] = {
    "system": sweeps.SYSTEMS[0],
    "total-gpus": 8,
    "isl": sweeps.AXES["isl"][0],
    "osl": sweeps.AXES["osl"][0],
    "ttft": sweeps.AXES["limits"][0]["ttft"],
    "tpot": sweeps.AXES["limits"][0]["tpot"],
}


class Program(NamedTuple):
    """How one program is called.

    Attributes:
        python: Its interpreter.
        module, function: Entry point of its command line, which takes the arguments.
        command: Arguments before the flags.
    """

    python: str
    module: str
    function: str
    command: tuple[str, ...]

    def arguments(self, search: Mapping[str, object]) -> list[str]:
        """The command line of a search."""
        return [*self.command, *(str(word) for name, value in search.items() for word in (f"--{name}", value))]


class Comparison(NamedTuple):
    """Median times of one search.

    Attributes:
        search: Name of the search.
        how: `fresh, cold`, `fresh, warm` or `in process`.
        ours, reference: Times of the programs.
    """

    search: str
    how: str
    ours: Timing
    reference: Timing


class Rates(NamedTuple):
    """Points of in-flight batching per second of one kind of model.

    Attributes:
        kind: A key of `sweeps.KINDS`.
        ours, reference: Points per CPU second, which is per core, of each program.
        ours_points, reference_points: Points that were evaluated.
    """

    kind: str
    ours: float
    reference: float
    ours_points: int
    reference_points: int


def compare_rates(reference_python: str, repeats: int) -> Iterator[Rates]:
    """Points per second of both programs, over all backends."""
    clock = CompileClock()
    for kind, model in sweeps.KINDS.items():
        _, ours = sweeps.measure(sweeps.kind(kind), clock, repeats)
        points, cpu_s = 0, 0.0
        for backend in sweeps.BACKENDS:
            search = {"model": model, "backend": backend, **RATE_SEARCH}
            flags = [str(word) for name, value in search.items() for word in (f"--{name}", value)]
            script = str(Path(__file__).with_name("reference_rate.py"))
            found, _, spent_s = json.loads(_run([reference_python, script, "cli", "default", *flags]))
            points, cpu_s = points + found, cpu_s + spent_s
        yield Rates(kind, ours.points_per_cpu_s, points / cpu_s, ours.points, points)


def compare(reference_python: str, repeats: int) -> Iterator[Comparison]:
    """Times of all searches, each both ways."""
    ours = Program(sys.executable, "aicjax.cli.app", "run", ("search", "--grid", "reference"))
    reference = Program(reference_python, "aiconfigurator.main", "main", ("cli", "default"))
    for name, search in SEARCHES.items():
        cold, warm, theirs = [], [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(fresh(ours, search, cache))
                theirs.append(fresh(reference, search, cache))
                warm.append(fresh(ours, search, cache))
        yield Comparison(name, "fresh, cold", _median(cold), _median(theirs))
        yield Comparison(name, "fresh, warm", _median(warm), _median(theirs))
        with tempfile.TemporaryDirectory() as cache:
            within = [repeated(program, search, cache, repeats) for program in (ours, reference)]
        yield Comparison(name, "in process", *within)


def fresh(program: Program, search: Mapping[str, object], cache: str) -> Timing:
    """Time of one search as a command of its own."""
    entry = f"import sys; from {program.module} import {program.function} as f; sys.exit(f(sys.argv[1:]))"
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _run([program.python, "-c", entry, *program.arguments(search)], cache)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(time.perf_counter() - wall, cpu_s)


def repeated(program: Program, search: Mapping[str, object], cache: str, repeats: int) -> Timing:
    """Median time of one search that a process has done before."""
    script = str(Path(__file__).with_name("repeat_call.py"))
    call = (program.module, program.function, str(repeats))
    printed = _run([program.python, script, *call, *program.arguments(search)], cache)
    return _median([Timing(*times) for times in json.loads(printed)])


def _run(command: Sequence[str], cache: str | None = None) -> str:
    environment = {**os.environ, **({} if cache is None else {"JAX_COMPILATION_CACHE_DIR": cache})}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _median(times: Sequence[Timing]) -> Timing:
    return Timing(statistics.median(t.wall_s for t in times), statistics.median(t.cpu_s for t in times))


def _report_rates(found: Iterator[Rates], *, quiet: bool) -> list[dict[str, object]]:
    layout = "{:<38} {:>16} {:>16} {:>9}"
    if not quiet:
        print(layout.format("points of in-flight batching", "per CPU s", "ref. per CPU s", "x"))
    results = []
    for rates in found:
        ratio = rates.ours / rates.reference
        results.append({**rates._asdict(), "ratio": ratio})
        if not quiet:
            print(
                layout.format(rates.kind, f"{rates.ours:,.0f}", f"{rates.reference:,.0f}", f"{ratio:,.0f}"), flush=True
            )
    return results


def _report_searches(found: Iterator[Comparison], *, quiet: bool) -> list[dict[str, object]]:
    layout = "{:<38} {:<12} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}"
    if not quiet:
        header = ("wall s", "CPU s", "ref. wall", "ref. CPU", "x wall", "x CPU")
        print(layout.format("search", "how", *header))
    results = []
    for result in found:
        results.append({**result._asdict(), "ours": result.ours._asdict(), "reference": result.reference._asdict()})
        if not quiet:
            ratios = (theirs / ours for ours, theirs in zip(result.ours, result.reference, strict=True))
            times = (f"{seconds:.2f}" for seconds in (*result.ours, *result.reference))
            print(layout.format(result.search, result.how, *times, *(f"{ratio:.1f}" for ratio in ratios)), flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="versus_reference", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference-python", required=True, metavar="PYTHON", help="interpreter with aiconfigurator")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--only", choices=("searches", "points"), help="one of the two comparisons (default: both)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    results: dict[str, list] = {"searches": [], "points": []}
    if options.only != "searches":
        results["points"] = _report_rates(compare_rates(options.reference_python, options.repeats), quiet=options.json)
    if options.only != "points":
        results["searches"] = _report_searches(compare(options.reference_python, options.repeats), quiet=options.json)
    if options.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
