# SPDX-License-Identifier: Apache-2.0
"""Kimi delta-attention kernels: verification of drafts, fused kernels and substitutes."""

import dataclasses
from typing import Any

import pytest

from aicjax._results import Provenance
from aicjax.ops.kda import CONVOLUTION, DECODE, FUSED_DECODE, FUSED_VERIFY, PROMPT_CONVOLUTION, SCAN, VERIFY
from aicjax.ops.records import Kda
from tests.compiles import counted
from tests.ops import made_up, recurrent_cases
from tests.ops.recurrent_cases import TOLERANCE
from tests.oracles import grid, recurrent

OP = Kda("scan", 1.0, SCAN, "context", 2304, 4, 8, 128, 8, 128)
SHAPE = ("d_model", "d_conv", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
VALUES, STATE = 8 * 128, 8 * 128 * 128


def kernel(name: str, phase: str, **changes: Any) -> Kda:
    return dataclasses.replace(OP, kernel=name, phase=phase, **changes)


def rows(*points: tuple[Kda, float, float, float]) -> Any:
    """Rows `(operator, batch, length, latency)`."""
    ops, batch, length, latency = zip(*points, strict=True)
    columns = {name: [getattr(op, name) for op in ops] for name in ("phase", *SHAPE)}
    kernels = [op.kernel for op in ops]
    return made_up.rows(kernel_source=kernels, batch_size=batch, seq_len=length, latency=latency, **columns)


def test_verification_takes_query_rows_as_sequences_of_drafts():
    """Rows over drafts to the nearest integer, of two the even one, and at least one sequence."""
    table = {(b, s): float(10 * b + s) for b in (1, 2, 4, 8) for s in (2, 4)}
    op = kernel(VERIFY, "verify", draft_tokens=4)
    batch, sequences = [1, 4, 6, 9, 10, 14, 30], [1, 1, 2, 2, 2, 4, 8]
    with made_up.database(kda_perf=rows(*[(op, *point, t) for point, t in table.items()])):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(), [op] * len(batch), batch, 7777)
    assert times.latency_ms.tolist() == [table[b, 4] for b in sequences]
    assert set(times.provenance.tolist()) == {Provenance.EXACT}


def test_verification_without_drafts_is_a_roofline():
    op = kernel(VERIFY, "verify")
    with made_up.database(kda_perf=rows((op, 2, 2, 1.0), (op, 4, 4, 1.0))):
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, [op], 3, 7777)
    moved = recurrent.kda_state(3, 3, 0, VALUES, STATE, "verify")
    assert times.latency_ms == pytest.approx([1e3 * moved / database.system.mem_bw_bytes_per_s], rel=TOLERANCE)
    assert times.provenance.tolist() == [Provenance.SOL]


def test_fused_verification_does_the_work_of_both_kernels():
    """Only where neither was measured in this phase at any shape."""
    ops = [kernel(name, "verify", draft_tokens=2) for name in (VERIFY, CONVOLUTION)]
    fused = (kernel(FUSED_VERIFY, "verify", num_v_heads=4), 4, 2, 3.0)
    wide = (kernel(CONVOLUTION, "verify", d_model=9), 4, 2, 1.0)
    with made_up.database(kda_perf=rows(fused)):
        alone = recurrent_cases.ask(recurrent_cases.made_up_database(), ops, 8, 1)
    with made_up.database(kda_perf=rows(fused, wide)):
        beside = recurrent_cases.ask(recurrent_cases.made_up_database(), ops, 8, 1)
    assert alone.latency_ms.tolist() == [3.0, 0.0] and alone.sol_ms[1] == 0.0
    assert alone.provenance.tolist() == [Provenance.EXACT, Provenance.NONE]
    assert beside.provenance.tolist() == [Provenance.EXACT, Provenance.SOL]


def test_fused_decode_does_the_work_of_kernels_unmeasured_at_its_shape():
    ops = [kernel(name, "generation") for name in (DECODE, CONVOLUTION)]
    fused = (kernel(FUSED_DECODE, "generation"), 4, 1, 3.0)
    other = (kernel(DECODE, "generation", num_v_heads=4), 4, 1, 1.0)
    with made_up.database(kda_perf=rows(fused, other)):
        alone = recurrent_cases.ask(recurrent_cases.made_up_database(), ops, 4, 1)
    with made_up.database(kda_perf=rows(fused, (ops[0], 4, 1, 2.0))):
        beside = recurrent_cases.ask(recurrent_cases.made_up_database(), ops, 4, 1)
    assert alone.latency_ms.tolist() == [3.0, 0.0]
    assert beside.latency_ms.tolist() == [2.0, 0.0]
    assert beside.provenance.tolist() == [Provenance.EXACT, Provenance.NONE]


def test_unmeasured_head_counts_read_the_nearest_the_lower_of_two():
    listed = [(dataclasses.replace(OP, num_v_heads=heads), 1, 8, float(heads)) for heads in (24, 12, 4)]
    ops = [dataclasses.replace(OP, num_v_heads=heads) for heads in (8, 17, 19, 4, 96)]
    with made_up.database(kda_perf=rows(*listed)):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(), ops, 1, 8)
    assert times.latency_ms.tolist() == [4.0, 12.0, 24.0, 4.0, 24.0]


def test_decode_steps_are_curves_of_the_batch():
    op = kernel(DECODE, "generation")
    table: grid.Table = {(4, 0): 1.0, (8, 0): 3.0}
    batch = [2, 6, 32]
    with made_up.database(kda_perf=rows(*[(op, b, 1, t) for (b, _), t in table.items()])):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(), [op] * 3, batch, 5)
    want = [recurrent.answer(table, (b, 0), False, lambda b, _: b, 1.0) for b in batch]
    assert times.latency_ms == pytest.approx([latency for latency, _ in want], rel=TOLERANCE)
    assert times.provenance.tolist() == [how for _, how in want]


def test_other_kernels_and_tables_compile_nothing():
    decode, verify = kernel(DECODE, "generation"), kernel(VERIFY, "verify", draft_tokens=4)
    with made_up.database(kda_perf=rows((OP, 1, 8, 1.0), (decode, 4, 1, 1.0))):
        recurrent_cases.ask(recurrent_cases.made_up_database(), [OP, decode], 4, 16)
    with made_up.database(kda_perf=rows(*[(verify, b, 4, float(b)) for b in (1, 2, 3)])), counted() as counts:
        recurrent_cases.ask(recurrent_cases.made_up_database(mode="SOL"), [verify, decode, OP], 12, 16)
    assert counts.compiled == 0


def test_rooflines_move_every_tensor_once():
    batch, length, drafts = 6, 200, 3
    tokens = batch * length

    def state(kind: str, tokens: int, batch: int = batch, length: int = 0) -> float:
        return recurrent.kda_state(tokens, batch, length, VALUES, STATE, kind)

    def convolution(tokens: int) -> float:
        return recurrent.convolution(tokens, 3 * VALUES, 4)

    verified = {"phase": "verify", "draft_tokens": drafts}
    want = {
        OP: state("scan", tokens, length=length),
        kernel("flashkda_fwd", "context"): state("scan", tokens, length=length),
        kernel(PROMPT_CONVOLUTION, "context"): convolution(tokens),
        kernel(CONVOLUTION, "generation"): convolution(batch),
        kernel("fused_kda_decode", "generation"): state("step", batch),
        kernel(FUSED_DECODE, "generation"): state("step", batch) + convolution(batch),
        kernel(VERIFY, **verified): state("verify", batch, batch // drafts),
        kernel(FUSED_VERIFY, **verified): state("verify", batch, batch // drafts) + convolution(batch),
        kernel("unknown", "context"): 2 * 2 * tokens * 2304,
    }
    with made_up.database():
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, list(want), batch, length)
    assert times.latency_ms * database.system.mem_bw_bytes_per_s / 1e3 == pytest.approx(
        list(want.values()), rel=TOLERANCE
    )
    assert set(times.provenance.tolist()) == {Provenance.SOL}
