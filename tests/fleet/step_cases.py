# SPDX-License-Identifier: Apache-2.0
"""Workloads of step-level simulations, and the plain simulation of the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import NO_LIMIT, StepLimits, StepLoad, StepRun
from aicjax.fleet.step_times import StepTimes
from tests.oracles import step_queue as oracle

FLEETS, REQUESTS, WIDTH = 4, 24, 6

limits = st.builds(
    oracle.Limits,
    slots=st.integers(1, WIDTH),
    kv_blocks=st.integers(4, 60),
    block_tokens=st.integers(1, 16),
    step_tokens=st.integers(WIDTH + 1, 64),
    max_tokens=st.sampled_from([90, NO_LIMIT]),
    queue_cap=st.sampled_from([1, 3, NO_LIMIT]),
    chunked=st.booleans(),
    mixes=st.booleans(),
    resumes=st.booleans(),
    reserves=st.booleans(),
)
clients = st.sampled_from([0, 1, 3, 10])
horizons_s = st.sampled_from([1e6, 0.4])
fleets = st.lists(st.tuples(limits, clients, st.booleans()), min_size=FLEETS, max_size=FLEETS)


def tables(rng: np.random.Generator, *, overlaps: bool = False) -> StepTimes:
    """Step times that do not fall in anything."""

    def rising(*shape: int) -> np.ndarray:
        values = rng.uniform(0.001, 0.01, shape)
        for axis in range(len(shape)):
            values = np.cumsum(values, axis)
        return values

    def real(values: np.ndarray | list[float] | float) -> jax.Array:
        return jnp.asarray(values, jnp.float32)

    return StepTimes(
        running=real([0, 2, 3, 6]),
        context=real([0, 20, 50]),
        decode_s=real(rising(4, 3)),
        tokens=real([0, 10, 64]),
        shared_s=real(rising(3)),
        chunk=real([0, 8, 40, 80]),
        past=real([0, 16, 64]),
        prompt_s=real(rising(4, 3)),
        prompt_host_s=real(rng.uniform(0, 0.003)),
        overlaps=jnp.asarray(overlaps),
    )


def lengths(rng: np.random.Generator, isl: int = 80, osl: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and output tokens [fleet, request]."""
    shape = FLEETS, REQUESTS
    return rng.integers(1, isl + 1, shape).astype(np.int32), rng.integers(1, osl + 1, shape).astype(np.int32)


def stacked(cases: list[oracle.Limits]) -> StepLimits:
    """The limits of several fleets as arrays [fleet]."""
    names = [field.name for field in dataclasses.fields(oracle.Limits)]
    return StepLimits(**{name: jnp.asarray([getattr(case, name) for case in cases]) for name in names})


def both(
    times: StepTimes,
    cases: list[tuple[oracle.Limits, int, bool]],
    isl: np.ndarray,
    osl: np.ndarray,
    gaps_s: np.ndarray,
    horizon_s: float,
    *,
    jumps: bool = True,
) -> tuple[StepRun, StepLoad, StepLimits, list[oracle.Run]]:
    """The run of all fleets at once, and that of each by the plain simulation."""
    known = stacked([case for case, _, _ in cases])
    clients = jnp.asarray([n for _, n, _ in cases], jnp.int32)
    load = StepLoad(*(jnp.asarray(x) for x in (isl, osl, gaps_s)), clients, jnp.asarray([x for _, _, x in cases]))
    run = simulate_steps(times, known, load, horizon_s=horizon_s, width=WIDTH, places=REQUESTS, jumps=jumps)
    step_s = plain_times(times)
    plain = [
        oracle.simulate(step_s, case, isl[i], osl[i], gaps_s[i], n, late, horizon_s)
        for i, (case, n, late) in enumerate(cases)
    ]
    return jax.device_get(run), load, known, plain


def plain_times(times: StepTimes):
    """The step times as the plain simulation takes them."""
    return oracle.tabulated(*(np.asarray(leaf, float) for leaf in jax.tree.leaves(times)[:-2]), *_scalars(times))


def _scalars(times: StepTimes) -> tuple[float, bool]:
    return float(times.prompt_host_s), bool(times.overlaps)
