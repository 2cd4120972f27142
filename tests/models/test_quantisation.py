# SPDX-License-Identifier: Apache-2.0
"""Number formats: stored answers of AIConfigurator 0.12.0 for every model, and the rules one by one."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aicjax._results import DataError, InputError
from aicjax.compat import REFERENCE
from aicjax.hardware import load_system
from aicjax.models import infer_quantisation, load_model, parse_config, resolve_quantisation

REFERENCES = Path(__file__).parents[1] / "references"
ROWS = pq.read_table(REFERENCES / "quantisation.parquet").to_pylist()
ROLES = ("gemm", "moe", "kvcache", "fmha", "comm")
BASE = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 512,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


def formats(backend: str = "trtllm", hf_quant_config=None, explicit=None, **quantisation):
    """(gemm, moe, kvcache, fmha) of a small model with a `quantization_config`."""
    config = BASE | ({"quantization_config": quantisation} if quantisation else {})
    model = parse_config(config, hf_quant_config, name="small", source="small")
    found = infer_quantisation(model, backend, explicit)
    return found.gemm, found.moe, found.kvcache, found.fmha


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['system']}-{row['backend']}")
def test_resolved_formats_match_the_reference(row):
    explicit = {
        role.removesuffix("_quant_mode"): mode for role, mode in json.loads(row["quant_override"] or "{}").items()
    }
    found = resolve_quantisation(
        load_model(row["model"], compat=REFERENCE), load_system(row["system"]), row["backend"], row["version"], explicit
    )
    assert {role: getattr(found, role) for role in ROLES} == {role: row[role] for role in ROLES}


@pytest.mark.parametrize(
    ("quantisation", "expected"),
    [
        ({}, ("bfloat16", "bfloat16", "bfloat16", "bfloat16")),
        ({"quant_method": "fp8"}, ("fp8_static", "fp8", "fp8", "fp8")),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, ("fp8", "fp8", "fp8", "fp8")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_block", "fp8_block", "fp8", "fp8")),
        ({"quant_algo": "NVFP4", "kv_cache_dtype": "bf16"}, ("nvfp4", "nvfp4", "fp8", "fp8")),
        ({"quant_method": "mxfp4"}, ("bfloat16", "w4a16_mxfp4", "bfloat16", "bfloat16")),
        (
            {"quant_method": "mxfp4", "kv_cache_scheme": {"type": "float", "num_bits": 8}},
            ("bfloat16", "w4a16_mxfp4", "fp8", "fp8"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
                "ignore": ["re:.*self_attn.*"],
            },
            ("bfloat16", "int4_wo", "bfloat16", "bfloat16"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "block"}}},
                "ignore": ["model.layers.0.mlp.experts.0.down_proj"],
            },
            ("fp8_block", "bfloat16", "bfloat16", "bfloat16"),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.experts.3.w1": {"quant_algo": "NVFP4"},
                },
            },
            ("fp8_static", "nvfp4", "bfloat16", "bfloat16"),
        ),
        (
            {
                "quant_algo": "mixed-precision",
                "config_groups": {
                    "g": {"weights": {"num_bits": 8, "type": "float", "group_size": 32}, "targets": ["Linear"]}
                },
            },
            ("fp8_block", "bfloat16", "bfloat16", "bfloat16"),
        ),
    ],
)
def test_formats_a_checkpoint_implies(quantisation, expected):
    assert formats(**quantisation) == expected


def test_separate_quantisation_file_wins():
    hf_quant_config = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    assert formats(hf_quant_config=hf_quant_config) == ("nvfp4", "nvfp4", "fp8", "fp8")
    assert formats(hf_quant_config=hf_quant_config, quant_method="fp8")[0] == "nvfp4"


def test_vllm_runs_16_bit_prefill_attention_unless_told():
    assert formats("vllm", quant_method="fp8")[3] == "bfloat16"
    assert formats("vllm", quant_method="fp8", explicit={"fmha": "fp8"})[3] == "fp8"


def test_explicit_formats_win_one_by_one():
    explicit = {"gemm": "int8_wo", "kvcache": "bfloat16", "moe": None}
    assert formats(explicit=explicit, quant_method="fp8") == ("int8_wo", "fp8", "bfloat16", "fp8")


def test_who_chose_the_gemm_format_is_remembered():
    name = "nvidia/Qwen3-235B-A22B-NVFP4"
    model = load_model(name, compat=REFERENCE)
    assert not infer_quantisation(model, "trtllm").gemm_chosen
    assert infer_quantisation(model, "trtllm", {"gemm": "nvfp4"}).gemm_chosen
    hopper = resolve_quantisation(model, load_system("h200_sxm"), "trtllm", "1.3.0rc20")
    assert (hopper.gemm, hopper.moe, hopper.gemm_chosen) == ("nvfp4_wo", "nvfp4_wo", True)
    assert not resolve_quantisation(model, load_system("b200_sxm"), "trtllm", "1.3.0rc20").gemm_chosen
    assert not resolve_quantisation(load_model(name), load_system("h200_sxm"), "trtllm", "1.3.0rc20").gemm_chosen


def test_decode_workers_keep_an_fp8_label_that_prefill_cannot_have():
    model, h200 = load_model("deepseek-ai/DeepSeek-V3"), load_system("h200_sxm")
    assert resolve_quantisation(model, h200, "sglang", "0.5.14").fmha == "bfloat16"
    assert resolve_quantisation(model, h200, "sglang", "0.5.14", role_runs_prefill=False).fmha == "fp8"
    with pytest.raises(InputError, match="fmha_quant_mode"):
        resolve_quantisation(model, h200, "sglang", "0.5.14", {"fmha": "fp8"})


@pytest.mark.parametrize(("role", "mode"), [("gemm", "fp7"), ("kvcache", "nvfp4"), ("weights", "fp8")])
def test_unknown_format_is_refused(role, mode):
    with pytest.raises(InputError, match=role if role != "weights" else "explicit"):
        formats(explicit={role: mode})


@pytest.mark.parametrize("quantisation", [{"quant_method": "awq"}, {"quant_method": "fp8", "kv_cache_dtype": "fp4"}])
def test_unknown_checkpoint_format_is_refused(quantisation):
    with pytest.raises(DataError, match=r"small: .* is not known"):
        formats(**quantisation)
