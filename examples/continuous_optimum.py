# SPDX-License-Identifier: Apache-2.0
"""For the researcher: batches, prefill budgets and worker counts as real numbers, optimised by gradients.

Step times are evaluated once, at whole numbers, and read in between on straight lines; the serving formulas are the
library's own. Latency limits enter by an augmented Lagrangian; memory is left out. What comes out is rounded. An
exhaustive search says what that lost: measured step times have cliffs, and now and then all starts miss a ridge.

    python examples/continuous_optimum.py
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import aicjax
from aicjax.forward import step_queries
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate
from aicjax.serving.load import Load
from aicjax.serving.point import StepParts, plan_points, point_estimate, serving_numbers, setting_of
from aicjax.serving.relaxed import RelaxedPlan, between, relaxed_plan
from aicjax.serving.replica import replica_constants, worker_cost
from aicjax.serving.static import decode_samples, static_estimate

SYSTEM, BACKEND, MODEL = "h200_sxm", "trtllm", aicjax.load_model("Qwen/Qwen3-32B-FP8")
ROUNDS, STEPS, STARTS, KEPT = 8, 60, 512, 32  # multiplier updates, Adam steps of each; starts of a layout, rounded ones
Found = tuple[float, str, int]  # the best tokens/s/gpu, where, and how many evaluations that took


class Case(NamedTuple):
    """Requests, latency limits [ms], tensor parallel sizes, and the largest whole numbers to try."""

    load: Load = Load(isl=2000, osl=400)
    ttft: float = 600.0
    tpot: float = 15.0
    tp: tuple[int, ...] = (1, 2, 4)
    batch: int = 128
    ctx_tokens: int = 8192
    prefill_batch: int = 4
    gpus: int = 16


def bind(case: Case) -> aicjax.BoundModel:
    """The model in all layouts."""
    system, version = aicjax.load_system(SYSTEM), aicjax.resolve_version(SYSTEM, BACKEND, None)
    formats = aicjax.resolve_quantisation(MODEL, system, BACKEND, version, {}, role_runs_prefill=True)
    lists = [aicjax.op_lists(MODEL, aicjax.Parallel(tp), formats, BACKEND) for tp in case.tp]
    return aicjax.bind(system, BACKEND, version, lists)


@jax.jit(static_argnames="problem")
def maximise(problem: Any, data: Any, high: Any) -> tuple[Any, Any]:
    """Points up to `high` [layout, start, axis] and their rates, 0 for those that end beyond a limit.

    `problem(data, point)` gives the logarithms of the rate and of each limited figure over its limit.
    """
    adam, scale = optax.scale_by_adam(), jnp.log(high)
    weights, lengths = jnp.geomspace(10, 100, ROUNDS), jnp.geomspace(1, 0.05, ROUNDS)
    reach = jnp.geomspace(0.03, 0.003, STARTS)  # of first steps: some starts go far, some stay by a cliff
    starts = jax.random.uniform(jax.random.key(0), (STARTS, len(high)), minval=-3, maxval=3)

    def point(z):
        return jnp.exp(scale * jax.nn.sigmoid(z))

    def one(data, start, reach):
        def lagrangian(z, multipliers, weight):
            gain, excess = problem(data, point(z))
            return jnp.sum(jax.nn.relu(multipliers + weight * excess) ** 2) / (2 * weight) - gain

        def update(carry, schedule):
            (z, multipliers), (weight, length) = carry, schedule

            def step(carry, _):
                change, state = adam.update(jax.grad(lagrangian)(carry[0], multipliers, weight), carry[1])
                return (carry[0] - reach * length * change, state), None

            (z, _), _ = jax.lax.scan(step, (z, adam.init(z)), length=STEPS)
            return (z, jax.nn.relu(multipliers + weight * problem(data, point(z))[1])), None

        (z, _), _ = jax.lax.scan(update, (start, jnp.zeros_like(problem(data, point(start))[1])), (weights, lengths))
        gain, excess = problem(data, point(z))
        return point(z), jnp.where(jnp.max(excess) < 0.01, jnp.exp(gain), 0.0)  # rounding mends one percent

    return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))(data, starts, reach)


def compare(problem: Any, data: Any, high: Any, labels: Any, near: Any, figures: Any, plan_of: Any) -> list[Found]:
    """Relaxed, rounded and exhaustive optimum over layouts, the first axis of `data`, and the axes of a box.

    `near(point)` are the whole neighbours of a real point; `figures(data, plan_of(points))` is `problem` at whole ones.
    """
    exact = jax.jit(jax.vmap(figures, (None, 0)))
    points, found = jax.device_get(maximise(problem, data, np.array(high, np.float32)))
    best = np.unravel_index(np.argmax(found), found.shape)
    where = f"tp {labels[best[0]]} at {points[best].astype(float).round(2).tolist()}"
    answer = [(float(found[best]), where, found.size * ROUNDS * STEPS)]
    tops = np.take_along_axis(points, np.argsort(-found, axis=1)[:, :KEPT, None], axis=1)
    rounded = [np.array(sorted({at for point in top for at in near(point)})) for top in tops]
    for candidates in (rounded, [np.indices(high).reshape(len(high), -1).T + 1] * len(labels)):
        rates = []
        for layout, tried in enumerate(candidates):
            gain, excess = jax.device_get(exact([part[layout] for part in data], plan_of(tried)))
            rates.append(np.where((np.max(excess, -1) <= 0) & (tried <= high).all(1), np.exp(gain), 0.0))
        at = int(np.argmax([rate.max() for rate in rates]))
        where = f"tp {labels[at]} at {candidates[at][np.argmax(rates[at])].tolist()}"
        answer.append((float(rates[at].max()), where, sum(map(len, candidates))))
    return answer


def whole(value: float) -> set[int]:
    return {max(1, int(value)), int(np.ceil(value))}


def in_flight(case: Case) -> list[Found]:
    """Over layout and (batch, ctx_tokens) of in-flight batching."""
    bound, load = bind(case), case.load
    setting, numbers = setting_of(load, MODEL.layers), serving_numbers(bound.constants)
    most = (case.ctx_tokens + case.batch, -(-case.ctx_tokens // load.isl), case.batch)
    tokens, prompts, rows = (np.maximum(np.arange(count + 1), 1) for count in most)  # nothing runs at zero
    curves = bound.evaluate(step_queries(
        context_batch=1, context_new=tokens, context_prefix=0, prefill_batch=prompts, prefill_new=load.isl,
        prefill_prefix=0, generation_rows=rows, decode_rows=rows, decode_length=load.mid_kv_len,
    ))  # fmt: skip
    parts = (curves.context_rest_ms, curves.context_attention_ms, curves.generation_attention_ms)
    parts += (curves.generation_rest_ms, np.array(case.tp, np.float32))

    def figures(data: Any, plan: RelaxedPlan) -> tuple[Any, Any]:
        rest, prompts, attention, decode, gpus = data
        counts = ((rest, plan.shared_tokens), (prompts, plan.attended), (attention, plan.decode_rows))
        counts += ((decode, plan.batch), (attention, plan.batch))
        steps = StepParts(*(between(curve, count) for curve, count in counts))
        found = point_estimate(steps, plan.point, setting, numbers)
        held = jnp.maximum(plan.prompts, plan.room)
        room = held / jnp.maximum(plan.batch - 1, 1)  # a mixed step keeps a decode row
        over = jnp.stack([found.ttft_ms / case.ttft, found.tpot_ms / case.tpot, room])
        return jnp.log(found.seq_per_s * (load.osl - 1) / gpus), jnp.log(over)

    def problem(data: Any, point: Any) -> tuple[Any, Any]:
        return figures(data, relaxed_plan(load, point[0], point[1], bound.constants, spread=True))

    def plan_of(points: np.ndarray) -> RelaxedPlan:
        batches, budgets = points.T
        return RelaxedPlan.of(plan_points(load, batches, budgets, bound.constants, spread=True))

    def near(point: np.ndarray) -> set[tuple[int, int]]:
        """Budgets just large enough for a number of steps, chunks or prompts; ceilings may cost a few requests."""
        batches = whole(point[0]) | {max(1, int(point[0]) - fewer) for fewer in range(6)}
        budgets = {-(-load.isl // chunks) for chunks in whole(load.isl / point[1])}
        budgets |= {load.isl * prompts for prompts in whole(point[1] / load.isl)}
        pairs = {(b, -(-load.isl * b // steps)) for b in batches for steps in whole(load.isl * b / point[1])}
        return pairs | set(itertools.product(batches, budgets))

    return compare(problem, parts, (case.batch, case.ctx_tokens), case.tp, near, figures, plan_of)


def disaggregated(case: Case) -> list[Found]:
    """Over layouts of both sides and (batch, batch, workers, workers) of prefill and decode."""
    bound, load, (lengths, weights) = bind(case), case.load, decode_samples(case.load, 32)
    prompts, rows = (np.maximum(np.arange(most + 1), 1) for most in (case.prefill_batch, case.batch))
    curves = bound.evaluate(step_queries(
        context_batch=prompts, context_new=load.isl, context_prefix=0, prefill_batch=prompts, prefill_new=load.isl,
        prefill_prefix=0, generation_rows=rows, decode_rows=np.repeat(rows, len(lengths)),
        decode_length=np.tile(lengths, len(rows)),
    ))  # fmt: skip
    attention = curves.generation_attention_ms.reshape(len(case.tp), len(rows), -1)
    decode = (curves.generation_rest_ms[..., None] + attention) @ weights.astype(np.float32)
    prefill, constants = curves.context_rest_ms + curves.context_attention_ms, replica_constants(bound.constants)
    prefill = worker_cost(bound.constants, "prefill", MODEL.layers).prefill_ms(prefill)
    decode = worker_cost(bound.constants, "decode", MODEL.layers).decode_ms(decode, rows, load.osl - 1)

    def problem(data: Any, point: Any) -> tuple[Any, Any]:
        p_ms, d_ms = (between(curve, batch) for curve, batch in zip(data[:2], point[:2], strict=True))
        p = static_estimate("static_ctx", p_ms, 0.0, point[0], load.osl)
        d = static_estimate("static_gen", 0.0, d_ms, point[1], load.osl)
        first, second = Workers(p.seq_per_s, data[2]), Workers(d.seq_per_s, data[3])
        counts = WorkerCounts(point[2], point[3], 0 * point[2])
        found = disagg_estimate(first, second, counts, p.ttft_ms, d.tpot_ms, load.osl, constants, xp=jnp)
        over = jnp.stack([found.ttft_ms / case.ttft, found.tpot_ms / case.tpot, found.gpus / case.gpus])
        return jnp.log(found.tokens_per_s / found.gpus), jnp.log(over)

    def near(point: np.ndarray) -> set[tuple[int, ...]]:
        """Workers in about the same ratio: their number as such changes nothing per GPU."""
        ratios = {(p, d) for d in range(1, case.gpus) for p in whole(point[2] / point[3] * d)}
        return {(b, rows, *ratio) for b in whole(point[0]) for rows in whole(point[1]) for ratio in ratios}

    (p, d), sizes = np.indices((len(case.tp),) * 2).reshape(2, -1), np.array(case.tp, np.float32)
    data = (prefill[p], decode[d], sizes[p], sizes[d])
    high, labels = (case.prefill_batch, case.batch, case.gpus, case.gpus), list(itertools.product(case.tp, repeat=2))
    return compare(problem, data, high, labels, near, problem, lambda points: points.astype(np.float32))


def main(case: Case) -> None:
    for name, answer in (("in flight", in_flight(case)), ("disaggregated", disaggregated(case))):
        print(f"{name}, best tokens/s/gpu:")
        for how, (rate, where, evaluations) in zip(("relaxed", "rounded", "exhaustive"), answer, strict=True):
            print(f"{how:>12} {rate:9.2f}  {where:44} {evaluations:>9,} evaluations")
        print(f"{'gap':>12} {1 - answer[1][0] / answer[2][0]:9.2%}")


if __name__ == "__main__":
    main(Case())
