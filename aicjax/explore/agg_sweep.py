# SPDX-License-Identifier: Apache-2.0
"""The in-flight batching sweep: from step times to estimates of every (layout, batch, ctx_tokens), and their rows."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from aicjax._units import GIB, MS_PER_S
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.agg_points import AggPoints
from aicjax.explore.frame import Frame
from aicjax.explore.identity import identity, layout_columns
from aicjax.explore.roles import Worker
from aicjax.forward.bound import StepCurves
from aicjax.interp.counts import config_bucket, point_bucket
from aicjax.serving.agg import AggCurves, AggEstimate, AggGather, AggSetting, agg_points
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.encoder import after_encoder
from aicjax.serving.plan import AggPlan, plan_agg

_KERNEL = functools.partial(jax.jit, static_argnames="littles_law_cap")(agg_points)


@dataclass(frozen=True)
class AggSweep:
    """A sweep that waits for its step times.

    Attributes:
        worker: The worker in all its layouts.
        plan: Plan of each (batch, ctx_tokens) point.
        shared: Places of the tokens of mixed steps [batch, ctx].
        context_attention: Places of the prompts of mixed steps [ctx].
        decode_attention: Places of decode rows: those of mixed steps, then of decode steps, flat.
        decode_rest: Places of the rows of decode steps [batch].
        decode_other: Places of the same rows for the other operators that sequences drive [batch].
    """

    worker: Worker
    plan: AggPlan
    shared: Places
    context_attention: Places
    decode_attention: Places
    decode_rest: Places
    decode_other: Places


def plan_agg_sweep(
    worker: Worker, batches: Sequence[int], ctx_tokens: Sequence[int], coordinates: Coordinates
) -> AggSweep:
    """The sweep over batches and context-token budgets; adds what it needs to `coordinates`."""
    load = worker.deployment.load
    batch, ctx = np.asarray(batches, np.int64)[:, None], np.asarray(ctx_tokens, np.int64)
    plan = plan_agg(load, batch, ctx, spread_decode_rows=worker.deployment.rules.spread_decode_rows)
    mixed = np.maximum(plan.decode_rows, 1) * load.query_rows
    alone = batch[:, 0] * load.query_rows
    return AggSweep(
        worker=worker,
        plan=plan,
        shared=coordinates.context_rest(1, plan.shared_tokens, plan.shared_prefix),
        context_attention=coordinates.context_attention(plan.prompts[0], load.new_tokens, load.prefix),
        decode_attention=coordinates.generation_attention(np.concatenate([mixed.ravel(), alone]), load.mid_kv_len),
        decode_rest=coordinates.generation_rest(alone),
        decode_other=coordinates.generation_other(alone, load.mid_kv_len),
    )


def sweep_points(
    sweep: AggSweep,
    curves: StepCurves,
    rows: Sequence[int],
    *,
    max_seq_len: int | None = None,
    kv_fraction: float | None = None,
) -> AggPoints:
    """Estimates of all points, with memory and what becomes of each.

    Args:
        sweep: The planned sweep.
        curves: Step times; `rows` are those of the sweep's layouts.
        rows: Positions on the config axis.
        max_seq_len: Longest sequence that the engine holds memory for, where it honours one.
        kv_fraction: The engine's memory fraction; by default its own.
    """
    load, plan, memory = sweep.worker.deployment.load, sweep.plan, sweep.worker.memory
    estimate = _estimates(sweep, curves, rows)
    estimate = AggEstimate(*(np.asarray(values, np.float64) for values in estimate))
    encoder = sweep.worker.encoder(plan.batch[:, 0])
    if encoder is not None:
        replicas = np.array([layout.pp * layout.dp for layout in sweep.worker.layouts])[:, None, None]
        estimate = after_encoder(estimate, encoder.latency_ms[..., None], plan.batch[:, :1], replicas)
    split = memory.inflight(
        plan.batch.ravel(),
        load.text_tokens,
        load.osl,
        plan.ctx_tokens.ravel(),
        max_seq_len=max_seq_len,
        kv_fraction=kv_fraction,
        images=load.images,
    )

    def grid(values: NDArray | float) -> NDArray:
        return np.broadcast_to(values, (len(rows), plan.batch.size)).reshape(len(rows), *plan.batch.shape)

    verdict = grid(split.verdict)
    return AggPoints(
        load=load,
        plan=plan,
        layouts=sweep.worker.layouts,
        **estimate._asdict(),
        memory_bytes=grid(split.total_bytes),
        verdict=verdict,
        encoder=encoder,
        encoder_bytes=grid(split.encoder_bytes),
    )


def agg_frame(
    points: AggPoints, chosen: NDArray[np.int64], worker: Worker, *, decimals: int | None = columns.DECIMALS
) -> Frame:
    """Rows of the chosen points (flat positions), numbers rounded as reported."""
    config, at = np.divmod(chosen, points.plan.batch.size)
    plan = points.plan

    def pick(values: NDArray) -> NDArray:
        return values.ravel()[chosen]

    def planned(values: NDArray) -> NDArray:
        return values.ravel()[at]

    layouts = layout_columns(worker, config)
    seq_per_s, tpot_ms = pick(points.seq_per_s), pick(points.tpot_ms)
    tokens_per_s = seq_per_s * points.output_tokens
    gpus, batch = points.gpus[config], planned(plan.batch)
    values = {
        **identity(worker.deployment),
        **layouts,
        "concurrency": batch * layouts["pp"] * layouts["dp"],
        "request_rate": seq_per_s,
        "bs": batch,
        "global_bs": batch * layouts["dp"],
        "ttft": pick(points.ttft_ms),
        "tpot": tpot_ms,
        "request_latency": pick(points.request_latency_ms),
        "encoder_latency": pick(points.encoder_ms),
        "encoder_memory": pick(np.broadcast_to(points.encoder_bytes, points.ttft_ms.shape)) / GIB,
        "seq/s": seq_per_s,
        "seq/s/gpu": seq_per_s / gpus,
        "tokens/s": tokens_per_s,
        "tokens/s/gpu": tokens_per_s / gpus,
        "tokens/s/user": MS_PER_S / tpot_ms,
        "num_total_gpus": gpus,
        "memory": pick(points.memory_bytes) / GIB,
        "balance_score": planned(plan.balance),
        "num_ctx_reqs": planned(plan.step_prompts),
        "num_gen_reqs": planned(plan.step_decodes),
        "num_tokens": planned(plan.step_tokens),
        "ctx_tokens": planned(plan.ctx_tokens),
        "gen_tokens": planned(plan.step_decodes),
        "power_w": np.nan,
    }
    return frames.build(columns.AGG, values, len(chosen), decimals=decimals)


def _estimates(sweep: AggSweep, curves: StepCurves, rows: Sequence[int]) -> AggEstimate:
    """Kernel call on buckets: sweeps of like size share one compiled kernel."""
    deployment, plan = sweep.worker.deployment, sweep.plan
    load = deployment.load
    batches, budgets = plan.batch.shape
    config_pad = config_bucket(len(rows)) - len(rows)
    batch_pad, ctx_pad = point_bucket(batches) - batches, point_bucket(budgets) - budgets

    def curve(places: Places, pad: int | None = None) -> NDArray[np.float32]:
        values = places.curve(curves)[rows]
        width = point_bucket(values.shape[1]) - values.shape[1] if pad is None else pad
        return np.pad(values, ((0, config_pad), (0, width)))

    def grid(values: NDArray, kind: type) -> NDArray:
        return np.pad(values.astype(kind), ((0, batch_pad), (0, ctx_pad)), mode="edge")

    mixed_rows = sweep.decode_attention.inverse[: plan.batch.size].reshape(plan.batch.shape)
    decode_rows = sweep.decode_attention.inverse[plan.batch.size :]
    alone = (sweep.decode_rest, sweep.decode_other)
    decode_rest = sum(places.curve(curves)[rows][:, places.inverse] for places in alone)
    context = sweep.context_attention.curve(curves)[rows][:, sweep.context_attention.inverse]
    estimate = _KERNEL(
        AggCurves(
            shared=curve(sweep.shared),
            context_attention=np.pad(context, ((0, config_pad), (0, ctx_pad))),
            decode_attention=curve(sweep.decode_attention),
            decode_rest=np.pad(decode_rest, ((0, config_pad), (0, batch_pad))),
        ),
        AggGather(
            shared=grid(sweep.shared.inverse, np.int32),
            mixed_rows=grid(mixed_rows, np.int32),
            decode_rows=np.pad(decode_rows, (0, batch_pad)),
            batch=np.pad(plan.batch[:, 0].astype(np.float32), (0, batch_pad), mode="edge"),
            prefill_steps=grid(plan.prefill_steps, np.float32),
            chunks=np.pad(plan.chunks[0].astype(np.float32), (0, ctx_pad), mode="edge"),
            drains=grid(plan.drains, np.bool_),
        ),
        AggSetting(float(load.osl), load.progress, float(deployment.model.layers)),
        deployment.constants.serving,
        np.pad(np.array([p.pp * p.dp for p in sweep.worker.layouts], np.float32), (0, config_pad)),
        littles_law_cap=deployment.rules.littles_law_cap,
    )
    return jax.tree.map(lambda x: np.asarray(x)[: len(rows), :batches, :budgets], estimate)
