# SPDX-License-Identifier: Apache-2.0
"""Answers by the rules of the fleet reference (vllm-sr-sim), with its own names and roundings of the figures."""

from dataclasses import dataclass
from typing import Any

from aicjax.fleet.answer_parts import Asked


@dataclass(frozen=True)
class ReferenceAnswer:
    """An answer in the shape of the fleet reference.

    Attributes:
        asked: What was asked.
        content: What its command writes: rows, or named groups of them.
        headline: The answer in one line.
        meets: Whether anything meets the limits.
    """

    asked: Asked
    content: Any
    headline: str
    meets: bool
