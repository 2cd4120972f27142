# SPDX-License-Identifier: Apache-2.0
"""Rooflines: kernels against bounds by hand, and the peak of the format in use."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import MissingPeak, Provenance
from aicjax.hardware import load_system
from aicjax.ops import roofline
from aicjax.ops.attention import bind_attention
from aicjax.ops.database import Database
from aicjax.ops.query import operator_latency
from aicjax.ops.records import ContextAttention, Gemm, GenerationAttention
from tests.oracles import rooflines
from tests.strategies import Roof, roofs

FLOAT32 = 1e-5  # float32 against float64
FLOAT64 = 1e-12
count = st.integers(0, 13).map(lambda e: float(2**e)) | st.integers(1, 10000).map(float)
element_bytes = st.sampled_from([0.5, 9 / 16, 1.0, 2.0])
head_size = st.sampled_from([64.0, 128.0, 192.0])
window = st.sampled_from([0.0, 128.0, 4096.0])
kv_bytes = st.sampled_from([1.0, 2.0])


def prefill(batch, new, prefix, *rest, **xp):
    """The kernel's bound, in new tokens instead of all."""
    return roofline.context_attention_sol_ms(batch, new + prefix, prefix, *rest, **xp)


def prefill_by_hand(batch, new, prefix, *rest):
    return rooflines.prefill_attention(batch, new + prefix, prefix, *rest)


# kernel, oracle, and what they take before peak and bandwidth
BOUNDS = {
    "product": (roofline.gemm_sol_ms, rooflines.product, (count, count, count, element_bytes)),
    "prefill": (
        prefill,
        prefill_by_hand,
        (count, count, st.just(0.0) | count, count, count, head_size, window, kv_bytes),
    ),
    "decode": (
        roofline.generation_attention_sol_ms,
        rooflines.decode_attention,
        (count, count, count, count, head_size, window, kv_bytes),
    ),
    "encoder": (roofline.encoder_attention_sol_ms, rooflines.full_attention, (count, count, count, head_size)),
}
jitted = {name: jax.jit(kernel) for name, (kernel, _, _) in BOUNDS.items()}


@pytest.mark.parametrize("name", BOUNDS)
@settings(max_examples=40)
@given(data=st.data(), roof=roofs())
def test_bounds_equal_those_by_hand_on_device_and_host(name: str, data: st.DataObject, roof: Roof):
    kernel, oracle, arguments = BOUNDS[name]
    point = [data.draw(argument) for argument in arguments]
    want = oracle(*point, roof.peak, roof.mem_bw)
    rates = (roof.peak / 1e3, roof.mem_bw / 1e3)
    assert kernel(*point, *rates, xp=np) == pytest.approx(want, rel=FLOAT64)
    assert float(jitted[name](*(np.float32(x) for x in (*point, *rates)))) == pytest.approx(want, rel=FLOAT32)


def test_hardware_is_in_bytes_and_operations_a_millisecond():
    system = load_system("h200_sxm")
    hardware = roofline.hardware_arrays(system)
    assert hardware.mem_bw == np.float32(system.mem_bw_bytes_per_s / 1e3)
    assert hardware.mem_latency_ms == np.float32(system.mem_latency_s * 1e3)
    assert hardware.peak[roofline.dtype_index("fp8")] == np.float32(system.peak("fp8") / 1e3)
    assert np.isnan(hardware.peak[roofline.dtype_index("fp4")]), "no peak is not another type's peak"


def test_bound_of_an_fp4_product_uses_the_fp4_peak():
    """8192^3 at 14 PFLOP/s takes 78.54 us; four times the BF16 peak would give 122.17 us."""
    system = dataclasses.replace(
        load_system("b200_sxm"), peak_flops={"bfloat16": 2.25e15, "fp4": 14e15}, mem_bw_bytes_per_s=1e15
    )
    op = Gemm("gemm", 1.0, 8192, 8192, "nvfp4")
    times = operator_latency(system, "trtllm", "1.3.0rc20", [op], mode="SOL", tokens=8192)
    assert times.latency_ms[0] == pytest.approx(78.54e-3, rel=1e-4)
    assert times.provenance.tolist() == [Provenance.SOL]


@pytest.mark.parametrize("mode", ["SILICON", "SOL"])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (Gemm("gemm", 1.0, 8192, 8192, "nvfp4"), "fp4"),
        (Gemm("gemm", 1.0, 8192, 8192, "fp8"), "fp8"),
        (ContextAttention("attention", 1.0, 32, 8, 128, "fp8", "fp8"), "fp8"),
    ],
)
def test_format_without_a_stated_peak_is_an_error(mode, op, dtype):
    with pytest.raises(MissingPeak, match=rf"a100_sxm states no peak for {dtype}; it has bfloat16"):
        operator_latency(load_system("a100_sxm"), "trtllm", "1.0.0", [op], mode=mode, tokens=64, batch=1, length=64)


def test_decode_with_an_fp8_cache_needs_no_fp8_peak_on_hardware_that_multiplies_in_16_bits():
    op, system = GenerationAttention("attention", 1.0, 32, 8, 128, "fp8"), load_system("a100_sxm")
    rows = bind_attention(Database(system, "trtllm", "1.0.0", "SOL"), "generation", [op], [], rows=1)
    assert rows.dtype.tolist() == [roofline.dtype_index("bfloat16")]
