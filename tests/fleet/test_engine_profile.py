# SPDX-License-Identifier: Apache-2.0
"""Replicas from deployments: their step times are those of estimates, and so are the loops that they serve."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import aicjax
from aicjax._results import InputError, NoFeasible
from aicjax.fleet.engine_profile import EngineRun, engine_run
from aicjax.fleet.profile import iteration_s
from aicjax.fleet.replica_spec import EngineReplica
from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import RequestState, closed_load, conserved
from aicjax.fleet.step_times import PromptPart, no_prompts

ISL, OSL, BATCH, CHUNK = 880, 256, 32, 2048
DEPLOYMENT: dict[str, Any] = {"model": "Qwen/Qwen3-32B", "system": "h200_sxm", "backend": "vllm", "tp": 2}
DEPLOYMENT |= {"batch_size": BATCH}


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Constants of the closed loop of which nothing is fitted: the simulation has no fitted ones either."""
    path: Path = tmp_path_factory.mktemp("constants") / "derived.yaml"
    path.write_text("base: reference\nformulas: closed_loop\n")
    return str(path)


@pytest.fixture(scope="module")
def run(derived: str) -> EngineRun:
    return engine_run(
        EngineReplica(**DEPLOYMENT, constants=derived, price_per_gpu_hour=2.5),
        mean_tokens=ISL + OSL,
        max_tokens=8192,
        step_tokens=CHUNK + BATCH,
    )


@pytest.fixture(scope="module")
def estimate(derived: str) -> Any:
    return aicjax.estimate(
        model_path=DEPLOYMENT["model"],
        system=DEPLOYMENT["system"],
        backend=DEPLOYMENT["backend"],
        tp_size=2,
        batch_size=BATCH,
        isl=ISL,
        osl=OSL,
        ctx_tokens=CHUNK,
        constants=derived,
    )


def _step_s(run: EngineRun, running: int, mean: int, chunk: int = 0, past: int = 0) -> float:
    count, tokens = jnp.int32(running), jnp.int32(chunk)
    part = no_prompts(jnp.float32)
    if chunk:
        part = PromptPart(tokens, jnp.int32(1), tokens + past, run.steps.chunk_s(tokens, jnp.int32(past)))
    return float(run.steps.step_s(count, count * mean, part))


def test_decode_steps_are_those_of_the_estimate(run: EngineRun, estimate: Any):
    """To the interpolation between contexts; the tables of both are the same."""
    (decode,) = (step for step in estimate.steps if step.step == "decode step")
    expected = sum(decode.latency_ms) / 1000
    assert _step_s(run, BATCH, ISL + OSL // 2 + 1) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("rows", [16, 17, 31])
def test_steps_with_prompts_hold_the_tiles_of_matrix_products(run: EngineRun, rows: int):
    """A 1,025th token makes the step longer by what 200 more tokens do."""
    below, above = (_step_s(run, rows, ISL, 1024 - rows + n) for n in (0, 1))
    assert above - below > 0.5 * (_step_s(run, rows, ISL, 1280 - rows) - above)


def test_closed_loops_are_those_of_the_estimate(run: EngineRun, estimate: Any):
    """Prompts from 90 to 110 % of the estimate's, within one tile, and answers from 80 to 120 %, after ten waves."""
    fleets, waves = 4, 24
    rng = np.random.default_rng(0)
    shape = fleets, waves * BATCH
    isl, osl = np.round(ISL * rng.uniform(0.9, 1.1, shape)), np.round(OSL * rng.uniform(0.8, 1.2, shape))
    load = closed_load(jnp.asarray(isl, jnp.int32), jnp.asarray(osl, jnp.int32), BATCH)
    limits = dataclasses.replace(run.limits, kv_blocks=100_000)
    found = simulate_steps(run.steps, limits, load)
    assert all(holds.all() for holds in conserved(found, load, limits))
    assert (np.asarray(found.state) == RequestState.COMPLETED).all()
    settled = slice(10 * BATCH, 22 * BATCH)
    ttft_ms, latency_ms = (1000 * np.asarray(values)[:, settled] for values in (found.ttft_s, found.latency_s))
    tpot_ms = (latency_ms - ttft_ms) / (osl[:, settled] - 1)
    sent_s = np.asarray(found.arrival_s)[:, [10 * BATCH, 22 * BATCH]]
    assert ttft_ms.mean() == pytest.approx(estimate.row["ttft"], rel=0.04)
    assert tpot_ms.mean() == pytest.approx(estimate.row["tpot"], rel=0.03)
    assert (12 * BATCH / np.diff(sent_s)).mean() == pytest.approx(estimate.row["seq/s"], rel=0.03)


def test_the_profile_is_the_line_through_the_decode_steps(run: EngineRun):
    rows = np.arange(1, BATCH + 1)
    line = np.asarray(iteration_s(run.profile, rows, ISL + OSL))
    steps = np.array([_step_s(run, int(n), ISL + OSL) for n in rows])
    assert np.abs(line / steps - 1).max() == pytest.approx(run.decode_error, abs=1e-5)
    assert run.decode_error < 0.04
    assert run.prompt_error < 0.5
    assert float(run.profile.price_per_hour) == 5.0
    assert (run.profile.gpus, run.ranks) == (2.0, 1)
    assert run.profile.kv_blocks * run.profile.block_tokens == pytest.approx(run.kv_tokens, abs=16)


@pytest.mark.parametrize("place", range(4))
def test_steps_do_not_fall_and_rise_over_a_factor_of_eight(run: EngineRun, place: int):
    work = [4, 512, 128, 512]
    more = [[n * factor if i == place else n for i, n in enumerate(work)] for factor in (1, 2, 4, 8)]
    values = [_step_s(run, *each) for each in more]
    assert (np.diff(values) >= 0).all()
    assert values[-1] > values[0]


def test_ranks_share_the_requests_of_a_worker(derived: str, run: EngineRun):
    """Pipeline stages hold a batch each: the step goes through both, and the worker has room for two batches."""
    two_stages: dict[str, Any] = DEPLOYMENT | {"tp": 1, "pp": 2}
    staged = engine_run(
        EngineReplica(**two_stages, constants=derived),
        mean_tokens=ISL + OSL,
        max_tokens=8192,
        step_tokens=CHUNK + BATCH,
    )
    assert staged.ranks == 2
    assert float(staged.profile.max_slots) == 2 * BATCH
    full = float(iteration_s(staged.profile, 2 * BATCH, ISL + OSL))
    assert full == pytest.approx(_step_s(staged, BATCH, ISL + OSL), rel=0.03)


def test_what_cannot_run_is_refused():
    with pytest.raises(NoFeasible, match="KV cache has"):
        engine_run(EngineReplica(model="meta-llama/Meta-Llama-3.1-70B", system="h100_sxm", backend="vllm"))
    with pytest.raises(InputError) as refusal:
        engine_run(EngineReplica(**DEPLOYMENT), step_tokens=BATCH)
    assert refusal.value.argument == "step_tokens"
