# SPDX-License-Identifier: Apache-2.0
"""Records of latent attention: kernels, products and whole blocks. Conventions as in `records`."""

from dataclasses import dataclass


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
