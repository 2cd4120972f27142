# SPDX-License-Identifier: Apache-2.0
"""Rooflines of the operators of a step: what rooflines alone would answer."""

import numpy as np
import pytest

from aicjax import estimate

POINT = {"system": "h200_sxm", "backend": "trtllm", "tp_size": 4, "isl": 2000, "osl": 100}


@pytest.mark.parametrize("mode", ["agg", "static"])
def test_rooflines_are_the_answers_of_rooflines_alone(mode: str):
    point = {**POINT, "model_path": "Qwen/Qwen3-8B", "mode": mode, "batch_size": 16}
    steps = estimate(**point).steps
    alone = estimate(**point, database_mode="SOL").steps
    for step, other in zip(steps, alone, strict=True):
        assert step.rooflines is not None
        assert step.names == other.names
        np.testing.assert_allclose(step.rooflines(), other.latency_ms, rtol=1e-5)


def test_rooflines_are_below_what_is_measured_of_large_kernels():
    step = estimate(**POINT, model_path="Qwen/Qwen3-8B", batch_size=16).steps[0]
    assert step.rooflines is not None
    bounds_ms = dict(zip(step.names, step.rooflines(), strict=True))
    for name, latency_ms in zip(step.names, step.latency_ms, strict=True):
        if name.endswith(("ffn1_gemm", "ffn2_gemm", "context_attention")):
            assert 0 < bounds_ms[name] < latency_ms
