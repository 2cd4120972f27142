# SPDX-License-Identifier: Apache-2.0
"""Step times of all layouts of a model at distinct coordinates: the kernel between operators and serving formulas.

A forward pass splits into what a token count alone drives (the rest) and attention. Each distinct operator is
evaluated once at each distinct coordinate; a layout's pass is then a weighted sum over rows, one matrix product for
all layouts.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.grid import answer
from aicjax.ops.attention import (
    AttentionRows,
    ask_context_attention,
    ask_generation_attention,
    context_attention_sol,
    generation_attention_sol,
)
from aicjax.ops.roofline import Hardware
from aicjax.ops.tokens import TokenRows, token_latency, token_sol


class StepQueries(eqx.Module):
    """Distinct coordinates, int32; every group may be of any length.

    Attributes:
        context_tokens, context_last: Tokens of a prefill pass without attention, and those of them that reach the
            vocabulary projection [rest].
        prefill_batch, prefill_new, prefill_prefix: Prompts, new and cached tokens of prefill attention [prefill].
        generation_rows: Query rows of a decode pass without attention [rows].
        decode_rows, decode_length: Query rows and cached length of decode attention [decode].
    """

    context_tokens: Int[Array, " rest"]
    context_last: Int[Array, " rest"]
    prefill_batch: Int[Array, " prefill"]
    prefill_new: Int[Array, " prefill"]
    prefill_prefix: Int[Array, " prefill"]
    generation_rows: Int[Array, " rows"]
    decode_rows: Int[Array, " decode"]
    decode_length: Int[Array, " decode"]


class PassTimes(eqx.Module):
    """One part of a pass over all its coordinates.

    Attributes:
        total_ms: Latency of each layout [config, point]; NaN where an operator has no answer.
        row_ms: Latency of each distinct operator [row, point].
        provenance: How each was obtained, a `Provenance` code [row, point].
    """

    total_ms: Float[Array, "config point"]
    row_ms: Float[Array, "row point"]
    provenance: Int[Array, "row point"]


class StepTimes(eqx.Module):
    """The four parts of which every step is made.

    Attributes:
        context_rest: Prefill without attention, over `context_tokens`.
        context_attention: Prefill attention, over `prefill_batch`.
        generation_rest: Decode without attention, over `generation_rows`.
        generation_attention: Decode attention, over `decode_rows`.
    """

    context_rest: PassTimes
    context_attention: PassTimes
    generation_rest: PassTimes
    generation_attention: PassTimes


class BoundArrays(eqx.Module):
    """All layouts of a model bound to tables, as one traced argument.

    Attributes:
        tokens: Distinct token-driven operators of both phases.
        context_attention, generation_attention: Distinct attention operators of each phase.
        context_weight, generation_weight: How often each token-driven row runs in a pass of a layout [config, row].
        context_attention_weight, generation_attention_weight: The same for attention [config, row].
        hardware: Peaks and bandwidths.
    """

    tokens: TokenRows
    context_attention: AttentionRows
    generation_attention: AttentionRows
    context_weight: Float[Array, "config row"]
    generation_weight: Float[Array, "config row"]
    context_attention_weight: Float[Array, "config context_row"]
    generation_attention_weight: Float[Array, "config generation_row"]
    hardware: Hardware


def step_times(
    bound: BoundArrays, queries: StepQueries, constants: OpConstants, *, roofline: bool = False
) -> StepTimes:
    """Latency of every part of every layout at every coordinate [ms]. Pure: use it inside `jit`, `vmap` and `grad`.

    Args:
        bound: `BoundModel.arrays`.
        queries: Distinct coordinates.
        constants: Operator constants.
        roofline: Whether rooflines answer instead of tables. Static.
    """
    hardware, tokens = bound.hardware, bound.tokens
    token_driven = token_sol if roofline else token_latency
    prefill = (bound.context_attention, queries.prefill_batch, queries.prefill_new, queries.prefill_prefix)
    decode = (bound.generation_attention, queries.decode_rows, queries.decode_length)
    if roofline:
        context = _as_roofline(context_attention_sol(*prefill, hardware, constants))
        generation = _as_roofline(generation_attention_sol(*decode, hardware))
    else:
        asked = [ask_context_attention(*prefill, hardware, constants), ask_generation_attention(*decode, hardware)]
        context, generation = answer(asked)
    counts = jnp.concatenate([queries.context_tokens, queries.generation_rows])
    last = jnp.concatenate([queries.context_last, queries.generation_rows])
    rest, code = token_driven(tokens, counts, last, hardware)
    split = queries.context_tokens.shape[0]
    return StepTimes(
        _pass(bound.context_weight, rest[:, :split], code[:, :split]),
        _pass(bound.context_attention_weight, *context),
        _pass(bound.generation_weight, rest[:, split:], code[:, split:]),
        _pass(bound.generation_attention_weight, *generation),
    )


def _as_roofline(sol_ms):
    return sol_ms, jnp.full(sol_ms.shape, Provenance.SOL, jnp.int32)


def _pass(weight, row_ms, provenance) -> PassTimes:
    """Weighted sum of rows; NaN for a layout that runs a row without an answer."""
    missing = jnp.isnan(row_ms)
    total = jnp.matmul(weight, jnp.where(missing, 0.0, row_ms), precision="highest")
    unknown = jnp.matmul((weight > 0).astype(jnp.float32), missing.astype(jnp.float32)) > 0
    return PassTimes(jnp.where(unknown, jnp.nan, total), row_ms, provenance)
