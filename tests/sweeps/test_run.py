# SPDX-License-Identifier: Apache-2.0
"""A sweep as a whole: interrupted, killed, resumed and with all its points, always with the same bytes."""

import functools
import os
import random
import shutil
import signal
import socket
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError
from aicjax.forward.memory import Verdict
from aicjax.sweeps.cases import enumerate_cases
from aicjax.sweeps.hosts import HostFailed
from aicjax.sweeps.kernel import VERDICTS
from aicjax.sweeps.result import SweepResult
from aicjax.sweeps.run import sweep
from aicjax.sweeps.share import Progress
from tests.sweeps.runs import CHUNKS, SPEC, files, python
from tests.sweeps.sweeping import ROUNDING, search_points

pytestmark = pytest.mark.as_shipped


@functools.cache
def uninterrupted() -> SweepResult:
    return sweep(SPEC)


def test_progress_counts_up_to_all_points():
    reports: list[Progress] = []
    result = sweep(SPEC, progress=reports.append)
    assert [report.done for report in reports] == [result.points * done // CHUNKS for done in range(1, CHUNKS + 1)]
    assert {report.points for report in reports} == {result.points} == {result.done_points}
    assert all(report.points_per_s > 0 for report in reports)
    assert reports[-1].seconds_left == 0
    assert reports[0].seconds_left > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_sweep_tells_its_share_and_goes_on(tmp_path, number):
    handlers = [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)]
    part = sweep(SPEC, out=tmp_path, progress=lambda _: os.kill(os.getpid(), number))
    assert (part.complete, part.done_points) == (False, part.points // CHUNKS)
    assert part.count()["feasible"] > 0
    assert [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)] == handlers

    reports: list[Progress] = []
    whole = sweep(SPEC, out=tmp_path, progress=reports.append)
    assert whole.complete
    assert len(reports) == CHUNKS - 1, "finished chunks are not done again"
    assert reports[0].done == 2 * whole.points // CHUNKS
    assert files(whole, tmp_path / "a") == files(uninterrupted(), tmp_path / "b")


def test_second_signal_ends_at_once(tmp_path):
    def twice(_: Progress) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep(SPEC, out=tmp_path, progress=twice)
    whole = sweep(SPEC, out=tmp_path)
    assert files(whole, tmp_path / "a") == files(uninterrupted(), tmp_path / "b")


def test_finished_sweep_is_read_from_its_log(tmp_path):
    first = sweep(SPEC, out=tmp_path)
    log = (tmp_path / "chunks-0.log").read_bytes()
    reports: list[Progress] = []
    again = sweep(SPEC, out=tmp_path, progress=reports.append)
    assert not reports
    assert again.complete
    assert again.kept.pack() == first.kept.pack() == uninterrupted().kept.pack()
    assert (tmp_path / "chunks-0.log").read_bytes() == log


def test_another_sweep_in_the_directory_is_refused(tmp_path):
    sweep(SPEC, out=tmp_path)
    with pytest.raises(InputError, match="of another"):
        sweep(SPEC.model_copy(update={"top_k": 4}), out=tmp_path)


@pytest.mark.slow
def test_killed_sweep_loses_nothing(tmp_path):
    out, cache, moments = tmp_path / "out", tmp_path / "cache", random.Random(0)
    slow = f"sweep(SPEC, out={str(out)!r}, rows=True, progress=lambda _: time.sleep(0.1))"
    sizes = [0]
    for _ in range(3):
        process = python(slow, cache=cache)
        log = out / "chunks-0.log"
        while process.poll() is None and (not log.exists() or log.stat().st_size <= sizes[-1] + 60):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.2))
        process.kill()
        process.communicate()
        sizes.append(log.stat().st_size)
    assert sizes == sorted(set(sizes)), "every run gets further than the one before"
    resumed = sweep(SPEC, out=out, rows=True)
    assert resumed.complete
    whole = sweep(SPEC, out=tmp_path / "whole", rows=True)
    assert files(resumed, out) == files(whole, tmp_path / "whole")


def test_rows_are_all_points_that_leave_room_for_decoding(tmp_path):
    spec = SPEC.model_copy(update={"isl": (20_000,), "osl": (1, 50), "batch": tuple(range(1, 200, 13))})
    result = sweep(spec, out=tmp_path, rows=True)
    cases = enumerate_cases(spec)
    verdicts = {Verdict.FITS: "feasible", Verdict.DOES_NOT_FIT: "memory", Verdict.KV_DOES_NOT_FIT: "kv_memory"}
    paths = sorted((tmp_path / "rows").iterdir())
    assert len(paths) == len(cases.cases) == 2
    seen: dict[str, int] = dict.fromkeys(VERDICTS, 0)
    for path, case in zip(paths, cases.cases, strict=True):
        rows = pq.read_table(path)
        points = search_points(spec, cases, case)
        number = rows["point"].to_numpy() - case.first_point
        plan = points.plan
        inside = np.broadcast_to(plan.batch - plan.prompts >= np.where(plan.batch > 1, 1, 0), points.verdict.shape)
        np.testing.assert_array_equal(number, np.flatnonzero(inside))
        layout, batch, ctx = np.unravel_index(number, points.verdict.shape)
        assert rows["parallel"].to_pylist() == [points.layouts[at].label for at in layout]
        np.testing.assert_array_equal(rows["num_total_gpus"], points.gpus[layout])
        np.testing.assert_array_equal(rows["bs"], np.array(case.batches)[batch])
        np.testing.assert_array_equal(rows["ctx_tokens"], np.array(spec.ctx_tokens)[ctx])
        missing = points.missing.ravel()[number]
        words = [
            "missing" if gone else verdicts[Verdict(code)]
            for gone, code in zip(missing, points.verdict.ravel()[number], strict=True)
        ]
        assert rows["verdict"].to_pylist() == words
        for word in words:
            seen[word] += 1
        columns = {
            "ttft": points.ttft_ms,
            "tpot": points.tpot_ms,
            "request_latency": points.request_latency_ms,
            "seq/s": points.seq_per_s,
        }
        for name, values in columns.items():
            found = rows[name].to_numpy().astype(np.float64)
            np.testing.assert_allclose(found, values.ravel()[number], rtol=ROUNDING)
            assert rows[name].null_count == np.isnan(values.ravel()[number]).sum()
        assert set(rows["osl"].to_pylist()) == {case.workload.osl}
        assert set(rows["model"].to_pylist()) == {"Qwen/Qwen3-8B"}
    counts = result.count()
    assert seen["feasible"] == counts["feasible"] > 0
    assert [seen[name] for name in VERDICTS[1:]] == [counts[name] for name in VERDICTS[1:]]
    assert seen["memory"] + seen["kv_memory"] > 0


def test_rows_may_be_asked_for_later(tmp_path):
    sweep(SPEC, out=tmp_path / "later")
    later = sweep(SPEC, out=tmp_path / "later", rows=True)
    at_once = sweep(SPEC, out=tmp_path / "at_once", rows=True)
    assert files(later, tmp_path / "later") == files(at_once, tmp_path / "at_once")


def test_rows_are_refused_where_the_disk_is_too_small(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(InputError, match="GB free"):
        sweep(SPEC, out=tmp_path, rows=True)


def test_large_rows_are_announced(tmp_path, monkeypatch):
    monkeypatch.setattr("aicjax.sweeps.row_files.NOTICE_BYTES", 1000)
    lines: list[str] = []
    sweep(SPEC, out=tmp_path, rows=True, notify=lines.append)
    assert len(lines) == 1
    assert "free" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": True}, "`rows` must be given together with `out`"),
        ({"devices": 0}, "`devices` must be a number from 1"),
        ({"devices": 99}, "the devices of this host"),
        ({"devices": []}, "at least one device"),
        ({"num_hosts": 0}, "`num_hosts` must be at least 1"),
        ({"num_hosts": 2}, "`coordinator` must be"),
        ({"num_hosts": 2, "coordinator": "here"}, "`coordinator` must be HOST:PORT"),
        ({"num_hosts": 2, "host_id": 2}, "`host_id` must be a number from 0 to 1"),
        ({"num_hosts": 2, "coordinator": "localhost:1234"}, "before anything else uses jax"),
        ({"num_hosts": 2, "coordinator": "no.such.host.invalid:1234", "host_id": 1}, "an address that is known"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    sweep_of_nothing = SPEC.model_copy(update={"isl": (300,), "osl": (100,)})
    uninterrupted()
    with pytest.raises(InputError, match=message):
        sweep(sweep_of_nothing, **arguments)


def test_host_0_that_never_comes_is_named(monkeypatch):
    monkeypatch.setattr("aicjax.sweeps.hosts.JOIN_TIMEOUT_S", 0)
    monkeypatch.setattr("aicjax.sweeps.hosts.RETRY_S", 0.1)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))  # and does not listen
        coordinator = f"localhost:{probe.getsockname()[1]}"
        with pytest.raises(HostFailed, match="host 0 cannot be reached"):
            sweep(SPEC, coordinator=coordinator, num_hosts=2, host_id=1)


def test_rows_of_pairs_are_refused(tmp_path):
    with pytest.raises(InputError, match="only the best worker counts"):
        sweep(SPEC.model_copy(update={"serving_mode": "disagg"}), out=tmp_path, rows=True)
