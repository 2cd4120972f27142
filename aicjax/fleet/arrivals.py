# SPDX-License-Identifier: Apache-2.0
"""Arrival streams as gaps between requests: Poisson, bursty, even, with a rate that changes in time, from a trace.

A stream is `gaps_s [n]`: the time before each arrival, the first counted from zero. Gaps, not times, so that float32
keeps its precision however long a run lasts. Every function is written for one stream; `vmap` adds seeds and rates.
A changing rate is a change of time: gaps of mean one are spent at the rate of the moment. Nothing is thinned out, so
the same draws serve every rate (common random numbers), and a gap is differentiable in the rates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar


class RatePattern(NamedTuple):
    """A rate that is constant by pieces and repeats.

    Attributes:
        durations_s: Length of each piece [s]; make the last one longer than the run to have no repetition.
        rates_per_s: Arrivals per second in each piece; zero is allowed, zero everywhere is not.
    """

    durations_s: Float[Array, " piece"]
    rates_per_s: Float[Array, " piece"]


def poisson_gaps(key: Array, rate_per_s: FloatScalar, n: int) -> Float[Array, " n"]:
    """Independent exponential gaps [s] of `n` arrivals at `rate_per_s`."""
    return jax.random.exponential(key, (n,)) / rate_per_s


def gamma_gaps(key: Array, rate_per_s: FloatScalar, cv2: FloatScalar, n: int) -> Float[Array, " n"]:
    """Independent Gamma gaps [s] of `n` arrivals at `rate_per_s`; squared coefficient of variation `cv2` > 0.

    One is Poisson, more is bursty, less is more regular.
    """
    # The logarithm of the draw: with a small shape (large `cv2`) most gaps lie below the smallest float32.
    shape = jnp.asarray(1.0 / cv2)
    return jnp.exp(jax.random.loggamma(key, shape, (n,)) - jnp.log(shape)) / rate_per_s


def stated_gaps(key: Array, rate_per_s: FloatScalar, cv2: float, n: int) -> Float[Array, " n"]:
    """`poisson_gaps` where `cv2` is 1, else `gamma_gaps`."""
    return poisson_gaps(key, rate_per_s, n) if cv2 == 1 else gamma_gaps(key, rate_per_s, cv2, n)


def even_gaps(rate_per_s: FloatScalar, n: int) -> Float[Array, " n"]:
    """`n` equal gaps [s]."""
    return jnp.ones(n) / rate_per_s


def trace_gaps(measured_gaps_s: Float[Array, " request"], rate_per_s: FloatScalar, n: int) -> Float[Array, " n"]:
    """Gaps [s] of a trace, repeated or cut to `n`, stretched so that the whole trace has the mean rate `rate_per_s`.

    The shape of the spacing stays: bursts, lulls and their order.
    """
    stretch = 1.0 / (rate_per_s * jnp.mean(measured_gaps_s))
    return jnp.resize(measured_gaps_s, (n,)) * stretch


def sine_pattern(mean_per_s: FloatScalar, swing: FloatScalar, period_s: FloatScalar, pieces: int = 96) -> RatePattern:
    """A wave: `mean_per_s * (1 + swing * sin(2 pi t / period_s))`, averaged over each of `pieces` (static) pieces.

    `swing` lies in [0, 1].
    """
    angle = jnp.linspace(0.0, 2.0 * jnp.pi, pieces + 1)
    wave = -jnp.diff(jnp.cos(angle)) / jnp.diff(angle)
    return RatePattern(jnp.ones(pieces) * (period_s / pieces), jnp.asarray(mean_per_s) * (1.0 + swing * wave))


def patterned_gaps(unit_gaps: Float[Array, " n"], pattern: RatePattern) -> Float[Array, " n"]:
    """Gaps [s] of a stream whose rate follows `pattern`, from gaps of mean one: `poisson_gaps(key, 1.0, n)`."""
    durations, rates = pattern
    pieces = durations.shape[0]
    twice = jnp.concatenate([durations * rates] * 2)
    zero = jnp.zeros(1, twice.dtype)
    edge_units = jnp.concatenate([zero, jnp.cumsum(twice)])  # arrivals expected before each edge, over two repetitions
    edge_s = jnp.concatenate([zero, jnp.cumsum(jnp.concatenate([durations, durations]))])
    cycle_units, cycle_s = edge_units[pieces], edge_s[pieces]

    def step(position, unit):
        piece, left_s, lost_s = position
        rate = rates[piece]
        beyond = unit - left_s * rate  # what remains to be spent after this piece
        within = beyond < 0.0
        # The arrival lies in this piece. A compensated difference: gaps below the last digit of the time left count.
        gap_within = unit / jnp.where(within, rate, 1.0)
        spent = gap_within + lost_s
        left_within = left_s - spent
        lost_within = spent - (left_s - left_within)
        # It lies in a later one, perhaps some whole repetitions on.
        cycles = jnp.floor(jnp.maximum(beyond, 0.0) / cycle_units)
        rest = jnp.maximum(beyond - cycles * cycle_units, 0.0)
        units = edge_units - edge_units[piece + 1]
        found = jnp.minimum(jnp.searchsorted(units, rest, side="right") - 1, 2 * pieces - 1)
        into_s = (rest - units[found]) / jnp.where(rates[found % pieces] > 0.0, rates[found % pieces], 1.0)
        gap_beyond = left_s + cycles * cycle_s + (edge_s[found] - edge_s[piece + 1]) + into_s
        later = (found % pieces, jnp.maximum(durations[found % pieces] - into_s, 0.0), jnp.zeros_like(lost_s))
        same = (piece, left_within, lost_within)
        position = jax.tree.map(lambda here, there: jnp.where(within, here, there), same, later)
        return position, jnp.where(within, gap_within, gap_beyond)

    start = (jnp.zeros((), jnp.int32), durations[0], jnp.zeros((), durations.dtype))
    return jax.lax.scan(step, start, unit_gaps)[1]


class SessionStream(NamedTuple):
    """Requests of conversations, in the order of their arrival.

    Attributes:
        gaps_s: Time before each arrival [s].
        isl: Prompt tokens: the whole history of the session and the new message.
        osl: Answer tokens.
        past: Those tokens of the prompt that the session has sent or received before (what a prefix cache may hold).
        session: Number of the session.
        turn: Number of the turn within it, from zero.
    """

    gaps_s: Float[Array, " n"]
    isl: Int[Array, " n"]
    osl: Int[Array, " n"]
    past: Int[Array, " n"]
    session: Int[Array, " n"]
    turn: Int[Array, " n"]


def session_stream(
    key: Array,
    rate_per_s: FloatScalar,
    turn_weights: Float[Array, " turn"],
    message_tokens: Int[Array, "session turn"],
    answer_tokens: Int[Array, "session turn"],
    answer_s: Float[Array, "session turn"],
    think_s: FloatScalar,
) -> SessionStream:
    """The first requests of conversations that begin as a Poisson stream; as many as there are sessions.

    A turn follows the one before after the time of its answer and an exponential time to think. A run starts with no
    session under way, so its beginning has more first turns than the rest: remove it as warm-up. Arrival times are
    resolved to the last digit of the length of the run.

    Args:
        key: Random key.
        rate_per_s: Requests per second in the long run (sessions per second times mean turns).
        turn_weights: Share of sessions with 1, 2, ... turns.
        message_tokens: New tokens of each turn.
        answer_tokens: Tokens of each answer.
        answer_s: Time from each request to the end of its answer [s].
        think_s: Mean time from an answer to the next message [s].
    """
    sessions, turns = message_tokens.shape
    start_key, turn_key, think_key = jax.random.split(key, 3)
    share = turn_weights / jnp.sum(turn_weights)
    mean_turns = jnp.sum(share * jnp.arange(1, turns + 1, dtype=share.dtype))
    start = jnp.cumsum(poisson_gaps(start_key, rate_per_s / mean_turns, sessions))
    count = 1 + jax.random.choice(turn_key, turns, (sessions,), p=share)
    between = answer_s + think_s * jax.random.exponential(think_key, (sessions, turns))
    zero = jnp.zeros((sessions, 1), between.dtype)
    times = start[:, None] + jnp.concatenate([zero, jnp.cumsum(between, axis=1)[:, :-1]], axis=1)
    times = jnp.where(jnp.arange(turns) < count[:, None], times, jnp.inf)
    exchanged = jnp.cumsum(message_tokens + answer_tokens, axis=1)
    past = exchanged - message_tokens - answer_tokens
    first = jnp.argsort(times.ravel())[:sessions]

    def pick(values):
        return values.ravel()[first]

    arrival = pick(times)
    return SessionStream(
        gaps_s=jnp.diff(arrival, prepend=jnp.zeros(1, arrival.dtype)),
        isl=pick(past + message_tokens),
        osl=pick(answer_tokens),
        past=pick(past),
        session=(first // turns).astype(jnp.int32),
        turn=(first % turns).astype(jnp.int32),
    )
