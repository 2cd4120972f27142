# SPDX-License-Identifier: Apache-2.0
"""What a sweep covers, from a YAML file or keywords: its axes, its limits, and what is kept of it."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax._user_files import read_mapping
from aicjax.compat import constants_in_force
from aicjax.explore.request import BACKENDS, Backend, Count, DatabaseMode, SearchRequest
from aicjax.explore.request_errors import Strict

OBJECTIVES = {  # objective: whether more of it is better
    "tokens/s/gpu": True,
    "tokens/$": True,
    "tokens/J": True,
    "ttft": False,
    "tpot": False,
    "request_latency": False,
}
LONGEST_AXIS = 1 << 20

Objective = Literal["tokens/s/gpu", "tokens/$", "tokens/J", "ttft", "tpot", "request_latency"]
GroupAxis = Literal["model", "system", "backend", "version", "formats", "workload", "memory_fraction"]
Price = Annotated[float, Field(gt=0)]


class Span(Strict):
    """Every `step`-th count from `first` to `last`; `first` is `step` unless given."""

    first: Count | None = None
    last: Count
    step: Count = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= len(self._range) <= LONGEST_AXIS:
            raise InputError("last", self.last, f"such that there are 1 to {LONGEST_AXIS} counts")
        return self

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts, ascending."""
        return tuple(self._range)

    @property
    def _range(self) -> range:
        return range(self.first or self.step, self.last + 1, self.step)


def _listed(value: Any) -> Any:
    """A single value as a list of one, so that files may say `isl: 4000`."""
    return value if isinstance(value, (list, tuple)) else [value]


def _counts(value: Any) -> Any:
    return Span(**value).counts if isinstance(value, dict) else _listed(value)


Counts = Annotated[tuple[Count, ...], Field(min_length=1), BeforeValidator(_listed)]
Names = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)]
Axis = Annotated[tuple[Count, ...], Field(min_length=1), BeforeValidator(_counts)]


class Limits(Strict):
    """A pair of latency limits [ms]; None is no limit."""

    ttft: Annotated[float, Field(gt=0)] | None = None
    tpot: Annotated[float, Field(gt=0)] | None = None


class Drafts(Strict):
    """Speculative decoding: draft tokens of a step, and how many are accepted on average."""

    nextn: Annotated[int, Field(ge=0)] = 0
    accepted: Annotated[float, Field(ge=0)] = 0.0


class Workload(Strict):
    """Requests, all alike: prompt, answer and cached tokens, and drafts."""

    isl: Count
    osl: Count
    prefix: Annotated[int, Field(ge=0)] = 0
    drafts: Drafts = Drafts()

    @property
    def label(self) -> str:
        """Short name, such as `4000/500` or `4000/500 prefix 1000 nextn 2 (1.2)`."""
        cached = f" prefix {self.prefix}" if self.prefix else ""
        nextn = f" nextn {self.drafts.nextn} ({self.drafts.accepted:g})" if self.drafts.nextn else ""
        return f"{self.isl}/{self.osl}{cached}{nextn}"


class SweepSpec(Strict):
    """A sweep over in-flight batching or disaggregated deployments: the cross product of its axes.

    A single value may stand for a list of one. An axis of counts is a list, or `{first, last, step}`.

    Attributes:
        models, systems, backends: Names.
        versions: Versions of the measured tables by backend; the newest where absent.
        serving_mode: `agg` (in-flight batching) or `disagg` (prefill and decode workers apart).
        formats: Stated number formats (`gemm`, `moe`, `kvcache`, `fmha`, `comm`); what is not stated follows from the
            checkpoint.
        parallel: Lists of the parallel axes (`num_gpu`, `tp`, `pp`, `dp`, `moe_tp`, `moe_ep`, `cp`); the lists of a
            search where absent.
        total_gpus: Largest worker, and largest disaggregated replica.
        batch: Requests in flight of one attention rank.
        ctx_tokens: Prompt tokens of a mixed step (agg).
        prefill_batch, decode_batch: Batches of prefill and decode workers (disagg).
        prefill_workers, decode_workers: Most workers of a replica (disagg).
        isl, osl, prefix: Prompt, answer and cached tokens, crossed; a prefix longer than the prompt is left out.
        drafts: Speculative decoding, crossed with the others.
        limits: Pairs of latency limits; each is answered on its own.
        memory_fraction: Fractions of GPU memory for the engine; None is its own.
        database_mode, transfer_policy, constants, compat: As in a search.
        objectives: What the best points are listed by; the first is also the height of the Pareto fronts.
        top_k: Points kept per group, limits and objective.
        pareto: Whether fronts of TPOT against the first objective are kept.
        histogram: Whether the first objective is counted in bins.
        group_by: Axes whose values are answered apart; the overall best is always given.
        gpu_hour_price: Price of a GPU by system, for `tokens/$`.
    """

    models: Names
    systems: Names
    backends: Annotated[tuple[Backend, ...], Field(min_length=1), BeforeValidator(_listed)] = BACKENDS
    versions: dict[Backend, Names] = Field(default_factory=dict)
    serving_mode: Literal["agg", "disagg"] = "agg"
    formats: Annotated[
        tuple[dict[Literal["gemm", "moe", "kvcache", "fmha", "comm"], str], ...],
        Field(min_length=1),
        BeforeValidator(_listed),
    ] = ({},)
    parallel: dict[Literal["num_gpu", "tp", "pp", "dp", "moe_tp", "moe_ep", "cp"], Counts] = Field(default_factory=dict)
    total_gpus: Count = 8
    batch: Axis = Span(last=1024).counts
    ctx_tokens: Axis = Span(last=8192, step=64).counts
    prefill_batch: Axis = Span(last=16).counts
    decode_batch: Axis = Span(last=512).counts
    prefill_workers: Count = 32
    decode_workers: Count = 32
    isl: Counts = (4000,)
    osl: Counts = (1000,)
    prefix: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), BeforeValidator(_listed)] = (0,)
    drafts: Annotated[tuple[Drafts, ...], Field(min_length=1), BeforeValidator(_listed)] = (Drafts(),)
    limits: Annotated[tuple[Limits, ...], Field(min_length=1), BeforeValidator(_listed)] = (Limits(),)
    memory_fraction: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1)] | None, ...], Field(min_length=1), BeforeValidator(_listed)
    ] = (None,)
    database_mode: DatabaseMode = "SILICON"
    transfer_policy: str | None = None
    constants: str | None = None
    compat: Literal["default", "reference"] = "default"
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1), BeforeValidator(_listed)] = ("tokens/s/gpu",)
    top_k: Count = 10
    pareto: bool = True
    histogram: bool = False
    group_by: Annotated[tuple[GroupAxis, ...], BeforeValidator(_listed)] = ("model", "system", "backend", "workload")
    gpu_hour_price: dict[str, Price] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in type(self).model_fields:
            values = getattr(self, name)
            if isinstance(values, tuple) and len(distinct := {repr(value) for value in values}) < len(values):
                raise InputError(name, f"{len(distinct)} of {len(values)}", "a list of different values")
        if "tokens/$" in self.objectives:
            for system in self.systems:
                if system not in self.gpu_hour_price:
                    raise InputError("gpu_hour_price", self.gpu_hour_price, f"a price for {system}, for tokens/$")
        if self.pareto and not OBJECTIVES[self.objectives[0]]:
            raise InputError("objectives", self.objectives[0], "a throughput first, as the height of the fronts")
        if not self.workloads:
            raise InputError("prefix", self.prefix, f"some prefix at most the longest prompt, {max(self.isl)}")
        if self.serving_mode == "disagg":
            self._check_disagg()
        return self

    def _check_disagg(self) -> None:
        if min(self.osl) < 2:
            raise InputError("osl", min(self.osl), "at least 2, so that there is something to decode apart")
        if self.total_gpus < 2:
            raise InputError("total_gpus", self.total_gpus, "at least 2, for a prefill and a decode worker")
        if self.histogram:
            raise InputError("histogram", True, "left out: it is counted in sweeps of in-flight batching alone")

    @property
    def constants_name(self) -> str:
        """The constants in force."""
        return constants_in_force(self.constants, self.compat)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """All requests, in the order of the lists."""
        crossed = itertools.product(self.isl, self.osl, self.prefix, self.drafts)
        return tuple(Workload(isl=i, osl=o, prefix=p, drafts=d) for i, o, p, d in crossed if p <= i)

    def request(
        self,
        model: str,
        system: str,
        backend: Backend,
        version: str | None,
        formats: Mapping[str, str],
        workload: Workload,
    ) -> SearchRequest:
        """One combination of the axes as a search would state it; refused as a search would refuse it."""
        sides = ("agg",) if self.serving_mode == "agg" else ("prefill", "decode")
        lists: dict[str, Any] = {
            f"{side}_{axis}_candidates": values for side in sides for axis, values in self.parallel.items()
        }
        return SearchRequest(
            model_path=model,
            system=system,
            backend=backend,
            backend_version=version,
            total_gpus=self.total_gpus,
            isl=workload.isl,
            osl=workload.osl,
            prefix=workload.prefix,
            nextn=workload.drafts.nextn,
            nextn_accepted=workload.drafts.accepted,
            database_mode=self.database_mode,
            transfer_policy=self.transfer_policy,
            constants=self.constants,
            compat=self.compat,
            **{f"{part}_quant_mode": mode for part, mode in formats.items()},
            **lists,
        )


def load_spec(path: str | Path, changes: Mapping[str, Any] = MappingProxyType({})) -> SweepSpec:
    """The sweep in a YAML file.

    Args:
        path: The file.
        changes: Fields that are stated otherwise than there.

    Raises:
        InputError: No such file, no YAML, an unknown field, or a value outside its range.
    """
    content = read_mapping("spec", Path(path), "a YAML mapping of axes")
    fields = {**content, **changes}
    _check_keys(fields)
    return SweepSpec(**fields)


def _check_keys(content: Any) -> None:
    """Refuses keys that YAML reads as something else than a name."""
    if isinstance(content, dict):
        for key, value in content.items():
            if not isinstance(key, str):
                raise InputError("spec", key, "a mapping whose keys are all names")
            _check_keys(value)
    elif isinstance(content, list):
        for value in content:
            _check_keys(value)


def parse_changes(assignments: Sequence[str]) -> dict[str, Any]:
    """Fields from assignments such as `batch={last: 64}`, whose values are YAML.

    Raises:
        InputError: One is no assignment, or its value no YAML.
    """
    changes = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not (name and equals):
            raise InputError("set", assignment, "a field, =, and its value")
        try:
            changes[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError("set", assignment, f"a value in YAML ({str(error).splitlines()[0]})") from None
    return changes
