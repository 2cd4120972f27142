# SPDX-License-Identifier: Apache-2.0
"""Records of block-sparse grouped-query attention. Conventions as in `records`."""

from dataclasses import dataclass

from aicjax.ops.latent_records import DsaShape


@dataclass(frozen=True)
class MsaShape:
    """Widths of grouped-query attention over the blocks that an indexer keeps.

    Attributes:
        num_kv_heads: Key/value heads on a GPU.
        hidden_size: Width of the residual stream.
        head_dim, v_dim: Size of a head of queries and keys, and of values.
        index_heads, index_dim: Heads of the indexer and their size.
        index_topk: Tokens the indexer keeps.
        block_size: Tokens of one block.
    """

    num_kv_heads: int
    hidden_size: int
    head_dim: int
    v_dim: int
    index_heads: int
    index_dim: int
    index_topk: int
    block_size: int


@dataclass(frozen=True)
class DsaStandIn:
    """Sparse latent attention whose utilisation stands in where a shape was not measured.

    Attributes:
        architecture: Architecture whose measurements are used.
        shape: Its widths.
        scale: Utilisation of this attention over that of the other.
    """

    architecture: str
    shape: DsaShape
    scale: float = 1.0


@dataclass(frozen=True)
class MsaContext:
    """A whole block-sparse attention block of a prefill, driven by (batch, new tokens, prefix)."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: MsaShape
    stand_in: DsaStandIn
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MsaGeneration:
    """A whole block-sparse attention block of a decode step, fields as `MsaContext`."""

    name: str
    scale: float
    num_heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: MsaShape
    stand_in: DsaStandIn
    weight_bytes: float = 0.0
