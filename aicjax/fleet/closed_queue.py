# SPDX-License-Identifier: Apache-2.0
"""A closed loop: a fixed number of clients who think, ask, and wait for the answer before they think again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaincc
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.waiting import WAIT_KNOTS, WaitLaw

_NO_THINKING = 1e-30  # think time, of the mean service time, that counts as none
_SHORTEST = 0.02  # knots of the table of waits, from this share of a departure's gap
_LONGEST = 10.0  # ... to so many deviations beyond the mean time of the most departures


class ClosedLoop(NamedTuple):
    """What a closed loop settles to. Throughput x (think + response) is the number of clients.

    Attributes:
        throughput_per_s: Requests per second.
        utilization: Share of the servers that are busy.
        in_system: Mean number of requests that wait or are served.
        wait_s: Mean wait for a server.
        response_s: Mean time from a request to the end of its answer.
    """

    throughput_per_s: Float[Array, ""]
    utilization: Float[Array, ""]
    in_system: Float[Array, ""]
    wait_s: Float[Array, ""]
    response_s: Float[Array, ""]


def closed_loop(
    clients: FloatScalar, think_s: FloatScalar, mean_s: FloatScalar, servers: FloatScalar, *, width: int
) -> ClosedLoop:
    """The steady state of N clients and c servers: exact for exponential service, whatever the law of think times.

    With at least as many servers as clients it is exact for every law of service.

    Args:
        clients: Clients, a whole number; 1 to `width`.
        think_s: Mean time between an answer and the client's next request; may be 0.
        mean_s: Mean service time.
        servers: Servers, real.
        width: Static: the most clients.
    """
    share = _shares(clients, think_s, mean_s, servers, width)
    k = jnp.arange(width + 1, dtype=share.dtype)
    busy = jnp.sum(share * jnp.minimum(k, servers))
    in_system = jnp.sum(share * k)
    rate = busy / mean_s
    wait_s = jnp.sum(share * jnp.maximum(k - servers, 0.0)) / rate
    return ClosedLoop(rate, busy / servers, in_system, wait_s, wait_s + mean_s)


def closed_wait_law(
    clients: FloatScalar, think_s: FloatScalar, mean_s: FloatScalar, servers: FloatScalar, *, width: int
) -> WaitLaw:
    """Law of the wait of a request: it meets what the other clients make alone, and waits for whole departures.

    Args:
        clients, think_s, mean_s, servers, width: As in `closed_loop`.
    """
    share = _shares(jnp.asarray(clients, float) - 1.0, think_s, mean_s, servers, width)
    k = jnp.arange(width + 1, dtype=share.dtype)
    waits = k >= servers
    departures = jnp.where(waits, k - servers + 1.0, 1.0)
    gap_s = mean_s / servers
    most = jnp.maximum(jnp.asarray(clients, float) - servers, 1.0)
    knots = _SHORTEST * ((most + _LONGEST * jnp.sqrt(most)) / _SHORTEST) ** jnp.linspace(0.0, 1.0, WAIT_KNOTS)
    later = jax.vmap(lambda t: jnp.sum(jnp.where(waits, share * gammaincc(departures, t), 0.0)))(knots)
    probability = jnp.sum(jnp.where(waits, share, 0.0))
    tiny = jnp.finfo(share.dtype).tiny
    exponent = jnp.log(jnp.maximum(probability, tiny)) - jnp.log(jnp.maximum(later, tiny))
    rounding = 4.0 * jnp.finfo(share.dtype).eps * jnp.arange(1, WAIT_KNOTS + 1, dtype=share.dtype)
    exponent = jax.lax.cummax(jnp.maximum(exponent, 0.0))
    exponent = exponent + (1.0 + exponent) * rounding  # ascends where nothing is left
    return WaitLaw(probability, jnp.append(0.0, knots * gap_s), jnp.append(0.0, exponent))


def _shares(
    clients: FloatScalar, think_s: FloatScalar, mean_s: FloatScalar, servers: FloatScalar, width: int
) -> Float[Array, " state"]:
    """Probability of each number of requests in the system, from 0 to `width`.

    From one state to the next the probability grows by (N - k + 1) mean / (think min(k, c)), k from 1; the products go
    outwards from the largest, so that they are exact with many clients.
    """
    clients, mean_s = jnp.asarray(clients, float), jnp.asarray(mean_s, float)
    k = jnp.arange(1, width + 1, dtype=clients.dtype)
    think_s = jnp.maximum(think_s, _NO_THINKING * mean_s)
    left = clients - k + 1.0
    exists = left > 0
    rise = jnp.log(jnp.where(exists, left, 1.0) * mean_s / (think_s * jnp.minimum(k, servers)))
    top = jnp.sum(exists & (rise > 0))  # rises fall with k
    place = jnp.arange(1, width + 1)
    up = jnp.cumsum(jnp.where(exists & (place > top), rise, 0.0))
    down = jnp.cumsum(jnp.where(place <= top, rise, 0.0)[::-1])[::-1]
    log_share = jnp.append(-down[:1], up - jnp.append(down[1:], 0.0))
    return jax.nn.softmax(jnp.where(jnp.append(True, exists), log_share, -jnp.inf))
