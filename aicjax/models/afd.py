# SPDX-License-Identifier: Apache-2.0
"""Deployments with attention and feed-forward layers on GPUs of their own: topology, operators, exchange.

Attention workers run data-parallel, feed-forward GPUs as one replica. The token states of every layer go from an
attention GPU to the feed-forward nodes and back.
"""

import math
from dataclasses import dataclass

from aicjax import quant
from aicjax._results import InputError
from aicjax.models.attention_ffn import split_sides
from aicjax.models.model import ModelConfig
from aicjax.models.operators import op_lists
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import P2P, Elementwise, Nccl, OpLists


@dataclass(frozen=True)
class AfdTopology:
    """Nodes of the two pools and how a model is cut within them.

    Attributes:
        attention_nodes, ffn_nodes: Nodes of each pool.
        gpus_per_node: GPUs of a node.
        attention_tp: Tensor parallel GPUs of an attention worker.
        ffn_ep: Expert parallel GPUs; the rest of the feed-forward pool cuts experts by tensor parallelism.
    """

    attention_nodes: int
    ffn_nodes: int
    gpus_per_node: int
    attention_tp: int = 1
    ffn_ep: int = 1

    def __post_init__(self) -> None:
        if self.gpus_per_node % self.attention_tp:
            raise InputError("a_tp_size", self.attention_tp, f"a divisor of {self.gpus_per_node}, the GPUs of a node")
        if self.ffn_gpus % self.ffn_ep:
            raise InputError("f_moe_ep_size", self.ffn_ep, f"a divisor of {self.ffn_gpus}, the feed-forward GPUs")

    @property
    def attention_workers(self) -> int:
        """Attention workers, each with requests of its own."""
        return self.attention_nodes * self.gpus_per_node // self.attention_tp

    @property
    def ffn_gpus(self) -> int:
        """GPUs of the feed-forward pool."""
        return self.ffn_nodes * self.gpus_per_node

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.attention_nodes * self.gpus_per_node + self.ffn_gpus

    @property
    def label(self) -> str:
        """The topology in one word, for example `a1n-tp1+f1n-ep8`."""
        return f"a{self.attention_nodes}n-tp{self.attention_tp}+f{self.ffn_nodes}n-ep{self.ffn_ep}"

    def layouts(self, model: ModelConfig) -> tuple[Parallel, Parallel]:
        """Layouts of an attention worker and of the feed-forward pool.

        Raises:
            InputError: Expert parallelism of a model without experts.
        """
        if model.is_moe:
            cut = Parallel(self.ffn_gpus, moe_tp=self.ffn_gpus // self.ffn_ep, moe_ep=self.ffn_ep)
            return Parallel(self.attention_tp, moe_tp=self.attention_tp, moe_ep=1), cut
        if self.ffn_ep > 1:
            raise InputError("f_moe_ep_size", self.ffn_ep, f"1 for {model.name}, which has no experts")
        return Parallel(self.attention_tp), Parallel(self.ffn_gpus)


@dataclass(frozen=True)
class AfdOperators:
    """Operators of the two pools, all layers of a pass, and of the transfer between them, one layer.

    Attributes:
        attention: Of an attention GPU, with the sum over what expert ranks send back; per token of the worker.
        ffn: Of a feed-forward GPU, with the exchange within its node; per token of all attention workers.
        transfer: One way between an attention and a feed-forward GPU; per token of the attention worker.
    """

    attention: OpLists
    ffn: OpLists
    transfer: OpLists


def afd_operators(
    model: ModelConfig,
    topology: AfdTopology,
    quantisation: Quantisation,
    backend: str,
    nextn: int = 0,
    *,
    boundary_on_attention: bool = True,
) -> AfdOperators:
    """Operators of a deployment.

    Args:
        model: The model.
        topology: Nodes and cuts.
        quantisation: Number formats.
        backend: `trtllm`, `vllm` or `sglang`.
        nextn: Draft tokens of a decode step.
        boundary_on_attention: Whether norms between the two sides and the vocabulary projection run with attention.

    Raises:
        InputError: A cut that the model does not have.
        UnsupportedModel: An operator is on no side.
    """
    lists = [op_lists(model, layout, quantisation, backend, nextn) for layout in topology.layouts(model)]
    attention = split_sides(lists[0], boundary_on_attention=boundary_on_attention).attention
    ffn = split_sides(lists[1], boundary_on_attention=boundary_on_attention).ffn
    share = send_share(model.num_experts, model.topk, topology.ffn_nodes)
    layers, form, width = model.layers, quantisation.comm, share * model.hidden_size
    width_bytes = model.hidden_size * quant.COMM[form].bytes
    transfer = P2P("transfer", 1.0, share * width_bytes / quant.COMM["half"].bytes, pp=2)
    node = min(topology.ffn_gpus, topology.gpus_per_node)
    exchange = [
        Nccl(f"ffn_{operation}", layers, operation, width / node, node, form)
        for operation in ("all_gather", "reduce_scatter")
    ]
    combine = []
    if topology.ffn_ep > 1:
        moved = (topology.ffn_ep + 1) * width_bytes
        combine = [Elementwise("attention_combine", layers, moved, seq_split=topology.attention_tp)]
    return AfdOperators(
        attention=OpLists((*attention.context, *combine), (*attention.generation, *combine)),
        ffn=OpLists((*ffn.context, *exchange), (*ffn.generation, *exchange)),
        transfer=OpLists((transfer,), (transfer,)),
    )


def send_share(experts: int, topk: int, nodes: int) -> float:
    """Chance that a token goes to a feed-forward node: 1 - C(E - E/n, k) / C(E, k), or 1/n without experts."""
    elsewhere = experts - experts // nodes
    if nodes == 1 or topk == 0 or elsewhere == experts:
        return 1 / nodes
    return 1 - math.comb(elsewhere, topk) / math.comb(experts, topk)
