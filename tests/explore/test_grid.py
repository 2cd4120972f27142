# SPDX-License-Identifier: Apache-2.0
"""Candidate lists and latency targets: the rules as loops, and refusals of bad files."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax import _paths
from aicjax._results import DataError, InputError
from aicjax.explore.grid import load_grid
from aicjax.explore.request import SearchRequest
from aicjax.explore.targets import sweep_targets

GRID = load_grid()


def listed_by_a_loop(isl: int, chunked: bool) -> list[int]:
    end, small = max(8192, 2 * isl), 512
    large = max(1024, small, end // 8)
    if not chunked:
        small, large = max(isl, small), math.ceil(large / isl) * isl
    values, value = [], 0
    while True:
        value += small if value < 8192 else large
        if value > end:
            return sorted({*values, isl, 2 * isl})
        values.append(value)


@given(st.integers(1, 200_000), st.booleans())
def test_context_tokens_are_those_of_the_loop(isl, chunked):
    assert GRID.agg.context_tokens.values(isl, chunked=chunked) == listed_by_a_loop(isl, chunked)


def test_decode_batches_end_at_the_limit_or_reach_beyond_the_list():
    assert GRID.disagg.decode_batches(16)[-2:] == [15, 16]
    assert GRID.disagg.decode_batches(700)[-2:] == [512, 700]


def test_replica_sizes_stay_within_the_budget():
    assert GRID.disagg.replica_sizes(12, large_ep=False) == [1, 2, 4, 8]
    assert GRID.disagg.replica_sizes(12, large_ep=True) == list(range(1, 13))
    assert GRID.disagg.replica_sizes(12, large_ep=False, sizes=(6, 12, 24)) == [6, 12]


def request(**values) -> SearchRequest:
    return SearchRequest(model_path="m", system="s", **values)


def test_targets_cover_a_range_of_tpot():
    targets = sweep_targets(request(ttft=700, tpot=10), GRID.targets)
    assert len(targets.tpot_ms) == 75
    assert set(targets.ttft_ms) == {700.0}
    assert sweep_targets(request(tpot=500), GRID.targets).tpot_ms[-1] == 500
    assert list(sweep_targets(request(tpot=12, pareto_sweep=False), GRID.targets).tpot_ms) == [12.0]


@pytest.mark.parametrize(
    ("limit", "ttft", "expected"),
    [
        (1000.0, 2000.0, [100, 200, 300, 400, 500, 600, 800]),
        (900.0, 150.0, [90, 150, 180, 270, 300, 400, 450.0, 500, 600, 630.0, 800]),
    ],
)
def test_targets_of_a_request_latency(limit, ttft, expected):
    targets = sweep_targets(request(request_latency=limit, ttft=ttft, osl=11), GRID.targets)
    inside = [t for t in expected if t not in (450.0, 630.0)]
    np.testing.assert_allclose(targets.ttft_ms, inside)
    np.testing.assert_allclose(targets.ttft_ms + 10 * targets.tpot_ms, limit)


def test_unknown_grid_is_refused():
    with pytest.raises(InputError, match="reference"):
        load_grid("nonsense")


def test_broken_grid_names_the_place(tmp_path, monkeypatch):
    text = (_paths.configs_dir() / "grids" / "reference.yaml").read_text()
    folder = tmp_path / "configs" / "grids"
    folder.mkdir(parents=True)
    (folder / "broken.yaml").write_text(text.replace("keep_per_target: 10", "keep_per_target: none"))
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    with pytest.raises(DataError, match=r"broken.yaml: agg.keep_per_target"):
        load_grid("broken")
