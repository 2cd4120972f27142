# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands share.

A flag that is not given is None: the request has the default, and `show_default` only repeats it in the help.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Context, Option

from aicjax.compat import DEFAULT_CONSTANTS

_WORKLOAD = "Workload"
_DATA = "Measured data and formats"
_MEMORY = "Memory and kernels"
_IMAGES = "Images"
_OUTPUT = "Output"
_SPACE = "What to compare"

BACKENDS = "trtllm|sglang|vllm"
MODES = "SILICON|HYBRID|EMPIRICAL|SOL"


def flag(*names: str, panel: str | None = None, default: str | bool = False, metavar: str = "N", text: str) -> Any:
    """An option whose default is None; `default` is what the help shows for it.

    Its value stays text: the request parses and checks it, so that a refusal reads the same from Python.
    """
    return Option(*names, help=text, rich_help_panel=panel, show_default=default, metavar=metavar)


def switch(name: str, *, panel: str | None = None, text: str) -> Any:
    """A flag without a value, off unless given."""
    return Option(name, help=text, rich_help_panel=panel, show_default=False)


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


def _mode(default: str) -> Any:
    return flag(
        "--database-mode",
        panel=_DATA,
        default=default,
        metavar=MODES,
        text="What answers an operator: measurements, estimates where there are none, estimates alone, or rooflines.",
    )


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
Compat = Annotated[
    str | None,
    flag(
        "--compat",
        panel=_DATA,
        default="default",
        metavar="default|reference",
        text="reference follows AIConfigurator 0.12.0 also where it contradicts the model's config.",
    ),
]

Prefix = Annotated[
    str | None, flag("--prefix", panel=_WORKLOAD, default="0", text="Prompt tokens that are already cached.")
]
Nextn = Annotated[
    str | None,
    flag(
        "--nextn", panel=_WORKLOAD, default="0", metavar="N|auto", text="Draft tokens of a decode step (speculation)."
    ),
]
NextnAccepted = Annotated[
    str | None,
    flag("--nextn-accepted", panel=_WORKLOAD, metavar="MEAN", text="Accepted drafts of a step; needed with --nextn."),
]

LoadShape = Annotated[
    str | None,
    flag(
        "--load",
        panel=_WORKLOAD,
        default="steady",
        metavar="steady|closed",
        text="Requests in flight: a number without end, or a run that sends all of them at once at first.",
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

ImageHeight = Annotated[
    str | None,
    flag("--image-height", panel=_IMAGES, default="no images", metavar="PIXELS", text="Height of an image."),
]
ImageWidth = Annotated[
    str | None, flag("--image-width", panel=_IMAGES, default="no images", metavar="PIXELS", text="Width of an image.")
]
NumImages = Annotated[str | None, flag("--num-images", panel=_IMAGES, default="1", text="Images of a request.")]
DisableEncoderDp = Annotated[
    bool,
    switch(
        "--disable-encoder-dp",
        panel=_IMAGES,
        text="Cut the vision encoder over the GPUs of a worker, which otherwise share out the images.",
    ),
]
EnableEpd = Annotated[
    bool, switch("--enable-epd", panel=_IMAGES, text="Run the vision encoder on workers of its own, before the others.")
]

MemoryFraction = Annotated[
    str | None,
    flag(
        "--free-gpu-memory-fraction",
        panel=_MEMORY,
        default="the backend's",
        text="Share of GPU memory for the KV cache, in the backend's own definition.",
    ),
]
MaxSeqLen = Annotated[
    str | None,
    flag("--max-seq-len", panel=_MEMORY, default="isl + osl", text="Longest sequence the engine reserves for."),
]
AttentionBackend = Annotated[
    str | None,
    flag("--attention-backend", panel=_MEMORY, default="the backend's", metavar="NAME", text="Attention kernels."),
]
MoeBackend = Annotated[
    str | None,
    flag(
        "--moe-backend",
        panel=_MEMORY,
        default="by the data",
        metavar="megamoe|deepep_moe",
        text="megamoe runs dispatch, experts and combine in one kernel; deepep_moe keeps SGLang from cutting experts.",
    ),
]
KvTransfer = Annotated[
    str | None,
    flag(
        "--kv-transfer-gb-per-s",
        panel=_MEMORY,
        default="no time",
        metavar="GB/S",
        text="Bandwidth at which a decode worker gets the KV cache of a prompt (disaggregated).",
    ),
]


def _quant(role: str) -> Any:
    return flag(
        f"--{role}-quant-mode",
        panel=_DATA,
        default="the checkpoint's",
        metavar="FORMAT",
        text=f"Number format: {role}.",
    )


GemmQuant = Annotated[str | None, _quant("gemm")]
MoeQuant = Annotated[str | None, _quant("moe")]
KvCacheQuant = Annotated[str | None, _quant("kvcache")]
FmhaQuant = Annotated[str | None, _quant("fmha")]
CommQuant = Annotated[str | None, _quant("comm")]

Json = Annotated[bool, switch("--json", panel=_OUTPUT, text="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, switch("--quiet", panel=_OUTPUT, text="Print one line: the best configuration.")]
NoColor = Annotated[bool, switch("--no-color", panel=_OUTPUT, text="Print without colour.")]
SaveDir = Annotated[
    Path | None,
    flag(
        "--save-dir",
        panel=_OUTPUT,
        metavar="DIR",
        text="Write the tables as CSV and a manifest that repeats the run, in a new folder of DIR.",
    ),
]
DeploymentTarget = Annotated[
    str | None,
    flag(
        "--deployment-target",
        panel=_OUTPUT,
        metavar="bare-metal|dynamo",
        text="Write files that start each row, checked, beside the tables of --save-dir.",
    ),
]
Explain = Annotated[
    bool,
    switch("--explain", panel=_OUTPUT, text="Say which assumptions move the answer, and by how much."),
]
NoInterval = Annotated[
    bool, switch("--no-interval", panel=_OUTPUT, text="Leave out the ranges of figures and their probabilities.")
]
TopN = Annotated[
    str | None, flag("--top-n", panel=_OUTPUT, default="5", text="Configurations to report per experiment.")
]

Ttft = Annotated[
    str | None,
    flag("--ttft", panel=_WORKLOAD, default="2000", metavar="MS", text="Limit on time to first token in ms."),
]
Tpot = Annotated[
    str | None,
    flag("--tpot", panel=_WORKLOAD, default="30", metavar="MS", text="Limit on time per output token in ms."),
]
RequestLatency = Annotated[
    str | None,
    flag(
        "--request-latency", panel=_WORKLOAD, metavar="MS", text="Limit on the whole request in ms, in place of TPOT."
    ),
]
StrictSla = Annotated[
    bool,
    switch("--strict-sla", panel=_WORKLOAD, text="Drop rows that miss the limits before the Pareto front is taken."),
]
TargetRate = Annotated[
    str | None,
    flag("--target-request-rate", panel=_WORKLOAD, metavar="REQ/S", text="Load to serve with the fewest GPUs."),
]
TargetConcurrency = Annotated[
    str | None,
    flag(
        "--target-concurrency", panel=_WORKLOAD, metavar="N", text="Concurrent requests to serve with the fewest GPUs."
    ),
]

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
