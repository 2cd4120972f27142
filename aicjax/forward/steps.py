# SPDX-License-Identifier: Apache-2.0
"""Step times of all layouts of a model at distinct coordinates: the kernel between operators and serving formulas.

A forward pass splits into attention and the rest. Each distinct operator is evaluated once at each distinct
coordinate; a layout's pass is then a weighted sum over rows, one matrix product for all layouts, plus the longer side
of operators that overlap.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.grid import answer
from aicjax.ops.roofline import Hardware
from aicjax.ops.sequences import Points, SequenceRows, ask_sequences, sequence_paces, sequence_rooflines
from aicjax.ops.tokens import TokenRows, token_paces, token_times


class StepQueries(eqx.Module):
    """Distinct coordinates, int32; every group may be of any length.

    Attributes:
        context_batch: Prompts of a prefill pass, whose last tokens reach the vocabulary projection [rest].
        context_new: New tokens of each prompt [rest].
        context_prefix: Cached tokens before them, seen by sequence-driven operators alone [rest].
        prefill_batch: Prompts of prefill attention [prefill].
        prefill_new: New tokens of each [prefill].
        prefill_prefix: Cached tokens before them [prefill].
        generation_rows: Query rows of a decode pass without attention [rows].
        decode_rows: Query rows of decode attention [decode].
        decode_length: Cached length [decode].
        other_rows: Query rows of the other sequence-driven operators of a decode pass [other].
        other_length: Cached length [other].
    """

    context_batch: Int[Array, " rest"]
    context_new: Int[Array, " rest"]
    context_prefix: Int[Array, " rest"]
    prefill_batch: Int[Array, " prefill"]
    prefill_new: Int[Array, " prefill"]
    prefill_prefix: Int[Array, " prefill"]
    generation_rows: Int[Array, " rows"]
    decode_rows: Int[Array, " decode"]
    decode_length: Int[Array, " decode"]
    other_rows: Int[Array, " other"]
    other_length: Int[Array, " other"]


class RowTimes(eqx.Module):
    """Distinct operators over coordinates.

    Attributes:
        latency_ms: Latency; NaN without an answer [row, point].
        provenance: How each was obtained, a `Provenance` code [row, point].
    """

    latency_ms: Float[Array, "row point"]
    provenance: Int[Array, "row point"]


class PassTimes(eqx.Module):
    """One part of a pass over all its coordinates.

    Attributes:
        total_ms: Latency of each layout [config, point]; NaN where an operator has no answer.
        sequences: The distinct operators of the part that sequences drive.
    """

    total_ms: Float[Array, "config point"]
    sequences: RowTimes


class StepTimes(eqx.Module):
    """The parts of which every step is made.

    Attributes:
        context_rest: Prefill without attention, over `context_batch`.
        context_attention: Prefill attention, over `prefill_batch`.
        generation_rest: What a token count drives in a decode pass, over `generation_rows`.
        generation_attention: Decode attention, over `decode_rows`.
        generation_other: The other operators of a decode pass that sequences drive, over `other_rows`.
        tokens: The distinct operators that token counts drive, over `context_batch`, `generation_rows` and, where its
            operators overlap with such, `other_rows`, one after the other.
    """

    context_rest: PassTimes
    context_attention: PassTimes
    generation_rest: PassTimes
    generation_attention: PassTimes
    generation_other: PassTimes
    tokens: RowTimes


class Weights(eqx.Module):
    """How often each row of one part runs in a pass of each layout.

    Attributes:
        runs: Runs of operators that nothing hides [config, row].
        sides: Runs of the sides of each operator whose chains overlap, of which the longest counts
            [overlap, side, config, row].
    """

    runs: Float[Array, "config row"]
    sides: Float[Array, "overlap side config row"]


class BoundArrays(eqx.Module):
    """All layouts of a model bound to tables, as one traced argument.

    Attributes:
        tokens: Distinct token-driven operators of both phases.
        context_other: Sequence-driven operators of a prefill that are not its attention.
        context_attention: Prefill attention.
        generation_attention: Decode attention.
        generation_other: Sequence-driven operators of a decode pass that are not its attention.
        weights: Runs of the rows of each part, in the order of `StepTimes`.
        hardware: Peaks and bandwidths.
    """

    tokens: TokenRows
    context_other: SequenceRows
    context_attention: SequenceRows
    generation_attention: SequenceRows
    generation_other: SequenceRows
    weights: tuple[Weights, ...]
    hardware: Hardware

    def reads_tokens(self, part: str) -> bool:
        """Whether a part (a field of `StepTimes`) runs operators that token counts drive.

        The rest of both passes does, attention does not; the other operators of a decode pass do where they overlap
        with such.
        """
        overlaps = self.weights[-1].runs.shape[1] > self.generation_other.count
        return part in ("context_rest", "generation_rest") or (part == "generation_other" and overlaps)


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
    return summed_times(bound, queries, *row_times(bound, queries, constants, roofline=roofline))


def row_times(
    bound: BoundArrays, queries: StepQueries, constants: OpConstants, *, roofline: bool = False
) -> tuple[list[RowTimes], RowTimes]:
    """Times of the distinct operators: of sequences at each of `sequence_points`, and of tokens at `token_counts`.

    Arguments as in `step_times`.
    """
    sequences = _sequence_times(sequence_points(bound, queries), bound.hardware, constants, roofline)
    times = token_times(bound.tokens, *token_counts(bound, queries), bound.hardware, constants, roofline=roofline)
    return sequences, RowTimes(*times)


def row_rooflines_ms(
    bound: BoundArrays, queries: StepQueries, constants: OpConstants
) -> tuple[dict[str, Float[Array, "row point"]], Float[Array, "row point"]]:
    """Rooflines of the distinct operators of `step_times`: of sequences by part, and of tokens; NaN without one.

    Arguments as in `step_times`.
    """
    parts = ("context_rest", "context_attention", "generation_attention", "generation_other")
    asked = sequence_points(bound, queries)
    sequences = [sequence_paces(rows, points, bound.hardware, constants) for rows, points in asked]
    tokens = token_paces(bound.tokens, *token_counts(bound, queries), bound.hardware, constants, roofline=True)
    return dict(zip(parts, sequences, strict=True)), tokens


def sequence_points(bound: BoundArrays, queries: StepQueries) -> list[tuple[SequenceRows, Points]]:
    """The rows that sequences drive and their points (batch, length, prefix), in the order of `StepTimes`."""
    decode, other = queries.decode_rows, queries.other_rows
    return [
        (bound.context_other, (queries.context_batch, queries.context_new, queries.context_prefix)),
        (bound.context_attention, (queries.prefill_batch, queries.prefill_new, queries.prefill_prefix)),
        (bound.generation_attention, (decode, queries.decode_length, jnp.zeros_like(decode))),
        (bound.generation_other, (other, queries.other_length, jnp.zeros_like(other))),
    ]


def token_counts(bound: BoundArrays, queries: StepQueries) -> tuple[Int[Array, " point"], Int[Array, " point"]]:
    """Tokens, and last tokens, at every coordinate of `StepTimes.tokens`."""
    batch, rows = queries.context_batch, queries.generation_rows
    passes = [rows, queries.other_rows] if bound.reads_tokens("generation_other") else [rows]
    return jnp.concatenate([batch * queries.context_new, *passes]), jnp.concatenate([batch, *passes])


def summed_times(
    bound: BoundArrays, queries: StepQueries, sequences: Sequence[RowTimes], tokens: RowTimes
) -> StepTimes:
    """Parts of the steps of all layouts from the times of their rows.

    Args:
        bound: `BoundModel.arrays`.
        queries: Distinct coordinates.
        sequences: Times at `sequence_points`.
        tokens: Times at `token_counts`.
    """
    rest, prefill, attention, others = sequences
    rows = queries.generation_rows
    none = RowTimes(jnp.zeros((0, rows.shape[0])), jnp.zeros((0, rows.shape[0]), jnp.int32))
    overlaps = bound.reads_tokens("generation_other")
    first, last = queries.context_batch.shape[0], queries.context_batch.shape[0] + rows.shape[0]
    of_rest, of_prefill, of_rows, of_attention, of_others = bound.weights
    return StepTimes(
        context_rest=_pass(of_rest, rest, tokens, slice(first)),
        context_attention=_pass(of_prefill, prefill),
        generation_rest=_pass(of_rows, none, tokens, slice(first, last)),
        generation_attention=_pass(of_attention, attention),
        generation_other=_pass(of_others, others, tokens if overlaps else None, slice(last, None)),
        tokens=tokens,
    )


def _sequence_times(
    asked: Sequence[tuple[SequenceRows, Points]], hardware: Hardware, constants: OpConstants, roofline: bool
) -> list[RowTimes]:
    """Rows of each part over its points; all questions of all parts are answered together."""
    if roofline:
        answers = [sequence_rooflines(rows, points, hardware, constants) for rows, points in asked]
    else:
        questions = [ask_sequences(rows, points, hardware, constants) for rows, points in asked]
        flat = iter(answer([question for part in questions for question in part]))
        answers = [[next(flat) for _ in part] for part in questions]
    return [
        RowTimes(_stacked([a[0] for a in part], points, jnp.float32), _stacked([a[1] for a in part], points, jnp.int32))
        for part, (_, points) in zip(answers, asked, strict=True)
    ]


def _stacked(parts, points: Points, dtype):
    return jnp.concatenate([jnp.zeros((0, points[0].shape[0]), dtype), *parts])


def _pass(weights: Weights, sequences: RowTimes, tokens: RowTimes | None = None, of: slice = slice(None)) -> PassTimes:
    """Weighted sum of rows, of tokens and then of sequences; NaN for a layout that runs one without an answer.

    Args:
        weights: Runs of the rows.
        sequences: Rows of the part's own operators.
        tokens: Rows that parts share, over the coordinates of all of them; summed before the part takes its own.
        of: Which of their coordinates are the part's.
    """
    shared = 0 if tokens is None else tokens.latency_ms.shape[0]
    sums = _summed(weights, slice(shared, None), sequences)
    if tokens is not None:
        sums = [own + more[..., of] for own, more in zip(sums, _summed(weights, slice(shared), tokens), strict=True)]
    runs, sides, unknown = sums
    total = runs + jnp.sum(jnp.max(sides, axis=1), axis=0)
    return PassTimes(jnp.where(unknown > 0, jnp.nan, total), sequences)


def _summed(weights: Weights, of: slice, rows: RowTimes):
    """Sums of some rows: what nothing hides, the sides of overlaps, and rows without an answer [..., point]."""
    runs, sides = weights.runs[..., of], weights.sides[..., of]
    missing = jnp.isnan(rows.latency_ms)
    known = jnp.where(missing, 0.0, rows.latency_ms)
    runs_any = (runs + jnp.sum(sides, axis=(0, 1)) > 0).astype(known.dtype)
    factors = ((runs, known), (sides, known), (runs_any, missing.astype(known.dtype)))
    return [jnp.matmul(*pair, precision="highest") for pair in factors]
