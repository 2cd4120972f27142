# SPDX-License-Identifier: Apache-2.0
"""The example that optimises real batches and worker counts, on a small case: its best points are estimates."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

import aicjax
from aicjax.serving.load import Load

PATH = Path(__file__).parents[1] / "examples" / "continuous_optimum.py"
MODEL = {"model_path": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "isl": 1000, "osl": 200}
LIMITS = {"ttft": 400.0, "tpot": 15.0}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_outside_of_tests() -> Iterator[None]:
    """The rules of arithmetic between types that a user has."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("continuous_optimum", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(example: ModuleType):
    return example.Case(Load(1000, 200), **LIMITS, tp=(2,), batch=48, ctx_tokens=3000, prefill_batch=2, gpus=12)


def checked(answer: list, most_lost: float) -> list[int]:
    """Numbers of the best whole point; the rounded one is at most as good, and not much worse."""
    (relaxed, *_), (rounded, _, tried), (best, where, all_of_them) = answer
    assert best * (1 - most_lost) <= rounded <= best * (1 + 1e-6)
    assert relaxed > 0.9 * best
    assert tried < all_of_them / 5
    return [int(number) for number in re.findall(r"\d+", where)]


def test_in_flight(example: ModuleType):
    answer = example.in_flight(small(example))
    tp, batch, ctx_tokens = checked(answer, 0.03)
    row = aicjax.estimate(**MODEL, tp_size=tp, batch_size=batch, ctx_tokens=ctx_tokens).row
    assert row["tokens/s/gpu"] == pytest.approx(answer[2][0], rel=1e-4)
    assert row["ttft"] <= LIMITS["ttft"] and row["tpot"] <= LIMITS["tpot"]


def test_disaggregated(example: ModuleType):
    answer = example.disaggregated(small(example))
    sizes = ("tp_size", "batch_size", "num_workers")
    first, second, prompts, rows, prefills, decodes = checked(answer, 0.01)
    values = {"prefill": (first, prompts, prefills), "decode": (second, rows, decodes)}
    point: dict[str, Any] = {}
    for role, numbers in values.items():
        point |= {f"{role}_{name}": number for name, number in zip(sizes, numbers, strict=True)}
    row = aicjax.estimate(**MODEL, mode="disagg", **point).row
    assert row["tokens/s/gpu"] == pytest.approx(answer[2][0], rel=1e-3)
    waits = 1.8 if aicjax.load_constants("trtllm").formulas == "steady_state" else 1.0  # else in the row, if shorter
    assert row["ttft"] * waits <= LIMITS["ttft"] and row["tpot"] <= LIMITS["tpot"]
