# SPDX-License-Identifier: Apache-2.0
"""Policies side by side on profiles: settled starts, counted misses, common random numbers, compression's latency."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.arrivals import poisson_gaps
from aicjax.fleet.fleet_simulation import Deployment, Runs, compare_policies, pool_contexts, pool_times
from aicjax.fleet.fleet_state import Outcome
from aicjax.fleet.fleet_summary import paired_difference, summaries
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import first_token_s, stacked
from aicjax.fleet.routing import Requests, Route, compress_route, label_route, length_route, random_route

SEEDS, N, THRESHOLD = 4, 1500, 4096
LIMITS = jnp.asarray([THRESHOLD, 16384], jnp.int32)
DRAWS = jax.random.uniform(jax.random.key(1), (SEEDS, N, 4))


def _requests() -> Requests:
    rng = np.random.default_rng(0)
    isl = np.round(10 ** rng.normal(3.0, 0.4, (SEEDS, N))).clip(1, 12_000).astype(np.int32)
    osl = rng.integers(1, 400, (SEEDS, N)).astype(np.int32)
    return Requests(jnp.asarray(isl), jnp.asarray(osl), jnp.ones((SEEDS, N), bool))


REQUESTS = _requests()
POLICIES = ("length", "compress", "little", "random", "short")


@jax.jit
def _routes(requests: Requests, draws: jax.Array) -> list[Route]:
    return [
        length_route(requests, LIMITS, THRESHOLD),
        compress_route(requests, LIMITS, THRESHOLD, 2.0, 1.0, 0.05, draws[..., 2]),
        compress_route(requests, LIMITS, THRESHOLD, 1.1, 1.0, 0.0, draws[..., 2]),
        random_route(requests, LIMITS, draws[..., 3]),
        label_route(requests, jnp.zeros((SEEDS, N), jnp.int32), 0),
    ]


ROUTES: dict[str, Route] = dict(zip(POLICIES, _routes(REQUESTS, DRAWS), strict=True))
DEPLOYMENT = Deployment(stacked([preset("a100")] * 2), LIMITS, jnp.asarray([3, 2], jnp.int32))


@jax.jit
def _gaps_s(rate_per_s: float) -> jax.Array:
    keys = jax.random.split(jax.random.key(5), SEEDS)
    return jax.vmap(lambda key: poisson_gaps(key, rate_per_s, N))(keys)


@functools.cache
def _runs(rate_per_s: float, settled: bool = True, queue_limit: int = N) -> tuple[Runs, np.ndarray]:
    gaps_s = _gaps_s(rate_per_s)
    runs = compare_policies(
        gaps_s,
        REQUESTS,
        ROUTES,
        DEPLOYMENT,
        DRAWS[..., :2],
        start_key=jax.random.key(9) if settled else None,
        queue_limit=queue_limit,
    )
    return runs, np.asarray(gaps_s)


@jax.jit
def _service_s(requests: Requests, route: Route) -> jax.Array:
    tokens = pool_contexts(requests, route, DEPLOYMENT)
    return pool_times(requests, route, tokens, DEPLOYMENT).service_s


def test_other_counts_of_replicas_compile_nothing(monkeypatch: pytest.MonkeyPatch):
    few, _ = _runs(100.0)
    monkeypatch.delattr("aicjax.fleet.fleet_simulation.fleet_run")  # what a compilation would need
    more = DEPLOYMENT._replace(replicas=jnp.asarray([4, 3], jnp.int32))
    start_key = jax.random.key(9)
    found = compare_policies(_gaps_s(100.0), REQUESTS, ROUTES, more, DRAWS[..., :2], start_key=start_key, queue_limit=N)
    assert found.ttft_s[0].mean() < few.ttft_s[0].mean()


def test_slots_are_in_use_as_the_load_says_from_the_start():
    rate_per_s = 100.0
    settled, gaps_s = _runs(rate_per_s)
    route = jax.tree.map(lambda values: np.asarray(values)[0], ROUTES["length"])
    requests = jax.tree.map(lambda values: np.asarray(values)[0], REQUESTS)
    service_s = _service_s(requests, route)
    held_s = np.asarray(service_s)[np.arange(N), np.asarray(route.pool)]
    short = np.asarray(route.pool) == 0
    offered = rate_per_s * short.mean() * held_s[short].mean() / float(DEPLOYMENT.pool_slots()[0])
    assert held_s[short].mean() > 0.3 * N / rate_per_s  # a run lasts few service times
    assert 0.3 < offered < 0.9
    found = summaries(settled, gaps_s, DEPLOYMENT, 0.5)[0].pools[0].utilization
    empty, gaps_s = _runs(rate_per_s, settled=False)
    from_empty = summaries(empty, gaps_s, DEPLOYMENT, 0.5)[0].pools[0].utilization
    assert found == pytest.approx(offered, rel=0.07)
    assert from_empty < 0.9 * offered


def test_every_request_is_counted_once_and_the_warm_up_is_not():
    runs, gaps_s = _runs(400.0, settled=False, queue_limit=5)
    for policy, summary in enumerate(summaries(runs, gaps_s, DEPLOYMENT, 0.5)):
        fleet = summary.fleet
        assert fleet.requests == SEEDS * N * 8 // 10  # the first fifth is left out
        assert fleet.completed + fleet.rejected + fleet.refused == fleet.requests
        for name in ("requests", "completed", "rejected", "refused"):
            assert sum(getattr(pool, name) for pool in summary.pools) == getattr(fleet, name)
        counted = np.asarray(runs.ttft_s)[policy][:, N // 5 :]
        assert fleet.slo_share is not None
        assert float(fleet.slo_share.value) == pytest.approx(float((counted <= 0.5).mean()), abs=1e-6)
        assert np.isinf(counted).sum() == fleet.rejected + fleet.refused
        assert 0.0 <= fleet.utilization <= 1.0


def test_rejected_requests_miss_the_limit():
    runs, gaps_s = _runs(400.0, settled=False, queue_limit=5)
    fleet = summaries(runs, gaps_s, DEPLOYMENT, limit_s=1e6)[0].fleet
    assert fleet.rejected > 0 and fleet.slo_share is not None
    assert float(fleet.slo_share.value) == pytest.approx(fleet.completed / fleet.requests, abs=1e-6)
    p99 = fleet.ttft_s[99.0]
    assert p99 is not None and np.isinf(p99.value)


def test_what_a_pool_cannot_hold_is_refused_there():
    outcome = np.asarray(_runs(20.0, settled=False)[0].run.outcome)
    too_long = np.asarray(REQUESTS.total) > THRESHOLD
    np.testing.assert_array_equal(outcome[-1] == Outcome.REFUSED, too_long)
    assert too_long.any() and (outcome[:-1] == Outcome.COMPLETED).all()


def test_compression_delays_what_it_shortens_and_nothing_else():
    runs, _ = _runs(20.0, settled=False)
    compressed = np.asarray(ROUTES["compress"].compressed)
    wait_s = np.asarray(runs.run.wait_s)[1]
    assert compressed.any()
    np.testing.assert_allclose(wait_s[compressed], 0.05, atol=1e-6)  # an idle fleet: the latency alone
    np.testing.assert_array_equal(np.asarray(runs.run.pool)[1][compressed], 0)
    assert np.median(wait_s[~compressed]) == 0.0


def test_an_idle_replica_gives_the_first_token_of_a_lone_prompt():
    runs, _ = _runs(20.0, settled=False)
    route = jax.tree.map(lambda values: np.asarray(values)[0], ROUTES["length"])
    requests = jax.tree.map(lambda values: np.asarray(values)[0], REQUESTS)
    pool = int(route.pool[0])
    tokens = jax.jit(pool_contexts)(requests, route, DEPLOYMENT)[pool]
    lone_s = jax.jit(first_token_s)(preset("a100"), requests.isl[0], 1, tokens)
    assert int(runs.run.running[0, 0, 0]) == 1
    assert float(runs.ttft_s[0, 0, 0]) == pytest.approx(float(lone_s), rel=1e-5)


def test_differences_on_shared_arrivals_are_surer_than_apart():
    runs, _ = _runs(100.0)
    apart_s = np.quantile(np.asarray(runs.ttft_s)[:, :, N // 5 :], 0.5, axis=-1)
    unpaired_s = np.sqrt((apart_s.std(axis=-1, ddof=1) ** 2 / SEEDS)[[0, 2]].sum())
    change = paired_difference(runs, 50.0)
    paired_s = (change.high - change.low)[2] / 2.0 / 3.18  # Student's factor of four seeds
    assert change.value[0] == 0.0 and change.low[0] == 0.0 and change.high[0] == 0.0
    assert 0.0 < paired_s < 0.5 * unpaired_s


def test_policies_do_not_touch_each_other():
    gaps_s = _gaps_s(100.0)
    order = POLICIES[::-1]
    other = compare_policies(
        gaps_s,
        REQUESTS,
        {name: ROUTES[name] for name in order},
        DEPLOYMENT,
        DRAWS[..., :2],
        start_key=jax.random.key(9),
    )
    first = _runs(100.0)[0]
    np.testing.assert_array_equal(np.asarray(other.ttft_s)[::-1], first.ttft_s)
