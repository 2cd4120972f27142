# SPDX-License-Identifier: Apache-2.0
"""Flags that the commands about fleets share; the names of vllm-sr-sim's flags are accepted too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Context

from aicjax.cli import options
from aicjax.cli.flags import flag, switch
from aicjax.cli.report_file import report_flag

_WORKLOAD = "Workload"
_LIMITS = "Limits"
_POOLS = "Replicas and pools"
_SIZING = "Rules of the sizing"
_SIMULATION = "Simulation"
_OUTPUT = "Output"

LISTS = ("--lam-range", "--rates", "--gpu-compare", "--gpus", "--compare", "--flex-pcts", "--flex", "--rho-sweep")
RHO_SWEEP = (0.2, 0.4, 0.6, 0.8)  # of `--rho-sweep` without values
_REPLICA = "NAME|FIELDS"
_FIELDS = "a preset (a100, h100, a10g), or FIELD=VALUE,...: see docs/fleet.md"


def joined(arguments: Sequence[str]) -> list[str]:
    """Arguments with the values after a flag that takes a list joined: `--lam-range 50 100` by commas.

    Replicas that are stated by fields, which have commas themselves, are joined by semicolons.
    """
    result: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        result.append(argument)
        if argument in LISTS:
            values = []
            while rest and not rest[0].startswith("-"):
                values.append(rest.pop(0))
            if not values and argument == "--rho-sweep":
                values = [str(rho) for rho in RHO_SWEEP]
            between = ";" if any("=" in value for value in values) else ","
            result.extend([between.join(values)] if values else [])
    return result


def given(ctx: Context, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The flags that were given, by field of the request; `names` maps those that differ."""
    values = {name: value for name, value in ctx.params.items() if value is not None and value is not False}
    return {(names or {}).get(name, name): value for name, value in values.items()}


def _replica(*names: str, default: str, text: str) -> Any:
    return flag(*names, panel=_POOLS, default=default, metavar=_REPLICA, text=f"{text}: {_FIELDS}.")


Availability = Annotated[
    str | None,
    flag("--availability", panel=_SIZING, default="1", metavar="SHARE", text="Share of the time a replica is up."),
]
MaxUtilization = Annotated[
    str | None,
    flag("--max-utilization", panel=_SIZING, default="0.85", metavar="SHARE", text="Most of the capacity to use."),
]


class Workload:
    """What a request is."""

    workload: Annotated[
        str | None,
        flag(
            "--workload",
            "--cdf",
            panel=_WORKLOAD,
            metavar="NAME|FILE",
            text="Distribution of lengths: azure, lmsys, agent_heavy ..., "
            "or a JSON file of tokens and cumulative shares.",
        ),
    ]
    trace: Annotated[
        str | None, flag("--trace", panel=_WORKLOAD, metavar="FILE", text="Requests with their times and lengths.")
    ]
    trace_format: Annotated[
        str | None,
        flag(
            "--trace-format", panel=_WORKLOAD, default="by its content", metavar="NAME", text="How to read the trace."
        ),
    ]
    isl: Annotated[str | None, flag("--isl", panel=_WORKLOAD, text="Prompt tokens, where all requests are alike.")]
    osl: Annotated[str | None, flag("--osl", panel=_WORKLOAD, text="Output tokens, where all requests are alike.")]
    input_share: Annotated[
        str | None,
        flag(
            "--input-share",
            panel=_WORKLOAD,
            default="as the data",
            metavar="SHARE",
            text="Share of the prompt in the total tokens of a distribution.",
        ),
    ]


class Load:
    """How requests arrive."""

    rate_per_s: Annotated[
        str | None,
        flag("--rate", "--lam", panel=_WORKLOAD, default="200", metavar="REQ/S", text="Requests per second."),
    ]
    arrival_cv2: Annotated[
        str | None,
        flag(
            "--arrival-cv2",
            panel=_WORKLOAD,
            default="1",
            metavar="CV2",
            text="Squared coefficient of variation of the times between arrivals: 1 is Poisson, above is bursty.",
        ),
    ]


class Limits:
    """The limit on time to first token."""

    ttft_ms: Annotated[
        str | None,
        flag("--ttft", "--slo", "--slo-ttft", panel=_LIMITS, default="500", metavar="MS", text="Limit on TTFT."),
    ]
    percentile: Annotated[
        str | None,
        flag("--percentile", panel=_LIMITS, default="99", metavar="PERCENT", text="Requests that must be within it."),
    ]


class Pools:
    """What pools consist of, and where they part."""

    replica: Annotated[
        str | None,
        _replica("--replica", "--gpu-short", "--gpu", default="a100", text="What the (short) pool consists of"),
    ]
    replica_long: Annotated[
        str | None, _replica("--replica-long", "--gpu-long", default="--replica", text="What the long pool consists of")
    ]
    thresholds: Annotated[
        str | None,
        flag(
            "--threshold",
            "--b-short",
            panel=_POOLS,
            default="one pool",
            metavar="TOKENS,...",
            text="Total tokens at which pools part, ascending.",
        ),
    ]
    max_tokens: Annotated[
        str | None,
        flag(
            "--max-tokens",
            "--long-max-ctx",
            "--max-ctx",
            panel=_POOLS,
            default="65536",
            text="Most tokens (prompt and output) of a request.",
        ),
    ]


class Sizing:
    """What a size must allow for."""

    gamma_max: Annotated[
        str | None,
        flag(
            "--gamma-max",
            panel=_SIZING,
            default="2",
            metavar="FACTOR",
            text="Requests of up to so many times the threshold may be compressed to it (two pools).",
        ),
    ]
    compressible: Annotated[
        str | None,
        flag("--compressible", panel=_SIZING, default="0.75", metavar="SHARE", text="Share of them that can be."),
    ]
    availability: Availability
    max_utilization: MaxUtilization
    spare_replicas: Annotated[
        str | None,
        flag("--spare-replicas", panel=_SIZING, default="0", text="Replicas of each pool that may fail at once."),
    ]


class Simulation:
    """Runs of the simulation."""

    requests: Annotated[
        str | None,
        flag(
            "--requests",
            "--n-req",
            "--n-sim-req",
            panel=_SIMULATION,
            default="enough for the warm-up",
            text="Requests of a run.",
        ),
    ]
    seeds: Annotated[
        str | None, flag("--seeds", panel=_SIMULATION, default="8", text="Independent runs, for the intervals.")
    ]
    seed: Annotated[str | None, flag("--seed", panel=_SIMULATION, default="0", text="Random seed.")]


class Output:
    """Rules of the answer, and how it is shown."""

    compat: Annotated[
        str | None,
        flag(
            "--compat",
            panel=_OUTPUT,
            default="default",
            metavar="default|fleet-reference",
            text="fleet-reference follows vllm-sr-sim, numbers and JSON, also where it contradicts queueing theory.",
        ),
    ]
    out: Annotated[
        Path | None, flag("--out", panel=_OUTPUT, metavar="FILE", text="Write the JSON of the answer there.")
    ]
    report: Annotated[Path | None, report_flag("--plot")]
    json: options.Json
    quiet: Annotated[bool, switch("--quiet", panel=_OUTPUT, text="Print one line: the answer.")]
    no_color: options.NoColor
