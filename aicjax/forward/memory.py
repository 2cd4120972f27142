# SPDX-License-Identifier: Apache-2.0
"""Memory of one GPU of a worker: weights, activations, KV cache, collectives and the runtime, and whether it fits.

Host arithmetic in float64. Axes are [config, point]: layouts of one model by operating points; a part that does not
depend on the point is [config, 1].
"""

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from aicjax import quant
from aicjax._results import DataError, InputError
from aicjax.forward.encoder_memory import EncoderMemory, bind_encoder
from aicjax.forward.kv_budget import check_fraction, derived_fraction, engine_fraction, kv_budget_bytes
from aicjax.forward.kv_curve import KvCurve
from aicjax.hardware import System
from aicjax.models import Images, ModelConfig, Parallel, Quantisation, kv_cache
from aicjax.models.checks import ACTIVATION_TP
from aicjax.ops.records import OpLists

if TYPE_CHECKING:
    from aicjax.constants import MemoryConstants

STATIC_PHASES = ("static", "static_ctx", "static_gen")


class Verdict(enum.IntEnum):
    """Whether a worker fits its GPU."""

    FITS = 0
    KV_DOES_NOT_FIT = 1  # everything fits the GPU, but the KV cache is over the share the engine gives it
    DOES_NOT_FIT = 2  # all parts together need at least what the GPU has


@dataclass(frozen=True)
class MemorySplit:
    """Bytes on one GPU by part, and the verdict; arrays broadcast to [config, point].

    Attributes:
        weights_bytes: Weights of one pipeline stage.
        activations_bytes: Activations of the largest step.
        kvcache_bytes: KV cache of all requests at their longest.
        nccl_bytes: Buffers of the collectives library.
        others_bytes: The runtime itself.
        capacity_bytes: Memory of the GPU.
        kv_budget_bytes: Room the engine gives the KV cache.
        kv_fraction: The memory fraction that it follows from, before margins.
        kv_fraction_of_free: Whether that is of what the other parts leave free, or of the whole GPU.
        encoder_bytes: Weights and activations of the vision encoder, counted in those.
    """

    weights_bytes: np.ndarray
    activations_bytes: np.ndarray
    kvcache_bytes: np.ndarray
    nccl_bytes: np.ndarray
    others_bytes: float
    capacity_bytes: float
    kv_budget_bytes: np.ndarray
    kv_fraction: np.ndarray
    kv_fraction_of_free: bool
    encoder_bytes: np.ndarray | float = 0.0

    @functools.cached_property
    def total_bytes(self) -> np.ndarray:
        """All parts, float64 [config, point]; parts that depend on the point last: few sums are of that size."""
        fixed = self.weights_bytes + self.nccl_bytes + self.others_bytes
        return fixed + self.activations_bytes + self.kvcache_bytes

    @property
    def verdict(self) -> np.ndarray:
        """Codes of `Verdict`, int8 [config, point]."""
        over_budget = np.where(self.kvcache_bytes > self.kv_budget_bytes, Verdict.KV_DOES_NOT_FIT, Verdict.FITS)
        over_capacity = self.total_bytes >= self.capacity_bytes
        return np.where(over_capacity, Verdict.DOES_NOT_FIT, over_budget).astype(np.int8)


@dataclass(frozen=True)
class WorkerMemory:
    """What the memory of one model on one system needs of each layout; made by `bind_memory`.

    Attributes:
        parallels: The layouts, one per config.
        weights_bytes: Weights on one GPU, float64 [config].
        activation_bytes_per_token: Activations of one token, before floor and overhead, float64 [config].
        nccl_bytes: Buffers of the collectives library, float64 [config].
        others_bytes: The runtime itself.
        capacity_bytes: Memory of the GPU.
        kv_curve: KV cache of one sequence by its length.
        nextn: Draft tokens per decode step.
        version: Backend version: it decides the memory fraction.
        constants: Empirical numbers of the backend.
        encoder: Vision encoder that it hosts; None without one.
    """

    parallels: tuple[Parallel, ...]
    weights_bytes: np.ndarray
    activation_bytes_per_token: np.ndarray
    nccl_bytes: np.ndarray
    others_bytes: float
    capacity_bytes: float
    kv_curve: KvCurve
    nextn: int
    version: str
    constants: "MemoryConstants"
    encoder: EncoderMemory | None = None

    def static(
        self,
        batch: ArrayLike,
        isl: ArrayLike,
        osl: ArrayLike,
        *,
        phase: str = "static",
        prefix: ArrayLike = 0,
        beam: int = 1,
        max_seq_len: int | None = None,
        kv_fraction: float | None = None,
        images: Images | None = None,
    ) -> MemorySplit:
        """Memory of a worker that runs fixed batches.

        Args:
            batch: Requests of one rank, int [point].
            isl: Prompt length [tokens], int [point].
            osl: Output length [tokens], int [point].
            phase: `static` (both phases), `static_ctx` (prefill worker) or `static_gen` (decode worker).
            prefix: Cached tokens of each prompt, int [point].
            beam: Beams of each request.
            max_seq_len: KV cache length held for each request; by default prompt and output (prompt and one token
                on a prefill worker).
            kv_fraction: The engine's memory fraction; by default its own.
            images: Images of each request; their tokens come on top of the prompt.
        """
        if phase not in STATIC_PHASES:
            raise InputError("phase", phase, f"one of {list(STATIC_PHASES)}")
        batch, isl, osl, prefix = (np.asarray(value, dtype=np.int64) for value in (batch, isl, osl, prefix))
        isl = isl + (0 if images is None else images.prompt_tokens)
        if phase == "static_gen":
            tokens = draft_rows = batch * beam
        else:
            tokens, draft_rows = batch * (isl - prefix), 0
        longest = isl + (1 if phase == "static_ctx" else beam * osl) if max_seq_len is None else max_seq_len
        activations = self.activations(tokens, draft_rows)
        hosted = None if phase == "static_gen" else images
        return self._split(activations, batch, longest, self.kv_fraction(kv_fraction, static=True), hosted)

    def inflight(
        self,
        batch: ArrayLike,
        isl: ArrayLike,
        osl: ArrayLike,
        ctx_tokens: ArrayLike,
        *,
        beam: int = 1,
        max_seq_len: int | None = None,
        kv_fraction: float | None = None,
        images: Images | None = None,
    ) -> MemorySplit:
        """Memory of a worker with in-flight batching.

        An engine with a fixed token budget sizes activations for it, and honours `max_seq_len`; the others are sized by
        the mixed step, or by the lone decode step where drafts make that one larger.

        Args:
            batch: Requests in flight on one rank, int [point].
            isl: Prompt length [tokens], int [point].
            osl: Output length [tokens], int [point].
            ctx_tokens: Prompt tokens a step may take, int [point].
            beam: Beams of each request.
            max_seq_len: KV cache length held for each request; by default prompt and output.
            kv_fraction: The engine's memory fraction; by default its own.
            images: Images of each request; their tokens come on top of the prompt.
        """
        batch, isl, osl, ctx_tokens = (np.asarray(value, dtype=np.int64) for value in (batch, isl, osl, ctx_tokens))
        isl = isl + (0 if images is None else images.prompt_tokens)
        longest = isl + beam * osl
        if budget := int(self.constants.inflight_token_budget):
            activations = self.activations(budget, budget)
            if max_seq_len is not None:
                longest = max_seq_len
        else:
            alone = batch == 1
            decoding = np.where(alone, 0, batch - -(-ctx_tokens // isl))
            mixed = self.activations(ctx_tokens + decoding, decoding)
            decode = self.activations(1, 1)
            activations = np.where(alone & (osl > 1), np.maximum(mixed, decode), mixed)
        return self._split(activations, batch, longest, self.kv_fraction(kv_fraction, static=False), images)

    def activations(self, tokens: ArrayLike, draft_rows: ArrayLike) -> np.ndarray:
        """Activations of a step [bytes], float64 [config, point].

        Args:
            tokens: Tokens of the step, int [point].
            draft_rows: How many of them a decode step with drafts multiplies by `nextn + 1`, int [point].
        """
        tokens = np.atleast_1d(tokens)
        used = np.maximum(self.activation_bytes_per_token[:, None] * tokens, self.constants.activation_floor_bytes)
        drafted = np.clip(draft_rows, 0, tokens) / tokens
        return used * (1 + self.nextn * drafted) * (1 + self.constants.activation_overhead)

    def kv_fraction(self, chosen: float | None = None, *, static: bool) -> np.ndarray:
        """Memory fraction in force, float64 [config].

        Args:
            chosen: The caller's fraction, which wins.
            static: Whether the worker runs fixed batches: some engines then derive the fraction from the GPU.
        """
        derived = self.constants.derived_fraction
        if chosen is not None:
            return np.full(len(self.parallels), check_fraction(chosen))
        if static and derived is not None:
            return derived_fraction(derived, self.capacity_bytes, self.parallels)
        return np.full(len(self.parallels), engine_fraction(self.constants, self.version))

    def kv_budget_bytes(self, non_kv_bytes: np.ndarray, fraction: np.ndarray, usable: float = 1.0) -> np.ndarray:
        """Room for the KV cache [bytes] by the engine's kind of fraction; see `kv_budget.kv_budget_bytes`."""
        of_free = bool(self.constants.kv_fraction_of_free)
        return kv_budget_bytes(self.capacity_bytes, non_kv_bytes, fraction, of_free=of_free, usable=usable)

    def _split(
        self,
        activations: np.ndarray,
        batch: np.ndarray,
        longest: ArrayLike,
        fraction: np.ndarray,
        images: Images | None,
    ) -> MemorySplit:
        weights, nccl, encoder_bytes = self.weights_bytes[:, None], self.nccl_bytes[:, None], 0.0
        if self.encoder is not None and images is not None:
            encoder_weights, seen = self.encoder.weights_bytes[:, None], self.encoder.activations(batch, images)
            weights, activations = weights + encoder_weights, activations + seen
            encoder_bytes = encoder_weights + seen
        usable = (1 - self.constants.kv_reserved) * (1 - self.constants.kv_tolerance)
        non_kv = weights + activations + nccl + self.others_bytes
        return MemorySplit(
            weights_bytes=weights,
            activations_bytes=activations,
            kvcache_bytes=batch * self.kv_curve.bytes(longest),
            nccl_bytes=nccl,
            others_bytes=self.others_bytes,
            capacity_bytes=self.capacity_bytes,
            kv_budget_bytes=self.kv_budget_bytes(non_kv, fraction[:, None], usable),
            kv_fraction=fraction[:, None],
            kv_fraction_of_free=bool(self.constants.kv_fraction_of_free),
            encoder_bytes=encoder_bytes,
        )


def bind_memory(
    system: System,
    backend: str,
    version: str,
    model: ModelConfig,
    parallels: Sequence[Parallel],
    op_lists: Sequence[OpLists],
    quantisations: Sequence[Quantisation],
    constants: "MemoryConstants",
    nextn: int = 0,
) -> WorkerMemory:
    """Everything about memory that does not depend on the operating point.

    Args:
        system: The GPU system.
        backend: `trtllm`, `vllm` or `sglang`.
        version: Version of the backend.
        model: The model.
        parallels: The layouts, one per config.
        op_lists: Operators of each layout: their context lists hold the weights.
        quantisations: Number formats of each layout.
        constants: The backend's numbers.
        nextn: Draft tokens per decode step.
    """
    coefficients = constants.activation_coefficients
    by_tp = coefficients.get(model.family, coefficients["default"])
    row_bytes = model.num_heads * model.head_dim * quant.GEMM["bfloat16"].bytes
    workspace = [_expert_workspace_bytes(model, parallel, constants) for parallel in parallels]
    tabled_tp = [min(parallel.tp, ACTIVATION_TP[-1]) for parallel in parallels]
    weights = [
        sum(op.weight_bytes for op in lists.context) / p.pp for p, lists in zip(parallels, op_lists, strict=True)
    ]
    return WorkerMemory(
        parallels=tuple(parallels),
        weights_bytes=np.array(weights, dtype=np.float64),
        activation_bytes_per_token=np.array(
            [row_bytes * by_tp[ACTIVATION_TP.index(tp)] + more for tp, more in zip(tabled_tp, workspace, strict=True)]
        ),
        nccl_bytes=np.array([_nccl_bytes(system, tp) for tp in tabled_tp], dtype=np.float64),
        others_bytes=system.other_mem_bytes * (1 + constants.other_overhead),
        capacity_bytes=float(system.mem_capacity_bytes),
        kv_curve=KvCurve.stack(
            [
                kv_cache(model, parallel, formats, backend, nextn)
                for parallel, formats in zip(parallels, quantisations, strict=True)
            ],
            model.context_length,
        ),
        nextn=nextn,
        version=version,
        constants=constants,
        encoder=bind_encoder(model, op_lists, constants),
    )


def _expert_workspace_bytes(model: ModelConfig, parallel: Parallel, constants: "MemoryConstants") -> float:
    """What the routed experts add to the activations of one token; 0 for families that need nothing more."""
    of_hidden = constants.expert_workspace.get(model.family)
    if of_hidden is None:
        return 0.0
    width = model.hidden_size if of_hidden else model.num_heads * model.head_dim
    copies = parallel.dp * model.num_experts * model.topk / parallel.moe_ep
    return width * copies * constants.expert_workspace_bytes


def _nccl_bytes(system: System, gpus: int) -> int:
    if gpus not in system.nccl_mem_bytes:
        raise DataError(f"System {system.name} states no memory of the collectives library for {gpus} GPUs.")
    return system.nccl_mem_bytes[gpus]
