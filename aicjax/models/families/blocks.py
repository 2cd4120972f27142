# SPDX-License-Identifier: Apache-2.0
"""The operators of one phase as families write them: names, scales and the split of tokens filled in."""

import dataclasses
from dataclasses import dataclass

from aicjax import quant
from aicjax.models.families.base import kv_heads_per_gpu
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import (
    P2P,
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    Fallback,
    Gemm,
    GenerationAttention,
    Nccl,
    Op,
    Overlap,
)

Operators = tuple[Op | Overlap | Fallback, ...]  # a run of a list
BYTES_16BIT = quant.GEMM["bfloat16"].bytes
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # a value of a recurrent state
DENSE_FFN = ("gate_ffn1_gemm", "act_gate", "ffn2_gemm")  # names of the three operators of a gated feed-forward


@dataclass(frozen=True)
class Phase:
    """One operator list in the making: what its operators have in common.

    Attributes:
        name: `context` or `generation`, the prefix of every operator's name.
        model: The model.
        parallel: Layout of the worker.
        quantisation: Number formats.
        backend: `trtllm`, `vllm` or `sglang`.
        once: Scale of an operator that runs once in a pass; above 1 where drafts add the work of layers.
        split: Ranks that share the tokens of a sequence.
        layer_share: What is left of the time of a layer where its kernels overlap.
    """

    name: str
    model: ModelConfig
    parallel: Parallel
    quantisation: Quantisation
    backend: str
    once: float
    split: int
    layer_share: float = 1.0

    @property
    def prefill(self) -> bool:
        """Whether this is the list of a prefill."""
        return self.name == "context"

    def layers(self, count: int) -> float:
        """Scale of an operator that runs in so many layers."""
        return count * self.once * self.layer_share

    @property
    def every(self) -> float:
        """Scale of an operator that runs in every layer."""
        return self.layers(self.model.layers)

    @property
    def with_experts(self) -> float:
        """Scale of an operator that runs in every layer but those with a dense feed-forward in place of experts."""
        return self.layers(self.model.layers - self.model.extra.get("dense_layers", 0))

    @property
    def whole(self) -> "Phase":
        """The same phase for operators that every rank runs on all tokens."""
        return dataclasses.replace(self, split=1)

    def gemm(
        self,
        name: str,
        scale: float,
        n: int,
        k: int,
        mode: str | None = None,
        *,
        low: bool = False,
        token_divisor: int = 1,
        below_grid_sol: bool = False,
    ) -> Gemm:
        """A matrix product, in the worker's dense format by default; `low` where its input is quantised already."""
        mode = self.quantisation.gemm if mode is None else mode
        return Gemm(f"{self.name}_{name}", scale, n, k, mode, low, token_divisor, self.split, below_grid_sol)

    def elementwise(self, name: str, scale: float, read: int, write: int, token_divisor: int = 1) -> Elementwise:
        """An operator that reads and writes so many 16-bit values a token."""
        moved = BYTES_16BIT * (read + write)
        return Elementwise(f"{self.name}_{name}", scale, moved, token_divisor=token_divisor, seq_split=self.split)

    def embedding(self, ranks: int = 1) -> Embedding:
        """The embedding, its rows divided among `ranks`."""
        model = self.model
        rows = model.vocab_size // ranks
        return Embedding(f"{self.name}_embedding", self.once, rows, model.hidden_size, seq_split=self.split)

    def logits(self) -> Gemm:
        """The vocabulary projection; its weights are those of the embedding where the model ties them."""
        rows = self.model.vocab_size // self.parallel.tp
        head = self.gemm("logits_gemm", self.once, rows, self.model.hidden_size, "bfloat16")
        return dataclasses.replace(head, borrowed=self.model.tied_embeddings)

    def all_reduce(self, name: str, scale: float) -> AllReduce:
        """Sum of the hidden states over the tensor-parallel ranks."""
        hidden, tp = self.model.hidden_size, self.parallel.tp
        return AllReduce(f"{self.name}_{name}", scale, hidden, tp, seq_split=self.split)

    def hand_over(self) -> P2P:
        """Hidden states passed from stage to stage of the pipeline."""
        pp = self.parallel.pp
        return P2P(f"{self.name}_p2p", (pp - 1) * self.once, self.model.hidden_size, pp, seq_split=self.split)

    def attention(
        self,
        scale: float,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        window: int = 0,
        qk_norm: bool = False,
        cp: int = 1,
    ) -> ContextAttention | GenerationAttention:
        """Attention with so many heads on one GPU."""
        shape = (f"{self.name}_attention", scale, heads, kv_heads, head_dim, self.quantisation.kvcache)
        if not self.prefill:
            return GenerationAttention(*shape, window=window)
        return ContextAttention(*shape, self.quantisation.fmha, window=window, qk_norm=qk_norm, cp=cp)

    def kv_gather(self, scale: float, kv_bytes: float, name: str = "cp_all_gather") -> tuple[Nccl, ...]:
        """Exchange of the cache of a split prefill: bytes of one token in one layer; nothing where it is not split."""
        cp, comm = self.parallel.cp, self.quantisation.comm
        if not self.prefill or cp == 1:
            return ()
        return (Nccl(f"{self.name}_{name}", scale, "all_gather", kv_bytes / quant.COMM[comm].bytes, cp, comm),)

    def tp_exchange(self, operation: str) -> tuple[Nccl, ...]:
        """Hidden states of a prefill gathered from the ranks that share its tokens, or scattered to them."""
        tp, comm = self.parallel.tp, self.quantisation.comm
        if not self.prefill or tp == 1:
            return ()
        return (Nccl(f"{self.name}_tp_{operation}", self.every, operation, self.model.hidden_size, tp, comm),)

    def gated_ffn(
        self,
        names: tuple[str, str, str],
        scale: float,
        size: int,
        ranks: int = 1,
        mode: str | None = None,
        *,
        low: bool = False,
        token_divisor: int = 1,
    ) -> tuple[Gemm, Elementwise, Gemm]:
        """A gated feed-forward of `size`, divided among `ranks`."""
        hidden, up, down = self.model.hidden_size, 2 * size // ranks, size // ranks
        return (
            self.gemm(names[0], scale, up, hidden, mode, token_divisor=token_divisor),
            self.elementwise(names[1], scale, up, down, token_divisor),
            self.gemm(names[2], scale, hidden, down, mode, low=low, token_divisor=token_divisor),
        )


def phases(
    model: ModelConfig,
    parallel: Parallel,
    quantisation: Quantisation,
    backend: str,
    nextn: int,
    decode_share: float = 1.0,
) -> tuple[Phase, Phase]:
    """Prefill and decode step; `nextn` drafts add that many layers' share to every decode operator."""
    shared = (model, parallel, quantisation, backend)
    drafted = (model.layers + nextn) / model.layers
    return Phase("context", *shared, 1.0, parallel.cp), Phase("generation", *shared, drafted, 1, decode_share)


def kv_layer_bytes(model: ModelConfig, parallel: Parallel, quantisation: Quantisation) -> float:
    """Keys and values of one token in one layer on one GPU [bytes]."""
    return 2 * kv_heads_per_gpu(model, parallel) * model.head_dim * quant.KVCACHE[quantisation.kvcache].bytes


def grouped_attention(phase: Phase, scale: float, window: int = 0) -> ContextAttention | GenerationAttention:
    """Attention with the heads of the config; KV heads are replicated where there are fewer than ranks."""
    model, parallel = phase.model, phase.parallel
    heads, kv_heads = model.num_heads // parallel.tp, kv_heads_per_gpu(model, parallel)
    return phase.attention(scale, heads, kv_heads, model.head_dim, window=window, qk_norm=model.qk_norm, cp=parallel.cp)


def grouped_attention_block(phase: Phase, attention_scale: float | None = None) -> tuple[Op, ...]:
    """Norm, projections and attention of every layer, and the norm after them.

    Args:
        phase: The list it is for.
        attention_scale: How often the full attention runs, where not in every layer.
    """
    model, parallel, hidden, every = phase.model, phase.parallel, phase.model.hidden_size, phase.every
    width = model.num_heads * model.head_dim // parallel.tp
    kv_width = 2 * model.head_dim * kv_heads_per_gpu(model, parallel)
    return (
        phase.elementwise("add_norm_1", every, 2 * hidden, 2 * hidden),
        phase.gemm("qkv_gemm", every, width + kv_width, hidden),
        grouped_attention(phase, every if attention_scale is None else attention_scale),
        *phase.kv_gather(every, kv_layer_bytes(model, parallel, phase.quantisation)),
        phase.gemm("proj_gemm", every, hidden, width, low=True),
        phase.elementwise("add_norm_2", every, 2 * hidden, 2 * hidden),
    )
