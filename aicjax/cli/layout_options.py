# SPDX-License-Identifier: Apache-2.0
"""Flags of the layout of one deployment: its worker, or the workers of each role."""

from typing import Annotated

from aicjax.cli.flags import flag

LAYOUT = "Layout"
_ROLES = "Disaggregated roles (a layout or limit not given is the shared one)"


def _role(name: str, flag_name: str, short: str | None, text: str) -> object:
    """A flag of the workers of a role, in long form and short."""
    names = [f"--{name}-{flag_name}"] + ([f"--{name[0]}-{short}"] if short else [])
    return flag(*names, panel=_ROLES, text=f"{name.capitalize()}: {text}.")


def _layout(name: str, short: str, text: str, default: str = "1") -> object:
    return flag(f"--{name}", f"--{short}", panel=LAYOUT, default=default, text=text)


class Worker:
    """The layout of a worker."""

    tp_size: Annotated[str | None, _layout("tp-size", "tp", "Tensor parallel GPUs.")]
    pp_size: Annotated[str | None, _layout("pp-size", "pp", "Pipeline stages.")]
    attention_dp_size: Annotated[str | None, _layout("attention-dp-size", "dp", "Attention data parallel ranks.")]
    moe_tp_size: Annotated[str | None, _layout("moe-tp-size", "etp", "Expert tensor parallel GPUs.", "inferred")]
    moe_ep_size: Annotated[str | None, _layout("moe-ep-size", "ep", "Expert parallel GPUs.", "inferred")]


class Prefill:
    """The prefill workers."""

    prefill_tp_size: Annotated[str | None, _role("prefill", "tp-size", "tp", "tensor parallel GPUs")]
    prefill_pp_size: Annotated[str | None, _role("prefill", "pp-size", "pp", "pipeline stages")]
    prefill_attention_dp_size: Annotated[str | None, _role("prefill", "attention-dp-size", "dp", "attention ranks")]
    prefill_moe_tp_size: Annotated[str | None, _role("prefill", "moe-tp-size", "etp", "expert tensor parallel GPUs")]
    prefill_moe_ep_size: Annotated[str | None, _role("prefill", "moe-ep-size", "ep", "expert parallel GPUs")]
    prefill_batch_size: Annotated[str | None, _role("prefill", "batch-size", "bs", "requests of a batch")]
    prefill_num_workers: Annotated[str | None, _role("prefill", "num-workers", "workers", "workers")]
    prefill_free_gpu_memory_fraction: Annotated[
        str | None, _role("prefill", "free-gpu-memory-fraction", None, "share of memory for the KV cache")
    ]
    prefill_max_seq_len: Annotated[str | None, _role("prefill", "max-seq-len", None, "longest sequence")]


class Decode:
    """The decode workers."""

    decode_tp_size: Annotated[str | None, _role("decode", "tp-size", "tp", "tensor parallel GPUs")]
    decode_pp_size: Annotated[str | None, _role("decode", "pp-size", "pp", "pipeline stages")]
    decode_attention_dp_size: Annotated[str | None, _role("decode", "attention-dp-size", "dp", "attention ranks")]
    decode_moe_tp_size: Annotated[str | None, _role("decode", "moe-tp-size", "etp", "expert tensor parallel GPUs")]
    decode_moe_ep_size: Annotated[str | None, _role("decode", "moe-ep-size", "ep", "expert parallel GPUs")]
    decode_batch_size: Annotated[str | None, _role("decode", "batch-size", "bs", "requests of a batch")]
    decode_num_workers: Annotated[str | None, _role("decode", "num-workers", "workers", "workers")]
    decode_free_gpu_memory_fraction: Annotated[
        str | None, _role("decode", "free-gpu-memory-fraction", None, "share of memory for the KV cache")
    ]
    decode_max_seq_len: Annotated[str | None, _role("decode", "max-seq-len", None, "longest sequence")]
