# SPDX-License-Identifier: Apache-2.0
"""Made-up measured tables and systems: what an operator reads when the database holds exactly these rows."""

import contextlib
import dataclasses
import functools
import importlib
import itertools
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType
from unittest import mock

import numpy as np

import aicjax.ops
from aicjax.hardware import System, load_system
from aicjax.tables.rows import EMPTY, Rows

WHERE = ("trtllm", "1.0")  # a backend with constants; no version of that name exists
_numbers = itertools.count()


def system(**changes: object) -> System:
    """An H200 with changes, under a name of its own: tables are kept by system."""
    return dataclasses.replace(load_system("h200_sxm"), name=f"made-up-{next(_numbers)}", **changes)  # type: ignore[arg-type]


def rows(**columns: Sequence) -> Rows:
    """Rows from columns of numbers or of words; None is an empty word."""
    count = len(next(iter(columns.values())))
    numbers, texts = {}, {}
    for name, values in columns.items():
        if all(isinstance(value, str | None) for value in values):
            words = tuple(dict.fromkeys(value for value in values if value is not None))
            codes = [EMPTY if value is None else words.index(value) for value in values]
            texts[name] = (np.array(codes, np.int32), words)
        else:
            numbers[name] = (np.array(values), None)
    place = np.arange(count, dtype=np.int32)
    return Rows((), np.zeros(count, np.int32), place, numbers, texts)


@functools.cache
def _readers() -> tuple[ModuleType, ...]:
    """Modules that read tables, whether or not something imported them yet."""
    names = [f"aicjax.ops.{module.name}" for module in pkgutil.iter_modules(aicjax.ops.__path__)]
    modules = map(importlib.import_module, [*names, "aicjax.tables.repair"])
    return tuple(module for module in modules if hasattr(module, "read_rows"))


@contextlib.contextmanager
def database(**tables: Rows) -> Iterator[None]:
    """The given tables, by name, and no others."""

    def read(system: str, backend: str, version: str, table: str, shared: bool = True) -> Rows | None:
        return tables.get(table)

    with contextlib.ExitStack() as stack:
        for module in _readers():
            stack.enter_context(mock.patch.object(module, "read_rows", read))
        yield


def product_rows(points: Sequence[tuple[int, int, int, float]], form: str = "bfloat16") -> Rows:
    """A product table from `(m, n, k, latency)`."""
    m, n, k, latency = zip(*points, strict=True)
    return rows(gemm_dtype=[form] * len(points), m=m, n=n, k=k, latency=latency)
