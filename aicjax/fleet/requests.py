# SPDX-License-Identifier: Apache-2.0
"""What a user may ask about fleets, one class for each command, checked before anything is computed."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax.explore.request_errors import Strict
from aicjax.fleet.replica_spec import Count, PresetReplica, ReplicaField
from aicjax.fleet.request_fields import (
    ArrivalCv2,
    Availability,
    LoadFields,
    Milliseconds,
    PoolFields,
    Rates,
    ReplicaCount,
    Replicas,
    Request,
    ReserveFields,
    Share,
    SimulationFields,
    listed,
)

Gamma = Annotated[float, Field(ge=1, le=4)]
GammaStep = Annotated[float, Field(ge=0.01, le=3)]
RouterName = Literal["length", "spillover", "compress", "least_loaded", "round_robin", "random", "model", "semantic"]
Start = Literal["empty", "settled"]
MOST_TOKENS = 1_000_000_000  # of a request, which is simulated with 32-bit integers
LEAST_RUNS = 5  # whose spread gives an interval
ROUTERS: tuple[RouterName, ...] = ("length", "spillover", "compress", "least_loaded", "round_robin", "random")


class _SizingFields(ReserveFields):
    """Rules of a sizing.

    Attributes:
        gamma_min, gamma_max: Requests of up to this many times the threshold are compressed to it (two pools); 1 for
            none. The first and the last factor that is tried, with `gamma_step` between.
        compressible: Share of those requests whose prompt may be compressed.
    """

    gamma_min: Gamma = 1.0
    gamma_max: Gamma = 2.0
    gamma_step: GammaStep = 0.1
    compressible: Share = 0.75

    @property
    def gammas(self) -> tuple[float, ...]:
        """Factors that are tried."""
        count = int((self.gamma_max - self.gamma_min) / self.gamma_step + 1e-9)
        return tuple(round(self.gamma_min + self.gamma_step * index, 6) for index in range(count + 1))

    @model_validator(mode="after")
    def _check_gammas(self) -> Self:
        if self.gamma_max < self.gamma_min:
            raise InputError("gamma_max", self.gamma_max, f"at least gamma_min = {self.gamma_min:g}")
        return self


class SizeRequest(Request, LoadFields, PoolFields, SimulationFields, _SizingFields):
    """The fewest replicas that serve a rate within a limit.

    Attributes:
        verify_top: Cheapest fleets that are simulated; 0 for none.
    """

    verify_top: Annotated[int, Field(ge=0, le=20)] = 3


class PoolSpec(Strict):
    """A pool of a stated fleet.

    Attributes:
        name: Its name in answers.
        replica: What it consists of, and `replicas` how many.
        max_tokens: Most tokens (prompt and output) of a request that it takes.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    replica: ReplicaField
    replicas: ReplicaCount
    max_tokens: Annotated[int, Field(ge=16, le=MOST_TOKENS)] = 8192


class FleetSpec(Strict):
    """Pools and the rule by which requests go to them.

    Attributes:
        pools: At least one, with names that differ.
        router: The rule.
        threshold: Total tokens up to which a request is short (two pools); None is what the smallest pool takes.
        gamma: Factor of the threshold up to which requests are compressed (router `compress`).
        spill_utilization: Share of the slots of the short pool in use from which on it is too full (`spillover`).
    """

    pools: Annotated[tuple[PoolSpec, ...], Field(min_length=1, max_length=32)]
    router: RouterName = "length"
    threshold: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    gamma: Gamma = 1.5
    spill_utilization: Annotated[float, Field(gt=0, le=1)] = 0.85

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise InputError("pools", names, "pools with names that differ")
        return self


class SimulateRequest(Request, LoadFields, SimulationFields):
    """A stated fleet under a stated load, request by request: in the long run, or over a stated horizon.

    Attributes:
        fleet: The fleet.
        horizon_s: Time over which requests arrive, all of which count [s]; None for the long run.
        start: How the fleet begins with a horizon: `empty`, or `settled`, which has as many requests in service as the
            load keeps there and none that wait.
        availability: Share of the time that a replica is up, for probabilities of failures; None where not known.
        enough_probability: Probability with which enough replicas of a pool are to be up, for the spares.
    """

    fleet: FleetSpec
    horizon_s: Annotated[float, Field(gt=0)] | None = None
    start: Start = "empty"
    availability: Availability | None = None
    enough_probability: Annotated[float, Field(gt=0, lt=1)] = 0.999

    @model_validator(mode="after")
    def _check_horizon(self) -> Self:
        if self.horizon_s is None:
            if "start" in self.model_fields_set:
                raise InputError("start", self.start, "absent, or given with horizon_s")
            return self
        if self.requests is not None:
            raise InputError("requests", self.requests, "absent when horizon_s is given")
        if self.seeds < LEAST_RUNS:
            raise InputError("seeds", self.seeds, f"{LEAST_RUNS} or more with horizon_s, for the intervals")
        return self

    @property
    def begins_empty(self) -> bool:
        """Whether the fleet has no request under way when a run begins."""
        return self.horizon_s is not None and self.start == "empty"


class ParetoRequest(Request, LoadFields, _SizingFields):
    """Cost against latency of all thresholds between two pools.

    Attributes:
        replica, replica_long, max_tokens: As in a sizing.
        thresholds: What to try; the points of the distribution when None.
    """

    replica: ReplicaField = PresetReplica(preset="a100")
    replica_long: ReplicaField | None = None
    max_tokens: Count = 65536
    thresholds: Annotated[tuple[Count, ...], BeforeValidator(listed), Field(max_length=1000)] | None = None
    gamma_max: Gamma = 1.0


class WhatIfRequest(Request, PoolFields, _SizingFields):
    """The sizing at several rates, or on several kinds of replica.

    Attributes:
        rates_per_s: Rates [1/s].
        compare: Replicas to compare, each in all pools; none keeps `replica` and `replica_long`.
        arrival_cv2: As in a sizing.
    """

    rates_per_s: Rates = (50.0, 100.0, 200.0, 500.0, 1000.0)
    compare: Replicas | None = None
    arrival_cv2: ArrivalCv2 | None = None


class RoutersRequest(Request, LoadFields, SimulationFields):
    """Routing rules on the same fleet and the same requests.

    Attributes:
        fleet: The fleet; its own router is not used.
        routers: Rules to compare.
    """

    fleet: FleetSpec
    routers: Annotated[tuple[RouterName, ...], BeforeValidator(listed), Field(min_length=1)] = ROUTERS

    @property
    def runs(self) -> int:
        """Runs of all rules."""
        return self.seeds * len(self.routers)


class DisaggRequest(Request, LoadFields):
    """Counts of prefill and decode replicas that serve a rate within both limits.

    Attributes:
        tpot_ms: Limit on the mean time per output token [ms].
        prefill, decode: Replicas of the two phases.
        max_tokens: Most tokens of a request.
        max_prefill, max_decode: Most replicas of each.
        mean_isl, mean_osl: Mean lengths, in place of those of the workload.
        kv_transfer_gb_per_s: Bandwidth of the KV cache between them [1e9 bytes/s]; None for no time.
        kv_bytes_per_token: What a prompt token keeps; needed with a bandwidth.
    """

    tpot_ms: Milliseconds = 100.0
    prefill: ReplicaField = PresetReplica(preset="h100")
    decode: ReplicaField = PresetReplica(preset="a100")
    max_tokens: Count = 8192
    max_prefill: Annotated[int, Field(ge=1, le=4096)] = 32
    max_decode: Annotated[int, Field(ge=1, le=4096)] = 64
    mean_isl: Count | None = None
    mean_osl: Count | None = None
    kv_transfer_gb_per_s: Annotated[float, Field(gt=0)] | None = None
    kv_bytes_per_token: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check_transfer(self) -> Self:
        if self.kv_transfer_gb_per_s is not None and self.kv_bytes_per_token is None:
            raise InputError("kv_bytes_per_token", None, "given with kv_transfer_gb_per_s")
        return self


class PowerRequest(Request, LoadFields, _SizingFields):
    """Power of a fleet: what can be shed for a while, or tokens per watt of several kinds of replica.

    Attributes:
        replicas: Size of the fleet whose power is cut; None asks for tokens per watt.
        compare: Kinds of replica; the first one is that of the fleet.
        flex_percents: Cuts of the nominal power [%].
        utilizations: Further utilisations at which tokens per watt are given.
        threshold: Total tokens at which two pools part, the first and the last of `compare`; None for one pool.
        max_tokens: Most tokens of a request.
    """

    replicas: ReplicaCount | None = None
    compare: Replicas = (PresetReplica(preset="h100"), PresetReplica(preset="a100"), PresetReplica(preset="a10g"))
    flex_percents: Annotated[
        tuple[Annotated[float, Field(ge=0, le=100)], ...], BeforeValidator(listed), Field(min_length=1)
    ] = (0, 5, 10, 15, 20, 25, 30, 40, 50)
    utilizations: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], BeforeValidator(listed)] = ()
    threshold: Count | None = None
    max_tokens: Count = 8192
