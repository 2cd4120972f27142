# SPDX-License-Identifier: Apache-2.0
"""Step times of all deployments with attention and feed-forward layers apart, at all batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from aicjax.explore.afd_memory import Limits, PoolMemory, Pools, pool_bytes
from aicjax.explore.afd_space import AfdCandidates
from aicjax.explore.evaluation import bind_layouts
from aicjax.explore.roles import Deployment
from aicjax.serving.afd import LayerTimes, chosen_cycle, decode_step_ms
from aicjax.serving.coordinates import Coordinates
from aicjax.serving.static import decode_samples

_CHUNK = 256  # candidates evaluated at once


class Times(NamedTuple):
    """Mean times over an answer; all fields [candidate, batch], ms.

    Attributes:
        attention_ms, ffn_ms: A layer on each pool.
        transfer_ms: One way between them.
        step_ms: A decode step; NaN where an operator has no answer.
        hidden: Whether transfers are hidden in the last step.
    """

    attention_ms: NDArray[np.float64]
    ffn_ms: NDArray[np.float64]
    transfer_ms: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    hidden: NDArray[np.bool_]


class AfdPoints(NamedTuple):
    """All candidates at all batches.

    Attributes:
        batches: Requests in flight of an attention worker [batch].
        micro: Requests of a microbatch [candidate, batch].
        times: Layer times and steps.
        memory: Memory of the pools.
    """

    batches: NDArray[np.int64]
    micro: NDArray[np.int64]
    times: Times
    memory: PoolMemory


@dataclass(frozen=True)
class AfdSweep:
    """All candidates at all batches, before they are evaluated.

    Attributes:
        deployment: Where and how they run.
        candidates: What is tried.
        batches: Requests in flight of an attention worker, ascending [batch].
        stride: Decode steps priced by one evaluation.
        overhead: Factor on transfers.
        correction: Factor on decode steps.
        boundary_on_attention: Whether norms between the sides and the vocabulary projection run with attention.
        limits: What the request says about memory.
    """

    deployment: Deployment
    candidates: AfdCandidates
    batches: NDArray[np.int64]
    stride: int
    overhead: float
    correction: float
    boundary_on_attention: bool
    limits: Limits

    def points(self) -> AfdPoints:
        """Step times and memory."""
        candidates = self.candidates
        micro = -(-self.batches // candidates.microbatches[:, None])
        distinct, at = np.unique(micro, return_inverse=True)
        workers = np.array([topology.attention_workers for topology in candidates.topologies])[candidates.topology]
        counts, worker = np.unique(workers, return_inverse=True)
        pools = {pool: self._pools(pool) for pool in ("attention", "ffn", "transfer")}
        at = at.reshape(micro.shape)
        memory = pool_bytes(
            self.deployment,
            pools["attention"],
            pools["ffn"],
            micro,
            workers,
            candidates.microbatches,
            self.limits,
        )
        return AfdPoints(self.batches, micro, self._times(pools, distinct, at, counts, worker), memory)

    def _pools(self, pool: str) -> Pools:
        """The distinct operator lists of a pool, and which of them each candidate has."""
        place: dict = {}
        side = 1 if pool == "ffn" else 0
        of = [
            place.setdefault((getattr(operators, pool), topology.layouts(self.deployment.model)[side]), len(place))
            for topology, operators in zip(self.candidates.topologies, self.candidates.operators, strict=True)
        ]
        lists, layouts = zip(*place, strict=True)
        return Pools(lists, layouts, np.array(of)[self.candidates.topology])

    def _times(self, pools: dict[str, Pools], micro, at, counts, worker) -> Times:
        """Times from one evaluation of all pools at distinct microbatches `micro` and numbers of workers `counts`.

        `at` [candidate, batch] and `worker` [candidate] say which of them each point has.
        """
        deployment, coordinates = self.deployment, Coordinates()
        rows, (lengths, weights) = micro * deployment.load.query_rows, decode_samples(deployment.load, self.stride)
        alone = coordinates.generation_rest(rows)
        attending = coordinates.generation_attention(rows[:, None], lengths)
        other = coordinates.generation_other(rows[:, None], lengths)
        together = coordinates.generation_rest(rows[:, None] * counts)
        bound = bind_layouts(deployment, [lists for pool in pools.values() for lists in pool.lists])
        curves = bound.evaluate(coordinates.queries())
        attention, ffn, transfer = _split([len(pool.lists) for pool in pools.values()])
        layers = np.float32(deployment.model.layers)
        rest, seen = (part.curve(curves)[:, part.inverse] for part in (alone, attending))
        seen = seen + other.curve(curves)[:, other.inverse]
        tables = (
            (rest[attention, :, None] + seen[attention]) / layers,
            together.curve(curves)[ffn][:, together.inverse] / layers,
            rest[transfer] * np.float32(self.overhead),
        )
        share = (weights / weights.sum()).astype(np.float32)
        ways = (self.candidates.microbatches.astype(np.float32), self.candidates.pipeline)
        indices = (at, worker, *(pool.of for pool in pools.values()), *ways)
        parts = [
            [np.asarray(values)[:length] for values in _steps(tables, chunk, layers, share)]
            for chunk, length in _chunks(indices)
        ]
        *numbers, step_ms, hidden = (np.concatenate(values) for values in zip(*parts, strict=True))
        attention_ms, ffn_ms, transfer_ms = (values.astype(np.float64) for values in numbers)
        return Times(attention_ms, ffn_ms, transfer_ms, step_ms.astype(np.float64) * self.correction, hidden)


def _split(sizes: list[int]) -> list[slice]:
    """Ranges of consecutive groups of these sizes."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _chunks(indices: tuple[NDArray, ...]) -> Iterator[tuple[list[NDArray], int]]:
    """The candidates of `indices` in chunks of one length, the last filled up, and how many of a chunk count."""
    count = len(indices[0])
    for start in range(0, count, _CHUNK):
        rows = np.minimum(np.arange(start, start + _CHUNK), count - 1)
        yield [values[rows] for values in indices], min(_CHUNK, count - start)


@eqx.filter_jit
def _steps(tables, indices, layers, share):
    """Mean layer times and decode step of candidates at all batches, and whether transfers are hidden in the last step.

    Gathers from tables of attention [pool, micro, sample], feed-forward [pool, micro, worker], transfer [pool, micro].
    """
    attention, ffn, transfer = tables
    micro, worker, a_pool, f_pool, t_pool, microbatches, pipeline = indices
    series = attention[a_pool[:, None], micro]
    ffn_ms, transfer_ms = ffn[f_pool[:, None], micro, worker[:, None]], transfer[t_pool[:, None], micro]
    times = LayerTimes(
        series, *(jnp.broadcast_to(x[..., None], series.shape) for x in (ffn_ms, transfer_ms, transfer_ms))
    )
    count = microbatches[:, None, None]
    cycle = chosen_cycle(times, count, pipeline[:, None, None])
    step_ms = decode_step_ms(times, cycle, layers, count)
    attention_ms, step_ms = (jnp.matmul(values, share, precision="highest") for values in (series, step_ms))
    return attention_ms, ffn_ms, transfer_ms, step_ms, cycle.hidden[..., -1]
