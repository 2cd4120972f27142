# SPDX-License-Identifier: Apache-2.0
"""Times to first token of pools by simulation, slot by slot: seeds, rates, replica counts and pools in one batch."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._results import InputError
from aicjax._types import Array as AnyArray
from aicjax.fleet.arrivals import gamma_gaps, poisson_gaps
from aicjax.fleet.cores import over_cores
from aicjax.fleet.lengths import drawn
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.slot_queue import slot_waits

Arrivals = Callable[[Array, int], Float[Array, " n"]]
LEAST_WIDTH = 16
FLEETS_AT_ONCE = 8


class QueueSample(NamedTuple):
    """Requests of simulated queues, in order of arrival.

    Attributes:
        wait_s: Wait for a slot [load seed request].
        prefill_s: Time from start to first token [load seed request].
        utilization: Mean servers that the arrivals ask for, as a share of all; from 1 on, waits grow with time [load].
    """

    wait_s: Float[np.ndarray, "load seed request"]
    prefill_s: Float[np.ndarray, "load seed request"]
    utilization: Float[np.ndarray, " load"]

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
    arrival_cv2: Float[AnyArray, " #load"] | None = None,
    settled: bool = False,
) -> QueueSample:
    """First-come-first-served queues before servers that each hold one request.

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
        arrival_cv2: Squared coefficient of variation of the gaps of each load, which are then Gamma; `arrivals` is not
            read.
        settled: Begin with requests under way, as many and as far as in the long run of servers without a queue; else
            all servers are free at first. A pool of thousands of slots takes as many requests to fill.

    Raises:
        InputError: A rate that is not above 0, less than one server, request or seed.
    """
    law = [np.atleast_2d(np.asarray(leaf)) for leaf in service]
    dtype = law[0].dtype
    loads = np.broadcast_shapes(np.shape(rate_per_s), np.shape(servers), law[0].shape[:1])
    rates = np.broadcast_to(np.asarray(rate_per_s, dtype), loads)
    counts = np.broadcast_to(np.asarray(servers, np.int32), loads)
    for name, values in (("servers", counts), ("requests", requests), ("seeds", seeds)):
        if np.min(values) < 1:
            raise InputError(name, int(np.min(values)), "1 or more")
    if not np.min(rates) > 0:
        raise InputError("rate_per_s", float(np.min(rates)), "above 0")
    law = [np.broadcast_to(leaf, (*loads, leaf.shape[1])) for leaf in law]
    cv2 = np.broadcast_to(np.asarray(1.0 if arrival_cv2 is None else arrival_cv2, dtype), loads)
    kind = arrivals if arrival_cv2 is None else None
    keys = np.asarray(jax.random.key_data(jax.random.split(key, seeds)))

    load, seed = (axis.ravel() for axis in np.indices((*loads, seeds)))
    widths = np.maximum(LEAST_WIDTH, 2 ** np.ceil(np.log2(counts)).astype(int))[load]
    answers = np.empty((2, load.size, requests), dtype)
    for width in np.unique(widths):
        rows = np.flatnonzero(widths == width)
        run = functools.partial(_run, width=int(width), requests=requests, arrivals=kind, settled=settled)
        of_load = jax.tree.map(lambda leaf, at=load[rows]: leaf[at], (law, rates, counts, cv2))
        answers[:, rows] = over_cores(run, (keys[seed[rows]], *of_load), FLEETS_AT_ONCE)
    wait_s, prefill_s = answers.reshape(2, *loads, seeds, requests)
    mean_s = np.sum(law[0] * law[2], axis=1)
    return QueueSample(wait_s, prefill_s, rates * mean_s / counts)


def _run(
    keys: AnyArray,
    law: list[AnyArray],
    rate_per_s: AnyArray,
    servers: AnyArray,
    cv2: AnyArray,
    *,
    width: int,
    requests: int,
    arrivals: Arrivals | None,
    settled: bool,
) -> tuple[Float[Array, "fleet request"], Float[Array, "fleet request"]]:
    """Waits and prefills of some fleets."""
    gaps_s, service_s, prefill_s = _drawn(keys, law, rate_per_s, cv2, requests, arrivals)
    busy_s = _under_way(keys, law, rate_per_s, width) if settled else None
    return _waits(gaps_s, service_s, servers, width=width, busy_s=busy_s), prefill_s


_waits = jax.jit(slot_waits, static_argnames="width")


# Apart from the waits: one program for all widths.
@functools.partial(jax.jit, static_argnames=("requests", "arrivals"))
def _drawn(
    keys: Array, law: list[Array], rate_per_s: Array, cv2: Array, requests: int, arrivals: Arrivals | None
) -> tuple[Float[Array, "fleet request"], ...]:
    """Gaps, service times and prefills of the requests of some fleets; Gamma gaps where no other are given."""

    def fleet(key: Array, law: list[Array], rate_per_s: Array, cv2: Array) -> tuple[Array, Array, Array]:
        service_s, prefill_s, weight = law
        gap_key, length_key = jax.random.split(jax.random.wrap_key_data(key))
        below = jnp.cumsum(weight)
        point = drawn(below, jax.random.uniform(length_key, (requests,), below.dtype))
        gaps = gamma_gaps(gap_key, 1.0, cv2, requests) if arrivals is None else arrivals(gap_key, requests)
        return gaps / rate_per_s, service_s[point], prefill_s[point]

    return jax.vmap(fleet)(keys, law, rate_per_s, cv2)


@functools.partial(jax.jit, static_argnames="width")
def _under_way(keys: Array, law: list[Array], rate_per_s: Array, width: int) -> Float[Array, "fleet server"]:
    """Times left of the requests under way in servers without a queue, 0 of idle servers.

    Their number is Poisson, here by its normal limit; each is part of a service time that is met in proportion to its
    length.
    """

    def fleet(key: Array, law: list[Array], rate_per_s: Array) -> Array:
        service_s, _, weight = law
        count_key, place_key, left_key = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), 1), 3)
        below = jnp.cumsum(weight * service_s)
        point = drawn(below, jax.random.uniform(place_key, (width,), below.dtype))
        offered = rate_per_s * below[-1]
        count = jnp.round(offered + jnp.sqrt(offered) * jax.random.normal(count_key, (), below.dtype))
        left_s = jax.random.uniform(left_key, (width,), below.dtype) * service_s[point]
        return jnp.where(jnp.arange(width, dtype=count.dtype) < count, left_s, 0.0)

    return jax.vmap(fleet)(keys, law, rate_per_s)
