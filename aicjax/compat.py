# SPDX-License-Identifier: Apache-2.0
"""Where AIConfigurator 0.12.0 contradicts a model's own config or the hardware: one switch for each such defect.

A switch that is on follows AIConfigurator. All of them are on in `REFERENCE`, none in `DEFAULT`. A model is loaded
with one or the other and carries it to everything that prices it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any


def _quirk(*, there: str, here: str, why: str) -> Any:
    """A switch, off by default.

    Args:
        there: What AIConfigurator does.
        here: What is done where the switch is off.
        why: What the defect does to numbers, and how it is known to be one.
    """
    return dataclasses.field(default=False, metadata={"there": there, "here": here, "why": why})


@dataclass(frozen=True)
class Compat:
    """Which defects of AIConfigurator 0.12.0 are followed."""

    expert_prefill_without_head: bool = _quirk(
        there="Prefills of Mixtral, Qwen-MoE, gpt-oss and MiniMax-M2 run no vocabulary projection",
        here="they run it, on the last token of each prompt, as every other family",
        why="the first token comes out of it, and its weights were missing from the memory of every worker",
    )


DEFAULT = Compat()
REFERENCE = Compat(**{switch.name: True for switch in dataclasses.fields(Compat)})
BY_NAME = {"default": DEFAULT, "reference": REFERENCE}


def markdown() -> str:
    """All switches as a table for `docs/parity.md`."""
    rows = [
        (f"`{switch.name}`", *(switch.metadata[part] for part in ("there", "here", "why")))
        for switch in dataclasses.fields(Compat)
    ]
    head = ("switch", "AIConfigurator", "here", "why")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


if __name__ == "__main__":
    print(markdown())
