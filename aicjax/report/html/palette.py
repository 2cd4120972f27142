# SPDX-License-Identifier: Apache-2.0
"""Colours of pages by name, in a light and a dark set; those of charts tell apart without red and green."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from aicjax import _paths
from aicjax._results import Provenance

SERIES = 6  # colours of series, used again from the first where there are more


@functools.cache
def colours() -> dict[str, dict[str, str]]:
    """Colours by set (`light`, `dark`) and name."""
    return yaml.safe_load((_paths.configs_dir() / "report" / "palette.yaml").read_text(encoding="utf-8"))


def series(position: int) -> str:
    """The colour of a series."""
    return f"--series-{position % SERIES + 1}"


def source(code: Provenance) -> tuple[str, str]:
    """What a way of obtaining a latency is called, and its colour; the darker, the surer."""
    return next((label, colour) for last, label, colour in SOURCES if code <= last)


SOURCES = (
    (Provenance.EXACT, "measured", "--source-1"),
    (Provenance.INTERPOLATED, "interpolated between measurements", "--source-2"),
    (Provenance.ANALYTIC, "formula with measured constants", "--source-3"),
    (Provenance.TRANSFERRED, "transferred from other measurements", "--source-4"),
    (Provenance.XOP, "estimated", "--source-5"),
    (Provenance.MISSING, "roofline alone", "--source-6"),
)


def resolved(value: Any, of: Mapping[str, str]) -> Any:
    """A figure with the names of colours replaced by the colours of one set."""
    if isinstance(value, Mapping):
        return {name: resolved(each, of) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(each, of) for each in value]
    return of[value] if isinstance(value, str) and value.startswith("--") else value
