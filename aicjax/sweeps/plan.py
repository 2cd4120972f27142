# SPDX-License-Identifier: Apache-2.0
"""The grid of a sweep under one load: what the kernels need that is the same for every model, system and layout."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import jax
import numpy as np
from numpy.typing import NDArray

from aicjax.explore.agg_sweep import AggSweep, plan_agg_sweep
from aicjax.explore.roles import Worker
from aicjax.forward.bound import StepCurves
from aicjax.forward.memory_room import step_rooms, step_size
from aicjax.forward.steps import StepQueries
from aicjax.serving.coordinates import Coordinates
from aicjax.serving.point import AggCurves, padded_curves, padded_gather, setting_of
from aicjax.sweeps.kernel import BLOCK, Grid, StepLimits, StepNeeds
from aicjax.sweeps.rest import RestTimes

CTX_PAD = 16


@dataclass(frozen=True)
class GridPlan:
    """A grid of batches and context-token budgets under one load, planned once.

    Attributes:
        sweep: Places of the step times that the grid takes; what it holds of each point is in `grid`, and cut here.
        batch: Requests in flight [batch].
        queries: All step times that the grid takes of a model.
        grid: The grid on the device, batches and budgets padded.
        budgets: Number of budgets.
        inside: Points that leave room for decoding and repeat no other; the others are part of no answer.
    """

    sweep: AggSweep
    batch: NDArray[np.int64]
    queries: StepQueries
    grid: Grid
    budgets: int
    inside: int

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self.batch)

    @property
    def points(self) -> int:
        """Points of one layout."""
        return self.batches * self.budgets

    @property
    def padded(self) -> tuple[int, int]:
        """Batches and budgets of the arrays."""
        batch, ctx = self.grid.needs.inside.shape
        return int(batch), int(ctx)

    def curves(self, rest: RestTimes, others: StepCurves) -> AggCurves:
        """Step times of a model at `queries`, for all its layouts, padded.

        Args:
            rest: Passes without attention.
            others: All else.
        """
        batches, budgets = self.padded
        curves = self.sweep.curves(replace(others, **rest._asdict()))
        return padded_curves(curves, 0, batches - self.batches, budgets - self.budgets)

    def limits(self, worker: Worker, memory_fraction: float | None) -> StepLimits:
        """Memory of each layout of a worker, padded with batches that never fit."""
        load = worker.deployment.load
        rooms = step_rooms(worker.memory, self.batch, load.text_tokens, load.osl, memory_fraction)
        pad = ((0, 0), (0, 0), (0, self.padded[0] - self.batches))
        rows = np.pad(np.stack([room.rows for room in rooms], axis=1), pad, constant_values=-1)
        drafted = None
        if self.grid.needs.drafted is not None:
            drafted = np.pad(np.stack([room.drafted for room in rooms], axis=1), pad).astype(np.float32)
        return StepLimits(rows.astype(np.int32), drafted)


def plan_grid(worker: Worker, batches: Sequence[int], budgets: Sequence[int]) -> GridPlan:
    """The grid under the load of a worker, on engines with the same rules."""
    coordinates, load = Coordinates(), worker.deployment.load
    sweep = plan_agg_sweep(worker, batches, budgets, coordinates)
    plan = sweep.plan
    batch_pad, ctx_pad = -len(batches) % BLOCK, -len(budgets) % CTX_PAD
    pad = ((0, batch_pad), (0, ctx_pad))
    size = step_size(plan.batch[:, :1], load.text_tokens, plan.ctx_tokens[:1], load.nextn)
    inside, setting = plan.inside & ~plan.repeats, setting_of(load, worker.deployment.model.layers)

    def spread(values: NDArray, kind: type) -> NDArray:
        return np.pad(values.astype(kind), pad, mode="edge")

    grid = Grid(
        gather=padded_gather(sweep.gather(), batch_pad, ctx_pad),
        needs=StepNeeds(
            inside=np.pad(inside, pad),
            rows=spread(size.rows, np.int32),
            drafted=spread(size.drafted, np.float32) if load.nextn else None,
        ),
        osl=np.asarray(setting.osl, np.float32),
        progress=np.asarray(setting.progress, np.float32),
        first_wave=jax.tree.map(np.float32, setting.first_wave),
    )
    grid = jax.device_put(grid)
    batch = plan.batch[:, 0].copy()
    return GridPlan(_cut(sweep), batch, coordinates.queries(), grid, len(budgets), int(inside.sum()))


def _cut(sweep: AggSweep) -> AggSweep:
    """The sweep with its first batch alone of what it holds of each point: plans of many grids are held at once."""
    plan = {field.name: getattr(sweep.plan, field.name)[:1].copy() for field in fields(sweep.plan)}
    shared, attention = (
        places._replace(inverse=places.inverse[:1].copy()) for places in (sweep.shared, sweep.decode_attention)
    )
    return replace(sweep, plan=replace(sweep.plan, **plan), shared=shared, decode_attention=attention)
