# SPDX-License-Identifier: Apache-2.0
"""Step times and memory of all deployments with attention and feed-forward layers apart, at all batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from aicjax.explore.afd_memory import Limits, largest_batch, pool_split
from aicjax.explore.afd_space import AfdCandidates
from aicjax.explore.roles import Deployment
from aicjax.forward.bound import StepCurves, bind
from aicjax.models import Parallel
from aicjax.ops.records import OpLists
from aicjax.serving.afd import LayerTimes, chosen_cycle, decode_step_ms
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.static import decode_samples

CHUNK = 256  # candidates evaluated at once
PROBES = (128, 256)  # microbatches whose memory tells how it grows
Array = NDArray


class Pools(NamedTuple):
    """The distinct operator lists of a pool and which of them each candidate has.

    Attributes:
        lists: Distinct lists.
        layouts: Layout of each.
        of: Position for each candidate [candidate].
    """

    lists: tuple[OpLists, ...]
    layouts: tuple[Parallel, ...]
    of: NDArray[np.int64]


class AfdPoints(NamedTuple):
    """All candidates at all batches.

    Attributes:
        batches: Requests in flight of an attention worker [batch].
        micro: Requests of a microbatch [candidate, batch].
        attention_ms, ffn_ms, transfer_ms: Mean times of a layer; a transfer is one way [candidate, batch].
        step_ms: Mean time of a decode step [candidate, batch]; NaN where an operator has no answer.
        hidden: Whether transfers are hidden in the last step [candidate, batch].
        attention_bytes, ffn_bytes: Memory of a GPU of each pool [candidate, batch].
        fits: Whether both pools fit [candidate, batch].
        attention_limit, ffn_limit: Batches at which the pools are full, by how their memory grows [candidate].
    """

    batches: NDArray[np.int64]
    micro: NDArray[np.int64]
    attention_ms: NDArray[np.float64]
    ffn_ms: NDArray[np.float64]
    transfer_ms: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    hidden: NDArray[np.bool_]
    attention_bytes: NDArray[np.float64]
    ffn_bytes: NDArray[np.float64]
    fits: NDArray[np.bool_]
    attention_limit: NDArray[np.float64]
    ffn_limit: NDArray[np.float64]


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
        micro = -(-self.batches // self.candidates.microbatches[:, None])
        distinct, at = np.unique(micro, return_inverse=True)
        workers = np.array([topology.attention_workers for topology in self.candidates.topologies])
        counts, worker = np.unique(workers[self.candidates.topology], return_inverse=True)
        pools = [self._pools(pool) for pool in ("attention", "ffn", "transfer")]
        at = at.reshape(micro.shape)
        times = self._times(pools, distinct, at, counts, worker)
        return AfdPoints(self.batches, micro, *times, *self._memory(pools, distinct, at, counts, worker))

    def _pools(self, pool: str) -> Pools:
        place: dict[tuple[Parallel, OpLists], int] = {}
        side = 1 if pool == "ffn" else 0
        of = [
            place.setdefault((topology.layouts(self.deployment.model)[side], getattr(operators, pool)), len(place))
            for topology, operators in zip(self.candidates.topologies, self.candidates.operators, strict=True)
        ]
        layouts, lists = zip(*place, strict=True)
        return Pools(lists, layouts, np.array(of)[self.candidates.topology])

    def _times(
        self, pools: Sequence[Pools], micro: Array, at: Array, counts: Array, worker: Array
    ) -> tuple[Array, ...]:
        deployment, coordinates = self.deployment, Coordinates()
        rows, (lengths, weights) = micro * deployment.load.query_rows, decode_samples(deployment.load, self.stride)
        alone = coordinates.generation_rest(rows)
        seen = [
            part(rows[:, None], lengths) for part in (coordinates.generation_attention, coordinates.generation_other)
        ]
        together = coordinates.generation_rest(rows[:, None] * counts)
        bound = bind(
            deployment.system,
            deployment.backend,
            deployment.version,
            [lists for pool in pools for lists in pool.lists],
            mode=deployment.database_mode,
            constants=deployment.constants,
            attention_backend=deployment.attention_backend,
        )
        curves = bound.evaluate(coordinates.queries())
        first, second = len(pools[0].lists), len(pools[0].lists) + len(pools[1].lists)
        layers = deployment.model.layers
        attention = (_values(alone, curves)[:first, :, None] + sum(_values(p, curves)[:first] for p in seen)) / layers
        ffn = _values(together, curves)[first:second] / layers
        transfer = _values(alone, curves)[second:] * np.float32(self.overhead)
        share = (weights / weights.sum()).astype(np.float32)
        found = []
        for start in range(0, len(at), CHUNK):
            part = slice(start, start + CHUNK)
            padded = [
                np.resize(values[part], (CHUNK, *values.shape[1:])) if len(values) > CHUNK else values[part]
                for values in (at, worker, *(pool.of for pool in pools))
            ]
            ways = [
                np.resize(values[part], CHUNK) if len(at) > CHUNK else values[part]
                for values in (self.candidates.microbatches.astype(np.float32), self.candidates.pipeline)
            ]
            taken = _steps(attention, ffn, transfer, *padded, *ways, np.float32(layers), share)
            found.append([np.asarray(values)[: len(at[part])] for values in taken])
        attention_ms, ffn_ms, transfer_ms, step_ms, hidden = (np.concatenate(x) for x in zip(*found, strict=True))
        numbers = (attention_ms, ffn_ms, transfer_ms, step_ms * self.correction)
        return *(values.astype(np.float64) for values in numbers), hidden

    def _memory(
        self, pools: Sequence[Pools], micro: Array, at: Array, counts: Array, worker: Array
    ) -> tuple[Array, ...]:
        """Bytes of both pools, whether they fit, and the batches at which each would be full."""
        (attention, ffn, _), copies = pools, self.candidates.microbatches
        splits = [self._split(attention, pool, micro) for pool in range(len(attention.lists))]
        cached, total, budget = (
            np.stack([np.broadcast_to(getattr(split, name), (1, len(micro)))[0] for split in splits])[
                attention.of[:, None], at
            ]
            for name in ("kvcache_bytes", "total_bytes", "kv_budget_bytes")
        )
        attention_bytes = total + cached * (copies[:, None] - 1)
        pooled = np.stack(
            [
                np.broadcast_to(split.total_bytes - split.kvcache_bytes, (1, micro.size * counts.size))[0]
                for split in (self._split(ffn, pool, np.outer(micro, counts).ravel()) for pool in range(len(ffn.lists)))
            ]
        ).reshape(len(ffn.lists), len(micro), len(counts))
        ffn_bytes = pooled[ffn.of[:, None], at, worker[:, None]]
        capacity = float(self.deployment.system.mem_capacity_bytes)
        fits = (attention_bytes < capacity) & (cached * copies[:, None] <= budget) & (ffn_bytes < capacity)
        constants = self.deployment.constants.memory
        share = self.limits.kv_fraction
        if share is not None:
            share *= (1 - constants.kv_reserved) * (1 - constants.kv_tolerance)
        most = np.stack(
            [
                largest_batch(self._split(attention, pool, PROBES), PROBES, copies, share)
                for pool in range(len(attention.lists))
            ]
        )[attention.of, np.arange(len(copies))]
        shared = np.stack(
            [largest_batch(self._split(ffn, pool, PROBES), PROBES, 0, None) for pool in range(len(ffn.lists))]
        )[ffn.of]
        per_worker = np.floor(np.floor(shared) / counts[worker])
        return attention_bytes, ffn_bytes, fits, np.floor(most) * copies, per_worker * copies

    def _split(self, pools: Pools, pool: int, batch: Sequence[int] | Array):
        return pool_split(self.deployment, pools.layouts[pool], pools.lists[pool], "decode", batch, self.limits)


def _values(places: Places, curves: StepCurves) -> NDArray[np.float32]:
    return places.curve(curves)[:, places.inverse]


@eqx.filter_jit
def _steps(attention, ffn, transfer, micro, worker, a_pool, f_pool, t_pool, microbatches, pipeline, layers, share):
    """Mean layer times and decode step of candidates at all batches, and whether transfers are hidden in the last step.

    Gathers from `attention` [pool, micro, sample], `ffn` [pool, micro, worker] and `transfer` [pool, micro].
    """
    own, one_way = ffn[f_pool[:, None], micro, worker[:, None]], transfer[t_pool[:, None], micro]
    series = attention[a_pool[:, None], micro]
    times = LayerTimes(series, *(jnp.broadcast_to(x[..., None], series.shape) for x in (own, one_way, one_way)))
    count, way = microbatches[:, None, None], pipeline[:, None, None]
    cycle = chosen_cycle(times, count, way)
    step = decode_step_ms(times, cycle, layers, count)
    return series @ share, own, one_way, step @ share, cycle.hidden[..., -1]
