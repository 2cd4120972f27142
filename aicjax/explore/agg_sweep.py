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
from aicjax.serving.agg import AggEstimate
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.encoder import after_encoder
from aicjax.serving.plan import AggPlan, full_prompts
from aicjax.serving.point import (
    AggCurves,
    AggGather,
    agg_points,
    gather_of,
    padded_curves,
    padded_gather,
    plan_points,
    serving_numbers,
    setting_of,
)

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
        full_prompts: Places of the tokens of steps full of prompts [ctx]; None without a first wave.
    """

    worker: Worker
    plan: AggPlan
    shared: Places
    context_attention: Places
    decode_attention: Places
    decode_rest: Places
    decode_other: Places
    full_prompts: Places | None = None

    def gather(self) -> AggGather:
        """Which step times and which plan each point takes, numpy."""
        mixed, alone = np.split(self.decode_attention.inverse, [self.plan.batch.size])
        return gather_of(self.plan, self.shared.inverse, mixed.reshape(self.plan.batch.shape), alone)

    def curves(self, curves: StepCurves, rows: Sequence[int] | slice = slice(None)) -> AggCurves:
        """Step times of some configurations at the distinct coordinates, numpy."""
        rest, other = (p.curve(curves)[rows][:, p.inverse] for p in (self.decode_rest, self.decode_other))
        full = None
        if self.full_prompts is not None:
            tokens = self.full_prompts.curve(curves)[rows][:, self.full_prompts.inverse]
            full = tokens / self.plan.room[0].astype(np.float32)
        loops = self.worker.deployment.constants.formulas == "closed_loop"
        return AggCurves(
            shared=self.shared.curve(curves)[rows],
            context_attention=self.context_attention.curve(curves)[rows][:, self.context_attention.inverse],
            decode_attention=self.decode_attention.curve(curves)[rows],
            decode_rest=rest + other,
            decode_shared=rest if loops else None,
            full_prompt=full,
        )


def plan_agg_sweep(
    worker: Worker, batches: Sequence[int], ctx_tokens: Sequence[int], coordinates: Coordinates
) -> AggSweep:
    """The sweep over batches and context-token budgets; adds what it needs to `coordinates`."""
    deployment, load = worker.deployment, worker.deployment.load.mean
    batch, ctx = np.asarray(batches, np.int64)[:, None], np.asarray(ctx_tokens, np.int64)
    spread = deployment.rules.spread_decode_rows
    plan = plan_points(deployment.load, batch, ctx, deployment.constants, spread=spread)
    mixed = np.maximum(plan.decode_rows, 1) * load.query_rows
    alone = batch[:, 0] * load.query_rows
    return AggSweep(
        worker=worker,
        plan=plan,
        shared=coordinates.context_rest(1, plan.shared_tokens, plan.shared_prefix if load.prefix else 0),
        context_attention=coordinates.context_attention(plan.attended[0], load.new_tokens, load.prefix),
        decode_attention=coordinates.generation_attention(np.concatenate([mixed.ravel(), alone]), load.mid_kv_len),
        decode_rest=coordinates.generation_rest(alone),
        decode_other=coordinates.generation_other(alone, load.mid_kv_len),
        full_prompts=coordinates.context_rest(1, *full_prompts(load, ctx)) if load.starts_at_once else None,
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
        load=load.mean,
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
    deployment, (batches, budgets) = sweep.worker.deployment, sweep.plan.batch.shape
    config_pad = config_bucket(len(rows)) - len(rows)
    batch_pad, ctx_pad = point_bucket(batches) - batches, point_bucket(budgets) - budgets
    estimate = _KERNEL(
        padded_curves(sweep.curves(curves, rows), config_pad, batch_pad, ctx_pad),
        padded_gather(sweep.gather(), batch_pad, ctx_pad),
        setting_of(deployment.load, deployment.model.layers),
        serving_numbers(deployment.constants),
        np.pad(np.array([p.pp * p.dp for p in sweep.worker.layouts], np.float32), (0, config_pad)),
        littles_law_cap=deployment.rules.littles_law_cap,
    )
    return jax.tree.map(lambda x: np.asarray(x)[: len(rows), :batches, :budgets], estimate)
