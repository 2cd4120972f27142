# SPDX-License-Identifier: Apache-2.0
"""Requests per second of the step-level simulator: closed loops of many fleets at once, on all cores of this machine.

Every fleet is one deployment with step times from its tables. Lengths are all alike, or uniform from 80 % of the
nominal ones to all of them, where answers end one by one. Lines as in `benchmarks.fleet_speed`; the check is the mean
TTFT [s].

    python -m benchmarks.fleet_steps --isl 1024 --osl 128 --clients 64
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from aicjax.cli.device import prepare

prepare()  # before jax is imported

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from aicjax.fleet.cores import over_cores  # noqa: E402
from aicjax.fleet.engine_profile import EngineRun, engine_run  # noqa: E402
from aicjax.fleet.replica_spec import EngineReplica  # noqa: E402
from aicjax.fleet.step_queue import simulate_steps  # noqa: E402
from aicjax.fleet.step_run import StepLoad, StepRun, closed_load, conserved  # noqa: E402
from benchmarks.fleet_speed import Speed, measured  # noqa: E402

DEPLOYMENT = EngineReplica(model="Qwen/Qwen3-32B", system="h200_sxm", backend="vllm", tp=2, batch_size=64)
STEP_TOKENS = 2048
FLEETS_AT_ONCE = 256  # of one core: their state stays in its cache
WAVES = 20  # requests of a client


def loads(fleets: int, clients: int, isl: int, osl: int, least_share: float) -> StepLoad:
    """Closed loops with lengths uniform from a share of the nominal ones to all of them."""
    rng = np.random.default_rng(0)
    shape = fleets, WAVES * clients
    prompt, answer = (np.round(most * rng.uniform(least_share, 1.0, shape)) for most in (isl, osl))
    return closed_load(jnp.asarray(prompt, jnp.int32), jnp.asarray(answer, jnp.int32), clients)


def speed_of(deployment: EngineRun, load: StepLoad, repeats: int) -> Speed:
    """The speed of one set of loops, each checked for requests, tokens and blocks that are lost."""
    width = int(deployment.limits.slots)
    simulate = partial(simulate_steps, deployment.steps, deployment.limits, width=width, places=load.isl.shape[1])
    run: StepRun = over_cores(simulate, (load,), FLEETS_AT_ONCE)
    assert all(jax.tree.map(np.all, conserved(run, load, deployment.limits)))
    return measured(lambda: over_cores(simulate, (load,), FLEETS_AT_ONCE).ttft_s, load.isl.size, repeats)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fleet_steps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fleets", type=int, default=1024, help="fleets that run together")
    parser.add_argument("--clients", type=int, default=64, help="requests in flight of a fleet, at most its slots")
    parser.add_argument("--isl", type=int, default=1024, help="longest prompt [tokens]")
    parser.add_argument("--osl", type=int, default=128, help="longest answer [tokens]")
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the best counts")
    options = parser.parse_args(arguments)
    replica = DEPLOYMENT.model_copy(update={"batch_size": options.clients})
    deployment = engine_run(replica, mean_tokens=options.isl + options.osl, step_tokens=STEP_TOKENS)
    print(f"{os.cpu_count()} cores, million requests; load at the start {os.getloadavg()[0]:.1f}")
    print(f"{'closed loops':<34} {'requests':>8} {'per wall s':>10} {'per CPU s':>10} {'check':>12}")
    for name, least_share in (("equal lengths", 1.0), ("lengths from 80 %", 0.8)):
        load = loads(options.fleets, options.clients, options.isl, options.osl, least_share)
        print(speed_of(deployment, load, options.repeats).line(f"{options.fleets} fleets, {name}"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
