# SPDX-License-Identifier: Apache-2.0
"""Records of expert operators: routed experts and the exchanges around them. Conventions as in `records`."""

from dataclasses import dataclass

from aicjax import quant


@dataclass(frozen=True)
class Moe:
    """Routed experts of a layer, sharded over `moe_tp` x `moe_ep` GPUs; tokens of all `attention_dp` ranks meet.

    Its roofline reads as many experts as there are routed tokens, or those `expected` to be hit.
    """

    name: str
    scale: float
    hidden_size: int
    inter_size: int
    topk: int
    num_experts: int
    moe_tp: int
    moe_ep: int
    attention_dp: int
    quant: str
    distribution: str
    gated: bool = True
    eplb: bool = False
    context: bool = True
    expected: bool = False
    seq_split: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for, whole bytes per GPU and layer."""
        size = self.hidden_size * self.inter_size * self.num_experts * quant.MOE[self.quant].bytes
        return size * (3 if self.gated else 2) // self.moe_ep // self.moe_tp * self.scale


@dataclass(frozen=True)
class MoeDispatch:
    """Exchange of tokens before (`pre`) or after the experts of a fused mixture, with the attention all-reduce."""

    name: str
    scale: float
    hidden_size: int
    topk: int
    num_experts: int
    moe_tp: int
    moe_ep: int
    attention_dp: int
    pre: bool
    quant: str
    attention_cp: int = 1
    context: bool = True
    attention_reduced: bool = False
    comm_quant: str = "half"
    compressed_on_one_sm: bool = False
    seq_split: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MoeAllToAll:
    """Dispatch or combine of large expert parallelism, by its communication library."""

    name: str
    scale: float
    phase: str
    comm_backend: str
    comm_dtype: str
    hidden_size: int
    topk: int
    num_experts: int
    moe_ep: int
    nodes: int
    sms: int
    attention_tp: int = 1
    seq_split: int = 1
    weight_bytes: float = 0.0


@dataclass(frozen=True)
class MoeExpertCompute:
    """Experts of one GPU of large expert parallelism, without the exchange."""

    name: str
    scale: float
    hidden_size: int
    inter_size: int
    topk: int
    num_experts: int
    moe_ep: int
    attention_dp: int
    quant: str
    distribution: str
    phase: str
    num_slots: int
    gated: bool = True
    eplb: bool = False
    seq_split: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for, whole bytes per GPU and layer."""
        size = self.hidden_size * self.inter_size * self.num_experts * quant.MOE[self.quant].bytes
        return size * (3 if self.gated else 2) // self.moe_ep * self.scale


@dataclass(frozen=True)
class MegaMoe:
    """Dispatch, experts and combine in one kernel, on the tokens of one rank."""

    name: str
    scale: float
    hidden_size: int
    inter_size: int
    topk: int
    num_experts: int
    moe_ep: int
    quant: str
    distribution: str
    phase: str
    seq_split: int = 1

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of all layers it stands for, whole bytes per GPU and layer."""
        size = self.hidden_size * self.inter_size * self.num_experts * quant.MOE[self.quant].bytes
        return size * 3 // self.moe_ep * self.scale
