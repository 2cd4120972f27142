# SPDX-License-Identifier: Apache-2.0
"""Simulated fleets over a stated horizon, from empty or settled, and in the long run where there is one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.fleet import answer_run, answers
from aicjax.fleet.requests import SimulateRequest
from aicjax.fleet.run_answers import SimulateAnswer
from aicjax.fleet.run_cases import deployment_of, traffic_of

# One replica of 4 slots; a request takes 20 iterations of 100 ms and one for its prompt: 2.1 s, so 1.9 requests/s.
REPLICA = "base_ms=100,per_sequence_ms=0.001,max_slots=4,calibration_tokens=8192,chunk_tokens=1000"
POOL = {"name": "all", "replica": REPLICA, "replicas": 1, "max_tokens": 8192}
CAPACITY_PER_S = 4 / 2.1


@pytest.fixture(autouse=True)
def _without_bounds(monkeypatch: pytest.MonkeyPatch):
    """No closed form, which takes longer than these runs."""
    monkeypatch.setattr(answer_run, "bounds_of", lambda request, profiles: None)


def _request(**fields: Any) -> SimulateRequest:
    stated = {"isl": 1000, "osl": 20, "rate_per_s": 1.5 * CAPACITY_PER_S, "fleet": {"pools": [POOL]}, "ttft_ms": 5000}
    return SimulateRequest(**{**stated, **fields})


def _found(**fields: Any) -> SimulateAnswer:
    found = answers.simulate(_request(**fields))
    assert isinstance(found, SimulateAnswer)
    return found


def _late_s(found: SimulateAnswer) -> float:
    assert found.fleet.ttft_ms is not None
    return found.fleet.ttft_ms.value / 1000


def test_overload_has_no_long_run():
    found = _found(requests=500)
    assert (found.verdict, found.start) == ("unstable", None)
    assert found.fleet.requests == found.runs * 400  # without the warm-up


def test_over_a_horizon_overload_has_a_percentile_that_grows_with_it():
    horizon_s = 200.0
    found = _found(horizon_s=horizon_s)
    assert found.start == "empty"
    assert found.requests == round(1.5 * CAPACITY_PER_S * horizon_s)
    assert found.fleet.requests == found.runs * found.requests  # all count
    assert found.horizon_s == pytest.approx(horizon_s, rel=0.1)
    assert found.verdict == "missed"
    assert found.pools[0].result.offered == pytest.approx(1.5, rel=0.1)
    assert _late_s(found) == pytest.approx(0.5 * horizon_s, rel=0.3)  # backlog at the end over the rate of service
    assert found.fleet.ttft_ms is not None
    assert found.fleet.ttft_ms.low is not None
    assert found.fleet.ttft_ms.low < found.fleet.ttft_ms.value


def test_an_empty_fleet_takes_what_its_slots_hold_even_in_overload():
    """Four requests find four free slots, or slots that are all taken."""
    empty, settled = (_found(horizon_s=1.4, seeds=16, ttft_ms=200, start=start) for start in ("empty", "settled"))
    assert (empty.start, settled.start) == ("empty", "settled")
    assert (empty.requests, empty.verdict) == (4, "met")
    assert _late_s(empty) == pytest.approx(0.1, rel=0.01)
    assert settled.verdict == "missed"
    assert _late_s(settled) > 0.5
    assert empty.fleet.utilization < settled.fleet.utilization


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"horizon_s": 0.01}, ["horizon_s", "0.35", "1 to"]),
        ({"horizon_s": 1e9}, ["horizon_s", "2500000 requests"]),
    ],
)
def test_a_horizon_of_no_request_or_too_many_is_refused(fields: dict[str, Any], parts: list[str]):
    request = _request(**fields)
    with pytest.raises(InputError) as refusal:
        traffic_of(request, deployment_of(request.fleet)[0])
    for part in parts:
        assert part in str(refusal.value)


def test_a_horizon_takes_windows_of_a_trace(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "\n".join(f'{{"timestamp": {i}, "prompt_tokens": {10 + i}, "generated_tokens": 5}}' for i in range(100))
    )
    stated = {"isl": None, "osl": None, "rate_per_s": None, "trace": path, "seeds": 5}
    request = _request(**stated, horizon_s=12)
    traffic = traffic_of(request, deployment_of(request.fleet)[0])
    assert np.asarray(traffic.requests.isl).tolist() == np.reshape(10 + np.arange(60), (5, 12)).tolist()
    request = _request(**stated, horizon_s=21)
    with pytest.raises(InputError, match="at most 20 for 5 runs"):
        traffic_of(request, deployment_of(request.fleet)[0])
