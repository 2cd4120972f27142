# SPDX-License-Identifier: Apache-2.0
"""The decode workers of a case, each with the best that its pairs with prefill workers yield.

What is kept of a sweep is decided on decode workers first: bounds of their pairs are exact, and of equals the decode
worker that comes first has the point with the lowest number.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.pareto import front_rows
from aicjax.serving.disagg import WorkerCounts
from aicjax.sweeps.bounds import may_be_on_top
from aicjax.sweeps.disagg_pairs import Stack
from aicjax.sweeps.disagg_points import CasePairs
from aicjax.sweeps.kept import Points
from aicjax.sweeps.objectives import RATE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Columns(NamedTuple):
    """The decode workers that pair with any prefill worker, in ascending order; arrays [column].

    Attributes:
        pairs: The case.
        stacks: All pairs.
        in_time: Prefill workers within each limit on TTFT [limit, prefill worker].
        stack, place: Which stack a decode worker is in, and which of its columns it is.
        best: Highest rate per GPU within each limit on TTFT; -inf where there is none [limit, column].
        least_ms: Least TTFT, TPOT and request latency, by measure.
    """

    pairs: CasePairs
    stacks: Sequence[Stack]
    in_time: Mask
    stack: Ints
    place: Ints
    best: Floats
    least_ms: dict[str, Floats]

    @classmethod
    def of(cls, pairs: CasePairs, stacks: Sequence[Stack], in_time: Mask) -> "Columns":
        """The columns of the stacks of a case; `in_time` is by the limits that the stacks are matched under."""
        ttft_ms = pairs.ttft_ms()
        sizes = [len(stack.decode) for stack in stacks]
        decode = np.concatenate([stack.decode for stack in stacks])
        fastest = np.repeat([stack.prefill[np.argmin(ttft_ms[stack.prefill])] for stack in stacks], sizes)
        order = np.argsort(decode)
        none = np.zeros(1, np.int64)
        least = pairs.estimate(fastest[order], decode[order], WorkerCounts(none, none, none))
        return cls(
            pairs=pairs,
            stacks=stacks,
            in_time=in_time,
            stack=np.repeat(np.arange(len(stacks)), sizes)[order],
            place=np.concatenate([np.arange(size) for size in sizes])[order],
            best=np.concatenate([stack.best for stack in stacks], axis=1)[:, order].astype(np.float64),
            least_ms={"ttft": least.ttft_ms, "tpot": least.tpot_ms, "request_latency": least.request_latency_ms},
        )

    def top(self, limit: int, tpot_ms: float, measure: str, count: int, threshold: float) -> Iterator[Points]:
        """The points that are the best few of the case within two limits, and others.

        Args:
            limit: Position of the limit on TTFT.
            tpot_ms: Limit on TPOT.
            measure: What they are ranked by; rates are per GPU.
            count: How many are sought.
            threshold: What they must reach in any case.
        """
        bound = self.best[limit] if measure == RATE else -self.least_ms[measure]
        hopeful = (self.best[limit] > -np.inf) & (self.least_ms["tpot"] <= tpot_ms) & (bound >= threshold)
        hopeful = np.flatnonzero(hopeful)
        chosen = hopeful[np.argsort(-bound[hopeful], kind="stable")[:count]]
        for stack, places in self._by_stack(chosen):
            rates, choice = stack.pairs(places)
            wanted = self._in_time(stack, limit)[:, None] & np.ones(len(places), bool)
            if measure == RATE:
                wanted &= may_be_on_top(np.where(wanted, rates, -np.inf), count, threshold)
            points = self._points(stack, places, wanted, rates, choice)
            if measure != RATE:
                points = points._replace(value=-getattr(points, f"{measure}_ms"))
            yield points

    def front(self, limit: int) -> Iterator[Points]:
        """The points on the front of TPOT against rate per GPU within a limit on TTFT, and equals of them."""
        there = np.flatnonzero(self.best[limit] > -np.inf)
        chosen = there[front_rows(self.least_ms["tpot"][there], self.best[limit, there], maximize_x=False)]
        for stack, places in self._by_stack(chosen):
            rates, choice = stack.pairs(places)
            wanted = self._in_time(stack, limit)[:, None] & (rates == stack.best[limit, places])
            yield self._points(stack, places, wanted, rates, choice)

    def _points(self, stack: Stack, places: Ints, wanted: Mask, rates: NDArray, choice: NDArray) -> Points:
        row, column = np.nonzero(wanted)
        at = stack.prefill[row], stack.decode[places[column]]
        return self.pairs.points(*at, choice[wanted].astype(np.int64), rates[wanted].astype(np.float64))

    def _in_time(self, stack: Stack, limit: int) -> Mask:
        """Rows of a stack within a limit on TTFT, each worker once."""
        return self.in_time[limit, stack.prefill] & ~stack.repeated

    def _by_stack(self, columns: Ints) -> Iterator[tuple[Stack, Ints]]:
        for stack in np.unique(self.stack[columns]).tolist():
            yield self.stacks[stack], self.place[columns[self.stack[columns] == stack]]
