# SPDX-License-Identifier: Apache-2.0
"""Requests per second of fleets under live routing, by replicas and runs that go together.

Two pools of A100 replicas share the azure lengths at four fifths of what their slots can serve. Each line is the best
of some calls, without compiling: per second on the wall, and per second of CPU, which a machine shared with others
leaves as it is. The fleet reference handles 13,700, 5,000 and 1,200 requests per second with 14, 60 and 280 GPUs.

    python -m benchmarks.fleet_routed --replicas 60 --runs 1 64
"""

import argparse
import os
import sys
from collections.abc import Sequence

from aicjax.cli.device import prepare

prepare()  # before jax is imported

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from aicjax.fleet import lengths  # noqa: E402
from aicjax.fleet.arrivals import poisson_gaps  # noqa: E402
from aicjax.fleet.fleet_simulation import Deployment, compare_policies  # noqa: E402
from aicjax.fleet.presets import preset  # noqa: E402
from aicjax.fleet.profile import stacked  # noqa: E402
from aicjax.fleet.routing import Requests, Route, fit_route, least_loaded_route  # noqa: E402
from benchmarks.timing import timed  # noqa: E402

LIMITS = (6144, 16384)  # context of the pools
SHORT_SHARE = 0.7  # of the replicas
RATE_PER_REPLICA_S = 9.0
POLICIES = {"fit": fit_route, "least loaded": lambda requests, limits: least_loaded_route(requests)}


def speed(replicas: int, runs: int, requests: int, policy: str, repeats: int) -> tuple[float, float, float]:
    """Requests per second of wall and of CPU time, and the mean time to first token [s] as a check."""
    short = round(SHORT_SHARE * replicas)
    limits = jnp.asarray(LIMITS, jnp.int32)
    deployment = Deployment(stacked([preset("a100")] * 2), limits, jnp.asarray([short, replicas - short], jnp.int32))
    keys = jax.random.split(jax.random.key(0), (3, runs))
    gaps_s = jax.vmap(lambda key: poisson_gaps(key, RATE_PER_REPLICA_S * replicas, requests))(keys[0])
    isl, osl = jax.vmap(lambda key: lengths.sample(key, lengths.named("azure"), requests))(keys[1])
    stream = Requests(isl, osl, jnp.ones_like(isl, bool))
    routes: dict[str, Route] = {policy: POLICIES[policy](stream, limits)}
    draws = jax.vmap(lambda key: jax.random.uniform(key, (requests, 2)))(keys[2])

    def call() -> np.ndarray:
        return np.asarray(compare_policies(gaps_s, stream, routes, deployment, draws).ttft_s)

    check = call()
    times = [timed(call)[1] for _ in range(repeats)]
    wall_s, cpu_s = (min(column) for column in zip(*times, strict=True))
    return check.size / wall_s, check.size / cpu_s, float(check.mean(dtype=float))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fleet_routed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, nargs="+", default=(14, 60, 280), help="replicas of a fleet")
    parser.add_argument("--runs", type=int, nargs="+", default=(1, 16, 128), help="runs that go together")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of a run")
    parser.add_argument("--repeats", type=int, default=3, help="calls of which the best counts")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores; load at the start {os.getloadavg()[0]:.1f}")
    print(f"{'replicas':>8} {'runs':>5} {'policy':<13} {'per wall s':>11} {'per CPU s':>11} {'mean TTFT s':>12}")
    for replicas in options.replicas:
        for runs in options.runs:
            for policy in POLICIES:
                wall, cpu, check = speed(replicas, runs, options.requests, policy, options.repeats)
                print(f"{replicas:>8} {runs:>5} {policy:<13} {wall:>11,.0f} {cpu:>11,.0f} {check:>12.5f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
