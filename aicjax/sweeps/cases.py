# SPDX-License-Identifier: Apache-2.0
"""What a sweep evaluates, and in which order: every combination of its axes, in every layout."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from aicjax._results import AicjaxError
from aicjax.constants import LoopConstants
from aicjax.explore.grid import load_grid
from aicjax.explore.request import SearchRequest
from aicjax.explore.roles import Worker, resolve_load
from aicjax.explore.space import Role
from aicjax.explore.task import Budget, role_space
from aicjax.serving.point import serving_numbers
from aicjax.sweeps.pairs import PairNumbers, pair_space
from aicjax.sweeps.spec import Backend, Drafts, SweepSpec, Workload

ENGINES_AT_ONCE = 64  # whose bound models are held, so that each is bound once for all workloads
CHUNK_POINTS = 1 << 23  # done together: what an interruption can lose
PLAN_POINTS = 1 << 19  # of one layout, planned at once: batches are split into blocks, which changes no answer
PAIRS = 1 << 23  # of a prefill and a decode worker, matched at once; likewise


class EngineName(NamedTuple):
    """The axes that decide what a model is bound to."""

    model: str
    system: str
    backend: Backend
    version: str | None
    formats: tuple[tuple[str, str], ...]
    drafts: Drafts

    @property
    def label(self) -> str:
        """All of it in words, as far as stated."""
        formats = [f"{part} {mode}" for part, mode in self.formats]
        stated = [self.version, *formats, f"nextn {self.drafts.nextn}" if self.drafts.nextn else None]
        return " ".join([f"{self.model} on {self.system} with {self.backend}", *(word for word in stated if word)])


@dataclass(frozen=True)
class Engine:
    """A model on a system and an engine in all its layouts, before the requests are known.

    Attributes:
        name: What it is.
        workers: The workers by role, under the first of the workloads.
    """

    name: EngineName
    workers: Mapping[Role, Worker]

    def under(self, request: SearchRequest) -> dict[Role, Worker]:
        """The workers under the requests of another workload."""
        loaded = {}
        for role, worker in self.workers.items():
            load = resolve_load(request, worker.deployment.model)
            loaded[role] = replace(worker, deployment=replace(worker.deployment, load=load))
        return loaded


@dataclass(frozen=True)
class Case:
    """All points of an engine under one workload, in some batches.

    Attributes:
        engine: Position of the engine.
        workload: The requests.
        memory_fraction: Of the engine; None for its own.
        batches: A block of the batches of the sweep: requests in flight, or batches of a decode worker.
        first_point: Number of its first point among all of the sweep.
        points: Number of points.
    """

    engine: int
    workload: Workload
    memory_fraction: float | None
    batches: tuple[int, ...]
    first_point: int
    points: int


@dataclass(frozen=True)
class Cases:
    """All of a sweep.

    Attributes:
        engines: Models on systems and engines.
        cases: What is evaluated, in order; cases of one workload on engines with the same rules follow each other.
        refused: Combinations that cannot run, with the reason.
        refused_layouts: Layouts that cannot, by engine, with the reason.
    """

    engines: tuple[Engine, ...]
    cases: tuple[Case, ...]
    refused: tuple[tuple[EngineName, str], ...]

    @property
    def points(self) -> int:
        """Number of points."""
        return sum(case.points for case in self.cases)


def enumerate_cases(spec: SweepSpec) -> Cases:
    """All cases of a sweep.

    Raises:
        AicjaxError: No combination of model, system and engine can run; the reason of the first.
    """
    engines, refused, first_error = [], [], None
    for name in _names(spec):
        try:
            engines.append(_engine(spec, name))
        except AicjaxError as error:
            refused.append((name, str(error)))
            first_error = first_error or error
    if not engines:
        assert first_error is not None
        raise first_error
    return Cases(tuple(engines), tuple(_cases(spec, engines)), tuple(refused))


def in_chunks(cases: Sequence[Case], key: Callable[[Case], Hashable]) -> list[tuple[Case, ...]]:
    """Successive cases with the same key in chunks of at least `CHUNK_POINTS` points, where there are as many."""
    chunks: list[list[Case]] = []
    for _, together in itertools.groupby(cases, key):
        points = CHUNK_POINTS
        for case in together:
            if points >= CHUNK_POINTS:
                chunks.append([])
                points = 0
            chunks[-1].append(case)
            points += case.points
    return [tuple(chunk) for chunk in chunks]


def request_of(spec: SweepSpec, name: EngineName, workload: Workload) -> SearchRequest:
    """The search that an engine under a workload would be."""
    return spec.request(name.model, name.system, name.backend, name.version, dict(name.formats), workload)


def _names(spec: SweepSpec) -> list[EngineName]:
    names = []
    for model, system, backend in itertools.product(spec.models, spec.systems, spec.backends):
        for version, formats, drafts in itertools.product(
            spec.versions.get(backend, (None,)), spec.formats, spec.drafts
        ):
            names.append(EngineName(model, system, backend, version, tuple(sorted(formats.items())), drafts))
    return names


def _engine(spec: SweepSpec, name: EngineName) -> Engine:
    workload = next(workload for workload in spec.workloads if workload.drafts == name.drafts)
    request, budget = request_of(spec, name, workload), Budget(spec.total_gpus, spec.total_gpus)
    roles: tuple[Role, ...] = ("agg",) if spec.serving_mode == "agg" else ("prefill", "decode")
    layouts = load_grid().layouts
    workers: dict[Role, Worker] = {
        role: role_space(request, role, name.backend, budget, layouts).worker for role in roles
    }
    engine = Engine(name, workers)
    if spec.serving_mode == "disagg":
        pair_numbers(spec, engine, 1)  # refuses an engine without pairs
    return engine


def _cases(spec: SweepSpec, engines: Sequence[Engine]) -> list[Case]:
    """In blocks of engines; within one, workload by workload, and engines with the same rules together."""
    cases, first_point = [], 0
    for start in range(0, len(engines), ENGINES_AT_ONCE):
        blocks = {at: _blocks(spec, engines[at]) for at in range(start, min(start + ENGINES_AT_ONCE, len(engines)))}
        for workload, place in itertools.product(spec.workloads, range(max(map(len, blocks.values())))):
            fitting = [
                at for at, own in blocks.items() if engines[at].name.drafts == workload.drafts and place < len(own)
            ]
            for at in sorted(fitting, key=lambda at: (grid_rules(engines[at]), at)):
                points = _points(spec, engines[at], len(blocks[at][place]))
                for fraction in spec.memory_fraction:
                    cases.append(Case(at, workload, fraction, blocks[at][place], first_point, points))
                    first_point += points
    return cases


def _blocks(spec: SweepSpec, engine: Engine) -> list[tuple[int, ...]]:
    """The batches of an engine, split where they are too many to be done at once."""
    if spec.serving_mode == "agg":
        batches, size = spec.batch, PLAN_POINTS // len(spec.ctx_tokens)
    else:
        rows = len(engine.workers["prefill"].layouts) * len(spec.prefill_batch)
        batches, size = spec.decode_batch, PAIRS // (rows * len(engine.workers["decode"].layouts))
    size = max(1, size)
    return [batches[start : start + size] for start in range(0, len(batches), size)]


def _points(spec: SweepSpec, engine: Engine, batches: int) -> int:
    if spec.serving_mode == "agg":
        return len(engine.workers["agg"].layouts) * batches * len(spec.ctx_tokens)
    return pair_numbers(spec, engine, batches).points


def pair_numbers(spec: SweepSpec, engine: Engine, decode_batches: int) -> PairNumbers:
    """The points of an engine with prefill and decode workers apart, in a block of decode batches.

    Raises:
        NoFeasible: No prefill and decode worker fit the GPUs together.
    """
    space = pair_space(
        engine.workers["prefill"],
        engine.workers["decode"],
        max_prefill_workers=spec.prefill_workers,
        max_decode_workers=spec.decode_workers,
        max_gpus=spec.total_gpus,
    )
    return PairNumbers(space, len(spec.prefill_batch), decode_batches)


class GridRules(NamedTuple):
    """What a grid depends on: switches of `BackendRules`, and whether the steps of a closed loop mix.

    `mixes_prefill` is False for the mean field, which does not ask.
    """

    spread_decode_rows: bool
    littles_law_cap: bool
    mixes_prefill: bool


def grid_rules(engine: Engine) -> GridRules:
    """What engines must share so that their grids are planned and scanned together."""
    deployment = next(iter(engine.workers.values())).deployment
    rules, numbers = deployment.rules, serving_numbers(deployment.constants)
    mixes = isinstance(numbers, LoopConstants) and bool(numbers.mixes_prefill)
    return GridRules(rules.spread_decode_rows, rules.littles_law_cap, mixes)
