# SPDX-License-Identifier: Apache-2.0
"""What a stated fleet bears in closed form: against sizings at that rate, and the binomial law of failures."""

import math
from typing import Any

import pytest

from aicjax.fleet.answer_bounds import bounds_of
from aicjax.fleet.inputs import profile_of
from aicjax.fleet.requests import SimulateRequest
from aicjax.fleet.run_answers import Bounds

POOLS = [
    {"name": "long", "replica": "a100", "replicas": 12, "max_tokens": 8192},
    {"name": "short", "replica": "a100", "replicas": 2, "max_tokens": 2048},
]
LIMITS = {"workload": "azure", "rate_per_s": 60, "ttft_ms": 1000}


def _bounds(pools: list[dict[str, Any]] = POOLS, **fields: Any) -> Bounds | None:
    rules = {name: fields.pop(name) for name in ("router", "threshold", "gamma") if name in fields}
    request = SimulateRequest(**{**LIMITS, "fleet": {"pools": pools, **rules}, **fields})
    return bounds_of(request, [profile_of(pool.replica) for pool in request.fleet.pools])


@pytest.fixture(scope="module")
def found() -> Bounds:
    bounds = _bounds(availability=0.95, enough_probability=0.99)
    assert bounds is not None
    return bounds


def test_the_fleet_holds_up_to_the_rate_at_which_it_breaks(found: Bounds):
    below, above = (_bounds(rate_per_s=found.breaking_rate_per_s * factor) for factor in (0.999, 1.001))
    assert below is not None
    assert above is not None
    assert all(pool.down[0].verdict == "met" for pool in below.pools)
    assert any(pool.down[0].verdict != "met" for pool in above.pools)
    assert above.breaking_rate_per_s == pytest.approx(found.breaking_rate_per_s, rel=1e-4)


def test_pools_are_named_by_ascending_context(found: Bounds):
    assert [(pool.name, pool.replicas) for pool in found.pools] == [("short", 2), ("long", 12)]


def test_failures_follow_the_binomial_law(found: Bounds):
    for pool in found.pools:
        assert pool.needed is not None
        assert pool.spare is not None
        counts = [(state.down, math.comb(pool.replicas, state.down)) for state in pool.down]
        wanted = [ways * 0.05**down * 0.95 ** (pool.replicas - down) for down, ways in counts]
        assert [state.probability for state in pool.down] == pytest.approx(wanted, rel=1e-3)
        assert pool.enough == pytest.approx(_enough(pool.replicas, pool.needed), abs=1e-5)
        assert _enough(pool.needed + pool.spare, pool.needed) >= 0.99
        assert pool.spare == 0 or _enough(pool.needed + pool.spare - 1, pool.needed) < 0.99
        assert [state.verdict == "met" for state in pool.down] == [
            pool.replicas - state.down >= pool.needed for state in pool.down
        ]
    assert found.enough == pytest.approx(math.prod(pool.enough or 0.0 for pool in found.pools))


def _enough(bought: int, needed: int) -> float:
    return sum(math.comb(bought, up) * 0.95**up * 0.05 ** (bought - up) for up in range(needed, bought + 1))


def test_without_an_availability_there_is_no_probability():
    bounds = _bounds([{**POOLS[0], "replicas": 1}, POOLS[1]], rate_per_s=1)
    assert bounds is not None
    pool = bounds.pools[1]
    assert (bounds.enough, pool.enough, pool.spare) == (None, None, None)
    assert [(state.down, state.probability) for state in pool.down] == [(0, None), (1, None)]
    assert (pool.down[1].utilization, pool.down[1].ttft_ms, pool.down[1].verdict) == (None, None, "overloaded")


def test_a_limit_below_the_prompt_alone_is_never_met():
    bounds = _bounds(ttft_ms=1, availability=0.9)
    assert bounds is not None
    assert (bounds.breaking_rate_per_s, bounds.enough) == (0.0, 0.0)
    assert {pool.needed for pool in bounds.pools} == {None}


def test_compression_moves_load_to_the_short_pool(found: Bounds):
    bounds = _bounds(router="compress", gamma=2.0)
    assert bounds is not None
    (short, long), (compressed, left) = ([pool.down[0].utilization for pool in each.pools] for each in (found, bounds))
    assert compressed is not None
    assert compressed > (short or 0.0)
    assert (left or 0.0) < (long or 0.0)


@pytest.mark.parametrize("rules", [{"router": "random"}, {"router": "least_loaded"}, {"threshold": 4096}])
def test_other_rules_have_no_closed_form(rules: dict[str, Any]):
    assert _bounds(**rules) is None


def test_a_pool_without_room_for_a_request_states_no_use_of_its_slots():
    bounds = _bounds([{**POOLS[0], "max_tokens": 20_000_000}])
    assert bounds is not None
    states = [(state.utilization, state.ttft_ms, state.verdict) for state in bounds.pools[0].down]
    assert states == [(None, None, "no room for a request")] * 3
