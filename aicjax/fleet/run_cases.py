# SPDX-License-Identifier: Apache-2.0
"""What a simulation takes: the fleet on the device, its requests and their gaps, and where each rule sends them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax._results import InputError
from aicjax.fleet import lengths, routing
from aicjax.fleet.arrivals import stated_gaps
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_simulation import Deployment
from aicjax.fleet.inputs import law_of, load_of, profile_of, trace_of
from aicjax.fleet.profile import Profile, stacked
from aicjax.fleet.request_fields import LEAST_REQUESTS
from aicjax.fleet.requests import FleetSpec, RoutersRequest, SimulateRequest
from aicjax.fleet.routing import Requests, Route
from aicjax.fleet.service_times import moments, service_law
from aicjax.fleet.statistics import after_warm_up
from aicjax.fleet.traces import Trace, pool_labels


class Traffic(NamedTuple):
    """Requests of all runs.

    Attributes:
        gaps_s: Time before each arrival [run request].
        requests: Their lengths [run request].
        models, categories: Texts that a trace has, or None.
        route_draws, balance_draws: Uniform draws [run request], [run request 2].
        start_key: Random key of the requests under way when a run begins; None for a run from empty.
    """

    gaps_s: Float[Array, "run request"]
    requests: Requests
    models: np.ndarray | None
    categories: np.ndarray | None
    route_draws: Float[Array, "run request"]
    balance_draws: Float[Array, "run request two"]
    start_key: Array | None


def deployment_of(fleet: FleetSpec) -> tuple[Deployment, list[Profile]]:
    """The fleet on the device, and the profile of each pool."""
    profiles = [profile_of(pool.replica) for pool in fleet.pools]
    counts = (
        jnp.asarray([getattr(pool, name) for pool in fleet.pools], jnp.int32) for name in ("max_tokens", "replicas")
    )
    return Deployment(stacked(profiles), *counts), profiles


def traffic_of(request: SimulateRequest | RoutersRequest, deployment: Deployment) -> Traffic:
    """The requests of all runs: drawn, or windows of a trace that follow each other.

    Args:
        request: What is asked.
        deployment: The fleet, whose times of service say how long a run must be.

    Raises:
        InputError: A trace that is too short for the runs, a horizon of no request or of too many, or requests that
            all arrive at once.
    """
    horizon = _horizon_requests(request)
    gap_key, length_key, fit_key, route_key, balance_key, start_key = jax.random.split(jax.random.key(request.seed), 6)
    if request.trace is None:
        shape = (request.seeds, horizon or request.run_length(_most_in_service(request, deployment)))
        models = categories = None
        gaps_s = _gaps(gap_key, request, shape)
        isl, osl = jax.vmap(lambda key: lengths.sample(key, law_of(request), shape[1]))(
            jax.random.split(length_key, shape[0])
        )
    else:
        trace = trace_of(request)
        shape = (request.seeds, horizon or _window(request, trace.isl.size))
        if shape[0] * shape[1] > trace.isl.size:
            most_s = trace.isl.size / request.seeds / load_of(request)[0]
            rule = f"at most {most_s:g} for {request.seeds} runs of a trace of {trace.isl.size} requests"
            raise InputError("horizon_s", getattr(request, "horizon_s", None), rule)
        cut = slice(0, shape[0] * shape[1])
        isl, osl = (jnp.asarray(np.reshape(column[cut], shape), jnp.int32) for column in (trace.isl, trace.osl))
        gaps_s = jnp.asarray(np.reshape(_trace_gaps(trace, request)[cut], shape), float)
        models, categories = (np.reshape(column[cut], shape) for column in (trace.model, trace.category))
    _check_time(request, np.asarray(gaps_s))
    compressible = jax.random.uniform(fit_key, shape) < load_fleet_constants().compression.success
    return Traffic(
        gaps_s,
        Requests(isl, osl, compressible),
        models,
        categories,
        route_draws=jax.random.uniform(route_key, shape),
        balance_draws=jax.random.uniform(balance_key, (*shape, 2)),
        start_key=None if isinstance(request, SimulateRequest) and request.begins_empty else start_key,
    )


def _horizon_requests(request: SimulateRequest | RoutersRequest) -> int | None:
    """Requests of a run over a stated horizon: as many as arrive in the mean; None without a horizon."""
    if not isinstance(request, SimulateRequest) or request.horizon_s is None:
        return None
    rate_per_s, most = load_of(request)[0], request.most_requests
    count = round(rate_per_s * request.horizon_s)
    if not 1 <= count <= most:
        rule = f"{1 / rate_per_s:g} to {most / rate_per_s:g}, for 1 to {most} requests in a run"
        raise InputError("horizon_s", request.horizon_s, rule)
    return count


def _window(request: SimulateRequest | RoutersRequest, size: int) -> int:
    """Requests of a run of a trace of a stated size, without a horizon."""
    each = size // request.seeds
    if each < LEAST_REQUESTS:
        rule = f"at least {LEAST_REQUESTS * request.seeds} requests for {request.seeds} runs; it has {size}"
        raise InputError("trace", str(request.trace), rule)
    return each if request.requests is None else min(request.requests, each)


def _check_time(request: SimulateRequest | RoutersRequest, gaps_s: np.ndarray) -> None:
    """Refuses runs whose requests after the warm-up all arrive at once: no load can be stated."""
    if after_warm_up(gaps_s).any():
        return
    if request.trace is not None:
        raise InputError("trace", str(request.trace), "requests at more than one time in its runs")
    raise InputError("arrival_cv2", request.arrival_cv2, f"less, or more than {gaps_s.shape[1]} requests in a run")


def _most_in_service(request: SimulateRequest | RoutersRequest, deployment: Deployment) -> float:
    """Requests in service at once if all went to the pool that holds them longest."""

    def mean_s(profile: Profile, max_tokens: Array) -> Array:
        law, _ = lengths.within(law_of(request), 0.0, max_tokens)
        return moments(service_law(profile, law, max_tokens))[0]

    each = jax.vmap(mean_s)(deployment.profiles, deployment.max_tokens.astype(float))
    each = jnp.where(jnp.isfinite(each), each, 0.0)
    return load_of(request)[0] * float(jnp.max(each))


def _gaps(key: Array, request: SimulateRequest | RoutersRequest, shape: tuple[int, int]) -> Float[Array, "run request"]:
    rate_per_s, cv2 = load_of(request)
    return jax.vmap(lambda key: stated_gaps(key, rate_per_s, cv2, shape[1]))(jax.random.split(key, shape[0]))


def _trace_gaps(trace: Trace, request: SimulateRequest | RoutersRequest) -> np.ndarray:
    """Gaps of a trace, stretched where a rate is stated."""
    gaps_s = trace.gaps_s()
    if request.rate_per_s is None or not gaps_s.any():
        return gaps_s
    return gaps_s / (gaps_s.mean() * request.rate_per_s)


def route_of(router: str, fleet: FleetSpec, deployment: Deployment, traffic: Traffic) -> Route:
    """Where a rule sends the requests [run request].

    Raises:
        InputError: A rule by model or category, where the requests name none.
    """
    limits = deployment.max_tokens
    threshold = min(pool.max_tokens for pool in fleet.pools) if fleet.threshold is None else fleet.threshold
    if router in ("model", "semantic"):
        labels = _labels(router, fleet, traffic)
        return jax.vmap(lambda own, label: routing.label_route(own, label, 0))(traffic.requests, labels)

    def one(own: Requests, draws: Float[Array, " request"]) -> Route:
        match router:
            case "length" if fleet.threshold is None:
                return routing.fit_route(own, limits)
            case "length":
                return routing.length_route(own, limits, threshold)
            case "spillover":
                return routing.spillover_route(own, limits, threshold, fleet.spill_utilization)
            case "compress":
                latency_s = load_fleet_constants().compression.latency_s
                return routing.compress_route(own, limits, threshold, fleet.gamma, 1.0, latency_s, draws)
            case "least_loaded":
                return routing.least_loaded_route(own)
            case "round_robin":
                return routing.round_robin_route(own, limits)
            case _:
                return routing.random_route(own, limits, draws)

    return jax.vmap(one)(traffic.requests, traffic.route_draws)


def _labels(router: str, fleet: FleetSpec, traffic: Traffic) -> Int[Array, "run request"]:
    texts = traffic.models if router == "model" else traffic.categories
    if texts is None or not np.any(texts != ""):
        field = "a model" if router == "model" else "a category"
        raise InputError("router", router, f"another rule: no request of the workload names {field}")
    labels = pool_labels(texts.ravel().tolist(), [pool.name for pool in fleet.pools])
    return jnp.asarray(labels.reshape(texts.shape))
