# SPDX-License-Identifier: Apache-2.0
"""From measured rows of one engine to sweeps: layouts, batches and loads that are priced together."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from aicjax.calibrate.mapping import Configuration
from aicjax.calibrate.measurements import Ints, Measurements, WorkerColumns
from aicjax.explore.agg_sweep import AggSweep, plan_agg_sweep
from aicjax.explore.request import DatabaseMode, EstimateRequest
from aicjax.explore.roles import Spread, Worker, deploy, worker
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import StaticSweep, plan_static_sweep
from aicjax.models import Parallel
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.load import Load

STRIDE = 32  # decode steps of a static batch that one priced step stands for, as in searches


class Attempt(NamedTuple):
    """One way to answer rows.

    Attributes:
        database_mode: How operators without measurements are answered.
        expert_spread: Where exchanges of experts over many GPUs are taken.
        compat: Whose rules: `default`, or `reference` for those of AIConfigurator.
    """

    database_mode: DatabaseMode
    expert_spread: Spread
    compat: Literal["default", "reference"] = "default"

    @property
    def label(self) -> str:
        """The attempt in a word, e.g. `HYBRID/never`."""
        return self.database_mode if self.expert_spread == "measured" else f"{self.database_mode}/{self.expert_spread}"


class RoleWorker(NamedTuple):
    """The workers that rows of one engine run in one role.

    Attributes:
        role: `agg`, `prefill` or `decode`.
        worker: All layouts that can be priced.
        rows: Positions of the rows whose layout is one of them [row].
        layout: Which layout each of those rows runs [row].
        refused: Why the other rows have no answer, by position.
    """

    role: Role
    worker: Worker
    rows: Ints
    layout: Ints
    refused: dict[int, str]


@dataclass(frozen=True)
class RowBatch:
    """Rows of one worker and load, with the places of what they need.

    Attributes:
        rows: Positions of the rows [row].
        layout, batch: Which layout and which batch of the sweep each row is [row].
        worker: The worker, with the load of the rows.
        sweep: In-flight batching, or one side of disaggregated serving.
        prefill: Places whose sum is the prefill of one prompt; empty for a decode worker.
        decode: Places whose sum is a decode step of each batch; empty for a prefill worker.
    """

    rows: Ints
    layout: Ints
    batch: Ints
    worker: Worker
    sweep: AggSweep | StaticSweep
    prefill: tuple[Places, ...]
    decode: tuple[Places, ...]


def role_worker(
    rows: Measurements, at: Ints, role: Role, configuration: Configuration, constants: str, attempt: Attempt
) -> RoleWorker:
    """The workers of one role of the rows at positions `at`, which share system, backend and configuration.

    Raises:
        InputError: An unknown model, system or format, or none of the layouts is valid.
        MissingData: No exchange is measured for any of the layouts.
    """
    request = _request(rows, int(at[0]), configuration, constants, attempt)
    deployment = dataclasses.replace(deploy(request, role, request.backend), expert_spread=attempt.expert_spread)
    layouts, layout = _layouts(rows.workers(role).take(at), experts=deployment.model.is_moe)
    engine = worker(deployment, layouts)
    position = {kept: number for number, kept in enumerate(engine.layouts)}
    place = np.array([position.get(candidate, -1) for candidate in layouts])[layout]
    why = {refusal.layout: refusal.reason for refusal in engine.refused}
    kept = place >= 0
    refused = {int(row): why[layouts[number].label] for row, number in zip(at[~kept], layout[~kept], strict=True)}
    return RoleWorker(role, engine, at[kept], place[kept], refused)


def plan_rows(rows: Measurements, of: RoleWorker, coordinates: Coordinates) -> Iterator[RowBatch]:
    """One sweep for each load of the rows; adds what they need to `coordinates`."""
    deployment, batches = of.worker.deployment, rows.workers(of.role).batch
    lengths = np.stack([rows.isl[of.rows], rows.osl[of.rows]])
    for isl, osl in np.unique(lengths, axis=1).T:
        same = (lengths[0] == isl) & (lengths[1] == osl)
        sizes, batch = np.unique(batches[of.rows[same]], return_inverse=True)
        load = Load(int(isl), int(osl))
        loaded = dataclasses.replace(of.worker, deployment=dataclasses.replace(deployment, load=load))
        prefill, decode = (), ()
        if of.role != "decode":
            prefill = coordinates.context_rest(1, load.isl, 0), coordinates.context_attention(1, load.isl, 0)
        if of.role != "prefill":
            lengthwise = (coordinates.generation_attention, coordinates.generation_other)
            decode = coordinates.generation_rest(sizes), *(places(sizes, load.mid_kv_len) for places in lengthwise)
        sweep = _sweep(of.role, loaded, sizes.tolist(), coordinates)
        yield RowBatch(of.rows[same], of.layout[same], batch, loaded, sweep, prefill, decode)


def _sweep(role: Role, loaded: Worker, sizes: list[int], coordinates: Coordinates) -> AggSweep | StaticSweep:
    if role == "agg":
        return plan_agg_sweep(loaded, sizes, [loaded.deployment.load.isl], coordinates)
    return plan_static_sweep(loaded, "static_ctx" if role == "prefill" else "static_gen", sizes, coordinates, STRIDE)


def _request(
    rows: Measurements, first: int, configuration: Configuration, constants: str, attempt: Attempt
) -> EstimateRequest:
    stated: dict[str, Any] = {f"{role}_quant_mode": name for role, name in configuration.formats}
    stated |= {name: str(getattr(rows, name)[first]) for name in ("system", "backend")}
    return EstimateRequest(
        model_path=configuration.model,
        isl=1,
        osl=2,
        batch_size=1,
        mode="agg",
        database_mode=attempt.database_mode,
        constants=constants,
        compat=attempt.compat,
        attention_backend=configuration.attention_backend,
        **stated,
    )


def _layouts(workers: WorkerColumns, *, experts: bool) -> tuple[list[Parallel], Ints]:
    """Distinct layouts, and which of them each row runs."""
    widths = [workers.tp, workers.dp, np.maximum(workers.moe_tp, 1), np.maximum(workers.moe_ep, 1)]
    if not experts:
        widths = [workers.tp] + [np.ones_like(workers.tp)] * 3
    distinct, position = np.unique(np.stack(widths), axis=1, return_inverse=True)
    layouts = [Parallel(tp=int(tp), dp=int(dp), moe_tp=int(mt), moe_ep=int(me)) for tp, dp, mt, me in distinct.T]
    return layouts, position.ravel()
