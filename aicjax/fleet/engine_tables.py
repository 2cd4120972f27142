# SPDX-License-Identifier: Apache-2.0
"""Step times of one attention rank of a deployment, from its measured tables."""

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from aicjax._units import MS_PER_S
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.misfit import missing_error
from aicjax.explore.roles import Worker
from aicjax.fleet.step_times import StepTimes
from aicjax.serving.worker_cost import prompt_cost, step_cost

Counts = NDArray[np.int64]
LEAST_CHUNK, LEAST_CONTEXT = 16, 256  # first knots after 0 [tokens]
TILES = (
    (16, 256),
    (256, 4096),
)  # rows of a tile of a matrix product, and up to where it shows: times step up behind each


def engine_steps(worker: Worker, batch: int, step_tokens: int, max_tokens: int) -> StepTimes:
    """Step times of one rank of a worker in one layout, with what steps cost beyond their kernels.

    A prompt adds what its tokens add to the part of a step that all tokens share, and its attention, as in
    docs/modelling.md; so it costs no less alone than beside decoding requests. Where the tables fall, the times stay.

    Args:
        worker: The worker; its load has no drafts.
        batch: Most requests of the rank.
        step_tokens: Most tokens of a step.
        max_tokens: Longest context.

    Raises:
        MissingData: An operator has no answer.
    """
    rows, tokens = tile_knots(batch), tile_knots(step_tokens)
    chunk, context = knots(LEAST_CHUNK, step_tokens), knots(LEAST_CONTEXT, max_tokens)
    evaluation = Evaluation()
    coordinates = evaluation.add(worker)
    length = np.maximum(context, 1)
    asked = (
        coordinates.context_rest(1, tokens[1:], 0),
        coordinates.context_attention(1, chunk[1:, None], context),
        coordinates.generation_rest(rows[1:, None]),
        coordinates.generation_attention(rows[1:, None], length),
        coordinates.generation_other(rows[1:, None], length),
    )
    curves, (config,) = evaluation.curves(worker)
    parts_ms = [places.values(curves)[config] for places in asked]
    if not all(np.isfinite(values).all() for values in parts_ms):
        raise missing_error("fleet", worker, curves, [config])
    loop = worker.deployment.constants.loop
    prompt, step = prompt_cost(loop, worker.deployment.model.layers), step_cost(loop)
    shared_ms, prompt_ms, *decode_parts_ms = parts_ms
    decode_ms = step.decode_ms(sum(decode_parts_ms), rows[1:, None])

    def real(values: NDArray) -> jnp.ndarray:
        return jnp.asarray(values, jnp.result_type(float))

    def seconds(values_ms: NDArray) -> jnp.ndarray:
        return real(_rising(_from_zero(values_ms)) / MS_PER_S)

    return StepTimes(
        running=real(rows),
        context=real(context),
        decode_s=seconds(decode_ms),
        tokens=real(tokens),
        shared_s=seconds(prompt.correction * shared_ms),
        chunk=real(chunk),
        past=real(context),
        prompt_s=seconds(prompt.correction * prompt_ms),
        prompt_host_s=real(np.asarray(prompt.host_ms / MS_PER_S)),
        overlaps=jnp.asarray(False),
    )


def knots(least: int, most: int) -> Counts:
    """0, then from `least` to `most` by turns of 3/2 and 4/3."""
    doubled = least * 2 ** np.arange(max(int(np.log2(max(most / least, 1))), 0) + 1)
    between = np.sort(np.concatenate([doubled, doubled + doubled // 2]))
    return np.unique(np.concatenate([[0], between[between < most], [most]]))


def tile_knots(most: int) -> Counts:
    """`knots` from 1, and both sides of each step that tiles make."""
    ends = [np.arange(rows, min(last, most - 1) + 1, rows) for rows, last in TILES]
    return np.unique(np.concatenate([knots(1, most), *ends, *(tiles + 1 for tiles in ends)]))


def _from_zero(values: NDArray) -> NDArray:
    """The values with a first row of zeros: nothing takes no time."""
    return np.concatenate([np.zeros_like(values[:1]), values])


def _rising(values: NDArray) -> NDArray:
    """The least values above the given ones that do not fall along any axis."""
    for axis in range(values.ndim):
        values = np.maximum.accumulate(values, axis)
    return values
