# SPDX-License-Identifier: Apache-2.0
"""Workers at a serving point and its neighbours in prompt length, answer length and batch, as traced arrays."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from aicjax.explore.evaluation import Evaluation
from aicjax.explore.roles import Worker
from aicjax.explore.sensitivity import Step
from aicjax.forward.steps import StepTimes
from aicjax.serving.coordinates import Places
from aicjax.serving.load import Load

Times = tuple[StepTimes, ...]


def one_layout(worker: Worker, label: str) -> Worker:
    """The worker in the one layout of this label."""
    at = [layout.label for layout in worker.layouts].index(label)
    parts = {name: (getattr(worker, name)[at],) for name in ("layouts", "exchanges", "op_lists")}
    return dataclasses.replace(worker, **parts)


class Place(eqx.Module):
    """Where the step times of one part lie, of every variant.

    Attributes:
        part: A field of `StepTimes`. Static.
        index: Points on its curve [variant, sample].
    """

    part: str = eqx.field(static=True)
    index: Any


def place_of(places: Sequence[Places], bucket: int = 1) -> Place:
    """Places of all variants, the samples padded with the last one to a multiple of `bucket`."""
    index = [(place.start + place.inverse).ravel() for place in places]
    width = -(-max(own.size for own in index) // bucket) * bucket
    padded = [np.pad(own, (0, width - own.size), mode="edge") for own in index]
    return Place(places[0].part, np.stack(padded).astype(np.int32))


class Side(eqx.Module):
    """A worker in one layout, at the point and its neighbours.

    Attributes:
        engine: Position of its engine. Static.
        row: Position of its layout on the config axis.
        places: Where its step times lie, by name.
        weights: Steps that each sample of a decode stands for [variant, sample].
        batch: Requests of one attention rank [variant].
        osl: Output tokens [variant].
        progress: Output tokens of a decode iteration.
        dp, pp, gpus: Of the layout.
    """

    engine: int = eqx.field(static=True)
    row: Any
    places: dict[str, Place]
    weights: Any
    batch: Any
    osl: Any
    progress: Any
    dp: Any
    pp: Any
    gpus: Any

    def ms(self, times: Times, name: str) -> Any:
        """Step times at the places of a name [variant, sample]."""
        place = self.places[name]
        return getattr(times[self.engine], place.part).total_ms[self.row][place.index]


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """A point and two variants for each step around it.

    Attributes:
        steps: The steps.
        loads: Requests [variant].
        batches: Batches by name [variant].
    """

    steps: tuple[Step, ...]
    loads: list[Load]
    batches: dict[str, list[int]]

    @classmethod
    def of(cls, load: Load, batches: dict[str, int]) -> "Neighbours":
        """Those of a point."""
        steps = [Step.around("isl", load.isl, load.prefix + 1)]
        steps += [Step.around("osl", load.osl, 2)] if load.osl > 1 else []
        steps += [Step.around(name, batch) for name, batch in batches.items()]
        point = {"isl": load.isl, "osl": load.osl, **batches}
        variants = [point, *(point | {step.name: value} for step in steps for value in (step.below, step.above))]
        loads = [dataclasses.replace(load, isl=variant["isl"], osl=variant["osl"]) for variant in variants]
        return cls(tuple(steps), loads, {name: [variant[name] for variant in variants] for name in batches})


def under_loads(worker: Worker, loads: Sequence[Load]) -> list[Worker]:
    """The worker under each load."""
    return [dataclasses.replace(worker, deployment=dataclasses.replace(worker.deployment, load=load)) for load in loads]


def side_of(
    worker: Worker,
    evaluation: Evaluation,
    loads: Sequence[Load],
    batches: Sequence[int],
    places: dict[str, Place],
    weights: np.ndarray,
) -> Side:
    """A worker in one layout that the evaluation knows, under the load and with the batch of each variant."""
    engine, (row,) = evaluation.place(worker)
    (layout,) = worker.layouts
    numbers = {
        "weights": weights,
        "batch": batches,
        "osl": [load.mean.osl for load in loads],
        "progress": loads[0].progress,
        "dp": layout.dp,
        "pp": layout.pp,
        "gpus": layout.gpus,
    }
    arrays = {name: np.array(values, np.float32) for name, values in numbers.items()}
    return Side(engine=engine, row=np.array(row, np.int32), places=places, **arrays)
