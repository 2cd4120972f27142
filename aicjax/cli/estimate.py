# SPDX-License-Identifier: Apache-2.0
"""`aicjax estimate`: one serving point, without a search."""

from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import layout_options as layout
from aicjax.cli import options, report_file
from aicjax.cli import search_options as groups
from aicjax.cli.flags import flag, switch, takes

_AFD = "Attention and feed-forward apart (afd)"
_WORKLOAD = "Workload"
_OUTPUT = {"as_json": "json", "plain": "no_color", "explain": "explain"}  # arguments of the printer by flag


def _encoder(name: str, text: str, *, default: str | bool = "1") -> object:
    return flag(f"--encoder-{name}", panel="Images", default=default, text=text)


def _afd(name: str, text: str, *, default: str | bool = False, metavar: str = "N") -> object:
    return flag(f"--{name}", panel=_AFD, default=default, metavar=metavar, text=text)


class _What:
    """Model, systems, and the point's mode and batch."""

    model_path: options.Model
    system: options.System
    mode: Annotated[
        str | None,
        flag(
            "--estimate-mode",
            default="agg",
            metavar="agg|disagg|afd|static|static_ctx|static_gen",
            text="Serving mode of the point.",
        ),
    ]
    backend: Annotated[str | None, flag("--backend", default="trtllm", metavar=options.BACKENDS, text="Engine.")]
    decode_system: options.DecodeSystem
    batch_size: Annotated[
        str | None,
        flag("--batch-size", "--bs", panel=layout.LAYOUT, default="128", text="Requests in flight of one rank."),
    ]
    ctx_tokens: Annotated[
        str | None,
        flag("--ctx-tokens", panel=layout.LAYOUT, default="isl", text="Prompt tokens of a mixed step (agg)."),
    ]


class _Stride:
    """Steps of a static run."""

    stride: Annotated[
        str | None,
        flag("--stride", panel=layout.LAYOUT, default="32", text="Decode steps priced by one evaluation (static)."),
    ]


class _Afd:
    """Pools of attention and of feed-forward workers."""

    n_a_nodes: Annotated[str | None, _afd("n-a-nodes", "Nodes of attention workers.")]
    n_f_nodes: Annotated[str | None, _afd("n-f-nodes", "Nodes of the feed-forward pool.")]
    a_tp_size: Annotated[str | None, _afd("a-tp-size", "Tensor parallel GPUs of an attention worker.", default="1")]
    a_batch_size: Annotated[
        str | None, _afd("a-batch-size", "Requests in flight of an attention worker.", default="128")
    ]
    f_moe_ep_size: Annotated[
        str | None, _afd("f-moe-ep-size", "Expert parallel GPUs of the feed-forward pool.", default="1")
    ]
    num_microbatches: Annotated[str | None, _afd("num-microbatches", "Microbatches of a batch.", default="3")]
    pipeline_model: Annotated[
        str | None,
        _afd(
            "pipeline-model",
            "How the pools and the transfers between them overlap.",
            default="optimistic",
            metavar="optimistic|conservative|serial",
        ),
    ]
    comm_overhead_factor: Annotated[
        str | None, _afd("comm-overhead-factor", "Factor on the transfers between the pools.", default="1")
    ]
    afd_phase: Annotated[
        str | None,
        _afd("afd-phase", "Phases that run that way.", default="decode", metavar="prefill|decode|both"),
    ]
    afd_combined_with_pd: Annotated[
        bool | None,
        flag(
            "--afd-combined-with-pd/--no-afd-combined-with-pd",
            panel=_AFD,
            default="on",
            text="Whether an ordinary worker runs the other phase: its batch and layout are the shared ones.",
        ),
    ]
    boundary_on_ffn: Annotated[
        bool,
        switch(
            "--boundary-on-ffn", panel=_AFD, text="Run norms between the sides and the logits on the feed-forward pool."
        ),
    ]


class _Encoders:
    """Workers that run the vision encoder alone."""

    encoder_tp: Annotated[str | None, _encoder("tp", "GPUs of an encode worker.", default=False)]
    encoder_batch_size: Annotated[str | None, _encoder("batch-size", "Requests that an encode worker takes together.")]
    encoder_num_workers: Annotated[str | None, _encoder("num-workers", "Encode workers.")]


class _Load:
    """How requests arrive."""

    load: Annotated[
        str | None,
        flag(
            "--load",
            panel=_WORKLOAD,
            default="steady",
            metavar="steady|closed|open",
            text="Requests in flight: a number without end, a run that sends all of them at once at first, or as many "
            "as a rate makes (agg).",
        ),
    ]
    request_rate: Annotated[
        str | None,
        flag("--request-rate", panel=_WORKLOAD, metavar="REQ/S", text="Requests that arrive per second (--load open)."),
    ]
    arrivals: Annotated[
        str | None,
        flag(
            "--arrivals",
            panel=_WORKLOAD,
            default="poisson",
            metavar="poisson|even",
            text="Whether they arrive at random or evenly spaced (--load open).",
        ),
    ]
    waves: options.Waves
    length_low: options.LengthLow


class _Point:
    """Lengths of a point, and what to print about it."""

    isl: Annotated[str | None, flag("--isl", panel=_WORKLOAD, default="1024", text="Prompt tokens.")]
    osl: Annotated[str | None, flag("--osl", panel=_WORKLOAD, default="1024", text="Output tokens.")]
    detail: Annotated[
        str | None,
        flag(
            "--detail",
            panel="Output",
            default="memory",
            metavar="SECTIONS",
            text="What to print below the summary: memory, time, source or all, with commas between.",
        ),
    ]


@takes(
    _What,
    layout.Worker,
    _Stride,
    layout.Prefill,
    layout.Decode,
    _Afd,
    groups.Lengths,
    groups.Images,
    _Encoders,
    _Load,
    groups.Speculation,
    groups.Data,
    groups.Memory,
    _Point,
    groups.Output,
    without=("moe_backend", "top_n", "save_dir", "deployment_target", "save_layout", "quiet"),
)
def command(ctx: Context) -> None:
    """Predict one configuration: latencies, throughput, memory and where each number comes from."""
    given = options.given(ctx)
    sections = _sections(given.pop("detail", "memory"))
    output = {name: given.pop(flag, False) for name, flag in _OUTPUT.items()}
    output["interval"], report = not given.pop("no_interval", False), report_file.taken(given)
    if ctx.params["afd_combined_with_pd"] is False:
        given["afd_combined_with_pd"] = False
    if given.pop("boundary_on_ffn", False):
        given["afd_boundary_on_attn"] = False

    from aicjax.explore import EstimateRequest

    request = EstimateRequest(**given)

    from aicjax.explore import estimate
    from aicjax.report import point

    result = estimate(request)
    point.print_point(result, sections=("summary", *sections), **output)
    if report is not None:
        from aicjax.report.html import point_page

        report_file.write_report(
            report,
            lambda: point_page.page(result, command=report_file.COMMAND.get()),
            lambda console: point.print_on(console, result, sections=point.SECTIONS, explain=True),
        )


def _sections(text: str) -> tuple[str, ...]:
    known = ("memory", "time", "source")
    wanted = tuple(word.strip() for word in text.split(","))
    for word in wanted:
        if word not in (*known, "summary", "all"):
            raise InputError("detail", word, f"one of summary, {', '.join(known)}, all")
    return known if "all" in wanted else wanted
