# SPDX-License-Identifier: Apache-2.0
"""Rows of a report: replicas that fill the budget, workers, and the table that shows them."""

import pytest
from rich.console import Console

from aicjax.explore.frame import Frame
from aicjax.report.rows import Row, rows
from aicjax.report.table import print_top
from tests.report.frames import agg_frame, disagg_frame


def _printed(shown: list[Row], width: int = 130) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        print_top(console, "title", shown)
    return capture.get()


def test_replicas_fill_the_budget():
    (row,) = rows(agg_frame(16), 33)
    assert (row.replicas, row.gpus, row.concurrency) == (8, 32, 128)
    assert row.requests_per_s == pytest.approx(27.376)


def test_replicas_of_a_load_target_come_from_the_frame():
    (row,) = rows(agg_frame(16, replicas_needed=3), None)
    assert (row.replicas, row.gpus) == (3, 12)


def test_workers_of_disaggregated_rows():
    (row,) = rows(disagg_frame(), 32)
    prefill, decode = row.workers
    assert (prefill.count, prefill.layout, prefill.gpus, prefill.batch) == (5, "tp4", 4, 1)
    assert (decode.count, decode.layout, decode.batch, decode.memory_gib) == (3, "tp4", 64, 20.1)


def test_expert_layout_is_shown():
    (row,) = rows(agg_frame(1, tp=1, dp=8, moe_ep=8, num_total_gpus=8), 8)
    assert row.workers[0].layout == "tp1 dp8 ep8"
    assert row.workers[0].gpus == 8


def test_one_output_token_has_no_time_per_output_token():
    (row,) = rows(agg_frame(1, osl=1, tpot=0.0), 4)
    assert row.tpot_ms is None
    assert row.tokens_per_s_per_user is None
    assert " - " in _printed([row])


@pytest.mark.parametrize("width", [72, 80, 100, 200])
@pytest.mark.parametrize("frame", [agg_frame(16, 28, 1), disagg_frame()], ids=["agg", "disagg"])
def test_table_fits_the_width_by_leaving_columns_out(frame: Frame, width: int):
    text = _printed(rows(frame, 32), width)
    assert "…" not in text
    assert "113.54" in text
    assert ("total" in text) is (width >= 100)
