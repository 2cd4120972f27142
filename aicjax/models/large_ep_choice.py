# SPDX-License-Identifier: Apache-2.0
"""Whether a layout runs as large expert parallelism, and through which libraries, by what is measured."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aicjax._results import InputError, MissingData
from aicjax.hardware import System
from aicjax.models.families import FAMILIES
from aicjax.models.large_ep import PHASES, LargeEp, exchange_format, large_ep_facts
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel

_FUSED_TABLE_ENGINES = ("trtllm", "vllm")  # whose experts were also measured with the exchange left out
_ATTENTION_DP_ENGINES = ("trtllm",)  # which exchange tokens of data-parallel attention alone


Tables = tuple[System, str, str, bool]  # system, backend, version, shared


@dataclass(frozen=True)
class Coverage:
    """Expert ranks at which the experts of a model and an exchange of their tokens were both measured.

    Attributes:
        backend: The engine.
        gpus_per_node: GPUs of a node.
        ranks: Expert ranks by phase and library, libraries in order of preference.
        measured: What was looked up, in words.
    """

    backend: str
    gpus_per_node: int
    ranks: Mapping[str, Mapping[str, frozenset[int]]]
    measured: str

    def library(self, phase: str, parallel: Parallel) -> str | None:
        """The first library that serves a layout in a phase."""
        if parallel.moe_tp != 1 or (parallel.dp == 1 and self.backend in _ATTENTION_DP_ENGINES):
            return None
        return next((name for name, ranks in self.ranks[phase].items() if parallel.moe_ep in ranks), None)

    def serves(self, parallel: Parallel, phases: Sequence[str] = PHASES) -> bool:
        """Whether a layout has a library in all of `phases`."""
        return all(self.library(phase, parallel) is not None for phase in phases)

    def beyond_node(self, phases: Sequence[str] = PHASES) -> tuple[int, ...]:
        """Ranks that span nodes and are covered in all of `phases`, ascending."""
        covered = [frozenset().union(*self.ranks[phase].values()) for phase in phases]
        return tuple(sorted(ranks for ranks in frozenset.intersection(*covered) if ranks > self.gpus_per_node))


@functools.lru_cache(maxsize=64)
def measured_exchanges(
    model: ModelConfig, system: System, backend: str, version: str, experts: str, *, shared: bool = True
) -> Coverage:
    """What the tables cover for a model.

    Args:
        model: The model.
        system: The GPU system.
        backend: `trtllm`, `vllm` or `sglang`.
        version: Version of the backend.
        experts: Number format of the experts.
        shared: Whether tables of other versions and backends count as measured.
    """
    measured = f"{model.name} on {system.name} {backend} {version}"
    able = FAMILIES[model.family].large_op_lists is not None and model.topk <= large_ep_facts()["most_topk"]
    tables = (system, backend, version, shared)
    ranks = {phase: _by_library(model, phase, tables, experts) if able else {} for phase in PHASES}
    return Coverage(backend, system.gpus_per_node, ranks, measured)


def choose_large_ep(
    model: ModelConfig,
    parallel: Parallel,
    coverage: Coverage,
    *,
    phases: Sequence[str] = PHASES,
    within_node: bool = False,
) -> LargeEp | None:
    """Libraries of a layout; None where it stays on ordinary collectives.

    Experts that span nodes must have them; within a node they are an option, which searches take.

    Args:
        model: The model.
        parallel: Layout of the worker.
        coverage: What is measured for the model.
        phases: Phases that must be covered. Where decode steps need not be, the library of theirs is the engine's
            first, measured or not.
        within_node: Whether to choose for experts within a node too.

    Raises:
        InputError: Experts that span nodes are cut by tensor parallelism.
        MissingData: Experts span nodes and no library was measured there.
    """
    crosses = parallel.moe_ep > coverage.gpus_per_node
    if not model.is_moe or parallel.moe_ep == 1 or not (crosses or within_node):
        return None
    if crosses and parallel.moe_tp != 1:
        raise InputError("moe_tp", parallel.moe_tp, f"1 where {parallel.moe_ep} expert ranks span nodes")
    nodes = -(-parallel.moe_ep // coverage.gpus_per_node)
    found = {phase: coverage.library(phase, parallel) for phase in PHASES}
    missing = [phase for phase in phases if found[phase] is None]
    if not missing:
        context, generation = (found[phase] or _libraries(coverage.backend, phase)[0] for phase in PHASES)
        return LargeEp(context, generation, nodes)
    if not crosses:
        return None
    raise MissingData(
        f"{coverage.measured}: {parallel.moe_ep} expert ranks span {nodes} nodes of {coverage.gpus_per_node} GPUs, "
        f"and no exchange of tokens between nodes is measured for {' and '.join(missing)}."
    )


def _libraries(backend: str, phase: str) -> list[str]:
    """Libraries that an engine can use in a phase, in order of preference."""
    able = large_ep_facts()["libraries"].items()
    return [name for name, library in able if backend in library["engines"] and phase in library["phases"]]


def _by_library(model: ModelConfig, phase: str, tables: Tables, experts: str) -> dict[str, frozenset[int]]:
    """Covered ranks of each library of a phase; those without any are left out."""
    system, backend, *_ = tables
    ranks = [ep for ep in sorted(_expert_ranks(model, phase, tables, experts)) if ep > 1 and not model.num_experts % ep]
    found = {}
    for name in _libraries(backend, phase):
        if (system.sm_version or 0) >= large_ep_facts()["libraries"][name]["min_sm"]:
            exchanged = _exchanged(model, phase, name, tables, experts)
            found[name] = frozenset(ep for ep in ranks if exchanged.intersection(_spans(name, ep, system, backend)))
    return {name: covered for name, covered in found.items() if covered}


def _spans(name: str, moe_ep: int, system: System, backend: str) -> list[tuple[int, int]]:
    """Ranks and nodes whose measurement answers for `moe_ep` ranks: their own, or the node that stands in."""
    facts, nodes = large_ep_facts(), -(-moe_ep // system.gpus_per_node)
    own = [(moe_ep, nodes)]
    if not facts["libraries"][name]["one_node"] or nodes == 1:
        return own
    return [*own, (facts["stand_in_ranks"].get(backend, system.gpus_per_node), 1)]


def _exchanged(model: ModelConfig, phase: str, name: str, tables: Tables, experts: str) -> set[tuple[int, int]]:
    """Ranks and nodes at which a library was measured for a model, dispatch and combine both."""
    from aicjax.ops.exchange_tables import load_exchanges  # with jax, which host code does without until here

    shape, measured = (model.hidden_size, model.topk, model.num_experts), []
    for step in ("dispatch", "combine"):
        try:
            form = exchange_format(name, experts, phase, step)
        except InputError:
            return set()
        places = load_exchanges(*tables).get((name, step), {}).get(form, {})
        measured.append({place[:2] for place in places if place[2:] == shape})
    return measured[0] & measured[1]


def _expert_ranks(model: ModelConfig, phase: str, tables: Tables, experts: str) -> set[int]:
    """Expert ranks at which the experts of a model were measured, without tensor parallelism."""
    from aicjax.ops.expert_tables import load_experts
    from aicjax.ops.moe_tables import load_moe

    shapes = [
        shape
        for (_, mode), distributions in load_experts(*tables).items()
        if mode == experts
        for phases in distributions.values()
        for shape, _ in phases.get(phase, ())
    ]
    if tables[1] in _FUSED_TABLE_ENGINES:
        shapes += [shape for curves in load_moe(*tables).main.get(experts, {}).values() for shape in curves]
    sought = (model.topk, model.num_experts, model.hidden_size, model.moe_intermediate_size, 1)
    return {shape.moe_ep for shape in shapes if shape[:-1] == sought}
