# SPDX-License-Identifier: Apache-2.0
"""Experiment files: keys and defaults, both forms, refusals that name the place, and a comparison of two searches."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from aicjax._results import InputError, NoFeasible
from aicjax.explore import run_experiments
from aicjax.explore.experiments import read_experiments

MODEL = "Qwen/Qwen3-32B-FP8"
AGG: dict[str, Any] = {"serving_mode": "agg", "model_path": MODEL, "system_name": "h200_sxm", "total_gpus": 16}
DISAGG: dict[str, Any] = {
    "serving_mode": "disagg",
    "total_gpus": 16,
    **{f"{role}_{key}": value for role in ("prefill", "decode") for key, value in AGG.items() if "_gpus" not in key},
}
del DISAGG["prefill_serving_mode"], DISAGG["decode_serving_mode"]


def request(stated: dict[str, Any], **shared: Any):
    return read_experiments({"only": stated}, **shared).requests["only"]


def test_defaults_are_those_of_experiments():
    read = request(AGG)
    assert (read.isl, read.osl, read.ttft, read.tpot) == (4000, 1000, 1000.0, 50.0)
    assert (read.backend, read.database_mode, read.serving_mode) == ("trtllm", "SILICON", "agg")


def test_roles_of_a_disaggregated_experiment_are_apart():
    read = request(
        {
            **DISAGG,
            "decode_system_name": "h100_sxm",
            "prefill_gemm_quant_mode": "fp8",
            "decode_backend_version": "1.2.0rc5",
            "rate_match_prefill_degradation": 0.8,
        }
    )
    assert (read.of_role("prefill", "system"), read.of_role("decode", "system")) == ("h200_sxm", "h100_sxm")
    assert (read.quant_modes("prefill"), read.quant_modes("decode")) == ({"gemm": "fp8"}, {})
    assert (read.of_role("prefill", "backend_version"), read.of_role("decode", "backend_version")) == (None, "1.2.0rc5")
    assert read.corrections == {"prefill_degradation": 0.8}


def test_order_selects_and_what_cannot_run_is_skipped():
    content = {"exps": ["b", "a", "c"], "a": AGG, "b": AGG, "c": {**AGG, "total_gpus": None}, "d": {"isl": 1}}
    read = read_experiments(content, top_n=2)
    assert list(read.requests) == ["b", "a"]
    assert read.skipped == {"c": "total_gpus is not stated"}
    assert read.requests["a"].top_n == 2


def test_names_in_the_order_that_are_not_defined_are_skipped():
    read = read_experiments({"exps": ["a", "aa"], "a": AGG})
    assert list(read.requests) == ["a"]
    assert read.skipped == {"aa": "it is not defined, and must be one of a (did you mean a?)"}


def test_a_file_that_is_one_experiment_is_called_after_the_file(tmp_path: Path):
    path = tmp_path / "exp_config.yaml"
    path.write_text(yaml.safe_dump(AGG))
    assert list(read_experiments(path).requests) == ["exp_config"]


def test_keys_of_the_other_serving_mode_may_be_empty():
    """As a resolved experiment of AIConfigurator states them."""
    roles = {f"{role}_{key}": "" for role in ("prefill", "decode") for key in ("model_path", "system_name")}
    engines = {"prefill_backend_name": "trtllm", "decode_backend_name": "trtllm", "prefill_max_batch_size": 1}
    assert request({**AGG, **roles, **engines}).serving_mode == "agg"
    shared = {"model_path": "", "system_name": "", "backend_name": "trtllm", "enable_chunked_prefill": False}
    assert request({**DISAGG, **shared, "afd_prefill_max_candidates": 256}).model_path == MODEL


def test_shared_fields_are_of_experiments_that_do_not_state_them():
    content = {"a": AGG, "b": {**AGG, "compat": "default"}}
    read = read_experiments(content, compat="reference")
    assert [search.compat for search in read.requests.values()] == ["reference", "default"]


def test_keys_of_what_is_not_modelled_may_ask_for_nothing():
    stated = {
        **AGG,
        "enable_epd": False,
        "forward_model": "op_level",
        "afd_max_a_batch_size": 1024,
        "moe_backend": "None",
    }
    assert request(stated) == request(AGG)


def test_nested_form_is_the_flat_one():
    nested = {
        "mode": "patch",
        "serving_mode": "disagg",
        "model_path": MODEL,
        "system_name": "h200_sxm",
        "total_gpus": 16,
        "decode_system_name": "h100_sxm",
        "profiles": ["fp8"],
        "config": {
            "nextn": 2,
            "nextn_accept_rates": [0.5, 0.4, 0.1],
            "prefill_worker_config": {"tp_list": [1, 2], "gemm_quant_mode": "fp8_block"},
            "replica_config": {"max_decode_worker": 4},
            "advanced_tuning_config": {"decode_latency_correction_scale": 1.2},
        },
    }
    formats = {"moe_quant_mode": "fp8", "kvcache_quant_mode": "fp8", "fmha_quant_mode": "fp8"}
    flat = {
        **DISAGG,
        **{f"{role}_{key}": mode for role in ("prefill", "decode") for key, mode in formats.items()},
        "prefill_gemm_quant_mode": "fp8_block",
        "decode_gemm_quant_mode": "fp8",
        "decode_system_name": "h100_sxm",
        "nextn": 2,
        "nextn_accepted": 0.5 + 0.5 * 0.4,
        "prefill_tp_candidates": [1, 2],
        "max_decode_workers": 4,
        "decode_latency_correction": 1.2,
    }
    assert request(nested) == request(flat)


@pytest.mark.parametrize(
    ("stated", "parts"),
    [
        ({**AGG, "tpott": 16}, ["x.yaml", "odd.tpott", "`tpot`"]),
        ({**AGG, "agg_tp_candidate": [1]}, ["odd.agg_tp_candidate", "`agg_tp_candidates`"]),
        ({**AGG, "serving_mode": "disag"}, ["odd.serving_mode", "disagg"]),
        ({**AGG, "isl": "long"}, ["x.yaml", "odd.isl", "whole number"]),
        ({**AGG, "forward_model": "fpm"}, ["odd.forward_model", "not modelled"]),
        ({**AGG, "prefill_system_name": "h100_sxm"}, ["odd.prefill_system_name", "agg"]),
        ({**DISAGG, "model_path": MODEL}, ["odd.model_path", "prefill and decode"]),
        ({**DISAGG, "decode_model_path": "Qwen/Qwen3-8B"}, ["odd.decode_model_path", MODEL]),
        ({**DISAGG, "decode_backend_name": "vllm"}, ["odd.decode_backend_name", "trtllm"]),
        ({**AGG, "mode": "patch", "profiles": ["fp9"]}, ["odd.profiles", "fp8"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[-1],
)
def test_refusal_names_file_experiment_and_key(stated: dict[str, Any], parts: list[str], tmp_path: Path):
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump({"odd": stated}))
    with pytest.raises(InputError) as refusal:
        read_experiments(file)
    for part in parts:
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "YAML"),
        ("- 1", "mapping"),
        ("exps: [b]\na: {}", "one of a"),
        ("a: {isl: 3}", "serving_mode is not stated"),
    ],
)
def test_file_without_experiments_is_refused(text: str, part: str, tmp_path: Path):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=part):
        read_experiments(file)


def test_experiments_are_compared_and_a_failing_one_stops_none():
    small = {**AGG, "model_path": "Qwen/Qwen3-8B", "total_gpus": 1, "osl": 100, "agg_tp_candidates": [1]}
    content = {"slow": {**small, "tpot": 8}, "fast": small, "wrong": {**small, "system_name": "h300"}}
    result = run_experiments(content, top_n=1)
    assert list(result.tasks) == ["slow", "fast"]
    assert result.chosen == "fast"
    assert result.require() is result.tasks["fast"]
    assert list(result.errors) == ["wrong"]
    assert isinstance(result.errors["wrong"], InputError)
    assert result.tasks["slow"].score < result.tasks["fast"].score
    with pytest.raises(NoFeasible, match="slow"):
        run_experiments({"slow": {**small, "tpot": 0.5}}).require()
