# SPDX-License-Identifier: Apache-2.0
"""Names of container images."""

import re

_TAG = re.compile(r"[^@]*:[\w.-]*\d[\w.-]*")  # of the last part of the path; a port of a registry stands in the first
_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")


def is_pinned(image: str) -> bool:
    """Whether an image has a digest or a tag with a version, so that it is the same tomorrow.

    Example:
        >>> is_pinned("registry:5000/team/engine:1.3.0"), is_pinned("registry:5000/team/engine:main")
        (True, False)
    """
    return bool(_DIGEST.fullmatch(image) or _TAG.fullmatch(image.rsplit("/", 1)[-1]))
