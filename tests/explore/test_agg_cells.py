# SPDX-License-Identifier: Apache-2.0
"""Cells of in-flight workers behind encode workers: the loops that define which are kept, and what a cell yields."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.explore.agg_cells import CellLimits, cells
from aicjax.serving.encoder import Encoders
from tests.oracles import encode_pool as oracle

CONSTANTS = load_constants("sglang", "reference").disagg
RATE = st.floats(0.5, 50).map(lambda rate: round(rate, 3))


def found(workers, encode, sizes, most: int) -> list[list[tuple[int, int]]]:
    rates, gpus = (np.array(column) for column in zip(*workers, strict=True))
    limits = CellLimits(tuple(sorted(sizes)), most, most)
    encoders = Encoders(np.array(encode[0]), np.array(encode[1]), np.array(0.0))
    kept = cells(rates, gpus, encoders, limits, CONSTANTS)
    pairs = list(zip(kept.agg.tolist(), kept.encode.tolist(), strict=True))
    return [[pair for pair, at in zip(pairs, kept.row, strict=True) if at == row] for row in range(len(workers))]


@given(
    st.lists(st.tuples(RATE, st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=4),
    st.tuples(RATE, st.sampled_from([1, 2, 4])),
    st.sets(st.integers(1, 40), min_size=1),
    st.integers(1, 8),
)
def test_cells_are_those_of_the_loops(workers, encode, sizes, most):
    for worker, pairs in zip(workers, found(workers, encode, sizes, most), strict=True):
        encoder = oracle.Side(encode[0], encode[1], CONSTANTS.encoder_degradation)
        assert pairs == oracle.cells(oracle.Side(worker[0], worker[1]), encoder, sizes, most)


@pytest.mark.parametrize(
    ("worker_rate", "encode_rate", "expected"),
    [
        (10.0, 100.0, [(1, 1), (3, 1), (7, 1)]),  # one encode worker serves them all
        (100.0, 10.0, [(1, 1), (1, 3), (1, 7)]),  # the other way round
        (9.0, 10.0, [(1, 1)]),  # whole copies of the smallest cell are as good
        (9.0, 5.0, [(1, 1), (3, 5)]),
    ],
)
def test_a_larger_cell_must_beat_copies_of_smaller_ones(worker_rate, encode_rate, expected):
    assert found([(worker_rate, 1)], (encode_rate, 1), (1, 2, 4, 8), 32) == [expected]


def test_no_size_no_cell():
    assert found([(5.0, 8)], (5.0, 1), (8,), 32) == [[]]
