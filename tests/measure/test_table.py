# SPDX-License-Identifier: Apache-2.0
"""From runs to the table of measurements: what `--anchor` and `--data` read, and contradictions that are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aicjax._results import DataError, InputError
from aicjax.calibrate import data_rules
from aicjax.calibrate.levels import Components
from aicjax.calibrate.loads import load_shapes
from aicjax.calibrate.measurements import shipped_path
from aicjax.calibrate.own_rows import read_own, read_servers
from aicjax.calibrate.personal import personal_levels
from aicjax.calibrate.spread import NORMAL, Spread
from aicjax.measure import Deployment, Lengths, Run, measured_table, read_runs, write_table

FILES = Path(__file__).parents[1] / "references" / "benchmarks"
RUN = Run(Path("run.json"), "vllm", "", "maker/model", 32, 1000.0, 200.0, 150.0, 12.0, 12.3, 320, 0)
SERVER = Deployment("", "h200_sxm", "vllm", "agg", {"tp": 4})


def _read(tmp_path: Path, runs: list[Run], server: Deployment = SERVER, ending: str = "csv", **lengths: int):
    path = tmp_path / f"measured.{ending}"
    write_table(measured_table(runs, server, Lengths(**lengths)), path)
    return read_own(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_imported_file_is_what_anchors_are_read_from(tmp_path: Path, ending: str):
    runs = read_runs(FILES / "sglang_bench_serving.jsonl")
    rows = _read(tmp_path, runs, ending=ending)
    assert rows.concurrency.tolist() == [8, 32]
    assert rows.ttft_ms.tolist() == [80.0, 150.0] and rows.tpot_ms.tolist() == [9.0, 12.0]
    assert rows.isl.tolist() == [1000, 1000] and rows.osl.tolist() == [200, 200]
    assert rows.agg.tp.tolist() == [4, 4] and rows.num_gpus.tolist() == [4, 4]
    part = np.eye(2)[None] * 0.04
    spread = Spread(Components(part, part, part), np.tile(NORMAL, (2, 1)), np.tile(NORMAL, (2, 1)), 0 * part, ("x",))
    found = personal_levels(rows, rows.ttft_ms / 1.5, rows.tpot_ms / 1.5, spread)
    (level,) = found.levels.values()
    assert 1.0 < level.ttft_level < 1.5 and 1.0 < level.tpot_level < 1.5


def test_a_fit_takes_the_same_file_beside_the_shipped_rows(tmp_path: Path):
    _read(tmp_path, [RUN])
    own, shipped = read_servers([tmp_path / "measured.csv"]), read_servers()
    both = read_servers([tmp_path / "measured.csv", shipped_path()])
    assert len(both) == len(own) + len(shipped) and both.model_path[0] == "maker/model"
    assert data_rules.clean(own).all()


def test_mean_lengths_are_not_shortened_again(tmp_path: Path):
    assert load_shapes(_read(tmp_path, [RUN])).mean_share.tolist() == [1.0]


def test_disaggregated_workers_are_kept(tmp_path: Path):
    layout = {"prefill_tp": 4, "prefill_workers": 2, "decode_dp": 4, "decode_workers": 1}
    rows = _read(tmp_path, [RUN], replace(SERVER, mode="disagg", layout=layout))
    assert (rows.prefill.tp[0], rows.prefill.count[0], rows.decode.dp[0], rows.num_gpus[0]) == (4, 2, 4, 12)


def test_nominal_lengths_join_the_loads_of_a_curve(tmp_path: Path):
    runs = [replace(RUN, isl=998.6), replace(RUN, isl=1003.2)]
    assert _read(tmp_path, runs).isl.tolist() == [999, 1003]
    assert _read(tmp_path, runs, isl=1000).isl.tolist() == [1000, 1000]
    with pytest.raises(DataError, match=r"mean isl is 998\.6, too far from the 2000 stated"):
        _read(tmp_path, runs, isl=2000)


@pytest.mark.parametrize(
    "run",
    [
        replace(RUN, ttft_ms=0.15, tpot_ms=0.012),  # seconds
        replace(RUN, ttft_ms=0.15),
        replace(RUN, tpot_ms=0.012),
        replace(RUN, ttft_ms=150e3, tpot_ms=12e3),  # microseconds
        replace(RUN, concurrency=320_000),
        replace(RUN, requests_per_s=2460.0),  # tokens
    ],
)
def test_times_of_another_unit_are_refused(run: Run):
    with pytest.raises(DataError, match=r"run\.json: .* units") as error:
        measured_table([run], SERVER)
    assert "\n" not in str(error.value)


def test_what_files_do_not_say_must_be_stated():
    unsaid = replace(RUN, model="", concurrency=None)
    with pytest.raises(InputError, match="model"):
        measured_table([unsaid], SERVER, Lengths(concurrency=32))
    named = replace(SERVER, model="maker/other")
    with pytest.raises(InputError, match="concurrency"):
        measured_table([unsaid], named)
    assert measured_table([unsaid], named, Lengths(concurrency=32))["concurrency"].to_pylist() == [32]


def test_a_concurrency_that_contradicts_the_file_is_refused():
    with pytest.raises(DataError, match="concurrency is 32, but 16 was stated"):
        measured_table([RUN], SERVER, Lengths(concurrency=16))


def test_other_endings_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"parquet or \.csv"):
        write_table(measured_table([RUN], SERVER), tmp_path / "measured.json")
