# SPDX-License-Identifier: Apache-2.0
"""Requests: every refusal is one line that names the argument, the value and the rule."""

from typing import Any

import pytest

from aicjax._results import InputError
from aicjax.explore.request import EstimateRequest, SearchRequest
from aicjax.explore.roles import resolve_load
from aicjax.models import load_model

BASE: dict[str, Any] = {"model_path": "Qwen/Qwen3-8B", "system": "h200_sxm"}


def test_defaults_are_those_of_the_documentation():
    request = SearchRequest(**BASE)
    assert (request.isl, request.osl, request.ttft, request.tpot, request.top_n) == (4000, 1000, 2000.0, 30.0, 5)
    assert (request.backend, request.database_mode, request.serving_mode) == ("trtllm", "SILICON", "auto")


def test_grid_is_full_unless_the_reference_is_followed_or_one_is_stated():
    assert SearchRequest(**BASE).grid_name == "full"
    assert SearchRequest(**BASE, compat="reference").grid_name == "reference"
    assert SearchRequest(**BASE, compat="reference", grid="full").grid_name == "full"
    assert SearchRequest(**BASE, grid="reference").grid_name == "reference"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"iscl": 3}, "`iscl` must be .*`?isl"),
        ({"isl": 0}, "`isl` must be at least 1, but got 0"),
        ({"isl": 10**23}, "`isl` must be at most 1000000000, but got 1"),
        ({"isl": "many"}, "`isl` must be a whole number, but got 'many'"),
        ({"isl": 10.5}, "`isl` must be a whole number"),
        ({"ttft": float("nan")}, "`ttft` must be a finite number"),
        ({"tpot": -1}, "`tpot` must be above 0"),
        ({"backend": "tensorrt"}, "`backend` must be one of"),
        ({"prefix": 4001}, "`prefix` must be at most isl = 4000, but got 4001"),
        ({"nextn": 2}, "`nextn_accepted` must be given"),
        ({"nextn": 2, "nextn_accepted": 2.5}, "`nextn_accepted` must be from 0 to nextn = 2"),
        ({"free_gpu_memory_fraction": 1.2}, "`free_gpu_memory_fraction` must be at most 1"),
        ({"gemm_quant_mode": "fp7"}, "`gemm_quant_mode` must be one of"),
        ({"agg_tp_candidates": []}, "`agg_tp_candidates` must be a list that is not empty"),
        ({"request_latency": 100, "osl": 1}, "`request_latency` must be absent when osl = 1"),
        ({"target_request_rate": 1, "target_concurrency": 1}, "`target_concurrency` must be absent"),
        ({"image_height": 64}, "`image_width` must be given together with image_height = 64, but got 0"),
        ({"enable_epd": True}, "`enable_epd` must be absent for requests of text"),
        ({"encoder_tp": [2]}, "`encoder_tp_candidates` must be absent without enable_epd"),
        ({"image_height": 64, "image_width": -1}, "`image_width` must be at least 0"),
        ({"isl": True}, "Argument `isl` must be a number, but got True."),
        ({"total_gpus": True}, "Argument `total_gpus` must be a number, but got True."),
    ],
)
def test_bad_value_is_refused_in_one_line(values, message):
    with pytest.raises(InputError, match=message) as refusal:
        SearchRequest(**BASE, **values)
    assert "\n" not in str(refusal.value)


def untyped(kind: Any, **values: Any) -> Any:
    """A request as code without type checks would make it."""
    return kind(**values)


def test_missing_value_is_named():
    with pytest.raises(InputError, match="`model_path` must be given"):
        untyped(SearchRequest, system="h200_sxm")


def test_cached_prompt_still_computes_its_last_token():
    text, vision = load_model("Qwen/Qwen3-8B"), load_model("Qwen/Qwen3-VL-8B-Instruct")
    whole = {**BASE, "isl": 100, "prefix": 100}
    assert resolve_load(SearchRequest(**whole), text).prefix == 99
    load = resolve_load(SearchRequest(**whole, image_height=64, image_width=64), vision)
    assert (load.prefix, load.isl, load.text_tokens) == (100, 104, 100), "the images are not cached"


def test_lists_of_a_command_line_are_text():
    images = {"image_height": 64, "image_width": 64, "enable_epd": True}
    assert untyped(SearchRequest, **BASE, **images, encoder_tp="1,4").encoder_tp_candidates == (1, 4)
    with pytest.raises(InputError, match="`encoder_tp` must be given with enable_epd"):
        EstimateRequest(**BASE, **images)
    with pytest.raises(InputError, match="`mode` must be one of agg, disagg with enable_epd"):
        EstimateRequest(**BASE, **images, encoder_tp=1, mode="static")


def test_names_of_the_estimate_api_are_understood():
    request = untyped(EstimateRequest, model_path="m", system_name="h200_sxm", backend_name="vllm")
    assert (request.system, request.backend, request.isl) == ("h200_sxm", "vllm", 1024)


def test_replica_estimate_needs_batches_and_workers():
    with pytest.raises(InputError, match="`prefill_batch_size` must be given"):
        EstimateRequest(**BASE, mode="disagg")


def test_decode_estimate_needs_a_second_token():
    with pytest.raises(InputError, match="`osl` must be at least 2"):
        EstimateRequest(**BASE, mode="static_gen", osl=1)


def test_role_settings_fall_back_to_the_shared_ones():
    values: dict[str, Any] = {
        "prefill_batch_size": 1,
        "decode_batch_size": 8,
        "prefill_num_workers": 1,
        "decode_num_workers": 1,
    }
    request = EstimateRequest(**BASE, mode="disagg", tp_size=4, decode_tp_size=8, **values)
    assert (request.of_role("prefill", "tp_size"), request.of_role("decode", "tp_size")) == (4, 8)


def test_requests_are_values():
    assert SearchRequest(**BASE) == SearchRequest(**BASE)
    assert hash(SearchRequest(**BASE)) == hash(SearchRequest(**BASE))
