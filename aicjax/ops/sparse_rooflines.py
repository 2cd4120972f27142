# SPDX-License-Identifier: Apache-2.0
"""Speed-of-light bounds of sparse attention modules: one formula for kernels and for the host (`xp`).

Widths come as a record's shape, or as arrays under the same names (`module_tables.stacked_shapes`). Pairs of queries
and keys are counted in forms that subtract no large numbers, so that float32 holds them.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from aicjax.ops.dsv4_records import LIGHT_RATIO, Dsv4Shape
from aicjax.ops.latent_records import DsaShape
from aicjax.ops.msa_records import MsaShape

SCALE_BLOCK = 128  # values of the index cache that share one 32-bit scale


class Limits(NamedTuple):
    """What bounds a module: bytes per element of its formats, peaks [operations/ms], bandwidth [bytes/ms]."""

    gemm_bytes: Any
    kv_bytes: Any
    fmha_bytes: Any
    gemm_peak: Any
    fmha_peak: Any
    bfloat16_peak: Any
    fp8_peak: Any
    mem_bw: Any


def causal_pairs(batch, new, prefix, limit, xp=jnp):
    """Pairs of `new` tokens behind a `prefix` with the tokens up to themselves, at most `limit` each."""
    growing = xp.clip(limit - prefix, 0, new)
    return batch * (growing * (2 * prefix + growing + 1) / 2 + (new - growing) * limit)


def compressed_pairs(batch, new, prefix, ratio, limit, xp=jnp):
    """Pairs of `new` tokens behind a `prefix` with whole blocks of `ratio` tokens, at most `limit` each."""
    first = prefix + 1
    before = xp.floor(first / ratio)
    offset = first - before * ratio
    growing = xp.clip(limit * ratio - first, 0, new)
    blocks = xp.floor((offset + growing) / ratio)
    inside = ratio * blocks * (blocks - 1) / 2 + blocks * (offset + growing - blocks * ratio)
    return batch * (growing * before + inside + (new - growing) * limit)


def _dsa_projections(shape: DsaShape, heads):
    """`(operations of one token, weights that are read)` of the projections."""
    index = shape.index_heads * shape.index_dim
    weights = (
        shape.hidden_size * (shape.q_rank + shape.kv_rank + shape.rope_dim + shape.index_dim)
        + shape.q_rank * heads * (shape.nope_dim + shape.rope_dim)
        + shape.q_rank * index
        + shape.hidden_size * shape.index_heads
        + heads * shape.v_dim * shape.hidden_size
    )
    absorbed = heads * shape.kv_rank * (shape.nope_dim + shape.v_dim)
    return 2.0 * (weights + absorbed), weights


def _index_entry_bytes(shape: DsaShape, xp):
    """Bytes of one token in the index cache."""
    return shape.index_dim + 4 * xp.ceil(shape.index_dim / SCALE_BLOCK)


def dsa_context_sol_ms(shape: DsaShape, limits: Limits, heads, skips, batch, new, prefix, xp=jnp):
    """Bound of a DSA prefill of `batch` prompts of `new` tokens behind `prefix`; `skips` where no indexer runs."""
    tokens, full = batch * new, new + prefix
    per_token, weights = _dsa_projections(shape, heads)
    latent = shape.kv_rank + shape.rope_dim
    idle = (skips > 0) | (full <= shape.index_topk)
    index = xp.where(idle, 0.0, 2.0 * tokens * shape.index_heads * shape.index_dim * full)
    pairs = causal_pairs(batch, new, prefix, shape.index_topk, xp)
    attention = 2.0 * heads * (latent + shape.kv_rank) * pairs
    moved = (
        weights * limits.gemm_bytes
        + batch * heads * xp.minimum(full, shape.index_topk) * latent * limits.kv_bytes
        + xp.where(idle, 0.0, batch * full * _index_entry_bytes(shape, xp))
        + 2.0 * tokens * heads * (shape.nope_dim + shape.rope_dim) * limits.fmha_bytes
    )
    busy = tokens * per_token / limits.gemm_peak + index / limits.fp8_peak + attention / limits.fmha_peak
    return xp.maximum(busy, moved / limits.mem_bw)


def dsa_generation_sol_ms(shape: DsaShape, limits: Limits, heads, batch, length, xp=jnp):
    """Bound of a DSA decode step over `length` tokens, the new one included."""
    per_token, weights = _dsa_projections(shape, heads)
    latent = shape.kv_rank + shape.rope_dim
    selected = xp.minimum(length, shape.index_topk)
    index = 2.0 * batch * shape.index_heads * shape.index_dim * length
    attention = 2.0 * batch * heads * (latent + shape.kv_rank) * selected
    moved = (
        weights * limits.gemm_bytes
        + batch * length * _index_entry_bytes(shape, xp)
        + batch * selected * latent * limits.kv_bytes
    )
    busy = batch * per_token / limits.gemm_peak + index / limits.fp8_peak + attention / limits.bfloat16_peak
    return xp.maximum(busy, moved / limits.mem_bw)


def msa_context_sol_ms(shape: MsaShape, limits: Limits, heads, batch, new, prefix, xp=jnp):
    """Bound of an MSA prefill of `batch` prompts of `new` tokens behind `prefix`."""
    pairs = causal_pairs(batch, new, prefix, shape.index_topk, xp)
    return _msa_sol_ms(shape, limits, heads, batch, batch * new, new + prefix, pairs, xp)


def msa_generation_sol_ms(shape: MsaShape, limits: Limits, heads, batch, length, xp=jnp):
    """Bound of an MSA decode step over `length` tokens, the new one included."""
    past = xp.maximum(0.0, length - 1.0)
    return _msa_sol_ms(shape, limits, heads, batch, batch, past, batch * xp.minimum(past, shape.index_topk), xp)


def _msa_sol_ms(shape: MsaShape, limits: Limits, heads, batch, tokens, scored, pairs, xp):
    index = shape.index_heads * shape.index_dim
    key_value = shape.head_dim + shape.v_dim
    weights = shape.hidden_size * (heads * key_value + 2.0 * shape.num_kv_heads * shape.head_dim + index)
    blocks = xp.where(scored > shape.index_topk, xp.ceil(scored / shape.block_size), 0.0)
    selected = xp.minimum(scored, shape.index_topk)
    moved = (
        weights * limits.gemm_bytes
        + batch * shape.num_kv_heads * selected * key_value * limits.kv_bytes
        + batch * blocks * index
        + 2.0 * tokens * heads * shape.head_dim * limits.fmha_bytes
    )
    busy = (
        2.0 * tokens * weights / limits.gemm_peak
        + 2.0 * tokens * index * blocks / limits.fp8_peak
        + 2.0 * heads * key_value * pairs / limits.fmha_peak
    )
    return xp.maximum(busy, moved / limits.mem_bw)


def dsv4_context_sol_ms(shape: Dsv4Shape, ratio, groups, limits: Limits, heads, batch, new, prefix, xp=jnp):
    """Bound of a compressed-attention prefill of `batch` prompts of `new` tokens behind `prefix`."""
    full = new + prefix
    pairs = causal_pairs(batch, new, prefix, xp.maximum(shape.window, 0.0), xp)
    pairs = pairs + compressed_pairs(batch, new, prefix, ratio, _most_blocks(shape, ratio, full, xp), xp)
    return _dsv4_sol_ms(shape, ratio, groups, limits, heads, batch, batch * new, full, pairs, xp)


def dsv4_generation_sol_ms(shape: Dsv4Shape, ratio, groups, limits: Limits, heads, batch, length, xp=jnp):
    """Bound of a compressed-attention decode step over `length` tokens, the new one included."""
    past = xp.maximum(0.0, length - 1.0)
    blocks = xp.minimum(xp.floor(past / ratio), _most_blocks(shape, ratio, past, xp))
    return _dsv4_sol_ms(
        shape, ratio, groups, limits, heads, batch, batch, past, batch * (xp.minimum(past, shape.window) + blocks), xp
    )


def _most_blocks(shape: Dsv4Shape, ratio, length, xp):
    """Compressed blocks that one token attends to at most."""
    return xp.where(ratio == LIGHT_RATIO, shape.index_topk, xp.floor(length / ratio))


def _dsv4_sol_ms(shape: Dsv4Shape, ratio, groups, limits: Limits, heads, batch, tokens, length, pairs, xp):
    """Bound by projections and compression, absorbed output, indexer and attention, or by everything that moves."""
    indexed = xp.where(ratio == LIGHT_RATIO, 1.0, 0.0)
    states, entry = 1.0 + indexed, shape.index_dim
    queries = heads * shape.head_dim
    output = groups * shape.o_rank
    projected = shape.hidden_size * (shape.q_rank + shape.head_dim + output) + shape.q_rank * queries
    compress = 4.0 * shape.hidden_size * states * shape.head_dim + 2.0 * states * shape.head_dim
    compress = compress + indexed * (8.0 * shape.hidden_size * entry + 4.0 * entry)
    absorbed = queries * shape.o_rank
    index_queries = indexed * shape.q_rank * shape.index_heads * entry
    index_heads = indexed * shape.hidden_size * shape.index_heads
    blocks = xp.floor(length / ratio)
    scores = indexed * blocks * shape.index_heads * entry
    weights = projected + 2.0 * shape.hidden_size * states * shape.head_dim + index_queries
    activations = shape.hidden_size + shape.q_rank + queries + shape.head_dim + output
    moved = (
        (weights + tokens * activations) * limits.gemm_bytes
        + 2.0 * (absorbed + index_heads)
        + pairs * shape.head_dim * limits.kv_bytes
        + indexed * batch * blocks * entry / 2.0
        + tokens * heads * shape.rope_dim * limits.fmha_bytes
    )
    busy = (
        tokens * (2.0 * projected + compress) / limits.gemm_peak
        + 2.0 * tokens * (absorbed + index_heads) / limits.bfloat16_peak
        + 2.0 * tokens * (index_queries + scores) / limits.fp8_peak
        + 4.0 * queries * pairs / limits.fmha_peak
    )
    return xp.maximum(busy, moved / limits.mem_bw)


def score_sol(heads, cached, new, batch):
    """What the indexer's scores of `new` tokens behind `cached` ones are proportional to."""
    return batch * (cached * new + new * new / 2)
