# SPDX-License-Identifier: Apache-2.0
"""Records of compressed sparse attention. Conventions as in `records`."""

from dataclasses import dataclass

from aicjax import quant

LIGHT_RATIO = 4  # tokens in an entry of the light compression; the heavy one has no indexer
_HALF_BYTES, _SINGLE_BYTES = quant.GEMM["bfloat16"].bytes, 4


@dataclass(frozen=True)
class Dsv4Shape:
    """Widths of compressed sparse attention; of the whole model but for the output groups.

    Attributes:
        hidden_size: Width of the residual stream.
        q_rank, o_rank: Widths of the latent queries and of one output group.
        head_dim, rope_dim: Size of a head and of its rotated part.
        index_heads, index_dim: Heads of the indexer and their size.
        index_topk: Entries the indexer keeps.
        window: Tokens every layer sees uncompressed.
    """

    hidden_size: int
    q_rank: int
    o_rank: int
    head_dim: int
    rope_dim: int
    index_heads: int
    index_dim: int
    index_topk: int
    window: int

    def weight_bytes(self, ratio: int, heads: int, o_groups: int, gemm_quant: str) -> float:
        """Bytes of weights of one layer with so many heads and output groups on a GPU."""
        overlap = 2 if ratio == LIGHT_RATIO else 1  # neighbouring blocks of the light compression share tokens
        hidden, dim = self.hidden_size, self.head_dim
        quantised = hidden * self.q_rank + self.q_rank * heads * dim + hidden * dim + o_groups * self.o_rank * hidden
        quantised += 2 * hidden * overlap * dim
        half, single = heads * dim * self.o_rank, heads + ratio * overlap * dim
        if ratio == LIGHT_RATIO:  # the indexer and its own compression
            quantised += self.q_rank * self.index_heads * self.index_dim + 4 * hidden * self.index_dim
            half += hidden * self.index_heads
            single += 2 * ratio * self.index_dim
        return quantised * quant.GEMM[gemm_quant].bytes + half * _HALF_BYTES + single * _SINGLE_BYTES


@dataclass(frozen=True)
class Dsv4Context:
    """A whole compressed-attention block of a prefill; `ratio` tokens share one cached entry."""

    name: str
    scale: float
    ratio: int
    num_heads: int
    native_heads: int
    tp: int
    o_groups: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: Dsv4Shape
    cp: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for."""
        return self.shape.weight_bytes(self.ratio, self.num_heads, self.o_groups, self.gemm_quant) * self.scale


@dataclass(frozen=True)
class Dsv4Generation:
    """A whole compressed-attention block of a decode step, fields as `Dsv4Context`."""

    name: str
    scale: float
    ratio: int
    num_heads: int
    native_heads: int
    tp: int
    o_groups: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    architecture: str
    shape: Dsv4Shape

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for."""
        return self.shape.weight_bytes(self.ratio, self.num_heads, self.o_groups, self.gemm_quant) * self.scale
