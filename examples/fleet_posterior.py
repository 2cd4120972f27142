# SPDX-License-Identifier: Apache-2.0
"""For the researcher: how many replicas, given a few noisy measurements of one of them.

Times per output token at several concurrencies give a posterior of the two constants of an iteration, W and H. Every
draw of it is sized, all in one call: the count becomes a distribution, and one chooses how sure one wants to be.

    python examples/fleet_posterior.py
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet import Demand, Measured, Target, drawn_profiles, lengths, only_pool, preset, sized, times_posterior

RUNNING = np.array([1, 2, 4, 8, 16, 32, 64, 128.0])
TPOT_MS = np.array([9.6, 8.4, 12.0, 12.3, 19.8, 31.7, 46.9, 96.2])  # as measured, context 8192 tokens
RATE_PER_S, LIMIT_S, DRAWS = 2000.0, 0.5, 500


def main() -> None:
    profile = dataclasses.replace(preset("a100"), name="")
    pool = jax.tree.map(lambda x: jnp.asarray(x, float), only_pool(profile, lengths.named("lmsys"), 8192.0))

    @jax.jit
    def replicas(profiles):
        def least(profile):
            pools = jax.tree.map(lambda leaf: leaf[None], pool._replace(profile=profile))
            return sized(pools, Demand(RATE_PER_S), Target(LIMIT_S)).load.replicas[0]

        return jax.lax.map(least, profiles, batch_size=50)

    print(f"{'points':>6} {'W ms':>14} {'H ms':>16} {'error':>6}   replicas: chance that so many suffice")
    for points in (3, len(RUNNING)):
        chosen = np.linspace(0, len(RUNNING) - 1, points).astype(int)
        measured = Measured(*(jnp.asarray(x[chosen], float) for x in (RUNNING, np.full(8, 8192.0), TPOT_MS / 1000)))
        posterior = times_posterior(pool.profile, measured, prior_spread=1.0, error=0.1)
        counts = np.sort(replicas(drawn_profiles(jax.random.key(0), posterior, pool.profile, DRAWS)))
        w, h, error = np.exp(posterior.mean)
        spread = np.exp(np.sqrt(np.diag(posterior.covariance)))
        chances = ", ".join(f"{counts[int(share * DRAWS) - 1]:.0f}: {share:.0%}" for share in (0.5, 0.8, 0.95))
        times = f"{w * 1000:6.2f} x/÷{spread[0]:.2f} {h * 1000:8.4f} x/÷{spread[1]:.2f}"
        print(f"{points:6d} {times} {error:6.1%}   {chances}")


if __name__ == "__main__":
    main()
