# SPDX-License-Identifier: Apache-2.0
"""Gradients of step times in hardware, constants and measured latencies, against central differences.

The loss is the mean of the logarithms of all totals of the layouts that have data, so that every coordinate counts
alike. Its coordinates lie on measured points, between them, on the last ones and beyond them; one layout runs an
operator without data, which must not reach the gradients of the others.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.forward import step_queries, step_times
from aicjax.forward.bound import PARTS
from aicjax.forward.steps import BoundArrays
from aicjax.ops.roofline import DTYPES
from tests.forward.bound_models import bind_lists, lists, without_data

STEP = 2.0**-7  # relative; a change of the loss of a unit slope is then 10^4 float32 roundings
SLOPE = 2e-3  # error of a difference: the square of the step, and roundings over it
FINITE = (0, 1, 3)  # layouts with data
QUERIES = step_queries(
    context_batch=[1, 1, 1, 1, 2], context_new=[1, 100, 16384, 32768, 30000], context_prefix=0,
    prefill_batch=[1, 3, 8, 300], prefill_new=[512, 1000, 16384, 40000], prefill_prefix=[0, 24, 0, 700],
    generation_rows=[1, 48, 256, 5000],
    decode_rows=[1, 7, 512, 3000], decode_length=[129, 4000, 1025, 200000],
)  # fmt: skip


def tables(arrays: BoundArrays) -> dict[str, tuple[Any, ...]]:
    """Latencies that the kernel reads, with the utilisations derived from them when the model was bound."""
    gemm, comm = arrays.tokens.kinds[0].curves, arrays.tokens.kinds[1].curves
    prefill, decode = arrays.context_attention.kinds[0].slices, arrays.generation_attention.kinds[1].slices
    return {
        "gemm": (gemm.latency_ms, gemm.low_utilization, gemm.high_utilization),
        "comm": (comm.latency_ms,),
        "prefill": (prefill.latency_ms, prefill.leaf_utilization),
        "decode": (decode.latency_ms, decode.leaf_utilization),
    }


class Leaves(eqx.Module):
    """What is differentiated."""

    hardware: Any
    extra_factor: Any
    tables: Any


@dataclasses.dataclass(frozen=True)
class Problem:
    loss: Any  # value and gradient of `Leaves`
    leaves: Leaves
    value: float
    gradient: Leaves

    def slope(self, ahead: Leaves, behind: Leaves, step: float) -> float:
        """Central difference."""
        return (float(self.loss(ahead)[0]) - float(self.loss(behind)[0])) / (2 * step)


@pytest.fixture(scope="module")
def problem() -> Problem:
    model = bind_lists([*lists()[:2], without_data(lists()[2]), lists()[3]])
    arrays = jax.tree.map(jnp.asarray, model.arrays)

    @jax.jit
    @jax.value_and_grad
    def loss(leaves: Leaves):
        read = eqx.tree_at(lambda a: a.hardware, arrays, leaves.hardware)
        read = eqx.tree_at(lambda a: jax.tree.leaves(tables(a)), read, jax.tree.leaves(leaves.tables))
        constants = eqx.tree_at(lambda c: c.context_attention_extra_factor, model.constants.op, leaves.extra_factor)
        times = step_times(read, QUERIES, constants)
        totals = jnp.concatenate([getattr(times, part).total_ms[np.array(FINITE)] for part in PARTS[:4]], 1)
        return jnp.mean(jnp.log(totals))

    factor = jnp.float32(model.constants.op.context_attention_extra_factor)
    leaves = Leaves(arrays.hardware, factor, tables(arrays))
    value, gradient = loss(leaves)
    return Problem(loss, leaves, float(value), gradient)


def test_gradients_are_finite_in_all_that_is_known(problem: Problem):
    """Of the slice that nobody measured, whose utilisations are zeros, nothing is asked."""
    assert np.isfinite(problem.value)
    leaves = jax.tree_util.tree_leaves_with_path(problem.gradient)
    for (path, gradient), leaf in zip(leaves, jax.tree.leaves(problem.leaves), strict=True):
        known = np.isfinite(leaf) & (leaf != 0) | (np.ndim(leaf) == 0)
        assert np.isfinite(gradient)[known].all(), jax.tree_util.keystr(path)
    assert np.isfinite(problem.gradient.hardware.peak).all()


SCALARS = {
    "mem_bw": lambda leaves: leaves.hardware.mem_bw,
    "mem_bw_scaling": lambda leaves: leaves.hardware.mem_bw_scaling,
    "mem_latency_ms": lambda leaves: leaves.hardware.mem_latency_ms,
    "peak": lambda leaves: leaves.hardware.peak,
    "extra_factor": lambda leaves: leaves.extra_factor,
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_in_hardware_and_constants_match_differences(problem: Problem, name: str):
    where = SCALARS[name]
    ahead, behind = (eqx.tree_at(where, problem.leaves, replace_fn=lambda x, s=s: x * (1 + s)) for s in (STEP, -STEP))
    slope = problem.slope(ahead, behind, STEP)
    with np.errstate(invalid="ignore"):
        share = float(np.nansum(np.asarray(where(problem.gradient)) * np.asarray(where(problem.leaves))))
    assert slope != 0
    assert share == pytest.approx(slope, rel=SLOPE, abs=SLOPE / 100)


def slower(values: tuple, by: float) -> tuple:
    """A table `by` times slower: latencies up, utilisations down."""
    latency, *utilizations = values
    return latency * by, *[utilization / by for utilization in utilizations]


@pytest.mark.parametrize("name", ["gemm", "comm", "prefill", "decode"])
def test_gradients_in_measured_latencies_match_differences(problem: Problem, name: str):
    def where(leaves: Leaves):
        return leaves.tables[name]

    ahead, behind = (eqx.tree_at(where, problem.leaves, slower(where(problem.leaves), 1 + s)) for s in (STEP, -STEP))
    slope = problem.slope(ahead, behind, STEP)
    latency, *utilizations = zip(where(problem.gradient), where(problem.leaves), strict=True)
    share = np.nansum(latency[0] * latency[1]) - sum(np.nansum(g * x) for g, x in utilizations)
    assert 0 < slope < 1
    assert float(share) == pytest.approx(slope, rel=SLOPE, abs=SLOPE / 100)


def test_slower_hardware_never_shortens_a_step(problem: Problem):
    gradient = problem.gradient
    assert gradient.hardware.mem_bw < 0
    assert gradient.hardware.mem_latency_ms > 0
    assert (np.asarray(gradient.hardware.peak) <= 0).all()
    assert gradient.extra_factor > 0


def test_only_the_peaks_in_use_count(problem: Problem):
    """The system states no peak for FP4 at all; no NaN of it reaches a gradient."""
    gradient = dict(zip(DTYPES, np.asarray(problem.gradient.hardware.peak).tolist(), strict=True))
    assert gradient.pop("fp8") < 0
    assert set(gradient.values()) == {0.0}
