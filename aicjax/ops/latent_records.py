# SPDX-License-Identifier: Apache-2.0
"""Records of latent attention: kernels, products and whole blocks, dense or sparse. Conventions as in `records`."""

from dataclasses import dataclass

from aicjax import quant


@dataclass(frozen=True)
class ContextMla:
    """Latent attention of a prefill with expanded keys, driven by (batch, new tokens, prefix)."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    cp: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class GenerationMla:
    """Latent attention of a decode step with absorbed weights, driven by (batch, KV length)."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MlaBmm:
    """Product of every head with its absorbed weight before (`pre`) or after decode attention."""

    name: str
    scale: float
    num_heads: int
    quant: str
    pre: bool
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MlaModuleContext:
    """A whole latent-attention block of a prefill, projections included; `native_heads` before the split by TP."""

    name: str
    scale: float
    num_heads: int
    native_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MlaModuleGeneration:
    """A whole latent-attention block of a decode step, fields as `MlaModuleContext`."""

    name: str
    scale: float
    num_heads: int
    native_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class WideEpContextMla:
    """Latent-attention block of a prefill under large expert parallelism, after the first projection."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    kernel: str = "flashinfer"
    cp: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class WideEpGenerationMla:
    """Latent-attention block of a decode step under large expert parallelism."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    kernel: str = "flashinfer"
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class DsaShape:
    """Widths of latent attention with an indexer, of the whole model.

    Attributes:
        hidden_size: Width of the residual stream.
        q_rank, kv_rank: Widths of the latent queries and of the latent keys and values.
        nope_dim, rope_dim, v_dim: Sizes of a head: keys without and with rotation, values.
        index_heads, index_dim: Heads of the indexer and their size.
        index_topk: Tokens the indexer keeps.
    """

    hidden_size: int
    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    index_heads: int
    index_dim: int
    index_topk: int

    def weight_bytes(self, heads: int, quants: tuple[str, str, str, str]) -> float:
        """Bytes of weights of one layer with so many heads; formats of the (q, kv, o, indexer) projections."""
        elements = (
            self.hidden_size * self.q_rank + self.q_rank * heads * (self.nope_dim + self.rope_dim),
            self.hidden_size * (self.kv_rank + self.rope_dim) + self.kv_rank * heads * (self.nope_dim + self.v_dim),
            heads * self.v_dim * self.hidden_size,
            self.q_rank * self.index_dim * self.index_heads + self.hidden_size * self.index_heads,
        )
        return sum(count * quant.GEMM[mode].bytes for count, mode in zip(elements, quants, strict=True))


@dataclass(frozen=True)
class DsaContext:
    """A whole sparse latent-attention block of a prefill; `full_fraction` of the layers run the indexer."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: DsaShape
    projection_quants: tuple[str, str, str, str]
    full_fraction: float = 1.0
    cp: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for."""
        return self.shape.weight_bytes(self.num_heads, self.projection_quants) * self.scale


@dataclass(frozen=True)
class DsaGeneration:
    """A whole sparse latent-attention block of a decode step, fields as `DsaContext`."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: DsaShape
    projection_quants: tuple[str, str, str, str]
    full_fraction: float = 1.0

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for."""
        return self.shape.weight_bytes(self.num_heads, self.projection_quants) * self.scale
