# SPDX-License-Identifier: Apache-2.0
"""Serving formulas and selections in plain Python and float64, one point at a time, written from the maths."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """The plan of one in-flight batching point."""

    prefill_steps: int
    decode_rows: int
    shared_tokens: int
    mixed_steps: int
    decode_steps: float
    counted_mixed_steps: float


class Serving(NamedTuple):
    """Numbers of a backend."""

    spread: bool
    queue_base: float
    queue_per_step: float
    queue_per_doubling: float
    queue_cap: float
    dispatch_ms_per_layer: float
    drain_steps: float
    capped: bool


def agg_point(load: Any, batch: int, ctx_tokens: int, numbers: Serving) -> Point:
    """A cycle of one batch, step by step as its definition."""
    iterations = 1 + max(load.osl - 1, 0) / load.progress
    steps = math.ceil(load.isl * batch / ctx_tokens)
    if batch == 1:
        return Point(steps, 0, ctx_tokens - load.prefix * (ctx_tokens // load.isl), 1, max(iterations - 1, 0), 0)
    rows = max(1, batch - math.ceil(ctx_tokens / load.isl))
    if steps >= iterations:
        if numbers.spread:
            rows = max(1, int(batch // (steps / iterations)))
        decode_steps, counted = 0.0, float(steps)
    else:
        decode_steps = iterations - steps
        counted = max(1.0, steps - numbers.drain_steps)
    tokens = ctx_tokens + rows * (load.nextn + 1) - load.prefix * (ctx_tokens // load.isl)
    return Point(steps, rows, tokens, steps, decode_steps, counted)


def agg_estimate(
    load: Any,
    batch: int,
    ctx_tokens: int,
    mixed_ms: float,
    decode_ms: float,
    numbers: Serving,
    *,
    layers: int = 0,
    replicas: int = 1,
    encoder_ms: float = 0.0,
) -> tuple[float, float, float, float]:
    """TTFT, TPOT, request latency and requests per second of one point."""
    point = agg_point(load, batch, ctx_tokens, numbers)
    growth = numbers.queue_per_step * point.prefill_steps + numbers.queue_per_doubling * math.log2(batch)
    queue = min(numbers.queue_base + growth, numbers.queue_cap)
    chunks = math.ceil(load.isl / ctx_tokens)
    ttft = encoder_ms + (mixed_ms * chunks + numbers.dispatch_ms_per_layer * layers) * queue
    decode_total = point.decode_steps * decode_ms if point.decode_steps > 0 else 0.0
    counted = point.counted_mixed_steps + point.decode_steps
    tpot = (point.counted_mixed_steps * mixed_ms + decode_total) / counted / load.progress if load.osl > 1 else math.nan
    latency = ttft + (tpot * (load.osl - 1) if load.osl > 1 else 0.0)
    rate = 1000 * batch / (encoder_ms + point.mixed_steps * mixed_ms + decode_total)
    if numbers.capped:
        rate = min(rate, 1000 * batch / latency)
    return ttft, tpot, latency, rate * replicas


def decode_ms(step_ms: Any, load: Any, stride: int) -> float:
    """All decode steps of a static batch, every `stride`-th one priced: `step_ms` maps a KV length to a latency."""
    total = 0.0
    for step in range(load.osl - 1):
        total += step_ms(load.isl + step - step % stride + 1)
    return total


def worker_counts(
    p_rate: float, p_gpus: int, d_rate: float, d_gpus: int, sizes: Sequence[int], most: int, p_deg: float, d_deg: float
) -> tuple[int, int]:
    """Prefill and decode workers with the best rate per GPU; (0, 0) when no size fits."""
    best, found = 0.0, (0, 0)
    for d in range(1, most + 1):
        for p in range(1, most + 1):
            gpus = p_gpus * p + d_gpus * d
            if gpus not in sizes:
                continue
            score = min(p_rate * p * p_deg, d_rate * d * d_deg) / gpus
            if score > best:
                best, found = score, (p, d)
    return found


def outcomes(points: dict[tuple[int, int], str], load: Any, batches: Sequence[int], budgets: Sequence[int]) -> set:
    """(batch, ctx) points that a sweep of one layout evaluates: a walk that stops a batch at its first misfit.

    `points` maps a point to `fits`, `misfit` or `missing`.
    """
    seen, evaluated = set(), set()
    for b in batches:
        for c in budgets:
            left = b - math.ceil(c / load.isl)
            if left < 0 or (b > 1 and left < 1):
                break
            ratio = load.isl * b / c / load.osl
            if load.progress == 1 and ratio > 1:
                rows = b // ratio
                if rows > 1 and rows in seen:
                    continue
                seen.add(rows)
            if points[b, c] == "missing":
                continue
            if points[b, c] == "misfit":
                break
            evaluated.add((b, c))
    return evaluated


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of points that no other matches or beats in both coordinates; of equals the first."""
    kept = []
    for i, (x, y) in enumerate(points):
        beaten = any((u >= x and v >= y) and ((u, v) != (x, y) or j < i) for j, (u, v) in enumerate(points) if j != i)
        if not beaten:
            kept.append(i)
    return sorted(kept, key=lambda i: points[i][0])


def kept(rows: Sequence[Any], targets: Sequence[tuple[float, float]], keep: int) -> list[Any]:
    """Rows of one layout that a sweep keeps: for each target the first `keep` within it, by rate; without repeats.

    A row is (name, ttft, tpot, rate); names come back in the order in which they are first kept.
    """
    found: list[Any] = []
    for ttft, tpot in targets:
        within = [row for row in rows if row[1] <= ttft and row[2] <= tpot]
        within.sort(key=lambda row: -row[3])
        found += [row[0] for row in within[:keep] if row[0] not in found]
    return found


def best_replicas(
    prefill: Sequence[dict], decode: Sequence[dict], target: tuple[float, float], osl: int, cuts: Any, numbers: dict
) -> list[tuple[int, int, int, int]]:
    """Replicas kept for one target, (prefill row, decode row, prefill workers, decode workers), by loops."""
    order = sorted(range(len(prefill)), key=lambda i: (-prefill[i]["per_gpu"], prefill[i]["batch"]))
    shortlist = [i for i in order if prefill[i]["ttft"] * numbers["ttft"] < target[0]][: cuts.keep_prefill]
    winners = []
    for layout in sorted({row["layout"] for row in decode}):
        rows = [i for i, row in enumerate(decode) if row["layout"] == layout and 0 < row["tpot"] < target[1]]
        rows = sorted(rows, key=lambda i: -decode[i]["per_gpu"])[: cuts.keep_decode_per_layout]
        best, winner = (-math.inf, 0), None
        for d in rows:
            for p in shortlist:
                a, b = prefill[p], decode[d]
                pair = (a["rate"], a["gpus"], b["rate"], b["gpus"])
                p_num, d_num = worker_counts(*pair, numbers["sizes"], numbers["most"], numbers["p"], numbers["d"])
                if p_num == 0:
                    continue
                gpus = a["gpus"] * p_num + b["gpus"] * d_num
                rate = min(a["rate"] * p_num * numbers["p"], b["rate"] * d_num * numbers["d"])
                if (rate * osl / gpus, -gpus) > best:
                    best, winner = (rate * osl / gpus, -gpus), (p, d, p_num, d_num)
        if winner is not None:
            winners.append((round(best[0], 3), winner))
    winners.sort(key=lambda entry: -entry[0])
    return [winner for _, winner in winners[: cuts.keep_per_target]]
