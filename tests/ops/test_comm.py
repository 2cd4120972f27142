# SPDX-License-Identifier: Apache-2.0
"""Collectives on made-up curves: which curve answers, groups larger than any collected, eager rows."""

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.ops.query import operator_latency
from aicjax.ops.records import AllReduce, Nccl
from aicjax.tables.rows import Rows
from tests.ops import made_up
from tests.oracles import curves

TOLERANCE = 1e-5  # float32 against float64
CURVE = {128.0: 0.5, 1024.0: 1.0, 8192.0: 4.0}


def allreduce_rows(**groups: float) -> Rows:
    """`CURVE` times a factor for each group size `g2`, `g8`, ..."""
    points = [(int(name[1:]), int(size), t * factor) for name, factor in groups.items() for size, t in CURVE.items()]
    group, size, latency = zip(*points, strict=True)
    return made_up.rows(num_gpus=group, message_size=size, latency=latency)


def library_rows(form: str, operation: str, **groups: float) -> Rows:
    rows = allreduce_rows(**groups)
    count = len(rows)
    columns = {name: rows.number(name).tolist() for name in ("num_gpus", "message_size", "latency")}
    return made_up.rows(nccl_dtype=[form] * count, op_name=[operation] * count, **columns)


@pytest.mark.parametrize("tokens", [1, 2, 5, 64, 100])
def test_all_reduce_reads_the_curve_of_its_group(tokens):
    ops = [
        AllReduce("reduce", 1.0, 64, 2),
        AllReduce("reduce", 3.0, 64, 4),
        AllReduce("split", 1.0, 64, 2, seq_split=3),
    ]
    with made_up.database(custom_allreduce_perf=allreduce_rows(g2=1.0, g4=10.0)):
        times = operator_latency(made_up.system(), *made_up.WHERE, ops, tokens=tokens)
    whole, code = curves.size_curve(CURVE, tokens * 64)
    split, _ = curves.size_curve(CURVE, -(-tokens // 3) * 64)
    assert times.latency_ms == pytest.approx([whole, 30 * whole, split], rel=TOLERANCE)
    assert times.provenance[0] == code


def test_larger_groups_scale_the_largest_by_volume_and_link():
    """16 of 8 collected: 15/16 over 7/8 of the volume crosses, and over the link between nodes."""
    system = made_up.system()
    ops = [AllReduce("reduce", 1.0, 64, tp) for tp in (1, 8, 16, 3)]
    with made_up.database(custom_allreduce_perf=allreduce_rows(g2=1.0, g8=5.0)):
        times = operator_latency(system, *made_up.WHERE, ops, tokens=16)
    link = system.intra_node_bw_bytes_per_s / system.inter_node_bw_bytes_per_s
    assert times.latency_ms[:3] == pytest.approx([0.0, 5.0, 5.0 * (15 / 16) / (7 / 8) * link], rel=TOLERANCE)
    assert np.isnan(times.latency_ms[3]), "a group between collected ones has no curve"
    assert times.provenance.tolist() == [Provenance.NONE, Provenance.EXACT, Provenance.HELD, Provenance.MISSING]
    volume = 4 * 16 * 64 * 15 / 16
    assert times.sol_ms[2] == pytest.approx(1e3 * volume / system.inter_node_bw_bytes_per_s, rel=TOLERANCE)


def test_other_formats_than_half_were_not_measured():
    with made_up.database(custom_allreduce_perf=allreduce_rows(g2=1.0)):
        times = operator_latency(
            made_up.system(), *made_up.WHERE, [AllReduce("reduce", 1.0, 64, 2, quant="fp8")], tokens=16
        )
    assert times.provenance.tolist() == [Provenance.MISSING]


def test_eager_kernels_do_not_count():
    rows = made_up.rows(
        num_gpus=[2, 2, 2, 2],
        message_size=[1024, 1024, 2048, 2048],
        kernel_source=["graph_eager", "graph", "graph", "graph"],
        backend=["x", "x", "nccl_eager", "nccl"],
        latency=[9.0, 1.0, 9.0, 2.0],
    )
    with made_up.database(custom_allreduce_perf=rows):
        times = operator_latency(
            made_up.system(), *made_up.WHERE, [AllReduce("reduce", 1.0, 64, 2)] * 2, tokens=[16, 32]
        )
    assert times.latency_ms.tolist() == [1.0, 2.0]


def test_node_of_a_whole_rack_reduces_through_nccl():
    system = made_up.system(gpus_per_node=72)
    tables = {
        "custom_allreduce_perf": allreduce_rows(g4=1.0, g8=1.0),
        "nccl_perf": library_rows("half", "all_reduce", g8=7.0),
    }
    ops = [AllReduce("reduce", 1.0, 64, 4), AllReduce("reduce", 1.0, 64, 8)]
    with made_up.database(**tables):
        times = operator_latency(system, *made_up.WHERE, ops, tokens=16)
    assert times.latency_ms.tolist() == [1.0, 7.0]


def test_library_curves_are_kept_by_format_and_operation():
    tables = {"nccl_perf": library_rows("half", "all_gather", g2=1.0, g4=2.0)}
    ops = [
        Nccl("gather", 1.0, "all_gather", 64.0, 4),
        Nccl("fraction", 1.0, "all_gather", 0.5, 4),
        Nccl("format", 1.0, "all_gather", 64.0, 4, quant="fp8"),
        Nccl("operation", 1.0, "alltoall", 64.0, 4),
        Nccl("alone", 1.0, "all_gather", 64.0, 1),
    ]
    with made_up.database(**tables):
        times = operator_latency(made_up.system(), *made_up.WHERE, ops, tokens=25)
    want = [2 * curves.size_curve(CURVE, 25 * elements)[0] for elements in (64.0, 0.5)]
    assert times.latency_ms[:2] == pytest.approx(want, rel=TOLERANCE)
    assert times.provenance.tolist()[2:] == [Provenance.MISSING, Provenance.MISSING, Provenance.NONE]


def test_second_library_fills_what_the_first_lacks():
    """The largest collected group counts over both."""
    system = made_up.system(oneccl_version="2021.15")
    tables = {
        "nccl_perf": library_rows("half", "all_gather", g2=1.0),
        "oneccl_perf": library_rows("half", "all_gather", g2=5.0, g4=6.0),
    }
    with made_up.database(**tables):
        times = operator_latency(
            system, *made_up.WHERE, [Nccl("gather", 1.0, "all_gather", 64.0, gpus) for gpus in (2, 4)], tokens=16
        )
    assert times.latency_ms.tolist() == [1.0, 6.0]


@pytest.mark.parametrize(
    ("operation", "volume"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1), ("alltoall", 1)]
)
def test_roofline_of_a_collective_is_its_volume_over_the_link(operation, volume):
    system = made_up.system()
    with made_up.database():
        times = operator_latency(
            system, *made_up.WHERE, [Nccl("op", 1.0, operation, 64.0, 4, quant=q) for q in ("half", "int8")],
            mode="SOL", tokens=16,
        )  # fmt: skip
    half = 1e3 * volume * 2 * 16 * 64 * 3 / 4 / system.intra_node_bw_bytes_per_s
    assert times.latency_ms == pytest.approx([half, half / 2], rel=TOLERANCE)
    assert set(times.provenance.tolist()) == {Provenance.SOL}
