# SPDX-License-Identifier: Apache-2.0
"""Whether a layout runs as large expert parallelism, and through which libraries, by what is measured."""

from dataclasses import dataclass

from aicjax._results import InputError, MissingData
from aicjax.hardware import System
from aicjax.models.families import FAMILIES
from aicjax.models.large_ep import PHASES, LargeEp, check_large_ep, exchange_format, large_ep_facts
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation

_FUSED_TABLE_ENGINES = ("trtllm", "vllm")  # whose experts were also measured with the exchange left out


@dataclass(frozen=True)
class _Worker:
    """A layout and the tables that say what it can do."""

    model: ModelConfig
    parallel: Parallel
    system: System
    backend: str
    version: str
    quantisation: Quantisation
    shared: bool

    @property
    def nodes(self) -> int:
        return -(-self.parallel.moe_ep // self.system.gpus_per_node)


def choose_large_ep(
    model: ModelConfig,
    parallel: Parallel,
    system: System,
    backend: str,
    version: str,
    quantisation: Quantisation,
    *,
    within_node: bool = False,
    shared: bool = True,
) -> LargeEp | None:
    """Libraries of a layout; None where it stays on ordinary collectives.

    Experts that span nodes must have them; within a node they are an option, which searches take.

    Args:
        model: The model.
        parallel: Layout of the worker.
        system: The GPU system.
        backend: `trtllm`, `vllm` or `sglang`.
        version: Version of the backend.
        quantisation: Number formats.
        within_node: Whether to choose for experts within a node too.
        shared: Whether tables of other versions and backends count as measured.

    Raises:
        InputError: Experts that span nodes are cut by tensor parallelism.
        MissingData: Experts span nodes and no library was measured there.
    """
    crosses = parallel.moe_ep > system.gpus_per_node
    if not model.is_moe or parallel.moe_ep == 1 or not (crosses or within_node):
        return None
    if crosses and parallel.moe_tp != 1:
        raise InputError("moe_tp", parallel.moe_tp, f"1 where {parallel.moe_ep} expert ranks span nodes")
    worker = _Worker(model, parallel, system, backend, version, quantisation, shared)
    found = [_library(worker, phase) for phase in PHASES]
    context, generation = found
    if context is not None and generation is not None:
        plan = LargeEp(context, generation, worker.nodes)
        if _valid(model, parallel, backend, plan):
            return plan
    if not crosses:
        return None
    missing = [phase for phase, library in zip(PHASES, found, strict=True) if library is None]
    raise MissingData(
        f"{model.name} on {system.name} {backend} {version}: {parallel.moe_ep} expert ranks span {worker.nodes} nodes "
        f"of {system.gpus_per_node} GPUs, and no exchange of tokens between nodes is measured for "
        f"{' and '.join(missing) or 'this layout'}."
    )


def _valid(model: ModelConfig, parallel: Parallel, backend: str, plan: LargeEp) -> bool:
    try:
        check_large_ep(model, parallel, backend, plan)
    except InputError:
        return False
    return True


def _library(worker: _Worker, phase: str) -> str | None:
    """The first library in order of preference that was measured for a phase."""
    if FAMILIES[worker.model.family].large_op_lists is None:
        return None
    if worker.parallel.moe_ep not in _measured_ranks(worker, phase):
        return None
    for name, library in large_ep_facts()["libraries"].items():
        if worker.backend not in library["engines"] or phase not in library["phases"]:
            continue
        if (worker.system.sm_version or 0) >= library["min_sm"] and _exchanged(worker, phase, name):
            return name
    return None


def _exchanged(worker: _Worker, phase: str, name: str) -> bool:
    """Whether dispatch and combine were both measured at these ranks and nodes, or on the node that stands in."""
    from aicjax.ops.exchange_tables import Place, load_exchanges  # with jax, which host code does without until here

    model, facts = worker.model, large_ep_facts()
    tables = load_exchanges(worker.system, worker.backend, worker.version, worker.shared)
    spans = [(worker.parallel.moe_ep, worker.nodes)]
    if facts["libraries"][name]["one_node"] and worker.nodes > 1:
        spans.append((facts["stand_in_ranks"].get(worker.backend, worker.system.gpus_per_node), 1))
    measured = []
    for step in ("dispatch", "combine"):
        try:
            form = exchange_format(name, worker.quantisation.moe, phase, step)
        except InputError:
            return False
        places = tables.get((name, step), {}).get(form, {})
        shape = (model.hidden_size, model.topk, model.num_experts)
        measured.append({span for span in spans if Place(*span, *shape) in places})
    return bool(measured[0] & measured[1])


def _measured_ranks(worker: _Worker, phase: str) -> set[int]:
    """Expert ranks at which the experts of a model were measured, without tensor parallelism."""
    from aicjax.ops.expert_tables import load_experts
    from aicjax.ops.moe_tables import load_moe

    model, form = worker.model, worker.quantisation.moe
    source = (worker.system, worker.backend, worker.version, worker.shared)
    shapes = [
        shape
        for (_, mode), distributions in load_experts(*source).items()
        if mode == form
        for phases in distributions.values()
        for shape, _ in phases.get(phase, ())
    ]
    if worker.backend in _FUSED_TABLE_ENGINES:
        shapes += [shape for curves in load_moe(*source).main.get(form, {}).values() for shape in curves]
    sought = (model.topk, model.num_experts, model.hidden_size, model.moe_intermediate_size, 1)
    return {shape.moe_ep for shape in shapes if shape[:-1] == sought}
