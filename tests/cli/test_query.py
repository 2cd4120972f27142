# SPDX-License-Identifier: Apache-2.0
"""`aicjax query`: stored points come back, bounds hold, every operator kind answers."""

import json

import pytest

from aicjax.cli.app import run

WHERE = ["--system", "h200_sxm", "--json"]


def _query(line: str, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    code = run(["query", *line.split(), *WHERE])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)["rows"]


def test_answer_covers_all_combinations(capsys: pytest.CaptureFixture[str]):
    rows = _query("gemm -m 64,100 -n 4096,5120 -k 4096 --quant-mode fp8", capsys)
    assert [(row["n"], row["tokens"]) for row in rows] == [(4096, 64), (4096, 100), (5120, 64), (5120, 100)]
    assert [row["provenance"] for row in rows] == ["exact", "interpolated"] * 2
    assert all(0 < row["utilization"] <= 1 for row in rows)


@pytest.mark.parametrize(
    "line",
    [
        "gemm -m 64 -n 4096 -k 4096",
        "context-attention -b 4 --isl 4000 --num-heads 16 --num-kv-heads 2 --prefix 500",
        "generation-attention -b 64 --kv-len 4000 --num-heads 16 --num-kv-heads 2 --kvcache-quant-mode fp8",
        "allreduce -m 64 --hidden-size 5120 --tp 4",
        "nccl -m 64 --operation all_gather --num-gpus 4 --elements 5120",
        "elementwise -m 64 --bytes-per-token 20480",
        "embedding -m 64 --hidden-size 5120 --vocab-size 151936",
        "p2p -m 64 --hidden-size 5120",
    ],
)
def test_every_kind_answers_above_its_roofline(line: str, capsys: pytest.CaptureFixture[str]):
    (row,) = _query(line, capsys)
    assert row["latency_ms"] >= row["sol_ms"] * (1 - 1e-6) > 0


def test_roofline_mode_is_the_roofline(capsys: pytest.CaptureFixture[str]):
    (row,) = _query("gemm -m 64 -n 4096 -k 4096 --database-mode SOL", capsys)
    assert row["provenance"] == "sol"
    assert row["utilization"] == 1


def test_nothing_measured_is_exit_4(capsys: pytest.CaptureFixture[str]):
    line = "query nccl -m 64 --operation all_gathr --num-gpus 4 --system h200_sxm"
    assert run(line.split()) == 4
    captured = capsys.readouterr()
    assert "missing" in captured.out
    assert captured.err.count("\n") == 1


def test_shapes_that_do_not_vary_are_in_the_title(capsys: pytest.CaptureFixture[str]):
    assert run("query gemm -m 64,128 -n 4096 -k 4096 --system h200_sxm".split()) == 0
    assert "n 4096, k 4096" in " ".join(capsys.readouterr().out.split())
