# SPDX-License-Identifier: Apache-2.0
"""What compiles: one program for all models, systems, tables, constants and lengths of one shape bucket."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from aicjax.forward import BoundModel, step_queries, step_times
from tests.compiles import Counts, counted
from tests.forward.bound_models import MODEL, bind_lists, bound, lists


def queries(points: int = 5):
    load = np.arange(1, points + 1)
    return step_queries(
        context_batch=load, context_new=100, context_prefix=load,
        prefill_batch=load, prefill_new=50 * load, prefill_prefix=load,
        generation_rows=3 * load, decode_rows=load, decode_length=1000 * load,
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluated() -> BoundModel:
    model = bound()
    model.evaluate(queries())
    return model


def assert_compiles_nothing(model: BoundModel, points: int = 5) -> None:
    with counted() as counts:
        model.evaluate(queries(points))
    assert counts == Counts(traced=0, compiled=0)


def test_counter_counts():
    with counted() as counts:
        jax.jit(lambda x: x * 3 + 1)(np.ones(7, np.float32))
    assert counts.compiled == 1
    assert counts.traced >= 1


def test_other_lengths_of_the_bucket_compile_nothing(evaluated):
    for points in (1, 5, 16):
        assert_compiles_nothing(evaluated, points)


def test_same_model_bound_again_compiles_nothing(evaluated):
    assert_compiles_nothing(bind_lists(lists()))


@pytest.mark.parametrize(
    ("model", "system", "backend"),
    [
        (MODEL, "h100_sxm", "trtllm"),
        (MODEL, "b200_sxm", "trtllm"),
        (MODEL, "h200_sxm", "sglang"),
        ("Qwen/Qwen3-8B", "h200_sxm", "trtllm"),
        ("meta-llama/Meta-Llama-3.1-70B", "h200_sxm", "trtllm"),
        ("Qwen/Qwen3-32B", "h100_sxm", "sglang"),
    ],
)
def test_another_model_system_or_backend_compiles_nothing(evaluated, model, system, backend):
    assert_compiles_nothing(bound(model, system, backend))


def test_static_scales_compile_once():
    """They are operators of their own, so models with and without them are two programs."""
    static = "Qwen/Qwen3-32B-FP8-Static-PerTensor"
    bound(static).evaluate(queries())
    assert_compiles_nothing(bound(static, "h100_sxm"))


def test_other_layouts_compile_nothing(evaluated):
    assert_compiles_nothing(bind_lists([*lists()[1:], lists()[0]]))


def test_another_constant_compiles_nothing(evaluated):
    constants = eqx.tree_at(
        lambda c: c.op.context_attention_extra_factor, evaluated.constants, replace_fn=lambda x: 2 * x
    )
    assert_compiles_nothing(dataclasses.replace(evaluated, constants=constants))


def test_step_times_are_traced_once_inside_a_users_jit(evaluated):
    arrays, op = evaluated.arrays, evaluated.constants.op

    @eqx.debug.assert_max_traces(max_traces=1)
    def steps(hardware, queries):
        return step_times(eqx.tree_at(lambda a: a.hardware, arrays, hardware), queries, op, roofline=True)

    jitted = jax.jit(steps)
    for scale in (1.0, 0.5):
        hardware = jax.tree.map(lambda x, scale=scale: np.asarray(x * np.float32(scale)), arrays.hardware)
        jitted(hardware, queries(3))
    assert eqx.debug.get_num_traces(steps) == 1
