# SPDX-License-Identifier: Apache-2.0
"""The answer to a forecast: the replicas of every quarter of every scenario sized at once, then bought or rented."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from aicjax._results import InputError
from aicjax.fleet.capacity import PoolLoad, Verdict
from aicjax.fleet.fleet_rows import VERDICTS, asked_of
from aicjax.fleet.forecast import Terms, breakeven_utilization, growth_plan, rates_per_s, spending
from aicjax.fleet.forecast_answers import ForecastAnswer, ForecastQuarter, KindForecast
from aicjax.fleet.forecast_request import ForecastRequest
from aicjax.fleet.inputs import law_of, load_of, profile_of, target_of
from aicjax.fleet.pools import Compression, split
from aicjax.fleet.profile import Profile, floats, stacked
from aicjax.fleet.size_cases import pool_names
from aicjax.fleet.sizing import Demand, sized

MOST_LAYERS = 100_000  # replicas of a kind that are planned one by one


def forecast(request: ForecastRequest) -> ForecastAnswer:
    """Replicas and money of each quarter, and which replicas to buy and which to rent.

    Raises:
        InputError: A name that is not known, a replica without a price, or growth beyond what is planned.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    law = law_of(request)
    kinds = list(dict.fromkeys(request.pool_replicas))
    profiles = [profile_of(replica) for replica in kinds]
    kind_of_pool = [kinds.index(replica) for replica in request.pool_replicas]
    now_per_s, cv2 = load_of(request)
    rates = rates_per_s(now_per_s, jnp.asarray(request.growths, float), request.quarters)
    load = jax.tree.map(
        np.asarray,
        _loads(
            stacked([profiles[kind] for kind in kind_of_pool]),
            floats(law),
            jnp.asarray(request.thresholds, float),
            float(request.max_tokens),
            Demand(rates, cv2, request.availability),
            target_of(request),
        ),
    )
    needs = np.where(load.replicas > 0, load.replicas + request.spare_replicas, 0.0)
    weights = np.asarray(request.scenario_chances)
    found = [
        _kind(request, kind, profile, needs[..., np.asarray(kind_of_pool) == kind].sum(axis=-1), weights)
        for kind, profile in enumerate(profiles)
    ]
    return ForecastAnswer(
        asked=asked_of(request, law),
        growths=request.growths,
        chances=request.scenario_chances,
        rates_per_s=tuple(tuple(float(rate) for rate in each) for each in np.asarray(rates).T),
        kinds=tuple(found),
        usd=sum(kind.usd for kind in found),
        rent_only_usd=sum(kind.rent_only_usd for kind in found),
        binding=_binding(load, np.asarray(rates)),
    )


@jax.jit
def _loads(profiles, law, thresholds, max_tokens, demand, target) -> PoolLoad:
    """Least replicas [scenario quarter pool]; the demand has rates [scenario quarter]."""
    pools = split(profiles, law, thresholds, max_tokens, Compression(1.0, 0.0, 0.0))

    def one(rate_per_s):
        return sized(pools, demand._replace(rate_per_s=rate_per_s), target).load

    return jax.vmap(jax.vmap(one))(demand.rate_per_s)


def _kind(
    request: ForecastRequest,
    kind: int,
    profile: Profile,
    needs: Float[np.ndarray, "scenario quarter"],
    weights: Float[np.ndarray, " scenario"],
) -> KindForecast:
    """The cheapest plan of one kind of replica."""
    most = int(needs.max())
    if most > MOST_LAYERS:
        raise InputError("growths", list(request.growths), f"growth to at most {MOST_LAYERS} replicas; this is {most}")
    rent = _price(request.rent_usd_per_hour or (float(profile.price_per_hour),), kind)
    if rent <= 0:
        raise InputError("rent_usd_per_hour", None, f"given: {profile.name} has no price of its own")
    terms = Terms(
        rent_usd_per_hour=rent,
        buy_usd=_price(request.buy_usd, kind),
        own_usd_per_hour=_price(request.own_usd_per_hour, kind),
        lead_quarters=request.lead_quarters,
        life_quarters=request.life_quarters,
        resale=request.resale,
    )
    found = growth_plan(jnp.asarray(needs, float), jnp.asarray(weights, float), terms, layers=max(most, 1))
    paid = jax.tree.map(np.asarray, spending(found, terms))
    ordered = np.bincount(np.asarray(found.order_quarter), minlength=request.quarters + 1)
    means = weights @ needs
    quarters = tuple(
        ForecastQuarter(
            needed=float(means[quarter]),
            most_needed=int(needs[:, quarter].max()),
            bought=int(ordered[quarter]),
            owned=round(float(found.owned[quarter])),
            rented=float(found.rented[quarter]),
            in_use=float(found.utilization[quarter]),
            buy_usd=float(paid.buy_usd[quarter]),
            own_usd=float(paid.own_usd[quarter]),
            rent_usd=float(paid.rent_usd[quarter]),
            usd=float(paid.buy_usd[quarter] + paid.own_usd[quarter] + paid.rent_usd[quarter]),
        )
        for quarter in range(request.quarters)
    )
    return KindForecast(
        replica=profile.name,
        gpus=float(profile.gpus),
        buy_usd=float(terms.buy_usd),
        own_usd_per_hour=float(terms.own_usd_per_hour),
        rent_usd_per_hour=float(terms.rent_usd_per_hour),
        breakeven_in_use=float(breakeven_utilization(terms)),
        quarters=quarters,
        resale_usd=float(paid.resale_usd),
        usd=float(found.usd),
        rent_only_usd=float(found.rent_only_usd),
    )


def _price(prices: Sequence[float], kind: int) -> float:
    """The price of a kind: its own, or that of all."""
    return prices[kind if len(prices) > 1 else 0]


def _binding(load: PoolLoad, rates: Float[np.ndarray, "scenario quarter"]) -> str | None:
    missed = np.argwhere((load.verdict != Verdict.MET) & (load.replicas > 0))
    if not missed.size:
        return None
    scenario, quarter, pool = missed[0]
    name = pool_names(load.verdict.shape[-1])[pool]
    verdict = VERDICTS[Verdict(int(load.verdict[scenario, quarter, pool]))]
    return f"{name} pool: {verdict} at {rates[scenario, quarter]:,.1f} req/s"
