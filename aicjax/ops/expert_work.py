# SPDX-License-Identifier: Apache-2.0
"""Roofline of routed experts: what one GPU multiplies and moves for the tokens of an expert pool.

A pool of `n` tokens makes `T = n * topk` routed tokens, of which each expert-parallel rank sees `T // ep`. It touches
at most as many of its experts; under uniform routing an expert is missed by all tokens with probability
`(1 - topk / experts)**n`, so that a share `1 - (1 - topk / experts)**n` is expected to be touched. When there are fewer
routed tokens than ranks, none is sure to move anything, and the multiplications alone bound the time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.hardware import System
from aicjax.interp.counts import floor_div
from aicjax.ops.roofline import Hardware, dtype_index

_SURE_HIT = 1 - 1e-6  # largest probability that a token hits an expert whose logarithm stays finite


class ExpertShape(NamedTuple):
    """What a measured shape of experts is found by, in the order in which shapes are ranked.

    Attributes:
        topk: Experts a token goes to.
        num_experts: Experts of all ranks; copies count in expert parallelism with redundant slots.
        hidden_size: Width of a token.
        inter_size: Width of one whole expert.
        moe_tp: GPUs that share one expert.
        moe_ep: Groups of GPUs that experts are spread over.
    """

    topk: int
    num_experts: int
    hidden_size: int
    inter_size: int
    moe_tp: int
    moe_ep: int


class ExpertLoad(NamedTuple):
    """One expert layer as its roofline sees it.

    Attributes:
        shape: Its shape.
        quant: Number format.
        gated: Whether experts have a gate: three matrices instead of two.
        by_class: Whether the peak is that of 16 bits times the format's compute class, not the format's own.
        expected: Whether the experts touched are those expected under uniform routing, not one for each routed token.
    """

    shape: ExpertShape
    quant: str
    gated: bool
    by_class: bool = False
    expected: bool = False

    @property
    def matrices(self) -> int:
        """Weight matrices of an expert."""
        return 3 if self.gated else 2

    @property
    def dtype(self) -> str:
        """Data type whose peak bounds the multiplications."""
        return "bfloat16" if self.by_class else quant.MOE[self.quant].dtype

    @property
    def peak_factor(self) -> float:
        """Factor on that peak."""
        return quant.MOE[self.quant].factor if self.by_class else 1.0


def log_missed(topk: int, experts: int) -> float:
    """Logarithm of the probability that a token misses an expert under uniform routing."""
    return float(np.log1p(-min(topk / experts, _SURE_HIT)))


def touched_experts(pool, local, experts, log_missed, xp=jnp):
    """Experts of a rank that its tokens touch.

    Args:
        pool: Tokens of all ranks.
        local: Routed tokens of the rank.
        experts: Experts of the rank.
        log_missed: Logarithm of the probability that a token misses an expert; NaN for one expert a routed token.
        xp: `jax.numpy` in a kernel, `numpy` on the host.
    """
    per_routed = xp.isnan(log_missed)
    hit = -xp.expm1(pool * xp.where(per_routed, 0.0, log_missed))
    return xp.where(per_routed, xp.minimum(experts, local), experts * hit)


def expert_sol_ms(routed, local, touched, operations, local_bytes, expert_bytes, peak, mem_bw, xp=jnp):
    """Bound of an expert layer: its multiplications, or tokens and touched weights through memory.

    Args:
        routed, local: Routed tokens of all ranks, and of one.
        touched: Experts that the tokens of the rank touch.
        operations: Operations of one GPU for each routed token.
        local_bytes: Bytes moved for each token of the rank.
        expert_bytes: Bytes of one expert's weights on one GPU.
        peak, mem_bw: Operations and bytes [1/ms].
        xp: `jax.numpy` in a kernel, `numpy` on the host.
    """
    moved = local * local_bytes + touched * expert_bytes
    return xp.maximum(routed * operations / peak, moved / mem_bw)


def _coefficients(load: ExpertLoad) -> tuple[float, float, float, int, float]:
    """`operations`, `local_bytes` and `expert_bytes` of `expert_sol_ms`; `experts` and `log_missed` of the touched."""
    topk, experts, hidden, inter, tp, ep = load.shape
    missed = log_missed(topk, experts) if load.expected else np.nan
    weights, size = hidden * inter * load.matrices, quant.MOE[load.quant].bytes
    return (
        2.0 * weights / ep / tp,
        (2.0 * hidden + inter * load.matrices / tp) * size,
        weights // tp * size,
        experts // ep,
        missed,
    )


def host_sol_ms(system: System, load: ExpertLoad, tokens: np.ndarray) -> np.ndarray:
    """Roofline of one layer at token counts of the whole pool, on the host in float64 [ms]."""
    peak = system.peak(load.dtype) * load.peak_factor / MS_PER_S
    pool = np.asarray(tokens, np.float64)
    routed = pool * load.shape.topk
    local = routed // load.shape.moe_ep
    operations, local_bytes, expert_bytes, experts, log_missed = _coefficients(load)
    touched = touched_experts(pool, local, experts, log_missed, xp=np)
    bandwidth = system.mem_bw_bytes_per_s / MS_PER_S
    return expert_sol_ms(routed, local, touched, operations, local_bytes, expert_bytes, peak, bandwidth, xp=np)


class ExpertWork(eqx.Module):
    """Rooflines of distinct expert layers.

    Attributes:
        topk: Experts a token goes to [row].
        ranks: Expert-parallel ranks [row].
        operations, local_bytes, expert_bytes: Coefficients of `expert_sol_ms` [row].
        experts, log_missed: Coefficients of `touched_experts` [row].
        dtype: Position of the data type in `Hardware.peak` [row].
        peak_factor: Factor on that peak [row].
    """

    topk: Int[Array, " row"]
    ranks: Int[Array, " row"]
    operations: Float[Array, " row"]
    local_bytes: Float[Array, " row"]
    expert_bytes: Float[Array, " row"]
    experts: Float[Array, " row"]
    log_missed: Float[Array, " row"]
    dtype: Int[Array, " row"]
    peak_factor: Float[Array, " row"]


def stack_work(loads: Sequence[ExpertLoad], rows: int) -> ExpertWork:
    """Rooflines of `loads`, padded to `rows`."""
    spare = ExpertLoad(ExpertShape(1, 1, 1, 1, 1, 1), "bfloat16", True)
    padded = [*loads, *[spare] * (rows - len(loads))]
    coefficients = np.array([_coefficients(load) for load in padded], np.float32).reshape(rows, 5).T
    operations, local_bytes, expert_bytes, experts, log_missed = coefficients
    return ExpertWork(
        topk=np.array([load.shape.topk for load in padded], np.int32),
        ranks=np.array([load.shape.moe_ep for load in padded], np.int32),
        operations=operations,
        local_bytes=local_bytes,
        expert_bytes=expert_bytes,
        experts=experts,
        log_missed=log_missed,
        dtype=np.array([dtype_index(load.dtype) for load in padded], np.int32),
        peak_factor=np.array([load.peak_factor for load in padded], np.float32),
    )


def work_sol_ms(work: ExpertWork, tokens: Float[Array, "row point"], hardware: Hardware) -> Float[Array, "row point"]:
    """Roofline of each layer at token counts of the whole pool [ms]."""
    routed = tokens.astype(jnp.int32) * work.topk[:, None]
    local = floor_div(routed, work.ranks[:, None]).astype(tokens.dtype)
    operations, local_bytes, expert_bytes, experts, log_missed = (
        column[:, None]
        for column in (work.operations, work.local_bytes, work.expert_bytes, work.experts, work.log_missed)
    )
    touched = touched_experts(tokens, local, experts, log_missed)
    peak = (hardware.peak[work.dtype] * work.peak_factor)[:, None]
    whole = routed.astype(tokens.dtype)
    return expert_sol_ms(whole, local, touched, operations, local_bytes, expert_bytes, peak, hardware.mem_bw)
