# SPDX-License-Identifier: Apache-2.0
"""The service from the outside: endpoints, refusals in one line, limits, and answers of jobs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("multipart")
pytest.importorskip("httpx2")

from fastapi.testclient import TestClient

from aicjax.service.app import Settings, create_app

ENOUGH_S = 120.0
FLEET = {
    "name": "two pools",
    "pools": [
        {"pool_id": "short", "gpu": "a100", "n_gpus": 3, "max_ctx": 4096},
        {"pool_id": "long", "gpu": "h100", "n_gpus": 2, "max_ctx": 65536},
    ],
    "router": "length",
}
ROWS = [
    {"timestamp": 0.5 * i, "prompt_tokens": 100 + 37 * i, "generated_tokens": 20 + i, "selected_model": f"m{i % 3}"}
    for i in range(60)
]
OPTIMIZE = {"workload": {"type": "builtin", "name": "azure"}, "lam": 50, "gamma_max": 1.0}
WHAT_IF = {"workload": {"name": "azure"}, "fleet": FLEET, "lam_range": [*range(1, 101)]}


def _settings(folder: Path, **changes: Any) -> Settings:
    return Settings(folder, allowed_hosts=("testserver",), **changes)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(_settings(tmp_path))) as client:
        yield client


def _upload(client: TestClient, rows: list[dict[str, Any]]) -> Any:
    text = "\n".join(json.dumps(row) for row in rows)
    return client.post("/api/traces?fmt=jsonl", files={"file": ("t.jsonl", text)})


def _ended(client: TestClient, identity: str) -> dict[str, Any]:
    end = time.monotonic() + ENOUGH_S
    while time.monotonic() < end:
        job = client.get(f"/api/jobs/{identity}").json()
        if job["status"] in ("done", "failed"):
            return job
        time.sleep(0.02)
    raise AssertionError("the job did not end")


def test_service_says_that_it_is_there_and_describes_itself(client: TestClient):
    assert client.get("/healthz").json() == {"status": "ok", "service": "aicjax-fleet"}
    assert client.get("/").json()["docs"] == "/api/docs"
    assert client.get("/api/docs").status_code == 200
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/jobs", "/api/fleets", "/api/traces", "/api/workloads/{name}/cdf"} <= set(paths)


def test_profiles_are_those_that_answers_use(client: TestClient):
    rows = {row["key"]: row for row in client.get("/api/gpu-profiles").json()}
    assert rows["a100"]["W_ms"] == pytest.approx(8.0)
    assert rows["h100"]["cost_per_hr"] == pytest.approx(4.02)


def test_workloads_are_listed_with_points_and_statistics(client: TestClient):
    names = [row["name"] for row in client.get("/api/workloads").json()]
    assert {"azure", "lmsys", "agent_heavy"} <= set(names)
    points = client.get("/api/workloads/azure/cdf").json()
    assert points[0] == {"threshold": 64, "cumulative_frac": pytest.approx(0.00837324818165691)}
    stats = client.get("/api/workloads/azure/stats").json()
    assert sum(row["count"] for row in stats["prompt_histogram"]) == stats["n_requests"]
    assert stats["p50_prompt_tokens"] < stats["p95_prompt_tokens"] < stats["p99_prompt_tokens"]


@pytest.mark.parametrize("name", ["nope", "..%2Fmodels", "x.json"])
def test_unknown_workload_is_one_line(client: TestClient, name: str):
    answer = client.get(f"/api/workloads/{name}/stats")
    assert answer.status_code == 404
    assert "\n" not in answer.json()["detail"]


def test_fleets_are_kept_priced_and_forgotten(client: TestClient):
    made = client.post("/api/fleets", json=FLEET).json()
    assert made["total_gpus"] == 5
    assert made["estimated_cost_per_hr"] == pytest.approx(3 * 2.21 + 2 * 4.02)
    assert client.get(f"/api/fleets/{made['id']}").json() == made
    assert client.get("/api/fleets").json() == [made]
    assert client.delete(f"/api/fleets/{made['id']}").status_code == 200
    assert client.get(f"/api/fleets/{made['id']}").status_code == 404


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"gpu": "b999"}, "b999"),
        ({"n_gpus": 0}, "n_gpus"),
        ({"max_ctx": 100}, "max_ctx"),
        ({"n_gpu": 3}, "n_gpu"),
    ],
)
def test_a_bad_pool_is_refused_in_one_line(client: TestClient, change: dict[str, Any], part: str):
    answer = client.post("/api/fleets", json={**FLEET, "pools": [{**FLEET["pools"][0], **change}]})
    assert answer.status_code == 422
    assert part in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]
    assert client.get("/api/fleets").json() == []


def test_traces_are_kept_with_statistics(client: TestClient):
    made = _upload(client, ROWS).json()
    stats = made["stats"]
    assert (made["n_requests"], made["refused_rows"], made["name"]) == (60, 0, "t.jsonl")
    assert stats["duration_s"] == pytest.approx(29.5)
    assert stats["arrival_rate_rps"] == pytest.approx(2.0)
    assert stats["routing_distribution"] == pytest.approx({"m0": 1 / 3, "m1": 1 / 3, "m2": 1 / 3})
    assert sum(row["count"] for row in stats["output_histogram"]) == 60
    sample = client.get(f"/api/traces/{made['id']}/sample?limit=3").json()
    assert sample == {"records": ROWS[:3], "total": 60}
    assert client.get(f"/api/traces/{made['id']}/sample?limit=501").status_code == 422
    assert [row["id"] for row in client.get("/api/traces").json()] == [made["id"]]
    assert client.delete(f"/api/traces/{made['id']}").status_code == 200
    assert client.get(f"/api/traces/{made['id']}").status_code == 404


def test_a_file_that_is_no_trace_leaves_nothing(client: TestClient, tmp_path: Path):
    answer = client.post("/api/traces?fmt=csv", files={"file": ("t.csv", "a,b\n1,2\n")})
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert "t.csv" in detail
    assert str(tmp_path) not in detail
    assert list((tmp_path / "traces").iterdir()) == []


def test_bodies_above_the_limit_are_refused_stated_or_not(tmp_path: Path):
    with TestClient(create_app(_settings(tmp_path, most_body_bytes=1000))) as client:
        stated = client.post("/api/fleets", content=b"x" * 2000, headers={"content-type": "application/json"})
        streamed = client.post(
            "/api/fleets", content=iter([b"x" * 600] * 4), headers={"content-type": "application/json"}
        )
    assert (stated.status_code, streamed.status_code) == (413, 413)
    assert "1000 bytes" in streamed.json()["detail"]


def test_other_host_names_are_refused(client: TestClient):
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"type": "simulate"}, "simulate must be given"),
        ({"type": "guess"}, "type"),
        ({"type": "optimize", "optimize": {**OPTIMIZE, "workload": {"name": "missing"}}}, "missing"),
        ({"type": "optimize", "optimize": {**OPTIMIZE, "gpu_short": "b999"}}, "b999"),
        ({"type": "optimize", "optimize": {**OPTIMIZE, "lam": 0}}, "lam"),
        ({"type": "optimize", "optimize": {**OPTIMIZE, "n_sim_requests": 10**9}}, "n_sim_requests"),
        ({"type": "whatif", "whatif": {**WHAT_IF, "n_requests": 25_001}}, "at most 25000 with 800 runs of all rates"),
        ({"type": "size", "parameters": {"workload": "azure", "rate": 3}}, "rate"),
        ({"type": "size", "parameters": {"workload": "/etc/passwd"}}, "workload"),
        ({"type": "size", "parameters": {"trace": "pyproject.toml"}}, "trace"),
        (
            {"type": "plan", "parameters": {"model_path": "./m", "systems": "h200_sxm", "isl": 1, "osl": 1}},
            "model_path",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused_when_sent(client: TestClient, body: dict[str, Any], part: str):
    answer = client.post("/api/jobs", json=body)
    assert answer.status_code == 422
    assert part in answer.json()["detail"]
    assert client.get("/api/jobs").json() == []


@pytest.mark.parametrize("body", [{"type": "simulate", "simulate": {"fleet_id": "0" * 12}}])
def test_a_job_of_a_fleet_that_is_not_there_is_refused(client: TestClient, body: dict[str, Any]):
    body["simulate"] |= {"workload": {"name": "azure"}, "lam": 5}
    assert client.post("/api/jobs", json=body).status_code == 404


def test_jobs_sent_before_a_restart_are_done_after_it(tmp_path: Path):
    stopped = TestClient(create_app(_settings(tmp_path)))  # without its life: nothing runs
    sized = stopped.post("/api/jobs", json={"type": "size", "parameters": {"isl": 1000, "osl": 100, "verify_top": 0}})
    classic = stopped.post("/api/jobs", json={"type": "optimize", "optimize": {**OPTIMIZE, "n_sim_requests": 500}})
    assert [answer.json()["status"] for answer in (sized, classic)] == ["pending", "pending"]
    with TestClient(create_app(_settings(tmp_path))) as client:
        jobs = [_ended(client, answer.json()["id"]) for answer in (sized, classic)]
    assert [job["status"] for job in jobs] == ["done", "done"]
    assert all(job["completed_at"] for job in jobs)
    assert jobs[0]["result"]["fleets"][0]["meets"] is True
    best = jobs[1]["result_optimize"]["best"]
    assert best["n_s"] >= 1
    assert best["total_gpus"] == best["n_s"] + best["n_l"]
    assert {row["source"] for row in jobs[1]["result_optimize"]["sweep"]} == {"analytical", "simulated"}


@pytest.mark.parametrize(
    "parameters",
    ['{"workload": "azure", "x": NaN}', '{"workload": "azure", "rate_per_s": 1e999}', '{"workload": "\\ud800"}'],
)
@pytest.mark.parametrize("kind", ["size", "optimize"])
def test_parameters_that_cannot_be_kept_are_refused(client: TestClient, parameters: str, kind: str):
    optimize = '"optimize": {"workload": {"name": "azure"}, "lam": 200}'
    body = f'{{"type": "{kind}", {optimize}, "parameters": {parameters}}}'
    response = client.post("/api/jobs", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "finite numbers and whole characters" in response.json()["detail"]


def test_a_sweep_without_end_is_refused(client: TestClient):
    optimize = {"workload": {"name": "azure"}, "lam": 200, "gamma_step": 1e-9}
    response = client.post("/api/jobs", json={"type": "optimize", "optimize": optimize})
    assert response.status_code == 422
    assert "gamma_step" in response.json()["detail"]
