# SPDX-License-Identifier: Apache-2.0
"""Tables that timed their host, as a list and as JSON."""

import json

import pytest

from aicjax.report.faults import print_faults
from aicjax.tables.faults import Comparison, Fault, TableFile

FILE, SIBLING = (TableFile("b200_sxm", backend, "1.0", "gemm_perf") for backend in ("vllm", "trtllm"))
FAULT = Fault((Comparison(FILE, SIBLING, (("gemm_dtype", "fp8_block"),), 99, 151.8, 4.24, 215.81, 26.83, 1.02),))


@pytest.mark.parametrize("repaired", [True, False])
def test_records_say_what_was_found_and_whether_it_is_repaired(capsys, repaired):
    print_faults([FAULT], ["gemm_perf"] if repaired else [], as_json=True)
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["system"], record["backend"], record["sibling"]) == ("b200_sxm", "vllm", "trtllm 1.0")
    assert record["slice"] == {"gemm_dtype": "fp8_block"}
    assert (record["floor_us"], record["sibling_floor_us"], record["excess_us"]) == (151.8, 4.2, 215.8)
    assert record["repaired"] == repaired


def test_a_row_for_each_sibling(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    print_faults([FAULT], ["gemm_perf"], as_json=False)
    shown = capsys.readouterr().out
    assert "fp8_block" in shown
    assert "215.8" in shown
    assert " ".join(shown.split()).endswith("Slices that timed their host: 1; read without that time: 1")
