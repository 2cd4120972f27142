# SPDX-License-Identifier: Apache-2.0
"""Experts of one GPU in large expert parallelism, without the exchange of tokens.

Frameworks that measured no such experts, or not this shape, are answered from the table of fused mixtures.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Float

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.ends import NO_CURVE
from aicjax.ops.database import Database
from aicjax.ops.expert_tables import DEEPEP_KERNEL, Kernels, experts_of, load_experts
from aicjax.ops.expert_work import ExpertLoad, ExpertShape
from aicjax.ops.moe import ExpertCurves, MoeRows, fused_curves, moe_latency, moe_sol, stack_rows
from aicjax.ops.moe_tables import load_moe
from aicjax.ops.records import MoeExpertCompute
from aicjax.ops.roofline import Hardware

FUSED_BACKENDS = ("trtllm", "vllm")  # whose fused mixtures stand in
DEEPGEMM_SM = 100  # first compute capability whose TensorRT-LLM multiplies 8-bit blocks by DeepGEMM


def expert_kernel(system: System, backend: str, form: str, kernels: Kernels) -> str:
    """Kernel that runs the experts: the framework's own where it was measured, else the first that was."""
    if backend != "trtllm":
        return DEEPEP_KERNEL
    own = "deepgemm" if (system.sm_version or 0) >= DEEPGEMM_SM and "fp8_block" in form else "moe_torch_flow"
    measured = sorted({kernel for kernel, _ in kernels})
    return own if own in measured or not measured else measured[0]


def bind_expert_compute(database: Database, records: Sequence[MoeExpertCompute], *, rows: int) -> MoeRows:
    """Rows for `records`, padded to `rows`; only measured tables answer.

    Raises:
        MissingPeak: The system states no peak for the format of a fused mixture that stands in.
    """
    found = [_find(database, record) for record in records]
    kernels = load_experts(*database.where) if database.interpolates else {}
    balanced = [
        r.eplb
        and r.phase == "context"
        and expert_kernel(database.system, database.backend, r.quant, kernels) == DEEPEP_KERNEL
        for r in records
    ]
    dp = [record.attention_dp for record in records]
    return stack_rows(
        database, [load for load, _ in found], [curves for _, curves in found], dp, balanced, None, rows=rows
    )


def _find(database: Database, record: MoeExpertCompute) -> tuple[ExpertLoad, ExpertCurves]:
    """The layer as its roofline sees it, and its curves."""
    shape = ExpertShape(record.topk, record.num_experts, record.hidden_size, record.inter_size, 1, record.moe_ep)
    own = ExpertLoad(shape._replace(num_experts=record.num_slots), record.quant, record.gated, by_class=True)
    if not database.interpolates:
        return own, ExpertCurves()
    kernels = load_experts(*database.where)
    kernel = expert_kernel(database.system, database.backend, record.quant, kernels)
    measured = experts_of(kernels, kernel, record.quant, record.distribution, record.phase)
    if (curve := measured.get((shape, record.num_slots))) is not None:
        return own, ExpertCurves(curve)
    if database.backend not in FUSED_BACKENDS:
        return own, ExpertCurves(NO_CURVE)
    fused = ExpertLoad(shape, record.quant, record.gated)
    curves = fused_curves(load_moe(*database.where), fused, record.distribution)
    return (fused, curves) if curves.measured else (own, curves)


expert_compute_latency = moe_latency


# Experts that were not measured bound nothing; latencies that were move with the hardware as the work does.
expert_compute_pace = moe_sol


def expert_compute_sol(
    rows: MoeRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """NaN: large expert parallelism is measured or unknown, and bounds nothing."""
    return jnp.full(tokens.shape, jnp.nan)


def expert_compute_available(database: Database, record: MoeExpertCompute) -> bool:
    """Whether the shape was measured, here or in a fused mixture that stands in."""
    return _find(database, record)[1].measured
