# SPDX-License-Identifier: Apache-2.0
"""Which closed-loop constants a fit may change, and how real numbers of unit prior stand for them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import yaml
from jaxtyping import Array, Float

from aicjax import _paths
from aicjax._results import DataError
from aicjax.constants import LoopConstants
from aicjax.explore.request import BACKENDS

Kind = Literal["positive", "share", "above_one"]
_RANGES: Mapping[str, tuple[float, float]] = {
    "positive": (0.0, float("inf")),
    "share": (0.0, 1.0),
    "above_one": (1.0, float("inf")),
}


class Loss(NamedTuple):
    """How errors count; `configs/silicon/fit.yaml` says what each is.

    Attributes:
        tpot_tolerance, ttft_tolerance: Log error from which the loss grows linearly.
        ttft_weight: Of a TTFT error relative to one of TPOT.
        group_exponent: A group of n rows weighs n^(1 - exponent).
        information: Weights of all rows against the prior, to choose from on validation.
    """

    tpot_tolerance: float
    ttft_tolerance: float
    ttft_weight: float
    group_exponent: float
    information: tuple[float, ...]


@dataclass(frozen=True)
class Parameter:
    """A constant that is fitted.

    Attributes:
        name: Field of `LoopConstants`.
        prior: Value to start from, of each engine in the order of `BACKENDS`.
        width: Standard deviation of its logarithm under the prior; of its log-odds for a share, of the logarithm of
            what it has above 1 for a number above 1.
        kind: Its range.
    """

    name: str
    prior: tuple[float, ...]
    width: float
    kind: Kind = "positive"

    def __post_init__(self):
        known = {field.name for field in dataclasses.fields(LoopConstants)}
        if self.name not in known or self.kind not in _RANGES or not self.width > 0 or len(self.prior) != len(BACKENDS):
            raise DataError(f"fit.yaml: {self.name} is no constant, or lacks a width, a kind or the prior of a backend")
        least, most = _RANGES[self.kind]
        if not all(least < value < most for value in self.prior):
            raise DataError(f"fit.yaml: prior of {self.name} is not above {least} and below {most}")

    def value(self, engine: Any, at: Any) -> Float[Array, ""]:
        """The constant that a number of unit prior stands for; the prior value at 0.

        Args:
            engine: Position of the engine in `BACKENDS`.
            at: The number.
        """
        prior, moved = jnp.asarray(self.prior)[engine], self.width * at
        if self.kind == "share":
            return jax.nn.sigmoid(jnp.log(prior / (1.0 - prior)) + moved)
        least = _RANGES[self.kind][0]
        return least + (prior - least) * jnp.exp(moved)


def read_fit() -> tuple[Loss, tuple[Parameter, ...]]:
    """How errors count, and what is fitted, of `configs/silicon/fit.yaml`.

    Raises:
        DataError: The file breaks its schema.
    """
    path = _paths.configs_dir() / "silicon" / "fit.yaml"
    file: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = []
    for name, entry in file["parameters"].items():
        prior = entry["prior"]
        if isinstance(prior, dict) and set(prior) != set(BACKENDS):
            raise DataError(f"fit.yaml: prior of {name} is not for each of {', '.join(BACKENDS)}")
        values = tuple(float(prior[b]) if isinstance(prior, dict) else float(prior) for b in BACKENDS)
        entries.append(Parameter(name, **{**entry, "prior": values}))
    return Loss(**{**file["loss"], "information": tuple(file["loss"]["information"])}), tuple(entries)


def constants_at(
    base: LoopConstants, parameters: Sequence[Parameter], engine: Any, at: Float[Array, " parameter"]
) -> LoopConstants:
    """The constants of an engine (its position in `BACKENDS`) with its fitted numbers put in."""
    fitted = {p.name: p.value(engine, number) for p, number in zip(parameters, at, strict=True)}
    return dataclasses.replace(base, **fitted)
