# SPDX-License-Identifier: Apache-2.0
"""Levels of a user's own servers: from a short table to a constants file that searches read."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from aicjax._results import DataError, InputError
from aicjax.calibrate.levels import Components
from aicjax.calibrate.own_rows import NEEDED, read_own
from aicjax.calibrate.personal import as_yaml, personal_levels, spread_in_force
from aicjax.calibrate.spread import NORMAL, Spread, as_plain
from aicjax.constants import levels, load_constants
from aicjax.report import personal as reports

MODEL, SYSTEM = "maker/model", "h200_sxm"
GROUP, CURVE, NOISE = 0.3, 0.1, 0.05
TAILS = np.tile(NORMAL, (2, 1))


def _spread() -> Spread:
    parts = (value**2 * np.eye(2)[None] for value in (GROUP, CURVE, NOISE))
    return Spread(Components(*parts), TAILS, TAILS, np.zeros((1, 2, 2)), ("vllm/agg",))


def _table(path: Path, count: int, *, factor: float = 1.0, **columns: list) -> Path:
    """Servers that take 100 and 10 ms times a factor; every one is a curve of its own."""
    values = {
        "model": [MODEL] * count,
        "system": [SYSTEM] * count,
        "backend": ["vllm"] * count,
        "isl": list(range(1000, 1000 + count)),
        "osl": [200] * count,
        "concurrency": [16] * count,
        "ttft_ms": [100.0 * factor] * count,
        "tpot_ms": [10.0 / factor] * count,
        **columns,
    }
    rows = zip(*values.values(), strict=True)
    path.write_text("\n".join([",".join(values), *(",".join(map(str, row)) for row in rows)]))
    return path


def _levels(path: Path):
    rows = read_own(path)
    return personal_levels(rows, np.full(len(rows), 100.0), np.full(len(rows), 10.0), _spread())


def test_a_short_table_becomes_measured_rows(tmp_path: Path):
    rows = read_own(_table(tmp_path / "own.csv", 2, tp=[4, 1], dp=[1, 8], moe_ep=[2, 8]))
    assert rows.agg.tp.tolist() == [4, 1]
    assert rows.agg.dp.tolist() == [1, 8]
    assert rows.agg.moe_tp.tolist() == [2, 1]  # what expert parallelism leaves
    assert rows.agg.batch.tolist() == [16, 2]
    assert rows.num_gpus.tolist() == [4, 8]
    assert rows.agg.known.all() and rows.clean.all() and not rows.queue_saturated.any()
    assert set(rows.model_path) == set(rows.model_family) == {MODEL}


def test_disaggregated_rows_have_workers_of_both_roles(tmp_path: Path):
    columns = {"mode": ["disagg"], "prefill_tp": [4], "prefill_workers": [2], "decode_dp": [4], "decode_workers": [1]}
    rows = read_own(_table(tmp_path / "own.csv", 1, **columns))
    assert (rows.prefill.tp[0], rows.prefill.count[0], rows.prefill.batch[0]) == (4, 2, 1)
    assert (rows.decode.dp[0], rows.decode.batch[0], rows.num_gpus[0]) == (4, 4, 12)
    assert not rows.agg.known[0]


@pytest.mark.parametrize("missing", NEEDED)
def test_a_missing_column_is_named(tmp_path: Path, missing: str):
    path = _table(tmp_path / "own.csv", 1)
    header, row = (line.split(",") for line in path.read_text().splitlines())
    kept = [at for at, name in enumerate(header) if name != missing]
    path.write_text("\n".join(",".join(line[at] for at in kept) for line in (header, row)))
    with pytest.raises(DataError, match=f"column {missing} is missing"):
        read_own(path)


@pytest.mark.parametrize("columns", [{"concurrency": [0]}, {"tp": ["four"]}, {"tpot_ms": [-1.0]}])
def test_values_that_are_no_measurement_are_refused(tmp_path: Path, columns: dict):
    with pytest.raises(DataError):
        read_own(_table(tmp_path / "own.csv", 1, **columns))


def test_a_saturated_ttft_is_not_used(tmp_path: Path):
    found = _levels(_table(tmp_path / "own.csv", 1, ttft_ms=[50_000.0]))
    level = found.levels[MODEL, SYSTEM, "vllm"]
    assert level.ttft_level == 1.0
    assert level.tpot_level == 1.0


def test_ten_measurements_overrule_the_prior_and_one_does_not(tmp_path: Path):
    one, ten = (_levels(_table(tmp_path / f"{count}.csv", count, factor=1.5)) for count in (1, 10))
    for found, least, most in ((one, 0.6, 0.95), (ten, 0.9, 1.0)):
        level = found.levels[MODEL, SYSTEM, "vllm"]
        for factor, sign in ((level.ttft_level, 1), (level.tpot_level, -1)):
            assert least < sign * np.log(factor) / np.log(1.5) < most
    narrow, wide = (found.levels[MODEL, SYSTEM, "vllm"].log_covariance for found in (ten, one))
    assert narrow[0][0] < 0.2 * wide[0][0] < 0.2 * GROUP**2


def test_error_after_is_that_of_the_other_measurements(tmp_path: Path):
    one, ten = (_levels(_table(tmp_path / f"{count}.csv", count, factor=1.5)) for count in (1, 10))
    assert one.after["ttft"]["mape"] == pytest.approx(one.before["ttft"]["mape"])  # there are no others
    assert ten.after["ttft"]["mape"] < 0.2 * ten.before["ttft"]["mape"]


def test_the_file_holds_levels_that_searches_read(tmp_path: Path):
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump({"base": "reference", "fit": {"spread": as_plain(_spread())}}))
    found = _levels(_table(tmp_path / "own.csv", 5, factor=1.5))
    path = tmp_path / "mine.yaml"
    path.write_text(as_yaml(found, str(base)))
    name = str(path)
    loop = load_constants("vllm", name, model=MODEL, system=SYSTEM).loop
    level = found.levels[MODEL, SYSTEM, "vllm"]
    assert (loop.ttft_level, loop.tpot_level) == pytest.approx((level.ttft_level, level.tpot_level), abs=1e-4)
    for backend, model, system in (("sglang", MODEL, SYSTEM), ("vllm", "other", SYSTEM), ("vllm", "", "")):
        other = load_constants(backend, name, model=model, system=system).loop
        assert (other.ttft_level, other.tpot_level) == (1.0, 1.0)
    np.testing.assert_allclose(levels(name)[MODEL, SYSTEM, "vllm"].log_covariance, level.log_covariance, atol=1e-5)
    assert spread_in_force(name).kinds == ("vllm/agg",)  # of the base


def test_a_set_without_a_fit_is_refused():
    with pytest.raises(InputError, match="fitted to measured servers"):
        spread_in_force("reference")


@pytest.mark.parametrize(
    "change", [{"tpot_level": 0.0}, {"tpot_level": "x"}, {"system": None}, {"log_covariance": [1]}]
)
def test_a_broken_level_is_refused(tmp_path: Path, change: dict):
    entry = {"model": MODEL, "system": SYSTEM, "backend": "vllm", "ttft_level": 1.1, "tpot_level": 0.9}
    entry |= {"log_covariance": [[0.1, 0.0], [0.0, 0.1]]} | change
    path = tmp_path / "mine.yaml"
    path.write_text(
        yaml.safe_dump({"base": "reference", "levels": [{k: v for k, v in entry.items() if v is not None}]})
    )
    with pytest.raises(DataError, match="level"):
        levels(str(path))


def test_the_report_states_levels_and_both_errors(tmp_path: Path):
    found = _levels(_table(tmp_path / "own.csv", 10, factor=1.5))
    text = "\n".join(reports.lines(found))
    assert f"{MODEL} on {SYSTEM}, vllm, 10 measured: TTFT x 1.4" in text
    assert f"{found.before['tpot']['mape']:.1f} / " in text and f"{found.after['tpot']['mape']:.1f} / " in text
    plain = reports.as_dict(found)
    assert plain["levels"][0]["ttft_level"] == found.levels[MODEL, SYSTEM, "vllm"].ttft_level
