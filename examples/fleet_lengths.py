# SPDX-License-Identifier: Apache-2.0
"""For the capacity planner: lengths counted exactly instead of drawn, and fleets that hold when the mixture drifts.

Draws of 3,000 lengths give another mean service time with every seed, and so another number of replicas. Counting every
length has no such error. Then the mixture of three kinds of traffic may move by so many percent, the worst way.

    python examples/fleet_lengths.py
"""

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet import (
    Compression,
    Demand,
    RobustSizing,
    Target,
    lengths,
    mixtures_within,
    moments,
    preset,
    robust_sizing,
    service_law,
    slots,
    stacked,
)

PROFILE, MAX_TOKENS, DRAWS, SEEDS = preset("a100"), 65536.0, 3000, 200
KINDS, SHARES = ("lmsys", "azure_code", "agent_heavy"), np.array([0.6, 0.3, 0.1])
DEMAND, TARGET = Demand(100.0), Target(1.0)
NONE = Compression(jnp.ones(1), 0.0, 0.0)


def drawn_against_exact() -> None:
    """Mean service times of lengths that are drawn, beside that of the law itself."""
    law = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), lengths.named("agent_heavy"))
    exact_s, _ = moments(service_law(PROFILE, law, MAX_TOKENS))

    @jax.jit
    def drawn(key: jax.Array) -> jax.Array:
        isl, osl = (tokens.astype(float) for tokens in lengths.sample(key, law, DRAWS))
        return moments(service_law(PROFILE, lengths.Lengths(isl, osl, jnp.full(DRAWS, 1 / DRAWS)), MAX_TOKENS))[0]

    off = np.asarray(jax.vmap(drawn)(jax.random.split(jax.random.key(0), SEEDS))) / float(exact_s) - 1
    busy = DEMAND.rate_per_s * exact_s / slots(PROFILE, MAX_TOKENS)
    print(f"agent_heavy: mean service {exact_s:.3f} s, {busy:.1f} replicas busy at {DEMAND.rate_per_s:g} requests/s")
    print(f"{DRAWS} draws, {SEEDS} seeds: {off.min():+.1%} to {off.max():+.1%}, standard deviation {off.std():.1%}")


def drift() -> None:
    """Replicas of two pools for the mixture expected, and for the worst one near it."""
    laws = [lengths.named(kind) for kind in KINDS]

    @jax.jit
    def robust(mixtures: np.ndarray) -> RobustSizing:
        profiles = stacked([PROFILE] * 2)
        return robust_sizing(profiles, laws, mixtures, jnp.array([4096.0]), MAX_TOKENS, DEMAND, TARGET, NONE)

    print(f"{', '.join(KINDS)} as {SHARES}; pools of 4096 and 65536 tokens, {DEMAND.rate_per_s:g} requests/s")
    print(f"{'moves':>6} {'replicas':>10} {'USD/h':>7}   worst mixture of the short and of the long pool")
    for radius in (0.05, 0.1, 0.2):
        found = robust(mixtures_within(SHARES, radius))
        if radius == 0.05:
            expected = found.sizing.load.replicas[0]
            print(f"{0:6.0%} {_sum(expected):>10} {found.sizing.usd_per_hour[0]:7.2f}")
        worst = ", ".join(str(np.asarray(row).round(2)) for row in found.worst)
        print(f"{radius:6.0%} {_sum(found.replicas):>10} {found.usd_per_hour:7.2f}   {worst}")


def _sum(replicas: jax.Array) -> str:
    return " + ".join(f"{count:.0f}" for count in replicas)


if __name__ == "__main__":
    drawn_against_exact()
    drift()
