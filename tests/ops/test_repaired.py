# SPDX-License-Identifier: Apache-2.0
"""Blocks whose tables timed their host: shorter, marked, and as measured where AIConfigurator is followed."""

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.compat import DEFAULT, REFERENCE, Compat
from aicjax.hardware import load_system
from aicjax.models import Parallel, infer_quantisation, load_model, op_lists
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import DsaGeneration, MlaModuleGeneration, Op

SYSTEM = "b300_sxm"
BATCHES = [4, 16, 64, 1024]
LATENT = MlaModuleGeneration("attention", 61.0, 16, 128, "fp8", "bfloat16", "nvfp4")


def sparse() -> DsaGeneration:
    """The attention block of a decode step of DeepSeek-V3.2 on 8 GPUs."""
    model = load_model("deepseek-ai/DeepSeek-V3.2")
    lists = op_lists(model, Parallel(8, moe_tp=1, moe_ep=8), infer_quantisation(model, "vllm", {}), "vllm")
    return next(op for op in lists.generation if isinstance(op, DsaGeneration))


def ask(op: Op, backend: str, version: str, compat: Compat) -> OpTimes:
    where = load_system(SYSTEM), backend, version
    return operator_latency(*where, [op] * len(BATCHES), batch=BATCHES, length=4097, compat=compat)


@pytest.mark.parametrize("op", [LATENT, sparse()], ids=["latent", "sparse"])
def test_blocks_of_vllm_do_not_wait_for_the_host(op):
    here, there = (ask(op, "vllm", "0.24.0", compat) for compat in (DEFAULT, REFERENCE))
    sibling = ask(op, "trtllm", "1.3.0rc20", DEFAULT)
    assert (here.provenance >= Provenance.REPAIRED).all()
    assert (there.provenance < Provenance.REPAIRED).all()
    assert (sibling.provenance < Provenance.REPAIRED).all()
    assert (here.latency_ms[:3] < 0.9 * there.latency_ms[:3]).all()
    np.testing.assert_allclose(here.latency_ms[:3], sibling.latency_ms[:3], rtol=0.25)
    assert here.latency_ms[3] > 0.8 * there.latency_ms[3]  # a large batch outlasts the host
