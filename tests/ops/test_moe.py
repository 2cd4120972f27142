# SPDX-License-Identifier: Apache-2.0
"""Routed experts: stored answers of every mode, and every rule on made-up tables against an oracle."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax import quant
from aicjax._results import MissingPeak, Provenance
from aicjax.constants import load_constants, traced
from aicjax.hardware import System, load_system
from aicjax.ops.database import Database
from aicjax.ops.expert_work import ExpertLoad, ExpertShape, host_sol_ms
from aicjax.ops.moe import bind_moe, moe_available, moe_latency
from aicjax.ops.moe_estimates import FORMATS
from aicjax.ops.records import Moe
from aicjax.ops.roofline import hardware_arrays
from aicjax.tables.rows import Rows
from benchmarks.parity_cases.expert_operators import EXPERTS
from tests.ops import made_up
from tests.ops.expert_cases import MOE, TOLERANCE, ask, check_stored, made_up_database, stored
from tests.oracles import estimate, experts

BORROWED = {
    "empirical": Provenance.EMPIRICAL,
    "xshape": Provenance.XSHAPE,
    "xquant": Provenance.XQUANT,
    "xprofile": Provenance.XPROFILE,
}
OP = Moe("moe", 1.0, 1024, 512, 2, 16, 1, 4, 1, "bfloat16", "balanced")
CURVE = {1: 1.0, 8: 1.5, 64: 4.0, 200: 9.0}
BLACKWELL = {"bfloat16": 2e15, "fp8": 4e15, "fp4": 8e15}


record: Any = EXPERTS["ops_moe"].record


def table(*parts: tuple[Moe, dict[int, float]], kernel: str | tuple[str, ...] = "cutlass") -> Rows:
    """A table of the curves of some layers, of one kernel or of one each."""
    kernels = (kernel,) * len(parts) if isinstance(kernel, str) else kernel
    points = [
        (op, name, tokens, latency)
        for (op, curve), name in zip(parts, kernels, strict=True)
        for tokens, latency in curve.items()
    ]
    return made_up.rows(
        moe_dtype=[op.quant for op, *_ in points],
        kernel_source=[name for _, name, _, _ in points],
        distribution=[op.distribution for op, *_ in points],
        topk=[op.topk for op, *_ in points],
        num_experts=[op.num_experts for op, *_ in points],
        hidden_size=[op.hidden_size for op, *_ in points],
        inter_size=[op.inter_size for op, *_ in points],
        moe_tp_size=[op.moe_tp for op, *_ in points],
        moe_ep_size=[op.moe_ep for op, *_ in points],
        num_tokens=[tokens for *_, tokens, _ in points],
        latency=[latency for *_, latency in points],
    )


def roofline(system: System, op: Moe):
    form = quant.MOE[op.quant]
    shape = (op.topk, op.num_experts, op.hidden_size, op.inter_size, op.moe_tp, op.moe_ep, 3 if op.gated else 2)
    rates = (form.bytes, system.peak(form.dtype), system.mem_bw_bytes_per_s)
    return lambda tokens: experts.roofline(int(tokens), *shape, *rates)


def test_stored_answers():
    rows = stored("ops_moe")
    answerable = rows.take(np.flatnonzero(rows["status"] != "error"))
    provenance = check_stored(MOE, answerable, record)
    for name, code, mode in zip(answerable["provenance"], provenance, answerable["mode"], strict=True):
        assert mode == "SOL" or (code == BORROWED[name] if name else code not in BORROWED.values())


def test_formats_without_a_peak_are_refused_in_every_mode():
    rows = stored("ops_moe")
    for row in rows.records(np.flatnonzero(rows["status"] == "error")):
        database = Database(load_system(row["system"]), row["backend"], row["version"], row["mode"])
        with pytest.raises(MissingPeak, match="states no peak"):
            bind_moe(database, [record(row)], rows=1)


@given(
    tokens=st.integers(1, 2**17),
    topk=st.integers(1, 22),
    sizes=st.tuples(st.integers(16, 128), st.integers(4, 256)),
    experts_=st.integers(1, 1024),
    ranks=st.tuples(st.integers(0, 5), st.integers(0, 8)),
    gated=st.booleans(),
    form=st.sampled_from([form for form in FORMATS if quant.MOE[form].dtype != "fp4"]),
)
def test_roofline_counts_whole_tokens_and_experts(tokens, topk, sizes, experts_, ranks, gated, form):
    """Fewer routed tokens than ranks move nothing."""
    (hidden, inter), (tp, ep) = (64 * size for size in sizes), (2**rank for rank in ranks)
    system = load_system("h200_sxm")
    op = Moe("moe", 1.0, hidden, inter, topk, experts_, tp, ep, 1, form, "balanced", gated)
    load = ExpertLoad(ExpertShape(topk, experts_, hidden, inter, tp, ep), form, gated)
    assert host_sol_ms(system, load, np.array(tokens)) == pytest.approx(roofline(system, op)(tokens), rel=1e-12)


curves = st.dictionaries(st.integers(1, 4096), st.floats(0.01, 100), max_size=6)


@settings(max_examples=20)
@given(curve=curves, tokens=st.lists(st.integers(1, 8192), min_size=8, max_size=8), gated=st.booleans())
def test_curves_hold_the_utilisation_of_their_ends(curve, tokens, gated):
    database, op = made_up_database(), dataclasses.replace(OP, gated=gated)
    asked = [*tokens, *curve]
    with made_up.database(**({"moe_perf": table((op, curve))} if curve else {})):
        times = ask(MOE, database, [op] * len(asked), asked)
    sol = roofline(database.system, op)
    for at, count in enumerate(asked):
        want, how = experts.end_curve(curve, count, sol)
        assert times.provenance[at] == how
        assert times.latency_ms[at] == pytest.approx(want, rel=TOLERANCE, nan_ok=True)
        assert times.sol_ms[at] == pytest.approx(sol(count), rel=TOLERANCE)


def test_experts_go_on_along_their_last_octave():
    database = dataclasses.replace(made_up_database(), extends_curves=True)
    with made_up.database(moe_perf=table((OP, CURVE))):
        times = ask(MOE, database, [OP] * 2, [64, 472])
    slope = (9.0 - 4.0) / (200 - 64)
    assert times.latency_ms.tolist() == pytest.approx([4.0, 9.0 + slope * 272], rel=TOLERANCE)
    assert times.provenance[1] == Provenance.HELD


def test_tokens_of_all_attention_ranks_meet():
    ops = [OP, dataclasses.replace(OP, attention_dp=8)]
    with made_up.database(moe_perf=table((OP, CURVE))):
        times = ask(MOE, made_up_database(), ops, [64, 8])
    assert times.latency_ms.tolist() == [4.0, 4.0]
    assert times.sol_ms[0] == times.sol_ms[1]


def test_low_latency_kernel_answers_for_few_tokens_of_its_format():
    """It is measured apart, runs for gated experts only, and at most 128 tokens of the whole pool."""
    op = dataclasses.replace(OP, quant="nvfp4")
    other = dataclasses.replace(op, hidden_size=2048)
    few = {tokens: latency / 10 for tokens, latency in CURVE.items()}
    rows = table((op, few), (op, CURVE), (other, CURVE), kernel=("moe_torch_flow_min_latency", "cutlass", "cutlass"))
    ops = [op, op, dataclasses.replace(op, attention_dp=2), dataclasses.replace(op, gated=False), other]
    database = made_up_database(system=made_up.system(peak_flops=BLACKWELL))
    with made_up.database(moe_perf=rows):
        times = ask(MOE, database, ops, [64, 200, 100, 64, 64])
        estimates = ask(MOE, dataclasses.replace(database, mode="EMPIRICAL"), ops, [64, 200, 100, 64, 64])
    assert times.latency_ms.tolist() == pytest.approx([0.4, 9.0, 9.0, 4.0, 4.0])
    assert estimates.latency_ms.tolist() == pytest.approx([0.4, 9.0, 9.0, 4.0, 4.0], rel=TOLERANCE)


@pytest.mark.parametrize(("backend", "share"), [("sglang", 0.8), ("trtllm", 1.0)])
def test_load_balancer_spares_tables_a_share_of_a_prefill(backend, share):
    ops = [dataclasses.replace(OP, eplb=eplb, context=context) for eplb, context in [(1, 1), (1, 0), (0, 1)]]
    database, measured = made_up_database(backend=backend), {1: 1.0, 48: 2.0, 61: 3.0}
    with made_up.database(moe_perf=table((OP, measured))):
        times = ask(MOE, database, ops, 61)
    assert times.latency_ms.tolist() == [{0.8: 2.0, 1.0: 3.0}[share], 3.0, 3.0]
    assert np.ptp(times.sol_ms) == 0


def test_formats_are_told_apart_by_kernel():
    ops = [dataclasses.replace(OP, quant=form) for form in ("w4a16_mxfp4", "w4a16_mxfp4_cutlass")]
    kernels = ("sglang_flashinfer_cutlass_moe", "triton")
    rows = table((ops[0], {1: 1.0, 8: 5.0}), (ops[0], {1: 2.0, 8: 6.0}), kernel=kernels)
    with made_up.database(moe_perf=rows):
        times = ask(MOE, made_up_database(), ops, 8)
    assert times.latency_ms.tolist() == [6.0, 5.0]


def test_spare_distribution_answers_for_one_that_was_not_measured():
    spare, missing = (dataclasses.replace(OP, distribution=name) for name in ("uniform", "power_law_1.2"))
    with made_up.database(moe_perf=table((OP, CURVE))):
        times = ask(MOE, made_up_database(), [OP, spare, missing], 8)
    assert times.provenance.tolist() == [Provenance.EXACT, Provenance.MISSING, Provenance.MISSING]
    with made_up.database(moe_perf=table((OP, CURVE), (spare, {8: 7.0}))):
        times = ask(MOE, made_up_database(), [OP, spare, missing], 8)
    assert times.latency_ms.tolist() == [1.5, 7.0, 7.0]


LENDER = dataclasses.replace(OP, hidden_size=2048, inter_size=1024)
CASES = {
    Provenance.EMPIRICAL: [OP],
    Provenance.XSHAPE: [LENDER, dataclasses.replace(OP, hidden_size=8192), dataclasses.replace(OP, moe_ep=2)],
    Provenance.XQUANT: [dataclasses.replace(LENDER, quant="fp8_block"), dataclasses.replace(LENDER, quant="int4_wo")],
    Provenance.XPROFILE: [
        dataclasses.replace(LENDER, quant="int4_wo"),
        dataclasses.replace(LENDER, quant="w4afp8"),
        dataclasses.replace(LENDER, quant="bfloat16"),
    ],
}


@pytest.mark.parametrize("kind", CASES)
def test_estimates_borrow_from_the_nearest(kind):
    """Its own points, then another shape of its format, of a format like it, and last of any format."""
    asked = OP if kind in (Provenance.EMPIRICAL, Provenance.XSHAPE) else dataclasses.replace(OP, quant="fp8")
    known = CASES[kind]
    lender = known[1] if kind == Provenance.XPROFILE else known[0]  # w4afp8 differs from fp8 by half a byte only
    database = made_up_database(mode="HYBRID")
    curves = [{tokens: latency * (1 + at) for tokens, latency in CURVE.items()} for at in range(len(known))]
    tokens = [1, 3, 8, 100, 4000]
    with made_up.database(moe_perf=table(*zip(known, curves, strict=True))):
        empirical = ask(MOE, dataclasses.replace(database, mode="EMPIRICAL"), [asked] * len(tokens), tokens)
        hybrid = ask(MOE, database, [asked] * len(tokens), tokens)
        silicon = ask(MOE, dataclasses.replace(database, mode="SILICON"), [asked] * len(tokens), tokens)
        off = ask(MOE, dataclasses.replace(database, mode="EMPIRICAL", transfers=()), [asked] * len(tokens), tokens)
        assert moe_available(database, asked) == (kind == Provenance.EMPIRICAL)
    own = kind == Provenance.EMPIRICAL
    # Utilisation is that of the lender's shape, in the format asked for unless formats are of another profile.
    loaned = lender if kind == Provenance.XPROFILE else dataclasses.replace(lender, quant=asked.quant)
    utilizations = experts.utilizations(curves[known.index(lender)], roofline(database.system, loaned))
    levels = load_constants(database.backend).op.moe_format_efficiency
    scale = levels[asked.quant] / levels[lender.quant] if kind == Provenance.XPROFILE else 1.0
    for at, count in enumerate(tokens):
        want = roofline(database.system, asked)(count) / (estimate.utilization(utilizations, (count,)) * scale)
        assert empirical.latency_ms[at] == pytest.approx(want, rel=TOLERANCE)
    assert set(empirical.provenance.tolist()) == {kind}
    assert hybrid.latency_ms.tolist() == (silicon if own else empirical).latency_ms.tolist()
    assert np.isfinite(silicon.latency_ms).all() == own
    assert np.isnan(off.latency_ms).all() != own


steps = st.tuples(*[st.integers(0, 4)] * 4)


def of_steps(counts: tuple[int, ...]) -> Moe:
    topk, count, hidden, inter = (base * 2**step for base, step in zip((1, 32, 512, 64), counts, strict=True))
    return dataclasses.replace(OP, topk=topk, num_experts=count, hidden_size=hidden, inter_size=inter)


@settings(max_examples=10)
@given(lending=st.lists(steps, min_size=2, max_size=5, unique=True), asking=st.lists(steps, min_size=8, max_size=8))
def test_nearest_shape_lends(lending, asking):
    """Equally near ones may differ by rounding; a tie that rounding leaves goes to the first, smallest shape."""
    lenders = [of_steps(counts) for counts in sorted(lending)]
    curves = [{8: 1.0 + at, 64: 9.0 + 2 * at} for at in range(len(lenders))]
    database = made_up_database(mode="EMPIRICAL")
    with made_up.database(moe_perf=table(*zip(lenders, curves, strict=True))):
        times = ask(MOE, database, [of_steps(counts) for counts in asking], 8)
    lent = [roofline(database.system, op)(8) / curve[8] for op, curve in zip(lenders, curves, strict=True)]
    sizes = [tuple(2.0**step for step in counts) for counts in sorted(lending)]
    for counts, latency in zip(asking, times.latency_ms, strict=True):
        distances = experts.shape_distances(sizes, tuple(2.0**step for step in counts))
        near = [at for at, distance in enumerate(distances) if distance <= min(distances) + 1e-9]
        roof = roofline(database.system, of_steps(counts))(8)
        assert any(latency == pytest.approx(roof / lent[at], rel=TOLERANCE) for at in near)


def test_first_of_equally_near_shapes_lends():
    lenders = [of_steps((0, 0, 0, 1)), of_steps((0, 1, 0, 0))]
    with made_up.database(moe_perf=table((lenders[1], {8: 2.0}), (lenders[0], {8: 1.0}))):
        database = made_up_database(mode="EMPIRICAL")
        times = ask(MOE, database, [of_steps((0, 0, 0, 0))], 8)
    lent = roofline(database.system, lenders[0])(8)
    assert times.latency_ms[0] == pytest.approx(times.sol_ms[0] / lent, rel=TOLERANCE)


def test_gradients_reach_hardware_and_efficiency():
    """Efficiency of a format matters where another lends to it; every gradient is finite, also of padding."""
    op = dataclasses.replace(OP, quant="fp8")
    database = made_up_database(mode="HYBRID")
    with made_up.database(moe_perf=table((LENDER, CURVE))):
        rows = bind_moe(database, [op, LENDER], rows=4)
    tokens = np.array([[0, 4, 8, 4000]] * 4, np.float32)
    hardware, constants = hardware_arrays(database.system), traced(load_constants(database.backend).op)

    def total(hardware, constants):
        latency, _ = moe_latency(rows, tokens, hardware, constants)
        return jax.numpy.where(jax.numpy.isfinite(latency), latency, 0.0).sum()

    by_hardware, by_constants = jax.jit(jax.grad(total, (0, 1)))(hardware, constants)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(by_constants))
    assert np.isfinite(by_hardware.mem_bw) and by_hardware.mem_bw != 0
    assert by_constants.moe_format_efficiency["fp8"] < 0 < by_constants.moe_format_efficiency["bfloat16"]


def test_every_format_has_an_efficiency():
    for backend in ("trtllm", "sglang", "vllm"):
        assert set(load_constants(backend).op.moe_format_efficiency) == set(FORMATS)
