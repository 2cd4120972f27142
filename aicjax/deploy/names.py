# SPDX-License-Identifier: Apache-2.0
"""What a user may call a deployment and the things of a cluster, checked before anything is computed."""

import re
from collections.abc import Mapping

from aicjax._results import InputError
from aicjax.deploy.images import IMAGE_FILE, is_pinned
from aicjax.deploy.record import LABEL_LENGTH

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_RULE = f"lower-case letters, digits and hyphens, at most {LABEL_LENGTH}"


def is_label(text: str) -> bool:
    """Whether a text is an RFC 1123 label.

    Example:
        >>> is_label("my-ns"), is_label("my_ns")
        (True, False)
    """
    return len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def check_names(name: str | None, site: Mapping[str, str | None]) -> None:
    """Refuses names that no cluster takes.

    Args:
        name: Of the deployment; None for the default.
        site: Fields of `aicjax.deploy.record.Site`.

    Raises:
        InputError: The first that is none.
    """
    for what, label in {"name": name, **site}.items():
        if label is None:
            continue
        if what == "image":
            if not (is_pinned(label) or label.endswith(IMAGE_FILE)):
                raise InputError("image", label, "an image with a digest or a tag that has a version in it")
        elif not is_label(label):
            raise InputError(what, label, f"an RFC 1123 label: {LABEL_RULE}")
