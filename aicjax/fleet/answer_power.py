# SPDX-License-Identifier: Apache-2.0
"""Answers about power: what a fleet can shed, and tokens per watt of kinds of fleet."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax._units import PERCENT, W_PER_KW
from aicjax.fleet.capacity import PoolLoad, Target, Verdict
from aicjax.fleet.demand_response import FixedFleet, demand_response, most_cut
from aicjax.fleet.fleet_rows import VERDICTS, asked_of, busy_share, finite_ms
from aicjax.fleet.inputs import law_of, load_of, profile_of, target_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.phase_answers import FlexAnswer, FlexRow, WattAnswer, WattRow
from aicjax.fleet.pool_power import PoolPower, power_law
from aicjax.fleet.pools import Compression, Pool, split
from aicjax.fleet.profile import Profile, floats, stacked
from aicjax.fleet.requests import PowerRequest
from aicjax.fleet.sizing import Demand, sized, thinned
from aicjax.fleet.tokens_per_watt import Efficiency, at_utilization, pool_efficiency

EVIDENCE = ("none", "low", "fair", "high")  # ascending


def power(request: PowerRequest) -> FlexAnswer | WattAnswer:
    """What a stated fleet can shed, or, without its size, tokens per watt.

    Raises:
        InputError: A name that is not known, or a replica without a power law.
        DataError: A file breaks its rules.
    """
    return _flex(request) if request.replicas is not None else _watts(request)


def _flex(request: PowerRequest) -> FlexAnswer:
    law = law_of(request)
    profile = profile_of(request.compare[0])
    replicas = request.replicas
    assert replicas is not None
    rate_per_s, cv2 = load_of(request)
    fleet = FixedFleet(float(replicas), float(request.max_tokens), law, rate_per_s, cv2)
    cuts = jnp.asarray([percent / PERCENT for percent in request.flex_percents])
    found = demand_response(profile, fleet, cuts, target_of(request))
    response = jax.tree.map(np.asarray, found)
    loads = map(PoolLoad._make, zip(*response.load, strict=True))
    rows = [
        FlexRow(
            cut=percent / PERCENT,
            cap=int(response.cap[place]),
            gpu_w=float(response.gpu_w[place]),
            cap_gpu_w=float(response.cap_gpu_w[place]),
            fleet_kw=float(response.fleet_w[place]) / W_PER_KW,
            cap_kw=float(response.cap_w[place]) / W_PER_KW,
            utilization=busy_share(load),
            ttft_ms=finite_ms(float(load.ttft_s)),
            verdict=VERDICTS[Verdict(int(load.verdict))],
        )
        for place, (percent, load) in enumerate(zip(request.flex_percents, loads, strict=True))
    ]
    return FlexAnswer(
        asked=asked_of(request, law),
        replica=profile.name,
        replicas=replicas,
        evidence=power_law(profile).evidence,
        rows=tuple(rows),
        best=most_cut(found),
    )


def _watts(request: PowerRequest) -> WattAnswer:
    law = law_of(request)
    rows = []
    if request.threshold is not None:
        rows.append(_row(request, law, [profile_of(request.compare[0]), profile_of(request.compare[-1])], None))
    alone = [[profile_of(kind)] for kind in request.compare]
    rows += [_row(request, law, kind, rho) for kind in alone for rho in (None, *request.utilizations)]
    rows.sort(key=lambda row: (not row.sized, not row.meets, -row.tokens_per_joule))
    return WattAnswer(asked_of(request, law), tuple(rows))


def _row(request: PowerRequest, law: Lengths, profiles: Sequence[Profile], utilization: float | None) -> WattRow:
    """One or two pools, sized by the limit or for a utilisation."""
    laws = [power_law(profile) for profile in profiles]
    thresholds = [] if len(profiles) == 1 else [float(request.threshold or 0)]
    load, total, drawn = _drawn(
        stacked(profiles),
        floats(law),
        jnp.asarray(thresholds, float),
        float(request.max_tokens),
        Demand(*load_of(request)),
        target_of(request),
        utilization,
    )
    load = jax.tree.map(np.asarray, load)
    counts = [int(count) for count in load.replicas]
    shares = [busy_share(own) for own in map(PoolLoad._make, zip(*load, strict=True))]
    return WattRow(
        fleet=" + ".join(f"{count} {profile.name}" for count, profile in zip(counts, profiles, strict=True)),
        replicas=sum(counts),
        gpus=int(sum(count * profile.gpus for count, profile in zip(counts, profiles, strict=True))),
        sized=utilization is None,
        utilization=max((share for share in shares if share is not None), default=None),
        running=float(drawn.running[-1]),
        gpu_w=float(drawn.gpu_w[-1]),
        fleet_kw=float(total.watts) / W_PER_KW,
        tokens_per_s=float(total.tokens_per_s),
        tokens_per_joule=float(total.tokens_per_joule),
        usd_per_million_output=float(total.usd_per_million_tokens),
        ttft_ms=finite_ms(float(np.max(load.ttft_s))),
        evidence=min((law.evidence for law in laws), key=EVIDENCE.index),
        meets=bool((load.verdict == Verdict.MET).all()),
    )


@jax.jit
def _drawn(
    profiles: Profile,
    law: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    demand: Demand,
    target: Target,
    utilization: FloatScalar | None,
) -> tuple[PoolLoad, Efficiency, PoolPower]:
    """State of each pool, what all yield, and the power of each; sized by the target where no utilisation is stated."""
    pools = split(profiles, law, thresholds, max_tokens, Compression(1.0, 0.0, 0.0))

    def fixed(pool: Pool) -> PoolLoad:
        assert utilization is not None
        rate_per_s, cv2 = thinned(demand, pool.share)
        return at_utilization(pool, utilization, rate_per_s, target, cv2)

    load = sized(pools, demand, target).load if utilization is None else jax.vmap(fixed)(pools)
    each, drawn = jax.vmap(lambda pool, own: pool_efficiency(pool, own, thinned(demand, pool.share)[0]))(pools, load)
    return load, each.total(), drawn
