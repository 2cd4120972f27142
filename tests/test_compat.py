# SPDX-License-Identifier: Apache-2.0
"""The table of defects of AIConfigurator 0.12.0: complete, documented, and each switch with an effect of its own."""

import dataclasses
from pathlib import Path

import pytest

from aicjax.compat import BY_NAME, DEFAULT, REFERENCE, Compat, markdown
from aicjax.explore import EstimateRequest, SearchRequest
from aicjax.models import Parallel, Quantisation, load_model, op_lists

SWITCHES = [switch.name for switch in dataclasses.fields(Compat)]
BF16 = Quantisation("bfloat16", "bfloat16", "bfloat16", "bfloat16", "half")


def only(switch: str) -> Compat:
    """One switch on."""
    return dataclasses.replace(DEFAULT, **{switch: True})


def weights_gb(compat: Compat, name: str, parallel: Parallel = Parallel(), backend: str = "trtllm") -> float:  # noqa: B008
    lists = op_lists(load_model(name, compat=compat), parallel, BF16, backend)
    return sum(op.weight_bytes for op in lists.context) / 1e9


def test_reference_has_every_switch_on_and_default_none():
    assert all(getattr(REFERENCE, name) and not getattr(DEFAULT, name) for name in SWITCHES)
    assert BY_NAME == {"default": DEFAULT, "reference": REFERENCE}


def test_the_table_is_in_the_documentation():
    assert markdown() in (Path(__file__).parents[1] / "docs" / "parity.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [SearchRequest, EstimateRequest])
def test_a_request_chooses_by_name(kind):
    request = {"model_path": "m", "system": "s"}
    assert kind(**request).switches == DEFAULT
    assert kind(**request, compat="reference").switches == REFERENCE
    with pytest.raises(ValueError, match="`compat` must be one of 'default' or 'reference'"):
        kind(**request, compat="other")


def test_prefills_with_experts_run_the_vocabulary_projection():
    name = "Qwen/Qwen3-30B-A3B"  # 151936 rows of 2048
    head = 151936 * 2048 * 2 / 1e9
    switch = only("expert_prefill_without_head")
    assert weights_gb(DEFAULT, name) - weights_gb(switch, name) == pytest.approx(head, rel=1e-12)
