# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode on replicas of their own: closed forms, monotonicity, choice of counts."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.disagg import DisaggEstimate, Limits, Load, Transfer, disagg_estimate, disagg_sweep
from aicjax.fleet.disagg_choice import front
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import first_token_s, iteration_s, stacked
from aicjax.fleet.rules import FLEET_REFERENCE

CONSTANTS = load_fleet_constants().disagg


def _even(isl: float, osl: float) -> Lengths:
    """Requests of one length as two points, as all laws of this file: one compiled program."""
    return Lengths(np.full(2, isl), np.full(2, osl), np.full(2, 0.5))


LOAD = Load(50.0, _even(2000.0, 201.0), 8192.0)
LIMITS = Limits(0.5, 0.1)
MOST = 16, 48  # one size for all sweeps: one compiled program


def _estimate(prefill: float, decode: float, load: Load = LOAD, **others: Any) -> DisaggEstimate:
    return disagg_estimate(preset("h100"), preset("a100"), prefill, decode, load, LIMITS, CONSTANTS, **others)


def test_decode_replicas_run_as_many_requests_as_arrive_while_one_is_answered():
    found = _estimate(4.0, 20.0)
    arriving = 50.0 / (20.0 * CONSTANTS.decode_share) * 200
    running = arriving * float(found.tpot_s)
    step = float(iteration_s(preset("a100"), running, 2000 + 201 / 2))
    assert float(found.tpot_s) == pytest.approx(step, rel=1e-5)


def test_a_long_way_from_overload_a_prompt_takes_its_own_time():
    found = _estimate(500.0, 500.0)
    alone = float(first_token_s(preset("h100"), 2000, 1, 1000.0)) / CONSTANTS.prefill_share
    assert float(found.ttft_s) == pytest.approx(alone, rel=1e-4)


def test_transfer_adds_bytes_over_bandwidth():
    load = LOAD._replace(lengths=_even(4000.0, 201.0))
    way = Transfer(bytes_per_token=327680.0, bytes_per_s=50e9, delay_s=1e-3)
    added = _estimate(500.0, 500.0, load, transfer=way).ttft_s - _estimate(500.0, 500.0, load).ttft_s
    assert float(added) == pytest.approx(0.0262144 + 1e-3, rel=1e-3)


@settings(max_examples=12)
@given(st.floats(1e9, 1e12), st.floats(1e9, 1e12))
def test_a_slower_link_improves_nothing(one: float, other: float):
    slow, fast = (_estimate(6.0, 20.0, transfer=Transfer(327680.0, bandwidth)) for bandwidth in sorted((one, other)))
    without = _estimate(6.0, 20.0)
    assert float(slow.ttft_s) >= float(fast.ttft_s) >= float(without.ttft_s)
    assert float(slow.capacity_per_s) <= float(fast.capacity_per_s) <= float(without.capacity_per_s)
    assert float(slow.tpot_s) == float(without.tpot_s)
    endless = _estimate(6.0, 20.0, transfer=Transfer(327680.0, float("inf")))
    assert float(endless.ttft_s) == float(without.ttft_s)


def test_a_slow_link_limits_the_rate():
    way = Transfer(bytes_per_token=327680.0, bytes_per_s=1e9)  # 0.66 s a prompt
    found = _estimate(10.0, 200.0, transfer=way)
    assert float(found.capacity_per_s) == pytest.approx(10 / (2000 * 327680 / 1e9), rel=1e-4)
    assert np.isinf(found.ttft_s)
    assert not found.met


def test_overload_is_infinite_and_not_met():
    found = _estimate(1.0, 1.0, LOAD._replace(rate_per_s=5000.0))
    assert np.isinf(found.ttft_s)
    assert np.isinf(found.tpot_s)
    assert float(found.decode_utilization) > 1
    assert not found.met


def test_one_output_token_needs_no_decode():
    found = _estimate(4.0, 1.0, LOAD._replace(lengths=_even(2000.0, 1.0)))
    assert float(found.tpot_s) == 0.0
    assert float(found.decode_utilization) == 0.0
    assert np.isfinite(found.capacity_per_s)


def test_a_context_without_slots_serves_nothing():
    found = _estimate(4.0, 4.0, LOAD._replace(max_tokens=4e6))
    assert np.isinf(found.decode_utilization)
    assert not found.met


@settings(max_examples=12)
@given(rate=st.sampled_from([1.0, 20.0, 50.0, 100.0]), more=st.integers(1, 5))
def test_more_replicas_are_no_slower(rate: float, more: int):
    load = LOAD._replace(rate_per_s=rate)
    few, many = (_estimate(3.0 + extra, 15.0 + extra, load) for extra in (0, more))
    assert float(many.ttft_s) <= float(few.ttft_s) * (1 + 1e-5)
    assert float(many.tpot_s) <= float(few.tpot_s) * (1 + 1e-5)
    assert float(many.capacity_per_s) > float(few.capacity_per_s)


def _sweep(load: Load = LOAD, limits: Limits = LIMITS) -> DisaggEstimate:
    return disagg_sweep(preset("h100"), preset("a100"), *MOST, load, limits, CONSTANTS)


@settings(max_examples=10)
@given(row=st.integers(0, MOST[0] - 1), column=st.integers(0, MOST[1] - 1))
def test_sweep_is_the_estimate_of_every_pair(row: int, column: int):
    one = _estimate(row + 1.0, column + 1.0)
    for ours, theirs in zip(_sweep(), one, strict=True):
        np.testing.assert_allclose(ours[row, column], theirs, rtol=1e-5)


def test_front_has_no_fleet_that_another_beats():
    sweep = _sweep()
    kept = front(sweep)
    met = np.asarray(sweep.met)
    usd, rate = np.asarray(sweep.usd_per_hour), np.asarray(sweep.capacity_per_s)
    assert met[kept[0]]
    assert usd[kept[0]] == usd[met].min()
    for at in kept:
        assert not (met & (usd < usd[at]) & (rate >= rate[at])).any()


def test_nothing_within_the_limits_has_no_best():
    hopeless = _sweep(limits=Limits(1e-6, 1e-6))
    assert front(hopeless) == []


def test_other_fleets_compile_nothing():
    _sweep()
    with jax.no_tracing():
        disagg_sweep(preset("a10g"), preset("h100"), *MOST, LOAD._replace(rate_per_s=3), Limits(1, 2.0), CONSTANTS)


def test_the_reference_has_latencies_that_no_count_changes():
    few, many = (_estimate(n, n, rules=FLEET_REFERENCE) for n in (1.0, 50.0))
    assert float(few.ttft_s) == float(many.ttft_s)
    assert float(few.tpot_s) == float(many.tpot_s)
    ours = _estimate(50.0, 50.0)
    assert float(many.capacity_per_s) > 0
    assert float(ours.tpot_s) < float(many.tpot_s)  # it runs every slot whatever comes


def test_a_mixture_of_lengths_has_a_longer_tail_than_its_mean():
    mixed = Lengths(np.array([500.0, 8000.0]), np.array([200.0, 200.0]), np.array([0.8, 0.2]))
    even = _even(2000.0, 200.0)
    slow, usual = (_estimate(8.0, 40.0, LOAD._replace(lengths=law)) for law in (mixed, even))
    assert float(slow.ttft_s) > 1.5 * float(usual.ttft_s)


def test_gradient_of_tpot_in_the_decode_replicas():
    slope = float(jax.grad(lambda count: _estimate(4.0, count).tpot_s)(20.0))
    difference = float(_estimate(4.0, 20.5).tpot_s - _estimate(4.0, 19.5).tpot_s)
    assert slope == pytest.approx(difference, rel=0.01)


def test_kinds_of_replica_go_by_vmap():
    kinds = stacked([preset("h100"), preset("a100"), preset("a10g")])
    pairs = jax.vmap(
        lambda decode: disagg_estimate(
            preset("h100"), decode, 4.0, 20.0, LOAD, LIMITS, CONSTANTS, rules=FLEET_REFERENCE
        )
    )(kinds)
    alone = _estimate(4.0, 20.0, rules=FLEET_REFERENCE)
    np.testing.assert_allclose(pairs.tpot_s[1], alone.tpot_s, rtol=1e-5)
    assert pairs.usd_per_hour.shape == (3,)


def test_a_faster_gpu_answers_faster():
    fast = dataclasses.replace(preset("a100"), base_s=preset("a100").base_s / 2)
    found = disagg_estimate(preset("h100"), fast, 4.0, 20.0, LOAD, LIMITS, CONSTANTS)
    assert float(found.tpot_s) < float(_estimate(4.0, 20.0).tpot_s)
