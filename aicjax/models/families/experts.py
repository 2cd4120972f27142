# SPDX-License-Identifier: Apache-2.0
"""Routed and shared experts as families write them, on top of `blocks`."""

from aicjax.models.families.blocks import Operators, Phase
from aicjax.models.model import ConfigFields
from aicjax.ops.records import Gemm, Moe, MoeDispatch, Overlap

SHARED_EXPERT = ("shared_gate_up_gemm", "shared_act_gate", "shared_ffn2_gemm")
DENSE_LAYER = ("dense_gate_up_gemm", "dense_act_gate", "dense_down_gemm")
STEEP_LOAD, LOAD = "power_law_1.2", "power_law_1.01"  # how unevenly tokens hit the experts, as it was measured
_MANY_EXPERTS = 128


def layer_facts(fields: ConfigFields) -> dict[str, int]:
    """Layers with a dense feed-forward in place of experts, its width, and shared experts of each other layer."""
    rhythm, first = fields.first("moe_layer_freq", default=1), fields.first("first_k_dense_replace")
    if isinstance(rhythm, list):
        with_experts = fields.pattern("moe_layer_freq", (0, 1), rhythm)
    else:
        with_experts = [layer >= first and layer % rhythm == 0 for layer in range(fields.layers)]
    return {
        "dense_layers": 0 if fields.compat.dense_layers_as_experts else fields.layers - sum(with_experts),
        "dense_size": fields.first("dense_intermediate_size", "intermediate_size"),
        "shared_experts": shared_experts(fields),
    }


def shared_experts(fields: ConfigFields) -> int:
    """Shared experts of a layer; one where the config does not say."""
    return 1 if fields.compat.shared_experts_not_read else fields.first("n_shared_experts", default=1)


def dense_layers(phase: Phase, *, summed: bool = True) -> Operators:
    """Feed-forward of the layers without experts, split as attention is.

    Args:
        phase: The list it is for.
        summed: Whether the sums over ranks after attention and feed-forward are listed here; with experts the
            exchange carries them.
    """
    scale = phase.layers(phase.model.extra["dense_layers"])
    if not scale:
        return ()
    ffn = phase.gated_ffn(DENSE_LAYER, scale, phase.model.extra["dense_size"], phase.parallel.tp)
    return (*ffn, phase.all_reduce("dense_ar", 2 * scale)) if summed else ffn


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
        compressed_on_one_sm=model.compat.compressed_gather_on_one_sm,
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
        expected=not model.compat.experts_read_per_routed_token,
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


def shared_expert(phase: Phase, ranks: int, mode: str | None = None) -> Operators:
    """The shared experts of every layer that has experts as one, divided among `ranks`; nothing where there is none."""
    model = phase.model
    size = model.extra["shared_experts"] * model.moe_intermediate_size
    return phase.gated_ffn(SHARED_EXPERT, phase.with_experts, size, ranks, mode) if size else ()


def beside_shared(phase: Phase, routed: Operators, shared: Operators) -> Operators:
    """Routed experts and the shared one: one after the other in a prefill, at the same time in a decode step."""
    if phase.prefill or not shared:
        return *shared, *routed
    return (Overlap(f"{phase.name}_moe_overlap", routed, shared),)
