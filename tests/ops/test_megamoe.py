# SPDX-License-Identifier: Apache-2.0
"""MegaMoE: stored answers, and which rows count on made-up tables."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import DataError, InputError, Provenance
from aicjax.ops.megamoe import TIMED, VARIANT, megamoe_available
from aicjax.ops.records import MegaMoe
from aicjax.tables import Source
from aicjax.tables.rows import Rows
from benchmarks.parity_cases.expert_operators import EXPERTS
from tests.ops import made_up
from tests.ops.expert_cases import MEGAMOE, ask, check_stored, made_up_database, stored

OP = MegaMoe("moe", 1.0, 1024, 512, 2, 16, 4, "w4a8_mxfp4_mxfp8", "balanced", "context")


record = EXPERTS["ops_dsv4_megamoe"].record


def table(**changes: Any) -> Rows:
    """Two points of the operator, 1 ms at 8 tokens and 3 ms at 64."""
    columns: dict[str, Any] = {
        **VARIANT,
        **TIMED,
        "phase": OP.phase,
        "moe_dtype": OP.quant,
        "distribution": OP.distribution,
        "num_fused_shared_experts": 0,
        "topk": OP.topk,
        "num_experts": OP.num_experts,
        "hidden_size": OP.hidden_size,
        "inter_size": OP.inter_size,
        "moe_tp_size": 1,
        "moe_ep_size": OP.moe_ep,
        **changes,
    }
    repeated = {name: [value, value] for name, value in columns.items()}
    return made_up.rows(**repeated, num_tokens=[8, 64], latency=[1.0, 3.0])


def blackwell(**options: Any):
    return made_up_database(system=made_up.system(sm_version=100), **options)


def test_stored_answers():
    check_stored(MEGAMOE, stored("ops_dsv4_megamoe"), record)


def test_tokens_are_those_of_one_rank():
    with made_up.database(dsv4_megamoe_module_perf=table()):
        times = ask(MEGAMOE, blackwell(), [OP] * 4, [4, 8, 36, 128])
        assert megamoe_available(blackwell(), OP)
    assert times.latency_ms.tolist() == [0.5, 1.0, 2.0, 6.0]
    assert np.isnan(times.sol_ms).all()


def test_uniform_load_is_balanced_load():
    uniform = dataclasses.replace(OP, distribution="uniform")
    for name in ("balanced", "uniform"):
        with made_up.database(dsv4_megamoe_module_perf=table(distribution=name)):
            times = ask(MEGAMOE, blackwell(), [OP, uniform], 8)
        assert times.latency_ms.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("change", [{"kernel_dtype": "fp8"}, {"num_fused_shared_experts": 1}, {"moe_tp_size": 2}])
def test_other_variants_do_not_answer(change):
    with made_up.database(dsv4_megamoe_module_perf=table(**change)):
        times = ask(MEGAMOE, blackwell(), [OP], 8)
    assert times.provenance.tolist() == [Provenance.MISSING]


@pytest.mark.parametrize("column", TIMED)
def test_rows_that_timed_another_part_of_the_layer_are_refused(column):
    rows = table(**{column: 1 - TIMED[column]})
    rows.sources = (Source(made_up.WHERE[1], Path("megamoe.parquet"), "primary", True, None),)
    with (
        made_up.database(dsv4_megamoe_module_perf=rows),
        pytest.raises(DataError, match=f"megamoe.parquet: row 0, column {column}"),
    ):
        ask(MEGAMOE, blackwell(), [OP], 8)


def test_systems_without_the_kernel_are_refused():
    with made_up.database(), pytest.raises(InputError, match="compute capability 100"):
        ask(MEGAMOE, made_up_database(), [OP], 8)
