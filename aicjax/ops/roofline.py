# SPDX-License-Identifier: Apache-2.0
"""Speed-of-light bounds: the hardware as arrays, and the lower bound of each operator's latency.

Every bound is one formula for kernels and for the host: `xp` is `jax.numpy` in a kernel and `numpy` when a table is
bound in float64.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.hardware import System

DTYPES = ("bfloat16", "int8", "fp8", "fp4")
BETWEEN_NODES = 1  # position of that link in `Hardware.link_bw`


class Hardware(eqx.Module):
    """What one GPU and its links can do at best: traced, so that a gradient tells what a number is worth.

    Attributes:
        mem_bw: Memory bandwidth [bytes/ms].
        mem_bw_scaling: Share of it that memory-bound kernels reach.
        mem_latency_ms: Time of a memory-bound kernel that moves nothing.
        peak: Peak of each data type of `DTYPES` [operations/ms]; NaN where the system states none.
        link_bw: Bandwidth inside a node, between nodes and between racks, one way [bytes/ms].
        p2p_latency_ms: Time of a point-to-point message of no bytes.
    """

    mem_bw: Float[Array, ""]
    mem_bw_scaling: Float[Array, ""]
    mem_latency_ms: Float[Array, ""]
    peak: Float[Array, " dtype"]
    link_bw: Float[Array, " link"]
    p2p_latency_ms: Float[Array, ""]


def hardware_arrays(system: System) -> Hardware:
    """The numbers of a system that kernels read, float32 on the host."""
    return Hardware(
        mem_bw=_scalar(system.mem_bw_bytes_per_s / MS_PER_S),
        mem_bw_scaling=_scalar(system.mem_bw_scaling),
        mem_latency_ms=_scalar(system.mem_latency_s * MS_PER_S),
        peak=np.array([system.peak_flops.get(d, np.nan) / MS_PER_S for d in DTYPES], np.float32),
        link_bw=np.array([bw / MS_PER_S for bw in system.link_bw_bytes_per_s], np.float32),
        p2p_latency_ms=_scalar(system.p2p_latency_s * MS_PER_S),
    )


def _scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def bound_times(
    sol_ms: Float[Array, "row point"],
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Rooflines in the form of answers: latency and provenance; a miss where nothing bounds an operator."""
    return sol_ms, jnp.where(jnp.isnan(sol_ms), Provenance.MISSING, Provenance.SOL).astype(jnp.int32)


def gemm_sol_ms(m, n, k, element_bytes, peak, mem_bw, xp=jnp):
    """Bound of a matrix product: operations at the peak, or all three operands through memory."""
    return xp.maximum(2.0 * m * n * k / peak, element_bytes * (m * n + m * k + n * k) / mem_bw)


def context_attention_sol_ms(batch, full, prefix, heads, kv_heads, head_size, window, kv_bytes, peak, mem_bw, xp=jnp):
    """Bound of causal prefill attention over `full` tokens of which `prefix` are cached.

    The causal half of the score matrix, or a band of `window`; queries and output at 16 bits, the cache at its own.
    """
    new = full - prefix
    causal = 2.0 * batch * (new * (full + prefix)) * heads * head_size
    banded = 4.0 * batch * new * window * heads * head_size
    operations = xp.where((window > 0) & (full > window), banded, causal)
    moved = 4.0 * batch * heads * new * head_size + kv_bytes * 2.0 * batch * kv_heads * full * head_size
    return xp.maximum(operations / peak, moved / mem_bw)


def generation_attention_sol_ms(batch, length, heads, kv_heads, head_size, window, kv_bytes, peak, mem_bw, xp=jnp):
    """Bound of one decode step over `length` tokens, the new one included, at most `window` of the others."""
    past = length - 1.0
    past = xp.where(window > 0, xp.minimum(past, window), past)
    operations = 4.0 * batch * heads * head_size * past
    moved = batch * (4.0 * heads * head_size + 2.0 * kv_heads * past * head_size * kv_bytes)
    return xp.maximum(operations / peak, moved / mem_bw)


def encoder_attention_sol_ms(batch, length, heads, head_size, peak, mem_bw, xp=jnp):
    """Bound of non-causal attention: the whole score matrix; queries, keys, values and output at 16 bits."""
    operations = 4.0 * batch * length * length * heads * head_size
    return xp.maximum(operations / peak, 8.0 * batch * heads * length * head_size / mem_bw)


def memory_ms(moved_bytes, hardware: Hardware):
    """Latency of a memory-bound kernel, by the system's measured efficiency and constant."""
    return moved_bytes / (hardware.mem_bw * hardware.mem_bw_scaling) + hardware.mem_latency_ms


def dtype_index(name: str) -> int:
    """Position of a data type in `Hardware.peak`."""
    return DTYPES.index(name)
