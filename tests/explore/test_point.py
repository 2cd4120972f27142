# SPDX-License-Identifier: Apache-2.0
"""Single points on the measured tables: agreement with a search, parts that add up, and verdicts."""

import json
from typing import Any

import pytest

from aicjax import _paths
from aicjax._results import InputError, NoFeasible, Provenance, UnsupportedModel
from aicjax.explore import EstimateRequest, EstimateResult, estimate

BASE: dict[str, Any] = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "isl": 4000,
    "osl": 500,
    "prefix": 500,
    "constants": "reference",
}
REPLICA: dict[str, Any] = {
    "mode": "disagg",
    "tp_size": 4,
    "prefill_batch_size": 1,
    "decode_batch_size": 64,
    "prefill_num_workers": 5,
    "decode_num_workers": 3,
}
PARITY = 1e-4


def point(**values) -> EstimateResult:
    return estimate(EstimateRequest(**{**BASE, **values}))


def test_in_flight_point_is_the_stored_one():
    got = point(tp_size=4, batch_size=16, compat="reference")
    for column, value in {"ttft": 263.503, "tpot": 8.807, "request_latency": 4658.34, "tokens/s": 1707.615}.items():
        assert got.row[column] == pytest.approx(value, rel=PARITY)
    assert got.memory[0].total == pytest.approx(14.695, abs=1e-3)
    assert [step.step for step in got.steps] == ["mixed step", "decode step"]


def test_static_point_is_the_stored_one():
    got = point(mode="static", batch_size=1, compat="reference")
    assert got.row["ttft"] == pytest.approx(240.270464, rel=PARITY)
    assert got.row["tpot"] == pytest.approx(11.754122, rel=PARITY)
    assert got.steps[0].total_ms == pytest.approx(got.row["ttft"], rel=PARITY)
    assert got.provenance < Provenance.MISSING


def test_replica_is_that_of_the_stored_search():
    got = point(**REPLICA, compat="reference")
    assert got.row["ttft"] == pytest.approx(194.378, rel=PARITY)
    assert got.row["tpot"] == pytest.approx(9.659, rel=PARITY)
    assert got.row["tokens/s/gpu"] == pytest.approx(572.657, rel=PARITY)
    assert [use.role for use in got.memory] == ["prefill", "decode"]


def test_operators_of_a_step_add_up():
    got = point(mode="static_ctx", batch_size=2, tp_size=2)
    assert got.row["context_latency"] == pytest.approx(got.steps[0].total_ms, rel=PARITY)


def test_draft_tokens_change_every_mode():
    for mode in ("agg", "static", "static_gen"):
        plain = point(mode=mode, batch_size=4, tp_size=4).row["tpot"]
        idle = point(mode=mode, batch_size=4, tp_size=4, nextn=5, nextn_accepted=0).row["tpot"]
        full = point(mode=mode, batch_size=4, tp_size=4, nextn=5, nextn_accepted=5).row["tpot"]
        assert full < plain <= idle * (1 + PARITY)
        assert full == pytest.approx(idle / 6, rel=0.2)


def test_worker_that_does_not_fit_is_refused_without_numbers():
    with pytest.raises(NoFeasible, match=r"needs .* GiB per GPU .* smallest power-of-two TP that fits is 4"):
        point(batch_size=512, tp_size=1)


def test_full_cache_is_a_warning_in_flight_and_a_refusal_in_a_replica():
    got = point(tp_size=4, batch_size=16, free_gpu_memory_fraction=0.01)
    assert got.warnings
    assert "KV cache" in got.warnings[0]
    with pytest.raises(NoFeasible, match="KV cache needs"):
        point(**REPLICA, decode_free_gpu_memory_fraction=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tp_size": 3}, "64 query heads"),
        ({"moe_ep_size": 2}, "has no experts"),
        ({"batch_size": 4, "ctx_tokens": 100_000}, "`ctx_tokens` must be at most 12000"),
        ({"model_path": "deepseek-ai/DeepSeek-V3"}, "`moe_ep_size` must be given"),
        ({"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": 8, "moe_tp_size": 2, "moe_ep_size": 3}, "= 8 .* = 6"),
    ],
)
def test_bad_input_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        point(**values)


def test_prompt_that_is_cached_whole_still_takes_time():
    assert point(prefix=4000, tp_size=4, batch_size=1).row["ttft"] > 0


def test_an_unlisted_architecture_is_marked_and_priced_as_its_shape(tmp_path):
    listed = "meta-llama/Meta-Llama-3.1-8B"
    bundled = json.loads((_paths.configs_dir() / "models" / f"{listed.replace('/', '--')}.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps(bundled | {"architectures": ["NewForCausalLM"]}))
    with pytest.raises(UnsupportedModel, match=r"NewForCausalLM .*--family GENERIC"):
        point(model_path=str(tmp_path))
    got, expected = point(model_path=str(tmp_path), family="GENERIC"), point(model_path=listed)
    assert (got.resolved["agg"]["family"], expected.resolved["agg"]["family"]) == ("GENERIC", "LLAMA")
    assert [got.row[name] for name in ("ttft", "tpot")] == [expected.row[name] for name in ("ttft", "tpot")]
    assert got.memory[0].weights == expected.memory[0].weights
    assert got.memory[0].activations > expected.memory[0].activations
