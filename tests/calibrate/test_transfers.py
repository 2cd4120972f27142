# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for missing tables, on hand-made tables whose answers are known."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax import quant
from aicjax.calibrate.measured_curves import CurveTable, Place
from aicjax.calibrate.repeats import repeat_errors
from aicjax.calibrate.transfers import (
    _formats,
    nearest_shape_latency,
    on_curves_of,
    transfer_errors,
    two_point_latency,
)
from aicjax.hardware import load_system
from tests import strategies
from tests.oracles import estimate as oracle

KNOTS = 8
NOWHERE = Place(cast(Any, None), "vllm", "1")


def table(form: str, sites, ranks, latency_ms, sol_ms) -> CurveTable:
    knots = 2.0 ** np.arange(np.shape(latency_ms)[1])
    latency, sol = np.array(latency_ms, float), np.broadcast_to(np.array(sol_ms, float), np.shape(latency_ms))
    return CurveTable("moe", NOWHERE, form, np.array(sites, float), np.array(ranks, float), knots, latency, sol)


@settings(max_examples=20)
@given(strategies.knots(KNOTS, 4096), strategies.latencies(1, KNOTS), st.integers(0, KNOTS - 1))
def test_two_nearest_points_equal_the_estimate_without_the_point(knots, latency, at):
    sol = knots[None]
    predicted = two_point_latency(knots, latency, sol)[0, at]
    rest = {(float(x),): float(x / y) for x, y in zip(knots, latency[0], strict=True) if x != knots[at]}
    inside = knots[0] < knots[at] < knots[-1]
    if inside:  # beyond its points an estimate counts as being at their end
        assert predicted == pytest.approx(knots[at] / oracle.utilization(rest, (float(knots[at]),)), rel=1e-6)


def test_nearest_shape_lends_its_utilisation_within_its_ranks():
    sites, ranks = [[8, 64], [8, 100], [8, 4096], [8, 64]], [[1, 1], [1, 1], [1, 1], [2, 1]]
    moe = table("fp8 balanced", sites, ranks, [[2.0], [4.0], [16.0], [1.0]], [[1.0], [3.0], [8.0], [1.0]])
    predicted = nearest_shape_latency(moe)[:, 0]
    assert predicted[:3].tolist() == pytest.approx([1 / 0.75, 3 / 0.5, 8 / 0.75])
    assert np.isnan(predicted[3])  # alone with its ranks


def test_formats_lend_to_formats_by_profile():
    one = ([[8, 64]], [[1, 1]])
    fp8 = table("fp8 balanced", *one, [[2.0, 4.0]], [[1.0, 1.0]])
    block = table("fp8_block balanced", *one, [[3.0, 4.0]], [[1.0, 1.0]])
    wide = table("bfloat16 balanced", *one, [[8.0, 8.0]], [[2.0, 2.0]])
    found = {(e.form, e.kind): e.log_ratio.tolist() for e in _formats([fp8, block, wide], NOWHERE, quant.MOE)}
    assert found["fp8 balanced", "xquant"] == pytest.approx([np.log(1.5), 0.0])
    assert found["fp8_block balanced", "xquant"] == pytest.approx([np.log(2 / 3), 0.0])
    # At a quarter of the roofline, times how much better 8 bits run than 16: 0.40 / 0.53 of it.
    assert found["fp8 balanced", "xprofile"] == pytest.approx(np.log([2.0, 1.0]) - np.log(0.40 / 0.53))
    assert ("bfloat16 balanced", "xquant") not in found


def test_curves_of_another_table_come_in_the_order_of_ones_own():
    own = table("fp8 balanced", [[8, 64], [8, 128]], [[1, 1], [1, 1]], [[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]])
    other = table("fp8 balanced", [[8, 128], [8, 32]], [[1, 1], [1, 1]], [[7.0, 8.0], [9.0, 9.0]], [[1.0, 1.0]])
    found = on_curves_of(own, replace(other, knots=np.array([2.0, 4.0])))
    assert np.isnan(found[0]).all()
    assert np.isnan(found[1, 0])
    assert found[1, 1] == 7.0  # two tokens, the lender's first knot


def test_a_measured_system_has_errors_of_every_channel():
    system = load_system("h200_sxm")
    found = {(e.family, e.kind) for e in transfer_errors(system, ("comm", "mla_bmm", "context_mla"))}
    assert {("comm", "other_version"), ("mla_bmm", "empirical"), ("context_mla", "other_backend")} <= found
    products = {e.kind for e in transfer_errors(system, ("gemm",))}
    assert {"xbackend", "repaired", "xquant", "xprofile", "sol"} <= products
    repeated = [e.log_ratio for e in repeat_errors(load_system("a100_sxm"), ("context_attention", "gemm"))]
    assert repeated
    assert max(float(np.median(np.abs(part))) for part in repeated) < 0.1
