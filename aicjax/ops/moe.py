# SPDX-License-Identifier: Apache-2.0
"""Routed experts of a fused mixture: curves of the tokens that all attention ranks send into one pool."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.ends import NO_CURVE, Curve, EndCurves, bind_end_curves, end_latency
from aicjax.ops.database import Database
from aicjax.ops.expert_work import ExpertLoad, ExpertShape, ExpertWork, host_sol_ms, stack_work, work_sol_ms
from aicjax.ops.moe_estimates import (
    Lender,
    MoeEstimates,
    bind_estimates,
    estimated_latency,
    find_lender,
    own_points,
)
from aicjax.ops.moe_tables import LOW_LATENCY_FORMAT, LOW_LATENCY_TOKENS, NO_TABLE, MoeTable, load_moe, shapes_of
from aicjax.ops.records import Moe
from aicjax.ops.roofline import Hardware

BALANCED_BACKENDS = ("sglang",)  # where a load balancer relieves prefill


class ExpertCurves(NamedTuple):
    """What the tables say of one layer.

    Attributes:
        main: Curve of all kernels but the low-latency one; `NO_CURVE` where not measured.
        low_latency: Curve of the low-latency kernel, which answers for few tokens; `NO_CURVE` where it does not.
    """

    main: Curve = NO_CURVE
    low_latency: Curve = NO_CURVE

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.main[0].size + self.low_latency[0].size > 0


def fused_curves(table: MoeTable, load: ExpertLoad, distribution: str) -> ExpertCurves:
    """Curves of a layer in the fused table."""
    main = shapes_of(table.main, load.quant, distribution).get(load.shape, NO_CURVE)
    low_latency = NO_CURVE
    if load.quant == LOW_LATENCY_FORMAT and load.gated:
        low_latency = shapes_of(table.low_latency, load.quant, distribution).get(load.shape, NO_CURVE)
    return ExpertCurves(main, low_latency)


class KernelRows(eqx.Module):
    """What one kernel was measured at, for distinct layers.

    Attributes:
        curves: Its curves.
        estimates: Points that lend their utilisation where the curves miss; None when the mode does not estimate.
    """

    curves: EndCurves
    estimates: MoeEstimates | None


class MoeRows(eqx.Module):
    """Distinct expert layers bound to their curves.

    Attributes:
        work: Rooflines.
        attention_dp: Attention ranks that send tokens into the pool [row].
        balanced: Whether a load balancer spares the curves a share of the tokens [row].
        main: The kernels for any number of tokens.
        low_latency: The kernel for few tokens; None where no layer has one.
        low_latency_tokens: Most tokens that it takes [row]; 0 where there is none.
    """

    work: ExpertWork
    attention_dp: Float[Array, " row"]
    balanced: Bool[Array, " row"]
    main: KernelRows
    low_latency: KernelRows | None
    low_latency_tokens: Float[Array, " row"]


def moe_load(record: Moe) -> ExpertLoad:
    """The layer of a record as its roofline sees it."""
    shape = ExpertShape(
        record.topk, record.num_experts, record.hidden_size, record.inter_size, record.moe_tp, record.moe_ep
    )
    return ExpertLoad(shape, record.quant, record.gated, expected=record.expected)


def bind_moe(database: Database, records: Sequence[Moe], *, rows: int) -> MoeRows:
    """Rows for `records`, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    loads = [moe_load(record) for record in records]
    for load in loads:
        database.system.peak(load.dtype)
    table = load_moe(*database.where) if database.measured else NO_TABLE
    found = [fused_curves(table, load, record.distribution) for load, record in zip(loads, records, strict=True)]
    lenders = None
    if database.estimates:
        lenders = [
            find_lender(database, table.main, load, r.distribution) for load, r in zip(loads, records, strict=True)
        ]
    balanced = [r.eplb and r.context and database.backend in BALANCED_BACKENDS for r in records]
    return stack_rows(database, loads, found, [r.attention_dp for r in records], balanced, lenders, rows=rows)


def stack_rows(
    database: Database,
    loads: Sequence[ExpertLoad],
    found: Sequence[ExpertCurves],
    attention_dp: Sequence[int],
    balanced: Sequence[bool],
    lenders: Sequence[Lender | None] | None,
    *,
    rows: int,
) -> MoeRows:
    """Expert layers with their curves as arrays, padded to `rows`.

    Args:
        database: Which system, in which mode.
        loads, found, attention_dp, balanced: The layers.
        lenders: Who lends to the main kernels; None when nothing is estimated.
        rows: Padded number of rows.
    """

    def kernel(curves: Sequence[Curve], lenders: Sequence[Lender | None] | None) -> KernelRows:
        kept = curves if database.interpolates else [NO_CURVE] * len(curves)
        sol = [host_sol_ms(database.system, load, tokens) for load, (tokens, _) in zip(loads, kept, strict=True)]
        estimates = None if lenders is None else bind_estimates(database.system, loads, lenders, rows=rows)
        return KernelRows(bind_end_curves(kept, sol, rows=rows, straight=database.extends_curves), estimates)

    pad = (0, rows - len(loads))
    few = [layer.low_latency for layer in found]
    lent = None
    if lenders is not None:
        lent = [own_points(curve, load) for curve, load in zip(few, loads, strict=True)]
    return MoeRows(
        work=stack_work(loads, rows),
        attention_dp=np.pad(np.maximum(np.array(attention_dp, np.float32), 1), pad, constant_values=1),
        balanced=np.pad(np.array(balanced, bool), pad),
        main=kernel([layer.main for layer in found], lenders),
        low_latency=kernel(few, lent) if any(curve[0].size for curve in few) else None,
        low_latency_tokens=np.pad(np.array([LOW_LATENCY_TOKENS * (c[0].size > 0) for c in few], np.float32), pad),
    )


def moe_latency(
    rows: MoeRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each layer and how it was obtained.

    The low-latency kernel answers for a pool of few tokens where it was measured, the others beyond. A load balancer
    spares the measured curves a share of the tokens; estimates know nothing of it.

    Args:
        rows: Bound layers.
        tokens: Tokens of one attention rank.
        hardware: Peaks and bandwidths.
        constants: Operator constants.
    """
    pool = tokens * rows.attention_dp[:, None]
    spared = jnp.where(rows.balanced[:, None], jnp.floor(pool * constants.moe_balanced_share), pool)
    spared_sol = work_sol_ms(rows.work, spared, hardware)
    few = spared <= rows.low_latency_tokens[:, None]

    def kernel(bound: KernelRows, wanted):
        measured = end_latency(bound.curves, spared, spared_sol)
        if bound.estimates is None:
            return measured
        missing = measured[1] == Provenance.MISSING
        sol = work_sol_ms(rows.work, pool, hardware)
        estimate = estimated_latency(bound.estimates, pool, sol, missing & wanted, constants)
        return _either(missing, estimate, measured)

    main = kernel(rows.main, ~few)
    return main if rows.low_latency is None else _either(few, kernel(rows.low_latency, few), main)


def _either(condition, first, second):
    """Of two answers `(latency_ms, provenance)`, the first where `condition`."""
    return jnp.where(condition, first[0], second[0]), jnp.where(condition, first[1], second[1])


def moe_sol(
    rows: MoeRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each layer, whatever a load balancer does [ms]."""
    return work_sol_ms(rows.work, tokens * rows.attention_dp[:, None], hardware)


def moe_available(database: Database, record: Moe) -> bool:
    """Whether the shape was measured."""
    return fused_curves(load_moe(*database.where), moe_load(record), record.distribution).measured
