# SPDX-License-Identifier: Apache-2.0
"""How measured servers were started, by the published facts of `configs/silicon/launch.yaml` and `recipes.csv`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import yaml

from aicjax import _paths
from aicjax._results import DataError
from aicjax.calibrate.launch_recipes import apply_recipes
from aicjax.calibrate.loads import load_shapes
from aicjax.calibrate.measurements import Flags, Floats, Measurements, Strings, WorkerColumns

_WORDS = {
    "kv_cache": ("fp8", "bfloat16"),
    "experts": ("parallel",),
    "attention": ("data", "tensor"),
    "attention_kernel": ("trtllm_mha",),
    "wrong": ("speculation", "concurrency"),
}
_NEUTRAL = {  # what a number is where nothing is known
    "step_tokens": np.nan,
    "prompts": np.inf,
    "slots": np.inf,
    "receive_steps": 1.0,
    "gather_steps": 0.0,
    "gather_share": 1.0,
    "balance_steps": 0.0,
    "stream_steps": 1.0,
    "memory_share": np.nan,
    "graph_batch": np.inf,
    "mixes": np.nan,
    "warm_up": 0.0,
}
_ALLOWED = ("family", "precision", "backend", "system", "mode", "isl", "osl", "gpus", "expert_ranks", "decode_gpus")
_LIMITS = ("since", "before", "concurrency", "attention")


class LaunchFacts(NamedTuple):
    """How servers were started [row]; "", NaN, or the value without effect where nothing is published.

    Of disaggregated servers, prompts, tokens and waits are those of a prefill worker, slots those of a decode worker.

    Attributes:
        published: Rows of a harness whose scripts are published.
        kv_cache: Format of the KV cache; "" where it is the checkpoint's.
        step_tokens: Most tokens of one step.
        prompts_per_step: Prompts of mean length that one step takes, at least one; not whole where prompts are split.
        slots: Most requests that run, of one attention rank; infinite where nothing but memory limits them.
        receive_steps: Decode steps from one look at the queue of arrivals to the next.
        gather_steps: Most steps that a prompt waits for others, unless `gather_tokens` of prompts have come.
        gather_tokens: Tokens of prompts that end the wait.
        balance_steps: Most steps that a prompt waits until every attention rank has one.
        stream_steps: Tokens of one message to the client; the first token is a message of its own.
        memory_share: Share of GPU memory that the engine was given, by its own definition.
        graph_batch: Largest batch of a CUDA graph.
        mixes: 1 where prompts and decoding requests share a step, 0 where not.
        warm_up: Requests sent before the measured ones, relative to the concurrency.
        experts: `parallel` where experts are spread over all GPUs whatever the record says.
        attention: `data` or `tensor` where attention is split so whatever the record says.
        attention_kernel: Attention kernel that the script asks for; "" for the engine's choice.
        wrong: What the record states wrongly and cannot be corrected.
    """

    published: Flags
    kv_cache: Strings
    step_tokens: Floats
    prompts_per_step: Floats
    slots: Floats
    receive_steps: Floats
    gather_steps: Floats
    gather_tokens: Floats
    balance_steps: Floats
    stream_steps: Floats
    memory_share: Floats
    graph_batch: Floats
    mixes: Floats
    warm_up: Floats
    experts: Strings
    attention: Strings
    attention_kernel: Strings
    wrong: Strings


@dataclass(frozen=True)
class LaunchRule:
    """Facts of the rows that meet all conditions.

    Attributes:
        when: Allowed values by column; `concurrency` least and most; dates `since` and `before`.
        facts: Values of facts: numbers, words for numbers, or words.
        source: Script and commit.
    """

    when: Mapping[str, Any]
    facts: Mapping[str, Any]
    source: str

    def __post_init__(self):
        if unknown := set(self.when) - {*_ALLOWED, *_LIMITS}:
            raise DataError(f"launch.yaml: conditions {sorted(unknown)} are unknown")
        for name, value in self.facts.items():
            number = isinstance(value, int | float) or value in _SIZES
            if not (value in _WORDS[name] if name in _WORDS else name in _NEUTRAL and number):
                raise DataError(f"launch.yaml: {value!r} is no value of fact {name}")

    def meets(self, columns: Mapping[str, Any]) -> Flags:
        """Rows that meet all conditions [row]."""
        found = np.ones(len(columns["date"]), bool)
        for name, allowed in self.when.items():
            if name == "since":
                found &= columns["date"] >= allowed
            elif name == "before":
                found &= columns["date"] < allowed
            elif name == "concurrency":
                found &= (columns[name] >= allowed[0]) & (columns[name] <= allowed[1])
            else:
                found &= np.isin(columns[name], allowed)
        return found


def launch_facts(rows: Measurements) -> LaunchFacts:
    """How each row's server was started."""
    file, count = _file(), len(rows)
    published = np.isin(rows.harness, file["harnesses"])
    columns = _columns(rows, file["undated"])
    words = {name: np.full(count, "", "<U16") for name in _WORDS}
    numbers = {name: np.full(count, value) for name, value in _NEUTRAL.items()}
    for rule in launch_rules():
        columns["attention"] = _attention(rows, words["attention"])
        at = published & rule.meets(columns)
        for name, value in rule.facts.items():
            if name in _WORDS:
                words[name][at] = value
            else:
                numbers[name][at] = _SIZES[value](rows)[at] if isinstance(value, str) else value
    ranks = np.where(_attention(rows, words["attention"]) == "data", np.maximum(columns["gpus"], 1), 1)
    of_server = rows.is_agg & (rows.backend == "sglang")
    numbers["slots"] = np.where(of_server, numbers["slots"] / ranks, numbers["slots"])
    apply_recipes(rows, published & ~rows.is_agg, numbers)
    gathered = numbers.pop("gather_share") * numbers["step_tokens"]
    return LaunchFacts(
        published=published,
        prompts_per_step=_prompts_per_step(rows, numbers["step_tokens"], numbers.pop("prompts")),
        gather_tokens=np.where(numbers["gather_steps"] > 0, gathered, 0.0),
        **words,
        **numbers,
    )


def launched(rows: Measurements, facts: LaunchFacts | None = None) -> Measurements:
    """The rows with the layouts that the scripts ran where the record states others.

    Args:
        rows: Measured servers.
        facts: Their facts, where a caller has them.
    """
    facts = launch_facts(rows) if facts is None else facts
    workers = {role: _corrected(rows.workers(role), facts) for role in ("agg", "prefill", "decode")}
    return dataclasses.replace(rows, **workers)


@functools.cache
def launch_rules() -> tuple[LaunchRule, ...]:
    """The entries of the file, in the order in which they apply."""
    return tuple(LaunchRule(**entry) for entry in _file()["launches"])


def _columns(rows: Measurements, undated: str) -> dict[str, Any]:
    """What conditions read, by name."""
    columns = {name: getattr(rows, name) for name in ("precision", "backend", "system", "mode", "isl", "osl")}
    return columns | {
        "family": rows.model_family,
        "concurrency": rows.concurrency,
        "date": np.where(rows.measured_at == "", undated, rows.measured_at),
        "gpus": rows.agg.tp * rows.agg.dp,
        "expert_ranks": rows.agg.moe_ep,
        "decode_gpus": rows.decode.tp * rows.decode.dp,
    }


def _attention(rows: Measurements, stated: Strings) -> Strings:
    """How attention is split, `data` or `tensor`: as stated, else as recorded."""
    recorded = np.where(np.where(rows.is_agg, rows.agg.dp, rows.decode.dp) > 1, "data", "tensor")
    return np.where(stated == "", recorded, stated)


def _corrected(workers: WorkerColumns, facts: LaunchFacts) -> WorkerColumns:
    """Workers whose attention and experts are split as the facts say; unknown workers stay as they are."""
    width = workers.tp * workers.dp
    data = (facts.attention == "data") & (workers.dp == 1)
    tensor = (facts.attention == "tensor") & (workers.dp > 1)
    experts = (facts.experts == "parallel") & (width > 0)
    per_rank = np.where(data, -(-workers.batch // np.maximum(width, 1)), workers.batch)
    return dataclasses.replace(
        workers,
        tp=np.where(data, 1, np.where(tensor, width, workers.tp)),
        dp=np.where(data, width, np.where(tensor, 1, workers.dp)),
        batch=np.where(tensor, workers.batch * workers.dp, per_rank),
        moe_tp=np.where(experts, 1, workers.moe_tp),
        moe_ep=np.where(experts, width, workers.moe_ep),
    )


def _prompts_per_step(rows: Measurements, step_tokens: Floats, most: Floats) -> Floats:
    """Prompts of mean length in one step; trtllm splits none. Decoding requests that share the step take a token."""
    decoding = np.where(rows.backend == "sglang", 0, rows.agg.batch)
    prompts = (step_tokens - decoding) / (rows.isl * load_shapes(rows).mean_share)
    whole = np.where(rows.backend == "trtllm", np.floor(prompts), prompts)
    return np.clip(whole, 1.0, most).astype(np.float64)


def _isl_and_concurrency(rows: Measurements) -> Floats:
    return ((rows.isl + rows.concurrency + 127) // 64 * 64).astype(np.float64)


_SIZES: Mapping[str, Callable[[Measurements], Floats]] = {
    "concurrency": lambda rows: rows.concurrency.astype(np.float64),
    "2 x isl": lambda rows: (2 * rows.isl).astype(np.float64),
    "isl + concurrency": _isl_and_concurrency,
    "isl + concurrency, at least 8192": lambda rows: _isl_and_concurrency(rows).clip(min=8192),
}


@functools.cache
def _file() -> dict[str, Any]:
    path = _paths.configs_dir() / "silicon" / "launch.yaml"
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
