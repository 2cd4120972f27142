# SPDX-License-Identifier: Apache-2.0
"""Inputs at the edge of what can be computed: each is refused in one line, or named by a verdict."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from aicjax._results import DataError, InputError
from aicjax.fleet.capacity import MOST_REPLICAS, Target, Verdict, least_replicas
from aicjax.fleet.cdf import load_lengths
from aicjax.fleet.replica_spec import ManualReplica
from aicjax.fleet.requests import SizeRequest
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.traces import load_trace

DEEP = "[" * 100_000
FAST = ServiceLaw(jnp.array([1.0]), jnp.array([0.1]), jnp.ones(1))


@pytest.mark.parametrize(("rho_max", "availability"), [(1e-6, 1.0), (0.85, 1e-9), (0.85, 1e-30)])
def test_counts_beyond_all_bounds_are_no_answer(rho_max: float, availability: float):
    found = least_replicas(16.0, 200.0, FAST, Target(0.5, rho_max=rho_max), availability=availability)
    assert found.verdict == Verdict.COUNT_TOO_LARGE
    assert found.replicas == MOST_REPLICAS


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (DEEP, "not JSON"),
        ("[[1000000000, 1.0]]", "at most"),
        ('{"kind": "joint_counts", "cdf": [[10, 1.0]]}', "counts"),
    ],
)
def test_broken_distributions_are_refused(tmp_path: Path, text: str, rule: str):
    path = tmp_path / "lengths.json"
    path.write_text(text)
    with pytest.raises(DataError, match=rule):
        load_lengths(str(path))


def test_counts_outside_their_cells_are_refused(tmp_path: Path):
    path = tmp_path / "lengths.json"
    cells = {"isl_edges": [8, 16], "osl_edges": [8], "least_isl": 1, "most_isl": 20, "least_osl": 1, "most_osl": 9}
    path.write_text(json.dumps({"kind": "joint_counts", "cdf": [[29, 1.0]], "counts": [[0, 5, 3]], **cells}))
    with pytest.raises(DataError, match="cells"):
        load_lengths(str(path))


@pytest.mark.parametrize("bad", [DEEP, '{"a":' + DEEP, '{"timestamp": 0, "input_length": 1' + "0" * 400 + "}"])
def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, bad: str):
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"timestamp": 0, "input_length": 9, "output_length": 5}}\n{bad}\n')
    trace = load_trace(path)
    assert (trace.isl.size, trace.refused) == (1, 1)


def test_hashes_of_any_kind_are_compared(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    row = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [[1], {"a": 2}]}\n'
    path.write_text(row * 2)
    assert load_trace(path).repeated_tokens.tolist() == [0, 600]


def test_times_beyond_every_date_are_refused(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n-1e308,3,3\n1e308,3,3\n")
    trace = load_trace(path)
    assert (trace.time_s.tolist(), trace.refused) == ([0.0], 2)


@pytest.mark.parametrize(
    ("field", "value"), [("ttft_ms", 1e300), ("arrival_cv2", 1e12), ("seed", 10**23), ("seed", -1)]
)
def test_numbers_beyond_float32_are_refused(field: str, value: Any):
    with pytest.raises(InputError, match=field):
        SizeRequest(workload="azure", **{field: value})


@pytest.mark.parametrize(("field", "value"), [("base_ms", 1e-30), ("base_ms", 1e30), ("price_per_hour", 1e300)])
def test_replicas_beyond_float32_are_refused(field: str, value: Any):
    fields: dict[str, Any] = {"base_ms": 8.0, "per_sequence_ms": 0.65, field: value}
    with pytest.raises(InputError, match=field):
        ManualReplica(**fields)
