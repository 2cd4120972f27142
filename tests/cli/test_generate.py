# SPDX-License-Identifier: Apache-2.0
"""`aicjax generate`: the smallest layout that fits, stated layouts, and files that say what was predicted."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from aicjax._results import InputError, NoFeasible
from aicjax.cli.app import run
from aicjax.deploy.write import check_directory
from aicjax.explore import SearchRequest, estimate
from aicjax.explore.smallest import completed_point, smallest_layout

DENSE = "Qwen/Qwen3-32B"
EXPERTS = "Qwen/Qwen3-235B-A22B-FP8"
BASE = f"generate --model {DENSE} --system h200_sxm --total-gpus 4 --isl 2000 --osl 256"
PARITY = 1e-4  # relative: the same point, asked for in two ways


def request(model: str = DENSE, gpus: int = 8, **fields) -> SearchRequest:
    return SearchRequest(**{"model_path": model, "system": "h200_sxm", "total_gpus": gpus, **fields})


def generated(arguments: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert run(shlex.split(f"{BASE} {arguments} --json --save-dir {folder}")) == 0
    return json.loads(capsys.readouterr().out)


def test_smallest_dense_layout_is_cut_by_tensor_parallelism():
    small, large = smallest_layout(request()), smallest_layout(request(system="l40s", backend="vllm"))
    assert (small.layout.tp, small.layout.gpus) == (1, 1)
    assert (large.layout.tp, large.layout.gpus) == (2, 2)
    assert smallest_layout(request(), batch=100).layout.tp == 2


def test_smallest_layout_of_experts_is_cut_by_experts():
    layout = smallest_layout(request(EXPERTS, backend="vllm")).layout
    assert (layout.gpus, layout.dp, layout.moe_tp, layout.moe_ep) == (2, 1, 1, 2)


def test_a_batch_that_fits_is_the_largest_power_of_two():
    batch = smallest_layout(request()).batch
    assert batch & (batch - 1) == 0
    assert smallest_layout(request(gpus=1), batch=batch).layout.tp == 1
    with pytest.raises(NoFeasible, match="fit"):
        smallest_layout(request(gpus=1), batch=2 * batch)


@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_what_does_not_fit_is_refused(model: str):
    with pytest.raises(NoFeasible, match="fit"):
        smallest_layout(request(model, 1), batch=10_000)


def test_sizes_that_are_stated_are_kept():
    sizes = completed_point(request(EXPERTS), {"tp_size": 4}, "agg")
    assert (sizes["tp_size"], sizes["moe_tp_size"], sizes["moe_ep_size"]) == (4, 1, 4)
    with pytest.raises(InputError, match="64 query heads"):
        completed_point(request(), {"tp_size": 3}, "agg")


def test_disaggregated_deployment_fills_the_budget():
    sizes = completed_point(request(gpus=8), {"decode_tp_size": 2}, "disagg")
    assert (sizes["prefill_tp_size"], sizes["prefill_num_workers"], sizes["prefill_batch_size"]) == (1, 1, 1)
    assert (sizes["decode_tp_size"], sizes["decode_num_workers"]) == (2, 3)


def test_files_hold_the_estimate_of_the_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    answer = generated("--target bare-metal --tp 2 --batch-size 16 --name mine", tmp_path, capsys)
    (folder,) = check_directory(tmp_path)
    assert check_directory(tmp_path) == {folder: []}
    assert folder == str(tmp_path / "mine" / "bare-metal")
    assert answer["folder"] == str(tmp_path / "mine")
    stated: dict[str, Any] = {"tp_size": 2, "batch_size": 16, "isl": 2000, "osl": 256}
    point = estimate(model_path=DENSE, system="h200_sxm", **stated).row
    prediction = answer["deployment"]["prediction"]
    assert (answer["deployment"]["replicas"], prediction["concurrency"]) == (2, 32)
    assert prediction["ttft_ms"] == pytest.approx(point["ttft"], rel=PARITY)
    assert prediction["tokens_per_s"] == pytest.approx(2 * point["tokens/s"], rel=PARITY)
    (role,) = answer["deployment"]["roles"]
    assert role["max_running"] == {"simulated": 16, "deployed": 16, "reason": ""}


def test_limits_that_are_missed_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    limits = "--ttft 1 --tpot 1000"
    assert run(shlex.split(f"{BASE} --target dynamo {limits} --save-dir {tmp_path}")) == 0
    out = capsys.readouterr().out
    assert "misses the limit: ttft" in out
    assert "tpot" not in out
    assert "the smallest that fits memory" in out


def test_names_of_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = f"compat cli generate --model {DENSE} --system h200_sxm --total-gpus 2 --save-dir {tmp_path}"
    assert run(shlex.split(line)) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert {"k8s_deploy.yaml", "bench_run.sh", "run_0.sh"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("generate --system h200_sxm --total-gpus 4 --target dynamo", ["model", "given"]),
        (f"{BASE}", ["target", "given"]),
        (f"{BASE} --target dynmo", ["dynmo", "dynamo"]),
        (f"{BASE} --target dynamo --tp two", ["tp_size", "'two'", "whole number"]),
        (f"{BASE} --target dynamo --rules slow", ["rules", "slow"]),
        (f"{BASE} --target dynamo --serving-mode static", ["serving_mode", "static", "disagg"]),
        (f"{BASE} --target dynamo --dp 2", ["dp"]),
        (f"{BASE} --target dynamo --decode-tp-size 2", ["decode_tp_size", "absent", "agg"]),
        (f"{BASE} --target dynamo --batch-size {10**23}", ["batch_size", "from 1 to 1,000,000,000"]),
        (f"{BASE} --target dynamo --serving-mode disagg --batch-size 2", ["batch_size", "absent", "disagg"]),
        (f"{BASE} --target dynamo --osl 1", ["osl", "at least 2"]),
        (f"{BASE} --target dynamo --save-layout old", ["save_layout", "old"]),
        (f"{BASE} --target dynamo --backend auto", ["backend", "auto"]),
        (f"{BASE} --target dynamo --total-gpus 1 --tp 2", ["total_gpus", "2 GPUs"]),
    ],
)
def test_mistakes_are_one_line(arguments: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([*shlex.split(arguments), "--save-dir", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words)
    assert not list(tmp_path.iterdir())
