# SPDX-License-Identifier: Apache-2.0
"""Which assumption moves an estimate: elasticities of throughput, TTFT and TPOT, by autodiff through the kernels.

Constants and hardware are differentiated, the hardware at the same utilisation (`forward.scaled`). What counts tokens
or requests is an integer and is differenced: the same kernels run a step of one percent, or of one, below and above.
Memory decides which points are feasible, not what they yield, so its constants are left out.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aicjax.constants import Constants, traced
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.result import Sensitivity
from aicjax.explore.roles import Deployment
from aicjax.forward.bound import padded_queries
from aicjax.forward.scaled import scaled_step_times
from aicjax.forward.steps import StepTimes
from aicjax.hardware import System
from aicjax.ops.roofline import DTYPES, hardware_arrays

STEP = 0.01  # relative step of a central difference
SWITCHES = ("loop.mixes_prefill",)  # constants that are 0 or 1
COUNTING = "op.moe_balanced_share"  # a constant that counts tokens: differenced too


class Figures(NamedTuple):
    """What is explained, of every variant of a workload [variant]; NaN or 0 where a point has no such figure.

    Attributes:
        throughput: Tokens per second, to a factor that nothing here changes.
        ttft_ms, tpot_ms: Latencies.
    """

    throughput: Any
    ttft_ms: Any
    tpot_ms: Any


class Point(NamedTuple):
    """A serving point and its neighbours, ready to be differentiated.

    Attributes:
        figures: `(step times of each engine, inputs, constants)` to figures; a function of a module.
        inputs: What else it takes: a pytree of arrays with the variants first.
        steps: Neighbours, after the point itself: name, value and the two values differenced, in the order of the
            variants.
        sections: Parts of `Constants` that the figures read.
    """

    figures: Callable[[tuple[StepTimes, ...], Any, Constants], Figures]
    inputs: Any
    steps: tuple["Step", ...]
    sections: tuple[str, ...]


class Step(NamedTuple):
    """A central difference in one count.

    Attributes:
        name: Of the request.
        value: The count.
        below, above: The counts that are evaluated, a variant each.
    """

    name: str
    value: int
    below: int
    above: int

    @classmethod
    def around(cls, name: str, value: int, least: int = 1) -> "Step":
        """A step of `STEP` both ways, of one count at least, and not below `least`."""
        by = max(1, round(value * STEP))
        return cls(name, value, max(least, value - by), value + by)


class _Assumptions(eqx.Module):
    """Logarithms of factors on everything that is differentiated; 0 for the assumptions as they are."""

    constants: Any
    hardware: dict[str, Any]
    unbounded: Any


def sensitivities(point: Point, evaluation: Evaluation, deployment: Deployment) -> tuple[Sensitivity, ...]:
    """Elasticities of a point, most first: by throughput, then by the larger of the latencies'.

    Args:
        point: The point.
        evaluation: Its workers, with all coordinates that the figures read.
        deployment: Where the constants come from.
    """
    bound = evaluation.bound()
    engines = tuple((e.system.name, e.model.arrays, padded_queries(e.queries)[0], e.model.roofline) for e in bound)
    systems = {e.system.name: e.system for e in bound}
    constants = traced(deployment.constants)
    zero = _Assumptions(
        constants={name: jax.tree.map(np.zeros_like, getattr(constants, name)) for name in point.sections},
        hardware={name: jax.tree.map(np.zeros_like, hardware_arrays(system)) for name, system in systems.items()},
        unbounded=np.zeros((), np.float32),
    )

    def logs(assumptions: _Assumptions = zero) -> tuple[np.ndarray, _Assumptions]:
        found = _elasticities(point.figures, engines, constants, point.inputs, assumptions)
        return jax.device_get(found)

    values, slopes = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), logs())
    known = np.isfinite(values).all(1)
    rows = [
        *_hardware(slopes.hardware, systems),
        *_constants(slopes.constants, deployment),
        ("operators", "time without a roofline", "", 1.0, slopes.unbounded),
        *_steps(point.steps, values),
    ]
    if deployment.balanced:
        share = deployment.constants.op.moe_balanced_share
        ends = [logs(_with_share(zero, sign * math.log1p(STEP)))[0][:, 0] for sign in (-1, 1)]
        slope = (ends[1] - ends[0]) / (2 * math.log1p(STEP))
        rows = [row for row in rows if row[1] != COUNTING]
        rows.append(("constant", COUNTING, deployment.backend, share, slope))
    listed = [
        Sensitivity(
            kind, name, of, float(value), *(x if ok else None for x, ok in zip(slope.tolist(), known, strict=True))
        )
        for kind, name, of, value, slope in rows
    ]
    return tuple(sorted(listed, key=lambda each: (-abs(each.throughput or 0.0), -each.largest)))


@eqx.filter_jit
def _elasticities(figures, engines, constants: Constants, inputs, assumptions: _Assumptions):
    """Logarithms of the figures [figure, variant], NaN without one, and their slopes at the point [figure] a leaf."""

    def logs(assumptions: _Assumptions):
        moved = dataclasses.replace(
            constants, **{name: _times(getattr(constants, name), by) for name, by in assumptions.constants.items()}
        )
        times = tuple(
            scaled_step_times(
                arrays,
                queries,
                moved.op,
                _times(arrays.hardware, assumptions.hardware[system]),
                unbounded=jnp.exp(assumptions.unbounded),
                roofline=roofline,
            )
            for system, arrays, queries, roofline in engines
        )
        found = jnp.stack([jnp.asarray(figure) for figure in figures(times, inputs, moved)])
        known = found > 0  # no logarithm of the others: its slope would reach the gradient
        values = jnp.where(known, jnp.log(jnp.where(known, found, 1.0)), jnp.nan)
        return values[:, 0], values

    slopes, values = jax.jacrev(logs, has_aux=True)(assumptions)
    return values, slopes


def _times(tree, by):
    """A tree with every leaf multiplied by the exponential of another's."""
    return jax.tree.map(lambda value, log: value * jnp.exp(log), tree, by)


Row = tuple[str, str, str, float, np.ndarray]  # kind, name, of, value, slope [figure]


def _hardware(slopes: dict[str, Any], systems: dict[str, System]) -> Iterator[Row]:
    """The stated numbers of every system, those of links that it has, with their slopes."""
    for name, system in systems.items():
        found = slopes[name]
        stated = {
            "gpu.memory_bandwidth_bytes_per_s": (system.mem_bw_bytes_per_s, found.mem_bw),
            "gpu.memory_bandwidth_scaling": (system.mem_bw_scaling, found.mem_bw_scaling),
            "gpu.memory_latency_s": (system.mem_latency_s, found.mem_latency_ms),
            "node.point_to_point_latency_s": (system.p2p_latency_s, found.p2p_latency_ms),
        }
        stated |= {
            f"gpu.peak_flops_per_s.{dtype}": (system.peak_flops[dtype], found.peak[:, DTYPES.index(dtype)])
            for dtype in DTYPES
            if dtype in system.peak_flops
        }
        links = ("intra_node", "inter_node", "inter_rack")[: 2 if system.gpus_per_rack is None else 3]
        stated |= {
            f"node.{link}_bandwidth_bytes_per_s": (system.link_bw_bytes_per_s[at], found.link_bw[:, at])
            for at, link in enumerate(links)
        }
        yield from (("hardware", key, name, value, slope) for key, (value, slope) in stated.items())


def _constants(slopes: dict[str, Any], deployment: Deployment) -> Iterator[Row]:
    """Every constant of the sections that are read, with its slope."""
    for section, tree in slopes.items():
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        values = jax.tree.leaves(getattr(deployment.constants, section))
        for (path, slope), value in zip(leaves, values, strict=True):
            name = f"{section}.{jax.tree_util.keystr(path, simple=True, separator='.')}"
            if name in SWITCHES:
                continue
            yield "constant", name, deployment.backend, value, slope


def _steps(steps: Sequence[Step], values: np.ndarray) -> Iterator[Row]:
    """Central differences, of the variants after the first."""
    for at, step in enumerate(steps):
        below, above = values[:, 2 * at + 1], values[:, 2 * at + 2]
        yield "workload", step.name, "", step.value, (above - below) / math.log(step.above / step.below)


def _with_share(assumptions: _Assumptions, log: float) -> _Assumptions:
    return eqx.tree_at(lambda a: a.constants["op"].moe_balanced_share, assumptions, np.array(log, np.float32))
