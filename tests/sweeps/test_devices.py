# SPDX-License-Identifier: Apache-2.0
"""A sweep on several devices and on several hosts: the same bytes as on one."""

import hashlib
import socket
import time
from pathlib import Path

import pytest

from aicjax.sweeps.run import sweep
from tests.sweeps.runs import SPEC, files, output, python

pytestmark = pytest.mark.as_shipped


def digest(found: dict[str, bytes]) -> str:
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["agg", "disagg"])
def test_any_number_of_devices_gives_the_same_bytes(tmp_path, mode):
    code = f"""
import hashlib
spec = SPEC.model_copy(update=dict(serving_mode={mode!r}, isl=(300,), histogram={mode == "agg"}))
for devices in (1, 2, 4):
    out = Path({str(tmp_path)!r}) / str(devices)
    result = sweep(spec, out=out, devices=devices, rows={mode == "agg"})
    assert result.complete and result.found
    print(hashlib.sha256(repr(sorted(files(result, out).items())).encode()).hexdigest())
"""
    digests = output(python(code, devices=4)).split()
    assert len(digests) == 3
    assert len(set(digests)) == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def on_hosts(call: str, hosts: int = 2, cache: Path | None = None) -> list:
    """Processes that each run the lines as one host, with `hosts` as arguments of `sweep`."""
    port = free_port()
    head = f"hosts = dict(coordinator='localhost:{port}', num_hosts={hosts}, host_id={{host}})\n"
    return [python(head.format(host=host) + call, cache=cache) for host in range(hosts)]


@pytest.mark.slow
def test_two_hosts_give_the_same_bytes_as_one(tmp_path):
    one = files(sweep(SPEC), tmp_path / "one")
    call = f"""
out = Path({str(tmp_path)!r})
result = sweep(SPEC, out=out / "log", **hosts)
assert result.complete
found = files(result, out / str(hosts["host_id"]))
"""
    for process in on_hosts(call):
        output(process)
    for host in range(2):
        path = tmp_path / str(host)
        assert {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()} == one
    logs = [tmp_path / "log" / f"chunks-{host}.log" for host in range(2)]
    assert all(log.stat().st_size > 1000 for log in logs), "both hosts did their share"
    reports = []
    again = sweep(SPEC, out=tmp_path / "log", progress=reports.append)
    assert not reports, "one host reads what two have done"
    assert files(again, tmp_path / "again") == one


@pytest.mark.slow
def test_a_host_that_refuses_stops_all():
    call = """
spec = dict(SPEC, top_k=3 if hosts["host_id"] else 0)
sweep(**spec, **hosts)
"""
    started = time.monotonic()
    first, second = on_hosts(call)
    errors = [process.communicate(timeout=60)[1] for process in (first, second)]
    assert first.returncode == second.returncode == 1
    assert "InputError: Argument `top_k`" in errors[0]
    assert "HostFailed: host 0 of 2 failed: InputError: Argument `top_k`" in errors[1]
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_hosts_with_different_sweeps_are_refused():
    call = """
sweep(SPEC.model_copy(update=dict(top_k=3 + hosts["host_id"])), **hosts)
"""
    for process in on_hosts(call):
        assert "the same on all hosts" in process.communicate(timeout=60)[1]
        assert process.returncode == 1
