# SPDX-License-Identifier: Apache-2.0
"""Counts of a plan by simulation of the steps: the least that meets both limits."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from aicjax.fleet import answer_plan
from aicjax.fleet.answer_parts import Interval
from aicjax.fleet.capacity import Verdict
from aicjax.fleet.engine_profile import EngineRun
from aicjax.fleet.inputs import law_of
from aicjax.fleet.plan_candidates import Candidate
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.plan_simulation import GROWTH, Checked, checked, least_checked
from aicjax.fleet.presets import preset
from aicjax.fleet.replica_spec import EngineReplica
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.step_run import profile_limits
from aicjax.fleet.step_times import profile_steps

SLOTS = 16  # so that a replica serves some 90 requests/s


def _candidate(needed: int) -> Candidate:
    profile = preset("a100")
    unread: Any = None
    run = EngineRun(
        profile=profile,
        steps=profile_steps(profile),
        limits=profile_limits(profile, SLOTS, 8192),
        ranks=1,
        request_s=0.05,
        decode_error=0.0,
        prompt_error=0.0,
        kv_tokens=0,
    )
    replica = EngineReplica(model="m", system="s", batch_size=SLOTS)
    return Candidate(replica, run, unread, float(SLOTS), 90.0, 10.0, unread, needed)


def _request(**fields: Any) -> PlanRequest:
    stated = {"model_path": "m", "systems": "s", "isl": 200, "osl": 20, "rate_per_s": 200, "requests": 400, "seeds": 2}
    return PlanRequest(**{**stated, **fields})


def test_replicas_are_added_until_the_limit_is_met():
    request = _request(ttft_ms=500)
    found = least_checked(request, law_of(request), _candidate(1))
    alone = checked(request, law_of(request), _candidate(1), [1] * len(GROWTH))[0]
    assert found.met
    assert (alone.met, found.replicas) == (False, 2)  # one is overloaded
    assert 50 < found.ttft_ms.value <= 500  # the fixed time of a request is part of it
    assert found.tpot_ms is not None
    assert found.tpot_ms.value < 30


def test_a_time_per_token_that_no_count_reaches_is_named():
    request = _request(tpot_ms=1)
    found = least_checked(request, law_of(request), _candidate(3))
    assert not found.met
    assert not found.tpot_met
    assert found.replicas == pytest.approx(6)


def test_spare_replicas_are_part_of_the_price_that_deployments_are_compared_by(monkeypatch: pytest.MonkeyPatch):
    few, many = _priced(needed=1, price=11.0), _priced(needed=5, price=2.5)  # 11 and 12.50 USD/h without spares
    simulated: list[int] = []

    def met(_: PlanRequest, __: Any, candidate: Candidate) -> Checked:
        simulated.append(candidate.needed)
        return Checked(candidate.needed, Interval(100.0, 90.0, 110.0), None, 1.0, True)

    monkeypatch.setattr(answer_plan, "candidates", lambda *_: ([few, many], {}))
    monkeypatch.setattr(answer_plan, "least_checked", met)
    rows = answer_plan.plan(_request(price_per_gpu_hour=1, spare_replicas=1)).rows
    assert simulated == [1, 5]
    assert [row.cost.per_hour for row in rows if row.cost] == [15.0, 22.0]


def _priced(needed: int, price: float) -> Candidate:
    candidate = _candidate(needed)
    profile = replace(candidate.run.profile, price_per_hour=price)
    load: Any = SimpleNamespace(verdict=Verdict.MET)
    service = ServiceLaw(service_s=jnp.array([0.1]), prefill_s=jnp.array([0.05]), weight=jnp.ones(1))
    return replace(candidate, run=replace(candidate.run, profile=profile), service=service, load=load)
