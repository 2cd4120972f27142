# SPDX-License-Identifier: Apache-2.0
"""Estimates of products and collectives against stored answers."""

import numpy as np
import pytest

from tests.ops.stored_estimates import GROUP, ask, check, stored


@pytest.mark.parametrize("name", ["gemm", "custom_allreduce", "nccl"])
def test_estimates_agree_with_stored_answers(name: str):
    check(name)


@pytest.mark.parametrize("name", ["gemm", "nccl"])
def test_answers_do_not_depend_on_what_else_is_asked(name: str):
    rows = stored(name)
    for where, at in rows.groups(*GROUP):
        together = ask(name, rows.take(at), *where)
        backwards = ask(name, rows.take(at[::-1][: len(at) // 2 + 1]), *where)
        np.testing.assert_array_equal(backwards.latency_ms, together.latency_ms[::-1][: len(at) // 2 + 1])
