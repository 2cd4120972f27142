# SPDX-License-Identifier: Apache-2.0
"""Memory of workers with experts or a vision encoder: stored answers of AIConfigurator 0.12.0."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax.compat import REFERENCE
from aicjax.constants import load_constants
from aicjax.forward.kv_capacity import kv_capacity, smallest_fitting_tp
from aicjax.forward.memory import Verdict, WorkerMemory, bind_memory
from aicjax.hardware import load_system
from aicjax.models import LargeEp, Parallel, Quantisation, infer_quantisation, load_model, op_lists, request_images

ROWS = pq.read_table(Path(__file__).parents[1] / "references" / "memory_experts.parquet").to_pylist()
EXACT = 1e-12  # relative, float64 against float64
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
ROLES = ("gemm", "moe", "kvcache", "fmha", "comm")
PARTS = ("weights_bytes", "activations_bytes", "kvcache_bytes", "nccl_bytes", "others_bytes", "total_bytes")


def stored_worker(row: dict) -> WorkerMemory:
    model, system, backend = load_model(row["model"], compat=REFERENCE), load_system(row["system"]), row["backend"]
    parallel = Parallel(*(row[size] for size in SIZES))
    quantisation = Quantisation(*(row[f"{role}_quant"] for role in ROLES), gemm_chosen=row["gemm_chosen"])
    plan = None
    if row["moe_comm"]:
        libraries = json.loads(row["moe_comm"])
        plan = LargeEp(libraries["context"], libraries["generation"], parallel.moe_ep // system.gpus_per_node)
    lists = op_lists(model, parallel, quantisation, backend, row["nextn"], plan)
    constants = load_constants(backend).memory
    return bind_memory(
        system, backend, row["version"], model, [parallel], [lists], [quantisation], constants, row["nextn"]
    )


def row_name(row: dict) -> str:
    wide, images = "-wide" if row["moe_comm"] else "", "-images" if row["num_images"] else ""
    return f"{row['model'].split('/')[1]}-{row['backend']}-{row['kind']}{wide}{images}"


@pytest.mark.parametrize("row", [row for row in ROWS if row["kind"] != "capacity"], ids=row_name)
def test_parts_and_verdicts_match_the_reference(row):
    memory, images = stored_worker(row), None
    if row["num_images"]:
        sides = (row["image_height"], row["image_width"])
        images = request_images(load_model(row["model"], compat=REFERENCE), row["num_images"], *sides)
    load = (row["batch"], row["isl"], row["osl"])
    if row["kind"] == "agg":
        split = memory.inflight(*load, row["ctx_tokens"], beam=row["beam"])
    else:
        split = memory.static(*load, phase=row["kind"], prefix=row["prefix"], beam=row["beam"], images=images)
    for part in PARTS:
        np.testing.assert_allclose(np.max(getattr(split, part)), row[part], rtol=EXACT)
    assert (split.verdict[0, 0] == Verdict.DOES_NOT_FIT) == row["oom"]
    assert (split.verdict[0, 0] == Verdict.KV_DOES_NOT_FIT) == row["kv_oom"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["kind"] == "capacity"], ids=row_name)
def test_capacity_matches_the_reference(row):
    memory = stored_worker(row)
    found = kv_capacity(memory, row["max_num_tokens"], row["kv_fraction"])
    assert found.kv_bytes[0] == row["total_kv_size_bytes"]
    assert found.tokens[0] == row["total_kv_size_tokens"]
    assert memory.kv_curve.bytes(1)[0, 0] == row["kv_bytes_one_token"]


def test_images_add_the_encoder_and_their_tokens():
    model = load_model("Qwen/Qwen3-VL-30B-A3B-Instruct")
    formats = infer_quantisation(model, "vllm")
    layouts = [Parallel(tp=1, moe_ep=1), Parallel(tp=4, moe_ep=4)]
    lists = [op_lists(model, layout, formats, "vllm") for layout in layouts]
    constants = load_constants("vllm").memory
    memory = bind_memory(
        load_system("h200_sxm"), "vllm", "0.24.0", model, layouts, lists, [formats] * len(layouts), constants
    )
    images = request_images(model, 1, 448, 448)
    batch = np.array([1, 6, 64])
    bare, seen = memory.static(batch, 1000, 100), memory.static(batch, 1000, 100, images=images)
    longer = memory.static(batch, 1000 + images.tokens, 100)
    np.testing.assert_array_equal(seen.kvcache_bytes, longer.kvcache_bytes)
    assert memory.encoder is not None
    np.testing.assert_array_equal(seen.weights_bytes - bare.weights_bytes, memory.encoder.weights_bytes[:, None])
    encoder = seen.activations_bytes - longer.activations_bytes
    assert encoder.shape == (2, 3)
    np.testing.assert_allclose(encoder[:, 0], constants.encoder_floor_bytes)
    assert encoder[1, 2] < encoder[0, 2], "ranks share out the images"
    agg = memory.inflight(batch, 1000, 100, 2048, images=images)
    np.testing.assert_array_equal(agg.kvcache_bytes, longer.kvcache_bytes)


@pytest.mark.parametrize(("layout", "smallest"), [(Parallel(), 2), (Parallel(tp=8, moe_tp=2, moe_ep=4), 2)])
def test_experts_follow_attention_to_the_smallest_size_that_fits(layout, smallest):
    model, backend = load_model("Qwen/Qwen3-235B-A22B-FP8"), "trtllm"
    formats = infer_quantisation(model, backend)
    where = load_system("h200_sxm"), backend, "1.3.0rc20", model, layout, formats, load_constants(backend).memory
    assert smallest_fitting_tp(*where, lambda memory: memory.static(8, 4000, 500)) == smallest


def test_sizes_that_a_family_refuses_are_passed_over():
    """Heads would allow a TP of 32, but linear attention has 16 key heads."""
    model, backend = load_model("Qwen/Qwen3.5-397B-A17B"), "trtllm"
    formats, constants = infer_quantisation(model, backend), load_constants(backend).memory
    where = load_system("l40s"), backend, "1.3.0rc20", model, Parallel(tp=2, moe_tp=2), formats, constants
    assert smallest_fitting_tp(*where, lambda memory: memory.static(1, 256, 256)) is None
