# SPDX-License-Identifier: Apache-2.0
"""Values of a result file by key; what is missing or of another kind is refused in one line with file and key."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicjax._results import DataError


class Fields:
    """One object of a result file.

    Args:
        file: The file, for messages.
        values: The object.
        place: Where it stands in the file, with a dot at its end; "" at the top.
    """

    def __init__(self, file: Path, values: Mapping[str, Any], place: str = ""):
        self.file, self.values, self.place = file, values, place

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def get(self, key: str, otherwise: Any = None) -> Any:
        """A value as it stands, another one where there is none."""
        return self.values[key] if key in self else otherwise

    def part(self, key: str) -> "Fields":
        """An object within this one.

        Raises:
            DataError: It is missing, or no object.
        """
        value = self._stated(key)
        if not isinstance(value, Mapping):
            raise self.refused(key, f"must be an object, but is {_short(value)}")
        return Fields(self.file, value, f"{self.place}{key}.")

    def parts(self, key: str) -> list["Fields"]:
        """The objects of a list within this one.

        Raises:
            DataError: It is missing, or no list of objects.
        """
        value = self._stated(key)
        if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
            raise self.refused(key, f"must be a list of objects, but is {_short(value)}")
        return [Fields(self.file, entry, f"{self.place}{key}[{at}].") for at, entry in enumerate(value)]

    def number(self, key: str) -> float:
        """A number above 0.

        Raises:
            DataError: It is missing, or another value.
        """
        value = self._stated(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.refused(key, f"must be a number above 0, but is {_short(value)}")
        return float(value)

    def count(self, key: str, least: int = 1) -> int:
        """A whole number, at least `least`.

        Raises:
            DataError: It is missing, or another value.
        """
        value = self._stated(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < least:
            raise self.refused(key, f"must be a whole number of at least {least}, but is {_short(value)}")
        return int(value)

    def word(self, key: str) -> str:
        """A text.

        Raises:
            DataError: It is missing, or no text.
        """
        value = self._stated(key)
        if not isinstance(value, str):
            raise self.refused(key, f"must be a text, but is {_short(value)}")
        return value

    def refused(self, key: str, why: str) -> DataError:
        """The error that names this file and a key."""
        return DataError(f"{self.file}: {self.place}{key} {why}")

    def _stated(self, key: str) -> Any:
        if key not in self:
            raise self.refused(key, "is missing")
        return self.values[key]


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:37] + "..."
