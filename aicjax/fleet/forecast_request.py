# SPDX-License-Identifier: Apache-2.0
"""What a user may ask of a forecast: a load that grows over quarters, and the prices to buy and to rent replicas."""

import math
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax.fleet.replica_spec import NotNegative
from aicjax.fleet.request_fields import LoadFields, PoolFields, Request, ReserveFields, Share, listed

Growths = Annotated[
    tuple[Annotated[float, Field(gt=-1, le=10)], ...], BeforeValidator(listed), Field(min_length=1, max_length=32)
]
Chances = Annotated[tuple[Share, ...], BeforeValidator(listed)]
Amounts = Annotated[tuple[NotNegative, ...], BeforeValidator(listed), Field(min_length=1)]
Prices = Annotated[tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(listed), Field(min_length=1)]


class ForecastRequest(Request, LoadFields, PoolFields, ReserveFields):
    """Replicas and money of each quarter, while the load grows at a constant rate or at one of several.

    Prices are one for all kinds of replica, or one for each: that of `replica`, then that of `replica_long`.

    Attributes:
        growths: Growth of the rate in a quarter, 0.1 for 10 %; several are scenarios.
        chances: Probability of each scenario; equal ones when None.
        quarters: Quarters of the plan; the first has the rate of today.
        buy_usd: Price of a replica that is bought [USD].
        own_usd_per_hour: Power, space and people of an owned replica [USD/h].
        rent_usd_per_hour: Price of a rented replica [USD/h]; that of the replica when None.
        lead_quarters: Quarters between order and use.
        life_quarters: Quarters that an owned replica serves.
        resale: Share of the straight-line book value that is paid back at the end.
    """

    growths: Growths
    chances: Chances | None = None
    quarters: Annotated[int, Field(ge=1, le=40)] = 8
    buy_usd: Amounts
    own_usd_per_hour: Amounts = (0.0,)
    rent_usd_per_hour: Prices | None = None
    lead_quarters: Annotated[int, Field(ge=0, le=40)] = 0
    life_quarters: Annotated[int, Field(ge=1, le=100)] = 16
    resale: Share = 0.0

    @property
    def scenario_chances(self) -> tuple[float, ...]:
        """Probability of each scenario."""
        return self.chances or (1 / len(self.growths),) * len(self.growths)

    @property
    def kinds(self) -> int:
        """Kinds of replica, which have prices of their own."""
        return len(dict.fromkeys(self.pool_replicas))

    @model_validator(mode="after")
    def _check_scenarios(self) -> Self:
        if self.compat != "default":
            raise InputError("compat", self.compat, "default: vllm-sr-sim has no forecast")
        chances = self.scenario_chances
        if len(chances) != len(self.growths) or not math.isclose(sum(chances), 1.0, abs_tol=1e-6):
            raise InputError("chances", list(chances), f"{len(self.growths)} numbers that add up to 1")
        for name in ("buy_usd", "own_usd_per_hour", "rent_usd_per_hour"):
            prices = getattr(self, name)
            if prices is not None and len(prices) not in (1, self.kinds):
                raise InputError(name, list(prices), f"one price, or one for each of {self.kinds} kinds of replica")
        return self
