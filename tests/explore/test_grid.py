# SPDX-License-Identifier: Apache-2.0
"""Candidate lists and latency targets: the rules as loops, and refusals of bad files."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax import _paths
from aicjax._results import DataError, InputError
from aicjax.explore.grid import load_grid
from aicjax.explore.request import SearchRequest
from aicjax.explore.targets import sweep_targets

GRID, FULL = load_grid("reference"), load_grid("full")


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


@given(st.integers(1, 100_000), st.booleans())
def test_full_context_tokens_fill_the_range_of_the_coarse_ones(isl, chunked):
    full, coarse = (set(grid.agg.context_tokens.values(isl, chunked=chunked)) for grid in (FULL, GRID))
    end = max(8192, 2 * isl)
    assert coarse <= full
    assert max(full) <= max(end, max(coarse))
    if chunked:
        assert full - coarse == set(range(64, end + 1, 64)) - coarse
    else:
        assert all(tokens % isl == 0 for tokens in full - coarse)
        assert all(isl * prompts in full for prompts in range(1, end // isl + 1)) or isl < 64


def test_full_lists_leave_no_gap():
    assert FULL.agg.batch == tuple(range(1, 513))
    assert FULL.disagg.decode_batches(700) == list(range(1, 701))
    assert FULL.disagg.replica_sizes(29, large_ep=False) == list(range(1, 30))
    assert FULL.targets == GRID.targets
    assert FULL.layouts == GRID.layouts


def grid_file(folder: Path, text: str) -> None:
    """A file `mine.yaml` beside the grids of the package, which lie in the folder too."""
    (folder / "configs").mkdir()
    shutil.copytree(_paths.configs_dir() / "grids", folder / "configs" / "grids")
    (folder / "configs" / "grids" / "mine.yaml").write_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: reference\nexhaustive: true\nagg: {batch: [1, 2]}", "agg.batch: lacks 3, which reference has"),
        ("extends: full\ndisagg: {prefill_max_batch: 4}", "disagg.prefill_max_batch: lacks 4, which full has"),
        ("extends: reference\nagg: {batch: {first: 3, end: 4}}", "agg.batch"),
    ],
)
def test_grid_that_does_not_hold_what_it_extends_is_refused(text, message, tmp_path, monkeypatch):
    grid_file(tmp_path, text)
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    with pytest.raises(DataError, match=message):
        load_grid.__wrapped__("mine")


def test_grid_has_what_it_states_and_the_rest_of_what_it_extends(tmp_path, monkeypatch):
    grid_file(tmp_path, "extends: full\ndisagg: {prefill_max_batch: 32}\nagg: {batch: {first: 1, last: 600}}")
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    grid = load_grid.__wrapped__("mine")
    assert (grid.disagg.prefill_max_batch, max(grid.agg.batch)) == (32, 600)
    assert grid.exhaustive
    assert grid.base == FULL
    assert grid.disagg.replica_gpus == FULL.disagg.replica_gpus


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
