# SPDX-License-Identifier: Apache-2.0
"""The answer of a search in a few lines: what was asked, what is best, by how much, and what holds it back."""

import dataclasses

from aicjax._names import counted
from aicjax._results import AicjaxError, NoFeasible
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, SearchResult, TaskResult
from aicjax.report import phrases, ranges
from aicjax.report.rows import Row, reported, rows


def budget(request: SearchRequest) -> int | None:
    """GPUs that replicas fill; None when the GPUs follow from a load."""
    return request.total_gpus


def top_rows(task: TaskResult, request: SearchRequest, *, interval: bool = False) -> list[Row]:
    """The top rows of an experiment as they are shown; with `interval`, with the ranges of their figures."""
    shown = rows(reported(task.best, inclusive_tpot=request.inclusive_tpot), budget(request), task.explain)
    if not interval:
        return shown
    known = ranges.of_task(task, request)
    return [dataclasses.replace(row, ranges=of_row) for row, of_row in zip(shown, known, strict=True)]


def question(result: SearchResult) -> list[str]:
    """What was asked: model, system, workload and limits."""
    request = result.request
    systems = " + ".join(dict.fromkeys([request.system, request.decode_system or request.system]))
    tasks = [task for task in result.by_backend.values() if task.version]
    versions = ", ".join(dict.fromkeys(f"{task.backend} {task.version}" for task in tasks))
    if request.total_gpus is not None:
        gpus = f"{counted(request.total_gpus, 'GPU')} of {systems}"
    elif request.target_request_rate is not None:
        gpus = f"{request.target_request_rate:g} requests/s on {systems}"
    else:
        gpus = f"{request.target_concurrency:g} concurrent requests on {systems}"
    asked = f"{workload(request)}; {request.database_mode}{phrases.following(request)}"
    return [f"{phrases.model(request)}: {gpus}, {versions}", asked]


def workload(request: SearchRequest) -> str:
    """Lengths and limits of a request."""
    text = f"{request.isl} prompt tokens ({request.prefix} cached), {request.osl} output tokens"
    if request.has_images:
        count, sides = request.num_images_per_request, f"{request.image_height} x {request.image_width}"
        text += f", {counted(count, 'image')} of {sides} pixels"
    if request.nextn:
        text += f", {request.nextn} drafts a step ({request.nextn_accepted:g} accepted)"
    return f"{text}; {_limits(request)}"


def _limits(request: SearchRequest) -> str:
    last = f"TPOT {request.tpot:g} ms" if request.request_latency is None else f"request {request.request_latency:g} ms"
    return f"limits TTFT {request.ttft:g} ms, {last}"


def headline(result: SearchResult) -> str:
    """The best configuration in one line; only for a result that has one."""
    task = result.winner
    assert task is not None
    row = top_rows(task, result.request)[0]
    tpot = "" if row.tpot_ms is None else f", TPOT {row.tpot_ms:.2f} ms"
    return (
        f"{task.name}: {row.tokens_per_s_per_gpu:.2f} tokens/s/gpu{comparison(result)}; "
        f"{row.replicas} x ({phrases.composition(row.workers)}) on {counted(row.gpus, 'GPU')}, "
        f"TTFT {row.ttft_ms:.2f} ms{tpot}"
    )


def comparison(result: SearchResult) -> str:
    """By how much the winner beats the best of the other experiments, as the end of a phrase; empty without another."""
    winner = result.winner
    others = [task for task in result.tasks.values() if task is not winner and task.score > 0 and task.meets_target]
    if winner is None or not others:
        return ""
    second = max(others, key=lambda task: task.score)
    ratio = winner.score / second.score
    first = top_rows(second, result.request)[0]
    if budget(result.request) is None:
        return f", {ratio:.2f}x fewer GPUs than the best {second.name} ({first.gpus})"
    return f", {ratio:.2f}x the best {second.name} ({first.tokens_per_s_per_gpu:.2f})"


def answer(result: SearchResult) -> list[str]:
    """The best configuration and its figures, several lines."""
    task = result.winner
    if task is None:
        return []
    row = top_rows(task, result.request)[0]
    tpot = "" if row.tpot_ms is None else f"TPOT {row.tpot_ms:.2f} ms, "
    user = "" if row.tokens_per_s_per_user is None else f"{row.tokens_per_s_per_user:.2f} tokens/s/user, "
    replicas = counted(row.replicas, "replica")
    title = "Best" if task.meets_target else "Misses the limits, nearest"
    return [
        f"{title}: {task.name}, {row.tokens_per_s_per_gpu:.2f} tokens/s/gpu{comparison(result)}",
        f"  {replicas} of {phrases.composition(row.workers)}, {counted(row.gpus, 'GPU')}",
        f"  {row.tokens_per_s:,.2f} tokens/s, {user}{row.requests_per_s:.2f} requests/s, {row.concurrency} in flight",
        f"  TTFT {row.ttft_ms:.2f} ms, {tpot}request {row.request_latency_ms:.2f} ms",
    ]


def corrections(task: TaskResult) -> list[str]:
    """The factors by which the workers of replicas were matched, one line; none where there are no replicas."""
    factors = task.resolved.get("corrections")
    if factors is None:
        return []
    rates = f"{factors['prefill_degradation']:g} of prefill and {factors['decode_degradation']:g} of decode capacity"
    return [f"  workers matched at {rates}; TTFT {factors['ttft_correction']:.3g} times the prefill"]


def reasons(explanation: Explanation) -> list[str]:
    """What holds the best row back, where its memory goes, and how its step times were obtained."""
    lines = [f"  held back by {BINDING.get(explanation.binding, explanation.binding)}"]
    if explanation.tpot_in_use is not None:
        in_use = f"{explanation.concurrency_in_use:.0f} requests in flight, TPOT {explanation.tpot_in_use:.2f} ms"
        lines.append(f"  at the rate of those: {in_use}")
    if explanation.next_batch is not None:
        lines.append(f"  batch {explanation.next_batch}: {explanation.next_batch_reason}")
    lines += [f"  {phrases.memory_use(use)}" for use in explanation.memory]
    lines += [f"  {step.step} {step.total_ms:.2f} ms: {phrases.sources(step)}" for step in explanation.steps]
    return lines


BINDING = {
    "ttft": "the TTFT limit",
    "tpot": "the TPOT limit",
    "request_latency": "the request latency limit",
    "memory": "GPU memory",
    "kv_memory": "room for the KV cache",
    "missing_data": "missing measurements beyond it",
    "grid": "the largest batch tried",
    "throughput": "throughput: a larger batch yields no more",
    "prefill": "the prefill workers of a replica",
    "encode": "the encode workers of a replica",
}


def failure(result: SearchResult) -> AicjaxError | None:
    """The error that ends a run without a configuration within the limits; None when there is one."""
    if any(task.meets_target for task in result.tasks.values()):
        return None
    shortfalls = [task.shortfall.error(task.name) for task in result.by_backend.values() if task.shortfall is not None]
    errors = shortfalls or list(result.errors.values())
    infeasible = [str(error) for error in errors if isinstance(error, NoFeasible)]
    return NoFeasible(" ".join(infeasible)) if infeasible else errors[0]
