# SPDX-License-Identifier: Apache-2.0
"""Profiles computed from hardware and model: sizes, room, refusals, and where the reference differs."""

import dataclasses

import pytest

from aicjax._results import DataError, InputError, NoFeasible, UnsupportedModel
from aicjax.fleet.computed import Serving, computed_profile, weight_bytes
from aicjax.fleet.decode_efficiency import decode_efficiency
from aicjax.fleet.expert_times import expert_layer_s, experts_taken
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.gpu_facts import gpu, gpu_names
from aicjax.fleet.model_facts import facts_of_config, published_model, reference_model
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.rules import FLEET_REFERENCE, Rules

CONSTANTS = load_fleet_constants()
LLAMA, DEEPSEEK, QWEN = "meta-llama/Meta-Llama-3.1-70B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-235B-A22B"


def _profile(key: str, model: str, serving: Serving, rules: Rules | None = None) -> Profile:
    facts = published_model(model) if "/" in model else reference_model(model)
    return computed_profile(gpu(key), facts, serving, CONSTANTS, rules or Rules())


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [
        (LLAMA, 70.55, 69.5),
        (DEEPSEEK, 670.9, 36.5),
        (QWEN, 235.0, 21.5),
        ("openai/gpt-oss-120b", 116.8, 5.1),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400.6, 16.2),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107.7, 16.2),
    ],
)
def test_sizes_are_those_of_the_published_models(model: str, billions: float, active: float):
    facts = published_model(model)
    assert facts.params / 1e9 == pytest.approx(billions, rel=2e-3)
    assert facts.active_params / 1e9 == pytest.approx(active, rel=2e-2)


def test_latent_attention_caches_its_latent_vector_on_every_gpu():
    facts = published_model(DEEPSEEK)
    assert facts.kv_bytes_per_token(2) == 61 * (512 + 64) * 2
    assert facts.kv_share(8) == 1.0
    assert reference_model("deepseek-v3").kv_bytes_per_token(2) == 1748992


def test_heads_have_the_size_that_the_config_states():
    assert published_model(QWEN).attention.kv_values == 2 * 4 * 128
    assert reference_model("qwen3-235b-a22b").attention.kv_values == 2 * 4 * 64


def test_key_value_heads_are_copied_beyond_their_number():
    facts = published_model(QWEN)  # 4 heads
    assert [facts.kv_share(tp) for tp in (1, 2, 4, 8)] == [1.0, 0.5, 0.25, 0.25]


def test_a_deepseek_config_has_experts():
    config = {
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "intermediate_size": 2048,
        "moe_intermediate_size": 256,
        "n_routed_experts": 16,
        "n_shared_experts": 2,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
    }
    facts = facts_of_config(config, name="small")
    assert (facts.experts, facts.topk, facts.expert_layers) == (16, 4, 3)
    assert facts.expert_params == 3 * 16 * 3 * 512 * 256
    assert facts.dense_params == 3 * 512 * 2048 + 3 * 3 * 512 * (2 * 256)


def test_configs_that_cannot_be_sized_are_refused():
    with pytest.raises(DataError, match="hidden_size"):
        facts_of_config({"num_hidden_layers": 4}, name="odd")
    for name in ("nvidia/Nemotron-H-56B-Base-8K", "Qwen/Qwen3.5-27B", "deepseek-ai/DeepSeek-V4-Pro"):
        with pytest.raises(UnsupportedModel, match="not all alike"):
            published_model(name)


def test_room_is_that_of_one_gpu():
    serving = Serving(tp=8)
    ours, theirs = _profile("h100", LLAMA, serving), _profile("h100", "llama-3.1-70b", serving, FLEET_REFERENCE)
    assert theirs.kv_blocks == 11353
    assert ours.kv_blocks == pytest.approx(8 * theirs.kv_blocks, rel=0.01)
    budget = int(0.9 * 80 * 2**30) - 411041792 - weight_bytes(published_model(LLAMA), serving, 8)
    assert ours.kv_blocks == budget // (80 * 2 * 128 * 2 * 16)


def test_reserve_of_the_runtime_counts_where_the_share_leaves_less():
    all_of_it = _profile("b60", "meta-llama/Meta-Llama-3.1-8B", Serving(memory_share=1.0))
    reserve = (
        25769803776 - 3758096384 - weight_bytes(published_model("meta-llama/Meta-Llama-3.1-8B"), Serving(), 1)
    ) // (131072 * 16)
    assert all_of_it.kv_blocks == reserve


def test_a_model_that_does_not_fit_is_refused_with_sizes():
    with pytest.raises(NoFeasible, match=r"needs 94\.5 GiB for weights and has 71\.6 GiB"):
        _profile("h100", "meta-llama/Meta-Llama-3.1-405B", Serving(tp=8))
    theirs = _profile("h100", "llama-3.1-405b", Serving(tp=8), FLEET_REFERENCE)
    assert (theirs.kv_blocks, int(slots(theirs, 8192))) == (0, 1)


def test_gpus_that_share_experts_divide_their_weights_and_times():
    narrow, wide = (_profile("h200", DEEPSEEK, Serving(tp=8, ep=ep, dtype_bytes=1.0, max_slots=64)) for ep in (8, 32))
    assert (narrow.gpus, wide.gpus) == (8.0, 32.0)
    assert wide.base_s < narrow.base_s
    assert wide.price_per_hour == 4 * narrow.price_per_hour
    assert wide.kv_blocks > 4 * narrow.kv_blocks  # four copies of attention, and room that experts leave
    wide_config = Serving(tp=8, ep=32, dtype_bytes=1.0)
    theirs = computed_profile(gpu("h200"), reference_model("deepseek-v3"), wide_config, CONSTANTS, FLEET_REFERENCE)
    assert theirs.gpus == 8.0


def test_more_bandwidth_makes_expert_times_shorter():
    facts = published_model(DEEPSEEK)
    h100, h200 = (expert_layer_s(facts, gpu(key), 1.0, 8.0, CONSTANTS.computed) for key in ("h100", "h200"))
    assert h100 == pytest.approx(0.70e-3)
    assert h200 == pytest.approx(0.70e-3 * (3.35 / 4.8) ** 0.7)


def test_experts_that_were_not_measured_are_read_once_each():
    facts = published_model("mistralai/Mixtral-8x7B-v0.1")
    assert experts_taken(facts, 1) == pytest.approx(2)
    assert experts_taken(facts, 100) == pytest.approx(8)
    all_read = facts.expert_params / 32 * 2 / (0.8 * 3.35e12)
    assert expert_layer_s(facts, gpu("h100"), 2.0, 100.0, CONSTANTS.computed) == pytest.approx(all_read, rel=1e-6)


def test_every_key_of_a_gpu_answers():
    keys = ("h100", "H100-SXM", "h100_sxm", "h100 80gb", "h100-80gb")
    assert {gpu(key).name for key in keys} == {"H100-SXM"}
    assert gpu("a100-80gb").name == "A100-SXM"
    assert len(gpu_names()) == 8
    with pytest.raises(InputError, match="did you mean"):
        gpu("h1000")


@pytest.mark.parametrize(
    "bad", [{"tp": 0}, {"tp": 4, "ep": 6}, {"dtype_bytes": 0.0}, {"memory_share": 1.2}, {"max_slots": 0}]
)
def test_bad_serving_names_the_argument(bad: dict[str, float]):
    with pytest.raises(InputError, match=list(bad)[-1]):
        dataclasses.replace(Serving(), **bad)


def test_decode_reads_the_experts_that_its_tokens_take():
    serving = Serving(tp=8, dtype_bytes=1.0)
    profile, facts = _profile("h200", DEEPSEEK, serving), published_model(DEEPSEEK)
    few, many = (decode_efficiency(gpu("h200"), facts, serving, profile, n) for n in (1, 512))
    assert few.read_bytes < 0.1 * many.read_bytes
    assert many.read_bytes < weight_bytes(facts, serving, 8) + 512 * facts.kv_bytes_per_token(1.0) * 2048
    assert few.bound == "memory"
    assert many.tokens_per_joule > few.tokens_per_joule
