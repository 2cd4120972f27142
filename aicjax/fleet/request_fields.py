# SPDX-License-Identifier: Apache-2.0
"""Fields that requests about fleets share: the workload, the load, the limits and the simulation."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax._units import PERCENT
from aicjax.explore.request_errors import Strict
from aicjax.fleet.replica_spec import Count, PresetReplica, ReplicaField
from aicjax.fleet.statistics import WARM_UP_SHARE

Milliseconds = Annotated[float, Field(gt=0, le=1e9)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
ArrivalCv2 = Annotated[float, Field(gt=0, le=1e4)]
Share = Annotated[float, Field(ge=0, le=1)]
Availability = Annotated[float, Field(gt=0, le=1)]
SpareReplicas = Annotated[int, Field(ge=0, le=1000)]
ReplicaCount = Annotated[int, Field(ge=1, le=100_000)]
CompatName = Literal["default", "fleet-reference"]
TraceFormat = Literal["auto", "azure", "splitwise", "mooncake", "semantic_router"]
RATE_PER_S = 200.0  # where none is stated
LEAST_REQUESTS = 100  # of a run
ENOUGH_REQUESTS = 5000  # of a run, where none are stated
WARM_UP_SERVICES = 3  # mean times of service
MOST_REQUESTS = 20_000_000  # of one answer, over all fleets and seeds


def listed(value: Any) -> Any:
    """The values of a text with commas between; another single value as a list of one."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


Counts = Annotated[tuple[Count, ...], BeforeValidator(listed)]
Rates = Annotated[tuple[Rate, ...], BeforeValidator(listed), Field(min_length=1, max_length=1000)]


def _replicas(value: Any) -> Any:
    """Replicas of a list; a text separates them by semicolons, or names presets with commas between."""
    if not isinstance(value, str) or ("=" not in value and ";" not in value):
        return listed(value)
    return [part.strip() for part in value.split(";") if part.strip()]


Replicas = Annotated[tuple[ReplicaField, ...], BeforeValidator(_replicas), Field(min_length=1)]


class WorkloadFields(Strict):
    """Lengths of requests, stated in one of three ways.

    Attributes:
        workload: Built-in distribution of total tokens, or a JSON file of `[tokens, cumulative share]` points.
        trace: File of requests with times and lengths; `trace_format` is how to read it.
        isl, osl: Prompt and output tokens, where all requests are alike.
        input_share: Share of the prompt in the total tokens of a distribution; what is known of the data when None.
    """

    workload: str | None = None
    trace: Path | None = None
    trace_format: TraceFormat = "auto"
    isl: Count | None = None
    osl: Count | None = None
    input_share: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _check_workload(self) -> Self:
        stated = [name for name in ("workload", "trace", "isl") if getattr(self, name) is not None]
        if not stated:
            raise InputError("workload", None, "given, or trace, or isl and osl")
        if len(stated) > 1:
            raise InputError(stated[1], getattr(self, stated[1]), f"absent when {stated[0]} is given")
        if (self.isl is None) != (self.osl is None):
            missing = "osl" if self.osl is None else "isl"
            raise InputError(missing, None, "given together with the other of isl and osl")
        if self.trace is not None and not self.trace.is_file():
            raise InputError("trace", str(self.trace), "a readable file")
        return self


class LimitFields(Strict):
    """The limit on the time to first token.

    Attributes:
        ttft_ms: Limit [ms].
        percentile: Share of requests that must be within it [%].
    """

    ttft_ms: Milliseconds = 500.0
    percentile: Annotated[float, Field(ge=1, lt=100)] = 99.0

    @property
    def quantile(self) -> float:
        """The percentile as a share."""
        return self.percentile / PERCENT


class Request(WorkloadFields, LimitFields):
    """Base of the requests.

    Attributes:
        compat: `fleet-reference` follows vllm-sr-sim also where it contradicts itself or queueing theory.
    """

    compat: CompatName = "default"


class ReserveFields(Strict):
    """What is kept free of load.

    Attributes:
        availability: Share of the time that a replica is up.
        max_utilization: Highest share of the capacity that may be used.
        spare_replicas: Replicas of each pool that may fail at once without missing the limit.
    """

    availability: Availability = 1.0
    max_utilization: Annotated[float, Field(gt=0, lt=1)] = 0.85
    spare_replicas: SpareReplicas = 0


class SimulationFields(Strict):
    """The size of a simulation.

    Attributes:
        requests: Requests of one run; None for so many that the warm-up covers several times of service.
        seeds: Independent runs, from which intervals come.
        seed: Random seed of the first.
    """

    requests: Annotated[int, Field(ge=LEAST_REQUESTS)] | None = None
    seeds: Annotated[int, Field(ge=2, le=1024)] = 8
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _check_work(self) -> Self:
        most = self.most_requests
        if self.requests is not None and self.requests > most:
            raise InputError("requests", self.requests, f"at most {most} with {self.runs} runs")
        return self

    @property
    def runs(self) -> int:
        """Runs of all kinds."""
        return self.seeds

    @property
    def most_requests(self) -> int:
        """Most requests of a run."""
        return MOST_REQUESTS // self.runs

    def run_length(self, concurrency: float) -> int:
        """Requests of a run in which so many are in service at once: as stated, or enough for the warm-up.

        A run starts empty. Its warm-up is to last `WARM_UP_SERVICES` mean times of service.
        """
        if self.requests is not None:
            return self.requests
        enough = math.ceil(WARM_UP_SERVICES * concurrency / WARM_UP_SHARE)
        return min(max(enough, ENOUGH_REQUESTS), self.most_requests)


def check_ascending(thresholds: Sequence[int], max_tokens: int) -> None:
    """Refuses token counts at which requests part that do not rise up to that of the last pool.

    Raises:
        InputError: Naming `thresholds`.
    """
    if any(low >= high for low, high in pairwise((*thresholds, max_tokens))):
        raise InputError("thresholds", list(thresholds), f"ascending and below max_tokens = {max_tokens}")


class PoolFields(Strict):
    """The replicas of the pools, and the token counts at which requests part.

    Attributes:
        replica: What serves, in the pool of short requests when there are several.
        replica_long: What serves in the pool of the longest; the same when None.
        thresholds: Total tokens up to which a request belongs to a pool, ascending; one pool when empty.
        max_tokens: Most tokens of a request (prompt and output) that the last pool reserves for.
    """

    replica: ReplicaField = PresetReplica(preset="a100")
    replica_long: ReplicaField | None = None
    thresholds: Counts = ()
    max_tokens: Count = 65536

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        check_ascending(self.thresholds, self.max_tokens)
        return self

    @property
    def pool_replicas(self) -> tuple[Any, ...]:
        """The replica of every pool, shortest requests first."""
        last = self.replica if self.replica_long is None else self.replica_long
        return (*([self.replica] * len(self.thresholds)), last if self.thresholds else self.replica)


class LoadFields(Strict):
    """How requests arrive.

    Attributes:
        rate_per_s: Mean rate; that of the trace when None, 200 without a trace.
        arrival_cv2: Squared coefficient of variation of the times between arrivals: 1 is Poisson, above is bursty; that
            of the trace when None, 1 without a trace.
    """

    rate_per_s: Rate | None = None
    arrival_cv2: ArrivalCv2 | None = None
