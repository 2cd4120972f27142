# SPDX-License-Identifier: Apache-2.0
"""The panels of engine steps: what each operator takes, how that is known, what share of its roofline it reaches."""

import itertools
from collections.abc import Sequence

import numpy as np

from aicjax._results import Provenance
from aicjax.explore.result import StepTimes
from aicjax.report.html import palette
from aicjax.report.html.figures import axis, bar, bars_height, plain
from aicjax.report.html.parts import Cell, Chart, Column, Folded, Panel, Part, Table, Text, number
from aicjax.report.phrases import sources

Named = tuple[str, Sequence[StepTimes]]  # a row in words, and its steps
LEAST = 0.002  # share of a step below which an operator is not drawn


def time_panel(rows: Sequence[Named]) -> Panel | None:
    """Where the time of the steps goes; the rows after the first are folded.

    Args:
        rows: Rows with their steps, the answer first.
    """
    rows = [(name, steps) for name, steps in rows if steps]
    if not rows:
        return None
    numbers = itertools.count(1)
    charts = [[_time_chart(step, f"time-{next(numbers)}") for step in steps if step.total_ms > 0] for _, steps in rows]
    lines = [
        f"The steps of {rows[0][0]}. A bar is the time of one operator over all its layers, its colour how that time "
        "is known; the tick is what the hardware allows at least.",
        *(
            f"{_capital(step.step)}, {step.total_ms:.2f} ms: {sources(step)}."
            for step in rows[0][1]
            if step.total_ms > 0
        ),
    ]
    parts: list[Part] = [Text(lines), *charts[0]]
    parts += [Folded(f"The steps of {name}", of) for (name, _), of in zip(rows[1:], charts[1:], strict=True)]
    return Panel("time", "Where the time goes", parts, short="Time", paired=True)


def roofline_panel(row: Named) -> Panel | None:
    """What share of its roofline each operator of the answer reaches; None where rooflines are not known."""
    name, steps = row
    known = [(step, np.asarray(step.rooflines())) for step in steps if step.rooflines is not None]
    if not known:
        return None
    order: dict[str, float] = {}
    traces, cells = [], []
    for position, (step, bound_ms) in enumerate(known):
        latency_ms = np.asarray(step.latency_ms)
        drawn = np.flatnonzero((latency_ms > LEAST * step.total_ms) & np.isfinite(bound_ms))
        share = bound_ms[drawn] / latency_ms[drawn]
        of_step = latency_ms[drawn] / step.total_ms
        names = [step.names[at] for at in drawn]
        order |= {
            operator: max(order.get(operator, 0.0), ms) for operator, ms in zip(names, of_step.tolist(), strict=True)
        }
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": step.step,
                "x": plain(100 * share),
                "y": [_short(operator) for operator in names],
                "columns": [plain(latency_ms[drawn]), plain(bound_ms[drawn]), plain(100 * of_step)],
                "marker": {
                    "color": palette.series(position),
                    "symbol": _SYMBOLS[position % len(_SYMBOLS)],
                    "size": plain(8 + 22 * np.sqrt(of_step)),
                    "opacity": 0.85,
                    "line": {"color": "--paper", "width": 1},
                },
                "hovertemplate": f"{step.step}, <b>%{{y}}</b><br>%{{x:.0f}} % of the roofline: at least "
                "%{customdata[1]} ms, taken %{customdata[0]} ms<br>%{customdata[2]:.1f} % of the step<extra></extra>",
            }
        )
        cells += [
            [
                Cell(_short(operator)),
                Cell(step.step, swatch=palette.series(position)),
                number(latency, ".4f"),
                number(bound, ".4f"),
                number(of_roofline, ".0%"),
                number(of_time, ".1%"),
            ]
            for operator, latency, bound, of_roofline, of_time in zip(
                names,
                latency_ms[drawn].tolist(),
                bound_ms[drawn].tolist(),
                share.tolist(),
                of_step.tolist(),
                strict=True,
            )
        ]
    labels = list(dict.fromkeys(_short(operator) for operator in sorted(order, key=lambda one: order[one])))
    columns = [Column("operator", False), Column("step", False)]
    columns += map(Column, ("time, ms", "roofline, ms", "of the roofline", "of the step"))
    chart = Chart(
        name="roofline",
        title="Share of the roofline that each operator reaches",
        summary="How near each operator is to what the hardware allows",
        traces=traces,
        layout={
            "xaxis": axis("share of the roofline, %", range=[0, 105]),
            "yaxis": {"categoryorder": "array", "categoryarray": labels},
            "legend": {"itemsizing": "constant"},
        },
        height=bars_height(len(labels)),
        table=Table("Operators and their rooflines", columns, cells),
    )
    lines = [
        f"The operators of {name}. The roofline is the larger of arithmetic at the peak and traffic at the full "
        "bandwidth of memory or links. Large symbols far to the left are where a better kernel would help most."
    ]
    return Panel("roofline", "How near the hardware", [Text(lines), chart], short="Roofline")


_SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def _time_chart(step: StepTimes, name: str) -> Chart:
    latency_ms = np.asarray(step.latency_ms)
    bound_ms = np.full(latency_ms.size, np.nan) if step.rooflines is None else np.asarray(step.rooflines())
    order = np.argsort(latency_ms, kind="stable")
    drawn = [int(at) for at in order if latency_ms[at] > LEAST * step.total_ms]
    labels = [_short(step.names[at]) for at in drawn]
    traces = []
    for _, label, colour in palette.SOURCES:
        of = [at for at in drawn if palette.source(step.provenance[at])[0] == label]
        if not of:
            continue
        shares = plain(100 * latency_ms[of] / step.total_ms)
        told = f"<b>%{{y}}</b><br>%{{x:.4f}} ms, %{{customdata[0]:.1f}} % of the step<br>{label}"
        traces.append(
            bar(label, [_short(step.names[at]) for at in of], plain(latency_ms[of]), colour, told, columns=[shares])
        )
    known = [at for at in drawn if np.isfinite(bound_ms[at])]
    if known:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "roofline",
                "x": plain(bound_ms[known]),
                "y": [_short(step.names[at]) for at in known],
                "marker": {
                    "symbol": "line-ns-open",
                    "size": 13,
                    "color": "--mark",
                    "line": {"width": 2, "color": "--mark"},
                },
                "hovertemplate": "<b>%{y}</b><br>at least %{x:.4f} ms<extra></extra>",
            }
        )
    left_out = latency_ms.size - len(drawn) - int((latency_ms == 0).sum())
    return Chart(
        name=name,
        title=f"{_capital(step.step)}: {step.total_ms:.2f} ms",
        summary=f"Its longest operators are {', '.join(reversed(labels[-3:]))}",
        traces=traces,
        layout={
            "xaxis": axis("ms"),
            "yaxis": {"categoryorder": "array", "categoryarray": labels},
            "barmode": "overlay",
        },
        height=bars_height(len(labels)) + 20,
        table=_time_table(step, latency_ms, bound_ms, order[::-1]),
        note=f"{left_out} operators of less than {LEAST:.1%} each are in the table alone." if left_out else "",
    )


def _time_table(step: StepTimes, latency_ms: np.ndarray, bound_ms: np.ndarray, order: np.ndarray) -> Table:
    rows = []
    for at in order:
        if latency_ms[at] == 0 or step.provenance[at] == Provenance.NONE:
            continue
        bound = float(bound_ms[at]) if np.isfinite(bound_ms[at]) else None
        label, colour = palette.source(step.provenance[at])
        rows.append(
            [
                Cell(_short(step.names[at])),
                number(float(latency_ms[at]), ".4f"),
                number(float(latency_ms[at]) / step.total_ms, ".1%"),
                number(bound, ".4f"),
                number(None if bound is None else bound / float(latency_ms[at]), ".0%"),
                Cell(f"{label} ({step.provenance[at].name.lower()})", float(step.provenance[at]), colour),
            ]
        )
    columns = [Column("operator", False)]
    columns += map(Column, ("time, ms", "of the step", "roofline, ms", "of the roofline"))
    return Table(f"{step.step}, {step.total_ms:.3f} ms", [*columns, Column("known by", False)], rows)


def _short(operator: str) -> str:
    """An operator without its phase where that leaves a name."""
    for phase, word in (("context_", "prefill "), ("generation_", "decode ")):
        if operator.startswith(phase):
            rest = operator.removeprefix(phase)
            return f"{word}attention" if rest == "attention" else _spelled(rest)
    return _spelled(operator)


def _spelled(operator: str) -> str:
    return " ".join(_WORDS.get(word, word) for word in operator.split("_"))


_WORDS = {"ar": "all-reduce", "p2p": "point to point", "ffn1": "FFN 1", "ffn2": "FFN 2", "gemm": "GEMM", "qkv": "QKV"}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
