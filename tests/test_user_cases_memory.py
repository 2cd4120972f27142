# SPDX-License-Identifier: Apache-2.0
"""Memory and KV capacity as users of predictors asked for them, through the public entry points.

Sources: llm-d planner and benchmark, vLLM, hf-mem and AIConfigurator threads.
"""

import dataclasses
from typing import Any

import pytest

from aicjax._results import NoFeasible
from aicjax._units import GIB
from aicjax.constants import load_constants
from aicjax.explore import estimate
from aicjax.explore.explain import memory_use
from aicjax.forward.kv_budget import kv_budget_bytes
from aicjax.forward.kv_capacity import kv_capacity
from aicjax.forward.kv_curve import KvCurve
from aicjax.forward.memory import WorkerMemory, bind_memory
from aicjax.hardware import load_system
from aicjax.models import Parallel, infer_quantisation, kv_cache, load_model, op_lists

pytestmark = pytest.mark.as_shipped

BYTES_16BIT = 2


def worker(name: str, parallel: Parallel = Parallel(), system: str = "h200_sxm", nextn: int = 0, **formats: str):  # noqa: B008
    """Memory of one worker on TensorRT-LLM."""
    model, version = load_model(name), "1.3.0rc20"
    quantisation = infer_quantisation(model, "trtllm", formats)
    lists = [op_lists(model, parallel, quantisation, "trtllm", nextn)]
    constants = load_constants("trtllm").memory
    known = load_system(system)
    return bind_memory(known, "trtllm", version, model, [parallel], lists, [quantisation], constants, nextn)


def token_bytes(memory: WorkerMemory) -> float:
    return float(memory.kv_curve.bytes(1)[0, 0])


def test_8_bit_keys_and_values_take_half_and_hold_twice_the_tokens():
    """32 layers of 8 heads of 128."""
    memories = [worker("meta-llama/Meta-Llama-3.1-8B", kvcache=kv) for kv in ("bfloat16", "fp8")]
    assert [token_bytes(memory) for memory in memories] == [131072, 65536]
    wide, narrow = (kv_capacity(memory, 8192, 0.9).tokens[0] for memory in memories)
    assert abs(narrow - 2 * wide) <= 1
    assert memories[0].weights_bytes == memories[1].weights_bytes


@pytest.mark.parametrize("tp", [1, 8])
def test_every_rank_holds_the_whole_latent_vector(tp: int):
    """61 layers of 512 + 64 values, whatever the heads and however they are split."""
    for name in ("deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2-Instruct"):
        assert token_bytes(worker(name, Parallel(tp=tp, moe_ep=tp), kvcache="bfloat16")) == 70272


def test_window_layers_cache_the_window_and_capacity_is_no_straight_line():
    """24 layers, half of them with a window of 128; 8 heads of 64. Window layers hold the window, not full pages."""
    memory = worker("openai/gpt-oss-20b", kvcache="bfloat16")
    assert 32 * memory.kv_curve.bytes(8192)[0, 0] / GIB == 6.09375
    budget = memory.kv_curve.bytes(8192)[0]
    assert memory.kv_curve.longest(budget)[0] == 8192
    assert budget[0] // token_bytes(memory) < 8192 // 1.9, "a constant per token would say half"


def test_expert_parallelism_divides_expert_weights_and_nothing_else():
    """384 experts over 8 ranks: 48 on each."""
    model = load_model("moonshotai/Kimi-K2-Instruct")
    formats = infer_quantisation(model, "trtllm")
    experts, others = [], []
    for parallel in (Parallel(), Parallel(dp=8, moe_ep=8)):
        ops = op_lists(model, parallel, formats, "trtllm").context
        experts.append(sum(op.weight_bytes for op in ops if op.name == "context_moe"))
        others.append(sum(op.weight_bytes for op in ops if op.name != "context_moe"))
    one_expert = 3 * 7168 * 2048
    assert experts == [60 * 384 * one_expert, 60 * 48 * one_expert]
    assert others[0] == others[1]


def test_draft_tokens_are_part_of_the_token_budget_of_a_capacity():
    found = [kv_capacity(worker("Qwen/Qwen3-8B", nextn=depth), 8192, 0.9) for depth in range(4)]
    assert len({float(capacity.non_kv_bytes[0]) for capacity in found}) == 1
    assert len({int(capacity.tokens[0]) for capacity in found}) == 1


def test_the_engine_decides_what_the_memory_fraction_is_of():
    """141 GiB, 40 GiB taken, 0.9: of what is free, or of the whole."""
    rooms = [kv_budget_bytes(141 * GIB, 40 * GIB, 0.9, of_free=of_free) / GIB for of_free in (True, False)]
    assert rooms == pytest.approx([90.9, 86.9])
    kinds = {name: bool(load_constants(name).memory.kv_fraction_of_free) for name in ("trtllm", "vllm", "sglang")}
    assert kinds == {"trtllm": True, "vllm": False, "sglang": False}
    used = worker("Qwen/Qwen3-8B").inflight([8], 1000, 100, [1000], kv_fraction=0.8)
    assert memory_use("agg", used, 0).kv_rule == "0.8 of what is free"


def test_a_model_too_large_is_refused_with_what_it_needs_and_the_smallest_tp():
    """405.85e9 parameters in 16 bits weigh 755.95 GiB; a card of 80 GiB does not hold them, 16 do."""
    request: dict[str, Any] = {"model_path": "meta-llama/Meta-Llama-3.1-405B", "system": "h100_sxm"}
    with pytest.raises(NoFeasible) as refusal:
        estimate(**request, mode="static", batch_size=1, isl=1000, osl=100)
    message = str(refusal.value)
    for part in ("weights 755.95", "80.00 GiB", "smallest power-of-two TP that fits is 16"):
        assert part in message
    assert "ttft" not in message.lower()


def test_hybrid_caches_say_what_they_hold_of_each_layer():
    """Recurrent layers hold a state of fixed size, attention layers grow."""
    model = load_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    formats = dataclasses.replace(infer_quantisation(model, "vllm"), kvcache="bfloat16")
    curve = KvCurve.stack([kv_cache(model, Parallel(), formats, "vllm")], model.context_length)
    empty, short, long = curve.bytes([0, 1000, 2000])[0]
    assert empty > 0
    assert long - short == short - empty == 1000 * model.extra["pattern"].count("*") * 2 * 2 * 128 * BYTES_16BIT
