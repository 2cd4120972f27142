# SPDX-License-Identifier: Apache-2.0
"""How requests are shared among pools, against a request at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.cdf import load_lengths
from aicjax.fleet.lengths import from_cdf, from_pairs
from aicjax.fleet.pools import Compression, only_pool, prefill_share, split
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import Profile, service_s, stacked
from tests.fleet.sizing_programs import SERVICES, SPLIT

ISL = np.array([100, 400, 800, 1500, 1700, 2600, 3500, 5000, 7000, 9000])
OSL = np.array([20, 900, 100, 300, 2300, 300, 100, 900, 500, 400])
LENGTHS = from_pairs(ISL, OSL)
AZURE = from_cdf(load_lengths("azure").knots)


def _profiles(count: int) -> Profile:
    return stacked([preset("a100")] * count)


def _routed(
    thresholds: list[float], limit: float, gamma: float, success: float
) -> list[dict[tuple[float, float], float]]:
    """Share of the requests of each (isl, osl) that each pool serves."""
    tops = [*thresholds, limit]
    served: list[dict[tuple[float, float], float]] = [{} for _ in tops]

    def send(pool: int, isl: float, osl: float, share: float) -> None:
        served[pool][isl, osl] = served[pool].get((isl, osl), 0.0) + share

    for isl, osl in zip(ISL.tolist(), OSL.tolist(), strict=True):
        total, share = isl + osl, 1 / len(ISL)
        home = next((pool for pool, top in enumerate(tops) if total <= top), None)
        if home is None:
            continue
        shorter = next((pool for pool, top in enumerate(thresholds) if total <= gamma * top), home)
        if shorter < home and osl < tops[shorter]:
            send(shorter, tops[shorter] - osl, osl, share * success)
            send(home, isl, osl, share * (1 - success))
        else:
            send(home, isl, osl, share)
    return served


@pytest.mark.parametrize("gamma", [1.0, 1.2, 2.0, 4.0])
@pytest.mark.parametrize("thresholds", [[2000.0], [1000.0, 1500.0, 4000.0]])
def test_each_request_goes_where_the_rules_send_it(thresholds: list[float], gamma: float):
    limit, success = 8000.0, 0.75
    pools = split(
        _profiles(len(thresholds) + 1), LENGTHS, jnp.asarray(thresholds), limit, Compression(gamma, success, 0.0)
    )
    for pool, wanted in enumerate(_routed(thresholds, limit, gamma, success)):
        isl, osl, weight = (np.asarray(leaf)[pool] for leaf in pools.lengths)
        found: dict[tuple[float, float], float] = {}
        for row in np.flatnonzero(weight * float(pools.share[pool]) > 1e-9):
            key = float(isl[row]), float(osl[row])
            found[key] = found.get(key, 0.0) + float(weight[row] * pools.share[pool])
        assert found == pytest.approx({key: share for key, share in wanted.items() if share > 0}, abs=1e-6)


@settings(max_examples=15)
@given(st.lists(st.floats(1, 60000), min_size=2, max_size=2), st.floats(1, 3), st.floats(0, 1))
def test_no_request_and_no_output_token_is_lost(thresholds: list[float], gamma: float, success: float):
    pools = SPLIT(_profiles(3), AZURE, jnp.sort(jnp.asarray(thresholds)), 65536.0, Compression(gamma, success, 0.0))
    assert float(pools.share.sum()) == pytest.approx(1, abs=1e-5)
    assert float(pools.share.min()) >= 0
    written = jnp.sum(pools.share[:, None] * pools.lengths.weight * pools.lengths.osl)
    assert float(written) == pytest.approx(float(np.sum(AZURE.weight * AZURE.osl)), rel=1e-4)
    tops = np.asarray(pools.max_tokens)[:, None]
    used = np.asarray(pools.lengths.weight * pools.share[:, None]) > 1e-6
    assert (used * np.asarray(pools.lengths.isl + pools.lengths.osl) <= 1.05 * tops + 1.0).all(), (
        "points count in part near a threshold"
    )


def test_threshold_between_knots_loses_no_mass_and_the_long_law_starts_above_it():
    """The fleet reference drops what lies between the last knot and the threshold, and draws long requests below it."""
    pools = SPLIT(_profiles(2), AZURE, jnp.asarray([5000.0]), 65536.0, Compression(1.0, 0.75, 0.0))
    total, weight = np.asarray(pools.lengths.isl + pools.lengths.osl), np.asarray(pools.lengths.weight)
    between = (total[0] > 4096) & (total[0] <= 5000)
    assert weight[0][between].sum() > 0.01
    assert weight[1][total[1] < 4990].sum() == pytest.approx(0, abs=1e-6)


def test_compressed_requests_wait_for_their_compression():
    """The fleet reference documents the latency and does not apply it."""
    late = SPLIT(_profiles(2), LENGTHS, jnp.asarray([2000.0]), 8000.0, Compression(2.0, 1.0, 0.5))
    free = late._replace(delay_s=jnp.zeros_like(late.delay_s))
    extra = SERVICES(late).prefill_s - SERVICES(free).prefill_s
    points = LENGTHS.isl.size
    np.testing.assert_allclose(extra[:, :points], 0)
    np.testing.assert_allclose(extra[:, points:], 0.5, rtol=1e-5)
    assert float(late.lengths.weight[0, points:].sum()) > 0.1


def test_compression_changes_the_service_of_the_short_pool():
    """In the fleet reference the short pool's service stays as without compression."""

    def mean_s(gamma: float) -> float:
        pools = SPLIT(_profiles(2), LENGTHS, jnp.asarray([2000.0]), 8000.0, Compression(gamma, 1.0, 0.0))
        law = SERVICES(pools)
        return float(jnp.sum(law.weight[0] * law.service_s[0]))

    assert abs(mean_s(2.0) / mean_s(1.0) - 1) > 0.01


def test_requests_above_the_limit_are_refused():
    pool = only_pool(preset("a100"), LENGTHS, 4000.0)
    assert float(pool.share) == pytest.approx(np.mean(ISL + OSL <= 4000))


def test_share_has_the_density_as_its_slope():
    @jax.jit
    def share(threshold: float) -> jax.Array:
        return split(_profiles(2), AZURE, jnp.asarray(threshold)[None], 65536.0, Compression(1.3, 0.75, 0.0)).share[0]

    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(share))(1000.5)
        assert float(slope) == pytest.approx(float(share(1000.6) - share(1000.4)) / 0.2, rel=1e-6)
        assert float(slope) > 0


def test_prefill_share_is_between_none_and_all():
    pool = only_pool(preset("a100"), LENGTHS, 10000.0)
    prompt = np.asarray(service_s(pool.profile, ISL, OSL, 10000.0)).sum()
    assert 0 < float(prefill_share(pool)) < 1
    assert prompt > 0
