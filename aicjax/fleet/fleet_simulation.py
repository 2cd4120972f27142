# SPDX-License-Identifier: Apache-2.0
"""Simulated fleets: pools of replicas by their profiles, and policies side by side on the same requests and draws."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax.fleet.fleet_queue import FleetRun, fleet_run
from aicjax.fleet.fleet_state import Times, replicas_of
from aicjax.fleet.profile import Profile, first_token_s, mean_context, service_s, slots
from aicjax.fleet.routing import Balance, Requests, Route, shortest_pool
from aicjax.fleet.rules import SANE, Rules


class Deployment(NamedTuple):
    """Pools of replicas.

    Attributes:
        profiles: Replica of each pool, stacked.
        max_tokens: Context limit of each.
        replicas: Replicas of each.
    """

    profiles: Profile
    max_tokens: Int[Array, " pool"]
    replicas: Int[Array, " pool"]

    def slots(self) -> Int[Array, " pool"]:
        """Slots of a replica of each pool."""
        return jax.vmap(slots)(self.profiles, self.max_tokens)


class Runs(NamedTuple):
    """Simulated requests in order of arrival, along leading axes for policies and seeds.

    Attributes:
        run: What became of them.
        ttft_s: Time to first token [s]; infinite for a request that was not served.
    """

    run: FleetRun
    ttft_s: Float[Array, "policy seed n"]


def compare_policies(
    gaps_s: Float[Array, "seed n"],
    requests: Requests,
    routes: Mapping[str, Route],
    deployment: Deployment,
    draws: Float[Array, "seed n two"],
    *,
    balance: int = Balance.FEWEST,
    queue_limit: int | None = None,
    rules: Rules = SANE,
) -> Runs:
    """Runs every policy on the same arrivals, lengths and draws, so that differences come from the policies alone.

    Args:
        gaps_s: Time before each arrival [s].
        requests: The requests [seed n].
        routes: By name of the policy, routes [seed n].
        deployment: The pools.
        draws: Uniform draws for load balance.
        balance: Load balance inside pools, a `Balance`.
        queue_limit: Requests that may wait at a replica; no limit where None.
        rules: `spill_by_requests` routes, and service times are, as in the fleet reference.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *routes.values())
    most_slots = max(int(np.max(deployment.slots())), 1)
    width = max(int(np.sum(deployment.replicas)), 1)
    limit = gaps_s.shape[-1] if queue_limit is None else queue_limit
    return _runs(gaps_s, requests, stacked, deployment, draws, balance, limit, most_slots, width, rules)


@functools.partial(jax.jit, static_argnames=("slots_width", "width", "rules"))
def _runs(gaps_s, requests, routes, deployment, draws, balance, queue_limit, slots_width, width, rules) -> Runs:
    replicas = replicas_of(deployment.replicas, deployment.slots(), width)

    def one(gaps_s, requests, route, draws):
        run = fleet_run(
            gaps_s,
            route,
            pool_times(requests, route, deployment, rules),
            replicas,
            draws,
            slots_width=slots_width,
            balance=balance,
            queue_limit=queue_limit,
            rules=rules,
        )
        return Runs(run, ttft_s(run, requests, route, deployment))

    over_seeds = jax.vmap(one, in_axes=(0, 0, 0, 0))
    return jax.vmap(over_seeds, in_axes=(None, None, 0, None))(gaps_s, requests, routes, draws)


def pool_times(requests: Requests, route: Route, deployment: Deployment, rules: Rules = SANE) -> Times:
    """Time of service in each pool with all slots of its replica in use; infinite beyond the pool's context."""

    def in_pool(profile: Profile, max_tokens: Array, isl: Array) -> Float[Array, " n"]:
        time_s = service_s(profile, isl, requests.osl, max_tokens, rules=rules)
        return jnp.where(isl + requests.osl <= max_tokens, time_s, jnp.inf)

    by_pool = jax.vmap(in_pool, in_axes=(0, 0, None), out_axes=1)
    short = shortest_pool(deployment.max_tokens)
    profile = jax.tree.map(lambda leaf: leaf[short], deployment.profiles)
    return Times(
        by_pool(deployment.profiles, deployment.max_tokens, requests.isl),
        in_pool(profile, deployment.max_tokens[short], route.isl),
    )


def ttft_s(run: FleetRun, requests: Requests, route: Route, deployment: Deployment) -> Float[Array, " n"]:
    """Time to first token: the wait, then the prompt among the requests that ran when it began; infinite if unserved.

    Those requests have the mean context of all that the pool served, each counted for as long as it ran.
    """
    served = jnp.isfinite(run.wait_s)
    isl = jnp.where(run.pool == route.pool, route.isl, requests.isl)
    profile = jax.tree.map(lambda leaf: leaf[run.pool], deployment.profiles)
    context = mean_context(isl, requests.osl, profile.chunk_tokens)
    held_s = jnp.where(served, run.service_s, 0.0)
    one_hot = run.pool[:, None] == jnp.arange(deployment.replicas.size)
    total_s = jnp.sum(jnp.where(one_hot, held_s[:, None], 0.0), axis=0)
    tokens_s = jnp.sum(jnp.where(one_hot, (held_s * context)[:, None], 0.0), axis=0)
    mean_tokens = tokens_s / jnp.where(total_s > 0.0, total_s, 1.0)
    prompt_s = jax.vmap(first_token_s)(profile, isl, run.running, mean_tokens[run.pool])
    return jnp.where(served, run.wait_s + prompt_s, jnp.inf)
