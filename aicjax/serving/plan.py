# SPDX-License-Identifier: Apache-2.0
"""In-flight batching: what each engine step holds, as integers decided on the host.

`plan_agg`: a cycle serves `batch` requests. Every step may take up to `ctx_tokens` prompt tokens: mixed steps carry
them together with decode rows until all prompts are in, decode steps finish the answers. Floors of quotients sit on
ties (a batch divided by a ratio that is an integer), so they are taken in float64, in the order of operations of
AIConfigurator 0.12.0.

`plan_loop`: a closed loop, in which prompts come one by one, as answers end.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax.serving.load import Load

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class AggPlan:
    """The steps of one cycle, or of a closed loop, for every point of a (batch, ctx_tokens) grid; of any model.

    All arrays have the broadcast shape of `batch` and `ctx_tokens`.

    Attributes:
        batch: Requests in flight of one attention rank.
        ctx_tokens: Prompt tokens of a mixed step, cached ones included.
        prefill_steps: Steps that it takes to put all prompts in.
        prompts: Prompts that a mixed step touches.
        chunks: Steps over which one prompt is spread.
        decode_rows: Requests that decode in a mixed step.
        shared_tokens: Tokens of a mixed step that pass everything but attention: prompts, decode rows and their drafts.
        shared_prefix: Cached tokens of the whole prompts of a mixed step.
        drains: Whether the cycle has steps without prompts, whose drain shortens the mixed part of TPOT.
        step_prompts, step_decodes, step_tokens: Prompts, decoding requests and tokens of a step, as reported and as the
            memory model counts them.
        balance: Prompt tokens of a cycle over what its decode iterations could take in.
        attended: Prompts whose attention is priced in one pass.
        room: Prompts that a step has room for; a fraction where a prompt takes several steps.
        inside: Whether a step leaves room for a decode row.
        budget_class: What a budget amounts to where only that counts: its whole prompts, or minus the steps of a
            prompt; 0 where every token counts.
    """

    batch: Counts
    ctx_tokens: Counts
    prefill_steps: Counts
    prompts: Counts
    chunks: Counts
    decode_rows: Counts
    shared_tokens: Counts
    shared_prefix: Counts
    drains: NDArray[np.bool_]
    step_prompts: Counts
    step_decodes: Counts
    step_tokens: Counts
    balance: NDArray[np.float64]
    attended: Counts
    room: NDArray[np.float64]
    inside: NDArray[np.bool_]
    budget_class: Counts

    @property
    def repeats(self) -> NDArray[np.bool_]:
        """Points of a grid [..., ctx] whose budget amounts to the same as a smaller one of the grid."""
        kind, ctx_tokens = (values.reshape(-1, values.shape[-1])[0] for values in (self.budget_class, self.ctx_tokens))
        order = np.argsort(ctx_tokens, kind="stable")
        least = np.zeros(kind.shape, bool)
        least[order[np.unique(kind[order], return_index=True)[1]]] = True
        return np.broadcast_to(~least & (kind != 0), self.budget_class.shape)


def plan_agg(load: Load, batch: ArrayLike, ctx_tokens: ArrayLike, *, spread_decode_rows: bool) -> AggPlan:
    """The plan of each (batch, ctx_tokens) point.

    With I prompt tokens, budget C and D decode iterations a request, the prompts of a batch b take S = ceil(I b / C)
    steps. A mixed step decodes b - ceil(C / I) requests; when the prompts outlast the decode iterations (S >= D) and
    the scheduler spreads the decode rows, floor(b / (S / D)); at least one, and none for a single request.

    Args:
        load: The requests.
        batch: Requests in flight, >= 1; any shape.
        ctx_tokens: Prompt tokens of a mixed step, >= 1; broadcasts with `batch`.
        spread_decode_rows: Whether the scheduler spreads decode rows evenly over a cycle of mixed steps only.
    """
    b, C = np.asarray(batch, np.int64), np.asarray(ctx_tokens, np.int64)
    isl = load.isl
    single, held = b == 1, C // isl
    prompts, chunks, steps = _ceil_div(C, isl), _ceil_div(isl, C), _ceil_div(isl * b, C)
    saturated = steps >= load.iterations
    rows = np.maximum(1, b - prompts)
    if spread_decode_rows:
        spread = np.maximum(1, (b // (steps / load.iterations)).astype(np.int64))
        rows = np.where(saturated, spread, rows)
    rows = np.where(single, 0, rows)
    decodes = b - prompts
    fields = {
        "batch": b,
        "ctx_tokens": C,
        "prefill_steps": steps,
        "prompts": prompts,
        "chunks": chunks,
        "decode_rows": rows,
        "shared_tokens": C + rows * load.query_rows - load.prefix * held,
        "shared_prefix": load.prefix * held,
        "drains": ~saturated,
        "step_prompts": np.where(single, 1, prompts),
        "step_decodes": np.where(single, 1, decodes),
        "step_tokens": np.where(single, C, decodes + C),
        "balance": isl * b / C / load.iterations,
        "attended": prompts,
        "room": _room(C, isl),
        "inside": _inside(b, prompts),
        "budget_class": np.zeros_like(C),
    }
    return AggPlan(**{name: np.broadcast_to(values, steps.shape) for name, values in fields.items()})


def plan_loop(load: Load, batch: ArrayLike, ctx_tokens: ArrayLike, *, mixes: bool) -> AggPlan:
    """The plan of each (batch, ctx_tokens) point of a closed loop.

    With I prompt tokens, budget C and D decode iterations a request, 1 + (b - 1) / D prompts come together, rounded; a
    step takes as many of them as its budget holds, C / I in whole. A prompt longer than the budget is cut evenly into
    ceil(I / C) steps. All b requests count as decode rows beside them, so that a step costs what its prompts add.

    Args:
        load: The requests, with mean lengths.
        batch: Requests in flight, >= 1; any shape.
        ctx_tokens: Prompt tokens of a step, >= 1; broadcasts with `batch`.
        mixes: Whether steps with prompts hold decode rows.
    """
    b, C = (np.asarray(a, np.int64) for a in np.broadcast_arrays(batch, ctx_tokens))
    isl = load.isl
    held, chunks = C // isl, _ceil_div(isl, C)
    prompts = np.maximum(1, np.minimum(held, np.floor(1.5 + (b - 1) / load.iterations).astype(np.int64)))
    tokens = np.where(held > 0, prompts * load.new_tokens, _ceil_div(load.new_tokens, chunks))
    rows = np.where((b > 1) & (load.osl > 1) & mixes, b, 0)
    return AggPlan(
        batch=b,
        ctx_tokens=C,
        prefill_steps=_ceil_div(b * chunks, prompts),
        prompts=prompts,
        chunks=chunks,
        decode_rows=rows,
        shared_tokens=tokens + rows * load.query_rows,
        shared_prefix=np.where(held > 0, prompts * load.prefix, 0),
        drains=np.full(b.shape, load.osl > 1),
        step_prompts=prompts,
        step_decodes=np.where(b > 1, rows, 1),
        step_tokens=tokens + rows,
        balance=isl * b / C / load.iterations,
        attended=np.ones_like(b),
        room=_room(C, isl),
        inside=_inside(b, _ceil_div(C, isl)),
        budget_class=np.where(held > 0, held, -chunks),
    )


def full_prompts(load: Load, ctx_tokens: ArrayLike) -> tuple[Counts, Counts]:
    """Prompt tokens, and cached ones, of a step of a closed loop that holds nothing but as many prompts as fit."""
    C = np.asarray(ctx_tokens, np.int64)
    held = C // load.isl
    part = _ceil_div(load.new_tokens, _ceil_div(load.isl, C))
    return np.where(held > 0, held * load.new_tokens, part), held * load.prefix


def equivalence_class(load: Load, batch: ArrayLike, ctx_tokens: ArrayLike) -> Counts:
    """Which points of a sweep count as the same: the decode rows of a cycle whose prompts outlast the answers.

    k = I b / C / osl; the class is floor(b / k) where k > 1, and 0 (a class of its own) elsewhere. A sweep without
    speculative progress evaluates the first point of each class above 1.
    """
    b, C = (np.asarray(a, np.int64) for a in np.broadcast_arrays(batch, ctx_tokens))
    ratio = load.isl * b / C / load.osl
    return np.where(ratio > 1, b // ratio, 0).astype(np.int64)


def _room(ctx_tokens: Counts, isl: int) -> NDArray[np.float64]:
    """Prompts that a budget holds: in whole, or the share of one that a step takes."""
    held = ctx_tokens // isl
    return np.where(held > 0, held, 1.0 / _ceil_div(isl, ctx_tokens))


def _inside(batch: Counts, prompts: Counts) -> NDArray[np.bool_]:
    return batch - prompts >= np.where(batch > 1, 1, 0)


def _ceil_div(a: Counts | int, b: Counts | int) -> Counts:
    return -(-np.asarray(a, np.int64) // b)
