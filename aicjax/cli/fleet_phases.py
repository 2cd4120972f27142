# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet disagg` and `power`."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli.flags import flag, takes
from aicjax.cli.fleet_output import FleetOutput, present

_POOLS = "Replicas and pools"
_LIMITS = "Limits"
_UNSET = {"mean_isl": ("0",), "mean_osl": ("0",)}  # values that state nothing, in command lines of vllm-sr-sim

MaxTokens = Annotated[
    str | None,
    flag(
        "--max-tokens", "--max-ctx", panel=_POOLS, default="8192", text="Most tokens (prompt and output) of a request."
    ),
]


class _Means:
    """Mean lengths in place of those of the workload."""

    mean_isl: Annotated[
        str | None,
        flag("--mean-isl", panel="Workload", default="of the workload", text="Mean prompt tokens, in its place."),
    ]
    mean_osl: Annotated[
        str | None,
        flag("--mean-osl", panel="Workload", default="of the workload", text="Mean output tokens, in its place."),
    ]


class _Roles:
    """Replicas of both roles, and what passes between them."""

    tpot_ms: Annotated[
        str | None,
        flag("--tpot", "--slo-tpot", panel=_LIMITS, default="100", metavar="MS", text="Limit on TPOT."),
    ]
    prefill: Annotated[
        str | None,
        flag(
            "--prefill", "--gpu-prefill", panel=_POOLS, default="h100", metavar="NAME|FIELDS", text="Prefill replica."
        ),
    ]
    decode: Annotated[
        str | None,
        flag("--decode", "--gpu-decode", panel=_POOLS, default="a100", metavar="NAME|FIELDS", text="Decode replica."),
    ]
    max_tokens: MaxTokens
    max_prefill: Annotated[str | None, flag("--max-prefill", panel=_POOLS, default="32", text="Most prefill replicas.")]
    max_decode: Annotated[str | None, flag("--max-decode", panel=_POOLS, default="64", text="Most decode replicas.")]
    kv_transfer_gb_per_s: Annotated[
        str | None,
        flag(
            "--kv-transfer-gb-per-s",
            panel=_POOLS,
            default="no time",
            metavar="GB/S",
            text="Bandwidth at which a decode replica gets the KV cache of a prompt.",
        ),
    ]
    kv_bytes_per_token: Annotated[
        str | None,
        flag("--kv-bytes-per-token", panel=_POOLS, metavar="BYTES", text="What a prompt token keeps there."),
    ]


@takes(
    fleet.Workload,
    _Means,
    fleet.Load,
    fleet.Limits,
    _Roles,
    fleet.Output,
    without=("trace", "trace_format", "arrival_cv2", "percentile"),
)
def disagg(ctx: Context) -> None:
    """Find the cheapest counts of prefill and decode replicas that serve a rate within both limits.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.fleet.requests import DisaggRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = DisaggRequest(**{name: value for name, value in given.items() if value not in _UNSET.get(name, ())})

    from aicjax.fleet.answers import disagg as answer

    present(request, answer, output)


class _Power:
    """Replicas, and where their power is asked."""

    compare: Annotated[
        str | None,
        flag(
            "--compare",
            "--gpus",
            "--gpu",
            panel=_POOLS,
            default="h100,a100,a10g",
            metavar="NAME,...",
            text="Kinds of replica; the first one is that of --replicas.",
        ),
    ]
    replicas: Annotated[
        str | None,
        flag("--replicas", "--n-gpus", panel=_POOLS, text="Size of a fleet whose power is cut (demand response)."),
    ]
    flex_percents: Annotated[
        str | None,
        flag(
            "--flex",
            "--flex-pcts",
            panel=_POOLS,
            default="0,5,10,15,20,25,30,40,50",
            metavar="PERCENT,...",
            text="Cuts of the nominal power (with --replicas).",
        ),
    ]
    utilizations: Annotated[
        str | None,
        flag(
            "--utilizations",
            "--rho-sweep",
            panel=_POOLS,
            metavar="SHARE,...",
            text="Further utilisations at which tokens per watt are given.",
        ),
    ]
    threshold: Annotated[
        str | None,
        flag(
            "--threshold",
            "--b-short",
            panel=_POOLS,
            default="one pool",
            metavar="TOKENS",
            text="Total tokens at which two pools part: the first and the last of --compare.",
        ),
    ]
    gpu_short: Annotated[str | None, flag("--gpu-short", panel=_POOLS, text="The first of --compare.")]
    gpu_long: Annotated[str | None, flag("--gpu-long", panel=_POOLS, text="The last of --compare.")]
    max_tokens: MaxTokens
    max_utilization: fleet.MaxUtilization


@takes(fleet.Workload, fleet.Load, fleet.Limits, _Power, fleet.Output, without=("trace", "trace_format"))
def power(ctx: Context) -> None:
    """Tokens per watt of kinds of replica, or what power a fleet can shed within its limit.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit, 4 no measured data.
    """
    from aicjax.fleet.requests import PowerRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    pair = [given.pop(name) for name in ("gpu_short", "gpu_long") if name in given]
    request = PowerRequest(**({"compare": pair} if pair else {}), **given)

    from aicjax.fleet.answers import power as answer

    present(request, answer, output)
