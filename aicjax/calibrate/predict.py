# SPDX-License-Identifier: Apache-2.0
"""Predictions for measured servers, by the serving formulas that the constants name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from aicjax.calibrate.engines import price
from aicjax.calibrate.loop_rows import loop_constants, row_times
from aicjax.calibrate.mapping import Rules
from aicjax.calibrate.measurements import Flags, Floats, Measurements, Strings
from aicjax.calibrate.plan import RoleWorker, RowBatch, plan_rows
from aicjax.calibrate.step_table import StepTable, step_table
from aicjax.constants import LoopConstants, load_constants
from aicjax.explore.agg_sweep import AggSweep, sweep_points
from aicjax.explore.request import BACKENDS
from aicjax.explore.static_sweep import static_points
from aicjax.forward.bound import StepCurves
from aicjax.serving.coordinates import Coordinates
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate
from aicjax.serving.static import static_estimate
from aicjax.serving.worker_cost import WorkerCost


@dataclass(frozen=True)
class Prediction:
    """What is predicted for measured rows; all shapes [row], NaN where there is no answer.

    Attributes:
        ttft_ms, tpot_ms: Time to first token, time per output token after the first.
        prefill_ms: Prefill of one prompt on a worker of its own.
        decode_ms: One decode step at the row's batch, half of the answer generated.
        attempt: Label of the attempt that answered; "" for none.
        reason: Why there is no answer; "" where there is one.
    """

    ttft_ms: Floats
    tpot_ms: Floats
    prefill_ms: Floats
    decode_ms: Floats
    attempt: Strings
    reason: Strings

    @property
    def answered(self) -> Flags:
        """Rows with an answer."""
        return self.attempt != ""

    @property
    def refusals(self) -> dict[str, int]:
        """Rows without an answer, by reason."""
        reasons, counts = np.unique(self.reason[~self.answered], return_counts=True)
        return {str(reason): int(count) for reason, count in zip(reasons, counts, strict=True)}


def predict(rows: Measurements, constants: str = "reference", rules: Rules = "checkpoint") -> Prediction:
    """Predictions by the formulas of the constants.

    The mean field of in-flight batching and of disaggregated serving takes nominal lengths, the closed loop the load
    shape of each row and its mean lengths.

    Args:
        rows: Measured servers.
        constants: Empirical numbers: a name under `configs/constants/`, or the path of a file.
        rules: How rows are mapped to configurations.

    Raises:
        InputError: No such constants.
    """
    if load_constants(BACKENDS[0], constants).formulas == "closed_loop":
        return predict_table(step_table(rows, constants, rules), loop_constants(constants))
    found = price(rows, _MeanField(), constants, rules)
    times = {name: found.columns[name] for name in ("ttft_ms", "tpot_ms", "prefill_ms", "decode_ms")}
    return Prediction(**times, attempt=found.attempt, reason=found.reason)


def predict_table(table: StepTable, constants: LoopConstants) -> Prediction:
    """Predictions of the closed loop from step times.

    Args:
        table: Step times of the rows.
        constants: Constants of all backends, each leaf [backend].
    """
    ttft_ms, tpot_ms = (
        np.asarray(times, np.float64) for times in jax.jit(lambda numbers: row_times(table, numbers))(constants)
    )
    times = ttft_ms, tpot_ms, table.times.prefill_ms, table.times.decode_ms[:, -1]
    known = [np.where(table.answered, values, np.nan) for values in times]
    return Prediction(*known, attempt=table.attempt, reason=table.reason)


class _MeanField:
    """The pricing of serving estimates of a server at rest.

    Columns `context_ms` and `generation_ms` are the corrected latencies of the workers of disaggregated rows: prefill
    of a batch, and all decode steps.
    """

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """One number for each."""
        names = "ttft_ms", "tpot_ms", "prefill_ms", "decode_ms", "context_ms", "generation_ms"
        return dict.fromkeys(names, ())

    def plan(self, rows: Measurements, of: RoleWorker, coordinates: Coordinates) -> Iterator[RowBatch]:
        """One sweep for each load of the rows."""
        return plan_rows(rows, of, coordinates)

    def fill(self, batch: RowBatch, curves: StepCurves, configs: Sequence[int], answers: dict[str, Floats]) -> None:
        """Gathers what one sweep yields into its rows."""
        rows, points = batch.rows, (batch.layout, batch.batch)
        if batch.prefill:
            prompt = sum(places.values(curves)[configs] for places in batch.prefill)
            answers["prefill_ms"][rows] = np.asarray(prompt)[batch.layout]
        if batch.decode:
            answers["decode_ms"][rows] = np.asarray(sum(p.values(curves)[configs] for p in batch.decode))[points]
        disagg = batch.worker.deployment.constants.disagg
        if isinstance(batch.sweep, AggSweep):
            estimate = sweep_points(batch.sweep, curves, configs)
            answers["ttft_ms"][rows] = estimate.ttft_ms[..., 0][points]
            answers["tpot_ms"][rows] = estimate.tpot_ms[..., 0][points]
            answers["context_ms"][rows] = answers["generation_ms"][rows] = 0.0
        elif batch.prefill:
            found = static_points(batch.sweep, curves, configs, cost=WorkerCost(disagg.prefill_latency_correction))
            answers["context_ms"][rows] = found.context_ms[points]
        else:
            found = static_points(batch.sweep, curves, configs, cost=WorkerCost(disagg.decode_latency_correction))
            answers["generation_ms"][rows] = found.generation_ms[points]

    def finish(self, rows: Measurements, batches: Sequence[RowBatch], answers: dict[str, Floats]) -> None:
        """Estimates of disaggregated rows from those of their workers."""
        for batch in batches:
            if isinstance(batch.sweep, AggSweep) or not batch.decode:
                continue
            at, load = batch.rows, batch.worker.deployment.load
            prefill, decode = rows.prefill.take(at), rows.decode.take(at)
            prompt_ms, answer_ms = answers["context_ms"][at], answers["generation_ms"][at]
            prompts = static_estimate("static_ctx", prompt_ms, 0.0, prefill.batch * prefill.dp, load.osl)
            decodes = static_estimate("static_gen", 0.0, answer_ms, decode.batch * decode.dp, load.osl)
            estimate = disagg_estimate(
                Workers(prompts.seq_per_s, prefill.tp * prefill.dp),
                Workers(decodes.seq_per_s, decode.tp * decode.dp),
                WorkerCounts(prefill.count, decode.count, np.zeros_like(decode.count)),
                prompts.ttft_ms,
                decodes.tpot_ms,
                load.osl,
                batch.worker.deployment.constants.disagg,
            )
            answers["ttft_ms"][at], answers["tpot_ms"][at] = estimate.ttft_ms, estimate.tpot_ms
