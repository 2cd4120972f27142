# SPDX-License-Identifier: Apache-2.0
"""Workers that run static batches: from step times to one row for each layout and batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax._units import GIB
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.identity import identity, layout_columns
from aicjax.explore.roles import Worker
from aicjax.forward.bound import StepCurves
from aicjax.forward.encoder import EncoderTimes
from aicjax.forward.memory import MemorySplit, Verdict
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.load import Load
from aicjax.serving.static import Mode, StaticEstimate, decode_samples, project, rate_gain, static_estimate
from aicjax.serving.worker_cost import KERNELS_ALONE, WorkerCost

_ESTIMATED = {
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    "request_latency": "request_latency_ms",
    "generation_latency": "generation_ms",
    "seq/s": "seq_per_s",
    "tokens/s": "tokens_per_s",
    "tokens/s/user": "tokens_per_s_per_user",
}


class Prefill(NamedTuple):
    """Places of prefills, per batch."""

    rest: Places
    attention: Places


class Decode(NamedTuple):
    """Places of the sampled steps of a decode: rest per batch, what sees lengths per (batch, sample); weights."""

    rest: Places
    attention: Places
    other: Places
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class StaticSweep:
    """A sweep over batches that waits for its step times.

    Attributes:
        worker: The worker in all its layouts.
        mode: `static`, `static_ctx` or `static_gen`.
        batches: Requests of one attention rank, ascending [batch].
        prefill: Places of the prefills; None for a decode worker.
        decode: Places of the decode steps; None for a prefill worker or a single output token.
    """

    worker: Worker
    mode: Mode
    batches: NDArray[np.int64]
    prefill: Prefill | None
    decode: Decode | None


class StaticPoints(NamedTuple):
    """Step times and memory of a sweep.

    Attributes:
        encoder_ms: Latency of the vision encoder [layout, batch]; 0 without one.
        context_ms: Latency of a prefill [layout, batch]; 0 for a decode worker.
        generation_ms: Latency of all decode steps [layout, batch]; 0 for a prefill worker.
        memory: Memory of one GPU [layout, batch].
        verdict: Codes of `Verdict` [layout, batch].
        encoder: Times of the encoder, not corrected; None without one.
    """

    encoder_ms: NDArray[np.float64]
    context_ms: NDArray[np.float64]
    generation_ms: NDArray[np.float64]
    memory: MemorySplit
    verdict: NDArray[np.int8]
    encoder: EncoderTimes | None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Points without data [layout, batch]."""
        return ~np.isfinite(self.encoder_ms + self.context_ms + self.generation_ms)


def plan_static_sweep(
    worker: Worker, mode: Mode, batches: Sequence[int], coordinates: Coordinates, stride: int
) -> StaticSweep:
    """The sweep over batches, one decode step of every `stride` priced; adds what it needs to `coordinates`."""
    load, batch = worker.deployment.load.mean, np.asarray(batches, np.int64)
    prefill = decode = None
    if mode != "static_gen":
        prefill = Prefill(
            coordinates.context_rest(batch, load.new_tokens, load.prefix),
            coordinates.context_attention(batch, load.new_tokens, load.prefix),
        )
    if mode != "static_ctx" and load.osl > 1:
        kv_len, weights = decode_samples(load, stride)
        rows = batch * load.query_rows
        decode = Decode(
            coordinates.generation_rest(rows),
            coordinates.generation_attention(rows[:, None], kv_len),
            coordinates.generation_other(rows[:, None], kv_len),
            weights,
        )
    return StaticSweep(worker, mode, batch, prefill, decode)


def static_points(
    sweep: StaticSweep,
    curves: StepCurves,
    rows: Sequence[int],
    *,
    cost: WorkerCost = KERNELS_ALONE,
    max_seq_len: int | None = None,
    kv_fraction: float | None = None,
) -> StaticPoints:
    """Latencies and memory of all layouts and batches.

    Args:
        sweep: The planned sweep.
        curves: Step times; `rows` are those of the sweep's layouts.
        rows: Positions on the config axis.
        cost: What the worker costs beyond its kernels.
        max_seq_len: Longest sequence that memory is held for; by default prompt and answer.
        kv_fraction: The engine's memory fraction; by default its own.
    """
    load, encoder = sweep.worker.deployment.load, None
    context_ms = generation_ms = np.zeros((len(rows), len(sweep.batches)))
    if sweep.prefill is not None:
        context_ms = sweep.prefill.rest.values(curves)[rows] + sweep.prefill.attention.values(curves)[rows]
        context_ms = cost.prefill_ms(context_ms)
        encoder = sweep.worker.encoder(sweep.batches)
    if sweep.decode is not None:
        lengths = (sweep.decode.attention, sweep.decode.other)
        steps = sweep.decode.rest.values(curves)[rows][..., None] + sum(p.values(curves)[rows] for p in lengths)
        generation_ms = cost.decode_ms(steps @ sweep.decode.weights, sweep.batches, load.mean.osl - 1)
    memory = sweep.worker.memory.static(
        sweep.batches,
        load.text_tokens,
        load.osl,
        phase=sweep.mode,
        prefix=load.prefix,
        max_seq_len=max_seq_len,
        kv_fraction=kv_fraction,
        images=load.images,
    )
    verdict = np.broadcast_to(memory.verdict, context_ms.shape)
    encoder_ms = np.zeros_like(context_ms) if encoder is None else encoder.latency_ms
    return StaticPoints(encoder_ms * cost.correction, context_ms, generation_ms, memory, verdict, encoder)


def fitting(points: StaticPoints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which points of a sweep become candidates, and which of them lack data [layout, batch].

    Batches from the first that does not fit on are left out, and so are those without data.
    """
    misfit = ~points.missing & (points.verdict != Verdict.FITS)
    reached = np.cumsum(misfit, axis=1) == 0
    return reached & ~points.missing, reached & points.missing


def static_frame(
    sweep: StaticSweep,
    points: StaticPoints,
    chosen: NDArray[np.bool_],
    *,
    decimals: int | None = columns.DECIMALS,
) -> Frame:
    """Rows of the chosen points, layout by layout, numbers rounded as reported.

    Progress of more than one token a step is applied to the rounded rows, and the outcome is rounded again.
    """
    deployment = sweep.worker.deployment
    load = deployment.load.mean
    config, at = np.nonzero(chosen)
    layouts = layout_columns(sweep.worker, config)
    batch, prefill_ms = sweep.batches[at], (points.encoder_ms + points.context_ms)[config, at]
    global_batch = batch * layouts["dp"]
    estimate = static_estimate(
        sweep.mode, prefill_ms, points.generation_ms[config, at], global_batch, load.osl, layouts["pp"]
    )
    total = np.broadcast_to(points.memory.total_bytes, points.context_ms.shape)
    gpus = np.array([layout.gpus for layout in sweep.worker.layouts])[config]
    counted = gpus // layouts["cp"] if deployment.model.compat.static_rates_without_context_ranks else gpus
    values = {
        **identity(deployment),
        **layouts,
        "concurrency": global_batch,
        "request_rate": 0.0,
        "bs": batch,
        "global_bs": global_batch,
        **{name: getattr(estimate, field) for name, field in _ESTIMATED.items()},
        "seq/s/gpu": estimate.seq_per_s / counted,
        "tokens/s/gpu": estimate.tokens_per_s / counted,
        "encoder_latency": points.encoder_ms[config, at],
        "encoder_memory": np.broadcast_to(points.memory.encoder_bytes, total.shape)[config, at] / GIB,
        "context_latency": points.context_ms[config, at],
        "num_total_gpus": gpus,
        "memory": total[config, at] / GIB,
        "power_w": np.nan,
    }
    frame = frames.build(columns.STATIC, values, len(config), decimals=decimals)
    return frame if load.progress == 1 else _projected(frame, sweep.mode, load, decimals)


def _projected(frame: Frame, mode: Mode, load: Load, decimals: int | None) -> Frame:
    estimate = StaticEstimate(**{field: frame[name] for name, field in _ESTIMATED.items()})
    gain = rate_gain(estimate, mode, load.osl, load.progress)
    projected = project(estimate, mode, load.osl, load.progress)
    values = {
        **frame,
        **{name: getattr(projected, field) for name, field in _ESTIMATED.items()},
        **{name: frame[name] * gain for name in ("seq/s/gpu", "tokens/s/gpu")},
    }
    return frames.build(columns.STATIC, values, frames.length(frame), decimals=decimals)
