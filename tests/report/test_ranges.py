# SPDX-License-Identifier: Apache-2.0
"""Ranges of figures: shown where the constants in force have a spread, and nowhere else."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from aicjax._results import Provenance
from aicjax.explore.columns import CLUSTER
from aicjax.explore.result import Explanation, SearchResult, StepTimes
from aicjax.report import ranges, result_json, result_text, summary
from tests.report.frames import agg_frame
from tests.report.results import result, task

DEVIATION = {"group": 0.1, "curve": 0.2, "noise": 0.1}
TOTAL = np.sqrt(0.06)


def _constants(folder: Path, scale: float = 1.0) -> str:
    """A file on the reference set with errors of one kind, the same for TTFT and TPOT."""
    tails = {"ttft": [-1.2816, 1.2816], "tpot": [-1.2816, 1.2816]}
    deviations = {**DEVIATION, "constants": 0.05}  # of the level of the group
    kind = {name: [[scale * value**2, 0.0], [0.0, scale * value**2]] for name, value in deviations.items()}
    spread = {"tails": tails, "anchored_tails": tails, "kinds": {"trtllm/agg": kind}}
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"base": "reference", "fit": {"spread": spread}}))
    return str(path)


def _result(constants: str, **changes) -> SearchResult:
    return result(task("agg", agg_frame(16, 28), **changes), constants=constants)


def _ranges(found: SearchResult) -> list[ranges.Ranges | None]:
    return ranges.of_task(found.tasks["agg"], found.request)


def test_reference_constants_have_no_ranges():
    found = result(task("agg", agg_frame(16, 28)), constants="reference")
    assert _ranges(found) == [None, None]
    assert result_json.as_dict(found)["experiments"]["agg"]["rows"][0]["ranges"] is None
    assert "80 %" not in _text(found) and "in 8 of 10 cases" not in _text(found)


def test_ranges_are_quantiles_around_the_figures(tmp_path: Path):
    found = _result(_constants(tmp_path), explain=None)
    for row, sure in zip(summary.top_rows(found.tasks["agg"], found.request), _ranges(found), strict=True):
        assert sure is not None and sure.tpot_ms is not None
        for quantiles, value in ((sure.ttft_ms, row.ttft_ms), (sure.tpot_ms, row.tpot_ms)):
            assert quantiles[1] == pytest.approx(value)
            np.testing.assert_allclose(np.log(np.array(quantiles) / value), 1.2816 * TOTAL * np.array([-1, 0, 1]))
        low, middle, high = sure.tokens_per_s_per_gpu
        assert low < middle < high
        assert middle == pytest.approx(row.tokens_per_s_per_gpu, rel=0.02)


def test_probabilities_follow_the_limits(tmp_path: Path):
    found = _result(_constants(tmp_path))
    first = _ranges(found)[0]
    assert first is not None and first.limits_met is not None
    generous = dataclasses.replace(found, request=found.request.model_copy(update={"ttft": 1e6, "tpot": 1e6}))
    strict = dataclasses.replace(found, request=found.request.model_copy(update={"ttft": 1e-3}))
    in_time, late = _ranges(generous)[0], _ranges(strict)[0]
    assert in_time is not None and late is not None
    assert (in_time.limits_met, late.limits_met) == (1.0, 0.0)
    assert 0.0 < first.limits_met < 1.0
    assert first.best_is_better is None


def test_a_wider_spread_makes_the_order_less_certain(tmp_path: Path):
    frame = agg_frame(16, 28)
    frame[CLUSTER] = frame[CLUSTER] * [1.0, 0.8]
    chances = []
    for scale in (0.01, 4.0):
        found = result(task("agg", frame, explain=None), constants=_constants(tmp_path, scale))
        second = _ranges(found)[1]
        assert second is not None and second.best_is_better is not None
        chances.append(second.best_is_better)
    assert chances[0] > 0.99 > 0.8 > chances[1] > 0.5


def test_unsure_tables_widen_the_range_of_what_they_price(tmp_path: Path):
    def with_source(code: Provenance) -> ranges.Ranges:
        steps = (
            StepTimes("mixed step", ("gemm",), (5.0,), (Provenance.INTERPOLATED,)),
            StepTimes("decode step", ("gemm", "attention"), (4.0, 4.0), (code, code)),
        )
        why = Explanation((), "tpot", None, "", 1.0, steps)
        found = _ranges(_result(_constants(tmp_path), explain=lambda _: why))[0]
        assert found is not None
        return found

    measured, estimated = with_source(Provenance.INTERPOLATED), with_source(Provenance.SOL)
    assert measured.tpot_ms is not None and estimated.tpot_ms is not None
    assert estimated.tpot_ms[2] > 1.3 * measured.tpot_ms[2]
    assert estimated.ttft_ms == pytest.approx(measured.ttft_ms)


def test_text_and_json_show_the_same_ranges_unless_they_are_left_out(tmp_path: Path):
    found = _result(_constants(tmp_path))
    first = _ranges(found)[0]
    assert first is not None
    text = _text(found, width=200)
    assert "TTFT\n" in text.replace("   ", "\n") and text.count("80 %") == 2
    assert f"in 8 of 10 cases TTFT {ranges.cell(first.ttft_ms)} ms" in text
    assert f"{first.limits_met:.0%}" in text
    rows = json.loads(json.dumps(result_json.as_dict(found)))["experiments"]["agg"]["rows"]
    assert rows[0]["ranges"]["ttft_ms"] == pytest.approx(first.ttft_ms)
    assert "80 %" not in _text(found, width=200, interval=False)
    left_out = result_json.as_dict(found, interval=False)["experiments"]["agg"]["rows"]
    assert left_out[0]["ranges"] is None


def test_levels_of_own_measurements_narrow_the_range(tmp_path: Path):
    base = _constants(tmp_path)
    level = {"model": "maker/model", "system": "some_gpu", "backend": "trtllm", "ttft_level": 1.0, "tpot_level": 1.0}
    level["log_covariance"] = [[0.0026, 0.0], [0.0, 0.0026]]
    for system, narrower in (("some_gpu", True), ("other_gpu", False)):
        path = tmp_path / f"{system}.yaml"
        path.write_text(yaml.safe_dump({"base": base, "levels": [{**level, "system": system}]}))
        usual, own = (_ranges(_result(name))[0] for name in (base, str(path)))
        assert usual is not None and own is not None
        assert (own.ttft_ms[2] < 0.99 * usual.ttft_ms[2]) == narrower
        assert narrower or own == usual


def test_modes_that_were_never_measured_have_no_ranges(tmp_path: Path):
    found = result(task("afd", agg_frame(16)), constants=_constants(tmp_path))
    assert ranges.of_task(found.tasks["afd"], found.request) == [None]


@pytest.mark.parametrize(
    ("quantiles", "text"),
    [((8.12, 10.0, 12.46), "8.1 - 12.5"), ((812.4, 1000.0, 1246.0), "812 - 1246"), ((0.5, 0.6, 0.71), "0.500 - 0.710")],
)
def test_cells_have_three_digits(quantiles: ranges.Quantiles, text: str):
    assert ranges.cell(quantiles) == text


def _text(found: SearchResult, width: int = 110, **options: bool) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        result_text.print_result(found, console, **options)
    return capture.get()
