# SPDX-License-Identifier: Apache-2.0
"""Worker counts with a pool of encode workers, as the loops that define them."""

from collections.abc import Collection
from typing import NamedTuple


class Side(NamedTuple):
    """One kind of worker: requests per second and GPUs of one, and the share of its rate that counts."""

    rate: float
    gpus: int
    share: float = 1.0


def counts(prefill: Side, decode: Side, encode: Side, sizes: Collection[int], most: int) -> tuple[int, int, int]:
    """Prefill, decode and encode workers with the best rate per GPU; zeros when no size fits."""
    best, found = 0.0, (0, 0, 0)
    for d in range(1, most + 1):
        for p in range(1, most + 1):
            for e in range(1, most + 1):
                gpus = prefill.gpus * p + decode.gpus * d + encode.gpus * e
                if gpus not in sizes:
                    continue
                rates = (prefill.rate * p * prefill.share, decode.rate * d * decode.share)
                score = min(*rates, encode.rate * encode.share * e) / gpus
                if score > best:
                    best, found = score, (p, d, e)
    return found


def cells(worker: Side, encode: Side, sizes: Collection[int], most: int) -> list[tuple[int, int]]:
    """In-flight and encode workers of the cells that no smaller cell, nor whole copies of one, match."""
    best: dict[int, tuple[float, int, int]] = {}
    for a in range(1, most + 1):
        for e in range(1, most + 1):
            gpus = worker.gpus * a + encode.gpus * e
            rate = min(worker.rate * a, encode.rate * encode.share * e)
            if gpus in sizes and rate > best.get(gpus, (0.0, 0, 0))[0]:
                best[gpus] = (rate, a, e)
    kept: dict[int, tuple[float, int, int]] = {}
    for gpus, cell in sorted(best.items()):
        smaller = kept.items()
        if any(cell[0] <= rate for _, (rate, _, _) in smaller):
            continue
        if any(gpus % other == 0 and cell[0] <= gpus // other * rate for other, (rate, _, _) in smaller):
            continue
        kept[gpus] = cell
    return [(a, e) for _, a, e in kept.values()]
