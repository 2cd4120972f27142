# SPDX-License-Identifier: Apache-2.0
"""Simulated fleets: pools of replicas by their profiles, and policies side by side on the same requests and draws."""

import functools
import os
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax.fleet.cores import over_cores
from aicjax.fleet.fleet_queue import FleetRun, fleet_run
from aicjax.fleet.fleet_start import Stream, slot_times, with_start
from aicjax.fleet.fleet_state import Times, replicas_of
from aicjax.fleet.profile import Profile, first_token_s, running_context, service_s, slots
from aicjax.fleet.routing import LEAST_LOADED, Balance, Requests, Route, shortest_pool
from aicjax.fleet.rules import SANE, Rules
from aicjax.interp.counts import point_bucket

START_BLOCK = 256  # requests under way are padded to a multiple, so that few shapes are compiled
MOST_LANES = 64  # runs in one program: more gain little speed


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
        return _slots(self.profiles, self.max_tokens)

    def pool_slots(self) -> Int[Array, " pool"]:
        """Slots of all replicas of each pool."""
        return self.replicas.astype(jnp.int32) * self.slots()


_slots = jax.jit(jax.vmap(slots))


class Runs(NamedTuple):
    """Simulated requests in order of arrival, along leading axes for policies and seeds; numpy arrays.

    Attributes:
        run: What became of them.
        ttft_s: Time to first token [s]; infinite for a request that was not served.
        before: What became of the requests that the fleet served when the run began, by their remaining times; none
            for a run from empty.
    """

    run: FleetRun
    ttft_s: Float[Array, "policy seed n"]
    before: FleetRun


def compare_policies(
    gaps_s: Float[Array, "seed n"],
    requests: Requests,
    routes: Mapping[str, Route],
    deployment: Deployment,
    draws: Float[Array, "seed n two"],
    *,
    start_key: Array | None = None,
    balance: int = Balance.FEWEST,
    queue_limit: int | None = None,
    rules: Rules = SANE,
) -> Runs:
    """Runs every policy on the same arrivals, lengths and draws, so that differences come from the policies alone.

    Args:
        gaps_s: Time before each arrival [s].
        requests: The requests, every field [seed n].
        routes: By name of the policy, routes [seed n].
        deployment: The pools.
        draws: Uniform draws for load balance.
        start_key: Random key of the requests under way when a run begins, which spare most of a long warm-up; from
            empty where None.
        balance: Load balance inside pools, a `Balance`.
        queue_limit: Requests that may wait at a replica; no limit where None.
        rules: `spill_by_requests` and `any_context` route, and service times are, as in the fleet reference.
    """
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *routes.values())
    seeds, n = gaps_s.shape
    under_way = 0
    if start_key is not None:
        offered = float(np.max(_offered(gaps_s, requests, stacked, deployment, rules)))
        most = int(min(offered + 1.0, float(np.sum(deployment.pool_slots()))))
        under_way = -(-most // START_BLOCK) * START_BLOCK
    key = jax.random.key(0) if start_key is None else start_key
    start_draws = jax.random.uniform(key, (seeds, under_way, 2))
    run = functools.partial(
        _runs,
        (gaps_s, requests, stacked, draws, start_draws),
        deployment,
        balance,
        n if queue_limit is None else queue_limit,
        slots_width=point_bucket(int(np.max(deployment.slots()))),
        width=point_bucket(int(np.sum(deployment.replicas))),
        rules=rules,
    )
    policy, seed = (axis.ravel() for axis in np.indices((len(routes), seeds), np.int32))
    lanes = min(-(-policy.size // (os.cpu_count() or 1)), MOST_LANES)
    runs = over_cores(run, (policy, seed), lanes)
    return jax.tree.map(lambda values: values.reshape(len(routes), seeds, *values.shape[1:]), runs)


@functools.partial(jax.jit, static_argnames=("slots_width", "width", "rules"))
def _runs(given, deployment, balance, queue_limit, policies, seeds, *, slots_width, width, rules) -> Runs:
    """The runs of pairs of a policy and a seed."""
    all_gaps_s, all_requests, all_routes, all_draws, all_start_draws = given
    replicas = replicas_of(deployment.replicas, deployment.slots(), width)
    first = all_start_draws.shape[1]

    def one(policy, seed):
        of_seed = (all_gaps_s, all_requests, all_draws, all_start_draws)
        gaps_s, requests, draws, start_draws = jax.tree.map(lambda values: values[seed], of_seed)
        route = jax.tree.map(lambda values: values[policy, seed], all_routes)
        tokens = pool_contexts(requests, route, deployment)
        times = pool_times(requests, route, tokens, deployment, rules)
        stream = with_start(Stream(gaps_s, route, times, draws), deployment.pool_slots(), start_draws)
        whole = fleet_run(
            *stream[:3],
            replicas,
            stream.draws,
            slots_width=slots_width,
            balance=balance,
            queue_limit=queue_limit,
            rules=rules,
        )
        before, run = (FleetRun(*(values[cut] for values in whole)) for cut in (slice(first), slice(first, None)))
        return Runs(run, ttft_s(run, requests, route, tokens, deployment), before)

    return jax.vmap(one)(policies, seeds)


@functools.partial(jax.jit, static_argnames=("rules",))
def _offered(gaps_s, requests, routes, deployment, rules) -> Float[Array, "policy seed"]:
    """Requests under way in the mean, were there slots for all."""

    def one(gaps_s, requests, route):
        times = pool_times(requests, route, pool_contexts(requests, route, deployment), deployment, rules)
        time_s = jnp.sum(gaps_s)
        return jnp.where(time_s > 0.0, jnp.sum(slot_times(route, times)) / jnp.where(time_s > 0.0, time_s, 1.0), 0.0)

    return jax.vmap(jax.vmap(one, in_axes=(0, 0, 0)), in_axes=(None, None, 0))(gaps_s, requests, routes)


def pool_contexts(requests: Requests, route: Route, deployment: Deployment) -> Float[Array, " pool"]:
    """Mean context of the requests that run together in each pool, by the route without load [tokens]."""

    def in_pool(profile: Profile, max_tokens: Array, pool: Array) -> Float[Array, ""]:
        holds = route.isl + requests.osl <= max_tokens
        sent = holds & ((route.pool == pool) | (route.pool == LEAST_LOADED))
        weight = jnp.where(jnp.any(sent), sent, holds | ~jnp.any(holds))
        isl, osl, weight = (x.astype(jnp.result_type(float)) for x in (route.isl, requests.osl, weight))
        return running_context(isl, osl, weight, profile.chunk_tokens)

    numbers = jnp.arange(deployment.replicas.size, dtype=jnp.int32)
    return jax.vmap(in_pool)(deployment.profiles, deployment.max_tokens, numbers)


def pool_times(
    requests: Requests, route: Route, tokens: Float[Array, " pool"], deployment: Deployment, rules: Rules = SANE
) -> Times:
    """Time of service in each pool with all slots of its replica in use, beside requests of the mean context `tokens`.

    Infinite beyond the pool's context. `rules.final_length` prices each request as if all that run were like it.
    """

    def in_pool(profile: Profile, max_tokens: Array, tokens: Array, isl: Array) -> Float[Array, " n"]:
        shared = None if rules.final_length else tokens
        time_s = service_s(profile, isl, requests.osl, max_tokens, mean_tokens=shared, rules=rules)
        return jnp.where(isl + requests.osl <= max_tokens, time_s, jnp.inf)

    by_pool = jax.vmap(in_pool, in_axes=(0, 0, 0, None), out_axes=1)
    short = shortest_pool(deployment.max_tokens)
    profile = jax.tree.map(lambda leaf: leaf[short], deployment.profiles)
    return Times(
        by_pool(deployment.profiles, deployment.max_tokens, tokens, requests.isl),
        in_pool(profile, deployment.max_tokens[short], tokens[short], route.isl),
    )


def ttft_s(
    run: FleetRun, requests: Requests, route: Route, tokens: Float[Array, " pool"], deployment: Deployment
) -> Float[Array, " n"]:
    """Time to first token: the wait, then the prompt beside the requests that ran when it began; infinite if unserved.

    The prompt is priced at the load of that moment, where the time of service counts with all slots in use.
    """
    isl = jnp.where(run.pool == route.pool, route.isl, requests.isl)
    profile = jax.tree.map(lambda leaf: leaf[run.pool], deployment.profiles)
    prompt_s = jax.vmap(first_token_s)(profile, isl, run.running, tokens[run.pool])
    return jnp.where(jnp.isfinite(run.wait_s), run.wait_s + prompt_s, jnp.inf)
