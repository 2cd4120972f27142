# SPDX-License-Identifier: Apache-2.0
"""Times to first token of pools by simulation, slot by slot: seeds, rates, replica counts and pools in one batch."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import Array as AnyArray
from aicjax.fleet.arrivals import poisson_gaps
from aicjax.fleet.cores import over_cores
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.service import ServiceLaw, service_law
from aicjax.fleet.slot_queue import slot_waits

Arrivals = Callable[[Array, int], Float[Array, " n"]]
LEAST_WIDTH = 16
FLEETS_AT_ONCE = 8


class QueueSample(NamedTuple):
    """Requests of simulated queues, in order of arrival.

    Attributes:
        wait_s: Wait for a slot [load seed request].
        prefill_s: Time from start to first token [load seed request].
    """

    wait_s: np.ndarray
    prefill_s: np.ndarray

    @property
    def ttft_s(self) -> np.ndarray:
        """Time to first token [load seed request]."""
        return self.wait_s + self.prefill_s


def unit_poisson(key: Array, n: int) -> Float[Array, " n"]:
    """Poisson arrivals as gaps of mean one."""
    return poisson_gaps(key, 1.0, n)


def simulate_queues(
    key: Array,
    service: ServiceLaw,
    rate_per_s: Float[AnyArray, " #load"] | float,
    servers: Float[AnyArray, " #load"] | int,
    *,
    requests: int,
    seeds: int = 1,
    arrivals: Arrivals = unit_poisson,
) -> QueueSample:
    """First-come-first-served queues before servers that each hold one request, all servers free at first.

    Loads of one seed share their random numbers: the same gaps, stretched to each rate, and the same place of each
    request in the law of service times. So differences between loads are sharper than the numbers themselves.

    Args:
        key: Random key.
        service: Law of service and prefill, one for all loads or one for each [#load point].
        rate_per_s: Arrivals.
        servers: Servers, whole, at least 1.
        requests: Requests of each seed.
        seeds: Independent runs.
        arrivals: Gaps of mean one from a key and their number; Poisson by default.
    """
    law = ServiceLaw(*(np.atleast_2d(np.asarray(leaf)) for leaf in service))
    dtype = law.service_s.dtype
    rate, servers_ = np.broadcast_arrays(np.atleast_1d(np.asarray(rate_per_s, dtype)), np.atleast_1d(servers))
    loads = np.broadcast_shapes(rate.shape, law.weight.shape[:1])
    rate, servers_ = (np.broadcast_to(x, loads) for x in (rate, servers_.astype(np.int32)))
    law = ServiceLaw(*(np.broadcast_to(leaf, (*loads, leaf.shape[1])) for leaf in law))
    keys = np.asarray(jax.random.key_data(jax.random.split(key, seeds)))

    load, seed = (axis.ravel() for axis in np.indices((*loads, seeds)))
    widths = np.maximum(LEAST_WIDTH, 2 ** np.ceil(np.log2(servers_)).astype(int))[load]
    answers = np.empty((2, load.size, requests), dtype)
    for width in np.unique(widths):
        rows = np.flatnonzero(widths == width)
        at, law_rows = load[rows], ServiceLaw(*(leaf[load[rows]] for leaf in law))
        run = functools.partial(_run, width=int(width), requests=requests, arrivals=arrivals)
        answers[:, rows] = over_cores(run, (keys[seed[rows]], law_rows, rate[at], servers_[at]), FLEETS_AT_ONCE)
    return QueueSample(*answers.reshape(2, *loads, seeds, requests))


def simulate_pool(
    key: Array,
    lengths: Lengths,
    profile: Profile,
    max_tokens: float,
    rate_per_s: Float[AnyArray, " #load"] | float,
    replicas: Float[AnyArray, " #load"] | int,
    *,
    requests: int,
    seeds: int = 1,
    running: float = 1.0,
    arrivals: Arrivals = unit_poisson,
) -> QueueSample:
    """A pool of replicas that share one queue, each request holding a slot for its service time at full concurrency.

    Args:
        key: Random key.
        lengths: Law of isl and osl.
        profile: The replica.
        max_tokens: Context limit of the pool, which sets its slots.
        rate_per_s: Arrivals.
        replicas: Replicas.
        requests: Requests of each seed.
        seeds: Independent runs.
        running: Requests that run beside a prompt, itself included; 1 for a prompt alone.
        arrivals: Gaps of mean one from a key and their number; Poisson by default.
    """
    service = service_law(profile, lengths, max_tokens, running)
    servers = np.asarray(replicas) * int(slots(profile, max_tokens))
    return simulate_queues(key, service, rate_per_s, servers, requests=requests, seeds=seeds, arrivals=arrivals)


@functools.partial(jax.jit, static_argnames=("width", "requests", "arrivals"))
def _run(
    keys: Array, law: ServiceLaw, rate_per_s: Array, servers: Array, *, width: int, requests: int, arrivals: Arrivals
) -> Float[Array, "two row request"]:
    """Waits and prefills of some fleets."""

    def drawn(key: Array, law: ServiceLaw, rate_per_s: Array) -> tuple[Array, Array, Array]:
        gap_key, length_key = jax.random.split(jax.random.wrap_key_data(key))
        below = jnp.cumsum(law.weight)
        place = jax.random.uniform(length_key, (requests,), below.dtype) * below[-1]
        point = jnp.minimum(jnp.searchsorted(below, place, side="right"), below.size - 1)
        return arrivals(gap_key, requests) / rate_per_s, law.service_s[point], law.prefill_s[point]

    gaps_s, service_s, prefill_s = jax.vmap(drawn)(keys, law, rate_per_s)
    return slot_waits(gaps_s, service_s, servers, width=width), prefill_s
