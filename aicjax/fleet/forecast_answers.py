# SPDX-License-Identifier: Apache-2.0
"""Answers of forecasts as plain Python values. Money is USD; where there are several scenarios, in the mean."""

from dataclasses import dataclass

from aicjax.fleet.answer_parts import Asked


@dataclass(frozen=True)
class ForecastQuarter:
    """One kind of replica in a quarter.

    Attributes:
        needed: Replicas that the load needs; `most_needed` in the scenario that needs most.
        bought: Replicas that are ordered.
        owned, rented: Replicas that are there by either way.
        in_use: Share of the owned ones in use; 0 where none are owned.
        buy_usd, own_usd, rent_usd: What the orders, the owned and the rented replicas cost; `usd` adds them up.
    """

    needed: float
    most_needed: int
    bought: int
    owned: int
    rented: float
    in_use: float
    buy_usd: float
    own_usd: float
    rent_usd: float
    usd: float


@dataclass(frozen=True)
class KindForecast:
    """The cheapest plan of one kind of replica.

    Attributes:
        replica: The kind; `gpus` of each.
        buy_usd, own_usd_per_hour, rent_usd_per_hour: Its prices.
        breakeven_in_use: Share of its life that a replica must be in use so that owning pays; above 1: never.
        quarters: Its quarters.
        resale_usd: What owned replicas bring at the end.
        usd: All quarters less the resale.
        rent_only_usd: All quarters, were all replicas rented.
    """

    replica: str
    gpus: float
    buy_usd: float
    own_usd_per_hour: float
    rent_usd_per_hour: float
    breakeven_in_use: float
    quarters: tuple[ForecastQuarter, ...]
    resale_usd: float
    usd: float
    rent_only_usd: float


@dataclass(frozen=True)
class ForecastAnswer:
    """Replicas and money over quarters.

    Attributes:
        asked: What was asked, with the rate of today.
        growths, chances: Growth in a quarter of each scenario, and its probability.
        rates_per_s: Rate of each quarter, by scenario.
        kinds: Plans by kind of replica.
        usd, rent_only_usd: Of all kinds.
        binding: The first pool that misses its limit and at which rate, or None.
    """

    asked: Asked
    growths: tuple[float, ...]
    chances: tuple[float, ...]
    rates_per_s: tuple[tuple[float, ...], ...]
    kinds: tuple[KindForecast, ...]
    usd: float
    rent_only_usd: float
    binding: str | None
