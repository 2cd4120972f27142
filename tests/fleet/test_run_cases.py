# SPDX-License-Identifier: Apache-2.0
"""What simulations take: requests of runs, replayed traces, and where rules send them."""

import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.fleet import run_cases
from aicjax.fleet.requests import SimulateRequest
from aicjax.fleet.run_cases import deployment_of, route_of, traffic_of

POOLS = [
    {"name": "chat", "replica": "a100", "replicas": 2, "max_tokens": 1024},
    {"name": "code", "replica": "a100", "replicas": 2, "max_tokens": 8192},
]
COUNT = 800


def _trace(folder: Path, *, gap_s: float = 0.5) -> Path:
    rows = (
        f'{{"timestamp": {gap_s * i}, "prompt_tokens": {10 + i}, "generated_tokens": {1 + i % 7}, '
        f'"selected_model": "{("chat", "code", "other")[i % 3]}"}}'
        for i in range(COUNT)
    )
    path = folder / "trace.jsonl"
    path.write_text("\n".join(rows))
    return path


def _request(fleet: dict, **fields) -> SimulateRequest:
    return SimulateRequest(**{"fleet": fleet, "seeds": 2, "requests": 200, **fields})


def test_a_trace_is_replayed_in_windows_with_its_lengths_and_models(tmp_path: Path):
    request = _request({"pools": POOLS, "router": "model"}, trace=_trace(tmp_path))
    deployment, _ = deployment_of(request.fleet)
    traffic = traffic_of(request, deployment)
    assert np.asarray(traffic.requests.isl).ravel().tolist() == [10 + i for i in range(400)]
    assert np.asarray(traffic.requests.osl).ravel().tolist() == [1 + i % 7 for i in range(400)]
    assert np.asarray(traffic.gaps_s) == pytest.approx(0.5)
    route = route_of("model", request.fleet, deployment, traffic)
    assert np.asarray(route.pool).ravel()[:6].tolist() == [0, 1, 0, 0, 1, 0]  # unknown models to the first pool


def test_a_stated_rate_stretches_the_trace(tmp_path: Path):
    request = _request({"pools": POOLS}, trace=_trace(tmp_path), rate_per_s=10)
    traffic = traffic_of(request, deployment_of(request.fleet)[0])
    assert np.asarray(traffic.gaps_s).mean() == pytest.approx(0.1, rel=1e-3)


def test_a_trace_too_short_for_the_runs_is_refused(tmp_path: Path):
    request = _request({"pools": POOLS}, trace=_trace(tmp_path), seeds=9, requests=None)
    with pytest.raises(InputError, match="`trace` must be at least 900 requests for 9 runs; it has 800"):
        traffic_of(request, deployment_of(request.fleet)[0])


def test_requests_that_all_arrive_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    request = _request({"pools": POOLS}, trace=_trace(tmp_path, gap_s=0.0), rate_per_s=10, arrival_cv2=1)
    with warnings.catch_warnings(), pytest.raises(InputError, match="`trace` must be requests at more than one time"):
        warnings.simplefilter("error")
        traffic_of(request, deployment_of(request.fleet)[0])
    drawn = _request({"pools": POOLS}, isl=10, osl=10, arrival_cv2=1e4, requests=100)
    monkeypatch.setattr(run_cases, "stated_gaps", lambda key, rate, cv2, count: jnp.zeros(count))
    with pytest.raises(InputError, match="`arrival_cv2` must be less, or more than 100 requests"):
        traffic_of(drawn, deployment_of(drawn.fleet)[0])


@pytest.mark.parametrize("router", ["length", "spillover", "compress", "least_loaded"])
@pytest.mark.parametrize("threshold", [None, 1024])
def test_the_order_in_which_pools_are_stated_does_not_matter(router: str, threshold: int | None):
    sent = []
    for pools in (POOLS, POOLS[::-1]):
        fleet = {"pools": pools, "router": router, "threshold": threshold}
        request = _request(fleet, workload="azure", rate_per_s=5)
        deployment, _ = deployment_of(request.fleet)
        route = route_of(router, request.fleet, deployment, traffic_of(request, deployment))
        names = np.array([*(pool["name"] for pool in pools), "by load"])  # the last for LEAST_LOADED
        sent.append([names[np.asarray(route.pool)].tolist(), np.asarray(route.isl).tolist()])
    assert sent[0] == sent[1]


def test_compression_keeps_to_the_smallest_pool_without_a_threshold():
    request = _request({"pools": POOLS, "router": "compress", "gamma": 2.0}, workload="azure", rate_per_s=5)
    deployment, _ = deployment_of(request.fleet)
    traffic = traffic_of(request, deployment)
    route = route_of("compress", request.fleet, deployment, traffic)
    total = np.asarray(traffic.requests.total)
    compressed = np.asarray(route.compressed)
    assert compressed.any()
    assert ((total[compressed] > 1024) & (total[compressed] <= 2048)).all()
    assert (np.asarray(route.isl)[compressed] + np.asarray(traffic.requests.osl)[compressed] == 1024).all()


def test_bursty_arrivals_have_the_stated_variability():
    request = _request({"pools": POOLS}, isl=10, osl=10, rate_per_s=5, arrival_cv2=4, seeds=8, requests=5000)
    gaps = np.asarray(traffic_of(request, deployment_of(request.fleet)[0]).gaps_s)
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(4, rel=0.15)
