# SPDX-License-Identifier: Apache-2.0
"""Erlang's C against the recursion of its loss formula, for whole and real numbers of servers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet import erlang

erlang_c, log_erlang_c = jax.jit(erlang.erlang_c), jax.jit(erlang.log_erlang_c)
row = jax.jit(jax.vmap(erlang.erlang_c))
slopes = jax.jit(jax.grad(erlang.log_erlang_c, argnums=(0, 1)))

FLOAT64, FLOAT32 = 1e-9, 1e-5  # relative; the quadrature is better, float32 rounds exponents
SERVERS = (1, 2, 5, 17, 128, 1280, 20_000)
LOADS = (0.05, 0.5, 0.85, 0.95, 0.99, 0.999)


def by_recursion(servers: int, offered: float) -> float:
    loss = 1.0
    for k in range(1, servers + 1):
        loss = offered * loss / (k + offered * loss)
    return loss / (1.0 - offered / servers * (1.0 - loss))


def loss(servers: float, offered: float) -> float:
    """Erlang's loss from C, by C = B / (1 - rho (1 - B))."""
    chance, rho = float(erlang_c(servers, offered)), offered / servers
    return chance * (1.0 - rho) / (1.0 - rho * chance)


@pytest.mark.parametrize("servers", SERVERS)
def test_whole_servers_equal_the_recursion(servers: int):
    wanted = np.array([by_recursion(servers, rho * servers) for rho in LOADS])
    seen = wanted > 1e-30
    with jax.enable_x64(True):
        offered = jnp.asarray(LOADS) * servers
        found = row(jnp.full_like(offered, servers), offered)
    np.testing.assert_allclose(np.asarray(found)[seen], wanted[seen], rtol=FLOAT64)
    offered = np.asarray(LOADS, np.float32) * np.float32(servers)  # what float32 can say
    wanted = np.array([by_recursion(servers, float(a)) for a in offered])
    found = row(np.full_like(offered, servers), offered)
    np.testing.assert_allclose(np.asarray(found)[seen], wanted[seen], rtol=FLOAT32)


def test_a_million_servers():
    wanted = by_recursion(1_000_000, 999_000.0)
    with jax.enable_x64(True):
        assert float(erlang_c(1e6, 999_000.0)) == pytest.approx(wanted, rel=FLOAT64)
    assert float(erlang_c(1e6, 999_000.0)) == pytest.approx(wanted, rel=FLOAT32)


@given(st.floats(0.3, 3_000.0), st.floats(0.02, 0.97))
def test_real_servers_obey_the_recursion(servers: float, rho: float):
    offered = rho * servers
    with jax.enable_x64(True):
        before, after = loss(servers, offered), loss(servers + 1.0, offered)
        if before > 1e-30:
            assert after == pytest.approx(offered * before / (servers + 1.0 + offered * before), rel=FLOAT64)


@given(st.floats(0.5, 5_000.0), st.floats(0.1, 0.98))
def test_more_load_waits_more_and_more_servers_wait_less(servers: float, rho: float):
    with jax.enable_x64(True):
        here = float(log_erlang_c(servers, rho * servers))
        assert float(log_erlang_c(servers, rho * servers * 1.01)) > here
        assert float(log_erlang_c(servers * 1.01, rho * servers)) < here


@pytest.mark.parametrize(("servers", "offered"), [(1.0, 0.3), (7.5, 6.0), (300.0, 290.0), (2e5, 1.99e5)])
def test_gradients_equal_differences(servers: float, offered: float):
    with jax.enable_x64(True):
        found = slopes(servers, offered)
        step = 1e-6
        by_servers = (log_erlang_c(servers * (1 + step), offered) - log_erlang_c(servers * (1 - step), offered)) / (
            2 * step * servers
        )
        by_offered = (log_erlang_c(servers, offered * (1 + step)) - log_erlang_c(servers, offered * (1 - step))) / (
            2 * step * offered
        )
    assert float(found[0]) == pytest.approx(float(by_servers), rel=1e-5)
    assert float(found[1]) == pytest.approx(float(by_offered), rel=1e-5)


@pytest.mark.parametrize("offered", [4.0, 5.0, 1e9])
def test_overload_always_waits(offered: float):
    assert float(erlang_c(4.0, offered)) == 1.0


def test_no_load_never_waits_and_has_a_gradient():
    assert float(erlang_c(4.0, 0.0)) == 0.0
    assert np.isfinite(jax.jit(jax.grad(erlang.erlang_c, argnums=(0, 1)))(4.0, 0.0)).all()
    assert np.isfinite(jax.jit(jax.grad(erlang.erlang_c, argnums=(0, 1)))(4.0, 5.0)).all()
