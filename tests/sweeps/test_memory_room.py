# SPDX-License-Identifier: Apache-2.0
"""The memory verdict solved for the step is the verdict of every point."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.explore import SearchRequest
from aicjax.explore.roles import deploy, worker
from aicjax.forward.memory import Verdict, WorkerMemory
from aicjax.forward.memory_room import step_rooms, step_size
from aicjax.models import Parallel

BACKENDS = ("trtllm", "sglang", "vllm")
LAYOUTS = (Parallel(), Parallel(tp=2, pp=2), Parallel(tp=8))
BATCHES = np.array([1, 2, 3, 7, 16, 100, 513, 1024])
BUDGETS = np.array([1, 5, 64, 1000, 1024, 4096, 16384])
MARGIN_BYTES = 1.0  # the verdict adds up some 1e11 bytes, of which the last digit is 1e-5


@functools.cache
def memory(backend: str, nextn: int) -> WorkerMemory:
    request = SearchRequest(model_path="Qwen/Qwen3-32B", system="h200_sxm", nextn=nextn, nextn_accepted=0.5 * nextn)
    return worker(deploy(request, "agg", backend), LAYOUTS).memory


def verdicts(memory: WorkerMemory, isl: int, osl: int, fraction: float | None) -> np.ndarray:
    """Verdict of every point as `step_rooms` has it [layout, batch, ctx]."""
    size = step_size(BATCHES[:, None], isl, BUDGETS, memory.nextn)
    fits, cached = (
        (size.rows <= room.rows[..., None]) & (size.drafted <= room.drafted[..., None])
        for room in step_rooms(memory, BATCHES, isl, osl, fraction)
    )
    return np.where(fits, np.where(cached, Verdict.FITS, Verdict.KV_DOES_NOT_FIT), Verdict.DOES_NOT_FIT)


def inflight(memory: WorkerMemory, isl: int, osl: int, fraction: float | None):
    batch, ctx = (axis.ravel() for axis in np.meshgrid(BATCHES, BUDGETS, indexing="ij"))
    return memory.inflight(batch, isl, osl, ctx, kv_fraction=fraction)


def on_grid(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(LAYOUTS), len(BATCHES), len(BUDGETS))


def assert_same(memory: WorkerMemory, isl: int, osl: int, fraction: float | None) -> np.ndarray:
    expected = on_grid(inflight(memory, isl, osl, fraction).verdict)
    np.testing.assert_array_equal(verdicts(memory, isl, osl, fraction), expected)
    return expected


LENGTHS = st.one_of(st.integers(1, 40), st.integers(1, 40_000))
FRACTIONS = st.one_of(st.none(), st.sampled_from([0.01, 0.2, 0.5, 0.9, 1.0]))


@given(st.sampled_from(BACKENDS), st.integers(0, 3), LENGTHS, LENGTHS, FRACTIONS)
def test_every_point_has_the_verdict_of_the_memory_model(backend, nextn, isl, osl, fraction):
    assert_same(memory(backend, nextn), isl, osl, fraction)


@given(
    st.sampled_from(BACKENDS),
    st.sampled_from([0, 1, 3]),
    LENGTHS,
    st.integers(1, 5000),
    FRACTIONS,
    st.integers(0, len(LAYOUTS) * len(BATCHES) * len(BUDGETS) - 1),
    st.sampled_from([-MARGIN_BYTES, MARGIN_BYTES]),
)
def test_a_gpu_that_a_point_just_fills_is_full(backend, nextn, isl, osl, fraction, point, margin):
    """The capacity is what one point takes, and a byte more or less: that point and all others have their verdict."""
    known = memory(backend, nextn)
    taken = np.broadcast_to(
        inflight(known, isl, osl, fraction).total_bytes, (len(LAYOUTS), BATCHES.size * BUDGETS.size)
    )
    just = dataclasses.replace(known, capacity_bytes=float(taken.ravel()[point]) + margin)
    found = assert_same(just, isl, osl, fraction).ravel()[point]
    assert (found == Verdict.DOES_NOT_FIT) == (margin < 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nextn", [0, 2])
def test_all_three_verdicts_occur(backend, nextn):
    found = assert_same(memory(backend, nextn), 8000, 1000, 0.5)
    assert set(np.unique(found)) == {Verdict.FITS, Verdict.KV_DOES_NOT_FIT, Verdict.DOES_NOT_FIT}


def test_activations_at_their_floor_are_bounded_by_the_share_of_drafts():
    """A small step keeps the floor, which drafts multiply: room for half of them leaves out the steps that decode."""
    known = memory("vllm", 2)
    floor = known.constants.activation_floor_bytes * (1 + known.constants.activation_overhead)
    fixed = known.weights_bytes[0] + known.nccl_bytes[0] + known.others_bytes + known.kv_curve.bytes(20)[0, 0] * 2
    just = dataclasses.replace(known, capacity_bytes=float(fixed + floor * (1 + 2 * 0.5) + MARGIN_BYTES))
    room, _ = step_rooms(just, [2], 10, 10, 1.0)
    assert room.drafted[0, 0] == pytest.approx(0.5)
    assert_same(just, 10, 10, 1.0)
