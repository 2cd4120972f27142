# SPDX-License-Identifier: Apache-2.0
"""Whether documents have a shape that their readers take: the schemas of `configs/deploy/schemas/`, more rules."""

import difflib
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.deploy.templates import YAML_LOADER

RECORD = "aicjax-deployment"
VALUES = "llm-d-values"
PATCH = "patch"
_KINDS = {
    ("nvidia.com/v1beta1", "DynamoGraphDeployment"): "dynamo-graph-deployment-v1beta1",
    ("nvidia.com/v1alpha1", "DynamoGraphDeployment"): "dynamo-graph-deployment-v1alpha1",
    ("nvidia.com/v1beta1", "DynamoGraphDeploymentRequest"): "dynamo-graph-deployment-request-v1beta1",
    ("apps/v1", "Deployment"): "kubernetes-deployment",
    ("apps/v1", "StatefulSet"): "kubernetes-stateful-set",
    ("batch/v1", "Job"): "kubernetes-job",
    ("v1", "Service"): "kubernetes-service",
    ("v1", "ConfigMap"): "kubernetes-config-map",
    ("resource.nvidia.com/v1beta1", "ComputeDomain"): "compute-domain",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "leader-worker-set",
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): "kustomization",
}
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "empty",
}


def problems(kind: str, document: Any) -> list[str]:
    """What is wrong with a document, each in a line that begins with the place; empty when nothing is.

    Args:
        kind: Name of a file of `configs/deploy/schemas/`, without `.json`.
        document: JSON values, as YAML or JSON files hold them.

    Raises:
        InputError: No such schema.

    Example:
        >>> named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "lables": {}}}
        >>> problems("kubernetes-config-map", named)
        ["metadata: unknown field 'lables' (did you mean 'labels'?)"]
    """
    errors = sorted(
        _validator(kind).iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path]
    )
    found = [line for error in errors for line in _lines(error)]
    return found or list(_RULES.get(kind, _no_rules)(document))


def kind_of(document: Any) -> str | None:
    """The schema of a document by its `apiVersion` and `kind`; None when there is none."""
    if not isinstance(document, Mapping):
        return None
    return _KINDS.get((str(document.get("apiVersion")), str(document.get("kind"))))


def file_problems(name: str, text: str) -> list[str]:
    """What is wrong with the documents of a generated file, each in a line that begins with the file's name.

    A file that is no manifest, such as the file of an engine, passes.

    Args:
        name: Its name: `deployment.json`, `*values.yaml` and `patch-*.yaml` say what they hold, others by `kind`.
        text: Its content.
    """
    if not name.endswith((".json", ".yaml")):
        return []
    try:
        documents = [json.loads(text)] if name.endswith(".json") else list(yaml.load_all(text, Loader=YAML_LOADER))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        return [f"{name}: {' '.join(str(error).split())}"]
    return [f"{name}: {problem}" for document in documents for problem in _document_problems(name, document)]


def _document_problems(name: str, document: Any) -> list[str]:
    named = PurePath(name).name
    if named == "deployment.json":
        return problems(RECORD, document)
    if named.endswith("values.yaml"):
        return problems(VALUES, document)
    if named.startswith("patch-"):
        return problems(PATCH, document)
    if (kind := kind_of(document)) is not None:
        return problems(kind, document)
    if isinstance(document, Mapping) and "kind" in document:
        return [f"no schema for {document.get('kind')} of {document.get('apiVersion')}"]
    return []


@functools.cache
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    schemas = _schemas()
    if kind not in schemas:
        raise InputError("kind", kind, one_of(kind, schemas))
    resources = ((f"{name}.json", Resource.from_contents(schema)) for name, schema in schemas.items())
    return Draft202012Validator(schemas[kind], registry=Registry().with_resources(resources))


@functools.cache
def _schemas() -> dict[str, Any]:
    folder = _paths.configs_dir() / "deploy" / "schemas"
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def _lines(error: Any) -> Iterator[str]:
    """An error of jsonschema in our words; the schema's `description` says what a text with a pattern should be."""
    place, stated, rule = _place(error.absolute_path), error.instance, error.validator_value
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for name in stated:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, 1)
                yield f"{place}unknown field {name!r}" + (f" (did you mean {close[0]!r}?)" if close else "")
        return
    words = {
        "required": lambda: f"{error.message.split(' ')[0]} is missing",
        "type": lambda: f"{stated!r} is not {' or '.join(_TYPES[name] for name in _listed(rule))}",
        "enum": lambda: f"{stated!r} is not one of {', '.join(map(str, rule))}",
        "const": lambda: f"{stated!r} is not {rule!r}",
        "pattern": lambda: f"{stated!r} is not {error.schema.get('description', 'of the form ' + str(rule))}",
        "minimum": lambda: f"{stated} is below {rule}",
        "maximum": lambda: f"{stated} is above {rule}",
        "exclusiveMinimum": lambda: f"{stated} is not above {rule}",
        "minLength": lambda: "is empty" if rule == 1 else f"{stated!r} is shorter than {rule} characters",
        "maxLength": lambda: f"{stated!r} is longer than {rule} characters",
        "minItems": lambda: "is empty" if rule == 1 else f"has fewer than {rule} entries",
        "maxItems": lambda: f"has {len(stated)} entries, more than {rule}",
        "minProperties": lambda: "is empty",
        "maxProperties": lambda: f"has {len(stated)} fields, more than {rule}",
        "uniqueItems": lambda: "states an entry twice",
        "not": lambda: error.schema.get("description", "is not allowed"),
    }
    yield place + words.get(error.validator, lambda: error.schema.get("description", "is not allowed"))()


def _place(path: Any) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{text}: " if text else ""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _no_rules(_document: Any) -> Iterator[str]:
    yield from ()


def _components(document: Mapping[str, Any]) -> Iterator[str]:
    """What the operator of Dynamo checks by rules of its own, version `v1beta1`."""
    components = document["spec"].get("components", [])
    counts = Counter(component["name"].lower() for component in components)
    yield from (
        f"spec.components: two are named {name!r}, ignoring case" for name, count in counts.items() if count > 1
    )
    if sum(component.get("type") == "epp" for component in components) > 1:
        yield "spec.components: more than one of type epp"
    if "restart" in document["spec"]:
        yield "spec: 'restart' is not for a new deployment"
    for index, component in enumerate(components):
        place = f"spec.components[{index}]"
        yield from _available(place, component)
        if "eppConfig" in component and component.get("type") != "epp":
            yield f"{place}: 'eppConfig' is for the type epp"
        if pod := component.get("podTemplate", {}).get("spec"):
            if not any(part["name"] == "main" and part.get("image") for part in pod["containers"]):
                yield f"{place}.podTemplate.spec.containers: none is named 'main' and has an image"
            yield from _pod(f"{place}.podTemplate.spec", pod)


def _services(document: Mapping[str, Any]) -> Iterator[str]:
    """What the operator of Dynamo checks by rules of its own, version `v1alpha1`."""
    if "restart" in document["spec"]:
        yield "spec: 'restart' is not for a new deployment"
    for name, service in document["spec"]["services"].items():
        place = f"spec.services.{name}"
        yield from _available(place, service)
        memory = service.get("sharedMemory")
        if memory is not None and not memory.get("disabled") and not memory.get("size"):
            yield f"{place}.sharedMemory: neither a size nor disabled"


def _available(place: str, component: Mapping[str, Any]) -> Iterator[str]:
    replicas = component.get("replicas", 1)
    if replicas and component.get("minAvailable", 1) > replicas:
        yield f"{place}.minAvailable: {component['minAvailable']} is above the replicas, {replicas}"


def _workload(document: Mapping[str, Any]) -> Iterator[str]:
    """What Kubernetes checks of a set of pods beyond the shape."""
    spec = document["spec"]
    labels = spec["template"].get("metadata", {}).get("labels", {})
    for name, value in spec["selector"].get("matchLabels", {}).items():
        if labels.get(name) != value:
            yield f"spec.selector.matchLabels: {name}={value} is no label of the template"
    yield from _pod("spec.template.spec", spec["template"]["spec"], _claimed(spec))


def _job(document: Mapping[str, Any]) -> Iterator[str]:
    pod = document["spec"]["template"]["spec"]
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "spec.template.spec.restartPolicy: a Job needs Never or OnFailure"
    yield from _pod("spec.template.spec", pod)


def _group(document: Mapping[str, Any]) -> Iterator[str]:
    group = document["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        if template := group.get(role):
            yield from _pod(f"spec.leaderWorkerTemplate.{role}.spec", template["spec"], _claimed(group))


def _claimed(spec: Mapping[str, Any]) -> list[str]:
    """Volumes that every pod of a set gets a claim of its own for."""
    return [claim["metadata"].get("name", "") for claim in spec.get("volumeClaimTemplates", ())]


def _pod(place: str, pod: Mapping[str, Any], volumes: Sequence[str] = ()) -> Iterator[str]:
    """Names in a pod that are used once and that exist where others refer to them."""
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    known = {what: [entry["name"] for entry in pod.get(what, ())] for what in ("volumes", "resourceClaims")}
    for what, names in {**known, "containers": [container["name"] for container in containers]}.items():
        yield from (f"{place}.{what}: two are named {name!r}" for name, count in Counter(names).items() if count > 1)
    for container in containers:
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in (*known["volumes"], *volumes):
                yield f"{place}: container {container['name']!r} mounts {mount['name']!r}, which is no volume"
        for claim in container.get("resources", {}).get("claims", ()):
            if claim["name"] not in known["resourceClaims"]:
                yield f"{place}: container {container['name']!r} claims {claim['name']!r}, which the pod does not"


_RULES: dict[str, Callable[[Any], Iterator[str]]] = {
    "dynamo-graph-deployment-v1beta1": _components,
    "dynamo-graph-deployment-v1alpha1": _services,
    "kubernetes-deployment": _workload,
    "kubernetes-stateful-set": _workload,
    "kubernetes-job": _job,
    "leader-worker-set": _group,
}
