# SPDX-License-Identifier: Apache-2.0
"""Number formats on a given system and backend version: what is measured and what the GPU can do decide the rest."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from aicjax._results import InputError
from aicjax.hardware import System
from aicjax.models.families import FAMILIES
from aicjax.models.families.base import ATTENTION_TABLES
from aicjax.models.model import ModelConfig
from aicjax.models.quantisation import Quantisation, check_explicit, executed_moe, infer_quantisation, stated_formats
from aicjax.tables import Rows, read_rows

_BLACKWELL_SM, _HOPPER_SM = 100, 90
_OTHER_SPELLINGS = {"fp8_e4m3": "fp8"}
_MXFP4_EXPERTS = "w4a8_mxfp4_mxfp8"  # the format of native 4-bit experts before the engine's kernel is known


def resolve_quantisation(
    model: ModelConfig,
    system: System,
    backend: str,
    version: str,
    explicit: Mapping[str, str] | None = None,
    *,
    role_runs_prefill: bool = True,
    shared: bool = True,
    large_ep: bool = False,
    mega_moe: bool = False,
    searched: bool = False,
) -> Quantisation:
    """Formats a worker runs in, given what is measured and what the GPU can do.

    In this order:

    1. Prefill attention inferred as fp8 becomes 16-bit where only 16-bit was measured with the same KV format.
    2. Native 4-bit experts on SGLang (of gpt-oss on TensorRT-LLM, in searches) become the format of the kernel that
       the GPU generation has.
    3. NVFP4 without hardware for it (before Blackwell) becomes weight-only, whoever chose it; the gemm format then
       counts as chosen.

    Args:
        model: The model.
        system: The GPU system.
        backend: `trtllm`, `vllm` or `sglang`.
        version: Version of the backend.
        explicit: Formats the caller sets, by role; they always win.
        role_runs_prefill: Whether the worker runs prefills; rule 1 is for those. A worker that runs none keeps the
            prefill format of the checkpoint, which it never uses.
        shared: Whether tables of other versions and backends count as measured.
        large_ep: Whether experts span many GPUs: kernels of their own are then measured, and rule 1 does not apply.
        mega_moe: Whether dispatch, experts and combine run in one kernel, which takes the checkpoint's format.
        searched: Whether a search asks: it picks the faster 4-bit format of gpt-oss where the GPU has it, and rule 3
            does not make a format count as chosen.

    Raises:
        InputError: fp8 prefill attention was asked for and is not measured; or as `infer_quantisation`.
    """
    searched = searched or not model.compat.estimates_apart_from_searches
    chosen = check_explicit(explicit)
    modes = dict(chosen)
    stated = stated_formats(model)
    if large_ep:
        modes = _large_ep_attention(model, backend) | modes
    elif role_runs_prefill:
        kv_mode = modes.get("kvcache", stated.get("kvcache"))
        measured = measured_prefill_formats(model, system, backend, version, kv_mode, shared)
        if measured and "fp8" not in measured:
            if modes.get("fmha") == "fp8":
                raise InputError(
                    "fmha_quant_mode", "fp8", f"measured for {model.name} on {system.name} {backend} {version}"
                )
            if stated.get("fmha") == "fp8" and "bfloat16" in measured:
                modes.setdefault("fmha", "bfloat16")
    elif "fmha" in stated:
        modes.setdefault("fmha", stated["fmha"])
    sm = system.sm_version or 0
    if "moe" not in modes and not mega_moe and (native := _native_experts(model, stated, backend, sm, searched)):
        modes["moe"] = native
    if sm < _BLACKWELL_SM:
        weights = {"moe": executed_moe(stated.get("moe", ""), model, backend), "gemm": stated.get("gemm")}
        modes |= {role: "nvfp4_wo" for role, mode in (weights | modes).items() if mode == "nvfp4"}
    found = infer_quantisation(model, backend, modes)
    return dataclasses.replace(found, gemm_chosen="gemm" in chosen) if searched else found


def large_ep_formats(
    quantisation: Quantisation, model: ModelConfig, backend: str, explicit: Mapping[str, str]
) -> Quantisation:
    """Formats of a layout whose experts span many GPUs, from those of layouts whose experts do not.

    Args:
        quantisation: Formats of the worker, as `resolve_quantisation` gives them.
        model: The model.
        backend: `trtllm`, `vllm` or `sglang`.
        explicit: Formats the caller sets, by role; they always win.
    """
    labels = _large_ep_attention(model, backend)
    return dataclasses.replace(quantisation, **{role: mode for role, mode in labels.items() if role not in explicit})


def _large_ep_attention(model: ModelConfig, backend: str) -> dict[str, str]:
    """Labels under which attention beside experts over many GPUs was measured, where not those of the checkpoint."""
    if backend == "sglang" and model.architecture == "DeepseekV3ForCausalLM":
        return {"fmha": "fp8_block", "kvcache": "fp8"}
    return {}


def measured_prefill_formats(
    model: ModelConfig, system: System, backend: str, version: str, kv_mode: str | None, shared: bool = True
) -> frozenset[str]:
    """Formats of prefill attention measured with a KV format (with any when None); empty when nothing is known."""
    formats: set[str] = set()
    for table, column in FAMILIES[model.family].prefill_tables.get(backend, ATTENTION_TABLES):
        if (rows := read_rows(system.name, backend, version, table, shared)) is not None:
            formats |= _formats(rows, column, kv_mode)
    return frozenset(formats)


def _formats(rows: Rows, column: str, kv_mode: str | None) -> set[str]:
    codes, names = rows.text(column)
    if kv_mode is not None:
        spellings = [kv_mode, *(name for name, mode in _OTHER_SPELLINGS.items() if mode == kv_mode)]
        codes = codes[rows.is_in("kv_cache_dtype", spellings)]
    found = [names[int(code)] for code in np.unique(codes)]
    return {_OTHER_SPELLINGS.get(name, name) for name in found}


def _native_experts(model: ModelConfig, stated: Mapping[str, str], backend: str, sm: int, searched: bool) -> str | None:
    """Format of native 4-bit experts by the kernel of the engine; None where the rule does not apply."""
    if searched and backend == "trtllm" and model.architecture == "GptOssForCausalLM" and sm >= _BLACKWELL_SM:
        return _MXFP4_EXPERTS
    if backend != "sglang":
        return None
    if model.architecture == "DeepseekV4ForCausalLM" and stated.get("moe") == _MXFP4_EXPERTS:
        if sm >= _BLACKWELL_SM:
            return "w4a8_mxfp4_mxfp8_trtllm"
        return "w4a16_mxfp4_cutlass" if sm == _HOPPER_SM else None
    if model.architecture == "KimiK3ForConditionalGeneration" and sm >= _BLACKWELL_SM:
        return _MXFP4_EXPERTS
    return None
