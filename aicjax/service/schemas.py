# SPDX-License-Identifier: Apache-2.0
"""Bodies of the service: what clients send for fleets and jobs. Field names are those of vllm-sr-sim's service."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from aicjax.fleet.replica_spec import Count
from aicjax.fleet.request_fields import (
    LEAST_REQUESTS,
    Availability,
    CompatName,
    Milliseconds,
    Rate,
    ReplicaCount,
    Share,
)
from aicjax.fleet.requests import Gamma, GammaStep

Requests = Annotated[int, Field(ge=LEAST_REQUESTS, le=5_000_000)]
JobType = Literal["optimize", "simulate", "whatif", "size", "pareto", "routers", "disagg", "power", "plan"]
CLASSIC = ("optimize", "simulate", "whatif")  # with parameters and results in the shape of vllm-sr-sim


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PoolBody(_Body):
    """A pool: `gpu` is the name of a kind of replica, `max_ctx` the most tokens of a request."""

    pool_id: Annotated[str, Field(min_length=1, max_length=64)]
    gpu: Annotated[str, Field(max_length=200)]
    n_gpus: ReplicaCount
    max_ctx: Annotated[int, Field(ge=512)] = 8192


class FleetBody(_Body):
    """A fleet: pools, and the rule by which requests go to them."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    pools: Annotated[list[PoolBody], Field(min_length=1, max_length=32)]
    router: Literal[
        "length", "spillover", "compress_route", "least_loaded", "round_robin", "random", "model", "semantic"
    ] = "length"
    compress_gamma: Annotated[float, Field(ge=1, le=3)] | None = None


class WorkloadBody(_Body):
    """Where the lengths of requests come from: a built-in distribution, or an uploaded trace."""

    type: Literal["builtin", "trace"] = "builtin"
    name: str | None = None
    trace_id: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        needed = "name" if self.type == "builtin" else "trace_id"
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} must be given when type = {self.type}")
        return self


class OptimizeBody(_Body):
    """The cheapest two pools for a rate."""

    workload: WorkloadBody
    lam: Rate
    slo_ms: Milliseconds = 500.0
    b_short: Count = 4096
    gpu_short: str = "a100"
    gpu_long: str = "a100"
    long_max_ctx: Count = 65536
    gamma_min: Gamma = 1.0
    gamma_max: Gamma = 2.0
    gamma_step: GammaStep = 0.1
    n_sim_requests: Requests = 20_000
    p_c: Share = 0.75
    node_avail: Availability = 1.0


class _OfFleet(_Body):
    workload: WorkloadBody
    fleet_id: str | None = None
    fleet: FleetBody | None = None
    slo_ms: Milliseconds = 500.0

    @model_validator(mode="after")
    def _check_fleet(self) -> Self:
        if (self.fleet is None) == (self.fleet_id is None):
            raise ValueError("fleet or fleet_id must be given, not both")
        return self


class SimulateBody(_OfFleet):
    """A fleet under a load, request by request."""

    lam: Rate
    n_requests: Requests = 20_000


class WhatIfBody(_OfFleet):
    """A fleet at several rates."""

    lam_range: Annotated[list[Rate], Field(min_length=2, max_length=100)]
    n_requests: Requests = 10_000


class JobBody(_Body):
    """A job. Its type says which parameters are read.

    Attributes:
        type: `optimize`, `simulate` or `whatif` with the parameters of that name; any other with `parameters`, the
            fields of the command of that name.
        compat: `fleet-reference` for the numbers of vllm-sr-sim; that of the service when None.
    """

    type: JobType
    optimize: OptimizeBody | None = None
    simulate: SimulateBody | None = None
    whatif: WhatIfBody | None = None
    parameters: dict[str, Any] | None = None
    compat: CompatName | None = None

    @field_validator("parameters")
    @classmethod
    def _check_json(cls, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuses what could not be kept: NaN, infinity and halves of characters."""
        try:
            json.dumps(parameters, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            raise ValueError("must be JSON with finite numbers and whole characters") from None
        return parameters

    @model_validator(mode="after")
    def _check_parameters(self) -> Self:
        needed = self.type if self.type in CLASSIC else "parameters"
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} must be given when type = {self.type}")
        return self
