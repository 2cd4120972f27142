# SPDX-License-Identifier: Apache-2.0
"""The agreement report: a sample of stored answers passes, altered ones and bad command lines do not."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.parity import main
from benchmarks.parity_cases import CASES

pytestmark = pytest.mark.as_shipped

REFERENCES = Path(__file__).parents[1] / "references"
FILES = ("ops_gemm", "ops_generation_attention", "ops_mem", "ops_nccl")


def altered(directory: Path, column: str, alter) -> list[str]:
    """Arguments for a copy of a sample in which one column is altered."""
    table = pq.read_table(REFERENCES / "ops_mem.parquet")
    place = table.column_names.index(column)
    values = alter(table.column(column).to_pylist())
    pq.write_table(table.set_column(place, column, pa.array(values)), directory / "ops_mem.parquet")
    return ["--from", str(directory), "ops_mem"]


def test_stored_answers_of_operators_agree(capsys):
    assert main(["--from", str(REFERENCES), *FILES]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["file", "rows", "answered"]
    assert [line.split()[0] for line in lines] == list(FILES)
    assert all(line.endswith("ok") for line in lines)


def test_stored_passes_with_beams_agree(capsys):
    stored = pq.read_table(REFERENCES / "forward.parquet")
    operators = " ".join(stored.column("per_op_json").to_pylist())
    assert set(stored.column("beam").to_pylist()) == {2}
    assert all(name in operators for name in ("bmm_rope_overlap", "bmm_post", "mla_block"))
    assert main(["--from", str(REFERENCES), "forward"]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert [int(line[1]), int(line[2]), int(line[5])] == [stored.num_rows, stored.num_rows, 0]


@pytest.mark.parametrize(("factor", "code"), [(1.001, 1), (1.00001, 0)])
def test_altered_latency_is_beyond_the_tolerance(tmp_path, factor, code):
    def scaled(values):
        return [None if value is None else value * factor for value in values]

    assert main(altered(tmp_path, "latency_ms", scaled)) == code


def test_tolerance_is_a_choice(tmp_path):
    arguments = altered(tmp_path, "latency_ms", lambda values: list(np.array(values, float) * 1.001))
    assert main([*arguments, "--rtol", "0.01"]) == 0


def test_answer_against_a_stored_error_is_wrong(tmp_path, capsys):
    def first_fails(errors):
        return ["PerfDataNotAvailableError", *errors[1:]]

    assert main([*altered(tmp_path, "error", first_fails), "--show", "1"]) == 1
    assert "1 rows, stored / ours: no data / ok" in capsys.readouterr().out


def test_rows_beyond_what_is_modelled_count_only_on_request(monkeypatch, capsys):
    monkeypatch.setitem(CASES, "ops_mem", dataclasses.replace(CASES["ops_mem"], scope={"mode": ("SILICON",)}))
    modes = pq.read_table(REFERENCES / "ops_mem.parquet").column("mode").to_pylist()
    for condition, rows, left_out in (
        ([], modes.count("SILICON"), len(modes) - modes.count("SILICON")),
        (["--where", "mode=SOL"], modes.count("SOL"), 0),
    ):
        assert main(["--from", str(REFERENCES), "ops_mem", *condition]) == 0
        line = capsys.readouterr().out.splitlines()[1].split()
        assert [int(line[1]), int(line[5])] == [rows, left_out]
        assert rows > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", str(REFERENCES), "ops_none"),
        ("--from", "nowhere", "ops_mem"),
        ("--from", str(REFERENCES), "ops_mem", "--where", "mode"),
        ("--from", str(REFERENCES), "ops_mem", "--where", "system=none"),
    ],
    ids=["unknown file", "no directory", "no condition", "no row"],
)
def test_bad_command_line_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refusal:
        main(arguments)
    assert refusal.value.code == 2
    assert "error: " in capsys.readouterr().err
