# SPDX-License-Identifier: Apache-2.0
"""Joint laws of isl and osl as weighted points, for exact expectations without draws."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax._types import Array as AnyArray
from aicjax._types import FloatScalar
from aicjax.fleet.cdf import DEFAULT_INPUT_SHARE, Knots, LengthData, load_lengths

CELL_TOKENS = 64  # input tokens of a cell that is merged: chunk sizes that engines use are multiples
RAMP_SHARE = 0.04  # of its total; a point farther than this from the one before it stands alone; merged cells do not
WHOLE_TOKENS = 2048  # total tokens up to which every length is a point of its own


class Lengths(NamedTuple):
    """A joint law of lengths as weighted points, ascending in total tokens.

    Attributes:
        isl: Input tokens; points of merged cells need not be whole [point].
        osl: Output tokens [point].
        weight: Probabilities that sum to 1 [point].
    """

    isl: Float[AnyArray, " point"]
    osl: Float[AnyArray, " point"]
    weight: Float[AnyArray, " point"]

    @property
    def total(self) -> Float[AnyArray, " point"]:
        """Total tokens."""
        return self.isl + self.osl


def named(name: str) -> Lengths:
    """The law of a name that ships, or of a file: joint where the data are, else split by the input share.

    Raises:
        InputError: No such name or file.
        DataError: The file breaks the rules of `load_lengths`.
    """
    return from_data(load_lengths(name))


def from_data(data: LengthData) -> Lengths:
    """The law of loaded data."""
    return from_cdf(data.knots, data.input_share) if data.joint is None else _from_counts(data.joint)


def from_cdf(knots: Knots, input_share: float = DEFAULT_INPUT_SHARE) -> Lengths:
    """The law of whole lengths of a distribution of total tokens; host side, float64.

    Every whole length up to the last knot has the share that it adds; isl = max(1, floor(input_share total)). Lengths
    above `WHOLE_TOKENS` are merged: those with the same ceil(isl / CELL_TOKENS) in the same interval of knots become
    two points that keep their mass, both means, the variance of the total and its covariance with isl and osl. So
    ceil(isl / chunk) keeps its law where chunks are multiples of `CELL_TOKENS`.

    Args:
        knots: Distribution of total tokens. A last share below 1 leaves the rest to the last knot.
        input_share: Share of the tokens that are input, in (0, 1).
    """
    total = np.arange(1, int(knots.tokens[-1]) + 1, dtype=np.float64)
    below = np.interp(total, np.append(0, knots.tokens), np.append(0, knots.shares))
    weight = np.diff(below, prepend=0.0)
    weight[-1] += 1.0 - below[-1]
    isl, osl = split(total, input_share)
    kept = weight > 0
    total, isl, osl, weight = total[kept], isl[kept], osl[kept], weight[kept]
    small = total <= WHOLE_TOKENS
    merged = _merged(isl[~small], osl[~small], weight[~small], np.searchsorted(knots.tokens, total[~small]))
    points = (np.concatenate(pair) for pair in zip((isl[small], osl[small], weight[small]), merged, strict=True))
    return from_weighted(*points)


def from_pairs(isl: np.ndarray | Sequence[float], osl: np.ndarray | Sequence[float]) -> Lengths:
    """The law of recorded requests: each pair with its frequency; host side.

    Args:
        isl: Input tokens [request].
        osl: Output tokens [request].
    """
    pairs, counts = np.unique(np.stack([isl, osl]).astype(np.float64), axis=1, return_counts=True)
    return from_weighted(pairs[0], pairs[1], counts / counts.sum())


def from_weighted(isl: np.ndarray, osl: np.ndarray, weight: np.ndarray) -> Lengths:
    """The law of weighted lengths in any order; host side."""
    order = np.argsort(isl + osl, kind="stable")
    return Lengths(isl[order], osl[order], weight[order])


def constant(isl: float, osl: float) -> Lengths:
    """All requests of one length."""
    return Lengths(np.asarray([isl]), np.asarray([osl]), np.ones(1))


def split(total: np.ndarray, input_share: float) -> tuple[np.ndarray, np.ndarray]:
    """Input and output tokens of whole totals, each at least 1."""
    isl = np.maximum(np.floor(input_share * total), 1.0)
    return isl, np.maximum(total - isl, 1.0)


def joined(laws: Sequence[Lengths]) -> tuple[Lengths, Float[np.ndarray, "law point"]]:
    """All points of several laws in one ascending law, and the weights that each of them gives to the points."""
    dtype = jnp.result_type(float)  # in which the totals ascend
    isl, osl = (np.concatenate(leaves).astype(dtype) for leaves in list(zip(*laws, strict=True))[:2])
    order = np.argsort(isl + osl, kind="stable")
    sizes = [len(law.weight) for law in laws]
    weights = np.zeros((len(laws), len(isl)))
    for row, (law, end) in enumerate(zip(laws, np.cumsum(sizes), strict=True)):
        weights[row, end - sizes[row] : end] = law.weight
    points = (leaf[order] for leaf in (isl, osl, weights.mean(axis=0)))
    return Lengths(*(jnp.asarray(leaf, float) for leaf in points)), weights[:, order]


def mixture(laws: Sequence[Lengths], shares: Sequence[float] | Float[Array, " law"]) -> Lengths:
    """The law of requests that come from several laws; correlations of isl and osl within each are kept.

    Args:
        laws: The laws.
        shares: Weights of the laws; need not sum to 1 [law].
    """
    points, weights = joined(laws)
    shares = jnp.asarray(shares, float)
    return points._replace(weight=jnp.matmul(shares / shares.sum(), jnp.asarray(weights, float), precision="highest"))


def _below(law: Lengths, tokens: FloatScalar) -> Float[Array, " point"]:
    """Share of each point that counts as at most `tokens` long: from 0 at the total before it to 1 at its own.

    A point that stands alone is an exact length: it counts within one token of its total only, so no whole number of
    tokens counts it in part.
    """
    total = jnp.asarray(law.isl, float) + jnp.asarray(law.osl, float)
    gap = jnp.diff(total, prepend=0.0)
    gap = jnp.where(gap > RAMP_SHARE * total, jnp.minimum(gap, 1.0), gap)
    ramp = jnp.clip(1.0 + (tokens - total) / jnp.where(gap > 0, gap, 1.0), 0.0, 1.0)
    return jnp.where(gap > 0, ramp, jnp.where(tokens >= total, 1.0, 0.0))


def share_below(law: Lengths, tokens: FloatScalar) -> Float[Array, ""]:
    """Share of the requests with at most `tokens` in total; linear between points, so differentiable."""
    return jnp.sum(_below(law, tokens) * law.weight)


def within(law: Lengths, low: FloatScalar, high: FloatScalar) -> tuple[Lengths, Float[Array, ""]]:
    """The law of the requests with more than `low` and at most `high` total tokens, and their share.

    All points stay, most with weight 0, so that shapes do not depend on thresholds; weights follow `share_below`. Where
    no request is within, the weights are those of the whole law and the share is 0.
    """
    weight = (_below(law, high) - _below(law, low)) * law.weight
    share = jnp.sum(weight)
    some = share > 0
    return law._replace(weight=jnp.where(some, weight / jnp.where(some, share, 1.0), law.weight)), share


def mean(law: Lengths) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean isl and osl."""
    return jnp.sum(law.isl * law.weight), jnp.sum(law.osl * law.weight)


def sample(key: Array, law: Lengths, n: int) -> tuple[Int[Array, " request"], Int[Array, " request"]]:
    """Lengths of `n` requests, whole tokens.

    Args:
        key: Random key.
        law: The law; points that are not whole are rounded.
        n: Number of requests, static.
    """
    point = drawn(jnp.cumsum(jnp.asarray(law.weight, float)), jax.random.uniform(key, (n,)))
    isl, osl = (jnp.maximum(jnp.round(jnp.asarray(x)[point]), 1.0).astype(jnp.int32) for x in (law.isl, law.osl))
    return isl, osl


def drawn(below: Float[Array, " point"], draws: Float[Array, " draw"]) -> Int[Array, " draw"]:
    """Points that uniform draws in [0, 1) fall on, each as likely as its weight; `below` are sums of the weights."""
    return jnp.minimum(jnp.searchsorted(below, draws * below[-1], side="right"), below.size - 1)


def _merged(isl: np.ndarray, osl: np.ndarray, weight: np.ndarray, knot: np.ndarray) -> tuple[np.ndarray, ...]:
    """Two points for each cell of lengths, as `from_cdf` says."""
    if isl.size == 0:
        return isl, osl, weight
    label = np.ceil(isl / CELL_TOKENS) + knot * (np.ceil(isl[-1] / CELL_TOKENS) + 1)
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    total = isl + osl
    mass = np.add.reduceat(weight, starts)

    def cell_mean(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(weight * values, starts) / mass

    isl_mean, total_mean = cell_mean(isl), cell_mean(total)
    size = np.diff(np.append(starts, total.size))
    off = total - np.repeat(total_mean, size)
    deviation = np.sqrt(cell_mean(off**2))
    slope = cell_mean(off * (isl - np.repeat(isl_mean, size))) / np.where(deviation > 0, deviation, 1.0)
    isl_ends = np.concatenate([isl_mean - slope, isl_mean + slope])
    total_ends = np.concatenate([total_mean - deviation, total_mean + deviation])
    return isl_ends, total_ends - isl_ends, np.concatenate([mass, mass]) / 2.0


def _from_counts(joint: dict) -> Lengths:
    """The law of counts by cells: each spread evenly over four points, two isl by two osl."""
    isl_cell, osl_cell, count = np.asarray(joint["counts"]).T
    isl = _pair(np.asarray(joint["isl_edges"]), isl_cell, joint["least_isl"], joint["most_isl"])
    osl = _pair(np.asarray(joint["osl_edges"]), osl_cell, joint["least_osl"], joint["most_osl"])
    cells = np.broadcast_arrays(isl[:, None], osl[None, :], count / count.sum() / 4.0)
    return from_weighted(*(x.reshape(-1) for x in cells))


def _pair(edges: np.ndarray, cell: np.ndarray, least: float, most: float) -> np.ndarray:
    """Two points [2, cell] with the mean and the variance of the whole numbers of each cell of ascending edges."""
    low = np.maximum(np.append(0, edges)[cell] + 1, least)
    high = np.minimum(np.append(edges, most)[cell], most)
    middle, deviation = (low + high) / 2.0, np.sqrt(((high - low + 1.0) ** 2 - 1.0) / 12.0)
    return np.stack([middle - deviation, middle + deviation])
