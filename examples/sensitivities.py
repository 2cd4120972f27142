# SPDX-License-Identifier: Apache-2.0
"""For the researcher: the engine inside a JAX program, and gradients of throughput through it.

Which empirical constant moves the predicted throughput and TTFT of a configuration, and by how much? One gradient
through the operators, the step times and the serving formula answers for all of them. The same gradient drives a fit
of the constants to measurements.

    python examples/sensitivities.py
"""

import jax
import jax.numpy as jnp

import aicjax
from aicjax.forward import bind, step_queries, step_times
from aicjax.serving.agg import AggPoint
from aicjax.serving.load import Load
from aicjax.serving.point import StepParts, plan_points, point_estimate, serving_numbers, setting_of

BATCH, CTX_TOKENS = 16, 4000
LOAD = Load(isl=4000, osl=500, prefix=500)


def main() -> None:
    system, backend = aicjax.load_system("h200_sxm"), "trtllm"
    version = aicjax.resolve_version(system.name, backend, None)
    model = aicjax.load_model("Qwen/Qwen3-32B-FP8")
    quantisation = aicjax.resolve_quantisation(model, system, backend, version, {}, role_runs_prefill=True)
    layout = aicjax.Parallel(tp=4)
    bound = bind(system, backend, version, [aicjax.op_lists(model, layout, quantisation, backend)])
    arrays = jax.device_put(bound.arrays)

    constants = jax.tree.map(jnp.asarray, aicjax.load_constants(backend))
    plan = plan_points(LOAD, BATCH, CTX_TOKENS, constants, spread=True)
    queries = step_queries(
        context_batch=1,
        context_new=plan.shared_tokens,
        context_prefix=plan.shared_prefix,
        prefill_batch=plan.attended,
        prefill_new=LOAD.new_tokens,
        prefill_prefix=LOAD.prefix,
        generation_rows=BATCH,
        decode_rows=[plan.decode_rows.item(), BATCH],
        decode_length=LOAD.mid_kv_len,
    )
    counts = ("batch", "prefill_steps", "chunks", "drains", "prompts", "room")
    point = AggPoint(*(getattr(plan, name).item() for name in counts))
    setting = setting_of(LOAD, model.layers)

    def estimate(constants: aicjax.Constants):
        times = step_times(arrays, queries, constants.op)
        attention, rest = times.generation_attention.total_ms[0], times.generation_rest.total_ms[0, 0]
        prompts_ms = times.context_rest.total_ms[0, 0], times.context_attention.total_ms[0, 0]
        parts = StepParts(*prompts_ms, attention[0], rest, attention[1])
        return point_estimate(parts, point, setting, serving_numbers(constants))

    def log_figures(constants: aicjax.Constants):
        figures = estimate(constants)
        return jnp.log(figures.seq_per_s), jnp.log(figures.ttft_ms)

    figures = jax.jit(estimate)(constants)
    per_gpu = float(figures.seq_per_s) * (LOAD.osl - 1) / layout.gpus  # the prefill's token is not counted
    print(f"TTFT {float(figures.ttft_ms):.2f} ms, TPOT {float(figures.tpot_ms):.3f} ms, {per_gpu:.1f} tokens/s/gpu")

    throughput, ttft = jax.jit(jax.jacrev(log_figures))(constants)
    print("change in percent for one percent more of a constant:")
    print(f"{'':>38}  throughput     TTFT")
    values = jax.tree_util.tree_leaves_with_path(constants)
    for (path, value), by_rate, by_ttft in zip(values, jax.tree.leaves(throughput), jax.tree.leaves(ttft), strict=True):
        if value * by_rate or value * by_ttft:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            print(f"{name:>38}  {float(value * by_rate):+10.4f} {float(value * by_ttft):+8.4f}")


if __name__ == "__main__":
    main()
