# SPDX-License-Identifier: Apache-2.0
"""Whether documents have the shape that their readers take: JSON Schemas of `configs/deploy/schemas/`, and rules beyond them."""

import difflib
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import InputError

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
        >>> problems("kubernetes-config-map", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"nam": "a"}})
        ["metadata: unknown field 'nam' (did you mean 'name'?)"]
    """
    errors = sorted(_validator(kind).iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path])
    found = [line for error in errors for line in _lines(error)]
    return found or list(_RULES.get(kind, _no_rules)(document))


def kind_of(document: Any) -> str | None:
    """The schema of a document by its `apiVersion` and `kind`; None when there is none."""
    if not isinstance(document, Mapping):
        return None
    return _KINDS.get((str(document.get("apiVersion")), str(document.get("kind"))))


def file_problems(name: str, text: str) -> list[str]:
    """What is wrong with the documents of a generated file, each in a line that begins with the file's name.

    A file whose reader has no public schema, such as the file of an engine, passes.

    Args:
        name: Its name: `deployment.json`, `*values.yaml` and `patch-*.yaml` say what they hold, others by `kind`.
        text: Its content.
    """
    if not name.endswith((".json", ".yaml")):
        return []
    try:
        documents = [json.loads(text)] if name.endswith(".json") else list(yaml.safe_load_all(text))
    except (ValueError, yaml.YAMLError) as error:
        return [f"{name}: {' '.join(str(error).split())}"]
    return [
        f"{name}: {problem}"
        for document in documents
        if (kind := _kind_in(name, document)) is not None
        for problem in problems(kind, document)
    ]


def _kind_in(name: str, document: Any) -> str | None:
    if PurePath(name).name == "deployment.json":
        return RECORD
    if name.endswith("values.yaml"):
        return VALUES
    if PurePath(name).name.startswith("patch-"):
        return PATCH
    return kind_of(document)


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
    yield from (f"spec.components: two are named {name!r}, ignoring case" for name, count in counts.items() if count > 1)
    if sum(component.get("type") == "epp" for component in components) > 1:
        yield "spec.components: more than one of type epp"
    if "restart" in document["spec"]:
        yield "spec: 'restart' is not for a new deployment"
    for index, component in enumerate(components):
        place, replicas = f"spec.components[{index}]", component.get("replicas", 1)
        if replicas and component.get("minAvailable", 1) > replicas:
            yield f"{place}.minAvailable: {component['minAvailable']} is above the {replicas} replicas"
        containers = component.get("podTemplate", {}).get("spec", {}).get("containers", [])
        if containers and not any(part["name"] == "main" and part.get("image") for part in containers):
            yield f"{place}.podTemplate.spec.containers: none is named 'main' and has an image"


_RULES: dict[str, Callable[[Any], Iterator[str]]] = {"dynamo-graph-deployment-v1beta1": _components}
