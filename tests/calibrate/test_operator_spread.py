# SPDX-License-Identifier: Apache-2.0
"""Spread of operators: the shipped data, and how errors become spreads."""

from typing import Any, cast

import numpy as np
import pytest
import yaml

from aicjax._results import Provenance
from aicjax.calibrate.leave_one_out import FAMILIES, OWN_RULE, Errors
from aicjax.calibrate.measured_curves import Place
from aicjax.calibrate.operator_spread import ALL, DONORS, Spread, as_yaml, operator_spread, spread_of, summarise
from aicjax.hardware import load_system

SYSTEM = load_system("h200_sxm")


def errors(family: str, kind: str, version: str, values) -> Errors:
    return Errors(family, kind, OWN_RULE, Place(SYSTEM, "vllm", version), "fp8", np.array(values, np.float32))


def test_shipped_spreads_know_every_family_and_the_order_of_provenance():
    known = operator_spread()
    assert set(known) == {*FAMILIES, ALL}
    names = {p.name.lower() for p in Provenance}
    for by_name in known.values():
        assert set(by_name) <= {*names, *DONORS}
        assert all(spread.points > 0 and spread.sd >= 0 and spread.robust_sd >= 0 for spread in by_name.values())
    for family in ("gemm", "context_attention", "generation_attention", "moe"):
        measured, between, beyond, roofline = (known[family][n] for n in ("exact", "interpolated", "held", "sol"))
        assert measured.robust_sd < between.robust_sd < beyond.robust_sd < roofline.robust_sd


def test_a_family_without_errors_of_its_own_has_those_of_all():
    known = operator_spread()
    assert spread_of("gemm", Provenance.TRANSFERRED) == known["gemm"]["transferred"]
    assert spread_of("dsa_context", Provenance.INTERPOLATED) == known[ALL]["interpolated"]
    assert spread_of("gemm", Provenance.MISSING) is None


def test_spread_of_hand_made_errors():
    found = summarise(
        [
            errors("gemm", "interior", "1", [0.1, 0.1, 0.4]),
            errors("gemm", "interior", "2", [-0.1]),
            errors("moe", "row", "1", [0.3]),
            errors("moe", "other_version", "1", [1.0]),
        ]
    )
    gemm = found["gemm"]["interpolated"]
    assert gemm.points == 4
    assert gemm.tables == 2
    assert gemm.bias == pytest.approx(0.1, abs=1e-4)
    assert gemm.sd == pytest.approx(np.std([0.1, 0.1, 0.4, -0.1]), abs=1e-4)
    assert gemm.robust_sd == pytest.approx(1.4826 * 0.1, abs=1e-4)
    assert gemm.table_sd == pytest.approx(0.1, abs=1e-4)  # medians 0.1 and -0.1
    assert list(found) == ["gemm", "moe", ALL]
    assert found[ALL]["interpolated"].points == 5
    assert found[ALL]["other_version"].bias == 1.0


def test_written_data_read_back_alike():
    found = summarise([errors("gemm", "last", "1", [0.25, -0.5]), errors("gemm", "sol", "1", [-1.0])])
    content = cast(Any, yaml.safe_load(as_yaml(found)))
    assert {"unit", "meaning", "source", "families"} == set(content)
    read = {f: {name: Spread(**v) for name, v in by.items()} for f, by in content["families"].items()}
    assert read == found
