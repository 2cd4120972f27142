# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about the load: how many requests are in flight at the start and how their lengths vary."""

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from aicjax._results import InputError

_WAVES = 10.0  # of a closed loop where none are stated, as in published benchmarks
_OF_CLOSED = ("waves", "length_low")


class LoadFields(BaseModel):
    """The shape of the load, where the constants belong to the formulas of a closed loop.

    Attributes:
        load: `steady` keeps a number of requests in flight without end, `closed` starts with all of them at once and
            measures a run.
        waves: Requests of a run, relative to those in flight; 10 unless stated.
        length_low: Prompt and answer lengths are uniform from this share of `isl` and `osl` to all of them; 1 unless
            stated.
    """

    load: Literal["steady", "closed"] = "steady"
    waves: Annotated[float, Field(ge=1)] | None = None
    length_low: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_open(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("load") == "open":
            reason = "steady or closed: an open load is not modelled; a stated rate is a target of `recommend`"
            raise InputError("load", "open", reason)
        return values

    @model_validator(mode="after")
    def _check_load(self) -> Self:
        for name in _OF_CLOSED:
            if self.load != "closed" and getattr(self, name) is not None:
                raise InputError(name, getattr(self, name), "absent unless load = closed")
        return self

    @property
    def load_waves(self) -> float:
        """Requests of a run, relative to those in flight; infinite for a steady load."""
        return math.inf if self.load == "steady" else self.waves or _WAVES

    @property
    def least_share(self) -> float:
        """Least length, relative to the nominal one."""
        return self.length_low or 1.0
