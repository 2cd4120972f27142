# SPDX-License-Identifier: Apache-2.0
"""Passes of model families: totals and every operator against stored answers.

Families with layers of several kinds, and those with latent attention, also with experts over many GPUs. Among the rows
are what is not measured, a decode of one token (no step, whatever is measured) and a refused format.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.parity import main

pytestmark = pytest.mark.as_shipped

REFERENCES = Path(__file__).parents[1] / "references"
STORED, LATENT = REFERENCES / "passes", REFERENCES / "passes_latent"
WINDOWS_AND_EXPERTS, RECURRENT_AND_SPARSE = "system=h100_sxm", "system=b200_sxm"
SGLANG, TRTLLM = "backend=sglang", "backend=trtllm"


@pytest.mark.parametrize(
    ("stored", "families", "rows", "answered"),
    [
        (STORED, WINDOWS_AND_EXPERTS, "20", "17"),
        pytest.param(STORED, RECURRENT_AND_SPARSE, "16", "16", marks=pytest.mark.slow),
        (LATENT, SGLANG, "20", "19"),
        pytest.param(LATENT, TRTLLM, "15", "14", marks=pytest.mark.slow),
    ],
)
def test_passes_and_their_operators_are_the_stored_ones(capsys, stored, families, rows, answered):
    assert main(["--from", str(stored), "forward", "--where", families]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["forward", rows, answered, "0"]


@pytest.mark.parametrize("name", ["context_swa_attn_norm", "context_attention (scaled)"])
def test_one_altered_operator_is_told(tmp_path, capsys, name):
    table = pq.read_table(STORED / "forward.parquet")
    stored = table.column("per_op_json").to_pylist()
    row = next(position for position, text in enumerate(stored) if text and name in text)
    operators = json.loads(stored[row])
    stored[row] = json.dumps(operators | {name: 1.001 * operators[name]})
    place = table.column_names.index("per_op_json")
    pq.write_table(table.set_column(place, "per_op_json", pa.array(stored)), tmp_path / "forward.parquet")
    assert main(["--from", str(tmp_path), "forward", "--where", WINDOWS_AND_EXPERTS, "--show", "1"]) == 1
    assert f"1.0e-03 in {name}" in capsys.readouterr().out
