# SPDX-License-Identifier: Apache-2.0
"""Prompts that a scheduler leaves in the queue: a simulated server that looks rarely, or waits for others."""

import dataclasses
import heapq

import jax
import numpy as np
import pytest

from aicjax.constants import load_constants, traced
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate

CLIENTS, OSL, DECODE_MS, PREFILL_MS, WAVES = 32, 400, 1.0, 4.0, 10
TPOT = 0.05  # largest error of the cases below, and some room: requests that wait do not decode


def _simulated(*, mixes: bool, receive_steps: int, gather_steps: int, gather_prompts: int, at_once: int):
    """Mean TTFT and TPOT of a closed loop, step by step; prompts of one step cost as much as one after another."""
    random, count = np.random.default_rng(3), CLIENTS * WAVES
    lengths = np.round(OSL * (0.8 + 0.2 * random.random(count))).astype(int)
    sent, first, end = np.zeros(count), np.zeros(count), np.zeros(count)
    arrivals = [(0.0, request) for request in range(CLIENTS)]
    queue, left, now, next_sent = [], {}, 0.0, CLIENTS
    unseen, held = receive_steps, 0  # decode steps since the last look, and for which the queue was held back
    while arrivals or queue or left:
        if unseen >= receive_steps or not left:
            while arrivals and arrivals[0][0] <= now:
                queue.append(heapq.heappop(arrivals)[1])
            unseen = 0
        ready = len(queue) >= gather_prompts or held >= gather_steps or not left
        taken = queue[:at_once] if queue and ready else []
        if not taken and not left:
            now = arrivals[0][0]
            continue
        decoding = list(left) if mixes or not taken else []
        held = held + 1 if queue and not taken else 0
        unseen = receive_steps if taken and not mixes else unseen + 1
        queue = queue[len(taken) :]
        now += PREFILL_MS * len(taken) + (DECODE_MS if decoding else 0.0)
        for request in taken:
            first[request], left[request] = now, lengths[request] - 1
        for request in decoding:
            left[request] -= 1
            if not left[request]:
                del left[request]
                end[request] = now
                if next_sent < count:
                    sent[next_sent] = now + 1e-3
                    heapq.heappush(arrivals, (sent[next_sent], next_sent))
                    next_sent += 1
    return (first - sent).mean(), ((end - first) / (lengths - 1)).mean()


@pytest.mark.parametrize(
    ("mixes", "receive_steps", "gather_steps", "gather_prompts", "ttft_error"),
    [
        (False, 1, 0, 1, 0.05),
        (False, 10, 0, 1, 0.25),
        (False, 30, 0, 1, 0.3),
        (True, 1, 20, 100, 0.05),
        (True, 1, 60, 4, 0.12),
    ],
)
def test_times_are_those_of_a_simulated_scheduler(mixes, receive_steps, gather_steps, gather_prompts, ttft_error):
    at_once = 8
    want = _simulated(
        mixes=mixes,
        receive_steps=receive_steps,
        gather_steps=gather_steps,
        gather_prompts=gather_prompts,
        at_once=at_once,
    )
    constants = traced(dataclasses.replace(load_constants("trtllm", "reference").loop, mixes_prefill=float(mixes)))
    work = LoopWork(
        0.9 * OSL,
        prompts=at_once,
        receive_steps=receive_steps,
        gather_steps=gather_steps,
        gather_prompts=gather_prompts,
    )
    times = LoopTimes(DECODE_MS, PREFILL_MS, PREFILL_MS, PREFILL_MS)
    got = jax.device_get(closed_loop_estimate(ClosedLoop(CLIENTS, WAVES, 0.8), work, times, constants))
    assert got.ttft_ms == pytest.approx(want[0], rel=ttft_error)
    assert got.tpot_ms == pytest.approx(want[1], rel=TPOT)


def test_gradient_of_a_lone_client_is_finite():
    constants = traced(load_constants("trtllm", "reference").loop)
    work = LoopWork(360.0, prompts=16.0, gather_steps=20.0, gather_prompts=16.0)
    times = LoopTimes(DECODE_MS, PREFILL_MS, PREFILL_MS, PREFILL_MS)

    def ttft_ms(numbers, concurrency):
        return closed_loop_estimate(ClosedLoop(concurrency, 10.0, 0.8), work, times, numbers).ttft_ms

    slopes = jax.device_get(jax.jacfwd(jax.jit(ttft_ms))(constants, np.float32(1.0)))
    assert all(np.isfinite(slope) for slope in jax.tree.leaves(slopes))
