# SPDX-License-Identifier: Apache-2.0
"""How much a mixed step may hold before its worker runs out of memory: the verdict of `memory`, solved for the step.

A sweep then compares counts instead of adding up memory at every point.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax.forward.kv_budget import largest_non_kv_bytes
from aicjax.forward.memory import WorkerMemory

Counts = NDArray[np.int64]
EVERYTHING = np.iinfo(np.int32).max  # more than any step holds


class StepSize(NamedTuple):
    """What the activations of a mixed step grow with; the same for every layout.

    Attributes:
        rows: Tokens of the step, each decoding request with its drafts.
        drafted: Share of the tokens that decode, which have drafts.
    """

    rows: Counts
    drafted: NDArray[np.float64]


class StepRoom(NamedTuple):
    """Largest step of each layout and batch; arrays [config, batch].

    Attributes:
        rows: Most rows of a step.
        drafted: Largest share of tokens that have drafts, where activations are at their floor; infinite mostly.
    """

    rows: Counts
    drafted: NDArray[np.float64]


def step_size(batch: ArrayLike, isl: int, ctx_tokens: ArrayLike, nextn: int) -> StepSize:
    """The mixed step of a batch with a budget of prompt tokens; arguments broadcast."""
    batch, ctx_tokens = np.asarray(batch, np.int64), np.asarray(ctx_tokens, np.int64)
    decoding = np.where(batch == 1, 0, batch - -(-ctx_tokens // isl))
    tokens = ctx_tokens + decoding
    drafted = np.maximum(decoding, 0)
    return StepSize(tokens + nextn * drafted, drafted / tokens)


def step_rooms(
    memory: WorkerMemory, batch: ArrayLike, isl: int, osl: int, kv_fraction: float | None = None
) -> tuple[StepRoom, StepRoom]:
    """Largest mixed steps with which everything fits the GPU, and with which the KV cache fits its share.

    A step that is within both has the verdict `FITS` of `WorkerMemory.inflight`, one within the first alone
    `KV_DOES_NOT_FIT`.

    Args:
        memory: The worker, which hosts no vision encoder.
        batch: Requests in flight on one rank, int [batch].
        isl, osl: Prompt and output tokens.
        kv_fraction: The engine's memory fraction; by default its own.
    """
    constants, batch = memory.constants, np.asarray(batch, np.int64)
    kv_bytes = batch * memory.kv_curve.bytes(isl + osl)
    fixed_bytes = (memory.weights_bytes + memory.nccl_bytes)[:, None] + memory.others_bytes
    largest = largest_non_kv_bytes(
        memory.capacity_bytes,
        kv_bytes,
        memory.kv_fraction(kv_fraction, static=False)[:, None],
        of_free=bool(constants.kv_fraction_of_free),
        usable=(1 - constants.kv_reserved) * (1 - constants.kv_tolerance),
    )
    below_capacity = np.nextafter(memory.capacity_bytes - fixed_bytes - kv_bytes, -np.inf)
    decodes_alone = (batch == 1) & (osl > 1)
    return _room(memory, below_capacity, decodes_alone), _room(memory, largest - fixed_bytes, decodes_alone)


def _room(memory: WorkerMemory, room_bytes: NDArray[np.float64], decodes_alone: NDArray[np.bool_]) -> StepRoom:
    """Largest step whose activations are at most `room_bytes` [config, batch]."""
    constants, overhead = memory.constants, 1 + memory.constants.activation_overhead
    if budget := int(constants.inflight_token_budget):
        fits = memory.activations(budget, budget) <= room_bytes
        return StepRoom(np.where(fits, EVERYTHING, -1), np.full(room_bytes.shape, np.inf))
    floor = room_bytes / (constants.activation_floor_bytes * overhead)
    rows = np.floor(room_bytes / (memory.activation_bytes_per_token[:, None] * overhead))
    fits = (floor >= 1) & (~decodes_alone | (memory.activations(1, 1) <= room_bytes))
    with np.errstate(divide="ignore", invalid="ignore"):
        drafted = np.where(floor >= 1, (floor - 1) / memory.nextn, -1.0)
    return StepRoom(
        np.where(fits, np.clip(rows, -1, EVERYTHING), -1).astype(np.int64),
        drafted if memory.nextn else np.full(room_bytes.shape, np.inf),
    )
