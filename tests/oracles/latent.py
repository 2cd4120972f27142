# SPDX-License-Identifier: Apache-2.0
"""Latent attention in float64, one call at a time, from the definition: least latencies, and what surrounds a table.

Every product of a `[t, k]` input by a `[k, n]` weight costs two operations a term. FLOP/s and B/s in, ms out.
"""

from collections.abc import Callable

from aicjax._results import Provenance
from tests.oracles import estimate
from tests.oracles.grid import Answer, Point, Table, grid
from tests.oracles.rooflines import slower

HIDDEN, QUERY_RANK, LATENT, ROPE, NOPE, VALUE = 7168, 1536, 512, 64, 128, 128
KEY = NOPE + ROPE

Roof = Callable[..., float]


def prefill(heads, full, prefix, batch, kv_bytes, peak, mem_bw) -> float:
    """Token t sees t others: (full^2 - prefix^2) / 2 scores a head, each over a key and a value."""
    scores = batch * heads * (full**2 - prefix**2) / 2
    new = full - prefix
    traffic = batch * heads * (KEY + VALUE) * (kv_bytes * full + 2 * new)
    return slower(2 * (KEY + VALUE) * scores, traffic, peak, mem_bw)


def absorbed(heads, tokens) -> tuple[float, float]:
    """Operations and elements of one product a head between the plain part of a query and the latent."""
    elements = heads * (tokens * NOPE + NOPE * LATENT + tokens * LATENT)
    return 2 * tokens * heads * NOPE * LATENT, elements


def bmm(heads, tokens, element_bytes, peak, mem_bw) -> float:
    work, elements = absorbed(heads, tokens)
    return slower(work, element_bytes * elements, peak, mem_bw)


def decode(heads, batch, length, kv_bytes, peak, mem_bw, block: tuple[float, float] | None = None) -> float:
    """Scores and weighted sums over the latent; a `block` (bytes, peak) adds its products before and after them."""
    seconds = 2 * batch * heads * length * ((LATENT + ROPE) + LATENT) / peak
    traffic = batch * (2 * heads * ((LATENT + ROPE) + LATENT) + kv_bytes * (length - 1) * (LATENT + ROPE))
    if block:
        work, elements = absorbed(heads, batch)
        seconds, traffic = seconds + 2 * work / block[1], traffic + 2 * block[0] * elements
    return 1000 * max(seconds, traffic / mem_bw)


def projection(tokens, width, out) -> tuple[float, float]:
    return 2 * tokens * width * out, tokens * width + width * out + 2 * tokens * out


def large_ep_prefill(heads, full, prefix, batch, element_bytes, peak, score_peak, mem_bw) -> float:
    new = full - prefix
    parts = [
        projection(batch * new, QUERY_RANK, heads * KEY),
        projection(batch * new, LATENT, heads * (NOPE + VALUE)),
        projection(batch * new, heads * VALUE, HIDDEN),
    ]
    scores = 2 * (KEY + VALUE) * batch * heads * (full**2 - prefix**2) / 2
    attended = batch * heads * (new * KEY + full * KEY + full * VALUE + new * VALUE)
    return _block(parts, scores, attended, element_bytes, peak, score_peak, mem_bw)


def large_ep_decode(heads, batch, length, element_bytes, peak, score_peak, mem_bw) -> float:
    before, after = projection(batch, NOPE, LATENT), projection(batch, LATENT, VALUE)
    parts = [
        projection(batch, QUERY_RANK, heads * KEY),
        (heads * before[0], heads * before[1]),
        (heads * after[0], heads * after[1]),
        projection(batch, heads * VALUE, HIDDEN),
    ]
    scores = 2 * batch * heads * length * ((LATENT + ROPE) + LATENT)
    attended = batch * (heads * (LATENT + ROPE) + length * (LATENT + ROPE) + heads * LATENT)
    return _block(parts, scores, attended, element_bytes, peak, score_peak, mem_bw)


def _block(parts, scores, attended, element_bytes, peak, score_peak, mem_bw) -> float:
    work, elements = (sum(column) for column in zip(*parts, strict=True))
    return 1000 * max(work / peak + scores / score_peak, element_bytes * (elements + 2 * attended) / mem_bw)


def prompt(table: Table, heads: float, batch: float, new: int, prefix: int, cp: int, roof: Roof, mode: str) -> Answer:
    """Prefill of `new` tokens; `roof` of (heads, full, prefix, batch). A rank of several takes two chunks."""
    if cp > 1:
        chunk = max(1, -(-new // (2 * cp)))
        starts = (prefix, prefix + new - chunk)
        parts = [prompt(table, heads, batch, chunk, start, 1, roof, mode) for start in starts]
        return sum(latency for latency, _ in parts), max(how for _, how in parts)
    full = new + prefix

    def whole(heads: float, length: float, batch: float) -> float:
        return roof(heads, length, 0, batch)

    if mode == "EMPIRICAL":
        return estimated(table, (heads, full, batch), roof(heads, full, prefix, batch), whole)
    latency, how = grid(table, (heads, full, batch), whole, sqrt_axes={1})
    return latency * (1 - (prefix / full) ** 2), how


def step(table: Table, heads: float, batch: float, length: float, roof: Roof, mode: str) -> Answer:
    """One decode step; `roof` of (heads, batch, length)."""
    if mode == "EMPIRICAL":
        return estimated(table, (heads, batch, length), roof(heads, batch, length), roof)
    return grid(table, (heads, batch, length), roof)


def estimated(table: Table, query: Point, roof: float, point_roof: Roof) -> Answer:
    samples = {point: point_roof(*point) / table[point] for point in sorted(table)}
    return roof / estimate.utilization(samples, query), Provenance.EMPIRICAL
