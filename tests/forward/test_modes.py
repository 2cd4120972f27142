# SPDX-License-Identifier: Apache-2.0
"""Passes in every database mode: stored answers of AIConfigurator 0.12.0, provenance, what estimates depend on."""

from pathlib import Path

import numpy as np
import pytest

from aicjax._results import InputError, Provenance
from aicjax.forward import BoundModel, StepCurves, bind, step_queries
from aicjax.hardware import load_system
from aicjax.ops.records import Gemm, Mamba2, Moe, OpLists
from benchmarks.parity_cases.comparison import NO_DATA, OK
from benchmarks.parity_cases.forward import forward
from benchmarks.parity_cases.stored import StoredRows
from tests.compiles import Counts, counted

STORED = Path(__file__).parents[1] / "references" / "passes_modes.parquet"
RTOL = 1e-5
SUM = 1e-6  # a float32 sum of few terms, in any order
QUERIES = {"context_batch": [1, 2, 3], "context_new": [100, 1000, 7], "context_prefix": 0}
MEASURED = Gemm("measured", 1.0, 4096, 4096, "bfloat16")
# On Hopper nobody measured these formats: other formats lend, or nobody.
PRODUCT = Gemm("product", 1.0, 4096, 4096, "nvfp4_wo")
EXPERTS = Moe("experts", 1.0, 4096, 1536, 8, 128, 1, 4, 1, "nvfp4_wo", "power_law_1.2")
SCAN = Mamba2("scan", 1.0, "causal_conv1d_fn", "context", 2688, 128, 4, 64, 64, 8, 128)
LAYOUTS = [OpLists((MEASURED, PRODUCT, EXPERTS), ()), OpLists((PRODUCT, PRODUCT), ())]


def stored() -> StoredRows:
    return StoredRows.read(STORED)


def evaluate(layouts=LAYOUTS, queries=QUERIES, *, system="h100_sxm", version="1.3.0rc20", mode="HYBRID", **options):
    bound: BoundModel = bind(load_system(system), "trtllm", version, layouts, mode=mode, **options)
    return bound.evaluate(step_queries(**queries))


def codes(curves: StepCurves) -> dict[str, Provenance]:
    breakdown = curves.breakdown("context_rest", 0, 0)
    return {name: Provenance(code) for name, code in zip(breakdown.names, breakdown.provenance.tolist(), strict=True)}


HYBRID, EMPIRICAL, SOL = "HYBRID", "EMPIRICAL", "SOL"


@pytest.mark.parametrize(
    ("backend", "mode", "outcomes"),
    [
        ("vllm", HYBRID, [OK] * 6),
        # Sparse attention that nothing stands in for; a block that was not measured, though its parts were.
        pytest.param("trtllm", HYBRID, [NO_DATA, OK, NO_DATA], marks=pytest.mark.slow),
        pytest.param("sglang", EMPIRICAL, [NO_DATA], marks=pytest.mark.slow),
        pytest.param("trtllm", EMPIRICAL, [OK], marks=pytest.mark.slow),
        pytest.param("trtllm", SOL, [OK], marks=pytest.mark.slow),
    ],
)
def test_passes_agree_with_stored_answers(backend, mode, outcomes):
    rows = stored()
    rows = rows.take(rows.meets({"backend": {backend}, "database_mode": {mode}}))
    comparison = forward(rows)
    assert comparison.found.tolist() == comparison.wanted.tolist() == outcomes
    assert np.nanmax([0.0, *comparison.relative_error]) < RTOL
    assert not comparison.mismatch.any()


@pytest.mark.parametrize(
    ("mode", "measured", "borrowed"),
    [
        (HYBRID, Provenance.INTERPOLATED, Provenance.XPROFILE),
        (EMPIRICAL, Provenance.EMPIRICAL, Provenance.XPROFILE),
        (SOL, Provenance.SOL, Provenance.SOL),
    ],
)
def test_operators_say_whose_points_they_rest_on(mode, measured, borrowed):
    assert codes(evaluate(mode=mode)) == {"measured": measured, "product": borrowed, "experts": borrowed}


def test_nothing_is_borrowed_where_that_is_off():
    assert np.isfinite(evaluate().context_rest_ms).all()
    curves = evaluate(transfer_policy="off")
    assert np.isnan(curves.context_rest_ms).all()
    assert curves.missing("context_rest", 0) == ["product", "experts"]
    with pytest.raises(InputError, match="transfer_policy"):
        evaluate(transfer_policy="everything")


def test_answers_do_not_depend_on_the_order_of_layouts_and_queries():
    turned = {name: np.flip(np.broadcast_to(values, 3)) for name, values in QUERIES.items()}
    reverse = evaluate(LAYOUTS[::-1], turned).context_rest_ms[::-1, ::-1]
    np.testing.assert_allclose(evaluate().context_rest_ms, reverse, rtol=SUM)


def test_another_system_compiles_nothing():
    evaluate()
    with counted() as counts:
        times = evaluate(system="h200_sxm")
    assert counts == Counts(traced=0, compiled=0)
    assert np.isfinite(times.context_rest_ms).all()


def test_tables_of_other_versions_fill_gaps_unless_told_not_to():
    layouts = [OpLists((MEASURED,), ())]
    shared, own = (evaluate(layouts, version="1.3.0rc23", mode="SILICON", share=share) for share in (None, False))
    assert np.isfinite(shared.context_rest_ms).all()
    assert np.isnan(own.context_rest_ms).all()
    assert np.isnan(evaluate(layouts, version="1.3.0rc23", mode=EMPIRICAL).context_rest_ms).all()


def test_recurrent_kernels_answer_from_tables_among_rooflines():
    layouts = [OpLists((SCAN, MEASURED), ())]
    roofline, tables = (evaluate(layouts, mode=mode) for mode in (SOL, "SILICON"))
    assert codes(roofline) == {"scan": Provenance.INTERPOLATED, "measured": Provenance.SOL}
    for point in range(3):
        scan = [curves.breakdown("context_rest", 0, point).latency_ms[0] for curves in (roofline, tables)]
        assert scan[0] == scan[1]
