# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about the load: how requests arrive and how their lengths vary."""

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from aicjax._results import InputError

_WAVES = 10.0  # of a closed loop where none are stated, as in published benchmarks
_OF_CLOSED = ("waves", "length_low")
_MOST_RATE = 1e9  # [requests/s]: above any server
_OF_OPEN = ("request_rate", "arrivals")


class LoadFields(BaseModel):
    """The shape of the load, where the constants belong to the formulas of a closed loop.

    Attributes:
        load: `steady` keeps a number of requests in flight without end, `closed` starts with all of them at once and
            measures a run.
        waves: Requests of a run, relative to those in flight; 10 unless stated.
        length_low: Prompt and answer lengths are uniform from this share of `isl` and `osl` to all of them; 1 unless
            stated.
    """

    takes_open_loads: ClassVar[bool] = False

    load: Literal["steady", "closed", "open"] = "steady"
    waves: Annotated[float, Field(ge=1)] | None = None
    length_low: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_open(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("load") == "open" and not cls.takes_open_loads:
            reason = "steady or closed: open loads are for `estimate`; a stated rate is a target of `recommend`"
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
        """Requests of a run, relative to those in flight; infinite unless the load is closed."""
        return self.waves or _WAVES if self.load == "closed" else math.inf

    @property
    def least_share(self) -> float:
        """Least length, relative to the nominal one."""
        return self.length_low or 1.0


class OpenLoadFields(LoadFields):
    """The load of a point, which may also be open.

    Attributes:
        load: Also `open`: requests arrive at `request_rate`, and `batch_size` is the most that run in a rank.
        request_rate: Requests per second of the worker.
        arrivals: Whether they arrive at random (`poisson`, unless stated) or evenly spaced (`even`).
    """

    takes_open_loads: ClassVar[bool] = True

    request_rate: Annotated[float, Field(gt=0, le=_MOST_RATE)] | None = None
    arrivals: Literal["poisson", "even"] | None = None

    @model_validator(mode="after")
    def _check_open(self) -> Self:
        for name in _OF_OPEN:
            if self.load != "open" and getattr(self, name) is not None:
                raise InputError(name, getattr(self, name), "absent unless load = open")
        if self.load == "open" and self.request_rate is None:
            raise InputError("request_rate", None, "given when load = open")
        return self

    @property
    def arrival_cv2(self) -> float:
        """Squared coefficient of variation of the times between arrivals."""
        return 0.0 if self.arrivals == "even" else 1.0
