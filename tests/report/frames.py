# SPDX-License-Identifier: Apache-2.0
"""Small result frames with made-up numbers, for tests of reports."""

import numpy as np

_SHARED = {
    "model": "maker/model",
    "isl": 4000,
    "osl": 500,
    "prefix": 500,
    "ttft": 263.503,
    "tpot": 8.807,
    "request_latency": 4658.34,
    "tokens/s/user": 113.542,
}


def agg_frame(*batches: int, **changes: object) -> dict[str, np.ndarray]:
    """An aggregated top frame: tensor parallel over 4 GPUs, one row per batch."""
    row = {
        **_SHARED,
        "request_rate": 3.422,
        "seq/s": 3.422,
        "tokens/s": 1707.615,
        "tokens/s/gpu": 426.904,
        "num_total_gpus": 4,
        "tp": 4,
        "pp": 1,
        "dp": 1,
        "moe_tp": 1,
        "moe_ep": 1,
        "cp": 1,
        "parallel": "tp4pp1dp1etp1ep1",
        "memory": 14.695,
        "backend": "trtllm",
        "version": "1.0",
        "system": "some_gpu",
        "power_w": 0.0,
        **changes,
    }
    frame = {name: np.array([value] * len(batches)) for name, value in row.items()}
    frame["bs"] = frame["concurrency"] = np.array(batches)
    frame["tokens/s/gpu_cluster"] = frame["tokens/s/gpu"]
    return frame


def disagg_frame() -> dict[str, np.ndarray]:
    """A disaggregated top frame of one row: 5 prefill and 3 decode workers of 4 GPUs."""
    row = {
        **_SHARED,
        "concurrency": 192,
        "request_rate": 36.65,
        "seq/s": 36.65,
        "tokens/s": 18325.02,
        "tokens/s/gpu": 572.657,
        "num_total_gpus": 32,
        "(p)bs": 1,
        "(p)workers": 5,
        "(d)bs": 64,
        "(d)workers": 3,
        "(p)seq/s/worker": 9.26,
        "(d)seq/s/worker": 13.279,
    }
    for role, memory in (("(p)", 12.262), ("(d)", 20.1)):
        row |= {f"{role}{axis}": 1 for axis in ("pp", "dp", "moe_tp", "moe_ep")}
        row |= {f"{role}tp": 4, f"{role}parallel": "tp4pp1dp1etp1ep1", f"{role}memory": memory}
        row |= {f"{role}backend": "trtllm", f"{role}version": "1.0", f"{role}system": "some_gpu"}
    frame = {name: np.array([value]) for name, value in row.items()}
    frame["tokens/s/gpu_cluster"] = frame["tokens/s/gpu"]
    return frame
