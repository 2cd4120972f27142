# SPDX-License-Identifier: Apache-2.0
"""Order of attention lanes: against stored answers of the reference, and rule by rule on made-up tables."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError
from aicjax.hardware import load_system
from aicjax.tables import lane_order

REFERENCES = Path(__file__).parents[1] / "references"
COLUMNS = (
    *("kernel_source", "attn_dtype", "kv_cache_dtype", "head_dim", "window_size", "num_key_value_heads"),
    *("num_heads", "batch_size", "isl", "step", "latency"),
)


def test_lane_orders_equal_the_references():
    for row in pq.read_table(REFERENCES / "lane_order.parquet").to_pylist():
        sm_version = load_system(row["system"]).sm_version
        where = (row["system"], row["backend"], row["version"], row["phase"])
        options = {"attention_backend": row["attention_backend"], "shared": row["shared"]}
        if row["error"]:
            with pytest.raises(InputError, match="attention_backend"):
                lane_order(*where, sm_version=sm_version, **options)
        else:
            assert lane_order(*where, sm_version=sm_version, **options) == row["lane_order"].split("|"), row


def attention(*lanes: tuple[str, int, int]) -> dict[str, list]:
    """Columns of an attention table: of each lane so many slices (head sizes), each with so many points (batches)."""
    rows = [
        (lane, "bfloat16", "bfloat16", 64 * (head + 1), 0, 8, 32, batch + 1, 128, 1, 1.0)
        for lane, slices, points in lanes
        for head in range(slices)
        for batch in range(points)
    ]
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def order(backend: str = "sglang", version: str = "2.0", **options) -> list[str]:
    return lane_order("s", backend, version, "context", **{"sm_version": 90, **options})


@pytest.fixture
def sglang(database):
    """An earlier version holds more than the version asked for."""
    own = attention(("fa3", 1, 1), ("triton", 2, 1), ("unlisted", 3, 1), ("", 1, 1))
    database.table("s/attention/sglang/2.0/context_attention_perf", own)
    earlier = attention(("flashinfer", 3, 4), ("fla", 3, 5), ("fa3", 9, 9))
    database.table("s/attention/sglang/1.0/context_attention_perf", earlier)
    database.document("attention_lanes", {"sglang": {"1.5": {90: "trtllm_mha", 100: "default"}, "3.0": {90: "fla"}}})
    return database


def test_default_kernel_leads_and_own_lanes_come_before_those_of_donors(sglang):
    own = ["triton", "fa3", "default", "unlisted"]
    assert order() == ["trtllm_mha", *own, "fla", "flashinfer"]
    assert order(shared=False) == ["trtllm_mha", *own, "fla", "flashinfer"]


def test_kernel_asked_for_leads_before_the_default(sglang):
    assert order(attention_backend="fla")[:2] == ["fla", "trtllm_mha"]
    assert order(attention_backend="default") == order()


def test_default_that_pins_nothing_still_ranks_the_table(sglang):
    assert order(sm_version=100)[:3] == ["triton", "fa3", "default"]


@pytest.mark.parametrize("sm_version", [None, 80])
def test_unknown_default_says_nothing(sglang, sm_version):
    assert order(sm_version=sm_version) == ["default"]
    assert order(version="1.0") == ["default"], "earlier than every listed version"


def test_listed_version_counts_by_its_leading_numbers(sglang):
    assert order(version="1.5rc2")[0] == "trtllm_mha"
    assert order(version="3.0.post1")[0] == "fla"


def test_kernel_without_rows_is_refused(sglang):
    with pytest.raises(InputError, match=r"rows in context attention of sglang 2\.0 on s: \['default', 'fa3', "):
        order(attention_backend="trtllm_mha")


def test_kernel_of_another_backend_is_refused():
    with pytest.raises(InputError, match=r"must be for vllm one of triton, flashinfer, default, but got 'fa3'"):
        order(backend="vllm", attention_backend="fa3")


def test_one_request_may_stand_for_several_lanes(database):
    table = attention(("vllm_triton_attn", 5, 5), ("vllm_flashinfer", 1, 1))
    database.table("s/attention/vllm/2.0/context_attention_perf", table)
    flashinfer = ["vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode", "vllm_flashinfer"]
    assert order("vllm", attention_backend="flashinfer")[:4] == [*flashinfer, "vllm_triton_attn"]


def test_without_a_table_the_known_lanes_come_by_name(database):
    database.document("attention_lanes", {"sglang": {"1.0": {90: "triton"}}})
    assert order() == ["triton", "fa3", "fla", "flashinfer", "trtllm_mha", "default"]


def test_unknown_phase_is_refused():
    with pytest.raises(InputError, match=r"one of context, generation \(did you mean generation\?\)"):
        lane_order("s", "vllm", "1.0", "generations", sm_version=90)
