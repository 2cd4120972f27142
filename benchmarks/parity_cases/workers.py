# SPDX-License-Identifier: Apache-2.0
"""The workers that stored rows are about: model, number formats and layout, as operators."""

import functools
import json
from typing import Any, NamedTuple

from aicjax.compat import REFERENCE
from aicjax.hardware import load_system
from aicjax.models import (
    Images,
    ModelConfig,
    Parallel,
    Quantisation,
    load_model,
    op_lists,
    request_images,
    resolve_quantisation,
)
from aicjax.models.large_ep import LargeEp
from aicjax.ops.records import OpLists
from aicjax.tables import resolve_version

SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
ROLES = ("gemm", "moe", "kvcache", "fmha", "comm")
TABLES = ("system", "backend", "version")
IMAGES = ("num_images", "image_height", "image_width")
WORKER = ("model", "quant_override", "moe_comm", *SIZES, "nextn")


class StoredWorker(NamedTuple):
    """One worker: its model, number formats, layout and operators."""

    model: ModelConfig
    quantisation: Quantisation
    layout: Parallel
    operators: OpLists


def stored_worker(tables: tuple[str, str, str], key: tuple[Any, ...], *, shared: bool = True) -> StoredWorker:
    """The worker of rows with the values `key` in the columns `WORKER`, on (system, backend, version).

    Formats follow what is measured, by other versions and backends too where `shared`.
    """
    model_name, override, libraries, *sizes, nextn = key
    system, backend, stored_version = tables
    version = resolve_version(system, backend, stored_version)
    model, layout, hardware = load_model(model_name, compat=REFERENCE), Parallel(*sizes), load_system(system)
    explicit = {role.removesuffix("_quant_mode"): mode for role, mode in json.loads(override or "{}").items()}
    quantisation = resolve_quantisation(
        model, hardware, backend, version, explicit, large_ep=bool(libraries), shared=shared
    )
    nodes = -(-layout.moe_ep // hardware.gpus_per_node)
    exchange = LargeEp(**json.loads(libraries), nodes=nodes) if libraries else None
    operators = op_lists(model, layout, quantisation, backend, nextn, exchange)
    return StoredWorker(model, quantisation, layout, operators)


@functools.cache
def stored_images(model_name: str, count: int, height: int, width: int) -> Images | None:
    """Images of a request, from the columns `IMAGES`; None for a request of text."""
    return request_images(load_model(model_name), count, height, width) if count else None
