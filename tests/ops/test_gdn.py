# SPDX-License-Identifier: Apache-2.0
"""Gated delta-rule kernels: made-up tables against an oracle, and which kernel answers."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.ops.gdn import SCAN, UPDATE, VARIANTS
from aicjax.ops.records import Gdn
from tests import strategies
from tests.ops import made_up, recurrent_cases
from tests.ops.recurrent_cases import ROWS, TOLERANCE
from tests.oracles import grid, recurrent

OP = Gdn("scan", 1.0, SCAN, "context", 2048, 4, 4, 128, 8, 64)
STEP = dataclasses.replace(OP, kernel=UPDATE, phase="generation")
CONVOLUTION = dataclasses.replace(OP, kernel="causal_conv1d_fn")
SHAPE = ("d_model", "d_conv", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
HELD = 1e-4  # weights of a hold are differences of nearly equal distances


def rows(*points: tuple[Gdn, float, float, float]) -> Any:
    """Rows `(operator, batch, length, latency)`."""
    ops, batch, length, latency = zip(*points, strict=True)
    columns = {name: [getattr(op, name) for op in ops] for name in ("phase", *SHAPE)}
    kernels = [op.kernel for op in ops]
    return made_up.rows(kernel_source=kernels, batch_size=batch, seq_len=length, latency=latency, **columns)


def moved(op: Gdn, batch: float, length: float, state_bytes: int = 4) -> float:
    tokens, k, v = batch * length if op.phase == "context" else batch, 4 * 128, 8 * 64
    return recurrent.gdn_state(tokens, batch, length, k, v, v * 128, state_bytes, op.kernel == SCAN)


@settings(max_examples=15)
@given(strategies.grids(shape=strategies.PLANE, beyond=False), st.data())
def test_prompts_equal_the_oracle(table, data):
    """Any ragged grid, at, between and beyond its points."""
    measured: dict[grid.Point, float] = {
        (int(b), int(s)): t for (head, b, s), t in table.points.items() if head == table.heads[0]
    }
    asked = table.queries().T.astype(int).tolist()
    queries = data.draw(st.lists(st.sampled_from(asked), min_size=ROWS, max_size=ROWS))
    listed = {"gdn_perf": rows(*[(OP, b, s, t) for (b, s), t in measured.items()])} if measured else {}
    with made_up.database(**listed):
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, [OP] * ROWS, *zip(*queries, strict=True))
    for (batch, length), latency, code in zip(queries, times.latency_ms, times.provenance, strict=True):
        mem_bw = database.system.mem_bw_bytes_per_s
        want, how = recurrent.answer(measured, (batch, length), True, lambda b, s: moved(OP, b, s), mem_bw)
        assert code == how
        assert latency == pytest.approx(want, rel=HELD if how == Provenance.HELD else TOLERANCE)


def test_decode_steps_are_curves_of_the_batch():
    """Whatever their length; in proportion to the batch beyond the ends."""
    curve = {4: 1.0, 8: 3.0, 32: 6.0}
    with made_up.database(gdn_perf=rows(*[(STEP, b, 1, t) for b, t in curve.items()])):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(), [STEP] * 6, [2, 4, 6, 8, 20, 64], [9] * 6)
    assert times.latency_ms == pytest.approx([0.5, 1.0, 2.0, 3.0, 4.5, 12.0], rel=TOLERANCE)
    inside = [Provenance.EXACT, Provenance.INTERPOLATED, Provenance.EXACT, Provenance.INTERPOLATED]
    assert times.provenance.tolist() == [Provenance.HELD, *inside, Provenance.HELD]


@pytest.mark.parametrize("name", ["fused_recurrent_gated_delta_rule", f"fused_recurrent_{SCAN[6:]}_packed_decode"])
def test_decode_kernels_of_other_names_answer_for_the_update(name):
    listed = rows((dataclasses.replace(STEP, kernel=name), 4, 1, 2.0), (STEP, 4, 1, 9.0))
    with made_up.database(gdn_perf=listed):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(), [STEP], 4, 1)
    assert times.latency_ms.tolist() == [2.0]


def test_one_measured_variant_answers_for_a_scan_and_two_do_not():
    (where, variants), *_ = VARIANTS.items()
    backend, version, *_ = where
    flash, triton, _ = [dataclasses.replace(OP, kernel=name) for name in variants]
    other = dataclasses.replace(OP, d_model=1024)
    listed = rows(
        (OP, 1, 8, 9.0), (flash, 1, 8, 2.0),
        *[(dataclasses.replace(op, d_model=1024), 1, 8, 3.0) for op in (OP, flash, triton)],
    )  # fmt: skip
    with made_up.database(gdn_perf=listed):
        chosen = recurrent_cases.made_up_database(backend=backend, version=version)
        times = recurrent_cases.ask(chosen, [OP, other, flash], 1, 8)
        plain = recurrent_cases.ask(recurrent_cases.made_up_database(), [OP, other], 1, 8)
    assert times.provenance.tolist() == [Provenance.EXACT, Provenance.SOL, Provenance.EXACT]
    assert times.latency_ms[[0, 2]].tolist() == [2.0, 2.0]
    assert plain.latency_ms.tolist() == [9.0, 3.0]


def test_states_of_other_formats_were_not_measured():
    """Their roofline moves less; a convolution keeps no state."""
    ops = [OP, STEP, CONVOLUTION]
    half = [dataclasses.replace(op, state_dtype="bfloat16") for op in ops]
    with made_up.database(gdn_perf=rows(*[(op, 2, 128, 1.0) for op in ops])):
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, [*ops, *half], 2, 128)
    assert times.provenance.tolist() == [Provenance.EXACT] * 3 + [Provenance.SOL] * 2 + [Provenance.EXACT]
    want = [1e3 * moved(op, 2, 128, 2) / database.system.mem_bw_bytes_per_s for op in (OP, STEP)]
    assert times.latency_ms[3:5] == pytest.approx(want, rel=TOLERANCE)


def test_rooflines_move_every_tensor_once():
    unknown = dataclasses.replace(OP, kernel="unknown")
    with made_up.database():
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, [OP, STEP, CONVOLUTION, unknown], 3, 200)
    convolution = recurrent.convolution(600, 2 * 4 * 128 + 8 * 64, 4)
    want = [moved(OP, 3, 200), moved(STEP, 3, 200), convolution, 2 * 2 * 600 * 2048]
    assert times.latency_ms == pytest.approx([1e3 * x / database.system.mem_bw_bytes_per_s for x in want], TOLERANCE)
