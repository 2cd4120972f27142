# SPDX-License-Identifier: Apache-2.0
"""Which counts of prefill and decode replicas to take from a sweep."""

import numpy as np

from aicjax.explore.pareto import front_rows
from aicjax.fleet.disagg import DisaggEstimate


def cheapest(sweep: DisaggEstimate, allowed_gpus: tuple[int, ...] | None = None) -> tuple[int, int] | None:
    """Position of the cheapest fleet that meets the limits, the fastest of equals; None where none does.

    Args:
        sweep: Fleets [prefill count, decode count].
        allowed_gpus: Totals of GPUs that may be bought; any where None.
    """
    return _first(sweep, (np.asarray(sweep.usd_per_hour), np.asarray(sweep.ttft_s)), allowed_gpus)


def most_per_gpu(sweep: DisaggEstimate, allowed_gpus: tuple[int, ...] | None = None) -> tuple[int, int] | None:
    """Position of the fleet with the highest capacity per GPU of those that meet the limits, the first of equals."""
    return _first(sweep, (-np.asarray(sweep.per_gpu_per_s),), allowed_gpus)


def front(sweep: DisaggEstimate) -> list[tuple[int, int]]:
    """Positions of fleets within the limits that no other within them beats in price and capacity, by price."""
    rows, columns = np.nonzero(np.asarray(sweep.met))
    usd, rate = (np.asarray(leaf)[rows, columns] for leaf in (sweep.usd_per_hour, sweep.capacity_per_s))
    kept = front_rows(usd, rate, maximize_x=False)
    return list(zip(rows[kept].tolist(), columns[kept].tolist(), strict=True))


def _first(
    sweep: DisaggEstimate, keys: tuple[np.ndarray, ...], allowed_gpus: tuple[int, ...] | None
) -> tuple[int, int] | None:
    """Position of the least by the keys in turn, of fleets within the limits."""
    met = np.asarray(sweep.met)
    if allowed_gpus is not None:
        met = met & np.isin(np.asarray(sweep.gpus), allowed_gpus)
    if not met.any():
        return None
    order = np.lexsort([np.where(met, key, np.inf).ravel() for key in reversed(keys)])
    row, column = np.unravel_index(order[0], met.shape)
    return int(row), int(column)
