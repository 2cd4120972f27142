# SPDX-License-Identifier: Apache-2.0
"""`aicjax query`: stored points come back, bounds hold, every operator kind answers."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.cli.app import run
from aicjax.cli.query_commands import COMMANDS
from aicjax.ops import query, records
from aicjax.ops.query import OpTimes

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
        "moe -m 64 --hidden-size 4096 --inter-size 1536 --topk 8 --num-experts 128 --ep 4 --quant-mode fp8_block",
        "context-mla -b 2 --isl 1000 --num-heads 16",
    ],
)
def test_every_kind_answers_above_its_roofline(line: str, capsys: pytest.CaptureFixture[str]):
    (row,) = _query(line, capsys)
    assert row["latency_ms"] >= row["sol_ms"] * (1 - 1e-6) > 0


ATTENTION = "-b 2 --num-heads 16"
EXPERTS = "-m 8 --hidden-size 4096 --topk 8 --num-experts 128 --ep 8"
DELTA = "-b 2 --kernel x --d-model 4096 --num-k-heads 4 --num-v-heads 8"
LINES = {
    "gemm": "-m 8 -n 64 -k 64",
    "context-attention": f"{ATTENTION} --isl 100 --num-kv-heads 2 --cp-size 2 --qk-norm",
    "generation-attention": f"{ATTENTION} --kv-len 100 --num-kv-heads 2",
    "encoder-attention": f"{ATTENTION} --sequence 100 --rotary 0.5",
    "allreduce": "-m 8 --hidden-size 64 --tp 2",
    "nccl": "-m 8 --operation all_gather --num-gpus 4 --elements 0.5",
    "elementwise": "-m 8 --bytes-per-token 64",
    "embedding": "-m 8 --hidden-size 64 --vocab-size 1000",
    "p2p": "-m 8 --hidden-size 64",
    "moe": f"{EXPERTS} --inter-size 64 --no-gated",
    "moe-dispatch": f"{EXPERTS} --post",
    "all-to-all": f"{EXPERTS} --comm-backend deepep_ht --sms 20",
    "expert-compute": f"{EXPERTS} --inter-size 64 --num-slots 144",
    "megamoe": f"{EXPERTS} --inter-size 64 --quant-mode w4a8_mxfp4_mxfp8",
    "context-mla": f"{ATTENTION} --isl 100",
    "generation-mla": f"{ATTENTION} --kv-len 100",
    "mla-bmm": "-m 8 --num-heads 16 --post",
    "context-mla-block": f"{ATTENTION} --isl 100 --native-heads 128",
    "generation-mla-block": f"{ATTENTION} --kv-len 100 --native-heads 128",
    "context-mla-large-ep": f"{ATTENTION} --isl 100",
    "generation-mla-large-ep": f"{ATTENTION} --kv-len 100",
    "context-dsa": "-b 2 --isl 100 --model deepseek-ai/DeepSeek-V3.2 --tp 8",
    "generation-dsa": "-b 2 --kv-len 100 --model deepseek-ai/DeepSeek-V3.2 --tp 8",
    "context-dsv4": "-b 2 --isl 100 --model deepseek-ai/DeepSeek-V4-Flash --tp 8",
    "generation-dsv4": "-b 2 --kv-len 100 --model deepseek-ai/DeepSeek-V4-Flash --tp 8",
    "context-msa": "-b 2 --isl 100 --model MiniMaxAI/MiniMax-M3 --tp 8",
    "generation-msa": "-b 2 --kv-len 100 --model MiniMaxAI/MiniMax-M3 --tp 8",
    "mamba2": "-b 2 --kernel x --d-model 4096 --num-heads 64",
    "gdn": DELTA,
    "kda": f"{DELTA} --phase verify --draft-tokens 3",
    "mhc": "-m 8 --hidden-size 4096",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the command asks for, answered by made-up times."""
    question: dict[str, Any] = {}

    def latency(system, backend, version, ops, **options) -> OpTimes:
        question.update(options, ops=ops)
        ones = np.ones(len(ops))
        return OpTimes(ones, ones, np.full(len(ops), Provenance.EXACT))

    monkeypatch.setattr(query, "operator_latency", latency)
    yield question


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_kind_is_asked_as_its_flags_say(command, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    rows = _query(f"{command.name} {LINES[command.name]} --database-mode HYBRID --transfer-policy off", capsys)
    assert {type(op) for op in asked["ops"]} == {getattr(records, command.record)}
    assert (asked["mode"], asked["transfer_policy"]) == ("HYBRID", "off")
    assert all(np.ravel(asked[point]).size == len(rows) == len(asked["ops"]) for point in command.points)


def test_flags_are_fields(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    _query("context-attention -b 2 --isl 9 --num-heads 16 --num-kv-heads 2,4 --cp-size 2 --qk-norm --prefix 3", capsys)
    assert [(op.num_kv_heads, op.cp, op.qk_norm) for op in asked["ops"]] == [(2, 2, True), (4, 2, True)]
    assert [np.ravel(asked[point]).tolist() for point in ("batch", "length", "prefix")] == [[2, 2], [9, 9], [3, 3]]
    _query("moe-dispatch -m 8 --hidden-size 64 --topk 2 --num-experts 8 --post --generation", capsys)
    assert [(op.pre, op.context) for op in asked["ops"]] == [(False, False)]


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "x"])
def test_numbers_are_finite_and_not_negative(number: str, capsys: pytest.CaptureFixture[str]):
    assert run(f"query elementwise -m 8 --bytes-per-token={number} --system h200_sxm".split()) == 2
    assert "bytes_per_token" in capsys.readouterr().err


def test_operators_of_a_model_are_one_layer_each(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    rows = _query("context-dsv4 -b 2 --isl 100 --model deepseek-ai/DeepSeek-V4-Flash --tp 8", capsys)
    assert [row["ratio"] for row in rows] == [4, 128]
    assert {op.scale for op in asked["ops"]} == {1.0}


def test_a_model_without_the_operator_is_refused(capsys: pytest.CaptureFixture[str]):
    assert run("query context-dsa -b 1 --isl 9 --model Qwen/Qwen3-8B --system h200_sxm".split()) == 2
    assert "Argument `model` must be a model with DSA attention" in capsys.readouterr().err


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
