# SPDX-License-Identifier: Apache-2.0
"""What a user may ask of a plan: a load, its limits and a price in; deployment, replicas and cost out."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax.explore.request import RECOMMENDING, Backend, Count, DatabaseMode
from aicjax.fleet.replica_spec import NotNegative
from aicjax.fleet.request_fields import (
    LoadFields,
    Milliseconds,
    Request,
    ReserveFields,
    SimulationFields,
    SpareReplicas,
    listed,
)

Names = Annotated[tuple[str, ...], BeforeValidator(listed), Field(min_length=1, max_length=32)]
Prices = Annotated[tuple[NotNegative, ...], BeforeValidator(listed), Field(min_length=1, max_length=32)]


class PlanRequest(Request, LoadFields, SimulationFields, ReserveFields):
    """A model, a load and its limits, on one GPU system or the best of several.

    Attributes:
        model_path: Hugging Face name or local directory of the model.
        systems: GPU systems to compare.
        backend: Engine, or `auto` for all.
        tpot_ms: Limit on the mean time per output token [ms].
        price_per_gpu_hour: One price for all systems, or one for each [USD/h]; None ranks by GPUs and answers no cost.
        candidates: Deployments of each system that are sized.
        max_gpus_per_replica: GPUs of the largest replica.
        database_mode: What answers an operator, as in a search.
    """

    model_path: str
    systems: Names
    backend: Literal[Backend, "auto"] = "trtllm"
    tpot_ms: Milliseconds = 30.0
    price_per_gpu_hour: Prices | None = None
    candidates: Annotated[int, Field(ge=1, le=20)] = 3
    max_gpus_per_replica: Count = 8
    spare_replicas: SpareReplicas = 1
    database_mode: DatabaseMode = RECOMMENDING
    constants: str | None = None
    ttft_ms: Milliseconds = 2000.0

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        prices = self.price_per_gpu_hour
        if prices is not None and len(prices) not in (1, len(self.systems)):
            raise InputError(
                "price_per_gpu_hour",
                list(prices),
                f"one price, or one for each of {len(self.systems)} systems",
            )
        return self

    def price_of(self, system: str) -> float:
        """Price of a GPU of a system [USD/h]; 0 where none is stated."""
        prices = self.price_per_gpu_hour or (0.0,)
        return prices[0] if len(prices) == 1 else prices[self.systems.index(system)]
