# SPDX-License-Identifier: Apache-2.0
"""What token counts drive in a step, shared by grids: most of their counts are the same whatever the requests."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.forward.bound import COORDINATES, BoundModel, step_queries
from aicjax.forward.steps import StepQueries
from aicjax.serving.coordinates import distinct

REST = ("context_rest", "generation_rest")
ATTENTION = tuple(part for part in COORDINATES if part not in REST)


class RestTimes(NamedTuple):
    """Passes of all layouts without attention [ms], as of `StepCurves`."""

    context_rest_ms: NDArray[np.float32]
    generation_rest_ms: NDArray[np.float32]

    def at(self, places: "RestPlaces") -> "RestTimes":
        """The times at some of the coordinates."""
        return RestTimes(self.context_rest_ms[:, places.context], self.generation_rest_ms[:, places.generation])


class RestPlaces(NamedTuple):
    """Where the coordinates of a grid are among those of several [rest], [rows]."""

    context: NDArray[np.int64]
    generation: NDArray[np.int64]


class RestUnion(NamedTuple):
    """The distinct coordinates of passes without attention of several grids, and where those of each grid are."""

    queries: StepQueries
    places: tuple[RestPlaces, ...]

    def times(self, bound: BoundModel) -> RestTimes:
        """Step times at the distinct coordinates."""
        curves = bound.evaluate(self.queries)
        return RestTimes(curves.context_rest_ms, curves.generation_rest_ms)


def rest_union(grids: Sequence[StepQueries]) -> RestUnion:
    """What the passes without attention of some grids share."""
    fields, places = {}, []
    for part in REST:
        names = COORDINATES[part]
        of_grids = [np.stack([getattr(queries, name) for name in names]) for queries in grids]
        columns, place = distinct(list(np.concatenate(of_grids, axis=1)))
        fields |= dict(zip(names, columns, strict=True))
        places.append(np.split(place, np.cumsum([columns.shape[1] for columns in of_grids])[:-1]))
    return RestUnion(step_queries(**fields), tuple(RestPlaces(*of_grid) for of_grid in zip(*places, strict=True)))


def attention_alone(queries: StepQueries) -> StepQueries:
    """The queries without those of `REST`."""
    names = [name for part in ATTENTION for name in COORDINATES[part]]
    return step_queries(**{name: getattr(queries, name) for name in names})
