# SPDX-License-Identifier: Apache-2.0
"""Queues before many servers in plain Python, and exact long-run waits from Markov chains. Float64."""

import heapq
import math
from collections.abc import Iterable

import numpy as np
from scipy import sparse
from scipy.sparse import linalg


def heap_waits(gaps_s: Iterable[float], service_s: Iterable[float], servers: int) -> np.ndarray:
    """Waits in order of arrival: each request takes the server that is free first."""
    free, now, waits = [0.0] * servers, 0.0, []
    for gap, service in zip(gaps_s, service_s, strict=True):
        now += gap
        start = max(heapq.heappop(free), now)
        heapq.heappush(free, start + service)
        waits.append(start - now)
    return np.array(waits)


def erlang_c(servers: int, offered: float) -> float:
    """Probability of waiting in M/M/c, by the recursion of the loss formula."""
    loss = 1.0
    for server in range(1, servers + 1):
        loss = offered * loss / (server + offered * loss)
    return loss / (1.0 - offered / servers * (1.0 - loss))


def deterministic_wait(servers: int, rho: float) -> float:
    """Mean wait in M/D/c with service time 1: Crommelin's chain of the number in system, a service time apart."""
    rate = rho * servers
    places = servers + math.ceil(40.0 / (1.0 - rho))
    arrivals = np.exp([k * math.log(rate) - rate - math.lgamma(k + 1) for k in range(places)])
    moves = [
        (number, left + more, arrivals[more])
        for number in range(places)
        for left in (max(number - servers, 0),)
        for more in range(min(places - left, 40 + 10 * servers))
    ]
    waiting = np.maximum(np.arange(places) - servers, 0)
    return float(_stationary(moves) @ waiting / rate)


def two_phase_wait(servers: int, rho: float, shares: tuple[float, float], means: tuple[float, float]) -> float:
    """Mean wait in M/H2/c, where service is exponential with one of two means.

    States are the number in system and how many of those in service are of the first kind.
    """
    rate = rho * servers / float(np.dot(shares, means))
    places = servers + math.ceil(60.0 / (1.0 - rho))
    pairs = [(number, first) for number in range(places) for first in range(min(number, servers) + 1)]
    state = {pair: index for index, pair in enumerate(pairs)}
    moves = []
    for (number, first), index in state.items():
        busy = (first, min(number, servers) - first)
        if number < servers:
            moves += [(index, state[number + 1, first + (kind == 0)], rate * shares[kind]) for kind in (0, 1)]
        elif number + 1 < places:
            moves.append((index, state[number + 1, first], rate))
        for kind in (0, 1):
            after, leaves = first - (kind == 0), busy[kind] / means[kind]
            if busy[kind] and number <= servers:
                moves.append((index, state[number - 1, after], leaves))
            elif busy[kind]:
                moves += [(index, state[number - 1, after + (new == 0)], leaves * shares[new]) for new in (0, 1)]
    waiting = np.array([max(number - servers, 0) for number, _ in pairs])
    return float(_stationary(moves) @ waiting / rate)


def _stationary(moves: list[tuple[int, int, float]]) -> np.ndarray:
    """The probabilities that moves (from, to, rate) leave as they are."""
    start, end, rate = (np.array(column) for column in zip(*moves, strict=True))
    size = start.max() + 1
    balance = sparse.csc_matrix((rate, (end, start)), (size, size))
    balance -= sparse.diags(np.bincount(start, rate, size))
    others = np.asarray(linalg.spsolve(balance[1:, 1:].tocsc(), -balance[1:, :1].toarray()[:, 0]))
    return np.append(1.0, others) / (1.0 + others.sum())
