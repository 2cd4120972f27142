# SPDX-License-Identifier: Apache-2.0
"""How long an engine step takes: tables over decoding requests, their context, and the prompt tokens of the step."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax.fleet.profile import Profile, iteration_s, prompt_arithmetic_s

PROMPT_KNOTS = 33  # chunk lengths at which the arithmetic of a profile is tabulated


class PromptPart(NamedTuple):
    """What the prompts of one step are.

    Attributes:
        tokens: Prompt tokens.
        prompts: Prompts, whole or in part.
        context: Their tokens in the KV cache after the step.
        work_s: Sum of `StepTimes.chunk_s` over them.
    """

    tokens: Array
    prompts: Array
    context: Array
    work_s: Array


class DecodeLine(NamedTuple):
    """Times of steps in which nothing but the context of the same requests grows.

    Attributes:
        first_s: The first step.
        growth_s: What each further step takes longer.
        steps: Steps after the first for which this holds; real.
    """

    first_s: Float[Array, ""]
    growth_s: Float[Array, ""]
    steps: Float[Array, ""]


class StepTimes(eqx.Module):
    """Step times of one replica. Linear between knots and beyond the last; knots ascend, times do not fall.

    With n decoding requests of mean context m, and prompts i that put c_i tokens behind p_i cached ones:

        step = decode(n, m) + shared(n + sum c_i) - shared(n) + sum (prompt(c_i, p_i) + host where p_i = 0)

    or, where `overlaps`, with the prompts among the n requests and their contexts,

        step = max(decode(n, m), sum prompt(c_i, p_i))

    Attributes:
        running: Decoding requests; from 0.
        context: Mean tokens of their KV caches; from 0.
        decode_s: A step without prompts; at n = 0 what a step costs at least [running, context].
        tokens: Tokens of a step, from 0.
        shared_s: What its tokens share [tokens].
        chunk: Prompt tokens of a step, from 0.
        past: Tokens of the same prompt in the cache, from 0.
        prompt_s: What a prompt adds beyond what tokens share [chunk, past].
        prompt_host_s: What it adds besides, once.
        overlaps: Whether a step takes the longer of the two parts, not their sum.
    """

    running: Float[Array, " running"]
    context: Float[Array, " context"]
    decode_s: Float[Array, "running context"]
    tokens: Float[Array, " tokens"]
    shared_s: Float[Array, " tokens"]
    chunk: Float[Array, " chunk"]
    past: Float[Array, " past"]
    prompt_s: Float[Array, "chunk past"]
    prompt_host_s: Any
    overlaps: Any

    def decode_line(self, running: Array, context_sum: Array) -> DecodeLine:
        """Steps of so many requests whose caches hold `context_sum` tokens in all.

        Each step makes all of the caches one token longer.
        """
        count = running.astype(self.decode_s.dtype)
        mean = context_sum.astype(count.dtype) / jnp.maximum(count, 1.0)
        i, row = _cell(self.running, count)
        j, column = _cell(self.context, mean)
        corners = jax.lax.dynamic_slice(self.decode_s, (i, j), (2, 2))
        low, high = corners[0] + row * (corners[1] - corners[0])
        width = self.context[j + 1] - self.context[j]
        last = j + 2 >= self.context.shape[0]
        steps = jnp.where(last, jnp.inf, self.context[j + 1] - mean)
        return DecodeLine(low + column * (high - low), (high - low) / width, steps)

    def chunk_s(self, tokens: Array, past: Array) -> Float[Array, ""]:
        """What so many tokens of a prompt behind `past` cached ones add."""
        i, row = _cell(self.chunk, tokens.astype(self.prompt_s.dtype))
        j, column = _cell(self.past, past.astype(self.prompt_s.dtype))
        corners = jax.lax.dynamic_slice(self.prompt_s, (i, j), (2, 2))
        low, high = corners[0] + row * (corners[1] - corners[0])
        host = jnp.where(past == 0, jnp.asarray(self.prompt_host_s, low.dtype), 0.0)
        return low + column * (high - low) + host

    def line(self, running: Array, context_sum: Array, part: PromptPart) -> DecodeLine:
        """The step of so many decoding requests and a part of prompts; with prompts only the first step holds."""
        both = jnp.asarray(self.overlaps)
        zero = jnp.zeros_like(running)
        beside = jnp.where(both, part.prompts, zero)
        line = self.decode_line(running + beside, context_sum + jnp.where(both, part.context, zero))
        added = self._shared(running + part.tokens) - self._shared(running) + part.work_s
        first = jnp.where(both, jnp.maximum(line.first_s, part.work_s), line.first_s + added)
        return line._replace(first_s=jnp.where(part.tokens > 0, first, line.first_s))

    def step_s(self, running: Array, context_sum: Array, part: PromptPart) -> Float[Array, ""]:
        """Time of the step [s]."""
        return self.line(running, context_sum, part).first_s

    def _shared(self, tokens: Array) -> Float[Array, ""]:
        i, share = _cell(self.tokens, tokens.astype(self.shared_s.dtype))
        low, high = jax.lax.dynamic_slice(self.shared_s, (i,), (2,))
        return low + share * (high - low)


_AXES: tuple[Any, ...] = (1, 1, 2, 1, 1, 1, 1, 2, 0, 0)
TABLE_AXES = StepTimes(*_AXES)  # number of axes of each leaf, for one replica


def no_prompts(dtype: Any) -> PromptPart:
    """The part of a step without prompts."""
    return PromptPart(jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.zeros((), dtype))


def profile_steps(profile: Profile) -> StepTimes:
    """Step times of a profile: the iteration of all running requests, or the arithmetic of the prompts if longer.

    Iterations and full chunks are exact; the arithmetic of other chunks is interpolated between 32 parts of a chunk.
    """
    dtype = jnp.result_type(float)
    one = jnp.array([0.0, 1.0], dtype)
    chunk = jnp.linspace(0.0, 1.0, PROMPT_KNOTS, dtype=dtype) * profile.chunk_tokens
    past = one * profile.calibration_tokens
    return StepTimes(
        running=one,
        context=one * profile.calibration_tokens,
        decode_s=jax.vmap(lambda n: iteration_s(profile, n, one * profile.calibration_tokens))(one),
        tokens=one,
        shared_s=jnp.zeros_like(one),
        chunk=chunk,
        past=past,
        prompt_s=prompt_arithmetic_s(profile, chunk[:, None], past),
        prompt_host_s=jnp.zeros((), dtype),
        overlaps=jnp.asarray(True),
    )


def _cell(knots: Float[Array, " knot"], x: Float[Array, ""]) -> tuple[Array, Float[Array, ""]]:
    """The interval of `knots` for a number, the last one for numbers beyond, and where in it the number lies."""
    i = jnp.clip(jnp.sum(knots <= x, dtype=jnp.int32) - 1, 0, knots.shape[0] - 2)
    low, high = jax.lax.dynamic_slice(knots, (i,), (2,))
    return i, (x - low) / (high - low)
