# SPDX-License-Identifier: Apache-2.0
"""Whether the documents of a deployment name one cluster: its namespace, its secret and its volume claim."""

from collections.abc import Iterator, Mapping
from typing import Any

from aicjax.deploy.record import Deployment
from aicjax.deploy.templates import documents


def problems(deployment: Deployment, files: Mapping[str, str], default_secret: str) -> Iterator[str]:
    """Documents in another namespace, and those that take another secret or claim than the record states.

    Others beside them are a user's own, and pass.

    Args:
        deployment: The record.
        files: All files by name.
        default_secret: The secret of the target where the record states none.
    """
    site = deployment.site
    secret = site.secret or default_secret
    for name, text in files.items():
        for document in documents(text) if name.endswith(".yaml") else ():
            if not isinstance(document, Mapping):
                continue
            metadata = document.get("metadata")
            namespace = (metadata if isinstance(metadata, Mapping) else document).get("namespace")
            if namespace is not None and namespace != (site.namespace or namespace):
                yield f"{name}: namespace {namespace}, not {site.namespace}"
            for secrets in _secrets(document):
                if secrets and secret not in secrets:
                    yield f"{name}: secret {', '.join(sorted(secrets))}, not {secret}"
            for claims in _claims(document):
                if site.model_cache and claims and site.model_cache not in claims:
                    yield f"{name}: claim {', '.join(sorted(claims))}, not {site.model_cache}"


def _secrets(document: Any) -> Iterator[set[str]]:
    """Secrets of the first container of every pod; that of a chart or a service."""
    for key, value in _entries(document):
        container = value[0] if key == "containers" and value else value if key == "mainContainer" else {}
        yield {str(stated["name"]) for what, stated in _entries(container) if what in ("secretRef", "secretKeyRef")}
        if key in ("envFromSecret", "authSecretName"):
            yield {str(value)}


def _claims(document: Any) -> Iterator[set[str]]:
    """Volume claims of every pod."""
    for key, value in _entries(document):
        if key == "volumes":
            yield {str(stated) for what, stated in _entries(value) if what == "claimName"}


def _entries(node: Any) -> Iterator[tuple[str, Any]]:
    """All keys below a place with their values."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield str(key), value
            yield from _entries(value)
    elif isinstance(node, list):
        for value in node:
            yield from _entries(value)
