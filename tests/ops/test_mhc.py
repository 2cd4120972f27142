# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections: sums of parts on made-up curves against an oracle."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from aicjax._results import MissingPeak, Provenance
from aicjax.constants import load_constants, traced
from aicjax.ops.database import Database
from aicjax.ops.mhc import bind_mhc, mhc_available, mhc_latency, mhc_sol
from aicjax.ops.query import OpTimes
from aicjax.ops.records import Mhc
from aicjax.ops.roofline import hardware_arrays
from tests.ops import made_up
from tests.oracles.curves import between
from tests.oracles.rooflines import slower

TOLERANCE = 1e-5  # float32 tables and kernels against float64
ROWS = 16  # operators of one call: one compiled program
PRE = Mhc("mix", 1.0, "pre", 4, 1024, 20)
POST, BOTH = dataclasses.replace(PRE, part="post"), dataclasses.replace(PRE, part="both")
CURVES = {"pre": {1: 1.0, 16: 2.0, 64: 8.0}, "post": {1: 0.5, 16: 1.5, 64: 2.0}}


@eqx.filter_jit
def _times(rows, tokens, hardware, constants):
    return mhc_latency(rows, tokens, hardware, constants), mhc_sol(rows, tokens, hardware, constants)


def ask(database: Database, ops: Sequence[Mhc], tokens: Any) -> OpTimes:
    """Times of each operator at its own token count."""
    count = len(ops)
    columns = np.pad(np.broadcast_to(np.float32(tokens), (count,)), (0, ROWS - count), constant_values=1)[:, None]
    constants = traced(load_constants(database.backend).op)
    rows = bind_mhc(database, ops, rows=ROWS)
    times = jax.device_get(_times(rows, columns, hardware_arrays(database.system), constants))
    (latency, code), sol = jax.tree.map(lambda x: x[:count, 0], times)
    return OpTimes(latency if database.measured else sol, sol, code)


def made_up_database(**options: Any) -> Database:
    backend, version = made_up.WHERE
    return Database(**{"system": made_up.system(), "backend": backend, "version": version, **options})


def table(curves: dict[str, dict[int, float]] = CURVES, op: Mhc = PRE) -> Any:
    points = [(part, tokens, latency) for part, curve in curves.items() for tokens, latency in curve.items()]
    part, tokens, latency = zip(*points, strict=True)
    shape = {"hc_mult": [op.hc_mult] * len(part), "hidden_size": [op.hidden_size] * len(part)}
    return made_up.rows(op_name=part, num_tokens=tokens, latency=latency, **shape)


def roofline(op: Mhc, parts: set[str], tokens: int, database: Database) -> float:
    """Project, normalise, balance and sum before a block; mix and add after it. Streams in once, results out."""
    streams, hidden, mixes = op.hc_mult, op.hidden_size, op.hc_mult**2 + 2 * op.hc_mult
    every = streams * hidden
    before = 2 * every * mixes + 3 * every + mixes * op.sinkhorn_iters + 2 * every
    after = 2 * streams * every + 2 * every
    work = 2 * tokens * (("pre" in parts) * before + ("post" in parts) * after)
    weights = 2 * (mixes * every + mixes + 3)
    traffic = 2 * (weights + 2 * tokens * every * (1 + len(parts))) + 8 * tokens * mixes * ("pre" in parts)
    return slower(work, traffic, database.system.peak("bfloat16"), database.system.mem_bw_bytes_per_s)


def parts_of(op: Mhc) -> set[str]:
    return {"pre", "post"} if op.part == "both" else {op.part}


@pytest.mark.parametrize("mode", ["SILICON", "HYBRID"])
@pytest.mark.parametrize("op", [PRE, POST, BOTH])
def test_parts_are_curves_that_hold_the_utilisation_of_their_ends(op, mode):
    tokens = [1, 4, 16, 40, 64, 200, 9000]
    with made_up.database(mhc_module_perf=table()):
        database = made_up_database(mode=mode)
        times = ask(database, [op] * len(tokens), tokens)
    for count, latency, code in zip(tokens, times.latency_ms, times.provenance, strict=True):
        want, how = 0.0, Provenance.NONE
        for part in parts_of(op):
            inside = between(CURVES[part], count)
            growth = roofline(op, {part}, count, database) / roofline(op, {part}, 64, database)
            answer = inside or (CURVES[part][64] * growth, Provenance.HELD)
            want, how = want + answer[0], max(how, answer[1])
        assert code == how
        assert latency == pytest.approx(want, rel=TOLERANCE)


def test_estimates_reproduce_measurements_and_sum_parts():
    with made_up.database(mhc_module_perf=table()):
        times = ask(made_up_database(mode="EMPIRICAL"), [PRE, POST, BOTH] * 2, [16] * 3 + [40] * 3)
    assert times.latency_ms[:3] == pytest.approx([2.0, 1.5, 3.5], rel=TOLERANCE)
    assert times.latency_ms[5] == pytest.approx(times.latency_ms[3] + times.latency_ms[4], rel=TOLERANCE)
    assert set(times.provenance.tolist()) == {Provenance.EMPIRICAL}


@pytest.mark.parametrize("mode", ["SILICON", "HYBRID", "EMPIRICAL"])
def test_shapes_and_parts_that_were_not_measured_are_missed(mode):
    ops = [PRE, POST, BOTH, dataclasses.replace(PRE, hidden_size=512)]
    with made_up.database(mhc_module_perf=table({"pre": CURVES["pre"]})):
        database = made_up_database(mode=mode)
        times = ask(database, ops, 16)
        assert [mhc_available(database, op) for op in ops] == [True, False, False, False]
    assert np.isnan(times.latency_ms).tolist() == [False, True, True, True]
    assert times.provenance.tolist()[1:] == [Provenance.MISSING] * 3


@pytest.mark.parametrize("tokens", [1, 100, 100_000])
def test_roofline_of_both_parts_reads_the_streams_once(tokens):
    with made_up.database(mhc_module_perf=table()):
        database = made_up_database(mode="SOL")
        times = ask(database, [PRE, POST, BOTH], tokens)
    want = [roofline(op, parts_of(op), tokens, database) for op in (PRE, POST, BOTH)]
    assert times.latency_ms == pytest.approx(want, rel=TOLERANCE)


def test_formats_without_a_peak_are_refused():
    database = made_up_database(system=made_up.system(peak_flops={"bfloat16": 1e15}))
    with made_up.database(), pytest.raises(MissingPeak, match="states no peak"):
        bind_mhc(database, [dataclasses.replace(PRE, quant="fp8_block")], rows=ROWS)


def test_weights_are_those_of_both_blocks_of_a_layer():
    """Streams 4 by 1024 wide: 24 mixes of 4096 inputs, as many biases, three scales; 16 bits, twice, 10 layers."""
    assert dataclasses.replace(PRE, scale=10.0).weight_bytes == 10 * 2 * 2 * (24 * 4096 + 24 + 3)
