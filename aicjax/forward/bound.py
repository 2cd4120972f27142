# SPDX-License-Identifier: Apache-2.0
"""A model in all its layouts, bound to the tables of one system and backend."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aicjax._results import InputError, Provenance
from aicjax.constants import Constants, load_constants, traced
from aicjax.forward.steps import BoundArrays, PassTimes, StepQueries, StepTimes, step_times
from aicjax.hardware import System
from aicjax.interp.counts import point_bucket
from aicjax.ops.attention import AttentionRows, bind_attention
from aicjax.ops.attention_tables import backend_lanes
from aicjax.ops.database import Database
from aicjax.ops.records import AttentionOp, OpLists
from aicjax.ops.roofline import hardware_arrays
from aicjax.ops.tokens import bind_tokens, distinct

MODES = ("SILICON", "SOL")
PARTS = ("context_rest", "context_attention", "generation_rest", "generation_attention")
CONFIG_BUCKET = 4
_PREFILL = ("prefill_batch", "prefill_new", "prefill_prefix")
_GROUPS = (("context_tokens", "context_last"), _PREFILL, ("generation_rows",), ("decode_rows", "decode_length"))


@dataclass(frozen=True)
class Operator:
    """One operator of a layout: its name, the row that answers for it, and how often it runs in a pass."""

    name: str
    row: int
    scale: float


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


@dataclass(frozen=True)
class StepCurves:
    """Step times on the host: the four parts of every step, float32 [config, point]; NaN where data are missing.

    Attributes:
        context_rest_ms, context_attention_ms, generation_rest_ms, generation_attention_ms: Totals [config, point].
    """

    context_rest_ms: np.ndarray
    context_attention_ms: np.ndarray
    generation_rest_ms: np.ndarray
    generation_attention_ms: np.ndarray
    _passes: dict[str, PassTimes] = field(repr=False)
    _operators: tuple[dict[str, tuple[Operator, ...]], ...] = field(repr=False)

    def breakdown(self, part: str, config: int, point: int) -> Breakdown:
        """Operators of one part (a name of `PARTS`) of one layout at one coordinate."""
        times, operators = self._passes[part], self._operators[config][part]
        rows = np.array([op.row for op in operators], int)
        scale = np.array([op.scale for op in operators])
        latency = np.asarray(times.row_ms)[rows, point].astype(np.float64) * scale
        code = np.where(scale > 0, np.asarray(times.provenance)[rows, point], Provenance.NONE)
        return Breakdown(tuple(op.name for op in operators), np.where(scale > 0, latency, 0.0), code)

    def missing(self, part: str, config: int) -> list[str]:
        """Operators of one part of one layout that have no answer at some coordinate."""
        times = np.any(np.isnan(self._passes[part].row_ms), axis=-1, keepdims=True)
        return [op.name for op in self._operators[config][part] if op.scale > 0 and times[op.row, 0]]


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
        padded, lengths = _padded(queries)
        times = jax.device_get(_evaluate(self.arrays, padded, traced(self.constants.op), self.roofline))
        passes = {
            part: jax.tree.map(lambda x, n=length: x[:, :n], getattr(times, part))
            for part, length in zip(PARTS, lengths, strict=True)
        }
        totals = [passes[part].total_ms[: self.layouts] for part in PARTS]
        return StepCurves(*totals, _passes=passes, _operators=self.operators)


@eqx.filter_jit
def _evaluate(arrays: BoundArrays, queries: StepQueries, constants, roofline: bool) -> StepTimes:
    return step_times(arrays, queries, constants, roofline=roofline)


def step_queries(**groups: Any) -> StepQueries:
    """Queries from whichever groups are given, as int arrays; the others are empty.

    Raises:
        InputError: A coordinate is negative, or only a part of a group is given.
    """
    fields: dict[str, np.ndarray] = {}
    for group in _GROUPS:
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


def _padded(queries: StepQueries) -> tuple[StepQueries, list[int]]:
    fields, lengths = {}, []
    for group in _GROUPS:
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
    constants: Constants | None = None,
    attention_backend: str | None = None,
) -> BoundModel:
    """A model in all its layouts, bound to the tables of one system and backend.

    Done once for a model and its layouts, on the host: every operator finds its table, its measured site or its
    neighbours and their weights. Batch sizes and lengths come later, in `BoundModel.evaluate`.

    Args:
        system, backend, version: Which tables; `version` is resolved.
        op_lists: Operators of each layout.
        mode: `SILICON` (measured tables) or `SOL` (rooflines).
        constants: Empirical numbers; the reference set of the backend when None.
        attention_backend: Attention kernel to prefer; the backend's own when None.

    Raises:
        InputError: An unknown mode or attention backend, or no layout.
        MissingPeak: The system states no peak for a format of the model.
    """
    if mode not in MODES:
        raise InputError("mode", mode, f"one of {', '.join(MODES)}")
    if not op_lists:
        raise InputError("op_lists", op_lists, "at least one layout")
    database = Database(system, backend, version, mode)
    listed = [op for lists in op_lists for op in (*lists.context, *lists.generation)]
    token_ops = [op for op in listed if not isinstance(op, AttentionOp)]
    tokens, place = bind_tokens(database, token_ops)
    attention, attention_place = {}, {}
    for phase in ("context", "generation"):
        ops = [op for lists in op_lists for op in getattr(lists, phase) if isinstance(op, AttentionOp)]
        lanes = backend_lanes(database, phase, attention_backend)
        attention[phase], attention_place[phase] = _bind_attention(database, phase, ops, lanes)
    operators = tuple(_operators(lists, place, attention_place) for lists in op_lists)
    rows = sum(r.shape[0] for r in tokens.reads)
    arrays = BoundArrays(
        tokens=tokens,
        context_attention=attention["context"],
        generation_attention=attention["generation"],
        context_weight=_weights(operators, "context_rest", rows),
        generation_weight=_weights(operators, "generation_rest", rows),
        context_attention_weight=_weights(operators, "context_attention", attention["context"].heads.shape[0]),
        generation_attention_weight=_weights(operators, "generation_attention", attention["generation"].heads.shape[0]),
        hardware=hardware_arrays(system),
    )
    return BoundModel(arrays, constants or load_constants(backend), not database.measured, len(op_lists), operators)


def _bind_attention(database, phase, ops, lanes) -> tuple[AttentionRows, dict]:
    keys = list(dict.fromkeys(distinct(op) for op in ops))
    firsts = {distinct(op): op for op in ops}
    rows = 1 << max(len(keys) - 1, 0).bit_length()
    records = [firsts[key] for key in keys]
    bound = bind_attention(database, phase, records, lanes, rows=rows)
    return bound, {key: at for at, key in enumerate(keys)}


def _operators(lists: OpLists, place: dict, attention_place: dict) -> dict[str, tuple[Operator, ...]]:
    """Operators of one layout by part, each with its row."""
    parts: dict[str, list[Operator]] = {part: [] for part in PARTS}
    for phase in ("context", "generation"):
        for op in getattr(lists, phase):
            attention = isinstance(op, AttentionOp)
            row = attention_place[phase][distinct(op)] if attention else place[distinct(op)]
            parts[f"{phase}_{'attention' if attention else 'rest'}"].append(Operator(op.name, row, op.scale))
    return {part: tuple(ops) for part, ops in parts.items()}


def _weights(operators: Sequence[dict[str, tuple[Operator, ...]]], part: str, rows: int) -> np.ndarray:
    """How often each row runs in one part of each layout [config, row], padded."""
    weight = np.zeros((-(-len(operators) // CONFIG_BUCKET) * CONFIG_BUCKET, rows))
    for config, parts in enumerate(operators):
        for op in parts[part]:
            weight[config, op.row] += op.scale
    return weight.astype(np.float32)
