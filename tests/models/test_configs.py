# SPDX-License-Identifier: Apache-2.0
"""Model configs: the bundled ones parse, a reduced one parses to the same model, a broken one says what is wrong."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aicjax._results import DataError, InputError, UnsupportedModel
from aicjax.models import infer_quantisation, load_model, model_names, parse_config, slim_config
from aicjax.models.__main__ import main
from aicjax.models.families import FAMILIES
from aicjax.models.load import read_json
from aicjax.models.slim import representatives

SOURCE_ENV = "AICJAX_MODEL_SOURCES"  # a directory of <name>_config.json and <name>_hf_quant_config.json files
SOURCES = sorted(Path(os.environ.get(SOURCE_ENV, os.devnull)).glob("*_config.json"))
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def folder(directory: Path, **changes) -> Path:
    """LLAMA with some fields changed (None drops one) as `config.json` of a directory."""
    fields = {key: value for key, value in (LLAMA | changes).items() if value is not None}
    (directory / "config.json").write_text(json.dumps(fields))
    return directory


def test_every_bundled_model_parses():
    models = [load_model(name) for name in model_names()]
    assert len(models) == 89
    assert {model.family for model in models} == set(FAMILIES) - {"GENERIC"}
    for model in models:
        assert min(model.layers, model.hidden_size, model.num_heads, model.head_dim, model.vocab_size) > 0
        assert model.topk <= model.num_experts
        for backend in ("trtllm", "vllm", "sglang"):
            infer_quantisation(model, backend)


def test_bundled_models_are_small_on_disk():
    folder_path = Path(__file__).parents[2] / "configs" / "models"
    assert sum(path.stat().st_size for path in folder_path.iterdir()) < 200_000


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Qwen/Qwen3-32B-FP8", {"layers": 64, "head_dim": 128, "num_kv_heads": 8, "qk_norm": True, "is_moe": False}),
        ("meta-llama/Meta-Llama-3.1-405B", {"layers": 126, "head_dim": 128, "num_heads": 128, "qk_norm": False}),
        ("openai/gpt-oss-120b", {"num_experts": 128, "topk": 4, "moe_intermediate_size": 2880, "is_moe": True}),
        ("moonshotai/Kimi-K2.5", {"family": "KIMIK25", "num_experts": 384, "topk": 8}),
        ("moonshotai/Kimi-K3", {"family": "KIMIK3", "topk": 16}),
        ("Qwen/Qwen3.5-27B", {"family": "QWEN35", "is_moe": False}),
        ("nvidia/Nemotron-H-56B-Base-8K", {"family": "NEMOTRONH", "is_moe": False}),
        ("google/gemma-4-26B-A4B", {"family": "GEMMA4MIX", "is_moe": True}),
        ("Qwen/Qwen3-VL-32B-Instruct", {"family": "QWEN3VL", "qk_norm": False}),
    ],
)
def test_facts_of_a_model(name, facts):
    model = load_model(name)
    assert {key: getattr(model, key) for key in facts} == facts


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("zai-org/GLM-5.2", {"indexer_fraction": 21 / 78}),
        ("deepseek-ai/DeepSeek-V3.2", {"indexer_fraction": 1.0}),
        ("deepseek-ai/DeepSeek-V3", {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128}),
    ],
)
def test_further_facts_of_a_family(name, facts):
    extra = load_model(name).extra
    assert {key: extra[key] for key in facts} == facts


def test_layer_patterns_cover_every_layer():
    for name in model_names():
        model = load_model(name)
        for key in ("layer_types", "global_attention", "expert_layers", "compress_ratios", "pattern"):
            assert len(model.extra.get(key, "x" * model.layers)) == model.layers
        if "blocks" in model.extra:
            assert sum(block.count for block in model.extra["blocks"]) == model.layers


@pytest.mark.parametrize("name", model_names())
def test_reducing_a_bundled_config_changes_nothing(name):
    document = json.loads(
        (Path(__file__).parents[2] / "configs/models" / f"{name.replace('/', '--')}.json").read_text()
    )
    assert document.pop("model") == name
    assert slim_config(document["config"], document.get("hf_quant_config")) == document


@pytest.mark.skipif(not SOURCES, reason=f"${SOURCE_ENV} names no directory of whole configs")
@pytest.mark.parametrize("path", [path for path in SOURCES if "hf_quant" not in path.name], ids=lambda path: path.stem)
def test_a_whole_config_parses_like_its_reduced_form(path: Path):
    name = path.name.removesuffix("_config.json").replace("--", "/", 1)
    neighbour = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
    hf_quant_config = read_json(neighbour) if neighbour.is_file() else None
    whole = parse_config(read_json(path), hf_quant_config, name=name, source=str(path))
    slim = slim_config(read_json(path), hf_quant_config)
    assert parse_config(slim["config"], slim.get("hf_quant_config"), name=name, source=str(path)) == whole
    assert load_model(name) == whole


def test_the_first_name_stands_for_those_that_differ_in_numbers():
    names = ["layers.0.experts.7.w1", "layers.1.experts.0.w2", "layers.0.mlp", "layers.9.mlp"]
    formats = ["nvfp4", "nvfp4", "fp8", "nvfp4"]
    assert representatives(zip(names, formats, strict=True)) == [
        ("layers.0.experts.7.w1", "nvfp4"),
        ("layers.0.mlp", "fp8"),
        ("layers.9.mlp", "nvfp4"),
    ]


def test_a_model_is_added_by_one_command(tmp_path: Path, capsys):
    source = folder(tmp_path, rope_theta=5e5, torch_dtype="bfloat16")
    assert main(["me/mine", str(source / "config.json"), "--directory", str(tmp_path)]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert written == tmp_path / "me--mine.json"
    assert "rope_theta" not in written.read_text()
    same = {"name": "", "checkpoint": None}
    assert dataclasses.replace(load_model(written), **same) == dataclasses.replace(load_model(source), **same)


def test_adding_a_broken_model_is_one_line(tmp_path: Path, capsys):
    assert main(["me/mine", str(folder(tmp_path, hidden_size=None) / "config.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_hub_name_in_any_case_and_local_copy_are_one_model(tmp_path: Path):
    hub = load_model("meta-llama/Meta-Llama-3.1-8B")
    assert load_model("META-LLAMA/meta-llama-3.1-8b") == hub
    for local in (load_model(folder(tmp_path)), load_model(str(tmp_path / "config.json"))):
        assert dataclasses.replace(local, name=hub.name) == hub


def test_local_quantisation_file_is_read(tmp_path: Path):
    (folder(tmp_path) / "hf_quant_config.json").write_text(
        '{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}'
    )
    assert infer_quantisation(load_model(tmp_path), "trtllm").gemm == "fp8_static"


def test_unknown_hub_name_suggests_near_ones():
    with pytest.raises(InputError, match=r"near: .*Qwen/Qwen3-32B") as caught:
        load_model("qwen/qwen3-33b")
    assert caught.value.exit_code == 2


def test_broken_folders_have_three_different_messages(tmp_path: Path):
    config = tmp_path / "config.json"
    config.write_text('{"architectures": ["LlamaForCausalLM"],')
    with pytest.raises(DataError, match=f"{config}: invalid JSON at line 1") as invalid:
        load_model(tmp_path)
    with pytest.raises(DataError, match=f"{config}: key `num_hidden_layers` is missing.*LlamaForCausalLM") as missing:
        load_model(folder(tmp_path, num_hidden_layers=None))
    with pytest.raises(UnsupportedModel, match=f"{config}: architecture FooForCausalLM .*known are .*Llama") as unknown:
        load_model(folder(tmp_path, architectures=["FooForCausalLM"]))
    assert "--family GENERIC" in str(unknown.value)
    assert all(caught.value.exit_code == 2 and "\n" not in str(caught.value) for caught in (invalid, missing, unknown))


def test_unknown_architecture_can_be_modelled_as_a_known_family(tmp_path: Path):
    model = load_model(folder(tmp_path, architectures=["FooForCausalLM"]), family="LLAMA")
    assert (model.architecture, model.family, model.layers) == ("FooForCausalLM", "LLAMA", 32)
    with pytest.raises(InputError, match="family"):
        load_model(tmp_path, family="FOO")


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"])
def test_missing_field_names_file_key_and_architecture(tmp_path: Path, key: str):
    with pytest.raises(DataError, match=f"config.json: key `{key}` is missing.*LlamaForCausalLM"):
        load_model(folder(tmp_path, **{key: None}))


def test_layer_pattern_of_the_wrong_length_is_refused(tmp_path: Path):
    folder(tmp_path, architectures=["MiMoV2FlashForCausalLM"], hybrid_layer_pattern=[0, 1], moe_layer_freq=1)
    with pytest.raises(DataError, match=r"`hybrid_layer_pattern` must have one entry for each of the 32 layers"):
        load_model(tmp_path)


def test_infinities_of_a_config_are_null(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA)[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    assert load_model(tmp_path).layers == 32


def test_models_are_host_code():
    code = "import sys, aicjax.models; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
