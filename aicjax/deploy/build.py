# SPDX-License-Identifier: Apache-2.0
"""From a result row and the request that found it to the record of a deployment."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aicjax._names import counted
from aicjax._results import InputError
from aicjax._units import GIB
from aicjax.deploy.formats import check_formats
from aicjax.deploy.record import Deployment, Drafts, Layout, Limit, Prediction, Ranges, Role, Site, Use, Workload
from aicjax.deploy.settings import Engine, Rules, load_engine, load_rules, load_runtime
from aicjax.hardware import load_system
from aicjax.models import load_model

_ROLES = {"": "agg", "(p)": "prefill", "(d)": "decode"}
_MOST_GPUS = 16384  # files of more would be too large to read
_NAME_LENGTH = 27  # room for the names of pods over several nodes, see `targets/dynamo.py`


def build(
    row: Mapping[str, Any],
    inputs: Mapping[str, Any],
    *,
    rules: str = "production",
    name: str | None = None,
    site: Site = Site(),  # noqa: B008
) -> Deployment:
    """The record of a row.

    Args:
        row: One row of a top list, column names as in its CSV file; under `ranges`, where they are known, its
            `aicjax.report.ranges.Ranges` as a mapping.
        inputs: The request, as in the manifest of the run.
        rules: Rule set.
        name: Name of the deployment; from model, engine and mode when None.
        site: What the user's cluster is called and has.

    Raises:
        InputError: The row asks for something that is not deployed yet.
    """
    disaggregated = "(d)parallel" in row
    prefixes = ("(p)", "(d)") if disaggregated else ("",)
    _refuse(row, inputs, prefixes)
    engine, rule_set, runtime = load_engine(str(row[f"{prefixes[0]}backend"])), load_rules(rules), load_runtime()
    system = load_system(str(row[f"{prefixes[0]}system"]))
    gpus = int(row["num_total_gpus"])
    budget = inputs.get("total_gpus") or int(row["replicas_needed"]) * gpus
    replicas = int(budget) // gpus
    if replicas < 1:
        raise InputError("total_gpus", budget, f"at least the {counted(gpus, 'GPU')} of the row")
    if int(budget) > _MOST_GPUS:
        raise InputError("total_gpus", budget, f"at most {_MOST_GPUS} for one deployment")
    mode = "disagg" if disaggregated else "agg"
    drafts = _drafts(str(row["model"]), inputs, engine)
    return Deployment(
        name=name if name is not None else _name(Path(str(row["model"])).name, f"-{engine.engine}-{mode}"),
        site=site,
        model=str(row["model"]),
        system=system.name,
        engine=engine.engine,
        engine_version=engine.version,
        simulated_version=str(row[f"{prefixes[0]}version"]),
        runtime_version=runtime.version,
        rules=rules,
        gpus_per_node=system.gpus_per_node,
        gpus_per_rack=system.gpus_per_rack,
        gpu_budget=int(budget),
        replicas=replicas,
        roles=tuple(_role(row, inputs, prefix, engine, rule_set, replicas, drafts) for prefix in prefixes),
        workload=_workload(inputs),
        prediction=Prediction(
            ttft_ms=float(row["ttft"]),
            tpot_ms=float(row["tpot"]),
            tokens_per_s=round(float(row["tokens/s"]) * replicas, 3),
            requests_per_s=round(float(row["request_rate"]) * replicas, 3),
            concurrency=int(row["concurrency"]) * replicas,
            ranges=_ranges(row.get("ranges"), int(budget)),
        ),
        drafts=drafts,
        unlike_heads=disaggregated and _unlike_heads(row, inputs),
    )


def _refuse(row: Mapping[str, Any], inputs: Mapping[str, Any], prefixes: tuple[str, ...]) -> None:
    """Refuses what the files could not say, so that nothing else than what was predicted is deployed."""
    if "(a)tp" in row:
        raise InputError("experiment", "afd", "agg or disagg: attention and feed-forward apart is not deployed")
    if int(row.get("(e)workers") or 0) or inputs.get("image_height"):
        raise InputError("image_height", inputs.get("image_height"), "0: requests with images are not deployed")
    for option in ("attention_backend", "moe_backend"):
        if inputs.get(option):
            raise InputError(option, inputs[option], "absent: kernels of a choice are not deployed")
    check_formats(row, inputs, prefixes)
    if inputs["osl"] == 1:
        raise InputError("osl", 1, "at least 2: what one token a request leaves to decode is not deployed")
    for what in ("backend", "system"):
        if len({row[f"{prefix}{what}"] for prefix in prefixes}) > 1:
            raise InputError(f"decode_{what}", row[f"(d){what}"], f"{row[f'(p){what}']}: two kinds are not deployed")
    if any(int(row.get(f"{prefix}cp") or 1) > 1 for prefix in prefixes):
        raise InputError("cp", "above 1", "1: context parallel workers are not deployed")


def _unlike_heads(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    """Whether a KV cache of heads, not of latent vectors, is split over unlike numbers of GPUs."""
    if int(row["(p)tp"]) == int(row["(d)tp"]):
        return False
    return "kv_lora_rank" not in load_model(str(row["model"]), inputs.get("family")).extra


def _drafts(model: str, inputs: Mapping[str, Any], engine: Engine) -> Drafts | None:
    """Speculation of a request, by the layers of the checkpoint that draft.

    Raises:
        InputError: The checkpoint has none, or the engine is not told so.
    """
    asked = inputs.get("nextn")
    if not asked:
        return None
    layers = load_model(model, inputs.get("family")).draft_layers
    if not layers or not engine.draft_method:
        raise InputError("nextn", asked, f"0: drafts of {model} with {engine.engine} are not deployed")
    return Drafts(layers if asked == "auto" else int(asked), float(inputs.get("nextn_accepted") or 0.0))


def _role(
    row: Mapping[str, Any],
    inputs: Mapping[str, Any],
    prefix: str,
    engine: Engine,
    rules: Rules,
    replicas: int,
    drafts: Drafts | None,
) -> Role:
    name, batch = _ROLES[prefix], int(row[f"{prefix}bs"])
    layout = Layout(*(int(row[f"{prefix}{axis}"]) for axis in ("tp", "pp", "dp", "moe_tp", "moe_ep")))
    if layout.moe_tp > 1 and layout.moe_ep > 1 and not engine.mixed_experts:
        raise InputError("moe_ep", layout.moe_ep, f"1 or the whole width: {engine.engine} has no mixed expert layout")
    kv_cache = str(row[f"{prefix}kvcache"])
    if kv_cache not in engine.kv_cache_formats:
        raise InputError("kvcache_quant_mode", kv_cache, f"one of {sorted(engine.kv_cache_formats)}")
    length = _max_length(inputs, engine, rules)
    chunked_prefill = name != "decode" and (rules.chunked_prefill or bool(inputs.get("enable_chunked_prefill")))
    step_tokens = _step_tokens(row, inputs, name, batch, length, engine, drafts)
    if name != "decode" and engine.asks_for_chunks and not chunked_prefill:
        step_tokens = _taking_prompts(step_tokens, int(inputs["isl"]) + rules.length_extra, engine)
    return Role(
        name=name,
        workers=int(row[f"{prefix}workers"] if prefix else 1) * replicas,
        layout=layout,
        max_running=Limit(batch, batch),
        max_step_tokens=_covering(step_tokens, batch * engine.stages(layout), engine),
        max_length=length,
        memory_fraction=_memory_fraction(inputs, name, str(row[f"{prefix}version"]), str(row["model"]), row, prefix),
        kv_cache_format=kv_cache,
        graph_sizes=() if name == "prefill" else graph_sizes(batch, rules),
        prefix_cache=name != "decode" and (rules.prefix_cache or bool(inputs.get("prefix"))),
        chunked_prefill=chunked_prefill,
        use=_use(row, prefix),
    )


def _use(row: Mapping[str, Any], prefix: str) -> Use | None:
    """Memory of a GPU, and the share of its rate at which a kind of workers runs."""
    if not row.get(f"{prefix}memory"):
        return None
    memory_gib, system = float(row[f"{prefix}memory"]), load_system(str(row[f"{prefix}system"]))
    share = None
    if prefix:
        share = round(float(row["seq/s"]) / (float(row[f"{prefix}seq/s/worker"]) * int(row[f"{prefix}workers"])), 4)
    return Use(memory_gib, round(1 - memory_gib * GIB / system.mem_capacity_bytes, 4), share)


def _ranges(quantiles: Mapping[str, Any] | None, gpus: int) -> Ranges | None:
    """The 10 % and 90 % quantiles, of the whole deployment."""
    if quantiles is None:
        return None
    per_gpu = quantiles["tokens_per_s_per_gpu"]
    return Ranges(
        ttft_ms=_outer(quantiles["ttft_ms"]),
        tpot_ms=_outer(quantiles["tpot_ms"]) if quantiles["tpot_ms"] else None,
        tokens_per_s=_outer([value * gpus for value in per_gpu]),
        limits_met=quantiles["limits_met"],
    )


def _outer(quantiles: Sequence[float]) -> tuple[float, float]:
    return round(quantiles[0], 3), round(quantiles[-1], 3)


def _max_length(inputs: Mapping[str, Any], engine: Engine, rules: Rules) -> int:
    """Longest sequence of a worker [tokens]: the stated one, else that of the workload with the room of the rules."""
    stated = inputs.get("max_seq_len")
    needed = int((inputs["isl"] + inputs["osl"]) * rules.length_factor) + rules.length_extra
    return rounded_up(int(stated) if stated else needed, engine.token_multiple)


def _step_tokens(
    row: Mapping[str, Any],
    inputs: Mapping[str, Any],
    role: str,
    batch: int,
    length: int,
    engine: Engine,
    drafts: Drafts | None,
) -> Limit:
    """Tokens of a step: a mixed one, the prompts of a prefill batch, or decoding requests with their drafts."""
    drafted = drafts.tokens if drafts and engine.token_limit_counts_drafts else 0
    needed = simulated = batch * (1 + drafted)
    why, kept = f"rounded up to {engine.token_multiple} tokens", "decode steps"
    if role != "decode":
        new_tokens = int(inputs["isl"]) - int(inputs.get("prefix") or 0)
        mixed = int(row.get("num_tokens") or 0) + drafted * batch
        needed = simulated = mixed if role == "agg" else batch * max(new_tokens, 1)
        kept = "steps of whole prompts"
    elif engine.decode_takes_prompts:
        needed, why = max(needed, length), "room for a prompt that no prefill worker has computed"
    deployed = rounded_up(needed, engine.token_multiple)
    return Limit(simulated, deployed, "" if simulated == deployed else f"{why}; {kept} are as predicted")


def _covering(limit: Limit, requests: int, engine: Engine) -> Limit:
    """The limit on tokens of a step, which is at least that on the requests of all pipeline stages."""
    if limit.deployed >= requests:
        return limit
    return Limit(limit.simulated, rounded_up(requests, engine.token_multiple), "as many as requests in all stages")


def _taking_prompts(limit: Limit, longest: int, engine: Engine) -> Limit:
    """The limit on tokens of a step, which prompts pass that are not split, before their prefix is cached too."""
    if limit.deployed >= longest:
        return limit
    why = "room for a whole prompt before its prefix is cached, and some tokens more; other steps are as predicted"
    return Limit(limit.simulated, rounded_up(longest, engine.token_multiple), why)


def _memory_fraction(
    inputs: Mapping[str, Any], role: str, version: str, model: str, row: Mapping[str, Any], prefix: str
) -> float:
    """The fraction that the prediction used: the stated one, else that which the engine takes of itself."""
    if inputs.get("free_gpu_memory_fraction"):
        return float(inputs["free_gpu_memory_fraction"])
    from aicjax.constants import load_constants
    from aicjax.forward.kv_budget import derived_fraction, engine_fraction
    from aicjax.models import Parallel

    system = str(row[f"{prefix}system"])
    constants = load_constants(str(row[f"{prefix}backend"]), inputs["constants"], model=model, system=system).memory
    if role != "agg" and constants.derived_fraction is not None:
        layout = Parallel(*(int(row[f"{prefix}{axis}"]) for axis in ("tp", "pp", "dp", "moe_tp", "moe_ep")))
        capacity = load_system(system).mem_capacity_bytes
        return float(derived_fraction(constants.derived_fraction, capacity, [layout])[0])
    return float(engine_fraction(constants, version))


def _workload(inputs: Mapping[str, Any]) -> Workload:
    latency = inputs.get("request_latency")
    return Workload(
        isl=int(inputs["isl"]),
        osl=int(inputs["osl"]),
        prefix=int(inputs.get("prefix") or 0),
        ttft_limit_ms=float(inputs["ttft"]),
        tpot_limit_ms=None if latency else float(inputs["tpot"]),
        request_latency_limit_ms=float(latency) if latency else None,
    )


def rounded_up(tokens: int, multiple: int) -> int:
    """The next multiple.

    Examples:
        >>> rounded_up(6500, 32)
        6528
    """
    return -(-tokens // multiple) * multiple


def graph_sizes(batch: int, rules: Rules) -> tuple[int, ...]:
    """Batches with a CUDA graph, ascending and each once, the largest being the batch."""
    doubled = [2**power for power in range(rules.graph_doubling_to.bit_length())]
    stepped = range(rules.graph_step, batch, rules.graph_step)
    return tuple(sorted({size for size in (*doubled, *stepped) if size < batch} | {batch}))


def _name(model: str, what: str) -> str:
    """A short RFC 1123 label: as many words of a model's name as have room, and what is served."""
    words = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    room = _NAME_LENGTH - len(what)
    cut = words[:room] if words[room : room + 1] in ("", "-") else words[:room].rpartition("-")[0] or words[:room]
    return cut.strip("-") + what
