# SPDX-License-Identifier: Apache-2.0
"""Exchange around a fused mixture: which collectives every framework runs, and stored sums of them."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from aicjax.hardware import load_system
from aicjax.ops import all_to_all, comm
from aicjax.ops.database import Database
from aicjax.ops.dispatch import expand_dispatch
from aicjax.ops.records import AllReduce, MoeAllToAll, MoeDispatch, Nccl
from benchmarks.parity_cases.expert_operators import EXPERTS
from tests.ops.expert_cases import Kind, ask, stored

TOLERANCE = 1e-5  # float32 tables and kernels against float64
COMM = Kind(comm.bind_comm, comm.comm_latency, comm.comm_sol)
H = 4096
OP = MoeDispatch("exchange", 3.0, H, 8, 128, 1, 8, 1, True, "fp8")
TENSOR, DATA, MIXED = (dataclasses.replace(OP, attention_dp=dp) for dp in (1, 8, 4))


def after(op: MoeDispatch) -> MoeDispatch:
    return dataclasses.replace(op, pre=False)


record: Any = EXPERTS["ops_moe_dispatch"].record


def test_stored_answers_are_sums_of_collectives():
    rows = stored("ops_moe_dispatch")
    for (system, backend, version), at in rows.groups("system", "backend", "version"):
        group = rows.take(at)
        known = load_system(system)
        parts = [expand_dispatch(record(row), known, backend) for row in group.records(np.arange(len(group)))]
        owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        ops = [op for part in parts for op in part]
        times = ask(COMM, Database(known, backend, version), ops, group["num_tokens"][owner])
        sums = np.bincount(owner, weights=times.latency_ms, minlength=len(parts))
        np.testing.assert_allclose(sums, group["latency_ms"], rtol=TOLERANCE)


def reduced(gpus: int = 8) -> AllReduce:
    return AllReduce("exchange", 3.0, H, gpus)


def collective(operation: str, elements: float, gpus: int = 8) -> Nccl:
    return Nccl("exchange", 3.0, operation, elements, gpus)


GATHER, SCATTER = "all_gather", "reduce_scatter"
CASES = {
    "vllm, tensor parallel": ("vllm", TENSOR, [reduced()]),
    "vllm, reduced before": ("vllm", dataclasses.replace(TENSOR, attention_reduced=True), []),
    "vllm, reduced before, after": ("vllm", after(dataclasses.replace(TENSOR, attention_reduced=True)), [reduced()]),
    "vllm, data parallel": ("vllm", DATA, [collective(GATHER, 8 * H)]),
    "vllm, data parallel, after": ("vllm", after(DATA), [collective(SCATTER, 8 * H)]),
    "vllm, both": ("vllm", MIXED, [reduced(), collective(GATHER, 4 * H)]),
    "sglang, both": ("sglang", MIXED, [collective(SCATTER, H, 2), collective(GATHER, 4 * H)]),
    "sglang, both, after": ("sglang", after(MIXED), [collective(SCATTER, 4 * H), collective(GATHER, H, 2)]),
    "sglang, tensor parallel": ("sglang", after(TENSOR), [reduced()]),
    "sglang, data parallel": ("sglang", after(DATA), [collective(SCATTER, 8 * H)]),
    "sglang, context parallel prefill": (
        "sglang",
        dataclasses.replace(TENSOR, attention_cp=8),
        [collective(GATHER, H)],
    ),
    "sglang, context parallel decode": ("sglang", dataclasses.replace(TENSOR, attention_cp=8, context=False), []),
    "sglang, context parallel decode, after": (
        "sglang",
        after(dataclasses.replace(TENSOR, attention_cp=8, context=False)),
        [reduced()],
    ),
    "trtllm, tensor parallel": ("trtllm", TENSOR, [reduced()]),
    "trtllm, data parallel": ("trtllm", DATA, [collective(GATHER, 8 * H)]),
    "trtllm, both": ("trtllm", after(MIXED), [reduced()]),
    "one GPU": ("trtllm", dataclasses.replace(OP, moe_ep=1), []),
}


@pytest.mark.parametrize("name", CASES)
def test_collectives_of_each_framework(name):
    backend, op, want = CASES[name]
    assert list(expand_dispatch(op, load_system("h200_sxm"), backend)) == want


@pytest.mark.parametrize(("form", "share"), [("nvfp4", 9 / 32), ("fp8", 1 / 2), ("fp8_block", 1 / 2), ("w4afp8", 1)])
def test_tokens_are_gathered_compressed_and_scattered_whole(form, share):
    """From compute capability 100 on, or on it alone."""
    op = dataclasses.replace(DATA, quant=form)
    b200, b300 = load_system("b200_sxm"), load_system("b300_sxm")
    assert expand_dispatch(op, b200, "trtllm") == (collective(GATHER, 8 * H * share),)
    assert expand_dispatch(after(op), b200, "trtllm") == (collective(SCATTER, 8 * H),)
    assert expand_dispatch(op, b300, "trtllm") == expand_dispatch(op, b200, "trtllm")
    alone = dataclasses.replace(op, compressed_on_one_sm=True)
    assert expand_dispatch(alone, b200, "trtllm") == expand_dispatch(op, b200, "trtllm")
    assert expand_dispatch(alone, b300, "trtllm") == (collective(GATHER, 8 * H),)


def test_node_that_is_a_rack_exchanges_tokens_over_nvlink():
    rack = dataclasses.replace(load_system("gb200"), gpus_per_node=72)
    op = dataclasses.replace(DATA, hidden_size=7168, num_experts=256, quant="nvfp4")
    for each, phase in [(op, "dispatch"), (after(op), "combine")]:
        (exchange,) = expand_dispatch(each, rack, "trtllm")
        assert isinstance(exchange, MoeAllToAll)
        assert (exchange.phase, exchange.nodes, exchange.scale) == (phase, 2, 3.0)
        assert all_to_all.all_to_all_available(Database(rack, "trtllm", "1.3.0rc20"), exchange)
    sharded = dataclasses.replace(op, moe_tp=2)
    assert isinstance(expand_dispatch(sharded, rack, "trtllm")[0], Nccl)
