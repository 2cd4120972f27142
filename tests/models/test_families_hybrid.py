# SPDX-License-Identifier: Apache-2.0
"""Families whose layers differ in kind: stored operator lists of AIConfigurator 0.12.0, and their KV caches."""

import json
from pathlib import Path

import pytest

from aicjax.models import Parallel, Quantisation, kv_cache, load_model, op_lists
from tests.models.stored_lists import stored_forms

ENTRIES = json.loads((Path(__file__).parents[1] / "references" / "oplists_hybrid.json").read_text())
SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
BF16 = Quantisation("bfloat16", "bfloat16", "bfloat16", "bfloat16", "half")


def entry_name(entry: dict) -> str:
    return f"{entry['model'].split('/')[1]}-{entry['backend']}-tp{entry['tp']}cp{entry['cp']}nextn{entry['nextn']}"


def cache_bytes(name: str, length: int, parallel: Parallel, backend: str = "sglang", nextn: int = 0) -> float:
    cache = kv_cache(load_model(name), parallel, BF16, backend, nextn)
    grown = (term.rate_bytes * (min(length, term.window) // term.stride) for term in cache.terms)
    return cache.state_bytes + sum(grown)


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_name)
def test_op_list_matches_the_reference(entry):
    parallel = Parallel(*(entry[size] for size in SIZES))
    quantisation = Quantisation(**entry["quant"], gemm_chosen=entry["gemm_chosen"])
    lists = op_lists(load_model(entry["model"]), parallel, quantisation, entry["backend"], entry["nextn"])
    assert stored_forms(lists.context) == entry["context"]
    assert stored_forms(lists.generation) == entry["generation"]
    assert sum(op.weight_bytes for op in lists.context) / parallel.pp == entry["weights_bytes"]
