# SPDX-License-Identifier: Apache-2.0
"""Where AIConfigurator 0.12.0 contradicts a model's own config or the hardware: one switch for each such defect.

A switch that is on follows AIConfigurator. All of them are on in `REFERENCE`, none in `DEFAULT`. A model is loaded
with one or the other and carries it to everything that prices it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any


def _quirk(*, there: str, here: str, why: str) -> Any:
    """A switch, off by default.

    Args:
        there: What AIConfigurator does.
        here: What is done where the switch is off.
        why: What the defect does to numbers, and how it is known to be one.
    """
    return dataclasses.field(default=False, metadata={"there": there, "here": here, "why": why})


@dataclass(frozen=True)
class Compat:
    """Which defects of AIConfigurator 0.12.0 are followed."""

    passes_without_head: bool = _quirk(
        there="No vocabulary projection in prefills of Mixtral, Qwen-MoE, gpt-oss and MiniMax-M2, nor in any pass of "
        "DeepSeek and GLM with wide expert parallelism on SGLang",
        here="one in every pass, on the last token of each prompt",
        why="tokens come out of it, and its weights were missing from the memory of every worker",
    )
    dense_layers_as_experts: bool = _quirk(
        there="`first_k_dense_replace` is not read: every layer of DeepSeek, Kimi-K2, GLM and MiniMax-M3 has experts",
        here="the first layers have the dense feed-forward of the config",
        why="three layers of DeepSeek-V3 would weigh 34 GB instead of 1 GB",
    )
    shared_experts_not_read: bool = _quirk(
        there="One shared expert in DeepSeek, GLM and MiniMax-M3 whatever `n_shared_experts` says; none in Llama-4 and "
        "Qwen2-MoE, nor in Step configs that state it inside `text_config`",
        here="as many, and as wide, as the config says",
        why="they run for every token; those of Llama-4-Scout are 12 GB of weights",
    )
    latent_kernels_of_128_heads: bool = _quirk(
        there="Kernels of latent attention are those of 128 heads, also for Kimi-K2 with its 64",
        here="kernels of the model's own heads, which are measured too",
        why="where no whole block is measured, Kimi-K2 would pay for twice its attention",
    )
    attention_blocks_without_weights: bool = _quirk(
        there="Attention blocks of MiniMax-M3, and on SGLang of DeepSeek with wide expert parallelism, weigh nothing",
        here="they hold their projections",
        why="10 GB of DeepSeek-V3 were missing on every GPU, so that batches seemed to fit that do not",
    )
    embeddings_never_tied: bool = _quirk(
        there="Embedding and vocabulary projection are two matrices in every model",
        here="one where the config says `tie_word_embeddings`",
        why="Qwen3-0.6B would be a quarter larger than it is",
    )
    hybrid_kv_without_windows: bool = _quirk(
        there="The KV cache of MiMo-V2 and Llama-4 keeps every token in every layer, with the heads of one kind",
        here="layers with a window keep the window, each kind with its own heads",
        why="engines free what no layer sees; MiMo-V2-Flash would keep 6 times too much at 32 thousand tokens",
    )
    mimo_layer_kinds_swapped: bool = _quirk(
        there="In MiMo-V2-Flash the 39 layers with a window and the 9 without are taken for each other",
        here="1 in `hybrid_layer_pattern` is a window",
        why="the model has five window layers to each global one",
    )
    llama4_every_other_layer_global: bool = _quirk(
        there="Every other layer of Llama-4 has global attention",
        here="one in four, or as `no_rope_layers` says",
        why="so the config is defined; it matters beyond the 8192 tokens of a chunk",
    )
    state_space_layers_with_kv: bool = _quirk(
        there="The KV cache of Nemotron-H counts every layer and no recurrent state",
        here="layers with attention have keys and values, state-space layers their state and last inputs",
        why="6 of the 52 layers of Nemotron-3-Nano have attention",
    )
    searched_layers_without_kv: bool = _quirk(
        there="Nemotron models with searched layers have no KV cache",
        here="keys and values by the heads that each layer states",
        why="any batch would fit",
    )
    dense_gemma_as_experts: bool = _quirk(
        there="Dense Gemma 4 counts as a model with experts, of which it has none: no layout of a search is valid",
        here="it has the layouts of a dense model",
        why="Gemma-4-31B runs on every engine, but every search for it fails",
    )
    experts_read_per_routed_token: bool = _quirk(
        there="The roofline of routed experts reads one expert for each routed token, up to all of them",
        here="it reads those expected to be hit under uniform routing, E (1 - (1 - k / E)^n)",
        why="16 tokens that each choose 8 of 128 experts hit 82, not all; it matters where rooflines answer",
    )
    compressed_gather_on_one_sm: bool = _quirk(
        there="TensorRT-LLM gathers tokens in the format of the experts on compute capability 10.0 alone, not on B300",
        here="10.0 and newer do",
        why="B300 has the same kernels as B200 and would send 3.6 times the bytes of NVFP4",
    )
    estimates_apart_from_searches: bool = _quirk(
        there="A single estimate resolves a point differently from a search: NVFP4 checkpoints before Blackwell lose "
        "the modules they keep in 16 bits, gpt-oss on Blackwell its faster experts, and experts over many GPUs their "
        "exchange (in-flight estimates everywhere, static ones within a node)",
        here="as a search",
        why="a point has one answer, whoever asks; DeepSeek-V3 on 16 GPUs was several times slower in an estimate",
    )
    static_rates_without_context_ranks: bool = _quirk(
        there="Rates per GPU of static batches do not count context-parallel GPUs",
        here="they count all GPUs of the worker",
        why="prefill workers with context parallelism would rank 2 to 8 times too high",
    )
    idle_decode_slots_in_flight: bool = _quirk(
        there="A load in flight is served by the decode slots of replicas, whether or not prefill workers fill them",
        here="slots count by the share that the rate of the replica keeps busy",
        why="one prefill worker beside many decode slots would serve any load",
    )
    host_times_in_tables: bool = _quirk(
        there="Measured latencies are taken as they are, also of tables whose benchmark waited for its host: products "
        "in 8-bit blocks, latent and sparse attention blocks of decode, on vLLM",
        here="the time of the host is taken out, by what other backends measured on the same GPU",
        why="servers replay kernels from graphs; a product of 8 us would take 55 us on Hopper and 250 us on GB200",
    )
    transfers_within_backend: bool = _quirk(
        there="What a backend did not measure is estimated from other formats of its own",
        here="from the same format first, as other backends measured it on the same GPU",
        why="kernels of one format differ by a fifth between backends, formats by factors",
    )
    mean_of_nearest_shapes: bool = _quirk(
        there="A matrix shape that was not measured runs at the mean utilisation of its four nearest shapes",
        here="at that of a plane through the logarithms of its sixteen nearest",
        why="shapes left out of the tables are predicted to 3.1 instead of 4.7 % (median), better on every system",
    )
    utilization_held_beyond_curves: bool = _quirk(
        there="Beyond the last measured tokens experts and their exchanges keep the utilisation of the last point, and "
        "matrix products the median of the last three",
        here="their time grows along the line of the last octave; matrix products keep the utilisation of the last",
        why="end points left out are predicted to 2.6 instead of 6.3 % (experts) and 4.4 instead of 8.3 % (products)",
    )
    merged_loads_by_throughput: bool = _quirk(
        there="With all engines, recommendations for a load are ranked by throughput per GPU",
        here="by the GPUs that they need, as with one engine",
        why="the fewest GPUs are what is asked for",
    )


DEFAULT = Compat()
REFERENCE = Compat(**{switch.name: True for switch in dataclasses.fields(Compat)})
BY_NAME = {"default": DEFAULT, "reference": REFERENCE}
DEFAULT_CONSTANTS = "silicon"  # empirical constants where nothing else is stated
REFERENCE_CONSTANTS = "reference"  # where AIConfigurator is followed


def constants_in_force(stated: str | None, compat: str) -> str:
    """Name of the empirical constants: the stated one, else that of the reference where it is followed."""
    if stated is not None:
        return stated
    return REFERENCE_CONSTANTS if compat == "reference" else DEFAULT_CONSTANTS


def markdown() -> str:
    """All switches as a table for `docs/parity.md`."""
    rows = [
        (f"`{switch.name}`", *(switch.metadata[part] for part in ("there", "here", "why")))
        for switch in dataclasses.fields(Compat)
    ]
    head = ("switch", "AIConfigurator", "here", "why")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


if __name__ == "__main__":
    print(markdown())
