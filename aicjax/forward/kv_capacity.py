# SPDX-License-Identifier: Apache-2.0
"""How much KV cache a worker can hold, and what to do when a worker does not fit."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aicjax import _units
from aicjax._results import DataError, InputError
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory, bind_memory
from aicjax.hardware import System
from aicjax.models import ModelConfig, Parallel, Quantisation, op_lists
from aicjax.ops.records import OpLists

if TYPE_CHECKING:
    from aicjax.constants import MemoryConstants


@dataclass(frozen=True)
class KvCapacity:
    """KV cache one GPU can hold; arrays are [config].

    Attributes:
        kv_bytes: Room for the KV cache, int64; 0 where there is none.
        tokens: Tokens of one sequence that fit it, int64.
        non_kv_bytes: All other parts, float64.
        verdict: `FITS`, or `KV_DOES_NOT_FIT` where there is no room, int8.
    """

    kv_bytes: np.ndarray
    tokens: np.ndarray
    non_kv_bytes: np.ndarray
    verdict: np.ndarray


def kv_capacity(memory: WorkerMemory, max_num_tokens: int, kv_fraction: float, *, tolerance: float = 0.0) -> KvCapacity:
    """KV cache that fits beside a worker whose step takes up to `max_num_tokens` tokens.

    The token budget counts draft tokens already, so drafts do not change the activations. What the in-flight and
    static checks keep free of the budget is not kept free here.

    Args:
        memory: The worker.
        max_num_tokens: Tokens of the largest step, at least 1.
        kv_fraction: The engine's memory fraction.
        tolerance: Share of the bytes to keep free, in [0, 1).

    Raises:
        InputError: An argument is out of range.
        DataError: The model states no key or value heads.
    """
    if max_num_tokens < 1:
        raise InputError("max_num_tokens", max_num_tokens, "1 or more")
    if not (math.isfinite(tolerance) and 0 <= tolerance < 1):
        raise InputError("tolerance", tolerance, "at least 0 and below 1")
    if not (memory.kv_curve.bytes(1) > 0).all():
        raise DataError("The model states no key or value heads: its KV cache has no size.")
    activations = memory.activations(max_num_tokens, 0)[:, 0]
    non_kv = memory.weights_bytes + activations + memory.nccl_bytes + memory.others_bytes
    room = memory.kv_budget_bytes(non_kv, memory.kv_fraction(kv_fraction, static=False))
    budget = np.floor(np.maximum(room, 0))
    if tolerance:
        budget = np.floor(budget * (1 - tolerance))
    verdict = np.where(room > 0, Verdict.FITS, Verdict.KV_DOES_NOT_FIT).astype(np.int8)
    return KvCapacity(budget.astype(np.int64), memory.kv_curve.longest(budget), non_kv, verdict)


def smallest_fitting_tp(
    system: System,
    backend: str,
    version: str,
    model: ModelConfig,
    parallel: Parallel,
    quantisation: Quantisation,
    constants: "MemoryConstants",
    load: Callable[[WorkerMemory], MemorySplit],
    nextn: int = 0,
) -> int | None:
    """Smallest power-of-two tensor parallel size at which one operating point fits; None when none does.

    Experts spread over the GPUs of attention: over as many times the ranks, or else cut into as many times the parts.

    Args:
        system: The GPU system.
        backend: `trtllm`, `vllm` or `sglang`.
        version: Version of the backend.
        model: The model.
        parallel: The layout whose TP is varied.
        quantisation: Number formats.
        constants: The backend's numbers.
        load: The operating point: from a worker to its memory, [config, 1].
        nextn: Draft tokens per decode step.
    """
    built = (
        _built(model, _with_tp(parallel, 1 << bit, model), quantisation, backend, nextn)
        for bit in range(model.num_heads.bit_length())
    )
    valid = [pair for pair in built if pair is not None]
    if not valid:
        return None
    layouts, lists = zip(*valid, strict=True)
    memory = bind_memory(
        system, backend, version, model, layouts, lists, [quantisation] * len(layouts), constants, nextn
    )
    fits = load(memory).verdict[:, 0] == Verdict.FITS
    return layouts[int(np.argmax(fits))].tp if fits.any() else None


def misfit_message(split: MemorySplit, config: int, point: int, smallest_tp: int | None) -> str:
    """One line for a point that does not fit: what it needs, what there is, and the smallest TP that would do."""
    verdict = Verdict(int(split.verdict[config, point]))
    if verdict is Verdict.FITS:
        raise InputError("point", (config, point), "one that does not fit")
    if verdict is Verdict.DOES_NOT_FIT:
        total, weights = _gib(split.total_bytes, config, point), _gib(split.weights_bytes, config, point)
        capacity = split.capacity_bytes / _units.GIB
        what = f"needs {total:.2f} GiB per GPU (weights {weights:.2f}), and the GPU has {capacity:.2f} GiB"
    else:
        cache, room = _gib(split.kvcache_bytes, config, point), _gib(split.kv_budget_bytes, config, point)
        what = f"its KV cache needs {cache:.2f} GiB per GPU, and the engine gives it {max(room, 0.0):.2f} GiB"
    remedy = "no TP fits" if smallest_tp is None else f"the smallest power-of-two TP that fits is {smallest_tp}"
    return f"Does not fit: {what}; {remedy}."


def _with_tp(parallel: Parallel, tp: int, model: ModelConfig) -> list[Parallel]:
    """A layout at another tensor parallel size, its experts as wide as attention."""
    if not model.is_moe:
        return [dataclasses.replace(parallel, tp=tp)]
    widths = {name: divmod(getattr(parallel, name) * tp, parallel.tp) for name in ("moe_ep", "moe_tp")}
    return [dataclasses.replace(parallel, tp=tp, **{name: size}) for name, (size, rest) in widths.items() if not rest]


def _built(
    model: ModelConfig, layouts: Sequence[Parallel], quantisation: Quantisation, backend: str, nextn: int
) -> tuple[Parallel, OpLists] | None:
    """The first layout that the model can be cut into, with its operators; None where there is none."""
    for layout in layouts:
        try:
            return layout, op_lists(model, layout, quantisation, backend, nextn)
        except InputError:
            continue
    return None


def _gib(part_bytes: np.ndarray, config: int, point: int) -> float:
    """One entry of a part that broadcasts to [config, point], in GiB."""
    rows, columns = part_bytes.shape
    return float(part_bytes[min(config, rows - 1), min(point, columns - 1)]) / _units.GIB
