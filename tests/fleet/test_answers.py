# SPDX-License-Identifier: Apache-2.0
"""Answers as a whole: cheapest first, limits with their binding constraint, and costs that add up."""

from typing import Any

import jax
import pytest

from aicjax.fleet import answers
from aicjax.fleet.answer_parts import ParetoAnswer, SizeAnswer, WhatIfAnswer
from aicjax.fleet.phase_answers import DisaggAnswer, FlexAnswer, WattAnswer
from aicjax.fleet.requests import DisaggRequest, ParetoRequest, PowerRequest, SizeRequest, WhatIfRequest

ALIKE = {"isl": 1000, "osl": 200}


def _asked(kind: Any, **fields: Any) -> Any:
    return kind(**fields)


@pytest.fixture(scope="module")
def two_pools() -> SizeAnswer:
    request = _asked(SizeRequest, workload="azure", rate_per_s=100, thresholds=(4096,), gamma_max=1.2, verify_top=0)
    found = answers.size(request)
    assert isinstance(found, SizeAnswer)
    return found


def test_the_cheapest_fleet_within_the_limit_is_chosen(two_pools: SizeAnswer):
    met = [fleet for fleet in two_pools.fleets if fleet.meets]
    assert two_pools.chosen in met
    assert two_pools.chosen.cost.per_hour == min(fleet.cost.per_hour for fleet in met)


def test_figures_of_a_fleet_add_up(two_pools: SizeAnswer):
    for fleet in two_pools.fleets:
        assert fleet.replicas == sum(pool.replicas for pool in fleet.pools)
        assert fleet.cost.per_hour == pytest.approx(sum(pool.replicas for pool in fleet.pools) * 2.21)
        assert sum(pool.share for pool in fleet.pools) + fleet.refused == pytest.approx(1.0, abs=1e-5)
        assert sum(pool.rate_per_s for pool in fleet.pools) == pytest.approx(100 * (1 - fleet.refused), rel=1e-5)
        assert fleet.ttft_ms == max(pool.ttft_ms or 0.0 for pool in fleet.pools)
        assert all(pool.utilization is not None and pool.utilization <= 0.85 for pool in fleet.pools)
        bill = 100 * (
            two_pools.asked.workload.mean_isl * fleet.cost.input_price
            + two_pools.asked.workload.mean_osl * fleet.cost.output_price
        )
        assert bill * 3600 / 1e6 <= fleet.cost.per_hour * 1.02  # compressed prompts are shorter


def test_spare_replicas_are_bought_and_change_no_load():
    plain, spared = (
        answers.size(_asked(SizeRequest, **ALIKE, rate_per_s=100, verify_top=0, spare_replicas=spare))
        for spare in (0, 2)
    )
    assert isinstance(plain, SizeAnswer)
    assert isinstance(spared, SizeAnswer)
    assert spared.chosen.replicas == plain.chosen.replicas + 2
    assert spared.chosen.pools[0].utilization == plain.chosen.pools[0].utilization


def test_simulation_decides_and_gives_an_interval():
    request = _asked(SizeRequest, **ALIKE, rate_per_s=20, verify_top=1, requests=500, seeds=2)
    found = answers.size(request)
    assert isinstance(found, SizeAnswer)
    pool = found.chosen.pools[0]
    assert pool.ttft_simulated_ms is not None
    assert pool.ttft_simulated_ms.value == pytest.approx(pool.ttft_ms or 0.0, rel=0.2)
    assert found.chosen.confidence is not None
    assert found.chosen.meets == (found.chosen.confidence >= 0.5)


def test_more_load_costs_more_and_the_order_is_by_rate():
    found = answers.whatif(_asked(WhatIfRequest, **ALIKE, rates_per_s=(200, 50), compare="a100,h100"))
    assert isinstance(found, WhatIfAnswer)
    assert [(row.rate_per_s, row.replica) for row in found.rows] == [
        (200, "A100-80GB"),
        (200, "H100-80GB"),
        (50, "A100-80GB"),
        (50, "H100-80GB"),
    ]
    assert found.rows[0].fleet.cost.per_hour > found.rows[2].fleet.cost.per_hour


def test_no_row_of_the_front_is_beaten():
    found = answers.pareto(_asked(ParetoRequest, workload="azure", rate_per_s=100, thresholds=(1024, 4096)))
    assert isinstance(found, ParetoAnswer)
    assert [row.threshold for row in found.rows] == [1024, 4096, None]
    points = [(row.fleet.cost.per_hour, row.fleet.ttft_ms or 0.0) for row in found.rows]
    for row, (usd, ttft) in zip(found.rows, points, strict=True):
        beaten = any(a <= usd and b <= ttft and (a, b) != (usd, ttft) for a, b in points)
        assert row.pareto is not beaten
    assert found.best is not None
    assert found.rows[found.best].saving == max(row.saving for row in found.rows)


def test_phases_name_what_binds():
    met = answers.disagg(_asked(DisaggRequest, **ALIKE, rate_per_s=50, max_prefill=8, max_decode=16))
    missed = answers.disagg(_asked(DisaggRequest, **ALIKE, rate_per_s=50, ttft_ms=1, max_prefill=8, max_decode=16))
    assert isinstance(met, DisaggAnswer)
    assert isinstance(missed, DisaggAnswer)
    assert met.binding is None
    assert met.rows[0].price_per_hour == min(row.price_per_hour for row in met.rows)
    assert all(row.meets and row.capacity_per_s >= 50 for row in met.rows)
    assert missed.binding == "TTFT"
    assert not missed.rows[0].meets


def test_power_falls_with_the_cut_until_the_limit_is_missed():
    found = answers.power(
        _asked(PowerRequest, **ALIKE, rate_per_s=200, replicas=9, compare="h100", flex_percents="0,10,50")
    )
    assert isinstance(found, FlexAnswer)
    assert [row.cap_kw for row in found.rows] == sorted((row.cap_kw for row in found.rows), reverse=True)
    assert found.rows[0].verdict == "met"
    assert found.rows[-1].verdict == "overloaded"
    assert found.rows[-1].ttft_ms is None
    assert found.best == 1


def test_tokens_per_joule_are_tokens_over_power():
    found = answers.power(_asked(PowerRequest, **ALIKE, rate_per_s=200, compare="a100", utilizations="0.3"))
    assert isinstance(found, WattAnswer)
    sized, idle = found.rows
    assert (sized.sized, idle.sized) == (True, False)
    assert sized.tokens_per_s == pytest.approx(200 * 200)
    assert sized.tokens_per_joule == pytest.approx(sized.tokens_per_s / (sized.fleet_kw * 1000))
    assert idle.utilization is not None
    assert sized.utilization is not None
    assert idle.utilization <= 0.3 < sized.utilization
    assert idle.tokens_per_joule < sized.tokens_per_joule


def test_a_pool_without_slots_states_no_use_of_them():
    no_room: dict[str, Any] = {"workload": "azure", "max_tokens": 20_000_000}
    sizes = answers.whatif(_asked(WhatIfRequest, **no_room, replica="a10g", rates_per_s=(50,)))
    cuts = answers.power(_asked(PowerRequest, **no_room, compare=("a10g",), replicas=10, flex_percents=(0,)))
    watts = answers.power(_asked(PowerRequest, **no_room, compare=("a10g",)))
    assert isinstance(sizes, WhatIfAnswer)
    assert isinstance(cuts, FlexAnswer)
    assert isinstance(watts, WattAnswer)
    assert [row.utilization for row in (*sizes.rows[0].fleet.pools, *cuts.rows, *watts.rows)] == [None] * 3


def test_tokens_per_joule_at_another_rate_compile_nothing():
    request: dict[str, Any] = {"workload": "azure", "compare": ("h100",)}
    answers.power(PowerRequest(**request, rate_per_s=50))
    with jax.no_tracing():
        answers.power(PowerRequest(**request, rate_per_s=60))
