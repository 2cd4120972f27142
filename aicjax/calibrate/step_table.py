# SPDX-License-Identifier: Apache-2.0
"""Kernel times of measured rows, as closed-loop formulas read them: evaluated once, so that a fit needs no engine."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aicjax._types import Array
from aicjax.calibrate.engines import price
from aicjax.calibrate.launch import LaunchFacts, launch_facts, launched
from aicjax.calibrate.loads import LoadShapes, load_shapes
from aicjax.calibrate.mapping import Rules, Stated
from aicjax.calibrate.measurements import Flags, Floats, Ints, Measurements, Strings
from aicjax.calibrate.plan import RoleWorker
from aicjax.explore.request import BACKENDS
from aicjax.explore.roles import Worker
from aicjax.forward.bound import StepCurves
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.load import Load

GRID = 23  # batches from 1 to the row's own, a factor of the root of 2 apart at most: up to 2,048 requests of a rank
SHARED_PROMPTS = np.array([1, 2, 4, 8, 16, 32])
WIDE_EXPERTS = 16  # GPUs
NO_LIMIT = 1e12  # tokens


class StepTimes(NamedTuple):
    """What the formulas read of each row; times in ms at mean lengths, all floats [row, ...].

    Attributes:
        isl, osl: Mean prompt and output tokens.
        concurrency: Requests in flight of the server.
        waves: Requests measured relative to the concurrency; 0 where unknown.
        least_share: Least length relative to the nominal one.
        layers: Decoder layers.
        ranks: Attention ranks that decode.
        prefill_ranks: Attention ranks that prefill; 0 for in-flight batching.
        wide: 1 where experts of a decode worker span `WIDE_EXPERTS` GPUs or more.
        slots: Requests that a decode rank runs at once at most; infinite where nothing limits them.
        prompts: Prompts that a step takes; 0 where unknown.
        receive_steps: Decode steps from one look at the queue of arrivals to the next.
        gather_steps: Most decode steps that a prompt is held back for others to come.
        gather_prompts: Prompts of a rank that end this wait.
        kv_tokens: Tokens of KV cache that a rank holds; `NO_LIMIT` where it limits nothing.
        batches: Requests of a rank, ascending, up to those in flight [row, GRID].
        decode_ms: Decode step of so many [row, GRID].
        increment_ms: What one prompt adds to it [row, GRID]; 0 for disaggregated rows.
        prefill_ms: A prompt in a step of its own.
        shared_prefill_ms: A prompt of a step of `SHARED_PROMPTS` prompts, per prompt [row, shared].
    """

    isl: Array
    osl: Array
    concurrency: Array
    waves: Array
    least_share: Array
    layers: Array
    ranks: Array
    prefill_ranks: Array
    wide: Array
    slots: Array
    prompts: Array
    receive_steps: Array
    gather_steps: Array
    gather_prompts: Array
    kv_tokens: Array
    batches: Array
    decode_ms: Array
    increment_ms: Array
    prefill_ms: Array
    shared_prefill_ms: Array


@dataclass(frozen=True)
class StepTable:
    """Step times of measured rows; all shapes [row, ...], NaN where there is no answer.

    Attributes:
        times: What the formulas read.
        backend: Position of the engine in `BACKENDS`.
        is_agg: Rows of in-flight batching; the others are disaggregated.
        attempt: Label of the attempt that answered; "" for none.
        reason: Why there is no answer; "" where there is one.
    """

    times: StepTimes
    backend: Ints
    is_agg: Flags
    attempt: Strings
    reason: Strings

    def __len__(self) -> int:
        return len(self.backend)

    @property
    def answered(self) -> Flags:
        """Rows with an answer."""
        return self.attempt != ""

    def take(self, rows: Any) -> "StepTable":
        """The chosen rows: a mask or positions."""
        others = {f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self) if f.name != "times"}
        return StepTable(self.times._make(values[rows] for values in self.times), **others)


def step_table(rows: Measurements, constants: str = "reference", rules: Rules = "checkpoint") -> StepTable:
    """Step times of measured rows, each engine evaluated once.

    Args:
        rows: Measured servers.
        constants: Empirical numbers of single operators and of memory: a name under `configs/constants/`, or a path.
        rules: How rows are mapped to configurations.

    Raises:
        InputError: No such constants.
    """
    shapes, facts = load_shapes(rows), launch_facts(rows)
    rows = launched(rows, facts) if rules != "labels" else rows
    mean = dataclasses.replace(rows, isl=_tokens(rows.isl, shapes), osl=_tokens(rows.osl, shapes))
    stated = Stated(facts.kv_cache, facts.attention_kernel) if rules != "labels" else None
    found = price(mean, _Kernels(), constants, rules, stated)
    loop = _Loop.of(rows)
    times = StepTimes(
        isl=rows.isl * shapes.mean_share,
        osl=rows.osl * shapes.mean_share,
        concurrency=loop.concurrency.astype(float),
        waves=shapes.waves,
        least_share=shapes.least_share,
        ranks=loop.ranks.astype(float),
        prefill_ranks=np.where(rows.is_agg, 0.0, rows.prefill.dp * rows.prefill.count),
        wide=(rows.decode.moe_ep >= WIDE_EXPERTS).astype(float),
        batches=loop.batches.astype(float),
        slots=np.where(rows.is_agg, np.inf, facts.slots),
        prompts=np.where(facts.published, facts.prompts_per_step, 0.0),
        receive_steps=facts.receive_steps,
        gather_steps=np.maximum(facts.gather_steps, facts.balance_steps),
        gather_prompts=_gathered(rows, facts, shapes),
        **found.columns,
    )
    backend = np.array([BACKENDS.index(name) for name in rows.backend], np.int64)
    return StepTable(times, backend, rows.is_agg, found.attempt, found.reason)


class _Loop(NamedTuple):
    """Requests of one server.

    Attributes:
        concurrency: Requests in flight; of several servers behind one load those of one [row].
        ranks: Attention ranks that decode [row].
        batches: Requests of a rank that are priced, ascending [row, GRID].
    """

    concurrency: Ints
    ranks: Ints
    batches: Ints

    @classmethod
    def of(cls, rows: Measurements) -> "_Loop":
        ranks = np.maximum(np.where(rows.is_agg, rows.agg.dp, rows.decode.dp * rows.decode.count), 1)
        concurrency = np.where(rows.is_agg & rows.agg.known, rows.agg.batch * ranks, rows.concurrency)
        most = np.maximum(-(-concurrency // ranks), 1)
        shrunk = np.round(most[:, None] * 2.0 ** (-np.arange(GRID) / 2)).astype(np.int64)
        return cls(concurrency, ranks, np.maximum(shrunk[:, ::-1], 1))


class _WorkerRows(NamedTuple):
    """Rows of one worker, with the places of what they need.

    Attributes:
        rows: Positions of the rows [row].
        layout: Which layout of the worker each runs [row].
        worker: The worker.
        of: The rows.
        prompt: Places whose sum is a prompt in a step of its own [row]; none for a decode worker.
        prompts: Places of several prompts, all but attention [row, shared].
        decode: Places whose sum is a decode step [row, GRID]; none for a prefill worker.
        mixed: Places of a prompt and decode rows, all but attention [row, GRID]; for in-flight batching.
    """

    rows: Ints
    layout: Ints
    worker: Worker
    of: Measurements
    prompt: tuple[Places, ...]
    prompts: tuple[Places, ...]
    decode: tuple[Places, ...]
    mixed: tuple[Places, ...]


class _Kernels:
    """The pricing of step times."""

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """Fields of `StepTimes` that engines answer."""
        on_grid = dict.fromkeys(("decode_ms", "increment_ms"), (GRID,))
        numbers = dict.fromkeys(("prefill_ms", "layers", "kv_tokens"), ())
        return {**on_grid, **numbers, "shared_prefill_ms": (len(SHARED_PROMPTS),)}

    def plan(self, rows: Measurements, of: RoleWorker, coordinates: Coordinates) -> Iterator[_WorkerRows]:
        """One batch for all loads of a worker."""
        at = rows.take(of.rows)
        isl, batches = at.isl[:, None], _Loop.of(at).batches
        kv_len = np.array([Load(int(i), int(o)).mid_kv_len for i, o in zip(at.isl, at.osl, strict=True)])[:, None]
        prompt, prompts, decode, mixed = (), (), (), ()
        if of.role != "decode":
            prompt = coordinates.context_rest(1, at.isl, 0), coordinates.context_attention(1, at.isl, 0)
            prompts = (coordinates.context_rest(SHARED_PROMPTS, isl, 0),)
        if of.role != "prefill":
            lengthwise = coordinates.generation_attention, coordinates.generation_other
            decode = coordinates.generation_rest(batches), *(places(batches, kv_len) for places in lengthwise)
        if of.role == "agg":
            mixed = (coordinates.context_rest(1, isl + batches, 0),)
        yield _WorkerRows(of.rows, of.layout, of.worker, at, prompt, prompts, decode, mixed)

    def fill(self, batch: _WorkerRows, curves: StepCurves, configs: Sequence[int], answers: dict[str, Floats]) -> None:
        """Writes the times of one worker's rows."""
        config, rows = np.asarray(configs)[batch.layout], batch.rows

        def at(places: Places) -> Floats:
            own = config.reshape(-1, *[1] * (places.inverse.ndim - 1))
            return places.curve(curves)[own, places.inverse].astype(float)

        if batch.prompt:
            rest, attention = (at(places) for places in batch.prompt)
            answers["prefill_ms"][rows] = rest + attention
            (together,) = (at(places) for places in batch.prompts)
            answers["shared_prefill_ms"][rows] = together / SHARED_PROMPTS + attention[:, None]
            answers["layers"][rows] = batch.worker.deployment.model.layers
        if batch.decode:
            answers["decode_ms"][rows] = sum(at(places) for places in batch.decode)
        if batch.mixed:
            beside, attention = at(batch.mixed[0]) - at(batch.decode[0]), at(batch.prompt[1])
            answers["increment_ms"][rows] = np.maximum(beside, 0.0) + attention[:, None]
            answers["kv_tokens"][rows] = _kv_tokens(batch)
        elif batch.decode:
            answers["increment_ms"][rows], answers["kv_tokens"][rows] = 0.0, NO_LIMIT

    def finish(self, rows: Measurements, batches: Sequence[Any], answers: dict[str, Floats]) -> None:
        """Nothing: disaggregated rows are paired by the formulas."""


def _kv_tokens(batch: _WorkerRows) -> Floats:
    """Tokens of KV cache that a rank has room for at the rows' lengths [row]; no limit where not one request fits.

    A server that ran had room for a request: where the memory model denies it, the model is wrong, and says nothing.
    """
    memory, at = batch.worker.memory, batch.of
    split = memory.inflight(at.agg.batch, at.isl, at.osl, at.isl)
    own, shape = (batch.layout, np.arange(len(at))), (len(memory.parallels), len(at))
    room = np.broadcast_to(split.kv_budget_bytes, shape)[own]
    request = np.broadcast_to(memory.kv_curve.bytes(at.isl + at.osl), shape)[own]
    return np.where(room >= request, room / request * (at.isl + at.osl), NO_LIMIT)


def _gathered(rows: Measurements, facts: LaunchFacts, shapes: LoadShapes) -> Floats:
    """Prompts of a rank that end a wait for others: by their tokens, or so many that every rank has one [row].

    Of prompts that come to n ranks by chance, 1 + 1/2 + ... + 1/n of a rank have come when every rank has one.
    """
    of_ranks = np.array([np.sum(1.0 / np.arange(1, ranks + 1)) for ranks in np.maximum(rows.agg.dp, 1)])
    of_tokens = np.maximum(facts.gather_tokens / (rows.isl * shapes.mean_share), 1.0)
    return np.where(facts.balance_steps > 0, 1.0 + of_ranks, of_tokens)


def _tokens(nominal: Ints, shapes: LoadShapes) -> Ints:
    return np.maximum(np.round(nominal * shapes.mean_share), 1).astype(np.int64)
