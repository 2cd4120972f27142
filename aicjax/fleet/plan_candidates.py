# SPDX-License-Identifier: Apache-2.0
"""Deployments that a plan considers: the best of a search on each system, with their queues in closed form."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from aicjax._results import MissingData, MissingPeak, NoFeasible
from aicjax.explore import SearchRequest, frame, search
from aicjax.fleet import lengths
from aicjax.fleet.capacity import PoolLoad, Verdict, least_replicas
from aicjax.fleet.engine_profile import EngineRun, engine_run
from aicjax.fleet.inputs import load_of, target_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.profile import slots
from aicjax.fleet.replica_spec import EngineReplica
from aicjax.fleet.service_times import ServiceLaw, moments, service_law

_LAYOUT = ("tp", "pp", "dp", "moe_tp", "moe_ep")

_least_replicas = jax.jit(least_replicas)


@dataclass(frozen=True)
class Candidate:
    """A deployment as a replica of a fleet.

    Attributes:
        replica: The deployment.
        run: Its step times and profile.
        service: Law of slot times, stretched so that a replica serves `capacity_per_s`.
        slots: Requests that run at once.
        capacity_per_s: Requests per second with every slot in use, decode and prefill steps mixed.
        tpot_ms: Time per output token then.
        load: Least replicas by the queue law, and their state.
        needed: Those replicas.
    """

    replica: EngineReplica
    run: EngineRun
    service: ServiceLaw
    slots: float
    capacity_per_s: float
    tpot_ms: float
    load: PoolLoad
    needed: int

    @property
    def price_per_hour(self) -> float:
        """Of the needed replicas [USD/h]."""
        return self.needed * float(self.run.profile.price_per_hour)

    @property
    def prefill_too_slow(self) -> bool:
        """Whether a request alone misses the limit on TTFT."""
        return int(self.load.verdict) == Verdict.PREFILL_TOO_SLOW


def candidates(request: PlanRequest, law: Lengths) -> tuple[list[Candidate], dict[str, str]]:
    """The deployments of all systems, cheapest first, and the systems without one with the reason.

    Raises:
        MissingData, MissingPeak, NoFeasible: No system has a deployment; the reason of the first.
    """
    found: list[Candidate] = []
    refused: dict[str, Exception] = {}
    for system in request.systems:
        try:
            found += [_candidate(request, law, replica, *rates) for replica, *rates in _searched(request, law, system)]
        except (MissingData, MissingPeak, NoFeasible) as error:
            refused[system] = error
    if not found:
        raise next(iter(refused.values()))
    found.sort(key=lambda each: (each.prefill_too_slow, each.price_per_hour, each.needed * each.run.profile.gpus))
    return found, {system: str(error) for system, error in refused.items()}


def _searched(request: PlanRequest, law: Lengths, system: str) -> list[tuple[EngineReplica, float, float]]:
    """Deployments by throughput per GPU within the limits, each with its capacity [1/s] and TPOT [ms]."""
    isl, osl = (max(round(float(mean)), 1) for mean in lengths.mean(law))
    settings = {"database_mode": request.database_mode, "constants": request.constants}
    result = search(
        SearchRequest(
            model_path=request.model_path,
            system=system,
            backend=request.backend,
            total_gpus=request.max_gpus_per_replica,
            isl=isl,
            osl=osl,
            ttft=request.ttft_ms,
            tpot=request.tpot_ms,
            serving_mode="agg",
            top_n=request.candidates,
            **settings,
        )
    )
    if result.winner is None:
        raise next(iter(result.errors.values()))
    rows = [row for task in result.tasks.values() for row in frame.rows(task.best)]
    return [
        (
            EngineReplica(
                model=request.model_path,
                system=system,
                backend=row["backend"],
                batch_size=int(row["bs"]),
                price_per_gpu_hour=request.price_of(system),
                **{axis: int(row[axis]) for axis in _LAYOUT},
                **settings,
            ),
            float(row["seq/s"]),
            float(row["tpot"]),
        )
        for row in rows[: request.candidates]
    ]


def _candidate(
    request: PlanRequest, law: Lengths, replica: EngineReplica, capacity_per_s: float, tpot_ms: float
) -> Candidate:
    isl, osl = (float(mean) for mean in lengths.mean(law))
    run = engine_run(replica, mean_tokens=max(round(isl + osl), 2))
    held_tokens = _held_tokens(law)
    room = float(slots(run.profile, held_tokens))
    service = service_law(run.profile, law, held_tokens)
    mean_s, _ = moments(service)
    service = ServiceLaw(
        service_s=service.service_s * room / (capacity_per_s * mean_s),
        prefill_s=service.prefill_s + run.request_s,
        weight=service.weight,
    )
    rate_per_s, cv2 = load_of(request)
    load = _least_replicas(room, rate_per_s, service, target_of(request), cv2)
    return Candidate(replica, run, service, room, capacity_per_s, tpot_ms, load, int(load.replicas))


def _held_tokens(law: Lengths) -> float:
    """Mean final length of the requests that run at a random time: what a slot takes of the KV cache."""
    isl, osl, weight = (jnp.asarray(leaf, float) for leaf in law)
    held = weight * osl
    return float(jnp.sum(held * (isl + osl)) / jnp.sum(held))
