# SPDX-License-Identifier: Apache-2.0
"""Step times of bound models: totals and their operators, missing data, what is refused, growth with load."""

import dataclasses

import numpy as np
import pytest

from aicjax._results import InputError, MissingPeak, Provenance
from aicjax.forward import StepCurves, bind, step_queries
from aicjax.forward.bound import PARTS
from aicjax.hardware import load_system
from aicjax.interp.counts import point_bucket
from aicjax.ops.records import AllReduce, ContextAttention
from tests.forward.bound_models import BACKEND, LAYOUTS, bind_lists, bound, lists, without_data

SUM = 1e-5  # float32 sums of float32 latencies against their sum in float64
ROUNDING = 3e-6  # float32 rounding, where an inequality is exact in real numbers
# Tables are measured, not smoothed: repeats of a kernel scatter, and at a few tokens another kernel is chosen.
NOISE, NOISE_UNDER_LOAD = 0.10, 0.01
LOADED = 64  # tokens, rows or cached tokens from which the work outweighs starting kernels and reading weights


def curves(model, **groups) -> dict[str, np.ndarray]:
    times = model.evaluate(step_queries(**groups))
    return {part: getattr(times, f"{part}_ms") for part in PARTS}


def a_few_points() -> dict[str, object]:
    """Coordinates of all parts, on, between and beyond measured ones."""
    return {
        "context_batch": [1, 4, 1, 8], "context_new": [1, 25, 4096, 12500], "context_prefix": [0, 0, 7, 100],
        "prefill_batch": [1, 3, 40], "prefill_new": [512, 1000, 30000], "prefill_prefix": [0, 24, 700],
        "generation_rows": [1, 48, 5000],
        "decode_rows": [1, 7, 300], "decode_length": [100, 4096, 200000],
        "other_rows": [1, 7, 300], "other_length": [100, 4096, 200000],
    }  # fmt: skip


@pytest.fixture(scope="module")
def times() -> StepCurves:
    return bound().evaluate(step_queries(**a_few_points()))


@pytest.mark.parametrize("part", PARTS[:4])
def test_operators_of_a_part_sum_to_its_total(times: StepCurves, part: str):
    totals = getattr(times, f"{part}_ms")
    assert totals.dtype == np.float32
    for config, tp in enumerate(LAYOUTS):
        listed = getattr(lists(layouts=[tp])[0], part.split("_")[0])
        names = [op.name for op in listed if ("attention" in part) == isinstance(op, _attention(part))]
        for point in range(totals.shape[1]):
            breakdown = times.breakdown(part, config, point)
            assert list(breakdown.names) == names
            assert breakdown.latency_ms.sum() == pytest.approx(totals[config, point], rel=SUM)
            assert (breakdown.provenance < Provenance.MISSING).all()
            assert ((breakdown.latency_ms > 0) | (breakdown.provenance == Provenance.NONE)).all()


def _attention(part: str) -> type:
    kinds = {type(op) for op in (*lists()[0].context, *lists()[0].generation) if "Attention" in type(op).__name__}
    return next(kind for kind in kinds if kind.__name__.lower().startswith(part.split("_")[0]))


def test_vocabulary_projection_of_a_prefill_reads_the_last_tokens():
    """With 48 of them it takes what a decode step of 48 rows takes; nothing else depends on them."""
    times = bound().evaluate(
        step_queries(context_batch=[48, 1], context_new=[100, 4800], context_prefix=0, generation_rows=48)
    )
    many, one = (times.breakdown("context_rest", 0, point) for point in (0, 1))
    decode = times.breakdown("generation_rest", 0, 0)
    last, other = many.names.index("context_logits_gemm"), decode.names.index("generation_logits_gemm")
    assert many.latency_ms[last] == decode.latency_ms[other] > one.latency_ms[last]
    assert np.delete(many.latency_ms, last).tolist() == np.delete(one.latency_ms, last).tolist()


def test_answers_beyond_the_tables_say_so(times: StepCurves):
    codes = [int(times.breakdown("context_attention", 0, point).provenance.max()) for point in range(3)]
    assert codes == [Provenance.EXACT, Provenance.INTERPOLATED, Provenance.HELD]


def test_order_of_layouts_does_not_matter(times: StepCurves):
    turned = bind_lists(lists()[::-1]).evaluate(step_queries(**a_few_points()))
    for part in PARTS:
        np.testing.assert_allclose(getattr(turned, f"{part}_ms")[::-1], getattr(times, f"{part}_ms"), rtol=SUM)


def test_chunks_of_points_give_the_same_bits(times: StepCurves):
    """Both lengths are padded to one bucket and run one program, in which each point is computed alike."""
    given = a_few_points()
    for point in range(3):
        alone = curves(bound(), **{name: np.asarray(values)[[point]] for name, values in given.items()})
        for part in PARTS:
            np.testing.assert_array_equal(alone[part][:, 0], getattr(times, f"{part}_ms")[:, point])


def test_groups_that_are_not_asked_are_empty():
    got = curves(bound(), generation_rows=[4, 9])
    assert {part: values.shape[1] for part, values in got.items()} == {
        "context_rest": 0, "context_attention": 0, "generation_rest": 2, "generation_attention": 0,
        "generation_other": 0,
    }  # fmt: skip


def test_missing_data_make_a_layout_nan_and_name_the_operator(times: StepCurves):
    odd = without_data(lists()[2])
    got = bind_lists([*lists()[:2], odd, lists()[3]]).evaluate(step_queries(**a_few_points()))
    assert np.isnan(got.context_rest_ms[2]).all() and np.isnan(got.context_attention_ms[2]).all()
    reduces = [op.name for op in odd.context if isinstance(op, AllReduce)]
    assert got.missing("context_rest", 2) == reduces
    assert got.missing("context_attention", 2) == ["context_attention"]
    assert got.breakdown("context_attention", 2, 0).provenance.tolist() == [Provenance.MISSING]
    for part in PARTS:
        whole = [0, 1, 3] if part.startswith("context") else [0, 1, 2, 3]
        np.testing.assert_allclose(getattr(got, f"{part}_ms")[whole], getattr(times, f"{part}_ms")[whole], rtol=SUM)
        assert got.missing(part, 0) == []


def test_operator_that_never_runs_needs_no_data():
    layout = without_data(lists()[2])
    idle = tuple(
        dataclasses.replace(op, scale=0.0) if isinstance(op, AllReduce | ContextAttention) else op
        for op in layout.context
    )
    got = bind_lists([*lists()[:2], dataclasses.replace(layout, context=idle), lists()[3]]).evaluate(
        step_queries(**a_few_points())
    )
    assert np.isfinite(got.context_rest_ms[2]).all()
    assert (got.context_attention_ms[2] == 0).all()
    assert got.missing("context_rest", 2) == []
    assert got.breakdown("context_attention", 2, 0).provenance.tolist() == [Provenance.NONE]
    assert got.breakdown("context_attention", 2, 0).latency_ms.tolist() == [0.0]


def test_rooflines_bound_the_clamped_parts(times: StepCurves):
    sol = bound(mode="SOL").evaluate(step_queries(**a_few_points()))
    assert np.isfinite(sol.context_attention_ms).all()
    for part in ("context_rest", "generation_rest", "generation_attention"):
        assert (getattr(times, f"{part}_ms") >= getattr(sol, f"{part}_ms") * (1 - ROUNDING)).all()
    for part in PARTS:
        assert set(sol.breakdown(part, 3, 0).provenance.tolist()) <= {Provenance.SOL, Provenance.NONE}


@pytest.mark.parametrize(
    ("groups", "argument"),
    [
        ({"generation_rows": [4, -1]}, "generation_rows"),
        ({"context_batch": [8], "context_new": [-2], "context_prefix": [0]}, "context_new"),
        ({"context_batch": [8]}, "context_batch"),
        ({"prefill_batch": [8], "prefill_new": [8]}, "prefill_batch"),
        ({"decode_length": [8]}, "decode_length"),
        ({"tokens": [8]}, "tokens"),
    ],
)
def test_bad_coordinates_are_refused_by_name(groups, argument):
    with pytest.raises(InputError, match=f"Argument `{argument}` must be"):
        step_queries(**groups)


def test_coordinates_of_a_group_are_broadcast():
    queries = step_queries(prefill_batch=2, prefill_new=[16, 32], prefill_prefix=0)
    assert np.asarray(queries.prefill_batch).tolist() == [2, 2]
    assert queries.prefill_prefix.dtype == np.int32


@pytest.mark.parametrize(("arguments", "argument"), [({"mode": "GUESS"}, "mode"), ({"op_lists": []}, "op_lists")])
def test_bad_bindings_are_refused_by_name(arguments, argument):
    given = {"op_lists": lists(), **arguments}
    with pytest.raises(InputError, match=f"Argument `{argument}` must be"):
        bind(load_system("h200_sxm"), BACKEND, "1.3.0rc20", **given)


@pytest.mark.parametrize("mode", ["SILICON", "SOL"])
def test_model_in_a_format_without_a_peak_is_refused(mode: str):
    with pytest.raises(MissingPeak, match="System a100_sxm states no peak for fp8"):
        bind_lists(lists(), "a100_sxm", mode=mode)


def test_buckets_are_few_and_hold_their_points():
    buckets = {points: point_bucket(points) for points in range(5000)}
    assert all(bucket >= points for points, bucket in buckets.items())
    assert len(set(buckets.values())) < 16
    assert buckets[0] == buckets[16]
    assert all(bucket <= 1.5 * points for points, bucket in buckets.items() if points > 2048)
    assert len({point_bucket(points) for points in range(1024, 100_000, 512)}) < 16


def falls(values: np.ndarray) -> np.ndarray:
    """Largest fall below what a smaller load took, of each layout."""
    return (1 - values / np.maximum.accumulate(values, -1)).max(-1)


@pytest.mark.parametrize(
    ("system", "backend"), [("h200_sxm", "trtllm"), ("h100_sxm", "trtllm"), ("h200_sxm", "sglang")]
)
def test_step_time_grows_with_tokens_rows_and_length(system: str, backend: str):
    """Never down but for the noise of the measurements, and up over a factor of eight once there is work."""
    load = 2 ** np.arange(16)
    prompts = curves(
        bound(system=system, backend=backend),
        context_batch=1, context_new=load, context_prefix=0, prefill_batch=1, prefill_new=load, prefill_prefix=0,
        generation_rows=load[:13], decode_rows=load[:13], decode_length=4096,
    )  # fmt: skip
    lengths = curves(bound(system=system, backend=backend), generation_rows=64, decode_rows=64, decode_length=load[:15])
    steps = {
        "prefill tokens": prompts["context_rest"] + prompts["context_attention"],
        "decode rows": prompts["generation_rest"] + prompts["generation_attention"],
        "context length": lengths["generation_rest"] + lengths["generation_attention"],
    }
    first = int(np.log2(LOADED))
    for axis, values in steps.items():
        assert (falls(values) <= NOISE).all(), axis
        assert (falls(values[:, first:]) <= NOISE_UNDER_LOAD).all(), axis
        assert (values[:, first + 3 :] > values[:, first:-3]).all(), axis
