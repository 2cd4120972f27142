# SPDX-License-Identifier: Apache-2.0
"""The two kernels of an in-flight batching sweep: `scan` bounds every block of points, `look` evaluates chosen points.

A block is `BLOCK` successive batches with one context-token budget in one layout. What a sweep keeps (best points,
Pareto fronts) is decided on bounds of blocks, a small share of the points; only blocks that can still matter are
looked at one by one. Counts are exact.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from aicjax.serving.agg import AggEstimate, AggPoint, AggSetting, FirstWave
from aicjax.serving.point import AggCurves, AggGather, Numbers, StepParts, config_points, point_estimate
from aicjax.sweeps.bounds import SLACK
from aicjax.sweeps.histogram import bin_of, tally

BLOCK = 16
COUNT_BITS = 7  # of each of up to four counts packed into one integer while a block is summed
VERDICTS = ("feasible", "missing", "memory", "kv_memory")  # of points that leave room for decoding
AnyArray = Array | np.ndarray


class StepNeeds(NamedTuple):
    """What each point of a grid takes; see `forward.memory_room.StepSize`.

    Attributes:
        inside: Points that are part of the sweep and leave room for decoding.
        rows: Rows of the mixed step.
        drafted: Share of its tokens with drafts; None without drafts.
    """

    inside: Bool[AnyArray, "batch ctx"]
    rows: Int[AnyArray, "batch ctx"]
    drafted: Float[AnyArray, "batch ctx"] | None


class StepLimits(NamedTuple):
    """Largest step that leaves room for everything, and for the KV cache; see `forward.memory_room.StepRoom`."""

    rows: Int[AnyArray, "row two batch"]
    drafted: Float[AnyArray, "row two batch"] | None


class Rows(NamedTuple):
    """Layouts of any models and systems that share a grid, one per row.

    Attributes:
        curves: Step times at the distinct coordinates of the grid.
        limits: Memory.
        dispatch_layers: Decoder layers.
        replicas: Pipeline stages times attention ranks.
        constants: Numbers of the formulas in force, every leaf [row].
    """

    curves: AggCurves
    limits: StepLimits
    dispatch_layers: Float[AnyArray, " row"]
    replicas: Float[AnyArray, " row"]
    constants: Numbers


class Grid(NamedTuple):
    """A grid of batches and context-token budgets under one load.

    Attributes:
        gather: Which curve values and which plan each point takes.
        needs: Memory that each point takes.
        osl: Output tokens.
        progress: Output tokens of a decode iteration.
        first_wave: How a closed loop starts; None for one that runs steadily.
    """

    gather: AggGather
    needs: StepNeeds
    osl: Float[AnyArray, ""] | float
    progress: Float[AnyArray, ""] | float
    first_wave: FirstWave | None = None

    def setting(self, layers: Float[AnyArray, "..."]) -> AggSetting:
        """What all points of a row with so many decoder layers share."""
        return AggSetting(self.osl, self.progress, layers, self.first_wave)


class Corners(NamedTuple):
    """What bounds the Pareto front of a block, of points within the TTFT limit; worst values where there is none.

    Attributes:
        tpot_ms, seq_per_s: The least TPOT and the greatest rate, of different points mostly; within the slack, too.
        sample_tpot_ms, sample_seq_per_s: One point of the block; surely within the limit.
    """

    tpot_ms: Float[AnyArray, "..."]
    seq_per_s: Float[AnyArray, "..."]
    sample_tpot_ms: Float[AnyArray, "..."]
    sample_seq_per_s: Float[AnyArray, "..."]


class Scan(NamedTuple):
    """What a scan finds in each row.

    Attributes:
        lost: Points without data, without room for everything, and without room for the KV cache.
        met: Points that fit and meet both limits, that on TTFT, and that on TPOT.
        doubtful: Points within `SLACK` of a limit, which another program may judge otherwise.
        best: Best value of each measure within both limits and the slack, greater is better; -inf where there is none.
        corners: Bounds of the Pareto front; None if not asked for.
        bins: Points within both limits by `histogram.bin_of` the first measure; None if not asked for.
    """

    lost: Int[AnyArray, "row three"]
    met: Int[AnyArray, "limits row three"]
    doubtful: Int[AnyArray, "limits row"]
    best: dict[str, Float[AnyArray, "limits row block ctx"]]
    corners: Corners | None
    bins: Int[AnyArray, "limits row bin"] | None


MEASURES = {  # of a point, greater is better
    "seq_per_s": lambda e: e.seq_per_s,
    "ttft": lambda e: -e.ttft_ms,
    "tpot": lambda e: -e.tpot_ms,
    "request_latency": lambda e: -e.request_latency_ms,
}


def scan(
    rows: Rows,
    grid: Grid,
    limits: Float[AnyArray, "limits two"],
    worth: Float[AnyArray, " row"] | None,
    *,
    measures: Sequence[str],
    corners: bool,
    littles_law_cap: bool,
) -> Scan:
    """Counts and bounds of all blocks of all points.

    Args:
        rows: Layouts.
        grid: Batches (a multiple of `BLOCK`) and budgets.
        limits: Latency limits on TTFT and TPOT [ms]; infinite for none.
        worth: What the first measure is worth in each row, for a histogram of it; None for no histogram.
        measures: Keys of `MEASURES`. Static.
        corners: Whether to bound Pareto fronts. Static.
        littles_law_cap: As in `agg_estimate`. Static.
    """
    found, known, at_all, cached = _judged(rows, grid, littles_law_cap)
    valid = known & at_all & cached
    lost = _counts(jnp.asarray(grid.needs.inside) & ~known, known & ~at_all, known & at_all & ~cached)

    bins = None
    if worth is not None:
        bins = bin_of(jnp.abs(MEASURES[measures[0]](found)) * jnp.asarray(worth)[:, None, None])

    def within(limit: Float[Array, " two"]) -> tuple[Array, Array, dict[str, Array], Corners | None, Array | None]:
        fast, quick = _meet(found, limit)
        surely_fast, surely_quick = _meet(found, limit * (1 - SLACK))
        maybe_fast, maybe_quick = _meet(found, limit * (1 + SLACK))
        maybe = valid & maybe_fast & maybe_quick
        counts = _counts(valid & fast & quick, valid & fast, valid & quick, maybe & ~(surely_fast & surely_quick))
        best = {name: _best(jnp.where(maybe, MEASURES[name](found), -jnp.inf)) for name in measures}
        edges = None
        if corners:
            bounded, sample = valid & maybe_fast, (valid & surely_fast)[:, ::BLOCK]
            edges = Corners(
                -_best(jnp.where(bounded, -found.tpot_ms, -jnp.inf)),
                _best(jnp.where(bounded, found.seq_per_s, -jnp.inf)),
                jnp.where(sample, found.tpot_ms[:, ::BLOCK], jnp.inf),
                jnp.where(sample, found.seq_per_s[:, ::BLOCK], -jnp.inf),
            )
        tallied = None if bins is None else tally(bins, valid & fast & quick)
        return counts[:, :3], counts[:, 3], best, edges, tallied

    return Scan(lost, *jax.lax.map(within, jnp.asarray(limits)))


def every(rows: Rows, grid: Grid, *, littles_law_cap: bool) -> tuple[AggEstimate, Int[Array, "row batch ctx"]]:
    """Estimates of all points, and what becomes of each: its position in `VERDICTS`."""
    found, known, at_all, cached = _judged(rows, grid, littles_law_cap)
    fitting = jnp.where(at_all, jnp.where(cached, 0, 3), 2)
    return found, jnp.where(known, fitting, 1).astype(jnp.int8)


def look(
    rows: Rows,
    grid: Grid,
    row: Int[AnyArray, " point"],
    batch: Int[AnyArray, " point"],
    ctx: Int[AnyArray, " point"],
    *,
    littles_law_cap: bool,
) -> tuple[AggEstimate, Bool[Array, " point"]]:
    """Estimates of single points (positions of row, batch and budget), and whether each fits its GPU."""

    def one(row, batch, ctx) -> tuple[AggEstimate, Array]:
        gather, curves = grid.gather, rows.curves
        point = AggPoint(
            gather.batch[batch],
            gather.prefill_steps[batch, ctx],
            gather.chunks[ctx],
            gather.drains[batch, ctx],
            gather.prompts[batch, ctx],
            gather.room[ctx],
        )
        parts = StepParts(
            curves.shared[row, gather.shared[batch, ctx]],
            curves.context_attention[row, ctx],
            curves.decode_attention[row, gather.mixed_rows[batch, ctx]],
            curves.decode_rest[row, batch],
            curves.decode_attention[row, gather.decode_rows[batch]],
            None if curves.decode_shared is None else curves.decode_shared[row, batch],
            None if curves.full_prompt is None else curves.full_prompt[row, ctx],
        )
        found = point_estimate(
            parts,
            point,
            grid.setting(rows.dispatch_layers[row]),
            jax.tree.map(lambda leaf: leaf[row], rows.constants),
            replicas=rows.replicas[row],
            littles_law_cap=littles_law_cap,
        )
        fits = jnp.asarray(grid.needs.inside)[batch, ctx]
        for place in range(2):
            fits &= grid.needs.rows[batch, ctx] <= rows.limits.rows[row, place, batch]
            if grid.needs.drafted is not None and rows.limits.drafted is not None:
                fits &= grid.needs.drafted[batch, ctx] <= rows.limits.drafted[row, place, batch]
        return found, fits

    return jax.vmap(one)(*(jnp.asarray(index) for index in (row, batch, ctx)))


def _judged(
    rows: Rows, grid: Grid, littles_law_cap: bool
) -> tuple[AggEstimate, Bool[Array, "..."], Bool[Array, "..."], Bool[Array, "..."]]:
    """All points, which of them have data, which leave room for everything, and which for the KV cache."""

    def estimates(row: Rows) -> AggEstimate:
        setting = grid.setting(row.dispatch_layers)
        return config_points(
            row.curves, grid.gather, setting, row.constants, row.replicas, littles_law_cap=littles_law_cap
        )

    found = jax.vmap(estimates)(rows)
    found = found._replace(tpot_ms=jnp.where(jnp.asarray(grid.osl) > 1, found.tpot_ms, 0.0))
    known = jnp.asarray(grid.needs.inside) & jnp.isfinite(found.request_latency_ms)
    return found, known, _fits(grid.needs, rows.limits, 0), _fits(grid.needs, rows.limits, 1)


def _meet(found: AggEstimate, limit: Float[Array, " two"]) -> tuple[Array, Array]:
    """Which points meet the limit on TTFT, and that on TPOT."""
    return jnp.asarray(found.ttft_ms) <= limit[0], jnp.asarray(found.tpot_ms) <= limit[1]


def _fits(needs: StepNeeds, limits: StepLimits, place: int) -> Bool[Array, "row batch ctx"]:
    fits = jnp.asarray(needs.rows) <= jnp.asarray(limits.rows)[:, place, :, None]
    if needs.drafted is not None and limits.drafted is not None:
        fits &= needs.drafted <= limits.drafted[:, place, :, None]
    return fits


def _blocks(values: Array) -> Array:
    """[row, batch, ctx] as [row, block, BLOCK, ctx]."""
    return values.reshape(values.shape[0], -1, BLOCK, values.shape[2])


def _best(values: Float[Array, "row batch ctx"]) -> Float[Array, "row block ctx"]:
    return _blocks(values).max(axis=2)


def _counts(*masks: Bool[Array, "row batch ctx"]) -> Int[Array, "row mask"]:
    """How often each of a few masks holds, in one pass over the points."""
    packed = [mask.astype(jnp.int32) << (COUNT_BITS * place) for place, mask in enumerate(masks)]
    blocks = _blocks(functools.reduce(jnp.bitwise_or, packed)).sum(axis=2)
    field = (1 << COUNT_BITS) - 1
    parts = [(blocks >> (COUNT_BITS * place)) & field for place in range(len(masks))]
    return jnp.stack([part.sum(axis=(1, 2)) for part in parts], axis=1)
