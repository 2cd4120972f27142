# SPDX-License-Identifier: Apache-2.0
"""For the researcher: a rate that swings through overload and back; a fluid approximation beside simulation.

A steady state knows two answers, no wait at the mean rate and an endless queue at the peak. The transient law follows
the queue as it builds and drains; its gradient says what another replica would take off the worst wait.

    python examples/fleet_transient.py
"""

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet import (
    lengths,
    moments,
    only_pool,
    patterned_gaps,
    poisson_gaps,
    preset,
    service_of,
    sine_pattern,
    slot_waits,
    slots,
    transient_queue,
)

REPLICAS, LOAD, SWING, PERIOD_S = 4, 0.8, 0.5, 900.0  # load of all slots in the mean
SEEDS, BINS = 16, 12


def main() -> None:
    pool = only_pool(preset("a100"), lengths.named("lmsys"), 8192.0)
    room, service = int(slots(pool.profile, pool.max_tokens)), service_of(pool)
    mean_s, cv2 = (float(moment) for moment in moments(service))
    rate_per_s = LOAD * REPLICAS * room / mean_s
    pattern = sine_pattern(rate_per_s, SWING, PERIOD_S)
    requests = int(rate_per_s * PERIOD_S * 2.1)

    @jax.jit
    def run(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        gap_key, length_key = jax.random.split(key)
        gaps_s = patterned_gaps(poisson_gaps(gap_key, 1.0, requests), pattern)
        point = jax.random.choice(length_key, service.weight.size, (requests,), p=service.weight)
        return gaps_s, service.service_s[point]

    gaps_s, service_s = jax.vmap(run)(jax.random.split(jax.random.key(0), SEEDS))
    waits_s = np.asarray(slot_waits(gaps_s, service_s, REPLICAS * room))
    times_s = np.cumsum(np.asarray(gaps_s, np.float64), axis=1)

    law = transient_queue(pattern, mean_s, float(REPLICAS * room), cycles=2)
    print(f"{REPLICAS} replicas, {REPLICAS * room} slots, service {mean_s:.1f} s (cv2 {cv2:.2f}), second period")
    print(f"{'from s':>7} {'rate/s':>7} {'load':>6} {'mean wait s':>19} {'wait above 5 s':>17}")
    print(f"{'':>22} {'law':>10} {'simulated':>9} {'law':>8} {'simulated':>9}")
    later = np.asarray(law.later_than(5.0))
    for start in PERIOD_S * (1 + np.arange(BINS) / BINS):
        of_law = (law.time_s > start) & (law.time_s <= start + PERIOD_S / BINS)
        of_runs = (times_s > start) & (times_s <= start + PERIOD_S / BINS)
        rate = float(law.rate_per_s[of_law].mean())
        figures = (
            law.wait_s[of_law].mean(),
            waits_s[of_runs].mean(),
            later[of_law].mean(),
            np.mean(waits_s[of_runs] > 5),
        )
        print("{:7.0f} {:7.1f} {:6.2f} {:10.2f} {:9.2f} {:8.1%} {:9.1%}".format(
            start - PERIOD_S, rate, rate * mean_s / REPLICAS / room, *figures
        ))  # fmt: skip

    def worst_s(replicas: jax.Array) -> jax.Array:
        return jnp.max(transient_queue(pattern, mean_s, replicas * room, cycles=2).wait_s)

    worst, slope = jax.jit(jax.value_and_grad(worst_s))(float(REPLICAS))
    print(f"worst mean wait {worst:.1f} s; {-slope / 10:.1f} s less for a tenth of a replica more")


if __name__ == "__main__":
    main()
