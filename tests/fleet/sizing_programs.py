# SPDX-License-Identifier: Apache-2.0
"""Two pools of one small law, and the compiled programs that the tests of sizing share."""

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet.lengths import Lengths, from_pairs
from aicjax.fleet.pools import Compression, Pool, service_of, split
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import stacked
from aicjax.fleet.sizing import sized, stated

ISL, OSL = [100, 400, 800, 1500, 1700, 2600, 3500, 5000], [20, 100, 100, 300, 300, 300, 100, 900]
LENGTHS = Lengths(*(jnp.asarray(leaf, float) for leaf in from_pairs(ISL, OSL)))
PROFILES = stacked([preset("a100"), preset("h100")])
THRESHOLDS, MAX_TOKENS = jnp.asarray([2000.0]), 8000.0
COMPRESSION = Compression(1.5, 0.75, 0.003)
SPLIT, SIZED, STATED = jax.jit(split), jax.jit(sized), jax.jit(stated)
SERVICES = jax.jit(jax.vmap(service_of))


def pools(gamma: float = 1.5, threshold: float = 2000.0) -> Pool:
    """The pools of the small law."""
    return SPLIT(PROFILES, LENGTHS, jnp.asarray([threshold]), MAX_TOKENS, COMPRESSION._replace(gamma=gamma))


def one_length(isl: float, osl: float, max_tokens: float) -> Pool:
    """The pools where all requests are alike and go to the first, of the same shapes."""
    alike = Lengths(*(jnp.full(LENGTHS.isl.shape, number, LENGTHS.isl.dtype) for number in (isl, osl, 1.0 / len(ISL))))
    top = jnp.asarray([max_tokens])
    return SPLIT(PROFILES, alike, top, max_tokens * 2, COMPRESSION._replace(gamma=1.0))


def rows(*each: Pool) -> Pool:
    """Several fleets along a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def leaves_agree(found: object, wanted: object) -> None:
    """Asserts that two trees of arrays hold the same numbers."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-12)
