# SPDX-License-Identifier: Apache-2.0
"""The page of one serving point."""

from aicjax.explore.point import EstimateResult
from aicjax.report import manifest, phrases, point, sensitivity
from aicjax.report.html import inputs, memory, moves, steps
from aicjax.report.html.answer import sure_lines, tile
from aicjax.report.html.commands import again
from aicjax.report.html.figures import short_layouts
from aicjax.report.html.parts import Page
from aicjax.report.html.search_page import stated


def page(result: EstimateResult, *, command: str | None = None) -> Page:
    """The page.

    Args:
        result: The estimate.
        command: The command line that ran; None where it was asked for in Python.
    """
    request, row = result.request, result.row
    known = point.ranges_of(result)
    where = ", ".join(
        f"{role} {part['layout']} on {part['system']}, {part['backend']} {part['version']}"
        for role, part in result.resolved.items()
    )
    tiles = [
        tile(label, row[name], unit, getattr(known, of, None) if of else None)
        for label, name, unit, of in _FIGURES
        if row.get(name)
    ]
    open_load = [] if result.open_load is None else [phrases.open_load(result.open_load)]
    sources = [
        f"A {step.step} ({step.total_ms:.2f} ms): {phrases.sources(step)}." for step in result.steps if step.total_ms
    ]
    content = {
        **manifest.versions(),
        "inputs": request.model_dump(mode="json"),
        "hashes": manifest.data_hashes(request.constants_name, None),
    }
    moved = None if result.sensitivities is None else result.sensitivities()
    panels = [
        steps.time_panel([("this point", result.steps)]),
        steps.roofline_panel(("this point", result.steps)),
        memory.panel([(use.role, [use]) for use in result.memory]),
        moves.panel(moved, sensitivity.LEAST),
        inputs.panel(
            content, stated(request), again=again(command, "estimate", request.model_dump(exclude_defaults=True))
        ),
    ]
    return Page(
        title=f"{phrases.model(request)}: {row['tokens/s/gpu']:,.1f} tokens/s/GPU"
        if row.get("tokens/s/gpu")
        else phrases.model(request),
        kicker=f"One serving point, {request.mode}: {short_layouts(where)}",
        lead=[f"{request.isl} prompt tokens ({request.prefix} cached), {request.osl} output tokens.", *open_load],
        tone="plain",
        tiles=tiles,
        reasons=[
            ("How sure", [*sure_lines(known), *sources]),
            *([("Warnings", result.warnings)] if result.warnings else []),
        ],
        commands=[],
        panels=[panel for panel in panels if panel is not None],
    )


_FIGURES = (
    ("Throughput", "tokens/s/gpu", "tok/s/GPU", "tokens_per_s_per_gpu"),
    ("One user reads", "tokens/s/user", "tokens/s", ""),
    ("Time to first token", "ttft", "ms", "ttft_ms"),
    ("Time per token", "tpot", "ms", "tpot_ms"),
    ("A whole request", "request_latency", "ms", "request_latency_ms"),
    ("Requests", "seq/s", "requests/s", ""),
    ("In flight", "concurrency", "requests", ""),
    ("GPUs", "num_total_gpus", "", ""),
)
