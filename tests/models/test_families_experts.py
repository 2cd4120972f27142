# SPDX-License-Identifier: Apache-2.0
"""Families with experts: stored operator lists of AIConfigurator 0.12.0, and rules that a list alone does not show."""

import json
from pathlib import Path

import pytest

from aicjax._results import InputError, MissingData
from aicjax.compat import REFERENCE
from aicjax.hardware import load_system
from aicjax.models import (
    LargeEp,
    Parallel,
    Quantisation,
    choose_large_ep,
    encoder_ops,
    infer_quantisation,
    kv_cache,
    load_model,
    measured_exchanges,
    op_lists,
    request_images,
    resolve_quantisation,
)
from aicjax.models.families.exceptions import projection_quants
from aicjax.ops import records
from tests.models.stored_lists import stored_forms

ENTRIES = json.loads((Path(__file__).parents[1] / "references" / "oplists_experts.json").read_text())
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
VERSIONS = {"trtllm": "1.3.0rc20", "sglang": "0.5.14", "vllm": "0.24.0"}
WIDE = Parallel(dp=16, moe_ep=16)
DEEPEP = LargeEp("deepep_ht", "deepep_ll", nodes=2)


def build(name: str, parallel: Parallel, backend: str = "trtllm", nextn: int = 0, large_ep=None, **explicit: str):
    model = load_model(name)
    return op_lists(model, parallel, infer_quantisation(model, backend, explicit), backend, nextn, large_ep)


def only(ops, kind):
    return next(op for op in ops if isinstance(op, kind))


def entry_name(entry: dict) -> str:
    wide = "-wide" if entry["libraries"] else ""
    return f"{entry['model'].split('/')[1]}-{entry['backend']}-cp{entry['cp']}{wide}"


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_name)
def test_op_list_matches_the_reference(entry):
    parallel = Parallel(*(entry[size] for size in SIZES))
    quantisation = Quantisation(**entry["quant"], gemm_chosen=entry["gemm_chosen"])
    plan = None
    if libraries := entry["libraries"]:
        nodes = parallel.moe_ep // load_system(entry["system"]).gpus_per_node
        plan = LargeEp(libraries["context"], libraries["generation"], nodes)
    lists = op_lists(
        load_model(entry["model"], compat=REFERENCE), parallel, quantisation, entry["backend"], entry["nextn"], plan
    )
    for part in ("context", "generation", "encoder"):
        assert stored_forms(getattr(lists, part)) == entry[part]
    assert sum(op.weight_bytes for op in lists.context) / parallel.pp == entry["weights_bytes"]


def test_the_search_for_libraries_finds_those_of_the_reference():
    for entry in (entry for entry in ENTRIES if entry["libraries"]):
        model, system, backend = (
            load_model(entry["model"], compat=REFERENCE),
            load_system(entry["system"]),
            entry["backend"],
        )
        parallel, version = Parallel(*(entry[size] for size in SIZES)), VERSIONS[backend]
        formats = resolve_quantisation(model, system, backend, version, large_ep=True)
        assert formats == Quantisation(**entry["quant"])
        plan = choose_large_ep(model, parallel, measured_exchanges(model, system, backend, version, formats.moe))
        assert plan is not None
        assert {"context": plan.context, "generation": plan.generation} == entry["libraries"]
        assert (
            only(op_lists(model, parallel, formats, backend, 0, plan).context, records.MoeAllToAll).nodes == plan.nodes
        )


def test_experts_across_nodes_need_a_measured_exchange():
    model, system = load_model("Qwen/Qwen3-235B-A22B-FP8"), load_system("h200_sxm")
    coverage = measured_exchanges(model, system, "sglang", "0.5.14", infer_quantisation(model, "sglang").moe)
    with pytest.raises(MissingData, match="16 expert ranks span 2 nodes of 8 GPUs") as caught:
        choose_large_ep(model, WIDE, coverage)
    assert "\n" not in str(caught.value)
    assert choose_large_ep(model, Parallel(dp=8, moe_ep=8), coverage) is None
    with pytest.raises(InputError, match="moe_tp"):
        choose_large_ep(model, Parallel(dp=32, moe_tp=2, moe_ep=16), coverage)


def test_searches_take_exchanges_within_a_node_where_attention_is_data_parallel():
    model, system = load_model("deepseek-ai/DeepSeek-V3"), load_system("gb200")
    coverage = measured_exchanges(model, system, "trtllm", "1.3.0rc20", "fp8_block")
    assert coverage.beyond_node() == (8, 16, 32, 64, 128, 256)
    pair = Parallel(dp=2, moe_ep=2)
    assert choose_large_ep(model, pair, coverage) is None
    assert choose_large_ep(model, pair, coverage, within_node=True) == LargeEp(
        "nvlink_two_sided", "nvlink_two_sided", 1
    )
    assert choose_large_ep(model, Parallel(tp=4, moe_ep=4), coverage, within_node=True) is None
    with pytest.raises(MissingData, match="context and generation"):
        choose_large_ep(model, Parallel(tp=8, moe_ep=8), coverage)


def test_prefill_workers_need_no_exchange_of_decode_steps():
    model, system = load_model("zai-org/GLM-5-FP8"), load_system("h200_sxm")
    coverage = measured_exchanges(model, system, "trtllm", "1.3.0rc20", "fp8_block")
    plan = choose_large_ep(model, WIDE, coverage, phases=("context",))
    assert plan is not None and plan.context == "trtllm_deepep_ht"
    assert coverage.beyond_node() == () != coverage.beyond_node(("context",))
    with pytest.raises(MissingData, match="generation"):
        choose_large_ep(model, WIDE, coverage)


@pytest.mark.parametrize(
    ("parallel", "backend", "plan", "argument"),
    [
        (Parallel(dp=16, moe_tp=2, moe_ep=8), "sglang", DEEPEP, "moe_tp"),
        (Parallel(dp=24, moe_ep=24), "sglang", DEEPEP, "moe_ep"),
        (Parallel(tp=16, moe_ep=16), "trtllm", LargeEp("trtllm_deepep_ht", "trtllm_deepep_ll", 2), "dp"),
        (WIDE, "sglang", LargeEp("deepep_ll", "deepep_ll", 2), "context library"),
        (WIDE, "sglang", LargeEp("deepep_ht", "deepep_ll", 2, slots=288), "slots"),
        (WIDE, "sglang", LargeEp("deepep_ht", "deepep_ll", 2, slots=128, balanced=True), "slots"),
    ],
)
def test_plans_that_cannot_run_are_refused(parallel, backend, plan, argument):
    with pytest.raises(InputError) as caught:
        build("deepseek-ai/DeepSeek-V3", parallel, backend, large_ep=plan)
    assert caught.value.argument == argument


def test_families_without_a_wide_list_say_so():
    with pytest.raises(InputError, match="only families MOE, DEEPSEEK, KIMIK25, DEEPSEEKV32"):
        build("deepseek-ai/DeepSeek-V4-Flash", WIDE, "sglang", large_ep=DEEPEP)


def test_a_load_balancer_names_its_own_measurements():
    balanced = {
        "sglang": LargeEp("deepep_ht", "deepep_ll", 2, balanced=True),
        "trtllm": LargeEp("nvlink_two_sided", "nvlink_one_sided", 4, slots=288, balanced=True),
    }
    found = {
        (backend, phase): only(_flat(getattr(lists, phase)), records.MoeExpertCompute)
        for backend, plan in balanced.items()
        for lists in [build("deepseek-ai/DeepSeek-V3", WIDE, backend, large_ep=plan)]
        for phase in ("context", "generation")
    }
    assert found["sglang", "context"].distribution == "power_law_0.6"
    assert found["sglang", "generation"].distribution == "power_law_1.01"
    assert (
        found["trtllm", "context"].distribution == found["trtllm", "generation"].distribution == "power_law_1.01_eplb"
    )
    assert [op.eplb for op in found.values()] == [True, True, False, False]
    assert found["trtllm", "context"].num_slots == 288


@pytest.mark.parametrize(
    ("name", "step", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3", "combine", "fp8"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "combine", "fp4"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "prepare", "nvfp4"),
    ],
)
def test_formats_in_which_tokens_travel_over_nvlink(name, step, expected):
    lists = build(name, WIDE, large_ep=LargeEp("nvlink_two_sided", "nvlink_two_sided", 4))
    steps = {op.phase: op.comm_dtype for op in _flat(lists.generation) if isinstance(op, records.MoeAllToAll)}
    assert steps[step] == expected


def test_formats_that_no_library_carries_are_refused():
    plan = LargeEp("trtllm_deepep_ht", "trtllm_deepep_ll", 2)
    with pytest.raises(InputError, match="moe_quant_mode"):
        build("deepseek-ai/DeepSeek-V3", WIDE, large_ep=plan, moe="int4_wo")


def test_wide_experts_of_a_grouped_attention_family_replicate_the_embedding_on_sglang_alone():
    plans = {"sglang": DEEPEP, "vllm": LargeEp("deepep_v2_context", "deepep_v2_generation", 2)}
    lists = {
        backend: build("Qwen/Qwen3-235B-A22B", Parallel(tp=2, dp=8, moe_ep=16), backend, large_ep=plan)
        for backend, plan in plans.items()
    }
    vocab = load_model("Qwen/Qwen3-235B-A22B").vocab_size
    assert only(lists["sglang"].context, records.Embedding).vocab_size == vocab
    assert only(lists["vllm"].context, records.Embedding).vocab_size == vocab // 2
    assert [op.name for op in lists["vllm"].generation[-2:]] == ["generation_embedding_ar", "generation_p2p"]
    assert [op.name for op in lists["sglang"].context[-5:]] == [
        f"context_{name}" for name in ("router_gemm", "moe_dispatch", "moe", "moe_combine", "logits_gemm")
    ]
    assert only(lists["sglang"].context, records.MoeAllToAll).attention_tp == 2
    assert only(lists["sglang"].generation, records.MoeAllToAll).attention_tp == 1


def test_one_kernel_takes_the_place_of_exchange_and_experts():
    model, layout = load_model("deepseek-ai/DeepSeek-V4-Pro"), Parallel(tp=1, dp=8, moe_ep=8)
    formats = resolve_quantisation(model, load_system("b200_sxm"), "sglang", "0.5.16", mega_moe=True)
    assert formats.moe == "w4a8_mxfp4_mxfp8"
    plain, mega = (op_lists(model, layout, formats, "sglang", mega_moe=flag) for flag in (False, True))
    kernel = only(mega.context, records.MegaMoe)
    assert kernel.weight_bytes == only(plain.context, records.Moe).weight_bytes
    assert [op.name for op in mega.context] == [
        "context_megamoe" if op.name == "context_moe" else op.name
        for op in plain.context
        if not isinstance(op, records.MoeDispatch)
    ]
    assert [op.name for op in only(mega.generation, records.Overlap).first] == [
        "generation_router_gemm",
        "generation_megamoe",
    ]
    refused = [("trtllm", layout), ("sglang", Parallel(tp=8, moe_tp=8)), ("sglang", Parallel())]
    for backend, parallel in refused:
        with pytest.raises(InputError):
            op_lists(model, parallel, formats, backend, mega_moe=True)
    with pytest.raises(InputError, match="mega_moe"):
        op_lists(load_model("deepseek-ai/DeepSeek-V3"), layout, formats, "sglang", mega_moe=True)


@pytest.mark.parametrize("moe_tp", [8, 16])
def test_block_scaled_experts_are_cut_into_whole_blocks(moe_tp):  # 1536-wide experts in blocks of 128
    layout = Parallel(tp=moe_tp, moe_tp=moe_tp)
    with pytest.raises(InputError, match=r"`moe_tp` must be one that cuts the 1536-wide experts .* blocks of 128"):
        build("Qwen/Qwen3-235B-A22B-FP8", layout)
    build("Qwen/Qwen3-235B-A22B-FP8", layout, moe="bfloat16")


def test_checkpoint_exceptions_for_single_projections():
    plain, mixed = load_model("deepseek-ai/DeepSeek-V3"), load_model("nvidia/DeepSeek-V3.1-NVFP4")
    assert set(projection_quants(plain, "fp8_block").values()) == {"fp8_block"}
    found = projection_quants(mixed, "nvfp4")
    assert (found["q"], found["kv"], found["o"]) == ("bfloat16", "bfloat16", "nvfp4")
    names = [op.name for op in build("nvidia/DeepSeek-V3.1-NVFP4", Parallel(tp=8, moe_ep=8)).context]
    assert "context_downscale_gemm" in names
    assert "context_mla_block" not in names


def test_searches_take_the_faster_format_of_gpt_oss_and_remember_who_chose():
    model, b200 = load_model("openai/gpt-oss-120b"), load_system("b200_sxm")
    apart = load_model("openai/gpt-oss-120b", compat=REFERENCE)
    assert resolve_quantisation(apart, b200, "trtllm", "1.3.0rc20").moe == "w4a16_mxfp4"
    assert resolve_quantisation(model, b200, "trtllm", "1.3.0rc20").moe == "w4a8_mxfp4_mxfp8"
    assert resolve_quantisation(apart, b200, "trtllm", "1.3.0rc20", searched=True).moe == "w4a8_mxfp4_mxfp8"
    chosen = resolve_quantisation(model, b200, "trtllm", "1.3.0rc20", {"moe": "w4a16_mxfp4"}, searched=True)
    assert chosen.moe == "w4a16_mxfp4"
    h200, nvfp4 = load_system("h200_sxm"), load_model("nvidia/Kimi-K2.5-NVFP4", compat=REFERENCE)
    assert resolve_quantisation(model, h200, "trtllm", "1.3.0rc20", searched=True).moe == "w4a16_mxfp4"
    assert resolve_quantisation(nvfp4, h200, "trtllm", "1.3.0rc20").gemm_chosen
    assert not resolve_quantisation(nvfp4, h200, "trtllm", "1.3.0rc20", searched=True).gemm_chosen


@pytest.mark.parametrize(
    ("name", "kv", "length", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3", "bfloat16", 1, 70272),  # 61 layers of 512 + 64 values
        ("openai/gpt-oss-120b", "bfloat16", 8192, 18 * 2048 * (8192 + 128)),  # 36 layers, half of window 128
        ("deepseek-ai/DeepSeek-V3.2", "fp8", 1, 61 * (512 + 64 * 2 + 128 + 4)),
    ],
)
def test_cache_of_one_sequence(name, kv, length, expected):
    model = load_model(name)
    cache = kv_cache(model, Parallel(), infer_quantisation(model, "trtllm", {"kvcache": kv}), "trtllm")
    grown = sum(term.rate_bytes * (min(length, term.window) // term.stride) for term in cache.terms)
    assert grown + cache.state_bytes == expected


def test_images_are_resized_to_whole_blocks():  # blocks of 16 x 2 = 32 pixels
    model = load_model("Qwen/Qwen3-VL-32B-Instruct")
    images = request_images(model, 2, 1000, 1333)
    assert (images.count, images.tokens, images.patches) == (2, 31 * 42, 4 * 31 * 42)
    assert request_images(model, 1, 3, 3).tokens == 1
    with pytest.raises(InputError, match="image_height"):
        request_images(model, 1, 0, 448)
    with pytest.raises(InputError, match="vision encoder"):
        request_images(load_model("Qwen/Qwen3-32B"), 1, 448, 448)


def test_an_encoder_is_whole_on_every_rank_or_cut():
    model = load_model("Qwen/Qwen3-VL-32B-Instruct")
    whole, cut = encoder_ops(model, 4), encoder_ops(model, 4, data_parallel=False)
    names = [op.name for op in cut]
    assert [op.name for op in whole] == [*names, "encoder_dp_all_gather"]
    assert [op.name for op in encoder_ops(model, 1)] == names
    assert 4 * sum(op.weight_bytes for op in cut) == sum(op.weight_bytes for op in whole)
    assert only(cut, records.EncoderAttention).num_heads * 4 == only(whole, records.EncoderAttention).num_heads
    with pytest.raises(InputError, match="encoder_tp"):
        encoder_ops(model, 32, data_parallel=False)
    assert encoder_ops(load_model("Qwen/Qwen3-32B"), 4) == ()


def _flat(ops):
    """Operators with those of composites in place."""
    for op in ops:
        if isinstance(op, records.Overlap):
            yield from _flat((*op.first, *op.second))
        elif isinstance(op, records.Fallback):
            yield from _flat((op.primary, *op.fallback))
        else:
            yield op
