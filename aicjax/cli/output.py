# SPDX-License-Identifier: Apache-2.0
"""Running a search from the command line and showing its result in the form that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aicjax.search import SearchRequest


@dataclass(frozen=True)
class Output:
    """How a result is shown.

    Attributes:
        json: One JSON object in place of tables.
        quiet: One line, the best configuration.
        no_color: No colour.
        save_dir: Where result files go; None writes none.
    """

    json: bool
    quiet: bool
    no_color: bool
    save_dir: Path | None

    @classmethod
    def take(cls, given: dict[str, Any]) -> "Output":
        """Takes the output flags out of the given flags; what stays is the request."""
        flags = {name: given.pop(name, False) for name in ("json", "quiet", "no_color")}
        return cls(**flags, save_dir=given.pop("save_dir", None))


def present(request: "SearchRequest", output: Output) -> None:
    """Runs the search or recommendation of a request and prints it."""
    raise NotImplementedError
