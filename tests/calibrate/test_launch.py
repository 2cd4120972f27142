# SPDX-License-Identifier: Apache-2.0
"""How measured servers were started: facts of launch scripts by row and date, and layouts recorded wrongly."""

import dataclasses

import numpy as np
import pytest

from aicjax._results import DataError
from aicjax.calibrate import data_rules
from aicjax.calibrate.launch import LaunchRule, launch_facts, launched
from aicjax.calibrate.measurements import Measurements, WorkerColumns, read_measurements


@pytest.fixture(scope="module")
def shipped() -> Measurements:
    return read_measurements()


def _row(shipped: Measurements, **changed) -> Measurements:
    """One in-flight batching row of the benchmark, on 8 GPUs with tensor parallelism, with the changed columns."""
    first = np.flatnonzero((shipped.harness == "inferencex") & shipped.is_agg & shipped.agg.known)[:1]
    ones = {field.name: np.array([1]) for field in dataclasses.fields(WorkerColumns)}
    widths = {name: np.array([changed.pop(name)]) for name in ("tp", "dp", "moe_tp", "moe_ep") if name in changed}
    agg = WorkerColumns(**{**ones, "tp": np.array([8]), "moe_tp": np.array([8]), **widths})
    values = {name: np.array([value]) for name, value in changed.items()}
    values.setdefault("measured_at", np.array(["2026-03-01"]))
    row = dataclasses.replace(shipped.take(first), agg=agg, **values)
    concurrency = row.concurrency if "concurrency" in changed else np.array([32])
    batch = -(-concurrency // (agg.dp))
    return dataclasses.replace(row, concurrency=concurrency, agg=dataclasses.replace(agg, batch=batch))


def _disagg(shipped: Measurements, **changed) -> Measurements:
    """One disaggregated row: a prefill worker of 4 data-parallel ranks, four decode workers of 8 GPUs."""
    row = _row(shipped, mode="disagg", backend="trtllm", model_family="deepseek-v3-671b", isl=1024, osl=1024, **changed)

    def workers(count: int, tp: int, dp: int) -> WorkerColumns:
        widths = {"tp": tp, "dp": dp, "moe_tp": tp, "moe_ep": dp, "batch": 1, "count": count}
        return WorkerColumns(**{name: np.array([value]) for name, value in widths.items()})

    return dataclasses.replace(row, agg=workers(0, 0, 0), prefill=workers(1, 1, 4), decode=workers(4, 8, 1))


DEEPSEEK = {"model_family": "deepseek-v3-671b"}


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        (
            {"backend": "vllm", "model_family": "llama3.1-70b", "precision": "fp8", "system": "b200_sxm", "isl": 1024},
            {"kv_cache": "fp8", "step_tokens": 8192, "slots": 512, "memory_share": 0.9, "mixes": 1, "receive_steps": 1},
        ),
        (
            {"backend": "vllm", "model_family": "llama3.1-70b", "precision": "fp8", "system": "h100_sxm"},
            {"slots": 32, "kv_cache": "fp8"},
        ),
        (
            {"backend": "vllm", "model_family": "minimax-m2.5", "precision": "fp8", "system": "b300_sxm", "isl": 8192}
            | {"measured_at": "2026-04-17"},
            {"kv_cache": "fp8", "step_tokens": 16384, "slots": 1024, "stream_steps": 20},
        ),
        (
            {"backend": "sglang", "precision": "fp4", "system": "b200_sxm", **DEEPSEEK, "concurrency": 8},
            {"kv_cache": "fp8", "receive_steps": 10, "step_tokens": 16384, "slots": 256, "mixes": 0},
        ),
        (
            {"backend": "sglang", "precision": "fp8", "system": "b200_sxm", **DEEPSEEK, "concurrency": 16},
            {"receive_steps": 30, "step_tokens": 32768, "slots": 128},
        ),
        (
            {"backend": "sglang", "precision": "fp8", "system": "b300_sxm", **DEEPSEEK, "tp": 4},
            {"receive_steps": 10, "step_tokens": 8192, "slots": 32},
        ),
        (
            {"backend": "sglang", "model_family": "glm-5", "precision": "fp8", "system": "h200_sxm"},
            {"kv_cache": "bfloat16", "receive_steps": 1, "step_tokens": 8192, "slots": np.inf},
        ),
        (
            {"backend": "sglang", "model_family": "qwen3.5-397b-a17b", "precision": "fp8", "system": "b200_sxm"}
            | {"tp": 4, "moe_tp": 4, "moe_ep": 1},
            {"attention_kernel": "trtllm_mha", "wrong": "speculation", "kv_cache": "fp8"},
        ),
        (
            {"backend": "trtllm", "model_family": "llama3.1-70b", "precision": "fp8", "system": "b200_sxm", "tp": 4}
            | {"isl": 1024, "osl": 1024, "measured_at": "2025-10-29"},
            {"gather_steps": 20, "gather_tokens": 0.9 * 16384, "warm_up": 0},
        ),
        (
            {"backend": "trtllm", "model_family": "llama3.1-70b", "precision": "fp8", "system": "b200_sxm", "tp": 8}
            | {"isl": 1024, "osl": 1024},
            {"gather_steps": 0, "gather_tokens": 0, "prompts_per_step": 17},
        ),
        (
            {"backend": "trtllm", "model_family": "gpt-oss-120b", "precision": "fp4", "system": "h200_sxm"},
            {"kv_cache": "bfloat16", "slots": 32, "step_tokens": 20000},
        ),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", **DEEPSEEK, "isl": 1024}
            | {"measured_at": "2025-12-15"},
            {"step_tokens": 1152, "prompts_per_step": 1, "balance_steps": 0, "warm_up": 0},
        ),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", **DEEPSEEK, "isl": 1024, "tp": 1, "dp": 8}
            | {"measured_at": "2026-02-03"},
            {"step_tokens": 8192, "prompts_per_step": 8, "balance_steps": 60, "warm_up": 2},
        ),
    ],
)
def test_facts_of_a_row(shipped, row, facts):
    found = launch_facts(_row(shipped, **row))
    assert {name: getattr(found, name)[0] for name in facts} == facts


@pytest.mark.parametrize(
    ("row", "layout"),
    [  # tp, dp, moe_tp, moe_ep
        ({"backend": "sglang", "precision": "fp4", "system": "b200_sxm", "measured_at": "2025-11-10"}, (8, 1, 1, 8)),
        ({"backend": "sglang", "precision": "fp4", "system": "b200_sxm", "measured_at": "2026-03-25"}, (8, 1, 8, 1)),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", "measured_at": "2025-11-02", "isl": 1024}
            | {"osl": 1024, "concurrency": 8},
            (8, 1, 8, 1),
        ),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", "measured_at": "2025-11-02", "isl": 1024}
            | {"osl": 1024, "concurrency": 16},
            (8, 1, 1, 8),
        ),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", "measured_at": "2025-11-02", "isl": 8192}
            | {"osl": 1024, "concurrency": 64},
            (1, 8, 1, 8),
        ),
        (
            {"backend": "trtllm", "precision": "fp4", "system": "b200_sxm", "measured_at": "2025-11-03", "isl": 8192}
            | {"osl": 1024, "concurrency": 64},
            (8, 1, 8, 1),
        ),
    ],
)
def test_layouts_by_date(shipped, row, layout):
    before = _row(shipped, **DEEPSEEK, **row)
    after = launched(before).agg
    assert (int(after.tp[0]), int(after.dp[0]), int(after.moe_tp[0]), int(after.moe_ep[0])) == layout
    assert after.batch * after.dp == before.concurrency


def test_corrections_are_not_applied_twice(shipped):
    once = launched(shipped)
    twice = launched(once)
    for role in ("agg", "prefill", "decode"):
        for field in dataclasses.fields(WorkerColumns):
            name = field.name
            np.testing.assert_array_equal(getattr(once.workers(role), name), getattr(twice.workers(role), name))


def test_corrected_layouts_keep_their_gpus_and_requests(shipped):
    after = launched(shipped)
    for role in ("agg", "prefill", "decode"):
        old, new = shipped.workers(role), after.workers(role)
        np.testing.assert_array_equal(old.tp * old.dp, new.tp * new.dp)
        assert np.all(new.batch * new.dp >= old.batch * old.dp)


def test_recipes_limit_decode_workers(shipped):
    row = _disagg(shipped, precision="fp4", system="gb200", concurrency=192)
    found = launch_facts(row)
    assert (found.slots[0], found.step_tokens[0], found.prompts_per_step[0]) == (32, 16384, 16)
    assert found.kv_cache[0] == "fp8"
    unknown = launch_facts(dataclasses.replace(row, concurrency=np.array([193])))
    assert unknown.slots[0] == 2048


def test_rows_of_other_loads_have_no_facts(shipped):
    found = launch_facts(shipped.take(shipped.harness == "unknown"))
    assert not found.published.any()
    assert set(found.kv_cache) | set(found.experts) | set(found.attention) | set(found.wrong) == {""}
    assert np.isnan(found.step_tokens).all()
    assert np.isinf(found.slots).all()
    assert np.all(found.receive_steps == 1)


def test_unknown_models_take_the_defaults_of_their_engine(shipped):
    row = {"model_family": "another", "precision": "fp8", "isl": 1024}
    facts = [
        launch_facts(_row(shipped, backend=name, system="h200_sxm", **row)) for name in ("vllm", "sglang", "trtllm")
    ]
    assert [float(of.step_tokens[0]) for of in facts] == [8192, 8192, 8192]
    assert [of.kv_cache[0] for of in facts] == ["", "", ""]
    blackwell = launch_facts(_row(shipped, backend="sglang", system="b200_sxm", **row))
    assert blackwell.step_tokens[0] == 16384


def test_wrong_records_are_named(shipped):
    clean = data_rules.clean(shipped)
    wrong = launch_facts(shipped).wrong
    assert {str(word): int((wrong[clean] == word).sum()) for word in np.unique(wrong)} == {
        "": 2307,
        "concurrency": 9,
        "speculation": 38,
    }


@pytest.mark.parametrize(
    ("when", "facts"),
    [
        ({"weather": ["fine"]}, {"slots": 1}),
        ({}, {"sots": 1}),
        ({}, {"slots": "many"}),
        ({}, {"kv_cache": "int3"}),
    ],
)
def test_broken_rules_are_refused(when, facts):
    with pytest.raises(DataError):
        LaunchRule(when, facts, "nowhere")
