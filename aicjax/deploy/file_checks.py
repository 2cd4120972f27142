# SPDX-License-Identifier: Apache-2.0
"""Checks of a generated file by itself: placeholders, pinned software, shell, YAML that all readers take alike."""

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

from aicjax.deploy import schema_checks
from aicjax.deploy.images import IMAGE_FILE, is_pinned
from aicjax.deploy.render import RECORD_FILE
from aicjax.deploy.templates import YAML_LOADER

SCRIPTS = (".sh", ".sbatch")
_PLACEHOLDER = re.compile(  # a headless service of Kubernetes states None, and a script may write to /dev/null
    r"(?<!clusterIP: \")(?<!\w)(?:None|NaN|Undefined)(?!\w)|(?<!/dev/)(?<![\w-])null(?![\w-])"
)
_IMAGE = re.compile(r"^[ -]*\"?image\"?: (?:\"([^\"]*)\"|([^\s,{\"]+))", re.MULTILINE)
_BOOLEANS = ("true", "false")


def file_problems(name: str, text: str) -> Iterator[str]:
    """What is wrong with a file by itself, each in a line."""
    if match := _PLACEHOLDER.search(text):
        yield f"{name}: the placeholder {match[0]}"
    if re.search(r"\bpip3? install\b|:latest\b", text):
        yield f"{name}: software that is not pinned"
    for image in {quoted or plain for quoted, plain in _IMAGE.findall(text)}:
        if not (is_pinned(image) or (name == RECORD_FILE and image.endswith(IMAGE_FILE))):
            yield f"{name}: image {image!r} has no pinned tag, or is none"
    if name.endswith(".yaml"):
        yield from (f"{name}: {problem}" for problem in _of_yaml(text))
    if name.endswith(SCRIPTS) and (problem := _of_script(text)):
        yield f"{name}: {problem}"
    yield from schema_checks.file_problems(name, text)


def aliases(name: str, text: str) -> Iterator[str]:
    """Places of a YAML file that stand for another one."""
    if name.endswith(".yaml") and "*" in text:
        try:
            for event in yaml.parse(text, Loader=YAML_LOADER):
                if isinstance(event, yaml.AliasEvent):
                    yield f"*{event.anchor}"
        except yaml.YAMLError:
            return  # the check of its shape says why


@functools.lru_cache(maxsize=256)  # the script of a benchmark is that of every target
def _of_script(text: str) -> str:
    """What bash says of a script; empty when it can read it."""
    shell = shutil.which("bash")
    if shell is None:
        return "no bash to check it with"
    ran = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    return " ".join(ran.stderr.split()) if ran.returncode else ""


def _of_yaml(text: str) -> Iterator[str]:
    """Plain scalars that YAML 1.1 and 1.2 read differently; keys stated twice."""
    try:
        events = list(yaml.parse(text, Loader=YAML_LOADER))
        nodes = list(yaml.compose_all(text, Loader=YAML_LOADER))
    except yaml.YAMLError:
        return  # the check of its shape says why
    for node in nodes:
        yield from (f"{key} is stated twice" for key in _twice(node))
    resolver = yaml.SafeLoader("")
    for event in events:
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
            tag = resolver.resolve(yaml.ScalarNode, event.value, (True, False)).rsplit(":", 1)[-1]
            if tag in ("null", "timestamp") or (tag == "bool" and event.value not in _BOOLEANS):
                yield f"{event.value!r} needs quotes"
            if tag in ("int", "float") and re.search(r"[:_]|^[+-]?0\d", event.value):
                yield f"{event.value!r} needs quotes"


def _twice(node: Any) -> Iterator[str]:
    """Keys that a mapping states more than once; a reader takes the last, or refuses the file."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    keys = [key.value for key, _ in pairs]
    yield from sorted({str(key) for key in keys if keys.count(key) > 1})
    children = node.value if isinstance(node, yaml.SequenceNode) else [value for _, value in pairs]
    for child in children:
        yield from _twice(child)
