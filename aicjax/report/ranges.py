# SPDX-License-Identifier: Apache-2.0
"""How sure the figures of a configuration are: ranges of its times and throughput, and what follows from them.

Where the constants in force were fitted to measured servers, their file says how far unseen servers were from
predictions. Other constants say nothing of that, and neither does a report.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aicjax.constants import fitted, levels
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.frame import Frame
from aicjax.explore.request import EstimateRequest, SearchRequest
from aicjax.explore.result import StepTimes, TaskResult

if TYPE_CHECKING:
    from aicjax.calibrate.interval import Parts
    from aicjax.calibrate.measurements import Floats, Ints

Quantiles = tuple[float, float, float]


@dataclass(frozen=True)
class Ranges:
    """10 %, 50 % and 90 % quantiles of the figures of one configuration, and probabilities.

    Attributes:
        ttft_ms, tpot_ms, request_latency_ms: Times; `tpot_ms` is None for a single output token.
        tokens_per_s_per_gpu: Throughput of the GPU budget.
        limits_met: Probability that all limits of the request are met; None where it has none.
        best_is_better: Probability that the first row of the list has more throughput; None for itself.
    """

    ttft_ms: Quantiles
    tpot_ms: Quantiles | None
    request_latency_ms: Quantiles
    tokens_per_s_per_gpu: Quantiles
    limits_met: float | None
    best_is_better: float | None


def of_task(task: TaskResult, request: SearchRequest) -> list[Ranges | None]:
    """Ranges of the top rows of an experiment; None where nothing is known of its errors."""
    records = list(frames.rows(task.best))
    if not records or task.serving_mode not in _MODES:
        return [None] * len(records)
    steps = [task.explain(position).steps if task.explain else () for position in range(len(records))]
    return _ranges(request, records, steps, task.serving_mode, _limits(request))


def rows_with_ranges(task: TaskResult, request: SearchRequest) -> list[dict[str, Any]]:
    """Top rows of an experiment, each with its ranges as a mapping under `ranges`; None where nothing is known."""
    pairs = zip(frames.rows(task.best), of_task(task, request), strict=True)
    return [{**row, "ranges": dataclasses.asdict(found) if found else None} for row, found in pairs]


def of_point(request: EstimateRequest, row: Mapping[str, Any], steps: Sequence[StepTimes]) -> Ranges | None:
    """Ranges of one estimate; None where nothing is known of its errors."""
    return _ranges(request, [row], [steps], request.mode, {})[0] if request.mode in _MODES else None


def limits_met(task: TaskResult, request: SearchRequest, frame: Frame, steps: Sequence[StepTimes]) -> "Floats | None":
    """Probability that each row of a frame of an experiment meets all limits of the request [row].

    Args:
        task: The experiment.
        request: The request.
        frame: Rows with the columns of the experiment.
        steps: Steps of a row of its top list; tables are taken to be as sure for the other rows.

    Returns:
        Probabilities; None where nothing is known of the errors of the experiment.
    """
    if not frames.length(frame) or task.serving_mode not in _MODES:
        return None
    backends = frame["backend" if "backend" in frame else "(d)backend"].tolist()
    known = _errors(request, task.serving_mode, backends, [steps] * len(backends))
    if known is None:
        return None
    from aicjax.calibrate import interval

    errors, tails, sets = known
    times_ms = np.stack([frame["ttft"], np.nan_to_num(frame["tpot"])], -1).astype(float)
    drawn_ms = interval.drawn_times_ms(times_ms, interval.draws(errors, tails, sets))
    return interval.probability_met(drawn_ms, frame["osl"].astype(float), **_stated(_limits(request)))


def _limits(request: SearchRequest) -> dict[str, float | None]:
    latency = request.request_latency
    return {"ttft_ms": request.ttft, "tpot_ms": request.tpot if latency is None else None, "latency_ms": latency}


def _stated(limits: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in limits.items() if value is not None}


_MODES = ("agg", "disagg")
_PREFILL, _DECODE = ("prefill", "mixed step"), ("decode step", "mixed step")  # whose operators are in TTFT, in TPOT


def _errors(
    request: SearchRequest | EstimateRequest, mode: str, backends: Sequence[str], steps: Sequence[Sequence[StepTimes]]
) -> "tuple[Parts, Floats, Ints] | None":
    """Errors of rows, their tails and the set of each row; None where the constants in force say nothing of them."""
    stored = fitted(request.constants_name).get("spread")
    if stored is None:
        return None
    from aicjax.calibrate import interval
    from aicjax.calibrate.spread import constants_of_kinds, from_plain, of_kinds

    spread = from_plain(stored)
    kinds = [f"{backend}/{mode}" for backend in backends]
    components = of_kinds(spread, kinds)
    tables = np.zeros((len(backends), 2, 2))
    for quantity, names in enumerate((_PREFILL, _DECODE)):
        variances = {id(of_row): _table_variance(of_row, names) for of_row in steps}
        tables[:, quantity, quantity] = [variances[id(of_row)] for of_row in steps]
    constants = constants_of_kinds(spread, kinds)
    known = _level_covariance(request, backends, components.group)
    errors = interval.parts(components._replace(group=known), tables, constants, constants)
    return errors, spread.tails, np.unique(backends, return_inverse=True)[1]


def _ranges(
    request: SearchRequest | EstimateRequest,
    records: Sequence[Mapping[str, Any]],
    steps: Sequence[Sequence[StepTimes]],
    mode: str,
    limits: Mapping[str, float | None],
) -> list[Ranges | None]:
    backends = [str(record["backend" if "backend" in record else "(d)backend"]) for record in records]
    known = _errors(request, mode, backends, steps)
    if known is None:
        return [None] * len(records)
    from aicjax.calibrate import interval

    errors, tails, sets = known
    times_ms = np.array([[record["ttft"], record["tpot"]] for record in records], float)
    osl = np.array([record["osl"] for record in records], float)
    drawn_ms = interval.drawn_times_ms(times_ms, interval.draws(errors, tails, sets))
    rate = np.array([record.get(CLUSTER) or record["tokens/s/gpu"] for record in records], float)
    latency_ms = interval.request_latency_ms(drawn_ms, osl)
    figure = rate * interval.request_latency_ms(times_ms, osl) / latency_ms
    stated = _stated(limits)
    met = interval.probability_met(drawn_ms, osl, **stated)
    better = interval.probability_first_is_best(figure)
    quantiles = interval.time_range(times_ms, errors, tails)
    latency, throughput = (np.quantile(values, interval.QUANTILES, axis=0) for values in (latency_ms, figure))
    return [
        Ranges(
            ttft_ms=_triple(quantiles[:, row, 0]),
            tpot_ms=_triple(quantiles[:, row, 1]) if osl[row] > 1 else None,
            request_latency_ms=_triple(latency[:, row]),
            tokens_per_s_per_gpu=_triple(throughput[:, row]),
            limits_met=float(met[row]) if stated else None,
            best_is_better=float(better[row]) if row else None,
        )
        for row in range(len(records))
    ]


def _level_covariance(
    request: SearchRequest | EstimateRequest, backends: Sequence[str], group: np.ndarray
) -> np.ndarray:
    """Covariance of the level of each row's group: of unseen servers, or what measurements of one's own leave of it."""
    known, system = levels(request.constants_name), request.of_role("decode", "system")
    measured = [known.get((request.model_path, system, backend)) for backend in backends]
    return np.array([of if level is None else level.log_covariance for level, of in zip(measured, group, strict=True)])


def _table_variance(steps: Sequence[StepTimes], names: Sequence[str]) -> float:
    """Variance of the logarithm of the time of some steps, by how their operators were obtained."""
    from aicjax.calibrate.interval import table_covariance
    from aicjax.calibrate.operator_spread import ALL, spread_of

    chosen = [step for step in steps if step.step.endswith(tuple(names))]
    latency_ms = np.array([value for step in chosen for value in step.latency_ms])
    if not latency_ms.sum() > 0:
        return 0.0
    known = [spread_of(ALL, code) for step in chosen for code in step.provenance]
    deviation, common = (
        np.array([getattr(spread, name) if spread else 0.0 for spread in known]) for name in ("robust_sd", "table_sd")
    )
    return float(table_covariance(latency_ms / latency_ms.sum(), deviation, np.minimum(common, deviation)))


def _triple(values: np.ndarray) -> Quantiles:
    low, middle, high = values.tolist()
    return low, middle, high


def cell(quantiles: Quantiles | None) -> str:
    """The range of a figure as `8.1 - 12.5`; `-` without one."""
    if quantiles is None:
        return "-"
    low, high = quantiles[0], quantiles[2]
    digits = max(0, 2 - int(np.floor(np.log10(max(high, 1e-9)))))
    return f"{low:.{digits}f} - {high:.{digits}f}"


def lines(ranges: Ranges | None) -> list[str]:
    """The ranges of the best row in words; nothing without ranges."""
    if ranges is None:
        return []
    tpot = "" if ranges.tpot_ms is None else f", TPOT {cell(ranges.tpot_ms)} ms"
    met = "" if ranges.limits_met is None else f"; within the limits with {ranges.limits_met:.0%}"
    figures = f"TTFT {cell(ranges.ttft_ms)} ms{tpot}, {cell(ranges.tokens_per_s_per_gpu)} tokens/s/gpu"
    return [f"  in 8 of 10 cases {figures}{met}"]
