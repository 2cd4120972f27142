# SPDX-License-Identifier: Apache-2.0
"""Operator lists of dense models against stored lists of AIConfigurator 0.12.0, and which layouts are refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from aicjax._results import InputError, UnsupportedModel
from aicjax.compat import REFERENCE
from aicjax.models import Parallel, Quantisation, check_parallel, infer_quantisation, load_model, op_lists
from aicjax.models.families import FAMILIES
from aicjax.ops import records
from tests.models.stored_lists import stored_forms

ENTRIES = json.loads((Path(__file__).parents[1] / "references" / "oplists_llama.json").read_text())
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")


def build(model, parallel=Parallel(), backend="trtllm", nextn=0, explicit=None):  # noqa: B008
    return op_lists(model, parallel, infer_quantisation(model, backend, explicit), backend, nextn)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['model']}-tp{entry['tp']}cp{entry['cp']}")
def test_op_list_matches_the_reference(entry):
    parallel = Parallel(*(entry[size] for size in SIZES))
    model = load_model(entry["model"], compat=REFERENCE)
    lists = op_lists(model, parallel, Quantisation(**entry["quant"]), entry["backend"], entry["nextn"])
    assert stored_forms(lists.context) == entry["context"]
    assert stored_forms(lists.generation) == entry["generation"]
    assert sum(op.weight_bytes for op in lists.context) / parallel.pp == entry["weights_bytes"]


def test_kv_heads_are_replicated_beyond_their_number():
    lists = build(load_model("Qwen/Qwen3-32B"), Parallel(tp=16))
    attention = next(op for op in lists.context if isinstance(op, records.ContextAttention))
    assert (attention.num_heads, attention.num_kv_heads) == (4, 1)


def test_weights_do_not_depend_on_the_kv_format():
    model = load_model("meta-llama/Meta-Llama-3.1-8B")
    weights = [
        sum(op.weight_bytes for op in build(model, explicit={"kvcache": kv}).context) for kv in ("bfloat16", "fp8")
    ]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("nextn", [1, 3])
def test_drafts_scale_every_decode_operator_and_no_prefill_operator(nextn):
    model = load_model("Qwen/Qwen3-8B")
    plain, drafted = build(model), build(model, nextn=nextn)
    assert drafted.context == plain.context
    for with_drafts, without in zip(drafted.generation, plain.generation, strict=True):
        assert isinstance(with_drafts, records.Op) and isinstance(without, records.Op)
        assert with_drafts.scale == pytest.approx(without.scale * (model.layers + nextn) / model.layers, rel=1e-15)


@pytest.mark.parametrize("nextn", [-1, 1.5])
def test_draft_depth_is_a_count(nextn):
    with pytest.raises(InputError, match="nextn"):
        build(load_model("Qwen/Qwen3-8B"), nextn=nextn)


@pytest.mark.parametrize("tp", [3, 128])
def test_heads_must_divide_by_tp(tp):
    model = load_model("Qwen/Qwen3-32B")
    with pytest.raises(InputError, match=rf"`tp` must be a divisor of the 64 query heads .* got {tp}"):
        check_parallel(model, Parallel(tp=tp), "trtllm")


def test_attention_and_expert_widths_must_agree():
    model = load_model("Qwen/Qwen3-235B-A22B")
    with pytest.raises(InputError, match=r"8 x 1 x 1 = 8 and moe_tp x moe_ep = 2 x 3 = 6"):
        check_parallel(model, Parallel(tp=8, moe_tp=2, moe_ep=3), "trtllm")
    check_parallel(model, Parallel(tp=4, dp=2, moe_tp=2, moe_ep=4), "trtllm")


@pytest.mark.parametrize(("moe_tp", "moe_ep"), [(1, 1), (1, 8), (2, 4)])
def test_a_dense_model_has_no_experts_to_place(moe_tp, moe_ep):
    model = load_model("Qwen/Qwen3-32B")
    check_parallel(model, Parallel(tp=8, moe_tp=moe_tp, moe_ep=moe_ep), "trtllm")
    with pytest.raises(InputError, match=r"= 8 and .* = 6"):
        check_parallel(model, Parallel(tp=8, moe_tp=2, moe_ep=3), "trtllm")


@pytest.mark.parametrize(
    ("model", "parallel", "backend", "argument"),
    [
        ("Qwen/Qwen3-8B", Parallel(tp=0), "trtllm", "tp"),
        ("Qwen/Qwen3-8B", Parallel(pp=-1), "trtllm", "pp"),
        ("mistralai/Mixtral-8x7B-v0.1", Parallel(tp=16, moe_ep=16), "trtllm", "moe_ep"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", Parallel(tp=16, cp=2, moe_tp=32), "sglang", "cp"),
        ("Qwen/Qwen3-8B", Parallel(cp=2), "vllm", "cp"),
        ("Qwen/Qwen3-8B", Parallel(tp=2, cp=2), "sglang", "cp"),
    ],
)
def test_layouts_that_cannot_run_are_refused(model, parallel, backend, argument):
    with pytest.raises(InputError) as caught:
        check_parallel(load_model(model), parallel, backend)
    assert caught.value.argument == argument


def test_a_tp_without_activation_coefficient_is_refused():
    heads = load_model("Qwen/Qwen3-8B")
    model = type(heads)(**{**vars(heads), "num_heads": 48})
    with pytest.raises(InputError, match=r"one of \[1, 2, 4, 8\]"):
        check_parallel(model, Parallel(tp=6), "trtllm")
    check_parallel(model, Parallel(tp=24), "trtllm")


def test_a_family_without_operator_list_says_which_have_one(monkeypatch):
    model = load_model("openai/gpt-oss-120b")
    monkeypatch.setitem(FAMILIES, "MOE", dataclasses.replace(FAMILIES["MOE"], op_lists=None))
    with pytest.raises(UnsupportedModel, match=r"GptOssForCausalLM \(family MOE\).*LLAMA"):
        op_lists(model, Parallel(), infer_quantisation(model, "trtllm"), "trtllm")


@pytest.mark.parametrize(
    ("parallel", "label", "gpus"),
    [
        (Parallel(), "tp1pp1dp1etp1ep1", 1),
        (Parallel(tp=4, pp=2, dp=2, moe_tp=2, moe_ep=4), "tp4pp2dp2etp2ep4", 16),
        (Parallel(cp=8), "tp1pp1dp1etp1ep1cp8", 8),
    ],
)
def test_label_and_gpus_of_a_layout(parallel, label, gpus):
    assert (parallel.label, parallel.gpus) == (label, gpus)
