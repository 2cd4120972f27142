# SPDX-License-Identifier: Apache-2.0
"""Number formats that a Qwen3.5 checkpoint chooses for parts of a layer."""

from dataclasses import dataclass

from aicjax.models.checkpoint import is_routed_expert
from aicjax.models.model import ModelConfig
from aicjax.models.quantisation import Quantisation

_LAYER_MODES = {"fp8": "fp8_static", "mxfp8": "fp8", "nvfp4": "nvfp4", "w4a16_nvfp4": "w4a16_nvfp4"}


@dataclass(frozen=True)
class Formats:
    """Number formats of the parts of a layer that a checkpoint may choose apart.

    Attributes:
        projection: Projections of both kinds of attention.
        ffn: Dense feed-forward.
        shared: Shared expert.
    """

    projection: str
    ffn: str
    shared: str

    @classmethod
    def of(cls, model: ModelConfig, quantisation: Quantisation) -> "Formats":
        """What the checkpoint says of single layers, then what it leaves in 16 bits, then the worker's format."""
        gemm, checkpoint = quantisation.gemm, model.checkpoint
        if quantisation.gemm_chosen:
            return cls(gemm, gemm, gemm)
        kept = {_part(pattern): "bfloat16" for pattern in checkpoint.excluded}
        known = ((module, _LAYER_MODES.get(name)) for module, name in checkpoint.layer_formats)
        modes = kept | {_part(module): mode for module, mode in known if mode is not None}
        return cls(*(modes.get(part, gemm) for part in ("projection", "ffn", "shared")))


def _part(module: str) -> str:
    """Which of `Formats` a module name or pattern means, "" for none."""
    module = module.lower()
    if "linear_attn" in module or "self_attn" in module:
        return "projection"
    if "shared_expert" in module:
        return "shared"
    return "ffn" if ".mlp" in module and not is_routed_expert(module) else ""
