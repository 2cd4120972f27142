# SPDX-License-Identifier: Apache-2.0
"""The mark of answers that rest on a repaired table."""

import jax.numpy as jnp
from jaxtyping import Bool, Int

from aicjax._results import Provenance
from aicjax._types import Array


def with_repairs(code: Int[Array, "row point"], repaired: Bool[Array, "row point"]) -> Int[Array, "row point"]:
    """Provenance, no better than `REPAIRED` where the time of a host was taken out of the table that answered."""
    return jnp.where(repaired, jnp.maximum(code, Provenance.REPAIRED), code)
