# SPDX-License-Identifier: Apache-2.0
"""Disaggregated serving under a measured closed loop: prefill ranks that queue, and a decode batch that follows.

Requests circulate: prefill, `osl - 1` decode steps, and again. A slow prefill side leaves decode ranks with small
batches and fast steps; a slow decode side leaves prefill ranks idle. Written for one point; `vmap` adds the axes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._units import MS_PER_S
from aicjax.constants import LoopConstants
from aicjax.serving.agg import AnyScalar
from aicjax.serving.closed_loop import ClosedLoop
from aicjax.serving.fixed_point import fixed_point
from aicjax.serving.worker_cost import decode_worker_cost, prefill_worker_cost


class DisaggLoopWork(NamedTuple):
    """What a replica is and what one request is to it; mean lengths.

    Attributes:
        osl: Output tokens.
        layers: Decoder layers, which cost host time per prefill.
        prefill_ranks, decode_ranks: Workers times attention ranks of a worker.
        handover_ms: Time in which a decode worker gets the KV cache of a prompt.
        slots: Requests that a decode rank runs at once; the others wait before their first token is seen.
        wide: 1 where experts of a decode worker span many GPUs, else 0.
    """

    osl: AnyScalar
    layers: AnyScalar = 0.0
    prefill_ranks: AnyScalar = 1.0
    decode_ranks: AnyScalar = 1.0
    handover_ms: AnyScalar = 0.0
    slots: AnyScalar = math.inf
    wide: AnyScalar = 0.0


class DisaggLoopEstimate(NamedTuple):
    """What the clients measure; means over requests.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first; NaN for a single output token.
        request_latency_ms: Time from arrival to the last token.
        seq_per_s: Requests finished per second, by Little's law; not more than after the first wave.
        tokens_per_s: Output tokens per second.
        running: Requests that decode at once in a decode rank.
        prefill_utilization: Share of the time in which a prefill rank works, after the first wave.
        prefill_wait_ms: Wait for a prefill rank, after the first wave.
    """

    ttft_ms: Float[Array, "..."]
    tpot_ms: Float[Array, "..."]
    request_latency_ms: Float[Array, "..."]
    seq_per_s: Float[Array, "..."]
    tokens_per_s: Float[Array, "..."]
    running: Float[Array, "..."]
    prefill_utilization: Float[Array, "..."]
    prefill_wait_ms: Float[Array, "..."]


def disagg_loop_estimate(
    loop: ClosedLoop,
    work: DisaggLoopWork,
    prefill_ms: AnyScalar,
    decode_ms: Callable[[Float[Array, ""]], AnyScalar],
    constants: LoopConstants,
) -> DisaggLoopEstimate:
    """Serving estimate of a replica; the derivation is in docs/modelling.md.

    With c requests a prefill rank, prefills of p, Z from the first token to the next request, W waves:

        rho  = c p / (Z + p + wait)        wait = queue (c - 1) / c rho / (1 - rho) p
        b    = rho / p (O - 1) s(b) prefill_ranks / decode_ranks,      Z = request + handover + (O - 1 + steps) s(b)
        tpot = s(b)
        ttft = request + handover + steps s(b) + p + (1 - 1/W) wait + burst / W (c - 1) / 2 p
               or, where all clients do not fit the decode ranks, (clients / (slots decode_ranks) - 1) (O - 1) s(slots)

    Args:
        loop: The load; requests spread evenly over the ranks.
        work: Replica, lengths and transfer.
        prefill_ms: Kernel time of one prompt in a prefill rank [ms].
        decode_ms: Kernel time of a decode step of a real number of requests [ms]: increasing, differentiable, JAX.
        constants: Host times, levels and weights of the backend.
    """
    concurrency, osl = jnp.asarray(loop.concurrency), jnp.asarray(work.osl)
    follow_up = jnp.maximum(osl - 1.0, 0.0)
    ranks = jnp.minimum(work.prefill_ranks, concurrency)  # that have a request
    asked = concurrency / ranks
    prompt_ms = jnp.asarray(prefill_worker_cost(constants, work.layers).prefill_ms(prefill_ms))
    decode = decode_worker_cost(constants, jnp.asarray(work.wide))

    def step_ms(batch: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(decode.decode_ms(decode_ms(jnp.maximum(batch, 1.0)), batch))

    def queued(batch: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        steps = follow_up + constants.disagg_steps_waited
        away_ms = steps * step_ms(batch) + work.handover_ms + constants.disagg_request_ms
        return _prefill_queue(asked, away_ms / prompt_ms, constants.disagg_queue_weight)

    def batch_after(batch: Float[Array, ""]) -> Float[Array, ""]:
        per_ms = queued(batch)[0] / prompt_ms * ranks
        return per_ms * follow_up * step_ms(batch) / work.decode_ranks

    running = jnp.minimum(fixed_point(batch_after, concurrency / work.decode_ranks), jnp.maximum(work.slots, 1.0))
    tpot_ms, (busy, waited) = step_ms(running), queued(running)
    wait_ms = waited * prompt_ms
    first_wave = 1.0 / jnp.asarray(loop.waves)
    burst_ms = constants.disagg_burst_weight * (asked - 1.0) / 2.0 * prompt_ms
    queue_ms = (1.0 - first_wave) * wait_ms + first_wave * burst_ms
    crowd = concurrency / work.decode_ranks / jnp.maximum(work.slots, 1.0) - 1.0
    seen_ms = constants.disagg_request_ms + work.handover_ms + constants.disagg_steps_waited * tpot_ms
    served_ms = jnp.asarray(seen_ms + prompt_ms + queue_ms)
    ttft_ms = jnp.maximum(served_ms, crowd * follow_up * tpot_ms)

    ttft_ms, tpot_ms = constants.ttft_level * ttft_ms, constants.tpot_level * tpot_ms
    latency_ms = ttft_ms + follow_up * tpot_ms
    seq_per_s = MS_PER_S * concurrency / (latency_ms + jnp.maximum(wait_ms - queue_ms, 0.0))
    return DisaggLoopEstimate(
        ttft_ms=ttft_ms,
        tpot_ms=jnp.where(follow_up > 0, tpot_ms, jnp.nan),
        request_latency_ms=latency_ms,
        seq_per_s=seq_per_s,
        tokens_per_s=seq_per_s * osl,
        running=running,
        prefill_utilization=busy,
        prefill_wait_ms=wait_ms,
    )


def _prefill_queue(
    asked: Float[Array, ""], away: Float[Array, ""], queue_weight: AnyScalar
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Utilisation of a rank that `asked` requests share, and the wait for it in services; both finite.

    With a = away + 1 services between two of a request and q = queue_weight (c - 1) / c, the smaller root of
    (a - q) rho^2 - (a + c) rho + c = 0 and the wait q rho / (1 - rho), in forms that lose no digits near 0 and 1.

    Args:
        asked: Requests of the rank, c.
        away: Services from the end of a prefill to the next request.
        queue_weight: Wait relative to rho / (1 - rho).
    """
    cycle = away + 1.0
    queue = jnp.asarray(queue_weight * (asked - 1.0) / asked)
    square = (cycle - asked) ** 2 + 4.0 * queue * asked
    root = jnp.sqrt(jnp.maximum(square, jnp.finfo(cycle.dtype).tiny))
    busy = 2.0 * asked / (cycle + asked + root)
    surplus = asked - cycle + 2.0 * queue
    crowded = surplus > 0
    idle = jnp.where(crowded, root, root - surplus)
    wait = jnp.where(crowded, (root + surplus) / 2.0, 2.0 * queue * (cycle - queue) / idle)
    return busy, busy * wait
