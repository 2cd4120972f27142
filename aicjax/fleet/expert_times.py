# SPDX-License-Identifier: Apache-2.0
"""Time of the routed experts of a layer: measured on one GPU where the shape was, else from its weights."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from aicjax._paths import configs_dir
from aicjax._units import MS_PER_S
from aicjax.fleet.fleet_constants import ComputedConstants
from aicjax.fleet.gpu_facts import Gpu
from aicjax.fleet.model_facts import ModelFacts
from aicjax.ops.expert_work import log_missed, touched_experts

_REFERENCE_MATRICES = 2  # of an expert, that the fleet reference reads where nothing was measured; it has three


def expert_layer_s(
    model: ModelFacts, gpu: Gpu, dtype_bytes: float, tokens: float, constants: ComputedConstants
) -> float:
    """Time of a layer's experts on one GPU: the longer of reading those that the tokens take, and of arithmetic.

    Args:
        model: A model with routed experts.
        gpu: The GPU; measured times go to it by the ratio of memory bandwidths.
        dtype_bytes: Bytes of a weight.
        tokens: Tokens of the iteration.
        constants: Share of the bandwidth, and power of the ratio.
    """
    arithmetic = 2 * tokens * model.token_expert_params / model.expert_layers / gpu.flops_per_s(dtype_bytes)
    measured = measured_layer_s(model, gpu, dtype_bytes, tokens, constants)
    if measured is not None:
        return max(measured, arithmetic)
    taken = experts_taken(model, tokens) / model.experts  # share of the experts
    read = taken * model.expert_params / model.expert_layers * dtype_bytes
    return max(read / (constants.memory_bandwidth_share * gpu.memory_bandwidth_bytes_per_s), arithmetic)


def reference_expert_layer_s(model: ModelFacts, gpu: Gpu, dtype_bytes: float, constants: ComputedConstants) -> float:
    """The fleet reference's time: a fixed few tokens, and the experts of one token where nothing was measured."""
    measured = measured_layer_s(model, gpu, dtype_bytes, constants.expert_tokens, constants)
    if measured is not None:
        return measured
    read = model.topk * _REFERENCE_MATRICES * model.expert_ffn * model.hidden * dtype_bytes
    return read / (constants.memory_bandwidth_share * gpu.memory_bandwidth_bytes_per_s)


def experts_taken(model: ModelFacts, tokens: float) -> float:
    """Different experts of a layer that some token takes, in the mean over tokens that choose evenly."""
    missed = log_missed(model.topk, model.experts)
    return float(touched_experts(tokens, tokens * model.topk, model.experts, missed, xp=np))


def measured_layer_s(
    model: ModelFacts, gpu: Gpu, dtype_bytes: float, tokens: float, constants: ComputedConstants
) -> float | None:
    """Measured time, linear between measured tokens and held beyond; None where the shape was not measured."""
    table = _table()
    curves = table["shapes"].get((model.experts, model.topk, model.hidden, model.expert_ffn))
    if curves is None:
        return None
    nearest = min(curves, key=lambda stated: abs(stated - dtype_bytes))
    layer_ms = float(np.interp(tokens, table["tokens"], curves[nearest]))
    ratio = table["memory_bandwidth_bytes_per_s"] / gpu.memory_bandwidth_bytes_per_s
    return layer_ms / MS_PER_S * ratio**constants.expert_bandwidth_exponent


@functools.cache
def _table() -> Mapping[str, Any]:
    stated = yaml.safe_load((configs_dir() / "fleet" / "expert_times.yaml").read_text(encoding="utf-8"))
    shapes = {
        (entry["experts"], entry["topk"], entry["hidden"], entry["expert_ffn"]): entry["layer_ms"]
        for entry in stated["shapes"]
    }
    return {**stated, "shapes": shapes}
