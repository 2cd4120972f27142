# SPDX-License-Identifier: Apache-2.0
"""Distributions of total tokens (isl + osl): files, names that ship, and the share of requests up to a length."""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._names import one_of
from aicjax._paths import configs_dir
from aicjax._results import DataError, InputError
from aicjax._types import FloatScalar


class Knots(NamedTuple):
    """A piecewise linear distribution of total tokens, from (0, 0) through its knots, 1 beyond the last.

    Attributes:
        tokens: Total tokens, strictly ascending, integers >= 1 [knot].
        shares: Share of the requests that are not longer, not descending, from 0 to 1 [knot].
    """

    tokens: np.ndarray
    shares: np.ndarray


class LengthData(NamedTuple):
    """What a file of lengths states.

    Attributes:
        name: Its name.
        source: Where the numbers come from; empty where the file does not say.
        knots: Distribution of total tokens.
        input_share: Share of the tokens that are input, where only totals are known.
        joint: Counts of requests by cells of isl and osl, and the edges of the cells; `None` where only totals are.
    """

    name: str
    source: str
    knots: Knots
    input_share: float
    joint: dict[str, Any] | None


DEFAULT_INPUT_SHARE = 0.8  # of the total tokens; the fleet reference's default
MOST_TOKENS = 10**7  # of a request: every length up to the last knot is a point at first


def share(knots: Knots, tokens: FloatScalar) -> Float[Array, "..."]:
    """Share of the requests with at most `tokens` in total: linear between knots, 1 beyond the last; differentiable."""
    at = jnp.concatenate([jnp.zeros(1), jnp.asarray(knots.tokens, float)])
    shares = jnp.concatenate([jnp.zeros(1), jnp.asarray(knots.shares, float)])
    inside = jnp.interp(jnp.asarray(tokens, at.dtype), at, shares)
    return jnp.where(tokens > at[-1], 1.0, inside)


def parse_knots(rows: Any, origin: str) -> Knots:
    """Knots from rows of `[tokens, cumulative share]`.

    Raises:
        DataError: Tokens that do not ascend, shares that fall or leave [0, 1], or no rows.
    """
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{origin}: `cdf` must hold rows of [tokens, cumulative share].") from error
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != 2 or not np.isfinite(table).all():
        raise DataError(f"{origin}: `cdf` must hold rows of [tokens, cumulative share].")
    tokens, shares = table.T
    if tokens[-1] > MOST_TOKENS:
        raise DataError(f"{origin}: tokens in `cdf` must be at most {MOST_TOKENS}.")
    if tokens[0] < 1 or (tokens != np.floor(tokens)).any() or (np.diff(tokens) <= 0).any():
        raise DataError(f"{origin}: tokens in `cdf` must be ascending integers from 1.")
    if shares[0] < 0 or shares[-1] > 1 or shares[-1] <= 0 or (np.diff(shares) < 0).any():
        raise DataError(f"{origin}: shares in `cdf` must not descend, from 0 to 1.")
    return Knots(tokens, shares)


def bundled_lengths() -> tuple[str, ...]:
    """Names of the distributions that ship."""
    return tuple(sorted(path.stem for path in (configs_dir() / "workloads").glob("*.json")))


@functools.cache
def load_lengths(name: str) -> LengthData:
    """The distribution of a name that ships, or of a `.json` file.

    A file holds a list of `[tokens, cumulative share]`, or an object with that list as `cdf` and, where known, `name`,
    `source` and `input_share`.

    Raises:
        InputError: No such name or file.
        DataError: The file breaks these rules.
    """
    path = Path(name)
    if path.suffix != ".json":
        path = configs_dir() / "workloads" / f"{name}.json"
        if not path.is_file():
            raise InputError("workload", name, f"{one_of(name, bundled_lengths())}, or a path that ends in .json")
    elif not path.is_file():
        raise InputError("workload", name, "a readable JSON file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    stated = content if isinstance(content, dict) else {"cdf": content}
    if "cdf" not in stated:
        raise DataError(f"{path}: an object must hold `cdf`.")
    input_share = stated.get("input_share", DEFAULT_INPUT_SHARE)
    if not isinstance(input_share, int | float) or not 0 < input_share < 1:
        raise DataError(f"{path}: `input_share` must be between 0 and 1.")
    return LengthData(
        name=str(stated.get("name", path.stem)),
        source=str(stated.get("source", "")),
        knots=parse_knots(stated["cdf"], str(path)),
        input_share=float(input_share),
        joint=_joint(stated, str(path)) if stated.get("kind") == "joint_counts" else None,
    )


def _joint(stated: dict[str, Any], origin: str) -> dict[str, Any]:
    """Counts by cells, checked: each cell has its place between the edges, and some request is in one.

    Raises:
        DataError: A field is missing, or its values are none of these.
    """
    try:
        counts = np.asarray(stated["counts"], np.int64)
        edges = [np.asarray(stated[name], np.float64) for name in ("isl_edges", "osl_edges")]
        ends = np.asarray([[stated[f"{end}_{of}"] for end in ("least", "most")] for of in ("isl", "osl")], np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{origin}: counts by cells: {type(error).__name__} {error}") from error
    sound = counts.ndim == 2 and counts.shape[1] == 3 and (counts >= 0).all() and counts[:, 2].any()
    sound = sound and all(edge.ndim == 1 and (np.diff(edge) > 0).all() for edge in edges)
    if not sound or (counts[:, :2] > [edge.size for edge in edges]).any() or (ends[:, 0] < 1).any():
        raise DataError(f"{origin}: `counts` must hold rows of [isl cell, osl cell, count], cells by ascending edges.")
    return stated
