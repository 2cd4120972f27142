# SPDX-License-Identifier: Apache-2.0
"""Operators of one forward pass as records: what a model family lists and an operator module binds.

All shapes are per GPU. `scale` multiplies the latency (usually the number of layers). `seq_split` divides the
tokens with ceil (context parallel); `token_divisor` divides them first, with floor.
"""

from dataclasses import dataclass

from aicjax import quant
from aicjax.ops.dsv4_records import Dsv4Context as Dsv4Context
from aicjax.ops.dsv4_records import Dsv4Generation as Dsv4Generation
from aicjax.ops.dsv4_records import Dsv4Shape as Dsv4Shape
from aicjax.ops.latent_records import ContextMla as ContextMla
from aicjax.ops.latent_records import DsaContext as DsaContext
from aicjax.ops.latent_records import DsaGeneration as DsaGeneration
from aicjax.ops.latent_records import DsaShape as DsaShape
from aicjax.ops.latent_records import GenerationMla as GenerationMla
from aicjax.ops.latent_records import MlaBmm as MlaBmm
from aicjax.ops.latent_records import MlaModuleContext as MlaModuleContext
from aicjax.ops.latent_records import MlaModuleGeneration as MlaModuleGeneration
from aicjax.ops.latent_records import WideEpContextMla as WideEpContextMla
from aicjax.ops.latent_records import WideEpGenerationMla as WideEpGenerationMla
from aicjax.ops.moe_records import MegaMoe as MegaMoe
from aicjax.ops.moe_records import Moe as Moe
from aicjax.ops.moe_records import MoeAllToAll as MoeAllToAll
from aicjax.ops.moe_records import MoeDispatch as MoeDispatch
from aicjax.ops.moe_records import MoeExpertCompute as MoeExpertCompute
from aicjax.ops.msa_records import DsaStandIn as DsaStandIn
from aicjax.ops.msa_records import MsaContext as MsaContext
from aicjax.ops.msa_records import MsaGeneration as MsaGeneration
from aicjax.ops.msa_records import MsaShape as MsaShape
from aicjax.ops.recurrent_records import Gdn as Gdn
from aicjax.ops.recurrent_records import Kda as Kda
from aicjax.ops.recurrent_records import Mamba2 as Mamba2
from aicjax.ops.recurrent_records import Mhc as Mhc


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
    borrowed: bool = False

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for; none where another operator's are `borrowed`."""
        return 0.0 if self.borrowed else self.n * self.k * quant.GEMM[self.quant].bytes * self.scale

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
    """Hand-over of `hidden_size` 16-bit elements a token (may be fractional) between pipeline stages."""

    name: str
    scale: float
    hidden_size: float
    pp: int
    seq_split: int = 1
    weight_bytes: float = 0.0


MoeOp = Moe | MoeDispatch | MoeAllToAll | MoeExpertCompute | MegaMoe
TokenOp = Gemm | Elementwise | Embedding | AllReduce | Nccl | P2P | MoeOp | Mhc
AttentionOp = ContextAttention | GenerationAttention | EncoderAttention
MlaOp = ContextMla | GenerationMla | MlaBmm | MlaModuleContext | MlaModuleGeneration
WideEpMlaOp = WideEpContextMla | WideEpGenerationMla
RecurrentOp = Mamba2 | Gdn | Kda
SparseOp = DsaContext | DsaGeneration | MsaContext | MsaGeneration | Dsv4Context | Dsv4Generation
SequenceOp = AttentionOp | SparseOp | MlaOp | WideEpMlaOp | RecurrentOp
Op = TokenOp | SequenceOp


@dataclass(frozen=True)
class Overlap:
    """Two chains of operators that run at the same time: the longer one counts."""

    name: str
    first: "tuple[Op | Overlap | Fallback, ...]"
    second: "tuple[Op | Overlap | Fallback, ...]"

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of both chains."""
        return sum(op.weight_bytes for op in (*self.first, *self.second))


@dataclass(frozen=True)
class Fallback:
    """An operator measured as a whole, and the chain that stands in where its shape was not measured."""

    name: str
    primary: "Op"
    fallback: "tuple[Op | Overlap | Fallback, ...]"

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights: the primary's own, or the chain's where it states none."""
        return self.primary.weight_bytes or sum(op.weight_bytes for op in self.fallback)


@dataclass(frozen=True)
class OpLists:
    """The operators of one model in one layout.

    Attributes:
        context: Operators of a prefill, in order.
        generation: Operators of a decode step, in order.
        encoder: Operators of a vision encoder; empty for workers without one.
        image_ranks: Ranks that share out the images of a batch.
    """

    context: tuple[Op | Overlap | Fallback, ...]
    generation: tuple[Op | Overlap | Fallback, ...]
    encoder: tuple[Op, ...] = ()
    image_ranks: int = 1
