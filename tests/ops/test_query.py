# SPDX-License-Identifier: Apache-2.0
"""Single operators on measured tables: stored points, neighbours, flags; and what a query refuses."""

import numpy as np
import pytest

from aicjax._results import InputError, Provenance
from aicjax.hardware import load_system
from aicjax.ops.gemm_tables import load_gemm
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import AllReduce, Elementwise, Gemm, GenerationAttention
from tests.compiles import Counts, counted

SYSTEM = load_system("h200_sxm")
WHERE = ("trtllm", "1.3.0rc20")
NORM = Elementwise("norm", 1.0, 4096.0)
ROUNDING = 3e-6  # float32 rounding, where an inequality is exact in real numbers


def products(form: str) -> tuple[list[Gemm], np.ndarray, np.ndarray]:
    """Sixteen measured shapes, their token counts and latency [shape, knot]."""
    table = load_gemm(SYSTEM, *WHERE, True, form)
    assert table is not None
    chosen = np.linspace(0, len(table.sites) - 1, 16).astype(int)
    return (
        [Gemm("gemm", 1.0, int(n), int(k), form) for n, k in table.sites[chosen]],
        table.knots,
        table.latency_ms[chosen],
    )


def ask(ops: list[Gemm], tokens) -> OpTimes:
    return operator_latency(SYSTEM, *WHERE, ops, tokens=tokens)


@pytest.mark.parametrize("form", ["bfloat16", "fp8"])
def test_stored_points_return_their_value_and_others_lie_between_neighbours(form):
    ops, knots, latency = products(form)
    gaps = np.flatnonzero(np.diff(knots) > 1)
    for at in gaps[::9]:
        low, high = ask(ops, knots[at]), ask(ops, knots[at + 1])
        middle = ask(ops, (knots[at] + knots[at + 1]) // 2)
        for times, column in ((low, at), (high, at + 1)):
            np.testing.assert_array_equal(times.latency_ms, latency[:, column].astype(np.float32))
            assert set(times.provenance.tolist()) == {Provenance.EXACT}
        assert (middle.latency_ms >= np.minimum(low.latency_ms, high.latency_ms) * (1 - ROUNDING)).all()
        assert (middle.latency_ms <= np.maximum(low.latency_ms, high.latency_ms) * (1 + ROUNDING)).all()
        assert set(middle.provenance.tolist()) == {Provenance.INTERPOLATED}


@pytest.mark.parametrize("form", ["bfloat16", "fp8"])
def test_products_are_never_below_their_roofline_and_flagged_beyond_the_table(form):
    ops, knots, _ = products(form)
    other = [Gemm("gemm", 1.0, op.n + 48, 2 * op.k + 16, form) for op in ops]
    for tokens in (1, 100, 5000, 4 * int(knots[-1])):
        for asked, codes in ((ops, None), (other, {Provenance.TRANSFERRED, Provenance.MISSING})):
            times = ask(asked, tokens)
            found = times.provenance != Provenance.MISSING
            assert (times.latency_ms[found] >= times.sol_ms[found] * (1 - ROUNDING)).all()
            assert codes is None or set(times.provenance.tolist()) <= codes
            if asked is ops and tokens > knots[-1]:
                assert set(times.provenance.tolist()) == {Provenance.HELD}


def test_batch_of_operators_equals_one_at_a_time():
    ops, *_ = products("fp8")
    together = ask(ops, 333)
    alone = [ask([op], 333) for op in ops[:3]]
    np.testing.assert_allclose(together.latency_ms[:3], [times.latency_ms[0] for times in alone], rtol=1e-6)


def test_other_operators_tokens_and_systems_compile_nothing():
    ops, *_ = products("fp8")
    ask(ops, 333)
    with counted() as counts:
        ask(ops[:5], 100)
        ask(ops[::-1], 4096)
        operator_latency(load_system("h100_sxm"), "trtllm", "1.3.0rc20", ops, tokens=7)
    assert counts == Counts(traced=0, compiled=0)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"ops": [NORM], "mode": "GUESS", "tokens": 1}, "mode"),
        ({"ops": [], "tokens": 1}, "ops"),
        ({"ops": [NORM, Gemm("gemm", 1.0, 64, 64, "fp8")], "tokens": 1}, "ops"),
        ({"ops": [NORM, AllReduce("reduce", 1.0, 64, 2)], "tokens": 1}, "ops"),
        ({"ops": [NORM]}, "tokens"),
        ({"ops": [GenerationAttention("attention", 1.0, 32, 8, 128, "fp8")], "batch": 1}, "length"),
    ],
)
def test_bad_questions_are_refused_by_argument(arguments, argument):
    with pytest.raises(InputError, match=f"Argument `{argument}` must be"):
        operator_latency(SYSTEM, *WHERE, **arguments)
