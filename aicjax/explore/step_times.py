# SPDX-License-Identifier: Apache-2.0
"""What an engine step spends on each operator, for the points that are reported."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aicjax._results import Provenance
from aicjax.explore.agg_sweep import AggSweep
from aicjax.explore.result import StepTimes
from aicjax.explore.static_sweep import StaticSweep
from aicjax.forward.bound import StepCurves
from aicjax.forward.encoder import EncoderTimes
from aicjax.serving.coordinates import Places


class _Part(NamedTuple):
    """One part of a step.

    Attributes:
        places: Where its values lie.
        position: Which of the coordinates asked for, flat.
        share: Factor on its time.
    """

    places: Places
    position: int
    share: float = 1.0


def agg_steps(sweep: AggSweep, curves: StepCurves, config: int, batch: int, ctx: int) -> tuple[StepTimes, ...]:
    """The steps of an in-flight batching cycle: the mixed one, and the decode step where there is one.

    Args:
        sweep: The sweep.
        curves: Step times.
        config: Position of the layout on the config axis.
        batch: Position of the batch in the sweep.
        ctx: Position of the context-token budget in the sweep.
    """
    plan = sweep.plan
    point = batch * plan.batch.shape[1] + ctx
    single, beside = plan.batch[batch, 0] == 1, plan.decode_rows[batch, ctx] > 0
    passes = int(plan.prompts[batch, ctx]) / int(plan.attended[batch, ctx] * plan.chunks[batch, ctx])
    mixed = [_Part(sweep.shared, point), _Part(sweep.context_attention, ctx, passes)]
    if beside:
        mixed.append(_Part(sweep.decode_attention, point))
    steps = [_step("mixed step" if beside or single else "prefill", curves, config, mixed)]
    if single or plan.drains[batch, ctx]:
        decode = [_Part(sweep.decode_rest, batch), _Part(sweep.decode_attention, plan.batch.size + batch)]
        decode.append(_Part(sweep.decode_other, batch))
        steps.append(_step("decode step", curves, config, decode))
    return tuple(steps)


def encoder_step(
    encoder: EncoderTimes | None, layout: int, batch: int, *, correction: float = 1.0, worker: str = ""
) -> tuple[StepTimes, ...]:
    """The pass of the vision encoder over the images of a batch; nothing without one.

    Args:
        encoder: Its times.
        layout: Position of the layout among the worker's.
        batch: Position of the batch in the sweep.
        correction: Factor on all latencies.
        worker: What the name of the step begins with.
    """
    if encoder is None:
        return ()
    spent = encoder.breakdown(layout, batch)
    latency_ms = tuple(float(value) * correction for value in spent.latency_ms)
    return (
        StepTimes(f"{worker}encoder", spent.names, latency_ms, tuple(Provenance(int(c)) for c in spent.provenance)),
    )


def static_steps(
    sweep: StaticSweep, curves: StepCurves, config: int, batch: int, *, correction: float = 1.0, worker: str = ""
) -> tuple[StepTimes, ...]:
    """The prefill and the first decode step of a static batch, whichever the worker runs.

    Args:
        sweep: The sweep.
        curves: Step times.
        config: Position of the layout on the config axis.
        batch: Position of the batch in the sweep.
        correction: Factor on all latencies.
        worker: What the names of the steps begin with.
    """
    steps = []
    if sweep.prefill is not None:
        parts = [_Part(places, batch, correction) for places in sweep.prefill]
        steps.append(_step(f"{worker}prefill", curves, config, parts))
    if sweep.decode is not None:
        first = batch * len(sweep.decode.weights)
        parts = [_Part(sweep.decode.rest, batch, correction), _Part(sweep.decode.attention, first, correction)]
        parts.append(_Part(sweep.decode.other, first, correction))
        steps.append(_step(f"{worker}first decode step", curves, config, parts))
    return tuple(steps)


def _step(step: str, curves: StepCurves, config: int, parts: Sequence[_Part]) -> StepTimes:
    """Operators of a step of one layout (position on the config axis), part by part."""
    names: list[str] = []
    latency_ms: list[float] = []
    provenance: list[Provenance] = []
    points = [part.places.start + int(part.places.inverse.ravel()[part.position]) for part in parts]
    for part, point in zip(parts, points, strict=True):
        breakdown = curves.breakdown(part.places.part, config, point)
        names += breakdown.names
        latency_ms += [float(value) * part.share for value in breakdown.latency_ms]
        provenance += [Provenance(int(code)) for code in breakdown.provenance]

    def rooflines() -> tuple[float, ...]:
        bounds_ms = [
            curves.roofline_ms(part.places.part, config, point) * part.share
            for part, point in zip(parts, points, strict=True)
        ]
        return tuple(np.concatenate(bounds_ms).tolist())

    return StepTimes(step, tuple(names), tuple(latency_ms), tuple(provenance), rooflines)
