# SPDX-License-Identifier: Apache-2.0
"""Pairs of workers: which there are, with which worker counts, and their numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import InputError, NoFeasible
from aicjax.sweeps.cases import enumerate_cases, pair_numbers
from aicjax.sweeps.pairs import NONE, Counts, PairNumbers, PairSpace
from aicjax.sweeps.spec import SweepSpec

FIELDS: dict[str, Any] = {
    "models": "Qwen/Qwen3-30B-A3B",
    "systems": "h200_sxm",
    "serving_mode": "disagg",
    "database_mode": "SOL",
    "parallel": {"num_gpu": [1, 2, 4]},
    "prefill_batch": [1, 2],
    "decode_batch": [1, 8, 9],
    "prefill_workers": 3,
    "decode_workers": 4,
    "total_gpus": 9,
}


def spec_of(**fields: Any) -> SweepSpec:
    return SweepSpec(**FIELDS | fields)


@st.composite
def numberings(draw) -> PairNumbers:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    kinds = draw(st.lists(st.integers(NONE, len(lengths) - 1), min_size=shape[0] * shape[1], max_size=9))
    counts = tuple(Counts(np.arange(length) + 1, np.arange(length) + 1) for length in lengths)
    space = PairSpace(counts, np.array(kinds[: shape[0] * shape[1]]).reshape(shape))
    return PairNumbers(space, draw(st.integers(1, 3)), draw(st.integers(1, 3)))


@given(numberings())
def test_numbers_run_through_all_points_without_gaps(numbers):
    found = [
        (prefill_layout, prefill_batch, decode_layout, decode_batch, choice)
        for decode_layout, decode_batch in np.ndindex(numbers.space.kind.shape[1], numbers.decode_batches)
        for prefill_layout, prefill_batch in np.ndindex(numbers.space.kind.shape[0], numbers.prefill_batches)
        for choice in range(numbers.space.choices[prefill_layout, decode_layout])
    ]
    assert numbers.points == len(found)
    expected = np.array(found, int).reshape(-1, 5).T
    np.testing.assert_array_equal(np.stack(numbers.place(np.arange(len(found)))), expected)
    np.testing.assert_array_equal(numbers.of(*expected[:4]) + expected[4], np.arange(len(found)))


def test_worker_counts_are_those_within_the_gpus_fewest_first():
    (engine,) = enumerate_cases(spec_of(backends="trtllm")).engines
    space = pair_numbers(spec_of(), engine, 1).space
    for p, prefill in enumerate(engine.workers["prefill"].layouts):
        for d, decode in enumerate(engine.workers["decode"].layouts):
            expected = sorted(
                (p_num * prefill.gpus + d_num * decode.gpus, d_num, p_num)
                for p_num, d_num in np.ndindex(4, 5)
                if p_num and d_num and p_num * prefill.gpus + d_num * decode.gpus <= 9
            )
            every = np.arange(space.choices[p, d])
            found = space.workers(np.full(len(every), p), np.full(len(every), d), every)
            assert list(zip(found.decode.tolist(), found.prefill.tolist(), strict=True)) == [
                tuple(counts[1:]) for counts in expected
            ]


def test_engines_that_hand_over_within_one_tensor_parallel_size_pair_just_those():
    (engine,) = enumerate_cases(spec_of(backends="sglang")).engines
    prefill, decode = (
        np.array([layout.tp for layout in engine.workers[role].layouts]) for role in ("prefill", "decode")
    )
    kind = pair_numbers(spec_of(), engine, 1).space.kind
    np.testing.assert_array_equal(kind != NONE, prefill[:, None] == decode)
    assert (kind == NONE).any()


def test_cases_follow_each_other_without_gaps():
    cases = enumerate_cases(spec_of(backends=["trtllm", "sglang"], osl=[20, 40], memory_fraction=[0.5, 0.8]))
    starts = [case.first_point for case in cases.cases]
    assert starts == np.cumsum([0, *(case.points for case in cases.cases)])[:-1].tolist()
    assert len(cases.cases) == 8


def test_engines_without_a_pair_are_refused():
    with pytest.raises(NoFeasible, match="fit 7 GPUs together"):
        enumerate_cases(spec_of(parallel={"num_gpu": [4]}, total_gpus=7, backends="trtllm"))


@pytest.mark.parametrize(("field", "value"), [("osl", [1, 20]), ("total_gpus", 1), ("histogram", True)])
def test_what_has_no_pairs_is_refused(field, value):
    with pytest.raises(InputError, match=field):
        spec_of(**{field: value})
