# SPDX-License-Identifier: Apache-2.0
"""Flags of what the user's cluster is called and has, for commands that write deployment files."""

from typing import Annotated, Any

from aicjax.cli.flags import flag

_PANEL = "Cluster (deployment files)"

Namespace = Annotated[
    str | None, flag("--namespace", panel=_PANEL, metavar="NAME", default="kubectl's", text="Kubernetes namespace.")
]
Image = Annotated[
    str | None,
    flag("--image", panel=_PANEL, metavar="IMAGE:TAG", default="the engine's release", text="Image of the workers."),
]
Secret = Annotated[
    str | None,
    flag("--secret", panel=_PANEL, metavar="NAME", text="Kubernetes secret with the token of the model hub."),
]
ModelCache = Annotated[
    str | None,
    flag("--model-cache", panel=_PANEL, metavar="CLAIM", text="Volume claim that holds downloaded models."),
]


class Site:
    """The user's cluster."""

    namespace: Namespace
    image: Image
    secret: Secret
    model_cache: ModelCache


NAMES = tuple(Site.__annotations__)


def taken(given: dict[str, Any]) -> dict[str, str]:
    """Takes the flags of the cluster out of the given flags, by field of `aicjax.deploy.record.Site`."""
    return {name: given.pop(name) for name in NAMES if name in given}
