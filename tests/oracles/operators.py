# SPDX-License-Identifier: Apache-2.0
"""Whole attention operators in float64, from the definition: what surrounds the look-up in a measured table."""

from collections.abc import Callable

from aicjax import quant
from aicjax._results import Provenance
from aicjax.hardware import System
from aicjax.ops.records import ContextAttention, EncoderAttention, GenerationAttention
from tests.oracles import rooflines
from tests.oracles.grid import Answer, Table, grid

FP8_ATTENTION = 89  # compute capability from which decode attention multiplies in FP8


def traffic(system: System) -> Callable[[float], float]:
    rates = (system.mem_bw_bytes_per_s, system.mem_bw_scaling, system.mem_latency_s)
    return lambda moved_bytes: rooflines.traffic_ms(moved_bytes, *rates)


def context_attention(
    table: Table, op: ContextAttention, batch: int, new: int, prefix: int, system: System, extra_factor: float
) -> Answer:
    """Prefill of `new` tokens behind `prefix` cached ones; under context parallel, of its first and last chunk."""
    kv_bytes, own = quant.KVCACHE[op.kv_quant].bytes, op.num_kv_heads == op.num_heads
    rates = (system.peak(quant.FMHA[op.fmha_quant].dtype), system.mem_bw_bytes_per_s)

    def sol(heads: float, full: float, batch: float) -> float:
        kv_heads = heads if own else op.num_kv_heads
        return rooflines.prefill_attention(batch, full, 0, heads, kv_heads, op.head_size, op.window, kv_bytes, *rates)

    def part(new: int, prefix: int) -> Answer:
        full = new + prefix
        latency, how = grid(table, (op.num_heads, full, batch), sol, sqrt_axes={1})
        return latency * (full**2 - prefix**2) / full**2, how

    if op.cp > 1:
        chunk = max(1, -(-new // (2 * op.cp)))
        parts = [part(chunk, prefix), part(chunk, prefix + new - chunk)]
    else:
        parts = [part(new, prefix)]
    queries, keys, move = op.num_heads * op.head_size, op.num_kv_heads * op.head_size, traffic(system)
    rotary = 2 * move(2 * (queries + keys))
    cache_write = 2 * move(keys * quant.FMHA[op.fmha_quant].bytes)
    norm = 4 * (move(2 * queries) + move(2 * keys)) if op.qk_norm else 0.0
    latency = sum(latency for latency, _ in parts) + extra_factor * (rotary + cache_write + norm)
    return latency * op.seq_imbalance, max(how for _, how in parts)


def generation_attention(table: Table, op: GenerationAttention, batch: int, length: int, system: System) -> Answer:
    """One decode step: the mean over five lengths from nine tenths to eleven tenths, never one measurement."""
    kv_bytes, own = quant.KVCACHE[op.kv_quant].bytes, op.num_kv_heads == op.num_heads
    fp8 = op.kv_quant == "fp8" and (system.sm_version or 0) >= FP8_ATTENTION
    rates = (system.peak("fp8" if fp8 else "bfloat16"), system.mem_bw_bytes_per_s)

    def sol(heads: float, batch: float, length: float) -> float:
        kv_heads = heads if own else op.num_kv_heads
        return rooflines.decode_attention(batch, length, heads, kv_heads, op.head_size, op.window, kv_bytes, *rates)

    low = max(1, 9 * length // 10)
    high = max(low, 11 * length // 10)
    clamped = {point: max(latency, sol(*point)) for point, latency in table.items()}
    answers = [grid(clamped, (op.num_heads, batch, low + (high - low) * at // 4), sol) for at in range(5)]
    latency = sum(latency for latency, _ in answers) / 5
    return latency * op.seq_imbalance, max(Provenance.INTERPOLATED, *(how for _, how in answers))


def encoder_attention(
    table: Table, op: EncoderAttention, batch: int, length: int, system: System, extra_factor: float
) -> Answer:
    """Non-causal attention; rotary embedding moves the rotated share of queries and keys, in and out."""
    rates = (system.peak(quant.FMHA[op.fmha_quant].dtype), system.mem_bw_bytes_per_s)

    def sol(heads: float, length: float, batch: float) -> float:
        return rooflines.full_attention(batch, length, heads, op.head_size, *rates)

    latency, how = grid(table, (op.num_heads, length, batch), sol, sqrt_axes={1})
    moved = 2 * 2 * op.num_heads * op.head_size * batch * length
    return latency + extra_factor * 2 * op.partial_rotary_factor * traffic(system)(moved), how
