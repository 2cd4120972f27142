# SPDX-License-Identifier: Apache-2.0
"""Memory of a worker: stored answers of AIConfigurator 0.12.0, and cases whose answer is known."""

import dataclasses
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import DataError, InputError
from aicjax._units import GIB
from aicjax.constants import load_constants
from aicjax.forward.kv_budget import derived_fraction, kv_budget_bytes
from aicjax.forward.kv_capacity import kv_capacity, misfit_message, smallest_fitting_tp
from aicjax.forward.kv_curve import KvCurve
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory, bind_memory
from aicjax.hardware import load_system
from aicjax.models import KvCache, KvTerm, Parallel, Quantisation, infer_quantisation, load_model, op_lists

REFERENCES = Path(__file__).parents[1] / "references"
EXACT = 1e-12  # relative, float64 against float64
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
ROLES = ("gemm", "moe", "kvcache", "fmha", "comm")
WORKER = ("model", "system", "backend", "version", *(f"{role}_quant" for role in ROLES), *SIZES, "nextn")
GROUP = (*WORKER, "kind", "beam", "kv_fraction", "max_num_tokens")
PARTS = ("weights_bytes", "activations_bytes", "kvcache_bytes", "nccl_bytes", "others_bytes", "total_bytes")


def worker(
    name: str = "meta-llama/Meta-Llama-3.1-8B",
    *parallels: Parallel,
    system: str = "h100_sxm",
    backend: str = "trtllm",
    version: str = "1.3.0rc20",
    quantisation: Quantisation | None = None,
    nextn: int = 0,
    **explicit: str,
) -> WorkerMemory:
    model = load_model(name)
    parallels = parallels or (Parallel(),)
    quantisation = quantisation or infer_quantisation(model, backend, explicit)
    lists = [op_lists(model, parallel, quantisation, backend, nextn) for parallel in parallels]
    constants = load_constants(backend).memory
    formats = [quantisation] * len(parallels)
    return bind_memory(load_system(system), backend, version, model, parallels, lists, formats, constants, nextn)


def stored_groups():
    """Stored rows that one worker and one call answer, with the worker's facts."""
    rows = pq.read_table(REFERENCES / "memory_llama.parquet").to_pylist()
    key = lambda row: tuple(row[name] for name in GROUP)  # noqa: E731
    return [(dict(zip(GROUP, facts, strict=True)), list(group)) for facts, group in groupby(sorted(rows, key=key), key)]


def stored_worker(facts: dict) -> WorkerMemory:
    return worker(
        facts["model"],
        Parallel(*(facts[size] for size in SIZES)),
        system=facts["system"],
        backend=facts["backend"],
        version=facts["version"],
        quantisation=Quantisation(*(facts[f"{role}_quant"] for role in ROLES)),
        nextn=facts["nextn"],
    )


def name_of(facts: dict) -> str:
    return f"{facts['model']}-{facts['system']}-{facts['backend']}-{facts['kind']}"


STORED = stored_groups()
CAPACITY = [group for group in STORED if group[0]["kind"] == "capacity"]
POINTS = [group for group in STORED if group[0]["kind"] != "capacity"]


@pytest.mark.parametrize(("facts", "rows"), POINTS, ids=[name_of(facts) for facts, _ in POINTS])
def test_parts_and_verdicts_match_the_reference(facts, rows):
    memory, point = stored_worker(facts), {name: np.array([row[name] for row in rows]) for name in rows[0]}
    batch, isl, osl, beam = point["batch"], point["isl"], point["osl"], facts["beam"]
    if facts["kind"] == "agg":
        split = memory.inflight(batch, isl, osl, point["ctx_tokens"], beam=beam)
    else:
        split = memory.static(batch, isl, osl, phase=facts["kind"], prefix=point["prefix"], beam=beam)
    assert memory.kv_fraction(static=facts["kind"] != "agg")[0] == facts["kv_fraction"]
    for part in PARTS:
        found = np.broadcast_to(getattr(split, part), (1, len(rows)))[0]
        np.testing.assert_allclose(found, point[part], rtol=EXACT)
    np.testing.assert_array_equal(split.verdict[0] == Verdict.DOES_NOT_FIT, point["oom"])
    np.testing.assert_array_equal(split.verdict[0] == Verdict.KV_DOES_NOT_FIT, point["kv_oom"])


@pytest.mark.parametrize(("facts", "rows"), CAPACITY, ids=[name_of(facts) for facts, _ in CAPACITY])
def test_capacity_matches_the_reference(facts, rows):
    memory = stored_worker(facts)
    found = kv_capacity(memory, facts["max_num_tokens"], facts["kv_fraction"])
    for row in rows:
        if row["status"] == "error":
            assert (found.verdict[0], found.kv_bytes[0], found.tokens[0]) == (Verdict.KV_DOES_NOT_FIT, 0, 0)
        else:
            assert found.verdict[0] == Verdict.FITS
            assert found.kv_bytes[0] == row["total_kv_size_bytes"]
            assert found.tokens[0] == row["total_kv_size_tokens"]
            assert memory.kv_curve.bytes(1)[0, 0] == row["kv_bytes_one_token"]


def test_configs_and_points_broadcast():
    layouts = [Parallel(tp=1), Parallel(tp=2, pp=2), Parallel(tp=8)]
    batch, isl = np.array([1, 4, 64, 512]), np.array([100, 2000, 8000, 4000])
    together = worker("Qwen/Qwen3-32B", *layouts, backend="sglang", nextn=1).inflight(batch, isl, 300, 4096)
    assert together.verdict.shape == together.total_bytes.shape == (3, 4)
    for row, layout in enumerate(layouts):
        alone = worker("Qwen/Qwen3-32B", layout, backend="sglang", nextn=1).inflight(batch, isl, 300, 4096)
        np.testing.assert_array_equal(together.total_bytes[row], alone.total_bytes[0])
        np.testing.assert_array_equal(together.verdict[row], alone.verdict[0])


@pytest.mark.parametrize(("kv", "per_token"), [("bfloat16", 131072), ("fp8", 65536)])
def test_kv_bytes_per_token(kv, per_token):  # 32 layers, 8 heads of 128
    memory = worker(kvcache=kv)
    assert memory.kv_curve.bytes(1)[0, 0] == per_token
    assert memory.weights_bytes[0] == worker().weights_bytes[0]


def test_an_8_bit_cache_holds_twice_the_tokens():
    held = [kv_capacity(worker(kvcache=kv), 8192, 0.9).tokens[0] for kv in ("bfloat16", "fp8")]
    assert abs(held[1] - 2 * held[0]) <= 1


def test_a_window_is_not_a_constant_per_token():  # 12 full layers, 12 of window 128, 8 heads of 64, 16 bit
    layer_bytes = 2 * 8 * 64 * 2
    cache = KvCache((KvTerm(12 * layer_bytes), KvTerm(12 * layer_bytes, window=128)))
    curve = KvCurve.stack([cache], context_length=131072)
    assert 32 * curve.bytes(8192)[0, 0] / GIB == 6.09375
    budget = curve.bytes(8192)[0]
    assert curve.longest(budget)[0] == 8192
    assert curve.longest(budget - 1)[0] == 8191
    assert budget[0] // curve.bytes(1)[0, 0] < 8191, "the slope at the first token would say too few"


def test_latent_and_state_caches_fit_the_same_record():
    latent = KvTerm(61 * (512 + 64) * 2)  # 70272 bytes a token
    compressed = KvTerm(1000.0, stride=4)
    curve = KvCurve.stack([KvCache((latent, compressed), state_bytes=5e6)], context_length=4096)
    assert curve.bytes([0, 1, 4])[0].tolist() == [5e6, 5e6 + 70272, 5e6 + 4 * 70272 + 1000]
    assert curve.longest(np.array([4e6]))[0] == 0


def test_a_cache_that_stops_growing_holds_the_context():
    curve = KvCurve.stack([KvCache((KvTerm(1.0, window=128),))], context_length=4096)
    assert curve.longest(np.array([128.0]))[0] == 4096
    assert curve.longest(np.array([127.0]))[0] == 127


@pytest.mark.parametrize("backend", ["trtllm", "vllm", "sglang"])
def test_draft_depth_does_not_change_the_capacity_query(backend):
    queries = [kv_capacity(worker(backend=backend, nextn=nextn), 8192, 0.9) for nextn in (0, 1, 2, 3)]
    assert len({query.non_kv_bytes[0] for query in queries}) == len({query.tokens[0] for query in queries}) == 1


def test_capacity_with_tolerance_floors_twice():
    memory = worker()
    whole, kept = (kv_capacity(memory, 8192, 0.9, tolerance=share) for share in (0.0, 0.05))
    assert kept.kv_bytes[0] == int(whole.kv_bytes[0] * 0.95)
    assert kept.tokens[0] == kept.kv_bytes[0] // 131072


@pytest.mark.parametrize(("of_free", "room_gib"), [(True, 90.9), (False, 86.9)])
def test_meaning_of_the_memory_fraction(of_free, room_gib):
    room = kv_budget_bytes(141 * GIB, 40 * GIB, 0.9, of_free=of_free)
    assert room / GIB == pytest.approx(room_gib, rel=1e-12)


@pytest.mark.parametrize(("backend", "of_free"), [("trtllm", 1), ("vllm", 0), ("sglang", 0)])
def test_the_engine_decides_the_kind_of_fraction(backend, of_free):
    assert load_constants(backend).memory.kv_fraction_of_free == of_free


@pytest.mark.parametrize(
    ("backend", "version", "static", "fraction"),
    [
        ("trtllm", "1.3.0rc20", True, 0.9),
        ("vllm", "0.14.0", True, 0.9),
        ("vllm", "0.19.1", False, 0.9),
        ("vllm", "0.24.0", True, 0.92),
        ("sglang", "0.5.14", False, 0.88),
        ("sglang", "0.5.14", True, 0.819),
    ],
)
def test_memory_fraction_of_an_engine(backend, version, static, fraction):
    memory = worker("Qwen/Qwen3-32B", Parallel(tp=8), backend=backend, version=version)
    assert memory.kv_fraction(static=static)[0] == fraction
    assert memory.kv_fraction(0.5, static=static)[0] == 0.5


@pytest.mark.parametrize(
    ("capacity_gib", "layout", "kept_mib"),
    [
        (24, Parallel(), 512 + 1.5 * 2048 + 128 + 2 * 24),
        (24, Parallel(tp=4), 512 + 1.5 * 2048 + 4 * 128 + 2 * 80),
        (80, Parallel(tp=8), 512 + 1.5 * 8192 + 8 * 128 + 2 * 512),
        (80, Parallel(tp=4, dp=2), 512 + 1.5 * 8192 + 4 * 128 + 2 * 512 + (3 + 1.5) * 512 * 2),
        (80, Parallel(tp=2, pp=2, dp=2), 512 + 1.5 * 8192 + 4 * 128 + 2 * 256 + 3 * 256 * 2),
        (180, Parallel(), 512 + 1.5 * 16384 + 128 + 2 * 512),
    ],
)
def test_fraction_derived_from_the_gpu(capacity_gib, layout, kept_mib):
    derived = load_constants("sglang").memory.derived_fraction
    assert derived is not None
    capacity_mib = capacity_gib * 1024
    expected = round((capacity_mib - kept_mib) / capacity_mib, 3)
    assert derived_fraction(derived, capacity_gib * GIB, [layout])[0] == expected


def test_max_seq_len_is_held_for_every_request():
    memory = worker()
    assert memory.static(4, 100, 10, max_seq_len=1000).kvcache_bytes[0, 0] == 4 * 1000 * 131072
    assert memory.inflight(4, 100, 10, 512, max_seq_len=1000).kvcache_bytes[0, 0] == 4 * 1000 * 131072
    vllm = worker(backend="vllm", version="0.24.0")
    assert vllm.inflight(4, 100, 10, 512, max_seq_len=1000).kvcache_bytes[0, 0] == 4 * 110 * 131072


def test_a_model_too_large_is_a_verdict_with_a_remedy():
    layout, backend, version = Parallel(), "trtllm", "1.3.0rc20"
    memory = worker("meta-llama/Meta-Llama-3.1-405B")
    split = memory.static(1, 1000, 100)
    assert memory.weights_bytes[0] / GIB == pytest.approx(755.95, abs=0.005)
    assert split.verdict[0, 0] == Verdict.DOES_NOT_FIT
    model = load_model("meta-llama/Meta-Llama-3.1-405B")
    smallest = smallest_fitting_tp(
        load_system("h100_sxm"),
        backend,
        version,
        model,
        layout,
        infer_quantisation(model, backend),
        load_constants(backend).memory,
        lambda candidates: candidates.static(1, 1000, 100),
    )
    assert smallest == 16
    message = misfit_message(split, 0, 0, smallest)
    assert "weights 755.95" in message
    assert "the GPU has 80.00 GiB" in message
    assert message.endswith("the smallest power-of-two TP that fits is 16.")
    assert "\n" not in message


def test_a_cache_over_budget_says_so():
    split = worker().static(380, 1000, 200, prefix=900)
    assert split.verdict[0, 0] == Verdict.KV_DOES_NOT_FIT
    assert misfit_message(split, 0, 0, None).startswith("Does not fit: its KV cache needs 55.66 GiB per GPU")
    with pytest.raises(InputError, match="point"):
        misfit_message(worker().static(1, 1000, 200), 0, 0, None)


def test_no_tp_may_fit():
    model = load_model("meta-llama/Meta-Llama-3.1-405B")
    assert (
        smallest_fitting_tp(
            load_system("l4"),
            "trtllm",
            "1.0.0",
            model,
            Parallel(),
            infer_quantisation(model, "trtllm"),
            load_constants("trtllm").memory,
            lambda memory: memory.static(4096, 8000, 1000),
        )
        is None
    )


def test_memory_never_shrinks_with_the_load():
    memory = worker("Qwen/Qwen3-32B", Parallel(tp=4), backend="vllm", version="0.24.0", nextn=2)
    batch = np.arange(2, 300)
    assert (np.diff(memory.inflight(batch, 2000, 200, 4096).total_bytes) >= 0).all()
    assert (np.diff(memory.static(batch, 2000, 200, phase="static_gen").total_bytes) >= 0).all()
    assert (np.diff(memory.inflight(64, 2000, 200, np.arange(2000, 20000, 100)).total_bytes) >= 0).all()


@pytest.mark.parametrize("fraction", [0.0, 1.5, float("nan")])
def test_memory_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(InputError, match="kv_fraction"):
        worker().static(1, 100, 10, kv_fraction=fraction)


def test_bad_questions_are_refused():
    memory = worker()
    with pytest.raises(InputError, match="phase"):
        memory.static(1, 100, 10, phase="prefill")
    with pytest.raises(InputError, match="max_num_tokens"):
        kv_capacity(memory, 0, 0.9)
    with pytest.raises(InputError, match="tolerance"):
        kv_capacity(memory, 8192, 0.9, tolerance=1.0)
    headless = dataclasses.replace(memory, kv_curve=KvCurve.stack([KvCache((KvTerm(0.0),))], 4096))
    with pytest.raises(DataError, match="no key or value heads"):
        kv_capacity(headless, 8192, 0.9)


def test_parts_of_a_split_add_up():
    split = worker().static([1, 8], 1000, 100)
    parts = [getattr(split, field.name) for field in dataclasses.fields(MemorySplit)[:5]]
    np.testing.assert_array_equal(split.total_bytes, parts[0] + parts[1] + parts[2] + parts[3] + parts[4])
