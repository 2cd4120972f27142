# SPDX-License-Identifier: Apache-2.0
"""Layouts that a search tries."""

import pytest

from aicjax.explore.grid import load_grid
from aicjax.explore.space import Role, candidate_lists, enumerate_layouts, within_budget
from aicjax.hardware import load_system
from aicjax.models import load_model
from aicjax.serving.backends import load_backend

GRID = load_grid().layouts
DENSE, MOE, SPARSE = "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B", "deepseek-ai/DeepSeek-V3.2"


def lists(model, backend="trtllm", role: Role = "agg", system="h200_sxm", total_gpus=32, stated=None, **options):
    found = candidate_lists(
        load_model(model), load_system(system), backend, role, total_gpus, GRID, stated or {}, **options
    )
    return within_budget(found, total_gpus)


def layouts(model, backend, role: Role = "agg", **options):
    found = lists(model, backend, role, **options)
    return enumerate_layouts(load_model(model), backend, role, found, load_backend(backend))


def test_dense_layouts():
    found, refused = layouts(DENSE, "trtllm")
    assert [layout.label for layout in found] == [f"tp{tp}pp1dp1etp1ep1" for tp in (1, 2, 4, 8)]
    assert not refused


@pytest.mark.parametrize(("backend", "role", "number"), [("trtllm", "agg", 29), ("sglang", "decode", 55)])
def test_numbers_of_expert_layouts(backend, role, number):
    assert len(layouts(MOE, backend, role)[0]) == number


def test_every_expert_layout_has_one_width():
    for backend in ("trtllm", "vllm", "sglang"):
        for layout in layouts(MOE, backend)[0]:
            assert layout.tp * layout.dp * layout.cp == layout.moe_tp * layout.moe_ep


def test_budget_and_system_bound_the_lists():
    assert lists(DENSE, total_gpus=6)["num_gpu"] == (1, 2, 4)
    assert lists(DENSE, system="gb200")["tp"] == (1, 2, 4, 8, 16)


def test_context_parallelism_is_for_prefill_on_engines_that_have_it():
    assert lists(DENSE, "sglang", "prefill")["cp"] == (1, 2, 4, 8)
    assert lists(DENSE, "sglang", "decode")["cp"] == (1,)
    assert lists(DENSE, "trtllm", "prefill")["cp"] == (1,)


def test_stated_lists_win():
    assert lists(DENSE, stated={"tp": (2,), "num_gpu": (2, 64)}) == {**lists(DENSE), "tp": (2,), "num_gpu": (2,)}


def test_wide_expert_parallelism_joins_the_lists():
    found = lists(MOE, "trtllm", "prefill", total_gpus=64, large_ep=(16, 64))
    assert found["moe_ep"] == (1, 2, 4, 8, 16, 32)
    assert found["num_gpu"] == (1, 2, 4, 8, 16, 32)
    found = lists(MOE, "vllm", "prefill", total_gpus=64, large_ep=(24, 64))
    assert found["moe_ep"] == found["num_gpu"] == found["dp"] == (1, 2, 4, 8, 16, 24, 64)
    assert found["tp"] == (1, 2, 4, 8, 16)


def test_one_kernel_for_experts_has_lists_of_its_own():
    model = "deepseek-ai/DeepSeek-V4-Pro"
    assert lists(model, system="b200_sxm", backend="sglang", moe_backend="megamoe")["moe_ep"] == (8,)
    found, refused = layouts(model, "sglang", "decode", system="gb200", moe_backend="megamoe", total_gpus=16)
    assert {(layout.moe_tp, layout.pp) for layout in found} == {(1, 1)} and not refused
    assert {layout.moe_ep for layout in found} == {4, 8, 16}
    assert lists(MOE, "sglang", moe_backend="deepep_moe")["moe_tp"] == (1,)


def test_pipelines_join_for_large_budgets_on_new_systems():
    assert lists(SPARSE, system="b200_sxm")["pp"] == (1, 2)
    assert lists(SPARSE, system="b200_sxm", total_gpus=8)["pp"] == (1,)
    assert lists(SPARSE, system="h200_sxm")["pp"] == (1,)


def test_refused_layouts_say_why():
    found, refused = layouts(DENSE, "trtllm", stated={"tp": (3, 4), "num_gpu": (3, 4)})
    assert [layout.tp for layout in found] == [4]
    assert "64 query heads" in refused[0].reason
