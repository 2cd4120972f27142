# SPDX-License-Identifier: Apache-2.0
"""`aicjax generate`: deployment files of a stated layout, or of the smallest that fits, with what it should reach."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context

from aicjax._names import counted, one_of
from aicjax._results import InputError
from aicjax.cli import layout_options as layout
from aicjax.cli import options, site_options
from aicjax.cli import search_options as groups
from aicjax.cli.deploy import check_target, targets_in
from aicjax.cli.flags import flag, takes
from aicjax.cli.saving import check_layout

if TYPE_CHECKING:
    from aicjax.deploy.record import Deployment
    from aicjax.explore import EstimateResult, SearchRequest

_NEEDED = ("model_path", "system", "total_gpus", "target")
_LAYOUT = tuple(name for group in (layout.Worker, layout.Prefill, layout.Decode) for name in group.__annotations__)
_OF_SEARCH = ("total_gpus", "ttft", "tpot", "request_latency")  # which one point has not
_MODES = ("agg", "disagg")
_LEFT_OUT = (
    *("moe_backend", "strict_sla", "top_n", "explain", "no_interval", "deployment_target", "quiet"),
    *("prefill_free_gpu_memory_fraction", "prefill_max_seq_len"),
    *("decode_free_gpu_memory_fraction", "decode_max_seq_len"),
)


class _What:
    """Model, system, GPUs and target."""

    model_path: options.Model
    system: options.System
    total_gpus: Annotated[str | None, flag("--total-gpus", text="GPUs that replicas fill.")]
    target: Annotated[str | None, flag("--target", metavar="NAME", text="What to write for, as of `aicjax deploy`.")]
    backend: Annotated[str | None, flag("--backend", default="trtllm", metavar=options.BACKENDS, text="Engine.")]
    mode: Annotated[str | None, flag("--serving-mode", default="agg", metavar="agg|disagg", text="Way of serving.")]
    batch_size: Annotated[
        str | None,
        flag("--batch-size", "--bs", panel=layout.LAYOUT, default="what fits", text="Requests in flight of one rank."),
    ]


class _Files:
    """The files."""

    rules: Annotated[
        str | None,
        flag("--rules", metavar="production|benchmark", default="production", text="For real traffic, or to measure."),
    ]
    name: Annotated[str | None, flag("--name", metavar="NAME", text="Name of the deployment.")]
    save_dir: Annotated[
        Path | None, flag("--save-dir", metavar="DIR", default="output", text="The files go into a folder of it.")
    ]


@takes(
    _What,
    layout.Worker,
    layout.Prefill,
    layout.Decode,
    groups.Lengths,
    groups.Limits,
    groups.Data,
    groups.Memory,
    site_options.Site,
    groups.Output,
    _Files,
    without=_LEFT_OUT,
)
def command(ctx: Context) -> None:
    """Write deployment files without a search: of a stated layout, or of the smallest one that fits memory.

    The files are those of `aicjax deploy`, with its checks. What they should reach is estimated and printed beside the
    limits. Exit codes: 0 written, 2 bad input or a failed check, 3 it does not fit, 4 no measured data.
    """
    from aicjax.deploy.names import check_names
    from aicjax.explore.request import SearchRequest

    given = options.given(ctx)
    for name in _NEEDED:
        if name not in given:
            raise InputError(name.removesuffix("_path"), None, "given")
    mode, target, save_dir = given.pop("mode", "agg"), given.pop("target"), given.pop("save_dir", Path("output"))
    if mode not in _MODES:
        raise InputError("serving_mode", mode, one_of(mode, _MODES))
    check_target(target, save_dir)
    check_layout(save_layout := given.pop("save_layout", "default"))
    as_json, plain = given.pop("json", False), given.pop("no_color", False)
    how = {name: given.pop(name) for name in ("rules", "name") if name in given}
    site = site_options.taken(given)
    check_names(how.get("name"), site)
    stated = {name: _count(name, given.pop(name)) for name in ("batch_size", *_LAYOUT) if name in given}
    request = SearchRequest(**given)

    from aicjax.deploy.build import build
    from aicjax.deploy.record import Site
    from aicjax.deploy.render import render
    from aicjax.deploy.write import write_all
    from aicjax.explore import estimate
    from aicjax.explore.smallest import completed_point
    from aicjax.report import ranges, reference_layout

    sizes = completed_point(request, stated, mode)
    point = estimate(mode=mode, **sizes, **{name: value for name, value in given.items() if name not in _OF_SEARCH})
    known = ranges.of_point(point.request, point.row, point.steps)
    row = {**point.row, "ranges": None if known is None else dataclasses.asdict(known)}
    inputs = request.model_dump() | {"constants": request.constants_name}
    deployment = build(row, inputs, site=Site(**site), **how)
    folder = save_dir / deployment.name
    write_all({folder / each: render(deployment, each) for each in targets_in(target)})
    if save_layout == "reference":
        reference_layout.add_names(folder)
    missed = _missed(request, point.row)
    if as_json:
        print(json.dumps(_facts(point, deployment, missed, folder), indent=2, allow_nan=False))
    else:
        _print(point, deployment, missed, plain=plain, stated=bool(stated))
        print(folder)


def _facts(point: "EstimateResult", deployment: "Deployment", missed: list[str], folder: Path) -> dict[str, Any]:
    from aicjax.deploy.record import as_dict
    from aicjax.report import point as report

    return report.as_dict(point) | {"deployment": as_dict(deployment), "missed": missed, "folder": str(folder)}


def _print(point: "EstimateResult", deployment: "Deployment", missed: list[str], *, plain: bool, stated: bool) -> None:
    """The estimate, and what all replicas together should reach."""
    from aicjax.report.point import print_point

    print_point(point, sections=("summary", "memory"), as_json=False, plain=plain)
    prediction = deployment.prediction
    replica = counted(deployment.gpus // deployment.replicas, "GPU")
    print("layout: as stated" if stated else "layout: the smallest that fits memory, not the best: that is a search")
    print(
        f"{counted(deployment.replicas, 'replica')} of {replica}: {prediction.tokens_per_s:,.0f} tokens/s, "
        f"{prediction.requests_per_s:.2f} requests/s, {prediction.concurrency} in flight"
    )
    print("; ".join(missed) or "meets the limits")


def _count(name: str, value: str) -> int:
    from aicjax.explore.request_errors import MOST

    if not value.isdecimal() or not 1 <= int(value) <= MOST:
        raise InputError(name, value, f"a whole number from 1 to {MOST:,}")
    return int(value)


def _missed(request: "SearchRequest", row: dict[str, Any]) -> list[str]:
    """The limits that an estimate misses, in words."""
    limits = {"ttft": request.ttft, "tpot": request.tpot}
    if request.request_latency is not None:
        limits = {"request_latency": request.request_latency}
    return [
        f"misses the limit: {name} {row[name]:.1f} ms is over {limit:g} ms"
        for name, limit in limits.items()
        if row[name] is not None and row[name] > limit
    ]
