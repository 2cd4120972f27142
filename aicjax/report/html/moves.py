# SPDX-License-Identifier: Apache-2.0
"""The panel of sensitivities: which assumptions move the answer, and by how much."""

from collections.abc import Sequence

from aicjax.explore.result import Sensitivity
from aicjax.report.html import palette
from aicjax.report.html.figures import bars_height
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number

MOST_DRAWN = 12
FIGURES = (("throughput", "tokens/s/GPU", "circle"), ("ttft", "TTFT", "diamond"), ("tpot", "TPOT", "square"))
KINDS = {"hardware": "hardware", "constant": "fitted constant", "workload": "workload", "operators": "operators"}


def panel(found: Sequence[Sensitivity] | None, least: float) -> Panel | None:
    """The panel; None where sensitivities are not modelled.

    Args:
        found: Sensitivities, most first.
        least: Elasticity below which an assumption is left out.
    """
    if not found:
        return None
    known = [each for each in found if each.largest >= least]
    drawn = known[:MOST_DRAWN]
    labels = [label(each) for each in drawn]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": title,
            "x": [None if getattr(each, figure) is None else round(getattr(each, figure), 4) for each in drawn],
            "y": labels,
            "marker": {
                "color": palette.series(position),
                "symbol": symbol,
                "size": 11,
                "line": {"color": "--paper", "width": 1},
            },
            "hovertemplate": f"1 % more of <b>%{{y}}</b>: {title} %{{x:+.2f}} %<extra></extra>",
        }
        for position, (figure, title, symbol) in enumerate(FIGURES)
    ]
    columns = [Column("1 % more of", False), Column("kind", False), Column("value")]
    columns += [Column(f"{title}, %") for _, title, _ in FIGURES]
    rows = [
        [
            Cell(label(each)),
            Cell(KINDS[each.kind]),
            number(each.value, ".4g"),
            *(number(getattr(each, figure), "+.2f") for figure, _, _ in FIGURES),
        ]
        for each in known
    ]
    chart = Chart(
        name="moves",
        title="Change in percent for one percent more of an assumption",
        summary=f"{labels[0]} moves the throughput most",
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "change of the figure, %"}, "zeroline": True, "zerolinewidth": 2},
            "yaxis": {"categoryorder": "array", "categoryarray": labels[::-1]},
        },
        height=bars_height(len(labels)) + 20,
        table=Table("Which assumptions move the answer", columns, rows),
    )
    left_out = len(found) - len(known)
    lines = [
        "Everything else stays as it is. Throughput to the right is good, latencies to the left. A hardware number far "
        "from zero says what an upgrade is worth; a fitted constant far from zero is where a measurement of your own "
        "makes the answer surer (aicjax calibrate --anchor).",
        *([f"{left_out} other assumptions move every figure by less than {least:g} %."] if left_out else []),
    ]
    return Panel("moves", "What moves the answer", [Text(lines), chart], short="Sensitivity")


def label(each: Sensitivity) -> str:
    """An assumption in words."""
    name = _WORDS.get(each.name)
    if each.name.startswith(_PEAK):
        name = f"{each.name.removeprefix(_PEAK)} peak"
    if name is None:
        _, _, last = each.name.partition(".")
        name = (last or each.name).replace("_", " ").replace(".", " ").removesuffix(" bytes per s").removesuffix(" s")
    return f"{name} ({each.of})" if each.of else name


_WORDS = {
    "isl": "prompt tokens",
    "osl": "output tokens",
    "prefix": "cached tokens",
    "batch_size": "batch",
    "gpu.memory_bandwidth_scaling": "share of memory bandwidth",
    "node.intra_node_bandwidth_bytes_per_s": "bandwidth within a node",
    "node.inter_node_bandwidth_bytes_per_s": "bandwidth between nodes",
    "node.inter_rack_bandwidth_bytes_per_s": "bandwidth between racks",
    "node.point_to_point_latency_s": "latency between GPUs",
}
_PEAK = "gpu.peak_flops_per_s."
