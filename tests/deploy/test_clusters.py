# SPDX-License-Identifier: Apache-2.0
"""Mistakes in files for clusters without Dynamo: in a file they are found, from a template nothing is written."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from aicjax.cli.app import run
from aicjax.deploy import templates
from aicjax.deploy.build import build
from aicjax.deploy.checks import FailedCheck, problems
from aicjax.deploy.record import Deployment, Site, Use
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_clusters, load_engine, load_server
from aicjax.deploy.write import write
from tests.deploy.rows import INPUTS, SEARCHED, result_row, wide_row

CLUSTER_TARGETS = ("kubernetes", "llm-d-helm", "llm-d-kustomize")
KUBERNETES, VALUES, OVERLAY = "kubernetes.yaml", "llm-d-values.yaml", "kustomization.yaml"
DECODE, PREFILL = "patch-decode.yaml", "patch-prefill.yaml"


def _deployment(
    engine: str = "vllm", *, experts: bool = False, disaggregated: bool = True, **stated: Any
) -> Deployment:
    return build(result_row(engine, experts=experts, disaggregated=disaggregated), INPUTS, **stated)


def _found(files: dict[str, str]) -> str:
    return "; ".join(problems(files))


@pytest.mark.parametrize(
    ("target", "engine", "file", "right", "wrong", "problem"),
    [
        # 1: literal None
        ("llm-d-helm", "vllm", VALUES, '"llm-d-hf-token"', "None", "the placeholder None"),
        ("llm-d-kustomize", "vllm", DECODE, '"llm-d-hf-token"', "None", "the placeholder None"),
        ("kubernetes", "sglang", KUBERNETES, '"hf-token-secret"', "None", "the placeholder None"),
        ("kubernetes", "sglang", "k8s_bench.yaml", "sglang-disagg:8000", "None:8000", "the placeholder None"),
        # 2: sizes of CUDA graphs
        ("llm-d-helm", "vllm", VALUES, '- "1"\n    - "2"\n    - "4"', '- "2"\n    - "1"\n    - "4"', "capture-sizes"),
        ("llm-d-kustomize", "sglang", DECODE, '- "32"\n        - "59"', '- "32"\n        - "64"', "cuda-graph-bs"),
        # 3: other limits than the simulated ones
        (
            "llm-d-helm",
            "vllm",
            VALUES,
            '"--max-num-seqs"\n    - "59"',
            '"--max-num-seqs"\n    - "512"',
            "is 512, not 59",
        ),
        ("kubernetes", "trtllm", KUBERNETES, "max_batch_size: 59", "max_batch_size: 512", "is 512, not 59"),
        # 4: the prediction in place of the user's limit leaves the record and the page unlike
        # 5: files of one row that do not agree
        ("llm-d-kustomize", "vllm", PREFILL, '"0.92"', '"0.9"', "gpu-memory-utilization is 0.9, not 0.92"),
        ("kubernetes", "sglang", "k8s_bench.yaml", "ROUNDS:-10", "ROUNDS:-5", "another script than bench.sh"),
        # 6: no transfer of KV caches
        ("llm-d-helm", "vllm", VALUES, '"--kv-transfer-config"', '"--other"', "--kv-transfer-config is False"),
        ("llm-d-helm", "vllm", VALUES, "VLLM_NIXL_SIDE_CHANNEL_HOST", "OTHER", "SIDE_CHANNEL_HOST is not set"),
        ("llm-d-helm", "vllm", VALUES, 'value: "5600"', 'value: "5601"', "SIDE_CHANNEL_PORT is 5601, not 5600"),
        ("llm-d-kustomize", "sglang", PREFILL, '"8998"', '"8999"', "bootstrap-port is 8999, not 8998"),
        ("kubernetes", "trtllm", KUBERNETES, "backend: DEFAULT, ", "", "cache_transceiver_config.backend"),
        # 7: ports that do not agree
        ("llm-d-helm", "vllm", VALUES, '"--port"\n    - "8200"', '"--port"\n    - "8000"', "--port is 8000, not 8200"),
        ("llm-d-helm", "vllm", VALUES, "targetPort: 8200", "targetPort: 8100", "do not agree on their ports"),
        ("llm-d-helm", "vllm", VALUES, "port: 8200", "port: 8000", "not all ports are 8200"),
        ("llm-d-helm", "vllm", VALUES, "containerPort: 8200", "containerPort: 8000", "not all ports are 8200"),
        ("llm-d-kustomize", "sglang", DECODE, '"8200"', '"8000"', "--port is 8000, not 8200"),
        ("kubernetes", "sglang", KUBERNETES, "targetPort: 8000", "targetPort: 8001", "port 8001, not 8000"),
        ("kubernetes", "sglang", KUBERNETES, "containerPort: 8000", "containerPort: 80", "port 80, not 8000"),
        # 8: null for a string
        ("llm-d-helm", "vllm", VALUES, 'authSecretName: "llm-d-hf-token"', "authSecretName:", "authSecretName is null"),
        ("llm-d-helm", "vllm", VALUES, 'serving: "true"', "serving: true", "is no string"),
        # 9: no longest sequence
        ("llm-d-helm", "vllm", VALUES, '    - "--max-model-len"\n    - "6137"\n', "", "--max-model-len is False"),
        (
            "llm-d-kustomize",
            "sglang",
            DECODE,
            '        - "--context-length"\n        - "6144"\n',
            "",
            "--context-length is False",
        ),
        # 12: software that moves
        ("llm-d-helm", "vllm", VALUES, "vllm-openai:v", "vllm-openai:latest-", "not pinned"),
        ("llm-d-helm", "vllm", VALUES, "sidecar:v0.7.1", "sidecar:latest", "not pinned"),
        ("llm-d-kustomize", "vllm", OVERLAY, "ref=v0.8.1", "ref=main", "not over the guide"),
        # 13: options of another release
        ("llm-d-helm", "vllm", VALUES, '"--max-num-seqs"', '"--max-seqs"', "unknown option --max-seqs"),
        # 14: another name of a file
        ("llm-d-helm", "vllm", "README.md", "-f llm-d-values.yaml", "-f values.yaml", "names values.yaml"),
        # what else a manifest can get wrong
        ("llm-d-helm", "vllm", VALUES, "tensor: 4", "tensor: 8", "8 GPUs, not 4"),
        ("llm-d-helm", "vllm", VALUES, 'gpu: "4"', 'gpu: "2"', "not the GPUs of a pod"),
        ("llm-d-helm", "vllm", VALUES, "replicas: 3", "replicas: 4", "1 worker prefill too many"),
        ("llm-d-helm", "vllm", VALUES, '"nixlv2"', '"sglang"', "does not speak the protocol"),
        ("llm-d-kustomize", "vllm", DECODE, '"decode"', '"decoder"', "the guide has no apps/v1 Deployment decoder"),
        ("llm-d-kustomize", "vllm", DECODE, '"modelserver"', '"vllm"', "cannot be read back"),
        ("llm-d-kustomize", "vllm", OVERLAY, '- path: "patch-prefill.yaml"', "", "role agg is not one of"),
        ("kubernetes", "sglang", KUBERNETES, 'gpu: "4"', 'gpu: "4"\n            nvidia.com/gpu: "8"', "stated twice"),
        ("kubernetes", "sglang", KUBERNETES, "prefill-2.", "prefill-3.", "names every worker"),
        ("kubernetes", "trtllm", KUBERNETES, "num_instances: 3", "num_instances: 2", "names every worker"),
    ],
)
def test_mistake_in_a_file_is_found_and_nothing_is_written(
    target: str, engine: str, file: str, right: str, wrong: str, problem: str, tmp_path: Path
):
    files = render(_deployment(engine), target)
    assert problems(files) == []
    assert right in files[file]
    files[file] = files[file].replace(right, wrong)
    assert problem in _found(files)
    with pytest.raises(FailedCheck):
        write(files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("size: 4", "size: 2", "groups of 2 pods, not 4"),
        ("$(LWS_WORKER_INDEX)", "1", "do not tell which they are"),
        ("$(LWS_LEADER_ADDRESS):29500", "$(LWS_LEADER_ADDRESS):29501", "do not tell which they are"),
        ('gpu: "8"', 'gpu: "4"', "16 GPUs, not 32"),
        ("LeaderWorkerSet", "LeaderWorkers", "no schema for LeaderWorkers"),
        ("restartPolicy: ", "restart: ", "unknown field 'restart'"),
    ],
)
def test_mistake_in_a_group_of_pods_is_found(right: str, wrong: str, problem: str):
    row = wide_row("sglang", 32, disaggregated=True)
    files = render(build(row, {**INPUTS, "total_gpus": 64}), "kubernetes")
    assert problems(files) == []
    assert right in files[KUBERNETES]
    assert problem in _found({**files, KUBERNETES: files[KUBERNETES].replace(right, wrong)})


@pytest.mark.parametrize(
    ("target", "right", "wrong", "problem"),
    [
        ("llm-d-helm", "workers: 2", "workers: 1", "other workers or ranks"),
        ("llm-d-helm", "multinode: true", "multinode: false", "multinode is false"),
        ("llm-d-helm", "INDEX * 8", "INDEX * 4", "not the command of its server"),
        (
            "llm-d-helm",
            '"--data-parallel-size-local"\n    - "8"',
            '"--data-parallel-size-local"\n    - "4"',
            "32 GPUs, not 16",
        ),
        ("kubernetes", "INDEX * 8", "INDEX * 4", "do not tell which they are"),
        ("kubernetes", "size: 2", "size: 1", "groups of 1 pods, not 2"),
    ],
)
def test_mistake_in_ranks_over_several_nodes_is_found(target: str, right: str, wrong: str, problem: str):
    files = render(build(wide_row("vllm", 16, experts=True), INPUTS), target)
    assert problems(files) == []
    name = VALUES if target == "llm-d-helm" else KUBERNETES
    assert right in files[name]
    assert problem in _found({**files, name: files[name].replace(right, wrong)})


def test_first_rank_of_every_pod_is_what_its_shell_computes(tmp_path: Path):
    """The command of a pod, run with a program of the same name that tells what it was given."""
    files = render(build(wide_row("vllm", 32, experts=True), {**INPUTS, "total_gpus": 32}), "kubernetes")
    groups = list(yaml.safe_load_all(files[KUBERNETES]))[1]["spec"]["leaderWorkerTemplate"]
    container = groups["workerTemplate"]["spec"]["containers"][0]
    (tmp_path / "vllm").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (tmp_path / "vllm").chmod(0o755)
    for index in range(groups["size"]):
        known = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LWS_WORKER_INDEX": str(index)}
        words = [*container["command"], *container["args"]]
        told = subprocess.run(words, env=known, capture_output=True, text=True, check=True).stdout.split("\n")
        assert told[:2] == ["serve", container["args"][0]]
        assert told[1 : 1 + len(container["args"])] == container["args"]
        assert told[told.index("--data-parallel-start-rank") + 1] == str(8 * index)


def test_service_of_groups_finds_only_the_pods_that_answer():
    row = wide_row("vllm", 16)
    objects = list(yaml.safe_load_all(render(build(row, INPUTS), "kubernetes")[KUBERNETES]))
    service, groups = objects
    assert service["metadata"]["name"] != groups["metadata"]["name"]  # a group set brings a service of its own name
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    first, others = (groups["spec"]["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate"))
    assert "--headless" not in first["spec"]["containers"][0]["args"]
    assert "--headless" in others["spec"]["containers"][0]["args"]
    assert "readinessProbe" not in others["spec"]["containers"][0]


def _break(monkeypatch: pytest.MonkeyPatch, template: str, right: str, wrong: str) -> None:
    """Puts a template with a mistake in place of the shipped one."""
    shipped = templates._environment()
    source, _, _ = shipped.loader.get_source(shipped, template)  # pyright: ignore[reportOptionalMemberAccess]
    assert right in source
    changed = jinja2.DictLoader({template: source.replace(right, wrong)})
    broken = shipped.overlay(loader=jinja2.ChoiceLoader([changed, shipped.loader]), cache_size=0)  # pyright: ignore
    monkeypatch.setattr(templates, "_environment", lambda: broken)


@pytest.mark.parametrize(
    ("target", "template", "right", "wrong", "problem"),
    [
        ("kubernetes", "kubernetes.yaml.j2", "replicas: {{ set.pod.role.workers }}", "replicas: 2", "too few"),
        ("kubernetes", "kubernetes.yaml.j2", "{{ pod.gpus | string", "{{ (pod.gpus // 2) | string", "2 GPUs, not 4"),
        (
            "kubernetes",
            "kubernetes.yaml.j2",
            "      nvidia.com/gpu: ",
            '      nvidia.com/gpu: "4"\n      nvidia.com/gpu: ',
            "twice",
        ),
        ("kubernetes", "kubernetes.yaml.j2", "{{ router.image | tojson }}", "sglang:latest", "not pinned"),
        ("kubernetes", "pod.j2", "  port: {{ port }}", "  port: 9090", "port 9090, not 8000"),
        (
            "llm-d-helm",
            "llm-d-values.yaml.j2",
            "targetPort: {{ llm_d.target_port }}",
            "",
            "do not agree on their ports",
        ),
        ("llm-d-helm", "llm-d-values.yaml.j2", "{{ secret | tojson }}", "", "authSecretName is null"),
        ("llm-d-helm", "llm-d-values.yaml.j2", "{{ guide | tojson }}", "1.0", "label llm-d.ai/guide is no string"),
        (
            "llm-d-helm",
            "llm-d-values.yaml.j2",
            "tensor: {{ pod.gpus * pod.nodes // pod.role.layout.dp }}",
            "tensor: 1",
            "1 GPU, not 4",
        ),
        ("llm-d-helm", "pod.j2", "for word in words", "for word in words | reverse", "not Qwen"),
        ("llm-d-kustomize", "llm-d-patch.yaml.j2", "{{ name | tojson }}", '"decode"', "prefill"),
        ("llm-d-kustomize", "llm-d-kustomization.yaml.j2", "- {{ base | tojson }}", "- base", "not over the guide"),
        ("llm-d-kustomize", "pod.j2", "for name, value in pod", "for value, name in pod", "not"),
        ("llm-d-kustomize", "README.md.j2", "- `{{ name }}`", "- `{{ name[:9] }}`", "does not list"),
    ],
)
def test_bad_template_writes_nothing(
    target: str, template: str, right: str, wrong: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _break(monkeypatch, template, right, wrong)
    with pytest.raises(FailedCheck, match=problem):
        write(render(_deployment("sglang" if target == "kubernetes" else "vllm"), target), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_template_with_an_unknown_name_is_no_file(monkeypatch: pytest.MonkeyPatch):
    _break(monkeypatch, "llm-d-values.yaml.j2", "{{ uri | tojson }}", "{{ adress | tojson }}")
    with pytest.raises(jinja2.UndefinedError, match="adress"):
        render(_deployment(), "llm-d-helm")


@pytest.mark.parametrize(
    ("target", "engine"),
    [
        ("kubernetes", "sglang"),
        ("kubernetes", "trtllm"),
        *[(target, engine) for target in ("llm-d-helm", "llm-d-kustomize") for engine in ("vllm", "sglang")],
    ],
)
def test_every_option_that_is_left_out_is_missed(target: str, engine: str):
    files = render(_deployment(engine, experts=True), target)
    names = load_server(engine)
    patterns = [
        rf'\n *- "{re.escape(option)}"(?:\n *- "[^-][^\n]*")*(?=\n)' for option in names.arguments.values() if option
    ]
    patterns += [
        rf"\b{key.rsplit('.', 1)[-1]}: (?:\[[^\]]*\]|[^,}}\n]+)(?:, |\n|(?=}}))" for key in names.file.values()
    ]
    tried = 0
    for pattern in patterns:
        for name, text in files.items():
            if name.startswith(("kubernetes", "llm-d", "patch")) and re.search(pattern, text):
                tried += 1
                assert problems({**files, name: re.sub(pattern, "", text, count=1)}), f"{name} without {pattern}"
    assert tried > 12


@pytest.mark.parametrize("target", ["llm-d-helm", "llm-d-kustomize"])
def test_engine_that_llm_d_does_not_serve_is_refused_without_files(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    row = result_row("trtllm", experts=False, disaggregated=False)
    (tmp_path / "agg").mkdir()
    text = ",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n"
    (tmp_path / "agg" / "best_config_topn.csv").write_text(text, encoding="utf-8")
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "chosen": "agg", "inputs": SEARCHED}))
    assert run(["deploy", "--from", str(tmp_path), "--target", target]) == 2
    assert "vllm or sglang" in capsys.readouterr().err
    assert not (tmp_path / "agg" / "top1").exists()


def test_model_in_a_directory_is_refused_where_it_is_downloaded():
    row = {**result_row("vllm", experts=False, disaggregated=False), "model": "/models/mine"}
    with pytest.raises(Exception, match="Hugging Face name"):
        render(build(row, INPUTS), "llm-d-helm")


def test_what_does_not_fit_or_is_for_another_release_is_not_written():
    deployment = _deployment()
    role = dataclasses.replace(deployment.roles[0], use=Use(150.0, -0.064, None))
    found = _found(render(dataclasses.replace(deployment, roles=(role, deployment.roles[1])), "llm-d-helm"))
    assert "prefill: 150.0 GiB do not fit" in found
    older = dataclasses.replace(deployment, engine_version="0.20.1")
    assert "written for vllm 0.20.1; the options known" in _found(render(older, "llm-d-helm"))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_image_of_a_server_is_that_of_the_release(engine: str):
    assert load_server(engine).image.rsplit(":", 1)[-1].removeprefix("v") == load_engine(engine).version


@pytest.mark.parametrize("target", CLUSTER_TARGETS)
def test_site_facts_are_in_the_files(target: str):
    site = Site(namespace="team", image="registry:5000/x/sglang:1.2.3", secret="token", model_cache="models")
    files = render(_deployment("sglang", site=site), target)
    assert problems(files) == []
    text = "".join(files[name] for name in files if name.endswith(".yaml") and name != "k8s_bench.yaml")
    assert text.count('"registry:5000/x/sglang:1.2.3"') == (3 if target == "kubernetes" else 2)  # the router too
    assert '"token"' in text
    assert "models" in text
    if target != "llm-d-helm":  # helm takes the namespace as a flag
        assert 'namespace: "team"' in text


def test_name_too_long_for_a_set_or_the_chart_is_found():
    longest = load_clusters().longest_set_name
    found = _found(render(_deployment("sglang", name="a" * (longest - 6)), "kubernetes"))
    assert "-prefill is longer than the 52 characters" in found
    assert "the chart keeps" in _found(render(_deployment(name="a" * 56), "llm-d-helm"))


def test_unlike_widths_get_the_buffers_that_the_transfer_needs():
    row = {**result_row("sglang", experts=False, disaggregated=True), "(p)tp": 2, "num_total_gpus": 10}
    values = yaml.safe_load(render(build(row, {**INPUTS, "total_gpus": 10}), "llm-d-helm")["llm-d-values.yaml"])
    names = {entry["name"] for entry in values["decode"]["containers"][0]["env"]}
    assert names == set(load_server("sglang").unlike_heads)
