# SPDX-License-Identifier: Apache-2.0
"""A replica in closed form: time of an iteration, room for requests, time of service. One replica; `vmap` adds axes.

Every function takes real or whole numbers, scalars or arrays that broadcast, and answers in the dtype of the profile.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax._results import InputError
from aicjax.fleet.power import PowerLaw
from aicjax.fleet.rules import SANE, Rules

Number = float | np.ndarray | Array
Tree = TypeVar("Tree")


class Profile(eqx.Module):
    """What one replica (a GPU, or GPUs that work as one) does with its requests; numbers or arrays with common axes.

    Attributes:
        base_s: Time of an iteration without requests.
        per_sequence_s: Time that a running request of `calibration_tokens` adds.
        calibration_tokens: Context at which `per_sequence_s` is stated; it grows in proportion.
        chunk_tokens: Prompt tokens of an iteration.
        block_tokens: Tokens of a KV block.
        kv_blocks: KV blocks.
        least_slots: Requests that run whatever the room.
        max_slots: Most requests that run; infinite for no limit but room.
        max_slot_tokens: Most tokens of context that the running requests may have; infinite for no limit but room.
        prefill_token_s: Arithmetic time of a prompt token.
        prefill_pair_s: Arithmetic time of a pair of prompt tokens that attend.
        price_per_hour: Price of the replica [USD/h].
        gpus: GPUs of the replica.
        power: Power of one of its GPUs, where known.
        name: What it is. Static.
    """

    base_s: Any
    per_sequence_s: Any
    calibration_tokens: Any
    chunk_tokens: Any
    block_tokens: Any
    kv_blocks: Any
    price_per_hour: Any
    gpus: Any = 1.0
    least_slots: Any = 0.0
    max_slots: Any = float("inf")
    max_slot_tokens: Any = float("inf")
    prefill_token_s: Any = 0.0
    prefill_pair_s: Any = 0.0
    power: PowerLaw | None = None
    name: str = eqx.field(static=True, default="")


def iteration_s(profile: Profile, running: Number, mean_tokens: Number | None = None) -> Float[Array, "..."]:
    """Time of an iteration with so many requests: `base + per_sequence running mean / calibration`.

    Args:
        profile: The replica.
        running: Requests that run.
        mean_tokens: Their mean context [tokens]; `calibration_tokens` where None.
    """
    added = _real(profile, running) * profile.per_sequence_s
    if mean_tokens is not None:
        added = added * _real(profile, mean_tokens) / profile.calibration_tokens
    return profile.base_s + added


def prefill_iteration_s(
    profile: Profile,
    running: Number,
    mean_tokens: Number | None = None,
    past_tokens: Number = 0.0,
    tokens: Number | None = None,
) -> Float[Array, "..."]:
    """Time of an iteration that takes part of a prompt: the longer of the iteration and the prompt's arithmetic.

    Args:
        profile: The replica.
        running: Requests that run.
        mean_tokens: Their mean context [tokens]; `calibration_tokens` where None.
        past_tokens: Tokens of the prompt that are done.
        tokens: Tokens of the prompt in this iteration; `chunk_tokens` where None.
    """
    chunk = _real(profile, profile.chunk_tokens if tokens is None else tokens)
    arithmetic = prompt_arithmetic_s(profile, chunk, _real(profile, past_tokens))
    return jnp.maximum(iteration_s(profile, running, mean_tokens), arithmetic)


def prompt_arithmetic_s(profile: Profile, tokens: Number, past_tokens: Number = 0.0) -> Any:
    """Arithmetic time of part of a prompt behind tokens that are done."""
    return profile.prefill_token_s * tokens + profile.prefill_pair_s * prompt_pairs(tokens, past_tokens)


def prompt_pairs(tokens: Number, past_tokens: Number) -> Any:
    """Pairs of tokens that attend where part of a prompt follows tokens that are done."""
    return tokens * (tokens / 2.0 + past_tokens)


def slots(profile: Profile, max_tokens: Number, *, whole: bool = True) -> Int[Array, "..."] | Float[Array, "..."]:
    """Requests that run at once when each may have `max_tokens` of context: what the room and the limits allow.

    Args:
        profile: The replica.
        max_tokens: Context that a slot is made for.
        whole: Whole slots of whole blocks, as integers; else the real number, differentiable.
    """
    count = _slots(profile, max_tokens, whole)
    return count.astype(jnp.int32) if whole else count


def mean_context(isl: Number, osl: Number, chunk_tokens: Number, *, whole: bool = True) -> Float[Array, "..."]:
    """Context of a request as its iterations see it, in the mean over prompt chunks and decode steps [tokens].

    Args:
        isl, osl: Prompt and output tokens.
        chunk_tokens: Prompt tokens of an iteration.
        whole: Whole chunks; else their mean over prompts of about that length, differentiable.
    """
    return _context(isl, osl, chunk_tokens, whole)[0]


def running_context(
    isl: Number, osl: Number, weight: Number, chunk_tokens: Number, *, whole: bool = True
) -> Float[Array, ""]:
    """Mean context of the requests that run at one time, where each is there for its iterations [tokens].

    Args:
        isl, osl: Prompt and output tokens of the points of a law [point].
        weight: Their shares of the requests that come [point].
        chunk_tokens: Prompt tokens of an iteration.
        whole: Whole chunks; else their mean over prompts of about that length, differentiable.
    """
    context, iterations = _context(isl, osl, chunk_tokens, whole)
    present = jnp.asarray(weight).astype(iterations.dtype) * iterations
    return jnp.sum(present * context) / jnp.sum(present)


def first_token_s(
    profile: Profile,
    isl: Number,
    running: Number,
    mean_tokens: Number | None = None,
    rules: Rules = SANE,
    *,
    whole: bool = True,
) -> Float[Array, "..."]:
    """Time of a prompt from its first iteration to its first token, chunk by chunk.

    Args:
        profile: The replica.
        isl: Prompt tokens.
        running: Requests that run beside it, itself included.
        mean_tokens: Their mean context [tokens]; `calibration_tokens` where None.
        rules: `prefill_without_compute` leaves out arithmetic and length.
        whole: Whole chunks; else their mean over prompts of about that length, differentiable.
    """
    isl, chunk = _real(profile, isl), _real(profile, profile.chunk_tokens)
    if rules.prefill_without_compute:
        return _chunks(isl, chunk, whole) * iteration_s(profile, running)
    step = iteration_s(profile, running, mean_tokens)
    if not whole:
        return jnp.maximum(_chunks(isl, chunk, whole) * step, prompt_arithmetic_s(profile, isl))
    full = jnp.floor(isl / chunk)
    first = prompt_arithmetic_s(profile, chunk)
    rise = _real(profile, profile.prefill_pair_s) * chunk**2  # of the arithmetic, from a chunk to the next
    short = (step - first) / jnp.where(rise > 0, rise, 1.0)  # chunks whose arithmetic the iteration hides
    hidden = jnp.where(rise > 0, jnp.clip(jnp.ceil(short), 0.0, full), jnp.where(step >= first, full, 0.0))
    beyond = (full - hidden) * (first + rise * (full + hidden - 1.0) / 2.0)
    rest = isl - full * chunk
    last = prefill_iteration_s(profile, running, mean_tokens, full * chunk, rest)
    return hidden * step + beyond + jnp.where(rest > 0, last, 0.0)


def service_s(
    profile: Profile,
    isl: Number,
    osl: Number,
    max_tokens: Number,
    *,
    running: Number | None = None,
    mean_tokens: Number | None = None,
    rules: Rules = SANE,
    whole: bool = True,
) -> Float[Array, "..."]:
    """Time for which a request holds its slot.

    Args:
        profile: The replica.
        isl, osl: Prompt and output tokens.
        max_tokens: Context that slots are made for.
        running: Requests that run; all slots where None.
        mean_tokens: Their mean context; as if all were like this request where None.
        rules: `whole_chunks`, `final_length` and `extra_decode_step` count as the fleet reference does.
        whole: Whole slots and chunks; else real numbers, differentiable.
    """
    isl, osl = _real(profile, isl), _real(profile, osl)
    chunk = _real(profile, profile.chunk_tokens)
    count = _slots(profile, max_tokens, whole) if running is None else running
    if mean_tokens is None:
        mean_tokens = isl + osl if rules.final_length else mean_context(isl, osl, chunk, whole=whole)
    if rules.whole_chunks:
        prompt = _chunks(isl, chunk, whole) * prefill_iteration_s(profile, count, mean_tokens, isl / 2.0)
    else:
        prompt = first_token_s(profile, isl, count, mean_tokens, whole=whole)
    steps = osl if rules.extra_decode_step else jnp.maximum(osl - 1.0, 0.0)
    return prompt + steps * iteration_s(profile, count, mean_tokens)


def throughput_per_s(
    profile: Profile, isl: Number, osl: Number, max_tokens: Number, rules: Rules = SANE
) -> Float[Array, "..."]:
    """Requests per second of a replica with every slot in use; 0 where it has none."""
    return _slots(profile, max_tokens, True) / service_s(profile, isl, osl, max_tokens, rules=rules)


def fitted(
    profile: Profile, running: tuple[float, float], measured_s: tuple[float, float], mean_tokens: float
) -> Profile:
    """The profile with the iteration times that two measured iterations of one mean context give.

    Args:
        profile: What stays as it is.
        running: Requests of the two iterations.
        measured_s: Their times.
        mean_tokens: Mean context of both [tokens].

    Raises:
        InputError: The points do not fix a line, or the line has a negative time.
    """
    (n1, n2), (t1, t2) = running, measured_s
    if n1 == n2:
        raise InputError("running", running, "two different numbers of requests")
    if not mean_tokens > 0:
        raise InputError("mean_tokens", mean_tokens, "above 0")
    slope = (t2 - t1) / (n2 - n1)
    base = t1 - slope * n1
    if not (slope >= 0 and base >= 0):
        raise InputError("measured_s", measured_s, "times that grow with the requests, no faster than in proportion")
    per_sequence = slope * profile.calibration_tokens / mean_tokens
    return dataclasses.replace(profile, base_s=base, per_sequence_s=per_sequence)


def unnamed(profile: Profile) -> Profile:
    """The profile without what is static, so that one compiled program serves all that have, or lack, a power law."""
    power = None if profile.power is None else dataclasses.replace(profile.power, evidence="none")
    return dataclasses.replace(profile, power=power, name="")


def stacked(profiles: Sequence[Profile]) -> Profile:
    """Profiles along a leading axis, for `vmap`; power only where all have a law."""
    alike = [unnamed(profile) for profile in profiles]
    if any(profile.power is None for profile in alike):
        alike = [dataclasses.replace(profile, power=None) for profile in alike]
    dtype = jnp.result_type(float)
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves), dtype), *alike)


def floats(tree: Tree) -> Tree:
    """Numbers as arrays of the default real type, so that one compiled program serves all."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tree)


def _slots(profile: Profile, max_tokens: Number, whole: bool) -> Float[Array, "..."]:
    context = jnp.maximum(_real(profile, max_tokens), 1.0)
    limited = jnp.isfinite(jnp.asarray(profile.max_slot_tokens))
    room = profile.kv_blocks * profile.block_tokens / context
    most = jnp.where(limited, profile.max_slot_tokens, context) / context
    if whole:
        room, most = jnp.floor(profile.kv_blocks / jnp.ceil(context / profile.block_tokens)), jnp.floor(most)
    count = jnp.minimum(jnp.maximum(room, profile.least_slots), profile.max_slots)
    return jnp.where(limited, jnp.minimum(count, most), count)


def _context(
    isl: Number, osl: Number, chunk_tokens: Number, whole: bool
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Mean context of a request over its iterations, and their number."""
    dtype = jnp.result_type(float)
    isl, osl, chunk = (jnp.asarray(x).astype(dtype) for x in (isl, osl, chunk_tokens))
    chunks, steps = _chunks(isl, chunk, whole), jnp.maximum(osl - 1.0, 0.0)
    iterations = chunks + steps
    return (chunks * isl / 2.0 + steps * (isl + osl / 2.0)) / iterations, iterations


def _chunks(isl: Float[Array, "..."], chunk: Float[Array, "..."], whole: bool) -> Float[Array, "..."]:
    return jnp.ceil(isl / chunk) if whole else jnp.maximum(isl / chunk + 0.5, 1.0)


def _real(profile: Profile, number: Number) -> Float[Array, "..."]:
    return jnp.asarray(number).astype(jnp.result_type(profile.base_s, float))
