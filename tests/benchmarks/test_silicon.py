# SPDX-License-Identifier: Apache-2.0
"""The benchmark against measured servers: what it reports with and without a fitted spread; predictions are made up."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from aicjax.calibrate import predict as predictions
from aicjax.calibrate.levels import Components
from aicjax.calibrate.measurements import Measurements, shipped_path
from aicjax.calibrate.spread import NORMAL, Spread, as_plain
from benchmarks import silicon

FACTOR = 1.4


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some measured servers, all of them predicted too slow by one factor."""

    def predict(rows: Measurements, constants: str, rules: str) -> predictions.Prediction:
        attempt, reason = np.full(len(rows), "SILICON"), np.full(len(rows), "")
        kernels_ms = np.full(len(rows), 1e-3)
        times_ms = rows.ttft_ms * FACTOR, rows.tpot_ms * FACTOR
        return predictions.Prediction(times_ms[0], times_ms[1], kernels_ms, kernels_ms, attempt, reason)

    monkeypatch.setattr(predictions, "predict", predict)
    path = tmp_path / "servers.parquet"
    pq.write_table(pq.read_table(shipped_path()).slice(0, 400), path)
    return path


def _constants(folder: Path, deviation: float) -> str:
    part = np.eye(2)[None] * deviation**2 / 3
    tails = np.tile(NORMAL, (2, 1))
    spread = Spread(Components(part, part, part), tails, tails, 0 * part, ("trtllm/agg",))
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"base": "reference", "fit": {"spread": as_plain(spread)}}))
    return str(path)


def test_reference_constants_have_no_intervals(sample: Path):
    result = silicon.run([sample], "reference", "checkpoint", True, None)
    assert result["interval_coverage"] is None
    assert result["tpot"]["mape"] == pytest.approx(0, abs=1e-9)  # scaled by the anchor
    assert silicon.report(result)


@pytest.mark.parametrize(("deviation", "share"), [(0.1, 0.0), (1.0, 1.0)])
def test_coverage_counts_times_in_their_range(sample: Path, tmp_path: Path, deviation: float, share: float):
    result = silicon.run([sample], _constants(tmp_path, deviation), "checkpoint", False, None)
    assert result["interval_coverage"] == {"ttft": share, "tpot": share}
    assert result["tpot"]["mape"] == pytest.approx(100 * (FACTOR - 1))
    assert result["by"]["backend"]["trtllm"]["interval_coverage"] == result["interval_coverage"]


def test_anchors_move_predictions_part_of_the_way(sample: Path, tmp_path: Path):
    result = silicon.run([sample], _constants(tmp_path, 0.5), "checkpoint", True, None)
    assert 0 < result["tpot"]["mape"] < 20
    assert result["interval_coverage"] == {"ttft": 1.0, "tpot": 1.0}
    assert silicon.report(result)
