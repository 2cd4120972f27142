# SPDX-License-Identifier: Apache-2.0
"""TTFT and TPOT of measured rows by the closed-loop formulas: one compiled call, differentiable in the constants."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax.calibrate.step_table import SHARED_PROMPTS, StepTable, StepTimes
from aicjax.constants import LoopConstants, load_constants
from aicjax.explore.request import BACKENDS
from aicjax.serving.closed_loop import (
    ClosedLoop,
    LoopTimes,
    LoopWork,
    closed_loop_estimate,
    kv_slots,
    prompts_per_step,
    running_requests,
)
from aicjax.serving.closed_loop_disagg import DisaggLoopWork, disagg_loop_estimate


def loop_constants(name: str = "reference") -> LoopConstants:
    """Constants of all backends, each leaf [backend] in the order of `BACKENDS`.

    Args:
        name: A name under `configs/constants/`, or the path of a file.
    """
    of_all = [load_constants(backend, name).loop for backend in BACKENDS]
    return jax.tree.map(lambda *leaves: np.array(leaves), *of_all)


def row_times(table: StepTable, constants: LoopConstants) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """TTFT and TPOT of measured rows [ms]; NaN where a row has no step times.

    Args:
        table: Step times; not traced.
        constants: Constants of all backends, each leaf [backend].
    """
    ttft_ms, tpot_ms = jnp.zeros((2, len(table)))
    for formula, chosen in ((agg_times, table.is_agg), (disagg_times, ~table.is_agg)):
        at = np.flatnonzero(chosen)
        own = jax.tree.map(lambda leaf, backend=table.backend[at]: leaf[backend], constants)
        ttft, tpot = formula(table.times._make(values[at] for values in table.times), own)
        ttft_ms, tpot_ms = ttft_ms.at[at].set(ttft), tpot_ms.at[at].set(tpot)
    return ttft_ms, tpot_ms


def agg_times(rows: StepTimes, constants: LoopConstants) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """TTFT and TPOT of rows of in-flight batching [ms]; leaves of the constants are numbers or [row]."""
    return _each(_agg_row, rows, constants)


def disagg_times(rows: StepTimes, constants: LoopConstants) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """TTFT and TPOT of disaggregated rows [ms]; leaves of the constants are numbers or [row]."""
    return _each(_disagg_row, rows, constants)


def _each(
    formula: Callable[[StepTimes, LoopConstants], tuple[Float[Array, ""], Float[Array, ""]]],
    rows: StepTimes,
    constants: LoopConstants,
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    of_rows = rows._make(jnp.asarray(values, jnp.result_type(float)) for values in rows)
    if not of_rows.isl.size:
        return jnp.zeros(0), jnp.zeros(0)
    own = jax.tree.map(
        lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, of_rows.isl.dtype), of_rows.isl.shape), constants
    )
    return jax.vmap(formula)(of_rows, own)


def _agg_row(row: StepTimes, constants: LoopConstants) -> tuple[Float[Array, ""], Float[Array, ""]]:
    loop = _loop(row, constants)
    prompts = jnp.where(row.prompts > 0, row.prompts, prompts_per_step(row.isl, constants))
    slots = kv_slots(row.kv_tokens, row.isl, row.osl, constants)
    running = running_requests(loop, slots, row.ranks)
    at_once = jnp.clip(prompts, 1.0, running)
    times = LoopTimes(
        decode_ms=jnp.interp(running, row.batches, row.decode_ms),
        increment_ms=jnp.interp(running, row.batches, row.increment_ms),
        prefill_ms=row.prefill_ms,
        shared_prefill_ms=jnp.interp(at_once, jnp.asarray(SHARED_PROMPTS, float), row.shared_prefill_ms),
    )
    work = LoopWork(row.osl, row.layers, prompts, slots, row.receive_steps, row.gather_steps, row.gather_prompts)
    estimate = closed_loop_estimate(loop, work, times, constants, ranks=row.ranks)
    return estimate.ttft_ms, estimate.tpot_ms


def _disagg_row(row: StepTimes, constants: LoopConstants) -> tuple[Float[Array, ""], Float[Array, ""]]:
    work = DisaggLoopWork(row.osl, row.layers, row.prefill_ranks, row.ranks, slots=row.slots, wide=row.wide)

    def decode_ms(batch: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.interp(batch, row.batches, row.decode_ms)

    estimate = disagg_loop_estimate(_loop(row, constants), work, row.prefill_ms, decode_ms, constants)
    return estimate.ttft_ms, estimate.tpot_ms


def _loop(row: StepTimes, constants: LoopConstants) -> ClosedLoop:
    waves = jnp.where(row.waves > 0, row.waves, constants.unknown_waves)
    return ClosedLoop(row.concurrency, waves, row.least_share)
