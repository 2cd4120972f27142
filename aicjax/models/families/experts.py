# SPDX-License-Identifier: Apache-2.0
"""Routed and shared experts as families write them, on top of `blocks`."""

from aicjax.models.families.blocks import Operators, Phase
from aicjax.ops.records import Gemm, Moe, MoeDispatch, Overlap

SHARED_EXPERT = ("shared_gate_up_gemm", "shared_act_gate", "shared_ffn2_gemm")
STEEP_LOAD, LOAD = "power_law_1.2", "power_law_1.01"  # how unevenly tokens hit the experts, as it was measured
_MANY_EXPERTS = 128


def router(phase: Phase, scale: float, tag: str = "") -> Gemm:
    """Scores of all experts, on every GPU."""
    model = phase.model
    return phase.gemm(f"{tag}router_gemm", scale, model.num_experts, model.hidden_size, "bfloat16")


def router_of_many(phase: Phase, scale: float, tag: str = "") -> tuple[Gemm, ...]:
    """The router as some families list it: left out where there are few experts."""
    return (router(phase, scale, tag),) if phase.model.num_experts >= _MANY_EXPERTS else ()


def exchange(
    phase: Phase,
    scale: float,
    *,
    pre: bool,
    hidden_size: int | None = None,
    quant: str | None = None,
    cp: int = 1,
    context: bool = True,
    attention_reduced: bool = False,
    tag: str = "",
) -> MoeDispatch:
    """Tokens sent to the GPUs of their experts (`pre`) or results sent back.

    Args:
        phase: The list it is for.
        scale: How often it runs.
        pre: Whether it is the one before the experts.
        hidden_size: Values of a token that travel; the hidden size by default.
        quant: Format they travel in; that of the experts by default.
        cp: Ranks that share the tokens of a sequence.
        context: Whether they then exchange tokens as in a prefill.
        attention_reduced: Whether the sum over attention ranks is listed as an operator of its own.
        tag: Middle of the name.
    """
    model, parallel = phase.model, phase.parallel
    return MoeDispatch(
        name=f"{phase.name}_{tag}moe_{'pre' if pre else 'post'}_dispatch",
        scale=scale,
        hidden_size=model.hidden_size if hidden_size is None else hidden_size,
        topk=model.topk,
        num_experts=model.num_experts,
        moe_tp=parallel.moe_tp,
        moe_ep=parallel.moe_ep,
        attention_dp=parallel.dp,
        pre=pre,
        quant=phase.quantisation.moe if quant is None else quant,
        attention_cp=cp,
        context=context,
        attention_reduced=attention_reduced,
        comm_quant=phase.quantisation.comm,
    )


def experts(
    phase: Phase,
    scale: float,
    load: str,
    *,
    hidden_size: int | None = None,
    gated: bool = True,
    context: bool = True,
    tag: str = "",
) -> Moe:
    """The routed experts of one GPU; `load` names how unevenly tokens hit them."""
    model, parallel = phase.model, phase.parallel
    return Moe(
        name=f"{phase.name}_{tag}moe",
        scale=scale,
        hidden_size=model.hidden_size if hidden_size is None else hidden_size,
        inter_size=model.moe_intermediate_size,
        topk=model.topk,
        num_experts=model.num_experts,
        moe_tp=parallel.moe_tp,
        moe_ep=parallel.moe_ep,
        attention_dp=parallel.dp,
        quant=phase.quantisation.moe,
        distribution=load,
        gated=gated,
        context=context,
    )


def routed_experts(
    phase: Phase,
    scale: float,
    load: str,
    *,
    quant: str | None = None,
    cp: int = 1,
    context: bool = True,
    tag: str = "",
) -> Operators:
    """Router, exchange, experts and exchange back; arguments as in `exchange` and `experts`."""
    before, after = (
        exchange(phase, scale, pre=pre, quant=quant, cp=cp, context=context, tag=tag) for pre in (True, False)
    )
    return router(phase, scale, tag), before, experts(phase, scale, load, tag=tag), after


def beside_shared(phase: Phase, routed: Operators, shared: Operators) -> Operators:
    """Routed experts and the shared one: one after the other in a prefill, at the same time in a decode step."""
    if phase.prefill:
        return *shared, *routed
    return (Overlap(f"{phase.name}_moe_overlap", routed, shared),)
