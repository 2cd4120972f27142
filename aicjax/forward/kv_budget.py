# SPDX-License-Identifier: Apache-2.0
"""The share of a GPU an engine gives its KV cache: the memory fraction, of what, and what is left to the cache."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from aicjax import _units
from aicjax._results import InputError
from aicjax.models import Parallel

if TYPE_CHECKING:
    from aicjax.constants import MemoryConstants


def kv_budget_bytes(
    capacity_bytes: float, non_kv_bytes: ArrayLike, fraction: ArrayLike, *, of_free: bool, usable: float = 1.0
) -> np.ndarray:
    """Room an engine gives the KV cache [bytes]; negative when the other parts exceed their share.

    Of what is free: `(capacity - non_kv) * share`. Of the total: `capacity * share - non_kv`.

    Args:
        capacity_bytes: Memory of the GPU.
        non_kv_bytes: All other parts.
        fraction: The engine's memory fraction.
        of_free: Whether the fraction is of what the other parts leave free, or of the whole GPU.
        usable: Part of the fraction that is used, the rest being a margin.
    """
    share = np.asarray(fraction) * usable
    non_kv_bytes = np.asarray(non_kv_bytes)
    return (capacity_bytes - non_kv_bytes) * share if of_free else capacity_bytes * share - non_kv_bytes


def largest_non_kv_bytes(
    capacity_bytes: float, kv_bytes: ArrayLike, fraction: ArrayLike, *, of_free: bool, usable: float = 1.0
) -> np.ndarray:
    """Most that the other parts may take while the KV cache has its room [bytes]; the inverse of `kv_budget_bytes`."""
    share, kv_bytes = np.asarray(fraction) * usable, np.asarray(kv_bytes)
    return capacity_bytes - kv_bytes / share if of_free else capacity_bytes * share - kv_bytes


def engine_fraction(constants: "MemoryConstants", version: str) -> float:
    """Memory fraction an engine of this version starts with."""
    by_version = constants.kv_fraction_by_version.items()
    return next((value for start, value in by_version if version.startswith(start)), constants.kv_fraction)


def check_fraction(chosen: float) -> float:
    """The caller's memory fraction, checked."""
    if not 0 < chosen <= 1:
        raise InputError("kv_fraction", chosen, "above 0 and at most 1")
    return float(chosen)


def derived_fraction(derived: Mapping[str, Any], capacity_bytes: float, parallels: Sequence[Parallel]) -> np.ndarray:
    """Memory fraction of an engine that derives it from the GPU and the layout, float64 [config].

    Kept free: a base, a prefill chunk, a share for each GPU of the worker and the decode graphs, whose number goes
    by memory tier; attention data parallelism holds graphs for every rank.

    Args:
        derived: The numbers of the rule, `MemoryConstants.derived_fraction`.
        capacity_bytes: Memory of the GPU.
        parallels: The layouts.
    """
    capacity_mib = capacity_bytes / _units.MIB
    tier = int(np.searchsorted(derived["tier_mib"], capacity_mib, side="right"))
    tp, pp, dp = (np.array([getattr(parallel, name) for parallel in parallels]) for name in ("tp", "pp", "dp"))
    rows = np.where(tp < derived["wide_tp"], derived["tier_graph_rows"][tier], derived["tier_graph_rows_wide"][tier])
    many = np.where(rows > derived["many_graph_rows"], derived["mib_per_dp_graph_row_many"], 0.0)
    kept_mib = (
        derived["base_mib"]
        + derived["mib_per_chunk_token"] * derived["tier_chunk_tokens"][tier]
        + derived["mib_per_gpu"] * tp * pp
        + derived["mib_per_graph_row"] * rows
        + np.where(dp > 1, (derived["mib_per_dp_graph_row"] + many) * rows * dp, 0.0)
    )
    if capacity_mib > derived["large_gpu_mib"]:
        kept_mib = np.maximum(kept_mib, derived["large_gpu_least_mib"])
    return np.round((capacity_mib - kept_mib) / capacity_mib, int(derived["decimals"]))
