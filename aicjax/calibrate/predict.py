# SPDX-License-Identifier: Apache-2.0
"""Predictions for measured servers: rows on the same engine are bound once and evaluated in one call."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax._results import AicjaxError
from aicjax.calibrate.mapping import Configuration, Rules, map_rows
from aicjax.calibrate.measurements import Flags, Floats, Ints, Measurements, Strings
from aicjax.calibrate.plan import Attempt, RowBatch, plan_rows, role_worker
from aicjax.constants import load_constants
from aicjax.explore.agg_sweep import AggSweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.request import BACKENDS
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import static_points
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate
from aicjax.serving.static import static_estimate

# A row is answered by the first attempt that can: measured data alone, then estimates; then both with experts that span
# nodes exchanging by ordinary collectives, since the node of a rack system is not the domain of its links.
ATTEMPTS = (
    Attempt("SILICON", "measured"),
    Attempt("HYBRID", "measured"),
    Attempt("SILICON", "never"),
    Attempt("HYBRID", "never"),
)


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
    """Predictions by the formulas of in-flight batching and of disaggregated serving, at nominal lengths.

    Args:
        rows: Measured servers.
        constants: Name of the empirical numbers under `configs/constants/`.
        rules: How rows are mapped to configurations.

    Raises:
        InputError: No such constants.
    """
    load_constants(BACKENDS[0], constants)
    configurations, codes = map_rows(rows, rules)
    models = [configuration.model for configuration in configurations]
    answer = _Answer.empty(len(rows))
    known = np.where(rows.is_agg, rows.agg.known, rows.prefill.known & rows.decode.known)
    answer.reason[~known] = "workers unknown"
    for attempt in ATTEMPTS:
        pending = known & (answer.attempt == "")
        for model in sorted(set(models)):
            at = np.flatnonzero(pending & np.isin(codes, [n for n, name in enumerate(models) if name == model]))
            if at.size:
                found = _answer_model(rows.take(at), [configurations[c] for c in codes[at]], constants, attempt)
                found.copy_to(answer, at)
    return answer.prediction()


@dataclass(frozen=True)
class _Answer:
    """A prediction that is being filled in."""

    ttft_ms: Floats
    tpot_ms: Floats
    prefill_ms: Floats
    decode_ms: Floats
    attempt: NDArray[Any]
    reason: NDArray[Any]

    @classmethod
    def empty(cls, rows: int) -> "_Answer":
        ttft_ms, tpot_ms, prefill_ms, decode_ms = np.full((4, rows), np.nan)
        attempt, reason = np.full((2, rows), "", object)
        return cls(ttft_ms, tpot_ms, prefill_ms, decode_ms, attempt, reason)

    def copy_to(self, other: "_Answer", at: Ints) -> None:
        for name in (f.name for f in dataclasses.fields(self)):
            getattr(other, name)[at] = getattr(self, name)

    def prediction(self) -> Prediction:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Prediction(**{n: v.astype(str) if v.dtype == object else v for n, v in values.items()})


class _Halves(NamedTuple):
    """Corrected latencies of the workers of disaggregated rows: prefill of a batch, all decode steps [row]."""

    context_ms: Floats
    generation_ms: Floats


def _answer_model(
    rows: Measurements, configurations: Sequence[Configuration], constants: str, attempt: Attempt
) -> _Answer:
    """Answers for rows of one model: all engines planned first, each evaluated once."""
    answer, evaluation, batches = _Answer.empty(len(rows)), Evaluation(), list[RowBatch]()
    formats = np.unique([str(c.formats) for c in configurations], return_inverse=True)[1]
    engine = np.unique(np.stack([formats, rows.codes(("system", "backend"))]), axis=1, return_inverse=True)[1].ravel()
    roles: tuple[Role, ...] = ("agg", "prefill", "decode")
    for role in roles:
        of_role = rows.is_agg == (role == "agg")
        for code in np.unique(engine[of_role]):
            at = np.flatnonzero(of_role & (engine == code))
            try:
                workers = role_worker(rows, at, role, configurations[at[0]], constants, attempt)
                batches += plan_rows(rows, workers, evaluation.add(workers.worker))
            except AicjaxError as error:
                answer.reason[at] = str(error)
            else:
                answer.reason[list(workers.refused)] = list(workers.refused.values())
    halves = _Halves(*np.full((2, len(rows)), np.nan))
    for batch in batches:
        try:
            _fill(batch, evaluation, answer, halves)
        except AicjaxError as error:
            answer.reason[batch.rows] = str(error)
    _pair(rows, batches, halves, answer)
    complete = np.isfinite(answer.ttft_ms + answer.tpot_ms + answer.prefill_ms + answer.decode_ms)
    answer.attempt[complete] = attempt.label
    answer.reason[complete] = ""
    answer.reason[~complete & (answer.reason == "")] = "missing data"
    return answer


def _fill(batch: RowBatch, evaluation: Evaluation, answer: _Answer, halves: _Halves) -> None:
    """Gathers what one sweep yields into its rows."""
    curves, layout_rows = evaluation.curves(batch.worker)
    points = batch.layout, batch.batch
    if batch.prefill:
        prompt = sum(places.values(curves)[layout_rows] for places in batch.prefill)
        answer.prefill_ms[batch.rows] = np.asarray(prompt)[batch.layout]
    if batch.decode:
        answer.decode_ms[batch.rows] = np.asarray(sum(p.values(curves)[layout_rows] for p in batch.decode))[points]
    disagg = batch.worker.deployment.constants.disagg
    if isinstance(batch.sweep, AggSweep):
        estimate = sweep_points(batch.sweep, curves, layout_rows)
        answer.ttft_ms[batch.rows] = estimate.ttft_ms[..., 0][points]
        answer.tpot_ms[batch.rows] = estimate.tpot_ms[..., 0][points]
    elif batch.prefill:
        found = static_points(batch.sweep, curves, layout_rows, correction=disagg.prefill_latency_correction)
        halves.context_ms[batch.rows] = found.context_ms[points]
    else:
        found = static_points(batch.sweep, curves, layout_rows, correction=disagg.decode_latency_correction)
        halves.generation_ms[batch.rows] = found.generation_ms[points]


def _pair(rows: Measurements, batches: Sequence[RowBatch], halves: _Halves, answer: _Answer) -> None:
    """Estimates of disaggregated rows from those of their workers."""
    for batch in batches:
        if isinstance(batch.sweep, AggSweep) or not batch.decode:
            continue
        at, load = batch.rows, batch.worker.deployment.load
        prefill, decode = rows.prefill.take(at), rows.decode.take(at)
        context_ms, generation_ms = halves.context_ms[at], halves.generation_ms[at]
        prompts = static_estimate("static_ctx", context_ms, 0.0, prefill.batch * prefill.dp, load.osl)
        answers = static_estimate("static_gen", 0.0, generation_ms, decode.batch * decode.dp, load.osl)
        estimate = disagg_estimate(
            Workers(prompts.seq_per_s, prefill.tp * prefill.dp),
            Workers(answers.seq_per_s, decode.tp * decode.dp),
            WorkerCounts(prefill.count, decode.count, np.zeros_like(decode.count)),
            prompts.ttft_ms,
            answers.tpot_ms,
            load.osl,
            batch.worker.deployment.constants.disagg,
        )
        answer.ttft_ms[at], answer.tpot_ms[at] = estimate.ttft_ms, estimate.tpot_ms
