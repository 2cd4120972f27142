# SPDX-License-Identifier: Apache-2.0
"""Defects of AIConfigurator 0.12.0: the table is documented, and each switch has an effect of its own, both ways."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.compat import BY_NAME, DEFAULT, REFERENCE, Compat, markdown
from aicjax.explore import EstimateRequest, SearchRequest, recommend
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.pick import order_of_engines
from aicjax.explore.roles import Deployment, deploy, worker
from aicjax.explore.static_sweep import StaticPoints, plan_static_sweep, static_frame
from aicjax.forward.kv_curve import KvCurve
from aicjax.hardware import load_system
from aicjax.models import LargeEp, Parallel, Quantisation, kv_cache, load_model, op_lists, resolve_quantisation
from aicjax.ops.query import operator_latency
from aicjax.ops.records import AllReduce, ContextMla, Gemm, Moe, MoeDispatch, OpLists
from aicjax.serving.coordinates import Coordinates

SWITCHES = [switch.name for switch in dataclasses.fields(Compat)]
BF16 = Quantisation("bfloat16", "bfloat16", "bfloat16", "bfloat16", "half")
ONE_GPU = Parallel()
LENGTH = 32768
IN_FLIGHT: dict[str, Any] = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "isl": 4000,
    "osl": 500,
    "target_concurrency": 1000.0,
    "serving_mode": "disagg",
}
PUBLISHED_BILLIONS = {  # on the model cards, language model alone
    "deepseek-ai/DeepSeek-V3": 671.0,
    "moonshotai/Kimi-K2-Instruct": 1026.4,
    "zai-org/GLM-5": 744,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 400.7,
    "Qwen/Qwen3-235B-A22B": 235.09,
    "Qwen/Qwen3-30B-A3B": 30.53,
    "mistralai/Mixtral-8x7B-v0.1": 46.70,
    "openai/gpt-oss-120b": 116.8,
    "Qwen/Qwen3-0.6B": 0.596,
}


def only(switch: str) -> Compat:
    """One switch on."""
    return dataclasses.replace(DEFAULT, **{switch: True})


def lists(name: str, compat: Compat, parallel: Parallel = ONE_GPU, backend: str = "trtllm", plan=None) -> OpLists:
    return op_lists(load_model(name, compat=compat), parallel, BF16, backend, 0, plan)


def parameters(*given, **options) -> float:
    """Weights on one GPU as a count of 16-bit values."""
    return sum(op.weight_bytes for op in lists(*given, **options).context) / 2


def cached_bytes(name: str, compat: Compat, length: int = LENGTH, parallel: Parallel = ONE_GPU) -> float:
    """KV cache of one sequence."""
    model = load_model(name, compat=compat)
    curve = KvCurve.stack([kv_cache(model, parallel, BF16, "trtllm")], model.context_length)
    return float(curve.bytes(length)[0, 0])


def test_reference_has_every_switch_on_and_default_none():
    assert all(getattr(REFERENCE, name) and not getattr(DEFAULT, name) for name in SWITCHES)
    assert BY_NAME == {"default": DEFAULT, "reference": REFERENCE}


def test_the_table_is_in_the_documentation():
    assert markdown() in (Path(__file__).parents[1] / "docs" / "parity.md").read_text(encoding="utf-8")


def test_every_switch_is_tested_here():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in SWITCHES if f'"{name}"' not in source] == []


@pytest.mark.parametrize("kind", [SearchRequest, EstimateRequest])
def test_a_request_chooses_by_name(kind):
    request: dict[str, Any] = {"model_path": "m", "system": "s"}
    assert kind(**request).switches == DEFAULT
    assert kind(**request, compat="reference").switches == REFERENCE
    with pytest.raises(ValueError, match="`compat` must be one of 'default' or 'reference'"):
        kind(**request, compat="other")


@pytest.mark.parametrize("name", PUBLISHED_BILLIONS)
def test_weights_are_the_published_parameter_counts(name):
    published = PUBLISHED_BILLIONS[name] * 1e9
    assert parameters(name, DEFAULT) == pytest.approx(published, rel=1e-3)
    assert abs(parameters(name, REFERENCE) - published) > abs(parameters(name, DEFAULT) - published)


def test_prefills_with_experts_run_the_vocabulary_projection():
    name, switch = "Qwen/Qwen3-30B-A3B", only("passes_without_head")
    assert parameters(name, DEFAULT) - parameters(name, switch) == 151936 * 2048
    wide, plan = Parallel(dp=16, moe_ep=16), LargeEp("deepep_ht", "deepep_ll", nodes=2)
    for name in ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2"):
        for compat, last in ((DEFAULT, "logits_gemm"), (switch, "moe_combine")):
            written = lists(name, compat, wide, "sglang", plan)
            ends = [written.context[-1].name, written.generation[-1].name]
            assert ends == [f"context_{last}", f"generation_{last}"]


def test_first_layers_have_the_dense_feed_forward_of_the_config():
    """Three layers trade 256 experts, a shared one and a router for one feed-forward of 18432."""
    name, switch = "deepseek-ai/DeepSeek-V3", only("dense_layers_as_experts")
    expert = 3 * 7168 * 2048
    traded = 3 * (257 * expert + 7168 * 256 - 3 * 7168 * 18432)
    assert parameters(name, switch) - parameters(name, DEFAULT) == traded
    reduced = [op for op in lists(name, DEFAULT, Parallel(tp=8, moe_ep=8)).context if isinstance(op, AllReduce)]
    assert [(op.name, op.scale) for op in reduced] == [("context_dense_ar", 6)]
    assert not [op for op in lists(name, switch, Parallel(tp=8, moe_ep=8)).context if isinstance(op, AllReduce)]
    vllm = lists(name, DEFAULT, Parallel(tp=8, moe_ep=8), "vllm").context  # sums of all layers are one operator there
    assert [op.scale for op in vllm if isinstance(op, AllReduce)] == [122]


@pytest.mark.parametrize(
    ("model", "scale"), [("deepseek-ai/DeepSeek-V3.2", 3), ("MiniMaxAI/MiniMax-M3", 3), ("moonshotai/Kimi-K2.5", 1)]
)
def test_dense_layers_run_in_both_phases_and_with_wide_experts(model, scale):
    for phase in ("context", "generation"):
        ops = {op.name: op for op in getattr(lists(model, DEFAULT), phase)}
        assert ops[f"{phase}_dense_down_gemm"].scale == scale
    if model == "moonshotai/Kimi-K2.5":
        for backend, plan in {
            "sglang": LargeEp("deepep_ht", "deepep_ll", nodes=2),
            "trtllm": LargeEp("nvlink_two_sided", "nvlink_one_sided", 4),
        }.items():
            names = [op.name for op in lists(model, DEFAULT, Parallel(dp=16, moe_ep=16), backend, plan).generation]
            assert "generation_dense_ar" in names


def test_shared_experts_are_as_many_and_as_wide_as_the_config_says(tmp_path):
    switch = only("shared_experts_not_read")
    scout = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    assert parameters(scout, DEFAULT) - parameters(scout, switch) == 48 * 3 * 5120 * 8192
    config = json.loads(Path("configs/models/deepseek-ai--DeepSeek-V3.json").read_text())["config"]
    counts = []
    for shared in (0, 1, 2):
        (tmp_path / "config.json").write_text(json.dumps({**config, "n_shared_experts": shared}))
        counts.append([parameters(str(tmp_path), compat) for compat in (DEFAULT, switch)])
    expert = 58 * 3 * 7168 * 2048
    assert np.diff([default for default, _ in counts]).tolist() == [expert, expert]
    assert len({assumed for _, assumed in counts}) == 1
    config = json.loads(Path("configs/models/Qwen--Qwen3-30B-A3B.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "shared_expert_intermediate_size": 768}))
    shared, none = (parameters(str(tmp_path), compat) for compat in (DEFAULT, switch))
    assert shared - none == 48 * 3 * 2048 * 768


def test_latent_kernels_have_the_heads_of_the_model():
    kimi, deepseek = "moonshotai/Kimi-K2.5", "deepseek-ai/DeepSeek-V3"
    for name, compat, heads in (
        (kimi, DEFAULT, 8),
        (kimi, only("latent_kernels_of_128_heads"), 16),
        (deepseek, DEFAULT, 16),
    ):
        plan = LargeEp("nvlink_two_sided", "nvlink_one_sided", 4)  # lists kernel by kernel
        ops = lists(name, compat, Parallel(tp=8, dp=2, moe_ep=16), "trtllm", plan).context
        assert next(op for op in ops if isinstance(op, ContextMla)).num_heads == heads


def test_attention_blocks_hold_their_projections():
    switch, name = only("attention_blocks_without_weights"), "MiniMaxAI/MiniMax-M3"
    query_output, keys_values, indexer = 64 * 256, 4 * 256, 5 * 128
    held = 60 * 6144 * (query_output + keys_values + indexer)
    assert parameters(name, DEFAULT) - parameters(name, switch) == held
    name, wide, plan = "deepseek-ai/DeepSeek-V3", Parallel(dp=16, moe_ep=16), LargeEp("deepep_ht", "deepep_ll", 2)
    whole, none = (parameters(name, compat, wide, "sglang", plan) for compat in (DEFAULT, switch))
    assert whole - none == 61 * (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)


def test_tied_embeddings_are_one_matrix():
    name = "Qwen/Qwen3-0.6B"
    assert parameters(name, only("embeddings_never_tied")) - parameters(name, DEFAULT) == 151936 * 1024
    products = [op for op in lists(name, DEFAULT).generation if isinstance(op, Gemm)]
    assert [(op.name, op.n) for op in products[-1:]] == [("generation_logits_gemm", 151936)]  # it still runs


def test_window_layers_of_hybrid_models_cache_the_window():
    """MiMo-V2-Flash: 9 global layers of 4 KV heads, 39 of 8 heads that see 128 tokens; heads of 192 and 128."""
    name, switch = "XiaomiMiMo/MiMo-V2-Flash", only("hybrid_kv_without_windows")
    head = 2 * (192 + 128)
    assert cached_bytes(name, DEFAULT) == head * (9 * 4 * LENGTH + 39 * 8 * 128)
    assert cached_bytes(name, switch) == 2 * 2 * 192 * 48 * 4 * LENGTH
    scout = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    assert cached_bytes(scout, DEFAULT) == 2 * 2 * 128 * 8 * (12 * LENGTH + 36 * 8192)


def test_dense_gemma_is_laid_out_as_a_dense_model():
    name = "nvidia/Gemma-4-31B-IT-NVFP4"
    assert not load_model(name).is_moe and load_model("google/gemma-4-26B-A4B").is_moe
    assert lists(name, DEFAULT, Parallel(tp=4)).context
    with pytest.raises(ValueError, match="at most the 0 experts"):
        lists(name, only("dense_gemma_as_experts"), Parallel(tp=4, moe_tp=4))


def test_layer_kinds_of_hybrid_models_are_read_as_their_configs_mean_them():
    mimo, scout = "XiaomiMiMo/MiMo-V2-Flash", "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    swapped, halved = only("mimo_layer_kinds_swapped"), only("llama4_every_other_layer_global")
    counts = [
        sum(load_model(name, compat=compat).extra["global_attention"])
        for name, other in ((mimo, swapped), (scout, halved))
        for compat in (DEFAULT, other)
    ]
    assert counts == [9, 39, 12, 24]
    assert load_model(scout).extra["global_attention"][:8] == (0, 0, 0, 1, 0, 0, 0, 1)


def test_state_space_layers_keep_a_state_and_no_keys():
    """Nemotron-3-Nano: 6 attention layers, 23 of 64 heads x 64 x 128 in 32 bits, three inputs of 6144 in 16 bits."""
    name, switch = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", only("state_space_layers_with_kv")
    token, state = 2 * 2 * 2 * 128, 23 * (64 * 64 * 128 * 4 + 3 * (64 * 64 + 2 * 8 * 128) * 2)
    assert cached_bytes(name, DEFAULT) == 6 * token * LENGTH + state
    assert cached_bytes(name, switch) == 52 * token * LENGTH
    assert cached_bytes(name, DEFAULT, 0, Parallel(tp=2, moe_ep=2)) == state / 2


def test_searched_layers_have_the_heads_that_they_state():
    """Nemotron-Super-49B: 49 of its layers have attention, 8 KV heads each."""
    name = "nvidia/Llama-3_3-Nemotron-Super-49B-v1"
    assert cached_bytes(name, DEFAULT) == 49 * 2 * 2 * 8 * 128 * LENGTH
    assert cached_bytes(name, only("searched_layers_without_kv")) == 0


def test_rooflines_read_the_experts_that_are_hit():
    for compat, expected in ((DEFAULT, True), (only("experts_read_per_routed_token"), False)):
        ops = lists("Qwen/Qwen3-30B-A3B", compat).context
        assert {op.expected for op in ops if isinstance(op, Moe)} == {expected}


def test_tokens_are_gathered_compressed_from_blackwell_on():
    for compat, alone in ((DEFAULT, False), (only("compressed_gather_on_one_sm"), True)):
        ops = lists("Qwen/Qwen3-30B-A3B", compat, Parallel(dp=8, moe_ep=8)).generation
        assert {op.compressed_on_one_sm for op in ops if isinstance(op, MoeDispatch)} == {alone}


def test_estimates_resolve_formats_as_searches_do():
    system, version = load_system("h200_sxm"), "1.3.0rc20"
    apart = only("estimates_apart_from_searches")
    chosen = [
        resolve_quantisation(
            load_model("nvidia/Kimi-K2.5-NVFP4", compat=compat), system, "trtllm", version, searched=searched
        ).gemm_chosen
        for compat in (DEFAULT, apart)
        for searched in (False, True)
    ]
    assert chosen == [False, False, True, False]


def test_estimates_spread_experts_as_searches_do(monkeypatch):
    switch = only("estimates_apart_from_searches")
    monkeypatch.setitem(BY_NAME, "reference", switch)
    facts: dict[str, Any] = {"model_path": "deepseek-ai/DeepSeek-V3", "system": "h200_sxm", "backend": "sglang"}
    spread = {
        (mode, compat, ranks): deploy(EstimateRequest(**facts, mode=mode, compat=compat), "agg", "sglang").exchange(
            Parallel(dp=ranks, moe_ep=ranks)
        )
        for mode in ("agg", "static")
        for compat in ("default", "reference")
        for ranks in (8, 16)
    }
    searched = deploy(SearchRequest(**facts, compat="reference"), "agg", "sglang")
    for mode in ("agg", "static"):
        for ranks in (8, 16):
            assert spread[mode, "default", ranks] == searched.exchange(Parallel(dp=ranks, moe_ep=ranks)) is not None
    taken = {key for key, exchange in spread.items() if exchange is not None and key[1] == "reference"}
    assert taken == {("static", "reference", 16)}


def test_rates_of_static_batches_count_all_gpus():
    rates = [_prefill_rates(compat) for compat in (DEFAULT, only("static_rates_without_context_ranks"))]
    for frame, gpus in zip(rates, (8, 1), strict=True):
        assert frame["num_total_gpus"].tolist() == [8]
        assert frame["seq/s/gpu"] * gpus == pytest.approx(frame["seq/s"])
        assert frame["tokens/s/gpu"] * gpus == pytest.approx(frame["tokens/s"])


def test_recommendations_of_several_engines_come_by_the_gpus_they_need():
    columns = {CLUSTER: [90.0, 100.0, 80.0], "tokens/s/gpu": [90.0, 100.0, 80.0], "total_gpus_needed": [8, 16, 8]}
    frame = {name: np.array(values) for name, values in columns.items()}
    assert order_of_engines(frame).tolist() == [0, 2, 1]
    switch = only("merged_loads_by_throughput")
    assert order_of_engines(frame, by_throughput=switch.merged_loads_by_throughput).tolist() == [1, 0, 2]


def test_room_of_decode_workers_serves_no_load_that_prefill_workers_do_not_bring():
    task = {
        compat: recommend(SearchRequest(**IN_FLIGHT, compat=compat, grid="reference", constants="reference")).tasks[
            "disagg"
        ]
        for compat in ("default", "reference")
    }
    needed = {compat: frames.row(found.best, 0)["total_gpus_needed"] for compat, found in task.items()}
    assert needed["reference"] < needed["default"]
    for compat, served in (("default", True), ("reference", False)):
        row = frames.row(task[compat].best, 0)
        in_flight = row["seq/s"] * row["request_latency"] / 1000 * row["replicas_needed"]
        assert (in_flight > 0.9 * IN_FLIGHT["target_concurrency"]) == served
    assert only("idle_decode_slots_in_flight") != DEFAULT


def _prefill_rates(compat: Compat):
    """Row of a prefill worker that splits its prompts over 8 GPUs and takes 100 ms."""
    request = EstimateRequest(model_path="Qwen/Qwen3-8B", system="h200_sxm", backend="sglang")
    deployment: Deployment = deploy(request, "prefill", "sglang")
    model = load_model(request.model_path, compat=compat)
    target = worker(dataclasses.replace(deployment, model=model), [Parallel(cp=8)])
    sweep = plan_static_sweep(target, "static_ctx", [1], Coordinates(), 32)
    memory = target.memory.static([1], 1024, 1024, phase="static_ctx")
    times = {"context_ms": np.full((1, 1), 100.0), "generation_ms": np.zeros((1, 1)), "encoder_ms": np.zeros((1, 1))}
    points = StaticPoints(**times, memory=memory, verdict=memory.verdict, encoder=None)
    return static_frame(sweep, points, np.ones((1, 1), bool), decimals=None)


def test_times_of_hosts_are_taken_out_of_tables():
    """A small product in 8-bit blocks on vLLM, whose benchmark took 55 us to launch it."""
    small = Gemm("product", 1.0, 4096, 4096, "fp8_block")
    where = load_system("h200_sxm"), "vllm", "0.24.0", [small]
    here, there = (operator_latency(*where, tokens=16, compat=c) for c in (DEFAULT, only("host_times_in_tables")))
    assert here.provenance.tolist() == [Provenance.REPAIRED]
    assert there.provenance.tolist() == [Provenance.EXACT]
    assert there.latency_ms[0] > 0.05 > 0.015 > here.latency_ms[0]


def test_formats_are_borrowed_from_other_backends_first():
    """TensorRT-LLM measured MXFP4 experts on Hopper with whole experts only; vLLM and SGLang measured parts of them."""
    experts = Moe("experts", 1.0, 2880, 2880, 4, 128, 8, 1, 1, "w4a16_mxfp4", "power_law_1.2")
    where = load_system("h200_sxm"), "trtllm", "1.3.0rc20", [experts]
    here, there = (
        operator_latency(*where, mode="HYBRID", tokens=16, compat=c)
        for c in (DEFAULT, only("transfers_within_backend"))
    )
    assert here.provenance.tolist() == [Provenance.XBACKEND]
    assert there.provenance.tolist() == [Provenance.XPROFILE]
    others = [
        operator_latency(where[0], backend, version, [experts], tokens=16).latency_ms[0]
        for backend, version in (("vllm", "0.24.0"), ("sglang", "0.5.14"))
    ]
    assert min(others) * 0.99 < here.latency_ms[0] < max(others) * 1.01


def test_unmeasured_shapes_are_fitted_to_those_around_them():
    """The query expansion of DeepSeek lies between measured widths, another product next to one."""
    where = load_system("h200_sxm"), "trtllm", "1.3.0rc20"
    ops = [Gemm("product", 1.0, n, k, "fp8_block") for n, k in ((24576, 1536), (4095, 5120), (4096, 5120))]
    here, there = (
        operator_latency(*where, ops, tokens=[16] * 3, compat=c) for c in (DEFAULT, only("mean_of_nearest_shapes"))
    )
    for times in (here, there):
        assert times.provenance.tolist() == [Provenance.TRANSFERRED, Provenance.TRANSFERRED, Provenance.EXACT]
        assert times.latency_ms[1] == pytest.approx(times.latency_ms[2], rel=1e-3)  # next to it
    assert here.latency_ms[0] == pytest.approx(0.95 * there.latency_ms[0], rel=0.01)


def test_experts_go_on_beyond_their_tokens_as_in_the_last_octave():
    where, switch = (load_system("h200_sxm"), "trtllm", "1.3.0rc20"), only("utilization_held_beyond_curves")
    experts = [Moe("experts", 1.0, 7168, 2048, 8, 256, 1, 8, 1, "fp8_block", "power_law_1.2")] * 3
    here, there = (operator_latency(*where, experts, tokens=[8192, 16384, 65536], compat=c) for c in (DEFAULT, switch))
    half, last, beyond = here.latency_ms
    assert there.latency_ms[:2].tolist() == [half, last]
    assert beyond == pytest.approx(last + 6 * (last - half), rel=1e-5)
    assert there.latency_ms[2] / there.sol_ms[2] == pytest.approx(last / here.sol_ms[1], rel=1e-5)


def test_products_beyond_their_tokens_run_as_well_as_the_last_measured():
    where, switch = (load_system("h200_sxm"), "trtllm", "1.3.0rc20"), only("utilization_held_beyond_curves")
    tokens = [8192, 16384, 32768, 131072]
    product = [Gemm("product", 1.0, 4096, 4096, "fp8")] * len(tokens)
    here, there = (operator_latency(*where, product, tokens=tokens, compat=c) for c in (DEFAULT, switch))
    over = here.latency_ms / here.sol_ms
    assert over[-1] == pytest.approx(over[-2], rel=1e-5)
    assert there.latency_ms[-1] / there.sol_ms[-1] == pytest.approx(np.median(over[:3]), rel=1e-5)
