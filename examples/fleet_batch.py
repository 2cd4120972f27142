# SPDX-License-Identifier: Apache-2.0
"""For the capacity planner: thousands of simulated fleets in one call, and how sure the cheapest one is.

Every number of replicas at every rate is simulated with every seed, all fleets together, each with the same random
numbers. Batch means give the interval of P99; the spread over seeds of the least number gives that of the optimum.

    python examples/fleet_batch.py
"""

import time

import jax
import numpy as np

from aicjax.fleet import (
    after_warm_up,
    lengths,
    nearest_rank,
    preset,
    quantile_interval,
    service_law,
    simulate_queues,
    slots,
)

RATES_PER_S = np.arange(1.0, 7.0)
REPLICAS = np.arange(1, 17)
SEEDS, REQUESTS = 32, 2500
MAX_TOKENS, LIMIT_S = 65536, 2.0


def main() -> None:
    profile = preset("a100")
    room, service = slots(profile, MAX_TOKENS), service_law(profile, lengths.named("agent_heavy"), MAX_TOKENS)
    rates, counts = (grid.ravel() for grid in np.meshgrid(RATES_PER_S, REPLICAS, indexing="ij"))
    started = time.process_time()
    runs = simulate_queues(
        jax.random.key(0), service, rates, counts * int(room), requests=REQUESTS, seeds=SEEDS, settled=True
    )
    seconds = time.process_time() - started
    fleets = rates.size * SEEDS
    print(f"{fleets} fleets, {fleets * REQUESTS / 1e6:.1f} million requests, {seconds:.1f} s of CPU")

    ttft_s = after_warm_up(runs.ttft_s).reshape(RATES_PER_S.size, REPLICAS.size, SEEDS, -1)
    p99 = quantile_interval(ttft_s, 0.99)
    by_seed = nearest_rank(ttft_s, 0.99)  # [rate count seed]
    stable = runs.utilization.reshape(RATES_PER_S.size, REPLICAS.size) < 1
    assert p99 is not None and by_seed is not None
    meets = (p99.value <= LIMIT_S) & stable
    print(f"least replicas with a P99 TTFT within {LIMIT_S:g} s")
    print("rate/s  replicas   P99 s   95 % interval    least replicas over the seeds")
    for row, rate in enumerate(RATES_PER_S):
        if not meets[row].any():
            print(f"{rate:6g}  more than {REPLICAS[-1]}")
            continue
        least = int(np.argmax(meets[row]))
        each = REPLICAS[np.argmax((by_seed[row] <= LIMIT_S) & stable[row][:, None], axis=0)]
        ends = f"{p99.low[row, least]:7.3f} - {p99.high[row, least]:5.3f}"
        shares = ", ".join(f"{count}: {np.mean(each == count):.0%}" for count in np.unique(each))
        print(f"{rate:6g} {REPLICAS[least]:9d} {p99.value[row, least]:7.3f} {ends:>15}    {shares}")


if __name__ == "__main__":
    main()
