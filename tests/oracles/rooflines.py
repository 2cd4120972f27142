# SPDX-License-Identifier: Apache-2.0
"""Least latency of each operator, one call at a time in float64: FLOP/s and B/s in, ms out.

`work` operations at the peak and `traffic` bytes through memory overlap, so the slower of the two binds.
"""

MS_PER_S = 1000.0


def slower(work: float, traffic: float, peak: float, mem_bw: float) -> float:
    return MS_PER_S * max(work / peak, traffic / mem_bw)


def product(m: float, n: float, k: float, element_bytes: float, peak: float, mem_bw: float) -> float:
    """`[m, k] @ [k, n]`: a multiplication and an addition a term; both inputs and the output move once."""
    return slower(2 * m * n * k, element_bytes * (m * k + k * n + m * n), peak, mem_bw)


def prefill_attention(
    batch: float,
    full: float,
    prefix: float,
    heads: float,
    kv_heads: float,
    head_size: float,
    window: float,
    kv_bytes: float,
    peak: float,
    mem_bw: float,
) -> float:
    """Causal attention of `full - prefix` new tokens over `full`.

    New token number t sees t of the others: the sum over prefix < t <= full is (full^2 - prefix^2) / 2 scores. A
    window shorter than the sequence leaves `window` scores a token. Each score costs 4 operations per head column:
    two products, multiply and add. Queries and output are 16-bit; keys and values of all tokens are read.
    """
    new = full - prefix
    scores = new * window if 0 < window < full else (full**2 - prefix**2) / 2
    traffic = 2 * 2 * batch * heads * new * head_size + 2 * kv_bytes * batch * kv_heads * full * head_size
    return slower(4 * batch * scores * heads * head_size, traffic, peak, mem_bw)


def decode_attention(
    batch: float,
    length: float,
    heads: float,
    kv_heads: float,
    head_size: float,
    window: float,
    kv_bytes: float,
    peak: float,
    mem_bw: float,
) -> float:
    """One new token over the `length - 1` before it, or over the last `window` of them."""
    past = length - 1
    if window > 0:
        past = min(past, window)
    traffic = batch * (2 * 2 * heads * head_size + 2 * kv_bytes * kv_heads * past * head_size)
    return slower(4 * batch * past * heads * head_size, traffic, peak, mem_bw)


def full_attention(batch: float, length: float, heads: float, head_size: float, peak: float, mem_bw: float) -> float:
    """Every token sees every other one; queries, keys, values and output move at 16 bits."""
    work = 4 * batch * length**2 * heads * head_size
    return slower(work, 4 * 2 * batch * heads * length * head_size, peak, mem_bw)


def traffic_ms(moved_bytes: float, mem_bw: float, scaling: float = 1.0, constant_s: float = 0.0) -> float:
    """Bytes through memory at a share of its bandwidth, after a constant."""
    return MS_PER_S * (moved_bytes / (mem_bw * scaling) + constant_s)
