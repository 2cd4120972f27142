# SPDX-License-Identifier: Apache-2.0
"""Families whose layers differ in kind: stored operator lists of AIConfigurator 0.12.0, and their KV caches."""

import dataclasses
import json
from pathlib import Path

import pytest

from aicjax._results import InputError
from aicjax.compat import REFERENCE
from aicjax.models import Parallel, Quantisation, kv_cache, load_model, op_lists
from aicjax.ops.records import Gemm
from tests.models.stored_lists import stored_forms

ENTRIES = json.loads((Path(__file__).parents[1] / "references" / "oplists_hybrid.json").read_text())
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
BF16 = Quantisation("bfloat16", "bfloat16", "bfloat16", "bfloat16", "half")


def entry_name(entry: dict) -> str:
    return f"{entry['model'].split('/')[1]}-{entry['backend']}-tp{entry['tp']}cp{entry['cp']}nextn{entry['nextn']}"


def cache_bytes(name: str, length: int, parallel: Parallel, backend: str = "sglang", nextn: int = 0) -> float:
    cache = kv_cache(load_model(name), parallel, BF16, backend, nextn)
    grown = (term.rate_bytes * (min(length, term.window) // term.stride) for term in cache.terms)
    return cache.state_bytes + sum(grown)


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_name)
def test_op_list_matches_the_reference(entry):
    parallel = Parallel(*(entry[size] for size in SIZES))
    quantisation = Quantisation(**entry["quant"], gemm_chosen=entry["gemm_chosen"])
    lists = op_lists(
        load_model(entry["model"], compat=REFERENCE), parallel, quantisation, entry["backend"], entry["nextn"]
    )
    assert stored_forms(lists.context) == entry["context"]
    assert stored_forms(lists.generation) == entry["generation"]
    assert sum(op.weight_bytes for op in lists.context) / parallel.pp == entry["weights_bytes"]


def test_window_layers_stop_to_cache_at_the_window():
    gemma = load_model("google/gemma-4-26B-A4B")
    kinds, window = gemma.extra["layer_types"], gemma.extra["window"]
    grown = cache_bytes(gemma.name, 2 * window, Parallel()) - cache_bytes(gemma.name, window, Parallel())
    head_bytes = 2 * 2 * gemma.extra["global_kv_heads"] * gemma.extra["global_head_dim"]
    assert grown == window * kinds.count("full_attention") * head_bytes


def test_recurrent_state_is_there_before_the_first_token_and_split_by_tp():
    whole, half = (cache_bytes("moonshotai/Kimi-K3", 0, Parallel(tp=tp)) for tp in (1, 2))
    assert whole == 2 * half > 0


def test_drafts_of_kimi_k3_cache_their_own_keys():
    plain, drafted = (cache_bytes("moonshotai/Kimi-K3", 1, Parallel(tp=8, moe_ep=8), "vllm", nextn) for nextn in (0, 3))
    assert drafted - plain == 5 * (512 + 64) * 2


@pytest.mark.parametrize(
    ("name", "parallel", "nextn", "argument"),
    [
        ("Qwen/Qwen3.5-27B", Parallel(tp=32), 0, "tp"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", Parallel(), 1, "nextn"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", Parallel(tp=2, moe_ep=2), 0, "moe_ep"),
    ],
)
def test_what_a_family_cannot_run_is_refused(name, parallel, nextn, argument):
    with pytest.raises(InputError) as caught:
        op_lists(load_model(name), parallel, BF16, "sglang", nextn)
    assert caught.value.argument == argument


@pytest.mark.parametrize("name", ["nvidia/Gemma-4-26B-A4B-NVFP4", "nvidia/Qwen3.6-35B-A3B-NVFP4"])
def test_a_chosen_dense_format_overrides_the_checkpoint(name):
    formats = Quantisation("nvfp4", "nvfp4", "fp8", "fp8", "half")
    for chosen in (False, True):
        lists = op_lists(load_model(name), Parallel(), dataclasses.replace(formats, gemm_chosen=chosen), "vllm")
        projection = next(op for op in lists.context if isinstance(op, Gemm) and op.name.endswith("qkv_gemm"))
        assert (projection.quant == "nvfp4") == chosen
