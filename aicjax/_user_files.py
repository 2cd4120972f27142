# SPDX-License-Identifier: Apache-2.0
"""YAML files that a user names, read or refused in a line."""

from pathlib import Path
from typing import Any

import yaml

from aicjax._results import InputError


def read_mapping(argument: str, path: Path, what: str) -> dict[Any, Any]:
    """The mapping in a YAML file.

    Args:
        argument: What the user named the file with.
        path: The file.
        what: What its mapping is, such as `a mapping of names to experiments`.

    Raises:
        InputError: The file cannot be read, is not YAML, nests too deeply, or holds no mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise InputError(argument, str(path), f"a readable file ({error.strerror})") from None
    except RecursionError:
        raise InputError(argument, str(path), "a YAML file (this one nests too deeply)") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(argument, str(path), f"a YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise InputError(argument, str(path), what)
    return content
