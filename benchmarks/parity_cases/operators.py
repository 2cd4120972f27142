# SPDX-License-Identifier: Apache-2.0
"""Single operators: every row is one operator at one coordinate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicjax._results import AicjaxError, MissingPeak
from aicjax.hardware import System, load_system
from aicjax.ops.query import operator_latency
from aicjax.ops.records import (
    P2P,
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    EncoderAttention,
    Gemm,
    GenerationAttention,
    Nccl,
    Op,
)
from benchmarks.parity_cases.comparison import NO_DATA, NO_PEAK, Comparison, outcome_of, stored_outcome
from benchmarks.parity_cases.stored import StoredRows
from benchmarks.parity_cases.workers import TABLES

Record = Callable[[dict[str, Any]], Op]
Where = tuple[System, str, str]
_ESTIMATES = ("HYBRID", "EMPIRICAL")
_POLICY = "transfer_policy"


@dataclass(frozen=True)
class Operators:
    """How the rows of one file are asked.

    Attributes:
        record: Operator of a row.
        points: Coordinates: argument of `operator_latency` -> column.
        formats: Columns that name number formats: the system may state no peak for one.
        group: Columns beyond the tables that rows of one call share.
    """

    record: Record
    points: Mapping[str, str]
    formats: tuple[str, ...] = ()
    group: tuple[str, ...] = ()

    def __call__(self, rows: StoredRows) -> Comparison:
        """Our answers, one call for each (system, backend, version, mode) and policy of estimates."""
        comparison = Comparison(stored_outcome(rows["error"]))
        for (system, backend, version, mode, *shared), group in rows.groups(*TABLES, "mode", *self.group):
            lanes = dict(zip(self.group, shared, strict=True)).get("lane_order")
            where = (load_system(system), backend, version)
            for policy, at in _policies(rows, group, mode):
                options = {"mode": mode, "transfer_policy": policy, "lanes": lanes.split("|") if lanes else None}
                try:
                    latency_ms, peak = self._latency(rows.take(at), where, options)
                except AicjaxError as error:
                    comparison.fail(at, outcome_of(error))
                    continue
                comparison.fail(at[np.isnan(latency_ms)], NO_DATA)
                comparison.fail(at[~peak], NO_PEAK)
                comparison.number(at, "latency_ms", rows["latency_ms"][at], latency_ms)
        return comparison

    def _latency(self, rows: StoredRows, where: Where, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Latency of each row, and whether the system states a peak for its formats [row]."""
        everything = np.arange(len(rows))
        try:
            return self._ask(rows, where, options), np.ones(len(rows), bool)
        except MissingPeak:
            peak = np.ones(len(rows), bool)
            for _, at in rows.groups(*self.formats):
                try:
                    self._ask(rows.take(at[:1]), where, options)
                except MissingPeak:
                    peak[at] = False
            latency_ms = np.full(len(rows), np.nan)
            if peak.any():
                latency_ms[peak] = self._ask(rows.take(everything[peak]), where, options)
            return latency_ms, peak

    def _ask(self, rows: StoredRows, where: Where, options: dict[str, Any]) -> np.ndarray:
        """Latency of each row."""
        ops = [self.record(row) for row in rows.records(np.arange(len(rows)))]
        points = {argument: rows[column] for argument, column in self.points.items() if column in rows}
        return operator_latency(*where, ops, **points, **options).latency_ms


def _policies(rows: StoredRows, group: np.ndarray, mode: str) -> Iterator[tuple[str | None, np.ndarray]]:
    """What estimates may borrow from, None for anything, and the rows of the group under that policy."""
    if mode not in _ESTIMATES or _POLICY not in rows:
        yield None, group
        return
    for (policy,), members in rows.take(group).groups(_POLICY):
        yield None if policy == "default" else policy, group[members]


def _gemm(row: dict[str, Any]) -> Op:
    return Gemm("gemm", 1.0, row["n"], row["k"], row["quant_mode"], row["low_precision_input"])


def _all_reduce(row: dict[str, Any]) -> Op:
    return AllReduce("all_reduce", 1.0, row["hidden_size"], row["tp_size"], seq_split=row["seq_split"])


def _nccl(row: dict[str, Any]) -> Op:
    return Nccl("nccl", 1.0, row["operation"], row["elements_per_token"], row["num_gpus"], row["dtype"])


def _traffic(row: dict[str, Any]) -> Op:
    kind, scale, split = row["op"], row["scale_factor"], row["seq_split"]
    if kind == "elementwise":
        return Elementwise(kind, scale, row["bytes_per_token"], int(row["scale_num_tokens"]), split)
    hidden = int(row["hidden_size"])
    if kind == "embedding":
        return Embedding(kind, scale, 1, hidden, row["quant_mode"], split)  # latency does not read the vocabulary
    return P2P(kind, scale, hidden, int(row["pp_size"]), split)


def _attention(row: dict[str, Any]) -> Op:
    return {"context": _context_attention, "generation": _generation_attention}[row["phase"]](row)


def _context_attention(row: dict[str, Any]) -> Op:
    return ContextAttention(
        "context_attention",
        1.0,
        *_attention_shape(row),
        fmha_quant=row["fmha_quant_mode"],
        window=row["window_size"],
        qk_norm=row.get("use_qk_norm", False),
        cp=row.get("cp_size", 1),
        seq_imbalance=row.get("seq_imbalance_scale", 1.0),
    )


def _generation_attention(row: dict[str, Any]) -> Op:
    return GenerationAttention(
        "generation_attention",
        1.0,
        *_attention_shape(row),
        window=row["window_size"],
        seq_imbalance=row.get("gen_seq_imbalance_scale", 1.0),
    )


def _encoder_attention(row: dict[str, Any]) -> Op:
    return EncoderAttention(
        "encoder_attention",
        1.0,
        row["num_heads"],
        row["head_size"],
        row["fmha_quant_mode"],
        row["partial_rotary_factor"],
    )


def _attention_shape(row: dict[str, Any]) -> Sequence[Any]:
    return row["num_heads"], row["num_kv_heads"], row["head_size"], row["kv_cache_dtype"]


_SEQUENCES = {"batch": "batch", "length": "s"}
_PROMPTS = {**_SEQUENCES, "prefix": "prefix"}
_TOKENS = {"tokens": "num_tokens"}

OPERATORS = {
    "ops_gemm": Operators(_gemm, {"tokens": "m"}, ("quant_mode",)),
    "ops_context_attention": Operators(_context_attention, _PROMPTS, ("fmha_quant_mode",)),
    "ops_generation_attention": Operators(_generation_attention, _SEQUENCES, ("kv_cache_dtype",)),
    "ops_encoder_attention": Operators(_encoder_attention, _SEQUENCES, ("fmha_quant_mode",)),
    "ops_attention_lanes": Operators(
        _attention, _PROMPTS, ("fmha_quant_mode", "kv_cache_dtype"), ("phase", "lane_order")
    ),
    "ops_custom_allreduce": Operators(_all_reduce, _TOKENS),
    "ops_nccl": Operators(_nccl, _TOKENS),
    "ops_mem": Operators(_traffic, _TOKENS, ("quant_mode",)),
}
