# SPDX-License-Identifier: Apache-2.0
"""The kernels over all points of rows, compiled for rows that are spread over devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float

from aicjax._types import Device
from aicjax.interp.counts import point_bucket
from aicjax.sweeps.kernel import AnyArray, Grid, Rows, Scan, every, scan

ROWS = "rows"
POINTS_AT_ONCE = {"cpu": 1 << 19}  # of one device
POINTS_ON_ACCELERATOR = 1 << 23


def rows_at_once(device: Device, grid: Grid, rows: int) -> int:
    """Rows that one device is given at once, of all `rows`; the same for any number of devices."""
    points = POINTS_AT_ONCE.get(device.platform, POINTS_ON_ACCELERATOR)
    return max(1, min(points // grid.needs.inside.size, point_bucket(rows)))


@functools.cache
def scanner(devices: tuple[Device, ...], measures: tuple[str, ...], *, corners: bool, littles_law_cap: bool):
    """`scan` compiled for rows spread over devices; every device runs the same program on its share of the rows.

    No device needs another's rows, so that the answer of a row is the same, bit for bit, on any number of devices
    that get the same number of rows each.
    """
    body = functools.partial(scan, measures=measures, corners=corners, littles_law_cap=littles_law_cap)
    if devices[0].platform == "cpu":
        body = functools.partial(_row_by_row, body)
    whole, limits_first = PartitionSpec(), PartitionSpec(None, ROWS)
    found: Any = Scan(*(PartitionSpec(ROWS), *[limits_first] * 5))  # pyright: ignore[reportArgumentType]
    return _over_rows(devices, body, (PartitionSpec(ROWS), whole, whole, PartitionSpec(ROWS)), found)


@functools.cache
def lister(devices: tuple[Device, ...], *, littles_law_cap: bool):
    """`every` compiled for rows spread over devices, as `scanner` does it."""
    body = functools.partial(every, littles_law_cap=littles_law_cap)
    return _over_rows(devices, body, (PartitionSpec(ROWS), PartitionSpec()), PartitionSpec(ROWS))


def _row_by_row(
    body: Callable[..., Scan],
    rows: Rows,
    grid: Grid,
    limits: Float[AnyArray, "limits two"],
    worth: Float[AnyArray, " row"] | None,
) -> Scan:
    """`scan` of one row after the other: the caches of a core hold more of one than of all."""

    def alone(row: tuple[Rows, AnyArray | None]) -> Scan:
        row, worth = jax.tree.map(lambda leaf: leaf[None], row)
        return body(row, grid, limits, worth)

    found = jax.lax.map(alone, (rows, worth))
    limits_first = jax.tree.map(lambda leaf: leaf[:, :, 0].swapaxes(0, 1), found[1:])
    return Scan(found.lost[:, 0], *limits_first)


def _over_rows(devices: tuple[Device, ...], body: Callable, in_specs: Any, out_specs: Any) -> Callable:
    mesh = Mesh(np.array(devices), (ROWS,))
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs))
