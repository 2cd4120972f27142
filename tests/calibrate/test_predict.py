# SPDX-License-Identifier: Apache-2.0
"""A sample of measured servers from end to end, against stored answers of AIConfigurator."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from aicjax.calibrate.measurements import Measurements, peer_times, read_measurements
from aicjax.calibrate.predict import Prediction, predict
from benchmarks import silicon

SAMPLE = Path(__file__).parents[1] / "references" / "silicon" / "servers.parquet"
SAME = 1e-4  # float32 step times against AIConfigurator's float64


@pytest.fixture(scope="module")
def sample() -> Measurements:
    return read_measurements([SAMPLE])


@pytest.fixture(scope="module")
def by_label(sample) -> Prediction:
    return predict(sample, rules="labels")


def test_recorded_labels_give_the_stored_answers(sample, by_label):
    ttft_ms, tpot_ms = peer_times(SAMPLE, sample)
    assert set(sample.mode) == {"agg", "disagg"}
    np.testing.assert_allclose(by_label.ttft_ms, ttft_ms, rtol=SAME)
    np.testing.assert_allclose(by_label.tpot_ms, tpot_ms, rtol=SAME)
    assert set(by_label.attempt) == {"SILICON"}
    assert by_label.refusals == {}


def test_step_times_bound_the_estimates(sample, by_label):
    agg = sample.is_agg
    assert (by_label.prefill_ms[agg] < by_label.ttft_ms[agg]).all()
    assert (by_label.decode_ms[agg] <= by_label.tpot_ms[agg] * (1 + SAME)).all()


def test_rows_without_an_answer_say_why(sample):
    rows = sample.take(np.flatnonzero(sample.is_agg)[:3])
    agg = dataclasses.replace(rows.agg, tp=np.array([0, 7, 1]))
    system = rows.system.astype("U16")
    system[2] = "abacus"
    found = predict(dataclasses.replace(rows, agg=agg, system=system))
    assert not found.answered.any()
    assert np.isnan([found.ttft_ms, found.tpot_ms, found.prefill_ms, found.decode_ms]).all()
    assert found.reason[0] == "workers unknown"
    assert "tp7" in found.reason[1]
    assert "abacus" in found.reason[2]
    assert sum(found.refusals.values()) == 3


def test_benchmark_scores_a_file(capsys):
    arguments = [str(SAMPLE), "--rules", "labels", "--constants", "reference", "--peer", str(SAMPLE)]
    assert silicon.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["coverage"], found["interval_coverage"]) == (1.0, None)
    for name in ("ttft", "tpot", "throughput"):
        ours, peer = found[name], found["peer"][name]
        assert ours["mape"] == pytest.approx(peer["mape"], rel=1e-3)
        assert ours["median"] == pytest.approx(peer["median"], rel=1e-2)
    result = {**found, "flagged": found["flagged"]}
    assert "AIConfigurator 0.12.0" in silicon.report(result)


@pytest.mark.parametrize("arguments", [["none.csv"], [str(SAMPLE), "--constants", "none"]])
def test_benchmark_refuses_in_one_line(arguments, capsys):
    assert silicon.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
