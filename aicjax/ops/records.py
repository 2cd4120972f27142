# SPDX-License-Identifier: Apache-2.0
"""Operators of one forward pass as records: what a model family lists and an operator module binds.

All shapes are per GPU. `scale` multiplies the latency (usually the number of layers). `seq_split` divides the
tokens with ceil (context parallel); `token_divisor` divides them first, with floor.
"""

from dataclasses import dataclass

from aicjax import quant


@dataclass(frozen=True)
class Gemm:
    """Matrix product of `m` tokens by an `n` x `k` weight."""

    name: str
    scale: float
    n: int
    k: int
    quant: str
    low_precision_input: bool = False
    token_divisor: int = 1
    seq_split: int = 1
    below_grid_sol: bool = False

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for."""
        return self.n * self.k * quant.GEMM[self.quant].bytes * self.scale

    @property
    def last_token_only(self) -> bool:
        """Whether a prefill runs it on the last token of each request: the vocabulary projection."""
        return "logits_gemm" in self.name


@dataclass(frozen=True)
class Elementwise:
    """Memory-bound operator that moves `bytes_per_token`."""

    name: str
    scale: float
    bytes_per_token: float
    token_divisor: int = 1
    seq_split: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class Embedding:
    """Table look-up of `vocab_size` x `hidden_size`."""

    name: str
    scale: float
    vocab_size: int
    hidden_size: int
    quant: str = "bfloat16"
    seq_split: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of the table."""
        return self.vocab_size * self.hidden_size * quant.GEMM[self.quant].bytes * self.scale


@dataclass(frozen=True)
class ContextAttention:
    """Causal prefill attention, driven by (batch, new tokens, prefix)."""

    name: str
    scale: float
    num_heads: int
    num_kv_heads: int
    head_size: int
    kv_quant: str
    fmha_quant: str
    window: int = 0
    qk_norm: bool = False
    cp: int = 1
    seq_imbalance: float = 1.0
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class GenerationAttention:
    """Decode attention, driven by (batch, KV length)."""

    name: str
    scale: float
    num_heads: int
    num_kv_heads: int
    head_size: int
    kv_quant: str
    window: int = 0
    seq_imbalance: float = 1.0
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class EncoderAttention:
    """Non-causal attention, driven by (batch, sequence)."""

    name: str
    scale: float
    num_heads: int
    head_size: int
    fmha_quant: str = "bfloat16"
    partial_rotary_factor: float = 0.0
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class AllReduce:
    """Tensor-parallel all-reduce of `hidden_size` elements a token over `tp` GPUs."""

    name: str
    scale: float
    hidden_size: int
    tp: int
    quant: str = "half"
    seq_split: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class Nccl:
    """NCCL collective of `elements_per_token` (may be fractional) over `num_gpus`."""

    name: str
    scale: float
    operation: str
    elements_per_token: float
    num_gpus: int
    quant: str = "half"
    seq_split: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class P2P:
    """Hand-over of `hidden_size` 16-bit elements a token between pipeline stages."""

    name: str
    scale: float
    hidden_size: int
    pp: int
    seq_split: int = 1
    weight_bytes: float = 0.0


TokenOp = Gemm | Elementwise | Embedding | AllReduce | Nccl | P2P
AttentionOp = ContextAttention | GenerationAttention | EncoderAttention
Op = TokenOp | AttentionOp


@dataclass(frozen=True)
class OpLists:
    """The operators of one model in one layout.

    Attributes:
        context: Operators of a prefill, in order.
        generation: Operators of a decode step, in order.
        encoder: Operators of a vision encoder; empty for text models.
    """

    context: tuple[Op, ...]
    generation: tuple[Op, ...]
    encoder: tuple[Op, ...] = ()
