# SPDX-License-Identifier: Apache-2.0
"""Columns of a row that say what runs where: model, requests, engine, number formats and layout."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.roles import Deployment
from aicjax.models import Parallel

_SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
_FORMATS = ("gemm", "kvcache", "fmha", "moe", "comm")


def identity(deployment: Deployment) -> dict[str, Any]:
    """Single values: model, requests, formats, engine and system."""
    load = deployment.load
    return {
        "model": deployment.model.name,
        "isl": load.text_tokens,
        "osl": load.osl,
        "prefix": load.prefix,
        **{role: getattr(deployment.quantisation, role) for role in _FORMATS},
        "backend": deployment.backend,
        "version": deployment.version,
        "system": deployment.system.name,
    }


def layout_columns(layouts: Sequence[Parallel], config: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Sizes and label of the layout of each row; `config` is its position in `layouts`."""
    sizes = {name: np.array([getattr(layout, name) for layout in layouts])[config] for name in _SIZES}
    return {**sizes, "parallel": np.array([layout.label for layout in layouts])[config]}
