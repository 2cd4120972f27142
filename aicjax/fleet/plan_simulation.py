# SPDX-License-Identifier: Apache-2.0
"""A deployment's replicas checked step by step: the least count whose simulated requests meet both limits."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aicjax._units import MS_PER_S
from aicjax.fleet import lengths
from aicjax.fleet.answer_parts import Interval
from aicjax.fleet.arrivals import stated_gaps
from aicjax.fleet.inputs import load_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.plan_candidates import Candidate
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.sizing import Demand, thinned
from aicjax.fleet.statistics import after_warm_up, mean_interval, quantile_interval
from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import StepLoad, open_load
from aicjax.fleet.verify import LIKELY, share_confidence

GROWTH = (1.0, 1.06, 1.13, 1.25, 1.5, 2.0)  # of the needed replicas, for counts that are tried


class Checked(NamedTuple):
    """A count of replicas by simulation.

    Attributes:
        replicas: The count.
        ttft_ms: TTFT at the percentile.
        tpot_ms: Mean time per output token; None where requests have one token.
        confidence: Probability that the share of requests within the limit on TTFT is as asked.
        tpot_met: Whether the mean time per output token is within its limit.
    """

    replicas: int
    ttft_ms: Interval
    tpot_ms: Interval | None
    confidence: float
    tpot_met: bool

    @property
    def met(self) -> bool:
        """Whether both limits are met, more likely than not."""
        return self.confidence >= LIKELY and self.tpot_met


def least_checked(request: PlanRequest, law: Lengths, candidate: Candidate) -> Checked:
    """The least count of replicas from the needed one up that meets both limits by simulation, else the largest tried.

    A second look lies between the largest count that misses and the least that meets.
    """
    counts = [math.ceil(candidate.needed * growth) for growth in GROWTH]
    found = checked(request, law, candidate, counts)
    meets = next((place for place, count in enumerate(found) if count.met), None)
    if meets is None:
        return found[-1]
    low, high = found[meets - 1].replicas if meets else counts[0] - 1, found[meets].replicas
    if high - low > 1:
        between = np.unique(np.linspace(low, high, len(GROWTH) + 1).round()[1:]).astype(int).tolist()
        found = checked(request, law, candidate, between + [high] * (len(GROWTH) - len(between)))
    return next(count for count in found if count.met or count.replicas == high)


def checked(request: PlanRequest, law: Lengths, candidate: Candidate, counts: Sequence[int]) -> list[Checked]:
    """Counts of replicas, each simulated with the same draws.

    Requests are spread over the attention ranks at random, which is no better than what a router does.
    """
    ranks = candidate.run.ranks
    requests = request.run_length(float(candidate.run.limits.slots))
    load = _load(request, law, [count * ranks for count in counts], requests)
    run = simulate_steps(candidate.run.steps, candidate.run.limits, load)
    shape = (len(counts), request.seeds, requests)
    ttft_s, latency_s, osl = (np.asarray(leaf).reshape(shape) for leaf in (run.ttft_s, run.latency_s, load.osl))
    with np.errstate(invalid="ignore"):
        tpot_s = np.where(osl > 1, (latency_s - ttft_s) / np.maximum(osl - 1, 1), np.nan)
    ttft_s = after_warm_up(np.where(np.isnan(ttft_s), np.inf, ttft_s + candidate.run.request_s))
    return [_judged(request, count, ttft_s[place], after_warm_up(tpot_s)[place]) for place, count in enumerate(counts)]


def _load(request: PlanRequest, law: Lengths, parts: list[int], requests: int) -> StepLoad:
    """Requests of one rank of each count and seed; the same lengths and the same gaps, stretched to each rate."""
    gap_key, length_key = jax.random.split(jax.random.key(request.seed))
    rate_per_s, cv2 = load_of(request)
    seeds = jax.random.split(gap_key, request.seeds)

    def gaps(share: float) -> jax.Array:
        rate, own_cv2 = (float(value) for value in thinned(Demand(rate_per_s, cv2), share))
        return jax.vmap(lambda key: stated_gaps(key, rate, own_cv2, requests))(seeds)

    isl, osl = jax.vmap(lambda key: lengths.sample(key, law, requests))(jax.random.split(length_key, request.seeds))
    isl, osl = (jnp.tile(lengths, (len(parts), 1)) for lengths in (isl, osl))
    return open_load(isl, osl, jnp.concatenate([gaps(1 / part) for part in parts]))


def _judged(request: PlanRequest, count: int, ttft_s: np.ndarray, tpot_s: np.ndarray) -> Checked:
    shares = (ttft_s <= request.ttft_ms / MS_PER_S).mean(axis=-1)
    late = quantile_interval(ttft_s, request.quantile)
    assert late is not None, "runs are longer than batches"
    several = bool(np.isfinite(tpot_s).any())
    spaced = mean_interval(np.where(np.isfinite(tpot_s), tpot_s, np.nanmean(tpot_s))) if several else None
    tpot_ms = None if spaced is None else Interval(*(float(end) * MS_PER_S for end in spaced))
    return Checked(
        replicas=count,
        ttft_ms=Interval(*(float(end) * MS_PER_S for end in late)),
        tpot_ms=tpot_ms,
        confidence=float(share_confidence(shares, request.quantile, ttft_s.shape[-1])),
        tpot_met=tpot_ms is None or tpot_ms.value <= request.tpot_ms,
    )
