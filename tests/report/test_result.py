# SPDX-License-Identifier: Apache-2.0
"""A search result as text, JSON and files: the same numbers everywhere, and plain words when there is no answer."""

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from aicjax._results import AicjaxError, InputError, MissingData, NoFeasible
from aicjax.explore.result import SearchResult
from aicjax.explore.shortfall import Shortfall
from aicjax.report import result_json, result_text, summary
from aicjax.report.save import save
from tests.report.frames import agg_frame, disagg_frame
from tests.report.results import failed, result, task


def _text(result: SearchResult, width: int = 110) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        result_text.print_result(result, console)
    return capture.get()


def test_headline_names_the_winner_and_by_how_much():
    line = summary.headline(result())
    assert "disagg: 572.66 tokens/s/gpu, 1.34x the best agg (426.90)" in line
    assert "5 x tp4 b1 prefill + 3 x tp4 b64 decode" in line


def test_a_single_experiment_is_compared_with_nothing():
    assert summary.comparison(result(task("agg", agg_frame(16)))) == ""


def test_an_experiment_that_misses_the_limit_is_no_comparison():
    lost = task("agg", agg_frame(16), meets_target=False)
    assert summary.comparison(result(lost, task("disagg", disagg_frame()))) == ""


@pytest.mark.parametrize("width", [80, 110, 200])
def test_text_shows_question_answer_fronts_and_lists(width: int):
    text = _text(result(), width)
    for part in (
        "maker/model",
        "TTFT 300 ms",
        "Best: disagg",
        "held back by the TPOT limit",
        "a agg",
        "X chosen",
        "tp4 b16",
    ):
        assert part in text
    assert "None" not in text
    assert "nan" not in text
    assert "as AIConfigurator" not in text
    assert "workers matched at 0.9 of prefill and 0.92 of decode capacity; TTFT 1.8 times the prefill" in text
    assert "; as AIConfigurator" in _text(result(compat="reference"), width)


def test_an_experiment_without_rows_says_why():
    text = _text(result(task("agg", agg_frame(16)), failed("disagg", "disagg: TTFT is too tight.")))
    assert "disagg, no configuration: TTFT is too tight." in text


def test_no_experiment_with_rows_is_an_error_that_joins_the_reasons():
    error = summary.failure(result(failed("agg", "first."), failed("disagg", "second.")))
    assert isinstance(error, NoFeasible)
    assert str(error) == "first. second."


@pytest.mark.parametrize("error", [MissingData("none"), InputError("total_gpus", 1, "at least 2")])
def test_other_failures_everywhere_keep_their_kind(error: AicjaxError):
    lost = [task(name, {}, error=error, meets_target=False) for name in ("agg", "disagg")]
    assert summary.failure(result(*lost)) is error


def test_missed_limit_names_limit_nearest_and_percent():
    shortfall = Shortfall("tpot", 10.1, "tp4 batch 16, TPOT 8.807 ms (+10.1%)", "TPOT, limit 8 ms, exceeded by 10.1%")
    error = summary.failure(result(task("agg", agg_frame(16), meets_target=False, shortfall=shortfall), tpot=8))
    assert isinstance(error, NoFeasible)
    assert "limit 8 ms" in str(error)
    assert "tp4 batch 16" in str(error)


def test_json_has_the_numbers_of_the_table_and_repeats_the_run():
    content = json.loads(json.dumps(result_json.as_dict(result()), allow_nan=False))
    assert content["chosen"] == "disagg"
    assert content["inputs"]["tpot"] == 10
    (row,) = content["experiments"]["disagg"]["rows"]
    assert row["gpus"] == 32
    assert row["columns"]["tokens/s/gpu_cluster"] == 572.657
    assert row["explanation"]["binding"] == "tpot"
    assert content["experiments"]["agg"]["pareto"][1]["bs"] == 28


def test_inclusive_tpot_changes_reports_only():
    plain, inclusive = result(), result(inclusive_tpot=True)
    shown = summary.top_rows(inclusive.tasks["agg"], inclusive.request)[0].tpot_ms
    assert shown == pytest.approx((263.503 + 8.807 * 499) / 500, abs=5e-4)
    assert inclusive.tasks["agg"].best["tpot"][0] == plain.tasks["agg"].best["tpot"][0]


def test_files_have_the_columns_in_order_and_the_same_run_the_same_folder(tmp_path: Path):
    folder = save(result(), tmp_path)
    assert save(result(), tmp_path) == folder
    assert save(result(tpot=11), tmp_path) != folder
    assert folder.name.startswith("model_some_gpu_trtllm_isl4000_osl500_ttft300_tpot10_")
    with (folder / "agg" / "best_config_topn.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(agg_frame(1))
    assert [row["bs"] for row in rows] == ["16", "28"]
    assert rows[0]["tokens/s/gpu"] == "426.904"
    assert (folder / "disagg" / "pareto.csv").is_file()
    assert json.loads((folder / "manifest.json").read_text())["chosen"] == "disagg"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="save_dir"):
        save(result(), tmp_path / "file")
