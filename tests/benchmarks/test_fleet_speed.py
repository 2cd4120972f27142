# SPDX-License-Identifier: Apache-2.0
"""The benchmark of simulators prints a line for each load, with a check that does not depend on the machine."""

import pytest

from benchmarks import fleet_speed


def test_lines_and_checks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for name, value in (("MOST_REQUESTS", 40_000), ("MANY_FLEETS", 9), ("REQUESTS", 500)):
        monkeypatch.setattr(fleet_speed, name, value)
    assert fleet_speed.main(["--fleets", "2", "--servers", "4", "8", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    few, more = (next(line for line in printed.splitlines() if f" {servers} servers" in line) for servers in (4, 8))
    assert float(few.split()[-1]) > float(more.split()[-1]) > 0, "more servers, shorter waits at one utilization"
    assert "9 fleets in one call" in printed
