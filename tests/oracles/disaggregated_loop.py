# SPDX-License-Identifier: Apache-2.0
"""A disaggregated replica in a closed loop, event by event: prefill queues and decode batches."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Replica(NamedTuple):
    """Its ranks and their times.

    Attributes:
        prefill_ms: Time of a prompt of so many tokens; a rank takes one at a time, first come, first served.
        step_ms: Time of a decode step of so many requests.
        prefill_ranks, decode_ranks: Requests go to them in turn.
    """

    prefill_ms: Callable[[int], float]
    step_ms: Callable[[int], float]
    prefill_ranks: int
    decode_ranks: int


def closed_loop(
    replica: Replica, isl: NDArray[np.int64], osl: NDArray[np.int64], concurrency: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """TTFT and TPOT of all requests in the order sent [ms]: `concurrency` at once, then one whenever one ends."""
    count = len(isl)
    sent_ms, first_ms, end_ms = np.zeros(count), np.zeros(count), np.full(count, np.nan)
    left = osl - 1
    free_ms = np.zeros(replica.prefill_ranks)
    clock = np.zeros(replica.decode_ranks)  # when the step in progress ends
    stepping: list[list[int]] = [[] for _ in range(replica.decode_ranks)]
    ready: list[deque[tuple[float, int]]] = [deque() for _ in range(replica.decode_ranks)]
    sent = 0

    def send(now: float) -> None:
        nonlocal sent
        if sent < count:
            rank, i = sent % replica.prefill_ranks, sent
            sent_ms[i] = now
            first_ms[i] = free_ms[rank] = max(now, free_ms[rank]) + replica.prefill_ms(int(isl[i]))
            place = ready[i % replica.decode_ranks]
            place.append((first_ms[i], i))
            sent += 1

    for _ in range(concurrency):
        send(0.0)
    while True:
        starts = [clock[r] if stepping[r] else max(clock[r], min(q)[0]) if q else np.inf for r, q in enumerate(ready)]
        rank = int(np.argmin(starts))
        now = float(starts[rank])
        if np.isinf(now):
            return first_ms - sent_ms, np.where(osl > 1, (end_ms - first_ms) / np.maximum(osl - 1, 1), np.nan)
        running = stepping[rank]
        left[running] -= 1
        for i in [i for i in running if left[i] == 0]:
            end_ms[i] = now
            running.remove(i)
            send(now)
        here = [entry for entry in ready[rank] if entry[0] <= now]
        ready[rank] = deque(entry for entry in ready[rank] if entry[0] > now)
        running += [i for _, i in here]
        clock[rank] = now + replica.step_ms(len(running)) if running else now
