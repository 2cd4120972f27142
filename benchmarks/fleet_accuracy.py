# SPDX-License-Identifier: Apache-2.0
"""How closely the P99 TTFT in closed form agrees with a simulation of the same queue, in 48 cases.

Three laws of lengths (azure, lmsys, agent_heavy) on A100 replicas of 16 slots (65,536 tokens of context), with 1, 8,
40 and 160 replicas (16, 128, 640 and 2,560 servers), at 70, 85, 95 and 98 % utilisation. Both sides take the same law
of service times, at full slots, and of prefills, of a request alone; new runs have a second pair, with prefills beside
full slots. The simulation serves in order of arrival.

Percentiles of long runs, 50 to 500 million requests a case, are stored, since the rare long services of lmsys need that
many. `--simulate` makes new ones with the simulator of the package, as long as the queue's memory asks or as
`--requests` says: each run begins with servers that are busy as in the long run, and its first quarter is dropped. One
line a case: half the width of the simulation's own 95 % interval, errors of the TTFT here and of the fleet reference's
two-moment law; for new runs also whether the warm-up is long beside the time in which the queue forgets. Exit code 1
when the median error is above 10 % or the largest above 35 %.

    python -m benchmarks.fleet_accuracy
    python -m benchmarks.fleet_accuracy --simulate --requests 2e8 --laws azure --servers 16
"""

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aicjax.cli.device import prepare

prepare()  # before jax is imported

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from aicjax.fleet import lengths  # noqa: E402
from aicjax.fleet.presets import preset  # noqa: E402
from aicjax.fleet.profile import first_token_s, slots  # noqa: E402
from aicjax.fleet.reference_queueing import reference_wait  # noqa: E402
from aicjax.fleet.rules import FLEET_REFERENCE  # noqa: E402
from aicjax.fleet.service_times import ServiceLaw, mean_prefill_s, moments, service_law  # noqa: E402
from aicjax.fleet.slot_queue import slot_waits  # noqa: E402
from aicjax.fleet.statistics import student_t  # noqa: E402
from aicjax.fleet.ttft import ttft_quantile_s  # noqa: E402
from aicjax.fleet.waiting import wait_law, wait_quantile_s  # noqa: E402

STORED = Path(__file__).parents[1] / "tests" / "references" / "fleet" / "queue_percentiles.json"
LAWS = ("azure", "lmsys", "agent_heavy")
REPLICAS = (1, 8, 40, 160)
LOADS = (0.70, 0.85, 0.95, 0.98)
CONTEXT = 65_536
QUANTILE = 0.99
MEDIAN_LIMIT, WORST_LIMIT = 0.10, 0.35

SHORT_RUN, LONG_RUN = 1 << 20, 1 << 22  # requests
LANES = 8  # runs at once
WARM_UP = 4  # one part in so many of a run is dropped
FORGOTTEN = 6.0  # times in which a queue forgets, in a run's warm-up, that make it long enough
INDEPENDENT = 2_000.0  # times in which a queue forgets, in all runs together, for an interval of a few percent
BINS_PER_DECADE = 1_000
DECADES = (-6, 6)
_HEADER = (
    f"{'law':<12}{'servers':>8}{'rho':>6}{'requests':>10}{'warm':>6}{'TTFT s':>10}{'+-':>7}{'ours':>8}{'two-mom.':>10}"
)
_BESIDE = f"{'beside s':>10}{'ours':>8}"


class Case(NamedTuple):
    """One case.

    Attributes:
        name: Law of lengths.
        servers: Slots of all replicas.
        rho: Share of the slots that are busy.
        alone: Law of service times and prefills alone.
        beside: The same service times, and prefills beside full slots.
    """

    name: str
    servers: int
    rho: float
    alone: ServiceLaw
    beside: ServiceLaw

    @property
    def rate_per_s(self) -> float:
        """Arrivals."""
        return self.rho * self.servers / float(moments(self.alone)[0])

    @property
    def memory(self) -> float:
        """Requests in which the queue forgets: twice its variance over the square of its drift."""
        return 2.0 * (1.0 + float(moments(self.alone)[1])) / (1.0 - self.rho) ** 2


class Simulated(NamedTuple):
    """Percentiles of simulated TTFTs [s].

    Attributes:
        ttft_s: With prefills alone, and beside full slots; the latter NaN where it is not known.
        half_width: Half the 95 % interval of the first, relative.
        requests: Requests that count.
        warm: Whether the warm-up is long enough.
    """

    ttft_s: tuple[float, float]
    half_width: float
    requests: int
    warm: bool = True


def cases(names: Sequence[str], servers: Sequence[int]) -> Iterator[Case]:
    """The cases, some laws and numbers of servers only."""
    profile = preset("a100")
    count = int(slots(profile, CONTEXT))
    for name in names:
        law = lengths.named(name)
        alone = service_law(profile, law, CONTEXT, rules=FLEET_REFERENCE)
        beside = alone._replace(prefill_s=first_token_s(profile, law.isl, float(count), law.isl + law.osl))
        for replicas in REPLICAS:
            if replicas * count in servers:
                yield from (Case(name, replicas * count, rho, alone, beside) for rho in LOADS)


@jax.jit
def closed_forms(
    servers: jax.Array, rate_per_s: jax.Array, alone: ServiceLaw, beside: ServiceLaw
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P99 TTFT with prefills alone and beside full slots, and that of the two-moment law."""
    wait = wait_law(servers, rate_per_s, alone)
    two_moments = wait_quantile_s(reference_wait(servers, rate_per_s, *moments(alone)), QUANTILE)
    ours, ours_beside = (ttft_quantile_s(wait, law, QUANTILE) for law in (alone, beside))
    return ours, ours_beside, two_moments + mean_prefill_s(alone)


def stored(case: Case) -> Simulated:
    """Percentiles of long runs."""
    rows = json.loads(STORED.read_text(encoding="utf-8"))["rows"]
    row = next(row for row in rows if (row["lengths"], row["servers"], row["rho"]) == case[:3])
    p99_s = row["ttft_p99_s"]
    return Simulated((p99_s, math.nan), row["ttft_half_width_s"] / p99_s, row["requests"])


def simulated(case: Case, requests: float | None) -> Simulated:
    """Percentiles of about so many requests in all; of runs that are long beside the queue's memory where None."""
    wanted = max(INDEPENDENT * case.memory, LANES * SHORT_RUN) if requests is None else requests
    length = LONG_RUN if case.memory * FORGOTTEN > SHORT_RUN / WARM_UP else SHORT_RUN
    batches = max(1, round(wanted / (LANES * length)))
    shape = (2, batches * LANES, (DECADES[1] - DECADES[0]) * BINS_PER_DECADE)
    counts = np.zeros(shape, np.int64)
    for batch in range(batches):
        both = _run(
            jax.random.key(batch), case.alone, case.beside.prefill_s, case.rate_per_s, case.rho, case.servers, length
        )
        for times, rows in zip(both, counts, strict=True):
            for lane, ttft in enumerate(np.asarray(times)):
                rows[batch * LANES + lane] += _binned(ttft)
    value, half = _percentile(counts[0])
    kept = length - length // WARM_UP
    return Simulated(
        (value, _percentile(counts[1])[0]),
        half,
        batches * LANES * kept,
        case.memory * FORGOTTEN <= length / WARM_UP,
    )


@functools.partial(jax.jit, static_argnames=("servers", "length"))
def _run(
    key: jax.Array,
    law: ServiceLaw,
    beside_s: jax.Array,
    rate_per_s: jax.Array,
    rho: jax.Array,
    servers: int,
    length: int,
) -> tuple[jax.Array, jax.Array]:
    """TTFTs of runs, after their warm-up. The first `servers` arrivals are what servers are busy with at first."""
    gaps, points, busy, rest = jax.random.split(key, 4)
    gap_s = jax.random.exponential(gaps, (LANES, length)) / rate_per_s
    point = _points(points, law.weight, (LANES, length))
    started = _points(rest, law.weight * law.service_s, (LANES, servers))
    left, taken = jax.random.uniform(busy, (2, LANES, servers))
    remaining_s = jnp.where(taken < rho, left * law.service_s[started], 0.0)
    waits_s = slot_waits(
        jnp.concatenate([jnp.zeros((LANES, servers)), gap_s], axis=1),
        jnp.concatenate([remaining_s, law.service_s[point]], axis=1),
        servers,
        width=servers,
    )
    kept = slice(length // WARM_UP, None)
    wait_s, point = waits_s[:, servers:][:, kept], point[:, kept]
    return wait_s + law.prefill_s[point], wait_s + beside_s[point]


def _points(key: jax.Array, weight: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """Points of a law, drawn by its weights."""
    below = jnp.cumsum(weight)
    drawn = jnp.searchsorted(below, jax.random.uniform(key, shape) * below[-1], side="right")
    return jnp.minimum(drawn, weight.size - 1)


def _binned(times_s: np.ndarray) -> np.ndarray:
    """Counts of times in bins of equal width in the logarithm."""
    bins = (DECADES[1] - DECADES[0]) * BINS_PER_DECADE
    place = ((np.log10(times_s) - DECADES[0]) * BINS_PER_DECADE).astype(np.int32)
    return np.bincount(np.clip(place, 0, bins - 1), minlength=bins)


def _percentile(counts: np.ndarray) -> tuple[float, float]:
    """Percentile of all runs, and half its 95 % interval, relative: from how often each run exceeds it."""
    below = np.cumsum(counts.sum(axis=0)) / counts.sum()
    edges = 10.0 ** (DECADES[0] + np.arange(1, below.size + 1) / BINS_PER_DECADE)
    place = int(np.searchsorted(below, QUANTILE))
    each = counts[:, : place + 1].sum(axis=1) / counts.sum(axis=1)
    half = student_t(0.975, len(each) - 1) * each.std(ddof=1) / math.sqrt(len(each))
    if not 0.0 < QUANTILE - half < QUANTILE + half < 1.0:
        return float(edges[place]), math.inf
    low, high = (edges[np.searchsorted(below, QUANTILE + step)] for step in (-half, half))
    return float(edges[place]), float((high - low) / 2.0 / edges[place])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line a case and the summary; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fleet_accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=LAWS, help="some laws only")
    every = [16 * replicas for replicas in REPLICAS]
    parser.add_argument("--servers", nargs="+", type=int, choices=every, default=every, help="some sizes only")
    parser.add_argument("--simulate", action="store_true", help="make new runs")
    parser.add_argument("--requests", type=float, help="requests of a new case [by the queue's memory]")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    print(_HEADER + (_BESIDE if options.simulate else ""), flush=True)
    errors = []
    for case in cases(options.laws, options.servers):
        found = simulated(case, options.requests) if options.simulate else stored(case)
        ours, beside, two_moments = (float(x) for x in closed_forms(case.servers, case.rate_per_s, *case[3:]))
        error = ours / found.ttft_s[0] - 1.0
        errors.append((error, two_moments / found.ttft_s[0] - 1.0, beside / found.ttft_s[1] - 1.0))
        print(
            f"{case.name:<12}{case.servers:>8}{case.rho:>6.2f}{found.requests:>10.1e}{'yes' if found.warm else 'no':>6}"
            f"{found.ttft_s[0]:>10.3f}{found.half_width:>7.0%}{error:>+8.1%}{errors[-1][1]:>+10.0%}"
            + (f"{found.ttft_s[1]:>10.3f}{errors[-1][2]:>+8.1%}" if options.simulate else ""),
            flush=True,
        )
    size = np.abs(errors)
    names = ("ours", "two moments", "ours, prefill beside full slots")[: 3 if options.simulate else 2]
    for name, column in zip(names, size.T[: len(names)], strict=True):
        print(f"{name}: median {np.median(column):.1%}, largest {column.max():.1%} of {len(column)} cases")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(np.median(size[:, 0]) > MEDIAN_LIMIT or size[:, 0].max() > WORST_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
