# SPDX-License-Identifier: Apache-2.0
"""Mamba2 kernels: which shape answers on made-up tables."""

import dataclasses
from typing import Any

import pytest

from aicjax._results import Provenance
from aicjax.hardware import load_system
from aicjax.ops.database import Database
from aicjax.ops.records import Mamba2
from aicjax.ops.recurrent import recurrent_available
from tests.ops import made_up, recurrent_cases
from tests.ops.recurrent_cases import TOLERANCE
from tests.oracles import recurrent

OP = Mamba2("scan", 1.0, "mamba_chunk_scan_combined", "context", 1024, 64, 4, 32, 64, 4, 128)
CONVOLUTION = dataclasses.replace(OP, kernel="causal_conv1d_fn")


def rows(*points: tuple[Mamba2, float, float, float]) -> Any:
    """Rows `(operator, batch, length, latency)`."""
    ops, batch, length, latency = zip(*points, strict=True)
    columns = {name: [getattr(op, name) for op in ops] for name in ("phase", "d_model", "d_state", "d_conv")}
    columns |= {name: [getattr(op, name) for op in ops] for name in ("head_dim", "n_groups", "chunk_size")}
    return made_up.rows(
        kernel_source=[op.kernel for op in ops], nheads=[op.num_heads for op in ops], batch_size=batch,
        seq_len=length, latency=latency, **columns,
    )  # fmt: skip


def test_prompts_of_an_unmeasured_shape_read_the_first_of_their_width():
    first, second = (dataclasses.replace(OP, d_state=16, num_heads=heads) for heads in (64, 128))
    other = dataclasses.replace(OP, d_model=512)
    measured = rows((second, 1, 8, 5.0), (first, 1, 8, 3.0), (OP, 1, 8, 1.0), (OP, 1, 8, 9.0), (first, 2, 8, 4.0))
    ops = [OP, dataclasses.replace(OP, head_dim=32), second, other, CONVOLUTION]
    with made_up.database(mamba2_perf=measured):
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, ops, 1, 8)
        assert [recurrent_available(database, op) for op in ops] == [True, True, True, False, False]
    assert times.latency_ms[:3].tolist() == [1.0, 3.0, 5.0]
    assert times.provenance.tolist() == [Provenance.EXACT] * 3 + [Provenance.SOL] * 2
    assert times.latency_ms[3:] == pytest.approx(times.sol_ms[3:])


@pytest.mark.parametrize("mode", ["SILICON", "HYBRID", "EMPIRICAL", "SOL"])
def test_decode_steps_are_rooflines_and_prompts_measured_in_every_mode(mode):
    decode = dataclasses.replace(OP, phase="generation")
    with made_up.database(mamba2_perf=rows((OP, 1, 8, 1.0), (decode, 1, 1, 1.0))):
        times = recurrent_cases.ask(recurrent_cases.made_up_database(mode=mode), [OP, decode], 1, 8)
    assert times.provenance.tolist() == [Provenance.EXACT, Provenance.SOL]


@pytest.mark.parametrize("mode", ["SILICON", "EMPIRICAL", "SOL"])
def test_modes_without_shared_rows_have_those_of_the_version_alone(mode):
    """This version measured nothing of its own; an earlier one did."""
    where = (load_system("h200_sxm"), "trtllm", "1.3.0rc23", mode)
    op = Mamba2("conv", 1.0, "causal_conv1d_fn", "context", 8192, 128, 4, 256, 64, 8, 128)
    assert recurrent_available(Database(*where), op) == (mode == "SILICON")
    assert recurrent_available(Database(*where, share=True), op)
    assert not recurrent_available(Database(*where, share=False), op)


def test_rooflines_move_every_tensor_once():
    decode = [dataclasses.replace(op, phase="generation") for op in (OP, CONVOLUTION)]
    with made_up.database():
        database = recurrent_cases.made_up_database()
        times = recurrent_cases.ask(database, [OP, CONVOLUTION, *decode], 3, 100)
    moved = [
        part
        for tokens in (300, 3)
        for part in (
            recurrent.mamba2_scan(tokens, 32, 64, 4, 64),
            recurrent.convolution(tokens, 32 * 64 + 2 * 4 * 64, 4),
        )
    ]
    want = [1e3 * part / database.system.mem_bw_bytes_per_s for part in moved]
    assert times.latency_ms == pytest.approx(want, rel=TOLERANCE)
