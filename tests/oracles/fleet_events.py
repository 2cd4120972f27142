# SPDX-License-Identifier: Apache-2.0
"""A fleet of pools, event by event with plain queues: each replica first come, first served, routed at each arrival."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Replica:
    """One replica: the ends of what it runs, and who waits."""

    def __init__(self, pool: int, slots: int):
        self.pool, self.slots = pool, slots
        self.ends: list[float] = []
        self.waiting: deque[int] = deque()

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return len(self.ends) + len(self.waiting)


class Ended(NamedTuple):
    """What became of a request; the times are None unless it was served."""

    outcome: str
    pool: int
    replica: int
    wait_s: float | None
    running: int


def run(
    arrivals_s: Sequence[float],
    counts: Sequence[int],
    slots: Sequence[int],
    queue_limit: int,
    pool_of: Callable[[int, Sequence[Sequence[Replica]]], int],
    place_of: Callable[[int, Sequence[Replica], int], int],
    service_s: Callable[[int, int], float | None],
    delay_s: Callable[[int, int], float],
) -> list[Ended]:
    """Runs every request until the last has ended.

    Args:
        arrivals_s: Times of arrival, ascending.
        counts, slots: Replicas of each pool, and slots of each.
        queue_limit: Requests that may wait at a replica.
        pool_of: Pool of a request under the load of the moment.
        place_of: Place of its replica in its pool, of those with room, by request, the pool's replicas and the number
            of requests that the pool took before.
        service_s: Time of a request in a pool; None where it cannot be served.
        delay_s: Time before its service in a pool can begin.
    """
    pools = [
        [Replica(pool, room) for _ in range(count)]
        for pool, (count, room) in enumerate(zip(counts, slots, strict=True))
    ]
    ended: dict[int, Ended] = {}

    def fill(replica: Replica, number: int, now_s: float) -> None:
        while replica.waiting and len(replica.ends) < replica.slots:
            request = replica.waiting.popleft()
            wait_s = max(now_s - arrivals_s[request], delay_s(request, replica.pool))
            time_s = service_s(request, replica.pool)
            assert time_s is not None
            heapq.heappush(replica.ends, arrivals_s[request] + wait_s + time_s)
            ended[request] = Ended("completed", replica.pool, number, wait_s, len(replica.ends))

    def advance(until_s: float) -> None:
        for number, replica in enumerate(replica for pool in pools for replica in pool):
            while replica.ends and replica.ends[0] <= until_s:
                fill_at = heapq.heappop(replica.ends)
                fill(replica, number, fill_at)

    taken = [0] * len(pools)
    for request, now_s in enumerate(arrivals_s):
        advance(now_s)
        pool = pool_of(request, pools)
        if not pools[pool] or pools[pool][0].slots == 0 or service_s(request, pool) is None:
            ended[request] = Ended("refused", pool, -1, None, 0)
            continue
        free = [i for i, one in enumerate(pools[pool]) if len(one.ends) < one.slots or len(one.waiting) < queue_limit]
        if not free:
            ended[request] = Ended("rejected", pool, -1, None, 0)
            continue
        place = place_of(request, pools[pool], taken[pool])
        while place not in free:
            place = (place + 1) % len(pools[pool])
        replica = pools[pool][place]
        taken[pool] = place + 1
        replica.waiting.append(request)
        fill(replica, sum(len(before) for before in pools[:pool]) + place, now_s)
    advance(float("inf"))
    return [ended[request] for request in range(len(arrivals_s))]
