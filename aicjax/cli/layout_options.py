# SPDX-License-Identifier: Apache-2.0
"""Flags of the layout of one deployment: its worker, or the workers of each role."""

from typing import Annotated

from aicjax.cli.options import flag

LAYOUT = "Layout"
_ROLES = "Disaggregated roles (a layout or limit not given is the shared one)"


def role(name: str, flag_name: str, short: str | None, text: str) -> object:
    """A flag of the workers of a role, in long form and short."""
    names = [f"--{name}-{flag_name}"] + ([f"--{name[0]}-{short}"] if short else [])
    return flag(*names, panel=_ROLES, text=f"{name.capitalize()}: {text}.")


def _layout(name: str, short: str, text: str, default: str = "1") -> object:
    return flag(f"--{name}", f"--{short}", panel=LAYOUT, default=default, text=text)


TpSize = Annotated[str | None, _layout("tp-size", "tp", "Tensor parallel GPUs.")]
AttentionDpSize = Annotated[str | None, _layout("attention-dp-size", "dp", "Attention data parallel ranks.")]
MoeTpSize = Annotated[str | None, _layout("moe-tp-size", "etp", "Expert tensor parallel GPUs.", "inferred")]
MoeEpSize = Annotated[str | None, _layout("moe-ep-size", "ep", "Expert parallel GPUs.", "inferred")]

PrefillTpSize = Annotated[str | None, role("prefill", "tp-size", "tp", "tensor parallel GPUs")]
PrefillAttentionDpSize = Annotated[str | None, role("prefill", "attention-dp-size", "dp", "attention ranks")]
PrefillMoeTpSize = Annotated[str | None, role("prefill", "moe-tp-size", "etp", "expert tensor parallel GPUs")]
PrefillMoeEpSize = Annotated[str | None, role("prefill", "moe-ep-size", "ep", "expert parallel GPUs")]
PrefillNumWorkers = Annotated[str | None, role("prefill", "num-workers", "workers", "workers")]

DecodeTpSize = Annotated[str | None, role("decode", "tp-size", "tp", "tensor parallel GPUs")]
DecodeAttentionDpSize = Annotated[str | None, role("decode", "attention-dp-size", "dp", "attention ranks")]
DecodeMoeTpSize = Annotated[str | None, role("decode", "moe-tp-size", "etp", "expert tensor parallel GPUs")]
DecodeMoeEpSize = Annotated[str | None, role("decode", "moe-ep-size", "ep", "expert parallel GPUs")]
DecodeNumWorkers = Annotated[str | None, role("decode", "num-workers", "workers", "workers")]
