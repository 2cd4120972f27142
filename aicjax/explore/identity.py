# SPDX-License-Identifier: Apache-2.0
"""Columns of a row that say what runs where: model, requests, engine, number formats and layout."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.roles import Deployment, Worker

_SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
_FORMATS = ("gemm", "kvcache", "fmha", "moe", "comm")


def identity(deployment: Deployment) -> dict[str, Any]:
    """Single values: model, requests, engine and system."""
    load = deployment.load
    return {
        "model": deployment.model.name,
        "isl": load.text_tokens,
        "osl": load.osl,
        "prefix": load.prefix,
        "backend": deployment.backend,
        "version": deployment.version,
        "system": deployment.system.name,
    }


def layout_columns(worker: Worker, config: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Sizes, label and number formats of the layout of each row; `config` is its position among the worker's."""
    sizes = {name: [getattr(layout, name) for layout in worker.layouts] for name in _SIZES}
    formats = {role: [getattr(modes, role) for modes in worker.formats] for role in _FORMATS}
    columns = {**sizes, "parallel": [layout.label for layout in worker.layouts], **formats}
    return {name: np.array(values)[config] for name, values in columns.items()}
