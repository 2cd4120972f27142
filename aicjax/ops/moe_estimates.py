# SPDX-License-Identifier: Apache-2.0
"""Estimates of routed experts: whose measured points lend their utilisation.

The shape's own points first; failing these, the nearest shape of the same format, the same shape as other backends
measured it on the same system, the nearest shape of formats of the same profile (bytes and compute class), then of the
format with the nearest profile. Between profiles the utilisation is scaled by how efficiently each format runs.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.ends import KNOT_BUCKET, NO_CURVE, Curve
from aicjax.interp.estimate import Samples, bind_samples, estimated_utilization, no_samples
from aicjax.ops.database import Database
from aicjax.ops.expert_work import ExpertLoad, ExpertShape, host_sol_ms
from aicjax.ops.moe_tables import Formats, load_moe, shapes_of

FORMATS = tuple(quant.MOE)


class Lender(NamedTuple):
    """Measured points that stand in for a layer.

    Attributes:
        curve: Their token counts and latencies.
        load: The layer whose roofline their utilisation is of.
        provenance: How near they are.
    """

    curve: Curve
    load: ExpertLoad
    provenance: Provenance


def find_lender(database: Database, formats: Formats, load: ExpertLoad, distribution: str) -> Lender | None:
    """Who lends to a layer, by the kinds of transfer that the database allows; None when nobody does."""
    if own := own_points(shapes_of(formats, load.quant, distribution).get(load.shape, NO_CURVE), load):
        return own
    if "xshape" in database.transfers and (found := _nearest(formats, [load.quant], load.shape, distribution)):
        return Lender(found[1], load._replace(shape=found[0]), Provenance.XSHAPE)
    if "xbackend" in database.transfers and (curve := _of_other_backends(database, load, distribution)):
        return Lender(curve, load, Provenance.XBACKEND)
    others = [form for form in formats if form in quant.MOE and form != load.quant]
    alike = [form for form in others if _profile(form) == _profile(load.quant)]
    if "xquant" in database.transfers and (found := _nearest(formats, alike, load.shape, distribution)):
        return Lender(found[1], load._replace(shape=found[0]), Provenance.XQUANT)
    if "xprofile" in database.transfers:
        for form in sorted((f for f in others if f not in alike), key=lambda f: _profile_distance(f, load.quant)):
            if found := _nearest(formats, [form], load.shape, distribution):
                return Lender(found[1], load._replace(shape=found[0], quant=form), Provenance.XPROFILE)
    return None


def _of_other_backends(database: Database, load: ExpertLoad, distribution: str) -> Curve | None:
    """A layer as other backends measured it: the geometric mean at the token counts of all; None where none did."""
    tables = [shapes_of(load_moe(*where).main, load.quant, distribution) for where in database.others]
    curves = [shapes[load.shape] for shapes in tables if load.shape in shapes]
    if not curves:
        return None
    tokens = functools.reduce(np.intersect1d, [tokens for tokens, _ in curves])
    logs = [np.log(latency[np.searchsorted(own, tokens)]) for own, latency in curves]
    return (tokens, np.exp(np.mean(logs, 0))) if tokens.size else curves[0]


def own_points(curve: Curve, load: ExpertLoad) -> Lender | None:
    """A layer that lends to itself; None when it was not measured."""
    return Lender(curve, load, Provenance.EMPIRICAL) if curve[0].size else None


def _profile(form: str) -> tuple[float, float]:
    return quant.MOE[form].bytes, quant.MOE[form].factor


def _profile_distance(first: str, second: str) -> float:
    return sum(abs(a - b) for a, b in zip(_profile(first), _profile(second), strict=True))


def _nearest(
    formats: Formats, lenders: Sequence[str], shape: ExpertShape, distribution: str
) -> tuple[ExpertShape, Curve] | None:
    """Of all shapes of the lending formats with the same ranks, the one nearest in the logarithms of its sizes."""
    candidates = [
        (other, curve)
        for form in lenders
        for other, curve in shapes_of(formats, form, distribution).items()
        if (other.moe_tp, other.moe_ep) == (shape.moe_tp, shape.moe_ep)
    ]
    if not candidates:
        return None
    logs = np.log(np.array([other[:4] for other, _ in candidates], np.float64))
    least, span = logs.min(0), np.ptp(logs, 0)
    span = np.where(span > 0, span, 1.0)
    place, asked = (logs - least) / span, (np.log(np.array(shape[:4], np.float64)) - least) / span
    return candidates[int(np.argmin(((place - asked) ** 2).sum(1)))]  # the first of equally near ones


class MoeEstimates(eqx.Module):
    """Lent points of distinct layers.

    Attributes:
        samples: The points [row].
        provenance: How near they are [row].
        form, lender: Position of the format and of the lending format in `FORMATS` [row].
    """

    samples: Samples
    provenance: Int[Array, " row"]
    form: Int[Array, " row"]
    lender: Int[Array, " row"]


def bind_estimates(
    system: System, loads: Sequence[ExpertLoad], lenders: Sequence[Lender | None], *, rows: int
) -> MoeEstimates:
    """Points of `lenders`, padded to `rows`."""
    longest = max([lender.curve[0].size for lender in lenders if lender is not None] + [1])
    leaves = -(-longest // KNOT_BUCKET) * KNOT_BUCKET
    samples = [no_samples(1, leaves)] * rows
    form, lending = np.zeros((2, rows), np.int32)
    provenance = np.full(rows, Provenance.MISSING, np.int32)
    for row, (load, lender) in enumerate(zip(loads, lenders, strict=True)):
        if lender is None:
            continue
        tokens, latency = lender.curve
        with np.errstate(divide="ignore"):
            samples[row] = bind_samples((tokens,), host_sol_ms(system, lender.load, tokens) / latency, leaves)
        provenance[row] = lender.provenance
        form[row], lending[row] = FORMATS.index(load.quant), FORMATS.index(lender.load.quant)
    return MoeEstimates(jax.tree.map(lambda *leaf: np.stack(leaf), *samples), provenance, form, lending)


def estimated_latency(
    estimates: MoeEstimates,
    tokens: Float[Array, "row point"],
    sol_ms: Float[Array, "row point"],
    needed: Bool[Array, "row point"],
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency at the lent utilisation where `needed`, and how it was obtained; NaN where nothing is lent."""
    levels = jnp.stack([jnp.asarray(constants.moe_format_efficiency[form]) for form in FORMATS])
    level = levels[estimates.form] / levels[estimates.lender]
    utilization = estimated_utilization(estimates.samples, (tokens,), needed)
    usable = (utilization > 0) & (sol_ms > 0)
    scaled = jnp.where(usable, utilization, 1.0) * level[:, None]  # NaN is masked first: it would reach the gradient
    latency = jnp.where(usable, sol_ms / scaled, jnp.nan)
    code = jnp.where(usable, estimates.provenance[:, None], Provenance.MISSING)
    return latency, code.astype(jnp.int32)
