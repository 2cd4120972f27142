# SPDX-License-Identifier: Apache-2.0
"""The kernel that matches workers, against float64, with ties, on several devices, and what it compiles."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.sweeps.disagg_kernel import DECODE_ROWS, PREFILL_ROWS, TIE, UNROLL, Choices, Matched, Tiles, matcher
from tests.compiles import counted

TILES, COUNTS, LIMITS = 6, 4 * UNROLL, 3
CONSTANTS = jax.tree.map(np.float32, load_constants("trtllm", "reference").disagg)
P_NUM, D_NUM = (counts.ravel() for counts in np.indices((5, 6)) + 1)
ROUNDING = 4 * float(np.finfo(np.float32).eps)


def tiles_of(seed: int, *, distinct_rates: int) -> tuple[Tiles, Choices]:
    """Workers with rates drawn from a few (so that pairs tie) or many, of 1 and of 2 GPUs."""
    draw = np.random.default_rng(seed)
    rates = draw.uniform(0.2, 40.0, distinct_rates).astype(np.float32)
    gpus = draw.choice(np.array([1, 2], np.float32), (2, TILES))
    kind = np.array([draw.integers(0, 2) for _ in range(TILES)], np.int32)
    tables, length = np.zeros((2, 2, COUNTS), np.float32), []
    for place, first in enumerate((0, 7)):
        chosen = np.argsort(P_NUM + D_NUM, kind="stable")[first:]
        length.append(len(chosen))
        for side, counts in enumerate((P_NUM, D_NUM)):
            tables[side, place] = np.pad(counts[chosen], (0, COUNTS - len(chosen)), mode="edge")
    tiles = Tiles(
        draw.choice(rates, (TILES, PREFILL_ROWS)),
        draw.choice(rates, (TILES, DECODE_ROWS)),
        gpus[0],
        gpus[1],
        kind,
        np.array(length, np.int32)[kind],
        draw.uniform(size=(TILES, LIMITS, PREFILL_ROWS)) < np.array([0.0, 0.5, 1.1])[:, None],
    )
    return tiles, Choices(tables[0], tables[1])


def scores(tiles: Tiles, choices: Choices, tile: int) -> np.ndarray:
    """Rate per GPU [prefill, decode, count] of a tile, float64."""
    kind, length = tiles.kind[tile], tiles.counts[tile]
    p_num, d_num = (np.asarray(side[kind, :length], np.float64) for side in choices)
    p_rate = np.asarray(tiles.prefill_seq_per_s[tile], np.float64)[:, None] * p_num * 0.9
    d_rate = np.asarray(tiles.decode_seq_per_s[tile], np.float64)[:, None] * d_num * 0.92
    total = p_num * tiles.prefill_gpus[tile] + d_num * tiles.decode_gpus[tile]
    return np.minimum(p_rate[:, None], d_rate) / total


def matched(tiles: Tiles, choices: Choices, devices: int = 1) -> Matched:
    return jax.device_get(matcher(tuple(jax.devices()[:devices]), 1)(tiles, choices, CONSTANTS))


@settings(max_examples=10)
@given(st.integers(0, 1000), st.sampled_from([3, 1000]))
def test_best_counts_are_the_first_of_those_that_tie(seed, distinct_rates):
    tiles, choices = tiles_of(seed, distinct_rates=distinct_rates)
    found = matched(tiles, choices)
    for tile in range(TILES):
        score = scores(tiles, choices, tile)
        most = score.max(axis=-1)
        np.testing.assert_allclose(found.seq_per_s_per_gpu[tile], most, rtol=TIE + ROUNDING)
        first = (score >= most[..., None] * (1 - TIE)).argmax(axis=-1)
        sure = ~(np.abs(score / most[..., None] - (1 - TIE)) < ROUNDING).any(axis=-1)
        np.testing.assert_array_equal(found.choice[tile][sure], first[sure])
        assert sure.mean() > 0.99
        by_limit = np.where(tiles.in_time[tile][..., None], found.seq_per_s_per_gpu[tile], -np.inf).max(axis=1)
        np.testing.assert_array_equal(found.best[tile], by_limit)


def test_doubled_replicas_never_win():
    tiles, choices = tiles_of(0, distinct_rates=1000)
    p_num, d_num = (np.repeat(np.array([[1, 2, 3, 7]], np.float32), 2, axis=1) * scale for scale in (1.0, 3.0))
    choices = Choices(*(np.pad(side, ((0, 1), (0, 0)), mode="edge").astype(np.float32) for side in (p_num, d_num)))
    found = matched(tiles._replace(counts=np.full(TILES, 8, np.int32)), choices)
    np.testing.assert_array_equal(found.choice, 0)


def test_tiles_that_are_not_there_are_left_alone():
    tiles, choices = tiles_of(1, distinct_rates=1000)
    whole = matched(tiles, choices)
    counts = tiles.counts * np.array([1, 1, 0, 1, 0, 1], np.int32)
    part = matched(tiles._replace(counts=counts), choices)
    there = np.flatnonzero(counts)
    for one, two in zip(whole, part, strict=True):
        np.testing.assert_array_equal(one[there], two[there])


def test_other_workers_and_worker_counts_compile_nothing():
    matched(*tiles_of(2, distinct_rates=3))
    tiles, choices = tiles_of(3, distinct_rates=1000)
    with counted() as counts:
        matched(tiles._replace(counts=tiles.counts // 2), choices)
    assert (counts.traced, counts.compiled) == (0, 0)


ON_DEVICES = """
import numpy as np
from tests.sweeps.test_disagg_kernel import matched, tiles_of
for devices in (1, 2, 3):
    found = matched(*tiles_of(5, distinct_rates=50), devices)
    print(hash(tuple(np.ascontiguousarray(leaf).tobytes() for leaf in found)))
"""


@pytest.mark.slow
def test_answers_are_the_same_bits_on_any_number_of_devices():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=3", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", ON_DEVICES], env=environment, capture_output=True, text=True, check=True
    )
    one, two, three = done.stdout.split()
    assert one == two == three
