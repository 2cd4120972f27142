# SPDX-License-Identifier: Apache-2.0
"""Where routers of the fleet reference send two hundred requests, without load."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet.routing import (
    PoolCounts,
    Requests,
    Route,
    compress_route,
    fit_route,
    label_route,
    least_loaded_route,
    length_route,
    pool_under_load,
    random_route,
    spillover_route,
)
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.traces import pool_labels
from benchmarks.fleet_cases import Row

POOLS = {"l": 32768, "s": 2048, "m": 8192}
THRESHOLD = 4096
SAFE = ("prose", "rag", "mixed")  # categories whose prompts may be shortened


def rows(answers: Mapping[str, Any], path: Path) -> Iterable[Row]:
    """Pool, prompt and compression of every request by every router, and the counts of compressing ones."""
    del path
    isl, osl, category, model = (list(column) for column in zip(*answers["requests"], strict=True))
    safe = jnp.asarray([kind in SAFE for kind in category])
    requests = Requests(jnp.asarray(isl, jnp.int32), jnp.asarray(osl, jnp.int32), safe)
    for name, route in _routes(requests, category, model).items():
        stored = answers["routers"][name]
        pool = np.asarray(jax.vmap(_without_load)(route))
        taken = zip((list(POOLS)[i] for i in pool), route.isl.tolist(), route.compressed.tolist(), strict=True)
        yield Row(name, [list(one) for one in taken], stored["decisions"], "exact")
        if stored["stats"]:
            yield Row(f"{name} counts", _counts(requests, route, stored["stats"]), stored["stats"], "exact")


def _without_load(route: Route) -> jax.Array:
    """The pool of a request when nothing runs."""
    none = jnp.zeros(len(POOLS), jnp.int32)
    idle = PoolCounts(active=none, waiting=none, slots=none + 100, replicas=none + 1)
    return pool_under_load(route, idle, jnp.ones(len(POOLS), bool), FLEET_REFERENCE)


def stored_draws(seed: int, used: np.ndarray) -> np.ndarray:
    """Draws of the reference's generator, which draws for some of the requests alone; 0 for the others."""
    generator = random.Random(seed)
    return np.array([generator.random() if drawn else 0.0 for drawn in used])


def stored_choices(seed: int, pools: int, n: int) -> np.ndarray:
    """Uniform draws in [0, 1) that choose the pools which the reference's generator chooses."""
    generator = random.Random(seed)
    return np.array([(generator.choice(range(pools)) + 0.5) / pools for _ in range(n)])


def borderline(requests: Requests, threshold: int, gamma: float) -> np.ndarray:
    """Requests that a compressing router tries."""
    total = np.asarray(requests.total)
    return (total > threshold) & (total <= gamma * threshold)


def _routes(requests: Requests, category: list[str], model: list[str | None]) -> dict[str, Route]:
    limits, names = jnp.asarray(list(POOLS.values()), jnp.int32), list(POOLS)
    models = jnp.asarray(pool_labels([name or "" for name in model], names))
    short = np.asarray(requests.total) <= POOLS["s"]
    topic = ["s" if fits else "m" if kind == "chat" else "" for fits, kind in zip(short, category, strict=True)]
    tried = borderline(requests, THRESHOLD, 2.0) & np.asarray(requests.compressible)
    none, n = jnp.zeros(len(category)), len(category)
    return {
        "length_fit": fit_route(requests, limits),
        "length_thr": length_route(requests, limits, THRESHOLD),
        "model": label_route(requests, models, 0),
        "model_def": label_route(requests, models, names.index("m")),
        "semantic": label_route(requests, jnp.asarray(pool_labels(topic, names)), 0),
        "random0": random_route(requests, limits, jnp.asarray(stored_choices(0, 3, n)), FLEET_REFERENCE),
        "cr": compress_route(requests, limits, THRESHOLD, 1.5, 1.0, 0.0, none),
        "cr_p": compress_route(requests, limits, THRESHOLD, 2.0, 0.5, 0.0, jnp.asarray(stored_draws(3, tried))),
        "spill_nolive": spillover_route(requests, limits, THRESHOLD, 0.85),
        "least_nolive": least_loaded_route(requests),
    }


def _counts(requests: Requests, route: Route, stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a compressing router counts; the shares of the stored answers have four digits."""
    short = np.asarray(route.pool) == list(POOLS).index("s")
    compressed = np.asarray(route.compressed)
    return {
        "B_short": THRESHOLD,
        "gamma": stored["gamma"],
        "n_short": int(short.sum()),
        "n_long": int((~short).sum()),
        "n_compressed": int(compressed.sum()),
        "n_borderline_unsafe": int((borderline(requests, THRESHOLD, stored["gamma"]) & ~compressed).sum()),
        "alpha": round(float(short.mean()), 4),
    }
