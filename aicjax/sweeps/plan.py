# SPDX-License-Identifier: Apache-2.0
"""The grid of a sweep under one load: what the kernels need that is the same for every model, system and layout."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
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

CTX_PAD = 16


@dataclass(frozen=True)
class GridPlan:
    """A grid of batches and context-token budgets under one load, planned once.

    Attributes:
        sweep: Plan of each point, and places of the step times that it takes.
        queries: All step times that the grid takes of a model.
        grid: The grid on the device, batches and budgets padded.
        batches, budgets: Number of each.
        inside: Points that leave room for decoding and repeat no other; the others are part of no answer.
    """

    sweep: AggSweep
    queries: StepQueries
    grid: Grid
    batches: int
    budgets: int
    inside: int

    @property
    def points(self) -> int:
        """Points of one layout."""
        return self.batches * self.budgets

    @property
    def padded(self) -> tuple[int, int]:
        """Batches and budgets of the arrays."""
        batch, ctx = self.grid.needs.inside.shape
        return int(batch), int(ctx)

    def curves(self, curves: StepCurves) -> AggCurves:
        """Step times of a model at the distinct coordinates, for all its layouts, padded."""
        batches, budgets = self.padded
        return padded_curves(self.sweep.curves(curves), 0, batches - self.batches, budgets - self.budgets)

    def limits(self, worker: Worker, memory_fraction: float | None) -> StepLimits:
        """Memory of each layout of a worker, padded with batches that never fit."""
        load, batch = worker.deployment.load, self.sweep.plan.batch[:, 0]
        rooms = step_rooms(worker.memory, batch, load.text_tokens, load.osl, memory_fraction)
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
    size = step_size(plan.batch, load.text_tokens, plan.ctx_tokens, load.nextn)
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
    grid = jax.tree.map(jnp.asarray, grid)
    return GridPlan(sweep, coordinates.queries(), grid, len(batches), len(budgets), int(inside.sum()))
