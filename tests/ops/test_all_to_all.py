# SPDX-License-Identifier: Apache-2.0
"""Exchange of tokens in large expert parallelism: stored answers, and each rule on made-up tables."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import InputError, Provenance
from aicjax.ops.all_to_all import all_to_all_available, find_exchange
from aicjax.ops.exchange_tables import load_exchanges
from aicjax.ops.records import MoeAllToAll
from aicjax.tables.rows import Rows
from benchmarks.parity_cases.expert_operators import EXPERTS
from tests.ops import made_up
from tests.ops.expert_cases import ALL_TO_ALL, TOLERANCE, ask, check_stored, made_up_database, stored
from tests.oracles.curves import size_curve
from tests.oracles.grid import grid

OP = MoeAllToAll("dispatch", 1.0, "dispatch", "deepep_ll", "default", 1024, 2, 16, 8, 1, 0)
Grid = Mapping[Any, float]  # latency by (SMs, tokens)


record = EXPERTS["ops_moe_a2a"].record


def table(*parts: tuple[MoeAllToAll, Grid]) -> Rows:
    """A unified table of the grids of some exchanges."""
    points = [(op, sms, tokens, latency) for op, values in parts for (sms, tokens), latency in values.items()]
    return made_up.rows(
        comm_backend=[op.comm_backend for op, *_ in points],
        phase=[op.phase for op, *_ in points],
        comm_dtype=[op.comm_dtype for op, *_ in points],
        ep_size=[op.moe_ep for op, *_ in points],
        node_num=[op.nodes for op, *_ in points],
        hidden_size=[op.hidden_size for op, *_ in points],
        topk=[op.topk for op, *_ in points],
        num_experts=[op.num_experts for op, *_ in points],
        sms=[sms for _, sms, _, _ in points],
        num_tokens=[tokens for *_, tokens, _ in points],
        latency=[latency for *_, latency in points],
    )


def test_stored_answers():
    """What was measured on one node and stands in for several is marked so."""
    rows = stored("ops_moe_a2a")
    provenance = check_stored(ALL_TO_ALL, rows, record)
    assert ((provenance == Provenance.TRANSFERRED) == (rows["source"] == "estimated")).all()


def test_curves_of_tokens():
    """In proportion to tokens beyond the ends; the GPUs of a rank share its tokens, rounded down."""
    curve = {8: 1.0, 16: 3.0, 64: 5.0}
    tokens = [1, 8, 12, 64, 640]
    shared = dataclasses.replace(OP, attention_tp=4)
    with made_up.database(moe_a2a_perf=table((OP, {(0, t): value for t, value in curve.items()}))):
        times = ask(ALL_TO_ALL, made_up_database(), [OP] * 5 + [shared] * 2, [*tokens, 51, 3])
    want = [size_curve(curve, count) for count in (*tokens, 12, 0)]
    assert times.latency_ms.tolist() == pytest.approx([value for value, _ in want], rel=TOLERANCE, nan_ok=True)
    assert times.provenance.tolist() == [how for _, how in want]
    assert np.isnan(times.sol_ms).all()


HT = dataclasses.replace(OP, comm_backend="deepep_ht", sms=20)
COMBINE = dataclasses.replace(HT, phase="combine")
SMS, TOKENS = (4, 12, 20), (2, 16, 64)
grids = st.lists(st.floats(0.1, 10), min_size=9, max_size=9).map(
    lambda values: dict(zip([(s, t) for s in SMS for t in TOKENS], values, strict=True))
)


@settings(max_examples=15)
@given(one=grids, two=grids, lost=st.sampled_from([(4, 2), (12, 64), (20, 16)]))
def test_phases_keep_their_share_of_the_held_sum(one, two, lost):
    """Off the grid, or between nodes, phase times sum over the sum of phases, all from grids of SMs and tokens."""
    two = {point: value for point, value in two.items() if point != lost}
    total = {point: one[point] + value for point, value in two.items()}
    asked = [(sms, tokens) for sms in (2, 4, 8, 12, 20, 24) for tokens in (1, 16, 40, 64, 300)]
    ops = [dataclasses.replace(HT, sms=sms) for sms, _ in asked]
    with made_up.database(moe_a2a_perf=table((HT, one), (COMBINE, two))):
        times = ask(ALL_TO_ALL, made_up_database(), ops, [tokens for _, tokens in asked])
    curve = {tokens: value for (sms, tokens), value in one.items() if sms == 20}
    for at, (sms, tokens) in enumerate(asked):
        if sms == 20:  # the default within a node answers by itself
            want = size_curve(curve, tokens)[0]
        else:
            phase, other, both = (grid(each, (sms, tokens), lambda _, t: t)[0] for each in (one, two, total))
            want = phase * both / (phase + other)
        assert times.latency_ms[at] == pytest.approx(want, rel=TOLERANCE)


def test_exchange_between_nodes_is_read_from_the_grid_also_with_default_sms():
    far, back = (dataclasses.replace(op, nodes=2, moe_ep=16) for op in (HT, COMBINE))
    values: Grid = {(sms, tokens): float(sms + tokens) for sms in SMS for tokens in TOKENS}
    with made_up.database(moe_a2a_perf=table((far, values), (back, values))):
        times = ask(ALL_TO_ALL, made_up_database(), [far, far], [16, 40])
    assert times.latency_ms.tolist() == pytest.approx([36.0, 60.0])


def test_other_sms_of_libraries_that_take_none_are_held():
    values: Grid = {(0, 8): 1.0, (0, 16): 2.0}
    asked = dataclasses.replace(OP, comm_backend="deepep_v2_context", sms=64)
    with made_up.database(moe_a2a_perf=table((dataclasses.replace(asked, sms=0), values))):
        times = ask(ALL_TO_ALL, made_up_database(), [asked], 8)
    assert times.latency_ms[0] == pytest.approx(grid(values, (64, 8), lambda _, t: t)[0], rel=TOLERANCE)
    assert times.provenance[0] == Provenance.HELD


def test_one_node_stands_in_for_several_and_says_so():
    near = {(0, 8): 1.0, (0, 64): 5.0}
    far = dataclasses.replace(OP, nodes=3, moe_ep=24)
    other = dataclasses.replace(far, comm_backend="nvlink_one_sided")
    local = dataclasses.replace(OP, moe_ep=4)
    database = made_up_database()
    rows = table((OP, near), (dataclasses.replace(OP, comm_backend="nvlink_one_sided"), near))
    with made_up.database(moe_a2a_perf=rows):
        times = ask(ALL_TO_ALL, database, [OP, far, other, local], 8)
        choice = find_exchange(database, far)
        assert all_to_all_available(database, far) and not all_to_all_available(database, other)
    assert choice is not None and choice.measured == OP
    missing = Provenance.MISSING
    assert times.provenance.tolist() == [Provenance.EXACT, Provenance.TRANSFERRED, missing, missing]
    assert times.latency_ms[1] == times.latency_ms[0]


def test_formats_of_exchanges():
    """Blocks of 8 bits read 8-bit rows; a library measured in one format only answers for all."""
    forms = ("fp8", "bfloat16")
    own = [dataclasses.replace(OP, comm_backend="trtllm_deepep_ll", comm_dtype=form) for form in forms]
    asked = [dataclasses.replace(own[0], comm_dtype=form) for form in ("fp8_block", "nvfp4", "bfloat16")]
    asked.append(dataclasses.replace(OP, comm_dtype="nvfp4"))
    parts = [(op, {(0, 8): 1.0 + at}) for at, op in enumerate([*own, OP])]
    with made_up.database(moe_a2a_perf=table(*parts)):
        times = ask(ALL_TO_ALL, made_up_database(), asked, 8)
    assert times.latency_ms.tolist() == pytest.approx([1.0, np.nan, 2.0, 3.0], nan_ok=True)


def test_older_tables_fit_into_one():
    shape = {"hidden_size": [1024], "num_topk": [2], "num_experts": [16], "num_token": [8]}
    parts = {"dispatch_transmit_ms": [1.0], "dispatch_notify_ms": [0.5], "combine_transmit_ms": [2.0]}
    normal = made_up.rows(node_num=[2], dispatch_sms=[20], combine_notify_ms=[0.25], **parts, **shape)
    low_latency = made_up.rows(node_num=[1], dispatch_ms=[3.0], combine_ms=[4.0], **shape)
    kernels = ["NVLinkTwoSided", "NVLinkTwoSided", "NVLinkOneSided", "DeepEP"]
    operations = ["alltoall_combine_low_precision", "alltoall_prepare", "alltoall_dispatch", "alltoall_dispatch"]
    exchanges = {"hidden_size": [1024] * 4, "topk": [2] * 4, "num_experts": [16] * 4, "num_tokens": [8] * 4}
    nvlink = made_up.rows(
        kernel_source=kernels,
        op_name=operations,
        moe_dtype=["nvfp4"] * 4,
        moe_ep_size=[8, 2, 8, 8],
        num_nodes=[0, 0, 1, 0],
        latency=[5.0, 6.0, 7.0, 8.0],
        **exchanges,
    )
    tables = {"wideep_deepep_normal_perf": normal, "wideep_deepep_ll_perf": low_latency, "trtllm_alltoall_perf": nvlink}
    unified = table((OP, {(0, 8): 9.0}))
    with made_up.database(moe_a2a_perf=unified, **tables):
        found = load_exchanges(made_up.system(), *made_up.WHERE, True)
    read = {
        (*library, form, place.moe_ep, place.nodes, sms): curve[1].tolist()
        for library, forms in found.items()
        for form, places in forms.items()
        for place, by_sms in places.items()
        for sms, curve in by_sms.items()
    }
    assert read == {
        ("deepep_ht", "dispatch", "default", 16, 2, 20): [1.5],
        ("deepep_ht", "combine", "default", 16, 2, 20): [2.25],
        ("deepep_ll", "dispatch", "default", 8, 1, 0): [9.0],  # the unified table counts
        ("deepep_ll", "combine", "default", 8, 1, 0): [4.0],
        ("nvlink_two_sided", "combine", "fp4", 8, 2, 0): [5.0],
        ("nvlink_two_sided", "prepare", "nvfp4", 2, 1, 0): [6.0],
        ("nvlink_one_sided", "dispatch", "nvfp4", 8, 1, 0): [7.0],
    }


def test_only_measured_exchanges_answer():
    for mode in ("EMPIRICAL", "SOL"):
        with made_up.database(moe_a2a_perf=table((OP, {(0, 8): 1.0}))):
            times = ask(ALL_TO_ALL, made_up_database(mode=mode), [OP], 8)
        assert np.isnan(times.latency_ms).all()


def test_phases_that_a_library_lacks_are_refused():
    with made_up.database(), pytest.raises(InputError, match="dispatch, combine for deepep_ll"):
        ask(ALL_TO_ALL, made_up_database(), [dataclasses.replace(OP, phase="prepare")], 8)
    with made_up.database(), pytest.raises(InputError, match="comm_backend"):
        ask(ALL_TO_ALL, made_up_database(), [dataclasses.replace(OP, comm_backend="pigeons")], 8)
