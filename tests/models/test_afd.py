# SPDX-License-Identifier: Apache-2.0
"""Deployments with attention and feed-forward layers apart: which operator is where, and what the pools exchange."""

import itertools
from typing import Any

import pytest

from aicjax._results import InputError, UnsupportedModel
from aicjax.hardware import load_system
from aicjax.models import Parallel, load_model, op_lists, resolve_quantisation
from aicjax.models.afd import AfdTopology, afd_operators, send_share
from aicjax.models.attention_ffn import split_sides
from aicjax.ops.records import Elementwise, Nccl, OpLists, Overlap

DENSE, EXPERTS = "Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-235B-A22B-FP8"


def formats(name: str):
    return resolve_quantisation(load_model(name), load_system("h200_sxm"), "trtllm", "1.3.0rc20", {})


def lists(name: str, layout: Parallel) -> OpLists:
    return op_lists(load_model(name), layout, formats(name), "trtllm")


def test_every_operator_but_collectives_is_on_one_side():
    whole = lists(DENSE, Parallel(4))
    attention, ffn = split_sides(whole)
    assert [op.name for op in ffn.context] == ["context_gate_ffn1_gemm", "context_act_gate", "context_ffn2_gemm"]
    left_out = {op.name for op in whole.generation} - {op.name for op in (*attention.generation, *ffn.generation)}
    assert left_out == {f"generation_{name}" for name in ("embedding_ar", "ar_1", "ar_2", "p2p")}
    assert sum(op.weight_bytes for op in (*attention.context, *ffn.context)) == pytest.approx(
        sum(op.weight_bytes for op in whole.context)
    )


def test_boundary_operators_move_to_the_other_side():
    moved = split_sides(lists(DENSE, Parallel(4)), boundary_on_attention=False).ffn.generation
    assert {op.name for op in moved} >= {"generation_add_norm_2", "generation_logits_gemm"}


def test_prefill_projects_every_token_onto_the_vocabulary():
    attention, _ = split_sides(lists(DENSE, Parallel(1)))
    found: list[Any] = [op for op in attention.context if "vocabulary" in op.name]
    (projection,) = found
    assert not projection.last_token_only


def test_overlap_across_the_sides_is_refused():
    norm, router = Elementwise("x_add_norm_1", 1.0, 2.0), Elementwise("x_router", 1.0, 2.0)
    apart = OpLists((Overlap("x_overlap", (router,), (router,)),), ())
    assert split_sides(apart).ffn.context == apart.context
    with pytest.raises(UnsupportedModel, match="several sides"):
        split_sides(OpLists((Overlap("x_overlap", (norm,), (router,)),), ()))
    with pytest.raises(UnsupportedModel, match="gdn_conv"):
        split_sides(OpLists((Elementwise("gdn_conv", 1.0, 2.0),), ()))


@pytest.mark.parametrize(("experts", "topk", "nodes"), [(6, 2, 2), (6, 2, 3), (8, 3, 2), (8, 5, 2)])
def test_send_share_counts_the_choices_of_experts(experts: int, topk: int, nodes: int):
    choices = list(itertools.combinations(range(experts), topk))
    on_node = sum(any(expert < experts // nodes for expert in choice) for choice in choices)
    assert send_share(experts, topk, nodes) == pytest.approx(on_node / len(choices))


def test_send_share_without_experts_is_even():
    assert [send_share(0, 0, nodes) for nodes in (1, 2, 4)] == [1.0, 0.5, 0.25]
    assert send_share(128, 8, 1) == 1.0


def test_pools_exchange_states_within_the_feed_forward_node():
    model, topology = load_model(EXPERTS), AfdTopology(2, 1, 8, attention_tp=4, ffn_ep=8)
    operators = afd_operators(model, topology, formats(EXPERTS), "trtllm")
    gathered = [op for op in operators.ffn.generation if isinstance(op, Nccl)]
    assert [(op.num_gpus, op.elements_per_token, op.scale) for op in gathered] == [(8, 4096 / 8, 94)] * 2
    combined: Any = operators.attention.generation[-1]
    assert (combined.name, combined.bytes_per_token, combined.seq_split) == ("attention_combine", 9 * 4096 * 2, 4)
    assert (topology.attention_workers, topology.ffn_gpus, topology.gpus) == (4, 8, 24)
    assert topology.label == "a2n-tp4+f1n-ep8"


@pytest.mark.parametrize(
    ("name", "sizes", "argument"),
    [
        (DENSE, {"attention_tp": 3}, "a_tp_size"),
        (EXPERTS, {"ffn_ep": 3}, "f_moe_ep_size"),
        (DENSE, {"ffn_ep": 2}, "f_moe_ep_size"),
    ],
)
def test_cut_that_does_not_fit_is_refused(name: str, sizes: dict[str, int], argument: str):
    with pytest.raises(InputError) as refusal:
        afd_operators(load_model(name), AfdTopology(1, 1, 8, **sizes), formats(name), "trtllm")
    assert refusal.value.argument == argument
