# SPDX-License-Identifier: Apache-2.0
"""Requests per second of the slot-level simulator: many fleets at once, by servers, on all cores of this machine.

Each line is the best of some calls, without compiling: requests per second on the wall, and per second of CPU, which a
machine shared with others leaves as it is. The last line is one call with draws, waits and percentiles.

    python -m benchmarks.fleet_speed --fleets 64
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from aicjax.cli.device import prepare

prepare()  # before jax is imported

import jax  # noqa: E402
import numpy as np  # noqa: E402

from aicjax.fleet.cores import over_cores  # noqa: E402
from aicjax.fleet.pool_queue import FLEETS_AT_ONCE, simulate_queues  # noqa: E402
from aicjax.fleet.service_times import ServiceLaw  # noqa: E402
from aicjax.fleet.slot_queue import slot_waits  # noqa: E402
from aicjax.fleet.statistics import after_warm_up, quantile_interval  # noqa: E402
from benchmarks.timing import Timing, timed  # noqa: E402

SERVERS = (16, 64, 256, 1280, 2560)
UTILIZATION = 0.98
MOST_REQUESTS = 20_000_000  # of a line
MANY_FLEETS, REQUESTS = 1000, 10_000  # of the last line


class Speed(NamedTuple):
    """Requests of a call and the least times of some calls."""

    requests: int
    best: Timing
    check: float

    def line(self, label: str) -> str:
        """The speed on one line; the check is a mean, which does not depend on the machine."""
        wall, cpu = (self.requests / seconds / 1e6 for seconds in self.best)
        return f"{label:<34} {self.requests / 1e6:>8.2f} {wall:>10.2f} {cpu:>10.2f} {self.check:>12.6g}"


def measured(call: Callable[[], Any], requests: int, repeats: int) -> Speed:
    """The best of some calls after one that compiles; wall and CPU each from the call that was best in it."""
    answer = np.asarray(call())
    times = [timed(call)[1] for _ in range(repeats)]
    return Speed(requests, Timing(*map(min, zip(*times, strict=True))), float(answer.mean(dtype=float)))


def waits_of(fleets: int, servers: int, repeats: int) -> Speed:
    """Queues with exponential gaps and lognormal service, given as arrays."""
    count = max(MOST_REQUESTS // max(1, servers // 64) // fleets, 8 * servers)
    rng = np.random.default_rng(0)
    gaps = rng.standard_exponential((fleets, count), np.float32) / np.float32(UTILIZATION * servers)
    service = np.exp(rng.standard_normal((fleets, count), np.float32) - np.float32(0.5))
    rows = (gaps, service, np.full(fleets, servers, np.int32))
    waits = jax.jit(partial(slot_waits, width=servers))
    return measured(lambda: over_cores(waits, rows, FLEETS_AT_ONCE), gaps.size, repeats)


def one_call(fleets: int, requests: int, repeats: int) -> Speed:
    """Fleets of 16 to 256 servers at many rates, from the law of service to percentiles with intervals."""
    servers = np.resize(np.array([16, 64, 256]), fleets)
    rate = servers * np.linspace(0.5, 0.95, fleets, dtype=np.float32)
    points = np.linspace(0.1, 1.9, 1000, dtype=np.float32)
    law = ServiceLaw(*map(jax.numpy.asarray, (points, points / 10, np.full_like(points, 1e-3))))

    def call() -> np.ndarray:
        sample = simulate_queues(jax.random.key(0), law, rate, servers, requests=requests)
        interval = quantile_interval(after_warm_up(sample.ttft_s), 0.99)
        assert interval is not None
        return interval.value

    return measured(call, fleets * requests, repeats)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fleet_speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fleets", type=int, default=64, help="fleets that run together")
    parser.add_argument("--servers", type=int, nargs="+", default=SERVERS, help="servers of each fleet")
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the best counts")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, million requests; load at the start {os.getloadavg()[0]:.1f}")
    print(f"{'queues':<34} {'requests':>8} {'per wall s':>10} {'per CPU s':>10} {'check':>12}")
    for servers in options.servers:
        speed = waits_of(options.fleets, servers, options.repeats)
        print(speed.line(f"{options.fleets} fleets, {servers} servers"), flush=True)
    start = time.perf_counter()
    speed = one_call(MANY_FLEETS, REQUESTS, options.repeats)
    print(speed.line(f"{MANY_FLEETS} fleets in one call"))
    print(f"{speed.best.wall_s:.2f} s for that call; {time.perf_counter() - start:.1f} s with compiling and repeats")
    return 0


if __name__ == "__main__":
    sys.exit(main())
