# SPDX-License-Identifier: Apache-2.0
"""Chains of operators that run at the same time: the longer one counts, in totals and in what is shown of them."""

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.forward import StepCurves, step_queries
from aicjax.hardware import load_system
from aicjax.ops.query import operator_latency
from aicjax.ops.records import AllReduce, Elementwise, Gemm, GenerationAttention, OpLists, Overlap
from tests.forward.bound_models import BACKEND, SYSTEM, bind_lists

SUM = 1e-6  # a float32 sum of few terms
TOKENS = np.array([1, 512, 20000])
SMALL, LARGE = Gemm("small", 2.0, 1024, 4096, "fp8"), Gemm("large", 1.0, 8192, 4096, "fp8")
NORM, AFTER = Elementwise("norm", 2.0, 16384.0), Elementwise("after", 1.0, 16384.0)
MISSING = AllReduce("unmeasured", 1.0, 4096, 3)
ATTENTION = GenerationAttention("generation_attention", 1.0, 8, 1, 128, "fp8")


def alone(op: Gemm | Elementwise) -> np.ndarray:
    """An operator by tokens, asked for itself."""
    return operator_latency(load_system(SYSTEM), BACKEND, "1.3.0rc20", [op] * TOKENS.size, tokens=TOKENS).latency_ms


@pytest.fixture(scope="module")
def times() -> StepCurves:
    """Layouts whose chains overlap, run one after the other, and overlap with an operator without data."""
    first, second = (SMALL, NORM), (LARGE,)
    layouts = [
        (Overlap("both", first, second), AFTER),
        (*first, *second, AFTER),
        (Overlap("both", first, (MISSING,)), AFTER),
        (Overlap("both", (MISSING,), first), AFTER),
        (Overlap("outer", (Overlap("inner", first, second), AFTER), (NORM, LARGE)),),
    ]
    queries = step_queries(context_batch=1, context_new=TOKENS, context_prefix=0)
    return bind_lists([OpLists(layout, ()) for layout in layouts]).evaluate(queries)


def test_the_longer_chain_counts(times: StepCurves):
    first, second = alone(SMALL) + alone(NORM), alone(LARGE)
    assert len(set((first > second).tolist())) == 2, "each is the longer one somewhere"
    np.testing.assert_allclose(times.context_rest_ms[0], np.maximum(first, second) + alone(AFTER), rtol=SUM)
    np.testing.assert_allclose(times.context_rest_ms[1], first + second + alone(AFTER), rtol=SUM)


def test_the_overlap_is_one_operator_of_the_breakdown(times: StepCurves):
    for point in range(TOKENS.size):
        breakdown = times.breakdown("context_rest", 0, point)
        assert breakdown.names == ("both", "after")
        assert breakdown.latency_ms.sum() == pytest.approx(times.context_rest_ms[0, point], rel=SUM)


@pytest.mark.parametrize("config", [2, 3])
def test_a_chain_without_data_leaves_no_answer(times: StepCurves, config: int):
    assert np.isnan(times.context_rest_ms[config]).all()
    assert times.missing("context_rest", config) == ["both"]
    breakdown = times.breakdown("context_rest", config, 0)
    assert np.isnan(breakdown.latency_ms).tolist() == [True, False]
    assert breakdown.provenance[0] == Provenance.MISSING


def test_overlaps_nest(times: StepCurves):
    inner = np.maximum(alone(SMALL) + alone(NORM), alone(LARGE)) + alone(AFTER)
    np.testing.assert_allclose(times.context_rest_ms[4], np.maximum(inner, alone(NORM) + alone(LARGE)), rtol=SUM)
    assert times.breakdown("context_rest", 4, 0).names == ("outer",)


def test_attention_overlaps_in_decode():
    """Both sides are timed where the attention is: its rows and its length."""
    layout = (Overlap("both", (SMALL, ATTENTION), (LARGE,)), AFTER)
    rows, length = TOKENS[:2], np.array([4000, 3000])
    other = {"other_rows": rows, "other_length": length}
    times = bind_lists([OpLists((), layout)]).evaluate(step_queries(generation_rows=rows, **other))
    attention = operator_latency(
        load_system(SYSTEM), BACKEND, "1.3.0rc20", [ATTENTION] * rows.size, batch=rows, length=length
    ).latency_ms
    longer = np.maximum(alone(SMALL)[:2] + attention, alone(LARGE)[:2])
    np.testing.assert_allclose(times.generation_other_ms[0], longer, rtol=SUM)
    np.testing.assert_allclose(times.generation_rest_ms[0], alone(AFTER)[:2], rtol=SUM)
