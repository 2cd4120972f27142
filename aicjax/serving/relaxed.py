# SPDX-License-Identifier: Apache-2.0
"""Real numbers in place of counts, for optimisation by gradients: values between counts, plans without ceilings."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from aicjax._types import Array, FloatScalar
from aicjax.constants import Constants
from aicjax.interp.counts import pick
from aicjax.serving.agg import AggPoint
from aicjax.serving.load import Load
from aicjax.serving.plan import AggPlan


def between(curve: Float[Array, " count"], at: FloatScalar) -> Float[Array, ""]:
    """A curve over the counts 0, 1, 2 ... at a real count: its own value at whole ones, a straight line between them.

    Args:
        curve: Values, two or more.
        at: The count; beyond the curve its ends hold.
    """
    at = jnp.clip(jnp.asarray(at, curve.dtype), 0, curve.shape[0] - 1)
    low = jnp.minimum(jnp.floor(at).astype(jnp.int32), curve.shape[0] - 2)
    share = at - low.astype(at.dtype)
    return pick(curve, low) * (1 - share) + pick(curve, low + 1) * share


class RelaxedPlan(NamedTuple):
    """The steps of one cycle; fields of `AggPlan` that need not be whole.

    Attributes:
        batch: Requests in flight of one attention rank.
        prefill_steps: Steps that it takes to put all prompts in.
        prompts: Prompts that a mixed step touches.
        chunks: Steps over which one prompt is spread.
        decode_rows: Requests that decode in a mixed step.
        shared_tokens: Tokens of a mixed step that pass everything but attention.
        drains: Whether the cycle has steps without prompts.
        attended: Prompts whose attention is priced in one pass.
        room: Prompts that a step has room for; a fraction where a prompt is cut.
    """

    batch: Float[Array, "..."]
    prefill_steps: Float[Array, "..."]
    prompts: Float[Array, "..."]
    chunks: Float[Array, "..."]
    decode_rows: Float[Array, "..."]
    shared_tokens: Float[Array, "..."]
    drains: Bool[Array, "..."]
    attended: Float[Array, "..."]
    room: Float[Array, "..."]

    @classmethod
    def of(cls, plan: AggPlan) -> "RelaxedPlan":
        """A plan of whole numbers in this form."""
        counts = {name: getattr(plan, name).astype(np.float32) for name in cls._fields if name != "drains"}
        return cls(**counts, drains=plan.drains)

    @property
    def point(self) -> AggPoint:
        """What the serving formulas take."""
        return AggPoint(self.batch, self.prefill_steps, self.chunks, self.drains, self.prompts, self.room)


def relaxed_agg_plan(
    load: Load, batch: FloatScalar, ctx_tokens: FloatScalar, *, spread_decode_rows: bool
) -> RelaxedPlan:
    """The plan of one real (batch, ctx_tokens) point; where its quotients are whole, that of `plan_agg`.

    With I prompt tokens, budget C and D decode iterations a request, prompts take S = I b / C steps of max(1, C / I)
    prompts and b - C / I decode rows, or b D / S where they outlast the iterations and the scheduler spreads the rows.
    Differentiable between the kinks.

    Args:
        load: The requests, without a cached prefix.
        batch: Requests in flight, >= 1.
        ctx_tokens: Prompt tokens of a mixed step, > 0.
        spread_decode_rows: Whether the scheduler spreads decode rows evenly over a cycle of mixed steps only. Static.
    """
    batch, ctx_tokens = jnp.asarray(batch, jnp.float32), jnp.asarray(ctx_tokens, jnp.float32)
    held = ctx_tokens / load.isl
    steps = batch / held
    saturated = steps >= load.iterations
    prompts = jnp.maximum(1.0, held)
    rows = jnp.maximum(1.0, batch - prompts)
    if spread_decode_rows:
        rows = jnp.where(saturated, jnp.maximum(1.0, batch * load.iterations / steps), rows)
    rows = jnp.where(batch > 1, rows, 0.0)
    return RelaxedPlan(
        batch=batch,
        prefill_steps=steps,
        prompts=prompts,
        chunks=jnp.maximum(1.0, 1.0 / held),
        decode_rows=rows,
        shared_tokens=ctx_tokens + rows * load.query_rows,
        drains=~saturated,
        attended=prompts,
        room=held,
    )


def relaxed_loop_plan(load: Load, batch: FloatScalar, ctx_tokens: FloatScalar, *, mixes: bool) -> RelaxedPlan:
    """The plan of one real (batch, ctx_tokens) point of a closed loop; where nothing is rounded, that of `plan_loop`.

    1 + (b - 1) / D prompts come together, of which a step takes no more than C / I and at least one.

    Args:
        load: The requests, with mean lengths and without a cached prefix.
        batch: Requests in flight, >= 1.
        ctx_tokens: Prompt tokens of a step, > 0.
        mixes: Whether steps with prompts hold decode rows. Static.
    """
    batch, ctx_tokens = jnp.asarray(batch, jnp.float32), jnp.asarray(ctx_tokens, jnp.float32)
    held = ctx_tokens / load.isl
    chunks = jnp.maximum(1.0, 1.0 / held)
    prompts = jnp.maximum(1.0, jnp.minimum(held, 1.0 + (batch - 1.0) / load.iterations))
    rows = jnp.where((batch > 1) & (load.osl > 1) & mixes, batch, 0.0)
    return RelaxedPlan(
        batch=batch,
        prefill_steps=batch * chunks / prompts,
        prompts=prompts,
        chunks=chunks,
        decode_rows=rows,
        shared_tokens=prompts * load.isl / chunks + rows * load.query_rows,
        drains=jnp.full(jnp.shape(batch), load.osl > 1),
        attended=jnp.ones_like(batch),
        room=held,
    )


def relaxed_plan(
    load: Load, batch: FloatScalar, ctx_tokens: FloatScalar, constants: Constants, *, spread: bool
) -> RelaxedPlan:
    """The plan of one real point for the formulas in force; arguments as of `serving.point.plan_points`."""
    if constants.formulas == "closed_loop":
        return relaxed_loop_plan(load.mean, batch, ctx_tokens, mixes=bool(constants.loop.mixes_prefill))
    return relaxed_agg_plan(load, batch, ctx_tokens, spread_decode_rows=spread)
