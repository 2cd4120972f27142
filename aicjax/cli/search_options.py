# SPDX-License-Identifier: Apache-2.0
"""Groups of flags that the commands about configurations share: search, recommend, exp and estimate."""

from pathlib import Path
from typing import Annotated, Any

from aicjax.cli import options
from aicjax.cli.flags import flag, switch
from aicjax.cli.report_file import Report

_WORKLOAD = "Workload"
_DATA = "Measured data and formats"
_MEMORY = "Memory and kernels"
_IMAGES = "Images"
_OUTPUT = "Output"


def _quant(role: str) -> Any:
    return flag(
        f"--{role}-quant-mode",
        panel=_DATA,
        default="the checkpoint's",
        metavar="FORMAT",
        text=f"Number format: {role}.",
    )


class Lengths:
    """Tokens of a request."""

    isl: Annotated[str | None, flag("--isl", panel=_WORKLOAD, default="4000", text="Prompt tokens.")]
    osl: Annotated[str | None, flag("--osl", panel=_WORKLOAD, default="1000", text="Output tokens.")]
    prefix: Annotated[
        str | None, flag("--prefix", panel=_WORKLOAD, default="0", text="Prompt tokens that are already cached.")
    ]


class Limits:
    """Limits on latency."""

    ttft: Annotated[
        str | None,
        flag("--ttft", panel=_WORKLOAD, default="2000", metavar="MS", text="Limit on time to first token in ms."),
    ]
    tpot: Annotated[
        str | None,
        flag("--tpot", panel=_WORKLOAD, default="30", metavar="MS", text="Limit on time per output token in ms."),
    ]
    request_latency: Annotated[
        str | None,
        flag(
            "--request-latency",
            panel=_WORKLOAD,
            metavar="MS",
            text="Limit on the whole request in ms, in place of TPOT.",
        ),
    ]
    strict_sla: Annotated[
        bool,
        switch(
            "--strict-sla", panel=_WORKLOAD, text="Drop rows that miss the limits before the Pareto front is taken."
        ),
    ]


class Target:
    """A load in place of a number of GPUs."""

    target_request_rate: Annotated[
        str | None,
        flag("--target-request-rate", panel=_WORKLOAD, metavar="REQ/S", text="Load to serve with the fewest GPUs."),
    ]
    target_concurrency: Annotated[
        str | None,
        flag(
            "--target-concurrency",
            panel=_WORKLOAD,
            metavar="N",
            text="Concurrent requests to serve with the fewest GPUs.",
        ),
    ]


class Images:
    """Images of a request, and where they are encoded."""

    image_height: Annotated[
        str | None,
        flag("--image-height", panel=_IMAGES, default="no images", metavar="PIXELS", text="Height of an image."),
    ]
    image_width: Annotated[
        str | None,
        flag("--image-width", panel=_IMAGES, default="no images", metavar="PIXELS", text="Width of an image."),
    ]
    num_images_per_request: Annotated[
        str | None, flag("--num-images", panel=_IMAGES, default="1", text="Images of a request.")
    ]
    disable_encoder_dp: Annotated[
        bool,
        switch(
            "--disable-encoder-dp",
            panel=_IMAGES,
            text="Cut the vision encoder over the GPUs of a worker, which otherwise share out the images.",
        ),
    ]
    enable_epd: Annotated[
        bool,
        switch("--enable-epd", panel=_IMAGES, text="Run the vision encoder on workers of its own, before the others."),
    ]


class Load:
    """How requests are sent."""

    load: Annotated[
        str | None,
        flag(
            "--load",
            panel=_WORKLOAD,
            default="steady",
            metavar="steady|closed",
            text="Requests in flight: a number without end, or a run that sends all of them at once at first.",
        ),
    ]
    waves: options.Waves
    length_low: options.LengthLow


class Speculation:
    """Speculative decoding."""

    nextn: Annotated[
        str | None,
        flag(
            "--nextn",
            panel=_WORKLOAD,
            default="0",
            metavar="N|auto",
            text="Draft tokens of a decode step (speculation).",
        ),
    ]
    nextn_accepted: Annotated[
        str | None,
        flag(
            "--nextn-accepted", panel=_WORKLOAD, metavar="MEAN", text="Accepted drafts of a step; needed with --nextn."
        ),
    ]


class Data:
    """Measured data, what they may be used for, and number formats."""

    backend_version: options.Version
    database_mode: options.Mode
    transfer_policy: options.TransferPolicy
    constants: options.ConstantsName
    compat: options.CompatName
    family: options.Family
    gemm_quant_mode: Annotated[str | None, _quant("gemm")]
    moe_quant_mode: Annotated[str | None, _quant("moe")]
    kvcache_quant_mode: Annotated[str | None, _quant("kvcache")]
    fmha_quant_mode: Annotated[str | None, _quant("fmha")]
    comm_quant_mode: Annotated[str | None, _quant("comm")]


class Memory:
    """Memory and kernels of the engine."""

    free_gpu_memory_fraction: Annotated[
        str | None,
        flag(
            "--free-gpu-memory-fraction",
            panel=_MEMORY,
            default="the backend's",
            text="Share of GPU memory for the KV cache, in the backend's own definition.",
        ),
    ]
    max_seq_len: Annotated[
        str | None,
        flag("--max-seq-len", panel=_MEMORY, default="isl + osl", text="Longest sequence the engine reserves for."),
    ]
    attention_backend: options.AttentionBackend
    moe_backend: Annotated[
        str | None,
        flag(
            "--moe-backend",
            panel=_MEMORY,
            default="by the data",
            metavar="megamoe|deepep_moe",
            text="megamoe runs dispatch, experts and combine in one kernel; "
            "deepep_moe keeps SGLang from cutting experts.",
        ),
    ]
    kv_transfer_gb_per_s: Annotated[
        str | None,
        flag(
            "--kv-transfer-gb-per-s",
            panel=_MEMORY,
            default="no time",
            metavar="GB/S",
            text="Bandwidth at which a decode worker gets the KV cache of a prompt (disaggregated).",
        ),
    ]


class Output:
    """What is shown, and where it is written."""

    top_n: Annotated[
        str | None, flag("--top-n", panel=_OUTPUT, default="5", text="Configurations to report per experiment.")
    ]
    explain: Annotated[
        bool,
        switch("--explain", panel=_OUTPUT, text="Say which assumptions move the answer, and by how much."),
    ]
    no_interval: Annotated[
        bool, switch("--no-interval", panel=_OUTPUT, text="Leave out the ranges of figures and their probabilities.")
    ]
    save_dir: Annotated[
        Path | None,
        flag(
            "--save-dir",
            panel=_OUTPUT,
            metavar="DIR",
            text="Write the tables as CSV and a manifest that repeats the run, in a new folder of DIR.",
        ),
    ]
    report: Report
    deployment_target: Annotated[
        str | None,
        flag(
            "--deployment-target",
            panel=_OUTPUT,
            metavar="NAMES",
            text="Write files that start each row, checked, beside the tables of --save-dir: bare-metal, slurm, "
            "dynamo, dynamo-v1alpha1, kubernetes, llm-d-helm, llm-d-kustomize; several with commas.",
        ),
    ]
    save_layout: Annotated[
        str | None,
        flag(
            "--save-layout",
            panel=_OUTPUT,
            default="default",
            metavar="default|reference",
            text="reference writes the files of --save-dir under the names of AIConfigurator too.",
        ),
    ]
    json: options.Json
    quiet: Annotated[bool, switch("--quiet", panel=_OUTPUT, text="Print one line: the best configuration.")]
    no_color: options.NoColor
