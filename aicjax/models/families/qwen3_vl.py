# SPDX-License-Identifier: Apache-2.0
"""A vision encoder in front of a dense or an expert decoder: Qwen3-VL."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import DataError
from aicjax.models.families import llama, moe
from aicjax.models.families.base import Family, dense, mixture
from aicjax.models.families.vision import with_encoder
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_REQUIRED = (
    "depth",
    "hidden_size",
    "num_heads",
    "intermediate_size",
    "patch_size",
    "temporal_patch_size",
    "spatial_merge_size",
    "out_hidden_size",
)


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    """Sizes of the vision encoder; nothing when the config describes none. One projector for every tapped layer."""
    vision = fields.root.get("vision_config")
    if not vision:
        return {}
    if missing := [key for key in _REQUIRED if key not in vision]:
        raise DataError(
            f"{fields.source}: key `vision_config.{missing[0]}` is missing, needed by architecture "
            f"{fields.architecture}."
        )
    taps = vision.get("deepstack_visual_indexes") or ()
    return {f"vision_{key}": vision[key] for key in _REQUIRED} | {"vision_projectors": 1 + len(taps)}


def _op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    text = moe if model.is_moe else llama
    return with_encoder(text.op_lists(model, parallel, quantisation, backend, nextn), model, parallel.tp)


QWEN3VL, QWEN3VL_MOE = (
    Family(name, is_moe, _extra, _op_lists, text.kv_cache, context_parallel_backends=("sglang",))
    for name, is_moe, text in (("QWEN3VL", dense, llama), ("QWEN3VL_MOE", mixture, moe))
)
