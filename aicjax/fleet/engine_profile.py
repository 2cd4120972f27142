# SPDX-License-Identifier: Apache-2.0
"""A replica from a deployment of this project: step times and room from its tables, and a profile fitted to them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from aicjax._results import InputError, NoFeasible
from aicjax._units import GIB, MS_PER_S
from aicjax.explore.request import EstimateRequest
from aicjax.explore.roles import Worker
from aicjax.explore.worker_point import point_worker
from aicjax.fleet.engine_tables import engine_steps
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.profile import Profile, prompt_pairs
from aicjax.fleet.replica_spec import EngineReplica
from aicjax.fleet.step_run import StepLimits
from aicjax.fleet.step_times import PromptPart, StepTimes

MEAN_TOKENS, MAX_TOKENS = 2048, 131072  # of requests, where a caller does not say
LEAST_PART = 1 / 16  # of a step, for a chunk that prompt arithmetic is fitted to
SAME_FIELDS = (
    "backend",
    "backend_version",
    "batch_size",
    "database_mode",
    "constants",
    "gemm_quant_mode",
    "moe_quant_mode",
    "kvcache_quant_mode",
    "fmha_quant_mode",
    "comm_quant_mode",
)  # of a stated replica, called the same in an estimate


@dataclass(frozen=True)
class EngineRun:
    """A deployment as simulations and closed forms take it.

    Attributes:
        profile: The whole worker. Its iteration time is a line fitted to decode steps at the mean context, with the
            requests spread over the ranks; its arithmetic to prompts in steps of their own, which one rank runs.
        steps: Step times of one attention rank.
        limits: How a rank schedules.
        ranks: Attention ranks times pipeline stages: a worker is so many replicas of `steps`, each with its share of
            the requests.
        request_s: Time of a request outside engine steps [s]: part of TTFT beside what a simulation gives.
        decode_error: Largest error of the line, relative, from one request to all slots.
        prompt_error: The same of prompts in steps of their own, over chunks from a sixteenth of a step and all contexts
            of the tables.
        kv_tokens: KV cache of a rank, in tokens of requests of the mean context.
    """

    profile: Profile
    steps: StepTimes
    limits: StepLimits
    ranks: int
    request_s: float
    decode_error: float
    prompt_error: float
    kv_tokens: int


def engine_run(
    replica: EngineReplica,
    *,
    mean_tokens: int = MEAN_TOKENS,
    max_tokens: int | None = None,
    step_tokens: int | None = None,
) -> EngineRun:
    """Step times, room and profile of a deployment.

    Args:
        replica: The deployment, as `aicjax estimate` names it.
        mean_tokens: Context at which the profile is fitted, and at which KV space is counted.
        max_tokens: Context limit; the model's where None, 131072 at most.
        step_tokens: Prompt tokens and requests of a step; the engine's default where None.

    Raises:
        InputError: An unknown name, or a layout that the model or the engine does not run.
        NoFeasible: The worker does not fit, or its KV cache holds no request of the mean context.
        MissingData: An operator has no answer.
    """
    constants = load_fleet_constants().engine
    budget = int(constants.step_tokens[replica.backend]) if step_tokens is None else step_tokens
    batch, block_tokens = replica.batch_size, int(constants.block_tokens[replica.backend])
    if budget <= batch:
        raise InputError("step_tokens", budget, f"more than batch_size = {batch}: a step must keep room for a prompt")
    worker = _worker(replica, mean_tokens)
    deployment, layout = worker.deployment, worker.layouts[0]
    longest = min(deployment.model.context_length, MAX_TOKENS) if max_tokens is None else max_tokens
    tokens = _kv_tokens(worker, batch, budget, mean_tokens)
    steps = engine_steps(worker, batch, budget, longest)
    loop, ranks = deployment.constants.loop, layout.pp * layout.dp
    limits = StepLimits(
        slots=batch,
        kv_blocks=tokens // block_tokens,
        block_tokens=block_tokens,
        step_tokens=budget,
        max_tokens=longest,
        mixes=bool(loop.mixes_prefill),
        reserves=loop.kv_answer_share == 1,
    )
    base_s, added_s, decode_error = _decode_line(steps, batch, mean_tokens)
    token_s, pair_s, prompt_error = _prompt_arithmetic(steps, budget, base_s)
    profile = Profile(
        base_s=base_s,
        per_sequence_s=added_s / ranks,
        calibration_tokens=float(mean_tokens),
        chunk_tokens=float(budget),
        block_tokens=float(block_tokens),
        kv_blocks=float(tokens // block_tokens * ranks),
        price_per_hour=replica.price_per_gpu_hour * layout.gpus,
        gpus=float(layout.gpus),
        max_slots=float(batch * ranks),
        prefill_token_s=token_s,
        prefill_pair_s=pair_s,
        name=f"{deployment.model.name} on {layout.gpus} x {deployment.system.name} ({deployment.backend})",
    )
    return EngineRun(profile, steps, limits, ranks, loop.request_ms / MS_PER_S, decode_error, prompt_error, tokens)


def _worker(replica: EngineReplica, mean_tokens: int) -> Worker:
    """The worker of the deployment, for requests of a mean context."""
    osl = max(mean_tokens // 2, 1)
    layout = {"tp": "tp_size", "pp": "pp_size", "dp": "attention_dp_size", "moe_tp": "moe_tp_size"}
    layout["moe_ep"] = "moe_ep_size"
    fields = {name: getattr(replica, name) for name in SAME_FIELDS}
    fields |= {theirs: getattr(replica, ours) for ours, theirs in layout.items()}
    request = EstimateRequest(
        model_path=replica.model, system=replica.system, isl=max(mean_tokens - osl, 1), osl=osl, **fields
    )
    return point_worker(request, "agg")


def _kv_tokens(worker: Worker, batch: int, step_tokens: int, mean_tokens: int) -> int:
    """KV space of a rank beside steps of so many tokens, in tokens of requests of a mean context."""
    load = worker.deployment.load
    split = worker.memory.inflight([batch], load.isl, load.osl, [step_tokens - batch])
    room = float(split.kv_budget_bytes[0, 0])
    request_bytes = float(worker.memory.kv_curve.bytes(mean_tokens)[0, 0])
    if room < request_bytes:
        raise NoFeasible(
            f"The KV cache has {max(room, 0.0) / GIB:.2f} GiB per GPU, and a request of {mean_tokens} tokens takes "
            f"{request_bytes / GIB:.2f} GiB."
        )
    return int(room / request_bytes * mean_tokens)


def _decode_line(steps: StepTimes, batch: int, mean_tokens: int) -> tuple[float, float, float]:
    """Time of a decode step without requests and what each adds [s], and the largest relative error of the line.

    Least squares of relative errors over 1 to `batch` requests.
    """
    rows = jnp.arange(1, batch + 1)
    times = jax.vmap(lambda n: steps.decode_line(n, n * mean_tokens).first_s)(rows)
    features = np.stack([np.ones(batch), np.arange(1, batch + 1)], axis=1)
    (base_s, added_s), error = _fit(features, np.asarray(times, np.float64))
    return base_s, added_s, error


def _prompt_arithmetic(steps: StepTimes, budget: int, base_s: float) -> tuple[float, float, float]:
    """Time of a prompt token and of a pair of tokens [s], and the largest relative error of steps of prompts.

    Least squares of relative errors over the steps that take longer than one without requests, `base_s`.
    """
    chunk = np.asarray(steps.chunk).astype(np.int64)
    chunk = chunk[chunk >= budget * LEAST_PART]
    past = np.asarray(steps.past).astype(np.int64)
    pairs = prompt_pairs(chunk[:, None], past).ravel()
    tokens, past = (values.ravel() for values in np.broadcast_arrays(chunk[:, None], past))

    def alone_s(tokens: jax.Array, past: jax.Array) -> jax.Array:
        zero = jnp.zeros_like(tokens)
        return steps.step_s(zero, zero, PromptPart(tokens, zero + 1, tokens + past, steps.chunk_s(tokens, past)))

    times = jax.vmap(alone_s)(jnp.asarray(tokens, jnp.int32), jnp.asarray(past, jnp.int32))
    measured, features = np.asarray(times, np.float64), np.stack([tokens, pairs], axis=1)
    computes = measured > base_s
    found, _ = _fit(features[computes], measured[computes])
    stated = np.maximum(features @ np.array(found), base_s)
    return *found, float(np.abs(stated / measured - 1.0).max())


def _fit(features: NDArray, times: NDArray) -> tuple[tuple[float, float], float]:
    """Two coefficients, neither negative, by least squares of relative errors, and the largest of those errors."""
    scaled = features / times[:, None]
    scale = np.linalg.norm(scaled, axis=0)
    both = np.linalg.lstsq(scaled / scale, np.ones(len(times)), rcond=None)[0] / scale
    if (both < 0).any():
        one = int(np.argmax(both))
        both = np.zeros(2)
        both[one] = scaled[:, one].sum() / (scaled[:, one] ** 2).sum()
    first, second = (float(value) for value in both)
    return (first, second), float(np.abs(scaled @ both - 1.0).max())
