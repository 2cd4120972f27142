# SPDX-License-Identifier: Apache-2.0
"""An answer about fleets as one JSON object."""

import dataclasses
import math
from typing import Any

from aicjax.fleet.reference_answers import ReferenceAnswer


def as_json(answer: Any) -> Any:
    """The answer as plain Python values; what is not finite is null."""
    if isinstance(answer, ReferenceAnswer):
        return _plain(answer.content)
    return _plain({"answer": type(answer).__name__.removesuffix("Answer").lower(), **dataclasses.asdict(answer)})


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
