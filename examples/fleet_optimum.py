# SPDX-License-Identifier: Apache-2.0
"""For the researcher: thresholds, reaches of compression and replicas of two pools chosen together by gradient.

Real numbers first, from several starts at once, with a charge on limits that are nearly missed; then the whole numbers
around the best of them, each sized by itself.

    python examples/fleet_optimum.py
"""

import jax
import jax.numpy as jnp

from aicjax.fleet import (
    Compression,
    Demand,
    Design,
    Problem,
    Softness,
    Target,
    continuous_optimum,
    lengths,
    preset,
    rounded,
    stacked,
)

RATE_PER_S, LIMIT_S, MAX_TOKENS, MOST_GAMMA = 200.0, 0.5, 65536.0, 2.0


def main() -> None:
    problem = Problem(
        profiles=stacked([preset("a10g"), preset("a100")]),
        lengths=jax.tree.map(lambda leaf: jnp.asarray(leaf, float), lengths.named("azure")),
        max_tokens=jnp.asarray(MAX_TOKENS),
        demand=Demand(jnp.asarray(RATE_PER_S), jnp.asarray(1.0), jnp.asarray(1.0)),
        target=Target(jnp.asarray(LIMIT_S), jnp.asarray(0.99), jnp.asarray(0.85)),
        compression=Compression(jnp.asarray(1.0), jnp.asarray(0.75), jnp.asarray(0.003)),
    )
    starts = Design(
        thresholds=jnp.array([[1024.0], [2048.0], [4096.0]]),
        gamma=jnp.full((3, 1), 1.3),
        replicas=jnp.full((3, 2), 20.0),
    )
    softness = Softness(jnp.asarray(100.0), jnp.asarray(0.02))
    found, usd = jax.jit(continuous_optimum)(starts, problem, softness, MOST_GAMMA)
    built = jax.jit(rounded)(found, problem, MOST_GAMMA)

    def line(name: str, thresholds: jax.Array, gamma: jax.Array, replicas: jax.Array, usd: jax.Array) -> None:
        numbers = ("/".join(f"{value:.{digits}f}" for value in row)
                   for row, digits in ((thresholds, 0), (gamma, 2), (replicas, 1)))  # fmt: skip
        print("{:>14} {:>12} {:>10} {:>16} {:9.2f}".format(name, *numbers, usd))

    print("pools of a10g and of a100; P99 TTFT within 0.5 s at 200 requests/s")
    print(f"{'':>14} {'thresholds':>12} {'gamma':>10} {'replicas':>16} {'USD/h':>9}")
    line("real, charged", found.thresholds, found.gamma, found.replicas, usd)
    line("whole", built.thresholds, built.gamma, built.sizing.load.replicas, built.sizing.usd_per_hour)
    print(f"meets its limits: {bool(built.sizing.met)}, P99 TTFT of the slowest pool {built.sizing.worst_ttft_s:.3f} s")


if __name__ == "__main__":
    main()
