# SPDX-License-Identifier: Apache-2.0
"""A model in all its layouts, bound to the tables of one system and backend."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aicjax._results import InputError
from aicjax.compat import DEFAULT, Compat
from aicjax.constants import Constants, load_constants, traced
from aicjax.forward.layouts import Operator, part_operators, part_weights
from aicjax.forward.steps import (
    BoundArrays,
    PassTimes,
    RowTimes,
    StepQueries,
    StepTimes,
    row_rooflines_ms,
    step_times,
)
from aicjax.hardware import System
from aicjax.interp.counts import point_bucket
from aicjax.ops.database import Database, reading, transfer_kinds
from aicjax.ops.records import OpLists
from aicjax.ops.roofline import hardware_arrays
from aicjax.ops.sequences import bind_sequences
from aicjax.ops.tokens import bind_tokens

# Parts of a pass, in the order of `StepTimes`, and the names of their coordinates.
COORDINATES = {
    "context_rest": ("context_batch", "context_new", "context_prefix"),
    "context_attention": ("prefill_batch", "prefill_new", "prefill_prefix"),
    "generation_rest": ("generation_rows",),
    "generation_attention": ("decode_rows", "decode_length"),
    "generation_other": ("other_rows", "other_length"),
}
PARTS = tuple(COORDINATES)


@dataclass(frozen=True)
class Breakdown:
    """What one part of a pass spends on each operator.

    Attributes:
        names: Operators in list order.
        latency_ms: Latency of each, all its runs [op].
        provenance: How each was obtained, a `Provenance` code [op].
    """

    names: tuple[str, ...]
    latency_ms: np.ndarray
    provenance: np.ndarray


@dataclass
class _Fetched:
    """Rows of operators, fetched from the device when they are first read: a sweep reads totals alone."""

    times: RowTimes
    rooflines: Callable[[], Any]

    @functools.cached_property
    def latency_ms(self) -> np.ndarray:
        return jax.device_get(self.times.latency_ms)

    @functools.cached_property
    def provenance(self) -> np.ndarray:
        return jax.device_get(self.times.provenance)

    @functools.cached_property
    def roofline_ms(self) -> np.ndarray:
        return jax.device_get(self.rooflines())


@dataclass(frozen=True)
class _Rows:
    """Operators of one part: rows of tokens, which it shares with other parts, then rows of sequences.

    Attributes:
        tokens: Rows that token counts drive; None where the part has none.
        sequences: Rows that sequences drive, of this part alone.
        place: Where the part's coordinates are among those of `tokens` [point].
        points: Number of coordinates.
    """

    tokens: _Fetched | None
    sequences: _Fetched
    place: np.ndarray
    points: int

    def _found(self, point: int) -> list[tuple[_Fetched, int]]:
        """What answers at one coordinate, and where in it."""
        found = [] if self.tokens is None else [(self.tokens, int(self.place[point]))]
        return [*found, (self.sequences, point)] if self.sequences.times.latency_ms.shape[0] else found

    def at(self, point: int) -> tuple[np.ndarray, np.ndarray]:
        """Latency, float64, and provenance of every row at one coordinate [row]."""
        found = self._found(point)
        latency_ms = np.concatenate([np.zeros(0), *(rows.latency_ms[:, at] for rows, at in found)])
        return latency_ms, np.concatenate([np.zeros(0, int), *(rows.provenance[:, at] for rows, at in found)])

    def roofline_at(self, point: int) -> np.ndarray:
        """Roofline of every row at one coordinate, float64; NaN where a row has none [row]."""
        return np.concatenate([np.zeros(0), *(rows.roofline_ms[:, at] for rows, at in self._found(point))])

    def lacking(self) -> np.ndarray:
        """Whether each row has no answer at some coordinate [row]."""
        found = [] if self.tokens is None else [self.tokens.latency_ms[:, self.place]]
        found.append(self.sequences.latency_ms[:, : self.points])
        return np.concatenate([np.isnan(latency_ms).any(axis=1) for latency_ms in found])


@dataclass(frozen=True)
class StepCurves:
    """Step times on the host: the parts of every step, float32 [config, point]; NaN where data are missing.

    Attributes:
        context_rest_ms: Prefill without attention [config, rest].
        context_attention_ms: Prefill attention [config, prefill].
        generation_rest_ms: What a token count drives in a decode pass [config, rows].
        generation_attention_ms: Decode attention [config, decode].
        generation_other_ms: Other operators of a decode pass that sequences drive [config, other].
    """

    context_rest_ms: np.ndarray
    context_attention_ms: np.ndarray
    generation_rest_ms: np.ndarray
    generation_attention_ms: np.ndarray
    generation_other_ms: np.ndarray
    _rows: dict[str, "_Rows"] = field(repr=False)
    _operators: tuple[dict[str, tuple[Operator, ...]], ...] = field(repr=False)

    def breakdown(self, part: str, config: int, point: int) -> Breakdown:
        """Operators of one part (a name of `PARTS`) of one layout at one coordinate."""
        operators = self._operators[config][part]
        latency, code = self._rows[part].at(point)
        spent = [operator.spent(latency, code) for operator in operators]
        return Breakdown(
            tuple(operator.name for operator in operators),
            np.array([ms for ms, _ in spent]),
            np.array([worst for _, worst in spent], int),
        )

    def roofline_ms(self, part: str, config: int, point: int) -> np.ndarray:
        """Roofline of the operators of `breakdown`, all their runs; NaN where an operator has none [op]."""
        bounds_ms = self._rows[part].roofline_at(point)
        unsure = np.zeros(bounds_ms.size, int)
        return np.array([operator.spent(bounds_ms, unsure)[0] for operator in self._operators[config][part]])

    def missing(self, part: str, config: int) -> list[str]:
        """Operators of one part of one layout that have no answer at some coordinate."""
        lacking = self._rows[part].lacking()
        operators = self._operators[config][part]
        return [op.name for op in operators if any(scale > 0 and lacking[row] for row, scale in op.runs)]


@dataclass(frozen=True)
class BoundModel:
    """A model in all its layouts, ready to be evaluated.

    Attributes:
        arrays: What kernels read, a traced argument of `step_times`.
        constants: Empirical numbers.
        roofline: Whether rooflines answer instead of tables.
        layouts: Number of layouts; the `config` axis of `arrays` is padded beyond it.
        operators: Operators of each layout by part.
    """

    arrays: BoundArrays
    constants: Constants
    roofline: bool
    layouts: int
    operators: tuple[dict[str, tuple[Operator, ...]], ...]

    def evaluate(self, queries: StepQueries) -> StepCurves:
        """Step times at distinct coordinates, one compiled call for all layouts; numpy in and out."""
        distinct, spread = self._distinct_tokens(queries)
        padded, lengths = padded_queries(distinct)
        times: StepTimes = _evaluate(self.arrays, padded, traced(self.constants.op), self.roofline)
        passes: dict[str, PassTimes] = {part: getattr(times, part) for part in PARTS}
        all_ms = jax.device_get({part: found.total_ms for part, found in passes.items()})
        rooflines = functools.cache(lambda: _rooflines(self.arrays, padded, traced(self.constants.op)))
        token_rows, shared, totals, rows = _Fetched(times.tokens, lambda: rooflines()[1]), 0, [], {}
        for part, length in zip(PARTS, lengths, strict=True):
            place, total_ms = np.arange(length), all_ms[part][: self.layouts, :length]
            if part == "context_rest" and spread is not None:
                place, total_ms = spread, total_ms[:, spread]
            tokens = token_rows if self.arrays.reads_tokens(part) else None
            totals.append(total_ms)
            sequences = _Fetched(passes[part].sequences, lambda part=part: rooflines()[0][part])
            rows[part] = _Rows(tokens, sequences, shared + place, len(place))
            shared += 0 if tokens is None else all_ms[part].shape[1]
        return StepCurves(*totals, _rows=rows, _operators=self.operators)

    def _distinct_tokens(self, queries: StepQueries) -> tuple[StepQueries, np.ndarray | None]:
        """The queries with each token count of a prefill once, and where each one's answer is then found.

        Without operators that sequences drive, prompts of the same tokens behind different prefixes are the same.
        """
        if self.arrays.context_other.count or not len(queries.context_batch):
            return queries, None
        batch, new = (np.asarray(x, np.int64) for x in (queries.context_batch, queries.context_new))
        width = int(new.max()) + 1
        distinct, spread = np.unique(batch * width + new, return_inverse=True)
        if distinct.size == batch.size:
            return queries, None
        fields = (distinct // width, distinct % width, np.zeros_like(distinct))
        rest = [np.asarray(x, np.int32) for x in fields]
        where = ("context_batch", "context_new", "context_prefix")
        return eqx.tree_at(lambda q: [getattr(q, name) for name in where], queries, rest), spread


@eqx.filter_jit
def _evaluate(arrays: BoundArrays, queries: StepQueries, constants, roofline: bool) -> StepTimes:
    return step_times(arrays, queries, constants, roofline=roofline)


@eqx.filter_jit
def _rooflines(arrays: BoundArrays, queries: StepQueries, constants) -> tuple[dict[str, Any], Any]:
    return row_rooflines_ms(arrays, queries, constants)


def step_queries(**groups: Any) -> StepQueries:
    """Queries from whichever groups are given, as int arrays; the others are empty.

    Raises:
        InputError: A coordinate is negative, or only a part of a group is given.
    """
    fields: dict[str, np.ndarray] = {}
    for group in COORDINATES.values():
        given = [name for name in group if name in groups]
        if given and len(given) < len(group):
            raise InputError(given[0], groups[given[0]], f"given together with {', '.join(group)}")
        values = np.broadcast_arrays(*[np.asarray(groups[n], np.int32).reshape(-1) for n in given]) if given else []
        for at, name in enumerate(group):
            fields[name] = values[at] if given else np.zeros(0, np.int32)
            if (fields[name] < 0).any():
                raise InputError(name, int(fields[name].min()), "zero or more")
    if unknown := set(groups) - set(fields):
        raise InputError(sorted(unknown)[0], groups[sorted(unknown)[0]], f"one of {', '.join(fields)}")
    return StepQueries(**fields)


def padded_queries(queries: StepQueries) -> tuple[StepQueries, list[int]]:
    """Queries with each group padded to a bucket, and the length of each group before."""
    fields, lengths = {}, []
    for group in COORDINATES.values():
        lengths.append(len(getattr(queries, group[0])))
        for name in group:
            values = np.asarray(getattr(queries, name), np.int32)
            fields[name] = np.pad(values, (0, point_bucket(values.size) - values.size), constant_values=1)
    return StepQueries(**fields), lengths


def bind(
    system: System,
    backend: str,
    version: str,
    op_lists: Sequence[OpLists],
    *,
    mode: str = "SILICON",
    transfer_policy: str | None = None,
    share: bool | None = None,
    constants: Constants | None = None,
    attention_backend: str | None = None,
    compat: Compat = DEFAULT,
) -> BoundModel:
    """A model in all its layouts, bound to the tables of one system and backend.

    Done once for a model and its layouts, on the host: every operator finds its table, its measured site or its
    neighbours and their weights. Batch sizes and lengths come later, in `BoundModel.evaluate`.

    Args:
        system, backend, version: Which tables; `version` is resolved.
        op_lists: Operators of each layout.
        mode: `SILICON` (measured tables), `HYBRID` (estimates where they miss), `EMPIRICAL` (estimates alone) or `SOL`
            (rooflines).
        transfer_policy: What an estimate may borrow from: a preset of `database.TRANSFERS`, or a comma list of presets
            and kinds; anything when None.
        share: Whether tables of other versions and backends fill gaps; where tables interpolate when None.
        constants: Empirical numbers; the reference set of the backend when None.
        attention_backend: Attention kernel to prefer; the backend's own when None.
        compat: Defects of AIConfigurator that reading tables follows.

    Raises:
        InputError: An unknown mode, policy or attention backend, or no layout.
        MissingPeak: The system states no peak for a format of the model.
    """
    if not op_lists:
        raise InputError("op_lists", op_lists, "at least one layout")
    kinds = transfer_kinds(transfer_policy, compat)
    database = Database(system, backend, version, mode, kinds, attention_backend, share, **reading(compat))
    layouts = [part_operators(database, lists) for lists in op_lists]
    tokens, token_place = bind_tokens(database, [op for parts in layouts for part in parts for op in part.token_ops])
    sequences, places = {}, {}
    for part in PARTS:
        ops = [op for parts in layouts for op in parts[PARTS.index(part)].sequence_ops]
        sequences[part], places[part] = bind_sequences(database, ops)
    operators: list[dict[str, tuple[Operator, ...]]] = [{} for _ in layouts]
    weights = []
    for index, part in enumerate(PARTS):
        timed_together = part.endswith("rest") or any(parts[index].token_ops for parts in layouts)
        token_rows = tokens.count if timed_together else 0
        placed = [parts[index].placed(token_place, places[part], token_rows) for parts in layouts]
        for known, own in zip(operators, placed, strict=True):
            known[part] = own
        weights.append(part_weights(placed, token_rows + sequences[part].count))
    arrays = BoundArrays(
        tokens=tokens,
        context_other=sequences["context_rest"],
        context_attention=sequences["context_attention"],
        generation_attention=sequences["generation_attention"],
        generation_other=sequences["generation_other"],
        weights=tuple(weights),
        hardware=hardware_arrays(system),
    )
    known = constants or load_constants(backend)
    return BoundModel(arrays, known, not database.measured, len(op_lists), tuple(operators))
