# SPDX-License-Identifier: Apache-2.0
"""Bound models that several tests share: one compiled program serves them all."""

import dataclasses
import functools
from collections.abc import Sequence

from aicjax.forward import BoundModel, bind
from aicjax.hardware import load_system
from aicjax.models import Parallel, infer_quantisation, load_model, op_lists
from aicjax.ops.records import AllReduce, ContextAttention, OpLists
from aicjax.tables import resolve_version

MODEL, SYSTEM, BACKEND = "Qwen/Qwen3-32B-FP8", "h200_sxm", "trtllm"
LAYOUTS = (1, 2, 4, 8)  # tensor parallel


def lists(model: str = MODEL, backend: str = BACKEND, layouts: Sequence[int] = LAYOUTS) -> list[OpLists]:
    config = load_model(model)
    quantisation = infer_quantisation(config, backend, {})
    return [op_lists(config, Parallel(tp), quantisation, backend) for tp in layouts]


def bind_lists(op_lists: Sequence[OpLists], system: str = SYSTEM, backend: str = BACKEND, mode: str = "SILICON"):
    return bind(load_system(system), backend, resolve_version(system, backend, None), op_lists, mode=mode)


@functools.cache
def bound(model: str = MODEL, system: str = SYSTEM, backend: str = BACKEND, mode: str = "SILICON") -> BoundModel:
    return bind_lists(lists(model, backend), system, backend, mode)


def without_data(layout: OpLists) -> OpLists:
    """The same layout, whose prefill reduces over a group, and attends with a head size, that nobody measured."""
    context = [
        dataclasses.replace(op, tp=3) if isinstance(op, AllReduce)
        else dataclasses.replace(op, head_size=96) if isinstance(op, ContextAttention)
        else op
        for op in layout.context
    ]  # fmt: skip
    return dataclasses.replace(layout, context=tuple(context))
