# SPDX-License-Identifier: Apache-2.0
"""What context parallelism adds to sparse latent attention: scores and selection over the whole prompt, two gathers."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.ops.comm import CommRows
from aicjax.ops.context_parallel import KernelTable, bind_gather, bind_kernel, gather_ms, kernel_latency, stack_kernels
from aicjax.ops.database import Database
from aicjax.ops.records import DsaContext
from aicjax.ops.roofline import Hardware
from aicjax.tables import read_rows

KERNELS = {"DeepseekV32ForCausalLM": "dsv32", "GlmMoeDsaForCausalLM": "glm5"}  # tables of an architecture's kernels
UNIFORM = "flat"  # scores with which modules were measured


class DsaParallel(eqx.Module):
    """Kernels and exchanges of context-parallel DSA operators.

    Attributes:
        scores: The indexer's scores.
        selection: Selection among concentrated scores.
        uniform: Selection among uniform scores.
        gather: Exchange of the ranks.
        cp: Ranks [row].
        index_width, latent_width: Elements of a token in the index cache and in the attention cache [row].
    """

    scores: KernelTable
    selection: KernelTable
    uniform: KernelTable
    gather: CommRows
    cp: Int[Array, " row"]
    index_width: Float[Array, " row"]
    latent_width: Float[Array, " row"]


def bind_dsa_parallel(database: Database, records: Sequence[DsaContext]) -> DsaParallel:
    """Kernels of operators, one row each."""
    tables = [_kernels(*database.where, KERNELS.get(r.architecture), r.num_heads) for r in records]
    scores, selection, uniform = (stack_kernels(part) for part in zip(*tables, strict=True))
    return DsaParallel(
        scores=scores,
        selection=selection,
        uniform=uniform,
        gather=bind_gather(database, [r.cp for r in records]),
        cp=np.array([r.cp for r in records], np.int32),
        index_width=np.array([r.shape.index_dim for r in records], np.float32),
        latent_width=np.array([r.shape.kv_rank + r.shape.rope_dim for r in records], np.float32),
    )


@functools.lru_cache(maxsize=32)
def _kernels(
    system: System, backend: str, version: str, shared: bool, family: str | None, heads: int
) -> tuple[KernelTable, KernelTable, KernelTable]:
    """Scores, selection among concentrated and among uniform scores."""
    if family is None:
        return bind_kernel(None, None), bind_kernel(None, None), bind_kernel(None, None)
    where = (system.name, backend, version)
    scores = read_rows(*where, f"{family}_mqa_logits_module_perf", shared)
    topk = read_rows(*where, f"{family}_topk_module_perf", shared)
    ours = None if scores is None else scores.number("num_heads") == heads
    if topk is None:
        return bind_kernel(scores, ours), bind_kernel(None, None), bind_kernel(None, None)
    here, uniform = topk.number("num_heads") == heads, topk.is_in("score_mode", [UNIFORM])
    return bind_kernel(scores, ours), bind_kernel(topk, here & ~uniform), bind_kernel(topk, here & uniform)


def dsa_parallel_ms(
    parallel: DsaParallel,
    batch: Float[Array, "row point"],
    new: Float[Array, "row point"],
    own: Float[Array, "row point"],
    prefix: Float[Array, "row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Float[Array, "row point"]]:
    """What is added to the module of a rank's `own` tokens out of `new`: to layers with indexer, and without.

    Nothing without context parallelism; NaN where a kernel was not measured.
    """
    cp = parallel.cp[:, None].astype(jnp.float32)
    scores = kernel_latency(parallel.scores, batch, new, prefix) / cp
    scores = scores - kernel_latency(parallel.scores, batch, own, prefix)
    selection = kernel_latency(parallel.selection, batch, new, prefix) / cp
    selection = selection - kernel_latency(parallel.uniform, batch, own, prefix)

    def gathered(width):
        return gather_ms(parallel.gather, batch * new * width[:, None], hardware, constants)

    kernels = scores + selection
    without = gathered(parallel.latent_width)
    full = kernels + gathered(parallel.index_width) + without
    # A prompt that the kernels do not reach is a miss for every layer.
    without = jnp.where(jnp.isfinite(kernels), without, jnp.nan)
    split = cp > 1
    return jnp.where(split, full, 0.0), jnp.where(split, without, 0.0)
