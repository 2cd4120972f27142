# SPDX-License-Identifier: Apache-2.0
"""Waits in a first-come-first-served queue before many servers, exact, for many fleets at once.

The state of a queue is the sorted vector of the times at which its servers are free (Kiefer and Wolfowitz). An arrival
takes the first, and its departure is inserted by minima and maxima alone, for all fleets in the same instructions.
Arrivals go in blocks, since no more than the first `block` servers can serve a block: a block touches only these, and
is then merged with the rest. Times are relative to the start of a block, so that a run may be of any length.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_State = tuple[Float[Array, "server fleet"], Float[Array, " fleet"]]  # when servers are free; the last arrival
_Requests = tuple[Float[Array, "in_block fleet"], Float[Array, "in_block fleet"]]  # gaps and service times

LEAST_BLOCK = 64  # up to so many servers, all are worked on at every arrival


def slot_waits(
    gaps_s: Float[Array, "*fleet arrival"],
    service_s: Float[Array, "*fleet arrival"],
    servers: Int[Array, "*#fleet"] | int,
    *,
    width: int | None = None,
    busy_s: Float[Array, "*fleet server"] | None = None,
) -> Float[Array, "*fleet arrival"]:
    """Time between the arrival of each request and its start [s].

    Args:
        gaps_s: Time since the arrival before; the first since the beginning [s]; >= 0.
        service_s: Time that a request holds its server [s]; >= 0.
        servers: Servers of each fleet; 1 or more.
        width: Static: the most servers of any fleet; needed when `servers` is traced.
        busy_s: Time until each of `width` servers is free at the beginning [s], in any order; all are free where None.

    Returns:
        Wait of each request, in order of arrival [s].
    """
    most = int(np.max(servers)) if width is None else width
    fleets, arrivals = gaps_s.shape[:-1], gaps_s.shape[-1]
    block = _block(most)
    padding = -arrivals % block

    def blocks(times: Float[Array, "*fleet arrival"]) -> Float[Array, "block in_block fleet"]:
        flat = times.reshape(-1, arrivals).T
        return jnp.pad(flat, ((0, padding), (0, 0))).reshape(-1, block, flat.shape[1])

    servers = jnp.broadcast_to(jnp.asarray(servers), fleets).reshape(-1)
    rows = jnp.arange(most if most <= block else _power_of_two(most), dtype=servers.dtype)
    free_s = jnp.where(rows[:, None] < servers, 0.0, jnp.inf).astype(gaps_s.dtype)
    if busy_s is not None:
        free_s = jnp.sort(free_s + jnp.pad(busy_s.reshape(-1, most).T, ((0, len(rows) - most), (0, 0))), axis=0)
    state = (free_s, jnp.zeros_like(free_s[0]))
    serve = functools.partial(_block_of_arrivals, servers)
    waits_s = jax.lax.scan(serve, state, (blocks(gaps_s), blocks(service_s)))[1]
    return waits_s.reshape(-1, servers.size)[:arrivals].T.reshape(*fleets, arrivals)


def _block_of_arrivals(servers: Int[Array, " fleet"], state: _State, requests: _Requests) -> tuple[_State, Array]:
    """Serves one block; times in the state, sorted, are relative to about the last arrival before the block."""
    free_s, now_s = state
    near = min(len(requests[0]), len(free_s))
    (near_s, now_s), waits_s = jax.lax.scan(_arrival, (free_s[:near], now_s), requests)
    far_s = free_s[near:]
    free_s = _merged(jnp.concatenate([near_s[::-1], far_s])) if len(far_s) else near_s
    # Time goes back by whole units in the last place of the latest time, so that no difference is rounded.
    last_s = jnp.take_along_axis(free_s, servers[None] - 1, axis=0)[0]
    past_s = (last_s + now_s) - last_s
    now_s = now_s - past_s
    return (jnp.maximum(free_s - past_s, now_s), now_s), waits_s


def _arrival(state: _State, request: tuple[Array, Array]) -> tuple[_State, Float[Array, " fleet"]]:
    """Gives the first server to a request and puts its departure in its place among the free times."""
    (free_s, now_s), (gap_s, service_s) = state, request
    now_s = now_s + gap_s
    start_s = jnp.maximum(free_s[0], now_s)
    later_s = jnp.concatenate([free_s[1:], jnp.full_like(free_s[:1], jnp.inf)])
    free_s = jnp.minimum(later_s, jnp.maximum(free_s, start_s + service_s))
    return (free_s, now_s), start_s - now_s


def _merged(falls_then_rises: Float[Array, "server fleet"]) -> Float[Array, "server fleet"]:
    """Sorts a bitonic sequence of 2^k rows, by a network that is the same at each of its k stages."""

    def stage(rows: Float[Array, "server fleet"], _: None) -> tuple[Float[Array, "server fleet"], None]:
        low, high = jnp.split(rows, 2)
        return jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], axis=1).reshape(rows.shape), None

    return jax.lax.scan(stage, falls_then_rises, None, length=len(falls_then_rises).bit_length() - 1)[0]


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _block(servers: int) -> int:
    """Arrivals at once: work per arrival is the block, and the network over all servers divided by the block."""
    return max(LEAST_BLOCK, 4 * _power_of_two(int(servers**0.5)))
