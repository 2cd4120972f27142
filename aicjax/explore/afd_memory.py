# SPDX-License-Identifier: Apache-2.0
"""Memory of the two pools of a deployment with attention and feed-forward layers on GPUs of their own."""

import dataclasses
from collections.abc import Mapping

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


def pool_memory(
    request: EstimateRequest,
    deployment: Deployment,
    topology: AfdTopology,
    operators: AfdOperators,
    phase: str,
    batches: Mapping[str, int],
) -> tuple[MemoryUse, MemoryUse]:
    """Memory of an attention and of a feed-forward GPU in one phase.

    A pool holds the weights of its own operators. Attention workers hold the KV cache, in decode of all microbatches.

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
    uses = []
    for pool, layout, copies in zip(("attention", "ffn"), topology.layouts(deployment.model), (cached, 0), strict=True):
        split = _split(request, deployment, layout, getattr(operators, pool), phase, batches[pool])
        split = dataclasses.replace(split, kvcache_bytes=split.kvcache_bytes * copies)
        misfit = misfit_reason(split, 0)
        if misfit is not None and (misfit[0] == "memory" or pool == "attention"):
            raise NoFeasible(f"afd {phase}: {pool} workers, {layout.label} on {deployment.system.name}: {misfit[1]}.")
        uses.append(memory_use(pool, split, 0))
    return uses[0], uses[1]


def _split(
    request: EstimateRequest, deployment: Deployment, layout: Parallel, lists: OpLists, phase: str, batch: int
) -> MemorySplit:
    load, constants = deployment.load, deployment.constants.memory
    held = lists.context if phase == "prefill" else lists.generation
    memory = bind_memory(
        deployment.system,
        deployment.backend,
        deployment.version,
        deployment.model,
        [layout],
        [OpLists(held, ())],
        [deployment.quantisation],
        constants,
        load.nextn,
    )
    longest = load.isl if phase == "prefill" else load.isl + load.osl
    return memory.static(
        [batch],
        load.text_tokens,
        load.osl,
        phase="static_ctx" if phase == "prefill" else "static_gen",
        prefix=load.prefix,
        max_seq_len=request.max_seq_len or longest,
        kv_fraction=request.free_gpu_memory_fraction or engine_fraction(constants, deployment.version),
    )
