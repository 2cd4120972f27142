# SPDX-License-Identifier: Apache-2.0
"""Roles of a search with experts over many GPUs: which layouts, through which libraries, in which formats."""

from typing import Any

import pytest

from aicjax.explore import SearchRequest
from aicjax.explore.grid import load_grid
from aicjax.explore.space import Role
from aicjax.explore.task import Budget, Space, role_space
from aicjax.ops.records import Moe, MoeExpertCompute

GRID = load_grid().layouts
V3 = "deepseek-ai/DeepSeek-V3"


def space(role: Role, backend: str, total_gpus: int = 32, model: str = V3, system: str = "h200_sxm", **stated) -> Space:
    asked: dict[str, Any] = {"model_path": model, "system": system, "backend": backend, "total_gpus": total_gpus}
    return role_space(SearchRequest(**asked | stated), role, backend, Budget(total_gpus, total_gpus), GRID)


@pytest.mark.parametrize(
    ("role", "backend", "layouts", "wide"),
    [("agg", "trtllm", 32, 3), ("prefill", "sglang", 84, 15), ("decode", "sglang", 75, 14)],
)
def test_stored_searches_have_as_many_layouts(role, backend, layouts, wide):
    found = space(role, backend)
    assert (len(found.worker.layouts), len(found.worker.libraries)) == (layouts, wide)
    assert found.large_ep


def test_attention_beside_wide_experts_has_formats_of_its_own():
    worker = space("decode", "sglang").worker
    pairs = zip(worker.exchanges, worker.formats, strict=True)
    assert {(plan is not None, formats.fmha, formats.kvcache) for plan, formats in pairs} == {
        (False, "fp8", "fp8"),
        (True, "fp8_block", "fp8"),
    }
    stated = space("decode", "sglang", fmha_quant_mode="bfloat16").worker
    assert {formats.fmha for formats in stated.formats} == {"bfloat16"}


def test_roles_share_the_operators_of_their_layouts():
    agg, decode = (space(role, "trtllm").worker for role in ("agg", "decode"))
    assert agg.deployment.quantisation != decode.deployment.quantisation
    assert agg.op_lists == decode.op_lists


def test_layouts_across_nodes_without_an_exchange_say_what_is_missing():
    found = space("agg", "trtllm", model="Qwen/Qwen3-235B-A22B-FP8")
    refused = {refusal.layout: refusal.reason for refusal in found.worker.refused}
    assert "no exchange of tokens between nodes is measured" in refused["tp1pp1dp16etp1ep16"]
    assert not found.large_ep and not found.worker.libraries


def test_replicas_have_any_size_unless_the_lists_leave_wide_experts_out():
    assert space("decode", "trtllm", total_gpus=8).large_ep
    assert not space("decode", "trtllm", decode_moe_ep_candidates=(1,)).large_ep
    assert not space("decode", "trtllm", model="zai-org/GLM-5-FP8").large_ep
    assert space("prefill", "trtllm", model="zai-org/GLM-5-FP8").large_ep


def test_balanced_experts_have_places_to_spare():
    worker = space("agg", "trtllm", enable_eplb=True, wideep_num_slots=288).worker
    plans = {(plan.slots, plan.balanced) for plan in worker.exchanges if plan is not None}
    assert plans == {(288, True)}
    wide = {op.distribution for ops in worker.op_lists for op in ops.context if isinstance(op, MoeExpertCompute)}
    cut = {op.distribution for ops in worker.op_lists for op in ops.context if isinstance(op, Moe)}
    assert (wide, cut) == ({"power_law_1.01_eplb"}, {"power_law_1.01"})
    unbalanced = space("agg", "trtllm", wideep_num_slots=288).worker
    assert not unbalanced.libraries and any("slots" in refusal.reason for refusal in unbalanced.refused)


def test_libraries_are_told_by_layout():
    found = space("agg", "trtllm", total_gpus=4, system="gb200")
    two_sided, deepep = ("nvlink_two_sided",) * 2, ("trtllm_deepep_ht", "trtllm_deepep_ll")
    assert {label: tuple(phases.values()) for label, phases in found.worker.libraries.items()} == {
        "tp1pp1dp2etp1ep2": two_sided,
        "tp1pp1dp4etp1ep4": deepep,
    }
    assert list(space("prefill", "trtllm", total_gpus=8).worker.libraries["tp1pp1dp8etp1ep8"]) == ["context"]
