# SPDX-License-Identifier: Apache-2.0
"""Step times on other hardware: measured latencies move with their rooflines, formulas with themselves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.constants import traced
from aicjax.forward import scaled_step_times, step_queries, step_times
from aicjax.forward.bound import PARTS
from aicjax.ops.roofline import Hardware
from tests.forward.bound_models import bound

QUERIES = step_queries(
    context_batch=1, context_new=[100, 4096, 30000], context_prefix=0, prefill_batch=[1, 3], prefill_new=[1000, 40000],
    prefill_prefix=[24, 0], generation_rows=[1, 48, 5000], decode_rows=[7, 3000], decode_length=[4000, 200000],
)  # fmt: skip


@eqx.filter_jit
def scaled(arrays, constants, hardware, roofline=False):
    return scaled_step_times(arrays, QUERIES, constants, hardware, roofline=roofline)


def totals(times) -> list[np.ndarray]:
    return [np.asarray(getattr(times, part).total_ms) for part in PARTS]


def test_same_hardware_is_the_same_time():
    model = bound()
    constants = traced(model.constants.op)
    got = scaled(model.arrays, constants, model.arrays.hardware)
    want = jax.jit(step_times)(model.arrays, QUERIES, constants)
    for part, same in zip(totals(got), totals(want), strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-6)
    np.testing.assert_array_equal(got.tokens.provenance, want.tokens.provenance)


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
def test_all_of_it_faster_is_faster_by_as_much(factor: float):
    """Whatever the tables answered with: points, curves between them, or utilisation beyond."""
    model = bound()
    was = model.arrays.hardware
    faster = Hardware(
        was.mem_bw * factor, was.mem_bw_scaling, was.mem_latency_ms / factor, was.peak * factor, was.link_bw * factor,
        was.p2p_latency_ms / factor,
    )  # fmt: skip
    faster = jax.tree.map(np.asarray, faster)
    constants = traced(model.constants.op)
    before, after = (totals(scaled(model.arrays, constants, hardware)) for hardware in (was, faster))
    for slow, fast in zip(before, after, strict=True):
        np.testing.assert_allclose(fast, slow / np.float32(factor), rtol=1e-5)


def test_rooflines_are_those_of_a_system_that_has_the_numbers():
    model = bound(mode="SOL")
    faster = eqx.tree_at(lambda h: h.mem_bw, model.arrays.hardware, model.arrays.hardware.mem_bw * np.float32(1.7))
    constants = traced(model.constants.op)
    got = scaled(model.arrays, constants, faster, roofline=True)
    rebound = eqx.tree_at(lambda a: a.hardware, model.arrays, faster)
    want = jax.jit(step_times, static_argnames="roofline")(rebound, QUERIES, constants, roofline=True)
    for part, same in zip(totals(got), totals(want), strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-5)


def test_slope_of_a_measured_point_is_not_zero():
    """Through the tables alone it would be: what was measured does not know the hardware."""
    model = bound()
    constants, arrays = traced(model.constants.op), jax.tree.map(jnp.asarray, model.arrays)

    def log_ms(step, hardware):
        return jnp.log(step(hardware).generation_rest.total_ms[0, 1])

    def by_tables(hardware):
        return step_times(eqx.tree_at(lambda a: a.hardware, arrays, hardware), QUERIES, constants)

    def by_roofline(hardware):
        return scaled_step_times(arrays, QUERIES, constants, hardware)

    was = arrays.hardware
    tables, roofline = (
        float(jax.jit(jax.grad(lambda h, step=step: log_ms(step, h)))(was).mem_bw * was.mem_bw)
        for step in (by_tables, by_roofline)
    )
    assert -0.5 < tables < 0.0  # of memory traffic, whose latency is a formula, and of shapes without a measurement
    assert roofline == pytest.approx(-1.0, abs=0.1)
