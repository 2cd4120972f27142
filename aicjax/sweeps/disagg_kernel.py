# SPDX-License-Identifier: Apache-2.0
"""The kernel of a disaggregated sweep: the best worker counts of every pair of a prefill and a decode worker.

A tile is `PREFILL_ROWS` prefill workers by `DECODE_ROWS` decode workers, all of a side with as many GPUs, so that each
worker count is one pass over the tile. What a pair yields per GPU does not depend on latency limits; those on TTFT pick
prefill workers, and for each the best of them is given for every decode worker.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import Device
from aicjax.constants import DisaggConstants
from aicjax.interp.counts import ceil_div
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate

PREFILL_ROWS, DECODE_ROWS = 16, 512
UNROLL = 8  # worker counts of one turn of a loop, which pays for its bookkeeping
TIE = 1e-6  # relative: rates per GPU that differ by less differ by rounding alone
TILES = "tiles"
AnyArray = Array | np.ndarray


class Choices(NamedTuple):
    """Worker counts to choose from, by kind of replica, in order of preference.

    Attributes:
        prefill, decode: Number of workers; the last repeated up to a multiple of `UNROLL`.
    """

    prefill: Float[AnyArray, "kind count"]
    decode: Float[AnyArray, "kind count"]


class Tiles(NamedTuple):
    """Pairs of workers; rows of a tile beyond the workers repeat one of them.

    Attributes:
        prefill_seq_per_s: Requests per second of the prefill workers.
        decode_seq_per_s: Those of the decode workers.
        prefill_gpus, decode_gpus: GPUs of a worker.
        kind: Kind of replica.
        counts: Number of worker counts of the kind; 0 for a tile that is not there.
        in_time: Prefill workers that meet each limit on TTFT.
    """

    prefill_seq_per_s: Float[AnyArray, "tile prefill"]
    decode_seq_per_s: Float[AnyArray, "tile decode"]
    prefill_gpus: Float[AnyArray, " tile"]
    decode_gpus: Float[AnyArray, " tile"]
    kind: Int[AnyArray, " tile"]
    counts: Int[AnyArray, " tile"]
    in_time: Bool[AnyArray, "tile limit prefill"]


class Matched(NamedTuple):
    """What each pair yields.

    Attributes:
        seq_per_s_per_gpu: Rate per GPU of its best worker counts.
        choice: Position of those: of rates per GPU that tie, the first.
        best: Highest rate per GPU over the prefill workers within each limit on TTFT; -inf where there is none.
    """

    seq_per_s_per_gpu: Float[Array, "tile prefill decode"]
    choice: Int[Array, "tile prefill decode"]
    best: Float[Array, "tile limit decode"]


def match(tiles: Tiles, choices: Choices, constants: DisaggConstants, *, at_once: int) -> Matched:
    """The best worker counts of all pairs.

    Args:
        tiles: Pairs of workers.
        choices: Worker counts of each kind of replica.
        constants: Degradation factors.
        at_once: Tiles that are worked on together. Static.
    """

    def one(tile: Tiles) -> Matched:
        def rate(prefill: AnyArray, decode: AnyArray) -> Float[Array, "prefill decode"]:
            return _seq_per_s_per_gpu(tile, prefill, decode, constants)

        of_kind = Choices(*(jnp.asarray(counts)[tile.kind] for counts in choices))
        turns = ceil_div(jnp.asarray(tile.counts), UNROLL)
        shape = jnp.shape(tile.prefill_seq_per_s) + jnp.shape(tile.decode_seq_per_s)

        def higher(turn: Array, best: Array) -> Array:
            for step in range(UNROLL):
                count = turn * UNROLL + step
                best = jnp.maximum(best, rate(of_kind.prefill[count], of_kind.decode[count]))
            return best

        enough = jax.lax.fori_loop(0, turns, higher, jnp.zeros(shape, jnp.float32)) * np.float32(1 - TIE)

        def earlier(turn: Array, first: Array) -> Array:
            for step in reversed(range(UNROLL)):
                count = (turns - 1 - turn) * UNROLL + step
                first = jnp.where(rate(of_kind.prefill[count], of_kind.decode[count]) >= enough, count, first)
            return first

        choice = jax.lax.fori_loop(0, turns, earlier, jnp.zeros(shape, jnp.int32))
        found = rate(of_kind.prefill[choice], of_kind.decode[choice])
        best = jax.lax.map(lambda rows: jnp.where(rows[:, None], found, -jnp.inf).max(axis=0), tile.in_time)
        return Matched(found, choice, best)

    return jax.lax.map(one, tiles, batch_size=at_once)


@functools.cache
def matcher(devices: tuple[Device, ...], at_once: int):
    """`match` compiled for tiles spread over devices; the answer of a tile is the same wherever it is done."""
    by_tile, whole = PartitionSpec(TILES), PartitionSpec()
    body = functools.partial(match, at_once=at_once)
    mesh = Mesh(np.array(devices), (TILES,))
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(by_tile, whole, whole), out_specs=by_tile, check_vma=False))


def _seq_per_s_per_gpu(
    tile: Tiles, prefill: AnyArray, decode: AnyArray, constants: DisaggConstants
) -> Float[Array, "prefill decode"]:
    """Rate per GPU of the pairs of one tile with some worker counts, of all or of each pair."""
    before: Any = (jnp.asarray(tile.prefill_seq_per_s)[:, None], tile.prefill_gpus)
    after: Any = (jnp.asarray(tile.decode_seq_per_s), tile.decode_gpus)
    counts: Any = (prefill, decode, 0)
    no_ms: Any = np.float32(0)
    estimate: Any = disagg_estimate(
        Workers(*before), Workers(*after), WorkerCounts(*counts), no_ms, no_ms, 1, constants, xp=jnp
    )
    return estimate.seq_per_s / estimate.gpus
