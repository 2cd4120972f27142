# SPDX-License-Identifier: Apache-2.0
"""Which number format each kind of operator runs in: what the checkpoint implies, unless the caller says."""

from collections.abc import Mapping
from dataclasses import dataclass

from aicjax import quant
from aicjax._results import DataError, InputError
from aicjax.models.checkpoint import CheckpointQuantisation, is_routed_expert
from aicjax.models.model import ModelConfig

DEFAULTS = {"gemm": "bfloat16", "moe": "bfloat16", "kvcache": "bfloat16", "fmha": "bfloat16", "comm": "half"}
_SAME_FOR_BOTH = ("fp8_block", "nvfp4")
_FP8_ATTENTION = ("fp8", "fp8_block", "nvfp4")
_MIXED_GEMM = {"mxfp8": "fp8_block", "fp8": "fp8_static", "w4a16_nvfp4": "w4a16_nvfp4", "nvfp4": "nvfp4"}
_MIXED_MOE = {"w4a16_nvfp4": "w4a16_nvfp4", "nvfp4": "nvfp4", "mxfp8": "fp8_block", "fp8": "fp8"}


@dataclass(frozen=True)
class Quantisation:
    """Number formats of one worker, by the names of `aicjax.quant`.

    Attributes:
        gemm: Dense matrix products.
        moe: Routed experts.
        kvcache: KV cache.
        fmha: Prefill attention.
        comm: Collectives.
        gemm_chosen: Whether `gemm` was chosen rather than read from the checkpoint: then the checkpoint's exceptions
            for single modules do not apply.
    """

    gemm: str
    moe: str
    kvcache: str
    fmha: str
    comm: str
    gemm_chosen: bool = False


def infer_quantisation(model: ModelConfig, backend: str, explicit: Mapping[str, str] | None = None) -> Quantisation:
    """Formats of a model on a backend, without regard to the system or to what has been measured.

    Args:
        model: The model.
        backend: `trtllm`, `vllm` or `sglang`.
        explicit: Formats the caller sets, by role (`gemm`, `moe`, `kvcache`, `fmha`, `comm`); they always win.

    Raises:
        InputError: An unknown role or format.
        DataError: The checkpoint uses an algorithm that is not known.
    """
    explicit = check_explicit(explicit)
    stated = stated_formats(model)
    modes = DEFAULTS | stated | explicit
    if "fmha" not in explicit and _attention_is_16bit(model, backend):
        modes["fmha"] = "bfloat16"
    if "moe" not in explicit:
        modes["moe"] = executed_moe(modes["moe"], model, backend)
    return Quantisation(**modes, gemm_chosen="gemm" in explicit)


def check_explicit(explicit: Mapping[str, str] | None) -> dict[str, str]:
    """The caller's formats, checked; a role set to None counts as not set."""
    checked = {role: mode for role, mode in (explicit or {}).items() if mode is not None}
    for role, mode in checked.items():
        if role not in quant.BY_ROLE:
            raise InputError("explicit", role, f"one of {list(quant.BY_ROLE)}")
        if mode not in quant.BY_ROLE[role]:
            raise InputError(f"{role}_quant_mode", mode, f"one of {list(quant.BY_ROLE[role])}")
    return checked


def stated_formats(model: ModelConfig) -> dict[str, str]:
    """Formats the checkpoint implies, by role; a role it says nothing about is absent."""
    checkpoint = model.checkpoint
    modes = _weight_modes(model)
    if model.architecture == "DeepseekV4ForCausalLM":
        if checkpoint.expert_dtype == "fp4" and modes.get("moe") != "nvfp4":
            modes["moe"] = "w4a8_mxfp4_mxfp8"
        modes["kvcache"] = "fp8"  # its sparse attention has no other
    elif checkpoint.kv_algorithm in quant.KVCACHE:
        modes["kvcache"] = checkpoint.kv_algorithm
    elif checkpoint.kv_algorithm is not None:
        raise DataError(f"{model.name}: KV cache format {checkpoint.kv_algorithm!r} of the checkpoint is not known.")
    fp8_attention = checkpoint.algorithm in _FP8_ATTENTION or checkpoint.kv_algorithm == "fp8"
    if checkpoint.algorithm is not None and fp8_attention:
        modes["fmha"] = modes["kvcache"] = "fp8"
    return modes


def executed_moe(mode: str, model: ModelConfig, backend: str) -> str:
    """Format an engine runs the experts in: vLLM quantises activations of Nemotron-H whatever the label says."""
    if backend == "vllm" and model.architecture == "NemotronHForCausalLM" and mode == "w4a16_nvfp4":
        return "nvfp4"
    return mode


def _attention_is_16bit(model: ModelConfig, backend: str) -> bool:
    """Whether an engine is only known with 16-bit prefill attention for this model."""
    if backend == "vllm" or model.architecture == "DeepseekV4ForCausalLM":
        return True
    return model.family == "DEEPSEEKV32"


def _weight_modes(model: ModelConfig) -> dict[str, str]:
    checkpoint = model.checkpoint
    algorithm = checkpoint.algorithm
    if algorithm is None:
        return {}
    if algorithm == "fp8":
        return {"gemm": _per_tensor_fp8(checkpoint), "moe": "fp8"}
    if algorithm in _SAME_FOR_BOTH:
        return {"gemm": algorithm, "moe": algorithm}
    if algorithm == "mxfp4":
        return {"gemm": "bfloat16", "moe": "w4a16_mxfp4"}
    if algorithm == "compressed-tensors":
        return _compressed_modes(checkpoint)
    if algorithm == "mixed_precision":
        return _mixed_modes(checkpoint)
    raise DataError(f"{model.name}: quantisation algorithm {algorithm!r} of the checkpoint is not known.")


def _per_tensor_fp8(checkpoint: CheckpointQuantisation) -> str:
    return "fp8" if checkpoint.dynamic else "fp8_static"


def _compressed_modes(checkpoint: CheckpointQuantisation) -> dict[str, str]:
    if checkpoint.weight_format is None:
        return {}
    roles = {"gemm": "attention", "moe": "experts"}
    return {role: checkpoint.weight_format for role, kind in roles.items() if kind not in checkpoint.kept_16bit}


def _mixed_modes(checkpoint: CheckpointQuantisation) -> dict[str, str]:
    pairs = checkpoint.layer_formats + checkpoint.group_formats
    experts = {name for module, name in pairs if is_routed_expert(module)}
    others = {name for module, name in pairs if not is_routed_expert(module)}
    modes = {}
    if checkpoint.base_method == "fp8":  # the base checkpoint's own statement beats broad patterns
        modes["gemm"] = "fp8_block" if checkpoint.weight_block else _per_tensor_fp8(checkpoint)
    elif seen := next((name for name in _MIXED_GEMM if name in others), None):
        modes["gemm"] = _per_tensor_fp8(checkpoint) if seen == "fp8" else _MIXED_GEMM[seen]
    if seen := next((name for name in _MIXED_MOE if name in experts), None):
        modes["moe"] = _MIXED_MOE[seen]
    return modes
