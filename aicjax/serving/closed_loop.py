# SPDX-License-Identifier: Apache-2.0
"""In-flight batching under a measured closed loop: TTFT, TPOT and rates of a fixed number of clients.

A benchmark keeps `concurrency` requests in flight: all at once at first, then a new one whenever an answer ends. Its
mean TTFT is that of a first wave, which queues for prefill, and of later requests, which meet a server at rest.
Written for one point; `vmap` adds the axes. Differentiable in everything but the number of waves where it is infinite.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax._units import MS_PER_S
from aicjax.constants import LoopConstants
from aicjax.serving.agg import AnyScalar
from aicjax.serving.worker_cost import prompt_cost, step_cost

_FEWEST = 1e-6  # prompts per step that count as none
_PEAK = 2 * math.sqrt(math.pi)  # of the mean density of a normal variable with itself: 1 / (_PEAK deviation)


class ClosedLoop(NamedTuple):
    """The load of a benchmark.

    Attributes:
        concurrency: Requests in flight, of all ranks.
        waves: Requests measured, relative to `concurrency`; >= 1. Infinite for a load without a first wave.
        least_share: Lengths are uniform from this share of the nominal ones to all of them; > 0, <= 1.
    """

    concurrency: AnyScalar
    waves: AnyScalar = math.inf
    least_share: AnyScalar = 1.0

    @property
    def mean_share(self) -> AnyScalar:
        """Mean length, relative to the nominal one."""
        return (1.0 + self.least_share) / 2.0


class LoopWork(NamedTuple):
    """What one request is to the server; mean lengths.

    Attributes:
        osl: Output tokens.
        layers: Decoder layers, which cost host time per prefill.
        prompts: Prompts that a step takes; below 1 where a prompt takes several steps.
        slots: Requests that a rank holds at once, by its KV space (`kv_slots`) or by a batch limit.
        receive_steps: Decode steps from one look at the queue of arrivals to the next; at least 1.
        gather_steps: Most decode steps that a prompt is held back for others to come.
        gather_prompts: Prompts that are waited for, the first one included.
    """

    osl: AnyScalar
    layers: AnyScalar = 0.0
    prompts: AnyScalar = 1.0
    slots: AnyScalar = math.inf
    receive_steps: AnyScalar = 1.0
    gather_steps: AnyScalar = 0.0
    gather_prompts: AnyScalar = 1.0


class LoopTimes(NamedTuple):
    """Kernel times of the steps of a rank [ms].

    Attributes:
        decode_ms: Decode step of the running requests.
        increment_ms: What a prompt adds to a step with decode rows; not read where prompts have steps of their own.
        prefill_ms: A prompt in a step of its own.
        shared_prefill_ms: A prompt of a step that is full of prompts, per prompt.
    """

    decode_ms: AnyScalar
    increment_ms: AnyScalar
    prefill_ms: AnyScalar
    shared_prefill_ms: AnyScalar


class LoopEstimate(NamedTuple):
    """What the clients measure; means over requests.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first; NaN for a single output token.
        request_latency_ms: Time from arrival to the last token.
        seq_per_s: Requests finished per second, by Little's law; not more than after the first wave.
        tokens_per_s: Output tokens per second.
        running: Requests that run at once in a rank; the others wait for space.
        steady_ms: TTFT of a request after the first wave, without its wait for space.
        burst_ms: TTFT of the requests of the first wave that find space.
        space_wait_ms: Wait of a later request for space.
    """

    ttft_ms: Float[Array, "..."]
    tpot_ms: Float[Array, "..."]
    request_latency_ms: Float[Array, "..."]
    seq_per_s: Float[Array, "..."]
    tokens_per_s: Float[Array, "..."]
    running: Float[Array, "..."]
    steady_ms: Float[Array, "..."]
    burst_ms: Float[Array, "..."]
    space_wait_ms: Float[Array, "..."]


def prompts_per_step(isl: AnyScalar, constants: LoopConstants) -> Float[Array, ""]:
    """Prompts that a step takes, by count or by the token budget, whichever allows more."""
    return jnp.maximum(constants.prompts_per_step, constants.prefill_token_budget / jnp.asarray(isl))


def kv_slots(kv_tokens: AnyScalar, isl: AnyScalar, osl: AnyScalar, constants: LoopConstants) -> Float[Array, ""]:
    """Requests whose KV caches fit a rank with room for `kv_tokens`, less the half that stays free on average.

    A real number, so that it has a gradient.
    """
    return jnp.asarray(kv_tokens / (isl + constants.kv_answer_share * osl) - 0.5)


def running_requests(loop: ClosedLoop, slots: AnyScalar, ranks: AnyScalar = 1.0) -> Float[Array, ""]:
    """Requests that run at once in a rank: its share of the loop, or what it holds; one at least."""
    return jnp.minimum(_in_flight(loop, ranks), jnp.maximum(slots, 1.0))


def burst_place_ms(
    place: AnyScalar, batch: AnyScalar, times: LoopTimes, prompts: AnyScalar, constants: LoopConstants
) -> Float[Array, ""]:
    """Time at which the prompt at a place (1 is the first) of a burst of `batch` has its first token [ms].

    Args:
        place: Place in the queue; 1 to `batch`.
        batch: Prompts that arrive at once.
        times: Kernel times, host time included.
        prompts: Prompts that a step takes; 1 or more.
        constants: Whether steps mix.
    """
    steps = jnp.ceil(place / jnp.asarray(prompts))
    return _paced(jnp.minimum(steps * prompts, batch), steps - 1.0, times.shared_prefill_ms, times, constants)


def closed_loop_estimate(
    loop: ClosedLoop, work: LoopWork, times: LoopTimes, constants: LoopConstants, *, ranks: AnyScalar = 1.0
) -> LoopEstimate:
    """Serving estimate of one closed loop; the derivation is in docs/modelling.md.

    With b requests running of B in flight in a rank, W waves, O output tokens, decode steps of s, prompts that add p:

        tpot   = s + i min((b - 1) / O, m) p       i = interference (1 - 1 / 2W)
        group  = (n + m) / 2 p + (n + m) / 2m s          n prompts at once, m of them a step; no s without mixed steps
        steady = steps_waited (s + min(n - 1, m) p) + held_back s + group      n = 1 + kappa (b - 1) / O window
                 or what makes the cycle i b p + max(O - 1, b / m) s, where prompts outrun the steps
        burst  = group - s                                         n = b
        held   = (O - 1) tpot + group
        ttft   = request + (1 - 1/W) (steady + (B - b) / b held) + (b burst + (B - b) (steady + B / 2b held)) / (W B)

    where kappa says how far the answers of a wave still end together (`_concentration`), and `held_back` and `window`
    how long prompts are left in the queue (`_held_back`).

    Args:
        loop: The load.
        work: Lengths and limits.
        times: Kernel times, at `running_requests` rows.
        constants: Host times and weights of the backend.
        ranks: Attention ranks times pipeline stages that share the load.

    Returns:
        The estimate; finite for finite times, but for the TPOT of a single output token.
    """
    in_flight = _in_flight(loop, ranks)
    running = running_requests(loop, work.slots, ranks)
    prompts, osl = jnp.asarray(work.prompts), jnp.asarray(work.osl)
    times = with_host_time(times, running, work, constants)
    times = times._replace(decode_ms=jnp.where(osl > 1.0, times.decode_ms, 0.0))
    first_wave = 1.0 / jnp.asarray(loop.waves)

    beside = running - 1.0
    company = jnp.minimum(beside, 1.0)  # 0 for a request alone, which shares no step
    mixes = constants.mixes_prefill * company
    added_ms = mixes * times.increment_ms + (1.0 - mixes) * times.prefill_ms
    weight = constants.interference_weight * (1.0 - first_wave / 2.0)
    ended, follow_up = beside / osl, jnp.maximum(osl - 1.0, 0.0)
    met = constants.mixes_prefill * jnp.minimum(ended, prompts) + (1.0 - constants.mixes_prefill) * ended
    tpot_ms = times.decode_ms + weight * met * added_ms

    chance = constants.collision_weight * _concentration(loop, running / prompts / osl) / osl
    held_steps, window = _held_back(chance * beside, work)
    beyond = constants.collisions_per_request * beside
    met_in_step, together = chance * beside + beyond, chance * beside * window + beyond
    group_ms = _group_ms(1.0 + together, added_ms, times, prompts, constants, company)
    resting = constants.mixes_prefill + (1.0 - constants.mixes_prefill) * jnp.exp(-met_in_step)
    in_progress_ms = resting * times.decode_ms + jnp.minimum(met_in_step, prompts) * added_ms
    left_ms = constants.steps_waited * in_progress_ms + held_steps * times.decode_ms
    steady_ms = company * left_ms + group_ms
    steps = jnp.maximum(follow_up, mixes * running / prompts)
    cycle_ms = weight * running * added_ms + steps * times.decode_ms
    steady_ms += jnp.maximum(cycle_ms - constants.request_ms - steady_ms - follow_up * tpot_ms, 0.0)
    unmixed = jnp.maximum(1.0, 1.0 / prompts) * constants.mixes_prefill  # steps of the first prompts: nothing decodes
    burst_ms = _group_ms(running, times.shared_prefill_ms, times, prompts, constants, 1.0) - unmixed * times.decode_ms

    held_ms, placed = follow_up * tpot_ms + group_ms, running / in_flight
    space_wait_ms = (in_flight - running) / running * held_ms
    later_ms = steady_ms + space_wait_ms
    first_ms = placed * burst_ms + (1.0 - placed) * (steady_ms + held_ms / placed / 2.0)
    ttft_ms = constants.request_ms + (1.0 - first_wave) * later_ms + first_wave * first_ms

    idle_ms = jnp.maximum(constants.request_ms + later_ms - ttft_ms, 0.0)
    ttft_ms, tpot_ms = constants.ttft_level * ttft_ms, constants.tpot_level * tpot_ms
    latency_ms = ttft_ms + follow_up * tpot_ms
    seq_per_s = MS_PER_S * jnp.asarray(loop.concurrency) / (latency_ms + idle_ms)
    return LoopEstimate(
        ttft_ms=ttft_ms,
        tpot_ms=jnp.where(follow_up > 0, tpot_ms, jnp.nan),
        request_latency_ms=latency_ms,
        seq_per_s=seq_per_s,
        tokens_per_s=seq_per_s * osl,
        running=running,
        steady_ms=steady_ms,
        burst_ms=burst_ms,
        space_wait_ms=space_wait_ms,
    )


def with_host_time(times: LoopTimes, running: AnyScalar, work: LoopWork, constants: LoopConstants) -> LoopTimes:
    """Kernel times and the host time beside them; prompts that share a step share that of a prefill."""
    prompt, sharing = prompt_cost(constants, work.layers), jnp.clip(jnp.asarray(work.prompts), 1.0, running)
    return LoopTimes(
        decode_ms=step_cost(constants).decode_ms(times.decode_ms, running),
        increment_ms=prompt.prefill_ms(times.increment_ms),
        prefill_ms=prompt.prefill_ms(times.prefill_ms),
        shared_prefill_ms=prompt._replace(host_ms=prompt.host_ms / sharing).prefill_ms(times.shared_prefill_ms),
    )


def _in_flight(loop: ClosedLoop, ranks: AnyScalar) -> Float[Array, ""]:
    return jnp.maximum(jnp.asarray(loop.concurrency) / ranks, 1.0)


def _held_back(ended: FloatScalar, work: LoopWork) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Decode steps for which a mean prompt is left in the queue beyond the one in progress, and those between looks.

    A queue that is looked at every so many steps keeps a prompt for half of them. A scheduler that waits for others
    holds the first prompt until enough have come or its patience ends, and those that come meanwhile for half of that.

    Args:
        ended: Prompts that come per step.
        work: How prompts are held back.
    """
    needed = (work.gather_prompts - 1.0) / jnp.maximum(ended, _FEWEST)
    gathered = jnp.minimum(work.gather_steps, jnp.maximum(needed, 0.0))
    come = gathered * ended
    held = (work.receive_steps - 1.0) / 2.0 + gathered * (1.0 + come / 2.0) / (1.0 + come)
    return jnp.asarray(held), jnp.asarray(work.receive_steps + gathered)


def _group_ms(
    count: FloatScalar,
    prompt_ms: AnyScalar,
    times: LoopTimes,
    prompts: FloatScalar,
    constants: LoopConstants,
    company: FloatScalar,
) -> Float[Array, ""]:
    """Mean time to the first token of `count` prompts that are taken together, first come, first served [ms]."""
    at_once = jnp.minimum(prompts, count)
    ended = (count + jnp.maximum(at_once, 1.0)) / 2.0  # prompts prefilled when the mean one is
    return _paced(ended, ended / at_once * company, prompt_ms, times, constants)


def _paced(
    ended: FloatScalar, steps: FloatScalar, prompt_ms: AnyScalar, times: LoopTimes, constants: LoopConstants
) -> Float[Array, ""]:
    """Time of some prompts, and of the decode steps that they are mixed with [ms]."""
    return jnp.asarray(ended * prompt_ms + constants.mixes_prefill * steps * times.decode_ms)


def _concentration(loop: ClosedLoop, first_width: FloatScalar) -> Float[Array, ""]:
    """How many more answers end beside a given one than if they ended independently; >= 1, mean of the later waves.

    A wave of answers that started together ends with a standard deviation that grows with the root of the waves before
    it: lengths of a relative deviation v give v^2 k + width^2 / 12 after k waves, in cycles. Infinitely many waves end
    independently.

    Args:
        loop: The load.
        first_width: Steps over which the first wave is prefilled, relative to the steps of a request.
    """
    endless = jnp.isinf(jnp.asarray(loop.waves))
    after = jnp.where(endless, 0.0, jnp.asarray(loop.waves) - 1.0)
    growth = ((1.0 - loop.least_share) / (1.0 + loop.least_share)) ** 2 / 3.0
    first = first_width**2 / 12.0
    mean_density = 2.0 / (jnp.sqrt(growth * after + first) + jnp.sqrt(first)) / _PEAK
    return jnp.where(endless, 1.0, jnp.maximum(1.0, mean_density))
