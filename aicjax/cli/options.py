# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands share.

A flag that is not given is None: the request has the default, and `show_default` only repeats it in the help.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from typer import Context

from aicjax.cli.flags import flag, switch
from aicjax.compat import DEFAULT_CONSTANTS

_WORKLOAD = "Workload"
_DATA = "Measured data and formats"
_MEMORY = "Memory and kernels"
_OUTPUT = "Output"
_SPACE = "What to compare"

BACKENDS = "trtllm|sglang|vllm"
MODES = "SILICON|HYBRID|EMPIRICAL|SOL"


def given(ctx: Context) -> dict[str, Any]:
    """The flags of a command line by name of the request's field, without those that were not given."""
    values = {name: value for name, value in ctx.params.items() if value is not None and value is not False}
    if values.pop("disable_encoder_dp", False):
        values["enable_encoder_dp"] = False
    return values


def joined(arguments: Sequence[str], flags: Sequence[str] = ("--encoder-tp",)) -> list[str]:
    """Arguments with the numbers after a flag that takes a list joined by commas: `--encoder-tp 1 2`."""
    result: list[str] = []
    for argument in arguments:
        if argument.isdecimal() and len(result) > 1 and result[-2] in flags and not result[-1].startswith("-"):
            result[-1] += f",{argument}"
        else:
            result.append(argument)
    return result


def _mode(default: str) -> Any:
    return flag(
        "--database-mode",
        panel=_DATA,
        default=default,
        metavar=MODES,
        text="What answers an operator: measurements, estimates where there are none, estimates alone, or rooflines.",
    )


Model = Annotated[
    str | None,
    flag("--model", "--model-path", metavar="NAME|DIR", text="Hugging Face name, or directory with config.json."),
]
System = Annotated[str | None, flag("--system", metavar="NAME", text="GPU system, for example h200_sxm.")]
DecodeSystem = Annotated[
    str | None,
    flag("--decode-system", metavar="NAME", default="--system", text="GPU system of decode workers."),
]
Version = Annotated[
    str | None,
    flag(
        "--backend-version",
        "--perf-db-version",
        panel=_DATA,
        default="current",
        metavar="VERSION",
        text="Version of the measured tables, or current, previous, next.",
    ),
]
Mode = Annotated[str | None, _mode("SILICON")]
RecommendMode = Annotated[str | None, _mode("HYBRID")]
TransferPolicy = Annotated[
    str | None,
    flag(
        "--transfer-policy",
        panel=_DATA,
        default="aggressive",
        metavar="off|conservative|balanced|aggressive",
        text="What an estimate may borrow from; also xshape, xbackend, xquant, xprofile and xop, with commas between.",
    ),
]
ConstantsName = Annotated[
    str | None,
    flag(
        "--constants",
        panel=_DATA,
        default=DEFAULT_CONSTANTS,
        metavar="NAME|FILE",
        text="Empirical constants: a file of configs/constants, or a .yaml file of your own.",
    ),
]
CompatName = Annotated[
    str | None,
    flag(
        "--compat",
        panel=_DATA,
        default="default",
        metavar="default|reference",
        text="reference follows AIConfigurator 0.12.0 also where it contradicts the model's config.",
    ),
]
Family = Annotated[
    str | None,
    flag(
        "--family",
        panel=_DATA,
        default="by architecture",
        metavar="NAME",
        text="Model an architecture that is not listed as this family; GENERIC reads the numbers of its config alone.",
    ),
]
Waves = Annotated[
    str | None,
    flag("--waves", panel=_WORKLOAD, default="10", text="Requests of a run for each in flight (--load closed)."),
]
LengthLow = Annotated[
    str | None,
    flag(
        "--length-low",
        panel=_WORKLOAD,
        default="1",
        metavar="SHARE",
        text="Lengths vary from this share of isl and osl to all of them (--load closed).",
    ),
]
AttentionBackend = Annotated[
    str | None,
    flag("--attention-backend", panel=_MEMORY, default="the backend's", metavar="NAME", text="Attention kernels."),
]
Json = Annotated[bool, switch("--json", panel=_OUTPUT, text="Print one JSON object instead of tables.")]
NoColor = Annotated[bool, switch("--no-color", panel=_OUTPUT, text="Print without colour.")]
Backend = Annotated[
    str | None,
    flag("--backend", panel=_SPACE, default="trtllm", metavar=f"{BACKENDS}|auto", text="Engine; auto compares all."),
]
ChunkedPrefill = Annotated[
    bool, switch("--enable-chunked-prefill", panel=_SPACE, text="Let a step hold part of a prompt.")
]
Grid = Annotated[
    str | None,
    flag(
        "--grid",
        panel=_SPACE,
        default="full",
        metavar="NAME",
        text="Candidate lists: full, the coarse ones of AIConfigurator (reference), or a file of configs/grids.",
    ),
]
