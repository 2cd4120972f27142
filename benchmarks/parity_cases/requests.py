# SPDX-License-Identifier: Apache-2.0
"""The searches that stored rows come from, as requests of ours."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aicjax.explore import SearchRequest, SearchResult, recommend, search

SPECIFICATIONS = "e2e_specs.json"  # beside the rows
_OUTCOMES = (
    *("id", "search_id", "kind", "error", "chosen_exp", "best_throughputs", "best_latencies", "outcomes"),
    *("n_agg_points", "n_disagg_candidates", "feasible_rows", "tasks"),
)


@functools.cache
def read_specifications(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    """What was asked and found, by search."""
    return {entry["search_id"]: entry for entry in json.loads((directory / SPECIFICATIONS).read_text())}


@functools.cache
def read_requests(directory: Path) -> Mapping[str, Callable[..., SearchRequest]]:
    """The request of each search, with further fields if wanted; making one raises `InputError` when it asks for what
    is not modelled.
    """
    specifications = read_specifications(directory)
    inputs = {
        name: {key: value for key, value in entry.items() if key not in _OUTCOMES}
        for name, entry in specifications.items()
    }
    return {name: functools.partial(SearchRequest, **values, compat="reference") for name, values in inputs.items()}


@functools.cache
def run_search(directory: Path, name: str) -> SearchResult:
    """The outcome of one search, run once.

    Raises:
        AicjaxError: The search is refused.
    """
    request = read_requests(directory)[name]()
    return (recommend if read_specifications(directory)[name]["kind"] == "recommend" else search)(request)
