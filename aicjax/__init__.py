# SPDX-License-Identifier: Apache-2.0
"""Serving performance of large language models on GPUs, as array programs.

The names below are the public API; each is imported from its room when first used, so that `import aicjax` is quick
and pulls in no jax. Single operators are in `aicjax.ops.query`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicjax._results import AicjaxError as AicjaxError
    from aicjax._results import DataError as DataError
    from aicjax._results import InputError as InputError
    from aicjax._results import MissingData as MissingData
    from aicjax._results import MissingPeak as MissingPeak
    from aicjax._results import NoFeasible as NoFeasible
    from aicjax._results import Provenance as Provenance
    from aicjax.constants import Constants as Constants
    from aicjax.constants import load_constants as load_constants
    from aicjax.explore import EstimateRequest as EstimateRequest
    from aicjax.explore import SearchRequest as SearchRequest
    from aicjax.explore import SearchResult as SearchResult
    from aicjax.explore import estimate as estimate
    from aicjax.explore import recommend as recommend
    from aicjax.explore import run_experiments as run_experiments
    from aicjax.explore import search as search
    from aicjax.explore.support import support as support
    from aicjax.forward import BoundModel as BoundModel
    from aicjax.forward import StepCurves as StepCurves
    from aicjax.forward import StepQueries as StepQueries
    from aicjax.forward import bind as bind
    from aicjax.hardware import System as System
    from aicjax.hardware import load_system as load_system
    from aicjax.hardware import system_names as system_names
    from aicjax.models import ModelConfig as ModelConfig
    from aicjax.models import Parallel as Parallel
    from aicjax.models import Quantisation as Quantisation
    from aicjax.models import load_model as load_model
    from aicjax.models import op_lists as op_lists
    from aicjax.models import resolve_quantisation as resolve_quantisation
    from aicjax.ops.query import operator_latency as operator_latency
    from aicjax.sweeps.result import SweepResult as SweepResult
    from aicjax.sweeps.run import sweep as sweep
    from aicjax.sweeps.spec import SweepSpec as SweepSpec
    from aicjax.tables import resolve_version as resolve_version

__version__ = "0.1.0"

_ROOMS = {
    "aicjax._results": (
        "AicjaxError",
        "DataError",
        "InputError",
        "MissingData",
        "MissingPeak",
        "NoFeasible",
        "Provenance",
    ),
    "aicjax.constants": ("Constants", "load_constants"),
    "aicjax.forward": ("BoundModel", "StepCurves", "StepQueries", "bind"),
    "aicjax.hardware": ("System", "load_system", "system_names"),
    "aicjax.models": ("ModelConfig", "Parallel", "Quantisation", "load_model", "op_lists", "resolve_quantisation"),
    "aicjax.explore": (
        "EstimateRequest",
        "SearchRequest",
        "SearchResult",
        "estimate",
        "recommend",
        "run_experiments",
        "search",
    ),
    "aicjax.explore.support": ("support",),
    "aicjax.ops.query": ("operator_latency",),
    "aicjax.sweeps.result": ("SweepResult",),
    "aicjax.sweeps.run": ("sweep",),
    "aicjax.sweeps.spec": ("SweepSpec",),
    "aicjax.tables": ("resolve_version",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """The public name, imported from its room on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'aicjax' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted([*_HOME, "__version__"])
