# SPDX-License-Identifier: Apache-2.0
"""An architecture that is not listed, modelled from the numbers of its config: the same lists as a listed one's."""

import json
from pathlib import Path

import pytest

from aicjax._results import DataError, InputError
from aicjax.models import KvCache, Parallel, infer_quantisation, kv_cache, load_model, op_lists
from aicjax.models.families.blocks import DENSE_FFN
from aicjax.models.families.experts import SHARED_EXPERT
from aicjax.ops.records import OpLists, Overlap

CONFIGS = Path(__file__).parents[2] / "configs" / "models"
QWEN_MOE = "Qwen/Qwen3-30B-A3B"


def generic(directory: Path, name: str, **changes):
    """A bundled model as one of an unknown architecture, with some fields of its config changed (None drops one)."""
    config = json.loads((CONFIGS / f"{name.replace('/', '--')}.json").read_text())["config"]
    config |= {"architectures": ["NewForCausalLM"]} | changes
    (directory / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None})
    )
    return load_model(directory, family="GENERIC")


def lists(model, layout: Parallel, nextn: int = 0) -> tuple[OpLists, KvCache]:
    arguments = model, layout, infer_quantisation(model, "sglang"), "sglang", nextn
    return op_lists(*arguments), kv_cache(*arguments)


def named(ops) -> dict:
    """Operators by name, those of overlapping chains too."""
    flat = [part for op in ops for part in ((*op.first, *op.second) if isinstance(op, Overlap) else (op,))]
    return {op.name: op for op in flat}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", Parallel(tp=4, pp=2)),
        ("meta-llama/Meta-Llama-3.1-8B", Parallel(cp=4)),
        ("mistralai/Mixtral-8x7B-v0.1", Parallel(tp=2, dp=2, moe_tp=2, moe_ep=2)),
        ("mistralai/Mixtral-8x7B-v0.1", Parallel(cp=2, moe_tp=2)),
    ],
)
def test_a_config_of_a_known_shape_has_the_lists_of_its_family(tmp_path: Path, name: str, layout: Parallel):
    for nextn in (0, 2):
        assert lists(generic(tmp_path, name), layout, nextn) == lists(load_model(name), layout, nextn)


def test_dense_layers_and_shared_experts_are_read(tmp_path: Path):
    model = generic(tmp_path, QWEN_MOE, first_k_dense_replace=3, n_shared_experts=2)
    found, _ = lists(model, Parallel(tp=2, moe_ep=2))
    ops = named(found.generation)
    gate_up = ops[f"generation_{DENSE_FFN[0]}"]
    assert (gate_up.scale, gate_up.n) == (3, model.intermediate_size)  # gate and up, over two GPUs
    shared = ops[f"generation_{SHARED_EXPERT[0]}"]
    assert (shared.scale, shared.n) == (model.layers - 3, 2 * model.moe_intermediate_size)
    assert ops["generation_moe"].scale == model.layers - 3
    assert ops["generation_ar_1"].scale == ops["generation_ar_2"].scale == 3


def test_experts_are_cut_into_whole_weight_blocks(tmp_path: Path):
    model = generic(tmp_path, "Qwen/Qwen3-30B-A3B-FP8")
    with pytest.raises(InputError, match="whole weight blocks of 128"):
        lists(model, Parallel(tp=4, moe_tp=4))


def test_nested_text_config_and_heads_without_groups(tmp_path: Path):
    inner = json.loads((CONFIGS / "Qwen--Qwen3-0.6B.json").read_text())["config"]
    inner.pop("num_key_value_heads")
    outer = {"architectures": ["NewForConditionalGeneration"], "text_config": inner}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    model = load_model(tmp_path, family="GENERIC")
    assert (model.family, model.is_moe, model.num_kv_heads) == ("GENERIC", False, inner["num_attention_heads"])


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Qwen/Qwen3-0.6B", {"intermediate_size": None}, "key `intermediate_size` is missing"),
        ("Qwen/Qwen3-0.6B", {"hidden_size": None}, "key `hidden_size` is missing"),
        (QWEN_MOE, {"num_experts_per_tok": None}, "key `num_experts_per_tok` is missing"),
        (
            QWEN_MOE,
            {"moe_intermediate_size": None, "intermediate_size": None},
            "key `moe_intermediate_size` is missing",
        ),
        (QWEN_MOE, {"first_k_dense_replace": 1, "intermediate_size": None}, "key `intermediate_size` is missing"),
        ("Qwen/Qwen3-0.6B", {"kv_lora_rank": 512}, "key `kv_lora_rank` means latent attention"),
        ("Qwen/Qwen3-0.6B", {"layer_types": ["linear_attention"]}, r"key `layer_types` has \['linear_attention'\]"),
    ],
)
def test_a_missing_number_or_another_kind_of_layer_is_refused_in_one_line(tmp_path: Path, name, changes, message):
    with pytest.raises(DataError, match=f"config.json: {message}.*NewForCausalLM") as caught:
        generic(tmp_path, name, **changes)
    assert "\n" not in str(caught.value)
