# SPDX-License-Identifier: Apache-2.0
"""Queueing in closed form: Erlang's C, waits, least replicas, shares of lengths, moments of service, availability."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots, parse_knots, share
from aicjax.fleet.erlang import erlang_c
from aicjax.fleet.failures import availability
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.reference_draws import reference_bins, reference_draws
from aicjax.fleet.reference_queueing import LEAST_CV2, reference_replicas
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import mean_prefill_s, moments, service_law
from aicjax.fleet.waiting import kimura_wait, wait_quantile_s
from benchmarks.fleet_cases import Row, columns, profile_of
from benchmarks.fleet_cases.builder import built

_QUANTILE = 0.99
_HOURS_PER_DAY = 24.0
_TINY = 1e-10  # probabilities below agree absolutely
_ROUNDED = 2e-6  # relative error from inputs rounded once, above which a wait is sensitive
_OUTPUT_SHARE = 0.20
_MOST_SHORT = 1.0 - 1e-6  # share of the short pool of a split


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every table of the file."""
    servers, offered, stored = columns(answers["erlang_c"])
    found = np.asarray(jax.jit(jax.vmap(erlang_c))(servers, offered))
    large = stored > _TINY
    yield Row("erlang_c", found[large], stored[large])
    yield Row("erlang_c, small", found[~large], stored[~large], "absolute", _TINY)
    yield from _waits(answers["p99_wait"])
    rate, replica_rate, limit, cv2, count, rho_max, stored = columns(answers["min_gpus"])
    target = Target(limit, np.full_like(limit, _QUANTILE), rho_max, np.full_like(limit, np.inf))
    found = jax.jit(jax.vmap(reference_replicas))(rate, replica_rate, cv2, count, target)
    yield Row("min_gpus", np.asarray(found), stored, "exact")
    knots = {name: parse_knots(table, name) for name, table in answers["cdfs"].items()}
    for name, tokens, stored in answers["cdf_eval"]:
        yield Row(f"share of {name} to {tokens}", share(knots[name], float(tokens)), stored, "absolute")
    for stated in answers["calibrate"]:
        yield from _calibrations(knots[stated["cdf"]], answers, stated)
    for stated in answers["split_cdf"]:
        yield from _splits(knots[stated["cdf"]], stated)
    failures, hours, stored = columns(answers["node_availability"])
    between = np.divide(_HOURS_PER_DAY, failures, out=np.full_like(failures, np.inf), where=failures > 0)
    yield Row("node availability", availability(between, hours), stored)


def _waits(table: list[list[Any]]) -> Iterator[Row]:
    """P99 of the wait for each row of servers, rate, rate of a server and variability.

    Near overload a rounded rate moves the wait more than 1e-5 in float32: such rows are apart, at what rounding does.
    """
    *inputs, stored = columns(table)
    inputs = [jnp.asarray(column, float) for column in inputs]

    def wait(servers: jax.Array, rate: jax.Array, server_rate: jax.Array, cv2: jax.Array) -> jax.Array:
        return wait_quantile_s(kimura_wait(servers, rate, 1.0 / server_rate, cv2), _QUANTILE)

    found = np.asarray(jax.jit(jax.vmap(wait))(*inputs))
    slopes = jax.jit(jax.vmap(jax.grad(wait, argnums=(0, 1, 2, 3))))(*inputs)
    moved = sum(np.abs(slope * value) for slope, value in zip(slopes, inputs, strict=True))
    some = np.isfinite(stored) & (stored > 0)
    rounded = np.finfo(found.dtype).eps * np.where(some, moved, 0.0) / np.where(some, stored, 1.0)
    sensitive = rounded > _ROUNDED
    yield Row("p99_wait", found[~sensitive], stored[~sensitive])
    if sensitive.any():
        tolerance = float(rounded.max())
        yield Row("p99_wait, sensitive", found[sensitive], stored[sensitive], tolerance=tolerance)


def _calibrations(knots: Knots, answers: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Row]:
    """Moments of a pool from the reference's draws, and exact."""
    profile = _profile(answers, stated["gpu"])
    limit, lowest = stated["pool_max"], stated["lo_clamp"]
    count = int(slots(profile, limit))
    for name, law_of in (("mc3000_seed42", reference_draws), ("exact", reference_bins)):
        law = service_law(profile, law_of(knots, limit, lowest), limit, rules=FLEET_REFERENCE)
        mean_s, cv2 = moments(law)
        found = [count / mean_s, jnp.maximum(cv2, LEAST_CV2), count, mean_prefill_s(law)]
        stored = [stated[name][key] for key in ("mu_gpu", "cv2", "n_slots", "mean_prefill_s")]
        yield Row(f"calibrate {stated['cdf']} to {limit}, {profile.name}: {name}", np.asarray(found, float), stored)


def _profile(answers: Mapping[str, Any], gpu: str | Mapping[str, Any]) -> Profile:
    if isinstance(gpu, str):
        return profile_of(answers, gpu)
    return built(gpu["hw"], gpu["model"], gpu["cfg"], load_fleet_constants())


def _splits(knots: Knots, stated: Mapping[str, Any]) -> Iterator[Row]:
    """Lengths below and above a threshold, and mean output tokens of both."""
    threshold, label = stated["b_short"], f"split {stated['cdf']} at {stated['b_short']}"
    below = min(float(share(knots, float(threshold))), _MOST_SHORT)
    short = [[t, f / below] for t, f in zip(knots.tokens, knots.shares, strict=True) if t <= threshold]
    if not short or short[-1][0] < threshold:
        short.append([threshold, 1.0])
    long = [[t, (f - below) / (1 - below)] for t, f in zip(knots.tokens, knots.shares, strict=True) if t > threshold]
    long = [*long[:-1], [long[-1][0], 1.0]] if long else [[threshold + 1, 1.0]]
    yield Row(f"{label}: share", below, stated["alpha"])
    for name, table in (("short", short), ("long", long)):
        yield Row(f"{label}: {name}", np.asarray(table, float), np.asarray(stated[name], float), "absolute")
        yield Row(
            f"{label}: output, {name}", _mean_output(np.asarray(table, float)), stated[f"mean_l_out_{name}"], "exact"
        )
    whole = np.stack([knots.tokens, knots.shares], axis=1)
    yield Row(f"{label}: output", _mean_output(whole), stated["mean_l_out_full"], "exact")


def _mean_output(table: np.ndarray) -> int:
    """Mean output tokens, whole, with every length in the middle of its interval of knots."""
    tokens, shares = table.T
    middle = (tokens + np.append(0.0, tokens[:-1])) / 2.0
    return int(_OUTPUT_SHARE * np.sum(middle * np.diff(shares, prepend=0.0)))
