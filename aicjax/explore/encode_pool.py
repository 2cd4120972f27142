# SPDX-License-Identifier: Apache-2.0
"""Workers that run the vision encoder alone, and let the other workers run the language model alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicjax._results import InputError, NoFeasible
from aicjax._units import GIB, MS_PER_S
from aicjax.explore.columns import DECIMALS
from aicjax.explore.grid import EncoderGrid
from aicjax.explore.misfit import no_data
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import MemoryUse, StepTimes
from aicjax.explore.roles import Deployment
from aicjax.explore.step_times import encoder_step
from aicjax.forward.encoder import EncoderTimes, encoder_times
from aicjax.forward.encoder_memory import EncoderMemory, bind_encoder
from aicjax.hardware import System, load_system
from aicjax.models import Images, with_encoder
from aicjax.models.checks import ACTIVATION_TP
from aicjax.ops.records import OpLists
from aicjax.serving.encoder import Encoders
from aicjax.tables import resolve_version

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class EncodePool:
    """Choices of an encode worker, layout by layout with growing batches; arrays [choice].

    Attributes:
        workers: What matching reads; latencies as reported.
        tp: Tensor-parallel GPUs, each with a slice of the encoder.
        batch: Requests of a batch.
        memory_gib: Memory that the encoder takes on one GPU, as reported.
        uses: Memory of one GPU in full.
        steps: Operators of a batch.
    """

    workers: Encoders
    tp: Ints
    batch: Ints
    memory_gib: NDArray[np.float64]
    uses: tuple[MemoryUse, ...]
    steps: tuple[tuple[StepTimes, ...], ...]

    def columns(self, choices: Ints, workers: Ints) -> dict[str, Any]:
        """Columns of result rows with so many workers of these choices."""
        return {
            "encoder_latency": self.workers.latency_ms[choices],
            "(e)workers": workers,
            "(e)tp": self.tp[choices],
            "(e)pp": np.ones_like(workers),
            "(e)bs": self.batch[choices],
            "(e)parallel": np.array([f"tp{size}" for size in self.tp[choices]], str),
            "(e)memory": self.memory_gib[choices],
        }

    def choice(self, row: dict[str, Any]) -> int:
        """The choice that a result row has."""
        return int(np.flatnonzero((self.tp == row["(e)tp"]) & (self.batch == row["(e)bs"]))[0])


def encode_pool(
    task: str,
    deployment: Deployment,
    grid: EncoderGrid,
    *,
    system: str | None = None,
    tp: Sequence[int] | None = None,
    batches: Sequence[int] | None = None,
) -> EncodePool:
    """The choices that fit their GPU; of one layout, batches that yield more than all smaller ones.

    Args:
        task: Name of the experiment, for errors.
        deployment: The workers that the pool serves.
        grid: Default lists and limits.
        system: GPU system of the pool; that of the deployment when None.
        tp: Tensor-parallel sizes, in place of the list.
        batches: Batches, in place of the list.

    Raises:
        InputError: A batch that is too large, or an unknown system.
        MissingData: An operator has no answer.
        NoFeasible: No size cuts the encoder, or none fits.
    """
    images = deployment.load.images
    if images is None:
        raise InputError("enable_epd", True, "absent for requests of text")
    sizes, batch = sorted(set(tp or grid.tp)), np.array(sorted(set(batches or grid.batch)))
    if batch[-1] > grid.max_batch:
        raise InputError("encoder batch", int(batch[-1]), f"at most {grid.max_batch}")
    hardware = deployment.system if system is None else load_system(system)
    version = resolve_version(hardware.name, deployment.backend, deployment.version)
    lists = _layouts(deployment, hardware, sizes)
    if not lists:
        raise NoFeasible(f"{task}: the vision encoder cannot be cut over any of {sizes} GPUs of {hardware.name}.")
    times = encoder_times(
        hardware,
        deployment.backend,
        version,
        list(lists.values()),
        images,
        batch,
        mode=deployment.database_mode,
        transfer_policy=deployment.transfer_policy,
        constants=deployment.constants,
        compat=deployment.model.compat,
    )
    fits, uses = _memory(deployment, hardware, lists, images, batch)
    if not fits.any():
        raise NoFeasible(f"{task}: the vision encoder does not fit a GPU of {hardware.name}.")
    if np.isnan(times.latency_ms).any():
        missing = [name for config in range(len(lists)) for name in times.missing(config)]
        raise no_data(task, missing, deployment, hardware.name, version)
    return _choices(deployment, times, np.array(list(lists)), batch, fits, uses)


def requested_pool(task: str, request: SearchRequest, deployment: Deployment, grid: EncoderGrid) -> EncodePool | None:
    """The choices of a search; None where the other workers encode. Errors as `encode_pool`."""
    if not request.enable_epd:
        return None
    tp, batches = request.encoder_tp_candidates, request.encoder_batch_candidates
    return encode_pool(task, deployment, grid, system=request.encoder_system, tp=tp, batches=batches)


def _layouts(deployment: Deployment, system: System, sizes: Sequence[int]) -> dict[int, OpLists]:
    """Operators by tensor-parallel size, without sizes that the encoder or the collectives do not have."""
    lists = {}
    for size in sizes:
        if min(size, ACTIVATION_TP[-1]) not in system.nccl_mem_bytes:
            continue
        try:
            lists[size] = with_encoder(OpLists((), ()), deployment.model, size, data_parallel=False)
        except InputError:
            continue
    return lists


def _memory(
    deployment: Deployment, system: System, lists: dict[int, OpLists], images: Images, batch: Ints
) -> tuple[NDArray[np.bool_], list[list[MemoryUse]]]:
    """Which batches fit [layout, batch], and the memory of each."""
    constants = deployment.constants.memory
    encoder = bind_encoder(deployment.model, list(lists.values()), constants)
    assert isinstance(encoder, EncoderMemory)
    others = system.other_mem_bytes * (1 + constants.other_overhead)
    uses = [
        [
            MemoryUse(
                role="encode",
                weights=float(weights) / GIB,
                activations=float(activations) / GIB,
                kvcache=0.0,
                nccl=system.nccl_mem_bytes[min(size, ACTIVATION_TP[-1])] / GIB,
                others=others / GIB,
                capacity=system.mem_capacity_bytes / GIB,
                kv_budget=0.0,
            )
            for activations in row
        ]
        for size, weights, row in zip(lists, encoder.weights_bytes, encoder.activations(batch, images), strict=True)
    ]
    return np.array([[use.total < use.capacity for use in row] for row in uses]), uses


def _choices(
    deployment: Deployment,
    times: EncoderTimes,
    sizes: Ints,
    batch: Ints,
    fits: NDArray[np.bool_],
    uses: list[list[MemoryUse]],
) -> EncodePool:
    correction = deployment.constants.disagg.encoder_latency_correction
    latency_ms = times.latency_ms * correction
    seq_per_s = batch * MS_PER_S / latency_ms
    best = np.maximum.accumulate(np.pad(seq_per_s, ((0, 0), (1, 0)))[:, :-1], axis=1)
    config, at = np.nonzero(np.logical_and.accumulate(fits, axis=1) & (seq_per_s > best))
    chosen = [uses[c][b] for c, b in zip(config, at, strict=True)]
    return EncodePool(
        workers=Encoders(seq_per_s[config, at], sizes[config], np.round(latency_ms[config, at], DECIMALS)),
        tp=sizes[config],
        batch=batch[at],
        memory_gib=np.round([use.weights + use.activations for use in chosen], DECIMALS),
        uses=tuple(chosen),
        steps=tuple(
            encoder_step(times, int(c), int(b), correction=correction, worker="encode worker, ")
            for c, b in zip(config, at, strict=True)
        ),
    )
