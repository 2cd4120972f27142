# SPDX-License-Identifier: Apache-2.0
"""Large expert parallelism: experts over many GPUs that exchange tokens through a communication library."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from aicjax import _paths
from aicjax._results import InputError
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel

PHASES = ("context", "generation")
_DEEPEP = "deepep"  # libraries of this name see the tokens that ranks of attention share, in one number format


@dataclass(frozen=True)
class LargeEp:
    """How one worker exchanges tokens between its experts.

    Attributes:
        context, generation: Communication library of each phase.
        nodes: Nodes that the experts span.
        slots: Places for experts over all GPUs, more than there are experts where some are kept twice; 0 for as many.
        balanced: Whether a load balancer moves experts to where their tokens are.
    """

    context: str
    generation: str
    nodes: int
    slots: int = 0
    balanced: bool = False

    def library(self, phase: str) -> str:
        """Communication library of a phase."""
        return self.context if phase == "context" else self.generation


@functools.cache
def large_ep_facts() -> Mapping[str, Any]:
    """What engines and libraries do, from `configs/large_ep.yaml`."""
    return yaml.safe_load((_paths.configs_dir() / "large_ep.yaml").read_text())


def decode_share(backend: str) -> float:
    """What is left of the layers of a decode step where an engine overlaps its kernels."""
    return large_ep_facts()["decode_share"].get(backend, 1.0)


def shares_attention_tokens(library: str) -> bool:
    """Whether a prefill hands the library only the tokens of one rank of attention."""
    return library.startswith(_DEEPEP)


def exchange_format(library: str, experts: str, phase: str, step: str) -> str:
    """Number format that tokens travel in, by its name in the measured tables.

    Args:
        library: Communication library.
        experts: Format of the experts.
        phase: `context` or `generation`.
        step: `prepare`, `dispatch` or `combine`.

    Raises:
        InputError: The library has none for such experts.
    """
    plain = "fp8" if experts == "fp8_block" else experts
    if library.startswith(_DEEPEP):
        return "default"
    if library.startswith("nvlink"):
        return "fp4" if (plain, phase, step) == ("nvfp4", "generation", "combine") else plain
    combined = "fp4" if (library, step) == ("trtllm_deepep_ll", "combine") else "nvfp4"
    formats = {"bfloat16": "bfloat16", "fp8": "fp8" if library == "trtllm_deepep_ll" else "bfloat16", "nvfp4": combined}
    if plain not in formats:
        raise InputError("moe_quant_mode", experts, f"one of {list(formats)} where tokens travel by {library}")
    return formats[plain]


def expert_load(load: str, plan: LargeEp, backend: str, phase: str) -> str:
    """Distribution of tokens over experts, by its name in the measured tables."""
    if not plan.balanced:
        return load
    if backend in large_ep_facts()["suffixed_engines"]:
        return f"{load}_eplb"
    return large_ep_facts()["balanced_load"] if phase == "context" else load


def check_large_ep(model: ModelConfig, parallel: Parallel, backend: str, plan: LargeEp) -> None:
    """Refuse a layout or a plan that no library serves.

    Raises:
        InputError: Experts are cut by tensor parallelism or not spread evenly; a token goes to too many; an engine
            needs data-parallel attention; a library is not the engine's; or the slots do not fit the experts.
    """
    facts, experts = large_ep_facts(), model.num_experts
    for phase in PHASES:
        able = [
            name
            for name, library in facts["libraries"].items()
            if backend in library["engines"] and phase in library["phases"]
        ]
        if plan.library(phase) not in able:
            raise InputError(f"{phase} library", plan.library(phase), f"one of {able} for {backend}")
    if parallel.moe_tp != 1:
        raise InputError("moe_tp", parallel.moe_tp, "1 where experts span many GPUs")
    if parallel.moe_ep == 1 or experts % parallel.moe_ep:
        raise InputError("moe_ep", parallel.moe_ep, f"above 1 and a divisor of the {experts} experts of {model.name}")
    if model.topk > facts["most_topk"]:
        raise InputError("model", model.name, f"one that sends a token to at most {facts['most_topk']} experts")
    if backend == "trtllm" and parallel.dp == 1:
        raise InputError("dp", parallel.dp, "above 1 for large expert parallelism on trtllm")
    if plan.slots and (plan.slots < experts or (plan.slots > experts and not plan.balanced)):
        raise InputError("slots", plan.slots, f"{experts}, the experts of {model.name}, or more with a load balancer")
