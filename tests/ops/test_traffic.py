# SPDX-License-Identifier: Apache-2.0
"""Operators that only move bytes: bytes over bandwidth plus a constant, and the tokens they count."""

import pytest

from aicjax._results import Provenance
from aicjax.ops.query import operator_latency
from aicjax.ops.records import P2P, Elementwise, Embedding
from tests.ops import made_up
from tests.oracles import rooflines

TOLERANCE = 1e-5  # float32 against float64
OPS = [
    Elementwise("norm", 1.0, 4096.0),
    Elementwise("twice", 2.0, 4096.0),
    Elementwise("floor", 1.0, 4096.0, token_divisor=3),
    Elementwise("both", 1.0, 4096.0, token_divisor=3, seq_split=2),
    Embedding("embedding", 1.0, 32000, 1024),
    Embedding("bytes", 1.0, 32000, 1024, quant="fp8"),
    P2P("hand-over", 1.0, 1024, 2),
    P2P("one stage", 1.0, 1024, 1),
]
MOVED = [100 * 4096, 100 * 4096, 33 * 4096, 17 * 4096, 100 * 2048, 100 * 1024, 100 * 2048, 0]


def test_traffic_takes_its_bytes_at_the_systems_efficiency():
    system = made_up.system()
    times = operator_latency(system, *made_up.WHERE, OPS, tokens=100)
    rates = (system.mem_bw_bytes_per_s, system.mem_bw_scaling, system.mem_latency_s)
    want = [rooflines.traffic_ms(moved, *rates) for moved in MOVED[:6]]
    want[1] *= 2
    want += [rooflines.traffic_ms(MOVED[6], system.inter_node_bw_bytes_per_s, 1.0, system.p2p_latency_s), 0.0]
    assert times.latency_ms == pytest.approx(want, rel=TOLERANCE)
    assert times.provenance.tolist() == [Provenance.ANALYTIC] * 7 + [Provenance.NONE]


def test_rooflines_of_traffic_have_the_whole_bandwidth_and_no_constant():
    system = made_up.system()
    times = operator_latency(system, *made_up.WHERE, OPS, mode="SOL", tokens=100)
    want = [rooflines.traffic_ms(moved, system.mem_bw_bytes_per_s) for moved in MOVED]
    want[1] *= 2
    want[6] = rooflines.traffic_ms(MOVED[6], system.inter_node_bw_bytes_per_s)
    assert times.latency_ms == pytest.approx(want, rel=TOLERANCE)


def test_no_tokens_still_cost_the_constant():
    system = made_up.system()
    times = operator_latency(system, *made_up.WHERE, [Elementwise("norm", 1.0, 4096.0)], tokens=0)
    assert times.latency_ms == pytest.approx([1e3 * system.mem_latency_s], rel=TOLERANCE)
