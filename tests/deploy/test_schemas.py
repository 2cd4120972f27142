# SPDX-License-Identifier: Apache-2.0
"""Documents against the schemas of their readers: what is right passes, a mistake is one line in plain words."""

import copy
import dataclasses
import json
import re
import typing
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from aicjax import _paths
from aicjax._results import InputError
from aicjax.deploy import record
from aicjax.deploy.build import build
from aicjax.deploy.checks import FailedCheck, require
from aicjax.deploy.render import render
from aicjax.deploy.schema_checks import RECORD, VALUES, file_problems, kind_of, problems
from tests.deploy.rows import INPUTS, result_row

SCHEMAS = sorted((_paths.configs_dir() / "deploy" / "schemas").glob("*.json"))
POD = {
    "containers": [
        {
            "name": "main",
            "image": "example.com/engine:1.2.3",
            "command": ["python3"],
            "env": [{"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "resources": {"limits": {"nvidia.com/gpu": "4", "memory": "80Gi"}, "claims": [{"name": "channel"}]},
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
        }
    ],
    "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "models"}}],
    "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": "channels"}],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": POD}


def _document(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": copy.deepcopy(spec)}


COMPONENT = {
    "name": "Worker",
    "type": "worker",
    "replicas": 2,
    "minAvailable": 1,
    "multinode": {"nodeCount": 2},
    "sharedMemorySize": "16Gi",
    "podTemplate": {"spec": POD},
}
SERVICE = {
    "componentType": "worker",
    "replicas": 1,
    "resources": {"limits": {"gpu": "8"}},
    "sharedMemory": {"size": "16Gi"},
    "extraPodSpec": {"mainContainer": {"image": "example.com/engine:1.2.3"}, "nodeSelector": {"gpu": "h200"}},
}
SET = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
DOCUMENTS = {
    "dynamo-graph-deployment-v1beta1": _document(
        "nvidia.com/v1beta1",
        "DynamoGraphDeployment",
        {"backendFramework": "vllm", "components": [{"name": "Frontend", "type": "frontend"}, COMPONENT]},
    ),
    "dynamo-graph-deployment-v1alpha1": _document(
        "nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"Worker": SERVICE}}
    ),
    "dynamo-graph-deployment-request-v1beta1": _document(
        "nvidia.com/v1beta1",
        "DynamoGraphDeploymentRequest",
        {"model": "m", "backend": "auto", "workload": {"isl": 1}, "hardware": {"gpuSku": "h200_sxm", "totalGpus": 8}},
    ),
    "kubernetes-deployment": _document("apps/v1", "Deployment", SET),
    "kubernetes-stateful-set": _document("apps/v1", "StatefulSet", {**SET, "serviceName": "a"}),
    "kubernetes-job": _document("batch/v1", "Job", {"template": {"spec": {**POD, "restartPolicy": "Never"}}}),
    "kubernetes-service": _document(
        "v1", "Service", {"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http"}]}
    ),
    "kubernetes-config-map": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}},
    "leader-worker-set": _document(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    ),
    "compute-domain": _document(
        "resource.nvidia.com/v1beta1",
        "ComputeDomain",
        {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "channels"}}},
    ),
    "kustomization": {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["base"],
        "patches": [{"path": "patch-decode.yaml"}],
    },
    "patch": _document(
        "apps/v1", "Deployment", {"template": {"spec": {"containers": [{"name": "main", "args": ["--port", "1"]}]}}}
    ),
    "llm-d-values": {
        "modelArtifacts": {"name": "m", "uri": "hf://m", "size": "1Gi", "authSecretName": ""},
        "routing": {"servicePort": 8000, "proxy": {"enabled": True, "targetPort": 8200}},
        "decode": {
            "create": True,
            "parallelism": {"tensor": 4},
            "containers": [{"name": "vllm", "mountModelVolume": True}],
        },
    },
}


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_schemas_are_schemas_that_name_their_version(path):
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert any(digit.isdigit() for digit in schema["$comment"])
    assert schema["$id"] == path.name
    assert [
        place for place, node in _nodes(schema) if "properties" in node and node.get("additionalProperties", True)
    ] == []


def _nodes(node: Any, place: str = "") -> typing.Iterator[tuple[str, dict[str, Any]]]:
    """Schemas in a schema, by their place; fields may be called as a keyword is."""
    if isinstance(node, list):
        for part in node:
            yield from _nodes(part, place)
    elif isinstance(node, dict):
        yield place, node
        for name, part in node.items():
            named = part.items() if name in ("properties", "$defs") else [("", part)]
            for field, inner in named:
                yield from _nodes(inner, f"{place}/{name}/{field}")


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_right_documents_pass(kind: str):
    assert problems(kind, DOCUMENTS[kind]) == []
    assert kind in ("patch", VALUES) or kind_of(DOCUMENTS[kind]) == kind


def test_claims_of_a_set_are_volumes_of_its_pods():
    document = _changed("kubernetes-stateful-set", "spec/template/spec/volumes", [])
    assert "no volume" in problems("kubernetes-stateful-set", document)[0]
    document["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "cache"}, "spec": {}}]
    assert problems("kubernetes-stateful-set", document) == []


def test_component_without_pods_may_want_some_available():
    assert problems(BETA, _changed(BETA, "spec/components/1/replicas", 0)) == []


def _changed(kind: str, place: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENTS[kind])
    *outer, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    node: Any = document
    for part in outer:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return document


BETA, ALPHA, REQUEST = "dynamo-graph-deployment-v1beta1", "dynamo-graph-deployment-v1alpha1", list(DOCUMENTS)[2]
ALPHA_POD = "spec/services/Worker/extraPodSpec"
MISTAKES = [
    (BETA, "spec/components/1/replica", 3, "spec.components[1]: unknown field 'replica' (did you mean 'replicas'?)"),
    (BETA, "spec/components/1/replicas", "3", "spec.components[1].replicas: '3' is not a whole number"),
    (BETA, "spec/components/1/replicas", -1, "spec.components[1].replicas: -1 is below 0"),
    (BETA, "spec/components/1/name", ..., "spec.components[1]: 'name' is missing"),
    (BETA, "spec/components/1/name", "-a", "'-a' is not a name of letters, digits and inner hyphens"),
    (BETA, "spec/components/1/name", "a" * 64, "is longer than 63 characters"),
    (BETA, "spec/components/1/name", "FRONTEND", "spec.components: two are named 'frontend', ignoring case"),
    (
        BETA,
        "spec/components/1/type",
        "encode",
        "'encode' is not one of frontend, worker, prefill, decode, planner, epp",
    ),
    (BETA, "spec/components/1/minAvailable", 3, "spec.components[1].minAvailable: 3 is above the replicas, 2"),
    (BETA, "spec/components/1/multinode/nodeCount", 1, "nodeCount: 1 is below 2"),
    (BETA, "spec/components/1/sharedMemorySize", "16 GB", "'16 GB' is not a quantity such as 500m, 8 or 16Gi"),
    (BETA, "spec/components/1/eppConfig", {}, "spec.components[1]: 'eppConfig' is for the type epp"),
    (BETA, "spec/components", [{"name": f"c{i}"} for i in range(26)], "spec.components: has 26 entries, more than 25"),
    (BETA, "spec/components", [{"name": n, "type": "epp"} for n in "ab"], "more than one of type epp"),
    (BETA, "spec/backendFramework", "tgi", "'tgi' is not one of sglang, vllm, trtllm"),
    (BETA, "spec/restart", {"id": "1"}, "spec: 'restart' is not for a new deployment"),
    (BETA, "metadata/name", "My_name", "metadata.name: 'My_name' is not a name of lower-case letters"),
    (BETA, "metadata/name", None, "metadata.name: None is not text"),
    (BETA, "metadata/namespace", "a.b", "metadata.namespace: 'a.b' is not a name of lower-case letters"),
    (BETA, "apiVersion", "nvidia.com/v1", "apiVersion: 'nvidia.com/v1' is not 'nvidia.com/v1beta1'"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/name", "worker", "none is named 'main' and has an image"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/image", "", "image: is empty"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/readinessProbe/httpGet/port", ..., "'port' is missing"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/readinessProbe/httpGet/port", 0, "port: 0 is below 1"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/env/0/value", 8, "value: 8 is not text"),
    (BETA, "spec/components/1/podTemplate/spec/containers/0/env/0/valueFrom", {}, "valueFrom: is empty"),
    (BETA, "spec/components/1/podTemplate/spec/volumes", [], "container 'main' mounts 'cache', which is no volume"),
    (BETA, "spec/components/1/podTemplate/spec/resourceClaims", [], "claims 'channel', which the pod does not"),
    (BETA, "spec/components/1/podTemplate/spec/tolerations/0/effect", "Never", "'Never' is not one of NoSchedule"),
    (ALPHA, "spec/services/Worker/resources/limits/gpu", 8, "spec.services.Worker.resources.limits.gpu: 8 is not text"),
    (ALPHA, "spec/services/Worker/sharedMemory", {}, "sharedMemory: neither a size nor disabled"),
    (ALPHA, "spec/services/Worker/minAvailable", 2, "minAvailable: 2 is above the replicas, 1"),
    (ALPHA, "spec/services/Worker/multinode", {}, "multinode: 'nodeCount' is missing"),
    (ALPHA, f"{ALPHA_POD}/podTemplate", {}, "extraPodSpec: unknown field 'podTemplate'"),
    (ALPHA, f"{ALPHA_POD}/mainContainer/images", "a", "unknown field 'images' (did you mean 'image'?)"),
    (ALPHA, "spec/restart", {"id": "1"}, "spec: 'restart' is not for a new deployment"),
    (REQUEST, "spec/model", ..., "spec: 'model' is missing"),
    (REQUEST, "spec/hardware/gpuSku", "h200", "spec.hardware.gpuSku: 'h200' is not one of gb200_sxm"),
    (REQUEST, "spec/searchStrategy", "fast", "'fast' is not one of rapid, thorough"),
    ("kubernetes-deployment", "spec/selector/matchLabels", {"app": "b"}, "app=b is no label of the template"),
    ("kubernetes-deployment", "spec/template/spec/containers", [], "spec.template.spec.containers: is empty"),
    ("kubernetes-deployment", "spec/template/spec/containers", [{"name": "a"}] * 2, "containers: two are named 'a'"),
    ("kubernetes-job", "spec/template/spec/restartPolicy", "Always", "restartPolicy: a Job needs Never or OnFailure"),
    ("kubernetes-service", "spec/ports/0/port", 70000, "spec.ports[0].port: 70000 is above 65535"),
    ("kubernetes-config-map", "data/b", 1, "data.b: 1 is not text"),
    ("leader-worker-set", "spec/leaderWorkerTemplate/workerTemplate/spec/volumes", [], "mounts 'cache'"),
    ("compute-domain", "spec/channel", ..., "spec: 'channel' is missing"),
    ("kustomization", "resource", ["base"], "unknown field 'resource' (did you mean 'resources'?)"),
    ("patch", "spec/template/spec/container", [], "unknown field 'container' (did you mean 'containers'?)"),
    (VALUES, "modelArtifacts/authSecretName", None, "modelArtifacts.authSecretName: None is not text"),
    (VALUES, "modelArtifacts/uri", "m", "modelArtifacts.uri: 'm' is not hf://, pvc:// or pvc+hf:// and a place"),
    (VALUES, "decode/parallelism/tensor", "4", "decode.parallelism.tensor: '4' is not a whole number"),
    (VALUES, "decode/containers/0/modelCommand", "vllm", "'vllm' is not one of vllmServe, imageDefault, custom"),
    (VALUES, "prefil", {}, "unknown field 'prefil' (did you mean 'prefill'?)"),
]


@pytest.mark.parametrize(("kind", "place", "value", "problem"), MISTAKES)
def test_mistake_is_one_line_in_plain_words(kind: str, place: str, value: Any, problem: str):
    found = problems(kind, _changed(kind, place, value))
    assert problem in "; ".join(found)
    assert len(found) == 1
    assert not any("\n" in line for line in found)


def _schema_of(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """Fields of a dataclass of the record: those that are records themselves, and all names."""
    hints = typing.get_type_hints(kind)
    held = {
        name: [part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)]
        for name, hint in hints.items()
    }
    return {name: parts[0] for name, parts in held.items() if parts}, set(hints)


def test_record_and_its_schema_have_the_same_fields():
    def compare(kind: Any, schema: dict[str, Any], more: set[str]):
        schema = schema.get("items", schema)
        inner, names = _schema_of(kind)
        assert set(schema["properties"]) == names | more, kind
        for name, part in inner.items():
            compare(part, schema["properties"][name], set())

    schema = json.loads((_paths.configs_dir() / "deploy" / "schemas" / f"{RECORD}.json").read_text(encoding="utf-8"))
    compare(record.Deployment, schema, {"target", "format"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"format": 2', "deployment.json: Expecting"),
        ('{"format": 2}', "deployment.json: format: 2 is not 1"),
    ],
)
def test_record_is_checked(text: str, problem: str):
    assert problem in "; ".join(file_problems("deployment.json", text))


def test_files_say_what_they_hold():
    assert file_problems("agg_engine.yaml", "backend: pytorch\n") == []
    assert file_problems("run_node0.sh", "kind: x") == []
    assert file_problems("llm-d-values.yaml", "a: 1\n") != []
    assert "no schema for Pod of v1" in file_problems("a.yaml", "apiVersion: v1\nkind: Pod\n")[0]
    assert "'spec' is missing" in file_problems("a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")[0]
    assert file_problems("a.yaml", "a: [1\n")[0].startswith("a.yaml: ")


def test_kind_without_a_schema_is_refused():
    with pytest.raises(InputError, match="kubernetes-job"):
        problems("kubernetes-jobs", {})


@pytest.mark.parametrize("target", ["dynamo", "dynamo-v1alpha1"])
def test_nothing_is_written_with_a_field_that_the_operator_does_not_know(target: str):
    files = render(build(result_row("vllm", experts=False, disaggregated=False), INPUTS), target)
    assert [line for name, text in files.items() for line in file_problems(name, text)] == []
    files["deploy.yaml"] = re.sub(r"( *)replicas: 4", r"\1replicas: 4\n\1replicaCount: 4", files["deploy.yaml"])
    with pytest.raises(FailedCheck, match="unknown field 'replicaCount'"):
        require(files)
