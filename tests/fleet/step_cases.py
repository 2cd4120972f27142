# SPDX-License-Identifier: Apache-2.0
"""Workloads of step-level simulations, and the plain simulation of the same. All have one shape, and so one kernel."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import NO_LIMIT, StepLimits, StepLoad, StepRun
from aicjax.fleet.step_times import StepTimes
from tests.oracles import step_queue as oracle

FLEETS, REQUESTS, WIDTH = 4, 24, 8

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
fleets = st.lists(st.tuples(limits, st.sampled_from([0, 1, 3, 10]), st.booleans()), min_size=FLEETS, max_size=FLEETS)


def tables(rng: np.random.Generator, *, overlaps: bool = False) -> StepTimes:
    """Step times that do not fall in anything."""

    def rising(*shape: int) -> np.ndarray:
        values = rng.uniform(0.001, 0.01, shape)
        for axis in range(len(shape)):
            values = np.cumsum(values, axis)
        return values

    return _times(rising(4, 3), rising(3), rising(4, 3), rng.uniform(0, 0.003), overlaps)


def even_times(decode_s: float, prompt_token_s: float = 0.0) -> StepTimes:
    """Steps that all take the same time, beside what each prompt token adds."""
    prompt = np.broadcast_to(prompt_token_s * np.array([0.0, 8.0, 40.0, 80.0])[:, None], (4, 3))
    return _times(np.full((4, 3), decode_s), np.zeros(3), prompt, 0.0, False)


def _times(decode: np.ndarray, shared: np.ndarray, prompt: np.ndarray, host_s: float, overlaps: bool) -> StepTimes:
    decode_real, shared_real, prompt_real = (jnp.asarray(values, jnp.float32) for values in (decode, shared, prompt))
    return StepTimes(
        running=jnp.array([0.0, 2.0, 3.0, 6.0]),
        context=jnp.array([0.0, 20.0, 50.0]),
        decode_s=decode_real,
        tokens=jnp.array([0.0, 10.0, 64.0]),
        shared_s=shared_real,
        chunk=jnp.array([0.0, 8.0, 40.0, 80.0]),
        past=jnp.array([0.0, 16.0, 64.0]),
        prompt_s=prompt_real,
        prompt_host_s=jnp.float32(host_s),
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


def served(
    times: StepTimes,
    cases: list[tuple[oracle.Limits, int, bool]],
    isl: np.ndarray,
    osl: np.ndarray,
    gaps_s: np.ndarray,
    horizon_s: float = 1e6,
    *,
    jumps: bool = True,
) -> tuple[StepRun, StepLoad, StepLimits]:
    """The run of fleets, each of limits, clients and whether these are late."""
    known, counts = stacked([case for case, _, _ in cases]), jnp.asarray([n for _, n, _ in cases], jnp.int32)
    late = jnp.asarray([each for _, _, each in cases])
    load = StepLoad(jnp.asarray(isl), jnp.asarray(osl), jnp.asarray(gaps_s), counts, late)
    run = simulate_steps(times, known, load, horizon_s=horizon_s, width=WIDTH, places=REQUESTS, jumps=jumps)
    return jax.device_get(run), load, known


def alone(times: StepTimes, case: oracle.Limits, isl: ArrayLike, osl: ArrayLike, gaps_s: ArrayLike) -> StepRun:
    """The run of the first fleet with a few requests; those that fill up the shape come last and are refused."""

    def padded(values: ArrayLike, rest: float, dtype: type) -> np.ndarray:
        values = np.asarray(values)
        row = np.concatenate([values, np.full(REQUESTS - len(values), rest)]).astype(dtype)
        return np.broadcast_to(row, (FLEETS, REQUESTS))

    count = len(np.asarray(isl))
    requests = padded(isl, 2**20, np.int32), padded(osl, 1, np.int32), padded(gaps_s, 0, np.float32)
    run, _, _ = served(times, [(case, 0, False)] * FLEETS, *requests)
    return StepRun(*(np.asarray(values)[0][:count] if values.ndim > 1 else values[0] for values in run))


def plain(
    times: StepTimes,
    cases: list[tuple[oracle.Limits, int, bool]],
    isl: np.ndarray,
    osl: np.ndarray,
    gaps_s: np.ndarray,
    horizon_s: float = 1e6,
) -> list[oracle.Run]:
    """The run of each fleet by the plain simulation."""
    leaves = {field.name: np.asarray(getattr(times, field.name), float) for field in dataclasses.fields(times)}
    step_s = oracle.tabulated(**leaves)
    return [
        oracle.simulate(step_s, case, isl[i], osl[i], gaps_s[i], clients, late, horizon_s)
        for i, (case, clients, late) in enumerate(cases)
    ]
