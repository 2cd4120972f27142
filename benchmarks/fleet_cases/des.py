# SPDX-License-Identifier: Apache-2.0
"""Fleet runs of the fleet reference, replayed request by request with its own rules.

The reference freezes the times of a request when it starts, from the requests that run at that moment, and frees its
slot after the time at full slots divided by the slots. No sane simulator does, so this replay stands apart from it.
Where the load balance is one that both have, the simulator of `fleet_queue` is given the stored slot times and must
find the same replicas and starts.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet

from aicjax.fleet.fleet_queue import fleet_run
from aicjax.fleet.fleet_state import Times, replicas_of
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.routing import (
    LEAST_LOADED,
    Balance,
    Requests,
    Route,
    compress_route,
    fit_route,
    least_loaded_route,
    length_route,
    random_route,
    spillover_route,
)
from aicjax.fleet.rules import FLEET_REFERENCE
from benchmarks.fleet_cases import Row, profile_of
from benchmarks.fleet_cases.routers import SAFE, borderline, stored_choices, stored_draws

QUEUE_LIMIT = 512  # requests that may wait at a replica
SLO_S = 0.5
TIMES = ("start", "first_token", "end", "physical_end")
BALANCES = {"round_robin": Balance.ROUND_ROBIN, "least_loaded": Balance.FEWEST}  # that both have
_simulate = jax.jit(fleet_run, static_argnames=("slots_width", "rules"))


def rows(answers: Mapping[str, Any], path: Path) -> Iterable[Row]:
    """Pool, replica and times of every request of every case, and the summary of the case."""
    table = pyarrow.parquet.read_table(path.with_name(f"{path.stem}_requests.parquet")).to_pydict()
    names = np.array(table.pop("case"))
    stored = {name: np.array(column, float if name in TIMES else None) for name, column in table.items()}
    for entry in answers["cases"]:
        case = entry["case"]
        own = {name: column[names == case["id"]] for name, column in stored.items()}
        if own["arrival"].size == 0:
            continue
        requests = Requests(
            jnp.asarray(own["l_in"], jnp.int32),
            jnp.asarray(own["l_out"], jnp.int32),
            jnp.asarray(np.isin(own["category"], SAFE)),
        )
        profiles = [profile_of(answers, pool["gpu"]) for pool in case["pools"]]
        route = _route(case, requests)
        replay = _Replay(case, profiles, own["arrival"], np.asarray(requests.osl), route)
        taken = replay.instance >= 0
        pool_ids = [case["pools"][pool]["id"] if took else None for pool, took in zip(replay.pool, taken, strict=True)]
        yield Row(f"{case['id']} pool", pool_ids, own["pool"].tolist(), "exact")
        yield Row(f"{case['id']} instance", replay.instance, own["instance"], "exact")
        yield Row(f"{case['id']} isl", replay.isl, own["l_in_used"], "exact")
        for name in TIMES:
            yield Row(f"{case['id']} {name}", replay.times[name], own[name], "absolute", 1e-9)
        if entry["stats"]:  # not so where a file holds the first requests alone
            summary = replay.summary()
            yield Row(f"{case['id']} summary", summary, {key: entry["stats"][key] for key in summary}, "exact")
        if {pool.get("lb") for pool in case["pools"]} <= set(BALANCES):
            yield from _simulated(case, profiles, own, route)


def _route(case: Mapping[str, Any], requests: Requests) -> Route:
    limits = jnp.asarray([pool["ctx"] for pool in case["pools"]], jnp.int32)
    options, n = case["kw"], requests.isl.size
    match case["router"]:
        case "LengthRouter" if "threshold" in options:
            return length_route(requests, limits, options["threshold"])
        case "LengthRouter":
            return fit_route(requests, limits)
        case "SpilloverRouter":
            return spillover_route(requests, limits, options["threshold"], options["spill_threshold"])
        case "LeastLoadedRouter":
            return least_loaded_route(requests)
        case "RandomRouter":
            draws = stored_choices(options["seed"], limits.size, n)
            return random_route(requests, limits, jnp.asarray(draws), FLEET_REFERENCE)
        case "CompressAndRouteRouter":
            threshold, gamma, success = options["B_short"], options["gamma"], options.get("p_compress", 1.0)
            tried = borderline(requests, threshold, gamma) & np.asarray(requests.compressible)
            draws = stored_draws(options.get("seed", 0), tried) if success < 1.0 else np.zeros(n)
            return compress_route(requests, limits, threshold, gamma, success, 0.0, jnp.asarray(draws))
    raise ValueError(case["router"])


def _simulated(
    case: Mapping[str, Any], profiles: list[Profile], own: Mapping[str, np.ndarray], route: Route
) -> Iterable[Row]:
    """The simulator with the stored slot times."""
    pools = case["pools"]
    counts = jnp.asarray([pool["n"] for pool in pools])
    room = jnp.asarray([int(slots(profile, pool["ctx"])) for profile, pool in zip(profiles, pools, strict=True)])
    held_s = jnp.asarray(own["end"] - own["start"])
    run = _simulate(
        jnp.asarray(np.diff(own["arrival"], prepend=0.0)),
        route,
        Times(jnp.broadcast_to(held_s[:, None], (held_s.size, len(pools))), held_s),
        replicas_of(counts, room, int(counts.sum())),
        jnp.zeros((held_s.size, 2)),
        slots_width=int(room.max()),
        balance=int(BALANCES[pools[0]["lb"]]),
        queue_limit=QUEUE_LIMIT,
    )
    before = np.cumsum(np.append(0, counts))[np.asarray(run.pool)]
    yield Row(f"{case['id']} simulated replica", np.asarray(run.replica) - before, own["instance"], "exact")
    wait_s = own["start"] - own["arrival"]
    yield Row(f"{case['id']} simulated wait", np.asarray(run.wait_s), wait_s, "absolute", 1e-9)


class _Replay:
    """One run under the rules of the reference; what it does at each arrival is in `_arrive`."""

    def __init__(self, case, profiles: list[Profile], arrival: np.ndarray, osl: np.ndarray, route: Route):
        self.case, self.arrival, self.osl = case, arrival, osl
        pools = case["pools"]
        self.isl = np.asarray(route.isl)
        self.pool = np.asarray(route.pool).copy()
        self.spill = np.asarray(route.spill_pool), np.asarray(route.spill_utilization)
        self.instance = np.full(arrival.size, -1)
        self.times = {name: np.full(arrival.size, np.nan) for name in TIMES}
        self.profiles = [
            {
                name: float(getattr(one, name))
                for name in ("base_s", "per_sequence_s", "calibration_tokens", "chunk_tokens")
            }
            for one in profiles
        ]
        self.slots = [int(slots(profile, pool["ctx"])) for profile, pool in zip(profiles, pools, strict=True)]
        self.running: list[list[list]] = [[[] for _ in range(pool["n"])] for pool in pools]  # heaps of (end, request)
        self.waiting: list[list[deque]] = [[deque() for _ in range(pool["n"])] for pool in pools]
        self.turn = [0] * len(pools)
        self.busy_s = [[0.0] * pool["n"] for pool in pools]
        for request, now_s in enumerate(arrival):
            self._advance(now_s)
            self._arrive(request, now_s)
        self._advance(np.inf)

    def _advance(self, until_s: float) -> None:
        for pool, heaps in enumerate(self.running):
            for instance, heap in enumerate(heaps):
                while heap and heap[0][0] <= until_s:
                    end_s = heapq.heappop(heap)[0]
                    while heap and heap[0][0] <= end_s:
                        heapq.heappop(heap)
                    self._fill(pool, instance, end_s)

    def _arrive(self, request: int, now_s: float) -> None:
        pool = self.pool[request]
        load = [
            sum(map(len, heaps)) + sum(map(len, queues))
            for heaps, queues in zip(self.running, self.waiting, strict=True)
        ]
        if pool == LEAST_LOADED:
            pool = int(np.argmin(np.array(load) / (np.array(self.slots) * [len(heaps) for heaps in self.running])))
        if load[pool] / len(self.running[pool]) >= self.spill[1][request]:
            pool = self.spill[0][request]
        queues, heaps = self.waiting[pool], self.running[pool]
        match self.case["pools"][pool].get("lb", "least_queue"):
            case "least_queue":
                instance = min(range(len(queues)), key=lambda k: len(queues[k]))
            case "least_loaded":
                instance = min(range(len(queues)), key=lambda k: len(queues[k]) + len(heaps[k]))
            case _:
                instance, self.turn[pool] = self.turn[pool], (self.turn[pool] + 1) % len(queues)
        self.pool[request] = pool
        if len(queues[instance]) >= QUEUE_LIMIT:
            return
        self.instance[request] = instance
        queues[instance].append(request)
        self._fill(pool, instance, now_s)

    def _fill(self, pool: int, instance: int, now_s: float) -> None:
        heap, queue, room, facts = (
            self.running[pool][instance],
            self.waiting[pool][instance],
            self.slots[pool],
            self.profiles[pool],
        )
        while queue and len(heap) < room:
            request = queue.popleft()
            active = [other for _, other in heap] + [request]
            tokens = sum(int(self.isl[i] + self.osl[i]) for i in active) / len(active)
            per_sequence_s = facts["per_sequence_s"] * tokens / facts["calibration_tokens"]
            step_s, full_s = (facts["base_s"] + per_sequence_s * count for count in (len(active), room))
            chunks = -(-int(self.isl[request]) // int(facts["chunk_tokens"]))
            first_s = now_s + chunks * step_s
            end_s = now_s + (chunks * full_s + self.osl[request] * full_s) / room
            values = now_s, first_s, end_s, first_s + self.osl[request] * step_s
            for name, value in zip(TIMES, values, strict=True):
                self.times[name][request] = value
            heapq.heappush(heap, (end_s, request))

    def summary(self) -> dict[str, Any]:
        """The statistics that the reference states."""
        pools = self.case["pools"]
        done = self.instance >= 0
        ttft_s = self.times["first_token"] - self.arrival
        wait_s = self.times["start"] - self.arrival

        def at(values: np.ndarray, percent: float) -> float:
            ranked = np.sort(values)
            return float(ranked[max(0, int(ranked.size * percent / 100) - 1)])

        facts: dict[str, Any] = {
            "total_gpus": sum(pool["n"] for pool in pools),
            "total_completed": int(done.sum()),
            "n_arrivals": self.arrival.size,
            "fleet_p99_ttft_ms": round(at(ttft_s[done], 99) * 1e3, 1),
            "fleet_p50_ttft_ms": round(at(ttft_s[done], 50) * 1e3, 1),
            "fleet_p99_qwait_ms": round(at(wait_s[done], 99) * 1e3, 1),
            "fleet_slo_compliance": round(float((ttft_s[done] <= SLO_S).mean()), 4),
            "per_instance_completed": {},
        }
        for number, pool in enumerate(pools):
            own = done & (self.pool == number)
            facts[f"{pool['id']}_p99_ttft_ms"] = round(at(ttft_s[own], 99) * 1e3, 1)
            facts[f"{pool['id']}_p99_qwait_ms"] = round(at(wait_s[own], 99) * 1e3, 1)
            facts[f"{pool['id']}_slo"] = round(float((ttft_s[own] <= SLO_S).mean()), 4)
            facts["per_instance_completed"][pool["id"]] = np.bincount(self.instance[own], minlength=pool["n"]).tolist()
        return facts
