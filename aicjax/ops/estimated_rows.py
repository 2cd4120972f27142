# SPDX-License-Identifier: Apache-2.0
"""Rows that tables may leave without an answer: a few of many, estimated apart and put back in their place."""

import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from aicjax._results import Provenance
from aicjax._types import Array


def take_rows(values: Shaped[Array, "row ..."], row: Int[Array, " estimate"]) -> Shaped[Array, "estimate ..."]:
    """Rows of `values`; any row where `row` lies beyond them."""
    return jnp.asarray(values).at[row].get(mode="clip")


def fill_rows(
    row: Int[Array, " estimate"],
    roof_ms: Float[Array, "estimate point"],
    utilization: Float[Array, "estimate point"],
    provenance: Int[Array, " estimate"],
    latency_ms: Float[Array, "row point"],
    code: Int[Array, "row point"],
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency and provenance of all rows: an estimate where there is one and tables have no answer.

    Args:
        row: Which row each estimate is for; beyond all rows on padding.
        roof_ms: Roofline of the queries.
        utilization: Estimated utilisation; NaN where there is none.
        provenance: How near the points are that lent it.
        latency_ms, code: What tables answer, NaN where nothing.
    """
    known, usable = take_rows(latency_ms, row), utilization > 0
    missing = jnp.isnan(known)
    estimate = jnp.where(usable, roof_ms / jnp.where(usable, utilization, 1.0), jnp.nan)
    label = jnp.where(usable, provenance[:, None], Provenance.MISSING)
    label = jnp.where(missing, label, take_rows(code, row)).astype(jnp.int32)
    filled = jnp.where(missing, estimate, known)
    latency_ms, code = jnp.asarray(latency_ms), jnp.asarray(code, jnp.int32)
    return latency_ms.at[row].set(filled, mode="drop"), code.at[row].set(label, mode="drop")
