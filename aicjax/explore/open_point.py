# SPDX-License-Identifier: Apache-2.0
"""A worker of in-flight batching at a stated request rate: its batch follows, and whether it keeps up."""

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._results import InputError, NoFeasible
from aicjax._units import MS_PER_S
from aicjax.constants import LoopConstants
from aicjax.explore.agg_sweep import AggSweep, plan_agg_sweep
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.frame import Frame
from aicjax.explore.misfit import memory_shortfall, missing_error
from aicjax.explore.request import EstimateRequest
from aicjax.explore.roles import Worker
from aicjax.explore.worker_point import WorkerPoint, agg_point, point_worker
from aicjax.forward.bound import StepCurves
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory
from aicjax.serving.agg import AggPoint, AnyArray
from aicjax.serving.closed_loop import LoopTimes, LoopWork
from aicjax.serving.open_loop import OpenEstimate, OpenLoop, open_loop_estimate
from aicjax.serving.point import StepParts, loop_times

_BATCHES = 24  # at which steps are priced, from one request to the batch limit


@dataclass(frozen=True)
class OpenLoad:
    """What becomes of a stated rate. Numbers of an unstable load are those that do not depend on a steady state.

    Attributes:
        request_rate: Requests that arrive per second.
        arrivals: How they arrive.
        verdict: Whether the worker keeps up.
        reason: What limits the rate.
        largest_stable_rate: Rate up to which it keeps up [requests/s].
        utilization: The rate, relative to that.
        batch: Requests that run in a rank; None if unstable.
        batch_limit: Requests that a rank runs at most, by `batch_size` and by its memory.
        prefill_utilization: Share of the time that prompts add; None if unstable.
        queue_wait_ms, space_wait_ms: Waits for the step of the prompt and for a place in the batch, in TTFT; None if
            unstable.
    """

    request_rate: float
    arrivals: str
    verdict: Literal["stable", "unstable"]
    reason: str
    largest_stable_rate: float
    utilization: float
    batch: float | None
    batch_limit: int
    prefill_utilization: float | None
    queue_wait_ms: float | None
    space_wait_ms: float | None


class _Table(NamedTuple):
    """Step times by requests running [ms]; the first is one request, whose prompt has a step of its own."""

    batch: Float[AnyArray, " batch"]
    decode_ms: Float[AnyArray, " batch"]
    prompt_ms: Float[AnyArray, " batch"]

    def times(self, running: Float[Array, ""]) -> LoopTimes:
        """Times with a real number of requests running."""
        increment_ms = jnp.interp(running, self.batch[1:], self.prompt_ms[1:])
        alone_ms = self.prompt_ms[0]
        return LoopTimes(jnp.interp(running, self.batch, self.decode_ms), increment_ms, alone_ms, alone_ms)


def open_point(request: EstimateRequest) -> tuple[WorkerPoint, OpenLoad]:
    """In-flight batching at the stated rate; steps and memory are those of the whole batch next to the one found.

    Raises:
        InputError: A layout that the model or the engine does not run, or constants of other formulas.
        NoFeasible: Not one request fits.
        MissingData: An operator has no answer.
    """
    target = point_worker(request, "agg")
    load, layout, loop = target.deployment.load, target.layouts[0], target.deployment.constants.loop
    limit, ctx_tokens = _batch_limit(request, target), request.ctx_tokens or request.isl
    room = max(limit - 1, 1) * load.isl
    if ctx_tokens > room:
        raise InputError("ctx_tokens", ctx_tokens, f"at most {room}: a step of batch {limit} must keep a decode row")
    evaluation = Evaluation()
    batches = np.unique(np.geomspace(1, limit + 1, _BATCHES).round().astype(np.int64)).tolist()
    sweep = plan_agg_sweep(target, batches, [ctx_tokens], evaluation.add(target))
    curves, (config,) = evaluation.curves(target)
    iterations = np.float32(load.iterations)
    table = _table(sweep, curves, config, loop, iterations - 1)
    if not all(np.isfinite(values).all() for values in table):
        raise missing_error(request.mode, target, curves, [config], None)
    rate, ranks = float(request.request_rate or 0.0), layout.pp * layout.dp
    work = LoopWork(iterations, np.float32(target.deployment.model.layers), sweep.plan.room.astype(np.float32)[0, 0])
    arrivals = OpenLoop(np.float32(rate), np.float32(request.arrival_cv2))
    found = jax.device_get(_estimate(arrivals, work._replace(slots=np.float32(limit)), table, loop, np.float32(ranks)))
    least = 1 if ctx_tokens <= load.isl else -(-ctx_tokens // load.isl) + 1  # that keeps a decode row
    whole = min(limit, max(round(float(found.running)), least))
    part = agg_point(request.model_copy(update={"batch_size": whole}))
    return _with_load(part, found, rate, load.progress, load.osl), _verdict(request, found, rate, limit)


@jax.jit
def _estimate(
    loop: OpenLoop, work: LoopWork, table: _Table, constants: LoopConstants, ranks: Float[Array, ""]
) -> OpenEstimate:
    return open_loop_estimate(loop, work, table.times, constants, ranks=ranks)


def _table(sweep: AggSweep, curves: StepCurves, config: int, constants: LoopConstants, answers: np.float32) -> _Table:
    """The step times of a sweep over batches, at its one budget."""
    gather, of = sweep.gather(), sweep.curves(curves, [config])
    shared = None if of.decode_shared is None else of.decode_shared[0]
    parts = StepParts(
        shared_ms=of.shared[0][gather.shared[:, 0]],
        context_attention_ms=of.context_attention[0][0],
        mixed_attention_ms=0.0,
        decode_rest_ms=of.decode_rest[0],
        decode_attention_ms=of.decode_attention[0][gather.decode_rows],
        decode_shared_ms=shared,
    )
    point = AggPoint(
        gather.batch, gather.prefill_steps[:, 0], gather.chunks[0], gather.drains[:, 0], gather.prompts[:, 0]
    )
    times = jax.device_get(loop_times(parts, point, constants, answers=answers))
    return _Table(*(np.asarray(values, np.float32) for values in (gather.batch, times.decode_ms, times.prefill_ms)))


def _batch_limit(request: EstimateRequest, target: Worker) -> int:
    """Requests that a rank runs at most."""
    load = target.deployment.load

    def memory(bound: WorkerMemory, batches: np.ndarray) -> MemorySplit:
        limits = {"max_seq_len": request.max_seq_len, "kv_fraction": request.free_gpu_memory_fraction}
        return bound.inflight(batches, load.text_tokens, load.osl, [request.ctx_tokens or request.isl], **limits)

    fits = memory(target.memory, np.arange(1, request.batch_size + 1)).verdict.ravel() == Verdict.FITS
    if not fits.any():
        one = functools.partial(memory, batches=np.ones(1, np.int64))
        raise NoFeasible(f"{memory_shortfall(target, one).detail}.")
    return int(np.flatnonzero(fits)[-1]) + 1


def _with_load(part: WorkerPoint, found: OpenEstimate, rate: float, progress: float, osl: int) -> WorkerPoint:
    """The worker with the latencies of its load; without them where it does not keep up."""
    gpus = part.frame["num_total_gpus"]
    tpot_ms = float(found.tpot_ms) / progress if osl > 1 else math.nan
    tokens_per_s, latency_ms = rate * max(osl - 1, 1), float(found.request_latency_ms)
    served = {
        "ttft": float(found.ttft_ms),
        "tpot": tpot_ms,
        "request_latency": latency_ms,
        "concurrency": rate * latency_ms / MS_PER_S,
        "seq/s": rate,
        "seq/s/gpu": rate / gpus,
        "tokens/s": tokens_per_s,
        "tokens/s/gpu": tokens_per_s / gpus,
        "tokens/s/user": MS_PER_S / tpot_ms,
    }
    shown = {name: value * np.ones(1) if found.stable else np.full(1, np.nan) for name, value in served.items()}
    frame: Frame = {**part.frame, **shown, "request_rate": np.array([rate])}
    return WorkerPoint(part.worker, frame, part.memory, part.steps, part.warnings, part.sensitivities)


def _verdict(request: EstimateRequest, found: OpenEstimate, rate: float, limit: int) -> OpenLoad:
    if found.running_limit < limit * (1 - 1e-4):
        reason = "prompts: steps take no more of them"
    elif limit < request.batch_size:
        reason = f"memory: KV caches of {limit} requests fit a rank"
    else:
        reason = f"batch_size: {limit} requests of a rank"
    capacity, stable = float(found.capacity_per_s), bool(found.stable)
    figures = (found.running, found.prefill_utilization, found.queue_wait_ms, found.space_wait_ms)
    batch, prefill, queue_ms, space_ms = (float(value) if stable else None for value in figures)
    return OpenLoad(
        request_rate=rate,
        arrivals=request.arrivals or "poisson",
        verdict="stable" if stable else "unstable",
        reason=reason,
        largest_stable_rate=capacity,
        utilization=rate / capacity,
        batch=batch,
        batch_limit=limit,
        prefill_utilization=prefill,
        queue_wait_ms=queue_ms,
        space_wait_ms=space_ms,
    )
