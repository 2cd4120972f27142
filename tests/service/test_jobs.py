# SPDX-License-Identifier: Apache-2.0
"""Jobs run in order, survive a restart, and end in exactly one state."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aicjax._results import DataError, InputError
from aicjax.service.jobs import DONE, FAILED, MOST_ATTEMPTS, PENDING, RUNNING, Busy, Jobs
from aicjax.service.state import NotFound, State, replace_file

ENOUGH_S = 20.0


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def _ended(state: State, identity: str) -> dict[str, Any]:
    end = time.monotonic() + ENOUGH_S
    while time.monotonic() < end:
        record = state.get("jobs", identity)
        if record["status"] in (DONE, FAILED):
            return record
        time.sleep(0.005)
    raise AssertionError("the job did not end")


@pytest.fixture
def jobs(state: State) -> Iterator[Jobs]:
    jobs = Jobs(state, lambda record: {"result": {"seen": record["number"]}}, most_waiting=3)
    jobs.start()
    yield jobs
    jobs.stop()


def test_a_job_is_done_with_its_times_and_result(state: State, jobs: Jobs):
    sent = jobs.submit({"number": 7})
    assert (sent["status"], sent["started_at"], sent["completed_at"]) == (PENDING, None, None)
    record = _ended(state, sent["id"])
    assert record["result"] == {"seen": 7}
    assert record["created_at"] <= record["started_at"] <= record["completed_at"]
    assert record["error"] is None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("lam", -1, "above 0"), "Argument `lam` must be above 0, but got -1."),
        (ZeroDivisionError("two\nlines"), "internal error, ZeroDivisionError: two lines"),
    ],
)
def test_a_job_that_fails_says_why_in_one_line_and_when(state: State, error: Exception, line: str):
    def fail(_: dict[str, Any]) -> dict[str, Any]:
        raise error

    jobs = Jobs(state, fail, most_waiting=3)
    jobs.start()
    record = _ended(state, jobs.submit({})["id"])
    jobs.stop()
    assert (record["status"], record["error"]) == (FAILED, line)
    assert record["completed_at"] is not None


def test_a_result_that_is_no_json_fails_its_job_alone(state: State):
    jobs = Jobs(state, lambda record: {"result": record["number"] or float("nan")}, most_waiting=3)
    jobs.start()
    bad, good = (jobs.submit({"number": number})["id"] for number in (0, 1))
    assert _ended(state, good)["result"] == 1
    record = _ended(state, bad)
    assert record["status"] == FAILED
    assert record["error"].startswith("internal error, ValueError")
    jobs.stop()


def test_jobs_of_an_earlier_service_run_after_a_restart(state: State):
    stopped = Jobs(state, lambda record: {"result": 1}, most_waiting=3)  # never started
    waiting = stopped.submit({"number": 1})["id"]
    running = stopped.submit({"number": 2})["id"]
    state.update("jobs", running, status=RUNNING, started_at="2026-01-01T00:00:00Z", attempts=1)
    done = stopped.submit({"number": 3})["id"]
    state.update("jobs", done, status=DONE, result={"seen": "before"}, completed_at="2026-01-01T00:00:00Z")

    jobs = Jobs(State(state.root), lambda record: {"result": {"seen": record["number"]}}, most_waiting=3)
    jobs.start()
    assert [_ended(state, identity)["result"] for identity in (waiting, running, done)] == [
        {"seen": 1},
        {"seen": 2},
        {"seen": "before"},
    ]
    assert state.get("jobs", running)["attempts"] == 2
    jobs.stop()


def test_a_job_that_ends_the_service_again_and_again_is_given_up(state: State):
    identity = Jobs(state, lambda _: {}, most_waiting=3).submit({})["id"]
    state.update("jobs", identity, status=RUNNING, attempts=MOST_ATTEMPTS)
    jobs = Jobs(state, lambda _: {}, most_waiting=3)
    jobs.start()
    record = _ended(state, identity)
    jobs.stop()
    assert record["status"] == FAILED
    assert record["completed_at"] is not None


def test_jobs_beyond_the_queue_are_refused(state: State):
    jobs = Jobs(state, lambda _: {}, most_waiting=2)
    jobs.submit({})
    jobs.submit({})
    with pytest.raises(Busy, match="2 jobs wait"):
        jobs.submit({})
    assert len(state.all("jobs")) == 2


def test_a_job_deleted_while_it_runs_stays_deleted(state: State):
    begun, go = threading.Event(), threading.Event()

    def slow(_: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        assert go.wait(ENOUGH_S)
        return {"result": 1}

    jobs = Jobs(state, slow, most_waiting=3)
    jobs.start()
    identity = jobs.submit({})["id"]
    assert begun.wait(ENOUGH_S)
    state.delete("jobs", identity)
    go.set()
    jobs.stop()
    with pytest.raises(NotFound):
        state.get("jobs", identity)
    assert state.all("jobs") == []


@pytest.mark.parametrize("identity", ["../jobs", "0123456789ag", "", "0123456789ab/../x", "0123456789AB"])
def test_what_is_no_identity_names_no_file(state: State, identity: str):
    with pytest.raises(NotFound):
        state.path("jobs", identity)


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path):
    path = tmp_path / "record.json"
    replace_file(path, b"old")
    with pytest.raises(TypeError):
        replace_file(path, "no bytes")  # pyright: ignore[reportArgumentType]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_broken_record_is_named(state: State):
    identity = state.create("fleets", {})["id"]
    state.path("fleets", identity).write_text("{")
    with pytest.raises(DataError, match=identity):
        state.get("fleets", identity)
