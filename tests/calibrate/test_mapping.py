# SPDX-License-Identifier: Apache-2.0
"""Measured servers described to the engine: models and number formats by rule, and rules that can be switched off."""

import dataclasses

import numpy as np
import pytest

from aicjax._results import DataError
from aicjax.calibrate.mapping import FormatRule, Stated, format_rules, map_row, map_rows
from aicjax.calibrate.measurements import read_measurements
from aicjax.models import load_model


def _row(family: str, precision: str, backend: str, path: str = "", gemm: str = "", moe: str = "") -> dict[str, str]:
    words = {"model_family": family, "precision": precision, "backend": backend, "model_path": path}
    return {**words, "gemm_quant_mode": gemm, "moe_quant_mode": moe}


@pytest.mark.parametrize(
    ("row", "rules", "model", "formats"),
    [
        (_row("minimax-m2.5", "fp8", "sglang"), "checkpoint", "MiniMaxAI/MiniMax-M2.5", {}),
        (
            _row("minimax-m2.5", "fp8", "vllm"),
            "checkpoint",
            "MiniMaxAI/MiniMax-M2.5",
            {},
        ),
        (
            _row("llama3.1-70b", "fp4", "trtllm"),
            "checkpoint",
            "meta-llama/Meta-Llama-3.1-70B",
            {"gemm": "nvfp4", "kvcache": "fp8"},
        ),
        (_row("deepseek-v3-671b", "fp8", "trtllm"), "checkpoint", "deepseek-ai/DeepSeek-V3", {}),
        (_row("deepseek-v3-671b", "fp8", "trtllm"), "measurements", "deepseek-ai/DeepSeek-V3", {"moe": "fp8"}),
        (
            _row("llama3.1-8b", "fp8", "sglang", gemm="fp8_block"),
            "measurements",
            "meta-llama/Meta-Llama-3.1-8B",
            {"gemm": "fp8_block", "moe": "fp8_block", "kvcache": "bfloat16", "fmha": "bfloat16"},
        ),
        (
            _row("deepseek-v3-671b", "fp4", "trtllm", "nvidia/DeepSeek-R1-NVFP4", "nvfp4", "nvfp4"),
            "labels",
            "nvidia/DeepSeek-V3.1-NVFP4",
            {"gemm": "nvfp4", "moe": "nvfp4"},
        ),
        (_row("gpt-oss-120b", "fp8", "vllm", "openai/gpt-oss-120b", "fp8", "fp8"), "labels", "openai/gpt-oss-120b", {}),
        (_row("new", "fp8", "vllm", "someone/new", "fp8"), "checkpoint", "someone/new", {"gemm": "fp8"}),
    ],
)
def test_rows_are_mapped(row, rules, model, formats):
    found = map_row(row, rules)
    assert (found.model, dict(found.formats)) == (model, formats)


@pytest.mark.parametrize("rules", ["labels", "checkpoint", "measurements"])
def test_every_shipped_row_is_mapped_to_a_bundled_model(rules):
    rows = read_measurements()
    configurations, codes = map_rows(rows.take(rows.clean), rules)
    assert set(codes) == set(range(len(configurations)))
    for model in {configuration.model for configuration in configurations}:
        load_model(model)


def test_rows_are_mapped_as_one_by_one():
    rows = read_measurements()
    rows = rows.take(np.arange(0, len(rows), 97))
    configurations, codes = map_rows(rows)
    for number, code in enumerate(codes):
        words = {name: str(getattr(rows, name)[number]) for name in _row("", "", "")}
        assert configurations[code] == map_row(words)


def test_what_launches_state_goes_over_the_rules():
    rows = read_measurements()
    rows = rows.take(np.flatnonzero((rows.model_family == "llama3.1-8b") & (rows.backend == "sglang"))[[0, 0, 0]])
    stated = Stated(np.array(["", "fp8", "bfloat16"]), np.array(["", "trtllm_mha", ""]))
    configurations, codes = map_rows(rows, "measurements", stated)
    plain, low, full = (configurations[code] for code in codes)
    assert plain == map_rows(rows, "measurements")[0][0]
    assert (dict(low.formats)["kvcache"], low.attention_backend) == ("fp8", "trtllm_mha")
    assert (dict(full.formats)["kvcache"], dict(full.formats)["fmha"]) == ("bfloat16", "bfloat16")
    assert full.attention_backend is None


def test_rules_state_their_basis_and_effect():
    assert {rule.basis for rule in format_rules()} == {"checkpoint", "measurements"}
    assert all(rule.effect for rule in format_rules())


@pytest.mark.parametrize("change", [{"when": {"colour": ["red"]}}, {"basis": "feeling"}])
def test_rules_out_of_schema_are_refused(change):
    with pytest.raises(DataError, match=r"mapping\.yaml"):
        dataclasses.replace(FormatRule({"family": ["a"]}, {"gemm": "fp8"}, "checkpoint", "none"), **change)
