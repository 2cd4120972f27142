# SPDX-License-Identifier: Apache-2.0
"""Memory of the two pools of a deployment with attention and feed-forward layers on GPUs of their own.

A pool holds the weights of its own operators. Attention workers hold the KV cache, in decode that of all microbatches.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax._results import NoFeasible
from aicjax.explore.explain import memory_use, misfit_reason
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse
from aicjax.explore.roles import Deployment
from aicjax.forward.kv_budget import engine_fraction
from aicjax.forward.memory import MemorySplit, bind_memory
from aicjax.models import Parallel
from aicjax.models.afd import AfdOperators, AfdTopology
from aicjax.ops.records import OpLists

Ints = NDArray[np.int64]
_PROBES = (128, 256)  # microbatches whose memory tells how it grows


class Pools(NamedTuple):
    """The distinct pools of one kind, and which of them each candidate has.

    Attributes:
        lists: Operators of each.
        layouts: Layout of each.
        of: Position for each candidate [candidate].
    """

    lists: tuple[OpLists, ...]
    layouts: tuple[Parallel, ...]
    of: Ints


class PoolMemory(NamedTuple):
    """Memory of candidates at all batches.

    Attributes:
        attention_bytes, ffn_bytes: Of a GPU of each pool [candidate, batch].
        fits: Whether both fit [candidate, batch].
        attention_limit, ffn_limit: Batches at which the pools are full, by how their memory grows [candidate].
    """

    attention_bytes: NDArray[np.float64]
    ffn_bytes: NDArray[np.float64]
    fits: NDArray[np.bool_]
    attention_limit: NDArray[np.float64]
    ffn_limit: NDArray[np.float64]


class Limits(NamedTuple):
    """What a request says about memory; None for what the engine does by itself.

    Attributes:
        max_seq_len: Longest sequence that memory is held for; prompt and answer by default.
        kv_fraction: The engine's memory fraction.
    """

    max_seq_len: int | None
    kv_fraction: float | None


def pool_memory(
    request: EstimateRequest,
    deployment: Deployment,
    topology: AfdTopology,
    operators: AfdOperators,
    phase: str,
    batches: Mapping[str, int],
) -> tuple[MemoryUse, MemoryUse]:
    """Memory of an attention and of a feed-forward GPU in one phase.

    Args:
        request: The point.
        deployment: Where and how it runs.
        topology: Nodes and cuts.
        operators: Operators of the pools.
        phase: `prefill` or `decode`.
        batches: Requests of a microbatch, by pool.

    Raises:
        NoFeasible: A pool does not fit.
    """
    cached = request.num_microbatches if phase == "decode" else 1
    limits = Limits(request.max_seq_len, request.free_gpu_memory_fraction)
    uses = []
    for pool, layout, copies in zip(("attention", "ffn"), topology.layouts(deployment.model), (cached, 0), strict=True):
        split = pool_split(deployment, layout, getattr(operators, pool), phase, [batches[pool]], limits)
        split = dataclasses.replace(split, kvcache_bytes=split.kvcache_bytes * copies)
        misfit = misfit_reason(split, 0)
        if misfit is not None and (misfit[0] == "memory" or pool == "attention"):
            raise NoFeasible(f"afd {phase}: {pool} workers, {layout.label} on {deployment.system.name}: {misfit[1]}.")
        uses.append(memory_use(pool, split, 0))
    return uses[0], uses[1]


def pool_split(
    deployment: Deployment, layout: Parallel, lists: OpLists, phase: str, batch: ArrayLike, limits: Limits
) -> MemorySplit:
    """Memory of a GPU of a pool, with the KV cache of one microbatch.

    Args:
        deployment: Where and how it runs.
        layout: Layout of the pool.
        lists: Operators of the pool.
        phase: `prefill` or `decode`.
        batch: Requests of a microbatch, int [point].
        limits: What the request says.
    """
    load, constants = deployment.load, deployment.constants.memory
    memory = bind_memory(
        deployment.system,
        deployment.backend,
        deployment.version,
        deployment.model,
        [layout],
        [OpLists(lists.context if phase == "prefill" else lists.generation, ())],
        [deployment.quantisation],
        constants,
        load.nextn,
    )
    longest = load.isl if phase == "prefill" else load.isl + load.osl
    return memory.static(
        batch,
        load.text_tokens,
        load.osl,
        phase="static_ctx" if phase == "prefill" else "static_gen",
        prefix=load.prefix,
        max_seq_len=limits.max_seq_len or longest,
        kv_fraction=limits.kv_fraction or engine_fraction(constants, deployment.version),
    )


def pool_bytes(
    deployment: Deployment,
    attention: Pools,
    ffn: Pools,
    micro: Ints,
    workers: Ints,
    copies: Ints,
    limits: Limits,
) -> PoolMemory:
    """Memory of all candidates at all batches while they decode.

    Args:
        deployment: Where and how they run.
        attention, ffn: The pools.
        micro: Requests of a microbatch of an attention worker [candidate, batch].
        workers: Attention workers [candidate].
        copies: Microbatches in flight [candidate].
        limits: What the request says.
    """

    def split(pools: Pools, pool: int, batch: ArrayLike) -> MemorySplit:
        return pool_split(deployment, pools.layouts[pool], pools.lists[pool], "decode", batch, limits)

    capacity = float(deployment.system.mem_capacity_bytes)
    attention_bytes, ffn_bytes = (np.empty(micro.shape) for _ in range(2))
    within_budget = np.empty(micro.shape, bool)
    attention_limit, ffn_limit = (np.empty(len(micro)) for _ in range(2))
    share = limits.kv_fraction
    if share is not None:
        constants = deployment.constants.memory
        share *= (1 - constants.kv_reserved) * (1 - constants.kv_tolerance)
    for pool in range(len(attention.lists)):
        rows = np.flatnonzero(attention.of == pool)
        found = split(attention, pool, micro[rows].ravel())
        cached = np.reshape(found.kvcache_bytes, micro[rows].shape) * copies[rows, None]
        rest = np.reshape(found.total_bytes - found.kvcache_bytes, micro[rows].shape)
        attention_bytes[rows] = rest + cached
        within_budget[rows] = cached <= np.reshape(found.kv_budget_bytes, cached.shape)
        most = _largest(split(attention, pool, _PROBES), copies[rows], share)
        attention_limit[rows] = np.floor(most) * copies[rows]
    for pool in range(len(ffn.lists)):
        rows = np.flatnonzero(ffn.of == pool)
        found = split(ffn, pool, (micro[rows] * workers[rows, None]).ravel())
        ffn_bytes[rows] = np.reshape(found.total_bytes - found.kvcache_bytes, micro[rows].shape)
        most = np.floor(_largest(split(ffn, pool, _PROBES), np.zeros(1), None))
        ffn_limit[rows] = np.floor(most / workers[rows]) * copies[rows]
    fits = within_budget & (attention_bytes < capacity) & (ffn_bytes < capacity)
    return PoolMemory(attention_bytes, ffn_bytes, fits, attention_limit, ffn_limit)


def _largest(pair: MemorySplit, copies: NDArray, kv_share: float | None) -> NDArray[np.float64]:
    """Largest microbatch that fits, on the line through the probes; not negative.

    Args:
        pair: Memory at the probes, with one microbatch in the KV cache [1, 2].
        copies: Microbatches in the KV cache, 0 for a pool without one [point].
        kv_share: Part of what is free that the KV cache may take; None where only the whole is limited.
    """
    kv = np.broadcast_to(pair.kvcache_bytes, (1, 2))[0]
    rest = np.broadcast_to(pair.total_bytes, (1, 2))[0] - kv
    span = _PROBES[1] - _PROBES[0]
    kv_slope, rest_slope = (kv[1] - kv[0]) / span * copies, (rest[1] - rest[0]) / span
    room = pair.capacity_bytes - rest[0] - kv[0] * copies + (kv_slope + rest_slope) * _PROBES[0]
    slope = kv_slope + rest_slope
    most = np.where(slope > 0, room / np.where(slope > 0, slope, 1.0), np.inf)
    if kv_share is not None:
        most = np.minimum(most, kv_share * room / (kv_slope + kv_share * rest_slope))
    return np.maximum(most, 0.0)
