# SPDX-License-Identifier: Apache-2.0
"""What may be asked about fleets: every refusal names the argument, the value and what is allowed, in one line."""

from pathlib import Path
from typing import Any

import pytest

from aicjax._results import InputError
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.replica_spec import ComputedReplica, EngineReplica, ManualReplica, PresetReplica, parsed
from aicjax.fleet.request_fields import MOST_REQUESTS, WARM_UP_SERVICES, WARM_UP_SHARE
from aicjax.fleet.requests import (
    DisaggRequest,
    FleetSpec,
    ParetoRequest,
    PowerRequest,
    RoutersRequest,
    SimulateRequest,
    SizeRequest,
    WhatIfRequest,
)

POOL = {"name": "all", "replica": "a100", "replicas": 2}
PLAN = {"model_path": "m", "systems": "h200_sxm", "isl": 10, "osl": 10}


def _sized(**fields: Any) -> SizeRequest:
    return SizeRequest(**{"workload": "azure", **fields})


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("h100", PresetReplica, {"preset": "h100"}),
        ("preset=a100,price_per_hour=3", PresetReplica, {"price_per_hour": 3.0}),
        ("base_ms=8, per_sequence_ms=0.65", ManualReplica, {"base_ms": 8.0, "per_sequence_ms": 0.65}),
        ("hardware=h100,model=llama-3.1-70b,tp=8,dtype_bytes=1", ComputedReplica, {"tp": 8, "dtype_bytes": 1.0}),
        ("system=h200_sxm,model=Qwen/Qwen3-32B-FP8,tp=2", EngineReplica, {"tp": 2, "backend": "trtllm"}),
    ],
)
def test_replicas_are_read_from_text(text: str, kind: type, fields: dict[str, Any]):
    replica = parsed(text)
    assert type(replica) is kind
    assert {name: getattr(replica, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"workload": None}, ["workload", "trace", "isl and osl"]),
        ({"isl": 5, "osl": 5}, ["isl", "absent when workload"]),
        ({"workload": None, "isl": 5}, ["osl", "given together"]),
        ({"workload": None, "trace": "nowhere.csv"}, ["trace", "nowhere.csv", "readable"]),
        ({"rate_per_s": 0}, ["rate_per_s", "above 0", "0"]),
        ({"rate_per_s": float("nan")}, ["rate_per_s"]),
        ({"ttft_ms": -1}, ["ttft_ms", "above 0", "-1"]),
        ({"percentile": 100}, ["percentile", "100"]),
        ({"thresholds": "8192,4096"}, ["thresholds", "ascending", "65536"]),
        ({"thresholds": "70000"}, ["thresholds", "below max_tokens"]),
        ({"replica": ""}, ["replica", "a100", "base_ms"]),
        ({"replica": "x=3"}, ["replica", "x=3"]),
        ({"replica": "base_ms=8"}, ["per_sequence_ms", "given"]),
        ({"replica": "base_ms=8,per_sequence_ms=1,idle_w=3"}, ["nominal_w", "idle_w"]),
        ({"replica": "hardware=h100,model=m,dtype_bytes=3"}, ["dtype_bytes", "2, 1, 0.5", "3"]),
        ({"replica": "base_ms=8,per_seqence_ms=1"}, ["per_sequence_ms"]),
        ({"lam": 3}, ["lam", "a known name"]),
        ({"rate_per": 3}, ["rate_per", "nearest is `rate_per_s`"]),
        ({"gamma_max": 5}, ["gamma_max", "4", "5"]),
        ({"gamma_min": 2, "gamma_max": 1.5}, ["gamma_max", "gamma_min = 2"]),
        ({"requests": MOST_REQUESTS}, ["requests", str(MOST_REQUESTS // 8)]),
        ({"compat": "reference"}, ["compat", "fleet-reference"]),
    ],
)
def test_a_bad_sizing_is_refused(fields: dict[str, Any], parts: list[str]):
    with pytest.raises(InputError) as refusal:
        _sized(**fields)
    message = str(refusal.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("kind", "fields", "parts"),
    [
        (FleetSpec, {"pools": []}, ["pools"]),
        (FleetSpec, {"pools": [POOL, POOL]}, ["pools", "names that differ"]),
        (SimulateRequest, {"fleet": {"pools": [{**POOL, "replicas": 0}]}}, ["replicas", "at least 1"]),
        (RoutersRequest, {"fleet": {"pools": [POOL]}, "routers": "length,fastest"}, ["routers", "fastest"]),
        (RoutersRequest, {"fleet": {"pools": [POOL]}, "requests": MOST_REQUESTS // 8}, ["requests", "48 runs"]),
        (WhatIfRequest, {"rates_per_s": "50,-1"}, ["rates_per_s", "-1"]),
        (WhatIfRequest, {"rates_per_s": ""}, ["rates_per_s"]),
        (WhatIfRequest, {"arrival_cv2": 1e5}, ["arrival_cv2", "10000"]),
        (WhatIfRequest, {"gamma_step": 1e-9}, ["gamma_step", "0.01"]),
        (FleetSpec, {"pools": [{**POOL, "max_tokens": 2**31}]}, ["max_tokens", "at most 1000000000"]),
        (FleetSpec, {"pools": [POOL], "threshold": 2**31}, ["threshold", "at most 1000000000"]),
        (ParetoRequest, {"thresholds": "0"}, ["thresholds"]),
        (DisaggRequest, {"kv_transfer_gb_per_s": 50}, ["kv_bytes_per_token", "kv_transfer_gb_per_s"]),
        (PowerRequest, {"flex_percents": "0,101"}, ["flex_percents", "101"]),
        (PowerRequest, {"utilizations": "1"}, ["utilizations"]),
    ],
)
def test_other_requests_are_refused(kind: type, fields: dict[str, Any], parts: list[str]):
    workload = {} if kind is FleetSpec else {"workload": "azure"}
    with pytest.raises(InputError) as refusal:
        kind(**workload, **fields)
    for part in parts:
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"systems": ""}, "systems"),
        ({"price_per_gpu_hour": "1,2"}, "one price, or one for each of 1 systems"),
        ({"tpot_ms": 0}, "tpot_ms"),
        ({"backend": "tgi"}, "backend"),
    ],
)
def test_a_bad_plan_is_refused(fields: dict[str, Any], part: str):
    with pytest.raises(InputError, match=part):
        PlanRequest(**{**PLAN, **fields})


def test_prices_of_a_plan_go_by_system():
    one = PlanRequest(**{**PLAN, "systems": "h100_sxm,h200_sxm", "price_per_gpu_hour": 3})
    two = PlanRequest(**{**PLAN, "systems": "h100_sxm,h200_sxm", "price_per_gpu_hour": "3,4"})
    assert [request.price_of("h200_sxm") for request in (one, two)] == [3.0, 4.0]


def test_gammas_run_from_the_first_to_the_last():
    assert _sized(gamma_max=1.3).gammas == (1.0, 1.1, 1.2, 1.3)
    assert _sized(gamma_min=1.5, gamma_max=2, gamma_step=0.5).gammas == (1.5, 2.0)
    assert _sized(gamma_max=1).gammas == (1.0,)


def test_the_last_pool_may_have_other_replicas():
    request = _sized(thresholds="1024,4096", replica="a10g", replica_long="h100")
    assert [replica.preset for replica in request.pool_replicas] == ["a10g", "a10g", "h100"]
    assert [replica.preset for replica in _sized(replica="h100").pool_replicas] == ["h100"]


def test_a_run_lasts_several_times_of_service_unless_stated():
    concurrency = 10_000.0
    free = _sized().run_length(concurrency)
    assert free * WARM_UP_SHARE >= WARM_UP_SERVICES * concurrency
    assert _sized(requests=500).run_length(concurrency) == 500
    assert _sized().run_length(1e9) == MOST_REQUESTS // 8


def test_requests_do_not_change():
    request = _sized()
    with pytest.raises(Exception, match="frozen"):
        request.rate_per_s = 3.0  # pyright: ignore[reportAttributeAccessIssue]
    assert request == _sized()


def test_a_trace_is_taken_in_place_of_a_distribution(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,5,5\n")
    assert _sized(workload=None, trace=str(path)).trace == path
