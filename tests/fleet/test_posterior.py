# SPDX-License-Identifier: Apache-2.0
"""Iteration times and their uncertainty from measurements, against sums over a grid and against many measurements."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.posterior import Measured, drawn_profiles, times_posterior
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import iteration_s

inferred = jax.jit(times_posterior)
PROFILE = dataclasses.replace(preset("a100"), name="")
TRUE = dataclasses.replace(PROFILE, base_s=0.011, per_sequence_s=4.1e-4)
ERROR = 0.08


def measured(repeats: int) -> Measured:
    running = np.tile([1.0, 4.0, 16.0, 64.0, 128.0], repeats)
    context = np.full(running.shape, 4096.0)
    noise = np.exp(ERROR * np.random.default_rng(7).normal(size=running.shape))
    times_s = np.asarray(iteration_s(TRUE, running, context)) * noise
    return Measured(*(jnp.asarray(values, float) for values in (running, context, times_s)))


def test_many_measurements_find_the_truth_and_its_error():
    mean = np.exp(inferred(PROFILE, measured(160), 1.0, 0.2).mean)
    np.testing.assert_allclose(mean, [TRUE.base_s, TRUE.per_sequence_s, ERROR], rtol=0.07)


def test_uncertainty_falls_with_the_root_of_the_number():
    few, many = (inferred(PROFILE, measured(n), 1.0, 0.1) for n in (10, 160))
    ratio = np.sqrt(np.diag(few.covariance) / np.diag(many.covariance))
    np.testing.assert_allclose(ratio, 4.0, rtol=0.15)


def test_agrees_with_a_sum_over_the_posterior():
    data, spread, error = measured(10), 0.5, 0.1
    found = inferred(PROFILE, data, spread, error)
    centre = np.log([PROFILE.base_s, PROFILE.per_sequence_s, error])
    width = np.array([spread, spread, 1.0])
    steps = 5 * np.sqrt(np.diag(found.covariance))[:, None] * np.linspace(-1, 1, 41)
    logs = np.stack(np.meshgrid(*(np.asarray(found.mean)[:, None] + steps), indexing="ij"), axis=-1).reshape(-1, 3)
    w, h, sigma = np.exp(logs).T[..., None]
    expected = w + h * np.asarray(data.running) * 4096 / PROFILE.calibration_tokens
    off = (np.log(data.time_s) - np.log(expected)) / sigma
    density = (
        -(off**2).sum(axis=1) / 2 - len(data.time_s) * logs[:, 2] - (((logs - centre) / width) ** 2).sum(axis=1) / 2
    )
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    mean = weight @ logs
    deviation = np.sqrt(weight @ (logs - mean) ** 2)
    off = np.abs(np.asarray(found.mean) - mean) / deviation
    assert np.all(off < [0.05, 0.05, 0.4])  # the error's law is skew: its mode lies below its mean
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), deviation, rtol=0.25)


def test_draws_vary_as_the_posterior_says_and_keep_the_rest():
    posterior = inferred(PROFILE, measured(10), 1.0, 0.1)
    draws = drawn_profiles(jax.random.key(3), posterior, PROFILE, 4000)
    logs = np.log(np.stack([draws.base_s, draws.per_sequence_s]))
    np.testing.assert_allclose(np.cov(logs), posterior.covariance[:2, :2], rtol=0.1)
    assert np.ptp(np.asarray(draws.kv_blocks)) == 0
    assert draws.kv_blocks[0] == pytest.approx(PROFILE.kv_blocks)
