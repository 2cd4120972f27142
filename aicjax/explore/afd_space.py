# SPDX-License-Identifier: Apache-2.0
"""Which deployments with attention and feed-forward layers apart a search tries."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicjax._results import InputError, NoFeasible
from aicjax.explore.grid import AfdGrid
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Refusal
from aicjax.explore.roles import Deployment
from aicjax.models import ModelConfig
from aicjax.models.afd import AfdOperators, AfdTopology, afd_operators
from aicjax.serving.afd import PIPELINES, Pipeline, may_overlap


@dataclass(frozen=True)
class AfdCandidates:
    """Topologies, and each of them with every number of microbatches and pipeline.

    Attributes:
        topologies: Distinct topologies.
        operators: Operators of each.
        topology: Topology of each candidate [candidate].
        microbatches: Microbatches of a batch [candidate].
        pipeline: Position in `PIPELINES` [candidate].
        refused: Topologies that the model does not run on.
    """

    topologies: tuple[AfdTopology, ...]
    operators: tuple[AfdOperators, ...]
    topology: NDArray[np.int64]
    microbatches: NDArray[np.int64]
    pipeline: NDArray[np.int64]
    refused: tuple[Refusal, ...]


def afd_candidates(request: SearchRequest, deployment: Deployment, gpus: int, grid: AfdGrid) -> AfdCandidates:
    """The candidates of a search within a GPU budget.

    Raises:
        InputError: More candidates than the request allows.
        NoFeasible: The budget has no two nodes, or no topology is left.
        UnsupportedModel: The model cannot be split.
    """
    node = deployment.system.gpus_per_node
    if gpus < 2 * node:
        raise NoFeasible(f"attention and feed-forward pools need two nodes of {node} GPUs, the budget is {gpus}.")
    topologies = list(_topologies(request, deployment.model, gpus // node, node, grid))
    ways = list(_ways(request, grid))
    if (count := len(topologies) * len(ways)) > request.afd_max_candidates:
        if request.afd_candidate_overflow == "error":
            raise InputError("afd_max_candidates", request.afd_max_candidates, f"at least {count}: so many are there")
        topologies = topologies[: -(-request.afd_max_candidates // len(ways))]
    kept, operators, refused = _priced(request, deployment, topologies)
    pairs = np.array([(at, *way) for at in range(len(kept)) for way in ways], np.int64)[: request.afd_max_candidates]
    topology, microbatches, pipeline = pairs.T
    return AfdCandidates(tuple(kept), tuple(operators), topology, microbatches, pipeline, tuple(refused))


def _topologies(
    request: SearchRequest, model: ModelConfig, nodes: int, gpus_per_node: int, grid: AfdGrid
) -> Iterator[AfdTopology]:
    """Topologies of at most so many nodes, in the order in which they are tried."""
    widths = request.afd_tp_a_candidates or (*grid.attention_tp, gpus_per_node)
    tried = sorted({tp for tp in widths if gpus_per_node % tp == 0})
    for attention, ffn in itertools.product(range(1, nodes), range(1, nodes)):
        if attention + ffn > nodes or attention > request.afd_max_af_ratio * ffn:
            continue
        pool = ffn * gpus_per_node
        named = {"n_f_nodes": ffn, "tp_f": pool}
        listed = request.afd_f_moe_ep_size_candidates or grid.ffn_ep
        sizes = {named[size] if isinstance(size, str) else size for size in listed} if model.is_moe else {1}
        fitting = sorted(ep for ep in sizes if pool % ep == 0 and (not model.is_moe or model.num_experts % ep == 0))
        for tp, ep in itertools.product(tried, fitting):
            yield AfdTopology(attention, ffn, gpus_per_node, tp, ep)


def _ways(request: SearchRequest, grid: AfdGrid) -> Iterator[tuple[int, int]]:
    """Microbatches and pipelines that differ: too few microbatches never overlap with transfers."""
    pipelines: tuple[Pipeline, ...] = request.afd_pipeline_model_candidates or grid.pipelines
    for microbatches in request.afd_microbatch_candidates or grid.microbatches:
        for pipeline in pipelines:
            if pipeline != "optimistic" or may_overlap(microbatches):
                yield microbatches, PIPELINES.index(pipeline)


def pool_operators(deployment: Deployment, topology: AfdTopology, *, boundary_on_attention: bool) -> AfdOperators:
    """Operators of the pools of a deployment; see `models.afd.afd_operators`."""
    return afd_operators(
        deployment.model,
        topology,
        deployment.quantisation,
        deployment.backend,
        deployment.load.nextn,
        boundary_on_attention=boundary_on_attention,
    )


def _priced(
    request: SearchRequest, deployment: Deployment, topologies: list[AfdTopology]
) -> tuple[list[AfdTopology], list[AfdOperators], list[Refusal]]:
    kept, operators, refused = [], [], []
    for topology in topologies:
        try:
            found = pool_operators(deployment, topology, boundary_on_attention=request.afd_boundary_on_attn)
        except InputError as error:
            refused.append(Refusal.of(topology.label, "afd", error))
        else:
            kept.append(topology)
            operators.append(found)
    if not kept:
        first = refused[0].reason if refused else "no list fits the nodes"
        raise NoFeasible(f"no topology for {deployment.model.name}: {first}.")
    return kept, operators, refused
