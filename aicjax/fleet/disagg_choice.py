# SPDX-License-Identifier: Apache-2.0
"""Which counts of prefill and decode replicas to take from a sweep."""

import numpy as np

from aicjax.explore.pareto import front_rows
from aicjax.fleet.disagg import DisaggEstimate


def front(sweep: DisaggEstimate) -> list[tuple[int, int]]:
    """Positions of fleets within the limits that no other within them beats in price and capacity, by price."""
    rows, columns = np.nonzero(np.asarray(sweep.met))
    usd, rate = (np.asarray(leaf)[rows, columns] for leaf in (sweep.usd_per_hour, sweep.capacity_per_s))
    kept = front_rows(usd, rate, maximize_x=False)
    return list(zip(rows[kept].tolist(), columns[kept].tolist(), strict=True))
