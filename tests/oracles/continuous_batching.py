# SPDX-License-Identifier: Apache-2.0
"""Continuous batching step by step: one server, first come first served, in a closed loop or an open one.

Every step is simulated: which prompts it takes, what KV blocks they need, how long it lasts, who finishes. Written from
the rules of the schedulers, without the formulas that it judges.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNLIMITED = 1 << 60


class Server(NamedTuple):
    """The scheduler and the times of its steps.

    Attributes:
        step_ms: Time of a step of (prompt tokens, decode rows).
        mixes: Whether a step with prompts holds decode rows too.
        prompts_per_step: Most prompts that a step touches.
        token_budget: Most prompt tokens and decode rows of a step; longer prompts take several.
        kv_blocks, block_tokens: Space for KV caches, and the tokens of one block.
        reserves: Whether a request holds the blocks of its whole answer from the start; else the latest request is
            thrown out, and prefilled again, when blocks run out.
    """

    step_ms: Callable[[int, int], float]
    mixes: bool = True
    prompts_per_step: int = 1
    token_budget: int = UNLIMITED
    kv_blocks: int = UNLIMITED
    block_tokens: int = 16
    reserves: bool = True


class Served(NamedTuple):
    """What the client measures, per request in the order sent [ms]; TPOT is NaN for one output token."""

    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    end_ms: NDArray[np.float64]


def uniform_lengths(nominal: int, least_share: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Lengths uniform from a share of the nominal one to all of it."""
    shares = least_share + (1 - least_share) * rng.random(count)
    return np.maximum(1, np.round(nominal * shares)).astype(np.int64)


def closed_loop(
    server: Server, isl: NDArray[np.int64], osl: NDArray[np.int64], concurrency: int, client_ms: float = 1e-3
) -> Served:
    """All requests of a closed loop: `concurrency` at once, then a new one whenever one ends.

    Args:
        server: The server.
        isl, osl: Lengths of the requests; an empty server ends the run.
        concurrency: Requests in flight.
        client_ms: From the end of an answer to the arrival of the next request.
    """
    sent_ms = np.zeros(len(isl))
    return _serve(server, isl, osl, sent_ms, min(concurrency, len(isl)), client_ms)


def open_loop(server: Server, isl: NDArray[np.int64], osl: NDArray[np.int64], sent_ms: NDArray[np.float64]) -> Served:
    """All requests of an open load.

    Args:
        server: The server.
        isl, osl: Lengths of the requests.
        sent_ms: When each of them arrives, in order.
    """
    return _serve(server, isl, osl, sent_ms, len(isl), 0.0)


def _serve(
    server: Server,
    isl: NDArray[np.int64],
    osl: NDArray[np.int64],
    sent_ms: NDArray[np.float64],
    sent: int,
    client_ms: float,
) -> Served:
    """The first `sent` requests at their times, and one more whenever one ends."""
    count = len(isl)
    first_ms, end_ms = np.full(count, np.nan), np.full(count, np.nan)
    made, filled = np.zeros(count, np.int64), np.zeros(count, np.int64)  # output tokens, KV tokens
    arrivals = [(float(sent_ms[i]), i) for i in range(sent)]
    now = 0.0
    queue: deque[int] = deque()
    prompts: list[int] = []  # admitted, not yet prefilled
    rows: list[int] = []  # decoding, in the order admitted

    def blocks(ids: list[int], ahead: int) -> int:
        held = isl[ids] + (osl[ids] if server.reserves else np.minimum(made[ids] + ahead, osl[ids]))
        return int(np.sum(-(-held // server.block_tokens)))

    while arrivals or queue or prompts or rows:
        while arrivals and arrivals[0][0] <= now:
            queue.append(heappop(arrivals)[1])
        while not server.reserves and len(rows) > 1 and blocks(rows + prompts, 1) > server.kv_blocks:
            out = rows.pop()
            filled[out] = 0
            queue.appendleft(out)
        budget = server.token_budget - (len(rows) if server.mixes else 0)
        while queue and len(prompts) < server.prompts_per_step:
            waiting = sum(int(isl[i] + made[i] - filled[i]) for i in prompts)
            if waiting >= budget or (blocks([*rows, *prompts, queue[0]], 1) > server.kv_blocks and rows + prompts):
                break
            prompts.append(queue.popleft())
        taken = []
        for i in prompts:
            part = min(budget, int(isl[i] + made[i] - filled[i]))
            filled[i] += part
            budget -= part
            taken.append(part)
        decoding = [] if prompts and not server.mixes else list(rows)
        if not (prompts or decoding):
            now = arrivals[0][0]
            continue
        now += server.step_ms(sum(taken), len(decoding))
        done = [i for i in prompts if filled[i] == isl[i] + made[i]]
        prompts = [i for i in prompts if i not in done]
        made[decoding] += 1
        filled[decoding] += 1
        for i in done:
            made[i] += 1
            first_ms[i] = now if np.isnan(first_ms[i]) else first_ms[i]
        rows += done
        ended = [i for i in decoding + done if made[i] >= osl[i]]
        rows = [i for i in rows if i not in ended] if ended else rows
        for i in ended:
            end_ms[i] = now
            if sent < count:
                sent_ms[sent] = now + client_ms
                heappush(arrivals, (now + client_ms, sent))
                sent += 1
    tpot_ms = np.where(osl > 1, (end_ms - first_ms) / np.maximum(osl - 1, 1), np.nan)
    return Served(first_ms - sent_ms, tpot_ms, end_ms)
