# SPDX-License-Identifier: Apache-2.0
"""Names of container images."""

import re

_REGISTRY = r"(?:(?:localhost|[\w-]+[.:][\w.:-]*)/)?"
_PATH = r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
_PINNED = re.compile(rf"{_REGISTRY}{_PATH}(?::[\w.-]*\d[\w.-]*|(?::[\w.-]+)?@sha256:[0-9a-f]{{64}})", re.ASCII)

IMAGE_FILE = ".sqsh"  # ending of a container as a file


def is_pinned(image: str) -> bool:
    """Whether an image has a digest or a tag with a version, so that it is the same tomorrow.

    Example:
        >>> is_pinned("registry:5000/team/engine:1.3.0"), is_pinned("registry:5000/team/engine:main")
        (True, False)
    """
    return _PINNED.fullmatch(image) is not None
