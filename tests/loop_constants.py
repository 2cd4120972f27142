# SPDX-License-Identifier: Apache-2.0
"""A file of constants with the formulas of the closed loop, for tests: every number of section `loop` counts."""

from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths

LOOP: dict[str, Any] = {
    "host_ms_per_step": {"trtllm": 0.5, "vllm": 0.7, "sglang": 2.1},
    "host_ms_per_running_request": 0.003,
    "host_ms_per_prefill": 0.9,
    "host_ms_per_prefill_layer": 0.015,
    "prefill_level": {"trtllm": 1.01, "vllm": 1.16, "sglang": 0.93},
    "request_ms": {"trtllm": 85, "vllm": 20, "sglang": 150},
    "steps_waited": {"trtllm": 2.1, "vllm": 0.63, "sglang": 6.9},
    "collisions_per_request": 0.01,
    "interference_weight": 0.98,
    "disagg_decode_level": 0.97,
    "disagg_prefill_level": 0.9,
    "disagg_request_ms": 60,
    "disagg_burst_weight": 0.2,
    "disagg_queue_weight": 0.27,
}
DISAGG = dict.fromkeys(("prefill_latency_correction", "decode_latency_correction", "ttft_correction"), 1)


def write_loop_constants(folder: Path) -> str:
    """Path of the file, written into a folder."""
    reference = yaml.safe_load(_paths.constants_file("reference").read_text())
    content: dict[str, Any] = {"base": "reference", "formulas": "closed_loop"}
    for section, values in (("loop", LOOP), ("disagg", DISAGG)):
        known = reference[section]
        content[section] = {name: {**known[name], "value": value, "source": "test"} for name, value in values.items()}
    path = folder / "loop.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)
