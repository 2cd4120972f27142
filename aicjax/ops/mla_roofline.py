# SPDX-License-Identifier: Apache-2.0
"""Speed-of-light bounds of multi-head latent attention (MLA): keys and values rest in one latent vector a token.

Prefill expands the latent into keys and values of every head. Decode absorbs that expansion into two small products
a head (before and after attention) and attends over the latent itself, which all heads share.
"""

import jax.numpy as jnp

HIDDEN = 7168  # width of the model that the measured projections belong to
QUERY_RANK = 1536
LATENT = 512
ROPE, NOPE, VALUE = 64, 128, 128  # rotated and plain part of a query or key, and a value
QUERY = NOPE + ROPE
EXPANDED = QUERY + VALUE  # score and weighted sum of one head on expanded keys and values
ABSORBED = 2 * LATENT + ROPE  # the same on the latent
CACHED = LATENT + ROPE  # what the cache holds of a token
ACTIVATION_BYTES = 2
BUILT_HEADS = 128  # heads of the model that large-EP tables were measured on, before they are sharded


def context_mla_sol_ms(batch, full, prefix, heads, kv_bytes, peak, mem_bw, xp=jnp):
    """Bound of prefill attention over `full` tokens of which `prefix` are cached: half of the scores, expanded."""
    new = full - prefix
    operations = EXPANDED * batch * heads * (new * (full + prefix))
    moved = EXPANDED * batch * heads * (kv_bytes * full + ACTIVATION_BYTES * new)
    return xp.maximum(operations / peak, moved / mem_bw)


def generation_mla_sol_ms(
    batch, length, heads, kv_bytes, peak, products, product_bytes, product_peak, mem_bw, xp=jnp
):  # fmt: skip
    """Bound of one decode step over `length` tokens, the new one included, with `products` absorbed products."""
    operations, moved = absorbed_product(batch, heads)
    math = 2.0 * ABSORBED * batch * heads * length / peak + products * operations / product_peak
    cache = kv_bytes * CACHED * (length - 1.0)
    attention = batch * (ACTIVATION_BYTES * ABSORBED * heads + cache)
    return xp.maximum(math, (attention + products * product_bytes * moved) / mem_bw)


def mla_bmm_sol_ms(tokens, heads, element_bytes, peak, mem_bw, xp=jnp):
    """Bound of one absorbed product of each head."""
    operations, moved = absorbed_product(tokens, heads)
    return xp.maximum(operations / peak, element_bytes * moved / mem_bw)


def absorbed_product(tokens, heads):
    """Operations and elements moved by one absorbed product of each head: `NOPE` by `LATENT`."""
    return 2.0 * NOPE * LATENT * tokens * heads, heads * (tokens * (NOPE + LATENT) + NOPE * LATENT)


def wideep_context_mla_sol_ms(batch, full, prefix, heads, element_bytes, peak, score_peak, mem_bw, xp=jnp):
    """Bound of a large-EP prefill block: query and key-value expansion, attention in 16 bits, output projection."""
    new = full - prefix
    tokens = batch * new
    products = (
        _projection(tokens, QUERY_RANK, heads * QUERY),
        _projection(tokens, LATENT, heads * (NOPE + VALUE)),
        _projection(tokens, heads * VALUE, HIDDEN),
    )
    scores = EXPANDED * batch * heads * (new * (full + prefix))
    attended = EXPANDED * batch * heads * (full + new)
    return _block_ms(products, scores, attended, element_bytes, peak, score_peak, mem_bw, xp)


def wideep_generation_mla_sol_ms(batch, length, heads, element_bytes, peak, score_peak, mem_bw, xp=jnp):
    """Bound of a large-EP decode block: query expansion, absorbed products, attention in 16 bits, output projection."""
    before, after = (_projection(batch, *widths) for widths in ((NOPE, LATENT), (LATENT, VALUE)))
    products = (
        _projection(batch, QUERY_RANK, heads * QUERY),
        tuple(heads * part for part in before),
        tuple(heads * part for part in after),
        _projection(batch, heads * VALUE, HIDDEN),
    )
    scores = 2.0 * ABSORBED * batch * heads * length
    attended = batch * (heads * (CACHED + LATENT) + length * CACHED)
    return _block_ms(products, scores, attended, element_bytes, peak, score_peak, mem_bw, xp)


def _projection(tokens, width, out):
    """Operations and elements of a product; its output is written, and read by what follows."""
    return 2.0 * tokens * width * out, tokens * width + width * out + 2.0 * tokens * out


def _block_ms(products, scores, attended, element_bytes, peak, score_peak, mem_bw, xp):
    operations, elements = (sum(part) for part in zip(*products, strict=True))
    math = operations / peak + scores / score_peak
    return xp.maximum(math, element_bytes * (elements + 2.0 * attended) / mem_bw)


def sharded_heads(heads, xp=jnp):
    """Heads of a rank of the whole number of ranks nearest below `BUILT_HEADS / heads`."""
    return xp.floor(BUILT_HEADS / xp.maximum(xp.floor(BUILT_HEADS / heads), 1.0))


def nearest_sharded_heads(heads, xp=jnp):
    """The same of the whole number of ranks nearest to `BUILT_HEADS / heads`, halves to even."""
    return xp.floor(BUILT_HEADS / xp.maximum(xp.round(BUILT_HEADS / heads), 1.0))
