# SPDX-License-Identifier: Apache-2.0
"""What a search gives back: the configurations of every experiment, which one won, and why others failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aicjax._results import AicjaxError, InputError, NoFeasible, Provenance
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.grid_gain import Baseline, GridGain, score
from aicjax.explore.request import SearchRequest
from aicjax.explore.shortfall import Shortfall


@dataclass(frozen=True)
class MemoryUse:
    """Memory of one GPU of a worker [GiB].

    Attributes:
        role: `encode`, `agg`, `prefill` or `decode`.
        weights, activations, kvcache, nccl, others: Parts.
        capacity: What the GPU has.
        kv_budget: Room that the engine gives the KV cache.
        kv_rule: What that room is, in words: a fraction of what is free, or of the GPU; empty without a KV cache.
    """

    role: str
    weights: float
    activations: float
    kvcache: float
    nccl: float
    others: float
    capacity: float
    kv_budget: float
    kv_rule: str = ""

    @property
    def total(self) -> float:
        """All parts together."""
        return self.weights + self.activations + self.kvcache + self.nccl + self.others


@dataclass(frozen=True)
class StepTimes:
    """One engine step.

    Attributes:
        step: Which step: `encoder`, `prefill`, `mixed step` or `decode step`, with the role in front for a replica.
        names: Operators.
        latency_ms: Time of each, all its layers [ms].
        provenance: How each was obtained.
        rooflines: What the hardware allows of each at least [ms], NaN without a roofline, computed when it is asked
            for; None where that is not known of the step.
    """

    step: str
    names: tuple[str, ...]
    latency_ms: tuple[float, ...]
    provenance: tuple[Provenance, ...]
    rooflines: Callable[[], tuple[float, ...]] | None = field(default=None, repr=False, compare=False)

    @property
    def total_ms(self) -> float:
        """Time of the step [ms]."""
        return sum(self.latency_ms)


@dataclass(frozen=True)
class Explanation:
    """What lies behind one row of a result.

    Attributes:
        memory: Use of one GPU, for each kind of worker.
        binding: What keeps the row from a larger batch: `ttft`, `tpot`, `request_latency`, `memory`, `kv_memory`,
            `missing_data`, `grid` (the largest batch tried), or `throughput` (it would not yield more per GPU); for a
            replica limited by its prefill or encode workers, `prefill` or `encode`.
        next_batch: The next larger batch of the same layout, or None.
        next_batch_reason: Why that batch was not chosen, in words.
        concurrency_in_use: Requests in flight at the reported rate; less than the configured number where another side
            than decoding limits a replica.
        steps: Time of every operator of the steps behind the row, and how it was obtained.
        tpot_in_use: TPOT of the decode batch then in use [ms]; None where it is the configured one.
    """

    memory: tuple[MemoryUse, ...]
    binding: str
    next_batch: int | None
    next_batch_reason: str
    concurrency_in_use: float
    steps: tuple[StepTimes, ...]
    tpot_in_use: float | None = None


@dataclass(frozen=True)
class Sensitivity:
    """How much one assumption moves an estimate.

    Elasticities d ln(figure) / d ln(assumption): the change in percent for one percent more of the assumption,
    everything else as it is. None where the point has no such figure.

    Attributes:
        kind: `hardware`, `constant`, `workload`, or `operators` for the time of those that have no roofline.
        name: Its name: a key of `systems/<system>.yaml`, of `configs/constants/<name>.yaml`, or a field of the request.
        of: The system or the engine; empty for a workload.
        value: The assumption, in the unit of that key.
        throughput: Of tokens/s/gpu.
        ttft, tpot: Of the latencies.
    """

    kind: str
    name: str
    of: str
    value: float
    throughput: float | None
    ttft: float | None
    tpot: float | None

    @property
    def largest(self) -> float:
        """The largest of the three in magnitude."""
        return max(abs(x or 0.0) for x in (self.throughput, self.ttft, self.tpot))


@dataclass(frozen=True)
class Refusal:
    """A layout that was not evaluated.

    Attributes:
        layout: Its label.
        role: `agg`, `prefill` or `decode`.
        reason: Why, in one line.
    """

    layout: str
    role: str
    reason: str

    @classmethod
    def of(cls, layout: str, role: str, error: AicjaxError) -> "Refusal":
        """The refusal that an error of the model or of its tables stands for."""
        if isinstance(error, InputError):
            return cls(layout, role, f"{error.argument} must be {error.allowed}, not {error.value}")
        return cls(layout, role, str(error))


@dataclass(frozen=True)
class TaskResult:
    """One experiment: one serving mode on one backend, or on all backends merged.

    Attributes:
        name: `agg` or `disagg`, with `_<backend>` when several backends were searched.
        serving_mode: `agg` or `disagg`.
        backend: Engine; `auto` for a merge.
        resolved: What the request left open: versions, systems, number formats, candidate lists.
        feasible: Rows that meet the sweep's latency targets, best tokens/s/GPU first.
        pareto: Front of tokens/s/user (or request latency) against the throughput of the GPU budget.
        best: Top rows.
        meets_target: Whether the top rows meet the limit of the request; False for the nearest ones.
        shortfall: When the top rows miss the limit, or there is none: which limit binds and what is nearest.
        error: Why there is no row, or None.
        refused: Layouts left out.
        evaluated: Number of points or candidates evaluated.
        explain: Explanation of a top row by its position; None without rows.
        grid: Name of the candidate lists.
        baseline: What the experiment finds on the coarser grid that an exhaustive one extends; None without one.
        sensitivities: What moves a top row, by its position, most first; None where that is not modelled: for attention
            and feed-forward apart, and for requests with images.
    """

    name: str
    serving_mode: str
    backend: str
    resolved: Mapping[str, Any] = field(default_factory=dict)
    feasible: Frame = field(default_factory=dict)
    pareto: Frame = field(default_factory=dict)
    best: Frame = field(default_factory=dict)
    meets_target: bool = False
    shortfall: Shortfall | None = None
    error: AicjaxError | None = None
    refused: tuple[Refusal, ...] = ()
    evaluated: int = 0
    explain: Callable[[int], Explanation] | None = None
    grid: str = ""
    baseline: Baseline | None = None
    sensitivities: Callable[[int], tuple[Sensitivity, ...]] | None = None

    @property
    def version(self) -> str:
        """Version of the measured tables of the agg or prefill worker; empty for a merge."""
        return str(self.resolved.get("backend_version", ""))

    @property
    def score(self) -> float:
        """What experiments are compared by: throughput of the budget, or one over the GPUs that a load needs."""
        return score(self.best)

    @property
    def grid_gain(self) -> GridGain | None:
        """What the first row has over that of the coarser grid; None without one."""
        return GridGain.over(self.baseline, self.grid, self.best, self.meets_target)

    @property
    def best_latencies(self) -> dict[str, float | None]:
        """TTFT, TPOT and request latency of the first row [ms]; empty without rows."""
        if frames.length(self.best) == 0:
            return {}
        first = frames.row(self.best, 0)
        return {name: first[name] for name in ("ttft", "tpot", "request_latency")}


@dataclass(frozen=True)
class SearchResult:
    """All experiments of a search.

    Attributes:
        request: What was asked.
        tasks: Experiments by name, in the order in which they ran; merges over backends replace their parts.
        by_backend: The parts of merges, by name; the same as `tasks` when nothing was merged.
        chosen: Name of the experiment with the best score, of those that meet the limit if any does; None when none has
            a row.
    """

    request: SearchRequest
    tasks: Mapping[str, TaskResult]
    by_backend: Mapping[str, TaskResult]
    chosen: str | None

    @property
    def errors(self) -> dict[str, AicjaxError]:
        """Why experiments have no row, by name."""
        return {name: task.error for name, task in self.by_backend.items() if task.error is not None}

    @property
    def winner(self) -> TaskResult | None:
        """The chosen experiment."""
        return self.tasks[self.chosen] if self.chosen is not None else None

    def require(self) -> TaskResult:
        """The chosen experiment when it meets the limits.

        Raises:
            NoFeasible: No configuration meets the limits; the text names the binding one and the nearest configuration.
            AicjaxError: Every experiment failed for another reason: bad input or missing data.
        """
        if self.winner is not None and any(task.meets_target for task in self.tasks.values()):
            return self.winner
        if self.winner is None:
            errors = sorted(self.errors.values(), key=lambda error: isinstance(error, NoFeasible))
            raise errors[0]
        raise next(task.shortfall.error(task.name) for task in self.by_backend.values() if task.shortfall is not None)

    @property
    def grid_gain(self) -> GridGain | None:
        """What the winner has over the best row of all experiments on the coarser grid; None without one."""
        if self.winner is None:
            return None
        baseline = Baseline.first(task.baseline for task in self.tasks.values())
        return GridGain.over(baseline, self.request.grid_name, self.winner.best, self.winner.meets_target)

    @property
    def inputs(self) -> dict[str, Any]:
        """The request as given names and values, defaults included."""
        in_force = {"grid": self.request.grid_name, "constants": self.request.constants_name}
        return self.request.model_dump(mode="json") | in_force
