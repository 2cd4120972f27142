# SPDX-License-Identifier: Apache-2.0
"""Which models run on a system with an engine, and why the others do not, from what is measured.

A model runs where one of the layouts of a default search fits its GPUs and every operator of its steps has an answer,
for requests so short that memory holds little but weights. All models of a system and engine are bound and evaluated
together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicjax._results import AicjaxError, MissingData, MissingPeak
from aicjax.explore.evaluation import bind_layouts
from aicjax.explore.grid import load_grid
from aicjax.explore.misfit import memory_shortfall
from aicjax.explore.request import SearchRequest
from aicjax.explore.roles import Worker
from aicjax.explore.task import Budget, role_space
from aicjax.forward.bound import PARTS, BoundModel, StepCurves
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory
from aicjax.hardware import load_system
from aicjax.serving.coordinates import Coordinates
from aicjax.tables import available

MODES: tuple[str, ...] = ("agg", "disagg")
_GPUS = 64  # no default list has larger workers
_TOKENS = 256  # prompt and answer
_PREFILL, _DECODE = PARTS[:2], PARTS[2:]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Support:
    """Whether one model runs on one system with one engine.

    Attributes:
        model: Its name.
        system: GPU system.
        backend: Engine.
        version: Version of the measured tables; empty where there are none.
        reasons: Why it does not run, by serving mode (`agg`, `disagg`); None where it does.
        lacks: What it does not run for: `tables`, `layout`, `memory`, `format` (of the GPU) or `data`; empty where it
            runs aggregated.
        unmeasured: Operators that lack data, in the smallest layout that fits.
        layout: Smallest layout that runs aggregated; empty without one.
        prefill_ms, decode_ms: Prefill of one prompt and a decode step of one request on it; NaN without one.
    """

    model: str
    system: str
    backend: str
    version: str
    reasons: Mapping[str, str | None]
    lacks: str = ""
    unmeasured: tuple[str, ...] = ()
    layout: str = ""
    prefill_ms: float = float("nan")
    decode_ms: float = float("nan")

    @property
    def runs(self) -> bool:
        """Whether it runs in any serving mode."""
        return not all(self.reasons.values())


def support(models: Iterable[str], system: str, backend: str, **inputs: Any) -> list[Support]:
    """Whether models run on a system with an engine, in the order of the models.

    Args:
        models: Hugging Face names or directories.
        system: GPU system.
        backend: Engine.
        inputs: Further fields of a `SearchRequest`, e.g. `database_mode`.

    Raises:
        InputError: An unknown system or field.

    Examples:
        >>> [verdict.reasons for verdict in support(["Qwen/Qwen3-8B"], "b60", "trtllm")]
        [{'agg': 'no measured tables', 'disagg': 'no measured tables'}]
    """
    if backend not in available(load_system(system).name) and "backend_version" not in inputs:
        none = dict.fromkeys(MODES, "no measured tables")
        return [Support(model, system, backend, "", none, "tables") for model in models]
    tried = [_Tried.of(model, system=system, backend=backend, **inputs) for model in models]
    _evaluate([trial for trial in tried if trial.ready])
    return [trial.verdict(system, backend) for trial in tried]


@dataclass
class _Tried:
    """One model in the layouts of a search, and its step times when they are there.

    Attributes:
        model: Its name.
        worker: Its layouts; None when there is none.
        fits: Which layouts hold the requests, by the role of the worker [layout].
        error: Why nothing can be evaluated.
        curves: Step times, of this and other models.
        configs: Positions of its layouts on their config axis.
    """

    model: str
    worker: Worker | None = None
    fits: Mapping[str, Mask] = field(default_factory=dict)
    error: AicjaxError | None = None
    curves: StepCurves | None = None
    configs: Sequence[int] = ()

    @classmethod
    def of(cls, model: str, **inputs: Any) -> "_Tried":
        """A model in its layouts, or with the error that says why there is none."""
        request = SearchRequest(model_path=model, total_gpus=_GPUS, isl=_TOKENS, osl=_TOKENS, **inputs)
        budget, grid = Budget(_GPUS, _GPUS), load_grid(request.grid_name)
        try:
            worker = role_space(request, "agg", request.backend, budget, grid.layouts).worker
        except AicjaxError as error:
            return cls(model, error=error)
        return cls(
            worker.deployment.model.name,
            worker,
            {role: _fits(worker, memory) for role, memory in _LEAST_MEMORY.items()},
        )

    @property
    def ready(self) -> bool:
        """Whether there is anything to evaluate."""
        return any(mask.any() for mask in self.fits.values())

    def verdict(self, system: str, backend: str) -> Support:
        """The answer, once the step times are there or known to be impossible."""
        if self.worker is None:
            return self._refused(system, backend, "", _kind(self.error), str(self.error))
        layouts, version = self.worker.layouts, self.worker.deployment.version
        if not self.fits["agg"].any():
            detail = memory_shortfall(self.worker, _LEAST_MEMORY["agg"]).detail
            return self._refused(system, backend, version, "memory", detail)
        if self.curves is None:
            return self._refused(system, backend, version, _kind(self.error), str(self.error))
        prefill_ms, decode_ms = self._total(self.curves, _PREFILL), self._total(self.curves, _DECODE)
        prefills, decodes = np.isfinite(prefill_ms), np.isfinite(decode_ms)
        agg = np.flatnonzero(self.fits["agg"] & prefills & decodes)
        decoders = self.fits["decode"] & [layout.cp == 1 for layout in layouts]
        disagg = (self.fits["prefill"] & prefills).any() and (decoders & decodes).any()
        unmeasured = self._unmeasured(self.curves)
        missing = f"no measured data for {', '.join(unmeasured)}" if unmeasured else "no worker that fits is measured"
        reasons = {"agg": None if len(agg) else missing, "disagg": None if disagg else missing}
        if not len(agg):
            return Support(self.model, system, backend, version, reasons, "data", unmeasured)
        at = min(agg.tolist(), key=lambda config: (layouts[config].gpus, layouts[config].cp))
        times = float(prefill_ms[at]), float(decode_ms[at])
        return Support(self.model, system, backend, version, reasons, "", (), layouts[at].label, *times)

    def _refused(self, system: str, backend: str, version: str, lacks: str, reason: str) -> Support:
        return Support(self.model, system, backend, version, dict.fromkeys(MODES, reason), lacks)

    def _total(self, curves: StepCurves, parts: Sequence[str]) -> NDArray[np.float64]:
        return np.array([getattr(curves, f"{part}_ms")[self.configs, 0] for part in parts], np.float64).sum(axis=0)

    def _unmeasured(self, curves: StepCurves) -> tuple[str, ...]:
        """Operators without an answer in the smallest layout that fits: those of the prefill, else of the decode."""
        assert self.worker is not None
        layouts = self.worker.layouts
        at = min(np.flatnonzero(self.fits["agg"]).tolist(), key=lambda config: layouts[config].gpus)
        for parts, phase in ((_PREFILL, "context_"), (_DECODE, "generation_")):
            names = [name.removeprefix(phase) for part in parts for name in curves.missing(part, self.configs[at])]
            if names:
                return tuple(dict.fromkeys(names))
        return ()


def _kind(error: AicjaxError | None) -> str:
    """What a model lacks that cannot be bound."""
    return {MissingData: "data", MissingPeak: "format"}.get(type(error), "layout")


def _evaluate(tried: Sequence[_Tried]) -> None:
    """Step times of one short prompt and one decode step for all models at once; those that cannot be bound say why."""
    coordinates = Coordinates()
    coordinates.context_rest(1, _TOKENS, 0)
    coordinates.context_attention(1, _TOKENS, 0)
    coordinates.generation_rest(1)
    coordinates.generation_attention(1, _TOKENS)
    coordinates.generation_other(1, _TOKENS)
    try:
        bound = _bind(tried)
    except AicjaxError:  # of some model: only those that bind alone are bound together
        for trial in tried:
            try:
                _bind([trial])
            except AicjaxError as error:
                trial.error = error
        tried = [trial for trial in tried if trial.error is None]
        bound = _bind(tried)
    if bound is None:
        return
    curves, start = bound.evaluate(coordinates.queries()), 0
    for trial, worker in zip(tried, _workers(tried), strict=True):
        stop = start + len(worker.layouts)
        trial.curves, trial.configs, start = curves, range(start, stop), stop


def _bind(tried: Sequence[_Tried]) -> BoundModel | None:
    """All layouts of all models on their common tables; None without models."""
    workers = _workers(tried)
    if not workers:
        return None
    return bind_layouts(workers[0].deployment, [lists for worker in workers for lists in worker.op_lists])


def _workers(tried: Sequence[_Tried]) -> list[Worker]:
    return [trial.worker for trial in tried if trial.worker is not None]


def _fits(worker: Worker, memory: Any) -> Mask:
    verdict = memory(worker.memory).verdict
    return np.broadcast_to(verdict, (len(worker.layouts), 1))[:, 0] == Verdict.FITS


def _static(phase: str) -> Any:
    def least(memory: WorkerMemory) -> MemorySplit:
        return memory.static([1], _TOKENS, _TOKENS, phase=phase)

    return least


_LEAST_MEMORY = {
    "agg": lambda memory: memory.inflight([1], _TOKENS, _TOKENS, [_TOKENS]),
    "prefill": _static("static_ctx"),
    "decode": _static("static_gen"),
}
