# SPDX-License-Identifier: Apache-2.0
"""Result frames: columns by name, each an array with one entry per row."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aicjax.explore.columns import CLUSTER, DECIMALS

Frame = dict[str, np.ndarray]


def length(frame: Frame) -> int:
    """Rows of a frame; 0 for one without columns."""
    return len(next(iter(frame.values()))) if frame else 0


def build(order: Sequence[str], values: Mapping[str, Any], rows: int, *, decimals: int | None = DECIMALS) -> Frame:
    """A frame of `rows` rows with the columns in `order`, single values repeated and numbers rounded as reported."""
    return {name: _column(values[name], rows, decimals) for name in order}


def take(frame: Frame, rows: np.ndarray) -> Frame:
    """Some rows of a frame: positions or a mask."""
    return {name: column[rows] for name, column in frame.items()}


def concatenate(frames: Sequence[Frame]) -> Frame:
    """The rows of several frames with the same columns; empty ones are left out."""
    filled = [frame for frame in frames if length(frame)]
    if not filled:
        return dict(frames[0]) if frames else {}
    return {name: np.concatenate([frame[name] for frame in filled]) for name in filled[0]}


def row(frame: Frame, position: int) -> dict[str, Any]:
    """One row as Python values; a number that is absent is None."""
    return {name: _value(column[position]) for name, column in frame.items()}


def rows(frame: Frame) -> Iterator[dict[str, Any]]:
    """The rows of a frame, as `row` gives them."""
    return (row(frame, position) for position in range(length(frame)))


def with_cluster(frame: Frame, tokens_per_s_per_gpu: np.ndarray) -> Frame:
    """The frame with the throughput of the whole GPU budget as its last column, not rounded."""
    return {**{name: column for name, column in frame.items() if name != CLUSTER}, CLUSTER: tokens_per_s_per_gpu}


def _column(values: Any, rows: int, decimals: int | None) -> np.ndarray:
    column = np.asarray(values)
    if column.ndim == 0:
        column = np.full(rows, values)
    return column if decimals is None or column.dtype.kind != "f" else np.round(column, decimals)


def _value(value: Any) -> Any:
    value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
