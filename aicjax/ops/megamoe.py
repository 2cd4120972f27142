# SPDX-License-Identifier: Apache-2.0
"""MegaMoE: dispatch, experts and combine in one kernel, as a curve of the tokens of one rank."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import DataError, InputError
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.curve import SizeCurves, size_latency, stack_size_curves
from aicjax.interp.ends import KNOT_BUCKET, NO_CURVE, Curve
from aicjax.ops.database import Database
from aicjax.ops.expert_work import ExpertShape
from aicjax.ops.keyed_curves import keyed_curves
from aicjax.ops.records import MegaMoe
from aicjax.ops.roofline import Hardware
from aicjax.tables import Rows, read_rows

TABLE = "dsv4_megamoe_module_perf"
LEAST_SM = 100  # first compute capability that has the kernel
# What the operator stands for: the variant that servers run, and the part of the layer that must have been timed.
VARIANT = {
    "kernel_source": "deepgemm_megamoe",
    "kernel_dtype": "fp8_fp4",
    "pre_dispatch": "sglang_jit",
    "source_policy": "random",
}
TIMED = {"used_cuda_graph": 1, "includes_gate_topk": 0, "includes_routed_scale": 1}
SAME_DISTRIBUTION = {"uniform": "balanced"}

Key = tuple[str, str, str, ExpertShape]


@functools.lru_cache(maxsize=32)
def load_megamoe(system: System, backend: str, version: str) -> dict[Key, Curve]:
    """Curves by (phase, format, distribution, shape), of the version's own table alone.

    Raises:
        DataError: A row timed another part of the layer.
    """
    rows = read_rows(system.name, backend, version, TABLE, False)
    if rows is None:
        return {}
    _check_timed(rows)
    wanted = rows.number("num_fused_shared_experts") == 0
    for column, word in VARIANT.items():
        wanted &= rows.is_in(column, (word,))
    rows = rows.select(wanted)
    codes, words = zip(*(rows.text(column) for column in ("phase", "moe_dtype", "distribution")), strict=True)
    sizes = [rows.number(column) for column in ("topk", "num_experts", "hidden_size", "inter_size")]
    ranks = [rows.number(column) for column in ("moe_tp_size", "moe_ep_size")]
    curves = keyed_curves((*codes, *sizes, *ranks), rows.number("num_tokens"), rows.number("latency"))
    found = {}
    for key, curve in curves.items():
        phase, form, distribution = (word[code] for word, code in zip(words, key, strict=False))
        found[phase, form, SAME_DISTRIBUTION.get(distribution, distribution), ExpertShape(*key[3:])] = curve
    return found


def _check_timed(rows: Rows) -> None:
    for column, value in TIMED.items():
        wrong = rows.number(column) != value
        if wrong.any():
            raise DataError(f"{rows.place(int(np.argmax(wrong)))}, column {column}: must be {value}")


class MegaMoeRows(eqx.Module):
    """Distinct layers bound to their curves.

    Attributes:
        curves: Latency over tokens of one rank, one curve a row.
    """

    curves: SizeCurves


def bind_megamoe(database: Database, records: Sequence[MegaMoe], *, rows: int) -> MegaMoeRows:
    """Rows for `records`, padded to `rows`; only measured tables answer.

    Raises:
        InputError: The system is too old for the kernel.
    """
    system = database.system
    if records and (system.sm_version or 0) < LEAST_SM:
        raise InputError("system", system.name, f"of compute capability {LEAST_SM} or newer to run MegaMoE")
    curves = [_find(database, record) for record in records]
    longest = max([tokens.size for tokens, _ in curves] + [1])
    return MegaMoeRows(stack_size_curves(curves, rows, -(-longest // KNOT_BUCKET) * KNOT_BUCKET))


def _find(database: Database, record: MegaMoe) -> Curve:
    if not database.interpolates:
        return NO_CURVE
    table = load_megamoe(database.system, database.backend, database.version)
    shape = ExpertShape(record.topk, record.num_experts, record.hidden_size, record.inter_size, 1, record.moe_ep)
    distribution = SAME_DISTRIBUTION.get(record.distribution, record.distribution)
    return table.get((record.phase, record.quant, distribution, shape), NO_CURVE)


def megamoe_latency(
    rows: MegaMoeRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each layer and how it was obtained; beyond the ends in proportion to the tokens of the rank."""
    return size_latency(rows.curves, tokens)


def megamoe_sol(
    rows: MegaMoeRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """NaN: the kernel is measured or unknown, and bounds nothing."""
    return jnp.full(tokens.shape, jnp.nan)


def megamoe_available(database: Database, record: MegaMoe) -> bool:
    """Whether the shape was measured."""
    return _find(database, record)[0].size > 0
