# SPDX-License-Identifier: Apache-2.0
"""Exchange of tokens in large expert parallelism: curves of tokens, or grids of multiprocessors (SMs) and tokens.

Beyond the measured range time is in proportion to tokens, at the utilisation of the boundary. Where the phases of a
library share a grid, it is their sum that is held, and each phase keeps its share of it.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.counts import floor_div
from aicjax.interp.curve import SizeCurves, size_latency, stack_size_curves
from aicjax.interp.ends import KNOT_BUCKET, NO_CURVE
from aicjax.interp.grid import GridSlice, Question, answer, ask, bind_slice, empty_slice
from aicjax.ops.attention_tables import padded_knots
from aicjax.ops.database import Database
from aicjax.ops.exchange_choice import Choice, check_exchange, choose_exchange
from aicjax.ops.exchange_tables import BySms, load_exchanges
from aicjax.ops.records import MoeAllToAll
from aicjax.ops.roofline import Hardware

LEAF_BUCKET = 256
PARTS = 3  # grids of an exchange: its phase, the other one, and their sum
NO_SMS = 1e-12  # what no SMs count as, under a logarithm


class ExchangeGrids(eqx.Module):
    """Grids of the exchanges that need one: the phase of every row, then the other phases, then the sums.

    Attributes:
        slices: The grids, bound to the SMs asked for [part * row].
        knots: Token counts that they share [knot].
        sms: SMs asked for [part * row].
        used: Whether there is a grid [part * row].
    """

    slices: GridSlice
    knots: Float[Array, " knot"]
    sms: Float[Array, " part_row"]
    used: Bool[Array, " part_row"]


class AllToAllRows(eqx.Module):
    """Distinct exchanges bound to their measurements.

    Attributes:
        attention_tp: GPUs that share the tokens of a rank, rounded down [row].
        curves: Latency over tokens, one curve a row; an empty one where a grid answers or nothing does.
        stand_in: Whether it was measured on fewer ranks [row].
        grids: Grids; None where curves answer for all rows.
    """

    attention_tp: Int[Array, " row"]
    curves: SizeCurves
    stand_in: Bool[Array, " row"]
    grids: ExchangeGrids | None


def find_exchange(database: Database, record: MoeAllToAll) -> Choice | None:
    """What answers for a record, `measured` telling on which ranks; None when nothing does.

    Raises:
        InputError: The library has no such phase.
    """
    check_exchange(record)
    return choose_exchange(load_exchanges(*database.where), record) if database.interpolates else None


def bind_all_to_all(database: Database, records: Sequence[MoeAllToAll], *, rows: int) -> AllToAllRows:
    """Rows for `records`, padded to `rows`; only measured tables answer.

    Raises:
        InputError: A library has no such phase.
    """
    choices = [find_exchange(database, record) for record in records]
    curves = [NO_CURVE if choice is None or choice.curve is None else choice.curve for choice in choices]
    longest = max([tokens.size for tokens, _ in curves] + [1])
    stand_in = [c is not None and c.measured != r for c, r in zip(choices, records, strict=True)]
    pad = (0, rows - len(records))
    return AllToAllRows(
        attention_tp=np.pad(np.array([max(1, r.attention_tp) for r in records], np.int32), pad, constant_values=1),
        curves=stack_size_curves(
            curves, rows, -(-longest // KNOT_BUCKET) * KNOT_BUCKET, straight=database.extends_curves
        ),
        stand_in=np.pad(np.array(stand_in, bool), pad),
        grids=_bind_grids(choices, rows),
    )


def _bind_grids(choices: Sequence[Choice | None], rows: int) -> ExchangeGrids | None:
    grids: dict[int, tuple[BySms, int]] = {}
    for row, choice in enumerate(choices):
        if choice is not None and choice.grid:
            parts = (choice.grid, choice.other, _sum(choice.grid, choice.other))
            paired = parts if parts[-1] else parts[:1]
            grids |= {part * rows + row: (grid, choice.measured.sms) for part, grid in enumerate(paired)}
    if not grids:
        return None
    tokens = np.unique(np.concatenate([t for grid, _ in grids.values() for t, _ in grid.values()]))
    knots = padded_knots(tokens)
    most = max(sum(t.size for t, _ in grid.values()) for grid, _ in grids.values())
    leaves = -(-most // LEAF_BUCKET) * LEAF_BUCKET
    slices = [empty_slice((knots,), leaves)] * (PARTS * rows)
    used, sms = np.zeros(PARTS * rows, bool), np.ones(PARTS * rows, np.float32)
    for place, (grid, asked) in grids.items():
        used[place], sms[place] = True, max(asked, NO_SMS)
        slices[place] = _bind_grid(grid, max(asked, NO_SMS), knots, leaves)
    return ExchangeGrids(jax.tree.map(lambda *leaf: np.stack(leaf), *slices), knots.astype(np.float32), sms, used)


def _bind_grid(grid: BySms, sms: float, knots: np.ndarray, leaves: int) -> GridSlice:
    measured = sorted(grid)
    latency = np.full((len(measured), knots.size), np.nan)
    for at, key in enumerate(measured):
        tokens, latency_ms = grid[key]
        latency[at, np.searchsorted(knots, tokens)] = latency_ms
    roof = np.broadcast_to(knots, latency.shape)
    return bind_slice(np.maximum(np.array(measured, np.float64), NO_SMS), latency, (knots,), sms, roof, leaves)


def _sum(first: BySms, second: BySms) -> BySms:
    """Sum of two grids at the points that both have."""
    total: BySms = {}
    for sms in first.keys() & second.keys():
        tokens, one, two = np.intersect1d(first[sms][0], second[sms][0], return_indices=True)
        if tokens.size:
            total[sms] = (tokens, first[sms][1][one] + second[sms][1][two])
    return total


def all_to_all_latency(
    rows: AllToAllRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each exchange and how it was obtained.

    Args:
        rows: Bound exchanges.
        tokens: Tokens of one rank.
        hardware, constants: Not used.
    """
    sent = _sent(rows, tokens)
    latency, code = size_latency(rows.curves, sent)
    if rows.grids is not None:
        used = rows.grids.used[: tokens.shape[0], None]
        grid = answer([_ask_grids(rows.grids, sent)])[0]
        latency, code = jnp.where(used, grid[0], latency), jnp.where(used, grid[1], code)
    return latency, jnp.where(rows.stand_in[:, None], jnp.maximum(code, Provenance.TRANSFERRED), code)


def _sent(rows: AllToAllRows, tokens: Float[Array, "row point"]) -> Float[Array, "row point"]:
    """Tokens that a GPU sends."""
    return floor_div(tokens.astype(jnp.int32), rows.attention_tp[:, None]).astype(tokens.dtype)


def _ask_grids(grids: ExchangeGrids, sent: Float[Array, "row point"]) -> Question:
    """Question over all grids, which ends in the answer of the first part of them."""

    def finish(latency_ms, code):
        phase, other, total = jnp.split(latency_ms, PARTS)
        paired = jnp.split(grids.used[:, None], PARTS)[-1]
        both = phase + other
        shared = paired & ~(both <= 0)  # a phase that is missing makes both missing
        return jnp.where(shared, phase * total / jnp.where(shared, both, 1.0), phase), _worst(code, paired)

    asked = ask(
        grids.slices, (grids.knots,), grids.sms, (jnp.tile(sent, (PARTS, 1)),), lambda _, __, t: t, grids.sms, finish
    )
    return asked._replace(found=asked.found | ~grids.used[:, None])  # nothing is searched where there is no grid


def _worst(code, paired):
    phase, other, total = jnp.split(code, PARTS)
    return jnp.where(paired, jnp.maximum(phase, jnp.maximum(other, total)), phase)


def all_to_all_sol(
    rows: AllToAllRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """NaN: exchanges are measured or unknown, and bound by nothing."""
    return jnp.full(tokens.shape, jnp.nan)


def all_to_all_available(database: Database, record: MoeAllToAll) -> bool:
    """Whether the exchange was measured, on its own ranks or on one node that stands in."""
    return find_exchange(database, record) is not None
