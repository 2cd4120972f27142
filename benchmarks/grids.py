# SPDX-License-Identifier: Apache-2.0
"""What the full grid finds beyond the coarse lists of AIConfigurator 0.12.0: the same searches on both.

One line for each search: the best throughput per GPU within its limits on both grids (for a load the fewest GPUs), the
gain, what the better configuration has instead, and the CPU time of a search that the process has done before. Both
run under the same model, with the defects of AIConfigurator, so that the coarse column is what it finds.

    python -m benchmarks.grids [--from DIRECTORY] [--markdown]

DIRECTORY holds `e2e_specs.json`; by default it is that of the tests.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aicjax.cli.device import prepare

prepare()  # before jax is imported

from aicjax._results import AicjaxError  # noqa: E402
from aicjax.explore import SearchRequest, SearchResult, recommend, search  # noqa: E402
from aicjax.explore import frame as frames  # noqa: E402
from aicjax.explore.columns import CLUSTER  # noqa: E402
from aicjax.report.grid_gain import change  # noqa: E402
from benchmarks.parity_cases.requests import read_requests, read_specifications  # noqa: E402
from benchmarks.timing import Timing, median_time, timed  # noqa: E402

REFERENCES = Path(__file__).parents[1] / "tests" / "references"
COARSE, FULL = "reference", "full"
_HEADER = ("search", "asked", "coarse", "full", "gain %", "coarse CPU s", "full CPU s", "what changed")


@dataclass(frozen=True)
class Beside:
    """One search on both grids.

    Attributes:
        name: Its name.
        asked: Model, system, engine and budget or load.
        unit: `tok/s/gpu`, or `GPUs` where a load is asked for.
        coarse, full: The best figure on each grid; None where nothing meets the limits.
        gain_percent: By how much the full grid is better; None without a figure on both.
        changed: What the better configuration has instead.
        coarse_time, full_time: Time of a warm search.
    """

    name: str
    asked: str
    unit: str
    coarse: float | None
    full: float | None
    gain_percent: float | None
    changed: str
    coarse_time: Timing
    full_time: Timing

    def cells(self) -> tuple[str, ...]:
        """The columns of `_HEADER`."""
        digits = 0 if self.unit == "GPUs" else 2
        figures = ("-" if value is None else f"{value:.{digits}f}" for value in (self.coarse, self.full))
        gain = "-" if self.gain_percent is None else f"{round(self.gain_percent, 1) + 0.0:+.1f}"
        times = (f"{time.cpu_s:.2f}" for time in (self.coarse_time, self.full_time))
        return self.name, self.asked, *figures, gain, *times, self.changed


def compare(directory: Path, repeats: int) -> Iterator[Beside]:
    """All searches of a directory that find something on either grid, one after the other."""
    requests, specifications = read_requests(directory), read_specifications(directory)
    for name, request in requests.items():
        run = recommend if specifications[name]["kind"] == "recommend" else search
        try:
            (coarse, coarse_time), (full, full_time) = (
                _warm(run, request(grid=grid), repeats) for grid in (COARSE, FULL)
            )
        except AicjaxError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if not (_found(coarse) or _found(full)):
            continue
        gain = full.grid_gain
        yield Beside(
            name=name,
            asked=_asked(full.request),
            unit="tok/s/gpu" if full.request.total_gpus else "GPUs",
            coarse=_figure(coarse),
            full=_figure(full),
            gain_percent=_gain(coarse, full),
            changed=change(gain) if gain is not None and gain.percent else "",
            coarse_time=coarse_time,
            full_time=full_time,
        )


def _warm(
    run: Callable[[SearchRequest], SearchResult], request: SearchRequest, repeats: int
) -> tuple[SearchResult, Timing]:
    timed(lambda: run(request))
    return median_time(lambda: run(request), repeats)


def _found(result: SearchResult) -> bool:
    return result.winner is not None and result.winner.meets_target


def _figure(result: SearchResult) -> float | None:
    if result.winner is None or not result.winner.meets_target:
        return None
    first = frames.row(result.winner.best, 0)
    return float(first.get("total_gpus_needed") or first[CLUSTER])


def _gain(coarse: SearchResult, full: SearchResult) -> float | None:
    if coarse.winner is None or full.winner is None or not (_found(coarse) and _found(full)):
        return None
    return 100 * (full.winner.score / coarse.winner.score - 1)


def _asked(request: SearchRequest) -> str:
    if request.total_gpus:
        size = f"{request.total_gpus} x"
    elif request.target_request_rate is not None:
        size = f"{request.target_request_rate:g} req/s on"
    else:
        size = f"{request.target_concurrency:g} in flight on"
    return f"{request.model_path.split('/')[-1]}, {size} {request.system}, {request.backend}"


def summary(results: Sequence[Beside]) -> str:
    """How many searches gained, and by how much."""
    gains = [result.gain_percent for result in results if result.gain_percent is not None]
    times = [[getattr(r, f"{grid}_time").cpu_s for r in results] for grid in ("coarse", "full")]
    better = sum(gain >= 0.05 for gain in gains)
    coarse, full = (f"{statistics.median(seconds):.2f} and {max(seconds):.2f}" for seconds in times)
    return (
        f"{better} of {len(gains)} better; gain {statistics.median(gains):+.1f} % in the median, "
        f"{statistics.fmean(gains):+.1f} % in the mean, from {min(gains):+.2f} to {max(gains):+.1f} %\n"
        f"CPU s of a search, median and largest: coarse {coarse}, full {full}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares and prints; returns the exit code: 1 where the full grid is worse."""
    parser = argparse.ArgumentParser(
        prog="grids", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="directory", type=Path, default=REFERENCES, help="directory of e2e_specs.json")
    parser.add_argument("--repeats", type=int, default=3, help="warm searches of each kind (default: 3)")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args(arguments)
    if options.markdown:
        layout = "| " + " | ".join(["{}"] * len(_HEADER)) + " |"
        print(layout.format(*_HEADER), layout.format(*["---"] * len(_HEADER)), sep="\n")
    else:
        layout = "{:<24} {:<52} {:>9} {:>9} {:>7} {:>13} {:>11}  {}"
        print(layout.format(*_HEADER))
    results = []
    for result in compare(options.directory, options.repeats):
        results.append(result)
        print(layout.format(*result.cells()).rstrip(), flush=True)
    print("", summary(results), sep="\n")
    return int(any(result.gain_percent is not None and result.gain_percent < -0.01 for result in results))


if __name__ == "__main__":
    sys.exit(main())
