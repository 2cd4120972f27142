# SPDX-License-Identifier: Apache-2.0
"""Sensitivities in text and as JSON, from made-up ones."""

import io
import json

from rich.console import Console

from aicjax.explore.result import Sensitivity
from aicjax.report import result_json, result_text, sensitivity
from tests.report.frames import agg_frame
from tests.report.results import result, task

FOUND = (
    Sensitivity("hardware", "gpu.memory_bandwidth_bytes_per_s", "some_gpu", 4.8e12, 0.621, -0.1, -0.7),
    Sensitivity("workload", "isl", "", 4000.0, -0.3, 0.9, None),
    Sensitivity("constant", "serving.queue_base", "trtllm", 1.85, 0.0, 0.004, 0.0),
)


def test_small_ones_are_folded():
    assert sensitivity.lines(FOUND) == [
        "for 1 % more of                            tokens/s/gpu      TTFT      TPOT",
        "some_gpu gpu.memory_bandwidth_bytes_per_s       +0.62 %   -0.10 %   -0.70 %",
        "isl                                             -0.30 %   +0.90 %         -",
        "1 other moves each by less than 0.01 %",
    ]
    assert len(sensitivity.lines(FOUND, least=0.0)) == 4


def printed(explain: bool, **changes) -> str:
    console = Console(file=io.StringIO(), width=120)
    result_text.print_result(result(task("agg", agg_frame(16, 28), **changes)), console, explain=explain)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_below_the_answer_where_asked_for():
    moves = {"sensitivities": lambda row: FOUND[row:]}
    assert "  isl    " in printed(True, **moves)
    assert "isl    " not in printed(False, **moves)
    assert sensitivity.NOT_MODELLED in printed(True)


def test_every_row_has_its_own_in_json():
    content = result(task("agg", agg_frame(16, 28), sensitivities=lambda row: FOUND[row:]), task("afd", agg_frame(16)))
    found = json.loads(json.dumps(result_json.as_dict(content, explain=True), allow_nan=False))["experiments"]
    names = [[each["name"] for each in row["sensitivities"]] for row in found["agg"]["rows"]]
    assert names == [[each.name for each in FOUND[at:]] for at in (0, 1)]
    assert found["agg"]["rows"][0]["sensitivities"][1]["tpot"] is None
    assert found["afd"]["rows"][0]["sensitivities"] is None
    plain = result_json.as_dict(content)["experiments"]["agg"]["rows"][0]
    assert "sensitivities" not in plain
