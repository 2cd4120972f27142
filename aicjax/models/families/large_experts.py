# SPDX-License-Identifier: Apache-2.0
"""Experts over many GPUs as families write them: exchange through a library, and whole shared experts."""

from aicjax.models.families.blocks import DENSE_FFN, Operators, Phase
from aicjax.models.families.experts import router, shared_expert
from aicjax.models.large_ep import LargeEp, exchange_format, expert_load, large_ep_facts, shares_attention_tokens
from aicjax.ops.records import MoeAllToAll, MoeExpertCompute, Overlap


def large_experts(
    phase: Phase, load: str, plan: LargeEp, *, shared: str | None = None, routed_here: bool = True
) -> Operators:
    """The expert block of every layer that has experts.

    Args:
        phase: The list it is for.
        load: How unevenly tokens hit the experts.
        plan: Libraries of the worker.
        shared: Format of the shared expert, which every GPU holds whole; None for families without one.
        routed_here: Whether the router is listed; some engines run it with attention.
    """
    steps = large_ep_facts()["libraries"][plan.library(phase.name)]["steps"]
    first = (router(phase, phase.with_experts),) if routed_here else ()
    before = tuple(_exchange(phase, plan, step) for step in steps[:-1])
    routed = (*before, _experts(phase, load, plan), _exchange(phase, plan, steps[-1]))
    rest = () if shared is None else _shared(phase, shared)
    if not rest:
        return first + routed
    if phase.backend != "trtllm":
        return first + rest + routed
    hidden = phase.model.hidden_size
    added = phase.whole.elementwise("moe_reduce_add", phase.with_experts, 2 * hidden, hidden)
    if phase.prefill:
        return *first, *rest, *routed, added
    return Overlap(f"{phase.name}_moe_overlap", first + routed, rest), added


def _exchange(phase: Phase, plan: LargeEp, step: str) -> MoeAllToAll:
    model, parallel, library = phase.model, phase.parallel, plan.library(phase.name)
    shared_tokens = phase.prefill and shares_attention_tokens(library)
    return MoeAllToAll(
        name=f"{phase.name}_moe_{step}",
        scale=phase.with_experts,
        phase=step,
        comm_backend=library,
        comm_dtype=exchange_format(library, phase.quantisation.moe, phase.name, step),
        hidden_size=model.hidden_size,
        topk=model.topk,
        num_experts=model.num_experts,
        moe_ep=parallel.moe_ep,
        nodes=plan.nodes,
        sms=large_ep_facts()["libraries"][library]["sms"],
        attention_tp=parallel.tp * parallel.cp if shared_tokens else 1,
    )


def _experts(phase: Phase, load: str, plan: LargeEp) -> MoeExpertCompute:
    model, parallel = phase.model, phase.parallel
    return MoeExpertCompute(
        name=f"{phase.name}_moe",
        scale=phase.with_experts,
        hidden_size=model.hidden_size,
        inter_size=model.moe_intermediate_size,
        topk=model.topk,
        num_experts=model.num_experts,
        moe_ep=parallel.moe_ep,
        attention_dp=parallel.dp,
        quant=phase.quantisation.moe,
        distribution=expert_load(load, plan, phase.backend, phase.name),
        phase=phase.name,
        num_slots=plan.slots or model.num_experts,
        eplb=plan.balanced and shares_attention_tokens(plan.library(phase.name)),
    )


def _shared(phase: Phase, mode: str) -> Operators:
    """Shared experts, whole on every GPU; where ranks of attention share tokens, each sees its part of a prefill."""
    if phase.backend == "trtllm":
        return shared_expert(phase.whole, 1, mode)
    model = phase.model
    size = model.extra["shared_experts"] * model.moe_intermediate_size
    if not size:
        return ()
    return phase.gated_ffn(
        DENSE_FFN, phase.with_experts, size, mode=mode, token_divisor=phase.parallel.tp if phase.prefill else 1
    )
