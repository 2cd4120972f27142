# SPDX-License-Identifier: Apache-2.0
"""Iterations, slots and service of a replica: stated points, limits, and where the fleet reference differs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.fleet.presets import manual_profile, preset, preset_names
from aicjax.fleet.profile import (
    Profile,
    first_token_s,
    fitted,
    iteration_s,
    mean_context,
    prefill_iteration_s,
    running_context,
    service_s,
    slots,
    stacked,
    throughput_per_s,
)
from aicjax.fleet.rules import FLEET_REFERENCE

FLOAT32 = 1e-5


_chunk_s, _first_token_s = jax.jit(prefill_iteration_s), jax.jit(first_token_s)


def _bound(profile: Profile, token_s: float, pair_s: float) -> Profile:
    return dataclasses.replace(profile, prefill_token_s=token_s, prefill_pair_s=pair_s)


def test_iteration_grows_with_requests_and_their_context():
    a100 = preset("a100")
    assert float(iteration_s(a100, 0)) == pytest.approx(0.008, rel=FLOAT32)
    assert float(iteration_s(a100, 128)) == pytest.approx(0.008 + 128 * 0.00065, rel=FLOAT32)
    assert float(iteration_s(a100, 128, 2048)) == pytest.approx(0.008 + 128 * 0.00065 / 4, rel=FLOAT32)


@pytest.mark.parametrize(("key", "context", "count"), [("a100", 8192, 128), ("h100", 8192, 128), ("a10g", 6144, 85)])
def test_slots_are_the_smaller_of_room_and_limit(key: str, context: int, count: int):
    assert int(slots(preset(key), context)) == count


def test_limits_of_the_h100_preset_differ_at_its_calibration_context():
    h100 = preset("h100")
    room, limit = h100.kv_blocks // (8192 // h100.block_tokens), h100.max_slot_tokens // 8192
    assert (room, limit) == (128, 256)


@pytest.mark.parametrize(("context", "isl", "osl", "per_s"), [(8192, 1280, 320, 16.34), (65536, 12000, 3000, 0.196)])
def test_throughput_under_the_rules_of_the_reference(context: int, isl: int, osl: int, per_s: float):
    # where the table of the reference's documents has 49 and "about 1"
    found = float(throughput_per_s(preset("a100"), isl, osl, context, FLEET_REFERENCE))
    assert found == pytest.approx(per_s, rel=0.02)


def test_service_counts_the_first_token_once_and_the_mean_context():
    a100 = preset("a100")
    isl, osl, context = 1000, 101, 8192
    mean = (2 * 500.0 + 100 * (1000 + 101 / 2)) / 102
    assert float(mean_context(isl, osl, 512)) == pytest.approx(mean, rel=FLOAT32)
    step = 0.008 + 128 * 0.00065 * mean / 8192
    assert float(service_s(a100, isl, osl, context)) == pytest.approx((2 + 100) * step, rel=FLOAT32)
    final = 0.008 + 128 * 0.00065 * 1101 / 8192
    reference = service_s(a100, isl, osl, context, rules=FLEET_REFERENCE)
    assert float(reference) == pytest.approx((2 + 101) * final, rel=FLOAT32)


@pytest.mark.parametrize(("token_us", "pair_ns"), [(0.0, 0.0), (40.0, 0.0), (1.0, 30.0), (0.0, 500.0)])
def test_first_token_is_the_sum_of_its_chunks(token_us: float, pair_ns: float):
    profile, isl = _bound(preset("a100"), token_us * 1e-6, pair_ns * 1e-9), np.arange(1.0, 5000.0, 7.0)
    done = np.arange(0.0, 5000.0, 512.0)[:, None]
    sizes = np.clip(isl - done, 0.0, 512.0)
    with jax.enable_x64(True):
        chunks = _chunk_s(profile, 64, 900.0, done, sizes)
        found = _first_token_s(profile, isl, 64, 900.0)
    np.testing.assert_allclose(found, np.where(sizes > 0, chunks, 0.0).sum(axis=0), rtol=1e-12)


def test_partial_chunk_costs_what_it_holds():
    profile = _bound(preset("a100"), 1e-4, 0.0)  # arithmetic decides
    assert float(first_token_s(profile, 513, 1)) == pytest.approx(512e-4 + 0.00865, rel=1e-4)
    whole = service_s(profile, 513, 1, 8192, rules=FLEET_REFERENCE) - iteration_s(profile, 128, 514)
    assert float(whole) == pytest.approx(2 * 512e-4, rel=0.1)


def test_long_requests_weigh_more_in_the_context_that_runs():
    isl, osl, weight = np.array([400.0, 1600.0, 5000.0]), np.array([100.0, 400.0, 800.0]), np.array([0.5, 0.4, 0.1])
    even = float(np.dot(weight, mean_context(isl, osl, 512)))
    assert float(running_context(isl, osl, weight, 512)) > 1.5 * even
    one = running_context(np.array([1000.0]), np.array([200.0]), np.ones(1), 512)
    assert float(one) == pytest.approx(float(mean_context(1000, 200, 512)), rel=1e-6)


def test_smooth_service_has_the_gradient_of_differences():
    profile = preset("a100")
    names = ("base_s", "per_sequence_s", "calibration_tokens", "kv_blocks")
    at = np.array([getattr(profile, name) for name in names])

    @jax.jit
    def total(numbers: jax.Array) -> jax.Array:
        changed = dataclasses.replace(profile, **dict(zip(names, numbers, strict=True)))
        return service_s(changed, 1500.0, 300.0, 6000.0, whole=False)

    with jax.enable_x64(True):
        slopes = jax.grad(total)(jnp.asarray(at))
        steps = np.diag(at * 1e-5)
        differences = [float(total(at + step) - total(at - step)) / (2 * step.sum()) for step in steps]
    np.testing.assert_allclose(slopes, differences, rtol=1e-5)


def test_gradients_are_finite_without_limits():
    profile = dataclasses.replace(preset("a100"), max_slot_tokens=float("inf"))
    slope = jax.jit(jax.grad(lambda context: service_s(profile, 1500.0, 300.0, context, whole=False)))(6000.0)
    assert np.isfinite(slope)
    assert slope < 0


def test_slots_fall_with_the_context():
    counts = np.asarray(slots(preset("h100"), np.arange(1, 100_000, 3)))
    assert (np.diff(counts) <= 0).all()


def test_stacked_profiles_answer_as_each_alone():
    keys = preset_names()
    together = jax.vmap(lambda profile: service_s(profile, 1000, 200, 8192))(stacked([preset(key) for key in keys]))
    alone = [float(service_s(preset(key), 1000, 200, 8192)) for key in keys]
    np.testing.assert_allclose(together, alone, rtol=FLOAT32)


def test_another_profile_compiles_nothing():
    served = jax.jit(lambda profile, isl: service_s(profile, isl, 200.0, 8192.0))
    isl = jnp.arange(1.0, 9.0)
    served(dataclasses.replace(preset("a100"), name=""), isl)
    with jax.no_tracing():
        served(dataclasses.replace(preset("h100"), power=preset("a100").power, name=""), isl)


@given(st.floats(0.001, 0.1), st.floats(1e-5, 1e-2), st.integers(1, 60), st.integers(61, 400), st.floats(100, 20_000))
def test_two_points_give_back_the_profile(base: float, per_sequence: float, n1: int, n2: int, context: float):
    with jax.enable_x64(True):
        known = dataclasses.replace(preset("a100"), base_s=base, per_sequence_s=per_sequence)
        times = [float(iteration_s(known, n, context)) for n in (n1, n2)]
        found = fitted(preset("a100"), (n1, n2), (times[0], times[1]), context)
    assert found.base_s == pytest.approx(base, rel=1e-6)
    assert found.per_sequence_s == pytest.approx(per_sequence, rel=1e-6)


@pytest.mark.parametrize(
    ("running", "measured", "argument"),
    [((4, 4), (0.01, 0.02), "running"), ((1, 4), (0.02, 0.01), "measured_s"), ((1, 4), (0.01, 0.08), "measured_s")],
)
def test_two_points_that_fix_no_profile_are_refused(
    running: tuple[float, float], measured: tuple[float, float], argument: str
):
    with pytest.raises(InputError, match=argument):
        fitted(preset("a100"), running, measured, 2000.0)


@pytest.mark.parametrize(
    "bad", [{"base_s": -0.1}, {"chunk_tokens": 0}, {"kv_blocks": 0}, {"base_s": 0.0, "per_sequence_s": 0.0}]
)
def test_profiles_that_no_replica_has_are_refused(bad: dict[str, float]):
    facts: dict = {"base_s": 0.01, "per_sequence_s": 0.001, "price_per_hour": 1.0, **bad}
    with pytest.raises(InputError, match=next(iter(bad))):
        manual_profile("odd", **facts)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(InputError, match="did you mean h100"):
        preset("h10O")
