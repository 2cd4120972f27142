# SPDX-License-Identifier: Apache-2.0
"""Simulated waits against queues whose answer is known: how often the interval that a simulation states holds it."""

import functools
import math

import jax
import numpy as np
import pytest

from aicjax.fleet.slot_queue import slot_waits
from aicjax.fleet.statistics import Interval, after_warm_up, mean_interval, quantile_interval
from tests.oracles.slot_queue import deterministic_wait, erlang_c, two_phase_wait

SIMULATIONS, RUNS = 25, 4
REQUESTS = {0.5: 10_000, 0.7: 20_000, 0.85: 30_000, 0.95: 100_000}  # of a run, by utilization
LONGER = {"two_phase": 3}  # where few requests make most of the wait
LEAST_COVERED = 20  # of 25 intervals of 95 %: fewer in one of 900 tries
SHARES, MEANS = (0.9, 0.1), (0.5, 5.5)  # two kinds of requests: mean 1, second moment 6.5
ALL_UTILIZATIONS = pytest.mark.parametrize("rho", REQUESTS)
_waits = jax.jit(slot_waits, static_argnames="width")


def _exponential(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_exponential(shape, np.float32)


def _constant(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.ones(shape, np.float32)


def _two_phase(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    kind = rng.random(shape, np.float32) < SHARES[0]
    return rng.standard_exponential(shape, np.float32) * np.where(kind, *np.asarray(MEANS, np.float32))


def _lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.exp(rng.standard_normal(shape, np.float32) - np.float32(0.5))


SERVICES = {"exponential": _exponential, "constant": _constant, "two_phase": _two_phase, "lognormal": _lognormal}


@functools.lru_cache(1)
def _simulated(kind: str, servers: int, rho: float) -> np.ndarray:
    """Waits with mean service 1, warm-up removed [simulation run request]."""
    rng = np.random.default_rng([servers, round(100 * rho), *kind.encode()])
    shape = (SIMULATIONS * RUNS, LONGER.get(kind, 1) * REQUESTS[rho])
    gaps = rng.standard_exponential(shape, np.float32) / np.float32(rho * servers)
    service = SERVICES[kind](rng, shape)
    waits = np.asarray(_waits(gaps, service, np.full(shape[0], servers, np.int32), width=servers))
    return after_warm_up(waits).reshape(SIMULATIONS, RUNS, -1)


def _assert_covered(interval: Interval | None, truth: float, widest: float):
    """Most simulations hold the truth in intervals no wider, half, than a share of it; their mean is near it."""
    assert interval is not None
    assert np.sum((interval.low <= truth) & (truth <= interval.high)) >= LEAST_COVERED
    half = float((interval.high - interval.low).mean()) / 2.0
    assert half < widest * truth
    assert float(interval.value.mean()) == pytest.approx(truth, abs=half)


def _assert_mean(kind: str, servers: int, rho: float, truth: float):
    _assert_covered(mean_interval(_simulated(kind, servers, rho)), truth, 0.3)


@ALL_UTILIZATIONS
@pytest.mark.parametrize("servers", [2, 8])
def test_exponential_service(servers: int, rho: float):
    waits, spare = erlang_c(servers, rho * servers), servers * (1.0 - rho)
    _assert_mean("exponential", servers, rho, waits / spare)
    if waits > 0.01:
        percentile = quantile_interval(_simulated("exponential", servers, rho), 0.99)
        _assert_covered(percentile, math.log(waits / 0.01) / spare, 0.4)


@ALL_UTILIZATIONS
@pytest.mark.parametrize("servers", [1, 4])
def test_constant_service(servers: int, rho: float):
    _assert_mean("constant", servers, rho, deterministic_wait(servers, rho))


@ALL_UTILIZATIONS
def test_one_server_with_lognormal_service(rho: float):
    _assert_mean("lognormal", 1, rho, rho * math.e / (2.0 * (1.0 - rho)))


@ALL_UTILIZATIONS
def test_many_servers_with_two_kinds_of_requests(rho: float):
    _assert_mean("two_phase", 4, rho, two_phase_wait(4, rho, SHARES, MEANS))


def test_eight_requests_per_second_before_one_server_that_takes_a_tenth():
    rng = np.random.default_rng(0)
    gaps = rng.exponential(1.0 / 8.0, (1, 300_000)).astype(np.float32)
    waits = np.asarray(_waits(gaps, np.full_like(gaps, 0.1), 1, width=1))
    interval = mean_interval(after_warm_up(waits))
    assert interval is not None
    assert interval.value == pytest.approx(0.2, rel=0.05)
    assert interval.low <= 0.2 <= interval.high


def test_oracles_agree_where_they_meet():
    assert two_phase_wait(3, 0.8, (0.3, 0.7), (1.0, 1.0)) == pytest.approx(erlang_c(3, 2.4) / (3 * 0.2), rel=1e-6)
    assert two_phase_wait(1, 0.8, SHARES, MEANS) == pytest.approx(0.8 * 6.5 / 0.4, rel=1e-4)
    assert deterministic_wait(1, 0.8) == pytest.approx(0.8 / 0.4, rel=1e-6)
