# SPDX-License-Identifier: Apache-2.0
"""What a model family has to say; one module per family fills it in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aicjax.models.kvcache import KvCache
from aicjax.models.large_ep import LargeEp
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

PrefillTable = tuple[str, str]  # a table and its column with the format of the attention
ATTENTION_TABLES: tuple[PrefillTable, ...] = (("context_attention_perf", "attn_dtype"),)
MLA_TABLES: tuple[PrefillTable, ...] = (("context_mla_perf", "mla_dtype"), ("mla_context_module_perf", "mla_dtype"))


def _no_extra(fields: ConfigFields) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Family:
    """Models that share one operator list.

    Attributes:
        name: Name of the family.
        is_moe: Whether a model with these routed experts and extra facts has experts to place.
        extra: Facts of the config that only this family reads.
        op_lists: Operators of a model in a layout, (model, parallel, quantisation, backend, draft depth); None
            where the family can be read but not yet priced.
        large_op_lists: Operators with experts over many GPUs, same arguments and the plan of their exchange; None
            where the family has no such list.
        mega_op_lists: Operators with dispatch, experts and combine in one kernel; None where there is none.
        kv_cache: KV cache of one sequence on one GPU, same arguments.
        context_parallel_backends: Backends that can split its prefill along the sequence.
        prefill_tables: Tables that measure its prefill attention, by backend; `ATTENTION_TABLES` elsewhere.
    """

    name: str
    is_moe: Callable[[int, Mapping[str, Any]], bool]
    extra: Callable[[ConfigFields], Mapping[str, Any]] = _no_extra
    op_lists: Callable[[ModelConfig, Parallel, Quantisation, str, int], OpLists] | None = None
    kv_cache: Callable[[ModelConfig, Parallel, Quantisation, str, int], KvCache] | None = None
    large_op_lists: Callable[[ModelConfig, Parallel, Quantisation, str, int, LargeEp], OpLists] | None = None
    mega_op_lists: Callable[[ModelConfig, Parallel, Quantisation, str, int], OpLists] | None = None
    context_parallel_backends: tuple[str, ...] = ()
    prefill_tables: Mapping[str, tuple[PrefillTable, ...]] = field(default_factory=dict)


def dense(num_experts: int, extra: Mapping[str, Any]) -> bool:
    """No experts, whatever the config says."""
    return False


def mixture(num_experts: int, extra: Mapping[str, Any]) -> bool:
    """Experts, whatever the config says."""
    return True


def as_stated(num_experts: int, extra: Mapping[str, Any]) -> bool:
    """Experts where the config states some."""
    return num_experts > 0


def kv_heads_per_gpu(model: ModelConfig, parallel: Parallel) -> int:
    """Key and value heads on one GPU: replicated where there are fewer heads than ranks."""
    return -(-model.num_kv_heads // parallel.tp)
