# SPDX-License-Identifier: Apache-2.0
"""The head of a page about a search: what to deploy, what it reaches, why, how sure that is, and what to do next."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aicjax._names import counted
from aicjax._results import Provenance
from aicjax._units import MS_PER_S
from aicjax.explore.columns import CLUSTER
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, SearchResult, TaskResult
from aicjax.explore.shortfall import Limits
from aicjax.report import phrases, summary
from aicjax.report.html.commands import NOT_DEPLOYED
from aicjax.report.html.figures import short_layouts
from aicjax.report.html.margin import SURE, Margin
from aicjax.report.html.parts import Scale, Tile, Tone
from aicjax.report.ranges import Quantiles, Ranges, cell
from aicjax.report.rows import Row

MODES = {"agg": "aggregated", "disagg": "disaggregated", "afd": "attention and feed-forward apart"}
LIKELY, EVEN = SURE, 0.4  # chances from which an answer is called likely to keep its limits, and a toss-up
_ODDS = ((LIKELY, "likely"), (0.6, "more likely than not"), (EVEN, "about a coin toss"), (0.0, "unlikely"))


class Head(NamedTuple):
    """The head of a page.

    Attributes:
        title: What to deploy.
        lead: Sentences under it.
        tone: Whether it keeps the limits.
        tiles: Its figures.
        reasons: Why, how sure, what next.
    """

    title: str
    lead: Sequence[str]
    tone: Tone
    tiles: Sequence[Tile]
    reasons: Sequence[tuple[str, Sequence[str]]]


def head(result: SearchResult, margins: Sequence[Margin]) -> Head:
    """The head of the page of a search."""
    task = result.winner
    if task is None or not task.meets_target:
        return _nothing(result)
    row = summary.top_rows(task, result.request, interval=True)[0]
    explanation = None if task.explain is None else task.explain(0)
    title = f"{deployment(row)} on {counted(row.gpus, 'GPU')}"
    chance = row.ranges.limits_met if row.ranges is not None else None
    tone: Tone = "good" if chance is None or chance >= LIKELY else "fair"
    lead = [_lead(result, task, row)]
    reasons = [("Why this one", why(result, task, row, explanation))]
    reasons.append(("How sure", _how_sure(row, explanation)))
    if more := _next(result.request, task, row, margins):
        reasons.append(("What next", more))
    return Head(f"Deploy {title}", lead, tone, tiles(row, result.request), reasons)


def deployment(row: Row) -> str:
    """Replicas and what they consist of: `8 replicas of tp4, batch 18`."""
    if len(row.workers) == 1:
        worker = row.workers[0]
        return f"{counted(row.replicas, 'replica')} of {worker.layout}, batch {worker.batch}"
    workers = " + ".join(f"{counted(w.count, f'{w.role} worker')} of {w.layout} (batch {w.batch})" for w in row.workers)
    return workers if row.replicas == 1 else f"{row.replicas} × [{workers}]"


def _lead(result: SearchResult, task: TaskResult, row: Row) -> str:
    request = result.request
    versions = {part.version for part in result.by_backend.values() if part.backend == row.backend and part.version}
    engine = f"{row.backend} {', '.join(sorted(versions))}".strip()
    served = f"Together they serve {row.requests_per_s:,.1f} requests/s with {row.concurrency:,} in flight."
    each = f"Each replica has {counted(row.gpus // max(row.replicas, 1), 'GPU')}." if row.replicas > 1 else ""
    return f"{phrases.model(request)}, {MODES.get(task.serving_mode, task.serving_mode)}, on {engine}. {each} {served}"


def tiles(row: Row, request: SearchRequest | None) -> list[Tile]:
    """The figures of a row, with their ranges and limits."""
    known = row.ranges
    limits: Mapping[str, float | None] = {}
    if request is not None:
        latency = request.request_latency
        limits = {"ttft": request.ttft, "tpot": request.tpot if latency is None else None, "request": latency}
    found = [tile("Throughput", row.tokens_per_s_per_gpu, "tok/s/GPU", known and known.tokens_per_s_per_gpu)]
    if row.tokens_per_s_per_user is not None:
        tpot = None if known is None else known.tpot_ms
        speed = None if tpot is None else (MS_PER_S / tpot[2], MS_PER_S / tpot[1], MS_PER_S / tpot[0])
        found.append(tile("One user reads", row.tokens_per_s_per_user, "tokens/s", speed))
    found.append(tile("Time to first token", row.ttft_ms, "ms", known and known.ttft_ms, limits.get("ttft")))
    if row.tpot_ms is not None:
        found.append(tile("Time per token", row.tpot_ms, "ms", known and known.tpot_ms, limits.get("tpot")))
    of_request = known and known.request_latency_ms
    found.append(tile("A whole request", row.request_latency_ms, "ms", of_request, limits.get("request")))
    if known is not None and known.limits_met is not None:
        found.append(_chance(known.limits_met))
    return found


def tile(label: str, value: float, unit: str, known: Quantiles | None, limit: float | None = None) -> Tile:
    """A figure with its range and its limit, to three digits."""
    notes = [] if known is None else [f"8 of 10: {ends(known)}"]
    notes += [] if limit is None else [f"limit {limit:g}"]
    tone: Tone = "plain"
    if limit is not None and value > limit:
        tone = "bad"
    return Tile(
        label, three_digits(value), unit, None if known is None else _scale(known, value, limit), "; ".join(notes), tone
    )


def three_digits(value: float) -> str:
    """A number with three digits at least, a count as it is: `5,107`, `98.3`, `9.88`, `4`."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def ends(of: Quantiles) -> str:
    """A range as `8.1 – 12.5`."""
    return cell(of).replace(" - ", " – ")


def _scale(known: Quantiles, value: float, limit: float | None) -> Scale:
    """A line from a little below all values to a little above."""
    values = [known[0], known[2], value, *([] if limit is None else [limit])]
    low, high = 0.9 * min(values), 1.06 * max(values)

    def place(each: float) -> float:
        return (each - low) / (high - low)

    return Scale(place(known[0]), place(value), place(known[2]), None if limit is None else place(limit))


def _chance(chance: float) -> Tile:
    tone: Tone = "good" if chance >= LIKELY else "fair" if chance >= EVEN else "bad"
    return Tile(
        "Chance to keep all limits", f"{100 * chance:.0f}", "%", Scale(0.0, chance, chance, None), _odds(chance), tone
    )


def _odds(chance: float) -> str:
    return next(word for least, word in _ODDS if chance >= least)


def why(result: SearchResult, task: TaskResult, row: Row, explanation: Explanation | None) -> list[str]:
    """Why the answer is what it is."""
    others = [each for each in result.tasks.values() if each is not task]
    lines = []
    versus = summary.comparison(result).removeprefix(", ")
    if versus:
        budgeted = summary.budget(result.request) is not None
        lines.append(f"{_mode(task)} serving {f'yields {versus} in tokens/s/GPU' if budgeted else f'needs {versus}'}.")
    lines += [f"{_mode(each)} serving {_missed(each, result.request)}" for each in others if not each.meets_target]
    if explanation is not None:
        held = f"Held back by {summary.BINDING.get(explanation.binding, explanation.binding)}"
        tried = f"; batch {explanation.next_batch}: {explanation.next_batch_reason}" if explanation.next_batch else ""
        lines.append(f"{held}{tried}.")
        lines += [
            f"Memory of a GPU ({use.role}): {use.total:.0f} of {use.capacity:.0f} GiB, "
            f"KV cache {use.kvcache:.1f} of {use.kv_budget:.0f}."
            for use in explanation.memory
        ]
    lines.append(f"The best of {sum(each.evaluated for each in result.tasks.values()):,} evaluated points.")
    return lines


def _mode(task: TaskResult) -> str:
    return MODES.get(task.serving_mode, task.name).capitalize()


def _missed(task: TaskResult, request: SearchRequest) -> str:
    """What an experiment misses, as the end of a sentence."""
    short = task.shortfall
    if short is not None and short.violation_pct is not None and short.binding in ("ttft", "tpot", "request_latency"):
        limit = Limits.of(request).value(short.binding)
        return f"misses {summary.BINDING[short.binding]} ({limit:g} ms) by {short.violation_pct:.1f}%."
    reason = str(task.error or "").removeprefix(f"{task.name}: ").removeprefix("no configuration meets the limits. ")
    return f"has no configuration within the limits: {reason if short is None else f'{short.detail}.'}"


def _how_sure(row: Row, explanation: Explanation | None) -> list[str]:
    lines = sure_lines(row.ranges)
    if explanation is not None:
        lines += [f"A {step.step} ({step.total_ms:.2f} ms): {phrases.sources(step)}." for step in explanation.steps]
        worst = max((code for step in explanation.steps for code in step.provenance), default=Provenance.NONE)
        if worst >= Provenance.EMPIRICAL:
            lines.append(
                "Some operators are estimates without a measurement of their own shape: measure before you commit."
            )
    return lines


def sure_lines(known: Ranges | None) -> list[str]:
    """How sure figures are, by their ranges."""
    if known is None:
        return ["Nothing is known of its errors: there are no ranges."]
    lines = ["The bands above held 8 of 10 measured servers that the fit had not seen."]
    if known.limits_met is not None:
        lines.append(f"The chance to keep all limits is {known.limits_met:.0%}: {_odds(known.limits_met)}.")
    return lines


def _next(request: SearchRequest, task: TaskResult, row: Row, margins: Sequence[Margin]) -> list[str]:
    lines = []
    chance = row.ranges.limits_met if row.ranges is not None else None
    if chance is not None and chance < SURE:
        lines.append(_safer(request, row, margins))
    if task.serving_mode not in NOT_DEPLOYED:
        lines.append("Start it with the files that --deployment-target writes, and run the benchmark beside them.")
    if row.ranges is not None:
        lines.append("One measurement of your own makes the ranges narrower: aicjax calibrate --anchor.")
    return lines


def _safer(request: SearchRequest, row: Row, margins: Sequence[Margin]) -> str:
    offers = [(margin, at) for margin in margins if (at := margin.safer()) is not None]
    if not offers:
        return f"No configuration is within the limits in {SURE:.0%} of cases: leave room before you promise them."
    margin, at = max(offers, key=lambda offer: offer[0].rows[CLUSTER][offer[1]])
    rate, size = float(margin.rows[CLUSTER][at]), int(margin.rows["num_total_gpus"][at])
    cost = 1 - rate / row.tokens_per_s_per_gpu
    replicas = "" if request.total_gpus is None else f"{request.total_gpus // size} × "
    return (
        f"To be within the limits in {margin.chance[at]:.0%} of cases: {replicas}({margin.replica(at)}), "
        f"{margin.name}, at {rate:.0f} tokens/s/GPU, {cost:.0%} less."
    )


def _nothing(result: SearchResult) -> Head:
    """The head where no configuration keeps the limits."""
    failed = [(name, task) for name, task in result.by_backend.items() if not task.meets_target]
    reasons = [f"{name} {_missed(task, result.request)}" for name, task in failed]
    found = [(name, task.shortfall.nearest) for name, task in failed if task.shortfall is not None]
    nearest = [f"{name}: {short_layouts(where)}." for name, where in found if where]
    ways = ["Loosen the binding limit, give more or other GPUs, or allow other engines (--backend auto)."]
    lead = [f"{phrases.model(result.request)}: nothing to deploy."]
    groups: list[tuple[str, Sequence[str]]] = [("Why", reasons)]
    if nearest:
        groups.append(("What is nearest", nearest))
    return Head("No configuration keeps the limits", lead, "bad", [], [*groups, ("What next", ways)])
