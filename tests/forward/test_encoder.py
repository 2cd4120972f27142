# SPDX-License-Identifier: Apache-2.0
"""The pass of a vision encoder: stored passes, and how ranks share out images or slices."""

import functools
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax.compat import REFERENCE
from aicjax.constants import load_constants
from aicjax.forward.encoder import EncoderTimes, encoder_times
from aicjax.forward.encoder_memory import bind_encoder
from aicjax.hardware import load_system
from aicjax.models import load_model, request_images, with_encoder, without_encoder
from aicjax.ops.records import EncoderAttention, OpLists

REFERENCES = Path(__file__).parents[1] / "references"
ROWS = pq.read_table(REFERENCES / "encoder_passes.parquet").to_pylist()
PARITY = 1e-4
SMALL = "Qwen/Qwen3-VL-8B-Instruct"


def lists(model: str, tp: int, *, data_parallel: bool = True) -> OpLists:
    return with_encoder(OpLists((), ()), load_model(model), tp, data_parallel=data_parallel)


def without_data(layout: OpLists) -> OpLists:
    """The layout with heads that nobody measured."""
    ops = [replace(op, head_size=96) if isinstance(op, EncoderAttention) else op for op in layout.encoder]
    return replace(layout, encoder=tuple(ops))


@functools.cache
def small() -> EncoderTimes:
    """Batches 1 to 8 of one image: shared over 1, 2 and 4 GPUs, sliced over 1, 2 and 4, and without measurements."""
    images = request_images(load_model(SMALL), 1, 448, 448)
    layouts = [lists(SMALL, tp, data_parallel=shared) for shared in (True, False) for tp in (1, 2, 4)]
    layouts.append(without_data(layouts[0]))
    return encoder_times(load_system("h200_sxm"), "vllm", "0.24.0", layouts, images, range(1, 9))


def test_passes_are_the_stored_ones():
    def key(row):
        return tuple(row[name] for name in ("model", "backend", "version", "num_images", "image_height", "image_width"))

    for (model, backend, version, *sides), group in groupby(sorted(ROWS, key=key), key):
        rows = list(group)
        layouts = [lists(model, row["tp"]) for row in rows]
        images, batches = request_images(load_model(model), *sides), [row["batch"] for row in rows]
        where = (load_system("h200_sxm"), backend, version)
        times = encoder_times(*where, layouts, images, batches, compat=REFERENCE)
        for at, row in enumerate(rows):
            spent = times.breakdown(at, at)
            assert times.latency_ms[at, at] == pytest.approx(row["latency_ms"], rel=PARITY)
            assert spent.latency_ms.sum() == pytest.approx(row["latency_ms"], rel=PARITY)
            attention = spent.latency_ms[spent.names.index("encoder_attention")]
            assert attention == pytest.approx(row["encoder_attention_ms"], rel=PARITY)


def test_ranks_share_out_whole_images():
    alone, pair, four = small().latency_ms[:3]
    assert (pair > alone[[0, 0, 1, 1, 2, 2, 3, 3]]).all(), "the busiest of two ranks has half, and results are gathered"
    assert four[4] == four[7], "the busiest of four ranks has two of five images, as of eight"


def test_slices_reduce_over_the_group():
    for at, tp in ((3, 1), (4, 2), (5, 4)):
        spent = small().breakdown(at, 0)
        reduced = [ms for name, ms in zip(spent.names, spent.latency_ms, strict=True) if "_ar" in name]
        assert len(reduced) == 3
        assert (np.array(reduced) > 0).all() == (tp > 1)
        assert "encoder_dp_all_gather" not in spent.names
    np.testing.assert_array_equal(small().latency_ms[3], small().latency_ms[0])


def test_unmeasured_attention_is_missing():
    assert np.isnan(small().latency_ms[6]).all()
    assert small().missing(6) == ["encoder_attention"]
    assert small().missing(0) == []


def test_memory_is_that_of_slices_or_of_whole_encoders():
    model, constants = load_model(SMALL), load_constants("vllm").memory
    images = request_images(model, 1, 1280, 1280)
    whole, sliced = (
        bind_encoder(model, [lists(SMALL, tp, data_parallel=shared) for tp in (1, 4)], constants)
        for shared in (True, False)
    )
    assert whole is not None
    assert sliced is not None
    assert whole.weights_bytes[0] == whole.weights_bytes[1] > 3 * sliced.weights_bytes[1]
    used = [memory.activations(np.array([64]), images)[:, 0] for memory in (whole, sliced)]
    assert used[0][0] == used[1][0] == used[1][1] > used[0][1], "slices see every image"
    assert bind_encoder(model, [without_encoder(lists(SMALL, 4))], constants) is None
