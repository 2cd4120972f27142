# SPDX-License-Identifier: Apache-2.0
"""Experts of large expert parallelism: stored answers, and what stands in for what on made-up tables."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from aicjax import quant
from aicjax._results import Provenance
from aicjax.hardware import System
from aicjax.ops.expert_compute import expert_compute_available
from aicjax.ops.records import MoeExpertCompute
from aicjax.tables.rows import Rows
from benchmarks.parity_cases.expert_operators import EXPERTS
from tests.ops import made_up
from tests.ops.expert_cases import EXPERT_COMPUTE, TOLERANCE, ask, check_stored, made_up_database, stored
from tests.oracles import experts

OP = MoeExpertCompute("moe", 1.0, 1024, 512, 2, 16, 4, 1, "fp8_block", "balanced", "context", 16)


record = EXPERTS["ops_moe_expert_compute"].record


def table(*parts: tuple[MoeExpertCompute, float], kernel: str = "kernel") -> Rows:
    """A table of points at 8 and 64 tokens, the latter twice as slow."""
    points = [(op, tokens, latency * tokens / 32) for op, latency in parts for tokens in (32, 64)]
    return made_up.rows(
        kernel_source=[kernel] * len(points),
        moe_dtype=[op.quant for op, *_ in points],
        distribution=[op.distribution for op, *_ in points],
        topk=[op.topk for op, *_ in points],
        num_experts=[op.num_experts for op, *_ in points],
        num_slots=[op.num_slots for op, *_ in points],
        hidden_size=[op.hidden_size for op, *_ in points],
        inter_size=[op.inter_size for op, *_ in points],
        moe_tp_size=[1] * len(points),
        moe_ep_size=[op.moe_ep for op, *_ in points],
        num_tokens=[tokens for _, tokens, _ in points],
        latency=[latency for *_, latency in points],
    )


def test_stored_answers():
    check_stored(EXPERT_COMPUTE, stored("ops_moe_expert_compute"), record)


def of_phase(phase: str, **changes: Any) -> MoeExpertCompute:
    return dataclasses.replace(OP, phase=phase, **changes)


def test_phases_are_measured_apart_or_together():
    ops = [OP, of_phase("generation")]
    with made_up.database(wideep_context_moe_perf=table((OP, 1.0)), wideep_generation_moe_perf=table((OP, 2.0))):
        apart = ask(EXPERT_COMPUTE, made_up_database(backend="sglang"), ops, 32)
    with made_up.database(wideep_moe_perf=table((OP, 3.0))):
        together = ask(EXPERT_COMPUTE, made_up_database(), ops, 32)
    assert apart.latency_ms.tolist() == [1.0, 2.0]
    assert together.latency_ms.tolist() == [3.0, 3.0]


def roofline(system: System, op: MoeExpertCompute, whole: bool):
    """Of experts measured alone: the compute class times the 16-bit peak, and all slots."""
    form = quant.MOE[op.quant]
    peak = system.peak(form.dtype) if whole else system.peak("bfloat16") * form.factor
    count = op.num_experts if whole else op.num_slots
    shape = (op.topk, count, op.hidden_size, op.inter_size, 1, op.moe_ep, 3)
    return lambda tokens: experts.roofline(int(tokens), *shape, form.bytes, peak, system.mem_bw_bytes_per_s)


@pytest.mark.parametrize("whole", [False, True])
def test_ends_are_held_by_the_roofline_of_the_table_that_answers(whole):
    op = dataclasses.replace(OP, num_slots=64)
    database = made_up_database(
        system=made_up.system(peak_flops={"bfloat16": 1e10, "fp8": 5e10}, mem_bw_bytes_per_s=1e9)
    )
    name = "moe_perf" if whole else "wideep_moe_perf"
    with made_up.database(**{name: table((op, 1.0))}):
        times = ask(EXPERT_COMPUTE, database, [op] * 4, [1, 40, 64, 5000])
    sol = roofline(database.system, op, whole)
    want = [experts.end_curve({32: 1.0, 64: 2.0}, tokens, sol) for tokens in (1, 40, 64, 5000)]
    assert times.latency_ms.tolist() == pytest.approx([value for value, _ in want], rel=TOLERANCE)
    assert times.provenance.tolist() == [how for _, how in want]


@pytest.mark.parametrize(("backend", "stands_in"), [("trtllm", True), ("vllm", True), ("sglang", False)])
def test_fused_mixtures_stand_in_for_slots_that_were_not_measured(backend, stands_in):
    """Also for distributions: the one asked for is looked up there, not the one that the other table fell back to."""
    slots = dataclasses.replace(OP, num_slots=32)
    other = dataclasses.replace(slots, distribution="power_law_1.2")
    database = made_up_database(backend=backend)
    with made_up.database(moe_perf=table((OP, 5.0))):
        times = ask(EXPERT_COMPUTE, database, [slots, other], 32)
        assert expert_compute_available(database, slots) == stands_in
    assert times.latency_ms.tolist() == pytest.approx([5.0 if stands_in else np.nan, np.nan], nan_ok=True)


def test_distribution_that_was_not_measured_is_the_spare_one_or_the_first():
    skewed, mild = (dataclasses.replace(OP, distribution=name) for name in ("power_law_1.2", "power_law_1.01"))
    spare = dataclasses.replace(OP, distribution="uniform")
    database = {"backend": "sglang"}
    with made_up.database(wideep_context_moe_perf=table((skewed, 1.0), (mild, 2.0))):
        first = ask(EXPERT_COMPUTE, made_up_database(**database), [OP, mild], 32)
    with made_up.database(wideep_context_moe_perf=table((skewed, 1.0), (mild, 2.0), (spare, 3.0))):
        uniform = ask(EXPERT_COMPUTE, made_up_database(**database), [OP, mild], 32)
    assert first.latency_ms.tolist() == [1.0, 2.0]
    assert uniform.latency_ms.tolist() == [3.0, 2.0]


def test_own_kernel_answers_where_it_was_measured_and_the_first_by_name_where_not():
    rows = [(name, table((OP, 1.0 + at), kernel=name)) for at, name in enumerate(("a_kernel", "moe_torch_flow"))]
    tables = [rows[0][1], Rows.concatenate([part for _, part in rows])]
    found = []
    for part in tables:
        with made_up.database(wideep_moe_perf=part):
            found.append(ask(EXPERT_COMPUTE, made_up_database(), [OP], 32).latency_ms[0])
    assert found == [1.0, 2.0]


def test_load_balancer_spares_prefill_a_share_of_the_tokens():
    ops = [OP, dataclasses.replace(OP, eplb=True), of_phase("generation", eplb=True)]
    both = {"wideep_context_moe_perf": table((OP, 1.0)), "wideep_generation_moe_perf": table((OP, 1.0))}
    with made_up.database(**both):
        times = ask(EXPERT_COMPUTE, made_up_database(backend="sglang"), ops, 50)
    assert times.latency_ms.tolist() == pytest.approx([50 / 32, 40 / 32, 50 / 32], rel=TOLERANCE)


def test_only_measured_experts_answer():
    for mode in ("EMPIRICAL", "SOL"):
        with made_up.database(wideep_moe_perf=table((OP, 1.0))):
            times = ask(EXPERT_COMPUTE, made_up_database(mode=mode), [OP], 32)
        assert np.isnan(times.latency_ms).all()
    assert times.provenance.tolist() == [Provenance.MISSING]
