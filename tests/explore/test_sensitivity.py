# SPDX-License-Identifier: Apache-2.0
"""Sensitivities against whole estimates that are run again with an assumption changed by one percent both ways.

Constants and counts: the estimate itself. Hardware: the estimate itself where rooflines answer, since measured tables
do not move with the hardware; where tables answer, every operator scaled by the ratio of its rooflines.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aicjax
from aicjax._results import Provenance
from aicjax.constants import Constants, load_constants
from aicjax.explore import roles
from aicjax.explore.result import Sensitivity, StepTimes
from aicjax.hardware import System, load_system
from aicjax.serving.agg import AggPoint, AggSetting, agg_estimate
from aicjax.serving.backends import load_backend
from tests.compiles import counted
from tests.loop_constants import write_loop_constants

STEP = 0.01
SLOPE = 1e-3  # error of a difference: the square of the step, and float32 roundings over it
ROUNDED = 6e-3  # the same of replicas, reported with three decimals
DENSE = {"model_path": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "isl": 4000, "osl": 500, "tp_size": 4}
DENSE |= {"constants": "reference"}
EXPERTS = {"model_path": "Qwen/Qwen3-30B-A3B", "system": "h200_sxm", "tp_size": 2, "moe_ep_size": 2}
EXPERTS |= {"isl": 3000, "osl": 300, "backend": "vllm", "constants": "reference"}
IN_FLIGHT = {"batch_size": 16}
REPLICA = {"mode": "disagg", "prefill_batch_size": 1, "decode_batch_size": 60}
REPLICA |= {"prefill_num_workers": 5, "decode_num_workers": 2, "kv_transfer_gb_per_s": 50.0}
STARVED = {**REPLICA, "prefill_num_workers": 1}
LARGE_EP = {"model_path": "deepseek-ai/DeepSeek-V3", "system": "h200_sxm", "backend": "sglang", "batch_size": 32}
LARGE_EP |= {"attention_dp_size": 16, "moe_ep_size": 16, "isl": 1000, "osl": 200, "constants": "reference"}
CASES = {
    "dense": {**DENSE, **IN_FLIGHT, "backend": "sglang"},
    "experts": {**EXPERTS, **IN_FLIGHT},
    "dense replica": {**DENSE, **REPLICA},
    "starved replica": {**DENSE, **STARVED},
    "replica of experts": {**EXPERTS, **REPLICA},
}
LOOP = {"constants": write_loop_constants(Path(tempfile.mkdtemp()))}
LOOPS = {  # by the other formulas
    "closed loop": {**DENSE, **IN_FLIGHT, "backend": "sglang", **LOOP},
    "closed loop with drafts": {**DENSE, "batch_size": 40, "nextn": 2, "nextn_accepted": 1.3, **LOOP},
    "first wave": {**DENSE, **IN_FLIGHT, "backend": "vllm", "load": "closed", "length_low": 0.8, **LOOP},
    "replica in a closed loop": {**DENSE, **REPLICA, **LOOP},
}
FIGURES = {"throughput": "tokens/s/gpu", "ttft": "ttft", "tpot": "tpot"}


def figures(**fields: Any) -> dict[str, float]:
    row = aicjax.estimate(**fields).row
    return {name: math.log(row[column]) for name, column in FIGURES.items()}


def slopes(runs: list[dict[str, float]], log_ratio: float) -> dict[str, float]:
    """Of two runs, the one with more of the assumption first."""
    return {name: (runs[0][name] - runs[1][name]) / log_ratio for name in FIGURES}


def found(fields: dict[str, Any]) -> dict[str, Sensitivity]:
    moves = aicjax.estimate(**fields).sensitivities
    assert moves is not None
    return {each.name: each for each in moves()}


def assert_slopes(got: Sensitivity, want: dict[str, float], error: float = SLOPE):
    for name in FIGURES:
        assert getattr(got, name) == pytest.approx(want[name], abs=error), (got.name, name)


def with_constant(name: str, factor: float) -> Callable[..., Constants]:
    """A loader of constants of which one is multiplied."""

    def load(backend: str, file: str = "reference", **_: str) -> Constants:
        section, field, *key = name.split(".")
        constants = load_constants(backend, file)
        part = getattr(constants, section)
        value = getattr(part, field)
        value = {k: v * (factor if str(k) == key[0] else 1) for k, v in value.items()} if key else value * factor
        return dataclasses.replace(constants, **{section: dataclasses.replace(part, **{field: value})})

    return load


def with_number(key: str, factor: float) -> Callable[[str], System]:
    """A loader of systems of which one number is multiplied."""

    def load(name: str) -> System:
        system = load_system(name)
        if key.startswith("gpu.peak_flops_per_s."):
            dtype = key.rsplit(".", 1)[1]
            peaks = {d: peak * (factor if d == dtype else 1) for d, peak in system.peak_flops.items()}
            return dataclasses.replace(system, peak_flops=peaks)
        return dataclasses.replace(system, **{FIELDS[key]: getattr(system, FIELDS[key]) * factor})

    return load


FIELDS = {
    "gpu.memory_bandwidth_bytes_per_s": "mem_bw_bytes_per_s",
    "gpu.memory_bandwidth_scaling": "mem_bw_scaling",
    "gpu.memory_latency_s": "mem_latency_s",
    "node.point_to_point_latency_s": "p2p_latency_s",
    "node.intra_node_bandwidth_bytes_per_s": "intra_node_bw_bytes_per_s",
    "node.inter_node_bandwidth_bytes_per_s": "inter_node_bw_bytes_per_s",
}


@pytest.mark.parametrize("case", CASES | LOOPS)
def test_constants_match_estimates_with_other_constants(case: str, monkeypatch: pytest.MonkeyPatch):
    fields = (CASES | LOOPS)[case]
    got = found(fields)
    moving = [each for each in got.values() if each.kind == "constant" and each.largest > 0]
    assert len(moving) >= 3
    names = [each.name for each in moving if each.name != "disagg.handover_ms"]  # stated by its bandwidth here
    for name in [*names, "serving.queue_cap", "disagg.pool_degradation"]:
        ends = []
        for factor in (1 + STEP, 1 - STEP):
            monkeypatch.setattr(roles, "load_constants", with_constant(name, factor))
            ends.append(figures(**fields))
        want = slopes(ends, math.log((1 + STEP) / (1 - STEP)))
        if name in got:
            assert_slopes(got[name], want, ROUNDED if "replica" in case else SLOPE)
        else:
            assert set(want.values()) == {0.0}


@pytest.mark.parametrize("case", CASES)
def test_counts_match_estimates_with_other_counts(case: str):
    fields, got = CASES[case], found(CASES[case])
    counts = [each for each in got.values() if each.kind == "workload"]
    assert {"isl", "osl"} < {each.name for each in counts}
    for each in counts:
        by = max(1, round(each.value * STEP))
        ends = int(each.value) + by, max(1, int(each.value) - by)
        runs = [figures(**{**fields, each.name: count}) for count in ends]
        assert_slopes(each, slopes(runs, math.log(ends[0] / ends[1])), 2 * ROUNDED if "replica" in case else 2 * SLOPE)


@pytest.mark.parametrize("case", CASES)
def test_hardware_matches_rooflines_of_other_hardware(case: str, monkeypatch: pytest.MonkeyPatch):
    fields = {**CASES[case], "database_mode": "SOL", "pp_size": 2}
    got = found(fields)
    moving = [each.name for each in got.values() if each.kind == "hardware" and each.largest > 0]
    assert {"gpu.memory_bandwidth_bytes_per_s", "node.inter_node_bandwidth_bytes_per_s"} <= set(moving)
    for name in [*moving, "gpu.memory_bandwidth_scaling"]:
        ends = []
        for factor in (1 + STEP, 1 - STEP):
            monkeypatch.setattr(roles, "load_system", with_number(name, factor))
            ends.append(figures(**fields))
        want = slopes(ends, math.log((1 + STEP) / (1 - STEP)))
        assert_slopes(got[name], want, ROUNDED if "replica" in case else SLOPE)


@pytest.mark.parametrize("case", ["dense", "experts"])
@pytest.mark.parametrize("name", [*FIELDS, "gpu.peak_flops_per_s.bfloat16", "gpu.peak_flops_per_s.fp8"])
def test_measured_operators_follow_their_rooflines(case: str, name: str, monkeypatch: pytest.MonkeyPatch):
    """A serving point from operators that are scaled one by one: by their rooflines, or by their formula."""
    fields = CASES[case]
    measured, got = aicjax.estimate(**fields).steps, found(fields)[name]
    roofs = {}
    for factor in (1 - STEP, 1, 1 + STEP):
        monkeypatch.setattr(roles, "load_system", with_number(name, factor))
        roofs[factor] = aicjax.estimate(**fields, database_mode="SOL").steps
    ends = []
    for factor in (1 + STEP, 1 - STEP):
        system = with_number(name, factor)("h200_sxm")
        mixed, decode = (scaled(*steps, system) for steps in zip(measured, roofs[factor], roofs[1], strict=True))
        ends.append(in_flight(fields, mixed, decode))
    assert_slopes(got, slopes(ends, math.log((1 + STEP) / (1 - STEP))))


def scaled(step: StepTimes, after: StepTimes, before: StepTimes, system: System) -> float:
    """Time of a step on other hardware, by the rooflines of its operators on both [ms]."""
    base, total = load_system(system.name), 0.0
    assert step.names == after.names == before.names
    for latency_ms, code, roof_ms, base_ms in zip(
        step.latency_ms, step.provenance, after.latency_ms, before.latency_ms, strict=True
    ):
        if code == Provenance.ANALYTIC:  # the roofline over the share of bandwidth reached, and a fixed time
            fixed_ms = latency_ms - base_ms / base.mem_bw_scaling
            total += roof_ms / system.mem_bw_scaling + fixed_ms * system.mem_latency_s / base.mem_latency_s
        else:
            total += latency_ms * (roof_ms / base_ms if base_ms > 0 else 1.0)
    return total


def in_flight(fields: dict[str, Any], mixed_ms: float, decode_ms: float) -> dict[str, float]:
    """Figures of a point whose prompts go in whole, one a mixed step."""
    osl, batch = fields["osl"], fields["batch_size"]
    layers, rules = float(aicjax.load_model(fields["model_path"]).layers), load_backend(fields["backend"])
    point, setting = AggPoint(float(batch), float(batch), 1.0, True), AggSetting(float(osl), 1.0, layers)
    serving = load_constants(fields["backend"], "reference").serving
    got = agg_estimate(mixed_ms, decode_ms, point, setting, serving, littles_law_cap=rules.littles_law_cap)
    return dict(zip(FIGURES, map(math.log, (got.seq_per_s, got.ttft_ms, got.tpot_ms)), strict=True))


@pytest.mark.parametrize(
    "fields",
    [
        {**DENSE, "batch_size": 32, "pp_size": 2},
        {**DENSE, "batch_size": 1, "mode": "static"},
        LARGE_EP,
    ],
    ids=["stages", "static", "large ep"],
)
def test_faster_hardware_in_everything_is_faster_by_as_much(fields: dict[str, Any]):
    """Bandwidths and peaks up and fixed times down: what is bound shrinks in proportion, what is not stays."""
    total, unbounded = 0.0, 0.0
    for each in found(fields).values():
        assert each.tpot is not None
        if each.kind == "hardware" and not each.name.endswith("scaling"):
            total += -each.tpot if each.name.endswith("latency_s") else each.tpot
        elif each.kind == "operators":
            unbounded = each.tpot
    assert total == pytest.approx(unbounded - 1, abs=1e-4)
    assert (unbounded > 0.01) == (fields is LARGE_EP)


def test_share_of_a_balanced_prefill_is_differenced(monkeypatch: pytest.MonkeyPatch):
    name, fields = "op.moe_balanced_share", {**LARGE_EP, "enable_eplb": True}
    got, ends = found(fields)[name], []
    for factor in (1 + STEP, 1 / (1 + STEP)):
        monkeypatch.setattr(roles, "load_constants", with_constant(name, factor))
        ends.append(figures(**fields))
    assert got.ttft is not None and got.ttft > 0.05
    assert_slopes(got, slopes(ends, 2 * math.log1p(STEP)))


def test_figures_that_a_point_lacks_have_no_slope():
    prefill = found({**DENSE, "mode": "static_ctx", "batch_size": 2})
    assert {each.tpot for each in prefill.values()} == {None}
    assert all(each.throughput == pytest.approx(-(each.ttft or 0), abs=1e-5) for each in prefill.values()
               if each.kind != "workload")  # fmt: skip
    alone = found({**DENSE, "osl": 1, "batch_size": 4})
    assert alone["isl"].tpot is None and "osl" not in alone


def test_most_first():
    moves = list(found(CASES["dense"]).values())
    assert [abs(each.throughput or 0) for each in moves] == sorted(
        (abs(m.throughput or 0) for m in moves), reverse=True
    )


def test_rows_of_a_search_are_those_of_estimates():
    fields: dict[str, Any] = {name: DENSE[name] for name in ("model_path", "system", "isl", "osl")}
    fields["constants"] = "reference"
    result = aicjax.search(**fields, total_gpus=16, ttft=1000, tpot=15)
    moves = result.tasks["disagg"].sensitivities
    assert moves is not None
    row, got = {name: column[0] for name, column in result.tasks["disagg"].best.items()}, moves(0)
    columns = {"tp_size": "tp", "pp_size": "pp", "batch_size": "bs", "num_workers": "workers"}
    sides = (("prefill", "(p)"), ("decode", "(d)"))
    sizes = {f"{role}_{name}": int(row[prefix + at]) for role, prefix in sides for name, at in columns.items()}
    want = found({**fields, "mode": "disagg", **sizes})
    assert {each.name: each.throughput for each in got} == pytest.approx(
        {each.name: each.throughput for each in want.values()}, abs=1e-5
    )
    queued = next(each for each in got if each.name == "disagg.ttft_correction")
    assert (queued.throughput, queued.ttft) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert want["disagg.ttft_correction"].ttft == pytest.approx(1.0, abs=1e-6)


def test_compiled_once_for_points_alike():
    fields = {**DENSE, "mode": "static", "tp_size": 2}
    found({**fields, "batch_size": 4, "osl": 300})
    with counted() as counts:
        found({**fields, "batch_size": 24, "osl": 400, "isl": 2000, "database_mode": "SILICON"})
    assert counts.compiled == 0
