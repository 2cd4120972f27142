# SPDX-License-Identifier: Apache-2.0
"""Scattered sites: the measured shapes nearest to one that was not measured, chosen on the host in float64.

A shape `(n, k)` was measured along one curve of tokens `m`. An unmeasured shape borrows the utilisation of sites within
two octaves: the mean of up to four (`choose_sites`), or a plane through the logarithms of up to sixteen
(`fitted_utilization`). Which sites count depends on `m` only through whether a site's curve spans it, so the choice is
made once for each segment of `m`.
"""

from dataclasses import dataclass

import numpy as np

NEIGHBOURS = 4
GATE_OCTAVES = 2.0
FIT_NEIGHBOURS = 16
FIT_POWER = 3.0  # of the inverse distance by which sites count in a fit
FIT_RIDGE = 0.02  # squared octaves by which the slopes of a fit are held back, so that few sites do not tilt it
NO_SITE = -1


@dataclass(frozen=True)
class SiteChoice:
    """Which curves answer for a shape, by segment of tokens.

    Attributes:
        site: Indices into the table's sites [segment, neighbour]; `NO_SITE` where fewer answer.
        weight: Their weights, each segment summing to 1, or 0 where nothing answers [segment, neighbour].
        measured: Whether the shape itself is a site.
    """

    site: np.ndarray
    weight: np.ndarray
    measured: bool


def token_segments(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Token counts at which the set of curves that span a count changes, ascending.

    A count `m` lies in segment `searchsorted(breaks, m, side="right")`.
    """
    return np.unique(np.concatenate([first, last + 1]))


def choose_sites(
    sites: np.ndarray, first: np.ndarray, last: np.ndarray, breaks: np.ndarray, shape: tuple[int, int]
) -> SiteChoice:
    """Sites that answer for `shape` in each segment of tokens.

    Args:
        sites: Measured shapes in the order they were first met, which settles ties [site, 2].
        first, last: First and last token count of each site's curve [site].
        breaks: `token_segments(first, last)`.
        shape: The shape asked for.
    """
    segments = breaks.size + 1
    own = np.nonzero((sites == shape).all(-1))[0]
    site = np.full((segments, NEIGHBOURS), NO_SITE, np.int32)
    weight = np.zeros((segments, NEIGHBOURS))
    if own.size:
        site[:, 0], weight[:, 0] = own[0], 1.0
        return SiteChoice(site, weight, True)
    if min(shape) < 1 or not sites.size:
        return SiteChoice(site, weight, False)
    offset = np.log2(sites) - np.log2(shape)
    distance = np.sqrt((offset**2).sum(-1))
    inside = np.concatenate([[first.min() - 1], breaks])  # one token count of each segment
    for segment, tokens in enumerate(inside):
        spans = (first <= tokens) & (tokens <= last)
        candidates = np.nonzero(spans)[0] if spans.any() else np.arange(len(sites))
        kept = _within_gate(sites, offset, distance, candidates, shape)
        nearest = kept[np.argsort(distance[kept], kind="stable")][:NEIGHBOURS]
        raw = 1.0 / (distance[nearest] ** 2 + 1e-12)
        site[segment, : nearest.size], weight[segment, : nearest.size] = nearest, raw / raw.sum()
    return SiteChoice(site, weight, False)


def fitted_utilization(
    sites: np.ndarray, knots: np.ndarray, utilization: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Utilisation of an unmeasured shape, by a plane over log2 `(n, k)` through the logarithms of the nearest sites.

    Never outside the range of those sites.

    Args:
        sites: Measured shapes in the order they were first met, which settles ties [site, 2].
        knots: Token counts [knot].
        utilization: Utilisation of each site there, NaN where its curve does not span the count [site, knot].
        shape: The shape asked for.

    Returns:
        Utilisation at each knot [knot]; NaN where nothing answers.
    """
    fitted = np.full(knots.size, np.nan)
    if min(shape) < 1 or not sites.size:
        return fitted
    offset = np.log2(sites) - np.log2(shape)
    distance = np.sqrt((offset**2).sum(-1))
    spanned = np.isfinite(utilization)
    changes = np.flatnonzero(np.r_[True, (spanned[:, 1:] != spanned[:, :-1]).any(0)])
    for first, last in zip(changes, [*changes[1:], knots.size], strict=True):
        candidates = np.flatnonzero(spanned[:, first])
        kept = _within_gate(sites, offset, distance, candidates, shape) if candidates.size else candidates
        nearest = kept[np.argsort(distance[kept], kind="stable")][:FIT_NEIGHBOURS]
        if nearest.size:
            logs = np.log(utilization[nearest, first:last])
            value = plane_weights(offset[nearest]) @ logs
            fitted[first:last] = np.exp(np.clip(value, logs.min(0), logs.max(0)))
    return fitted


def plane_weights(offset: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
    """How much each site counts in the value, at the origin, of a plane fitted to all of them; they sum to 1.

    Least squares with the inverse `FIT_POWER` of distance as weights; not all weights are positive.

    Args:
        offset: Places of the sites relative to the origin, in octaves, none of those in use at it [..., site, axis].
        used: Sites in use, at least one [..., site]; all when None.
    """
    squared = (offset**2).sum(-1)
    weight = squared ** (-FIT_POWER / 2) if used is None else np.where(used, squared, np.inf) ** (-FIT_POWER / 2)
    columns = np.concatenate([np.ones((*offset.shape[:-1], 1)), offset], -1)
    normal = np.einsum("...sa,...s,...sb->...ab", columns, weight, columns)
    ridge = FIT_RIDGE * np.diag([0.0, *[1.0] * offset.shape[-1]])
    normal = normal + ridge * weight.sum(-1)[..., None, None]
    at_origin = np.zeros((*normal.shape[:-1], 1))
    at_origin[..., 0, 0] = 1.0
    return np.einsum("...sa,...a,...s->...s", columns, np.linalg.solve(normal, at_origin)[..., 0], weight)


def _within_gate(sites, offset, distance, candidates, shape) -> np.ndarray:
    """Candidates within the gate; failing that, those near on one axis when the shape exceeds all on the other."""
    near = candidates[distance[candidates] <= GATE_OCTAVES]
    if near.size:
        return near
    measured = sites[candidates]
    over = shape > measured.max(0)
    if (shape < measured.min(0)).any() or over.sum() != 1:
        return candidates[:0]
    other = np.abs(offset[candidates][:, ~over])[:, 0]
    return candidates[other <= GATE_OCTAVES]
