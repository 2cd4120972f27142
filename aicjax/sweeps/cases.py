# SPDX-License-Identifier: Apache-2.0
"""What a sweep evaluates, and in which order: every combination of its axes, in every layout."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from aicjax._results import AicjaxError
from aicjax.explore.grid import load_grid
from aicjax.explore.request import SearchRequest
from aicjax.explore.roles import Worker, resolve_load
from aicjax.explore.space import Role
from aicjax.explore.task import Budget, role_space
from aicjax.sweeps.spec import Drafts, SweepSpec, Workload

ENGINES_AT_ONCE = 64  # whose bound models are held, so that each is bound once for all workloads
CHUNK_POINTS = 1 << 23  # done together: what an interruption can lose
PLAN_POINTS = 1 << 19  # of one layout, planned at once: batches are split into blocks, which changes no answer


class EngineName(NamedTuple):
    """The axes that decide what a model is bound to."""

    model: str
    system: str
    backend: str
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
    """All points of an engine under one workload: layouts by batches by context-token budgets.

    Attributes:
        engine: Position of the engine.
        workload: The requests.
        memory_fraction: Of the engine; None for its own.
        batches: Requests in flight, a block of those of the sweep.
        first_point: Number of its first point among all of the sweep.
        layouts: Number of layouts.
        budgets: Number of context-token budgets.
    """

    engine: int
    workload: Workload
    memory_fraction: float | None
    batches: tuple[int, ...]
    first_point: int
    layouts: int
    budgets: int

    @property
    def points(self) -> int:
        """Number of points."""
        return self.layouts * len(self.batches) * self.budgets


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
    return Engine(name, {role: role_space(request, role, name.backend, budget, layouts).worker for role in roles})


def _cases(spec: SweepSpec, engines: Sequence[Engine]) -> list[Case]:
    """In blocks of engines; within one, workload by workload, and engines with the same rules together."""
    budgets = len(spec.ctx_tokens)
    size = max(1, PLAN_POINTS // budgets)
    blocks = [spec.batch[start : start + size] for start in range(0, len(spec.batch), size)]
    cases, first_point = [], 0
    for start in range(0, len(engines), ENGINES_AT_ONCE):
        chosen = range(start, min(start + ENGINES_AT_ONCE, len(engines)))
        for workload, block in itertools.product(spec.workloads, blocks):
            fitting = [at for at in chosen if engines[at].name.drafts == workload.drafts]
            for at in sorted(fitting, key=lambda at: (rules_key(engines[at]), at)):
                layouts = len(engines[at].workers["agg"].layouts)
                for fraction in spec.memory_fraction:
                    case = Case(at, workload, fraction, block, first_point, layouts, budgets)
                    cases.append(case)
                    first_point += case.points
    return cases


def rules_key(engine: Engine) -> tuple[bool, bool]:
    """What engines must share so that their grids are planned and scanned together."""
    rules = engine.workers["agg"].deployment.rules
    return rules.spread_decode_rows, rules.littles_law_cap
