# SPDX-License-Identifier: Apache-2.0
"""Records of recurrent layers (state-space and linear-attention kernels) and of hyper-connections, as in `records`.

`kernel` names the implementation, `phase` is `context`, `generation` or (KDA) `verify`, `d_model` the model's width.
"""

from dataclasses import dataclass

from aicjax import quant


@dataclass(frozen=True)
class Mamba2:
    """One Mamba2 kernel, driven by (batch, new tokens); all heads and groups of the model, whatever the layout."""

    name: str
    scale: float
    kernel: str
    phase: str
    d_model: int
    d_state: int
    d_conv: int
    num_heads: int
    head_dim: int
    n_groups: int
    chunk_size: int
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class Gdn:
    """One kernel of gated delta-rule attention, driven by (batch, new tokens)."""

    name: str
    scale: float
    kernel: str
    phase: str
    d_model: int
    d_conv: int
    num_k_heads: int
    head_k_dim: int
    num_v_heads: int
    head_v_dim: int
    state_dtype: str = "float32"
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class Kda:
    """One kernel of Kimi delta attention, driven by (batch, new tokens); `draft_tokens` a sequence to verify."""

    name: str
    scale: float
    kernel: str
    phase: str
    d_model: int
    d_conv: int
    num_k_heads: int
    head_k_dim: int
    num_v_heads: int
    head_v_dim: int
    draft_tokens: int = 0
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class Mhc:
    """Hyper-connections of `hc_mult` residual streams: mixed before a block (`pre`), after it (`post`), or `both`."""

    name: str
    scale: float
    part: str
    hc_mult: int
    hidden_size: int
    sinkhorn_iters: int
    quant: str = "bfloat16"
    seq_split: int = 1

    @property
    def weight_count(self) -> int:
        """Mixing weights of a layer, those of attention and of the feed-forward block."""
        mixes = self.hc_mult * (self.hc_mult + 2)
        return 2 * (mixes * self.hc_mult * self.hidden_size + mixes + 3)

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for, whichever part it is."""
        return self.weight_count * quant.GEMM[self.quant].bytes * self.scale
