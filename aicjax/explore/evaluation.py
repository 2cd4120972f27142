# SPDX-License-Identifier: Apache-2.0
"""Step times for several experiments at once: each layout is bound once and each engine evaluated once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aicjax.explore.roles import Deployment, Worker
from aicjax.forward.bound import BoundModel, StepCurves, bind
from aicjax.forward.steps import StepQueries
from aicjax.hardware import System
from aicjax.models import LargeEp, Parallel
from aicjax.ops.records import OpLists
from aicjax.serving.coordinates import Coordinates


@dataclass
class _Engine:
    """Workers of the same formats on the same tables."""

    deployment: Deployment
    layouts: dict[tuple[Parallel, LargeEp | None], OpLists] = field(default_factory=dict)
    coordinates: Coordinates = field(default_factory=Coordinates)
    curves: StepCurves | None = None

    def bind(self) -> BoundModel:
        return bind_layouts(self.deployment, list(self.layouts.values()))

    def evaluate(self) -> StepCurves:
        if self.curves is None:
            self.curves = self.bind().evaluate(self.coordinates.queries())
        return self.curves


class BoundEngine(NamedTuple):
    """An engine before it is evaluated.

    Attributes:
        system: Its GPU system.
        model: All its layouts.
        queries: All coordinates asked of it.
    """

    system: System
    model: BoundModel
    queries: StepQueries


class Evaluation:
    """Collects what experiments need and evaluates it when the first of them asks for its step times.

    Every worker is added, and every sweep planned, before the first call of `curves`.
    """

    def __init__(self) -> None:
        self._engines: dict[tuple, _Engine] = {}

    def add(self, worker: Worker) -> Coordinates:
        """Takes in the layouts of a worker; returns where its sweeps put their coordinates."""
        engine = self._engines.setdefault(_key(worker.deployment), _Engine(worker.deployment))
        engine.layouts |= dict(zip(_layouts(worker), worker.op_lists, strict=True))
        return engine.coordinates

    def curves(self, worker: Worker) -> tuple[StepCurves, Sequence[int]]:
        """Step times of the engine of a worker, and the positions of the worker's layouts on the config axis."""
        _, rows = self.place(worker)
        return self._engines[_key(worker.deployment)].evaluate(), rows

    def bound(self) -> list[BoundEngine]:
        """All engines, for a kernel of one's own."""
        engines = self._engines.values()
        return [BoundEngine(e.deployment.system, e.bind(), e.coordinates.queries()) for e in engines]

    def place(self, worker: Worker) -> tuple[int, Sequence[int]]:
        """Which engine a worker is on, and the positions of its layouts on the config axis."""
        key = _key(worker.deployment)
        position = {layout: row for row, layout in enumerate(self._engines[key].layouts)}
        return list(self._engines).index(key), [position[layout] for layout in _layouts(worker)]


def bind_layouts(deployment: Deployment, op_lists: Sequence[OpLists]) -> BoundModel:
    """Layouts of a deployment, bound to its tables."""
    return bind(
        deployment.system,
        deployment.backend,
        deployment.version,
        op_lists,
        mode=deployment.database_mode,
        transfer_policy=deployment.transfer_policy,
        constants=deployment.constants,
        attention_backend=deployment.attention_backend,
        compat=deployment.model.compat,
    )


def _key(deployment: Deployment) -> tuple:
    """What two workers must share to be bound together."""
    return (deployment.system.name, deployment.backend, deployment.version, deployment.bound_formats)


def _layouts(worker: Worker) -> list[tuple[Parallel, LargeEp | None]]:
    """What tells the operators of layouts apart within an engine."""
    return list(zip(worker.layouts, worker.exchanges, strict=True))
