# SPDX-License-Identifier: Apache-2.0
"""DynamoGraphDeploymentRequest files: every field is used, named as changing nothing, or refused."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aicjax import _paths
from aicjax._results import InputError
from aicjax.cli.app import run
from aicjax.deploy.write import check_directory
from aicjax.explore import SearchRequest, search
from aicjax.explore.dynamo_request import DynamoRequest, read_dynamo_request, table
from aicjax.hardware import system_names

SCHEMA = "dynamo-graph-deployment-request-v1beta1.json"
BETA, ALPHA = "nvidia.com/v1beta1", "nvidia.com/v1alpha1"
MODEL = "Qwen/Qwen3-32B-FP8"
SPEC: dict[str, Any] = {
    "model": MODEL,
    "backend": "vllm",
    "hardware": {"gpuSku": "h200_sxm", "totalGpus": 2, "numGpusPerNode": 8},
    "workload": {"isl": 3000, "osl": 300},
    "sla": {"ttft": 1000, "itl": 30},
}
SKUS = (  # the closed list of the resource
    *("vr_nvl72", "gb200", "gb200_sxm", "gb10", "b300_sxm", "b200_sxm", "h200_sxm", "h100_sxm", "h100_pcie"),
    *("a100_sxm", "a100_pcie", "a30", "l40s", "l40", "l4", "v100_sxm", "v100_pcie", "t4", "mi200", "mi300"),
)


def written(folder: Path, spec: dict[str, Any], version: str = BETA, **metadata: Any) -> Path:
    path = folder / "request.yaml"
    content = {"apiVersion": version, "kind": table()["kind"], "metadata": {"name": "demo", **metadata}, "spec": spec}
    path.write_text(yaml.safe_dump(content))
    return path


def read(folder: Path, **spec: Any) -> DynamoRequest:
    return read_dynamo_request(written(folder, {**SPEC, **spec}))


def test_fields_are_those_of_a_search(tmp_path: Path):
    asked = read(tmp_path, modelCache={"pvcName": "weights"})
    assert asked.fields == {
        "model_path": MODEL,
        "backend": "vllm",
        "system": "h200_sxm",
        "total_gpus": 2,
        "isl": 3000,
        "osl": 300,
        "ttft": 1000,
        "tpot": 30,
    }
    assert (asked.name, asked.site, asked.notes) == ("demo", {"model_cache": "weights"}, ())
    assert SearchRequest(**asked.fields).isl == 3000


def test_defaults_are_those_of_the_resource(tmp_path: Path):
    spec = {"model": MODEL, "hardware": {"gpuSku": "gb200_sxm"}, "workload": {"concurrency": 64}}
    asked = SearchRequest(**read_dynamo_request(written(tmp_path, spec)).fields)
    assert (asked.backend, asked.isl, asked.osl, asked.ttft, asked.tpot) == ("auto", 4000, 1000, 2000, 30)
    assert (asked.system, asked.target_concurrency) == ("gb200", 64)


def test_the_older_version(tmp_path: Path):
    config = {
        "sla": {"isl": 2048, "osl": 512, "ttft": 300.0, "itl": 25.0},
        "hardware": {"num_gpus_per_node": 8, "max_num_gpus_per_engine": 4},
        "sweep": {"use_ai_configurator": True, "aic_system": "h200_sxm", "aic_backend_version": "0.24.0"},
        "deployment": {"timeout": 2400},
    }
    spec = {
        "model": MODEL,
        "backend": "vllm",
        "profilingConfig": {"profilerImage": "profiler:1.0.0", "config": config},
        "deploymentOverrides": {"namespace": "team", "workersImage": "workers:1.3.0"},
        "autoApply": True,
    }
    asked = read_dynamo_request(written(tmp_path, spec, ALPHA), total_gpus="4")
    assert asked.fields == {
        "model_path": MODEL,
        "backend": "vllm",
        "system": "h200_sxm",
        "backend_version": "0.24.0",
        "isl": 2048,
        "osl": 512,
        "ttft": 300.0,
        "tpot": 25.0,
        "total_gpus": "4",
    }
    assert asked.site == {"namespace": "team", "image": "workers:1.3.0"}
    assert len(asked.notes) == 5


def test_flags_win(tmp_path: Path):
    path = written(tmp_path, {**SPEC, "hardware": {"gpuSku": "h200_sxm", "totalGpus": 2}})
    assert read_dynamo_request(path, system="h100_sxm", total_gpus="8").fields["system"] == "h100_sxm"


def test_every_sku_of_the_resource_has_an_answer():
    systems = table()["systems"]
    assert set(systems) == set(SKUS)
    assert {system for system in systems.values() if system is not None} <= set(system_names())


def fields_of(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    """Fields of a schema by their path, down to those that hold no further ones."""
    for name, below in schema["properties"].items():
        if "properties" in below:
            yield from fields_of(below, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}"


def test_every_field_of_the_schema_has_a_fate():
    schema = json.loads((_paths.configs_dir() / "deploy" / "schemas" / SCHEMA).read_text())["properties"]["spec"]
    fates = table()["versions"][BETA]
    missing = [field for field in fields_of(schema, "spec") if not field.startswith(tuple(fates))]
    assert missing == []
    skus = schema["properties"]["hardware"]["properties"]["gpuSku"]["enum"]
    assert set(skus) <= set(table()["systems"])


@pytest.mark.parametrize("version", table()["versions"])
def test_every_field_has_one_fate(version: str):
    names = {*SearchRequest.model_fields, "gpus_per_node"}
    for field, fate in table()["versions"][version].items():
        (one,) = {"field", "cluster", "no_effect", "instead"} & set(fate)
        assert one != "field" or fate["field"] in names, field


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"autoApply": True}, "spec.autoApply"),
        ({"image": "profiler:1.0.0"}, "spec.image"),
        ({"runtimeVersionOverride": "1.0.0"}, "spec.runtimeVersionOverride"),
        ({"searchStrategy": "thorough"}, "spec.searchStrategy"),
        ({"features": {"planner": {"mode": "disagg"}}}, "spec.features.planner"),
        ({"features": {"kvRouter": {"enabled": True}}}, "spec.features.kvRouter.enabled"),
        ({"overrides": {"profilingJob": {"template": {}}}}, "spec.overrides.profilingJob"),
        ({"modelCache": {"pvcMountPath": "/models"}}, "spec.modelCache.pvcMountPath"),
    ],
)
def test_what_changes_nothing_is_said(stated: dict[str, Any], said: str, tmp_path: Path):
    (note,) = read(tmp_path, **stated).notes
    assert note.startswith(f"{said} changes nothing: ")


@pytest.mark.parametrize(
    "stated",
    [
        {"autoApply": False},
        {"searchStrategy": "rapid"},
        {"features": {"mocker": {"enabled": False}, "planner": None}},
        {"sla": {"optimizationType": "throughput"}},
    ],
)
def test_what_asks_for_what_is_done_is_not_said(stated: dict[str, Any], tmp_path: Path):
    assert read(tmp_path, **stated).notes == ()


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"modl": "x"}, ["spec.modl", "spec.model"]),
        ({"hardware": {"gpuSku": "h300"}}, ["spec.hardware.gpuSku", "h300", "h200_sxm"]),
        ({"hardware": {"gpuSku": "mi300"}}, ["spec.hardware.gpuSku", "mi300", "described here"]),
        ({"hardware": {"gpuSku": ["h200_sxm"]}}, ["spec.hardware.gpuSku"]),
        ({"hardware": {"gpuSku": "h200_sxm", "numGpusPerNode": 4}}, ["GPUs of a node", "8", "4"]),
        ({"hardware": None}, ["system", "flag"]),
        ({"sla": {"optimizationType": "latency"}}, ["optimizationType", "latency"]),
        ({"features": {"mocker": {"enabled": True}}}, ["mocker", "engines"]),
        ({"workload": 7}, ["spec.workload", "7"]),
        ({"v1beta2": {"a": 1}}, ["v1beta2"]),
    ],
)
def test_what_is_refused_names_file_and_field(stated: dict[str, Any], words: list[str], tmp_path: Path):
    with pytest.raises(InputError) as refusal:
        read(tmp_path, **stated)
    assert "request.yaml" in str(refusal.value)
    assert all(word in str(refusal.value) for word in words)


@pytest.mark.parametrize(
    "text", ["kind: DynamoGraphDeployment", "a: [", "[" * 5000, "- 1", "kind: DynamoGraphDeploymentRequest"]
)
def test_other_files_are_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "other.yaml"
    path.write_text(text)
    assert run(["search", "--request", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("deploy --request nowhere.yaml", ["nowhere.yaml"]),
        ("deploy --target dynamo", ["from", "--request"]),
        ("deploy --from a --request b", ["from", "not both"]),
        ("deploy --from a --target dynamo --system h200_sxm", ["system", "--from"]),
        ("search --from a --request b", ["request", "--from"]),
    ],
)
def test_mistakes_are_one_line(line: str, words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words)


def test_files_are_those_of_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path, {**SPEC, "modelCache": {"pvcName": "weights"}, "autoApply": True}, namespace="team")
    assert run(["deploy", "--request", str(path), "--experiment", "agg"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["aicjax: spec.autoApply changes nothing: files are written and not applied"]
    folder = tmp_path / "demo" / "dynamo"
    assert captured.out.splitlines()[-1] == str(folder)
    assert check_directory(tmp_path) == {str(folder): []}
    record = json.loads((folder / "deployment.json").read_text())
    assert (record["name"], record["site"]["namespace"]) == ("demo", "team")
    assert record["site"]["model_cache"] == "weights"
    best = search(**read_dynamo_request(path).fields).tasks["agg"].best
    assert record["prediction"]["ttft_ms"] == pytest.approx(float(best["ttft"][0]))
    assert record["gpu_budget"] == 2


def test_limits_that_nothing_meets_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path, {**SPEC, "sla": {"ttft": 1, "itl": 1}})
    assert run(["deploy", "--request", str(path)]) == 3
    assert "TTFT" in capsys.readouterr().err
    assert [found.name for found in tmp_path.iterdir()] == ["request.yaml"]
