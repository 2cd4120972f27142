# SPDX-License-Identifier: Apache-2.0
"""Continuous batching one step at a time in float64, plain and slow, written from the rules of docs/fleet-steps.md."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

UNFINISHED, COMPLETED, REJECTED, REFUSED = range(4)


@dataclass
class Limits:
    """How the replica schedules; see `aicjax.fleet.step_run.StepLimits`."""

    slots: int
    kv_blocks: int
    block_tokens: int
    step_tokens: int
    max_tokens: int = 2**30
    queue_cap: int = 2**30
    chunked: bool = True
    mixes: bool = True
    resumes: bool = False
    reserves: bool = False


@dataclass
class Request:
    """One request; `cached` tokens of its KV cache, `made` output tokens."""

    number: int
    isl: int
    osl: int
    arrival: float = math.nan
    cached: int = 0
    made: int = 0
    prompt: int = 0  # tokens that its prefill computes; 0 while it decodes
    state: int = UNFINISHED
    first: float = math.nan
    end: float = math.nan
    preemptions: int = 0
    kept: bool = False

    def whole(self) -> int:
        """Tokens in the cache once it can give its next output token."""
        return self.isl + self.made


@dataclass
class Run:
    """What became of the requests."""

    requests: list[Request]
    now: float = 0.0
    busy: float = 0.0
    steps: int = 0
    prompt_tokens: int = 0
    peak: int = 0


@dataclass
class Server:
    """The replica; `running` in order of arrival, `out` those preempted, `waiting` those that have not started."""

    limits: Limits
    running: list[Request] = field(default_factory=list)
    out: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)

    def blocks(self, request: Request) -> int:
        tokens = request.isl + request.osl - 1 if self.limits.reserves else request.whole()
        return -(-tokens // self.limits.block_tokens)

    def used(self) -> int:
        return sum(self.blocks(request) for request in self.running)

    def takes(self, request: Request, now: float) -> bool:
        """Whether a request that comes may wait."""
        limits, request.arrival = self.limits, now
        most = -(-(request.isl + request.osl - 1) // limits.block_tokens)
        if most > limits.kv_blocks or request.isl + request.osl > limits.max_tokens:
            request.state = REFUSED
        elif len(self.waiting) >= limits.queue_cap:
            request.state = REJECTED
        else:
            self.waiting.append(request)
        return request.state == UNFINISHED

    def plan(self) -> dict[int, int]:
        """Preempts, then admits; returns the prompt tokens of each request of the step."""
        limits, chunks = self.limits, {}
        preempted = False
        while self.used() > limits.kv_blocks:
            newest = max(self.running, key=lambda request: request.number)
            self.running.remove(newest)
            self.out = [newest, *self.out]
            newest.preemptions += 1
            newest.kept = limits.resumes and newest.prompt == 0
            newest.prompt = 0
            preempted = True
        decoding = sum(request.prompt == 0 for request in self.running)
        room = limits.step_tokens - (decoding if limits.mixes else 0)
        for request in self.running:
            if request.prompt:
                chunks[request.number] = min(request.prompt - request.cached, room)
                room -= chunks[request.number]
        while not preempted and len(self.running) < limits.slots:
            queue = self.out or self.waiting
            if not queue:
                break
            request = queue[0]
            work = 0 if request.kept else request.whole()
            fits = self.used() + self.blocks(request) <= limits.kv_blocks
            fits &= room > 0 if limits.chunked else (work <= room or not chunks)
            if not fits:
                break
            queue.pop(0)
            self.running.append(request)
            request.kept = False
            if work:
                request.prompt, request.cached = work, 0
                chunks[request.number] = min(work, room) if limits.chunked else work
                room -= chunks[request.number]
            elif limits.mixes:
                room -= 1
        return chunks


def simulate(
    step_s: Callable[[int, float, list[tuple[int, int]]], float],
    limits: Limits,
    isl: np.ndarray,
    osl: np.ndarray,
    gaps: np.ndarray,
    clients: int = 0,
    late: bool = False,
    horizon: float = math.inf,
) -> Run:
    """Serves the requests. `step_s(decoding, mean context, [(chunk, past)])` is the time of a step."""
    requests = [Request(i, int(a), int(b)) for i, (a, b) in enumerate(zip(isl, osl, strict=True))]
    times = np.cumsum(gaps.astype(float))
    run, server = Run(requests), Server(limits)
    come, owed, sent, ending = 0, clients, 0.0, 0
    while run.now < horizon:
        if not clients and come < len(requests) and not (server.running or server.out or server.waiting):
            run.now = max(run.now, min(times[come], horizon))
            if run.now >= horizon:
                break
        if not (server.running or server.out or server.waiting or owed):
            owed, ending, sent = ending, 0, run.now
        while come < len(requests) and (owed > 0 if clients else times[come] <= run.now):
            owed -= server.takes(requests[come], sent if clients else times[come])
            come += 1
        chunks = server.plan()
        if not server.running:
            if come == len(requests) and not (server.out or server.waiting):
                break
            assert not clients or come < len(requests)
            continue
        decoding = [r for r in server.running if r.prompt == 0] if limits.mixes or not chunks else []
        mean = float(np.mean([r.whole() for r in decoding])) if decoding else 0.0
        run.peak = max(run.peak, server.used())
        passed = step_s(len(decoding), mean, [(n, requests[i].cached) for i, n in chunks.items()])
        owed, ending, sent = owed + ending, 0, run.now
        run.now, run.busy, run.steps = run.now + passed, run.busy + passed, run.steps + 1
        run.prompt_tokens += sum(chunks.values())
        for request in list(server.running):
            if request.prompt:
                request.cached += chunks[request.number]
                if request.cached < request.prompt:
                    continue
                request.prompt = 0
            elif request not in decoding:
                continue
            request.made += 1
            if request.made == 1:
                request.first = run.now
            if request.made == request.osl:
                request.end, request.state = run.now, COMPLETED
                server.running.remove(request)
                ending += 1 if clients else 0
        if not late:
            owed, ending, sent = owed + ending, 0, run.now
    while not clients and come < len(requests) and times[come] <= horizon:
        server.takes(requests[come], times[come])
        come += 1
    return run


def tabulated(
    running: np.ndarray,
    context: np.ndarray,
    decode_s: np.ndarray,
    tokens: np.ndarray,
    shared_s: np.ndarray,
    chunk: np.ndarray,
    past: np.ndarray,
    prompt_s: np.ndarray,
    prompt_host_s: np.ndarray,
    overlaps: np.ndarray,
) -> Callable[[int, float, list[tuple[int, int]]], float]:
    """The time of a step by tables that are linear between knots and beyond the last."""

    def cell(knots: np.ndarray, x: float) -> tuple[int, float]:
        i = min(max(int(np.searchsorted(knots, x, side="right")) - 1, 0), len(knots) - 2)
        return i, (x - knots[i]) / (knots[i + 1] - knots[i])

    def line(knots: np.ndarray, values: np.ndarray, x: float) -> float:
        i, share = cell(knots, x)
        return values[i] + share * (values[i + 1] - values[i])

    def plane(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, x: float, y: float) -> float:
        return line(columns, np.array([line(rows, column, x) for column in values.T]), y)

    def step_s(decoding: int, mean: float, prompts: list[tuple[int, int]]) -> float:
        work = sum(plane(chunk, past, prompt_s, c, p) + (float(prompt_host_s) if p == 0 else 0.0) for c, p in prompts)
        if overlaps:
            count = decoding + len(prompts)
            total = decoding * mean + sum(c + p for c, p in prompts)
            return max(plane(running, context, decode_s, count, total / count), work)
        added = line(tokens, shared_s, decoding + sum(c for c, _ in prompts)) - line(tokens, shared_s, decoding)
        return plane(running, context, decode_s, decoding, mean) + (added + work if prompts else 0.0)

    return step_s
