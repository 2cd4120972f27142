# SPDX-License-Identifier: Apache-2.0
"""What a fleet can shed of its power for a while: replicas run fewer requests at once, and clients wait longer."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import PoolLoad, Target, Verdict, pool_load
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pool_power import pool_power, power_law
from aicjax.fleet.power import power_w, running_at
from aicjax.fleet.profile import Profile, floats, running_context, slots, unnamed
from aicjax.fleet.rules import SANE, Rules
from aicjax.fleet.service_times import ServiceLaw, service_law


class FixedFleet(NamedTuple):
    """Replicas that are there, and what comes.

    Attributes:
        replicas: How many, all up.
        max_tokens: Context that their slots are made for.
        lengths: Prompt and output tokens of the requests.
        rate_per_s: Requests per second.
        arrival_cv2: Squared coefficient of variation of the times between arrivals; 1 for Poisson.
    """

    replicas: FloatScalar
    max_tokens: FloatScalar
    lengths: Lengths
    rate_per_s: FloatScalar
    arrival_cv2: FloatScalar = 1.0


class Response(NamedTuple):
    """The fleet under each cut.

    Attributes:
        cut: Share of the power that is to be shed [cut].
        reached: Whether a replica sheds so much at all: one request may draw more [cut].
        cap: Requests that a replica may run at once [cut].
        cap_gpu_w: Power of a GPU with so many: what it draws at most [cut].
        gpu_w: Power of a GPU at the load that it then has [cut].
        cap_w, fleet_w: Those of all GPUs [cut].
        load: Waits and TTFT [cut].
    """

    cut: Float[Array, " cut"]
    reached: Bool[Array, " cut"]
    cap: Float[Array, " cut"]
    cap_gpu_w: Float[Array, " cut"]
    gpu_w: Float[Array, " cut"]
    cap_w: Float[Array, " cut"]
    fleet_w: Float[Array, " cut"]
    load: PoolLoad


def demand_response(
    profile: Profile, fleet: FixedFleet, cuts: Float[Array, " cut"], target: Target, rules: Rules = SANE
) -> Response:
    """The fleet with its replicas capped so that none draws more than its share of full power.

    Full power is that with every slot in use. With fewer requests an iteration is shorter, so that capacity falls less
    than the cap.

    Args:
        profile: The replica; it has a power law.
        fleet: Replicas and load.
        cuts: Shares of the power to shed, from 0 to 1.
        target: Limit that should hold all the while.
        rules: `cut_of_nominal` cuts nominal power instead; `halving_inverse` and those of services and waits count.

    Raises:
        InputError: The profile has no power law.
    """
    power_law(profile)
    given = unnamed(profile), fleet, cuts, target
    return _responses(*floats(given), rules)


def most_cut(response: Response) -> int | None:
    """Position of the largest cut that is reached and under which the target is met; None where there is none."""
    met = np.flatnonzero((np.asarray(response.load.verdict) == Verdict.MET) & np.asarray(response.reached))
    return None if met.size == 0 else int(met[np.argmax(np.asarray(response.cut)[met])])


@functools.partial(jax.jit, static_argnames="rules")
def _responses(
    profile: Profile, fleet: FixedFleet, cuts: Float[Array, " cut"], target: Target, rules: Rules
) -> Response:
    law = power_law(profile)
    context = running_context(*fleet.lengths, profile.chunk_tokens)
    room = slots(profile, fleet.max_tokens).astype(cuts.dtype)
    full_w = jnp.asarray(law.nominal_w, float)
    if not rules.cut_of_nominal:
        full_w = power_w(law, room, context)
        law = dataclasses.replace(law, most_running=room)

    def at(cut: Float[Array, ""]) -> Response:
        limit_w = jnp.maximum(law.idle_w, full_w * (1.0 - cut))
        cap = jnp.minimum(room, running_at(law, limit_w, context, rules))
        load = pool_load(
            fleet.replicas,
            cap,
            fleet.rate_per_s,
            _service(profile, fleet, cap, rules),
            target,
            fleet.arrival_cv2,
            rules=rules,
        )
        drawn = pool_power(profile, fleet.replicas, cap, load.utilization, context, rules)
        cap_gpu_w = power_w(law, cap, context, rules)
        return Response(
            cut=cut,
            reached=(cap > 1.0) | (cap_gpu_w <= limit_w),
            cap=cap,
            cap_gpu_w=cap_gpu_w,
            gpu_w=drawn.gpu_w,
            cap_w=cap_gpu_w * profile.gpus * fleet.replicas,
            fleet_w=drawn.pool_w,
            load=load,
        )

    return jax.vmap(at)(cuts)


def _service(profile: Profile, fleet: FixedFleet, cap: Float[Array, ""], rules: Rules) -> ServiceLaw:
    """Law of services of replicas that run `cap` requests at most."""
    capped = dataclasses.replace(profile, max_slots=jnp.minimum(cap, profile.max_slots))
    return service_law(capped, fleet.lengths, fleet.max_tokens, rules=rules)
