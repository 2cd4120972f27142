# SPDX-License-Identifier: Apache-2.0
"""Fleets whose prompts and answers run on replicas of their own, of one kind of GPU or of two.

A prefill replica takes one prompt chunk in an iteration; prompts queue for it. Its KV cache then goes to a decode
replica, which holds as many requests as arrive while one is answered. One fleet; `vmap` adds axes.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import DEFAULT_RHO_MAX
from aicjax.fleet.fleet_constants import DisaggFleetConstants
from aicjax.fleet.lengths import Lengths, mean
from aicjax.fleet.profile import Profile, first_token_s, floats, iteration_s, slots, throughput_per_s
from aicjax.fleet.rules import SANE, Rules
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.ttft import ttft_quantile_s
from aicjax.fleet.waiting import wait_law


class Load(NamedTuple):
    """What comes.

    Attributes:
        rate_per_s: Requests per second, at random times.
        lengths: Their prompt and output tokens.
        max_tokens: Context that the slots of a decode replica are made for.
    """

    rate_per_s: FloatScalar
    lengths: Lengths
    max_tokens: FloatScalar


class Transfer(NamedTuple):
    """How the KV cache of a prompt goes to its decode replica.

    Attributes:
        bytes_per_token: KV cache of a token; 0 for a transfer that takes no time.
        bytes_per_s: Bandwidth out of a prefill replica.
        delay_s: Fixed time of a transfer.
    """

    bytes_per_token: FloatScalar = 0.0
    bytes_per_s: FloatScalar = 1.0
    delay_s: FloatScalar = 0.0


class Limits(NamedTuple):
    """What clients must get.

    Attributes:
        ttft_s: Limit on the time to first token at the percentile.
        tpot_s: Limit on the mean time per output token.
        quantile: The percentile as a share.
        rho_max: Largest share of the capacity of a phase that may be used.
    """

    ttft_s: FloatScalar
    tpot_s: FloatScalar
    quantile: FloatScalar = 0.99
    rho_max: FloatScalar = DEFAULT_RHO_MAX


class DisaggEstimate(NamedTuple):
    """What a fleet does; latencies are infinite where a phase is overloaded.

    Attributes:
        prefill_replicas, decode_replicas: Replicas of each phase.
        gpus: GPUs of all.
        usd_per_hour: Price of all.
        capacity_per_s: Rate that the slower phase serves.
        prefill_utilization, decode_utilization: Share of the capacity of each phase that the load takes.
        ttft_s: Time to first token at the percentile: wait, prompt and transfer.
        tpot_s: Mean time per output token after the first; 0 where no answer has two.
        met: Whether the limits hold.
    """

    prefill_replicas: Float[Array, "*axes"]
    decode_replicas: Float[Array, "*axes"]
    gpus: Float[Array, "*axes"]
    usd_per_hour: Float[Array, "*axes"]
    capacity_per_s: Float[Array, "*axes"]
    prefill_utilization: Float[Array, "*axes"]
    decode_utilization: Float[Array, "*axes"]
    ttft_s: Float[Array, "*axes"]
    tpot_s: Float[Array, "*axes"]
    met: Bool[Array, "*axes"]

    @property
    def per_gpu_per_s(self) -> Float[Array, "*axes"]:
        """Capacity per GPU."""
        return self.capacity_per_s / self.gpus


class _Phase(NamedTuple):
    """One phase: rate that its replicas serve, share of it that the load takes, and its latency [s]."""

    capacity_per_s: Float[Array, ""]
    utilization: Float[Array, ""]
    latency_s: Float[Array, ""]


def disagg_estimate(
    prefill: Profile,
    decode: Profile,
    prefill_replicas: FloatScalar,
    decode_replicas: FloatScalar,
    load: Load,
    limits: Limits,
    constants: DisaggFleetConstants,
    transfer: Transfer | None = None,
    rules: Rules = SANE,
) -> DisaggEstimate:
    """What a fleet with stated counts does; real counts are allowed.

    Args:
        prefill, decode: Replicas of each phase.
        prefill_replicas, decode_replicas: How many, above 0.
        load: What comes.
        limits: What clients must get.
        constants: Shares of their rates that the phases reach; factor on TTFT of the fleet reference.
        transfer: How the KV cache moves; in no time where None.
        rules: `steady_phases` rates the phases as the fleet reference does.
    """
    given = _sizes(prefill), _sizes(decode), prefill_replicas, decode_replicas, load, limits, constants
    return _estimate(*floats((*given, transfer or Transfer())), rules)


def disagg_sweep(
    prefill: Profile,
    decode: Profile,
    most_prefill: int,
    most_decode: int,
    load: Load,
    limits: Limits,
    constants: DisaggFleetConstants,
    transfer: Transfer | None = None,
    rules: Rules = SANE,
) -> DisaggEstimate:
    """All fleets of 1 to `most_prefill` by 1 to `most_decode` replicas; other arguments as `disagg_estimate`.

    Each phase is evaluated once for each of its counts.

    Args:
        most_prefill, most_decode: Most replicas of each phase, static.

    Returns:
        Estimates [prefill count, decode count].
    """
    counts = (np.arange(1, most + 1) for most in (most_prefill, most_decode))
    given = _sizes(prefill), _sizes(decode), *counts, load, limits, constants
    return _sweep(*floats((*given, transfer or Transfer())), rules)


@functools.partial(jax.jit, static_argnames="rules")
def _estimate(
    prefill: Profile,
    decode: Profile,
    prefill_count: Float[Array, ""],
    decode_count: Float[Array, ""],
    load: Load,
    limits: Limits,
    constants: DisaggFleetConstants,
    transfer: Transfer,
    rules: Rules,
) -> DisaggEstimate:
    at_prefill = _prefill_phase(prefill, prefill_count, load, limits, constants, transfer, rules)
    at_decode = _decode_phase(decode, decode_count, load, constants, rules)
    return _joined(prefill, decode, prefill_count, decode_count, at_prefill, at_decode, limits)


@functools.partial(jax.jit, static_argnames="rules")
def _sweep(
    prefill: Profile,
    decode: Profile,
    prefill_counts: Float[Array, " prefill"],
    decode_counts: Float[Array, " decode"],
    load: Load,
    limits: Limits,
    constants: DisaggFleetConstants,
    transfer: Transfer,
    rules: Rules,
) -> DisaggEstimate:
    at_prefill = jax.vmap(lambda n: _prefill_phase(prefill, n, load, limits, constants, transfer, rules))(
        prefill_counts
    )
    at_decode = jax.vmap(lambda n: _decode_phase(decode, n, load, constants, rules))(decode_counts)
    rows = jax.tree.map(lambda leaf: leaf[:, None], (prefill_counts, at_prefill))
    columns = jax.tree.map(lambda leaf: leaf[None, :], (decode_counts, at_decode))
    estimate = _joined(prefill, decode, rows[0], columns[0], rows[1], columns[1], limits)
    shape = prefill_counts.size, decode_counts.size
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), estimate)


def _prefill_phase(
    profile: Profile,
    count: Float[Array, ""],
    load: Load,
    limits: Limits,
    constants: DisaggFleetConstants,
    transfer: Transfer,
    rules: Rules,
) -> _Phase:
    if rules.steady_phases:
        isl, _ = mean(load.lengths)
        rate = throughput_per_s(profile, isl, 1.0, load.max_tokens, rules) * count * constants.prefill_share
        ttft_s = first_token_s(profile, isl, slots(profile, load.max_tokens), rules=rules) * constants.ttft_factor
        return _Phase(rate, _used(load, rate), ttft_s)
    isl = jnp.asarray(load.lengths.isl, float)
    prompt_s = first_token_s(profile, isl, 1.0, isl / 2.0) / constants.prefill_share
    moved_s = transfer.delay_s + isl * transfer.bytes_per_token / transfer.bytes_per_s
    law = ServiceLaw(prompt_s, prompt_s + moved_s, jnp.asarray(load.lengths.weight, float))
    wait = wait_law(count, load.rate_per_s, law)
    busy_s = jnp.maximum(jnp.sum(law.weight * prompt_s), jnp.sum(law.weight * moved_s))
    rate = count / busy_s
    ttft_s = jnp.where(load.rate_per_s < rate, ttft_quantile_s(wait, law, limits.quantile), jnp.inf)
    return _Phase(rate, _used(load, rate), ttft_s)


def _decode_phase(
    profile: Profile, count: Float[Array, ""], load: Load, constants: DisaggFleetConstants, rules: Rules
) -> _Phase:
    """Requests n of a replica follow from n = arrivals x steps x (base + per_sequence n)."""
    room = slots(profile, load.max_tokens).astype(count.dtype)
    if rules.steady_phases:
        _, osl = mean(load.lengths)
        rate = throughput_per_s(profile, 1.0, osl, load.max_tokens, rules) * count * constants.decode_share
        return _Phase(rate, _used(load, rate), iteration_s(profile, room))
    isl, osl, weight = (jnp.asarray(leaf, float) for leaf in load.lengths)
    steps = weight * jnp.maximum(osl - 1.0, 0.0)
    all_steps = jnp.sum(steps)
    context = jnp.sum(steps * (isl + osl / 2.0)) / jnp.where(all_steps > 0, all_steps, 1.0)
    full_s = iteration_s(profile, room, context)
    rate = constants.decode_share * count * room / jnp.where(all_steps > 0, all_steps * full_s, jnp.inf)
    rate = jnp.where(all_steps > 0, rate, jnp.inf)
    added_s = iteration_s(profile, 1.0, context) - profile.base_s
    arriving = load.rate_per_s / (constants.decode_share * count) * all_steps
    keeps_up = load.rate_per_s < rate
    tpot_s = profile.base_s / jnp.where(keeps_up, 1.0 - arriving * added_s, 1.0)
    tpot_s = jnp.where(all_steps > 0, jnp.where(keeps_up, tpot_s, jnp.inf), 0.0)
    return _Phase(rate, _used(load, rate), tpot_s)


def _used(load: Load, capacity_per_s: Float[Array, ""]) -> Float[Array, ""]:
    """Share of a capacity that the load takes; infinite where there is none."""
    some = capacity_per_s > 0
    return jnp.where(some, load.rate_per_s / jnp.where(some, capacity_per_s, 1.0), jnp.inf)


def _joined(
    prefill: Profile,
    decode: Profile,
    first: Float[Array, "*axes"],
    second: Float[Array, "*axes"],
    at_prefill: _Phase,
    at_decode: _Phase,
    limits: Limits,
) -> DisaggEstimate:
    """Both phases together, for counts that broadcast."""
    busiest = jnp.maximum(at_prefill.utilization, at_decode.utilization)
    within = (at_prefill.latency_s <= limits.ttft_s) & (at_decode.latency_s <= limits.tpot_s)
    return DisaggEstimate(
        prefill_replicas=first,
        decode_replicas=second,
        gpus=first * prefill.gpus + second * decode.gpus,
        usd_per_hour=first * prefill.price_per_hour + second * decode.price_per_hour,
        capacity_per_s=jnp.minimum(at_prefill.capacity_per_s, at_decode.capacity_per_s),
        prefill_utilization=at_prefill.utilization,
        decode_utilization=at_decode.utilization,
        ttft_s=at_prefill.latency_s,
        tpot_s=at_decode.latency_s,
        met=within & (busiest <= limits.rho_max),
    )


def _sizes(profile: Profile) -> Profile:
    """What these formulas read: no name and no power, so that one compiled program serves all."""
    return dataclasses.replace(profile, name="", power=None)
