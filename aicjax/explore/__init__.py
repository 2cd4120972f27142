# SPDX-License-Identifier: Apache-2.0
"""Searches over layouts, batches and worker counts, and estimates of single points."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicjax.explore.comparison import ExperimentsResult as ExperimentsResult
    from aicjax.explore.comparison import run_experiments as run_experiments
    from aicjax.explore.point import EstimateResult as EstimateResult
    from aicjax.explore.point import estimate as estimate
    from aicjax.explore.request import EstimateRequest as EstimateRequest
    from aicjax.explore.request import SearchRequest as SearchRequest
    from aicjax.explore.result import Explanation as Explanation
    from aicjax.explore.result import SearchResult as SearchResult
    from aicjax.explore.result import TaskResult as TaskResult
    from aicjax.explore.run import recommend as recommend
    from aicjax.explore.run import search as search

_HOME = {
    "EstimateRequest": "request",
    "EstimateResult": "point",
    "ExperimentsResult": "comparison",
    "Explanation": "result",
    "SearchRequest": "request",
    "SearchResult": "result",
    "TaskResult": "result",
    "estimate": "point",
    "recommend": "run",
    "run_experiments": "comparison",
    "search": "run",
}


def __getattr__(name: str) -> object:
    """The public name, imported when first used: requests are checked before jax is loaded."""
    if name not in _HOME:
        raise AttributeError(f"module 'aicjax.explore' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"aicjax.explore.{_HOME[name]}"), name)
    globals()[name] = value
    return value
