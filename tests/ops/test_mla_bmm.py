# SPDX-License-Identifier: Apache-2.0
"""Absorbed products of latent attention: which curve answers for a format and a head count."""

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
from aicjax.ops.mla_bmm import bind_mla_bmm, mla_bmm_available, mla_bmm_latency, mla_bmm_sol
from aicjax.ops.query import OpTimes
from aicjax.ops.records import MlaBmm
from aicjax.ops.roofline import hardware_arrays
from aicjax.tables.rows import Rows
from tests.ops import made_up
from tests.ops.mla_cases import ROWS, TOLERANCE, made_up_database
from tests.oracles import latent

OP = MlaBmm("product", 1.0, 8, "bfloat16", pre=True)


@eqx.filter_jit
def _times(rows, tokens, hardware, constants):
    return mla_bmm_latency(rows, tokens, hardware, constants), mla_bmm_sol(rows, tokens, hardware, constants)


def ask(database: Database, ops: Sequence[MlaBmm], tokens: Any) -> OpTimes:
    """Times of each product at its own token count."""
    count = len(ops)
    counts = np.broadcast_to(np.asarray(tokens, np.float32), (count,))
    column = np.pad(counts, (0, ROWS - count), constant_values=1)[:, None]
    rows = bind_mla_bmm(database, ops, rows=ROWS)
    constants = traced(load_constants(database.backend).op)
    times = jax.device_get(_times(rows, column, hardware_arrays(database.system), constants))
    (latency, code), sol = jax.tree.map(lambda x: x[:count, 0], times)
    return OpTimes(latency, sol, code)


def rows(*points: tuple[MlaBmm, int, float]) -> Rows:
    """Rows `(product, tokens, latency)`."""
    ops, tokens, latency = zip(*points, strict=True)
    names = [f"mla_gen_{'pre' if op.pre else 'post'}" for op in ops]
    heads, forms = [op.num_heads for op in ops], [op.quant for op in ops]
    return made_up.rows(bmm_dtype=forms, op_name=names, num_heads=heads, num_tokens=tokens, latency=latency)


def sol(op: MlaBmm, tokens: float, element_bytes: float, dtype: str) -> float:
    system = made_up.system()
    return latent.bmm(op.num_heads, tokens, element_bytes, system.peak(dtype), system.mem_bw_bytes_per_s)


def test_curves_are_linear_and_keep_the_utilisation_of_their_ends():
    listed = rows((OP, 4, 1.0), (OP, 8, 3.0), (OP, 32, 6.0))
    with made_up.database(mla_bmm_perf=listed):
        times = ask(made_up_database(), [OP] * 5, [2, 4, 6, 32, 512])
    held = [end * sol(OP, t, 2, "bfloat16") / sol(OP, at, 2, "bfloat16") for t, at, end in ((2, 4, 1), (512, 32, 6))]
    assert times.latency_ms == pytest.approx([held[0], 1.0, 2.0, 6.0, held[1]], rel=TOLERANCE)
    codes = [Provenance.HELD, Provenance.EXACT, Provenance.INTERPOLATED, Provenance.EXACT, Provenance.HELD]
    assert times.provenance.tolist() == codes


@pytest.mark.parametrize("mode", ["SILICON", "EMPIRICAL"])
def test_other_formats_borrow_rows_but_not_the_roofline(mode):
    """Beyond the curve the latency follows the roofline of the format asked for."""
    fp8 = dataclasses.replace(OP, quant="fp8")
    with made_up.database(mla_bmm_perf=rows((OP, 4, 1.0), (OP, 8, 3.0))):
        times = ask(made_up_database(mode=mode), [fp8] * 2, [8, 4096])
    ratio = sol(OP, 4096, 1, "fp8") / sol(OP, 8, 1, "fp8")
    assert times.latency_ms == pytest.approx([3.0, 3.0 * ratio], rel=TOLERANCE)


def test_a_format_with_rows_of_its_own_borrows_none():
    fp8 = dataclasses.replace(OP, quant="fp8", num_heads=16)
    wanted = dataclasses.replace(OP, quant="fp8")
    with made_up.database(mla_bmm_perf=rows((OP, 4, 1.0), (fp8, 4, 2.0))):
        times = ask(made_up_database(), [wanted, fp8], 4)
    assert np.isnan(times.latency_ms[0]) and times.latency_ms[1] == 2.0


@pytest.mark.parametrize("mode", ["SILICON", "EMPIRICAL"])
def test_odd_head_counts_take_their_share_of_the_next_power_of_two(mode):
    six, seven, twelve = (dataclasses.replace(OP, num_heads=heads) for heads in (6, 7, 12))
    with made_up.database(mla_bmm_perf=rows((OP, 4, 2.0), (seven, 4, 5.0))):
        times = ask(made_up_database(mode=mode), [six, seven, OP, twelve], 4)
    assert times.latency_ms == pytest.approx([1.5, 5.0, 2.0, np.nan], rel=TOLERANCE, nan_ok=True)
    assert times.sol_ms[0] == pytest.approx(sol(six, 4, 2, "bfloat16"), rel=TOLERANCE)


def test_products_before_and_after_attention_have_their_own_curves():
    after = dataclasses.replace(OP, pre=False)
    with made_up.database(mla_bmm_perf=rows((OP, 4, 1.0))):
        database = made_up_database()
        times = ask(database, [OP, after], 4)
        assert mla_bmm_available(database, OP) and not mla_bmm_available(database, after)
    assert times.provenance.tolist() == [Provenance.EXACT, Provenance.MISSING]


def test_formats_without_a_peak_are_refused():
    with made_up.database(mla_bmm_perf=rows((OP, 4, 1.0))), pytest.raises(MissingPeak):
        ask(made_up_database(), [dataclasses.replace(OP, quant="nvfp4")], 4)
