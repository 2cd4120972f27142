# SPDX-License-Identifier: Apache-2.0
"""Routing policies on the same requests of a day with a wave: how late the first token is, and how sure that is.

python examples/fleet_policies.py
"""

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet import lengths
from aicjax.fleet.arrivals import patterned_gaps, poisson_gaps, sine_pattern
from aicjax.fleet.fleet_simulation import Deployment, compare_policies
from aicjax.fleet.fleet_summary import paired_difference, summaries
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import stacked
from aicjax.fleet.routing import Requests, compress_route, least_loaded_route, length_route, spillover_route

SEEDS, REQUESTS = 8, 2000
SHORT, LONG = 4096, 16384  # context of the pools [tokens]


def main() -> None:
    key = jax.random.key(0)
    wave = sine_pattern(mean_per_s=40.0, swing=0.5, period_s=30.0)  # a day in half a minute

    def one(key: jax.Array) -> tuple[jax.Array, Requests, jax.Array]:
        gap_key, length_key, draw_key = jax.random.split(key, 3)
        isl, osl = lengths.sample(length_key, lengths.named("azure"), REQUESTS)
        gaps_s = patterned_gaps(poisson_gaps(gap_key, 1.0, REQUESTS), wave)
        return gaps_s, Requests(isl, osl, jnp.ones_like(isl, bool)), jax.random.uniform(draw_key, (REQUESTS, 3))

    gaps_s, requests, draws = jax.vmap(one)(jax.random.split(key, SEEDS))
    pools = Deployment(stacked([preset("a100")] * 2), jnp.asarray([SHORT, LONG]), jnp.asarray([3, 2]))
    routes = {
        "length": length_route(requests, pools.max_tokens, SHORT),
        "spillover": spillover_route(requests, pools.max_tokens, SHORT, utilization=0.85),
        "compress": compress_route(requests, pools.max_tokens, SHORT, 1.5, 0.75, 0.003, draws[..., 2]),
        "least loaded": least_loaded_route(requests),
    }
    runs = compare_policies(gaps_s, requests, routes, pools, draws[..., :2], start_key=key)
    later = paired_difference(runs, percentile=99.0)
    print(f"{'policy':<13} {'P99 TTFT ms':>12} {'against length ms':>28} {'in use':>7}")
    for place, (name, found) in enumerate(zip(routes, summaries(runs, np.asarray(gaps_s), pools, 0.5), strict=True)):
        p99 = found.fleet.ttft_s[99.0]
        assert p99 is not None
        change = f"{later.value[place] * 1e3:,.0f} ({later.low[place] * 1e3:,.0f} to {later.high[place] * 1e3:,.0f})"
        print(f"{name:<13} {float(p99.value) * 1e3:>12,.0f} {change:>28} {found.fleet.utilization:>7.1%}")


if __name__ == "__main__":
    main()
