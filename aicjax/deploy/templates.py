# SPDX-License-Identifier: Apache-2.0
"""Texts of generated files: templates that refuse an undefined name, and YAML of mappings."""

import functools
import json
import re
import shlex
from typing import Any

import jinja2
import yaml

from aicjax._names import counted
from aicjax.deploy.settings import templates_dir

YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same rules, several times faster


def fill(template: str, **values: Any) -> str:
    """A template of `configs/deploy/templates/` with its values.

    Raises:
        jinja2.UndefinedError: The template uses a name that is not given.
    """
    return _environment().get_template(template).render(**values)


def yaml_text(content: dict[str, Any]) -> str:
    """A mapping as YAML, keys in their order."""
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


def documents(text: str) -> list[Any]:
    """The documents of a YAML file.

    Raises:
        yaml.YAMLError: It is none.
    """
    return list(yaml.load_all(text, Loader=YAML_LOADER))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"shell": _shell_word, "tojson": _json, "counted": counted}
    return environment


def _json(value: Any) -> str:
    return json.dumps(value, default=_unknown)


def _unknown(value: Any) -> None:
    """Names what is undefined, which JSON would only call unknown."""
    raise TypeError(f"no JSON value: {value}")


def _shell_word(text: str) -> str:
    """A word of a shell command, where nothing but the address of a node is expanded."""
    return f'"{text}"' if re.fullmatch(r"\$\{ADDRESS\[\d+\]\}(:\d+)?", text) else shlex.quote(text)
